"""What it costs a reader to judge a commit and to carry on the hash of the log, beside folding the same commit.

Run: python tests/perf/bench_judge.py [--commits N] [--rounds N]. Needs no server: one process, CPU time. Prints the
median of the rounds and their spread.
"""

import argparse
import time
from collections.abc import Sequence
from typing import NamedTuple

from figures import Progress, Table

from muster.audit.judge import heard
from muster.core.cell.seats import Seat
from muster.core.docket import Docket, Judge
from muster.events.base import Cause
from muster.events.decisions import GangAdmitted, QuotaReserved
from muster.events.envelope import Commit, Stored, decode_commit, encode_commit, genesis_commit
from muster.events.system import Genesis, LeaderStarted
from muster.model.keys import Ref
from muster.told.readmodel.model import ReadModel

ABOUT = (
    "CPU time of one reader for each commit of about 1 KB. Reading is decoding, and the checks that need the message "
    "alone; judging is the epoch, the clock, the attested prefix and the rolling hash, once for each state. What share "
    "of the CPU of a pipeline that is: the tables of the pipeline."
)
NOW = 2**53
"""The broker's time of what is measured: no clock is ahead of it."""
BATCH = 50
REPEATS = 3

Message = tuple[str, bytes]
"""(subject, bytes)"""


class Cost(NamedTuple):
    """CPU seconds of one reader for a log."""

    decoding: float
    reading: float
    """Decoding, and what the judge asks of the message alone."""
    judging: float
    """What it asks with its memory of the log, and the hash that is carried on: once for each state."""

    def of_judge(self, *, readers: int, states: int) -> float:
        """What hash and judge cost where so many read the log, for so many states in all."""
        return readers * (self.reading - self.decoding) + states * self.judging


def cost(log: Sequence[Message]) -> Cost:
    """Least of REPEATS, in batches as a reader meets them: nothing is kept beyond one."""
    best = [float("inf")] * 3
    for _ in range(REPEATS):
        judge = Judge(Docket())
        took = [0.0] * 3
        for start in range(0, len(log), BATCH):
            batch = log[start : start + BATCH]
            times = [time.process_time()]
            decoded = [decode_commit(body) for _, body in batch]
            times.append(time.process_time())
            read = [heard(seq, subject, body, NOW) for seq, (subject, body) in enumerate(batch, start=start + 1)]
            times.append(time.process_time())
            for stored in read:
                judge.hear(stored)
            times.append(time.process_time())
            assert len(decoded) == len(read)
            took = [total + after - before for total, before, after in zip(took, times, times[1:], strict=False)]
        best = [min(pair) for pair in zip(best, took, strict=True)]
    return Cost(*best)


def bodies(count: int) -> list[Message]:
    """A log: two leaders that decide by turns."""
    seats = ("quota_accountant", "gang_admitter")
    found = [("1.genesis.0", encode_commit(genesis_commit(Genesis(log_id="l", generation=1), 1)))]
    judge = Judge(Docket())
    judge.hear(heard(1, *found[0]))
    epochs: dict[str, int] = {}
    for seq in range(2, count + 2):
        stage = seats[seq % 2]
        ref = Ref("RayJob", "team-a", f"training-{seq}", f"uid-{seq}")
        begins = stage not in epochs
        cause = Cause(seq - 1, 0)
        said = (
            [QuotaReserved(cause=cause, ref=ref, attempt=1, queue="root/a", request={"cpu": 1}, basis="b" * 16, pods=9)]
            * 4
            if stage == seats[0]
            else [GangAdmitted(cause=cause, ref=ref, attempt=1, queue="root/a", basis="b" * 16)] * 4
        )
        commit = Commit(
            commit_id=f"p-{seq}",
            stage=stage,
            shard="0",
            kind="input" if begins else "decision",
            at=seq,
            epoch=epochs.get(stage, 0),
            in_seq=seq - 1,
            prefix=judge.docket.hash_at(seq - 1, seq - 1),
            events=(LeaderStarted(process="p"),) if begins else tuple(said),
        )
        if begins:
            epochs[stage] = seq
        found.append((f"1.{stage}.0", encode_commit(commit)))
        assert not judge.hear(heard(seq, *found[-1])).void
    return found


def round_of(count: int) -> dict[str, float]:
    made = bodies(count)
    found = cost(made)
    stored = [heard(seq, subject, body, NOW) for seq, (subject, body) in enumerate(made, start=1)]
    bare = [Stored(each.seq, each.commit) for each in stored]
    folding = []
    for commits in (bare, stored):
        seat = Seat(ReadModel())
        begun = time.process_time()
        for each in commits:
            seat.fold(each)
        folding.append(time.process_time() - begun)
    us = 1e6 / count
    return {
        "decode a commit, us": found.decoding * us,
        "read it (decode and check the message), us": found.reading * us,
        "judge it (epoch, clock, prefix, hash), us": found.judging * us,
        "fold it into the read model, not judged, us": folding[0] * us,
        "fold it into the read model, judged, us": folding[1] * us,
    }


def measure(commits: int, rounds: int, say: Progress) -> Table:
    found = []
    for index in range(rounds):
        say(f"judge: round {index + 1} of {rounds}")
        found.append(round_of(commits))
    return Table("Judging a commit", ABOUT, found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=5)
    wanted = parser.parse_args()
    found = measure(wanted.commits, wanted.rounds, Progress())
    print(found.about, *found.lines(), sep="\n")


if __name__ == "__main__":
    main()
