"""How much of its budget each stream and bucket of a cell uses, the log aside: the log has limits of its own.

A stream that drops its oldest messages is full by its nature. A stream that refuses new messages needs a look at half
of its budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from muster.bus.cell import budgeted
from muster.bus.jetstream import JetStream
from muster.bus.streams import BOUNDS, Limits, unbounded
from muster.events import subjects
from muster.ports import LogIdentity

ALARM_PERCENT = 50


class Fill(Struct, frozen=True):
    """A stream and its budget. ``percent``: the greater of bytes and messages; ``bounded``: the stream has a budget."""

    stream: str
    percent: int
    bounded: bool = True


async def fills(js: JetStream, identity: LogIdentity) -> list[Fill]:
    """Each stream that refuses messages beyond the budget. Raises BusError."""
    log = subjects.log_stream(identity.cell, identity.generation)
    streams: list[Fill] = []
    for config in budgeted(identity.cell, identity.generation, Limits()):
        info = await js.info(config["name"], checks=1) if config["name"] != log else None
        if info is not None and info.config.get("discard") == "new":
            used = {"max_bytes": info.state.bytes, "max_msgs": info.state.messages}
            lacks = unbounded(config, info.config)
            streams.append(Fill(config["name"], _percent(used, {**config, **_bounds(info.config)}), not lacks))
    return streams


def reserves(cell: str, limits: Limits) -> int:
    """Bytes of all budgets of a cell: the least store of a server."""
    return sum(config["max_bytes"] for config in budgeted(cell, 1, limits))


def _bounds(actual: Mapping[str, Any]) -> dict[str, int]:
    """The bounds of a stream at the server."""
    return {field: actual[field] for field in BOUNDS if actual.get(field, -1) > 0}


def _percent(used: Mapping[str, int], bounds: Mapping[str, int]) -> int:
    return max((100 * used[field] // bounds[field] for field in used if bounds[field] > 0), default=0)
