"""Plans, orders and claims in the accountant: their folds, its answers to plans, and the end of claims.

A plan is judged as if every earlier claim were served and its victims gone. Three conditions: the claimant would be
admitted then; the victims leave for no other claim; the rules of reclaim or of priority allow the victims. An age claim
opens where no other age claim is held at one of its nodes.

Backfill beside age claims, by declared run times (EASY): the promised start of a claimant, and the jobs admitted
because they declare to leave before. Only declared times count, nothing learned. A promise is made once, when the claim
opens, and never moves. The promise ends when a job behind the promise is late; then backfill beside the claim ends too.

Jobs that move, so that another job has room on nodes, keep their quota. A moving job is suspended and queued again
under a new attempt, still charged. Once its pods are gone, one commit ends the charge and reserves the same charge for
the new attempt, so no other job gets the quota. Until then the charge counts as released for no other job. A job that
no longer waits in the same way (held, paused, moved to another queue, edited, deleted) loses the charge, as after any
other suspension.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

from msgspec import structs
from msgspec.structs import replace

from muster.core.objects.meta import quota_name
from muster.core.quota import rayclaims
from muster.core.quota.accountantstate import AccountantState, Entry, Plan, evictable
from muster.core.quota.accounting import growth
from muster.core.quota.accounting.rechecks import entry_of, recheck
from muster.core.quota.candidates import Objection, basis, search
from muster.core.quota.claims import Claim
from muster.core.quota.demand import Scratch, chain_of, counted, demand_of, laid_out
from muster.core.quota.endings import comes_back, is_lost, overdue_at, unjustified, why_over
from muster.core.quota.evictionrules import OfService, giving_objection, rules
from muster.core.quota.ledger.books import claim_of
from muster.core.quota.ledger.idling import spent_at
from muster.core.quota.ledger.kaitimes import protected_ms
from muster.core.quota.ledger.quotaledger import Ledger, shares_with, waits
from muster.core.stage import Violation
from muster.events.base import Cause, Decision
from muster.events.claims import ClaimEnded, ClaimOpened, PlanStale, StayReason, VictimStays
from muster.events.decisions import EvictionOrdered, PreemptionProposed, QuotaReleased, QuotaReserved
from muster.events.system import PlacementChosen
from muster.model.demand import Demand, Shortfall
from muster.model.keys import Position
from muster.model.victims import Victim
from muster.model.workload import Workload

# --- folds ------------------------------------------------------------------------------------------------------------


def preemption_proposed(state: AccountantState, at: Position, event: PreemptionProposed) -> None:
    if not event.withheld:
        state.plans[event.ref.uid] = Plan(event, Cause(at.seq, at.item))


def placement_chosen(state: AccountantState, at: Position, event: PlacementChosen) -> None:
    state.places = event.strategy is not None
    state.forest.placed(state.places, Cause(at.seq, at.item))
    state.native_grow_ms, state.native_hold_ms = event.grow_ms, event.hold_ms


def ordered(state: AccountantState, at: Position, event: EvictionOrdered | ClaimOpened) -> None:
    state.plans.pop(event.ref.uid, None)
    state.ledger.ordered(event, at.at)
    state.claim_causes[event.ref.uid] = Cause(at.seq, at.item)
    recheck(state, event.ref.uid)
    if isinstance(event, ClaimOpened):
        return
    for victim in event.victims:
        entry = entry_of(state, victim.ref.uid, victim.attempt)
        if entry is not None:
            preempts = victim.priority is not None or event.kind == "service"
            entry.leaving = "moved" if victim.moves else "preempted" if preempts else "evicted"
            entry.suspended_rv, entry.ends_by = 0, victim.ends_by
            recheck(state, victim.ref.uid)
    growth.parts_ordered(state, event)


def plan_stale(state: AccountantState, _at: Position, event: PlanStale) -> None:
    state.plans.pop(event.ref.uid, None)


def victim_stays(state: AccountantState, at: Position, event: VictimStays) -> None:
    state.ledger.victim_stays(event.ref.uid, event.attempt, at.at)
    entry = entry_of(state, event.ref.uid, event.attempt)
    if entry is not None and event.reason == "not_ended":
        entry.leaving, entry.ends_by = "", 0
    recheck(state, event.ref.uid)


def claim_ended(state: AccountantState, _at: Position, event: ClaimEnded) -> None:
    ended = state.ledger.end_claim(event.ref.uid)
    state.claim_causes.pop(event.ref.uid, None)
    for uid in (event.ref.uid, *(ended.victims if ended is not None else ())):
        recheck(state, uid)


# --- backfill ---------------------------------------------------------------------------------------------------------


def promised_at(state: AccountantState, claim: Claim) -> int:
    """Log time (ms) by which enough has left for a new claim; 0 where run times are not declared.

    A job does not count when leaving for another claim, late, or without a declared run time. No job counts where
    limits move with the usage of others: lend limits, and shares by weight.
    """
    ledger, amounts = state.ledger, counted(claim.demand)
    if ledger.lends or ledger.shares.names:
        return 0
    held, own = ledger.claims.total.extra, ledger.claims.by_uid.get(claim.uid)
    ends = sorted(
        (charge.until, uid)
        for uid, charge in ledger.charges.items()
        if charge.until > state.now and not state.entries[uid].leaving
    )
    latest = 0
    for path in claim.paths():
        node = ledger.nodes.get(path)
        mine = own.held_at(path) if own is not None and path in own.paths() else {}
        for name in sorted(amounts) if node is not None else ():
            limit = ledger.limit(node, name) if node is not None else None
            if limit is None or not amounts[name]:
                continue
            taken = ledger.used.get(path, {}).get(name, 0) + held.get(path, {}).get(name, 0)
            asked = amounts[name] - mine.get(name, 0)  # The claimant's own claim does not count against it.
            until = _enough(ledger, ends, path, name, taken + asked - limit)
            if until is None:
                return 0
            latest = max(latest, until)
    return latest


def _enough(ledger: Ledger, ends: list[tuple[int, str]], path: str, name: str, lacking: int) -> int | None:
    """Log time (ms) by which the lacking amount has left at a node; 0 without a lack, None where too little leaves."""
    if lacking <= 0:
        return 0
    for until, uid in ends:
        charge = ledger.charges[uid]
        if path in chain_of(charge.queue):
            lacking -= counted(charge.demand).get(name, 0)
            if lacking <= 0:
                return until
    return None


def claim_passed(ledger: Ledger, queue: str, demand: Demand, scratch: Scratch, now: int) -> Claim | None:
    """The claim that a job passes at ``now`` by its declared run time; None where the job fits without passing a claim.

    Of several claims the first promised: a job that has left by then has left before the other claims are served.
    """
    if not demand.run_ms or not ledger.claims.by_uid or ledger.shortfall(queue, demand, scratch) is None:
        return None
    chain = chain_of(queue)
    passed = ledger.claims.passed(queue, demand, now)
    mine = (claim for claim in passed if any(path in chain for path in claim.paths()))
    return min(mine, key=lambda claim: claim.promised, default=None)


# --- moving -----------------------------------------------------------------------------------------------------------


def handed_on(
    state: AccountantState, entry: Entry, released: QuotaReleased, scratch: Scratch
) -> Iterator[QuotaReleased | QuotaReserved]:
    """The end of the charge of a job suspended to move, and the same charge for the next attempt.

    ``scratch``: without the charge; a reservation is added.
    """
    workload = state.workloads.get(entry.ref.uid)
    queued = state.ledger.attempts.get(entry.ref.uid, 0) > entry.attempt
    if workload is None or not queued or not comes_back(state, entry, workload):
        yield replace(released, reason="evicted")
        return
    tree, priority = state.ledger.tree_of(entry.queue), state.priorities.get(entry.ref.uid)
    demand = demand_of(tree, workload, priority, queue=entry.queue, flavors=entry.flavors)
    same = replace(demand, basis="").alike(state.ledger.charges[entry.ref.uid].demand)
    if not same or state.ledger.without_claims().shortfall(entry.queue, demand, scratch) is not None:
        yield replace(released, reason="evicted")
        return
    scratch.add(entry.queue, demand)
    yield released
    yield reservation_of_move(
        state, released.cause, workload, state.ledger.attempts[entry.ref.uid], entry.queue, demand
    )


def reservation_of_move(
    state: AccountantState, cause: Cause, workload: Workload, attempt: int, queue: str, demand: Demand,
    passed: Claim | None = None, served: Claim | None = None, *, owed: bool = False,
) -> QuotaReserved:  # fmt: skip
    """A reservation of quota for a workload in its current state.

    ``passed``: the age claim that the job passes; ``served``: the claim that the job ends; ``owed``: the request is
    within a guarantee.
    """
    return QuotaReserved(
        cause=cause,
        ref=workload.ref,
        attempt=attempt,
        queue=queue,
        **demand.fields,
        named=quota_name(workload.labels),
        placement=laid_out(state.ledger.nodes, queue),
        beside=passed.ref.key if passed is not None else "",
        promised=passed.promised if passed is not None else 0,
        owed=owed,
        serves=served.uid if served is not None and served.uid != workload.ref.uid else "",
    )


# --- claiming ---------------------------------------------------------------------------------------------------------


def ends(state: AccountantState) -> Iterator[ClaimEnded]:
    """Claims without a reason, or without progress for too long."""
    due = state.due_end
    for claim in _may_end(state, due):
        outcome, until = why_over(state, claim) if claim.uid in due else None, expires_at(state, claim)
        if outcome is None and until is not None and state.now >= until:
            outcome = "expired" if claim.firm else "idle"
        if outcome is not None:
            cause = state.causes.get(claim.uid, state.claim_causes[claim.uid])
            yield ClaimEnded(cause=cause, ref=claim.ref, outcome=outcome)


def expiries(state: AccountantState) -> Iterator[int]:
    """Log times (ms) at which claims without progress end."""
    times = (expires_at(state, claim) for claim in _may_end(state))
    return (at for at in times if at is not None)


def _may_end(state: AccountantState, due: Container[str] = ()) -> list[Claim]:
    """The claims that time may end, and the claims due to end. Most other claims wait for leaving victims."""
    claims = state.ledger.claims
    return [claim for uid, claim in claims.by_uid.items() if not claim.victims or uid in claims.aged or uid in due]


def expires_at(state: AccountantState, claim: Claim) -> int | None:
    """Log time (ms) at which a claim without progress ends; None while victims are leaving. An age claim ends once
    enough was idle for it.

    Victims of other claims count too: quota held by other claims may become free for this claim once their victims are
    gone.
    """
    if not claim.firm:
        return spent_at(state.ledger, claim)
    if claim.awaits or _comes_nearer(state, claim):
        return None
    return claim.progress + state.ledger.rules_of(claim.queue).claim_ms


def _comes_nearer(state: AccountantState, claim: Claim) -> bool:
    """Whether a leaving victim releases a requested resource at a node on the claim's path."""
    leaving, asked = state.ledger.leaving.extra, claim.demand.request
    return any(asked.get(name) for path in claim.paths() for name in leaving.get(path, ()))


