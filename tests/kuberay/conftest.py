"""Fixtures of the tests on the real KubeRay operator. They run by `make kuberay` only, where there is loopback only."""

import sys
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from kit.controlplane import ControlPlane
from kit.controlplane.build import Binaries
from kit.controlplane.pytest_plugin import control_plane_binaries
from kit.controlplane.toolchain import BuildError
from kit.installation import pytest_terminal_summary
from kit.nats import nats_server
from kit.realkuberay.cluster import real_plane
from kit.realkuberay.sources import VERSIONS, Release, build
from kit.realray.network import interfaces

__all__ = ["control_plane_binaries", "nats_server", "pytest_terminal_summary"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Other runs than `make kuberay` leave these tests out by name, and say so: none of them counts as passed."""
    here = [item for item in items if item.path.parent.name == "kuberay"]
    if not here or config.option.collectonly or interfaces() == ["lo"]:
        return
    config.hook.pytest_deselected(items=here)
    items[:] = [item for item in items if item not in here]
    sys.stderr.write(f"not run: {len(here)} tests on the real KubeRay; `make kuberay` runs these\n")


@pytest.fixture(scope="session", params=VERSIONS)
def release(request: pytest.FixtureRequest) -> Release:
    """A release of KubeRay; `make kuberay` has built it."""
    try:
        return build(request.param)
    except BuildError as err:
        pytest.exit(str(err), returncode=1)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def plane(control_plane_binaries: Binaries, release: Release) -> AsyncIterator[ControlPlane]:
    async with real_plane(release) as plane:
        yield plane
