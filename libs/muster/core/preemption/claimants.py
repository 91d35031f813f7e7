"""The claimants: waiting jobs owed quota, jobs that outrank running work, and jobs passed by later work."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from heapq import merge

from muster.core.preemption import growthclaims
from muster.core.preemption.growthclaims import Claimant, Entitled
from muster.core.preemption.plans import nodes_for
from muster.core.preemption.preemptorstate import PreemptorState
from muster.core.queueing.book import Place, RefusalSlot, Shape
from muster.core.queueing.queueorder import share
from muster.core.queueing.queues import Job, Queues, is_current
from muster.core.quota.candidates import Basis, basis
from muster.core.quota.demand import Scratch, chain_of, counted
from muster.core.quota.evictionrules import between
from muster.core.quota.ledger.idling import rests_until
from muster.core.quota.ledger.quotaledger import UNBOUNDED, Ledger, Owing
from muster.model.demand import Demand, Shortfall
from muster.model.keys import root_of
from muster.model.resources import Vector, add_into, summed, total_of

_NOTHING: Mapping[str, int] = {}


def owed(state: PreemptorState) -> Iterator[Claimant]:
    """The jobs refused within their guarantee that free quota would admit, in order: the lowest guarantee first. The
    search runs on demand, where all guarantees are alike.
    """
    given, shares = basis(state.queues.ledger), state.queues.ledger.fair.shares

    def entitled(shape: Shape, job: Job) -> bool:
        queue, ledger = shape.queue, state.queues.ledger
        if not state.in_turn(job) or state.now < state.may_claim_at(job):
            return False
        mine = _basis(state, job, given)
        if ledger.by_shares(queue):
            if not state.is_refused(shape):
                return False
            may = between(mine, queue, shape.demand, shares if job.growth is None else None).may_claim()
            may = may and mine.short(queue, shape.demand) is not None
        else:
            may = bool(mine.owed_at(queue, shape.demand)) and mine.short(queue, shape.demand) is not None
            may = may and state.is_refused(shape)
        if job.growth is not None and mine.refusal(queue, shape.demand) is None:
            return False  # Growth is asked for once the victims of others have left.
        return may

    def may_reclaim(queue: str) -> bool:
        tree = state.queues.ledger.tree_of(queue)
        if tree is None or tree.rules.reclaim == "disabled":
            return False
        return tree.by_shares or state.below_guarantee(queue)

    owing = _entitled(state, filter(may_reclaim, _in_question(state)), may_reclaim, entitled, _may_be_owed)
    if not state.queues.ledger.pooled:
        return owing  # All guarantees are as low as each other.

    def depth(pair: Claimant) -> int:
        shape, ledger = pair[0], state.queues.ledger
        return 0 if ledger.by_shares(shape.queue) else ledger.owed_depth(shape.queue, shape.demand, ledger.leaving)

    return iter(sorted(owing, key=depth, reverse=True))


def _in_question(state: PreemptorState) -> Mapping[str, None]:
    """The queues with refused jobs that may be owed quota; a glance rules out all other queues.

    Any queue below an inner node may be owed the guarantee of the node.
    """
    ledger, waiting = state.queues.ledger, state.queues.book.queues

    if ledger.inner_below:
        return dict.fromkeys(waiting)
    some = dict.fromkeys((*state.near, *ledger.leaving.extra))
    if any(path in ledger.pooled for path in ledger.leaving.extra):
        some |= ledger.below
    return {queue: None for queue in some if queue in waiting}


def _may_be_owed(state: PreemptorState, queue: str) -> Iterator[Shape]:
    """The refused shapes within the amounts that a queue may be owed. For a guarantee: only shapes larger than the
    quota free beside firm claims, and within the guarantee beside these; to a claimant its own claim is free.
    """
    ledger, jobs, book = state.queues.ledger, state.queues.jobs, state.queues.book
    shares = ledger.by_shares(queue)
    others = () if shares else (ledger.claims.promised.extra,)
    left = left_of(ledger, queue, chain_of(queue), ledger.leaving.extra, *others)
    if left is None:
        return
    if shares:
        yield from state.parked(queue, left)
        return
    claiming = dict.fromkeys(jobs[uid].shape for uid in ledger.claims.of.get(queue, ()) if uid in jobs)
    shapes = (shape for shape in map(book.shapes.get, claiming) if shape is not None and shape.queue == queue)
    own = [shape for shape in shapes if state.is_parked(shape)]
    nodes = [ledger.nodes[path] for path in chain_of(queue) if path in ledger.nodes]
    free, plain = dict[str, int](), not (ledger.lends or ledger.shares.names)
    for node in nodes if plain else ():
        used, held = ledger.used.get(node.path, {}), ledger.claims.firm.extra.get(node.path, {})
        for name, most in node.limit.items():
            free[name] = min(free.get(name, UNBOUNDED), most - used.get(name, 0) - held.get(name, 0))
    rest = (shape for shape in state.parked(queue, left) if all(shape is not mine for mine in own))
    for shape in (*own, *rest):
        for name, asked in counted(shape.demand).items():
            if asked and (not plain or asked > free.get(name, UNBOUNDED)):
                yield shape
                break


def outranking(state: PreemptorState) -> list[Claimant]:
    """Waiting jobs for which evicted work of lower priority in the same queue could make room, in order."""
    ledger = state.queues.ledger
    nodes, given = ledger.nodes, basis(ledger)

    def entitled(shape: Shape, job: Job) -> bool:
        queue = shape.queue
        if job.priority <= state.runs[queue][0].priority or state.now < state.claims_from(job):
            return False
        if not state.may_be_next(job) or not state.is_refused(shape) or _is_behind_owed(state, queue, shape.demand):
            return False
        mine = _basis(state, job, given)
        if mine.refusal(queue, shape.demand) is None:
            return job.growth is None and _passes_age(ledger, job)
        return _could_make_room(state, queue, job.priority, shape.demand, mine)

    def may_preempt(queue: str) -> bool:
        return queue in state.runs and queue in nodes and nodes[queue].preempts

    return [*_entitled(state, filter(may_preempt, state.outranked), may_preempt, entitled, PreemptorState.parked)]


def _is_behind_owed(state: PreemptorState, queue: str, demand: Demand) -> bool:
    """Whether the accountant has not yet answered a job of another queue that uses less than its guarantee: a plan for
    a borrower would hold the room against this job.
    """
    ledger, asked = state.queues.ledger, state.queues.proposed.extra
    if not asked or ledger.by_shares(queue) or ledger.owed_at(queue, demand):
        return False
    others = (path for path in asked if path != queue and path in ledger.nodes and not ledger.nodes[path].children)
    return any(map(state.below_guarantee, others))


def _passes_age(ledger: Ledger, job: Job) -> bool:
    """Whether quota is free for a job that outranks running work of its queue, but for claims for age of this queue:
    they are for jobs of lower priority.
    """
    aged = [*ledger.claims.aged_at(chain_of(job.queue))]
    return bool(aged) and all(claim.queue == job.queue for claim in aged)


def _could_make_room(state: PreemptorState, queue: str, priority: int, demand: Demand, given: Basis) -> bool:
    """Whether work of lower priority in a leaf, by its sums, could make room for a claimant of the leaf.

    Either the amounts are enough, or the leaf is within its min without the work, so victims in other queues are
    possible.
    """
    lower: Vector = {}
    for level, amounts in state.sums.get(queue, {}).items():
        if level < priority:
            add_into(lower, amounts)
    if not lower:
        return False
    ledger, claims = given.ledger, (given.leaving, given.held)
    refusals = ledger.refusals(queue, demand, given.leaving, held=given.held)
    over = ((refusal.resource, refusal.missing) for refusal in refusals)
    if all(lower.get(name, 0) >= amount for name, amount in over):
        return True
    gone = Scratch({queue: {name: -amount for name, amount in lower.items()}})
    managed = ledger.managed(queue, demand.request)
    return bool(managed) and not ledger.above_min(queue, demand, managed, gone, *claims)


def _entitled(
    state: PreemptorState,
    queues: Iterable[str],
    may_claim: Callable[[str], bool],
    entitled: Entitled,
    shapes: Callable[[PreemptorState, str], Iterator[Shape]],
) -> Iterator[Claimant]:
    """The waiting jobs of ``shapes`` and the clusters with refused growth, in queues that may claim; in order."""
    growths = growthclaims.refused(state, may_claim)
    for queue in sorted({**dict.fromkeys(queues), **growths}, key=partial(turn_of, state)):
        waiting = sorted(state.claimants(shapes(state, queue)), key=_place)
        jobs = (pair for pair in waiting if entitled(*pair) and is_current(state.queues, pair[1]))
        grows = sorted(growthclaims.claimants(state, growths.get(queue, ()), entitled), key=_place)
        yield from merge(jobs, grows, key=_place)


def _place(claimant: Claimant) -> Place:
    return claimant[1].place


def aged(state: PreemptorState) -> tuple[Shape, Job, Shortfall] | None:
    """Of the aged jobs the one that came first, and the uppermost limit that refuses the job.

    None for a job below a node with a claim for age, or with a rest. None too for a job that needs quota owed to
    others, and a job too large for empty nodes. A claim moves up where other jobs have filled a higher node meanwhile:
    otherwise these jobs could keep the claimant out for ever.
    """
    ledger, owing, expected = state.queues.ledger, Owing(state.queues.ledger), dict[Shortfall, int | None]()
    for job in _aged_jobs(state):
        shape, own = state.queues.book.shapes[job.shape], ledger.claims.by_uid.get(job.ref.uid)
        if shape.denial is None or state.is_gated(job.ref.uid) or not state.in_turn(job):
            continue
        refusals = list(ledger.refusals(job.queue, job.demand, now=state.now))
        if not refusals or any(refusal.hopeless or refusal.of_runtime for refusal in refusals):
            continue
        if not job.demand.preemptible and any(ledger.beyond_mins(job.queue, job.demand)):
            continue
        top = min(refusals, key=lambda refusal: len(refusal.path))
        if own is not None:
            if not own.is_outgrown(refusal.path for refusal in refusals):
                continue
        elif not state.passing.arrivals[job.ref.uid].is_aged_at(top.path, top.resource, top.asked):
            continue
        if not is_current(state.queues, job) or owing.beside(job.queue, job.demand) is not None:
            continue
        if own is None and not _in_time(state, job, top, expected):
            continue
        site = nodes_for(state, job)
        if site is None or site.may_ever_fit():
            return shape, job, top
    return None


LEAST_IDLE_MS = 5_000
"""No quota is held for a job for less time than this."""


def _in_time(state: PreemptorState, job: Job, top: Shortfall, expected: dict[Shortfall, int | None]) -> bool:
    """Whether quota held for the job is expected to be idle for no longer than it may. ``expected``: known answers."""
    if top not in expected:
        expected[top] = state.passing.expected_idle(top, state.queues.ledger, state.now)
    idle, may = expected[top], state.passing.idles_ms(job.ref.uid, state.now)
    return idle is not None and idle <= top.asked * may and may >= LEAST_IDLE_MS


def _aged_jobs(state: PreemptorState) -> Iterator[Job]:
    """The waiting jobs that have aged, in the order of coming; one at a time below each node with a claim for age."""
    ledger, passing = state.queues.ledger, state.passing
    held, uids = {claim.top: claim.uid for claim in ledger.claims.for_age()}, list[str]()
    for queue, aged in passing.aged.items():
        if not ledger.rules_of(queue).ages or rests_until(ledger, queue) > state.now:
            continue
        holders = {held[path] for path in chain_of(queue) if path in held}
        uids += aged if not holders else [uid for uid in aged if holders == {uid}]
    for uid in passing.in_order(uids):
        job = state.queues.jobs.get(uid)
        if job is not None and job.status == "waiting":
            yield job


def rests_end(state: PreemptorState) -> list[int]:
    """Log times (ms) at which quota may be held for aged jobs again."""
    ends = (rests_until(state.queues.ledger, queue) for queue in state.passing.aged)
    return [at for at in ends if at > state.now]


def next_claims(state: PreemptorState) -> list[int]:
    """Log times (ms) at which preemption delays and graces of waiting jobs and clusters end."""
    queues = state.queues
    later = [job for uid in state.delayed if (job := queues.jobs.get(uid)) and state.claims_from(job) > state.now]
    shapes = [(job, queues.book.shapes.get(job.shape)) for job in later if queues.ledger.by_shares(job.queue)]
    times = [
        state.claims_from(job)
        for job, shape in shapes
        if shape is not None and state.claimant(shape) is job and state.is_parked(shape) and state.is_refused(shape)
    ]
    return [at for at in (*times, *_graces(state), *growthclaims.deadlines(state)) if at > state.now]


def _graces(state: PreemptorState) -> Iterator[int]:
    """Log times (ms) at which the graces of jobs owed quota end."""
    for key in state.owed_since:
        shape = state.queues.book.shapes.get(key)
        job = state.claimant(shape) if shape is not None else None
        if job is not None:
            yield state.grace_over_at(job) or 0


def turn_of(state: PreemptorState, queue: str) -> tuple[int, int, str]:
    """The order of queues: priority of the queue, share used, path. In a queue, jobs keep their own order."""
    return -state.queues.queue_priorities.get(queue, 0), share(state.queues.ledger, queue), queue


def _basis(state: PreemptorState, job: Job, given: Basis) -> Basis:
    """The basis for the plan of a job; only a job with a claim needs its own basis, without this claim."""
    return basis(state.queues.ledger, job.ref.uid) if job.ref.uid in state.queues.ledger.claims.by_uid else given


# --- near a guarantee -------------------------------------------------------------------------------------------------


def settle_near(near: dict[str, None], queues: Queues, touched: Iterable[str]) -> None:
    """Keep the queues where a refused job may fit in the rest of the queue's own guarantee, or of its share."""
    for queue in touched:
        near.pop(queue, None)
        left = left_of(queues.ledger, queue, (queue,)) if queue in queues.book.lines else None
        if left is not None and any(slot.asks[queue][0][0] <= left(slot.resource) for slot in _refused(queues, queue)):
            near[queue] = None


