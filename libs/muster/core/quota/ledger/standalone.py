"""Pods of no job: those that name us, or all or none where the tree says so, are charged to the quota of their
namespace, or of their label, while they run. Nobody admitted them, and nobody evicts them. Executors of Spark count as
those that name us do where no job runs through their driver: whatever has the token of its account may make them.
"""

from __future__ import annotations

from msgspec import Struct

from muster.core.objects.labels import quota_name
from muster.core.quota.ledger.ledger import Ledger
from muster.events.base import Cause
from muster.events.decisions import WorkloadAdopted
from muster.model.keys import Ref
from muster.model.resources import Vector
from muster.model.workload import PodState


class StandalonePod(Struct, frozen=True):
    """A pod of no job that holds a node."""

    ref: Ref
    request: Vector
    ours: bool
    named: str
    """The quota its label names; empty when its namespace decides."""
    cause: Cause


def observed(pods: dict[str, StandalonePod], pod: PodState, cause: Cause, *, stray: bool = False) -> bool:
    """A pod looks like this now; whether that is any concern of the quota. ``stray``: no job runs through its owner."""
    uid = pod.ref.uid
    if (pod.owner_uid and not stray) or pod.over or not pod.node:
        return pods.pop(uid, None) is not None
    pods[uid] = StandalonePod(pod.ref, pod.request, pod.ours or stray, quota_name(pod.labels), cause)
    return True


def leaf_of(ledger: Ledger, pod: StandalonePod) -> str | None:
    """The leaf a pod is charged to; None when it is charged to none."""
    # The leaf for work that nobody claims is for jobs: it would have to take the pods of the whole cluster.
    known = pod.named or pod.ref.namespace in ledger.leaf_of
    leaf = ledger.leaf_for(pod.ref.namespace, pod.named) if known else None
    which = ledger.rules_of(leaf).charge_pods if leaf is not None else "none"
    return None if which == "none" or (not which and not pod.ours) else leaf


def adoption(ledger: Ledger, pod: StandalonePod) -> WorkloadAdopted:
    """The charge of a pod that runs."""
    return WorkloadAdopted(
        cause=pod.cause,
        ref=pod.ref,
        attempt=0,
        queue=leaf_of(ledger, pod) or "",
        request=pod.request,
        reason="bypassed",
        pods=1,
        preemptible=False,
        named=pod.named,
    )
