"""Copies of the queues with a difference: a quota, a request, a job that is not submitted yet. Pure.

A fork shares the unchanged parts with the original, so a fork costs little with thousands of waiting jobs. A fork is
read, and played forward; no commit is folded into a fork.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy

from msgspec import structs

from muster.core.learned import Durations
from muster.core.promising.projection import MAX_STARTS, Projected, Projection
from muster.core.queueing.book import Book, Place, Shape, shape_key
from muster.core.queueing.queues import Job, Queues
from muster.core.queueing.sorterstate import Learned
from muster.core.queueing.standing import best_of
from muster.core.quota.demand import demands_of
from muster.events.base import Cause
from muster.model.demand import Demand
from muster.model.language import say
from muster.model.quota import QuotaNode
from muster.model.workload import Workload
from muster.told.readmodel.jobfolds import running
from muster.told.readmodel.readstate import ReadState
from muster.told.wording.explain import waiting_for_quota

FIELDS = {"min": "guaranteed", "max": "limit", "weight": "weight"}
"""Changeable setting of a quota -> field of the node"""


FOREVER = 1 << 50


class _Unknown(Durations):
    """No run time is known for any job: no job ends."""

    def left(self, kinds: Iterable[str], ran: int) -> int | None:
        return FOREVER


def with_quota(queues: Queues, path: str, field: str, resource: str, amount: int | None) -> Queues:
    """``amount`` None takes the entry away. The node must exist."""
    ledger = queues.ledger
    tree = ledger.tree_of(path)
    assert tree is not None
    fresh = deepcopy(ledger)  # With the claims: what leaves for a claimant leaves in the copy, too.
    fresh.install(
        structs.replace(tree, nodes=tuple(_changed(node, path, field, resource, amount) for node in tree.nodes))
    )
    return structs.replace(queues, ledger=fresh)


def _changed(node: QuotaNode, path: str, field: str, resource: str, amount: int | None) -> QuotaNode:
    if node.path != path:
        return node
    name = FIELDS[field]
    vector = {key: value for key, value in getattr(node, name).items() if key != resource}
    if amount is not None:
        vector[resource] = amount
    return structs.replace(node, **{name: vector})


def with_request(queues: Queues, uid: str, resource: str, amount: int) -> Queues:
    """The queues with another request of a waiting job, at the job's place in its queue."""
    job = queues.jobs[uid]
    request = {**job.demand.request, resource: amount}
    changed = structs.replace(job, demand=structs.replace(job.demand, request=request))
    return with_job(without_job(queues, uid), changed)


def without_job(queues: Queues, uid: str) -> Queues:
    job = queues.jobs[uid]
    shapes = dict(queues.book.shapes)
    shape = shapes[job.shape]
    shapes[job.shape] = structs.replace(shape, waiting=[entry for entry in shape.waiting if entry.uid != uid])
    line = [place for place in queues.book.in_order(job.queue) if place[0].uid != uid]
    return structs.replace(queues, book=_with_line(queues, shapes, job.queue, line))


def with_job(queues: Queues, job: Job) -> Queues:
    """The queues with one more waiting job, at the job's place in its queue."""
    key = shape_key(job.queue, job.demand)
    job = structs.replace(job, shape=key)
    shapes = dict(queues.book.shapes)
    before = shapes.get(key)
    waiting = sorted([*(before.waiting if before is not None else ()), job.place])
    shapes[key] = Shape(job.queue, job.demand, waiting)
    jobs = {**queues.jobs, job.ref.uid: job}
    line = sorted([*queues.book.in_order(job.queue), (job.place, key)])
    return structs.replace(queues, book=_with_line(queues, shapes, job.queue, line), jobs=jobs)


def _with_line(queues: Queues, shapes: dict[str, Shape], queue: str, line: list[tuple[Place, str]]) -> Book:
    return structs.replace(queues.book, shapes=shapes, lines={**queues.book.lines, queue: line})


def new_job(state: ReadState, workload: Workload, queue: str, now: int, demand: Demand | None = None) -> Job:
    """A job that would be queued now, at the place given by the order of its queue. ``demand``: under other flavors
    than it would be queued with.
    """
    queues, rank = state.queues, now
    if demand is None:
        options = other_demands(state, workload, queue)
        demand = queues.demand_of(workload)
        if len(options) > 1:
            demand, _ = best_of(queues, queue, options, None, workload.ref.uid, now)
    if queues.order(queue) == "learned":
        rank = Learned(durations=state.promises.durations).rank(workload, queue, demand.request, now)
    return Job(
        ref=workload.ref,
        attempt=1,
        status="waiting",
        queue=queue,
        shape=shape_key(queue, demand),
        demand=demand,
        priority=queues.priority_of(workload),
        queued_at=now,
        rank=rank,
        generation=1,
        cause=Cause(0, 0),
    )


def other_demands(state: ReadState, workload: Workload, queue: str) -> Sequence[Demand]:
    """The demand of a job under each alternative of flavors, in order; empty in a tree without flavors."""
    tree = state.queues.ledger.tree_of(queue)
    return demands_of(tree, queue, workload) if tree is not None and tree.flavors else ()


def projected(
    state: ReadState, queues: Queues, now: int, *, until: str = "", beyond: int = 0, most: int = MAX_STARTS
) -> Mapping[str, Projected]:
    """The projected starts of waiting jobs without further jobs, in the order of the starts; see Projection.run.

    While no run times are known, only the jobs that start at once.
    """
    durations = state.promises.durations
    projection = Projection(queues, running(state), durations if durations.known() else _Unknown(), now)
    projection.run(until, beyond=beyond, most=most)
    return {uid: projected for uid, projected in projection.found.items() if projected.wait < FOREVER}


def binds(queues: Queues, job: Job, now: int) -> str:
    """Why a job is refused now: by a limit, else by the job before; empty where the job is not refused."""
    short = queues.ledger.shortfall(job.queue, job.demand, now=now)
    if short is not None:
        return waiting_for_quota(short).text
    before = first_before(queues, job)
    return (
        say("{key} is before it in {queue}, which admits in order (Block)", key=before.key, queue=job.queue)
        if before is not None
        else ""
    )


def first_before(queues: Queues, job: Job) -> Place | None:
    """The head of a queue with policy Block, if another job is the head."""
    if not queues.is_blocking(job.queue):
        return None
    first = queues.book.head(job.queue) or job.place
    return first if first < job.place else None
