"""The story of a queue within the rights of a viewer: numbers, waiting jobs, and happenings of jobs. Pure."""

from __future__ import annotations

from msgspec import Struct

from muster.serving import shapes
from muster.serving.scope import Lens
from muster.serving.views import MissingError, event_shape, hears, pace_shape
from muster.told.readmodel.readstate import ReadState
from muster.told.views.queuestory import KEPT, QueueStory

MOST_EVENTS = KEPT


class WaiterView(Struct, frozen=True):
    """A waiting job; ``waited`` in ms."""

    job: str
    position: int
    priority: int
    waited: int
    reason: str


class TallyView(Struct, frozen=True):
    """How often each thing happened to the known jobs. Times in ms."""

    queued: int
    admitted: int
    finished: int
    released: int
    evicted: int
    denied: int
    longest_wait: int
    longest_waiter: str
    waits: int
    """The sum of the waits of the admitted jobs."""


class TaleView(Struct, frozen=True):
    """A queue and all queues below: the use, the waiting jobs, and the turns of jobs, the newest last."""

    moment: shapes.MomentView
    queue: str
    usage: str
    guaranteed: str
    tally: TallyView
    waiting: list[WaiterView]
    length: int
    events: list[shapes.EventView]
    left_out: int
    next_start: shapes.PaceView
    pauses: list[str]


def tale(state: ReadState, lens: Lens, moment: shapes.MomentView, queue: str, *, now: int, limit: int) -> TaleView:
    """The story of a queue. ``queue``: the path. Raises MissingError."""
    if queue not in state.queues.ledger.nodes or not lens.sees_queue(queue):
        raise MissingError(f"there is no quota {queue[:200]}, or none that you may see")
    story = QueueStory(queue, state)
    story.recall()
    told = story.of(queue, present=now)
    heard = [entry for entry in told.entries if hears(entry, lens.scope)]
    tally = told.tally
    return TaleView(
        moment=moment,
        queue=queue,
        usage=told.usage,
        guaranteed=told.guaranteed,
        tally=TallyView(
            tally.queued,
            tally.admitted,
            tally.finished,
            tally.released,
            tally.evicted,
            tally.denied,
            tally.longest_wait,
            lens.words(tally.longest_waiter),
            tally.waits,
        ),
        waiting=[
            WaiterView(
                lens.words(waiter.job), waiter.position, waiter.priority, waiter.waited, lens.words(waiter.reason)
            )
            for waiter in told.waiting
        ],
        length=told.length,
        events=[event_shape(entry, lens) for entry in heard[max(len(heard) - limit, 0) :]],
        left_out=told.left_out + max(len(heard) - limit, 0),
        next_start=pace_shape(told.next_start),
        pauses=[lens.words(text) for text in told.pauses],
    )
