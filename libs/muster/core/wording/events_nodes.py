"""Events about nodes in words: places of jobs and pods, gangs without places, nodes requested from pools.

The part of `events` whose reasons are in `explain_nodes`.
"""

from __future__ import annotations

from collections.abc import Iterable

from muster.core.codes.happenings import Happening
from muster.core.objects.meta import rfc3339
from muster.core.wording import events_victims, explain, explain_nodes, problems, reasons
from muster.core.wording.terms import terms
from muster.events import decisions as d
from muster.events import facts, gangs, growing
from muster.events.claims import PlanTried
from muster.model.problem import problem
from muster.model.text import counted

NO_PLACES_FREED = "the evictions that were tried would not free the nodes it needs"


def placed(event: d.GangAdmitted) -> str:
    """``; placed on node-1 (3), node-2 (1)``; nothing where nothing is placed."""
    where = _where((each.node, each.count) for each in event.placements)
    rule = f", by the rule {event.placement} of its queue" if event.placement else ""
    return f"; placed on {where}{rule}" if where else ""


def admitted_on(event: d.GangAdmitted, around: Happening) -> str:
    """The same, with the rule of the configuration where that is known; a happening lists nodes, not pods."""
    if not around.nodes:
        return placed(event)
    rule = f", by the rule {around.words} of {f'queue {event.queue}' if event.placement else 'the configuration'}"
    return f"; placed on {listed(around.nodes, around.more)}{rule if around.words else ''}"


def listed(nodes: Iterable[tuple[str, int]], more: int) -> str:
    """``node-1 (3), node-2 (1) and 4 more nodes``."""
    shown = ", ".join(f"{node} ({count})" for node, count in nodes)
    return f"{shown} and {counted(more, 'more node')}" if more else shown


def _where(places: Iterable[tuple[str, int]]) -> str:
    """``node-1 (3), node-2 (1)``, of (node, how many pods)."""
    nodes: dict[str, int] = {}
    for node, count in places:
        nodes[node] = nodes.get(node, 0) + count
    shown = ", ".join(f"{node} ({count})" for node, count in list(nodes.items())[:5])
    return shown + (f" and {len(nodes) - 5} more nodes" if len(nodes) > 5 else "")


def room(event: d.PlacesFound) -> str:
    """Why a gang without places is evaluated again."""
    found = "node pools may add nodes" if event.growth else "the nodes have room"
    return f"{found} for its gang: it is queued again"


def given_back(event: d.PlacesReleased) -> str:
    """Which held places are released, and why."""
    count = sum(each.count for each in event.placements)
    nodes = ", ".join(dict.fromkeys(each.node for each in event.placements[:5]))
    return f"{counted(count, 'place')} held on {nodes} released: {reasons.GIVEN_BACK[event.reason]}"


def lacks_nodes(event: d.GangAwaitingNodes | d.GangDeferred) -> str:
    """Why a gang of a job has no places, and which node pools could add some."""
    if isinstance(event, d.GangAwaitingNodes):
        return f"{explain_nodes.no_room(event.shortage)}{explain_nodes.from_pools(event.growth, ())}"
    return f"{explain_nodes.no_room(event.shortage)}{explain_nodes.from_pools(None, event.refusals)}"


def awaits_nodes(event: d.GangAwaitingNodes, _around: Happening) -> str:
    """The same of one that keeps its quota."""
    return f"its quota is reserved, and it waits for nodes: {lacks_nodes(event)}"


def room_proposed(event: d.PreemptionProposed) -> str:
    """Which jobs are proposed as victims for a job without places on the nodes."""
    count = len(event.victims)
    jobs = "1 job is" if count == 1 else f"up to {count} jobs are"
    moving = sum(victim.moves for victim in event.victims)
    how = "to move to other nodes" if moving == count else "for eviction"
    if 0 < moving < count:
        how = f"for eviction, {moving} of them to move to other nodes"
    return f"its quota has room, and the nodes have none: {jobs} proposed {how}"


