"""For every test: whatever log it makes, what outsiders would read of it is as the contract says."""

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from kit import depth, published
from kit.bench import Bench
from kit.disorder import DisorderedCell
from kit.doubles.log import MemoryLog
from muster.bus import server
from muster.core.preemption import claimants

# How long an example takes is the machine's affair: no test depends on speed. Examples are the same in every run of a
# commit, so that what is said of it does not depend on luck; `make shake` looks for others.
hypothesis.settings.register_profile(
    "muster", deadline=None, derandomize=os.environ.get("MUSTER_TEST_EXAMPLES") != "random"
)
hypothesis.settings.load_profile("muster")

# What is imported is found compiled, as in an installed Muster, by the programs that tests start and by the workers of
# a run: half of a short command's time, and seconds of each worker's start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell starts programs in its background deaf to Ctrl-C, and so would be those that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Give each worker of a run ports of its own: a port is free until its server listens, so two could take one."""
    worker = getattr(config, "workerinput", None)
    if worker is not None:
        server.PORTS = server.PORTS[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is for `make nightly` alone; put the files that may take longest first, by their time limits.

    None of these is left over for the end of a run then. Those that share a control plane stand beside each other, so
    that it is started once. For runs that give whole files to their workers, in this order (`--dist loadfile
    --no-loadscope-reorder`).
    """
    if not depth.DEEP:
        left_out = [item for item in items if item.get_closest_marker("nightly")]
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]
        config.hook.pytest_deselected(items=left_out)
    limits: dict[Path, float] = {}
    planes: dict[Path, set[str]] = {}
    for item in items:
        marker = item.get_closest_marker("timeout")
        limits[item.path] = max(limits.get(item.path, 0.0), marker.args[0] if marker else 0.0)
        asked = planes.setdefault(item.path, set())
        asked.update(name for name in getattr(item, "fixturenames", ()) if name.endswith("plane"))
    items.sort(key=lambda item: (-limits[item.path], sorted(planes[item.path])))


def pytest_collection_finish() -> None:
    """What is there before the first test stays: the garbage collector need not look at it again and again."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def every_log_is_judged() -> Iterator[None]:
    """Have an independent validator judge the public events of every commit that is stored."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Bench, "append", published.judging(Bench.append, lambda bench: bench.log[-1]))
        patch.setattr(MemoryLog, "_put", published.judging(MemoryLog._put, lambda log: log._stored[-1]))
        patch.setattr(DisorderedCell, "append", published.judging(DisorderedCell.append, lambda sim: sim.log[-1]))
        yield


@pytest.fixture
def ages_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job ages though no other passes it: for tests of what follows then."""
    monkeypatch.setattr(claimants, "PASSED_TIMES", 0)
