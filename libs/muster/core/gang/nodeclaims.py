"""Claims on nodes: a gang claims nodes once too much later work has passed it. Room that becomes free there is kept
for the gang, so that large gangs do not starve behind small ones. Work that still fits beside the claim goes on.

Gangs of pods and gangs of jobs claim alike. At most ``MOST`` claims are in force at a time, and no node is in two
claims. A claim ends when the gang has its places, is gone, has changed, or the claim has expired. A claim also ends for
a gang that has waited longer and finds no nodes without nodes of the claim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

from msgspec.structs import replace

from muster.core.gang.admitterstate import AdmitterState, Reservation, Unplaced, queued_as
from muster.core.gang.jobplaces import asks_of, placements
from muster.core.gang.podgangs import Claimant, NodeClaim, PodGang, claim_key
from muster.core.laterstarts import ANY_PRIORITY, LaterStart, Starts
from muster.core.placement.needs import NodeClass, need_of
from muster.core.placement.place import place
from muster.core.placement.view import Ask, Kept, View
from muster.events.base import Cause, Decision
from muster.events.claims import ClaimEnded, ClaimOpened
from muster.events.decisions import WorkloadDequeued
from muster.events.gangs import NodesClaimed, NodesClaimEnded
from muster.model.keys import Position, Ref
from muster.model.places import Placement, Shortage
from muster.model.quota import WAIT_PART, WIDTHS_TO_AGE
from muster.model.resources import Vector, add_into, scaled, summed
from muster.model.strategies import Strategy

LEAST_MS = 60_000
"""No claim is shorter."""
MOST = 8
"""Claims at once."""

Outcome = Literal["placed", "gone", "expired", "changed", "yielded"]


def may_claim(state: AdmitterState, gang: PodGang, asks: Callable[[], Sequence[Ask]]) -> bool:
    """Whether a gang of pods without a place may claim nodes now: the gang has aged, and a claim is possible.

    ``asks``: the request of the gang.
    """
    claimant = gang.claimant
    if not claimant.passed or state.now < may_claim_from(claimant) or gang.key in state.pods.claims:
        return False
    return has_aged(state, claimant, asks()) and _may_stand(state, claimant.since, standing(state))


def standing(state: AdmitterState) -> list[NodeClaim]:
    """The claims not yet over, in the order of their making."""
    return [claim for claim in state.pods.claims.values() if _outcome(state, claim) is None]


def is_owed(state: AdmitterState, claim: NodeClaim) -> bool:
    """Whether the claim is of a job within a guarantee."""
    job = state.reservations.get(claim.key) or state.unplaced.get(claim.key)
    return job is not None and job.owed


def _may_stand(state: AdmitterState, since: int, others: Sequence[NodeClaim]) -> bool:
    """Whether a further claim is possible: there are fewer than ``MOST``, or a claim of a younger gang may end."""
    return len(others) < MOST or any(_yields(state, claim, since) for claim in others)


def may_claim_from(claimant: Claimant) -> int:
    """Log time (ms) from which an aged gang may claim nodes: again once it has waited three times as long as then."""
    return claimant.since + 3 * max(claimant.claimed - claimant.since, 0)


def passed(state: AdmitterState, came: int, priority: int, amounts: Vector) -> None:
    """Work that came to wait at log time ``came`` (ms) has its places."""
    if not state.waits and not state.pods.open:
        state.starts = Starts()  # None of the starts so far has passed a gang that waits from here on.
        return
    nodes = len(state.ledger.nodes)
    limits = {name: largest * nodes for name, largest in state.ledger.scale.items()}
    if state.starts.add(LaterStart(priority, came, amounts), limits):
        _look(state)


def _look(state: AdmitterState) -> None:
    """Add the starts to the amounts that have passed the gangs without places. Priority counts among jobs alone."""
    passed_by, state.starts = state.starts.passed(), Starts()
    for uid, claimant in state.waits.items():
        add_into(claimant.passed, passed_by(claimant.since, -queued_as(state.queued, uid).rank[0]))
        gang = state.gangs.get(uid) if claimant.passed else None
        if gang is not None and has_aged(state, claimant, asks_of(state, gang)):
            state.aged[uid] = None
    for claimant in (state.pods.gangs[key].claimant for key in state.pods.open):
        if claimant.since:
            add_into(claimant.passed, passed_by(claimant.since, ANY_PRIORITY))


def has_aged(state: AdmitterState, claimant: Claimant, asks: Sequence[Ask]) -> bool:
    """Whether quota is held for the gang, or work of many times the gang's own width has passed the gang, in the
    resource that the gang needs most.
    """
    if claimant.held:
        return True
    if not claimant.passed:
        return False
    wanted, scale = summed(scaled(ask.request, ask.count) for ask in asks), state.ledger.scale
    most = max(wanted, key=lambda name: wanted[name] * 10**9 // scale.get(name, 10**18), default="")
    asked = wanted.get(most, 0)
    return 0 < asked * WIDTHS_TO_AGE <= claimant.passed.get(most, 0)


# --- what becomes of claims -------------------------------------------------------------------------------------


def claimed(state: AdmitterState, at: Position, event: NodesClaimed) -> None:
    claim = NodeClaim(event.gang, event.places, event.until, Cause(at.seq, at.item), event.ref)
    state.pods.claims[claim.key] = claim
    claimant = _claimant(state, claim)
    if claimant is not None:
        _look(state)
        claimant.claimed = at.at
        claim.passed, claimant.passed = claimant.passed, {}
        if not claimant.held:
            state.aged.pop(claim.key, None)


def held(state: AdmitterState, at: Position, event: ClaimOpened) -> None:
    """Quota is held for an aged job: the job claims nodes, too, once it has found no place."""
    if event.kind == "age" and event.ref.uid in state.gangs:
        state.waits.setdefault(event.ref.uid, Claimant(at.at)).held = True
        state.aged[event.ref.uid] = None


def given_up(state: AdmitterState, at: Position, event: ClaimEnded) -> None:
    """No quota is held any more, and no nodes are."""
    claimant, claim = state.waits.get(event.ref.uid), state.pods.claims.get(event.ref.uid)
    if claimant is not None and claimant.held:
        claimant.held = False
        if claim is not None:
            claim.until = at.at


def ended(state: AdmitterState, _at: Position, event: NodesClaimEnded) -> None:
    claim = state.pods.claims.pop(claim_key(event.gang, event.ref), None)
    if claim is None:
        return
    claimant = _claimant(state, claim)
    if claimant is not None and event.outcome == "yielded":
        claimant.claimed = 0  # The gang has not had its turn yet.
        add_into(claimant.passed, claim.passed)
        if claim.ref is not None:
            state.aged[claim.key] = None


def _claimant(state: AdmitterState, claim: NodeClaim) -> Claimant | None:
    if claim.ref is not None:
        return state.waits.get(claim.ref.uid)
    gang = state.pods.gangs.get(claim.gang)
    return gang.claimant if gang is not None else None


def _yields(state: AdmitterState, claim: NodeClaim, since: int) -> bool:
    """Whether the gang of the claim has waited less long than a gang without places since ``since``."""
    claimant = _claimant(state, claim)
    return claimant is not None and since < claimant.since


def over(state: AdmitterState) -> Iterator[NodesClaimEnded]:
    """The due ends of claims."""
    for claim in state.pods.claims.values():
        outcome = _outcome(state, claim)
        if outcome is not None:
            yield _end(claim, outcome)


def _end(claim: NodeClaim, outcome: Outcome) -> NodesClaimEnded:
    return NodesClaimEnded(cause=claim.cause, gang=claim.gang, outcome=outcome, ref=claim.ref)


def _outcome(state: AdmitterState, claim: NodeClaim) -> Outcome | None:
    if claim.ref is not None:
        outcome = _outcome_of_job(state, claim.ref.uid, claim)
    else:
        gang = state.pods.gangs.get(claim.gang)
        outcome = "gone" if gang is None else "placed" if not gang.waiting else None
    if outcome is not None:
        return outcome
    if claim.until <= state.now:
        return "expired"
    lost = any(place.node not in state.ledger.nodes or not state.ledger.nodes[place.node].uid for place in claim.places)
    return "changed" if lost else None


def _outcome_of_job(state: AdmitterState, uid: str, claim: NodeClaim) -> Outcome | None:
    if uid in state.admitted:
        return "placed"
    gang = state.gangs.get(uid)
    if gang is None or not gang.waits or uid not in state.waits:
        return "gone"
    wanted = {ask.name: ask.count for ask in asks_of(state, gang)}
    kept = dict.fromkeys(wanted, 0)
    for claimed_place in claim.places:
        kept[claimed_place.pod_set] = kept.get(claimed_place.pod_set, 0) + claimed_place.count
    return "changed" if kept != wanted or state.placement.strategy is None else None


KeptNodes = list[tuple[str, Kept]]
"""(node, kept room), for the release of the room."""


def keep(view: View, places: Sequence[Placement], asks: Sequence[Ask]) -> KeptNodes:
    """Keep the free room on claimed nodes from all other gangs."""
    by_name, kept = {ask.name: ask for ask in asks}, KeptNodes()
    for claimed_place in places:
        ask, slot = by_name.get(claimed_place.pod_set), view.slot(claimed_place.node)
        if ask is None or slot is None:
            continue
        kept.append(
            (claimed_place.node, view.keep(ask, claimed_place.node, claimed_place.count, claimed_place.devices))
        )
    return kept


def in_the_way(
    state: AdmitterState,
    view: View,
    short: Shortage,
    asks: Sequence[Ask],
    strategy: Strategy,
    asks_of: Callable[[NodeClaim], Sequence[Ask]],
) -> Shortage:
    """The shortage, with the gang whose claim keeps enough room for the asks; unchanged where places were taken in the
    view.

    ``asks_of``: the request of a claim's gang.
    """
    claims = standing(state)
    if not claims or view.taken or place(View(state.ledger), asks, strategy) is not None:
        return short
    for claim in claims if len(claims) > 1 else ():
        without = View(state.ledger)
        for other in claims:
            if other is not claim:
                keep(without, other.places, asks_of(other))
        if place(without, asks, strategy) is None:
            return replace(short, kept_for=claim.gang)
    return replace(short, kept_for=claims[0].gang)


# --- gangs of pods ----------------------------------------------------------------------------------------------


def claim(state: AdmitterState, gang: PodGang, asks: Sequence[Ask], strategy: Strategy) -> Sequence[Decision]:
    """The nodes claimed by a gang of pods after another search without a place; empty where the gang may not claim."""
    if not may_claim(state, gang, lambda: asks):
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
        mine = {place.node for place in places or ()}
        yielded = [claim for claim in younger if not mine.isdisjoint(_nodes_of([claim]))]
        if len(others) - len(yielded) >= MOST:
            return []
    if places is None:
        return []
    lasts = max(2 * (state.now - since) // WAIT_PART, LEAST_MS)  # Room is idle for half of a claim, about.
    claimed = NodesClaimed(cause=cause, gang=gang, places=places, until=state.now + lasts, ref=ref)
    return [*(_end(claim, "yielded") for claim in yielded), claimed]


def _nodes_of(claims: Iterable[NodeClaim]) -> set[str]:
    return {place.node for claim in claims for place in claim.places}


def _emptiest(
    state: AdmitterState, asks: Sequence[Ask], strategy: Strategy, taken: set[str]
) -> tuple[Placement, ...] | None:
    """Places on the emptiest nodes, with passing pods there supposed gone; None without enough places.

    ``taken``: nodes of other claims.
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
    """Nodes with passing pods, fewest passing pods first."""
    occupants = state.ledger.occupants
    nodes = []
    for name, node in state.ledger.nodes.items():
        passing = sum(occupants[key].count for key in node.occupants if occupants[key].passing)
        if passing and node.uid and node.schedulable and node.ready:
            nodes.append((passing, name))
    return [name for _, name in sorted(nodes)]


