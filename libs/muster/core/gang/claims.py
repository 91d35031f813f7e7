"""A gang that has waited too long claims nodes: what becomes free there is kept for it, so that a big gang does not
starve behind small ones. Whoever still fits beside the claim goes on.

There is one claim at a time. It ends when the gang has its places, is gone, or has had its time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from muster.core.gang.pods import NodeClaim, PodGang
from muster.core.gang.state import AdmitterState
from muster.core.placement.place import Strategy, place
from muster.core.placement.view import Ask, View, need_of
from muster.events.base import Cause, Decision
from muster.events.decisions import Placement
from muster.events.gangs import NodesClaimed, NodesClaimEnded
from muster.model.keys import Position

AGE_MS = 10 * 60_000
"""How long a gang has been tried in vain when it may claim nodes."""
CLAIM_MS = 30 * 60_000
"""How long a claim lasts, and how long its gang may not claim again after that."""


def may_claim_at(gang: PodGang) -> int:
    """Log time from which a gang that finds no place may claim nodes."""
    return max(gang.tried_since + AGE_MS, gang.claimed + 2 * CLAIM_MS if gang.claimed else 0)


def claimed(state: AdmitterState, at: Position, event: NodesClaimed) -> None:
    state.pods.claim = NodeClaim(event.gang, event.places, event.until, Cause(at.seq, at.item))
    gang = state.pods.gangs.get(event.gang)
    if gang is not None:
        gang.claimed = at.at


def ended(state: AdmitterState, _at: Position, event: NodesClaimEnded) -> None:
    claim = state.pods.claim
    if claim is not None and claim.gang == event.gang:
        state.pods.claim = None


def over(state: AdmitterState) -> Iterator[Decision]:
    """The end of the claim, if it is due."""
    claim = state.pods.claim
    if claim is None:
        return
    gang = state.pods.gangs.get(claim.gang)
    if gang is None:
        yield NodesClaimEnded(cause=claim.cause, gang=claim.gang, outcome="gone")
    elif not gang.waiting:
        yield NodesClaimEnded(cause=claim.cause, gang=claim.gang, outcome="placed")
    elif claim.until <= state.now:
        yield NodesClaimEnded(cause=claim.cause, gang=claim.gang, outcome="expired")
    elif any(each.node not in state.ledger.nodes or not state.ledger.nodes[each.node].uid for each in claim.places):
        yield NodesClaimEnded(cause=claim.cause, gang=claim.gang, outcome="changed")


def keep(view: View, places: Sequence[Placement], asks: Sequence[Ask]) -> None:
    """Keep what is free on claimed nodes from everybody who comes after."""
    by_name = {ask.name: ask for ask in asks}
    for each in places:
        ask, slot = by_name.get(each.pod_set), view.slot(each.node)
        if ask is None or slot is None:
            continue
        need, _ = need_of(ask, view.ledger.classes[slot.group])
        if need is not None:
            count = min(each.count, need.fit(slot.free, sorted(slot.shared.values())))
            if count > 0:
                view.take(ask, need, each.node, count)


def claim(state: AdmitterState, gang: PodGang, asks: Sequence[Ask], strategy: Strategy) -> NodesClaimed | None:
    """The nodes that a gang claims: the emptiest that would do, were those who will leave some day not there."""
    view = View(state.ledger)
    nodes = _leaving(state)
    tried, many = 0, 1
    while tried < len(nodes):
        for name in nodes[tried:many]:
            for key in state.ledger.nodes[name].occupants:
                occupant = state.ledger.occupants[key]
                for _ in range(occupant.count if occupant.passing else 0):
                    view.give(name, occupant.request)
        tried, many = many, many * 2
        mark = view.mark()
        if place(view, asks, strategy) is None:
            places = tuple(
                Placement(taken.ask.name, taken.node, taken.count, taken.devices) for taken in view.taken[mark[1] :]
            )
            return NodesClaimed(cause=gang.cause, gang=gang.key, places=places, until=state.now + CLAIM_MS)
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
