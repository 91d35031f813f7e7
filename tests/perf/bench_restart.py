"""How long a service needs to be back: its snapshot from the object store, decoded, and the log since then folded.

A cell of N live RayJobs is made (as many run as fit, the rest waits). The state of every stage is saved as a service
saves it, and a tail of commits is written to the log; then every stage is restored from a real nats-server.

Run: python tests/perf/bench_restart.py [--live 100000] [--tail 5000] [--rounds 3]
"""

import gc
import sys
import time
from contextlib import aclosing
from typing import Any

from figures import Progress, Table, by_hand

from histories import Counted, Lives
from kit import facts
from kit.bench import Bench
from muster.bus.cell import open_log, open_stores
from muster.bus.connection import connect
from muster.bus.jetstream import JetStream
from muster.bus.server import EmbeddedServer
from muster.bus.snapshots import JetStreamSnapshots
from muster.core.cell.deciders import DECIDERS
from muster.core.stage import Folder, Stage
from muster.events import subjects
from muster.events.envelope import Commit
from muster.ports import Log
from muster.runtime.logkeeping.snapshotting import make_snapshot, restore_before

CELL = "restart"
EVENTS = 10
"""Events of a commit of the tail."""
STEP = 500
MIB = 1 << 20


def live_cell(live: int) -> Bench:
    """Every stage's state with so many live workloads; a third of them finds room, 4.5 cores each."""
    bench = Bench(check=False)
    tape = Counted()
    for stored in bench.log:
        tape.append(stored)
    bench.log = tape
    lives = Lives(bench, cpu=max(live * 3 // 20, 40))
    for first in range(0, live, STEP):
        lives.come(range(first, min(first + STEP, live)))
    return bench


async def append_tail(log: Log, tail: int, live: int) -> int:
    """Pods of running jobs that change."""
    seq = await log.end()
    before = 0
    for number in range(tail):
        pods = []
        for each in range(EVENTS):
            index = (number * EVENTS + each) % live
            pods.append(facts.pod(f"job-{index:06}", each % 3, f"ns-{index % 10}", running=bool(number % 2)))
        commit = Commit(
            commit_id=f"tail-{number}", stage="watcher", shard="pods", kind="input", at=2_000_000, events=tuple(pods)
        )
        before = seq = await log.append(commit, expected=before)
    return seq


async def back(stage: Stage[Any], log: Log, snapshots: JetStreamSnapshots, end: int) -> tuple[float, float]:
    """Seconds until the state is there, and until the log is folded up to its end."""
    began = time.perf_counter()
    # The log on the bus is not the one that the snapshot was made of, and cannot show its position.
    state = await restore_before(snapshots, log.identity, stage.name, "0", stage.initial(), sys.maxsize)
    assert state is not None
    gc.freeze()
    there = time.perf_counter() - began
    folder, offset = Folder(stage), state.seq
    state.seq = 1  # The snapshot was made on a log in memory: the tail follows the genesis of the one on the bus.
    async with aclosing(log.follow(1)) as stream:
        async for batch in stream:
            for stored in batch:
                folder.fold(state, stored)
            if state.seq >= end:
                break
    assert offset > 0
    return there, time.perf_counter() - began


async def measure(live: int, tail: int, rounds: int, say: Progress) -> Table:
    say(f"restart: a cell of {live} live workloads")
    bench = live_cell(live)
    charged = len(bench.states["quota_accountant"].ledger.charges)
    stages: dict[str, Stage[Any]] = {name: make() for name, make in DECIDERS.items()}
    server = EmbeddedServer()
    await server.start()
    try:
        connection = await connect(server.url, name="bench")
        js = JetStream(connection)
        log = await open_log(js, CELL, create=True, at=1)
        await open_stores(js, CELL, create=True)
        snapshots = JetStreamSnapshots(js, log.identity, warn=print)
        sizes = []
        for name in stages:
            snapshot = make_snapshot(log.identity, name, "0", bench.states[name])
            sizes.append(len(snapshot.body))
            assert await snapshots.save(snapshot)
        stored = 0
        for name in stages:
            info = await js.info(f"OBJ_{subjects.snapshot_bucket(CELL, name)}")
            stored += info.state.bytes if info is not None else 0
        end = await append_tail(log, tail, live)
        found = []
        for number in range(rounds):
            say(f"restart: round {number + 1}")
            times = {name: await back(stage, log, snapshots, end) for name, stage in stages.items()}
            slowest = max(times, key=lambda name: times[name][1])
            found.append(
                {
                    "slowest service: its state is there, s": times[slowest][0],
                    "slowest service: caught up, s": times[slowest][1],
                    "all deciders, one after the other: caught up, s": sum(each for _, each in times.values()),
                    "largest snapshot, MiB": max(sizes) / MIB,
                    "snapshots of all deciders, MiB": sum(sizes) / MIB,
                    "snapshots of all deciders as they are stored, MiB": stored / MIB,
                }
            )
        await connection.close()
    finally:
        await server.stop()
    about = (
        f"{live:,} live RayJobs, {charged:,} of them running; snapshots and log on a real nats-server. The log goes on "
        f"for {tail:,} commits, {tail * EVENTS:,} events, after the snapshots."
    )
    return Table("Restart", about, found)


def main() -> None:
    by_hand(measure, __doc__, live=100_000, tail=5_000, rounds=3)


if __name__ == "__main__":
    main()