def plan_tried(event: PlanTried) -> str:
    """Whether it fits once the victims are gone, and where."""
    if not event.fits:
        return NO_PLACES_FREED
    if event.shortage is not None:
        return "it fits once its victims are evicted and nodes are added"
    where = _where((each.node, each.count) for each in event.places)
    moved = (
        f"with {counted(len(event.moves), 'job')} moved to other nodes" if event.moves else "with its victims evicted"
    )
    return f"{moved}, it fits on {where}"


def room_made(event: d.EvictionOrdered, around: Happening) -> str:
    """Which jobs leave so that it has room on the nodes."""
    if len(event.moves) == len(event.victims) + around.more:
        ways = events_victims.moved(event, around.more)
        return f"moved to make room for it on the nodes: {ways}; each keeps its quota and starts again there"
    why = (
        f"of lower priority than {event.priority}"
        if event.kind == "priority"
        else f"above the {terms(event.queue).owed} of its queue"
    )
    beside = f"; moved for it: {events_victims.moved(event)}" if event.moves else ""
    return (
        f"suspended to make room for it on the nodes: {events_victims.listed(event.gives, around.more)}, {why}{beside}"
    )


def pods_proposed(event: gangs.PodsProposed, _around: Happening) -> str:
    """Which pods wait for their quota."""
    return f"the nodes have places for {counted(len(event.pods) + len(event.beside), 'pod')}: their quota is asked for"


def pods_denied(event: gangs.PodsDenied, _around: Happening) -> str:
    """Why pods that have places wait."""
    if event.short is None:
        return problems.line(problem("", "queue_paused", queue=event.queue))
    return explain.waiting_for_quota(event.short).text


def pods_placed(event: gangs.PodsPlaced, around: Happening) -> str:
    """How many pods get a node, and which."""
    where = listed(around.nodes, around.more) if around.nodes else _where((each.node, 1) for each in event.pods)
    whose = f" of {' and '.join(event.gangs[:5])}" if event.gangs else ""
    return f"{counted(around.number or len(event.pods), 'pod')}{whose} placed on {where}"


def pods_released(event: gangs.PodsReleased, around: Happening) -> str:
    """Which pods lost their node before they were bound, and why."""
    shown = ", ".join(f"{each.ref.key} on {each.node}" for each in event.pods[:5])
    hidden = max(0, len(event.pods) - 5) + around.more
    return f"{shown}{f', and {hidden} more' if hidden else ''} released: {reasons.PODS_RELEASED[event.reason]}"


def held_back(event: gangs.GangHeldBack) -> str:
    """Why a gang waits."""
    parts = [reasons.HELD_BACK[event.reason]]
    if event.by:
        parts[0] += f" ({event.by})"
    if event.problem is not None:
        parts.append(problems.line(event.problem))
    if event.short is not None:
        parts.append(explain.waiting_for_quota(event.short).text)
    if event.shortage is not None:
        parts.append(explain_nodes.no_room(event.shortage, explain_nodes.pods_of(event)))
    return ": ".join(parts) + explain_nodes.from_pools(event.growth, event.refusals)


def nodes_requested(event: growing.NodesRequested) -> str:
    """Which nodes are requested, for how many pods."""
    pods = counted(sum(each.count for each in event.pod_sets), "pod")
    again = f", try {event.tries}" if event.tries > 1 else ""
    return (
        f"{explain_nodes.pool_nodes(event.pools)} for {pods} without a place "
        f"(ProvisioningRequest {event.name}, class {event.provisioning}){again}"
    )


def nodes_withdrawn(event: growing.NodesRequestWithdrawn) -> str:
    """Why a request for nodes is withdrawn, and when the next follows."""
    said = problems.after(event.problem)
    again = f"; requested again after {rfc3339(event.retry_at)}" if event.retry_at else ""
    return f"the request for nodes is withdrawn: {reasons.WITHDRAWN[event.reason]}{said}{again}"


def node_pools(event: facts.NodePoolsObserved) -> str:
    """Which node pools are declared, and which cannot be used."""
    good = [f"{pool.name} (up to {counted(pool.most, 'node')})" for pool in event.pools if pool.refusal is None]
    bad = [problems.line(pool.refusal) for pool in event.pools if pool.refusal is not None]
    refused = f"; refused: {'; '.join(bad[:3])}" if bad else ""
    return f"node pools: {', '.join(good[:10]) or 'none'}{refused}"
