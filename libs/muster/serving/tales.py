"""The story of a queue within the rights of a viewer: numbers, waiting jobs, and happenings of jobs. Pure."""

from __future__ import annotations

from muster.serving import shapes
from muster.serving.scope import Lens
from muster.serving.views import MissingError, event_shape, hears, pace_shape
from muster.told.readmodel.readstate import ReadState
from muster.told.views.queuestory import QueueStory
from muster.told.views.tellings import KEPT

MOST_EVENTS = KEPT


def tale(
    state: ReadState, lens: Lens, moment: shapes.MomentView, queue: str, *, now: int, limit: int
) -> shapes.TaleView:
    """The story of a queue. ``queue``: the path. Raises MissingError."""
    if queue not in state.queues.ledger.nodes or not lens.sees_queue(queue):
        raise MissingError(f"there is no quota {queue[:200]}, or none that you may see")
    story = QueueStory(queue, state)
    story.recall()
    told = story.of(queue, present=now, most=limit if lens.scope.whole else KEPT)
    heard = [entry for entry in told.entries if hears(entry, lens.scope)]
    tally = told.tally
    return shapes.TaleView(
        moment=moment,
        queue=queue,
        usage=told.usage,
        guaranteed=told.guaranteed,
        tally=shapes.TallyView(
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
            shapes.WaiterView(
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