def stays(state: AccountantState) -> Iterator[VictimStays]:
    """Victims that no claim should await any more."""
    if not state.due_stay and not any(at <= state.now for at in state.overdue.values()):
        return
    for uid, leaver in state.ledger.claims.going.items():
        entry = state.entries.get(uid) if leaver.gives is None else None
        overdue = (at := overdue_at(entry)) is not None and state.now >= at
        if entry is not None and (overdue or uid in state.due_stay):
            cause = state.causes.get(uid, entry.cause)
            late: StayReason = "not_ended" if entry.ends_by else "overdue"
            reason: StayReason = late if overdue else "node_lost" if is_lost(state, uid) else "runs_again"
            yield VictimStays(cause=cause, ref=entry.ref, attempt=leaver.attempt, reason=reason)


def forgotten(state: AccountantState) -> Iterator[Violation]:
    """Differences between the stored claims and the claims that follow from the state."""
    over = {uid for uid, claim in state.ledger.claims.by_uid.items() if why_over(state, claim) is not None}
    if over != state.due_end.keys():
        yield Violation("I5", f"claims are over: {sorted(over)[:5]}, and marked so: {[*state.due_end][:5]}")
    whole = (uid for uid, leaver in state.ledger.claims.going.items() if leaver.gives is None)
    entries = {uid: state.entries[uid] for uid in whole if uid in state.entries}
    runs = {uid for uid, entry in entries.items() if not entry.leaving or is_lost(state, uid)}
    late = {uid: at for uid, entry in entries.items() if (at := overdue_at(entry)) is not None}
    if runs != state.due_stay.keys():
        yield Violation("I5", f"victims run on: {sorted(runs)[:5]}, and marked so: {[*state.due_stay][:5]}")
    if late != state.overdue:
        yield Violation("I5", f"victims are overdue: {late}, and marked so: {state.overdue}")


