"""The lists of kinds in the manifests of deploy/ come from the registry, and nothing else lists kinds by hand."""

import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from kit.compose import REPOSITORY
from kit.deployed import Object, Right, every, of_kind, rights
from muster.core.workloads.definition import Suspension
from muster.core.workloads.registry import KINDS
from muster.model.api import ApiResource
from muster_cli.kindlists import manifests, relisted

POLICIES = REPOSITORY / "deploy" / "policies"
WIDGETS = ApiResource("example.com", "v3", "widgets", "Widget")
MORE = {
    **KINDS,
    "Widget": replace(KINDS["SparkApplication"], resource=WIDGETS, children=("Job",), auxiliary=()),
}
"""The registry with one kind more, of an API group that no other kind has."""
BY_HAND = {
    "libs/muster/core/workloads/table.py": "its definition",
    "libs/muster/core/workloads/edits.py": "edits allowed to one whose pods a function reads",
    "libs/muster/model/api.py": "its resource, where the fake cluster names it",
    "libs/muster/core/workloads/ownership.py": "the label by which its controller finds its pods, where it makes any",
    "tests/kit/jobs.py": "what its controller writes",
    "tests/kit/doubles/": "its controller",
    "tests/kit/guarded.py": "one right on the size of one kind, that attacks use",
}
"""{file or folder: what it holds} of the code that may name a kind which has nothing special."""
LEFT_OUT = (
    "libs/muster/core/workloads/edits.py",
    "libs/muster/core/workloads/ownership.py",
    "libs/muster/model/api.py",
    "tests/kit/doubles/",
    "tests/kit/guarded.py",
)
"""Not needed for a kind whose pods belong to an object that is known."""


def with_widgets(name: str, kind: str, folder: Path = POLICIES) -> Object:
    """An object of the manifests, as it would be with one kind more."""
    found = [each for path in sorted(folder.glob("*.yaml")) for each in every(relisted(path.read_text(), MORE))]
    [one] = [each for each in found if each["kind"] == kind and each["metadata"]["name"] == name]
    return dict(one)


def operations(policy: Object) -> list[str]:
    rules = policy["spec"]["matchConstraints"]["resourceRules"]
    [rule] = [rule for rule in rules if rule["apiGroups"] == ["example.com"]]
    assert (rule["apiVersions"], rule["resources"]) in [(["v3"], ["widgets"]), (["*"], ["*/scale"])]
    return list(rule["operations"])


def test_the_files_are_what_the_registry_says() -> None:
    for file, text in manifests().items():
        assert (REPOSITORY / file).read_text() == text, f"{file}: run `make schemas`"


@pytest.mark.parametrize(
    ("name", "kind", "asked"),
    [
        ("muster-jobs", "ValidatingAdmissionPolicy", ["CREATE", "UPDATE"]),
        ("muster-jobs-scaled", "ValidatingAdmissionPolicy", ["UPDATE"]),
        ("muster-jobs-suspended", "MutatingAdmissionPolicy", ["CREATE"]),
        ("muster-jobs-kept-running", "MutatingAdmissionPolicy", ["UPDATE"]),
    ],
)
def test_one_kind_more_is_in_every_policy(name: str, kind: str, asked: list[str]) -> None:
    assert operations(with_widgets(name, kind)) == asked


def test_one_kind_more_is_known_in_every_expression() -> None:
    jobs = str(with_widgets("muster-jobs", "ValidatingAdmissionPolicy"))
    assert jobs.count("example.com/Widget>Job") == 2
    assert jobs.count("in ['kubeflow.org', 'sparkoperator.k8s.io', 'example.com']") == 2
    assert "example.com/Widget>Job" in str(with_widgets("muster-jobs-suspended", "MutatingAdmissionPolicy"))
    assert "'example.com/Widget'" in str(with_widgets("muster-pods", "ValidatingAdmissionPolicy"))
    assert "'example.com'" in str(with_widgets("muster-pod-priorities", "ValidatingAdmissionPolicy"))


def test_one_kind_more_may_be_watched_and_resumed() -> None:
    for name, verbs in (("muster-watcher", ("get", "list", "watch")), ("muster-actuator", ("get", "patch"))):
        role = with_widgets(name, "ClusterRole", REPOSITORY / "deploy" / "rbac")
        more = rights(role) - rights(of_kind("ClusterRole")[name])
        assert more == {Right(verb, "example.com", "widgets") for verb in verbs}


def test_a_kind_may_be_suspended_by_a_field_of_its_own() -> None:
    odd = replace(MORE["Widget"], suspend=Suspension("spec.paused", "yes", "no"))
    jobs = relisted((POLICIES / "jobs-validated.yaml").read_text(), {**KINDS, "Widget": odd})
    [policy] = [
        each for each in every(jobs) if each["metadata"]["name"] == "muster-jobs" and "variables" in each["spec"]
    ]
    named = {each["name"]: each["expression"] for each in policy["spec"]["variables"]}
    assert "['widgets.example.com'].exists(" in named["byField"]
    assert "? variables.spec.?paused.orValue(dyn('no')) == 'yes' :" in named["byField"]
    assert "'spec.paused must be yes'" in named["asked"]


def test_no_other_code_lists_kinds_by_hand() -> None:
    """What CONTRIBUTING.md says of a new kind holds: nothing else has to be looked for."""
    rows = [row for kind, row in KINDS.items() if not kind.startswith("Ray") and kind != "Job"]
    names = "|".join(f"{row.resource.kind}|{row.resource.plural}" for row in rows)
    asked = ["git", "grep", "-lE", f"({names})[\"'/]", "--", "libs", "services", "tests/kit/*.py"]
    found = subprocess.run(asked, cwd=REPOSITORY, check=True, capture_output=True, text=True).stdout.split()
    assert [path for path in found if not path.startswith(tuple(BY_HAND))] == []
    page = (REPOSITORY / "CONTRIBUTING.md").read_text()
    [row] = [line for line in page.splitlines() if line.startswith("| add a job kind (")]
    for path in BY_HAND:
        assert path in LEFT_OUT or path.removeprefix("libs/muster/").rstrip("/") in row, path
