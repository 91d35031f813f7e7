"""The happenings of jobs and gangs in the read model: a feed, and the marks of the time slider. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nlargest

from muster.model.keys import Ref
from muster.serving import shapes
from muster.serving.scope import Lens
from muster.serving.views import event_shape
from muster.told.codes.happenings import Happening
from muster.told.readmodel.readstate import ReadState
from muster.told.views.narrator import entry_of
from muster.told.views.tellings import NarratedEvent

MOST_EVENTS = 500
MOST_MARKS = 1000


def happened(
    state: ReadState, lens: Lens, moment: shapes.MomentView, *, queue: str = "", limit: int = 50
) -> shapes.HappenedView:
    """The newest turns of jobs and gangs."""
    newest = nlargest(min(limit, MOST_EVENTS), _turns(state, lens, queue), key=lambda turn: (turn[0], turn[1]))
    return shapes.HappenedView(
        moment, [event_shape(_entry(ref, gang, happening), lens) for _, _, ref, gang, happening in newest]
    )


def marks(state: ReadState, lens: Lens, *, limit: int = MOST_MARKS) -> list[shapes.EventView]:
    """The turns for the time slider, the oldest first; one of each sequence, and a selection of too many."""
    by_seq: dict[int, tuple[int, int, Ref | None, str, Happening]] = {}
    for turn in _turns(state, lens, ""):
        by_seq.setdefault(turn[0], turn)
    turns = [by_seq[seq] for seq in sorted(by_seq)]
    if len(turns) > limit:
        last = len(turns) - 1
        turns = [turns[number * last // (limit - 1)] for number in range(limit)]
    return [event_shape(_entry(ref, gang, happening), lens) for _, _, ref, gang, happening in turns]


def _turns(state: ReadState, lens: Lens, queue: str) -> Iterator[tuple[int, int, Ref | None, str, Happening]]:
    for record in state.records.values():
        if not lens.sees(record.ref.namespace) or (queue and not f"{record.queue}/".startswith(f"{queue}/")):
            continue
        for happening in record.past.all():
            if happening.weight == "turn":
                yield happening.seq, happening.item, record.ref, "", happening
    for gang in state.gang_records.values() if not queue else ():
        if lens.sees(gang.name.partition("/")[0]):
            for happening in gang.past.all():
                if happening.weight == "turn":
                    yield happening.seq, happening.item, None, gang.name, happening


def _entry(ref: Ref | None, gang: str, happening: Happening) -> NarratedEvent:
    told = entry_of(ref, happening)
    return (
        told
        if ref is not None
        else NarratedEvent(told.at, told.seq, told.item, None, told.word, told.text, told.weight, told.what, gang)
    )
