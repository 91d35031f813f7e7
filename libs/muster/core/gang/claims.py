"""A gang that has waited too long claims nodes: what becomes free there is kept for it, so that a big gang does not
starve behind small ones. What still fits beside the claim goes on.

Gangs of pods and gangs of jobs claim alike. There is one claim at a time. It ends when the gang has its places, is
gone, has had its time, or a gang that has waited longer takes its turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec.structs import replace

from muster.core.gang import state as g
from muster.core.gang.podgang import Claimant, NodeClaim, PodGang
from muster.core.gang.state import AdmitterState, Reservation
from muster.core.placement.place import Strategy, place
from muster.core.placement.view import Ask, View, need_of
from muster.events.base import Cause, Decision
from muster.events.decisions import GangAwaitingNodes, GangDeferred, Placement, Shortage, WorkloadDequeued
from muster.events.gangs import NodesClaimed, NodesClaimEnded
from muster.model.keys import Position, Ref

AGE_MS = 10 * 60_000
"""How long a gang of pods has been tried in vain when it may claim nodes, where the log says nothing else."""
CLAIM_MS = 30 * 60_000
"""How long a claim lasts, and how long its gang may not claim again after that."""

Outcome = Literal["placed", "gone", "expired", "changed", "yielded"]


def may_claim_at(state: AdmitterState, gang: PodGang) -> int:
    """Log time from which a gang of pods that finds no place may claim nodes."""
    return _from(gang.claimant, state.placement.claim_ms or AGE_MS)


def may_claim(state: AdmitterState, gang: PodGang) -> bool:
    """Whether a gang of pods that finds no place may claim nodes now: it is old enough, and nobody older has."""
    if not gang.claimant.since or state.now < may_claim_at(state, gang):
        return False
    return state.pods.claim is None or _yields(state, gang.claimant.since) is not None


def _from(claimant: Claimant, age: int) -> int:
    """Log time from which it may claim nodes: it is old enough, and others have had their turn since its last."""
    return max(claimant.since + age, claimant.claimed + 2 * CLAIM_MS if claimant.claimed else 0)


# --- what becomes of claims -------------------------------------------------------------------------------------


def claimed(state: AdmitterState, at: Position, event: NodesClaimed) -> None:
    state.pods.claim = NodeClaim(event.gang, event.places, event.until, Cause(at.seq, at.item), event.ref)
    who = _claimant(state, state.pods.claim)
    if who is not None:
        who.claimed = at.at


def ended(state: AdmitterState, _at: Position, event: NodesClaimEnded) -> None:
    claim = state.pods.claim
    if claim is None or claim.gang != event.gang or claim.ref != event.ref:
        return
    who = _claimant(state, claim)
    if who is not None and event.outcome == "yielded":
        who.claimed = 0  # Its turn is still to come.
    state.pods.claim = None


def _claimant(state: AdmitterState, claim: NodeClaim) -> Claimant | None:
    if claim.ref is not None:
        return state.waits.get(claim.ref.uid)
    gang = state.pods.gangs.get(claim.gang)
    return gang.claimant if gang is not None else None


def _yields(state: AdmitterState, since: int) -> NodesClaimEnded | None:
    """The end of a claim whose gang has waited less long than somebody who would claim, too."""
    claim = state.pods.claim
    who = _claimant(state, claim) if claim is not None else None
    if claim is None or who is None or not state.placement.claim_ms:
        return None
    if since >= who.since:
        return None
    return NodesClaimEnded(cause=claim.cause, gang=claim.gang, outcome="yielded", ref=claim.ref)


def over(state: AdmitterState) -> Iterator[Decision]:
    """The end of the claim, if it is due."""
    claim, outcome = state.pods.claim, _outcome(state)
    if claim is not None and outcome is not None:
        yield NodesClaimEnded(cause=claim.cause, gang=claim.gang, outcome=outcome, ref=claim.ref)


def _outcome(state: AdmitterState) -> Outcome | None:
    claim = state.pods.claim
    if claim is None:
        return None
    if claim.ref is not None:
        found = _outcome_of_job(state, claim.ref.uid, claim)
    else:
        gang = state.pods.gangs.get(claim.gang)
        found = "gone" if gang is None else "placed" if not gang.waiting else None
    if found is not None:
        return found
    if claim.until <= state.now:
        return "expired"
    lost = any(each.node not in state.ledger.nodes or not state.ledger.nodes[each.node].uid for each in claim.places)
    return "changed" if lost else None


def _outcome_of_job(state: AdmitterState, uid: str, claim: NodeClaim) -> Outcome | None:
    if uid in state.admitted:
        return "placed"
    gang = state.gangs.get(uid)
    if gang is None or uid not in state.waits:
        return "gone"
    wanted = {ask.name: ask.count for ask in g.asks_of(gang)}
    kept = dict.fromkeys(wanted, 0)
    for each in claim.places:
        kept[each.pod_set] = kept.get(each.pod_set, 0) + each.count
    return "changed" if kept != wanted or state.placement.mode == "off" else None


def keep(state: AdmitterState, view: View, places: Sequence[Placement], asks: Sequence[Ask]) -> None:
    """Keep what is free on claimed nodes from everybody who comes after."""
    by_name = {ask.name: ask for ask in asks}
    for each in places:
        ask, slot = by_name.get(each.pod_set), view.slot(each.node)
        if ask is None or slot is None:
            continue
        if state.placement.claim_ms:
            view.keep(ask, each.node, each.count)
            continue
        need, _ = need_of(ask, view.ledger.classes[slot.group])
        if need is not None:
            count = min(each.count, need.fit(slot.free, sorted(slot.shared.values())))
            if count > 0:
                view.take(ask, need, each.node, count)


def in_the_way(state: AdmitterState, view: View, short: Shortage, asks: Sequence[Ask], strategy: Strategy) -> Shortage:
    """Why there is no place, and for which gang room is kept that would do; none when one was admitted just now."""
    claim = state.pods.claim
    if claim is None or not state.placement.claim_ms or view.taken:
        return short
    return replace(short, kept_for=claim.gang) if place(View(state.ledger), asks, strategy) is None else short


# --- gangs of pods ----------------------------------------------------------------------------------------------


def claim(state: AdmitterState, gang: PodGang, asks: Sequence[Ask], strategy: Strategy) -> list[Decision]:
    """The nodes that a gang of pods claims, which has found no place once more, if it may."""
    if not may_claim(state, gang):
        return []
    return _claims(state, gang.claimant.since, gang.cause, gang.key, None, asks, strategy)


def _claims(
    state: AdmitterState,
    since: int,
    cause: Cause,
    gang: str,
    ref: Ref | None,
    asks: Sequence[Ask],
    strategy: Strategy,
) -> list[Decision]:
    yielded = _yields(state, since)
    if _outcome(state) is not None or (state.pods.claim is not None and yielded is None):
        return []
    places = _emptiest(state, asks, strategy)
    if places is None:
        return []
    found = NodesClaimed(cause=cause, gang=gang, places=places, until=state.now + CLAIM_MS, ref=ref)
    return [found] if yielded is None else [yielded, found]


def _emptiest(state: AdmitterState, asks: Sequence[Ask], strategy: Strategy) -> tuple[Placement, ...] | None:
    """Places on the emptiest nodes that would do, were those who will leave some day not there."""
    view = View(state.ledger)
    nodes = _leaving(state)
    tried, many = 0, 1
    while tried < len(nodes):
        for name in nodes[tried:many]:
            for key in state.ledger.nodes[name].occupants:
                occupant = state.ledger.occupants[key]
                if occupant.passing:
                    view.give(occupant)
        tried, many = many, many * 2
        mark = view.mark()
        if place(view, asks, strategy) is None:
            return tuple(
                Placement(taken.ask.name, taken.node, taken.count, taken.devices) for taken in view.taken[mark[1] :]
            )
    return None


def _leaving(state: AdmitterState) -> list[str]:
    """Nodes with pods that will leave some day, first those where the fewest are."""
    occupants = state.ledger.occupants
    found = []
    for name, node in state.ledger.nodes.items():
        passing = sum(occupants[key].count for key in node.occupants if occupants[key].passing)
        if passing and node.uid and node.schedulable and node.ready:
            found.append((passing, name))
    return [name for _, name in sorted(found)]


# --- gangs of jobs ----------------------------------------------------------------------------------------------


def in_vain(state: AdmitterState, at: Position, event: GangAwaitingNodes | GangDeferred) -> None:
    """A job has found no place. It may be queued and tried many times; its age counts from the first."""
    state.waits.setdefault(event.ref.uid, Claimant(at.at))


def left(state: AdmitterState, _at: Position, event: WorkloadDequeued) -> None:
    """A job wants to run no more, for now or for good."""
    state.waits.pop(event.ref.uid, None)


def claimant(state: AdmitterState) -> str:
    """The job whose claim stands; empty when there is none."""
    found = state.pods.claim
    return found.ref.uid if found is not None and found.ref is not None and _outcome(state) is None else ""


def keep_for(state: AdmitterState, uid: str, view: View) -> None:
    """Keep what is free for the job whose claim stands."""
    found = state.pods.claim
    if found is not None:
        keep(state, view, found.places, g.asks_of(state.gangs[uid]))


def claim_of_job(state: AdmitterState, reservation: Reservation, asks: Sequence[Ask]) -> list[Decision]:
    """The nodes that a job claims, which has found no place once more, if it may."""
    ref, mode = reservation.ref, state.placement.mode
    if mode == "off" or not 0 < _job_may_claim_at(state, ref.uid) <= state.now:
        return []
    return _claims(state, state.waits[ref.uid].since, reservation.cause, ref.key, ref, asks, mode)


def _job_may_claim_at(state: AdmitterState, uid: str) -> int:
    """Log time from which a job may claim nodes; 0 when it may not."""
    age, found = state.placement.claim_ms, state.waits.get(uid)
    return _from(found, age) if age and found is not None else 0


def deadlines(state: AdmitterState) -> Iterator[int]:
    """When something may be due for a claim though nothing happens. Who was deferred is tried again by the sorter."""
    if state.pods.claim is not None:
        yield state.pods.claim.until
        return
    for uid, reservation in state.reservations.items():
        at = 0 if reservation.deferred else _job_may_claim_at(state, uid)
        if at > state.now:
            yield at
