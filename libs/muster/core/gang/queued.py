"""What decisions say of a job under its newest attempt, however often its object is gone and seen again."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class QueuedAs(Struct):
    """From its queueing until that attempt is over."""

    attempt: int = 0
    rank: tuple[int, int] = (0, 0)
    """Its priority, negated; its place in its queue, ms since the epoch."""
    placement: str = ""
    """How its queue wants its pods laid out on nodes, as was said last; empty: as everything else."""
    rounds: int = 0
    """How often it was said to have room and had none, though nothing on the nodes has changed since the first time."""
    moves: int = 0
    """Of the nodes (``NodeLedger``), when that was so last."""
    rests_until: int = 0
    """Log time (ms) until which it is not tried again for that, if nothing changes; 0 where it may be."""


def queued_as(queued: Mapping[str, QueuedAs], uid: str) -> QueuedAs:
    """As a job was queued last; one that was adopted has no place in any queue."""
    return queued.get(uid) or QueuedAs()
