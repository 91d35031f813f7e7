"""From decisions to entries of the ledger: the charge a reservation makes, the claim an order opens."""

from __future__ import annotations

from collections.abc import Mapping

from muster.core.quota.claim import Claim, Part
from muster.core.quota.declared import left_by
from muster.core.quota.demand import Charge, QueuedRequest, chain_of, counted
from muster.events.claims import ClaimOpened
from muster.events.decisions import EvictionOrdered, QuotaReserved, WorkloadAdopted, WorkloadQueued
from muster.model.demand import Demand
from muster.model.quota import QuotaNode
from muster.model.resources import Vector, add_into
from muster.model.victims import PartialVictim


def demand_of_part(part: PartialVictim) -> Demand:
    """The part that a cluster releases while it goes on."""
    return Demand(part.request, part.pods, jobs=0)


def charge_of(event: QuotaReserved | WorkloadAdopted, at: int) -> Charge:
    """What the workload is charged with from here on. ``at``: log time (ms) of the event.

    When what is adopted began is not known, so nothing is known of its end.
    """
    until = left_by(at, event.run_ms) if isinstance(event, QuotaReserved) else 0
    return Charge(
        event.ref.namespace, event.queue, event.request, event.pods, event.preemptible, event.named, until=until
    )


def claimant_of(event: QuotaReserved | WorkloadAdopted) -> str:
    """Uid of the job whose claim the charge ends, if that has one: as the event says, else its own."""
    return (event.serves if isinstance(event, QuotaReserved) else "") or event.ref.uid


def ask_of(event: WorkloadQueued) -> QueuedRequest:
    """What the workload asks for while it waits."""
    return QueuedRequest(event.attempt, event.queue, event.request)


def claim_of(event: EvictionOrdered | ClaimOpened, at: int) -> Claim:
    """What is held from here on. ``at``: log time (ms) of the event."""
    claim = Claim(event.ref, event.attempt, event.queue, event.demand, event.kind, at, progress=at, idle_until=at)
    if isinstance(event, ClaimOpened):
        claim.top, claim.promised = event.top, event.promised
    else:
        claim.growth, claim.for_nodes = event.growth, event.for_nodes
        claim.moving = {victim.ref.uid: victim.attempt for victim in event.victims if victim.moves}
        claim.victims = {victim.ref.uid: victim.attempt for victim in event.gives}
        claim.partial = {each.ref.uid: Part(each.attempt, demand_of_part(each), each.left) for each in event.partial}
    return claim


def awaited(claim: Claim, going: Mapping[str, tuple[str, Demand]]) -> dict[str, Vector]:
    """Node on the path of a claim -> what its victims release there, no more than it asks for.

    ``going``: uid -> (leaf, what it releases)
    """
    found: dict[str, Vector] = {}
    amounts, mine = counted(claim.demand), dict.fromkeys(claim.paths())
    for uid in (*claim.victims, *claim.partial):
        queue, demand = going.get(uid, ("", claim.demand))
        for path in chain_of(queue) if queue else ():
            if path in mine:
                add_into(found.setdefault(path, {}), counted(demand))
    return {
        path: {name: min(amount, gives[name]) for name, amount in amounts.items() if gives.get(name)}
        for path, gives in found.items()
    }


def lacking(claim: Claim, nodes: Mapping[str, QuotaNode], used: Mapping[str, Vector]) -> dict[str, Vector]:
    """Node above the queue of a claim for age -> what must be released below that node first, with so much ``used``."""
    found: dict[str, Vector] = {}
    below: Vector = {}
    amounts = counted(claim.demand)
    for path in claim.paths():
        if below:
            found[path] = dict(below)
        node, here = nodes.get(path), used.get(path, {})
        for name, limit in node.limit.items() if node is not None and path != claim.top else ():
            asked = amounts.get(name, 0)
            lacks = min(here.get(name, 0) + asked - limit, asked)
            if lacks > below.get(name, 0):
                below[name] = lacks
    return found


def below_guarantee(node: QuotaNode, used: Mapping[str, int]) -> bool:
    """Whether a node uses less of anything than its guarantee."""
    return any(used.get(name, 0) < least for name, least in node.guaranteed.items())


def kept_at(node: QuotaNode, kept: Mapping[str, Vector], used: Mapping[str, Vector]) -> Vector:
    """max(what the children keep, min - lend limit - used), per resource; nothing where there is nothing to keep."""
    found: Vector = {}
    for child in node.children:
        add_into(found, kept.get(child, {}))
    here = used.get(node.path, {})
    for name, amount in node.kept.items():
        own = amount - here.get(name, 0)
        if own > found.get(name, 0):
            found[name] = own
    return found
