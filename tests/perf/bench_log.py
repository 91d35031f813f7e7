"""How fast the log is: fenced awaited commits, raw pipelined publishes, following, and the hop between the two.

Run: python tests/perf/bench_log.py [--commits N] [--messages N] [--rounds N]. Starts a nats-server of its own.
Prints the median of the rounds and their spread. Figures fall by half and more on a busy machine: compare ratios.
"""

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from figures import Progress, Table
from forms import Form, one_server, production, together

from muster.bus.cell import open_log
from muster.bus.connection import Connection, connect
from muster.bus.jetstream import EXPECTED_STREAM, JetStream
from muster.bus.log import JetStreamLog
from muster.events import subjects
from muster.events.envelope import Commit, encode_commit
from muster.events.facts import PodGone
from muster.events.registry import AnyEvent
from muster.events.speakers import SPEAKERS
from muster.events.system import TimeReached
from muster.model.keys import Ref

ABOUT = (
    "One nats-server on the same machine, one replica, the default fsync interval, one client process; and in the same "
    "round three servers, three replicas and `sync_interval: always`, as in production, on the same disk. A fenced "
    "commit is awaited: the next of the same writer leaves when the one before is acknowledged. Raw publishes are not: "
    "256 are on their way at any time."
)
WINDOW = 256
Seat = tuple[str, str]
"""(stage, shard): only its own commits are read there, all others are void."""
ALONE: Seat = ("watcher", "rayjobs")
FULL: Seat = ("watcher", "pods")
HOP: Seat = ("watcher", "nodes")
SEVEN: tuple[Seat, ...] = (("watcher", "jobs"), *((stage, "0") for stage in SPEAKERS))


def made(number: int, seat: Seat, *events: AnyEvent) -> Commit:
    stage, shard = seat
    return Commit(
        commit_id=f"{stage}-{shard}-{number}", stage=stage, shard=shard, kind="input", at=number, events=events
    )


def small(number: int, seat: Seat) -> Commit:
    """One event, about 200 bytes."""
    return made(number, seat, TimeReached(at=number))


def full(number: int, seat: Seat) -> Commit:
    """Fifty events, about 5 KB: what a busy stage writes at once."""
    pods = tuple(
        PodGone(ref=Ref("Pod", "team-a", f"pod-{index}", f"uid-{number}-{index}"), rv=index) for index in range(50)
    )
    return made(number, seat, *pods)


async def append_all(log: JetStreamLog, seat: Seat, count: int, make: Callable[[int, Seat], Commit]) -> None:
    seq = 0
    for number in range(count):
        seq = await log.append(make(number, seat), expected=seq)


async def pipelined(connection: Connection, cell: str, count: int) -> None:
    """As many publishes on their way as WINDOW, no expectation: what the server takes at most from one client."""
    free = asyncio.Semaphore(WINDOW)
    subject = subjects.log_subject(cell, 1, "raw", "0")
    headers = {EXPECTED_STREAM: subjects.log_stream(cell, 1)}
    for number in range(count):
        await free.acquire()
        answer = await connection.send(subject, encode_commit(small(number, ("raw", "0"))), headers)
        answer.add_done_callback(lambda _: free.release())
    for _ in range(WINDOW):
        await free.acquire()


async def read_all(log: JetStreamLog) -> int:
    count = 0
    async with aclosing(log.follow(0)) as batches:
        async for batch in batches:
            if not batch:
                return count
            count += len(batch)
    return count


async def hops(log: JetStreamLog, count: int) -> list[float]:
    """Milliseconds from the start of an append until a follower has the commit, one at a time."""
    took: list[float] = []
    started = 0.0
    arrived = asyncio.Event()

    async def follow(after: int) -> None:
        async for batch in log.follow(after):
            if batch:
                took.append((time.perf_counter() - started) * 1000)
            arrived.set()

    following = asyncio.create_task(follow(await log.end()))
    await arrived.wait()
    seq = 0
    for number in range(count):
        arrived.clear()
        started = time.perf_counter()
        seq = await log.append(small(number, HOP), expected=seq)
        await arrived.wait()
        await asyncio.sleep(0.002)
    following.cancel()
    return sorted(took)


async def timed(work: Awaitable[object]) -> float:
    started = time.perf_counter()
    await work
    return time.perf_counter() - started


async def round_of(form: Form, cell: str, commits: int, messages: int) -> dict[str, float]:
    """One round on a log of its own: {figure: value}."""
    connection = await connect(form.urls, name="bench")
    js = JetStream(connection)
    log = await open_log(js, cell, create=True, limits=form.limits)
    each = commits // len(SEVEN)
    found = {
        "fenced commits/s, one writer": commits / await timed(append_all(log, ALONE, commits, small)),
        "fenced commits/s, seven writers": each
        * len(SEVEN)
        / await timed(asyncio.gather(*(append_all(log, seat, each, small) for seat in SEVEN))),
        "events/s in fenced commits of 50": 50 * each / await timed(append_all(log, FULL, each, full)),
        "raw pipelined publishes/s": messages / await timed(pipelined(js.connection, cell, messages)),
    }
    started = time.perf_counter()
    count = await read_all(log)
    found["fenced commits/s, seven writers, share of the raw rate"] = (
        found["fenced commits/s, seven writers"] / found["raw pipelined publishes/s"]
    )
    found["followed commits/s"] = count / (time.perf_counter() - started)
    took = await hops(log, 500)
    found["from append to a follower, p50 ms"] = took[len(took) // 2]
    found["from append to a follower, p99 ms"] = took[len(took) * 99 // 100]
    await js.delete(subjects.log_stream(cell, 1))
    await connection.close()
    return found


async def measure(commits: int, messages: int, rounds: int, say: Progress) -> Table:
    async with one_server() as one, production() as three:
        found = []
        for index in range(rounds):
            say(f"log: round {index + 1} of {rounds}")
            cell = f"bench-{index}"
            found.append(
                together(
                    await round_of(one, cell, commits, messages),
                    await round_of(three, cell, commits // 4, messages // 4),
                )
            )
    return Table("The log", ABOUT, found)


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=3000)
    parser.add_argument("--messages", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=3)
    wanted = parser.parse_args()
    found = await measure(wanted.commits, wanted.messages, wanted.rounds, Progress())
    print(found.about, *found.lines(), sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
