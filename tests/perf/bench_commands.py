"""The nine everyday commands on the log of a demo: each a process of its own, from its start to its end.

The demo lives in virtual time until its log has so many commits, with times of today. The snapshot of the read model
lies as far behind the end as the service lets it where the state is small. Where ``kubectl`` is installed, its own
start is beside them.

Run: python tests/perf/bench_commands.py [--commits 40000] [--rounds 3]
"""

import asyncio
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from bench_ask import installed, spent
from figures import Progress, Table, by_hand
from msgspec.structs import replace

from kit.compose import REPOSITORY
from kit.histories.recipes import function_of
from kit.seated import bodies
from muster.bus.cell import open_stores
from muster.bus.connection import connect
from muster.bus.importing import import_log
from muster.bus.jetstream import JetStream
from muster.bus.server import EmbeddedServer
from muster.bus.snapshots import JetStreamSnapshots
from muster.core.stage import Folder
from muster.events.envelope import Stored
from muster.ports import Log
from muster.runtime.logkeeping.snapshotting import make_snapshot
from muster.runtime.process import READ_MODEL_COMMITS
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState

CELL = "commands"
A_MINUTE = 185
"""Commits of a minute of the demo, rounded down."""
SAMPLE = REPOSITORY / "services" / "muster_cli" / "samples" / "rayjob.yaml"


def demo(commits: int) -> list[Stored]:
    """The log of a demo that ends now."""
    lives: Any = function_of("sim/test_demo_lives::lives")
    log: list[Stored] = lives(0, commits / A_MINUTE + 1).log[:commits]
    later = int(time.time() * 1_000) - 60_000 - log[-1].commit.at
    return [replace(each, commit=replace(each.commit, at=each.commit.at + later)) for each in log]


async def kept(js: JetStream, log: Log, until: int) -> ReadState:
    """Fold up to a sequence, and keep the snapshot of the read model there."""
    state, folder = ReadState(), Folder(ReadModel())
    async for batch in log.follow(0):
        for stored in batch:
            if stored.seq <= until:
                folder.fold(state, stored)
        if not batch or batch[-1].seq >= until:
            break
    snapshot = make_snapshot(log.identity, "readmodel", "0", state)
    assert await JetStreamSnapshots(js, log.identity, warn=print).save(snapshot)
    return state


def timed(words: Sequence[str]) -> tuple[float, float]:
    """Seconds from the start of a command to its end, and of CPU."""
    began, before = time.perf_counter(), spent()
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=installed(), cwd=REPOSITORY)
    assert done.returncode == 0 or "doctor" in words, done.stderr  # There is no cluster to be examined.
    return time.perf_counter() - began, spent() - before


async def measure(commits: int, rounds: int, say: Progress) -> Table:
    say(f"commands: a demo of {commits} commits")
    log_of_demo = await asyncio.to_thread(demo, commits)
    server, found = EmbeddedServer(), list[dict[str, float]]()
    await server.start()
    try:
        connection = await connect(server.url, name="bench")
        js = JetStream(connection)
        await open_stores(js, CELL, create=True)
        log = await import_log(js, CELL, bodies(log_of_demo))
        state = await kept(js, log, commits - READ_MODEL_COMMITS + 1)
        name = next(job.ref.key for job in reversed(state.queues.jobs.values()) if job.status == "waiting")
        asks = (
            ("ls",), ("why", name), ("position", name), ("story", "research"), ("nodes",), ("usage",),
            ("queue", "tree"), ("ask", str(SAMPLE)), ("doctor",),
        )  # fmt: skip
        where = ("--url", server.url, "--cell", CELL)
        for number in range(-1, rounds):  # The first round compiles everything.
            say(f"commands: round {number + 1}")
            times = {}
            for words in asks:
                times[words] = await asyncio.to_thread(timed, (sys.executable, "-m", "muster_cli", *words, *where))
            figures: dict[str, float] = {}
            for words, (whole, cpu) in times.items():
                shown = " ".join(words[:2] if words[0] == "queue" else words[:1])
                figures |= {f"muster {shown}, s": whole, f"muster {shown}, s of CPU": cpu}
            figures["the middle of the nine, s"] = statistics.median(whole for whole, _ in times.values())
            figures["the longest of the nine, s"] = max(whole for whole, _ in times.values())
            if (kubectl := shutil.which("kubectl")) is not None:
                client = (kubectl, "version", "--client")
                figures["for comparison: kubectl, its start alone, s"] = (await asyncio.to_thread(timed, client))[0]
            if number >= 0:
                found.append(figures)
        await connection.close()
    finally:
        await server.stop()
    about = (
        f"The demo of `muster up` in virtual time, a log of {commits:,} commits of today on a real nats-server, "
        f"{READ_MODEL_COMMITS:,} commits of it after the newest snapshot of the read model, which is as many as the "
        "service lets come where the state has at most 15 MB. Each command is a process of its own, from its start to "
        "its end."
    )
    return Table("Commands", about, found)


if __name__ == "__main__":
    by_hand(measure, __doc__, commits=40_000, rounds=3)
