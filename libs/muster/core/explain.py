"""From reasons to sentences: the one place where what the log says is put into words for people.

A sentence names the object's own terms with numbers, says what it waits for, and what would help.
"""

from __future__ import annotations

from msgspec import Struct

from muster.core.queueing.book import Denial
from muster.events.decisions import (
    AdoptionReason,
    DeferralReason,
    DequeueReason,
    EvictionOrdered,
    GiveBackReason,
    Obstacle,
    ObstacleCode,
    QuotaDenied,
    ReleaseReason,
    Shortage,
    Victim,
)
from muster.events.effects import FailureReason
from muster.events.gangs import GangHeldBack, HeldBackReason, PodsReleaseReason
from muster.events.growing import WithdrawalReason
from muster.model.pools import Growth, PoolNodes, PoolRefusal, PoolRefusalReason
from muster.model.resources import format_quantity
from muster.model.text import counted, moment, span


class Reason(Struct, frozen=True):
    """Why something stands where it stands.

    ``key`` is equal for two moments that read the same to a user, whatever is in use at the moment.
    """

    code: str
    """CamelCase, as Kubernetes Events and conditions have it."""
    key: str
    text: str


def waiting_for_quota(denial: Denial | QuotaDenied, holder: str = "") -> Reason:
    """The words for a denial, in the form ``Insufficient quota(RESOURCE) in quota PATH: request R, max M, used U``.

    ``holder``: namespace/name of whom part of the quota is held for, if it is.
    """
    resource, path = denial.resource, denial.path
    asked, limit, used = (format_quantity(amount, resource) for amount in (denial.asked, denial.limit, denial.used))
    if denial.of_min:
        return _beyond_min(denial, f"request {asked}, min {limit}, used {used}")
    if denial.of_runtime:
        return Reason(
            "InsufficientRuntimeQuota",
            f"runtime:{path}:{resource}:{denial.asked}",
            f"Insufficient runtime quota({resource}) in quota {path}: request {asked}, runtime {limit}, used {used}. "
            f"What the quota may use now is divided by weight: wait for its jobs to complete or others to ask for less",
        )
    if denial.asked > denial.limit:
        return Reason(
            "ExceedsMaxQuota",
            f"exceeds:{path}:{resource}:{limit}",
            f"Exceeds quota({resource}) in quota {path}: request {asked}, max {limit}. It can never be admitted "
            f"like this: lower the request or raise the max",
        )
    if denial.held and holder:
        held = format_quantity(denial.held, resource)
        return Reason(
            "QuotaHeld",
            f"held:{path}:{resource}:{limit}:{holder}",
            f"Insufficient quota({resource}) in quota {path}: request {asked}, max {limit}, used {used}, of which "
            f"{held} are held for {holder}. Wait until it has started or its claim ends",
        )
    return Reason(
        "InsufficientQuota",
        f"insufficient:{path}:{resource}:{limit}",
        f"Insufficient quota({resource}) in quota {path}: request {asked}, max {limit}, used {used}. "
        f"Wait for running jobs to complete",
    )


def _beyond_min(denial: Denial | QuotaDenied, numbers: str) -> Reason:
    """What is not preemptible stays within the guarantee, whatever is free."""
    resource, path = denial.resource, denial.path
    never = denial.asked > denial.limit
    return Reason(
        "ExceedsMinQuota" if never else "InsufficientMinQuota",
        f"min:{path}:{resource}:{denial.limit}:{never}",
        f"{'Exceeds' if never else 'Insufficient'} min quota({resource}) in quota {path}: {numbers} by jobs that are "
        f"not preemptible. "
        + ("Raise the min, lower the request or make it preemptible" if never else "Wait for one of those to complete"),
    )


def waiting_for_claim(denial: Denial) -> Reason:
    """The words for a claimant: what leaves is held for it."""
    resource, path = denial.resource, denial.path
    return Reason(
        "WaitingForClaim",
        f"claim:{path}:{resource}",
        f"What is given back in quota {path} is held for it: request "
        f"{format_quantity(denial.asked, resource)} {resource}. It starts as soon as enough has left",
    )


