"""Fixtures of the tests on the real controllers of JobSets, LeaderWorkerSets and TrainJobs: `make controllers` only."""

import os
import sys
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from kit.controlplane import ControlPlane
from kit.controlplane.build import Binaries
from kit.controlplane.pytest_plugin import control_plane_binaries
from kit.installation import pytest_terminal_summary
from kit.nats import nats_server
from kit.realcontrollers import FOLDER, with_controllers

__all__ = ["control_plane_binaries", "nats_server", "pytest_terminal_summary"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Other runs leave these tests out by name, and say so: none of them counts as passed."""
    here = [item for item in items if item.path.parent.name == "controllers"]
    if not here or config.option.collectonly or os.environ.get(FOLDER):
        return
    config.hook.pytest_deselected(items=here)
    items[:] = [item for item in items if item not in here]
    sys.stderr.write(f"not run: {len(here)} tests on real controllers; `make controllers` runs these\n")


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def controlled(control_plane_binaries: Binaries) -> AsyncIterator[ControlPlane]:
    async with with_controllers() as plane:
        yield plane
