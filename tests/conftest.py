"""For every test: whatever log it makes, what outsiders would read of it is as the contract says."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from kit import published
from kit.bench import Bench
from kit.disorder import DisorderedCell
from kit.doubles.log import MemoryLog
from muster.bus import server

# How long an example takes is the machine's affair: no test depends on speed. Examples are the same in every run of a
# commit, so that what is said of it does not depend on luck; `make shake` looks for others.
hypothesis.settings.register_profile(
    "muster", deadline=None, derandomize=os.environ.get("MUSTER_TEST_EXAMPLES") != "random"
)
hypothesis.settings.load_profile("muster")

# Programs that tests start find what they import compiled, as an installed Muster does: half of a short command's time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.setdefault("PYTHONPYCACHEPREFIX", str(Path("~/.cache/muster/bytecode").expanduser()))

# A shell starts programs in its background deaf to Ctrl-C, and so would be those that tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Give each worker of a run ports of its own: a port is free until its server listens, so two could take one."""
    worker = getattr(config, "workerinput", None)
    if worker is not None:
        server.PORTS = server.PORTS[int(worker["workerid"].removeprefix("gw")) :: worker["workercount"]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that may take longest first, by their time limits: none of them is left over for the end of a run.

    For runs that give whole files to their workers, in this order (`--dist loadfile --no-loadscope-reorder`).
    """
    limits: dict[Path, float] = {}
    for item in items:
        marker = item.get_closest_marker("timeout")
        limits[item.path] = max(limits.get(item.path, 0.0), marker.args[0] if marker else 0.0)
    items.sort(key=lambda item: -limits[item.path])


@pytest.fixture(scope="session", autouse=True)
def every_log_is_judged() -> Iterator[None]:
    """Have an independent validator judge the public events of every commit that is stored."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Bench, "append", published.judging(Bench.append, lambda bench: bench.log[-1]))
        patch.setattr(MemoryLog, "_put", published.judging(MemoryLog._put, lambda log: log._stored[-1]))
        patch.setattr(DisorderedCell, "append", published.judging(DisorderedCell.append, lambda sim: sim.log[-1]))
        yield
