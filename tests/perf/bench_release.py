"""From the release of quota to the next admission, through all stages on a real nats-server: how long quota lies idle.

Every queue is full and has jobs waiting. Jobs end one after the other at a steady pace; each time the log is read until
the next one of that queue is admitted. Both moments are when this reader of the log saw them.

Run: python tests/perf/bench_release.py [--ends 2000] [--rate 50] [--rounds 3]
"""

import argparse
import asyncio
import time
from contextlib import AbstractAsyncContextManager

from bench_pipeline import BATCH, QUEUES, Driver, running, tree
from figures import Progress, Table
from forms import Form, one_server, production, together

from kit import facts
from muster.bus.log import JetStreamLog
from muster.events.base import Cause, Event
from muster.events.decisions import GangAdmitted, QuotaReleased
from muster.events.effects import EffectApplied
from muster.events.facts import WorkloadObserved
from muster.telemetry import logs

SIZE = 4
"""Jobs of each queue that run at once."""


class Ends(Driver):
    """Jobs go on until they are ended."""

    def __init__(self, log: JetStreamLog) -> None:
        super().__init__(log)
        self.up: dict[str, list[str]] = {}
        """namespace -> its running jobs, in the order of their admission"""
        self.ended_at: dict[str, float] = {}
        self.released_at: dict[str, float] = {}
        self.from_release: list[float] = []
        self.from_end: list[float] = []

    async def follow(self) -> None:
        """Give each admission its effect, and note how long its quota had been free."""
        async for batch in self.log.follow(0):
            now = time.perf_counter()
            answers: list[Event] = []
            for stored in batch:
                for item, event in enumerate(stored.commit.events):
                    if isinstance(event, QuotaReleased):
                        self.released_at[event.ref.namespace] = now
                    elif isinstance(event, GangAdmitted):
                        where = event.ref.namespace
                        self.up.setdefault(where, []).append(event.ref.name)
                        answers.append(
                            EffectApplied(
                                cause=Cause(stored.seq, item), ref=event.ref, attempt=event.attempt, rv=facts.next_rv()
                            )
                        )
                        if where in self.ended_at:
                            self.from_end.append(now - self.ended_at.pop(where))
                            self.from_release.append(now - self.released_at.pop(where))
            for start in range(0, len(answers), BATCH):
                await self.append("actuator", answers[start : start + BATCH])
            if self.is_done():
                self.admitted.set()

    def is_done(self) -> bool:
        return sum(map(len, self.up.values())) >= QUEUES * SIZE and len(self.from_end) >= self.wanted

    async def fill(self, ends: int) -> None:
        """Enough jobs to wait in every queue until the end."""
        count = QUEUES * (SIZE + ends // QUEUES + 2)
        for first in range(0, count, BATCH):
            jobs = [
                facts.job(f"job-{index:07}", f"ns-{index % QUEUES}", cpu=1, memory="1G")
                for index in range(first, min(first + BATCH, count))
            ]
            await self.append("watcher", [WorkloadObserved(workload=job) for job in jobs], "rayjobs")
        await asyncio.wait_for(self.admitted.wait(), 120)
        self.admitted.clear()

    async def end_all(self, ends: int, rate: int) -> None:
        """One after the other, a queue in turn that is not waiting for an admission yet."""
        self.wanted = ends
        began = time.perf_counter()
        for index in range(ends):
            await asyncio.sleep(max(began + index / rate - time.perf_counter(), 0))
            where = f"ns-{index % QUEUES}"
            while where in self.ended_at:
                await asyncio.sleep(0.001)
            self.ended_at[where] = time.perf_counter()
            await self.append("watcher", [facts.gone(self.up[where].pop(0), where)], "rayjobs")
        await asyncio.wait_for(self.admitted.wait(), 60)


async def round_of(form: AbstractAsyncContextManager[Form], ends: int, rate: int) -> dict[str, float]:
    async with running(form, Ends, tree(SIZE)) as (driver, _, _):
        await driver.fill(ends)
        await driver.end_all(ends, rate)
        released, ended = sorted(driver.from_release), sorted(driver.from_end)
        return {
            "release to admission, p50 ms": released[len(released) // 2] * 1000,
            "release to admission, p99 ms": released[len(released) * 99 // 100] * 1000,
            "end observed to admission, p50 ms": ended[len(ended) // 2] * 1000,
            "end observed to admission, p99 ms": ended[len(ended) * 99 // 100] * 1000,
        }


async def measure(ends: int, rate: int, rounds: int, say: Progress) -> Table:
    counted = []
    for index in range(rounds):
        say(f"release to admission: round {index + 1} of {rounds}")
        counted.append(together(await round_of(one_server(), ends, rate), await round_of(production(), ends, rate)))
    about = (
        f"30 full queues with jobs waiting in each; {ends:,} jobs end, {rate} a second. One process per service on a "
        "real nats-server, without an API server. From `quota_released` in the log to the `gang_admitted` of the next "
        "job of that queue, and from the moment the end of the job was appended. In the same round: three servers with "
        "three replicas and `sync_interval: always`, as in production."
    )
    return Table("From a release to the next admission", about, counted)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ends", type=int, default=2_000)
    parser.add_argument("--rate", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    logs.configure(level="error")
    table = await measure(options.ends, options.rate, options.rounds, Progress())
    print(table.title, table.about, *table.lines(), sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
