"""What reading the demand of Ray clusters costs: heads of a test, on loopback, in a process of their own.

Run: python tests/perf/bench_demand.py [--clusters 1 50] [--rounds 3]
"""

import argparse
import asyncio
import multiprocessing
import time
from multiprocessing.connection import Connection

from figures import Progress, Table

from kit import rayhead
from muster.model.keys import Ref
from muster.ray import ray_head_pb2 as pb
from muster.ray.decoding import parse, reading_of
from muster.ray.fleet import EVERY_MS
from muster.ray.heads import Head
from muster.ray.reader import HeadReader
from muster.ray.reading import demand_of
from muster.runtime.clock import SystemClock

WORKERS = 10
SHAPES = 10_000


def answer(workers: int, shapes: int) -> pb.GetClusterStatusReply:
    """A head with idle workers, a placement group and waiting tasks of so many shapes."""
    return rayhead.status(
        *(rayhead.node(f"w{i}", status=pb.IDLE, idle_duration_ms=60_000) for i in range(workers)),
        pending=[rayhead.request({"CPU": 1 + i / 10}, 5) for i in range(shapes)],
        gangs=[rayhead.gang("a" * 36, "STRICT_SPREAD", [{"CPU": 1}] * 8)],
        autoscaling=pb.AutoscalingState(autoscaler_state_version=1),
    )


def heads(count: int, ready: Connection) -> None:
    """Serve until the other end closes."""

    async def serve() -> None:
        served = []
        for _ in range(count):
            gcs = rayhead.FakeGcs()
            gcs.status = answer(WORKERS, 5)
            await gcs.start()
            served.append(gcs)
        ready.send([gcs.address for gcs in served])
        await asyncio.to_thread(ready.poll, None)
        for gcs in served:
            await gcs.stop()

    asyncio.run(serve())


async def round_of(addresses: list[str], seconds: float) -> dict[str, float]:
    """Every head again and again, as the bridge reads them, for a while."""
    clock = SystemClock()
    readers = [
        HeadReader(Head(Ref("rayclusters", "ns", f"c{i}", f"u{i}"), 1, address), clock=clock)
        for i, address in enumerate(addresses)
    ]
    await asyncio.gather(*(reader.read() for reader in readers))
    took: list[float] = []
    cpu, began = 0.0, time.monotonic()
    while time.monotonic() - began < seconds:
        busy = time.process_time()

        async def timed(reader: HeadReader) -> None:
            at = time.perf_counter()
            await reader.read()
            took.append(time.perf_counter() - at)

        await asyncio.gather(*map(timed, readers))
        cpu += time.process_time() - busy
    for reader in readers:
        await reader.close()
    took.sort()
    count = len(addresses)
    name = f"{count} cluster{'s' if count > 1 else ''}: "
    return {
        name + "one reading, median, ms": took[len(took) // 2] * 1000,
        name + "one reading, p99, ms": took[int(len(took) * 0.99)] * 1000,
        name + "CPU of one reading, ms": cpu / len(took) * 1000,
        name + f"CPU at one reading every {EVERY_MS // 1000} s, % of a core": cpu / len(took) * count / EVERY_MS * 1e5,
    }


def huge(shapes: int) -> dict[str, float]:
    """The largest answer that is read in full: what decoding it costs."""
    body = answer(1_000, shapes).SerializeToString()
    began = time.process_time()
    demand_of(reading_of(parse(pb.GetClusterStatusReply(), body, "head")), 0)
    spent = time.process_time() - began
    return {f"1,000 workers and {shapes:,} shapes, {len(body) / 2**20:.1f} MiB: CPU of decoding, ms": spent * 1000}


async def measure(clusters: list[int], seconds: float, rounds: int, say: Progress) -> list[Table]:
    found: list[dict[str, float]] = [{} for _ in range(rounds)]
    context = multiprocessing.get_context("spawn")
    for count in clusters:
        say(f"reading {count} Ray heads")
        ours, theirs = context.Pipe()
        server = context.Process(target=heads, args=(count, theirs), daemon=True)
        server.start()
        addresses = await asyncio.to_thread(ours.recv)
        for each in found:
            each.update(await round_of(addresses, seconds))
        ours.send("end")
        await asyncio.to_thread(server.join)
    for each in found:
        each.update(huge(SHAPES))
    about = (
        f"The bridge's reader, and heads of a test in another process, over gRPC on loopback: {WORKERS} idle workers, "
        "waiting tasks of 5 shapes and a placement group in each. All heads are read side by side, without a pause."
    )
    return [Table("Reading the demand of Ray clusters", about, found)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", type=int, nargs="+", default=[1, 50])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for table in asyncio.run(measure(options.clusters, 3.0, options.rounds, Progress())):
        print(table.about, *table.lines(), sep="\n")


if __name__ == "__main__":
    main()
