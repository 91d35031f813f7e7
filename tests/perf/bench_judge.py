"""What it costs a reader to judge a commit and to carry on the hash of the log, beside folding the same commit.

Run: python tests/perf/bench_judge.py [--commits N] [--rounds N]. Needs no server: one process, CPU time. Prints the
median of the rounds and their spread.
"""

import argparse
import time

from figures import Progress, Table

from muster.core.cell.judge import heard
from muster.core.cell.seat import Seat
from muster.core.docket import Docket, Judge
from muster.core.readmodel.model import ReadModel
from muster.events.base import Cause
from muster.events.decisions import GangAdmitted, QuotaReserved
from muster.events.envelope import Commit, Stored, decode_commit, encode_commit, genesis_commit
from muster.events.system import Genesis, LeaderStarted
from muster.model.keys import Ref

ABOUT = (
    "CPU time of one reader for each commit of about 1 KB. Reading is decoding, and the checks that need the message "
    "alone; judging is the epoch, the clock, the attested prefix and the rolling hash, once for each state. "
    "A reader spends 220 us of CPU on a commit in all (docs/performance.md)."
)
READER_US = 220.0


def bodies(count: int) -> list[tuple[str, bytes]]:
    """(subject, bytes) of a log: two leaders that decide by turns."""
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
    begun = time.process_time()
    for _, body in made:
        decode_commit(body)
    decoding = time.process_time() - begun
    begun = time.process_time()
    stored = [heard(seq, subject, body, 9_000) for seq, (subject, body) in enumerate(made, start=1)]
    reading = time.process_time() - begun
    judge = Judge(Docket())
    begun = time.process_time()
    for each in stored:
        judge.hear(each)
    judging = time.process_time() - begun
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
        "decode a commit, us": decoding * us,
        "read it (decode and check the message), us": reading * us,
        "judge it (epoch, clock, prefix, hash), us": judging * us,
        "fold it into the read model, not judged, us": folding[0] * us,
        "fold it into the read model, judged, us": folding[1] * us,
        "judge and hash, % of a reader's 220 us": (reading - decoding + judging) * us / READER_US * 100,
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
