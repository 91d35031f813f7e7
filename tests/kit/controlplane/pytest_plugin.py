"""Pytest fixtures around control planes that several files of tests share, one after the other.

A conftest.py takes what it needs from here by import. Tests isolate themselves by namespace, and
by node pool where they need nodes. A plane at rest takes a tenth of a processor: it goes when the next
file does not ask for it. Building and starting may take longer than the time limit of
one test, so binaries are built after collection and tests that use the plane get a longer limit.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from kit.controlplane.build import Binaries, build
from kit.controlplane.plane import ControlPlane
from kit.kubeclient import KubeClient, Object, condition
from kit.waiting import until
from kit.workloads import POOL

#: Seconds for a test on the control plane, its start included, when the test sets no limit.
TEST_TIMEOUT_S = 240

MakeNode = Callable[..., Awaitable[Object]]
Begun = Callable[[], AbstractAsyncContextManager[ControlPlane]]
ASKED = pytest.StashKey[dict[Path, set[str]]]()
"""The fixtures that some test of a file asks for."""
_next: set[str] = set()
"""Those of the file whose test is next; empty after the last one."""
_kept: dict[str, tuple[AsyncExitStack, ControlPlane]] = {}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give every test on the control plane a time limit that covers its start; note which file asks for what."""
    asked = config.stash.setdefault(ASKED, {})
    for item in items:
        asked.setdefault(item.path, set()).update(getattr(item, "fixturenames", ()))
    if not config.pluginmanager.has_plugin("timeout"):
        return
    for item in items:
        if _uses_plane(item) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build before the first test runs, with progress on the terminal."""
    if session.config.option.collectonly or not any(map(_uses_plane, session.items)):
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
        build()


def _uses_plane(item: pytest.Item) -> bool:
    return "control_plane_binaries" in getattr(item, "fixturenames", ())


@pytest.fixture(scope="session")
def control_plane_binaries() -> Binaries:
    """Executables of the session's Kubernetes version.

    A test that starts a `ControlPlane` of its own takes this, to have them built beforehand.
    """
    return build()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """Let `kept` know who comes next."""
    _next.clear()
    if nextitem is not None:
        _next.update(item.config.stash[ASKED].get(nextitem.path, ()))
    return (yield)


async def kept(name: str, begun: Begun) -> AsyncIterator[ControlPlane]:
    """The body of fixture `name`, of a module in the loop of the session: the plane runs on while files ask for it."""
    if name not in _kept:
        stack = AsyncExitStack()
        _kept[name] = stack, await stack.enter_async_context(begun())
    stack, plane = _kept[name]
    yield plane
    if name not in _next:
        del _kept[name]
        await stack.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def control_plane(control_plane_binaries: Binaries) -> AsyncIterator[ControlPlane]:
    """A control plane with all components. A test that stops one starts it again."""
    async for plane in kept("control_plane", ControlPlane):
        yield plane


@pytest_asyncio.fixture
async def kube(control_plane: ControlPlane) -> AsyncIterator[KubeClient]:
    """Client of the session's control plane as its administrator."""
    plane = control_plane
    async with KubeClient(plane.url, token=plane.admin.token, ca_file=plane.ca_file) as client:
        yield client


@pytest_asyncio.fixture
async def namespace(kube: KubeClient) -> AsyncIterator[str]:
    """Name of a fresh namespace, deleted after the test without waiting for its end."""
    created = await kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "test-"}})
    name: str = created["metadata"]["name"]
    yield name
    if await kube.find("v1", "Namespace", name):
        await kube.delete("v1", "Namespace", name)


@pytest_asyncio.fixture
async def make_node(kube: KubeClient, namespace: str) -> AsyncIterator[MakeNode]:
    """Function that adds a KWOK node to this test's pool and returns it when it is ready.

    `await make_node("a", {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "4"}, labels={...})`. The
    node is called `<namespace>-a`; only pods with `in_pool(namespace)` in their spec
    run there.
    """
    names: list[str] = []

    async def make(
        suffix: str, capacity: dict[str, str] | None = None, *, labels: dict[str, str] | None = None
    ) -> Object:
        name = f"{namespace}-{suffix}"
        resources = {"cpu": "32", "memory": "256Gi", "pods": "110", **(capacity or {})}
        manifest = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {POOL: namespace, **(labels or {})}},
            "spec": {"taints": [{"key": POOL, "value": namespace, "effect": "NoSchedule"}]},
            "status": {"capacity": resources, "allocatable": resources},
        }
        names.append((await kube.create(manifest))["metadata"]["name"])

        async def ready() -> Object | None:
            node = await kube.get("v1", "Node", name)
            is_ready = condition(node, "Ready").get("status") == "True"
            return node if is_ready and len(node["spec"]["taints"]) == 1 else None

        return await until(ready, what=f"node {name} to be ready")

    yield make
    for name in names:
        if await kube.find("v1", "Node", name):
            await kube.delete("v1", "Node", name)
