"""Events about nodes in words: places of jobs and pods, gangs that wait for some, nodes asked of pools.

The part of `telling` whose reasons stand in `explain_nodes`.
"""

from __future__ import annotations

from collections.abc import Iterable

from muster.core.wording import explain, explain_nodes, problems
from muster.events import decisions as d
from muster.events import facts, gangs, growing
from muster.events.clearing import ClearingOrdered, ClearingProposed, ClearingTried
from muster.model.problem import problem
from muster.model.resources import format_vector
from muster.model.text import counted, moment


def placed(event: d.GangAdmitted) -> str:
    """``; placed on node-1 (3), node-2 (1)``; nothing where nothing is placed."""
    where = _where((each.node, each.count) for each in event.placements)
    rule = f", by the rule {event.placement} of its queue" if event.placement else ""
    return f"; placed on {where}{rule}" if where else ""


def on_nodes(nodes: Iterable[tuple[str, int]], more: int) -> str:
    """``; placed on node-1 (3), node-2 (1)``; nothing where nothing is placed. ``more``: nodes beyond those."""
    shown = listed(nodes, more)
    return f"; placed on {shown}" if shown else ""


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
    """Why a gang that waited for room on the nodes is tried again."""
    found = "node pools may add nodes" if event.growth else "the nodes have room"
    return f"{found} for its gang: it is queued and tried again"


def given_back(event: d.PlacesReleased) -> str:
    """Which held places are free again, and why."""
    count = sum(each.count for each in event.placements)
    nodes = ", ".join(dict.fromkeys(each.node for each in event.placements[:5]))
    return f"{counted(count, 'place')} held on {nodes} given back: {explain_nodes.GIVEN_BACK[event.reason]}"


def lacks_nodes(event: d.GangAwaitingNodes | d.GangDeferred) -> str:
    """Why a gang of a job has no place, and what node pools could do."""
    if isinstance(event, d.GangAwaitingNodes):
        return f"{explain_nodes.no_room(event.shortage)}{explain_nodes.from_pools(event.growth, ())}"
    return f"{explain_nodes.no_room(event.shortage)}{explain_nodes.from_pools(None, event.refusals)}"


def clearing_proposed(event: ClearingProposed) -> str:
    """Who may have to leave for a job that lacks room on the nodes."""
    jobs = counted(len(event.victims), "job")
    if event.kind == "move":
        return f"its quota has room, and the nodes have none: of {jobs} some should be moved, if each finds a place"
    return f"its quota has room, and the nodes have none: of {jobs} those that it needs should give way to it"


def clearing_tried(event: ClearingTried) -> str:
    """Whether it would have its places, and by how many that leave."""
    if not event.victims:
        return "with all of them gone it would find no places on the nodes"
    where = _where((each.node, each.count) for each in event.places)
    if event.moves:
        moved = counted(len(event.victims), "job")
        return f"with {moved} moved, each to places of its own, it has its places on {where}"
    return f"with {counted(len(event.victims), 'job')} gone it has its places on {where}"


def clearing_ordered(event: ClearingOrdered) -> str:
    """Who leaves so that it has room on the nodes."""
    shown = ", ".join(f"{each.ref.key} ({format_vector(each.request)} at {each.queue})" for each in event.victims[:5])
    more = f", and {len(event.victims) - 5} more" if len(event.victims) > 5 else ""
    if event.moves:
        names = {each.ref.uid: each.ref.key for each in event.victims}
        ways = ", ".join(
            f"{names[each.uid]} from {', '.join(each.before[:3])} to {', '.join(each.after[:3])}"
            for each in event.moves[:5]
        )
        return f"{ways}{more} moved so that it has room on the nodes: all keep their quota and start again there"
    why = f"of lower priority (it has {event.priority})" if event.kind == "priority" else "above the share of its queue"
    return f"{shown}{more} suspended so that it has room on the nodes: {why}"


def pods_proposed(event: gangs.PodsProposed) -> str:
    """Which pods wait for their quota."""
    return f"the nodes have places for {counted(len(event.pods) + len(event.beside), 'pod')}: their quota is asked for"


def pods_denied(event: gangs.PodsDenied) -> str:
    """Why pods that have places wait."""
    if event.short is None:
        return problems.line(problem("", "queue_paused", queue=event.queue))
    return explain.waiting_for_quota(event.short).text


def pods_placed(event: gangs.PodsPlaced) -> str:
    """How many pods have a node from here on, and which."""
    where = _where((each.node, 1) for each in event.pods)
    whose = f" of {' and '.join(event.gangs[:5])}" if event.gangs else ""
    return f"{counted(len(event.pods), 'pod')}{whose} placed on {where}"


def pods_released(event: gangs.PodsReleased) -> str:
    """Which pods lost their node before they were bound, and why."""
    shown = ", ".join(f"{each.ref.key} on {each.node}" for each in event.pods[:5])
    more = f", and {len(event.pods) - 5} more" if len(event.pods) > 5 else ""
    return f"{shown}{more} given back: {explain_nodes.PODS_RELEASED[event.reason]}"


def held_back(event: gangs.GangHeldBack) -> str:
    """Why a gang waits."""
    parts = [explain_nodes.HELD_BACK[event.reason]]
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
    """Which nodes are asked for, for how many pods."""
    pods = counted(sum(each.count for each in event.pod_sets), "pod")
    again = f", try {event.tries}" if event.tries > 1 else ""
    return (
        f"{explain_nodes.pool_nodes(event.pools)} for {pods} without a place "
        f"(ProvisioningRequest {event.name}, class {event.provisioning}){again}"
    )


def nodes_withdrawn(event: growing.NodesRequestWithdrawn) -> str:
    """Why nodes are asked for no longer, and when again."""
    said = f": {event.message}" if event.message else ""
    again = f"; asked for again after {moment(event.retry_at)}" if event.retry_at else ""
    return f"nodes are asked for no longer: {explain_nodes.WITHDRAWN[event.reason]}{said}{again}"


def node_pools(event: facts.NodePoolsObserved) -> str:
    """Which node pools are declared, and which cannot be used."""
    good = [f"{pool.name} (up to {counted(pool.most, 'node')})" for pool in event.pools if pool.refusal is None]
    bad = [problems.line(pool.refusal) for pool in event.pools if pool.refusal is not None]
    refused = f"; refused: {'; '.join(bad[:3])}" if bad else ""
    return f"node pools: {', '.join(good[:10]) or 'none'}{refused}"
