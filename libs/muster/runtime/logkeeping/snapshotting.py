"""States to bytes and back. A snapshot of another log, or of another shape of state, is not used."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import inspect
import re
import sys
from collections.abc import AsyncGenerator, Iterator
from functools import cache
from typing import Any, TypeVar, get_args

import msgspec

from muster.core.stage import StageState
from muster.events.envelope import UNREADABLE
from muster.ports import Log, LogIdentity, LogLostError, Snapshot, Snapshots

S = TypeVar("S", bound=StageState)

_encoder = msgspec.msgpack.Encoder()
_NAME = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*")
"""A name in an annotation, with the names of modules before it."""
_PLACE = re.compile(r"\b(?:\w+\.)+(?=\w)")
"""The module of a class: no part of a shape, so that classes may be moved."""
_JSON = b"{"
"""How a snapshot in JSON begins, and none in MessagePack: the latter has no integers over 64 bits."""


def state_schema(kind: type[Any]) -> str:
    """A hash of the shape of a state: fields and types, all the way down. The same in every process of a version."""
    of: object = kind
    return _schema(of)


@cache
def _schema(kind: Any) -> str:
    described: dict[type[Any], str] = {}
    _describe(kind, described)
    return hashlib.blake2b("\n".join(described.values()).encode(), digest_size=8).hexdigest()


def _describe(kind: type[Any], described: dict[type[Any], str]) -> None:
    """Add a struct, and the structs that its annotations name, in the order of the fields.

    Annotations are read as written, with the aliases that they name: to evaluate them takes a tenth of a second.
    """
    if kind in described:
        return
    config = kind.__struct_config__
    wire = f"{config.tag} {config.array_like} {kind.__struct_encode_fields__}"
    head = f"{kind.__name__} {wire} {kind.__struct_defaults__!r}"
    lines = [_PLACE.sub("", re.sub(r" at 0x[0-9a-f]+", "", head))]
    described[kind] = ""
    parts: list[type[Any]] = []
    for base in kind.__mro__:
        names = vars(sys.modules[base.__module__])
        for field, annotation in inspect.get_annotations(base).items():
            lines.append(f"{field}: {_PLACE.sub('', str(annotation))}")
            for name in _NAME.findall(str(annotation)):
                first, *rest = name.split(".")
                value = names.get(first)
                for part in rest:
                    value = getattr(value, part, None)
                _named(value, lines, parts)
    described[kind] = "\n".join(lines)
    for part_kind in parts:
        _describe(part_kind, described)


def _named(value: Any, lines: list[str], parts: list[type[Any]]) -> None:
    """What a name in an annotation means: a struct, or an alias of other types."""
    if isinstance(value, type) and issubclass(value, msgspec.Struct):
        parts.append(value)
    elif inner := get_args(value):
        lines.append(_PLACE.sub("", repr(value)))
        for part in inner:
            _named(part, lines, parts)


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


def let_go() -> None:
    """Free the runners and states of services that have ended while the process lives on.

    They refer to each other, and what a restart froze is never collected: each restart would keep another set of them.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


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
