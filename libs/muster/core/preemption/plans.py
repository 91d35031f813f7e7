"""Plans of the preemptor: the candidates for eviction, the victims of a claimant, and the proposal.

*Enlisting*: for each leaf its running work, in the order of eviction. *Owed*: the victims for a waiting job, from the
queues and nodes as the preemptor sees both. *Plans*: a proposal with victims or with quota to hold, or the reason for a
deferral. *Underserved*: waiting jobs with less service than running ones, and the victims for such jobs.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from functools import partial
from typing import Literal

from msgspec.structs import replace

from muster.core.gang.jobplaces import may_move
from muster.core.preemption.preemptorstate import HOUR_MS, PreemptorState, Started, UnplacedClaimant
from muster.core.queueing.book import Shape
from muster.core.queueing.queues import Job
from muster.core.quota import service
from muster.core.quota.accountantstate import can_suspend
from muster.core.quota.candidates import FIRST, Basis, Candidates, Run, basis
from muster.core.quota.demand import counted, laid_out
from muster.core.quota.ledger.quotaledger import UNBOUNDED, shares_with
from muster.core.quota.rayclaims import as_victims
from muster.core.victimsearch import search
from muster.core.victimsearch.prices import Found
from muster.core.victimsearch.search import workers
from muster.core.victimsearch.sites import Site, site_of
from muster.events.base import Cause, Decision
from muster.events.decisions import PreemptionProposed, ReclaimDeferred
from muster.events.reasons import ClaimKind, DeferralReason, OrderKind
from muster.model.demand import Shortfall
from muster.model.keys import root_of
from muster.model.resources import add_into
from muster.model.victims import PartialVictim, Victim

# --- enlisting --------------------------------------------------------------------------------------------------------


def enlist(state: PreemptorState, uid: str) -> None:
    """Bring a workload's place among the runs in line with the facts."""
    started, workload = state.started.get(uid), state.running(uid)
    if started is None and (workload is None or workload.suspended):
        return
    charge = state.queues.ledger.charges.get(uid)
    if started is not None and started.listed:
        runs = state.runs[started.leaf]
        del runs[bisect_left(runs, started.run)]
        if not runs:
            del state.runs[started.leaf]
        started.listed = False
        state.served.pop(uid, None)
        state.alike.remove(started.leaf, started.run, started.gives)
        _sum(state, started, -1)
        weigh(state, started.leaf)
    if charge is None or workload is None:
        state.started.pop(uid, None)
        state.ends.stopped(uid)
        return
    if started is None:
        state.ends.began(workload.ref, charge, state.now)
    since = started.since if started is not None else state.now
    job = state.queues.jobs.get(uid)
    priority = job.priority if job is not None else state.queues.priority_of(workload)
    came = job.queued_at if job is not None else workload.queued_at or workload.created
    # Work beyond its grant is evicted first of its priority.
    kept = max(since, min(workload.checkpointed_at, state.now))
    run = Run(priority, FIRST if charge.over else -kept, -came, workload.ref.key, uid)
    started = state.started[uid] = Started(charge.queue, run, since, kept)
    holding = state.charged.get(uid)
    stays = uid not in state.leaving and (holding is None or holding.left is None)
    if charge.preemptible and stays and can_suspend(workload):
        insort(state.runs.setdefault(charge.queue, []), started.run)
        started.listed, started.gives = True, counted(charge.demand)
        state.alike.add(started.leaf, started.run, started.gives)
        _sum(state, started, 1)
        weigh(state, started.leaf)
        rules = state.queues.ledger.rules_of(charge.queue)
        level = state.service.gives_way(rules, uid, charge.request, kept - since) if rules.least_attained_ms else 0
        if level:
            state.served[uid] = level


def weigh(state: PreemptorState, queue: str) -> None:
    """Note whether a leaf is outranked."""
    state.outranked.pop(queue, None)
    if is_outranked(state, queue):
        state.outranked[queue] = None


