"""A reclaim decision with many running: the preemptor and the accountant alone, no bus, no API server.

Thirty queues, of which one borrows everything; another then asks for what it is guaranteed. Measured is the CPU time
from the claimant's denial to the eviction order, and how fast one queue of equal jobs drains beside thirty queues.

Run: python tests/perf/bench_reclaim.py
"""

import time
from collections.abc import Sequence

from figures import Progress, Table

from kit import facts
from kit.bench import Bench
from muster.events.base import Cause
from muster.events.decisions import EvictionOrdered, GangAdmitted
from muster.events.effects import EffectApplied

LEAVES = 30
CLAIM = 20


def loaded(running: int) -> Bench:
    """A bench in which one queue runs ``running`` jobs of 1 cpu, and nothing is left."""
    each = -(-running // LEAVES)
    leaves = tuple(
        facts.node(f"leaf-{index}", {"cpu": each}, {"cpu": each * LEAVES}, (f"ns-{index}",)) for index in range(LEAVES)
    )
    whole = {"cpu": each * LEAVES}
    bench = Bench(check=False)
    bench.facts(facts.tree(facts.node("root", whole, whole, children=leaves)))
    bench.synced()
    for first in range(0, each * LEAVES, 200):
        jobs = [facts.job(f"job-{index:06}", "ns-0", cpu=1) for index in range(first, min(first + 200, each * LEAVES))]
        bench.facts(*(facts.seen(job) for job in jobs))
        bench.settle()
        effects = [EffectApplied(cause=Cause(1, 0), ref=job.ref, attempt=1, rv=job.rv) for job in jobs]
        bench.append("actuator", "input", effects)
        running_now = [facts.seen(job, suspended=False, phase="running", settled=False) for job in jobs]
        bench.facts(*running_now)
    return bench


def decision_ms(running: int) -> float:
    """CPU ms from the claimant's coming to the order; it asks for all its queue is guaranteed, up to CLAIM."""
    bench = loaded(running)
    claim = min(CLAIM, -(-running // LEAVES))
    began = time.process_time()
    bench.facts(facts.seen(facts.job("claimant", "ns-7", cpu=claim)))
    decided = bench.settle()
    took = (time.process_time() - began) * 1000
    orders = [event for event in decided if isinstance(event, EvictionOrdered)]
    assert len(orders) == 1, "one order"
    assert len(orders[0].victims) == claim, "as many as it needs"
    return took


def drained_per_s(queues: int, jobs: int) -> float:
    """Admissions per second of CPU of equal jobs in so many queues."""
    leaves = tuple(facts.node(f"q-{index}", {}, {"cpu": jobs}, (f"ns-{index}",)) for index in range(queues))
    bench = Bench(check=False)
    bench.facts(facts.tree(facts.node("root", {"cpu": jobs}, {"cpu": jobs}, children=leaves)))
    bench.synced()
    waiting = [facts.seen(facts.job(f"job-{index:06}", f"ns-{index % queues}", cpu=1)) for index in range(jobs)]
    began = time.process_time()
    admitted = 0
    for first in range(0, jobs, 200):
        bench.facts(*waiting[first : first + 200])
        admitted += sum(isinstance(event, GangAdmitted) for event in bench.settle())
    assert admitted == jobs
    return jobs / (time.process_time() - began)


def measure(running: Sequence[int], jobs: int, rounds: int, say: Progress) -> list[Table]:
    reclaim: list[dict[str, float]] = []
    drain: list[dict[str, float]] = []
    for index in range(rounds):
        say(f"reclaim: round {index + 1} of {rounds}")
        reclaim.append({f"{count:,} running, ms": decision_ms(count) for count in running})
        one, thirty = drained_per_s(1, jobs), drained_per_s(30, jobs)
        drain.append({"one queue, jobs/s": one, "30 queues, jobs/s": thirty, "one against 30": one / thirty})
    about = (
        "All deciders in one process: CPU time from a claimant's coming to the order that evicts twenty jobs of a "
        "queue that borrows everything."
    )
    beside = f"{jobs:,} equal jobs that all fit, in one queue and in 30: admissions per second of CPU, all deciders."
    return [Table("Reclaim decision", about, reclaim), Table("One queue against many", beside, drain)]


def main() -> None:
    for table in measure([1_000, 10_000], 10_000, 3, Progress()):
        print(table.about, *table.lines(), sep="\n")


if __name__ == "__main__":
    main()