# --- gangs of jobs ----------------------------------------------------------------------------------------------


def in_vain(state: AdmitterState, uid: str, now: int) -> None:
    """A job has found no place. The age of the job counts from the first search, over any number of attempts."""
    state.waits.setdefault(uid, Claimant(now))


def left(state: AdmitterState, _at: Position, event: WorkloadDequeued) -> None:
    """A job no longer wants to run, for now or for good."""
    forget(state, event.ref.uid)


def forget(state: AdmitterState, uid: str) -> None:
    """The job waits for nodes no more."""
    state.waits.pop(uid, None)
    state.aged.pop(uid, None)


def claim_of_job(
    state: AdmitterState, job: Reservation | Unplaced, asks: Sequence[Ask]
) -> list[NodesClaimed | NodesClaimEnded]:
    """The nodes claimed by a job without a place; empty where the job may not claim."""
    ref, mode = job.ref, state.placement.strategy
    if mode is None or not 0 < job_may_claim_at(state, ref.uid) <= state.now:
        return []
    return _claims(state, state.waits[ref.uid].since, job.cause, ref.key, ref, asks, mode)


def of_unplaced(state: AdmitterState) -> list[NodesClaimed | NodesClaimEnded]:
    """The nodes claimed by the oldest unplaced job that may claim; empty without such a job."""
    tried = set[str]()
    may = [uid for at, uid in unplaced_may_claim(state) if at <= state.now]
    for uid in sorted(may, key=lambda uid: (state.waits[uid].since, uid)):
        unplaced = state.unplaced[uid]
        if unplaced.key in tried or not could_have_places(state, asks := asks_of(state, state.gangs[uid])):
            continue
        tried.add(unplaced.key)
        decisions = claim_of_job(state, unplaced, asks)
        if decisions:
            return decisions
    return []


