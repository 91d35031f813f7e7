"""What a commit costs a reader that waits for it: CPU time of a process of its own that follows the log.

Beside it the floor: a process whose event loop is woken as often by as many bytes, and does nothing with them.

Run: python tests/perf/bench_reader.py [--commits 1000] [--rate 200] [--rounds 3]
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

from figures import Progress, Table, by_hand

from kit import facts
from muster.bus.cell import open_log
from muster.bus.connection import connect
from muster.bus.jetstream import JetStream
from muster.bus.server import HOST, EmbeddedServer
from muster.events import subjects
from muster.events.envelope import Commit, encode_commit

CELL = "reader"
READY = "ready"


def commit(number: int) -> Commit:
    """Two pods: about as many bytes as most commits have."""
    pods = tuple(facts.pod(f"job-{number:06}", index, "ns-1", running=True) for index in range(2))
    return Commit(commit_id=f"t-{number}", stage="watcher", shard="pods", kind="input", at=2_000_000, events=pods)


# --- the process that is measured -----------------------------------------------------------------------------------


async def follows(url: str, count: int) -> float:
    """CPU seconds for so many commits."""
    connection = await connect(url, name="reader")
    log = await open_log(JetStream(connection), CELL, create=True, at=1)
    read, began = 0, 0.0
    async with aclosing(log.follow(await log.end())) as stream:
        async for batch in stream:
            if not batch:
                print(READY, flush=True)
                began = time.process_time()
            read += len(batch)
            if read >= count:
                break
    took = time.process_time() - began
    await connection.close()
    return took


class Counting(asyncio.Protocol):
    """Counts the bytes that arrive, up to so many."""

    def __init__(self, awaited: int) -> None:
        self.awaited = awaited
        self.all_there: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.awaited -= len(data)
        if self.awaited <= 0 and not self.all_there.done():
            self.all_there.set_result(None)


async def counts(port: str, size: int) -> float:
    """CPU seconds for so many bytes."""
    _, protocol = await asyncio.get_running_loop().create_connection(lambda: Counting(size), HOST, int(port))
    print(READY, flush=True)
    began = time.process_time()
    await protocol.all_there
    return time.process_time() - began


# --- what drives it -------------------------------------------------------------------------------------------------


async def measured(mode: str, where: str, amount: int, drive: Callable[[], Awaitable[None]]) -> float:
    """CPU seconds of a process of its own, for so many commits, or bytes."""
    command = [sys.executable, str(Path(__file__)), mode, where, str(amount)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    assert (await process.stdout.readline()).decode().strip() == READY
    await drive()
    took = json.loads(await process.stdout.readline())
    await process.wait()
    return float(took)


async def paced(commits: int, rate: int, send: Callable[[int], Awaitable[object]]) -> None:
    """So many a second, one by one."""
    began = time.perf_counter()
    for number in range(commits):
        await send(number)
        await asyncio.sleep(max(began + (number + 1) / rate - time.perf_counter(), 0))


async def of_log(server: EmbeddedServer, commits: int, rate: int) -> float:
    connection = await connect(server.url, name="writer")
    js = JetStream(connection)
    log = await open_log(js, CELL, create=True, at=1)
    last = 0

    async def append(number: int) -> None:
        nonlocal last
        last = await log.append(commit(number), expected=last)

    try:
        return await measured("--follows", server.url, commits, lambda: paced(commits, rate, append))
    finally:
        await js.delete(subjects.log_stream(CELL, 1))
        await connection.close()


async def floor(commits: int, rate: int) -> float:
    bodies = [encode_commit(commit(number)) for number in range(commits)]
    connected: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()
    server = await asyncio.start_server(lambda _, writer: connected.set_result(writer), HOST, 0)

    async def send(number: int) -> None:
        writer = await connected
        writer.write(bodies[number])
        await writer.drain()

    async with server:
        port = server.sockets[0].getsockname()[1]
        try:
            return await measured("--counts", str(port), sum(map(len, bodies)), lambda: paced(commits, rate, send))
        finally:
            (await connected).close()


async def measure(commits: int, rate: int, rounds: int, say: Progress) -> Table:
    found = []
    for index in range(rounds):
        say(f"reader: round {index + 1} of {rounds}")
        server = EmbeddedServer()
        await server.start()
        try:
            live = await of_log(server, commits, rate)
            least = await floor(commits, rate)
        finally:
            await server.stop()
        found.append(
            {
                "a commit that is waited for, CPU ms": live * 1000 / commits,
                "as many bytes that are counted, CPU ms": least * 1000 / commits,
                "share of the floor": least / live,
            }
        )
    about = (
        f"A process that follows the log, read and decoded, while another appends {rate} commits a second of two pods "
        "each: its CPU time per commit. Floor: a process whose event loop is woken as often by the same bytes, and "
        "only counts them. Aim: 0.1 ms."
    )
    return Table("What a commit costs a reader", about, found)


def main() -> None:
    modes = {"--follows": follows, "--counts": counts}
    if len(sys.argv) == 4 and sys.argv[1] in modes:
        print(asyncio.run(modes[sys.argv[1]](sys.argv[2], int(sys.argv[3]))), flush=True)
    else:
        by_hand(measure, __doc__, commits=1_000, rate=200, rounds=3)


if __name__ == "__main__":
    main()
