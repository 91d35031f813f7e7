"""The nine everyday commands on the log of a demo: each a process of its own, from its start to its end.

The demo lives in virtual time until its log has so many commits, with times of today. A gateway follows the log, as in
``muster up``, and a run file names it. The same commands ask the log alone too: the snapshot of the read model lies as
far behind its end as the service lets it where the state is small. Where ``kubectl`` is installed, its own start is
beside them.

Run: python tests/perf/bench_commands.py [--commits 40000] [--rounds 3]
"""

import asyncio
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
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
from muster.bus.server import EmbeddedServer, free_port
from muster.bus.snapshots import JetStreamSnapshots
from muster.core.stage import Folder
from muster.events.envelope import Stored
from muster.ports import Log
from muster.runtime.logkeeping.snapshotting import make_snapshot
from muster.runtime.process import READ_MODEL_COMMITS
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState
from muster_cli.instances import Instance, Registration

CELL = "commands"
A_MINUTE = 160
"""Commits of a minute of the demo, rounded down."""
STARTS_S = 60.0
"""The gateway has read the log after this time."""
COMPLETING = (sys.executable, "-c", "from muster_cli.completing import kubectl; kubectl()", "ls", "--st")
SAMPLE = REPOSITORY / "services" / "muster_cli" / "samples" / "rayjob.yaml"


def demo(commits: int) -> list[Stored]:
    """The log of a demo that ends now."""
    lives: Any = function_of("sim/test_demo_lives::lives")
    log: list[Stored] = lives(0, commits / A_MINUTE + 1).log[:commits]
    assert len(log) == commits, f"the demo had {len(log)} commits: A_MINUTE is too high"
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


@contextlib.asynccontextmanager
async def beside(url: str, folder: Path) -> AsyncIterator[None]:
    """A gateway that has read the log, and the run file that names it, in a folder of run files."""
    port = free_port()
    settings = {
        "MUSTER_NATS_URL": url, "MUSTER_CELL": CELL, "MUSTER_GATEWAY_ACCESS": "none", "MUSTER_HEALTH_PORT": "-1",
        "MUSTER_GATEWAY_PORT": str(port),
    }  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "muster_gateway", env={**installed(), **settings}, cwd=folder, stderr=subprocess.DEVNULL
    )
    address = f"http://127.0.0.1:{port}"
    registration = Registration(folder / "muster")
    (folder / "muster").mkdir(mode=0o700)
    try:
        async with asyncio.timeout(STARTS_S):
            await _reads(f"{address}/api/v1/position")
        registration.publish(
            Instance(
                pid=os.getpid(), started=1, url=url, cell=CELL, home="", temporary=False, acting=True, simulated=True,
                gateway=address,
            )
        )  # fmt: skip
        yield
    finally:
        registration.close()
        process.terminate()
        await process.wait()


async def _reads(question: str) -> None:
    """Wait until the gateway has read the log."""
    async with aiohttp.ClientSession() as session:
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(question) as answer:
                    if (await answer.json())["live"]:
                        return
            await asyncio.sleep(0.1)


def timed(words: Sequence[str], folder: Path | str = "") -> tuple[float, float]:
    """Seconds from the start of a command to its end, and of CPU. ``folder``: with run files."""
    began, before = time.perf_counter(), spent()
    env: Mapping[str, str] = {**installed(), "XDG_RUNTIME_DIR": str(folder)}
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=env, cwd=REPOSITORY)
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
        with TemporaryDirectory() as folder:
            async with beside(server.url, Path(folder)):
                for number in range(-1, rounds):  # The first round compiles everything.
                    say(f"commands: round {number + 1}")
                    figures = await _round(asks, where, folder, "")
                    figures |= await _round(asks, where, f"{folder}/none", ", of the log alone")
                    figures["a proposal of the completion, s"], _ = await asyncio.to_thread(timed, COMPLETING)
                    if (kubectl := shutil.which("kubectl")) is not None:
                        client = (kubectl, "version", "--client")
                        took, _ = await asyncio.to_thread(timed, client)
                        figures["for comparison: kubectl, its start alone, s"] = took
                    if number >= 0:
                        found.append(figures)
        await connection.close()
    finally:
        await server.stop()
    about = (
        f"The demo of `muster up` in virtual time, a log of {commits:,} commits of today on a real nats-server. Each "
        "command is a process of its own, from its start to its end. A gateway follows the log, as in `muster up`, and "
        "answers all but `usage` and `doctor`. Of the log alone: no gateway is there, and "
        f"{READ_MODEL_COMMITS:,} commits come after the newest snapshot of the read model, which is as many as the "
        "service lets come where the state has at most 15 MB."
    )
    return Table("Commands", about, found)


async def _round(asks: Sequence[tuple[str, ...]], where: Sequence[str], folder: str, how: str) -> dict[str, float]:
    """Each command once."""
    times, figures = {}, dict[str, float]()
    for words in asks:
        line = (sys.executable, "-m", "muster_cli", *words, *where)
        times[words] = await asyncio.to_thread(timed, line, folder)
    for words, (whole, cpu) in times.items():
        shown = " ".join(words[:2] if words[0] == "queue" else words[:1])
        figures |= {f"muster {shown}{how}, s": whole, f"muster {shown}{how}, s of CPU": cpu}
    figures[f"the middle of the nine{how}, s"] = statistics.median(whole for whole, _ in times.values())
    figures[f"the longest of the nine{how}, s"] = max(whole for whole, _ in times.values())
    return figures


if __name__ == "__main__":
    by_hand(measure, __doc__, commits=40_000, rounds=3)
