"""Where two versions of an event, or of a state, differ."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from rich.text import Text

from muster.model.language import say
from muster.model.text import shorten
from muster.runtime.replaying.states import StateDifference
from muster_cli.console import DIM, styled

EVENT_WIDTH = 600
"""Characters of an event or a value that are shown."""
SHOWN = 20
"""How many of a kind are shown."""


def where_differs(recorded: str, decided: str) -> str:
    """The fields in which two encoded events differ; empty where only one event exists."""
    if not recorded or not decided:
        return ""
    return different_fields(msgspec.json.decode(recorded), msgspec.json.decode(decided))


def different_fields(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """The fields in which two events differ: ``attempt, short.asked``."""
    return ", ".join(_different(one, other, ""))


def _different(one: Mapping[str, Any], other: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for name in sorted(one.keys() | other.keys()):
        left, right = one.get(name), other.get(name)
        if isinstance(left, dict) and isinstance(right, dict):
            yield from _different(left, right, f"{prefix}{name}.")
        elif left != right:
            yield f"{prefix}{name}"


def state_difference_lines(differences: Sequence[StateDifference], one: str, other: str) -> list[Text]:
    """Places at which states differ: the path, then both sides."""
    lines: list[Text] = []
    for difference in differences[:SHOWN]:
        lines.append(Text(f"    {difference.path}"))
        for name, value in ((one, difference.one), (other, difference.other)):
            text = "(nothing)" if value is None else json.dumps(value, ensure_ascii=False)
            lines.append(styled((f"      {name.ljust(9)} ", DIM), shorten(text, EVENT_WIDTH)))
    if len(differences) > SHOWN:
        lines.append(Text("    " + say("and {number} more", number=len(differences) - SHOWN)))
    return lines
