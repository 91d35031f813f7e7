"""How long a question takes: `muster why`, `ls`, `queue tree`, `usage` and others as commands, against a full log.

A cell with N waiting RayJobs is made, and a log of M events on a real nats-server. The snapshot of the read model
lies as far behind the end as the service lets it; each command is a new process, from its start to its end.

Run: python tests/perf/bench_ask.py [--waiting 10000] [--events 1000000] [--rounds 3]
"""

import asyncio
import functools
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from figures import Progress, Table, by_hand

from histories import Counted, Lives
from kit import facts
from kit.bench import Bench
from muster.bus.cell import open_log, open_stores
from muster.bus.connection import connect
from muster.bus.jetstream import JetStream
from muster.bus.server import EmbeddedServer
from muster.bus.snapshots import JetStreamSnapshots
from muster.core.promising.promises import Class
from muster.core.stage import Folder
from muster.events.envelope import Commit, Stored
from muster.ports import Log
from muster.runtime.logkeeping.snapshotting import make_snapshot
from muster.runtime.process import READ_MODEL_COMMITS
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState

CELL = "ask"
STEP = 500
FILLER = 200
"""Events of a commit that only fills the log; those after the snapshot have as many as others have: TAIL."""
TAIL = 5


class Folding(Counted):
    """A log that is folded into the read model, and not kept."""

    def __init__(self, state: ReadState) -> None:
        super().__init__()
        self._state = state
        self._folder = Folder(ReadModel())

    def append(self, stored: Stored) -> None:
        super().append(stored)
        self._folder.fold(self._state, stored)


def cell(waiting: int) -> ReadState:
    """The read model of a cell where so many jobs have come, and next to all of them wait."""
    bench, state = Bench(check=False), ReadState()
    tape = Folding(state)
    for stored in bench.log:
        tape.append(stored)
    bench.log = tape
    lives = Lives(bench, cpu=40)
    for first in range(0, waiting, STEP):
        lives.come(range(first, min(first + STEP, waiting)))
    _teach(state)
    return state


def _teach(state: ReadState) -> None:
    """Runs and waits have ended before, so that a start can be promised to each job."""
    for number in range(1_000):
        state.promises.durations.ended(("",), 60_000 * (number % 300 + 1))
        state.promises.classes.setdefault(0, Class()).calibration.waited(3_600_000, 36_000 * (number % 300 + 1))


async def fill(log: Log, commits: int, events: int, before: int) -> int:
    """Pods of a running job that change. Returns the last sequence of the watcher."""
    for number in range(commits):
        pods = tuple(facts.pod("job-000000", each % 3, "ns-0", running=bool(number % 2)) for each in range(events))
        commit = Commit(
            commit_id=f"fill-{before}", stage="watcher", shard="pods", kind="input", at=2_000_000, events=pods
        )
        before = await log.append(commit, expected=before)
    return before


def spent() -> float:
    """Seconds of CPU of all commands that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def asked(url: str, *words: str) -> tuple[float, float]:
    """Seconds from the start of a command to its end, and of CPU."""
    began, before = time.perf_counter(), spent()
    command = [sys.executable, "-m", "muster_cli", *words, "--url", url, "--cell", CELL]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=installed())
    assert done.returncode == 0, done.stderr
    return time.perf_counter() - began, spent() - before


async def measure(waiting: int, events: int, rounds: int, say: Progress) -> Table:
    say(f"ask: a cell of {waiting} waiting jobs")
    state = cell(waiting)
    jobs = sum(job.status == "waiting" for job in state.queues.jobs.values())
    server = EmbeddedServer()
    await server.start()
    try:
        connection = await connect(server.url, name="bench")
        js = JetStream(connection)
        log = await open_log(js, CELL, create=True, at=1)
        await open_stores(js, CELL, create=True)
        say(f"ask: a log of {events} events")
        last = await fill(log, events // FILLER, FILLER, 0)
        state.seq, state.log_id, state.generation = await log.end(), log.identity.log_id, log.identity.generation
        snapshot = make_snapshot(log.identity, "readmodel", "0", state)
        assert await JetStreamSnapshots(js, log.identity, warn=print).save(snapshot)
        await fill(log, READ_MODEL_COMMITS, TAIL, last)
        name = next(f"{job.ref.key}" for job in reversed(state.queues.jobs.values()) if job.status == "waiting")
        found = []
        asks = (
            *(("why", name), ("position", name), ("ls",), ("ls", "-o", "json"), ("story", "leaf-0"), ("nodes",)),
            *(("queue", "tree"), ("usage", "--from", "1")),
        )
        for words in asks:
            await asyncio.to_thread(asked, server.url, *words)  # Once, so that everything is compiled.
        for number in range(rounds):
            say(f"ask: round {number + 1}")
            figures = {}
            for words in asks:
                whole, cpu = await asyncio.to_thread(asked, server.url, *words)
                shown = " ".join(["JOB" if word == name else word for word in words])
                figures |= {f"muster {shown}, s": whole, f"muster {shown}, s of CPU": cpu}
            figures["for comparison: muster version, s"] = await asyncio.to_thread(version)
            found.append({**figures, "snapshot of the read model, MiB": len(snapshot.body) / (1 << 20)})
        await connection.close()
    finally:
        await server.stop()
    about = (
        f"{jobs:,} waiting RayJobs; a log of {events:,} events on a real nats-server, {READ_MODEL_COMMITS:,} commits "
        "of it after the newest snapshot of the read model, which is as many as the service lets come. Each command "
        "is a process of its own, from its start to its end."
    )
    return Table("Ask", about, found)


def version() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "muster_cli", "version"], capture_output=True, check=True, env=installed())
    return time.perf_counter() - began


@functools.cache
def installed() -> dict[str, str]:
    """The environment of a Muster that was installed: what it imports is compiled already."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    bytecode = os.environ.get("PYTHONPYCACHEPREFIX") or str(Path("~/.cache/muster/bytecode").expanduser())
    return {**kept, "PYTHONPYCACHEPREFIX": bytecode, "NO_COLOR": "1"}


def main() -> None:
    by_hand(measure, __doc__, waiting=10_000, events=1_000_000, rounds=3)


if __name__ == "__main__":
    main()
