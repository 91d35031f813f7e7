"""Whether what `muster ask` says comes true: promised starts on public traces, and advice in forks.

Every so many-th job of a trace is asked about right before it comes. Then jobs are asked about in random histories, and
each advice is followed in a copy of the stages. MUSTER_TEST_TRACES names the folder of the traces.

Run: python tests/perf/bench_advice.py [--forks 1000] [--every 13] [--only forks]
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

from bench_placement import traces
from figures import Progress

from kit.advised import Asking, advised, asked, job, starts
from kit.chaos import NAMESPACES, Chaos
from kit.traces import muri, philly
from muster.core.stage import Folder
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState
from muster.tracesim.jobsfile import read_trace
from muster.tracesim.model import Trace
from muster.tracesim.runner import MUSTER, Options, simulate


def whole(folder: Path, every: int) -> Iterator[tuple[str, Trace, int]]:
    """(name, trace, every how many-th job is asked about)"""
    with tempfile.TemporaryDirectory() as name:
        yield "64 GPUs", read_trace(*muri(folder / "muri_testbed_64gpu.csv", Path(name))), 1
        yield "gang-heavy", read_trace(*muri(folder / "muri_trace1_gang.csv", Path(name))), 1
        yield "Philly, two weeks", read_trace(*philly(folder, Path(name))), every


def covered(trace: Trace, every: int) -> str:
    asking = Asking(every)
    simulate(trace, MUSTER, Options(), alone={}, hears=asking.hear)
    (kept, known), (at_once, said) = asking.coverage, asking.at_once
    return (
        f"{len(asking.answers)} asked; promised a start: {known}, kept: {kept} ({100 * kept / max(known, 1):.1f} %); "
        f"said to start now: {said}, did within a minute: {at_once}"
    )


def forked(forks: int) -> str:
    """So many pieces of advice, each followed."""
    true: Counter[str] = Counter()
    false: list[str] = []
    seed = 0
    while true.total() + len(false) < forks:
        seed += 1
        chance = Random(seed)
        chaos = Chaos(chance)
        chaos.run(steps=chance.randrange(40, 160))
        folder, state = Folder(ReadModel()), ReadState()
        for stored in chaos.bench.log:
            folder.fold(state, stored)
        for namespace in NAMESPACES:
            pods, cpu = chance.randrange(1, 7), chance.randrange(1, 6)
            found = asked(state, job("asked", namespace, pods, cpu), state.now)
            for change, other in advised(found, pods, cpu):
                if starts(chaos.bench, other):
                    true[change.partition("=")[0]] += 1
                else:
                    false.append(f"seed {seed}, {namespace}, {pods} pods of {cpu} cpu: {change}")
    share = 100 * true.total() / (true.total() + len(false))
    return f"{true.total()} of {true.total() + len(false)} true ({share:.1f} %), {dict(true)}; false: {false[:5]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forks", type=int, default=1_000)
    parser.add_argument("--every", type=int, default=13)
    parser.add_argument("--only", choices=["forks", "traces"], default="")
    options = parser.parse_args()
    say = Progress()
    if options.only != "traces":
        say("advice: forks")
        print(f"advice: {forked(options.forks)}", flush=True)
    folder = traces()
    if options.only == "forks" or folder is None:
        return
    for name, trace, every in whole(folder, options.every):
        say(f"advice: {name}")
        print(f"{name}: {covered(trace, every)}", flush=True)


if __name__ == "__main__":
    main()
