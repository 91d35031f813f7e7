"""The claimants: waiting jobs that are owed quota, that outrank running ones, or that have waited too long."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from muster.core.preemption import growing
from muster.core.preemption.age_claims import has_room
from muster.core.preemption.growing import Claimant, Entitled
from muster.core.preemption.state import PreemptorState
from muster.core.queueing.book import Rooms, Shape, room_at
from muster.core.queueing.order import share
from muster.core.queueing.queues import Job, is_current
from muster.core.quota.claims import Claim
from muster.core.quota.demand import Scratch, chain_of, counted
from muster.core.quota.kaireclaim import between
from muster.core.quota.ledger.kaishares import Shares, kai_shares
from muster.core.quota.ledger.owing import owed_beside
from muster.core.quota.reclaim import Basis, basis
from muster.model.demand import Shortfall
from muster.model.keys import root_of


def owed(state: PreemptorState) -> list[Claimant]:
    """The jobs that are refused their guarantee, and would be admitted if there were room; in order."""
    given, nodes, below = basis(state.queues.ledger), state.queues.ledger.nodes, state.queues.ledger.below
    shares: list[Shares] = []

    def entitled(shape: Shape, job: Job) -> bool:
        queue, ledger = shape.queue, state.queues.ledger
        if not state.in_turn(job) or state.now < state.may_claim_at(job):
            return False
        mine = _basis(state, job, given)
        if ledger.by_shares(queue):
            if not shares:
                shares.append(kai_shares(ledger))
            may = between(mine, queue, shape.demand, shares[0] if job.growth is None else None).may_claim()
            may = may and mine.short(queue, shape.demand) is not None
        else:
            may = mine.refuses_what_is_owed(queue, shape.demand)
        if job.growth is not None and mine.refusal(queue, shape.demand) is None:
            return False  # Growth is asked for once the victims of others have left.
        return may and state.is_refused(shape)

    def may_reclaim(queue: str) -> bool:
        tree = state.queues.ledger.tree_of(queue)
        if tree is None or tree.rules.reclaim == "disabled":
            return False
        return tree.by_shares or state.below_guarantee(queue)

    # Most often only leaves are below their guarantees, and few of those have work that waits.
    by_leaf = not _divides(state) and not any(nodes[path].children for path in below if "/" in path)
    return _entitled(state, below if by_leaf else state.queues.book.queues, may_reclaim, entitled)


def _divides(state: PreemptorState) -> bool:
    """Whether a tree in force is applied by fair shares."""
    return any(tree.by_shares for tree in state.queues.ledger.trees.values())


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

    return _entitled(state, state.queues.book.queues, may_preempt, entitled)


def _entitled(
    state: PreemptorState, queues: Iterable[str], may_claim: Callable[[str], bool], entitled: Entitled
) -> list[Claimant]:
    """The waiting jobs of these queues, and the clusters that are refused growth, where they may claim; in order."""
    waiting = (pair for queue in filter(may_claim, queues) for pair in state.claimants(queue))
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
    aged = [claim for claim in state.queues.ledger.claims.by_uid.values() if not claim.firm]
    heads = [job for job, due in _heads(state, _may_hold(state, aged)) if due <= state.now]
    held = state.age_claims.held(state.queues.ledger) if heads else {}
    for job in sorted(heads, key=lambda job: (_waits_since(state, job), job.ref.uid)):
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
        if owed_beside(state.queues.ledger, job.queue, job.demand) is None:
            return shape, job, top
    return None


def _may_hold(state: PreemptorState, aged: Iterable[Claim]) -> Iterable[str]:
    """The queues for whose heads something may be held: at a glance, where they were refused neither rests, nor has
    another a claim for age while there is no room for them.
    """
    found = {claim.queue: None for claim in aged}
    taken = {path for claim in aged for path in claim.paths()}
    rooms = Rooms(state.queues.ledger, Scratch(), state.now)
    for path, by_slot in state.queues.book.parked.items():
        if state.age_claims.rests_until(path) > state.now:
            continue
        for slot in by_slot.values():
            full = path in taken and not slot.of_min
            least = slot.first(room_at(state.queues.ledger, path, path, slot)) if full else slot.least
            found |= {queue: None for ask, queue in least if not full or rooms.takes(queue, path, slot, ask)}
    return found


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


def next_aged_at(state: PreemptorState) -> int | None:
    """Log time (ms) at which the next head of a queue will have waited too long; None for never."""
    heads = _heads(state, state.queues.book.lines)
    return min((due for _, due in heads if due > state.now), default=None)


def next_claims(state: PreemptorState) -> list[int]:
    """Log times (ms) at which the preemption delays of waiting jobs are over."""
    queues = (
        [each for each in state.queues.book.queues if state.queues.ledger.by_shares(each)] if _divides(state) else ()
    )
    jobs = (state.claimant(shape) for queue in queues for shape in state.refused(queue))
    times = (state.claims_from(job) for job in jobs if job is not None)
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


def _heads(state: PreemptorState, queues: Iterable[str]) -> Iterator[tuple[Job, int]]:
    """The first of each queue, and the log time (ms) from which something may be held for it."""
    lines, jobs, nodes = state.queues.book.lines, state.queues.jobs, state.queues.ledger.nodes
    limits = {root: tree.rules.age_limit_ms for root, tree in state.queues.ledger.trees.items()}
    for queue in queues:
        line = lines.get(queue)
        if line and queue in nodes and (limit := limits[root_of(queue)]):
            job = jobs[line[0][0].uid]
            yield job, max(_waits_since(state, job) + limit, state.age_claims.rests_until(queue))


def _waits_since(state: PreemptorState, job: Job) -> int:
    """Log time from which its age counts: a job that made room for jobs with less service has had its turn before."""
    if job.ref.uid not in state.service.times:
        return job.queued_at
    return max(job.queued_at, *state.evictions.get(job.ref.uid, (0,)))
