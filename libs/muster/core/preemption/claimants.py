"""The claimants: waiting jobs that are owed quota, that outrank running ones, or that have waited too long."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from muster.core.preemption import growing
from muster.core.preemption.age_claims import has_room
from muster.core.preemption.growing import Claimant, Entitled
from muster.core.preemption.state import PreemptorState
from muster.core.queueing.book import Shape
from muster.core.queueing.order import share
from muster.core.queueing.queues import Job, is_current
from muster.core.quota.claims import Claim
from muster.core.quota.demand import chain_of, counted
from muster.core.quota.kaireclaim import between
from muster.core.quota.ledger.kaishares import Shares, kai_shares
from muster.core.quota.ledger.ledger import UNBOUNDED
from muster.core.quota.ledger.owing import Owing
from muster.core.quota.reclaim import Basis, basis
from muster.model.demand import Shortfall
from muster.model.quota import COUNTED


def owed(state: PreemptorState) -> list[Claimant]:
    """The jobs that are refused their guarantee, and would be admitted if there were room; in order."""
    given, nodes, below = basis(state.queues.ledger), state.queues.ledger.nodes, state.queues.ledger.below
    shares: list[Shares] = []

    def entitled(shape: Shape, job: Job) -> bool:
        queue, ledger = shape.queue, state.queues.ledger
        if not state.in_turn(job) or state.now < state.may_claim_at(job) or not state.is_refused(shape):
            return False
        mine = _basis(state, job, given)
        if ledger.by_shares(queue):
            may = between(mine, queue, shape.demand, shares_now() if job.growth is None else None).may_claim()
            may = may and mine.short(queue, shape.demand) is not None
        else:
            may = mine.refuses_what_is_owed(queue, shape.demand)
        if job.growth is not None and mine.refusal(queue, shape.demand) is None:
            return False  # Growth is asked for once the victims of others have left.
        return may

    def shares_now() -> Shares:
        if not shares:
            shares.append(kai_shares(state.queues.ledger))
        return shares[0]

    def shapes(of: PreemptorState, queue: str) -> Iterator[Shape]:
        divided = of.queues.ledger.by_shares(queue)
        return _within_share(of, queue, shares_now()) if divided else _may_be_owed(of, queue)

    def may_reclaim(queue: str) -> bool:
        tree = state.queues.ledger.tree_of(queue)
        if tree is None or tree.rules.reclaim == "disabled":
            return False
        return tree.by_shares or state.below_guarantee(queue)

    # Most often only leaves are below their guarantees, and few of those have work that waits.
    inner = any(nodes[path].children for path in below if "/" in path)
    waiting = state.queues.book.queues
    queues = waiting if inner else {queue: None for queue in (*below, *_dividing(state)) if queue in waiting}
    return _entitled(state, filter(may_reclaim, queues), may_reclaim, entitled, shapes)


def _dividing(state: PreemptorState) -> Iterator[str]:
    """The queues with work of the trees in force that are applied by fair shares."""
    trees, waiting = state.queues.ledger.trees.values(), state.queues.book.queues
    return (node.path for tree in trees if tree.by_shares for node in tree.nodes if node.path in waiting)


def _within_share(state: PreemptorState, queue: str, shares: Shares) -> Iterator[Shape]:
    """The refused shapes of a queue that ask for no more than its fair share leaves."""
    ledger, mine = state.queues.ledger, shares.get(queue, {})
    used, leaving = ledger.used.get(queue, {}), ledger.leaving.extra.get(queue, {})
    left = {name: each.share.amount - used.get(name, 0) - leaving.get(name, 0) for name, each in mine.items()}
    if left and min(left.values()) >= 0:
        yield from state.parked(queue, lambda resource: left.get(resource, UNBOUNDED))


def _may_be_owed(state: PreemptorState, queue: str) -> Iterator[Shape]:
    """The refused shapes of a queue that ask for no more than some guarantee on its path leaves, and for more than is
    free beside firm claims.
    """
    ledger, leaving = state.queues.ledger, state.queues.ledger.leaving.extra
    nodes = [ledger.nodes[path] for path in chain_of(queue) if path in ledger.nodes]

    def left(resource: str) -> int:
        if resource in COUNTED or not any(resource in node.limit or resource in node.guaranteed for node in nodes):
            return UNBOUNDED
        used = ((ledger.used.get(node.path, {}), leaving.get(node.path, {})) for node in nodes)
        sums = (sum(part.get(resource, 0) for part in parts) for parts in used)
        return max(node.guaranteed.get(resource, 0) - total for node, total in zip(nodes, sums, strict=True))

    free, plain = dict[str, int](), not (ledger.lends or ledger.shares.names)
    for node in nodes if plain else ():
        used, held = ledger.used.get(node.path, {}), ledger.claims.firm.extra.get(node.path, {})
        for name, most in node.limit.items():
            free[name] = min(free.get(name, UNBOUNDED), most - used.get(name, 0) - held.get(name, 0))
    for shape in state.parked(queue, left):
        for name, asked in counted(shape.demand).items():
            if asked and (not plain or asked > free.get(name, UNBOUNDED)):
                yield shape
                break


def outranking(state: PreemptorState) -> list[Claimant]:
    """Waiting jobs of queues in which work of lower priority is evicted, and could make room; in order."""
    nodes = state.queues.ledger.nodes
    given = basis(state.queues.ledger)

    def entitled(shape: Shape, job: Job) -> bool:
        queue = shape.queue
        if job.priority <= state.runs[queue][0].priority or state.now < state.claims_from(job):
            return False
        mine = _basis(state, job, given)
        return (
            state.may_be_next(job)
            and mine.refusal(queue, shape.demand) is not None
            and state.outranks(queue, job.priority, shape.demand, mine)
            and state.is_refused(shape)
        )

    def may_preempt(queue: str) -> bool:
        return queue in state.runs and queue in nodes and nodes[queue].preempts

    queues = [queue for queue in state.runs if queue in nodes and nodes[queue].preempts]
    return _entitled(state, queues, may_preempt, entitled, PreemptorState.parked)


def _entitled(
    state: PreemptorState,
    queues: Iterable[str],
    may_claim: Callable[[str], bool],
    entitled: Entitled,
    shapes: Callable[[PreemptorState, str], Iterator[Shape]],
) -> list[Claimant]:
    """The waiting jobs of ``shapes`` of these queues, and the clusters that are refused growth, where they may claim;
    in order.
    """
    waiting = (pair for queue in queues for pair in state.claimants(shapes(state, queue)))
    found = [pair for pair in waiting if entitled(*pair) and is_current(state.queues, pair[1])]
    found += growing.claimants(state, may_claim, entitled)
    return in_order(state, found)


def aged(state: PreemptorState) -> tuple[Shape, Job, Shortfall] | None:
    """The job that has waited longest at the head of its queue beyond the age limit, and the uppermost limit that
    refuses it.

    None where quota is held for age already, or was until lately, or where enough jobs run that were admitted so; nor
    for a job that needs what others are owed: its claim is below theirs. It moves up where others have filled a
    node above meanwhile: else they could keep it out for ever.
    """
    aged = [*state.queues.ledger.claims.for_age()]
    held, owing = state.age_claims.held(state.queues.ledger), Owing(state.queues.ledger)
    for job in _aged_heads(state, aged):
        shape = state.queues.book.shapes[job.shape]
        if shape.denial is None or any(_is_refused_at(state, job, claim) for claim in aged):
            continue
        if state.is_gated(job.ref.uid) or not state.in_turn(job):
            continue
        refusals = list(state.queues.ledger.refusals(job.queue, job.demand, now=state.now))
        if not refusals or any(each.hopeless or each.of_runtime for each in refusals):
            continue
        if not job.demand.preemptible and any(state.queues.ledger.beyond_mins(job.queue, job.demand)):
            continue
        top = min(refusals, key=lambda each: len(each.path))
        mine = (path for path in chain_of(job.queue) if len(path) >= len(top.path))
        claims = state.queues.ledger.claims
        own = claims.by_uid.get(job.ref.uid)
        if own is not None and not own.is_outgrown(each.path for each in refusals):
            continue
        if claims.aged_at(mine, job.ref.uid) is not None:
            continue
        if not has_room(top, held) or not is_current(state.queues, job):
            continue
        if owing.beside(job.queue, job.demand) is None:
            return shape, job, top
    return None


def _aged_heads(state: PreemptorState, aged: Iterable[Claim]) -> Iterator[Job]:
    """The heads of queues for which something may be held, those first that have waited longest: at a glance, none that
    is refused only where another has a claim for age.
    """
    queues, heads = state.queues, state.heads
    refused = heads.refused(queues, {path for claim in aged for path in claim.paths()})
    found = heads.due(queues, state.age_claims, state.now, refused)
    if len(queues.ledger.trees) > 1:
        found = iter(sorted(found, key=lambda queue: (heads.heads[queue].since, heads.heads[queue].uid)))
    for queue in found:
        yield queues.jobs[heads.heads[queue].uid]


def _is_refused_at(state: PreemptorState, job: Job, claim: Claim) -> bool:
    """Whether a limit of a node at which another has a claim for age refuses a job, claims apart: its own would be held
    there too.
    """
    if claim.uid == job.ref.uid:
        return False
    ledger, mine = state.queues.ledger, chain_of(job.queue)
    for path in claim.paths():
        for name, amount in counted(job.demand).items() if path in mine else ():
            room = ledger.headroom(path, name)
            if amount and room is not None and room < amount:
                return True
    return False


def next_claims(state: PreemptorState) -> list[int]:
    """Log times (ms) at which the preemption delays of waiting jobs are over."""
    shapes = (shape for queue in _dividing(state) for shape in state.parked(queue))
    jobs = ((shape, state.claimant(shape)) for shape in shapes)
    later = [(shape, at) for shape, job in jobs if job is not None and (at := state.claims_from(job)) > state.now]
    times = (at for shape, at in later if state.is_refused(shape))
    return [at for at in (*times, *_graces(state), *growing.deadlines(state)) if at > state.now]


def _graces(state: PreemptorState) -> Iterator[int]:
    """Log times (ms) at which the graces of jobs that are owed quota are over."""
    for key in state.owed_since:
        shape = state.queues.book.shapes.get(key)
        job = state.claimant(shape) if shape is not None else None
        if job is not None:
            yield state.grace_over_at(job) or 0


def in_order(state: PreemptorState, found: list[Claimant]) -> list[Claimant]:
    """Queues in their order, in each the head first."""
    if len(found) > 1:
        ledger, priorities = state.queues.ledger, state.queues.queue_priorities
        found.sort(
            key=lambda pair: (
                -priorities.get(pair[0].queue, 0),
                share(ledger, pair[0].queue),
                pair[0].queue,
                pair[1].place,
            )
        )
    return found


def _basis(state: PreemptorState, job: Job, given: Basis) -> Basis:
    """What a claim of a job is planned against: most have none that would have to be left out."""
    return basis(state.queues.ledger, job.ref.uid) if job.ref.uid in state.queues.ledger.claims.by_uid else given