def paused(queue: str, by: str, why: str) -> Reason:
    """The words for a queue somebody has paused."""
    who = f" by {by}" if by else ""
    return Reason(
        "Paused",
        f"paused:{queue}:{by}:{why}",
        f"Admissions are paused{who}{f': {why}' if why else ''}; `muster resume admissions` lets them go on",
    )


def resting(where: str, what: tuple[str, ...], by: str, why: str) -> str:
    """The words for what somebody has paused; ``where``: a quota path, empty for the whole tree."""
    who, reason, option = f" by {by}" if by else "", f": {why}" if why else "", f" --queue {where}" if where else ""
    verb = "are paused" if not where else f"of queue {where} are paused"
    again = " and ".join(f"`muster resume {each}{option}`" for each in what)
    lets = "lets" if len(what) == 1 else "let"
    return f"{' and '.join(what).capitalize()} {verb}{who}{reason}; {again} {lets} them go on"


def evicted_for(claimant: str, queue: str, path: str, resource: str) -> Reason:
    """The words for a job that was suspended to give quota back."""
    return Reason(
        "Reclaimed",
        f"reclaimed:{claimant}",
        f"Suspended to give {resource} back in quota {path}: job {claimant} stays within the min of its queue {queue}, "
        f"and this one ran above the min of its own. It is queued again in its old place",
    )


def preempted_for(claimant: str, queue: str, path: str, resource: str, priorities: tuple[int, int]) -> Reason:
    """The words for a job that was suspended for a higher priority in its own queue; ``priorities``: its, the other."""
    return Reason(
        "Preempted",
        f"preempted:{claimant}",
        f"Preempted by a job of higher priority in the same queue: {claimant} has priority {priorities[1]}, this one "
        f"{priorities[0]}, and needs {resource} of quota {path} in queue {queue}. It is queued again in its old place",
    )


def leaving_for(event: EvictionOrdered, victim: Victim) -> Reason:
    """The words for a victim of an order: which rule it falls under."""
    ref, priority = event.ref, event.priority
    if victim.priority is None or priority is None:
        return evicted_for(ref.key, event.queue, event.path, event.resource)
    return preempted_for(ref.key, event.queue, event.path, event.resource, (victim.priority, priority))


def work_lost(ran: int) -> str:
    """What an eviction costs, after the sentence about it; ``ran`` in ms."""
    return f". It had run for {span(ran)}: what it has not saved since is lost"


def taken_meanwhile(resource: str, shown: list[str], count: int) -> str:
    """Who took what a job waits for, while it waited."""
    more = f", and {count - len(shown)} before them" if count > len(shown) else ""
    return f". While it waited, {resource} there went to {', '.join(shown)}{more}"


def waiting_untried(ahead: int) -> Reason:
    """The words for a job nobody has tried yet."""
    who = "next in its queue" if ahead <= 0 else f"behind {ahead} in its queue"
    return Reason("Queued", "untried", f"Queued, {who}; about to be tried")


def waiting_for_sync(kinds: list[str]) -> Reason:
    """The words for a wait that ends when the cluster is fully known."""
    return Reason(
        "NotSynced",
        "unsynced",
        f"Nothing is admitted until the cluster is fully known; still listing {', '.join(kinds)}",
    )


def resume_failed(message: str, until: str) -> Reason:
    """The words for a workload the API server refused to resume."""
    return Reason(
        "ResumeFailed",
        f"resume_failed:{message}",
        f"Admitted, but the API server refused to resume it: {message or 'no reason given'}. Tried again after {until}",
    )


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


def no_room(short: Shortage) -> str:
    """``0/5 nodes are available: 1 Insufficient nvidia.com/gpu, 4 node(s) had untolerated taint {a: b}``."""
    causes = ", ".join(sorted(_obstacle(each) for each in short.obstacles))
    text = f"0/{short.nodes} nodes are available" + (f": {causes}" if causes else "")
    if short.kept_for:
        text += f"; what is free is kept for {short.kept_for}, which has waited longer"
    if not short.fitted:
        return text
    return f"{short.fitted} of {counted(short.count, f'{short.pod_set} pod')} fit; for the next one {text}"


