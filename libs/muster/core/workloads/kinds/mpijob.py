"""MPIJob (kubeflow.org/v2beta1): its workers are its own, its launcher runs in a Job that the MPI operator makes."""

from __future__ import annotations

from msgspec import Struct, field

from muster.core.objects.meta import Meta, decode
from muster.core.workloads import kubeflow
from muster.core.workloads.common import has_no_spec
from muster.core.workloads.kubeflow import KubeflowStatus, ReplicaSpec, RunPolicy
from muster.model.workload import Workload

KIND = "MPIJob"
ORDER = ("Launcher", "Worker")
WAITS = "WaitForWorkersReady"
"""spec.launcherCreationPolicy by which the launcher is made when all workers are ready."""


class MPIJobSpec(Struct, frozen=True, rename="camel"):
    run_policy: RunPolicy | None = None
    launcher_creation_policy: str | None = None
    mpi_replica_specs: dict[str, ReplicaSpec] = field(default_factory=dict)


class MPIJob(Struct, frozen=True, rename="camel"):
    metadata: Meta
    api_version: str = "kubeflow.org/v2beta1"
    spec: MPIJobSpec | None = None
    status: KubeflowStatus | None = None


def read(raw: bytes) -> Workload:
    """The workload a MPIJob is. Raises UnreadableError naming the field that makes it unusable."""
    job: MPIJob = decode(raw, MPIJob)
    if job.spec is None:
        raise has_no_spec()
    return kubeflow.read(
        KIND,
        job.api_version,
        job.metadata,
        job.spec.run_policy,
        ("spec.mpiReplicaSpecs", job.spec.mpi_replica_specs),
        job.status,
        order=ORDER,
        later=("Launcher",) if job.spec.launcher_creation_policy == WAITS else (),
        managers=("kubeflow.org/mpi-operator", "kubeflow.org/training-operator"),
    )
