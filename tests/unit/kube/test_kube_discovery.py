"""Questions to an API server, with the answers of real ones."""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from muster.kube.discovery import Access, ServerVersion, can_i, has_status_subresource, served, server_version
from muster.kube.suspendable import suspendable
from muster.model.api import CRDS, PODS, QUEUES, RAYJOBS, TFJOBS, ApiResource
from muster.ports import ApiResponse, ApiStatusError


class Answers:
    """An ApiTransport with one answer per (method, path)."""

    def __init__(self, answers: Mapping[tuple[str, str], tuple[int, Any]]) -> None:
        self.answers = answers
        self.bodies: list[Any] = []

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_s: float = 10.0,
    ) -> ApiResponse:
        if body is not None:
            self.bodies.append(json.loads(body))
        status, found = self.answers.get((method, path), (404, "404 page not found"))
        return ApiResponse(status, found.encode() if isinstance(found, str) else json.dumps(found, separators=(",", ":")).encode())

    def watch(self, path: str, *, query: Mapping[str, str], idle_limit_s: float) -> AsyncIterator[bytes]:
        raise NotImplementedError


RAY = {"kind": "APIResourceList", "resources": [{"name": "rayjobs", "kind": "RayJob"}, {"name": "rayjobs/status"}]}
BARE = {"kind": "APIResourceList", "resources": [{"name": "queues", "kind": "Queue"}]}


@pytest.mark.parametrize(
    ("resource", "expected"), [(RAYJOBS, (True, True)), (QUEUES, (True, False)), (PODS, (False, False))]
)
async def test_group_version_tells_what_is_served(resource: ApiResource, expected: tuple[bool, bool]) -> None:
    api = Answers({("GET", RAYJOBS.root): (200, RAY), ("GET", QUEUES.root): (200, BARE)})
    assert (await served(api, resource), await has_status_subresource(api, resource)) == expected


@pytest.mark.parametrize("answer", [(503, {"kind": "Status", "message": "later"}), (200, "<html>"), (403, "")])
async def test_answer_that_is_none_is_an_error(answer: tuple[int, Any]) -> None:
    with pytest.raises(ApiStatusError):
        await served(Answers({("GET", RAYJOBS.root): answer}), RAYJOBS)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"major": "1", "minor": "36", "gitVersion": "v1.36.3"}, ServerVersion(1, 36, "v1.36.3")),
        ({"major": "1", "minor": "28+", "gitVersion": "v1.28.5-gke.1"}, ServerVersion(1, 28, "v1.28.5-gke.1")),
        ({}, ServerVersion(0, 0, "")),
    ],
)
async def test_version_is_numbers(found: dict[str, str], expected: ServerVersion) -> None:
    assert await server_version(Answers({("GET", "/version"): (200, found)})) == expected


async def test_access_is_asked_for_as_it_will_be_used() -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    api = Answers({("POST", path): (201, {"status": {"allowed": True, "reason": "RBAC: allowed by x"}})})
    assert await can_i(api, "patch", RAYJOBS, "team", subresource="status") == Access(True, "RBAC: allowed by x")
    assert api.bodies[0]["spec"]["resourceAttributes"] == {
        "verb": "patch",
        "group": "ray.io",
        "version": "v1",
        "resource": "rayjobs",
        "subresource": "status",
        "namespace": "team",
        "name": "",
    }


FLAG, PLAIN = {"type": "boolean"}, {"type": "object"}


def kind(name: str, group: str, served: bool = True, **spec: object) -> Any:
    """The definition of a kind whose spec has these fields."""
    schema = {"properties": {"spec": {"type": "object", "properties": spec}}}
    version = {"name": "v1", "served": served, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": f"{name.lower()}s", "kind": name}
    return {"spec": {"group": group, "names": names, "versions": [version]}}


async def test_kinds_of_jobs_that_can_be_suspended_are_known_by_their_definitions() -> None:
    policy = {"properties": {"suspend": FLAG}}
    pods = {"additionalProperties": {"properties": {"template": PLAIN}}}
    opened = kind("Gadget", "example.com", suspend=FLAG)
    opened["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"][
        "x-kubernetes-preserve-unknown-fields"
    ] = True
    definitions = [
        kind("TFJob", "kubeflow.org", runPolicy=policy, tfReplicaSpecs=pods),
        kind("MXJob", "kubeflow.org", runPolicy=policy, mxReplicaSpecs=pods),
        kind("Sample", "numaflow.io", suspend=FLAG, pod={"properties": {"containers": PLAIN}}),
        kind("Former", "numaflow.io", served=False, suspend=FLAG, template=PLAIN),
        kind("Named", "numaflow.io", suspend={"type": "string"}, template=PLAIN),
        kind("CronWorkflow", "argoproj.io", suspend=FLAG, schedules=PLAIN, template=PLAIN),
        kind("Kustomization", "kustomize.toolkit.fluxcd.io", suspend=FLAG, interval=PLAIN),
        opened,
    ]
    api = Answers({("GET", CRDS.path()): (200, {"items": definitions})})
    named = [(resource.kind, at) for resource, at in await suspendable(api, [TFJOBS])]
    assert named == [("Gadget", "spec.suspend"), ("MXJob", "spec.runPolicy.suspend"), ("Sample", "spec.suspend")]
    with pytest.raises(ApiStatusError):
        await suspendable(Answers({("GET", CRDS.path()): (403, {"message": "no"})}), [])
