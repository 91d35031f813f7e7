"""The table of kinds: one definition each, in the form that a platform team writes too."""

from __future__ import annotations

from typing import Any

from msgspec import Raw, Struct, ValidationError, convert
from msgspec.structs import replace

from muster.core.objects.meta import Meta, decode, unreadable
from muster.core.objects.podspec import PodTemplate, amounts
from muster.core.workloads import rayjobs, spark
from muster.core.workloads.common import Needs, count
from muster.core.workloads.defined import ObjectView, Parts, Reader, Special
from muster.core.workloads.definition import Child, Definition, KindEnd, Manager, Pods, Roles, Sign, Suspension
from muster.model.problem import problem


def _word(path: str, *words: str) -> Sign:
    """The field is one of these words; without words: the field is not empty."""
    return Sign(path=path, words=words)


def _ends(succeeded: str, failed: str = "Failed") -> tuple[KindEnd, ...]:
    return KindEnd("succeeded", Sign(succeeded)), KindEnd("failed", Sign(failed))


_STATE, _RAY_STATE, _SPARK_STATE = "status.jobDeploymentStatus", "status.state", "status.applicationState.state"
_CLUSTERS = "status.pendingServiceStatus.rayClusterName | status.activeServiceStatus.rayClusterName"
"""The newer cluster of an upgrade comes first, the older one is on its way out."""
_KUBERAY = Manager("spec.managedBy", ("ray.io/kuberay-operator",))
MIN_RESOURCES = "kube-queue/min-resources"
_KUBEFLOW_EDITS = ("activeDeadlineSeconds", "backoffLimit", "cleanPodPolicy", "ttlSecondsAfterFinished")
_TRAINER = "kubeflow.org/training-operator"
_ACTIVE = Sign(positive=("status.replicaStatuses.*.active",))
_ROLES = Roles("status.replicaStatuses.*")
_JOB_PODS = Sign(positive=("status.active", "status.terminating"))


def _training(kind: str, specs: str, order: str, suffix: str | None, version: str = "v1", **more: Any) -> Definition:
    """A kind of the training operator: replica specs, a run policy, conditions with the phase."""
    own, later = more.pop("own", ()), more.pop("later", Pods())
    more.setdefault("edits", {"runPolicy": dict.fromkeys(_KUBEFLOW_EDITS, "free")})
    pods = Pods(each=f"spec.{specs}.*", order=tuple(order.split(",")), count=("replicas",), over=_ROLES)
    return Definition(
        kind=kind,
        api_version=f"kubeflow.org/{version}",
        suspend=Suspension("spec.runPolicy.suspend", annotation=True),
        pods=(replace(pods, later=later.later, when=later.when),),
        priority=("spec.runPolicy.schedulingPolicy.priorityClass",),
        minimum=("spec.runPolicy.schedulingPolicy.minAvailable", "spec.elasticPolicy.minReplicas"),
        ends=_ends("Succeeded"),
        settled=Sign("Suspended", unless=_ACTIVE),
        stops=Sign(any=(_ACTIVE, Sign("Running"))),
        running=Sign("Running"),
        told=("Restarting",),
        managed_by=Manager("spec.runPolicy.managedBy", (*own, _TRAINER)),
        unit_suffix=suffix,
        **more,
    )


_JOBS_ACTIVE = Sign(positive=("status.jobsStatus[].active",))
_SET_ACTIVE = Sign(positive=("status.replicatedJobsStatus[].active",))
_PHASE = "status.phase"
_WRAPS = ("Job", "JobSet", "PyTorchJob", "RayCluster", "RayJob")
"""What the controller of AppWrappers makes, where Muster reads the kind."""