def answers(state: AccountantState) -> Iterator[Decision]:
    """Answers to proposed preemptions, up to the first new claim: later proposals are judged beside the new claim."""
    for plan in state.plans.values():
        proposed = plan.proposed
        reason, holder = _objection(state, proposed)
        if reason:
            yield PlanStale(cause=plan.cause, ref=proposed.ref, attempt=proposed.attempt, reason=reason, holder=holder)
            continue
        common: dict[str, Any] = {
            "cause": plan.cause,
            "ref": proposed.ref,
            "attempt": proposed.attempt,
            "queue": proposed.queue,
            **proposed.demand.fields,
        }
        short = proposed.short or _refusal(state, proposed)
        path, resource = (short.path, short.resource) if short is not None else ("", "")
        if proposed.kind == "age":
            opened = ClaimOpened(**common, top=path, idles_ms=proposed.idles_ms)
            promised = promised_at(state, claim_of(opened, state.now))
            yield structs.replace(opened, promised=promised) if promised else opened
        elif not (proposed.victims or proposed.partial):
            yield ClaimOpened(**common, kind=proposed.kind)
        else:
            yield EvictionOrdered(
                **common,
                kind=proposed.kind,
                victims=proposed.victims,
                partial=proposed.partial,
                path=path,
                resource=resource,
                owing=_owing_node(state, proposed),
                priority=proposed.priority,
                moves=proposed.moves,
                growth=proposed.growth,
            )
        return


