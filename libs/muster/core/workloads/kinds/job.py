"""Job (batch/v1): suspended by ``spec.suspend``; the Job owns its pods. Suspending deletes the running pods.

The launcher of an MPIJob is part of the MPIJob, the submitter of a RayJob is part of the RayJob. Every other Job is
queued like a user's own Job, whatever controller the Job names.
"""

from __future__ import annotations

from msgspec import Struct, field

from muster.core.objects.kaiqueue import pod_group_name
from muster.core.objects.meta import SCHEDULING_GROUP, Condition, Meta, decode, is_true
from muster.core.objects.podspec import PodTemplate
from muster.core.workloads.common import (
    Life,
    Needs,
    check_version,
    child,
    count,
    foreign_manager,
    has_no_spec,
    workload,
)
from muster.core.workloads.ownership import held_by_another, launches, part_of_ray
from muster.model.keys import Ref
from muster.model.workload import ChildState, Outcome, Phase, Workload

KIND = "Job"
CONTROLLER = "kubernetes.io/job-controller"


class JobSpec(Struct, frozen=True, rename="camel"):
    suspend: bool | None = None
    managed_by: str | None = None
    parallelism: int | None = None
    completions: int | None = None
    template: PodTemplate = field(default_factory=PodTemplate)


class BatchJobStatus(Struct, frozen=True, rename="camel"):
    start_time: str | None = None
    active: int | None = None
    ready: int | None = None
    terminating: int | None = None
    succeeded: int | None = None
    conditions: tuple[Condition, ...] | None = None


class BatchJob(Struct, frozen=True, rename="camel"):
    metadata: Meta
    api_version: str = "batch/v1"
    spec: JobSpec | None = None
    status: BatchJobStatus | None = None


def read(raw: bytes) -> Workload | ChildState | None:
    """A Job by itself, or as the child of an MPIJob; None for a part of a RayJob or a RayCluster."""
    job: BatchJob = decode(raw, BatchJob)
    spec, status, meta = job.spec, job.status or BatchJobStatus(), job.metadata
    if spec is None:
        raise has_no_spec()
    life, pods = _life(bool(spec.suspend), status), count(spec.parallelism, 1, "spec.parallelism")
    if launches(meta, pods):
        return child(KIND, meta, life)
    if part_of_ray(meta, pods):
        return None
    check_version(job.api_version, "batch")
    refusal = foreign_manager("spec.managedBy", spec.managed_by, CONTROLLER) or held_by_another(meta)
    return workload(KIND, job.api_version, job.metadata, life, _needs(spec, status, meta.ref(KIND)), refusal=refusal)


def _life(suspended: bool, status: BatchJobStatus) -> Life:
    """The pods of a finished Job show which pods still end."""
    phase: Phase
    outcome: Outcome = ""
    pods = bool(status.active or status.terminating)
    settled = is_true(status.conditions, "Suspended") and not pods
    if is_true(status.conditions, "Complete"):
        phase, outcome, word = "finished", "succeeded", "Complete"
    elif is_true(status.conditions, "Failed"):
        phase, outcome, word = "finished", "failed", "Failed"
    elif suspended:
        phase, word = ("suspending" if pods else "waiting"), "Suspended" if settled else ""
    else:
        # Servers before 1.29 may not count the ready pods.
        runs = status.active if status.ready is None else status.ready
        begun = bool(runs or status.succeeded) and not settled
        phase, word = ("running", "Running") if begun else ("starting", "")
    return Life(
        phase=phase,
        suspended=suspended,
        outcome=outcome,
        detail=word,
        settled=settled,
        over=phase == "finished" or suspended,
    )


def _needs(spec: JobSpec, status: BatchJobStatus, ref: Ref) -> Needs:
    """As many pods as may run at once, and no more than the completions still to do.

    The number is the same for a Job suspended half way, for a Job resumed for the rest, and for the running Job.
    """
    pods = count(spec.parallelism, 1, "spec.parallelism")
    if spec.completions is not None:
        done = max(0, status.succeeded or 0)
        pods = min(pods, max(0, count(spec.completions, 1, "spec.completions") - done))
    needs, pod = Needs(), spec.template.spec
    needs.add("main", pods, spec.template, "spec", steer=False)
    # The API server refuses changes of the schedulerName of a Job, and of the whole pod template once the Job has
    # begun.
    begun = status.start_time is not None
    if not begun or spec.template.annotations.get(SCHEDULING_GROUP) == pod_group_name(ref):
        needs.steering.add(spec.template, "spec.template", fixed=True, sealed=begun)
    needs.prioritize(pod.priority_class_name, pod.priority)
    return needs