def is_outranked(state: PreemptorState, queue: str) -> bool:
    """Whether work in a leaf has lower priority than a job that waits in the leaf or found no place."""
    line, unplaced = state.queues.book.lines.get(queue), state.unplaced_in.get(root_of(queue), {}).get(queue)
    negated = min(line[0][0].below if line else UNBOUNDED, unplaced[0][0] if unplaced else UNBOUNDED)
    return queue in state.runs and state.runs[queue][0].priority < -negated


def _sum(state: PreemptorState, started: Started, times: int) -> None:
    by_priority = state.sums.setdefault(started.leaf, {})
    sums = by_priority.setdefault(started.run.priority, {})
    add_into(sums, started.gives, times)
    if not sums:
        del by_priority[started.run.priority]
        if not by_priority:
            del state.sums[started.leaf]


# --- owed -------------------------------------------------------------------------------------------------------------


May = Callable[[str], bool]
"""Whether a running job may be suspended, by uid."""


def owed(state: PreemptorState, job: Job, site: Site | None, may: May | None = None) -> Found:
    """The victims for owed quota. ``may``: replaces the check whether a job may be evicted now."""
    ledger, queue, demand = state.queues.ledger, job.queue, job.demand
    shares = shares_with(ledger, job.ref.uid, queue, demand) if ledger.by_shares(queue) else None
    candidates = state.candidates(queue, may)
    if site is not None:
        candidates = with_moves(state, job, candidates)
    return search.owed(basis(ledger, job.ref.uid), queue, demand, candidates, site, shares)


def with_moves(state: PreemptorState, job: Job, candidates: Candidates) -> Candidates:
    """The candidates, with the jobs that may move for the claimant, of any queue and priority: moved jobs go on
    elsewhere.

    A job that took part in a move takes part in no other for an hour, so no two jobs can move each other.
    """
    lately = {uid for uid, at in state.moved.items() if at > state.now - HOUR_MS}
    if job.ref.uid in lately:
        return candidates

    def may(uid: str) -> bool:
        return uid not in lately and state.may_evict(uid, job.queue) and may_move(state.places, uid)

    return replace(candidates, moves=may, most=state.moves)


def outranked(
    state: PreemptorState, job: Job, site: Site | None, may: May | None = None, *, others: bool = True
) -> Found:
    """The victims for the priority of a job. ``may``: as for ``owed``. ``others``: victims of other
    queues are allowed.
    """
    ledger, queue = state.queues.ledger, job.queue
    given, reclaims = basis(ledger, job.ref.uid), others and ledger.rules_of(queue).reclaim != "disabled"
    candidates = state.candidates(queue, may)
    return search.outranked(given, queue, job.demand, job.priority, candidates, site, reclaims=reclaims)


def nodes_for(state: PreemptorState, job: Job) -> Site | None:
    """The nodes as a job sees them; None where jobs are not placed on nodes, or where node pools may add nodes."""
    return None if state.places.pools else site_now(state, job)


def site_now(state: PreemptorState, job: Job) -> Site | None:
    """The nodes as a job sees them, without the nodes of pools; None where jobs are not placed."""
    layout = laid_out(state.queues.ledger.nodes, job.queue)
    return site_of(state.places, job.ref.uid, layout, job.growth, job.demand.pods)


# --- plans ------------------------------------------------------------------------------------------------------------


