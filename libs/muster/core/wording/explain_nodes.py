"""Why a gang or a pod has no nodes, in words: the part of `explain` that is about places, pods and node pools."""

from __future__ import annotations

from muster.core.codes.values import NodesKept
from muster.core.wording import problems
from muster.core.wording.explain import Reason
from muster.events.decisions import GiveBackReason, Obstacle, ObstacleCode, Shortage
from muster.events.gangs import GangHeldBack, HeldBackReason, PodsReleaseReason
from muster.events.growing import WithdrawalReason
from muster.model.gang import PodGroup, Verdict
from muster.model.pools import Growth, PoolNodes, PoolRefusal, PoolRefusalReason
from muster.model.problem import FieldProblem
from muster.model.text import counted, moment

OBSTACLES: dict[ObstacleCode, str] = {
    "insufficient": "Insufficient {}",
    "unschedulable": "node(s) were unschedulable",
    "taint": "node(s) had untolerated taint {{{}}}",
    "not_ready": "node(s) were not ready",
    "node_affinity": "node(s) didn't match Pod's node affinity/selector",
    "ports": "node(s) didn't have free ports for the requested pod ports",
    "volume": "node(s) had volume node affinity conflict",
    "spread": "node(s) didn't match pod topology spread constraints",
    "spread_label": "node(s) didn't match pod topology spread constraints (missing required label)",
    "affinity": "node(s) didn't match pod affinity rules",
    "anti_affinity": "node(s) didn't match pod anti-affinity rules",
    "existing_anti_affinity": "node(s) didn't satisfy existing pods anti-affinity rules",
    "unsupported": "node(s) were not tried: {}",
}
"""Why a node refuses a pod, as kube-scheduler words it."""


def no_room(short: Shortage, pods: str = "") -> str:
    """Why there is no place. ``pods``: what is counted, see :func:`pods_of`; empty: the pods of a set of a job.

    ``0/5 nodes are available: 1 Insufficient nvidia.com/gpu, 4 node(s) had untolerated taint {a: b}``.
    """
    if short.within is not None:
        return f"its pods are to be together, and {problems.line(short.within)}"
    causes = ", ".join(sorted(_obstacle(each, short.unsupported) for each in short.obstacles))
    text = f"0/{short.nodes} nodes are available" + (f": {causes}" if causes else "")
    if short.kept_for:
        text += f"; what is free is kept for {short.kept_for}, which has waited longer"
    if not short.fitted:
        return text
    pods = pods or counted(short.count, f"{short.pod_set} pod").partition(" ")[2]
    return f"{short.fitted} of {short.count} {pods} fit; for the next one {text}"


GANGS_NAMED = 5
NODES_NAMED = 3


def kept_now(found: NodesKept, *, own: bool) -> str:
    """That what becomes free on nodes is kept for a gang; ``own``: for the one that asks."""
    more = len(found.nodes) - NODES_NAMED
    names = ", ".join(found.nodes[:NODES_NAMED]) + (f" and {counted(more, 'more node')}" if more > 0 else "")
    if own:
        return f"What becomes free on {names} is kept for it"
    return f"What is free on {names} now is kept for {found.gang}, which has claimed these nodes"


def pods_of(event: GangHeldBack) -> str:
    """What the shortage of a gang of pods counts: ``pods like train-0``, also ``of gangs video/a and video/b``."""
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
    return OBSTACLES[code].format(detail if unsupported is None else problems.line(unsupported))


POOL_REFUSED: dict[PoolRefusalReason, str] = {
    "full": "max {most}, has {has}{promised}, the gang needs {needs} more",
    "unsuitable": "its nodes would not take its pods{obstacle}",
    "needs_pods": "nodes are added there for pods that exist, and a job has none before its admission; declare a class "
    "of ProvisioningRequest for it",
    "not_served": "its nodes are asked for by a ProvisioningRequest, which this cluster does not serve; install the "
    "Cluster Autoscaler's definition, or declare the class unschedulable-pods",
    "in_vain": "{needs} asked for in vain{until}",
}
"""Why a node pool cannot help."""
WITHDRAWN: dict[WithdrawalReason, str] = {
    "met": "it has its places",
    "gone": "nobody is left who needs them",
    "changed": "it waits for something else now",
    "expired": "they did not come in time",
    "failed": "they were refused",
    "lapsed": "what was kept for it is given to others",
    "deleted": "somebody has deleted the request",
    "unknown": "no service that this log knows has asked for them",
}
"""Why nodes are asked for no longer."""


