"""A gang that has waited too long claims nodes: what becomes free there is kept for it, so that a big gang does not
starve behind small ones. What still fits beside the claim goes on.

Gangs of pods and gangs of jobs claim alike. Any number of claims is in force at a time, and no node is in two of them.
A claim ends when the gang has its places, is gone, has had its time, or a gang that has waited longer finds no nodes
without some of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

from msgspec.structs import replace

from muster.core.gang.admitterstate import AdmitterState, Reservation, Unplaced
from muster.core.gang.jobplaces import asks_of, placements
from muster.core.gang.podgangs import Claimant, NodeClaim, PodGang, claim_key
from muster.core.placement.needs import NodeClass, need_of
from muster.core.placement.place import place
from muster.core.placement.view import Ask, Kept, View
from muster.events.base import Cause, Decision
from muster.events.decisions import WorkloadDequeued
from muster.events.gangs import NodesClaimed, NodesClaimEnded
from muster.model.keys import Position, Ref
from muster.model.places import Placement, Shortage
from muster.model.strategies import Strategy

AGE_MS = 10 * 60_000
"""How long a gang of pods has been tried without a result when it may claim nodes, where the setting is 0."""
CLAIM_MS = 30 * 60_000
"""How long a claim lasts, and how long its gang may not claim again after that."""
MOST = 8
"""Claims at once."""

Outcome = Literal["placed", "gone", "expired", "changed", "yielded"]


def may_claim_at(state: AdmitterState, gang: PodGang) -> int:
    """Log time from which a gang of pods that finds no place may claim nodes."""
    return _from(gang.claimant, state.placement.claim_ms or AGE_MS)


def may_claim(state: AdmitterState, gang: PodGang) -> bool:
    """Whether a gang of pods that finds no place may claim nodes now: it is old enough, and not too many have."""
    since = gang.claimant.since
    if not since or state.now < may_claim_at(state, gang) or gang.key in state.pods.claims:
        return False
    return _may_stand(state, since, standing(state))


def standing(state: AdmitterState) -> list[NodeClaim]:
    """The claims that are not over, in the order in which they were made."""
    return [claim for claim in state.pods.claims.values() if _outcome(state, claim) is None]


def _may_stand(state: AdmitterState, since: int, others: Sequence[NodeClaim]) -> bool:
    """Whether there may be one more claim beside these, or some of them may end for it."""
    return len(others) < MOST or any(_yields(state, claim, since) for claim in others)


def _from(claimant: Claimant, age: int) -> int:
    """Log time from which it may claim nodes: it is old enough, and others have had their turn since its last."""
    return max(claimant.since + age, claimant.claimed + 2 * CLAIM_MS if claimant.claimed else 0)


# --- what becomes of claims -------------------------------------------------------------------------------------


def claimed(state: AdmitterState, at: Position, event: NodesClaimed) -> None:
    claim = NodeClaim(event.gang, event.places, event.until, Cause(at.seq, at.item), event.ref)
    state.pods.claims[claim.key] = claim
    found = _claimant(state, claim)
    if found is not None:
        found.claimed = at.at


def ended(state: AdmitterState, _at: Position, event: NodesClaimEnded) -> None:
    claim = state.pods.claims.pop(claim_key(event.gang, event.ref), None)
    if claim is None:
        return
    found = _claimant(state, claim)
    if found is not None and event.outcome == "yielded":
        found.claimed = 0  # Its turn is still to come.


def _claimant(state: AdmitterState, claim: NodeClaim) -> Claimant | None:
    if claim.ref is not None:
        return state.waits.get(claim.ref.uid)
    gang = state.pods.gangs.get(claim.gang)
    return gang.claimant if gang is not None else None


def _yields(state: AdmitterState, claim: NodeClaim, since: int) -> bool:
    """Whether its gang has waited less long than one that would claim, too."""
    found = _claimant(state, claim)
    return found is not None and since < found.since


def over(state: AdmitterState) -> Iterator[NodesClaimEnded]:
    """The ends of claims that are due."""
    for claim in state.pods.claims.values():
        outcome = _outcome(state, claim)
        if outcome is not None:
            yield _end(claim, outcome)


def _end(claim: NodeClaim, outcome: Outcome) -> NodesClaimEnded:
    return NodesClaimEnded(cause=claim.cause, gang=claim.gang, outcome=outcome, ref=claim.ref)


def _outcome(state: AdmitterState, claim: NodeClaim) -> Outcome | None:
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
    if gang is None or not gang.waits or uid not in state.waits:
        return "gone"
    wanted = {ask.name: ask.count for ask in asks_of(state, gang)}
    kept = dict.fromkeys(wanted, 0)
    for each in claim.places:
        kept[each.pod_set] = kept.get(each.pod_set, 0) + each.count
    return "changed" if kept != wanted or state.placement.strategy is None else None


KeptNodes = list[tuple[str, Kept]]
"""(node, what is kept there), to take it back."""


def keep(view: View, places: Sequence[Placement], asks: Sequence[Ask]) -> KeptNodes:
    """Keep what is free on claimed nodes from all others."""
    by_name, kept = {ask.name: ask for ask in asks}, KeptNodes()
    for each in places:
        ask, slot = by_name.get(each.pod_set), view.slot(each.node)
        if ask is None or slot is None:
            continue
        kept.append((each.node, view.keep(ask, each.node, each.count, each.devices)))
    return kept


def in_the_way(
    state: AdmitterState,
    view: View,
    short: Shortage,
    asks: Sequence[Ask],
    strategy: Strategy,
    asks_of: Callable[[NodeClaim], Sequence[Ask]],
) -> Shortage:
    """Why there is no place, and for which gang room is kept that would do; none when one was admitted just now.

    ``asks_of``: what the gang of a claim asks for.
    """
    found = standing(state)
    if not found or view.taken or place(View(state.ledger), asks, strategy) is not None:
        return short
    for claim in found if len(found) > 1 else ():
        without = View(state.ledger)
        for other in found:
            if other is not claim:
                keep(without, other.places, asks_of(other))
        if place(without, asks, strategy) is None:
            return replace(short, kept_for=claim.gang)
    return replace(short, kept_for=found[0].gang)


# --- gangs of pods ----------------------------------------------------------------------------------------------


def claim(state: AdmitterState, gang: PodGang, asks: Sequence[Ask], strategy: Strategy) -> Sequence[Decision]:
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
) -> list[NodesClaimed | NodesClaimEnded]:
    others = standing(state)
    if claim_key(gang, ref) in state.pods.claims or not _may_stand(state, since, others):
        return []
    younger, yielded = [claim for claim in others if _yields(state, claim, since)], list[NodeClaim]()
    places = _emptiest(state, asks, strategy, _nodes_of(others)) if len(others) < MOST else None
    if places is None and younger:
        places = _emptiest(state, asks, strategy, _nodes_of(claim for claim in others if claim not in younger))
        mine = {each.node for each in places or ()}
        yielded = [claim for claim in younger if not mine.isdisjoint(_nodes_of([claim]))]
        if len(others) - len(yielded) >= MOST:
            return []
    if places is None:
        return []
    found = NodesClaimed(cause=cause, gang=gang, places=places, until=state.now + CLAIM_MS, ref=ref)
    return [*(_end(claim, "yielded") for claim in yielded), found]


def _nodes_of(found: Iterable[NodeClaim]) -> set[str]:
    return {each.node for claim in found for each in claim.places}


def _emptiest(
    state: AdmitterState, asks: Sequence[Ask], strategy: Strategy, taken: set[str]
) -> tuple[Placement, ...] | None:
    """Places on the emptiest nodes that would do, were the pods that will leave some day not there.

    ``taken``: nodes that others have claimed.
    """
    view = View(state.ledger)
    for name in sorted(taken):
        view.close(name)
    nodes = [name for name in _leaving(state) if name not in taken]
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
            return placements(view, mark)
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


def in_vain(state: AdmitterState, uid: str, now: int) -> None:
    """A job has found no place. It may be queued and tried many times; its age counts from the first."""
    state.waits.setdefault(uid, Claimant(now))


def left(state: AdmitterState, _at: Position, event: WorkloadDequeued) -> None:
    """A job wants to run no more, for now or for good."""
    state.waits.pop(event.ref.uid, None)


def claim_of_job(
    state: AdmitterState, job: Reservation | Unplaced, asks: Sequence[Ask]
) -> list[NodesClaimed | NodesClaimEnded]:
    """The nodes that a job claims, which has found no place, if it may."""
    ref, mode = job.ref, state.placement.strategy
    if mode is None or not 0 < job_may_claim_at(state, ref.uid) <= state.now:
        return []
    return _claims(state, state.waits[ref.uid].since, job.cause, ref.key, ref, asks, mode)


def of_unplaced(state: AdmitterState) -> list[NodesClaimed | NodesClaimEnded]:
    """The nodes that a job claims which waits for room and holds no quota: of those that may the oldest."""
    tried = set[str]()
    may = [uid for at, uid in unplaced_may_claim(state) if at <= state.now]
    for uid in sorted(may, key=lambda uid: (state.waits[uid].since, uid)):
        each = state.unplaced[uid]
        if each.key in tried or not could_have_places(state, asks := asks_of(state, state.gangs[uid])):
            continue
        tried.add(each.key)
        found = claim_of_job(state, each, asks)
        if found:
            return found
    return []


def unplaced_may_claim(state: AdmitterState) -> list[tuple[int, str]]:
    """(log time from which it may claim nodes, uid) of every job that waits for room and holds no quota."""
    age, waits, gangs = state.placement.claim_ms, state.waits, state.gangs
    mine = (uid for uid in state.unplaced if uid in waits and gangs[uid].waits) if age else ()
    return [(_from(waits[uid], age), uid) for uid in mine]


def could_have_places(state: AdmitterState, asks: Sequence[Ask]) -> bool:
    """Whether the nodes, if they were empty, would have room for each of the sets alone."""
    found = [group for group in state.ledger.classes.values() if group.schedulable and group.ready]
    return all(_room(found, ask) >= ask.count for ask in asks)


def _room(classes: Sequence[NodeClass], ask: Ask) -> int:
    """How many pods of a set have room on the nodes of these classes if they are empty."""
    room = 0
    for group in classes:
        need, _ = need_of(ask.request, ask.rules, group)
        if need is not None:
            room += sum(len(each.names) * max(need.fit(each.free, []), 0) for each in group.empty.values())
    return room


def job_may_claim_at(state: AdmitterState, uid: str) -> int:
    """Log time from which a job may claim nodes; 0 when it may not."""
    age, found = state.placement.claim_ms, state.waits.get(uid)
    return _from(found, age) if age and found is not None else 0


def deadlines(state: AdmitterState) -> Iterator[int]:
    """When something may be due for a claim though nothing happens. A deferred job is tried again by the sorter."""
    yield from (claim.until for claim in state.pods.claims.values())
    for uid, reservation in state.reservations.items():
        at = 0 if reservation.deferred or uid in state.pods.claims else job_may_claim_at(state, uid)
        if at > state.now:
            yield at
