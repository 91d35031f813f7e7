"""Through all stages on a real nats-server, without an API server: observed, queued, proposed, reserved, admitted.

A driver stands in for the watcher and the actuator: it appends the observations of suspended jobs, and, as soon as a
job is admitted, its effect and its end. Two layouts: one process for all deciders, and one for each.

Run: python tests/perf/bench_pipeline.py [--jobs 10000] [--rate 200] [--seconds 20] [--rounds 3]
"""

import argparse
import asyncio
import os
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TypeVar
from unittest import mock

import bench_judge
import psutil
from figures import Grid, Progress, Table
from forms import Form, one_server, production, together
from sampling import sampled

from kit import facts
from muster.bus.cell import open_log, open_stores
from muster.bus.connection import connect
from muster.bus.jetstream import JetStream
from muster.bus.log import JetStreamLog
from muster.core.cell.deciders import DECIDERS
from muster.core.stage import REQUIRED_KINDS
from muster.events.base import Cause, Event
from muster.events.decisions import GangAdmitted
from muster.events.effects import EffectApplied
from muster.events.envelope import Commit
from muster.events.facts import Synced, TreeNodeSpec, WorkloadObserved
from muster.events.system import LeaderStarted
from muster.runtime.layouts import LAYOUTS, members
from muster.telemetry import logs

D = TypeVar("D", bound="Driver")
QUEUES = 30
BATCH = 200
CALM = 65
"""Jobs a second: what a busy cluster sees for hours."""
IN_FLIGHT = 400
STEP = 50


class Driver:
    """The watcher and the actuator, as fast as the log lets them."""

    def __init__(self, log: JetStreamLog) -> None:
        self.log = log
        self.last: dict[tuple[str, str], int] = {}
        self.writing: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self.count = 0
        self.seen_at: dict[str, float] = {}
        self.took: list[float] = []
        self.admitted = asyncio.Event()
        self.led: set[str] = set()
        """The stages that have a leader."""
        self.wanted = 0

    async def append(self, stage: str, events: list[Event], shard: str = "0") -> None:
        seat = stage, shard
        async with self.writing[seat]:
            self.count += 1
            commit = Commit(
                commit_id=f"driver-{stage}-{self.count}",
                stage=stage,
                shard=shard,
                kind="input",
                at=time.time_ns() // 1_000_000,
                events=tuple(events),  # type: ignore[arg-type]
            )
            self.last[seat] = await self.log.append(commit, expected=self.last.get(seat, 0))

    async def ready(self, root: TreeNodeSpec) -> None:
        """One quota tree, and every kind that must be listed is."""
        for kind in REQUIRED_KINDS:
            tree: list[Event] = [facts.tree(root)] if kind == "elasticquotatrees" else []
            await self.append("watcher", [*tree, Synced(kind=kind)], kind)

    async def follow(self) -> None:
        """Note admissions; give each its effect and its end, so that its quota is free again."""
        async for batch in self.log.follow(0):
            now = time.perf_counter()
            answers: list[Event] = []
            ends: list[Event] = []
            for stored in batch:
                for item, event in enumerate(stored.commit.events):
                    if isinstance(event, LeaderStarted):
                        self.led.add(stored.commit.stage)
                    if not isinstance(event, GangAdmitted):
                        continue
                    began = self.seen_at.pop(event.ref.uid, None)
                    if began is not None:
                        self.took.append(now - began)
                    effect = EffectApplied(
                        cause=Cause(stored.seq, item), ref=event.ref, attempt=event.attempt, rv=facts.next_rv()
                    )
                    answers.append(effect)
                    ends.append(facts.gone(event.ref.name, event.ref.namespace))
            for start in range(0, len(answers), BATCH):
                await self.append("actuator", answers[start : start + BATCH])
            for start in range(0, len(ends), BATCH):
                await self.append("watcher", ends[start : start + BATCH], "rayjobs")
            if len(self.took) >= self.wanted:
                self.admitted.set()

    async def jobs(self, first: int, count: int) -> None:
        """Observe ``count`` new jobs, in commits of at most BATCH."""
        await self.observe(made(first, count))

    async def observe(self, jobs: Sequence[WorkloadObserved]) -> None:
        for start in range(0, len(jobs), BATCH):
            batch = jobs[start : start + BATCH]
            now = time.perf_counter()
            self.seen_at |= dict.fromkeys([each.workload.ref.uid for each in batch], now)
            await self.append("watcher", [*batch], "rayjobs")


