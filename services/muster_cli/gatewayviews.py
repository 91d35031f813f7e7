"""The answers of a gateway, as the values that commands print: the same values as from a log."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, cast

from muster.core.learned import Estimate
from muster.model.keys import Ref
from muster.model.resources import parse_quantity
from muster.model.workload import Outcome
from muster.serving import shapes
from muster.serving.board import Amount, Board, BoardNode, QueueHead, RayWorkers
from muster.serving.joblist import JobRow
from muster.serving.tales import TaleView
from muster.told.codes.codetable import JobCode
from muster.told.codes.happenings import Weight
from muster.told.codes.values import GangCode, NoPromise, Phase, Promise
from muster.told.views.gangstory import GangTale
from muster.told.views.narrator import NarratedEvent
from muster.told.views.queuestory import QueueTale, Tally, Waiter
from muster.told.views.story import JobStory, ShownHolder, ShownWanting, Standing, StoryEntry, Waits


def ms(text: str) -> int:
    """A time in ms since the epoch; 0 for none."""
    return round(datetime.fromisoformat(text).timestamp() * 1000) if text else 0


def row(job: shapes.JobView) -> JobRow:
    return JobRow(
        uid=job.uid,
        kind=job.kind,
        namespace=job.namespace,
        name=job.name,
        phase=cast(Phase, job.state),
        code=cast(JobCode, job.status),
        queue=job.queue,
        position=job.position,
        length=job.length,
        priority=job.priority,
        request={name: parse_quantity(text, name) for name, text in job.request.items()},
        since=ms(job.since),
        text=job.text,
        outcome=cast(Outcome, job.outcome),
        cause=job.cause,
        cause_since=ms(job.cause_since),
        promise=promise(job),
        owner=job.owner,
    )


def promise(job: shapes.JobView) -> Promise:
    found = job.promise
    if found is None:
        return Promise(why=cast(NoPromise, job.no_promise))
    return Promise(ms(found.start), ms(found.latest), found.settled, found.kept)


def story(told: shapes.WhyView) -> JobStory:
    job, moment = told.job, told.moment
    ref = Ref(job.kind, job.namespace, job.name, job.uid)
    holds = told.charged or job.state == "waiting"
    return JobStory(
        ref=ref,
        standing=Standing(
            code=cast(JobCode, told.code),
            text=told.text,
            queue=job.queue if holds else "",
            position=job.position,
            length=job.length,
            charged=told.charged,
            wanting=_wanting(told.wanting),
        ),
        happenings=[_happening(ref, each) for each in told.events],
        log_id=moment.log_id,
        generation=moment.generation,
        seq=moment.sequence,
        now=ms(moment.at),
        earlier=told.earlier,
        pauses=told.pauses,
        waits=[Waits(each.text, [(piece.text, piece.groups) for piece in each.pieces]) for each in told.waits],
    )


def _wanting(found: shapes.WantingView | None) -> ShownWanting | None:
    if found is None:
        return None
    holders = [ShownHolder(each.job, each.amount, each.text) for each in found.holders]
    return ShownWanting(
        found.quota, found.resource, found.request, found.limit, found.used, found.free, found.missing, holders,
        found.held_by,
    )  # fmt: skip


def _happening(ref: Ref, each: shapes.EventView) -> StoryEntry:
    return StoryEntry(_event(each, ref), each.times, ms(each.last_at or each.at))


def _event(each: shapes.EventView, ref: Ref | None = None, gang: str = "") -> NarratedEvent:
    weight = cast(Weight, each.weight)
    return NarratedEvent(ms(each.at), each.sequence, each.index, ref, each.word, each.text, weight, gang=gang)


def pace(found: shapes.PaceView | None) -> Estimate | None:
    if found is None:
        return None
    why = cast(Literal["", "too_few", "overdue"], found.why)
    return Estimate(found.low, found.middle, found.high, found.rows, found.intervals, why)


def gang(told: shapes.GangTold) -> GangTale:
    found, moment = told.gang, told.moment
    return GangTale(
        found.name,
        cast(GangCode, found.code),
        found.text,
        {each.name: each.where for each in found.pods},
        [_event(each, gang=found.name) for each in told.events],
        moment.sequence,
        ms(moment.at),
    )


def board(found: shapes.QueuesView) -> Board:
    paths = [each.path for each in found.queues]
    last = {path.rpartition("/")[0]: path for path in paths}
    return Board(
        found.moment.sequence,
        found.moment.generation,
        ms(found.moment.at),
        found.tree,
        found.profile,
        [_node(each, last) for each in found.queues],
        found.unsynced,
        found.pauses,
    )


def _node(each: shapes.QueueView, last: dict[str, str]) -> BoardNode:
    """``last``: path -> its last child."""
    head, workers = each.head, each.workers
    return BoardNode(
        path=each.path,
        depth=each.depth,
        leaf=each.leaf,
        last="/" in each.path and last[each.path.rpartition("/")[0]] == each.path,
        namespaces=each.namespaces,
        amounts=[Amount(one.resource, one.used, one.guaranteed, one.limit) for one in each.amounts],
        waiting=each.waiting,
        admitted=each.admitted,
        running=each.running,
        policy=each.policy,
        priority=each.priority,
        head=QueueHead(head.job, head.code, head.text) if head is not None else None,
        paused=tuple(each.paused),
        beyond=each.beyond,
        workers=RayWorkers(workers.granted, workers.asked, workers.going) if workers is not None else None,
    )


def tale(found: TaleView) -> QueueTale:
    tally, moment = found.tally, found.moment
    next_start = pace(found.next_start)
    assert next_start is not None
    return QueueTale(
        queue=found.queue,
        usage=found.usage,
        guaranteed=found.guaranteed,
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
        waiting=[Waiter(each.job, each.position, each.priority, each.waited, each.reason) for each in found.waiting],
        length=found.length,
        entries=[_event(each, _subject(each.subject)) for each in found.events],
        left_out=found.left_out,
        log_id=moment.log_id,
        generation=moment.generation,
        seq=moment.sequence,
        now=ms(moment.at),
        next_start=next_start,
        pauses=found.pauses,
    )


def _subject(key: str) -> Ref | None:
    namespace, slash, name = key.partition("/")
    return Ref("", namespace, name, "") if slash else None
