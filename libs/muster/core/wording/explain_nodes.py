"""Why a gang or a pod has no nodes, in words: the part of `explain` that is about places, pods and node pools."""

from __future__ import annotations

from muster.core.codes.values import NodesKept
from muster.core.objects.meta import rfc3339
from muster.core.wording import problems, reasons
from muster.core.wording.explain import Reason
from muster.events.gangs import GangHeldBack
from muster.model.gang import PodGroup, Verdict
from muster.model.places import Obstacle, ObstacleCode, Shortage
from muster.model.pools import Growth, PoolNodes, PoolRefusal
from muster.model.problem import FieldProblem
from muster.model.text import counted


def no_room(short: Shortage, pods: str = "") -> str:
    """Why there is no place. ``pods``: the counted pods, see :func:`pods_of`; empty: the pods of a set of a job.

    ``0/5 nodes are available: 1 Insufficient nvidia.com/gpu, 4 node(s) had untolerated taint {a: b}``.
    """
    if short.within is not None:
        return f"its pods are to be together, and {problems.line(short.within)}"
    causes = ", ".join(sorted(_obstacle(each, short.unsupported) for each in short.obstacles))
    text = f"0/{short.nodes} nodes are available" + (f": {causes}" if causes else "")
    if short.kept_for:
        text += f"; free places are kept for {short.kept_for}, which has waited longer"
    if not short.fitted:
        return text
    pods = pods or counted(short.count, f"{short.pod_set} pod").partition(" ")[2]
    return f"{short.fitted} of {short.count} {pods} fit; for the next one {text}"


GANGS_NAMED = 5
NODES_NAMED = 3


def kept_now(found: NodesKept, *, own: bool) -> str:
    """That free places on nodes are kept for a gang; ``own``: for the one that asks."""
    more = len(found.nodes) - NODES_NAMED
    names = ", ".join(found.nodes[:NODES_NAMED]) + (f" and {counted(more, 'more node')}" if more > 0 else "")
    if own:
        return f"Places that become free on {names} are kept for it"
    return f"The free places on {names} are kept for {found.gang}, which has claimed these nodes"


def pods_of(event: GangHeldBack) -> str:
    """The pods that the shortage of a gang counts: ``pods like train-0``, also ``of gangs video/a and video/b``."""
    like = f"pods like {event.shortage.pod_set}" if event.shortage is not None else "pods"
    if not event.group:
        return like
    *first, last = event.group[:GANGS_NAMED]
    more = len(event.group) - GANGS_NAMED
    named = f"{', '.join(first)} and {last}" if more <= 0 else f"{', '.join((*first, last))} and {more} more"
    return f"{like} of gangs {named}, which start together,"


def _obstacle(each: Obstacle, unsupported: FieldProblem | None) -> str:
    if each.code == "insufficient" and each.detail == "pods":
        return f"{each.nodes} Too many pods"
    return f"{each.nodes} {_worded(each.code, each.detail, unsupported)}"


def _worded(code: ObstacleCode, detail: str, unsupported: FieldProblem | None) -> str:
    return reasons.OBSTACLES[code].format(detail if unsupported is None else problems.line(unsupported))


def pool_nodes(pools: tuple[PoolNodes, ...]) -> str:
    """``1 node of pool gpu and 2 nodes of pool cpu``."""
    return " and ".join(f"{counted(each.nodes, 'node')} of pool {each.pool}" for each in pools)


def pool_refused(each: PoolRefusal) -> str:
    """``pool gpu: max 4, has 3, the gang needs 2 more``."""
    promised = f", {each.promised} promised to others" if each.promised else ""
    known = {str(code): code for code in reasons.OBSTACLES}
    code = known.get(each.obstacle)
    obstacle = f": {_worded(code, each.detail, each.unsupported)}" if code is not None else ""
    words = reasons.POOL_REFUSED[each.why].format(
        most=counted(each.most, "node") if each.why == "full" else "",
        has=each.has,
        promised=promised,
        needs=each.needs if each.why == "full" else counted(each.needs, "node"),
        obstacle=obstacle,
        until=f", requested again after {rfc3339(each.until)}" if each.until else "",
    )
    return f"pool {each.pool}: {words}"


def from_pools(growth: Growth | None, refusals: tuple[PoolRefusal, ...]) -> str:
    """``; asked for: 1 node of pool gpu``, or why no pool is any help; empty where no pool is declared."""
    if growth is not None:
        how = "asked for" if growth.provisioning else "enough"
        return f"; {how}: {pool_nodes(growth.pools)}"
    if not refusals:
        return ""
    return f"; no node pool can help: {', '.join(pool_refused(each) for each in refusals)}"


def waiting_for_nodes(short: Shortage, pools: str = "") -> Reason:
    """The words for a gang that has its quota and keeps it while it waits for nodes.

    ``pools``: the nodes that pools could add, see :func:`from_pools`.
    """
    text = f"{no_room(short)}{pools}"
    return Reason("AwaitingNodes", f"nodes:{text}", f"Its quota is reserved, and the gang waits for nodes: {text}")


def deferred_for_nodes(short: Shortage | None, pools: str = "") -> Reason:
    """The words for a gang that released its quota because it has no place."""
    text = f"{no_room(short)}{pools}" if short is not None else "no reason given"
    again = "it is tried again when the nodes have room for it"
    if short is not None and not short.fitted and short.obstacles and _lasts(short):
        again = "no node there is can ever take one of its pods: change their requests or node selectors, or add nodes"
    return Reason(
        "GangUnschedulable",
        f"no_nodes:{text}",
        f"The gang has no places for all of its pods: {text}. Its quota is released; {again}",
    )


def _lasts(short: Shortage) -> bool:
    """Whether the nodes refuse a pod though all else leaves them. Taints come and go with the pressure on a node."""
    return all(each.code in ("too_small", "node_affinity") for each in short.obstacles)


def half_bound(bound: int, minimum: int) -> str:
    """That a gang which has started is short of its minimum, for readers of its Events alone."""
    return (
        f"{bound} of its pods have a node and it needs {minimum}: they stay, and the others are placed as soon as "
        "there is room"
    )


def judged(verdict: Verdict) -> str:
    """The verdict of kube-scheduler on a gang that it places."""
    if verdict.scheduled:
        return "it has places for it"
    return f"it has no places for it ({verdict.reason}): {verdict.message or 'no message'}"


def group_seen(found: PodGroup) -> str:
    """A PodGroup that was seen."""
    size = "pods that start one by one" if found.alone else f"a gang of {found.minimum}"
    return size if found.verdict is None else f"{size}; kube-scheduler says: {judged(found.verdict)}"
