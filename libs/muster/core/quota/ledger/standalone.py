"""Pods of no job: those that name us, or all or none where the tree says so, are charged to the quota of their
namespace, or of their label. One that names us waits for that before it has a node; what runs is charged as it is.
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
    """A pod of no job that holds a node, or waits for one of us."""

    ref: Ref
    request: Vector
    ours: bool
    named: str
    """The quota its label names; empty when its namespace decides."""
    cause: Cause
    bound: bool = True
    preemptible: bool = True
    """What its label says: whether it may use more than the min of its quota. Nothing evicts it."""


class PodsOpen(Struct):
    """Pods of no job that have places and wait for their quota."""

    gang: str
    together: dict[str, Ref]
    """By uid: those that are charged together."""
    beside: dict[str, Ref]
    priority: int
    cause: Cause
    denied: PodsDenied | None = None
    """What was said of them last."""


def observed(pods: dict[str, StandalonePod], pod: PodState, cause: Cause, *, alone: bool) -> bool:
    """A pod looks like this now; whether that is any concern of the quota."""
    uid = pod.ref.uid
    if not alone or pod.over or not (pod.node or pod.ours):
        return pods.pop(uid, None) is not None
    ours = pod.ours or bool(pod.owner_uid)
    named, preemptible = quota_name(pod.labels), is_preemptible(pod.labels)
    pods[uid] = StandalonePod(pod.ref, pod.request, ours, named, cause, bool(pod.node), preemptible)
    return True


def leaf_of(ledger: Ledger, pod: StandalonePod) -> str | None:
    """The leaf a pod is charged to; None when it is charged to none."""
    # The leaf for work that no queue claims is for jobs: it would have to take the pods of the whole cluster.
    known = pod.named or pod.ref.namespace in ledger.leaf_of
    leaf = ledger.leaf_for(pod.ref.namespace, pod.named) if known else None
    which = ledger.rules_of(leaf).charge_pods if leaf is not None else "none"
    return None if which == "none" or (not which and not pod.ours) else leaf


def adoption(ledger: Ledger, pod: StandalonePod, reason: AdoptionReason = "bypassed") -> WorkloadAdopted:
    """The charge of a pod that runs, or is about to."""
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
