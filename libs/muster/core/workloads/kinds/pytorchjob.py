"""PyTorchJob (kubeflow.org/v1): a PyTorch training of the Kubeflow training operator; its pods are its own."""

from __future__ import annotations

from msgspec import Struct, field

from muster.core.objects.meta import Meta, decode
from muster.core.workloads import kubeflow
from muster.core.workloads.common import has_no_spec
from muster.core.workloads.kubeflow import KubeflowStatus, ReplicaSpec, RunPolicy
from muster.model.workload import Workload

KIND = "PyTorchJob"
ORDER = ("Master", "Worker")


class PyTorchJobSpec(Struct, frozen=True, rename="camel"):
    run_policy: RunPolicy | None = None
    pytorch_replica_specs: dict[str, ReplicaSpec] = field(default_factory=dict)


class PyTorchJob(Struct, frozen=True, rename="camel"):
    metadata: Meta
    api_version: str = "kubeflow.org/v1"
    spec: PyTorchJobSpec | None = None
    status: KubeflowStatus | None = None


def read(raw: bytes) -> Workload:
    """The workload a PyTorchJob is. Raises UnreadableError naming the field that makes it unusable."""
    job: PyTorchJob = decode(raw, PyTorchJob)
    if job.spec is None:
        raise has_no_spec()
    return kubeflow.read(
        KIND,
        job.api_version,
        job.metadata,
        job.spec.run_policy,
        ("spec.pytorchReplicaSpecs", job.spec.pytorch_replica_specs),
        job.status,
        order=ORDER,
        managers=("kubeflow.org/training-operator",),
    )
