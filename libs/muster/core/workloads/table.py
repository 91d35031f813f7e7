"""The table of kinds: one definition each, in the form that a platform team writes too."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from muster.core.workloads import edits, rayjobs, spark
from muster.core.workloads.defined import Special
from muster.core.workloads.definition import Child, Definition, End, Manager, Pods, Sign, Suspension
from muster.core.workloads.edits import Shape


def _word(path: str, *words: str) -> Sign:
    """The field is one of these words; without words: the field is not empty."""
    return Sign(path=path, words=words)


def _ends(succeeded: str, failed: str = "Failed") -> tuple[End, ...]:
    return End("succeeded", Sign(succeeded)), End("failed", Sign(failed))


_STATE, _RAY_STATE, _SPARK_STATE = "status.jobDeploymentStatus", "status.state", "status.applicationState.state"
_CLUSTERS = "status.pendingServiceStatus.rayClusterName | status.activeServiceStatus.rayClusterName"
"""The newer cluster of an upgrade comes first, the older one is on its way out."""
_KUBERAY = Manager("spec.managedBy", ("ray.io/kuberay-operator",))
_TRAINER = "kubeflow.org/training-operator"
_ACTIVE = Sign(positive=("status.replicaStatuses.*.active",))
_JOB_PODS = Sign(positive=("status.active", "status.terminating"))


def _training(kind: str, specs: str, order: str, suffix: str, version: str = "v1", **more: Any) -> Definition:
    """A kind of the training operator: replica specs, a run policy, conditions with the phase."""
    own, later = more.pop("own", ()), more.pop("later", Pods())
    pods = Pods(each=f"spec.{specs}.*", order=tuple(order.split()), count=("replicas",))
    return Definition(
        kind=kind,
        api_version=f"kubeflow.org/{version}",
        suspend=Suspension("spec.runPolicy.suspend", annotation=True),
        pods=(replace(pods, later=later.later, when=later.when),),
        priority=("spec.runPolicy.schedulingPolicy.priorityClass",),
        ends=_ends("Succeeded"),
        settled=Sign("Suspended", unless=_ACTIVE),
        stops=Sign(any=(_ACTIVE, Sign("Running"))),
        running=Sign("Running"),
        told=("Restarting",),
        managed_by=Manager("spec.runPolicy.managedBy", (*own, _TRAINER)),
        unit_suffix=suffix,
        **more,
    )


_ROWS = (
    Definition(
        kind="RayJob",
        api_version="ray.io/v1",
        detail=_STATE,
        ends=(
            End("succeeded", Sign(path=_STATE, words=("Complete",), any=(_word("status.jobStatus", "SUCCEEDED", ""),))),
            End("failed", _word(_STATE, "Complete", "Failed")),
            End("invalid", _word(_STATE, "ValidationFailed")),
        ),
        settled=_word(_STATE, "Suspended"),
        stops=Sign(path=_STATE, unless=_word(_STATE, "New")),
        running=_word(_STATE, "Running", "Waiting"),
        # KubeRay suspends a RayJob in these states alone.
        busy=Sign(unless=_word(_STATE, "", "New", "Initializing", "Running")),
        child="status.rayClusterName",
        children=(Child("RayCluster"), Child("Job", "{owner}", pods=1, aside=True)),
        pods_of=("RayCluster",),
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
        children=(Child("Job", "*-redis-cleanup", pods=1, aside=True),),
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
    ),
    _training("TFJob", "tfReplicaSpecs", "Chief Master PS Worker Evaluator", "-tf-qu"),
    _training("PyTorchJob", "pytorchReplicaSpecs", "Master Worker", "-py-qu"),
    _training(
        "MPIJob",
        "mpiReplicaSpecs",
        "Launcher Worker",
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
        ends=(End("succeeded", _word(_SPARK_STATE, "COMPLETED")), End("failed", _word(_SPARK_STATE, "FAILED"))),
        settled=_word(_SPARK_STATE, "SUSPENDED"),
        stops=_word(_SPARK_STATE),
        running=_word(_SPARK_STATE, "RUNNING", "SUCCEEDING", "FAILING", "UNKNOWN"),
        pods_of=("SparkApplication", "Pod"),
        unit_suffix="-spark-qu",
    ),
)

DEFINITIONS: dict[str, Definition] = {row.kind: row for row in _ROWS}
"""{kind: definition}"""

SPECIALS: dict[str, Special] = {
    "RayJob": rayjobs.JOB,
    "RayCluster": rayjobs.CLUSTER,
    "RayService": rayjobs.SERVICE,
    "SparkApplication": spark.SPARK,
}
"""{kind: what data cannot say of the kind}"""

EDITS: dict[str, tuple[Shape, Shape]] = {
    "RayJob": (edits.RAY_JOB, edits.OURS_RAY_JOB),
    "RayCluster": (edits.RAY_CLUSTER, edits.OURS_RAY_CLUSTER),
    "RayService": (edits.RAY_SERVICE, edits.OURS_RAY_SERVICE),
    "Job": (edits.JOB, edits.OURS_JOB),
    "TFJob": (edits.KUBEFLOW, edits.OURS_REPLICAS),
    "PyTorchJob": (edits.KUBEFLOW, edits.OURS_REPLICAS),
    "MPIJob": (edits.KUBEFLOW, edits.OURS_REPLICAS),
    "SparkApplication": (edits.SPARK, edits.OURS_SPARK),
}
"""{kind: (edits allowed while an object runs, Muster's writes)}"""