def reclaim(state: PreemptorState, shape: Shape, job: Job) -> Decision:
    """A proposal to evict borrowers above their own guarantee, or a deferral with the reason.

    Leaving jobs may free all the missing quota and still no place: then the victims are for places alone.
    """
    cause, short = _refusal(state, shape, job)
    if state.grace_over_at(job) is None:
        return _deferral(state, job, cause, short, "grace", state.now + state.grace_ms(job))
    given = basis(state.queues.ledger, job.ref.uid)
    site = nodes_for(state, job)
    withheld: Withheld = "" if state.reclaims(job.queue) else "reclaim_disabled"
    lacks = given.refusal(shape.queue, shape.demand) is not None
    if not lacks and (site is None or site.fits(())):
        return _proposal(state, job, cause, short, kind="guarantee", withheld=withheld)
    plan = owed(state, job, site)
    uids = plan.uids if not _wastes(state, job, short, plan.uids) else []
    parts = _parts(state, shape, given, uids) if lacks else ()
    if parts:
        return _proposal(state, job, cause, short, kind="guarantee", partial=parts, withheld=withheld)
    if lacks and not uids and state.queues.ledger.nodes[shape.queue].preempts and state.may_be_next(job):
        proposal = _in_its_queue(state, shape, job, cause, short)
        if proposal is not None:
            return proposal
    if not uids:
        paused = any("evictions" in state.queues.resting(leaf) for leaf in state.runs)
        unpaused = partial(state.may_evict_unpaused, queue=shape.queue)
        paused = paused and bool(owed(state, job, site, unpaused).uids)
        from_then = state.evictable_from(shape.queue)
        reason: DeferralReason = "evictions_paused" if paused else "too_young" if from_then else "nothing_evictable"
        if reason == "nothing_evictable" and site is not None and (not lacks or owed(state, job, None).uids):
            reason = "search_ended" if plan.gave_up else "no_place"
        return _deferral(state, job, cause, short, reason, from_then)
    chosen = tuple(_leaving(state, plan, uid) for uid in uids)
    made = _proposal(state, job, cause, short, kind="guarantee", victims=chosen, withheld=withheld)
    return made if lacks else replace(made, for_places=True)


def _wastes(state: PreemptorState, job: Job, short: Shortfall, uids: list[str]) -> bool:
    """Whether the victims are more than a job lacks, while other victims leave for the same job. The new victims would
    make room elsewhere. The earlier victims would have left for nothing.
    """
    ledger = state.queues.ledger
    claim, gives = ledger.claims.by_uid.get(job.ref.uid), [0]
    if claim is None or not claim.awaits:
        return False
    gives += (counted(ledger.charges[uid].demand).get(short.resource, 0) for uid in uids)
    return sum(gives) - max(gives) >= short.missing


def _parts(
    state: PreemptorState, shape: Shape, given: Basis, whole: list[str], below: int | None = None
) -> tuple[PartialVictim, ...]:
    """Workers to release of Ray clusters, instead of whole jobs; no cluster has a higher priority than these jobs.

    ``below``: only clusters of the claimant's queue with a priority lower than this; None: clusters of other queues.
    """
    givers = state.spares()
    if not givers:
        return ()
    most = max((state.started[uid].run.priority for uid in whole), default=None)
    candidates = state.candidates(shape.queue, state.may_give_workers)
    chosen = workers(given, shape.queue, shape.demand, candidates, givers, most, below=below)
    attempts = {uid: state.charged[uid].attempt for uid in chosen}
    priorities = {uid: state.started[uid].run.priority if below is not None else None for uid in chosen}
    return as_victims(chosen, state.queues.workloads, attempts, state.queues.ledger.charges, givers, priorities)


def preempt(state: PreemptorState, shape: Shape, job: Job) -> Decision:
    """A proposal to evict work of lower priority in the claimant's queue, or a deferral with the reason. No work is
    evicted where the quota is free, and held for the age of a job of lower priority.
    """
    ledger = state.queues.ledger
    if shape.denial is not None and basis(ledger, job.ref.uid).refusal(shape.queue, shape.demand) is None:
        held = ledger.shortfall(shape.queue, shape.demand, now=state.now, uid=job.ref.uid)
        return _proposal(state, job, shape.denial.cause, held, kind="priority", priority=job.priority)
    cause, short = _refusal(state, shape, job)
    proposal = _in_its_queue(state, shape, job, cause, short)
    if proposal is not None:
        return proposal
    site = nodes_for(state, job)
    young = bool(outranked(state, job, site, lambda _: True).uids)
    reason: DeferralReason = "lower_too_young" if young else "lower_stays"
    if outranked(state, job, site, partial(state.may_evict_unpaused, queue=job.queue)).uids:
        reason = "lower_paused"
    elif not young and site is not None and (plan := outranked(state, job, None)).uids:
        reason = "search_ended" if plan.gave_up else "no_place"
    until = state.evictable_from(job.queue, own=True) if young else 0
    return _deferral(state, job, cause, short, reason, until)


