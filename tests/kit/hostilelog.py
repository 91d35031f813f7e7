"""What a key in other hands writes into a log, and how a log with such commits is judged: in memory or on NATS."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from msgspec.structs import replace

from kit.proof import proven
from muster.audit.judge import RIGHTS
from muster.core.docket import Docket, Judge
from muster.events.base import Cause
from muster.events.decisions import GangAdmitted
from muster.events.effects import EffectApplied
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


ADMITTED = GangAdmitted(cause=Cause(1, 0), ref=Ref("RayJob", "video", "one", "u"), attempt=1, queue="root")
APPLIED = EffectApplied(cause=Cause(1, 0), ref=Ref("RayJob", "video", "one", "u"), attempt=1, rv=1)


def matrix(seat: str, epoch: int, now: int) -> dict[str, tuple[str, bytes]]:
    """{what a key tries: where it writes, and what}, for the key of a seat that knows the epoch of its leader.

    All of it is void. What is missing is what its stage may say: docs/reliability.md names what each key could do.
    """
    stage, _, shard = seat.partition(".")
    own = Commit(commit_id=ID, stage=stage, shard=shard, kind="input", at=now, epoch=epoch, in_seq=1)
    foreign = (
        replace(own, events=(APPLIED,)) if stage != "actuator" else replace(own, kind="decision", events=(ADMITTED,))
    )
    other = "gang_admitter.0" if stage != "gang_admitter" else "preemptor.0"
    claimed, _, _ = other.partition(".")
    return {
        "foreign event": (seat, encode_commit(foreign)),
        "another's name": (seat, encode_commit(replace(own, stage=claimed, shard="0"))),
        "foreign shard": (seat, encode_commit(replace(own, shard="elsewhere"))),
        "unknown shard": (f"{stage}.elsewhere", encode_commit(replace(own, shard="elsewhere"))),
        "unknown tag in another's name": (
            seat,
            encode_commit(replace(own, stage=claimed, shard="0", kind="decision", events=(ADMITTED,))).replace(
                b"gang_admitted", b"gang_teleported"
            ),
        ),
        "junk": (seat, b"\x00{junk"),
        "nothing": (seat, b""),
        "a number without end": (seat, b'{"commit_id":"x","in_seq":' + b"9" * 5_000 + b"}"),
        "an earlier leader": (seat, encode_commit(replace(own, epoch=epoch + 1))),
        "a decision without a leader": (seat, encode_commit(replace(own, kind="decision", epoch=0))),
        "the far future": (seat, encode_commit(replace(own, at=now + 10**12))),
        "what is not there yet": (seat, encode_commit(replace(own, in_seq=10**9))),
        "another log": (seat, encode_commit(replace(own, prefix="00" * 8))),
        "a log that begins": (seat, encode_commit(replace(own, events=(Genesis(log_id="mine", generation=1),)))),
    }


def epochs(commits: Sequence[Stored]) -> dict[str, int]:
    """{seat: the epoch of its newest leader}, as the seat's own commits name it."""
    found: dict[str, int] = {}
    for stored in commits:
        if stored.commit.epoch and not stored.void:
            found[f"{stored.commit.stage}.{stored.commit.shard}"] = stored.commit.epoch
    return found