def unplaced_may_claim(state: AdmitterState) -> list[tuple[int, str]]:
    """(log time (ms) from which the job may claim nodes, uid) of every aged unplaced job."""
    mine = (uid for uid in state.aged if uid in state.unplaced and state.gangs[uid].waits)
    return [(at, uid) for uid in mine if (at := job_may_claim_at(state, uid))]


def could_have_places(state: AdmitterState, asks: Sequence[Ask]) -> bool:
    """Whether empty nodes would have room for each pod set alone."""
    classes = [group for group in state.ledger.classes.values() if group.schedulable and group.ready]
    return all(_room(classes, ask) >= ask.count for ask in asks)


def _room(classes: Sequence[NodeClass], ask: Ask) -> int:
    """The number of pods of a set with room on empty nodes of these classes."""
    room = 0
    for group in classes:
        need, _ = need_of(ask.request, ask.rules, group)
        if need is not None:
            room += sum(len(shape.names) * max(need.fit(shape.free, []), 0) for shape in group.empty.values())
    return room


def job_may_claim_at(state: AdmitterState, uid: str) -> int:
    """Log time (ms) from which a job may claim nodes; 0 where the job may not."""
    claimant, gang = state.waits.get(uid) if uid in state.aged else None, state.gangs.get(uid)
    if claimant is None or gang is None or not has_aged(state, claimant, asks_of(state, gang)):
        return 0
    return may_claim_from(claimant)


def deadlines(state: AdmitterState) -> Iterator[int]:
    """When something may be due for a claim though nothing happens. A deferred job is tried again by the sorter."""
    yield from (claim.until for claim in state.pods.claims.values())
    for uid, reservation in state.reservations.items():
        at = 0 if reservation.deferred or uid in state.pods.claims else job_may_claim_at(state, uid)
        if at > state.now:
            yield at
