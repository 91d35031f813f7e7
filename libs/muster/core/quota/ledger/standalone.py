"""Pods of no job, charged to the quota of their namespace or label.

The tree charges all such pods, no pods, or (the default) pods that name Muster as their scheduler. A pod that names
Muster waits for the charge before it has a node. Running pods are charged as they are. A pod that its deleted job left
behind is charged as the job was. Two of these pods may be evicted for others: a pod in a KAI queue, as its class says,
and a pod left behind, as its job might.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from muster.core.objects.meta import KAI_QUEUE, RAY_NODE, is_preemptible, queue_and_quota, quota_name
from muster.core.quota.demand import Charge, kai_preemptible
from muster.core.quota.ledger.quotaledger import Ledger
from muster.events.base import Cause
from muster.events.decisions import WorkloadAdopted
from muster.events.gangs import PodsDenied
from muster.events.reasons import AdoptionReason
from muster.model.keys import Ref
from muster.model.quota import KAI_ROOT
from muster.model.resources import Vector
from muster.model.workload import PodState, Workload

OF_JOBS = (
    "batch.kubernetes.io/controller-uid",
    RAY_NODE,
    "training.kubeflow.org/job-name",
    "sparkoperator.k8s.io/app-name",
)
"""Labels by which controllers know their pods: a pod with a label and without an owner was left behind."""


class StandalonePod(Struct, frozen=True):
    """A pod of no job with a node, or waiting for a node from Muster."""

    ref: Ref
    request: Vector
    ours: bool
    named: str
    """The quota named by the label; empty when the namespace decides."""
    cause: Cause
    bound: bool = True
    preemptible: bool = True
    """From the label, or the charge of the job: whether the pod may use more than the min of its quota."""
    left: bool = False
    """Its job is deleted and has left it behind."""
    of_class: Workload | None = None
    """The pod as a job of one pod, where labels of KAI may name its class."""
    node: str = ""


class PodsOpen(Struct):
    """Pods of no job with places, waiting for their quota."""

    gang: str
    together: dict[str, Ref]
    """By uid: pods charged together."""
    beside: dict[str, Ref]
    priority: int
    cause: Cause
    denied: PodsDenied | None = None
    """The last denial."""


def observed(pods: dict[str, StandalonePod], pod: PodState, cause: Cause, *, alone: bool) -> bool:
    """Fold the state of a pod; whether the change matters to quota."""
    uid = pod.ref.uid
    if not alone or pod.over or not (pod.node or pod.ours):
        return pods.pop(uid, None) is not None
    ours = pod.ours or bool(pod.owner_uid)
    before = pods.get(uid)
    if before is not None and before.left:
        pods[uid] = replace(before, request=pod.request, bound=bool(pod.node), cause=cause, node=pod.node)
        return True
    named, preemptible = quota_name(pod.labels), is_preemptible(pod.labels)
    if not pod.ours and not pod.owner_uid and any(label in pod.labels for label in OF_JOBS):  # Its job is not known.
        left = StandalonePod(pod.ref, pod.request, True, named, cause, bool(pod.node), preemptible, left=True)
        pods[uid] = replace(left, node=pod.node)
        return True
    of_class = as_job(pod) if pod.labels.get(KAI_QUEUE) else None
    alike = StandalonePod(pod.ref, pod.request, ours, named, cause, bool(pod.node), preemptible, of_class=of_class)
    pods[uid] = replace(alike, node=pod.node)
    return True


def as_job(pod: PodState) -> Workload:
    """A pod as a job of one pod."""
    return Workload(
        ref=pod.ref,
        api_version="v1",
        rv=pod.rv,
        generation=0,
        created=pod.created,
        phase="running",
        suspended=False,
        need={"ack": pod.request, "full": pod.request},
        priority=pod.priority,
        deleting=pod.deleting,
        labels=pod.labels,
    )


def left_behind(pod: PodState, charge: Charge, cause: Cause) -> StandalonePod:
    """A pod without its job: charged where its job was, and evicted where its job might be suspended."""
    bound = bool(pod.node)
    left = StandalonePod(pod.ref, pod.request, True, charge.named, cause, bound, charge.preemptible, left=True)
    return replace(left, node=pod.node)


def is_preemptible_at(ledger: Ledger, pod: StandalonePod, leaf: str) -> bool:
    """Whether a pod may use more than the min, or the quota, of its leaf."""
    if pod.of_class is not None and not pod.left and ledger.by_shares(leaf):
        return kai_preemptible(pod.of_class, None)
    return pod.preemptible


def gives_way(ledger: Ledger, pod: StandalonePod, leaf: str) -> bool:
    """Whether a charged pod may be evicted for others."""
    return (pod.left or ledger.by_shares(leaf)) and is_preemptible_at(ledger, pod, leaf)


def leaf_of(ledger: Ledger, pod: StandalonePod) -> str | None:
    """The leaf charged for a pod; None without a charge."""
    # The leaf for unbound work is for jobs only: else it would take the pods of the whole cluster.
    known = pod.named or pod.ref.namespace in ledger.leaf_of
    leaf = ledger.leaf_for(pod.ref.namespace, pod.named) if known else None
    which = ledger.rules_of(leaf).charge_pods if leaf is not None else "none"
    if leaf is not None and pod.left:
        return leaf
    return None if which == "none" or (not which and not pod.ours) else leaf


def no_leaf(ledger: Ledger, pod: StandalonePod) -> str:
    """The queue or the quota that a pod names and that takes no pods; empty where the name takes pods, or where no tree
    reads the name.
    """
    queue, quota = queue_and_quota(pod.named)
    read = queue if queue and KAI_ROOT in ledger.trees else quota
    return read if read and ledger.trees and ledger.leaf_for(pod.ref.namespace, pod.named) is None else ""


def adoption(ledger: Ledger, pod: StandalonePod, reason: AdoptionReason = "bypassed") -> WorkloadAdopted:
    """The charge of a pod that runs, or will run soon."""
    leaf = leaf_of(ledger, pod) or ""
    return WorkloadAdopted(
        cause=pod.cause,
        ref=pod.ref,
        attempt=0,
        queue=leaf,
        request=pod.request,
        reason=reason,
        pods=1,
        preemptible=gives_way(ledger, pod, leaf),
        named=pod.named,
    )