def clear(
    state: PreemptorState, unplaced: UnplacedClaimant, job: Job, kind: OrderKind, plan: Found
) -> PreemptionProposed:
    """A proposal to evict or move jobs for a job without a place. The quota may be short as well."""
    inside = job if kind == "priority" else None
    chosen = tuple(replace(_victim(state, uid, inside), moves=uid in plan.moving) for uid in plan.uids)
    short = basis(state.queues.ledger, job.ref.uid).refusal(job.queue, job.demand)
    priority = job.priority if inside else None
    return _proposal(state, job, unplaced.cause, short, kind=kind, victims=chosen, priority=priority)


def serve(state: PreemptorState, shape: Shape, job: Job, uids: list[str]) -> Decision:
    """A proposal to evict work with more service than the claimant."""
    cause, short = _refusal(state, shape, job)
    chosen = tuple(_victim(state, uid) for uid in uids)
    withheld: Withheld = "" if state.reclaims(job.queue) else "reclaim_disabled"
    return _proposal(state, job, cause, short, kind="service", victims=chosen, withheld=withheld)


def hold(state: PreemptorState, shape: Shape, job: Job, top: Shortfall) -> Decision:
    """A proposal to hold released quota for the claimant, up to the uppermost limit that refuses the job."""
    cause = shape.denial.cause if shape.denial is not None else job.cause
    idles_ms = state.passing.idles_ms(job.ref.uid, state.now)
    return replace(_proposal(state, job, cause, top, kind="age"), idles_ms=idles_ms)


Withheld = Literal["", "reclaim_disabled"]


def _refusal(state: PreemptorState, shape: Shape, job: Job) -> tuple[Cause, Shortfall]:
    """The cause of the shape's denial, and the present shortfall without regard to age claims."""
    short = basis(state.queues.ledger, job.ref.uid).short(shape.queue, shape.demand)
    if shape.denial is None or short is None:
        raise AssertionError(f"{job.ref} is parked and fits")
    return shape.denial.cause, short


def _in_its_queue(
    state: PreemptorState, shape: Shape, job: Job, cause: Cause, short: Shortfall
) -> PreemptionProposed | None:
    """The proposal to evict work of lower priority in the claimant's queue; workers before whole jobs. None without
    room.
    """
    uids = outranked(state, job, nodes_for(state, job)).uids
    parts = _parts(state, shape, basis(state.queues.ledger, job.ref.uid), uids, below=job.priority)
    if not uids and not parts:
        return None
    chosen = () if parts else tuple(_ending(state, _victim(state, uid, job)) for uid in uids)
    disabled = state.queues.ledger.rules_of(job.queue).reclaim == "disabled"
    outranks = bool(parts) or any(victim.priority is not None for victim in chosen)
    return _proposal(
        state,
        job,
        cause,
        short,
        kind="priority" if outranks else "guarantee",
        victims=chosen,
        partial=parts,
        withheld="" if disabled or state.reclaims(job.queue) else "reclaim_disabled",
        priority=job.priority if outranks else None,
    )


def _deferral(
    state: PreemptorState, job: Job, cause: Cause, short: Shortfall, reason: DeferralReason, until: int
) -> ReclaimDeferred:
    """No eviction for the claimant now. ``until``: log time (ms) of a possible change; 0: only an event may change the
    answer.
    """
    return ReclaimDeferred(
        cause=cause,
        ref=job.ref,
        attempt=job.attempt,
        queue=job.queue,
        path=short.path,
        resource=short.resource,
        reason=reason,
        until=until,
        supply=state.supply,
        nodes=state.places.ledger.changes if reason in ("no_place", "search_ended") or state.has_lost_nodes() else -1,
        growth=job.growth,
    )


