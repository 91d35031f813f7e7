"""The docket: the memory of the judge of a log between two commits, and the judgements that need this memory.

The docket is part of the state of every stage. Verdicts are a function of the log alone, so every reader comes to the
same verdicts from any starting point. A void commit has no events, but still occupies its sequence and its subject.

The prefix of a log is attested by a rolling hash over (sequence, subject, bytes). Each commit carries the hash known to
its writer at its ``in_seq``. The hash exposes a writer that folded another log.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

from msgspec import Struct, field
from msgspec.structs import replace

from muster.core.abridging import IncompleteError, Newest, whole
from muster.events.envelope import Commit, Stored, UnknownEventError
from muster.events.system import Genesis, LeaderStarted
from muster.events.wire import check_wire
from muster.model.problem import FieldProblem, problem

AHEAD_MS = 60_000
"""How far a commit's ``at`` may lie ahead of the broker's time of storage: log time never goes back."""

HASH = 8
"""Bytes of the rolling hash."""
DIGEST = 16
KEPT = 4_096
"""Positions with a kept hash: a commit decided on an older position is not compared."""
NOTHING = bytes(HASH)
"""The hash of the empty log."""


class Docket(Struct):
    """``epochs``: {stage.shard: sequence of its newest leader_started in this generation}."""

    epochs: dict[str, int] = field(default_factory=dict)
    own_time: bool = False
    """The writers' clocks are not checked."""
    last: bytes = b""
    """Digest of the newest commit; empty for a commit from outside of a log."""
    hashes: bytearray = field(default_factory=bytearray)
    """The rolling hash at the last KEPT positions, each at its sequence modulo KEPT."""
    since: int = -1
    """The first position with a known hash; -1: no hash is known, because the log was not read from the beginning."""
    newest: dict[str, Newest] = field(default_factory=dict)
    """{stage.shard: newest observations of workloads by its leader}"""

    def hash_at(self, seq: int, now: int) -> str:
        """The rolling hash at a position, as in a commit; ``now``: the newest position. Empty where unknown."""
        if self.since < 0 or not max(self.since, now - KEPT + 1) <= seq <= now:
            return ""
        if not seq:
            return NOTHING.hex()
        place = seq % KEPT * HASH
        return self.hashes[place : place + HASH].hex()


def digest_of(seq: int, subject: str, body: bytes) -> bytes:
    """The digest that distinguishes a stored commit from any other."""
    return blake2b(b"%d %b " % (seq, subject.encode()) + body, digest_size=DIGEST).digest()


def judged(docket: Docket, log_id: str, generation: int, stored: Stored) -> Stored:
    """The commit as counted: unchanged, or without events where void. The docket takes the commit in.

    ``log_id``, ``generation``: of the log before the commit. Raises UnknownEventError for a counted commit with events
    unknown to this build.
    """
    if not stored.subject:
        return whole(docket.newest, stored)  # In memory nothing but the stages themselves writes.
    why = stored.void or _wrong(docket, log_id, generation, stored)
    first = stored.commit.events[0] if stored.commit.events else None
    if not why and isinstance(first, Genesis):
        check_wire(first)
    if not why and stored.unknown and not stored.commit.epoch:
        why = problem("", "no_leader_said", events=stored.unknown)
    if not why and stored.unknown:
        raise UnknownEventError([*stored.unknown], stored.seq)
    counted = stored
    if not why:
        try:
            counted = whole(docket.newest, stored)
        except IncompleteError as err:
            why = err.problem
    if not why:
        _accept(docket, stored)
    _go_on(docket, stored)
    return voided(stored, why) if why and not stored.void else counted


def voided(stored: Stored, why: FieldProblem) -> Stored:
    """The commit without its events, marked void."""
    commit = stored.commit
    empty = Commit(commit_id=commit.commit_id, stage=commit.stage, shard=commit.shard, kind="input", at=0)
    return replace(stored, commit=empty, void=why, unknown=())


class Judge(Struct):
    """The judge for a reader of a log without the state of a stage: feed every commit in order, from the first on.

    ``docket``, ``log_id``, ``generation``: of a state; hearing continues from the position of this state.
    """

    docket: Docket
    log_id: str = ""
    generation: int = 0

    def hear(self, stored: Stored) -> Stored:
        """The commit as counted. Raises UnknownEventError."""
        counted = judged(self.docket, self.log_id, self.generation, stored)
        first = counted.commit.events[0] if counted.commit.events else None
        if isinstance(first, Genesis):
            self.log_id, self.generation = first.log_id, first.generation
        return counted


@lru_cache(maxsize=256)
def parts(subject: str) -> tuple[int, str]:
    """``3.watcher.pods`` -> (3, ``watcher.pods``)."""
    generation, _, seat = subject.partition(".")
    return int(generation), seat


def _wrong(docket: Docket, log_id: str, generation: int, stored: Stored) -> FieldProblem | None:
    commit, seq = stored.commit, stored.seq
    written_in, seat = parts(stored.subject)
    if commit.in_seq >= seq:
        return problem("", "decided_in_the_future", position=commit.in_seq)
    first = commit.events[0] if commit.events else None
    if isinstance(first, Genesis):
        if first.generation != written_in or (log_id and (first.parent != log_id or written_in <= generation)):
            return problem("", "other_genesis")
    elif written_in != generation:
        return problem("", "other_generation", generation=generation, other=written_in)
    elif isinstance(first, LeaderStarted):
        if len(commit.events) > 1 or commit.epoch:
            return problem("", "leader_said_more")
    elif commit.kind == "decision" and not commit.epoch:
        return problem("", "no_leader_yet")
    elif commit.epoch != docket.epochs.get(seat, 0):
        return problem("", "other_epoch", epoch=commit.epoch, current=docket.epochs.get(seat, 0))
    if stored.stored_at and commit.at > stored.stored_at + AHEAD_MS and not (docket.own_time or _free(first)):
        return problem("", "clock_ahead", ms=commit.at - stored.stored_at)
    known = docket.hash_at(commit.in_seq, seq - 1) if commit.prefix else ""
    if known and known != commit.prefix:
        return problem("", "other_prefix", position=commit.in_seq, theirs=commit.prefix, ours=known)
    return None


def _free(first: object) -> bool:
    return isinstance(first, Genesis) and first.own_time


def _accept(docket: Docket, stored: Stored) -> None:
    first = stored.commit.events[0] if stored.commit.events else None
    if isinstance(first, LeaderStarted):
        docket.epochs[parts(stored.subject)[1]] = stored.seq
    elif isinstance(first, Genesis):
        docket.epochs.clear()  # Each leader begins again in the new generation.
        docket.own_time = docket.own_time or first.own_time


def _go_on(docket: Docket, stored: Stored) -> None:
    docket.last = stored.digest
    seq, hashes = stored.seq, docket.hashes
    if seq == 1:
        docket.since, before = 0, NOTHING
    elif docket.since < 0:
        return
    else:
        place = (seq - 1) % KEPT * HASH
        before = bytes(hashes[place : place + HASH])
    if not hashes:
        hashes += bytes(KEPT * HASH)
    place = seq % KEPT * HASH
    hashes[place : place + HASH] = blake2b(before + stored.digest, digest_size=HASH).digest()