_ROWS = (
    Definition(
        kind="RayJob",
        api_version="ray.io/v1",
        detail=_STATE,
        ends=(
            KindEnd(
                "succeeded", Sign(path=_STATE, words=("Complete",), any=(_word("status.jobStatus", "SUCCEEDED", ""),))
            ),
            KindEnd("failed", _word(_STATE, "Complete", "Failed")),
            KindEnd("invalid", _word(_STATE, "ValidationFailed")),
        ),
        settled=_word(_STATE, "Suspended"),
        stops=Sign(path=_STATE, unless=_word(_STATE, "New")),
        running=_word(_STATE, "Running", "Waiting"),
        # KubeRay suspends a RayJob in these states alone.
        busy=Sign(unless=_word(_STATE, "", "New", "Initializing", "Running")),
        child="status.rayClusterName",
        children=(Child("RayCluster"), Child("Job", "{owner}", pods=1, aside=True)),
        pods_of=("RayCluster",),
        managed_by=_KUBERAY,
        finalizer="ray.io/rayjob-finalizer",
        unit_suffix="-ray-qu",
    ),
    Definition(
        kind="RayCluster",
        api_version="ray.io/v1",
        suspend=Suspension(also="spec.idleSuspend"),
        # ``state`` is unreliable: ``ready`` stays while the cluster is being suspended, ``suspended`` stays during a
        # new start. KubeRay before 1.3 writes no conditions.
        detail=_RAY_STATE,
        settled=Sign(
            any=(
                Sign("RayClusterSuspended"),
                Sign(path=_RAY_STATE, words=("suspended",), suspended=True, unless=_word("status.conditions")),
            )
        ),
        stops=Sign(any=(_word(_RAY_STATE), Sign("RayClusterSuspending"))),
        running=_word(_RAY_STATE, "ready"),
        children=(Child("Job", "*-redis-cleanup", pods=1, last=True),),
        managed_by=_KUBERAY,
    ),
    Definition(
        kind="RayService",
        api_version="ray.io/v1",
        told=("Suspended", "Suspending", "UpgradeInProgress", "Ready"),
        settled=Sign("Suspended", unless=_word(_CLUSTERS)),
        stops=Sign(any=(Sign("Suspending"), _word(_CLUSTERS))),
        running=Sign("Ready", unless=Sign("Suspending")),
        child=_CLUSTERS,
        children=(Child("RayCluster"),),
        pods_of=("RayCluster",),
        managed_by=_KUBERAY,
    ),
    Definition(
        kind="Job",
        api_version="batch/v1",
        # As many pods as may run at once, and no more than the completions still to do: the same number for a Job
        # suspended half way, for a Job resumed for the rest, and for the running Job. The API server refuses changes of
        # the schedulerName of a Job, and of the whole template once the Job has begun.
        pods=(
            Pods(
                "spec.template",
                count=("spec.parallelism",),
                most="spec.completions",
                done="status.succeeded",
                failed="status.failedIndexes",
                fixed=True,
                begun="status.startTime",
            ),
        ),
        ends=_ends("Complete"),
        settled=Sign("Suspended", unless=_JOB_PODS),
        stops=_JOB_PODS,
        # Servers before 1.29 may not count the ready pods.
        running=Sign(positive=("status.ready | status.active", "status.succeeded"), word="Running"),
        managed_by=Manager("spec.managedBy", ("kubernetes.io/job-controller",)),
        unit_suffix="",
        edits={
            **dict.fromkeys(("activeDeadlineSeconds", "ttlSecondsAfterFinished", "backoffLimit"), "free"),
            **dict.fromkeys(("parallelism", "completions"), "falls"),
        },
    ),
    _training("TFJob", "tfReplicaSpecs", "Chief,Master,PS,Worker,Evaluator", "-tf-qu"),
    _training("PyTorchJob", "pytorchReplicaSpecs", "Master,Worker", "-py-qu"),
    _training(
        "MPIJob",
        "mpiReplicaSpecs",
        "Launcher,Worker",
        "-mpi-qu",
        "v2beta1",
        later=Pods(later=("Launcher",), when=_word("spec.launcherCreationPolicy", "WaitForWorkersReady")),
        children=(Child("Job", "{owner}-launcher", pods=1),),
        pods_of=("MPIJob", "Job"),
        own=("kubeflow.org/mpi-operator",),
    ),
    Definition(
        kind="SparkApplication",
        api_version="sparkoperator.k8s.io/v1beta2",
        suspend=Suspension(annotation=True),
        detail=_SPARK_STATE,
        # Over only when the operator will not start the application again.
        ends=(KindEnd("succeeded", _word(_SPARK_STATE, "COMPLETED")), KindEnd("failed", _word(_SPARK_STATE, "FAILED"))),
        settled=_word(_SPARK_STATE, "SUSPENDED"),
        stops=_word(_SPARK_STATE),
        running=_word(_SPARK_STATE, "RUNNING", "SUCCEEDING", "FAILING", "UNKNOWN"),
        pods_of=("SparkApplication", "Pod"),
        unit_suffix="-spark-qu",
    ),
    _training("XGBoostJob", "xgbReplicaSpecs", "Master,Worker", None),
    _training("JAXJob", "jaxReplicaSpecs", "Worker", None),
    _training("PaddleJob", "paddleReplicaSpecs", "Master,Worker", None),
    Definition(
        kind="JobSet",
        api_version="jobset.x-k8s.io/v1alpha2",
        pods=(
            Pods(
                "template.spec.template",
                each="spec.replicatedJobs[]",
                name="name",
                count=("template.spec.parallelism",),
                most="template.spec.completions",
                times="replicas",
                over=Roles("status.replicatedJobsStatus[]"),
                fixed=True,
            ),
        ),
        ends=_ends("Completed"),
        settled=Sign("Suspended", unless=_SET_ACTIVE),
        stops=_SET_ACTIVE,
        running=Sign(
            positive=("status.replicatedJobsStatus[].ready", "status.replicatedJobsStatus[].succeeded"), word="Running"
        ),
        children=(Child("Job"),),
        pods_of=("Job",),
        managed_by=Manager("spec.managedBy", ("jobset.sigs.k8s.io/jobset-controller",)),
        edits={"ttlSecondsAfterFinished": "free"},
    ),
    Definition(
        kind="TrainJob",
        api_version="trainer.kubeflow.org/v1alpha1",
        # The pods come from a runtime that a TrainJob only names: its own numbers replace those of the runtime.
        pods=(Pods(resources="spec.trainer.resourcesPerNode", name="node", count=("spec.trainer.numNodes",)),),
        size_from="spec.trainer.resourcesPerNode",
        ends=_ends("Complete"),
        settled=Sign("Suspended", unless=_JOBS_ACTIVE),
        stops=_JOBS_ACTIVE,
        running=Sign(positive=("status.jobsStatus[].ready", "status.jobsStatus[].succeeded"), word="Running"),
        children=(Child("JobSet"),),
        pods_of=("Job",),
        managed_by=Manager("spec.managedBy", ("trainer.kubeflow.org/trainjob-controller",)),
        edits={"activeDeadlineSeconds": "free"},
    ),
    Definition(
        kind="AppWrapper",
        api_version="workload.codeflare.dev/v1beta2",
        detail=_PHASE,
        ends=(KindEnd("succeeded", _word(_PHASE, "Succeeded")), KindEnd("failed", _word(_PHASE, "Failed"))),
        settled=_word(_PHASE, "Suspended"),
        stops=_word(_PHASE),
        running=_word(_PHASE, "Running"),
        children=tuple(Child(kind) for kind in _WRAPS),
        pods_of=("AppWrapper", *_WRAPS),
        managed_by=Manager("spec.managedBy", ("workload.codeflare.dev/appwrapper-controller",)),
        finalizer="workload.codeflare.dev/finalizer",
    ),
    Definition(
        kind="Workflow",
        api_version="argoproj.io/v1alpha1",
        priority=("spec.podPriorityClassName",),
        detail=_PHASE,
        # A workflow is as large as its annotation says; Argo stops no pod of a suspended one, so nothing settles it.
        ends=(KindEnd("succeeded", _word(_PHASE, "Succeeded")), KindEnd("failed", _word(_PHASE, "Failed", "Error"))),
        running=_word(_PHASE, "Running"),
        edits=dict.fromkeys(("activeDeadlineSeconds", "ttlStrategy", "podGC", "shutdown"), "free"),
    ),
)


