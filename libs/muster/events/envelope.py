"""The envelope: a message of the log is a commit, the list of events of one step of a stage."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import Literal

import msgspec
from msgspec import Struct

from muster.events.base import Event
from muster.events.registry import EVENT_TYPES, RETIRED, AnyEvent, encode
from muster.events.system import Genesis
from muster.model.language import say
from muster.model.problem import FieldProblem

MAX_EVENTS = 256
"""A commit holds at most this many events."""

MAX_BYTES = 512 * 1024
"""An encoded commit is at most this long; input is split by the runner, decisions are cut in the core."""

CommitKind = Literal["input", "decision"]


class UnknownEventError(Exception):
    """A commit has an event of a type unknown to this build: a decider must stop, a reader may skip the event."""

    seq: int = 0
    """Where in the log, when it was read from one."""

    def __init__(self, tags: list[str], seq: int = 0) -> None:
        where = f" at sequence {seq}" if seq else ""
        last = next((RETIRED[tag] for tag in tags if tag in RETIRED), "")
        way = (
            f"the last build that reads it is commit {last}" if last else "this build is older than the log; upgrade it"
        )
        super().__init__(f"unknown event type {', '.join(tags)}{where}: {way}")
        self.tags = tags
        self.seq = seq


class UnreadableCommitError(Exception):
    """The bytes of a log message are not a commit."""

    seq: int = 0
    """Where in the log, when it was read from one."""


class Commit(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The events that a stage appended in one step.

    ``epoch``: sequence of the leader_started of the writing leader (0 before any). ``in_seq``: last sequence folded
    before the decision. ``at``: the writer's clock, ms since the epoch; log time is the running maximum. ``prefix``:
    hash of the log up to ``in_seq``, as folded by the writer; empty without an attestation.
    """

    commit_id: str
    stage: str
    shard: str
    kind: CommitKind
    at: int
    epoch: int = 0
    in_seq: int = 0
    ruleset: int = 1
    prefix: str = ""
    events: tuple[AnyEvent, ...] = ()


class Envelope(Struct, frozen=True, gc=False, kw_only=True):
    """A commit whose events are not decoded yet."""

    commit_id: str
    stage: str
    shard: str
    kind: CommitKind
    at: int
    epoch: int = 0
    in_seq: int = 0
    ruleset: int = 1
    prefix: str = ""
    events: msgspec.Raw = msgspec.Raw(b"[]")


class _Opening(Struct, frozen=True, gc=False):
    """The events of a commit of any build."""

    events: list[msgspec.Raw] = []


class Stored(Struct, frozen=True, gc=False):
    """A commit with its sequence in the log."""

    seq: int
    commit: Commit
    trace: str = ""
    """The W3C traceparent of the append."""
    subject: str = ""
    """The subject, ``generation.stage.shard``; empty in memory, where only the stages themselves write."""
    stored_at: int = 0
    """The broker's time of storage, ms since the epoch; 0 without a broker."""
    body: bytes = b""
    """The bytes of the message, for a commit from a log."""
    digest: bytes = b""
    """The digest of sequence, subject and bytes, for a commit from a log."""
    void: FieldProblem | None = None
    """Why the commit does not count; ``commit`` then has no events. None for a commit that counts."""
    unknown: tuple[str, ...] = ()
    """Types of events that this build does not know; ``commit`` then has none of these events."""


_commits = msgspec.json.Decoder(Commit)
_envelopes = msgspec.json.Decoder(Envelope)
_events = msgspec.json.Decoder(tuple[AnyEvent, ...])
_openings = msgspec.json.Decoder(_Opening)
_geneses = msgspec.json.Decoder(Genesis)
_tags = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
UNREADABLE = (ValueError, RecursionError)
"""What decoding of foreign bytes raises: DecodeError and ValidationError are ValueErrors, and so is a byte that is no
UTF-8; JSON that is nested a thousand deep is a RecursionError. Each reader of foreign bytes expects all of them.
"""


def encode_commit(commit: Commit) -> bytes:
    """The bytes of a commit: equal commits give equal bytes, whatever the hash seed."""
    return encode(commit)


def decode_envelope(body: bytes) -> Envelope:
    """The envelope of a commit alone, with any events. Raises UnreadableCommitError."""
    try:
        return _envelopes.decode(body)
    except UNREADABLE as err:
        raise UnreadableCommitError(say("not a commit: {err}", err=err)) from err


def decode_commit(body: bytes) -> Commit:
    """The commit of a message: decoded at once, or after a failure the envelope first, for the reason.

    Raises UnknownEventError for event types unknown to this build, UnreadableCommitError for anything else that is not
    a commit.
    """
    with suppress(*UNREADABLE):
        return _commits.decode(body)
    raw = decode_envelope(body)
    try:
        events = _events.decode(raw.events)
    except UNREADABLE as err:
        unknown = _unknown_tags(bytes(raw.events))
        if unknown:
            raise UnknownEventError(unknown) from err
        raise UnreadableCommitError(f"commit {raw.commit_id} of {raw.stage}: {err}") from err
    return Commit(
        commit_id=raw.commit_id,
        stage=raw.stage,
        shard=raw.shard,
        kind=raw.kind,
        at=raw.at,
        epoch=raw.epoch,
        in_seq=raw.in_seq,
        ruleset=raw.ruleset,
        prefix=raw.prefix,
        events=events,
    )


def _unknown_tags(events: bytes) -> list[str]:
    try:
        tags = [msgspec.json.decode(entry.get("type", b'""'), type=str) for entry in _tags.decode(events)]
    except UNREADABLE:
        return []
    return sorted({tag for tag in tags if tag and tag not in EVENT_TYPES})


def genesis_commit(genesis: Genesis, at: int, *, in_seq: int = 0, prefix: str = "") -> Commit:
    """The first commit of every generation of the log; ``at`` in ms since the epoch.

    ``in_seq``, ``prefix``: the end of the generation before, if this generation continues another.
    """
    return Commit(
        commit_id=f"genesis-{genesis.log_id}",
        stage="genesis",
        shard="0",
        kind="input",
        at=at,
        in_seq=in_seq,
        prefix=prefix,
        events=(genesis,),
    )


def genesis_of(commit: bytes | None) -> Genesis | None:
    """The Genesis a commit's bytes open with, whatever a later build writes beside it; None when they are anything
    else.
    """
    with suppress(*UNREADABLE):
        for event in _openings.decode(commit or b"{}").events[:1]:
            return _geneses.decode(event)
    return None


def body_hash(body: bytes) -> str:
    """A hash that differs between two messages with the same commit id."""
    return hashlib.blake2b(body, digest_size=16).hexdigest()


def cut(events: list[Event]) -> list[Event]:
    """The longest head of a decision list for one commit; at least one event."""
    events = events[:MAX_EVENTS]
    if len(encode(events)) <= MAX_BYTES:
        return events
    size, kept = 0, 0
    for event in events:
        size += len(encode(event)) + 1
        if size > MAX_BYTES and kept:
            break
        kept += 1
    return events[:kept]
