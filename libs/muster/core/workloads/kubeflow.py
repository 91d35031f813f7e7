"""What TFJob, PyTorchJob and MPIJob share: replica specs, a run policy, and how their conditions say the phase.

They are suspended by ``spec.runPolicy.suspend``; operators older than that field know the annotation
``scheduling.x-k8s.io/suspend`` only. Either counts, and both are lifted at once. A job that is suspended loses its
pods whatever it was doing.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from muster.core.objects.conditions import Condition, is_true
from muster.core.objects.meta import SUSPEND, Meta
from muster.core.objects.podspec import PodTemplate
from muster.core.workloads.common import (
    Life,
    Needs,
    check_version,
    count,
    foreign_manager,
    marked_suspended,
    workload,
)
from muster.model.workload import Outcome, Phase, Switch, Workload

GROUP = "kubeflow.org"
SUSPEND_PATH = "/spec/runPolicy/suspend"
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


def read(
    kind: str,
    api_version: str,
    meta: Meta,
    policy: RunPolicy | None,
    replicas: tuple[str, Mapping[str, ReplicaSpec]],
    status: KubeflowStatus | None,
    *,
    order: tuple[str, ...],
    managers: tuple[str, ...],
    later: tuple[str, ...] = (),
) -> Workload:
    """The workload such a job is, whatever it names as its controller.

    ``replicas``: (path, specs by type). ``order``: the types in the order in which their priority counts.
    ``managers``: what ``runPolicy.managedBy`` says where the kind's own operator runs it. ``later``: the types of which
    the pods are made once the others run.
    """
    check_version(api_version, GROUP)
    chosen = policy or RunPolicy()
    manager = "" if chosen.managed_by in managers else chosen.managed_by
    return workload(
        kind,
        api_version,
        meta,
        _life(bool(chosen.suspend) or marked_suspended(meta), status or KubeflowStatus()),
        _needs(chosen, *replicas, order, later),
        refusal=foreign_manager("spec.runPolicy.managedBy", manager, managers[0]),
        switch=Switch(suspend_parent_missing=policy is None, annotation=SUSPEND in meta.annotations),
    )


def _life(suspended: bool, status: KubeflowStatus) -> Life:
    phase: Phase
    outcome: Outcome = ""
    settled = False
    conditions = status.conditions
    active = any(each is not None and each.active for each in (status.replica_statuses or {}).values())
    runs = is_true(conditions, "Running")
    if is_true(conditions, "Succeeded"):
        phase, outcome, word = "finished", "succeeded", "Succeeded"
    elif is_true(conditions, "Failed"):
        phase, outcome, word = "finished", "failed", "Failed"
    elif suspended:
        settled = is_true(conditions, "Suspended") and not active
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
    """All replicas of all types, one of a type that names no number."""
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