def left_of(
    ledger: Ledger, queue: str, paths: Collection[str], *others: Mapping[str, Mapping[str, int]]
) -> Callable[[str], int] | None:
    """By resource, the most a job may ask for and be owed, at a glance. None where the queue is owed nothing.

    The amount is the rest of the largest guarantee among ``paths``, or of the share of the queue. ``others``: amounts
    that count beside the use, those of leaving jobs negative.
    """
    names = ledger.guaranteed.get(root_of(queue), _NOTHING)

    def taken(path: str) -> Mapping[str, int]:
        parts = [part[path] for part in others if path in part]
        used = ledger.used.get(path, _NOTHING)
        return summed((used, *parts)) if parts else used

    if ledger.by_shares(queue):
        mine, used = ledger.fair.shares.get(queue, {}), taken(queue)
        some = {name: divided.share.amount - used.get(name, 0) for name, divided in mine.items()}
        return (lambda name: some.get(name, UNBOUNDED)) if some and min(some.values()) >= 0 else None
    # At the root there is no outside to claim from.
    inner = [path for path in chain_of(queue) if path in paths and "/" in path and path in ledger.nodes]
    giving = [(ledger.nodes[path].owes, taken(path)) for path in inner]

    def guaranteed(name: str) -> int:
        if name not in names:
            return UNBOUNDED
        parts = (name, total_of(name)) if "@" in name else (name,)  # The rest of a total is for any flavor.
        rests = [least.get(one, 0) - used.get(one, 0) for least, used in giving for one in parts]
        return max(rests, default=-1)

    return guaranteed


def _refused(queues: Queues, queue: str) -> Iterator[RefusalSlot]:
    """The slots with parked requests of a queue that limits may admit some day."""
    parked = queues.book.parked
    slots = (slot for path in chain_of(queue) if path in parked for slot in parked[path].values())
    return (slot for slot in slots if not slot.of_min and queue in slot.asks)