def _obstacle(each: Obstacle) -> str:
    if each.code == "insufficient" and each.detail == "pods":
        return f"{each.nodes} Too many pods"
    return f"{each.nodes} {OBSTACLES[each.code].format(each.detail)}"


POOL_REFUSED: dict[PoolRefusalReason, str] = {
    "full": "max {most}, has {has}{promised}, the gang needs {needs} more",
    "unsuitable": "its nodes would not take its pods{obstacle}",
    "needs_pods": "nodes are added there for pods that exist, and a job has none before it is let in; declare a class "
    "of ProvisioningRequest for it",
    "not_served": "its nodes are asked for by a ProvisioningRequest, which this cluster does not serve; install the "
    "Cluster Autoscaler's definition, or declare the class unschedulable-pods",
    "in_vain": "{needs} asked for in vain{until}",
}
"""Why a node pool cannot help."""
POOLS_REFUSED = "Node pools that do not count, the others do: "
WITHDRAWN: dict[WithdrawalReason, str] = {
    "met": "it has its places",
    "gone": "nobody is left who needs them",
    "changed": "it waits for something else now",
    "expired": "they did not come in time",
    "failed": "they were refused",
    "lapsed": "what was kept for it is given to others",
    "unknown": "nobody of whom this log knows has asked for them",
}
"""Why nodes are asked for no longer."""


def pool_nodes(pools: tuple[PoolNodes, ...]) -> str:
    """``1 node of pool gpu and 2 nodes of pool cpu``."""
    return " and ".join(f"{counted(each.nodes, 'node')} of pool {each.pool}" for each in pools)


def pool_refused(each: PoolRefusal) -> str:
    """``pool gpu: max 4, has 3, the gang needs 2 more``."""
    promised = f", {each.promised} promised to others" if each.promised else ""
    known = {str(code): words for code, words in OBSTACLES.items()}
    obstacle = f": {known[each.obstacle].format(each.detail)}" if each.obstacle in known else ""
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


def deferred_for_nodes(short: Shortage | None, until: str, pools: str = "") -> Reason:
    """The words for a gang that gave its quota back because it has no place."""
    text = f"{no_room(short)}{pools}" if short is not None else "no reason given"
    return Reason(
        "GangUnschedulable",
        f"no_nodes:{text}",
        f"The gang has no place for all of its pods: {text}. Its quota is given back; tried again after {until}",
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
    "no_nodes": "the nodes have no place for all of it",
    "timed_out": "it found no place in the time one round may take; it goes on trying",
    "gave_way": "another gang was let in before it",
    "starved": "other gangs have been let in before it for 20 minutes",
    "bind_refused": "the API server refused to bind one of its pods; it is tried again",
    "broken": "it has lost so many pods that fewer than its minimum are left",
}
GANG_EVENTS: dict[HeldBackReason, str] = {
    "refused": "GangRefused",
    "other_scheduler": "GangNotPlaced",
    "priority_clash": "GangRefused",
    "gated": "GangWaits",
    "too_few_pods": "GangWaits",
    "group_incomplete": "GangWaits",
    "no_nodes": "GangFailedScheduling",
    "timed_out": "GangFailedScheduling",
    "gave_way": "GangFailedScheduling",
    "starved": "GangStarved",
    "bind_refused": "GangBindRefused",
    "broken": "GangBroken",
}
"""Reasons of the Events on pods of a gang that waits."""


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


def held_back_code(event: GangHeldBack) -> str:
    """Reason of the Events on pods that wait; one that is in no gang is not called one."""
    code = GANG_EVENTS[event.reason]
    return code if event.gang else code.removeprefix("Gang")


SUSPENDED_OUTSIDE = Reason(
    "SuspendedOutside",
    "suspended_outside",
    "Suspended by somebody else after its admission; it keeps its quota until its pods are gone, "
    "then it is queued again",
)
RUNNING_TIMEOUT = Reason(
    "RunningTimeout",
    "running_timeout",
    "Suspended again: it was admitted and did not come to run in time. Its quota is given back, and it is queued "
    "again after a pause",
)
ADMITTED = Reason("Admitted", "admitted", "Admitted: its quota is reserved and it is being started")
RUNNING = Reason("Running", "running", "Running")

