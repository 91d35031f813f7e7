"""How long the gateway takes to answer where thousands of jobs wait, while events go on coming.

A cell with N waiting RayJobs and M nodes is folded; a gateway serves it over HTTP on loopback, and folds a hundred
events a second meanwhile. One reader asks the questions of the dashboard in turn, each from its start to its last byte.

Run: python tests/perf/bench_gateway.py [--waiting 10000] [--nodes 1000] [--rounds 3]
"""

import asyncio
import contextlib
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
from bench_ask import cell
from figures import Progress, Table, by_hand

from kit import facts, nodes
from kit.alone import reader_of
from kit.compose import REPOSITORY
from kit.recorded import LogTime, RecordedLog
from muster.core.stage import Folder
from muster.events.base import Event
from muster.events.envelope import Commit, Stored
from muster.serving.access import Unrestricted
from muster.serving.answering import Questions
from muster.serving.http import AccessReview, GatewayServer
from muster.serving.live import Live
from muster.serving.moments import Moments
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState
from muster_cli import samples

ASKED = 200
"""How often each question is asked in a round."""
EVENTS_A_SECOND = 100
TICK_S = 0.05
MANIFEST = {**samples.manifest(samples.TRAINING), "metadata": {"name": "new", "namespace": "ns-1"}}
CHANGE = {"changes": [{"queue": "root/leaf-1", "field": "max", "resource": "cpu", "value": "200"}]}


def folded(state: ReadState, events: Sequence[Event]) -> None:
    """One more commit of the watcher."""
    Folder(ReadModel()).fold(state, stored(state.seq + 1, events))


def stored(seq: int, events: Sequence[Event]) -> Stored:
    commit = Commit(
        commit_id=f"more-{seq}", stage="watcher", shard="pods", kind="input", at=2_000_000 + seq, events=tuple(events)
    )
    return Stored(seq, commit)


def served_cell(waiting: int, machines: int) -> ReadState:
    """So many waiting jobs, and nodes."""
    state = cell(waiting)
    for first in range(0, machines, 200):
        folded(state, [nodes.node(f"node-{each:04}", cpu=64) for each in range(first, min(first + 200, machines))])
    return state


class Served:
    """A gateway on a state that is there."""

    def __init__(self, state: ReadState, folder: Path, access: AccessReview | None = None) -> None:
        log = RecordedLog([stored(1, [])])
        clock = LogTime(log)
        self.live = Live(log=reader_of(log), snapshots=None, clock=clock, moments=Moments(log, folder), apart=True)
        self.live.seat.state = state
        self.live.observed = lambda _: None  # type: ignore[method-assign]
        pages = REPOSITORY / "services/muster_gateway/static"
        self.server = GatewayServer(Questions(self.live, clock), access or Unrestricted(), clock, pages, "127.0.0.1", 0)

    async def busy(self) -> None:
        """Pods of a running job change, for ever."""
        number = 0
        while True:
            number += 1
            count = int(EVENTS_A_SECOND * TICK_S)
            pods = [facts.pod("job-000000", each % 3, "ns-0", running=bool(number % 2)) for each in range(count)]
            self.live._fold([stored(self.live.state.seq + 1, pods)])
            await self.live.act()
            await asyncio.sleep(TICK_S)


async def measure(waiting: int, machines: int, rounds: int, say: Progress) -> Table:
    say(f"gateway: a cell of {waiting} waiting jobs on {machines} nodes")
    state = served_cell(waiting, machines)
    jobs = [job.ref.key for job in state.queues.jobs.values() if job.status == "waiting"]
    found = []
    with TemporaryDirectory() as folder:
        served = Served(state, Path(folder))
        await served.server.start()
        busy = asyncio.gather(served.busy(), served.live.foresight.keep())
        try:
            async with aiohttp.ClientSession(f"http://127.0.0.1:{served.server.port}") as session:
                for number in range(rounds):
                    say(f"gateway: round {number + 1}")
                    found.append(await _round(session, jobs))
        finally:
            busy.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await busy
            await served.server.stop()
            await served.live.foresight.ahead.stop()
    about = (
        f"{len(jobs):,} waiting RayJobs, {machines:,} nodes, {EVENTS_A_SECOND} events a second folded meanwhile, by "
        f"the process that answers and asks. Each question {ASKED} times a round, over HTTP on loopback."
    )
    return Table("Gateway", about, found)


async def _round(session: aiohttp.ClientSession, jobs: Sequence[str]) -> dict[str, float]:
    step = max(len(jobs) // ASKED, 1)
    asks = {
        "why": [(f"/api/v1/jobs/{jobs[each * step % len(jobs)]}", None) for each in range(ASKED)],
        "jobs, a page of the line": [("/api/v1/jobs?state=waiting&limit=12", None)] * ASKED,
        "queues": [("/api/v1/queues", None)] * ASKED,
        "nodes, 64 of them": [("/api/v1/nodes?limit=64", None)] * ASKED,
        "what happened": [("/api/v1/happened?limit=40", None)] * ASKED,
        "ask": [("/api/v1/ask", {"manifest": MANIFEST})] * ASKED,
        "what if": [("/api/v1/whatif", CHANGE)] * (ASKED // 4),
    }
    figures: dict[str, float] = {}
    for name, questions in asks.items():
        times = sorted([await _asked(session, path, body) for path, body in questions])
        figures[f"{name}, ms, middle"] = times[len(times) // 2]
        figures[f"{name}, ms, 99 %"] = times[min(len(times) * 99 // 100, len(times) - 1)]
    figures["memory at most, MiB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return figures


async def _asked(session: aiohttp.ClientSession, path: str, body: object) -> float:
    began = time.perf_counter()
    async with session.request("GET" if body is None else "POST", path, json=body) as answer:
        assert answer.status == 200, await answer.text()
        await answer.read()
    return (time.perf_counter() - began) * 1_000


def main() -> None:
    by_hand(measure, __doc__, waiting=10_000, machines=1_000, rounds=1)


if __name__ == "__main__":
    main()
