"""TFJob and PyTorchJob (kubeflow.org/v1), MPIJob (v2beta1): replica specs, a run policy, conditions with the phase.

A training job owns its pods; the launcher of an MPIJob runs in a Job made by the operator. A job is suspended by
``spec.runPolicy.suspend``; operators older than this field know only the annotation ``scheduling.x-k8s.io/suspend``.
Either suspends, and resuming lifts both at once. A suspended job loses its pods in any phase.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct, field

from muster.core.objects.meta import SUSPEND, Condition, Meta, decode, is_true
from muster.core.objects.podspec import PodTemplate
from muster.core.workloads.common import (
    Life,
    Needs,
    check_version,
    count,
    foreign_manager,
    has_no_spec,
    marked_suspended,
    workload,
)
from muster.model.workload import Outcome, Phase, Switch, Workload

GROUP = "kubeflow.org"
SUSPEND_PATH = "/spec/runPolicy/suspend"
OPERATOR = "kubeflow.org/training-operator"
WAITS = "WaitForWorkersReady"
"""spec.launcherCreationPolicy for a launcher made when all workers of the MPIJob are ready."""
MAX_TYPE = 64
"""A longer name of a replica type is not repeated in messages."""


class ReplicaSpec(Struct, frozen=True):
    """One entry of the replica specs."""

    replicas: int | None = None
    template: PodTemplate = field(default_factory=PodTemplate)


class SchedulingPolicy(Struct, frozen=True, rename="camel"):
    priority_class: str | None = None


class RunPolicy(Struct, frozen=True, rename="camel"):
    suspend: bool | None = None
    managed_by: str | None = None
    scheduling_policy: SchedulingPolicy | None = None


class ReplicaStatus(Struct, frozen=True):
    active: int | None = None


class KubeflowStatus(Struct, frozen=True, rename="camel"):
    conditions: tuple[Condition, ...] | None = None
    replica_statuses: dict[str, ReplicaStatus | None] | None = None


class TrainingSpec(Struct, frozen=True, rename="camel"):
    run_policy: RunPolicy | None = None
    launcher_creation_policy: str | None = None
    tf_replica_specs: dict[str, ReplicaSpec] = field(default_factory=dict)
    pytorch_replica_specs: dict[str, ReplicaSpec] = field(default_factory=dict)
    mpi_replica_specs: dict[str, ReplicaSpec] = field(default_factory=dict)


class Training(Struct, frozen=True, rename="camel"):
    metadata: Meta
    api_version: str = ""
    spec: TrainingSpec | None = None
    status: KubeflowStatus | None = None


class TrainingKind(Struct, frozen=True):
    """The differences between the training kinds."""

    name: str
    version: str
    replicas: str
    """The field of the spec with the replica specs."""
    order: tuple[str, ...]
    """The replica types in the order of their priority."""
    managers: tuple[str, ...] = (OPERATOR,)
    """Values of ``runPolicy.managedBy`` for the kind's own operator."""


TFJOB = TrainingKind("TFJob", "v1", "tf", ("Chief", "Master", "PS", "Worker", "Evaluator"))
PYTORCHJOB = TrainingKind("PyTorchJob", "v1", "pytorch", ("Master", "Worker"))
MPIJOB = TrainingKind("MPIJob", "v2beta1", "mpi", ("Launcher", "Worker"), ("kubeflow.org/mpi-operator", OPERATOR))


def reader(kind: TrainingKind) -> Callable[[bytes], Workload]:
    """The reader of a kind's workloads. The reader raises UnreadableError naming the unusable field."""

    def read(raw: bytes) -> Workload:
        job: Training = decode(raw, Training)
        spec = job.spec
        if spec is None:
            raise has_no_spec()
        version = job.api_version or f"{GROUP}/{kind.version}"
        check_version(version, GROUP)
        chosen = spec.run_policy or RunPolicy()
        manager = "" if chosen.managed_by in kind.managers else chosen.managed_by
        replicas: Mapping[str, ReplicaSpec] = getattr(spec, f"{kind.replicas}_replica_specs")
        later = ("Launcher",) if spec.launcher_creation_policy == WAITS else ()
        return workload(
            kind.name,
            version,
            job.metadata,
            _life(bool(chosen.suspend) or marked_suspended(job.metadata), job.status or KubeflowStatus()),
            _needs(chosen, f"spec.{kind.replicas}ReplicaSpecs", replicas, kind.order, later),
            refusal=foreign_manager("spec.runPolicy.managedBy", manager, kind.managers[0]),
            switch=Switch(
                suspend_parent_missing=spec.run_policy is None, annotation=SUSPEND in job.metadata.annotations
            ),
        )

    return read


def _life(suspended: bool, status: KubeflowStatus) -> Life:
    phase: Phase
    outcome: Outcome = ""
    conditions = status.conditions
    active = any(counts is not None and counts.active for counts in (status.replica_statuses or {}).values())
    settled = is_true(conditions, "Suspended") and not active
    runs = is_true(conditions, "Running")
    if is_true(conditions, "Succeeded"):
        phase, outcome, word = "finished", "succeeded", "Succeeded"
    elif is_true(conditions, "Failed"):
        phase, outcome, word = "finished", "failed", "Failed"
    elif suspended:
        phase = "suspending" if not settled and (active or runs) else "waiting"
        word = "Suspended" if settled else ""
    elif runs:
        phase, word = "running", "Running"
    else:
        phase, word = "starting", "Restarting" if is_true(conditions, "Restarting") else ""
    return Life(phase=phase, suspended=suspended, outcome=outcome, detail=word, settled=settled)


def _needs(
    policy: RunPolicy, path: str, specs: Mapping[str, ReplicaSpec], order: tuple[str, ...], later: tuple[str, ...]
) -> Needs:
    """All replicas of all types; a type without a number has one replica."""
    needs = Needs()
    if policy.scheduling_policy is not None:
        needs.prioritize(policy.scheduling_policy.priority_class)
    known = [name for name in order if name in specs]
    for name in [*known, *sorted(specs.keys() - {*known})]:
        spec, at = specs[name], f"{path}.{name}" if name.isalnum() and len(name) <= MAX_TYPE else f"{path}[...]"
        pods = count(spec.replicas, 1, f"{at}.replicas")
        needs.add(name, pods, spec.template, at, later=name in later)
        needs.prioritize(spec.template.spec.priority_class_name, spec.template.spec.priority)
    return needs
