"""How long any moment of a log takes: random ones, where thousands wait and the ladder of states is there.

A cell with N waiting RayJobs is folded, and C commits after it, along which the states of the ladder are kept as the
gateway keeps them. Then random moments are asked for, each as the first one of its kind.

Run: python tests/perf/bench_moments.py [--waiting 10000] [--commits 100000] [--asked 20]
"""

import random
import resource
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from tempfile import TemporaryDirectory

from bench_ask import TAIL, cell
from bench_gateway import stored
from figures import Progress, Table, by_hand

from kit import facts
from kit.recorded import BATCH, RecordedLog
from muster.core.stage import Folder
from muster.events.envelope import Stored
from muster.serving.moments import LogMark, Moments
from muster.told.readmodel.model import ReadModel

SEED = 26
MIB = 1 << 20


class LongLog(RecordedLog):
    """Pods of a running job that change, made as they are read: commits ``first`` to ``last``."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__([])
        self._first, self._last = first, last
        self.read = 0

    async def end(self) -> int:
        return self._last

    async def follow(self, after: int) -> AsyncGenerator[list[Stored], None]:
        for begin in range(max(after + 1, self._first), self._last + 1, BATCH):
            batch = [commit(seq) for seq in range(begin, min(begin + BATCH, self._last + 1))]
            self.read += len(batch)
            yield batch
        yield []


def commit(seq: int) -> Stored:
    pods = [facts.pod("job-000000", each % 3, "ns-0", running=bool(seq % 2)) for each in range(TAIL)]
    return stored(seq, pods)


async def measure(waiting: int, commits: int, asked: int, say: Progress) -> Table:
    say(f"moments: a cell of {waiting} waiting jobs")
    state, folder = cell(waiting), Folder(ReadModel())
    first = state.seq + 1
    log = LongLog(first, state.seq + commits)
    chance = random.Random(SEED)
    with TemporaryDirectory() as name:
        found = Moments(log, Path(name))
        found.keep(state)
        say(f"moments: {commits} commits, and the ladder along them")
        for seq in range(first, first + commits):
            folder.fold(state, commit(seq))
            if found.is_due(seq):
                found.keep(state)
        rungs = found.rungs
        size = sum(each.path.stat().st_size for each in rungs) / MIB
        times, cpu, read = [], [], []
        say(f"moments: {asked} of them")
        for _ in range(asked):
            log.read = 0
            seq = chance.randrange(first, first + commits)
            began, spent = time.perf_counter(), time.process_time()
            at = await found.at(LogMark(seq=seq))
            times.append(time.perf_counter() - began)
            cpu.append(time.process_time() - spent)
            read.append(log.read)
            assert at.seq == seq
    figures = {
        "a moment, s, middle": sorted(times)[len(times) // 2],
        "a moment, s, longest": max(times),
        "a moment, s of CPU, middle": sorted(cpu)[len(cpu) // 2],
        "a moment, s of CPU, longest": max(cpu),
        "commits read for one at most": float(max(read)),
        "states on the ladder": float(len(rungs)),
        "their files, MiB": size,
        "memory at most, MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    about = (
        f"{waiting:,} waiting RayJobs, and {commits:,} commits of {TAIL} events after them, of which {asked} random "
        "ones are asked for as of their moment, in one process. How long one takes does not depend on the length of "
        "the log: it is a state of the ladder, and the commits after it."
    )
    return Table("Any moment of the past", about, [figures])


def main() -> None:
    by_hand(measure, __doc__, waiting=10_000, commits=100_000, asked=20)


if __name__ == "__main__":
    main()
