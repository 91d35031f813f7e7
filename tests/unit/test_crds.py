"""Our CustomResourceDefinitions as documents: that they agree with each other, and with those in the field.

For the latter set MUSTER_UPSTREAM_CRDS to a folder with the definitions of KubeRay, kube-queue and koord-queue.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kit.crds import FOLDER, definitions
from muster.model import api

Schema = dict[str, Any]

UPSTREAM = os.environ.get("MUSTER_UPSTREAM_CRDS", "")

#: Of a schema, what has to be as upstream has it.
FACTS = ("type", "format", "default", "enum", "minimum", "nullable", "x-kubernetes-int-or-string")


def by_name() -> dict[str, Schema]:
    """Definitions by plural and group, ``rayjobs.ray.io``."""
    return {definition["metadata"]["name"]: definition for definition in definitions()}


def schema(definition: Schema) -> Schema:
    found: Schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def test_every_definition_explains_itself() -> None:
    for path in FOLDER.glob("*.yaml"):
        lines = path.read_text().splitlines()
        assert lines[0].startswith("# "), path
        assert path.name == f"{definition_name(path)}.yaml"
        assert max(map(len, lines)) <= 120, path


def definition_name(path: Path) -> str:
    plural, _, group = yaml.safe_load(path.read_text())["metadata"]["name"].partition(".")
    return f"{group}_{plural}"


def test_the_definitions_serve_what_the_code_addresses() -> None:
    resources = (
        api.RAYJOBS,
        api.RAYCLUSTERS,
        api.QUOTA_TREES,
        api.QUEUES,
        api.KAI_QUEUES,
        api.KAI_POD_GROUPS,
        api.QUEUE_UNITS,
        *api.POD_GROUPS,
    )
    served = by_name()
    assert set(served) == {f"{resource.plural}.{resource.group}" for resource in resources}
    for resource in resources:
        spec = served[f"{resource.plural}.{resource.group}"]["spec"]
        version = spec["versions"][0]["name"]
        found = api.ApiResource(
            spec["group"], version, spec["names"]["plural"], spec["names"]["kind"], spec["scope"] == "Namespaced"
        )
        assert found == resource


def test_a_rayjob_holds_a_whole_raycluster() -> None:
    job, cluster = schema(by_name()["rayjobs.ray.io"]), schema(by_name()["rayclusters.ray.io"])
    held = job["properties"]["spec"]["properties"]["rayClusterSpec"]
    assert held == cluster["properties"]["spec"]
    shown = job["properties"]["status"]["properties"]["rayClusterStatus"]
    assert shown == cluster["properties"]["status"]


def test_status_subresources_are_as_in_the_field() -> None:
    with_status = {
        name
        for name, definition in by_name().items()
        if "status" in definition["spec"]["versions"][0].get("subresources", {})
    }
    assert with_status == {
        "rayjobs.ray.io",
        "rayclusters.ray.io",
        "podgroups.scheduling.x-k8s.io",
        "podgroups.scheduling.run.ai",
        "queues.scheduling.run.ai",
    }


@pytest.mark.skipif(not UPSTREAM, reason="MUSTER_UPSTREAM_CRDS names no folder")
@pytest.mark.parametrize(
    ("plural", "file"),
    [
        ("rayjobs", "ray.io_rayjobs.yaml"),
        ("rayclusters", "ray.io_rayclusters.yaml"),
        ("queues", "scheduling.x-k8s.io_queues.koord-queue.yaml"),
        ("queues", "scheduling.x-k8s.io_queues.kube-queue.yaml"),
        ("queues", "scheduling.run.ai_queues.yaml"),
        ("podgroups", "scheduling.run.ai_podgroups.yaml"),
        ("queueunits", "scheduling.x-k8s.io_queueunits.koord-queue.yaml"),
        ("queueunits", "scheduling.x-k8s.io_queueunits.kube-queue.yaml"),
        ("podgroups", "scheduling.sigs.k8s.io_podgroups.yaml"),
        ("podgroups", "scheduling.x-k8s.io_podgroups.yaml"),
    ],
)
def test_what_is_typed_here_is_typed_the_same_upstream(plural: str, file: str) -> None:
    ours = by_name()[f"{plural}.{file.partition('_')[0]}"]
    with (Path(UPSTREAM) / file).open() as text:
        theirs = yaml.load(text, Loader=yaml.CSafeLoader)
    assert ours["spec"]["group"] == theirs["spec"]["group"]
    names = ("plural", "singular", "kind", "categories")
    assert [ours["spec"]["names"].get(key) for key in names] == [theirs["spec"]["names"].get(key) for key in names]
    # What users write must be known here too; what is only known here does not matter.
    problems = list(differences(schema(ours), schema(theirs), ""))
    assert problems == []
    if plural in ("rayjobs", "rayclusters"):
        columns = "additionalPrinterColumns"
        assert ours["spec"]["versions"][0][columns] == theirs["spec"]["versions"][0][columns]


def differences(ours: Schema, theirs: Schema, path: str) -> Iterator[str]:
    """Every way in which a valid upstream object would be refused, pruned or defaulted differently here."""
    for fact in FACTS:
        # The older kube-queue gives its whole numbers no format.
        unsaid = (fact == "type" and "x-kubernetes-int-or-string" in theirs) or (
            fact == "format" and fact not in theirs
        )
        if ours.get(fact) != theirs.get(fact) and not unsaid:
            yield f"{path}: {fact} is {ours.get(fact)!r}, upstream {theirs.get(fact)!r}"
    extra = set(ours.get("required", ())) - set(theirs.get("required", ()))
    if extra:
        yield f"{path}: requires {extra}"
    if ours.get("x-kubernetes-preserve-unknown-fields"):
        known = {key: value for key, value in theirs.get("properties", {}).items() if key in ours.get("properties", {})}
    else:
        known = theirs.get("properties", {})
    for key, value in known.items():
        place = f"{path}.{key}".lstrip(".")
        if key not in ours.get("properties", {}):
            yield f"{place}: not known here"
        elif place != "metadata":
            yield from differences(ours["properties"][key], value, place)
    for key in ("items", "additionalProperties"):
        # additionalProperties of what is no object mean nothing; kube-queue has such a place.
        counts = isinstance(theirs.get(key), dict) and theirs.get("type") in ("object", "array")
        if counts and not ours.get("x-kubernetes-preserve-unknown-fields"):
            yield from differences(ours.get(key, {}), theirs[key], f"{path}[]")