class _Wrapped(Struct, frozen=True):
    path: str = ""
    replicas: int | None = None


class _Component(Struct, frozen=True, rename="camel"):
    template: Raw = Raw(b"{}")
    pod_sets: tuple[_Wrapped, ...] | None = None


class _Typed(Struct, frozen=True):
    kind: str = ""


def _wrapped(view: ObjectView, _meta: Meta, needs: Needs, _suspended: bool) -> Parts:
    """The pods that the components name, or that the wrapped object's own kind reads."""
    needs.steering.leave()
    for index, component in enumerate(view.get("spec.components") or ()):
        at, raw = f"spec.components[{index}]", bytes(component.template)
        for pods in component.pod_sets or ():
            template = _at(decode(raw, object), pods.path.removeprefix("template."), at)
            needs.add(f"{index}-{len(needs.sets)}", count(pods.replicas, 1, f"{at}.podSets"), template, at, steer=False)
            needs.prioritize(template.spec.priority_class_name, template.spec.priority)
        if not component.pod_sets:
            kind = decode(raw, _Typed).kind
            row = DEFINITIONS.get(kind)
            if row is None or kind == "AppWrapper":
                return Parts(problem(f"{at}.podSets", "size_unknown"))
            Reader(row, SPECIALS.get(kind)).fill(raw, needs)
    return Parts()


def _at(value: Any, path: str, at: str) -> PodTemplate:
    """The pod template at a path: ``spec.template``, ``spec.groups[0].template``."""
    for step in filter(None, path.replace("[", ".").replace("]", "").split(".")):
        inner = value[int(step)] if isinstance(value, list) and step.isdigit() and int(step) < len(value) else None
        value = value.get(step) if isinstance(value, dict) else inner
    try:
        return convert(value, PodTemplate)
    except ValidationError as err:
        raise unreadable(f"{at}.podSets", "not_decoded", said=str(err)[:200]) from err


def _least(_view: ObjectView, meta: Meta, needs: Needs, _suspended: bool) -> Parts:
    """The resources that a workflow needs at least, by annotation: a line for each resource, ``cpu: 4``."""
    text, path = meta.annotations.get(MIN_RESOURCES, ""), f"metadata.annotations[{MIN_RESOURCES}]"
    pairs = (line.partition(":") for line in text[:4096].splitlines() if line.strip())
    asked: dict[str, Any] = {name.strip(): value.strip().strip("\"'") for name, _, value in pairs}
    needs.add("least", 1, PodTemplate(), path, request=amounts(asked, path), steer=False)
    return Parts(None if asked else problem(path, "size_unknown"))


DEFINITIONS: dict[str, Definition] = {row.kind: row for row in _ROWS}
"""{kind: definition}"""

SPECIALS: dict[str, Special] = {
    "RayJob": rayjobs.JOB,
    "RayCluster": rayjobs.CLUSTER,
    "RayService": rayjobs.SERVICE,
    "SparkApplication": spark.SPARK,
    "AppWrapper": Special(_wrapped, {"spec.components": tuple[_Component, ...]}, "spec.components"),
    "Workflow": Special(_least),
}
"""{kind: what data cannot say of the kind}"""
