"""The jobs that leave or move for another, in words."""

from __future__ import annotations

from collections.abc import Sequence

from muster.core.wording import events_ray
from muster.events.decisions import EvictionOrdered, PreemptionProposed
from muster.model.resources import format_vector
from muster.model.text import few
from muster.model.victims import Victim


def listed(victims: Sequence[Victim], more: int = 0) -> str:
    """The first of them, each with its request and its queue. ``more``: how many beyond those that were noted."""
    return few([f"{each.ref.key} ({format_vector(each.request)} at {each.queue})" for each in victims], more)


def leaving(event: PreemptionProposed) -> str:
    """The victims of a claim and the workers that Ray clusters release to it, without saying how far that is."""
    moves, gives = [each for each in event.victims if each.moves], [each for each in event.victims if not each.moves]
    whole = f"victims: {listed(gives)}" if gives else ""
    moved = f"to move to other nodes: {listed(moves)}" if moves else ""
    parts = f"workers to release: {events_ray.parts(event.partial)}" if event.partial else ""
    return "; ".join(each for each in (whole, moved, parts) if each)


def moved(event: EvictionOrdered, hidden: int = 0) -> str:
    """The jobs that move for another, from where to where. ``hidden``: how many beyond those that were noted."""
    names = {each.ref.uid: each.ref.key for each in event.victims}
    shown = [
        f"{names[each.uid]} from {', '.join(each.before[:3])} to {', '.join(each.after[:3])}"
        for each in event.moves[:5]
        if each.uid in names
    ]
    hidden = max(hidden, len(event.moves) - len(shown))
    return f"{', '.join(shown)}, and {hidden} more" if hidden else ", ".join(shown)