def _owing_node(state: AccountantState, proposed: PreemptionProposed) -> str:
    """The node above the claimant's queue whose guarantee covers the claimant; empty where the queue's own does."""
    if proposed.kind != "guarantee" or not state.ledger.pooled or state.ledger.by_shares(proposed.queue):
        return ""
    level = basis(state.ledger, proposed.ref.uid).owed_at(proposed.queue, proposed.demand)
    return level if level != proposed.queue else ""


def _refusal(state: AccountantState, proposed: PreemptionProposed) -> Shortfall | None:
    """The shortfall of a claimant now, with all claims served."""
    return basis(state.ledger, proposed.ref.uid).refusal(proposed.queue, proposed.demand)


def _objection(state: AccountantState, proposed: PreemptionProposed) -> tuple[Objection, str]:
    """(why a proposed preemption does not hold, empty when it holds; the job that holds the wanted quota)."""
    demand, claims = proposed.demand, state.ledger.claims
    if not (rayclaims.is_asked(state, proposed) if proposed.growth is not None else _waits_so(state, proposed)):
        return "not_waiting", ""
    if proposed.kind == "age" and proposed.short is not None:
        if state.ledger.shortfall(proposed.queue, demand, now=state.now) is None:
            return "fits", ""
        mine = (path for path in chain_of(proposed.queue) if len(path) >= len(proposed.short.path))
        other = next((claim for claim in claims.aged_at(mine) if claim.uid != proposed.ref.uid), None)
        return ("held_for_age", other.ref.key) if other is not None else ("", "")
    if proposed.partial:
        return _partial_objection(state, proposed), ""
    return _of_victims(state, proposed), ""


