"""States as plain values: the difference of two states, and the part of a state about certain names."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from muster.core.stage import StageState
from muster.runtime.logkeeping.snapshotting import decode_state, encode_state

S = TypeVar("S", bound=StageState)

PASSING = ("seq", "now")
"""How far a state has folded, and when: never a difference of interest."""


class StateDifference(Struct, frozen=True):
    """One place at which two states differ; None where there is nothing."""

    path: str
    one: Any
    other: Any


def copy_of(state: S) -> S:
    """An equal state that shares nothing with it."""
    return decode_state(encode_state(state), type(state))


def plain(state: StageState) -> dict[str, Any]:
    """A state as dicts, lists, texts and integers."""
    fields: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(state))
    return fields


def differences(one: StageState, other: StageState, limit: int = 50) -> list[StateDifference]:
    """Where two states of one stage differ, at most ``limit`` places, but for how far they have folded."""
    left, right = ({k: v for k, v in plain(side).items() if k not in PASSING} for side in (one, other))
    return list(islice(_differ("", left, right), limit))


def _differ(path: str, one: Any, other: Any) -> Iterator[StateDifference]:
    if isinstance(one, dict) and isinstance(other, dict):
        for name in [*one, *(name for name in other if name not in one)]:
            yield from _differ(f"{path}.{name}" if path else name, one.get(name), other.get(name))
        if list(one) != list(other) and one.keys() == other.keys():
            # What comes next may depend on it.
            yield StateDifference(f"{path} (order)", list(one), list(other))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _differ(f"{path}[{index}]", left, right)
    elif one != other:
        yield StateDifference(path, one, other)


def about(value: Any, names: Collection[str]) -> Any:
    """The part of a plain state with one of the names as a key or a value; None without any."""
    if isinstance(value, dict):
        kept = {}
        for key, part in value.items():
            relevant = part if _is_key_of(key, names) else about(part, names)
            if relevant is not None:
                kept[key] = relevant
        if any(isinstance(part, str) and part in names for part in value.values()):
            return value
        return kept or None
    if isinstance(value, list):
        return [relevant for part in value if (relevant := about(part, names)) is not None] or None
    return value if isinstance(value, str) and _is_key_of(value, names) else None


def _is_key_of(text: str, names: Collection[str]) -> bool:
    """A key is a name, or begins with one (the key of a shape begins with its queue)."""
    return text in names or any(text.startswith(f"{name}|") for name in names)
