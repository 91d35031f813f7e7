"""The answers of a gateway, as the values that commands print: the same values as from a log."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Literal, cast

from muster.core.learned import Estimate
from muster.model.keys import Ref
from muster.model.resources import parse_quantity
from muster.serving import shapes
from muster.serving.boards import Amount, Board, BoardNode, QueueHead, RayWorkers
from muster.serving.jobrows import JobRow
from muster.told.codes.values import Promise
from muster.told.views.tellings import (
    GangTale,
    JobStory,
    NarratedEvent,
    QueueTale,
    ShownHolder,
    ShownWanting,
    Standing,
    StoryEntry,
    Tally,
    Waiter,
    Waits,
)

if TYPE_CHECKING:
    from muster.model.workload import Outcome
    from muster.told.codes.codetable import JobCode
    from muster.told.codes.happenings import Weight
    from muster.told.codes.values import GangCode, NoPromise, Phase


def ms(text: str) -> int:
    """A time in ms since the epoch; 0 for none."""
    return round(datetime.fromisoformat(text).timestamp() * 1000) if text else 0


def row(job: shapes.JobView) -> JobRow:
    return JobRow(
        uid=job.uid,
        kind=job.kind,
        namespace=job.namespace,
        name=job.name,
        phase=cast("Phase", job.state),
        code=cast("JobCode", job.status),
        queue=job.queue,
        position=job.position,
        length=job.length,
        priority=job.priority,
        request={name: parse_quantity(text, name) for name, text in job.request.items()},
        since=ms(job.since),
        text=job.text,
        outcome=cast("Outcome", job.outcome),
        cause=job.cause,
        cause_since=ms(job.cause_since),
        promise=promise(job),
        owner=job.owner,
        headline=job.headline,
    )


def promise(job: shapes.JobView) -> Promise:
    view = job.promise
    if view is None:
        return Promise(why=cast("NoPromise", job.no_promise))
    return Promise(ms(view.start), ms(view.latest), view.settled, view.kept, ms(view.first))


def story(told: shapes.WhyView) -> JobStory:
    job, moment = told.job, told.moment
    ref = Ref(job.kind, job.namespace, job.name, job.uid)
    holds = told.charged or job.state == "waiting"
    return JobStory(
        ref=ref,
        standing=Standing(
            code=cast("JobCode", told.code),
            text=told.text,
            queue=job.queue if holds else "",
            position=job.position,
            length=job.length,
            charged=told.charged,
            wanting=_wanting(told.wanting),
        ),
        happenings=[_happening(ref, event) for event in told.events],
        log_id=moment.log_id,
        generation=moment.generation,
        seq=moment.sequence,
        now=ms(moment.at),
        earlier=told.earlier,
        pauses=told.pauses,
        waits=[Waits(wait.text, [(piece.text, piece.groups) for piece in wait.pieces]) for wait in told.waits],
    )


def _wanting(view: shapes.WantingView | None) -> ShownWanting | None:
    if view is None:
        return None
    holders = [ShownHolder(holder.job, holder.amount, holder.text) for holder in view.holders]
    return ShownWanting(
        view.quota, view.resource, view.request, view.limit, view.used, view.free, view.missing, holders,
        view.held_by,
    )  # fmt: skip


def _happening(ref: Ref, view: shapes.EventView) -> StoryEntry:
    return StoryEntry(_event(view, ref), view.times, ms(view.last_at or view.at))


def _event(view: shapes.EventView, ref: Ref | None = None, gang: str = "") -> NarratedEvent:
    weight = cast("Weight", view.weight)
    return NarratedEvent(ms(view.at), view.sequence, view.index, ref, view.word, view.text, weight, gang=gang)


def pace(view: shapes.PaceView | None) -> Estimate | None:
    if view is None:
        return None
    why = cast(Literal["", "too_few", "overdue"], view.why)
    return Estimate(view.low, view.middle, view.high, view.rows, view.intervals, why)


def gang(told: shapes.GangTold) -> GangTale:
    gang_view, moment = told.gang, told.moment
    return GangTale(
        gang_view.name,
        cast("GangCode", gang_view.code),
        gang_view.text,
        {pod.name: pod.where for pod in gang_view.pods},
        [_event(event, gang=gang_view.name) for event in told.events],
        moment.sequence,
        ms(moment.at),
    )


def board(view: shapes.QueuesView) -> Board:
    paths = [queue.path for queue in view.queues]
    last = {path.rpartition("/")[0]: path for path in paths}
    return Board(
        view.moment.sequence,
        view.moment.generation,
        ms(view.moment.at),
        view.tree,
        view.profile,
        [_node(queue, last) for queue in view.queues],
        view.unsynced,
        view.pauses,
    )


def _node(view: shapes.QueueView, last: dict[str, str]) -> BoardNode:
    """``last``: path -> its last child."""
    head, workers = view.head, view.workers
    return BoardNode(
        path=view.path,
        depth=view.depth,
        leaf=view.leaf,
        last="/" in view.path and last[view.path.rpartition("/")[0]] == view.path,
        namespaces=view.namespaces,
        amounts=[Amount(one.resource, one.used, one.guaranteed, one.limit) for one in view.amounts],
        waiting=view.waiting,
        admitted=view.admitted,
        running=view.running,
        policy=view.policy,
        priority=view.priority,
        head=QueueHead(head.job, head.code, head.text) if head is not None else None,
        paused=tuple(view.paused),
        beyond=view.beyond,
        workers=RayWorkers(workers.granted, workers.asked, workers.going) if workers is not None else None,
    )


def tale(view: shapes.TaleView) -> QueueTale:
    tally, moment = view.tally, view.moment
    next_start = pace(view.next_start)
    assert next_start is not None
    return QueueTale(
        queue=view.queue,
        usage=view.usage,
        guaranteed=view.guaranteed,
        tally=Tally(
            tally.queued,
            tally.admitted,
            tally.finished,
            tally.released,
            tally.evicted,
            tally.denied,
            tally.longest_wait,
            tally.longest_waiter,
            tally.waits,
        ),
        waiting=[
            Waiter(waiter.job, waiter.position, waiter.priority, waiter.waited, waiter.reason)
            for waiter in view.waiting
        ],
        length=view.length,
        entries=[_event(event, _subject(event.subject)) for event in view.events],
        left_out=view.left_out,
        log_id=moment.log_id,
        generation=moment.generation,
        seq=moment.sequence,
        now=ms(moment.at),
        next_start=next_start,
        pauses=view.pauses,
    )


def _subject(key: str) -> Ref | None:
    namespace, slash, name = key.partition("/")
    return Ref("", namespace, name, "") if slash else None
