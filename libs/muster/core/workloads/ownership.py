"""The owner of an object that names a controller: the claim counts only for objects made as this controller makes them.

A user with the right to create an object may write any owner reference. So an object counts as part of its owner only
where the owner's kind makes such objects, under the same names and in the same number. Any other object is judged like
a user's own: queued, charged, and guarded.

The name of a RayCluster is the operator's choice, and is in the status of its RayJob or RayService. :class:`Parents`
remembers these names.
"""

from __future__ import annotations

from msgspec import Struct, field

from muster.core.objects.meta import Meta
from muster.model.workload import SPARK_ROLE, ChildState, Workload

FORMER = 8
"""Earlier child names kept per parent: a retry makes a new RayCluster while the old RayCluster ends."""


def counts_pod(meta: Meta) -> bool:
    """Whether the charge of a pod's controller includes the pod, whatever the labels of the pod say.

    A pod under another pod counts only with Spark's mark of an executor; all other pods count.
    """
    return meta.controller.kind != "Pod" or meta.labels.get(SPARK_ROLE) == "executor"


class Parent(Struct):
    """An object that may run through a child."""

    child: str = ""
    """Name of the present child, by the parent's controller; empty when the controller names no child."""
    former: tuple[str, ...] = ()
    """Names of former children, the newest last."""
    rests: bool = False
    """No part of the parent runs, and no part will run before the parent is resumed."""


class Parents(Struct):
    """The workloads whose children one shard reads, by uid."""

    known: dict[str, Parent] = field(default_factory=dict)

    def observed(self, workload: Workload) -> None:
        was = self.known.get(workload.ref.uid, Parent())
        former = was.former
        if was.child and was.child != workload.child:
            former = (*former, was.child)[-FORMER:]
        if workload.outgoing and workload.outgoing not in former:
            former = (*former, workload.outgoing)[-FORMER:]
        rests = workload.suspended and workload.phase == "waiting"
        self.known[workload.ref.uid] = Parent(workload.child, former, rests)

    def gone(self, uid: str) -> None:
        self.known.pop(uid, None)

    def disown(self, child: ChildState) -> bool:
        """Whether the parent named in the owner reference of a child certainly does not own the child.

        KubeRay writes the name of a RayCluster into the status of the owner before creating the RayCluster. A parent
        that is unknown, or that starts and names no child yet, may own the child.
        """
        parent = self.known.get(child.owner_uid)
        if parent is None or child.ref.name in (parent.child, *parent.former):
            return False
        return bool(parent.child) or parent.rests