ADOPTED: dict[AdoptionReason, str] = {
    "already_running": "it already ran when it was first seen: charged as it is, and left alone",
    "bypassed": "it was started around the queue: charged as it is, and left alone",
}
RELEASED: dict[ReleaseReason, str] = {
    "finished": "it is over and nothing of it is left",
    "gone": "it was deleted and nothing of it is left",
    "suspended_outside": "somebody suspended it and nothing of it is left; it is queued again",
    "superseded": "its spec was edited before it started; it is queued again as it is now",
    "resume_failed": "the API server refused to resume it; it is queued again after a pause",
    "evicted": "it was suspended to give quota back, and nothing of it is left; it is queued again in its old place",
    "preempted": "it was suspended for a job of higher priority in its queue, and nothing of it is left; it is queued "
    "again in its old place",
    "timed_out": "it did not come to run in time; it was suspended and is queued again after a pause",
    "no_nodes": "its gang has no place on the nodes; it is queued again after a pause",
}
NOT_RESUMED: dict[FailureReason, str] = {
    "gone": "it was deleted before it could be resumed",
    "spec_changed": "its spec was edited after it was admitted; it is queued again as it is now",
    "superseded": "a newer decision was carried out on it meanwhile",
    "refused": "the API server refused to resume it",
}
NOT_SUSPENDED: dict[FailureReason, str] = {
    "gone": "it was deleted before it could be suspended",
    "spec_changed": "its spec was edited before it could be suspended",
    "superseded": "a newer decision was carried out on it meanwhile",
    "refused": "the API server refused to suspend it",
}
NOT_ASKED = "the API server refused to have nodes asked for"
NOT_WITHDRAWN = "the API server refused to remove a request for nodes"
NOT_BOUND: dict[FailureReason, str] = {
    "gone": "it was deleted before it could be bound",
    "spec_changed": "it was changed before it could be bound",
    "superseded": "somebody else has bound it to another node",
    "refused": "the API server refused to bind it",
}
DEFERRED: dict[DeferralReason, str] = {
    "nothing_evictable": "its queue is owed {0}, and nothing in quota {1} that runs above its own min may be suspended",
    "evictions_paused": "its queue is owed {0}, and somebody has paused the evictions that would free it in quota {1} "
    "(`muster resume evictions` lets them go on)",
    "too_young": "its queue is owed {0}, and what runs above its min in quota {1} has not run for its minimum yet",
    "lower_stays": "it has a higher priority than jobs that run in its queue, and those that may be suspended would "
    "not free enough {0} for it in quota {1}",
    "lower_paused": "it has a higher priority than jobs that run in its queue, and somebody has paused the evictions "
    "that would free {0} for it in quota {1} (`muster resume evictions` lets them go on)",
    "lower_too_young": "it has a higher priority than jobs that run in its queue, and they have not run for their "
    "minimum yet, so {0} in quota {1} is not taken back from them",
}
"""Why nothing is taken back for somebody, with the resource and the quota that refuses it."""
WITHHELD = {
    "reclaim_disabled": "nothing is done: work that nobody had admitted was running when this cluster was first seen, "
    "so nobody is evicted before you say so (`muster resume evictions`)",
}
CLAIM_ENDED = {
    "gone": "nothing is held for it any more: it no longer waits",
    "changed": "nothing is held for it any more: it asks for something else now",
    "expired": "nothing is held for it any more: not enough was given back in time",
    "victims_stay": "nothing is held for it any more: what should have given way could not be suspended",
}
TIMED_OUT = "it was admitted and did not come to run in time: it is suspended and queued again after a pause"
DEQUEUED: dict[DequeueReason, str] = {
    "gone": "it was deleted",
    "finished": "it is over",
    "started_outside": "it was started around the queue",
    "refused": "it can no longer be queued",
    "unbound": "no quota claims its namespace any more",
    "held": "somebody holds it back",
}
REFUSED: dict[str, str] = {
    "cannot_suspend": "CannotSuspend",
    "unbound": "NoQuota",
    "unreadable": "Unreadable",
    "no_tree": "NoQuotaTree",
    "held": "Held",
}
"""Refusal reason -> the CamelCase word of its Event."""
