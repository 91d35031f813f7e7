"""What one event costs on a large cluster: CPU time of all deciders that fold it and decide all that follows from it.

A quota tree of many queues, each of which uses its guarantee; behind them wait jobs no two of which ask for the same,
and gangs that have room in their quota and no place on the nodes. Beside it KAI queues on nodes of their own, all of
whose GPUs are used, each with a job that waits. Then a job of a known and of a new request comes, one ends, a node is
cordoned or comes back, and a quiet minute passes, again and again.

Run: python tests/perf/bench_events.py [--requests 50000] [--queues 1000] [--nodes 5000] [--kai 100] [--running 800]
     [--gangs 1000] [--events 100]
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import count, islice
from typing import NamedTuple

from figures import Progress, Table

from kit import facts, kai, nodes
from kit.bench import Bench
from muster.events.base import Cause, Event
from muster.events.decisions import GangAdmitted
from muster.events.effects import EffectApplied
from muster.events.system import PlacementChosen
from muster.model.workload import PodSet, Workload

BATCH = 200
MINUTE_MS = 60_000
GB = 10**9
GPUS = 8
"""Of a node of the KAI queues."""
STEP = 7
"""The queues take turns in steps of this many."""


class Size(NamedTuple):
    """How much of everything."""

    requests: int = 50_000
    queues: int = 1_000
    nodes: int = 5_000
    kai: int = 100
    running: int = 800
    """Jobs of KAI queues."""
    gangs: int = 1_000
    events: int = 100
    """Of each kind."""


SMALL = Size(requests=60, queues=6, nodes=12, kai=3, running=8, gangs=6, events=3)


class Cluster:
    """A job that is admitted runs at once, on the places that it was given."""

    def __init__(self, size: Size) -> None:
        self.size, self.bench = size, Bench(check=False)
        self.jobs: dict[str, Workload] = {}
        self.up: dict[str, list[str]] = {}
        """queue -> uids of its running jobs, in the order of their admission"""
        self.numbers = count()
        self.bench.append("gang_admitter", "input", [PlacementChosen(mode="pack", hold_ms=10**12)])
        self.facts(self.node(at) for at in range(size.nodes))
        self.facts(nodes.node(f"gpu{at:05}", cpu=8, memory=256, gpu=GPUS) for at in range(-(-size.running // GPUS)))
        own, whole = {"memory": "4G"}, {"memory": f"{4 * size.queues}G", "cpu": 10**6}
        leaves = tuple(facts.node(f"q{at}", own, whole, (f"q{at}",)) for at in range(size.queues))
        self.bench.facts(facts.tree(facts.node("root", whole, whole, children=leaves)))
        self.facts(kai.queue(f"k{at}", gpu=(0, -1, 1)) for at in range(size.kai))
        self.bench.synced()
        self.settle()
        each = max(size.nodes // size.queues, 1)
        self.come(self.job(f"q{at}", 4 * GB, 3, each) for at in range(size.queues))
        self.come(self.kai_job(at) for at in range(size.running + size.kai))
        self.come(self.job(f"q{at % size.queues}", 0, 2, 2 + at // size.queues) for at in range(size.gangs))
        self.come(self.waiting(at) for at in range(size.requests))
        self.bench.pass_time(MINUTE_MS)

    def node(self, at: int, *, schedulable: bool = True) -> Event:
        """Of four cpu, three of which a job takes."""
        return nodes.node(f"n{at:05}", cpu=4, memory=16, schedulable=schedulable)

    def waiting(self, at: int, less: int = 0) -> Workload:
        """Half of a guarantee and more, in each queue in turn; of the same number the same."""
        return self.job(f"q{at % self.size.queues}", 2 * GB + at * 10_000 - less)

    def job(self, queue: str, memory: int, cpu: int = 0, pods: int = 1) -> Workload:
        """The cpu are for each pod; the memory is asked of the quota alone."""
        amounts = {"cpu": 1000 * cpu * pods, "memory": memory}
        need = {name: amount for name, amount in amounts.items() if amount}
        sets = (PodSet("main", pods, {"cpu": 1000 * cpu} if cpu else {}),)
        name = f"job-{next(self.numbers):07}"
        return facts.job(name, queue, need={"ack": need, "full": need}, pod_sets=sets, created=self.bench.now)

    def kai_job(self, at: int) -> Workload:
        need = {"cpu": 1000, "nvidia.com/gpu": 1000}
        said = {"need": {"ack": need, "full": need}, "pod_sets": (PodSet("main", 1, need),), "created": self.bench.now}
        return kai.work(f"job-{next(self.numbers):07}", f"k{at % self.size.kai}", **said)

    def seen(self, job: Workload) -> Event:
        self.jobs[job.ref.uid] = job
        return facts.seen(job)

    def facts(self, events: Iterable[Event]) -> None:
        rest = iter(events)
        while some := list(islice(rest, BATCH)):
            self.bench.facts(*some)

    def come(self, jobs: Iterable[Workload]) -> None:
        rest = iter(jobs)
        while some := list(islice(rest, BATCH)):
            self.bench.facts(*map(self.seen, some))
            self.settle()

    def settle(self) -> float:
        """CPU seconds of the deciders until nothing more is due, and what they admit runs."""
        began = time.process_time()
        decided = self.bench.settle()
        self.bench.next_deadline()
        took = time.process_time() - began
        admitted = [event for event in decided if isinstance(event, GangAdmitted)]
        for start in range(0, len(admitted), BATCH):
            self._run(admitted[start : start + BATCH])
        return took

    def _run(self, admitted: Sequence[GangAdmitted]) -> None:
        cause = Cause(1, 0)
        effects = [EffectApplied(cause=cause, ref=it.ref, attempt=it.attempt, rv=facts.next_rv()) for it in admitted]
        self.bench.append("actuator", "input", effects)
        jobs = [self.jobs[each.ref.uid] for each in admitted]
        self.bench.facts(*(facts.seen(each, suspended=False, phase="running", settled=False) for each in jobs))
        for each in admitted:
            self.up.setdefault(each.queue, []).append(each.ref.uid)
        self.settle()

    def end(self, at: int, kind: str, pods: int = 0) -> list[Event]:
        """The oldest running job of a queue whose name begins so; ``pods``: of that many, of any where it is 0."""

        def suits(uid: str) -> bool:
            return not pods or sum(each.count for each in self.jobs[uid].pod_sets) == pods

        queues = [
            queue
            for queue, uids in self.up.items()
            if queue.rpartition("/")[2].startswith(kind) and any(map(suits, uids))
        ]
        queue = queues[at * STEP % len(queues)]
        uid = next(filter(suits, self.up[queue]))
        self.up[queue].remove(uid)
        if not self.up[queue]:
            del self.up[queue]
        return [facts.gone(self.jobs[uid].ref.name, self.jobs[uid].ref.namespace)]

    def ms(self, happened: Sequence[Event]) -> float:
        """CPU ms of all deciders for what happens; for nothing: of a quiet minute."""
        began = time.process_time()
        if not happened:
            self.bench.pass_time(MINUTE_MS)
            return (time.process_time() - began) * 1000
        self.bench.facts(*happened)
        folded = time.process_time() - began
        return (folded + self.settle()) * 1000


def kinds(cluster: Cluster) -> dict[str, Callable[[int], list[Event]]]:
    """What happens -> the facts of the n-th time."""
    return {
        "a job of a known request comes": lambda at: [cluster.seen(cluster.waiting(at * STEP))],
        "a job of a new request comes": lambda at: [cluster.seen(cluster.waiting(at * STEP, less=1))],
        "a large job ends": lambda at: cluster.end(at, "q"),
        "a job ends, and one like it starts": lambda at: cluster.end(at, "q", pods=1),
        "a job comes, KAI queues": lambda at: [cluster.seen(cluster.kai_job(at * STEP))],
        "a job ends, KAI queues": lambda at: cluster.end(at, "k"),
        "a node is cordoned, or comes back": lambda at: [cluster.node(at // 2 * STEP, schedulable=bool(at % 2))],
        "a quiet minute": lambda _: [],
    }


def measure(size: Size, say: Progress) -> Table:
    say(f"events: {size.requests:,} requests in {size.queues:,} queues, {size.nodes:,} nodes")
    cluster = Cluster(size)
    gc.freeze()  # As a process does that has read its snapshots: what is there already is not gone through again.
    found: dict[str, float] = {}
    for kind, make in kinds(cluster).items():
        say(f"events: {kind}")
        before = len(cluster.bench.happened(GangAdmitted))
        took = sorted(cluster.ms(make(at)) for at in range(size.events))
        found |= {f"{kind}, p50 ms": took[len(took) // 2], f"{kind}, p99 ms": took[len(took) * 99 // 100]}
        if started := len(cluster.bench.happened(GangAdmitted)) - before:
            found[f"{kind}, jobs that start"] = started / size.events
    gc.unfreeze()
    about = (
        f"All deciders in one process, no bus: CPU time until nothing more is due. {size.requests:,} jobs with as many "
        f"requests wait in {size.queues:,} queues that use their guarantees, {size.gangs:,} gangs for room on "
        f"{size.nodes:,} nodes; beside them {size.kai:,} KAI queues with {size.running:,} running jobs, and one each "
        f"that waits. {size.events:,} events of each kind; aim: 2 ms at p99."
    )
    return Table("An event on a large cluster", about, [found])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in Size()._asdict().items():
        parser.add_argument(f"--{name}", type=int, default=default)
    table = measure(Size(**vars(parser.parse_args())), Progress())
    print(table.about, *table.lines(), sep="\n")


if __name__ == "__main__":
    main()
