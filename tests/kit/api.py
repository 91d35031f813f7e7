"""A short way to call an ApiTransport in tests, and the suites' choice of servers: simulated and real.

Contract tests take `api` and run once on each. A real server is the session's control plane with our definitions
installed; the simulated one is new for each test.
"""

import json
import time
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from kit.controlplane import ControlPlane, pytest_plugin
from kit.crds import install_crds
from kit.waiting import until
from muster.fakecluster.apiserver import SimApiServer, SimTransport
from muster.kube.config import connect
from muster.kube.sources import FromKubeconfig
from muster.model.api import JSON, JSON_PATCH, MERGE_PATCH, NAMESPACES, ApiResource
from muster.ports import ApiTransport

Object = dict[str, Any]

#: Seconds without a line after which a test's watch has failed.
WATCH_IDLE_S = 10.0
#: Seconds that a real garbage collector may take: it looks for new kinds only every 30 s.
COLLECTED_S = 90.0


class Answer:
    """What a request was answered with."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self.text = body.decode()

    @property
    def body(self) -> Object:
        found: Object = json.loads(self.text)
        return found

    @property
    def said(self) -> tuple[int, str]:
        """(HTTP status, reason of the Status object)."""
        return self.status, self.body.get("reason", "")

    def __repr__(self) -> str:
        return f"{self.status} {self.text[:300]}"


class Api:
    """An API server under test, and a fresh namespace there."""

    def __init__(self, transport: ApiTransport, namespace: str, *, real: bool, server: SimApiServer | None) -> None:
        self.transport = transport
        self.namespace = namespace
        #: A real server, whose controllers need a moment.
        self.real = real
        self.server = server

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = JSON,
        query: dict[str, str] | None = None,
    ) -> Answer:
        """One request with a JSON body; bytes are sent as they are."""
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        answer = await self.transport.request(
            method, path, query=query, body=sent, content_type=content_type, timeout_s=30.0
        )
        return Answer(answer.status, answer.body)

    def path(self, resource: ApiResource, name: str = "", subresource: str = "") -> str:
        return resource.path(self.namespace, name, subresource)

    async def create(self, resource: ApiResource, found: Object) -> Object:
        """Create an object, which must work; returns it as stored."""
        given = {"apiVersion": resource.api_version, "kind": resource.kind, **found}
        answer = await self.call("POST", self.path(resource), given)
        assert answer.status == 201, answer
        return answer.body

    async def get(self, resource: ApiResource, name: str) -> Object | None:
        answer = await self.call("GET", self.path(resource, name))
        assert answer.status in (200, 404), answer
        return answer.body if answer.status == 200 else None

    async def merge(self, resource: ApiResource, name: str, patch: Object, subresource: str = "") -> Answer:
        path = self.path(resource, name, subresource)
        return await self.call("PATCH", path, patch, content_type=MERGE_PATCH)

    async def json_patch(self, resource: ApiResource, name: str, *operations: Object) -> Answer:
        return await self.call("PATCH", self.path(resource, name), list(operations), content_type=JSON_PATCH)

    async def delete(self, resource: ApiResource, name: str, **options: Any) -> Answer:
        return await self.call("DELETE", self.path(resource, name), options or None)

    async def gone(self, resource: ApiResource, name: str) -> None:
        """Return once there is no such object."""

        async def is_gone() -> bool:
            return await self.get(resource, name) is None

        await until(is_gone, COLLECTED_S)

    async def collector_knows_all(self, resource: ApiResource, **body: Any) -> None:
        """Return once the garbage collector has heard of all objects of a resource that were made so far.

        It hears of them in their order, and takes the one that is made here, whose owner never was. ``body``: of that.
        """
        nobody = {"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": str(uuid.uuid4())}
        meta = {"name": f"after-{resource.plural}", "ownerReferences": [nobody]}
        await self.create(resource, {**body, "metadata": meta})
        await self.gone(resource, meta["name"])

    async def cached(self, resource: ApiResource, *names: str) -> None:
        """Return once what is served at version 0, from a cache that may lag behind, holds these objects."""

        async def there() -> bool:
            items = (await self.select(resource, resourceVersion="0")).body["items"]
            return {*names} <= {item["metadata"]["name"] for item in items}

        await until(there, what=f"{names} to be in the cache")

    async def select(self, resource: ApiResource, **query: str) -> Answer:
        return await self.call("GET", self.path(resource), query=query)

    async def watch(self, resource: ApiResource, enough: Callable[[list[Object]], bool], **query: str) -> list[Object]:
        """The events of a watch, until they are enough or the server ends it."""
        events: list[Object] = []
        lines = self.transport.watch(self.path(resource), query=query, idle_limit_s=WATCH_IDLE_S)
        async for line in lines:
            events.append(json.loads(line))
            if enough(events):
                break
        await lines.aclose()  # type: ignore[attr-defined]
        return events


def seen(events: list[Object]) -> list[tuple[str, str]]:
    """(type, name) of each event."""
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


@pytest_asyncio.fixture
async def simulated_api() -> Api:
    """The simulated server, with real time, since the real one has it too."""
    server = SimApiServer(lambda: time.time_ns() // 1_000_000)
    server.objects.create(NAMESPACES, "", {"metadata": {"name": "test"}})
    return Api(SimTransport(server), "test", real=False, server=server)


@pytest_asyncio.fixture
async def real_api(control_plane: ControlPlane) -> AsyncIterator[Api]:
    """The session's control plane, through the product's own transport."""
    transport = await connect(FromKubeconfig(str(control_plane.kubeconfig)))
    try:
        await install_crds(transport)
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "test-"}}
        made = await transport.request("POST", "/api/v1/namespaces", body=json.dumps(body).encode())
        name = json.loads(made.body)["metadata"]["name"]
        yield Api(transport, name, real=True, server=None)
        await transport.request("DELETE", f"/api/v1/namespaces/{name}")
    finally:
        await transport.close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have the binaries built before the first test, and give the tests on a real server their longer time limit.

    They ask for the control plane only as they run, so pytest does not know it from their arguments.
    """
    for item in items:
        callspec = getattr(item, "callspec", None)
        if isinstance(item, pytest.Function) and callspec is not None and callspec.params.get("api") == "real":
            item.fixturenames = [*item.fixturenames, "control_plane_binaries", "control_plane"]
    pytest_plugin.pytest_collection_modifyitems(config, items)


@pytest.fixture(params=["simulated", "real"])
def api(request: pytest.FixtureRequest) -> Api:
    """Each server in turn."""
    found: Api = request.getfixturevalue(f"{request.param}_api")
    return found