def _proposal(
    state: PreemptorState,
    job: Job,
    cause: Cause,
    short: Shortfall | None,
    *,
    kind: ClaimKind,
    victims: tuple[Victim, ...] = (),
    partial: tuple[PartialVictim, ...] = (),
    withheld: Withheld = "",
    priority: int | None = None,
) -> PreemptionProposed:
    """A proposal, where pods are placed with the places of the claimant and of the victims that move. Victims that
    would start again on the same nodes are left out.
    """
    site, gone = site_now(state, job) if victims and not withheld else None, [victim.ref.uid for victim in victims]
    moving = [victim.ref.uid for victim in victims if victim.moves]
    places, moves = site.places(gone, moving) if site is not None else ((), ())
    moved = [move.uid for move in moves] if site is not None else moving
    return PreemptionProposed(
        cause=cause,
        ref=job.ref,
        attempt=job.attempt,
        queue=job.queue,
        **job.demand.fields,
        kind=kind,
        victims=tuple(victim for victim in victims if not victim.moves or victim.ref.uid in moved),
        partial=partial,
        short=short,
        withheld=withheld,
        supply=state.supply,
        nodes=state.places.ledger.changes if victims and state.places.placement.strategy is not None else -1,
        priority=priority,
        placement=laid_out(state.queues.ledger.nodes, job.queue) if victims else "",
        growth=job.growth,
        places=places,
        moves=moves,
    )


def _victim(state: PreemptorState, uid: str, claimant: Job | None = None) -> Victim:
    """``claimant``: the job that outranks the victim, where both are in the same queue."""
    charge, workload = state.queues.ledger.charges[uid], state.job_of(uid)
    attempt = state.charged[uid].attempt
    outranked = claimant is not None and charge.queue == claimant.queue
    priority = state.started[uid].run.priority if outranked else None
    return Victim(workload.ref, attempt, charge.queue, charge.request, charge.pods, priority)


def _leaving(state: PreemptorState, plan: Found, uid: str) -> Victim:
    """A victim of a plan: the job moves, is left to end, or is suspended."""
    victim = _victim(state, uid)
    return replace(victim, moves=True) if uid in plan.moving else _ending(state, victim)


def _ending(state: PreemptorState, victim: Victim) -> Victim:
    """A victim expected to end before a suspension would free its quota is left to end, once in a run."""
    ends_by = state.ends_by(victim.ref)
    return replace(victim, ends_by=ends_by) if ends_by else victim


# --- underserved ------------------------------------------------------------------------------------------------------


def underserved(state: PreemptorState) -> tuple[Shape, Job, list[str]] | None:
    """The first job that evictions for service could admit, with the uids of the victims; None without such a job."""
    if not state.served:
        return None
    most, ledger = max(state.served.values()), state.queues.ledger
    claimants: list[tuple[tuple[int, int, int, str], Shape, Job]] = []
    for queue in state.queues.book.queues:
        rules = ledger.rules_of(queue)
        asked = rules.least_attained_ms and rules.reclaim != "disabled"
        for shape, job in state.claimants(state.parked(queue)) if asked else ():
            if not shape.demand.preemptible:
                continue
            level = state.service.level(rules, job.ref.uid)
            if level < most and state.may_be_next(job) and state.is_refused(shape):
                claimants.append(((-job.priority, level, job.rank, job.ref.uid), shape, job))
    claimants.sort(key=lambda entry: entry[0])
    given: Basis | None = None
    for (_, level, _, uid), shape, job in claimants:
        given = given or basis(ledger)
        mine = basis(ledger, uid) if uid in ledger.claims.by_uid else given
        if mine.refusal(shape.queue, shape.demand) is None:
            continue  # Only a claim for age refuses the job, or jobs that leave.
        chosen = _victims(state, mine, job, level)
        if chosen:
            return shape, job, chosen
    return None


def _victims(state: PreemptorState, given: Basis, job: Job, level: int) -> list[str]:
    """Victims above the claimant's level, the highest level first, then the least lost work."""
    root, runs = root_of(job.queue), dict[str, list[Run]]()
    for uid, above in state.served.items():
        started = state.started[uid]
        fresh = state.now - started.kept <= service.FRESH_MS and root_of(started.leaf) == root
        if fresh and above > level and started.run.priority <= job.priority:
            runs.setdefault(started.leaf, []).append(started.run._replace(priority=-above))
    for work in runs.values():
        work.sort()
    candidates = state.candidates(job.queue).only(runs)
    return search.underserved(given, job.queue, job.demand, candidates, nodes_for(state, job)).uids if runs else []