def pool_nodes(pools: tuple[PoolNodes, ...]) -> str:
    """``1 node of pool gpu and 2 nodes of pool cpu``."""
    return " and ".join(f"{counted(each.nodes, 'node')} of pool {each.pool}" for each in pools)


def pool_refused(each: PoolRefusal) -> str:
    """``pool gpu: max 4, has 3, the gang needs 2 more``."""
    promised = f", {each.promised} promised to others" if each.promised else ""
    known = {str(code): code for code in OBSTACLES}
    code = known.get(each.obstacle)
    obstacle = f": {_worded(code, each.detail, each.unsupported)}" if code is not None else ""
    words = POOL_REFUSED[each.why].format(
        most=counted(each.most, "node") if each.why == "full" else "",
        has=each.has,
        promised=promised,
        needs=each.needs if each.why == "full" else counted(each.needs, "node"),
        obstacle=obstacle,
        until=f", again after {moment(each.until)}" if each.until else "",
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

    ``pools``: what node pools could give, see :func:`from_pools`.
    """
    text = f"{no_room(short)}{pools}"
    return Reason("AwaitingNodes", f"nodes:{text}", f"Its quota is reserved, and the gang waits for nodes: {text}")


def deferred_for_nodes(short: Shortage | None, pools: str = "") -> Reason:
    """The words for a gang that gave its quota back because it has no place."""
    text = f"{no_room(short)}{pools}" if short is not None else "no reason given"
    return Reason(
        "GangUnschedulable",
        f"no_nodes:{text}",
        f"The gang has no place for all of its pods: {text}. "
        "Its quota is given back; it is tried again when the nodes have room for it",
    )


GIVEN_BACK: dict[GiveBackReason, str] = {
    "not_taken": "no pod came for them in time",
    "node_gone": "their node no longer exists",
}

PODS_RELEASED: dict[PodsReleaseReason, str] = {
    "node_gone": "their node no longer exists",
    "not_bound": "they were not bound in time",
    "no_room": "somebody else's pods have taken the room",
}
HELD_BACK: dict[HeldBackReason, str] = {
    "refused": "what its pods and its PodGroup say makes no gang",
    "other_scheduler": "its pods have the marks of a gang and no scheduler that knows gangs",
    "priority_clash": "its pods do not have one priority",
    "gated": "schedulingGates of its pods keep it from being tried",
    "too_few_pods": "fewer pods exist than it needs to start",
    "group_incomplete": "its group is not complete",
    "no_quota": "its quota has no room",
    "no_nodes": "the nodes have no place for all of it",
    "timed_out": "it found no place in the time one round may take; it goes on trying",
    "gave_way": "another gang was let in before it",
    "starved": "other gangs have been let in before it for 20 minutes",
    "bind_refused": "the API server refused to bind one of its pods; it is tried again",
    "broken": "it has lost so many pods that fewer than its minimum are left",
}


def half_bound(bound: int, minimum: int) -> str:
    """That a gang which has started is short of its minimum, for who reads only its Events."""
    return (
        f"{bound} of its pods have a node and it takes {minimum}: they stay, and the others are placed as soon as "
        "there is room"
    )


NODES_CLAIM_ENDED = {
    "placed": "it has its places",
    "gone": "the gang is gone",
    "expired": "not enough became free in time; others may go on",
    "changed": "its pods, or the nodes, are others now",
    "yielded": "a gang that has waited longer claims nodes instead",
}


def judged(verdict: Verdict) -> str:
    """What kube-scheduler says of a gang that is its own."""
    if verdict.scheduled:
        return "it has places for it"
    return f"it has no places for it ({verdict.reason}): {verdict.message or 'it says no more'}"


def group_seen(found: PodGroup) -> str:
    """A PodGroup that was seen."""
    size = "pods that start one by one" if found.alone else f"a gang of {found.minimum}"
    return size if found.verdict is None else f"{size}; kube-scheduler says: {judged(found.verdict)}"
