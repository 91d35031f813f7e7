"""How fast a recorded log is read and decided again: one process, one core.

A log of N RayJobs that come, wait, start, run and end, with their RayClusters and pods, is made in memory, written to a
file, and replayed from it. Then one of as many jobs of which nothing is reported but that they come and go: there half
of the events are decisions.

Run: python tests/perf/bench_replay.py [--jobs 5000] [--rounds 3]
"""

import argparse
import tempfile
import time
from pathlib import Path

from figures import Table

from histories import whole_lives
from kit import facts
from kit.bench import Bench
from muster.core.cell.deciders import DECIDERS
from muster.core.stage import Folder
from muster.events.decisions import GangAdmitted
from muster.events.envelope import Stored
from muster.runtime.logkeeping.logfile import read_log, write_log
from muster.runtime.replaying.replay import replay

LEAVES = 10
BATCH = 50


def history(jobs: int) -> list[Stored]:
    """Jobs come fifty at a time; what is admitted ends with the next fifty."""
    bench = Bench(check=False)
    leaves = tuple(facts.node(f"leaf-{index}", {"cpu": 40}, {"cpu": 80}, (f"ns-{index}",)) for index in range(LEAVES))
    whole = {"cpu": 40 * LEAVES}
    bench.facts(facts.tree(facts.node("root", whole, whole, children=leaves)))
    bench.synced()
    running: list[GangAdmitted] = []
    for first in range(0, jobs, BATCH):
        seen = [
            facts.seen(facts.job(f"job-{index:06}", f"ns-{index % LEAVES}", cpu=1 + index % 8))
            for index in range(first, first + BATCH)
        ]
        ended, running = running, []
        bench.facts(*seen, *(facts.gone(event.ref.name, event.ref.namespace) for event in ended))
        running += [event for event in bench.settle() if isinstance(event, GangAdmitted)]
    return bench.log


def round_of(path: Path, events: int) -> dict[str, float]:
    began = time.process_time()
    commits = list(read_log(path))
    read_s = time.process_time() - began
    began = time.process_time()
    report = replay(commits)
    replay_s = time.process_time() - began
    assert not report.divergences, report.divergences[0]
    began = time.process_time()
    for make in DECIDERS.values():
        stage = make()
        state, folder = stage.initial(), Folder(stage)
        for stored in commits:
            folder.fold(state, stored)
    fold_s = time.process_time() - began
    return {
        "read from the file, events/s": events / read_s,
        "decided again and compared by all stages, events/s": events / replay_s,
        "read, decided again and compared, events/s": events / (read_s + replay_s),
        "folded by all stages (a restart without snapshot), events/s": events / fold_s,
    }


def measure(jobs: int = 5_000, rounds: int = 3) -> Table:
    found: list[dict[str, float]] = [{} for _ in range(rounds)]
    about = "One process, one core; seconds of that core."
    for made, what in ((whole_lives(jobs), ""), (history(jobs), "come and go: ")):
        events = sum(len(stored.commit.events) for stored in made)
        about += f" {'Nothing but what comes and goes' if what else 'Whole lives'}: {jobs:,} jobs, "
        about += f"{len(made):,} commits, {events:,} events."
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "log.jsonl"
            write_log(path, made)
            for each in found:
                each.update((what + figure, value) for figure, value in round_of(path, events).items())
    return Table("Replay", about, found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    found = measure(options.jobs, options.rounds)
    print(found.about, *found.lines(), sep="\n")


if __name__ == "__main__":
    main()
