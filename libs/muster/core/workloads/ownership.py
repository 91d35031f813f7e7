"""Whose an object is that names a controller: a claim that counts only where that controller would have made it so.

A user who may create an object may write any owner into it. So an object counts as part of its owner where its
owner's kind makes such objects, under the name and in the number in which it makes them. What does not is judged like
what people create: it is queued, charged, and guarded.

A RayCluster does not name its owner: its name is the operator's choice, and is in the status of its RayJob or
RayService. :class:`Parents` remembers those names.
"""

from __future__ import annotations

from msgspec import Struct, field

from muster.core.objects.meta import Meta, Owner
from muster.model.problem import FieldProblem, problem
from muster.model.workload import SPARK_ROLE, ChildState, Workload

JOBSET = ("jobset.x-k8s.io", "JobSet")
FORMER = 8
"""Earlier names kept of the objects a parent ran through: a retry makes a new RayCluster while the old one ends."""


def belongs(owner: Owner, group: str, *kinds: str) -> bool:
    """Whether an owner reference names one of these kinds of an API group (of any version)."""
    return owner.kind in kinds and owner.api_version.rpartition("/")[0] == group


def part_of_ray(meta: Meta, pods: int) -> bool:
    """Whether a Job is what KubeRay runs beside a RayJob or a RayCluster: one pod, under the name it gives it.

    The submitter is named like its RayJob, the clean-up of Redis like its RayCluster with a suffix.
    """
    owner = meta.controller
    submits = belongs(owner, "ray.io", "RayJob") and meta.name == owner.name
    cleans = belongs(owner, "ray.io", "RayCluster") and meta.name.endswith("-redis-cleanup")
    return pods <= 1 and (submits or cleans)


def launches(meta: Meta, pods: int) -> bool:
    """Whether a Job is the launcher of an MPIJob: one pod, and the name that the MPI operator gives it."""
    owner = meta.controller
    return belongs(owner, "kubeflow.org", "MPIJob") and pods <= 1 and meta.name == f"{owner.name}-launcher"


def counts_pod(meta: Meta) -> bool:
    """Whether a pod is charged with its controller: always, also where it is not found again by its labels.

    Of the pods that a pod controls those are which Spark marks as its executors.
    """
    return meta.controller.kind != "Pod" or meta.labels.get(SPARK_ROLE) == "executor"


def held_by_another(meta: Meta) -> FieldProblem | None:
    """Why a Job must not be resumed by us though it is charged when it runs; None when it may be."""
    owner = meta.controller
    if (owner.api_version.rpartition("/")[0], owner.kind) != JOBSET:
        return None
    return problem("metadata.ownerReferences", "of_a_jobset", jobset=owner.name[:63])


class Parent(Struct):
    """What is known of an object that may run through another one."""

    child: str = ""
    """Name of the object it runs through now, as its controller says; empty when it names none."""
    former: tuple[str, ...] = ()
    """Names it gave earlier, the newest last."""
    rests: bool = False
    """Nothing of it runs, and nothing of it will before it is resumed."""


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
        """Whether a child is certainly none of the parent that it names.

        KubeRay writes the name of a RayCluster into the status of its owner before it creates the RayCluster. A parent
        that has not been seen yet, or that starts and has named nothing so far, says nothing against it.
        """
        parent = self.known.get(child.owner_uid)
        if parent is None or child.ref.name in (parent.child, *parent.former):
            return False
        return bool(parent.child) or parent.rests
