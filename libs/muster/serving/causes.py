"""The chain of causes of an event: each decision names its cause, back to an observation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from muster.core.workloads.registry import is_job
from muster.events.base import Decision
from muster.events.envelope import Stored
from muster.model.language import say
from muster.model.text import instant
from muster.serving import shapes
from muster.serving.scope import Lens
from muster.told.readmodel.readstate import ReadState
from muster.told.wording.events import ref_of, tell_of

MOST_CAUSES = 30

Reader = Callable[[int], Awaitable[Stored | None]]
"""The commit at a sequence; None where there is none."""


async def causes(read: Reader, lens: Lens, seq: int, index: int, state: ReadState) -> list[shapes.CauseView]:
    """From an event to its cause, and so on. An event that the viewer may not see is a step without words."""
    chain: list[shapes.CauseView] = []
    while len(chain) < MOST_CAUSES:
        stored = await read(seq)
        if stored is None or not 0 <= index < len(stored.commit.events):
            return chain
        chain.append(_cause(stored, index, lens, state))
        event = stored.commit.events[index]
        if not isinstance(event, Decision) or (event.cause.seq, event.cause.item) >= (seq, index):
            return chain
        seq, index = event.cause.seq, event.cause.item
    return chain


def _cause(stored: Stored, index: int, lens: Lens, state: ReadState) -> shapes.CauseView:
    commit, event = stored.commit, stored.commit.events[index]
    told, ref = tell_of(commit, index), ref_of(event)
    place = (stored.seq, index, instant(commit.at), commit.stage, isinstance(event, Decision))
    namespace = ref.namespace if ref is not None else ""
    if not (lens.sees(namespace) if namespace else lens.scope.whole):
        return shapes.CauseView(*place, "", "", say("about something that you may not see"))
    job = ref.key if ref is not None and (is_job(ref.kind) or ref.uid in state.records) else ""
    return shapes.CauseView(*place, told.word, lens.words(told.subject), lens.words(told.text), job)
