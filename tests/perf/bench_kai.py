"""Reclaim between two KAI queues, in the shapes KAI Scheduler publishes figures for: all deciders, no bus.

One queue runs jobs of one GPU on all of the cluster. Then the other asks for its fair share, half of it: with one gang
of pods of eight GPUs (by quota alone, and where all pods are placed on nodes), or with as many jobs of one GPU as run.

Run: python tests/perf/bench_kai.py
"""

import time
from collections.abc import Sequence

from figures import Progress, Table

from kit import nodes
from kit.bench import Bench
from kit.facts import seen
from kit.kai import queue, work
from kit.packed import Packed, Shape
from muster.events.base import Cause
from muster.events.decisions import EvictionOrdered
from muster.events.effects import EffectApplied

PER_NODE = 8
BATCH = 200


def loaded(count: int) -> Bench:
    """A bench in which queue b uses every GPU of so many nodes, with jobs of one."""
    bench = Bench(check=False)
    half = (0, -1, 1)
    bench.facts(*(nodes.node(f"n{index:04}", cpu=64, memory=256, gpu=PER_NODE) for index in range(count)))
    bench.facts(queue("a", gpu=half), queue("b", gpu=half))
    bench.synced()
    bench.settle()
    for first in range(0, count * PER_NODE, BATCH):
        names = [f"b{index:06}" for index in range(first, min(first + BATCH, count * PER_NODE))]
        jobs = [work(name, "b", gpu=1) for name in names]
        bench.facts(*(seen(job) for job in jobs))
        bench.settle()
        bench.append(
            "actuator", "input", [EffectApplied(cause=Cause(1, 0), ref=job.ref, attempt=1, rv=job.rv) for job in jobs]
        )
        bench.facts(*(seen(work(name, "b", gpu=1, suspended=False, phase="running", settled=False)) for name in names))
        bench.settle()
    return bench


def gang_ms(count: int) -> float:
    """CPU ms from the coming of a gang of half the cluster to the one order that makes room for it."""
    bench = loaded(count)
    began = time.process_time()
    bench.facts(seen(work("gang", "a", gpu=count * PER_NODE // 2)))
    decided = bench.settle()
    took = (time.process_time() - began) * 1000
    orders = [event for event in decided if isinstance(event, EvictionOrdered)]
    assert [len(each.victims) for each in orders] == [count * PER_NODE // 2], "one order, no victim too many"
    return took


def placed_ms(count: int, *, kai: bool = True) -> float:
    """The same where jobs are placed: half of the nodes are cleared. CPU ms to the one order, places and all."""
    half = count * PER_NODE // 2
    cluster = Packed([PER_NODE] * count, {"a": half, "b": half}, kai=kai)
    for first in range(0, count * PER_NODE, BATCH):
        last = min(first + BATCH, count * PER_NODE)
        cluster.arrive([f"b{index:06}" for index in range(first, last)], "b", Shape(1, 1))
        cluster.passes(1_000)
    began = time.process_time()
    cluster.bench.facts(cluster.created("gang", "a", Shape(count // 2, PER_NODE)))
    cluster.bench.settle()
    took = (time.process_time() - began) * 1000
    orders = cluster.bench.happened(EvictionOrdered)
    wanted = count // 2 * PER_NODE
    assert [len(each.victims) for each in orders] == [wanted], "one order, no victim too many"
    return took


def many(count: int) -> dict[str, float]:
    """As many jobs of one GPU wait as run: the CPU seconds until nothing more is due, and ms for each order."""
    bench = loaded(count)
    took: list[float] = []
    began = time.process_time()
    for first in range(0, count * PER_NODE, BATCH):
        bench.facts(*(seen(work(f"a{index:06}", "a", gpu=1)) for index in range(first, first + BATCH)))
    last = time.process_time()
    ordered, quiet = 0, False
    while not quiet:
        quiet = True
        for name in bench.seats:
            found = bench.step(name)
            quiet = quiet and not found
            orders = sum(isinstance(each, EvictionOrdered) for each in found)
            if orders:
                now = time.process_time()
                took.append((now - last) * 1000)
                last, ordered = now, ordered + orders
    total = time.process_time() - began
    assert ordered == count * PER_NODE // 2, f"half of what runs gives way, and {ordered} did"
    took.sort()
    return {
        "until quiet, s": total,
        "one order p50, ms": took[len(took) // 2],
        "one order p99, ms": took[len(took) * 99 // 100],
    }


def measure(counts: Sequence[int], nodes_of_many: int, rounds: int, say: Progress) -> list[Table]:
    gangs: list[dict[str, float]] = []
    placed: list[dict[str, float]] = []
    jobs: list[dict[str, float]] = []
    for index in range(rounds):
        say(f"KAI reclaim: round {index + 1} of {rounds}")
        gangs.append({f"{count:,} nodes, ms": gang_ms(count) for count in counts})
        placed.append({f"{count:,} nodes, ms": placed_ms(count) for count in counts})
        jobs.append(many(nodes_of_many))
    one = (
        "A gang of half the GPUs takes its fair share back from jobs of one GPU that run on all of them: CPU time of "
        "all deciders from its coming to the one order, victims and all. KAI Scheduler publishes 213 ms for 100 nodes, "
        "9.2 s for 500 and 76 s for 1,000, on another machine; it also fits the pods to nodes."
    )
    nodes_first = (
        "The same where all pods are placed: half of the nodes are cleared for pods of eight GPUs, and each has its "
        "node in the order."
    )
    running = nodes_of_many * PER_NODE
    other = (
        f"{running:,} jobs of one GPU run on {nodes_of_many:,} nodes, and as many of the other queue wait: CPU time of "
        "all deciders until nothing more is due. For 4,000 and 4,000 on 500 nodes KAI Scheduler publishes 166 s."
    )
    return [
        Table("A gang's fair share, KAI queues", one, gangs),
        Table("A gang's fair share on nodes, KAI queues", nodes_first, placed),
        Table("Many small claims, KAI queues", other, jobs),
    ]


def main() -> None:
    for table in measure([100, 500, 1_000], 500, 3, Progress()):
        print(table.about, *table.lines(), sep="\n")


if __name__ == "__main__":
    main()
