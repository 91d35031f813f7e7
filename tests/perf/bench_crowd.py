"""How long the gateway takes to answer beside a crowd: streams, half-sent requests, and the worst questions.

The gateway of bench_gateway, a hundred events a second. Another process has the crowd: open streams of forty viewers,
half of them tenants of one namespace each and a tenth of them without a word read, connections with half a request,
and viewers who ask for a million workers and a head that never fits, or for another max of a queue, again and again.
A reader in a process of its own asks for `/jobs` and `/position`, first alone and then beside the crowd. A crowd has
machines of its own: here its process is nicer than gateway and reader. The garbage collector is set as in a service.

Run: python tests/perf/bench_crowd.py [--waiting 10000] [--nodes 1000] [--streams 2000] [--halves 200] [--worst 8]
"""

import asyncio
import contextlib
import gc
import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import psutil
from bench_gateway import CHANGE, MANIFEST, Served, served_cell
from figures import Progress, Table, by_hand

from muster.runtime.service import COLLECT_AFTER
from muster.serving.access import Viewed
from muster.serving.scope import EVERYTHING, Scope

ASKED = 300
"""How often each of the two questions is asked, with and without the crowd."""
VIEWERS = 40
PACE_S = 0.01
HALF = b"POST /api/v1/ask HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{"
WORKERS = 1_000_000


class Named:
    """A viewer says a name: ``tenant-N`` sees namespace ns-N, everybody else sees everything."""

    async def viewed(self, authorization: str, _namespaces: Iterable[str]) -> Viewed:
        kind, _, number = authorization.partition("-")
        scope = Scope(frozenset({f"ns-{number}"}), cluster=False) if kind == "tenant" else EVERYTHING
        return Viewed(authorization, scope)


def worst() -> dict[str, Any]:
    """A job of a million tiny workers and a head that never fits."""
    manifest: dict[str, Any] = json.loads(json.dumps(MANIFEST))
    spec = manifest["spec"]["rayClusterSpec"]
    head = spec["headGroupSpec"]["template"]["spec"]["containers"][0]
    head["resources"] = {side: {"cpu": "63", "memory": "1Ti"} for side in ("requests", "limits")}
    group = spec["workerGroupSpecs"][0]
    group["template"]["spec"]["containers"][0]["resources"] = {side: {"cpu": "1m"} for side in ("requests", "limits")}
    group |= {"replicas": WORKERS, "minReplicas": WORKERS, "maxReplicas": WORKERS}
    return {"manifest": manifest}


async def measure(
    waiting: int, machines: int, streams: int, halves: int, bad: int, say: Progress, asked: int = ASKED
) -> Table:
    say(f"crowd: a cell of {waiting} waiting jobs on {machines} nodes")
    with TemporaryDirectory() as folder:
        served = Served(served_cell(waiting, machines), Path(folder), Named())
        gc.freeze()
        gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])
        await served.server.start()
        busy = asyncio.gather(served.busy(), served.live.foresight.keep())
        try:
            say(f"crowd: {streams} streams, {halves} half requests, {bad} questions")
            given = {"port": served.server.port, "streams": streams, "halves": halves, "worst": bad, "asked": asked}
            alone = await _of("reader", given)
            memory = [psutil.Process().memory_info().rss]
            crowd = await _begun("crowd", given)
            assert crowd.stdout is not None
            assert crowd.stdin is not None
            await crowd.stdout.readline()
            reader = asyncio.ensure_future(_of("reader", given))
            while not reader.done():
                await asyncio.wait({reader}, timeout=0.5)
                memory.append(psutil.Process().memory_info().rss)
            crowd.stdin.close()
            beside = await reader | _told(await crowd.stdout.read())
            assert await crowd.wait() == 0
        finally:
            busy.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await busy
            await served.server.stop()
            await served.live.foresight.ahead.stop()
    figures = {f"{name}, alone": value for name, value in alone.items() if name.endswith("%")}
    figures |= {f"{name}, beside the crowd": value for name, value in beside.items()}
    figures["memory that the crowd takes, MiB"] = (max(memory) - memory[0]) / (1 << 20)
    about = (
        f"{waiting:,} waiting RayJobs, {machines:,} nodes, a hundred events a second; {streams:,} streams of {VIEWERS} "
        f"viewers, {halves} half-sent requests, {bad} viewers who ask for {WORKERS:,} workers over and over."
    )
    return Table("Gateway beside a crowd", about, [figures])


