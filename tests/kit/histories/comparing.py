"""Two recordings of one history, event by event, read as they are on the wire: neither build has to know both.

For the one commit that changes the wire: what moved is named, and everything else has to be equal.
"""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import IO, Any, cast

import msgspec
from msgspec import Struct, field

from kit.histories.judging import differing
from muster.events.base import tag_of

Object = dict[str, Any]


class Comparison(Struct):
    """What was found. ``first``: the first event that differs, in words; empty when all are equal."""

    commits: int = 0
    events: int = 0
    decisions: int = 0
    apart: Counter[str] = field(default_factory=Counter)
    """{ignored field: in how many events it differs}"""
    first: str = ""

    def __str__(self) -> str:
        apart = ", ".join(f"{name} in {count}" for name, count in sorted(self.apart.items())) or "nothing"
        equal = f"{self.commits} commits, {self.events} events, {self.decisions} of them decisions, are equal"
        return f"DIFFERS after {equal}:\n{self.first}" if self.first else f"{equal}; apart: {apart}"


def compare(one: Path, other: Path, ignored: Collection[str] = (), *, decisions: bool = False) -> Comparison:
    """``ignored``: ``Type.field`` or ``Type.field.of.it``; ``*`` for the type is every type, and through lists.

    ``decisions``: only these are compared, not what they were decided on.
    """
    fields = Fields(ignored)
    found = Comparison()
    for left, right in zip_longest(lines(one, decisions=decisions), lines(other, decisions=decisions)):
        found.first = _different(left, right, fields, found)
        if found.first:
            return found
        found.commits += 1
    return found


def _different(left: Object | None, right: Object | None, fields: Fields, found: Comparison) -> str:
    if left is None or right is None:
        there = left or right or {}
        side = "second" if right is None else "first"
        return f"  the {side} ends before {there['seq']} {there['commit']['stage']}: {_text(there['commit'])}"
    ours, theirs = ({**each["commit"]} for each in (left, right))
    events = [each.pop("events", []) for each in (ours, theirs)]
    if (left["seq"], ours) != (right["seq"], theirs):
        return f"  at {left['seq']} the envelopes differ:\n    {_text(ours)}\n    {_text(theirs)}"
    for item, (was, now) in enumerate(zip_longest(*events)):
        apart = fields.taken_out(was, now)
        if was != now:
            which = f"  at {left['seq']}, event {item} of {ours['stage']}:"
            named = [f"    {path}\n        was {old}\n        is  {new}" for path, old, new in differing(was, now)]
            return "\n".join([which, *named, f"  as it was: {_text(was)}", f"  as it is:  {_text(now)}"])
        found.apart.update(apart)
        found.events += 1
        found.decisions += ours["kind"] == "decision"
    return ""


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode() if value is not None else "nothing"


class Fields:
    """Fields of events by their paths."""

    def __init__(self, named: Collection[str]) -> None:
        self._paths: list[tuple[str, str, list[str]]] = []
        for text in named:
            kind, _, rest = text.partition(".")
            if not rest:
                raise ValueError(f"{text} names no field; write Type.field")
            self._paths.append((text, kind if kind == "*" else tag_of(kind), rest.split(".")))

    def taken_out(self, one: Object | None, other: Object | None) -> list[str]:
        """Take the fields out of both; the names of those that differed."""
        found = []
        for text, kind, path in self._paths:
            taken = [_pop(each, path) if each and kind in ("*", each["type"]) else [] for each in (one, other)]
            if taken[0] != taken[1]:
                found.append(text)
        return found


def _pop(value: Any, path: list[str]) -> list[Any]:
    if isinstance(value, list):
        return [each for item in value for each in _pop(item, path)]
    if not isinstance(value, dict) or path[0] not in value:
        return []
    return [value.pop(path[0])] if len(path) == 1 else _pop(value[path[0]], path[1:])


def lines(path: Path, *, decisions: bool = False) -> Iterator[Object]:
    """The commits of an exported log, whatever their events are."""
    with cast("IO[bytes]", gzip.open(path) if path.suffix == ".gz" else path.open("rb")) as file:
        for line in file:
            found: Object = msgspec.json.decode(line)
            if "commit" in found and (not decisions or found["commit"]["kind"] == "decision"):
                yield found
