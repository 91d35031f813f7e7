"""Pods of no job, charged to the quota of their namespace or label.

The tree charges all such pods, no pods, or (the default) pods that name Muster as their scheduler. A pod that names
Muster waits for the charge before it has a node. Running pods are charged as they are.
"""

from __future__ import annotations

from msgspec import Struct

from muster.core.objects.meta import is_preemptible, quota_name
from muster.core.quota.ledger.quotaledger import Ledger
from muster.events.base import Cause
from muster.events.decisions import WorkloadAdopted
from muster.events.gangs import PodsDenied
from muster.events.reasons import AdoptionReason
from muster.model.keys import Ref
from muster.model.resources import Vector
from muster.model.workload import PodState


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
    """From the label: whether the pod may use more than the min of its quota. Nothing evicts the pod."""


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
    named, preemptible = quota_name(pod.labels), is_preemptible(pod.labels)
    pods[uid] = StandalonePod(pod.ref, pod.request, ours, named, cause, bool(pod.node), preemptible)
    return True


def leaf_of(ledger: Ledger, pod: StandalonePod) -> str | None:
    """The leaf charged for a pod; None without a charge."""
    # The leaf for unbound work is for jobs only: else it would take the pods of the whole cluster.
    known = pod.named or pod.ref.namespace in ledger.leaf_of
    leaf = ledger.leaf_for(pod.ref.namespace, pod.named) if known else None
    which = ledger.rules_of(leaf).charge_pods if leaf is not None else "none"
    return None if which == "none" or (not which and not pod.ours) else leaf


def adoption(ledger: Ledger, pod: StandalonePod, reason: AdoptionReason = "bypassed") -> WorkloadAdopted:
    """The charge of a pod that runs, or will run soon."""
    return WorkloadAdopted(
        cause=pod.cause,
        ref=pod.ref,
        attempt=0,
        queue=leaf_of(ledger, pod) or "",
        request=pod.request,
        reason=reason,
        pods=1,
        preemptible=False,
        named=pod.named,
    )
