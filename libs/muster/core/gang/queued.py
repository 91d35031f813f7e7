"""The terms of a job's newest attempt, kept while the job's object is gone and seen again."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class QueuedAs(Struct):
    """The terms of an attempt, from the queueing until the attempt is over."""

    attempt: int = 0
    rank: tuple[int, int] = (0, 0)
    """(negated priority, place in the queue in ms since the epoch)."""
    placement: str = ""
    """The layout of the pods on nodes asked for by the queue, as last decided; empty: the layout of the cell."""
    rounds: int = 0
    """The number of searches without a place while no node has changed since the first."""
    moves: int = 0
    """``NodeLedger.moves`` at the last search without a place."""
    rests_until: int = 0
    """Log time (ms) until which the job rests after such rounds, without a change of nodes; 0 without a rest."""


def queued_as(queued: Mapping[str, QueuedAs], uid: str) -> QueuedAs:
    """The terms of a job's newest attempt; an adopted job has the default terms, because no queue has a place for the
    job.
    """
    return queued.get(uid) or QueuedAs()
