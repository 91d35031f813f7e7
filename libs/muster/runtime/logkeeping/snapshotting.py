"""States to bytes and back. A snapshot of another log, or of another shape of state, is not used."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import re
from collections.abc import AsyncGenerator, Iterator
from functools import cache
from typing import Any, TypeVar

import msgspec

from muster.core.stage import StageState
from muster.events.envelope import UNREADABLE
from muster.ports import Log, LogIdentity, LogLostError, Snapshot, Snapshots

S = TypeVar("S", bound=StageState)

_encoder = msgspec.msgpack.Encoder()
_PLACE = re.compile(r" at 0x[0-9a-f]+|(?<=<class ')[\w.]+\.(?=\w+'>)")
"""Of a function its address in memory, of a class its module: no part of a shape, so that classes may be moved."""
_JSON = b"{"
"""How a snapshot in JSON begins, and none in MessagePack: the latter has no integers over 64 bits."""


def state_schema(kind: type[Any]) -> str:
    """A hash of the shape of a state: fields and types, all the way down. The same in every process of a version."""
    of: object = kind
    return _schema(of)


@cache
def _schema(kind: Any) -> str:
    """It takes a tenth of a second to find out, and stays the same."""
    described = _PLACE.sub("", repr(msgspec.inspect.type_info(kind)))
    return hashlib.blake2b(described.encode(), digest_size=8).hexdigest()


def encode_state(state: StageState) -> bytes:
    """The state as bytes. Insertion order is kept: what comes next may depend on it."""
    try:
        return _encoder.encode(state)
    except OverflowError:  # a sum of several requests, each near the largest that counts
        return msgspec.json.encode(state)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Without the garbage collector: a state has no cycles, and walking it takes longer than reading it."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def decode_state(body: bytes, kind: type[S]) -> S:
    """The state that :func:`encode_state` was given."""
    with _undisturbed():
        return _decode(body, kind)


def _decode(body: bytes, kind: type[S]) -> S:
    if body.startswith(_JSON):
        return msgspec.json.decode(body, type=kind)
    return msgspec.msgpack.decode(body, type=kind)


def make_snapshot(identity: LogIdentity, stage: str, shard: str, state: StageState) -> Snapshot:
    """A snapshot of a state as it is now."""
    return Snapshot(
        log_id=identity.log_id,
        stage=stage,
        shard=shard,
        seq=state.seq,
        schema=state_schema(type(state)),
        body=encode_state(state),
    )


async def restore(snapshots: Snapshots, log: Log, stage: str, shard: str, fresh: S) -> tuple[S, str]:
    """The newest usable state of a (stage, shard) whose position the log can show, and how the state was found.

    Without such a state ``fresh``, and the reason against the newest snapshot.
    """
    how = ""
    async with contextlib.aclosing(snapshots.each(stage, shard)) as stored:
        async for snapshot in stored:
            state, why = _read(snapshot, log.identity, fresh)
            if state is not None and not await _shows(log, state):
                state, why = None, "not_in_log"
            if state is not None:
                gc.freeze()  # It lives as long as the process does.
                return state, why
            how = how or why
    return fresh, how or "no_snapshot"


async def _shows(log: Log, state: StageState) -> bool:
    """Whether the log holds what a state was made of. Where it does not, the marks say whether the log or the snapshot
    is wrong.
    """
    try:
        await log.prove(state.seq, state.docket.last)
    except LogLostError:
        return False
    return True


def _read(snapshot: Snapshot, identity: LogIdentity, fresh: S) -> tuple[S | None, str]:
    """The state in a snapshot; None where it is of another log or shape, cannot be read, or is not of its position."""
    return read_state(snapshot, fresh) if snapshot.log_id == identity.log_id else (None, "other_log")


def read_state(snapshot: Snapshot, fresh: S) -> tuple[S | None, str]:
    """As :func:`_read`, of whatever log."""
    if snapshot.schema != state_schema(type(fresh)):
        return None, "other_schema"
    try:
        state = decode_state(snapshot.body, type(fresh))
    except UNREADABLE:
        return None, "unreadable"
    return (state, "restored") if state.seq == snapshot.seq else (None, "unreadable")


async def restore_before(
    snapshots: Snapshots, identity: LogIdentity, stage: str, shard: str, fresh: S, seq: int
) -> S | None:
    """The newest usable state of a (stage, shard) that is not after a sequence; None when there is none."""
    async for state in usable(snapshots, identity, stage, shard, fresh, seq):
        return state
    return None


async def usable(
    snapshots: Snapshots, identity: LogIdentity, stage: str, shard: str, fresh: S, seq: int | None = None
) -> AsyncGenerator[S, None]:
    """Every usable state of a (stage, shard), the newest first; ``seq``: only states up to this sequence."""
    async with contextlib.aclosing(snapshots.each(stage, shard)) as stored:
        async for snapshot in stored:
            if seq is None or snapshot.seq <= seq:
                state, _ = _read(snapshot, identity, fresh)
                if state is not None:
                    yield state
