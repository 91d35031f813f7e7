"""Every workload kind there is: one row each."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct

from muster.core.workloads import edits
from muster.core.workloads.edits import Shape
from muster.core.workloads.kinds import job, raycluster, rayjob, rayservice, sparkapplication, training
from muster.model import api
from muster.model.api import ApiResource
from muster.model.workload import ChildState, Workload


class Kind(Struct, frozen=True):
    """How one kind is read, suspended and shown."""

    resource: ApiResource
    read: Callable[[bytes], Workload | ChildState | None]
    """A workload; what another one runs through; or nothing, when it is no concern of ours."""
    unit_suffix: str
    """Name of its QueueUnit = name of the object + this."""
    suspend_path: str = "/spec/suspend"
    """JSON pointer of the field that suspends it."""
    alone: Callable[[bytes], Workload] | None = None
    """Reads one that names a parent as a workload by itself, where only the parent can tell whether it is its own."""
    child: str = ""
    """Kind of the objects it runs through, if any: they are watched with it."""
    auxiliary: tuple[str, ...] = ()
    """Kinds of the other objects that its controller makes for it: part of it, and never queued by itself."""
    annotated: bool = False
    """Operators that do not know the field suspend it by the annotation ``scheduling.x-k8s.io/suspend``."""
    pods_of: tuple[str, ...] = ()
    """Kinds that own its pods; a pod may own pods itself."""
    edits: Shape = {}
    """What may be edited on it while it runs, besides the field that suspends it."""
    ours: Shape = {}
    """What Muster writes into its spec, besides that field."""


KINDS: dict[str, Kind] = {
    "RayJob": Kind(
        api.RAYJOBS,
        rayjob.read,
        "-ray-qu",
        child="RayCluster",
        auxiliary=("Job",),
        pods_of=("RayCluster",),
        edits=edits.RAY_JOB,
        ours=edits.OURS_RAY_JOB,
    ),
    "RayCluster": Kind(
        api.RAYCLUSTERS,
        raycluster.read,
        "-raycluster-qu",
        alone=raycluster.alone,
        auxiliary=("Job",),
        pods_of=("RayCluster",),
        edits=edits.RAY_CLUSTER,
        ours=edits.OURS_RAY_CLUSTER,
    ),
    "RayService": Kind(
        api.RAYSERVICES,
        rayservice.read,
        "-rayservice-qu",
        child="RayCluster",
        pods_of=("RayCluster",),
        edits=edits.RAY_SERVICE,
        ours=edits.OURS_RAY_SERVICE,
    ),
    "Job": Kind(api.JOBS, job.read, "", pods_of=("Job",), edits=edits.JOB, ours=edits.OURS_JOB),
    "TFJob": Kind(
        api.TFJOBS,
        training.reader(training.TFJOB),
        "-tf-qu",
        training.SUSPEND_PATH,
        annotated=True,
        pods_of=("TFJob",),
        edits=edits.KUBEFLOW,
        ours=edits.OURS_REPLICAS,
    ),
    "PyTorchJob": Kind(
        api.PYTORCHJOBS,
        training.reader(training.PYTORCHJOB),
        "-py-qu",
        training.SUSPEND_PATH,
        annotated=True,
        pods_of=("PyTorchJob",),
        edits=edits.KUBEFLOW,
        ours=edits.OURS_REPLICAS,
    ),
    "MPIJob": Kind(
        api.MPIJOBS,
        training.reader(training.MPIJOB),
        "-mpi-qu",
        training.SUSPEND_PATH,
        child="Job",
        annotated=True,
        pods_of=("MPIJob", "Job"),
        edits=edits.KUBEFLOW,
        ours=edits.OURS_REPLICAS,
    ),
    "SparkApplication": Kind(
        api.SPARKAPPLICATIONS,
        sparkapplication.read,
        "-spark-qu",
        annotated=True,
        pods_of=("SparkApplication", "Pod"),
        edits=edits.SPARK,
        ours=edits.OURS_SPARK,
    ),
}
"""{kind: row}"""

POD_OWNERS = frozenset(owner for kind in KINDS.values() for owner in kind.pods_of)
"""Kinds whose pods belong to a workload."""


def suspend_field(kind: str) -> str:
    """The field that suspends a kind, as people write it: ``spec.suspend``."""
    return KINDS[kind].suspend_path[1:].replace("/", ".") if kind in KINDS else "spec.suspend"


def child_of(kind: str) -> str:
    """Kind of the object that a workload of a kind runs through; empty when its pods are its own."""
    return KINDS[kind].child if kind in KINDS else ""


def parents_of(kind: str) -> tuple[str, ...]:
    """Kinds of the workloads that run through objects of a kind."""
    return tuple(name for name, row in KINDS.items() if row.child == kind)


def shards(kinds: Iterable[str]) -> tuple[str, ...]:
    """The resources (plurals) that have to be watched for kinds: their own, and those they run through."""
    chosen = [*kinds]
    needed = [*chosen, *(KINDS[kind].child for kind in chosen if KINDS[kind].child)]
    return tuple(sorted({KINDS[kind].resource.plural for kind in needed}))
