"""Questions to an API server, with the answers of real ones."""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from muster.kube.discovery import Access, ServerVersion, can_i, has_status_subresource, served, server_version
from muster.model.api import PODS, QUEUES, RAYJOBS, ApiResource
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
        return ApiResponse(status, found.encode() if isinstance(found, str) else json.dumps(found).encode())

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
