"""What a key in other hands writes into a log, and how a log with such commits is judged: in memory or on NATS."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from msgspec.structs import replace

from kit.proof import proven
from muster.core.cell.judge import RIGHTS
from muster.core.docket import Docket, Judge
from muster.events.base import Cause
from muster.events.decisions import GangAdmitted
from muster.events.envelope import Commit, Stored, encode_commit
from muster.events.system import Genesis
from muster.model.keys import Ref
from muster.runtime.replaying.replay import replay

SEATS = sorted(RIGHTS)
ID = "hostile"
"""Of each commit that could count."""


def hostile(rng: Random, now: int, jobs: Sequence[Ref], *, epochs: int = 40) -> tuple[str, bytes]:
    """What is written and on which seat. ``epochs``: below it epochs are guessed."""
    seat = rng.choice([*SEATS, "oracle.0", "gang_admitter.9"])
    stage, _, shard = seat.partition(".")
    forged = GangAdmitted(cause=Cause(1, 0), ref=rng.choice(jobs), attempt=1, queue="root")
    commit = Commit(commit_id=ID, stage=stage, shard=shard, kind="decision", at=now, in_seq=1, events=(forged,))
    bodies = (
        b'{"commit_id":"x"}',
        rng.randbytes(40),
        encode_commit(commit),
        encode_commit(replace(commit, stage="gang_admitter", shard="0", epoch=rng.randrange(epochs))),
        encode_commit(replace(commit, kind="input", events=(), at=now + 10**12)),
        encode_commit(replace(commit, kind="input", events=(), prefix="00" * 8)),
        encode_commit(commit).replace(b"gang_admitted", b"gang_teleported"),
        encode_commit(replace(commit, kind="input", events=(Genesis(log_id="mine", generation=1),))),
    )
    return seat, rng.choice(bodies)


def judged(commits: Sequence[Stored]) -> int:
    """How many commits of a log are void; AssertionError when what counts of it does not replay.

    What a seat's own key said under the epoch of its leader counts: the replay names that, and nothing else.
    """
    judge = Judge(Docket())
    counted = [judge.hear(stored) for stored in commits]
    guessed = {stored.seq for stored in counted if stored.commit.commit_id == ID and not stored.void}
    if not guessed:
        proven(counted)
    else:
        named = {each.seq for each in replay(counted, silences=False).divergences}
        assert named == guessed
    return sum(bool(stored.void) for stored in counted)
