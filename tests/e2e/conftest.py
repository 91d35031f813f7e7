"""Fixtures of the end-to-end tests: real control planes, and Muster on one of them."""

import contextlib
import sys
from collections.abc import AsyncIterator, Generator
from pathlib import Path

import pytest
import pytest_asyncio

from kit import proof
from kit.cluster import Cluster, add_nodes, furnish
from kit.controlplane import ControlPlane
from kit.controlplane.build import Binaries
from kit.controlplane.pytest_plugin import (
    control_plane,
    control_plane_binaries,
    kept,
    kube,
    make_node,
    namespace,
    pytest_collection_finish,
    pytest_collection_modifyitems,
    pytest_runtest_teardown,
)
from kit.guarded import guarded
from kit.installation import pytest_terminal_summary
from kit.muster import Muster, running
from kit.nats import nats_server
from muster.bus.server import EmbeddedServer

__all__ = [
    "control_plane",
    "control_plane_binaries",
    "kube",
    "make_node",
    "namespace",
    "nats_server",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_runtest_teardown",
    "pytest_terminal_summary",
]


FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A fixture may ask whether the test it was made for has failed."""
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@contextlib.asynccontextmanager
async def with_nodes() -> AsyncIterator[ControlPlane]:
    async with ControlPlane(prepare=furnish) as plane:
        await add_nodes(plane)
        yield plane


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def muster_plane(control_plane_binaries: Binaries) -> AsyncIterator[ControlPlane]:
    """A control plane for Muster alone, since quota trees and queues are for the whole cluster.

    Its garbage collector knows our kinds from the start. Tests have it one after the other, see `Cluster`.
    """
    async for plane in kept("muster_plane", with_nodes):
        yield plane


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def plane(control_plane_binaries: Binaries) -> AsyncIterator[ControlPlane]:
    """A control plane with everything of deploy/ applied, and tenants on it."""
    async for plane in kept("plane", guarded):
        yield plane


@pytest_asyncio.fixture
async def cluster(muster_plane: ControlPlane) -> AsyncIterator[Cluster]:
    """An empty cluster with the operator on it, whose RayClusters have no pods."""
    async with Cluster(muster_plane) as cluster:
        yield cluster


@pytest_asyncio.fixture
async def muster_up(
    request: pytest.FixtureRequest, cluster: Cluster, nats_server: EmbeddedServer, tmp_path: Path
) -> AsyncIterator[Muster]:
    """Muster on that cluster; the log is proven at the end."""
    async with running(cluster, nats_server.url, tmp_path) as muster:
        yield muster
        if request.node.stash.get(FAILED, False):
            sys.stderr.write(f"the log ends with\n{proof.ending(await muster.commits())}\n")
