"""CPU per admission with many waiting: the pure stages alone, no bus, no API server.

One queue tree of 30 leaves, jobs of six sizes. N jobs wait; then jobs finish one by one, and each release admits the
next. Measured is the CPU time of all deciders folding and deciding, per admission.

Run: python tests/perf/bench_decisions.py [--waiting 1000 10000 50000] [--admissions 400] [--rounds 3]
"""

import argparse
import time
from collections import deque
from collections.abc import Sequence

from figures import Progress, Table

from kit import facts
from kit.bench import Bench
from muster.events.decisions import GangAdmitted
from muster.events.facts import WorkloadObserved

LEAVES = 30
SIZES = (1, 2, 4, 5, 8, 20)


def tree(capacity: int) -> facts.TreeNodeSpec:
    each = capacity // LEAVES
    leaves = tuple(
        facts.node(f"leaf-{index}", {"cpu": each}, {"cpu": capacity}, (f"ns-{index}",)) for index in range(LEAVES)
    )
    whole = {"cpu": each * LEAVES}
    return facts.node("root", whole, whole, children=leaves)


def prepared(waiting: int, running: int) -> tuple[Bench, deque[str]]:
    """A bench with ``running`` jobs admitted and ``waiting`` behind them."""
    bench = Bench(check=False)
    total = sum(SIZES[index % len(SIZES)] for index in range(running))
    bench.facts(facts.tree(tree(total - total % LEAVES)))
    bench.synced()
    batch: list[WorkloadObserved] = []
    admitted: deque[str] = deque()
    for index in range(running + waiting):
        job = facts.job(
            f"job-{index:06}", f"ns-{index % LEAVES}", cpu=SIZES[index % len(SIZES)], priority=(index * 7919) % 3
        )
        batch.append(facts.seen(job))
        if len(batch) == 200:
            bench.facts(*batch)
            batch.clear()
            admitted.extend(names(bench.settle()))
    bench.facts(*batch)
    admitted.extend(names(bench.settle()))
    return bench, admitted


def names(events: list[object]) -> list[str]:
    return [event.ref.key for event in events if isinstance(event, GangAdmitted)]


def per_admission_us(waiting: int, admissions: int) -> float:
    """µs of CPU per admission."""
    bench, running = prepared(waiting, running=300)
    done = 0
    began = time.process_time()
    while done < admissions:
        namespace, _, name = running.popleft().partition("/")
        bench.facts(facts.gone(name, namespace))
        found = names(bench.settle())
        running.extend(found)
        done += len(found)
    return (time.process_time() - began) / done * 1e6


def measure(waiting: Sequence[int], admissions: int, rounds: int, say: Progress) -> Table:
    found: list[dict[str, float]] = []
    for index in range(rounds):
        say(f"decisions: round {index + 1} of {rounds}")
        figures = {f"{count:,} waiting, µs": per_admission_us(count, admissions) for count in waiting}
        values = list(figures.values())
        found.append({**figures, f"{waiting[-1]:,} against {waiting[0]:,}": values[-1] / values[0]})
    about = (
        "All deciders in one process folding and deciding, no bus: CPU time from the end of one job to the admission "
        f"of the next, per admission, with so many jobs of six sizes waiting in {LEAVES} queues."
    )
    return Table("CPU per admission", about, found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waiting", type=int, nargs="+", default=[1_000, 10_000, 50_000])
    parser.add_argument("--admissions", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    found = measure(options.waiting, options.admissions, options.rounds, Progress())
    print(found.about, *found.lines(), sep="\n")


if __name__ == "__main__":
    main()
