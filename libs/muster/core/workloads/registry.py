"""All workload kinds: one row each."""

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
    """Returns a workload, a child of a workload, or None for an object outside of Muster's concern."""
    unit_suffix: str
    """Suffix of the QueueUnit's name after the name of the object."""
    suspend_path: str = "/spec/suspend"
    """JSON pointer of the field for suspension."""
    alone: Callable[[bytes], Workload] | None = None
    """Reads an object as a workload of its own, although the object names a parent: the parent made no such object.
    None: an object that names a parent is always a child.
    """
    child: str = ""
    """Kind of the child objects, if any: children are watched with their parents."""
    auxiliary: tuple[str, ...] = ()
    """Kinds of the other objects made by the controller: parts of the workload, never queued alone."""
    annotated: bool = False
    """Operators without the field suspend by the annotation ``scheduling.x-k8s.io/suspend``."""
    pods_of: tuple[str, ...] = ()
    """Kinds that own the pods; a pod may own pods too."""
    edits: Shape = {}
    """Edits allowed while the object runs, besides the field for suspension."""
    ours: Shape = {}
    """Muster's writes into the spec, besides the field for suspension."""


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
    """The field for suspension of a kind, as users write the path: ``spec.suspend``."""
    return KINDS[kind].suspend_path[1:].replace("/", ".") if kind in KINDS else "spec.suspend"


def child_of(kind: str) -> str:
    """Kind of the child objects of a kind; empty for a workload that owns its pods."""
    return KINDS[kind].child if kind in KINDS else ""


def parents_of(kind: str) -> tuple[str, ...]:
    """Kinds of the workloads with children of this kind."""
    return tuple(name for name, row in KINDS.items() if row.child == kind)


def child_shard(kind: str) -> str:
    """The resource (plural) of the children of a kind; empty: the kind has none."""
    child = KINDS[kind].child if kind in KINDS else ""
    return KINDS[child].resource.plural if child else ""


def shards(kinds: Iterable[str]) -> tuple[str, ...]:
    """The resources (plurals) to be watched for kinds: their own, and the resources of their children."""
    chosen = [*kinds]
    needed = [*chosen, *(KINDS[kind].child for kind in chosen if KINDS[kind].child)]
    return tuple(sorted({KINDS[kind].resource.plural for kind in needed}))
