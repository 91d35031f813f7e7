"""The words of every reason: one table for each closed set of reasons.

The words for a job that is not queued have three parts: the problem, the names of the objects, and the way out.

The import of this module fails if a table lacks a reason of its set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from muster.core.objects.meta import KAI_QUEUE, QUOTA_NAME
from muster.events.alarms import AlarmReason
from muster.events.claims import ClaimOutcome, PlanObjection, StayReason
from muster.events.effects import Action, FailureReason
from muster.events.elastic import WorkersKeptReason
from muster.events.gangs import HeldBackReason, NodesClaimOutcome, PodsReleaseReason
from muster.events.growing import WithdrawalReason
from muster.events.reasons import AdoptionReason, DeferralReason, DequeueReason, GiveBackReason, ReleaseReason, Withheld
from muster.events.refusals import Refusal, RefusalDetail, RefusalReason
from muster.model.closed import total
from muster.model.language import listed, say
from muster.model.places import ObstacleCode
from muster.model.pools import PoolRefusalReason
from muster.model.raydemand import RayTrouble
from muster.told.wording import problems

# --- refusals ---------------------------------------------------------------------------------------------------------


Say = Callable[[Refusal, str, str], str]
FILE = "libs/muster/told/wording/reasons.py"


class RefusalWords(NamedTuple):
    """The words of one reason: the sentence, the meaning on the page of codes, and the way out."""

    say: Say
    means: str
    do: str


def refused(refusal: Refusal, kind: str, job: str) -> str:
    """One sentence. ``kind`` and ``job`` (namespace/name): of the refused job."""
    say = _DETAILS.get(refusal.detail) or WORDS[refusal.reason].say
    return say(refusal, kind, job)


def _held(refusal: Refusal, _kind: str, job: str) -> str:
    by, why = (
        say(" by {name}", name=refusal.name) if refusal.name else "",
        say(": {text}", text=refusal.text) if refusal.text else "",
    )
    return say("on hold{by}{why}; `muster release {job}` queues it again", by=by, why=why, job=job)


def _unclaimed(refusal: Refusal, _kind: str, job: str) -> str:
    return say(
        "no quota claims namespace {namespace}; add it to the namespaces of a leaf of ElasticQuotaTree {name}, or "
        "name a leaf with the label {label}",
        namespace=job.partition("/")[0],
        name=refusal.name,
        label=QUOTA_NAME,
    )


def _not_unique(refusal: Refusal, _kind: str, _job: str) -> str:
    called = say("{count} are called so: {names}", count=refusal.count, names=listed(refusal.names))
    return say("its label names quota {name}, and {called}; rename them", name=refusal.name, called=called)


def _two_quotas(refusal: Refusal, _kind: str, job: str) -> str:
    namespace = say("namespace {namespace} belongs to", namespace=job.partition("/")[0])
    whose = say(
        "{namespace} quota {other}",
        namespace=namespace if refusal.detail == "by_namespace" else say("its label names"),
        other=refusal.other,
    )
    both = say(
        "label {label} names queue {name}, and {whose} of an ElasticQuotaTree",
        label=KAI_QUEUE,
        name=refusal.name,
        whose=whose,
    )
    other = say("take the namespace out of that quota") if refusal.detail == "by_namespace" else say("that label")
    return say(
        "{both}: it can be charged to one of them only; remove label {label}, or {other}",
        both=both,
        label=KAI_QUEUE,
        other=other,
    )


def _label_missing(refusal: Refusal, kind: str, _job: str) -> str:
    add = say("add label {label} with one of {leaves}", label=KAI_QUEUE, leaves=_leaves(refusal))
    return say("Queue label missing from {kind}; pods will remain pending: {add}", kind=kind, add=add)


def _broken(refusal: Refusal) -> str:
    return problems.line(refusal.problem) if refusal.problem is not None else ""


def _leaves(refusal: Refusal) -> str:
    """The queues that take work."""
    more = ("…",) if refusal.count > len(refusal.names) else ()
    return listed((*refusal.names, *more)) if refusal.names else say("the queues you create")


def _in_circles(refusal: Refusal, _kind: str, job: str) -> str:
    ends = say("it left its queue")
    if refusal.name == "quota_denied":
        ends = say("its quota was denied")
    if refusal.name == "quota_released":
        ends = say("its quota was released before it ran")
    return say(
        "set aside: {count} times in a row {ends} ({other}), though nothing had changed; it is queued again when "
        "the job or its quota changes, or with `muster hold {job}` and then `muster release {job}`",
        count=refusal.count,
        ends=ends,
        other=refusal.other,
        job=job,
    )


WORDS: dict[RefusalReason, RefusalWords] = {
    "cannot_suspend": RefusalWords(
        lambda refusal, _kind, _job: _broken(refusal),
        "Its controller could never suspend it again; the message names the field.",
        "Change the field that is named.",
    ),
    "unreadable": RefusalWords(
        lambda refusal, _kind, _job: _broken(refusal),
        "The object cannot be read; the message names the field.",
        "Correct the object: it is queued then.",
    ),
    "unbound": RefusalWords(
        _unclaimed,
        "No leaf of the tree claims its namespace, or its label names none.",
        "Add the namespace to a leaf, or correct the label.",
    ),
    "held": RefusalWords(_held, "It is on hold; the message names the author and the reason.", "`muster release JOB`."),
    "no_tree": RefusalWords(
        lambda _refusal, _kind, _job: say(
            "no valid ElasticQuotaTree is in force in kube-system; apply one and it is queued"
        ),
        "No valid ElasticQuotaTree is in force.",
        "Apply one.",
    ),
    "two_quotas": RefusalWords(
        _two_quotas,
        "Its label names a KAI queue, and an ElasticQuotaTree claims it as well.",
        "Take the label away, or the namespace out of the tree.",
    ),
    "queue_label_missing": RefusalWords(
        _label_missing,
        "There are KAI queues, and neither a label nor its namespace leads it to one.",
        "Set the label `kai.scheduler/queue` to a leaf queue.",
    ),
    "queue_unknown": RefusalWords(
        lambda refusal, _kind, _job: say("Queue '{name}' takes no work", name=refusal.name),
        "The KAI queue its label names does not exist, is disabled, or is no leaf.",
        "Create the queue, or correct the label.",
    ),
    "set_aside": RefusalWords(
        _in_circles,
        "It was tried three times in a row and answered the same way, though nothing had changed: a defect, or a "
        "service with wrong settings; the message names the answer.",
        "Look at the answer in `muster why JOB`; `muster hold JOB` and `muster release JOB` have it tried again.",
    ),
}
_DETAILS: dict[RefusalDetail, Say] = {
    "namespace_unclaimed": _unclaimed,
    "quota_missing": lambda refusal, _kind, _job: say(
        "its label names quota {name}, and the tree has none of that name; correct the label or remove it",
        name=refusal.name,
    ),
    "quota_has_children": lambda refusal, _kind, _job: say(
        "its label names quota {name}, which has children; name one of those instead", name=refusal.name
    ),
    "quota_not_unique": _not_unique,
    "by_label": _two_quotas,
    "by_namespace": _two_quotas,
    "queue_missing": lambda refusal, _kind, _job: say(
        "Queue '{name}' does not exist: create it, or name one of {leaves} in label {label}",
        name=refusal.name,
        leaves=_leaves(refusal),
        label=KAI_QUEUE,
    ),
    "queue_disabled": lambda refusal, _kind, _job: say(
        "Queue '{name}' is disabled: {broken}", name=refusal.name, broken=_broken(refusal)
    ),
    "queue_has_children": lambda refusal, _kind, _job: say(
        "Queue '{name}' has queues below it, and takes no work itself: name one of {names}",
        name=refusal.name,
        names=listed(refusal.names),
    ),
}

total(WORDS, RefusalReason, f"{FILE} (WORDS)")
total({"": None, **_DETAILS}, RefusalDetail, f"{FILE} (_DETAILS)")


# --- reasons ----------------------------------------------------------------------------------------------------------


BYPASSED = "it is charged, and suspended only where the tree says muster.dev/overuse-timeout"

ADOPTED: dict[AdoptionReason, str] = {
    "already_running": "it was not suspended when it was first seen; it is charged, and not touched",
    "bypassed": f"another client started it; {BYPASSED}",
    "reserved": "it is a pod of no job; its quota has room, and it is placed",
    "not_stopped": "it is suspended, and its controller has not stopped its pods yet; charged until they are gone",
}

DEQUEUED: dict[DequeueReason, str] = {
    "gone": "it was deleted",
    "finished": "it finished",
    "started_outside": "it was started without an admission",
    "refused": "it can no longer be queued",
    "unbound": "no quota claims its namespace now",
    "held": "it is on hold",
}

RELEASED: dict[ReleaseReason, str] = {
    "finished": "it finished and its pods are gone",
    "gone": "it was deleted and its pods are gone",
    "suspended_outside": "another client suspended it and its pods are gone; it is queued again",
    "superseded": "its spec was edited before it started; it is queued again as it is now",
    "held": "it was put on hold before it was admitted",
    "paused": "the admissions of its queue were paused before it was admitted; it is queued again",
    "resume_failed": "the API server refused to resume it; it is queued again after a pause",
    "evicted": "it was evicted and its pods are gone; it is queued again",
    "preempted": "it was suspended for another job of its queue, and its pods are gone; it is queued again",
    "timed_out": "it did not start in time; it was suspended and is queued again after a pause",
    "stale": "it had too few pods of its gang and was suspended; it is queued again",
    "moved": "it was suspended so that another job has room on the nodes, and its pods are gone; its quota is "
    "reserved for it again, and it starts on its new nodes",
    "no_nodes": "its gang has no places on the nodes; it is queued again when they have room for it",
    "overuse": "it ran beyond what was admitted while its quota was above its max; it was suspended and its pods are "
    "gone; it is queued again",
}

DEFERRED: dict[DeferralReason, str] = {
    "nothing_evictable": "its queue is owed {resource}, and no borrower in {where} can be evicted",
    "no_place": "evictions would free {resource} in {where}, and no set of them leaves room for the job on the nodes",
    "nodes_stay": "its quota has room, and no evictions were found that leave room for it on the nodes",
    "search_ended": "evictions would free {resource} in {where}; the search for a set that leaves room on the nodes "
    "ended",
    "evictions_paused": "its queue is owed {resource}, and the evictions that would free it in {where} are paused "
    "(`muster resume evictions` resumes them)",
    "too_young": "its queue is owed {resource}, and no borrower in {where} has run for its minimum yet",
    "grace": "its queue is owed {resource} in {where}, and no job is evicted for it before its reclaim grace ends",
    "lower_stays": "it has a higher priority than jobs that run in its queue, and those that can be evicted would not "
    "free enough {resource} for it in {where}",
    "lower_paused": "it has a higher priority than jobs that run in its queue, and the evictions that would free "
    "{resource} for it in {where} are paused (`muster resume evictions` resumes them)",
    "lower_too_young": "it has a higher priority than jobs that run in its queue, and they have not run for their "
    "minimum yet, so {resource} in {where} is not reclaimed from them",
}
"""Why no job is evicted for a job, with the resource and the quota of the refusal."""

WITHHELD: dict[Withheld, str] = {
    "reclaim_disabled": "no job is evicted: jobs without an admission were running when this cluster was first seen; "
    "`muster resume evictions` enables evictions",
}

STALE: dict[PlanObjection, str] = {
    "not_waiting": "it no longer waits",
    "fits": "it fits without an eviction",
    "held_for_age": "quota that is freed there is held for {holder}, which too much later work has passed",
    "no_victims": "the plan names no victim",
    "victim_protected": "a victim may no longer be evicted",
    "victim_left": "a victim has left meanwhile",
    "not_preempting": "jobs of its queue are not preempted for it",
    "not_lower": "a victim in its queue has no lower priority",
    "not_served_more": "a victim has had no more GPU time than it, or keeps no checkpoints",
    "below_min": "the queue of a victim is within its guarantee",
    "gives_too_much": "a queue would lose more than it uses above its share",
    "not_enough": "it would not fit once the victims are evicted",
    "beyond_guarantee": "it is beyond the guarantee of its queue",
    "beyond_share": "it is beyond the fair share of its queue",
    "unbalanced": "its queue would be further above its share than the queue of a victim",
    "too_many_victims": "it needs fewer victims",
}
"""Why a proposed preemption is not carried out, with the job that holds the wanted quota."""

CLAIM_ENDED: dict[ClaimOutcome, str] = {
    "gone": "its claim ended: it no longer waits",
    "held": "its claim ended: it is on hold (`muster release` queues it again)",
    "paused": "its claim ended: admissions of its queue are paused",
    "moved": "its claim ended: it belongs to another queue now",
    "changed": "its claim ended: it was edited, and is queued again",
    "unsatisfiable": "its claim ended: the rules of its queue, or its quota, do not allow for it now",
    "expired": "its claim ended: not enough was released in time",
    "idle": "its claim ended: too much was idle for it, and too little was released; after a pause quota is held again",
}

STAYS: dict[StayReason, str] = {
    "overdue": "it was suspended an hour ago and its pods still exist: no job waits for them, other jobs may be "
    "evicted instead; "
    "`kubectl describe` its pods: a finalizer or a node that is gone may keep them",
    "runs_again": "it was suspended and has been started again: no job waits for it, other jobs may be evicted instead",
    "node_lost": "a pod of it is on a node that is not ready: no job waits for it, other jobs may be evicted instead; "
    "its quota is free once the node is back or its pods are deleted",
    "not_ended": "it was expected to end by itself before it could be suspended, and runs on: it may be evicted now",
}

NOT_RESUMED: dict[FailureReason, str] = {
    "gone": "it was deleted before it could be resumed",
    "spec_changed": "its spec was edited after it was admitted; it is queued again as it is now",
    "superseded": "a newer decision was carried out on it meanwhile",
    "refused": "the API server refused to resume it",
    "withdrawn": "a newer decision withdrew that",
}

NOT_SUSPENDED: dict[FailureReason, str] = {
    "gone": "it was deleted before it could be suspended",
    "spec_changed": "its spec was edited before it could be suspended",
    "superseded": "a newer decision was carried out on it meanwhile",
    "refused": "the API server refused to suspend it",
    "withdrawn": "a newer decision withdrew that",
}

NOT_BOUND: dict[FailureReason, str] = {
    "gone": "it was deleted before it could be bound",
    "spec_changed": "it was changed before it could be bound",
    "superseded": "another scheduler bound it to another node",
    "refused": "the API server refused to bind it",
    "withdrawn": "it had lost its node before it was bound; it waits for another",
}

NOT_GATED: dict[FailureReason, str] = {
    "gone": "the cluster is gone",
    "spec_changed": "it has changed meanwhile; it is decided again",
    "superseded": "a newer decision has been carried out on it",
    "refused": "the API server refused to write maxReplicas",
    "withdrawn": "a newer decision withdrew that",
}

NOT_DONE: dict[Action, str] = {
    "request_nodes": "the API server refused to write the request for nodes",
    "withdraw_nodes": "the API server refused to remove a request for nodes",
    "free_gpu": "the API server refused to delete the pod that keeps a GPU that no pod shares",
    "remove_worker": "the API server refused to delete the pod of the worker",
    "read_refusal": "the API server does not show the Events",
}
"""Writes that fail for one reason only."""

OBSTACLES: dict[ObstacleCode, str] = {
    "insufficient": "Insufficient {detail}",
    "too_small": "Insufficient {detail} even when empty",
    "unschedulable": "node(s) were unschedulable",
    "taint": "node(s) had untolerated taint {{{detail}}}",
    "not_ready": "node(s) were not ready",
    "node_affinity": "node(s) didn't match Pod's node affinity/selector",
    "ports": "node(s) didn't have free ports for the requested pod ports",
    "volume": "node(s) had volume node affinity conflict",
    "spread": "node(s) didn't match pod topology spread constraints",
    "spread_label": "node(s) didn't match pod topology spread constraints (missing required label)",
    "affinity": "node(s) didn't match pod affinity rules",
    "anti_affinity": "node(s) didn't match pod anti-affinity rules",
    "existing_anti_affinity": "node(s) didn't satisfy existing pods anti-affinity rules",
    "unsupported": "node(s) were not tried: {detail}",
}
"""Why a node refuses a pod, as kube-scheduler words it."""

POOL_REFUSED: dict[PoolRefusalReason, str] = {
    "full": "max {most}, has {has}{promised}, the gang needs {needs} more",
    "unsuitable": "its pods do not fit on nodes of this pool{obstacle}",
    "needs_pods": "nodes are added there for pods that exist, and a job has none before its admission; declare a class "
    "of ProvisioningRequest for it",
    "not_served": "its nodes are asked for by a ProvisioningRequest, which this cluster does not serve; install the "
    "Cluster Autoscaler's definition, or declare the class unschedulable-pods",
    "in_vain": "{needs} requested, none came{until}",
}
"""Why a node pool cannot help."""

WITHDRAWN: dict[WithdrawalReason, str] = {
    "met": "it has its places",
    "gone": "no job needs them now",
    "changed": "it waits for something else now",
    "expired": "they did not come in time",
    "failed": "they were refused",
    "lapsed": "its places were given to other jobs",
    "deleted": "the request was deleted",
    "unknown": "no service of this log requested them",
}
"""Why the request for nodes is withdrawn."""

GIVEN_BACK: dict[GiveBackReason, str] = {
    "not_taken": "no pod came for them in time",
    "node_gone": "their node no longer exists",
}

PODS_RELEASED: dict[PodsReleaseReason, str] = {
    "node_gone": "their node no longer exists",
    "not_bound": "they were not bound in time",
    "no_room": "pods of another scheduler took the places",
}

HELD_BACK: dict[HeldBackReason, str] = {
    "refused": "its pods and its PodGroup do not make a gang",
    "other_scheduler": "its pods are marked as a gang, and their scheduler does not know gangs",
    "priority_clash": "its pods have different priorities",
    "gated": "its pods have schedulingGates",
    "too_few_pods": "fewer pods exist than it needs to start",
    "group_incomplete": "its group is not complete",
    "no_quota": "its quota has no room",
    "no_nodes": "the nodes have no places for all of its pods",
    "timed_out": "it found no places within the time of one round; the next round follows",
    "gave_way": "another gang was placed before it",
    "starved": "other gangs have been placed before it for 20 minutes",
    "bind_refused": "the API server refused to bind one of its pods; it is tried again",
    "broken": "it has fewer running pods than its minimum",
}

NODES_CLAIM_ENDED: dict[NodesClaimOutcome, str] = {
    "placed": "it has its places",
    "gone": "the gang is gone",
    "expired": "not enough became free in time; other gangs may use the nodes",
    "changed": "its pods or the nodes changed",
    "yielded": "a gang that has waited longer claims nodes instead",
}

RAY_TROUBLE: dict[RayTrouble, str] = {
    "unreachable": "its head does not answer",
    "unauthorized": "its head wants a token that Muster does not have",
    "unreadable": "its head answers with something that cannot be read",
    "stalled": "its autoscaler has said nothing new for three ticks",
}

WORKERS_KEPT: dict[WorkersKeptReason, str] = {
    "at_minimum": "its worker groups are at their minReplicas",
    "no_cluster": "it has no Ray cluster that scales itself",
    "not_written": "the request had no effect for two minutes; check whether its cluster can be written to, and "
    "whether its pods end",
    "in_use": "those that were idle for too long are used again, or gone",
}

ALARMS: dict[AlarmReason, tuple[str, str]] = {
    "no_head": (
        "RayHeadMissing",
        "{cluster} has no head pod: see `kubectl describe raycluster` and whether a ResourceQuota or a webhook refuses "
        "the pod",
    ),
    "unauthorized": (
        "RayHeadRefuses",
        "The head of {cluster} wants a token or a certificate that Muster does not have: mount it for the autoscaler "
        "bridge (MUSTER_RAY_TOKENS)",
    ),
    "unreadable": (
        "RayHeadUnreadable",
        "The head of {cluster} answers on port 6379 with something that cannot be read: see that Ray is 2.10 or newer",
    ),
    "unreachable": (
        "RayHeadUnreachable",
        "The head of {cluster} runs and does not answer: see its log, and whether a NetworkPolicy keeps the autoscaler "
        "bridge from ports 6379 and 8265",
    ),
    "stalled": (
        "RayAutoscalerStalled",
        "The autoscaler of {cluster} does nothing although requests wait for it: see the log of container "
        "autoscaler in its head pod; deleting that container's process makes kubelet start it again",
    ),
    "no_nodes": (
        "RayWorkersWithoutNodes",
        "Workers of {cluster} find no node ({groups}): `muster why` of its job shows what the nodes refuse. Another "
        "group that would do is tried meanwhile",
    ),
    "not_growing": (
        "RayAutoscalerNotGrowing",
        "Replicas are granted and wanted in {cluster} ({groups}), and its autoscaler does not ask for them: see the "
        "log of container autoscaler in its head pod",
    ),
    "not_resizing": (
        "RayWorkersNotResized",
        "Workers of {cluster} may grow in place ({groups}) and do not: see the log of container autoscaler in its head "
        "pod. The API server refuses a resize that the node has no room for",
    ),
    "not_shrinking": (
        "RayAutoscalerNotShrinking",
        "Workers of {cluster} are idle beyond their timeout ({groups}), and its autoscaler does not remove them: "
        "Muster does",
    ),
    "no_group": (
        "RayNoWorkerGroup",
        "In {cluster} waits what no worker of any group can hold ({lacks}): change the request, or add a worker group "
        "with such resources and labels",
    ),
    "not_ready": (
        "RayClusterNotReady",
        "{ref} was admitted and is not ready: see its conditions, its pods, and whether the images can be pulled",
    ),
}
"""{reason of an alarm: (name on an Event, sentence)}"""

TABLES: dict[str, tuple[Any, Mapping[Any, Any]]] = {
    "ADOPTED": (AdoptionReason, ADOPTED),
    "DEQUEUED": (DequeueReason, DEQUEUED),
    "RELEASED": (ReleaseReason, RELEASED),
    "DEFERRED": (DeferralReason, DEFERRED),
    "WITHHELD": (Withheld, WITHHELD),
    "STALE": (PlanObjection, STALE),
    "CLAIM_ENDED": (ClaimOutcome, CLAIM_ENDED),
    "STAYS": (StayReason, STAYS),
    "NOT_RESUMED": (FailureReason, NOT_RESUMED),
    "NOT_SUSPENDED": (FailureReason, NOT_SUSPENDED),
    "NOT_BOUND": (FailureReason, NOT_BOUND),
    "NOT_GATED": (FailureReason, NOT_GATED),
    "OBSTACLES": (ObstacleCode, OBSTACLES),
    "POOL_REFUSED": (PoolRefusalReason, POOL_REFUSED),
    "WITHDRAWN": (WithdrawalReason, WITHDRAWN),
    "GIVEN_BACK": (GiveBackReason, GIVEN_BACK),
    "PODS_RELEASED": (PodsReleaseReason, PODS_RELEASED),
    "HELD_BACK": (HeldBackReason, HELD_BACK),
    "NODES_CLAIM_ENDED": (NodesClaimOutcome, NODES_CLAIM_ENDED),
    "RAY_TROUBLE": (RayTrouble, RAY_TROUBLE),
    "WORKERS_KEPT": (WorkersKeptReason, WORKERS_KEPT),
    "ALARMS": (AlarmReason, ALARMS),
}
"""{table: (closed set, table)}."""

for _name, (_reasons, _table) in TABLES.items():
    total(_table, _reasons, f"{FILE} ({_name})")