def _of_victims(state: AccountantState, proposed: PreemptionProposed) -> Objection:
    """Why the victims are not suspended. Judged is what may have changed since the plan: a priority, or the service of
    former runs, belongs to an attempt and stays.
    """
    uid, queue, demand, for_nodes = proposed.ref.uid, proposed.queue, proposed.demand, proposed.short is None
    if for_nodes and not state.places:
        return "fits"
    if for_nodes and uid not in state.ledger.asks and _refusal(state, proposed) is not None:
        return "not_waiting"  # Only a job in a queue has a claim.
    if not proposed.victims:
        return _alone(state, proposed)
    if not all(may_leave(state, victim, queue) for victim in proposed.victims):
        return "victim_protected"
    given = basis(state.ledger, uid)
    if proposed.kind == "move":
        return "not_enough" if given.refusal(queue, demand) is not None else ""
    chosen = [victim.ref.uid for victim in proposed.victims if not victim.moves]
    own = any(state.entries[victim].queue == queue for victim in chosen)
    shares = shares_with(state.ledger, uid, queue, demand) if state.ledger.by_shares(queue) else None
    judge = OfService(queue) if proposed.kind == "service" else rules(given, queue, demand, inside=own, shares=shares)
    spare = proposed.for_places and state.places and given.refusal(queue, demand) is None
    begun = search(given, queue, demand, places=for_nodes or spare)
    begun.places = state.places
    return giving_objection(judge, begun, chosen, places=state.places)


def _waits_so(state: AccountantState, proposed: PreemptionProposed) -> bool:
    """Whether a job waits in the same state as in its proposal."""
    uid, workload = proposed.ref.uid, state.workloads.get(proposed.ref.uid)
    return (
        workload is not None
        and waits(workload)
        and uid not in state.entries
        and state.ledger.attempts.get(uid) == proposed.attempt
        and unjustified(state, workload, proposed.queue) is None
        and proposed.demand
        == demand_of(
            state.ledger.tree_of(proposed.queue),
            workload,
            state.priorities.get(uid),
            queue=proposed.queue,
            flavors=proposed.flavors,
        )
    )


def _alone(state: AccountantState, proposed: PreemptionProposed) -> Objection:
    """A claim without victims is for a claimant with owed quota, until the victims of other claims have left; or for a
    claimant that outranks the work of its queue, where only claims for age refuse it.
    """
    given, queue, demand = basis(state.ledger, proposed.ref.uid), proposed.queue, proposed.demand
    if state.ledger.shortfall(queue, demand, now=state.now, uid=proposed.ref.uid) is None:
        return "fits"
    if proposed.kind == "priority" and given.refusal(queue, demand) is None:
        return "" if state.ledger.nodes[queue].preempts else "not_preempting"
    if proposed.kind != "guarantee" or given.awaited(queue, demand) is None:
        return "no_victims"
    return rules(given, queue, demand).claims()


def _partial_objection(state: AccountantState, proposed: PreemptionProposed) -> Objection:
    """The objection to clusters that release workers. A proposal never has whole victims beside such clusters.

    The minimum run times of KAI queues protect gangs, and not the growth of a gang.
    """
    spares = {}
    for part in proposed.partial:
        uid, entry, workload = part.ref.uid, state.entries.get(part.ref.uid), state.workloads.get(part.ref.uid)
        if entry is None or workload is None or proposed.victims or not evictable(state, uid, part.attempt):
            return "victim_protected"
        if uid in state.returns:
            return "victim_protected"
        tree, elastic = state.ledger.tree_of(entry.queue), state.scaling.of(workload)
        spares[uid] = rayclaims.spare_of(elastic, entry.groups, tree, entry.flavors)
    given, inside = basis(state.ledger, proposed.ref.uid), proposed.kind == "priority"
    return rayclaims.workers_objection(given, proposed.queue, proposed.demand, proposed.partial, spares, inside=inside)


def may_leave(state: AccountantState, victim: Victim, claimant: str) -> bool:
    """Whether a victim may be suspended now for a job of queue ``claimant``: still running in the proposed queue, and
    not protected by a minimum run time. A job that moves has all its pods.
    """
    entry = state.entries.get(victim.ref.uid)
    if entry is None or not evictable(state, victim.ref.uid, victim.attempt) or (victim.moves and entry.short_since):
        return False
    least = protected_ms(state.ledger, victim.queue, claimant)
    return entry.queue == victim.queue and state.now - entry.since >= least
