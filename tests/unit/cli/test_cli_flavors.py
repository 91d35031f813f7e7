"""Kueue's ResourceFlavor objects: made into flavors of a tree by a command, and compared with a tree by the doctor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kit.story import quota_tree
from muster.core.quota.trees.rules import flavors_written, read_flavors
from muster.fakecluster.apiserver import SimApiServer, SimTransport
from muster.fakecluster.apiserver.kinds import ResourceRules
from muster.model import api
from muster.model.placing import Taint, Toleration
from muster.ports import ApiResponse
from muster_cli.findings import must_fix
from muster_cli.main import run
from muster_cli.resourceflavors import flavors_of, in_cluster
from muster_cli.treechecks import tree_findings

H100: dict[str, Any] = {
    "nodeLabels": {"gpu.type": "h100"},
    "nodeTaints": [
        {"key": "gpu", "value": "h100", "effect": "NoSchedule"},
        {"key": "busy", "effect": "PreferNoSchedule"},
    ],
    "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
    "topologyName": "racks",
}
A100: dict[str, Any] = {"nodeLabels": {"gpu.type": "a100"}, "nodeTaints": None}


def flavor(name: str, spec: dict[str, Any], version: str = "v1beta2") -> dict[str, Any]:
    return {
        "apiVersion": f"kueue.x-k8s.io/{version}",
        "kind": "ResourceFlavor",
        "metadata": {"name": name},
        "spec": spec,
    }


def cluster(tree_flavors: str = "", version: str = "", **specs: dict[str, Any]) -> SimTransport:
    """A cluster with a quota tree, and with Kueue's objects where a version of their API is named."""
    server = SimApiServer(lambda: 1_000_000, auto_namespaces=True)
    tree = quota_tree()
    tree["metadata"]["annotations"] = {"muster.dev/flavors": tree_flavors} if tree_flavors else {}
    server.objects.create(api.QUOTA_TREES, "kube-system", tree)
    for resource in [served for served in api.RESOURCE_FLAVORS if served.version == version]:
        server.serve(ResourceRules(resource=resource, custom=True))
        for name, spec in specs.items():
            server.objects.create(resource, "", flavor(name, spec, version))
    return SimTransport(server)


def printed(path: Path, objects: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    path.write_text(yaml.safe_dump_all(objects))
    code = run(["quota", "flavors", str(path)])
    shown = capsys.readouterr()
    return code, shown.out or shown.err


def test_the_objects_of_a_file_are_a_value_that_a_tree_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = [flavor("h100", H100), flavor("a100", A100, "v1beta1"), flavor("any", {})]
    other = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}
    code, text = printed(tmp_path / "flavors.yaml", [other, *objects], capsys)
    h100, a100, anything = read_flavors(text)
    assert (code, [h100.name, a100.name, anything.name]) == (0, ["h100", "a100", "any"])
    assert h100.labels == {"gpu.type": "h100"} and a100.labels == {"gpu.type": "a100"} and not anything.labels
    assert h100.taints == (Taint("gpu", "h100"),), "a preference keeps no pod away"
    assert h100.tolerations == (Toleration("gpu", "Exists", effect="NoSchedule"),)
    assert h100.resources == ("nvidia.com/gpu",)


@pytest.mark.parametrize(
    ("objects", "code", "words"),
    [
        ([flavor("H_100", {})], 5, "H_100"),
        ([flavor("h100", {"nodeLabels": ["gpu"]})], 5, "nodeLabels"),
        ([flavor("h100", H100), flavor("h100", A100)], 5, "h100"),
        ([{**flavor("h100", H100), "spec": "x"}], 1, "spec of ResourceFlavor h100 is no object"),
        ([{**flavor("h100", H100), "apiVersion": "other.io/v1"}], 2, "holds no ResourceFlavor of kueue.x-k8s.io"),
    ],
)
def test_what_a_tree_would_refuse_is_told(
    objects: list[dict[str, Any]], code: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended, text = printed(tmp_path / "flavors.yaml", objects, capsys)
    assert (ended, words in text) == (code, True), text


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2", ""])
async def test_the_objects_of_a_cluster_are_read_in_the_version_that_is_served(version: str) -> None:
    bodies = await in_cluster(cluster(version=version, h100=H100, a100=A100))
    assert [one.name for one in flavors_of(bodies)] == (["a100", "h100"] if version else [])


async def test_the_doctor_names_the_flavors_that_differ_from_the_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    copy = flavors_written(flavors_of([flavor("h100", H100), flavor("a100", A100)]))
    changed = H100 | {"nodeLabels": {"gpu.type": "h100-nvl"}, "tolerations": []}

    async def differing(transport: SimTransport) -> list[tuple[str, str, str]]:
        findings = await tree_findings(transport, policies=False)
        assert not must_fix(findings), findings
        return [(one.grade, one.title, one.detail) for one in findings if "flavor" in one.title]

    assert await differing(cluster(copy)) == [], "without Kueue there is nothing to compare with"
    assert await differing(cluster(copy, "v1beta2", h100=H100, a100=A100, l40={})) == []
    reordered = json.dumps(json.loads(copy)[::-1])
    assert await differing(cluster(reordered, "v1beta1", h100=H100, a100=A100)) == []
    assert await differing(cluster(copy, "v1beta1", h100=changed, a100=A100)) == [
        ("note", "flavor h100", "nodeLabels, tolerations differ from ResourceFlavor h100")
    ]
    assert await differing(cluster("", "v1beta1", h100=changed)) == [], "a tree without flavors"
    [(grade, title, detail)] = await differing(cluster(copy, "v1beta1", h100={"nodeLabels": {"a": 5}}))
    assert (grade, title) == ("note", "flavor h100") and "nodeLabels" in detail
    real = SimTransport.request

    async def request(self: SimTransport, method: str, path: str, **rest: Any) -> ApiResponse:
        forbidden = path.endswith("/resourceflavors")
        return ApiResponse(403, b"{}") if forbidden else await real(self, method, path, **rest)

    monkeypatch.setattr(SimTransport, "request", request)
    assert await differing(cluster(copy)) == [], "a user without rights is no news where Kueue is not served"
    [(grade, title, detail)] = await differing(cluster(copy, "v1beta1", h100=changed))
    assert (grade, title) == ("note", "flavors") and "403" in detail