def made(first: int, count: int) -> list[WorkloadObserved]:
    """Suspended jobs, as a watcher would see them."""
    return [
        facts.seen(facts.job(f"job-{index:07}", f"ns-{index % QUEUES}", cpu=1 + index % 4, memory="1G"))
        for index in range(first, first + count)
    ]


def tree(cpu: int = 100) -> TreeNodeSpec:
    """30 queues of so much cpu each."""
    leaves = tuple(
        facts.node(f"q{index}", {"cpu": cpu // 10, "memory": "10G"}, {"cpu": cpu, "memory": "1T"}, (f"ns-{index}",))
        for index in range(QUEUES)
    )
    whole = {"cpu": cpu * QUEUES, "memory": "10T"}
    return facts.node("root", whole, whole, children=leaves)


@asynccontextmanager
async def running(
    form: AbstractAsyncContextManager[Form],
    make: Callable[[JetStreamLog], D],
    root: TreeNodeSpec,
    layout: str = "separate",
) -> AsyncIterator[tuple[D, list[int], list[int]]]:
    """Stages and their driver on a cell of their own; and the processes of nats-server, and of the stages."""
    async with AsyncExitStack() as stack:
        nats = await stack.enter_async_context(form)
        url = ",".join(nats.urls)
        connection = await connect(nats.urls, name="bench")
        stack.push_async_callback(connection.close)
        js = JetStream(connection)
        await open_stores(js, "main", create=True, limits=nats.limits)
        log = await open_log(js, "main", create=True, limits=nats.limits, at=time.time_ns() // 1_000_000)
        driver = make(log)
        stages = await start_services(url, stack, layout)
        following = asyncio.ensure_future(driver.follow())
        stack.callback(following.cancel)
        await driver.ready(root)
        yield driver, [pid for pid in nats.pids if pid], stages


async def round_of(
    form: AbstractAsyncContextManager[Form], jobs: int, rate: int, seconds: int, layout: str
) -> dict[str, float]:
    async with running(form, Driver, tree(), layout) as (driver, nats, stages):
        await wait_ready(driver)
        coming = made(0, jobs)
        before, own = (cpu_of(nats), cpu_of(stages)), time.process_time()
        began = time.perf_counter()
        await flat_out(driver, coming)
        took = time.perf_counter() - began
        of_nats, of_stages = cpu_of(nats) - before[0], cpu_of(stages) - before[1]
        own = time.process_time() - own
        flat = sorted(driver.took[-jobs:])
        judged = await judge_s(driver.log, readers=len(stages))
        idle = cpu_of(stages)
        slow = await paced(driver, rate, seconds, first=5_000_000)
        single = cpu_of(stages) - idle
        calm = await paced(driver, CALM, seconds, first=6_000_000)
        return {
            "flat out, jobs/s": jobs / took,
            "flat out, CPU of the stages per job, ms": of_stages / jobs * 1000,
            "flat out, CPU of nats-server per job, ms": of_nats / jobs * 1000,
            "flat out, CPU of the driver per job, ms": own / jobs * 1000,
            "flat out, hash and judge, % of the stages' CPU": judged / of_stages * 100,
            "flat out, observed to admitted, p50 ms": flat[len(flat) // 2] * 1000,
            "flat out, observed to admitted, p99 ms": flat[len(flat) * 99 // 100] * 1000,
            f"{rate} jobs/s, CPU of the stages per job, ms": single / (rate * seconds) * 1000,
            f"{rate} jobs/s, observed to admitted, p50 ms": slow[len(slow) // 2] * 1000,
            f"{rate} jobs/s, observed to admitted, p99 ms": slow[len(slow) * 99 // 100] * 1000,
            f"{CALM} jobs/s, observed to admitted, p50 ms": calm[len(calm) // 2] * 1000,
            f"{CALM} jobs/s, observed to admitted, p99 ms": calm[len(calm) * 99 // 100] * 1000,
            "memory of the stages, MB": sum(psutil.Process(pid).memory_info().rss for pid in stages) / 1e6,
        }


async def judge_s(log: JetStreamLog, *, readers: int) -> float:
    """CPU seconds that hash and judge take of all stages for this log: once in each process."""
    messages = [(body.subject, body.data) async for body in log.own_bodies(0, await log.end())]
    return bench_judge.cost(messages).of_judge(readers=readers, states=readers)


async def wait_ready(driver: Driver) -> None:
    """Every stage leads, and one job goes through."""
    while not driver.led >= DECIDERS.keys():
        await asyncio.sleep(0.05)
    driver.wanted = 1
    await driver.jobs(9_000_000, 1)
    await asyncio.wait_for(driver.admitted.wait(), 60)
    driver.admitted.clear()
    driver.took.clear()


async def flat_out(driver: Driver, jobs: Sequence[WorkloadObserved]) -> None:
    """As many as come through, IN_FLIGHT of them on their way at any time."""
    driver.wanted = len(jobs)
    for first in range(0, len(jobs), STEP):
        while len(driver.seen_at) > IN_FLIGHT - STEP:
            await asyncio.sleep(0.0005)
        await driver.observe(jobs[first : first + STEP])
    await asyncio.wait_for(driver.admitted.wait(), 300)
    driver.admitted.clear()


async def paced(driver: Driver, rate: int, seconds: int, *, first: int) -> list[float]:
    """Single jobs at a steady rate, whatever comes back; ``first``: their numbers begin there."""
    driver.took.clear()
    driver.admitted.clear()
    driver.wanted = rate * seconds
    began = time.perf_counter()
    for index in range(rate * seconds):
        delay = began + index / rate - time.perf_counter()
        if delay > 0:
            await asyncio.sleep(delay)
        await driver.jobs(first + index, 1)
    await asyncio.wait_for(driver.admitted.wait(), 60)
    return sorted(driver.took)


async def start_services(url: str, stack: AsyncExitStack, layout: str) -> list[int]:
    pids = []
    environment = os.environ | {"MUSTER_NATS_URL": url, "MUSTER_HEALTH_PORT": "-1", "MUSTER_LOG_LEVEL": "error"}
    for name in LAYOUTS[layout]:
        if not DECIDERS.keys() >= {*members(name)}:
            continue
        program = [f"muster_{name}"] if name in DECIDERS else ["muster_cli", "run", name]
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", *program, env=environment)
        pids.append(process.pid)

        async def end(process: asyncio.subprocess.Process = process) -> None:
            process.terminate()
            await process.wait()

        stack.push_async_callback(end)
    return pids


def cpu_of(pids: list[int]) -> float:
    return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids)


async def measure(jobs: int, rate: int, seconds: int, rounds: int, say: Progress) -> list[Table | Grid]:
    found: list[Table | Grid] = []
    for layout, title in (("deciders", "all deciders in one process"), ("separate", "one process per service")):
        counted = []
        for index in range(rounds):
            say(f"pipeline, {title}: round {index + 1} of {rounds}")
            counted.append(
                together(
                    await round_of(one_server(), jobs, rate, seconds, layout),
                    await round_of(production(), jobs, rate, seconds, layout),
                )
            )
        about = (
            f"{jobs:,} jobs observed, queued, proposed, reserved and admitted over a real nats-server, without an API "
            f"server: a driver beside the stages replaces the watcher and the actuator. Layout `{layout}`: {title}. "
            "Hash and judge: timed over the bytes of the same log in the same round, once for each process. "
            "In the same round: three servers, three replicas, `sync_interval: always`, as in production, on the same "
            "disk and processors."
        )
        found.append(Table(f"Through all stages, {title}", about, counted))
        say(f"pipeline, {title}: where its CPU goes")
        with sampled() as samples:
            with mock.patch.dict(os.environ, samples.settings):
                await round_of(one_server(), jobs, rate, 1, layout)
            found.append(samples.grid(f"Through all stages, {title}: where its CPU goes"))
    return found


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rate", type=int, default=200)
    parser.add_argument("--seconds", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    logs.configure(level="error")
    for table in await measure(options.jobs, options.rate, options.seconds, options.rounds, Progress()):
        print(table.title, table.about, *table.lines(), sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
