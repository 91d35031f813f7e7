"""What the gateway keeps in memory over a month: a simulated log, folded as the gateway folds it.

The two weeks of the Philly trace come N times, one after the other; a process of its own simulates them and writes the
log, this one folds it with the states of the ladder, the ring of streams and the series. Shown are the resident
memory on some days, and how many entries the largest tables have. MUSTER_TEST_TRACES names the folder of the traces.

Run: python tests/perf/bench_month.py [--fortnights 2]
"""

import argparse
import gc
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import psutil
from bench_placement import traces
from figures import Grid, Progress

from kit.alone import reader_of
from kit.growing import tables
from kit.recorded import LogTime, RecordedLog
from kit.traces import philly
from muster.events.envelope import Stored
from muster.runtime.logkeeping.logfile import read_log
from muster.serving.live import Live
from muster.serving.moments import Moments
from muster.tracesim.jobsfile import read_trace
from muster.tracesim.runner import MUSTER, Options, simulate

DAY_MS = 24 * 3_600_000
FORTNIGHT_MS = 14 * DAY_MS
DAYS = (1, 7, 14, 21, 28)
BATCH = 100
MIB = 1 << 20


def written(folder: Path, fortnights: int, log: Path) -> int:
    """Simulate and write the log; how many jobs there were."""
    with TemporaryDirectory() as name:
        trace = read_trace(*philly(folder, Path(name)))
    jobs = [
        msgspec.structs.replace(job, id=f"{job.id}-{number}", submit=job.submit + number * FORTNIGHT_MS)
        for number in range(fortnights)
        for job in trace.jobs
    ]
    simulate(msgspec.structs.replace(trace, jobs=tuple(jobs)), MUSTER, Options(), log=log, alone={})
    return len(jobs)


def batches(log: Path) -> Iterator[list[Stored]]:
    batch: list[Stored] = []
    for stored in read_log(log):
        batch.append(stored)
        if len(batch) == BATCH:
            yield batch
            batch = []
    yield batch


def folded(log: Path, folder: Path) -> dict[str, list[float]]:
    """{day: its figures}"""
    first = next(iter(read_log(log)))
    recorded = RecordedLog([first])
    moments = Moments(recorded, folder)
    live = Live(log=reader_of(recorded), snapshots=None, clock=LogTime(recorded), moments=moments)
    began, days, noted, commits, found = first.commit.at, [*DAYS], 0, 0, dict[str, list[float]]()
    for batch in batches(log):
        live._fold(batch)
        noted = live.series.note(live.state, noted)
        for stored in batch:
            live.observed(stored)
        commits += len(batch)
        if days and live.state.now - began >= days[0] * DAY_MS:
            gc.collect()
            resident = psutil.Process(os.getpid()).memory_info().rss / MIB
            files = sum(each.stat().st_size for each in folder.iterdir()) / MIB
            figures = [commits, resident, tables(live.state).total(), len(moments.rungs), files]
            found[str(days.pop(0))] = [float(round(each)) for each in figures]
    return found


def measure(traces: Path, fortnights: int, say: Progress) -> Grid:
    with TemporaryDirectory() as name:
        log, rungs = Path(name) / "month.jsonl.gz", Path(name) / "rungs"
        rungs.mkdir()
        say("month: simulated")
        with ProcessPoolExecutor(1, get_context("spawn")) as apart:
            jobs = apart.submit(written, traces, fortnights, log).result()
        say(f"month: the log of {jobs:,} jobs, folded")
        cells = folded(log, rungs)
    about = (
        f"{jobs:,} jobs on 448 GPUs: the two weeks of the Philly trace {fortnights} times, one after the other, with a "
        "backlog from the third week on. The log is folded by one process as the gateway folds it, with the ring of "
        "its streams, its series, and the states of the ladder, which are files."
    )
    columns = ("day", "commits", "memory, MiB", "entries of all tables", "states on the ladder", "their files, MiB")
    return Grid("The gateway over a month", about, columns, cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fortnights", type=int, default=2)
    options = parser.parse_args()
    source = traces()
    assert source is not None, "MUSTER_TEST_TRACES names the folder of the traces"
    print("\n".join(measure(source, options.fortnights, Progress()).lines()))


if __name__ == "__main__":
    main()