async def _begun(role: str, given: dict[str, int]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, __file__, role, json.dumps(given), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )


async def _of(role: str, given: dict[str, int]) -> dict[str, float]:
    process = await _begun(role, given)
    out, _ = await process.communicate()
    assert process.returncode == 0
    return _told(out)


def _told(text: bytes) -> dict[str, float]:
    told: dict[str, float] = json.loads(text)
    return told


class Crowd:
    """Of the other process: the connections, and what came over them."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.heard = self.answered = self.refused = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def come(self, streams: int, halves: int, bad: int) -> None:
        for number in range(streams):
            viewer = f"{'tenant' if number % 2 else 'admin'}-{number % VIEWERS}"
            self._tasks.append(asyncio.ensure_future(self._stream(viewer, silent=number % 10 == 9)))
            if not number % 50:
                await asyncio.sleep(0.05)
        self._tasks += [asyncio.ensure_future(self._half()) for _ in range(halves)]
        for number in range(bad):
            path, body = (("/api/v1/whatif", CHANGE), ("/api/v1/ask", worst()))[number % 2]
            self._tasks.append(asyncio.ensure_future(self._ask(f"worst-{number}", path, body)))

    async def go(self) -> None:
        for task in self._tasks:
            if task.done() and (err := task.exception()) is not None:
                raise err
            task.cancel()
        await asyncio.wait(self._tasks) if self._tasks else None

    async def _stream(self, viewer: str, *, silent: bool) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        text = f"GET /api/v1/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: {viewer}\r\n\r\n"
        writer.write(text.encode())
        assert b" 200 " in await reader.readline()
        if silent:
            await asyncio.Event().wait()
        while chunk := await reader.read(1 << 16):
            self.heard += chunk.count(b"event: news")

    async def _half(self) -> None:
        """Again and again: the gateway ends each after a while."""
        while True:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            writer.write(HALF)
            await reader.read()
            writer.close()

    async def _ask(self, viewer: str, path: str, body: object) -> None:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{self._port}") as session:
            while True:
                async with session.post(path, json=body, headers={"Authorization": viewer}) as answer:
                    text = await answer.text()
                    assert answer.status in (200, 429, 503, 504), text
                    self.answered += answer.status == 200
                    self.refused += answer.status != 200


async def crowd(given: dict[str, int]) -> dict[str, float]:
    """Comes, says so by an empty line, and goes at the end of the input."""
    os.nice(10)
    crowd, gone = Crowd(given["port"]), asyncio.Event()
    await crowd.come(given["streams"], given["halves"], given["worst"])
    await asyncio.sleep(3)
    heard, began = crowd.heard, time.perf_counter()
    sys.stdout.write("\n")
    sys.stdout.flush()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), gone.set)
    await gone.wait()
    took = time.perf_counter() - began
    figures: dict[str, float] = {
        "messages of a stream a second": (crowd.heard - heard) / given["streams"] / took,
        "worst questions with an answer": crowd.answered,
        "worst questions refused": crowd.refused,
    }
    await crowd.go()
    return figures


async def reader(given: dict[str, int]) -> dict[str, float]:
    figures: dict[str, float] = {}
    async with aiohttp.ClientSession(f"http://127.0.0.1:{given['port']}") as session:
        for name, path in (("jobs", "/api/v1/jobs?state=waiting&limit=12"), ("position", "/api/v1/position")):
            await _times(session, path, 20)
            times = await _times(session, path, given["asked"])
            figures[f"{name}, ms, middle"] = times[len(times) // 2]
            figures[f"{name}, ms, 99 %"] = times[len(times) * 99 // 100]
    return figures


ROLES = {"crowd": crowd, "reader": reader}


async def _times(session: aiohttp.ClientSession, path: str, asked: int) -> Sequence[float]:
    times = []
    for _ in range(asked):
        await asyncio.sleep(PACE_S)
        began = time.perf_counter()
        async with session.get(path, headers={"Authorization": "admin-0"}) as answer:
            assert answer.status == 200, await answer.text()
            await answer.read()
        times.append((time.perf_counter() - began) * 1_000)
    return sorted(times)


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in ROLES:
        sys.stdout.write(json.dumps(asyncio.run(ROLES[sys.argv[1]](json.loads(sys.argv[2])))))
    else:
        by_hand(measure, __doc__, waiting=10_000, nodes=1_000, streams=2_000, halves=200, worst=8)
