"""One object of every workload kind, suspended, and what its controller writes on it as it goes on.

``KINDS`` here is what tests know of a kind, beside the row of the code's own registry: a kind that lacks it fails the
conformance tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

from kit.doubles.jobsets import JobSetController
from kit.doubles.training import MpiOperator, OthersOperator, TrainingOperator
from kit.operators import SparkOperator
from kit.story import rayjob
from muster.core.workloads import registry
from muster.fakecluster.controllers import Controller
from muster.model.closed import total

Obj = dict[str, Any]


def template(cpu: str = "1", memory: str = "1Gi", **spec: Any) -> Obj:
    """A pod template of one container."""
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    return {"spec": {"containers": [container], **spec}}


def meta(name: str, namespace: str, **more: Any) -> Obj:
    return {"name": name, "namespace": namespace, **more}


def job(name: str = "j", namespace: str = "video", *, cpu: str = "1", parallelism: int = 2, **spec: Any) -> Obj:
    """A batch Job."""
    pod = template(cpu, restartPolicy="Never")
    body = {"suspend": True, "parallelism": parallelism, "completions": parallelism, "template": pod, **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta(name, namespace), "spec": body}


def raycluster(name: str = "c", namespace: str = "video", *, cpu: str = "1", replicas: int = 1, **spec: Any) -> Obj:
    """A RayCluster of its own."""
    group = {"groupName": "small", "replicas": replicas, "rayStartParams": {}, "template": template(cpu)}
    head = {"rayStartParams": {}, "template": template(cpu)}
    body = {"suspend": True, "headGroupSpec": head, "workerGroupSpecs": [group], **spec}
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": meta(name, namespace), "spec": body}


def rayservice(name: str = "s", namespace: str = "video", *, cpu: str = "1", replicas: int = 1, **spec: Any) -> Obj:
    """A RayService; its cluster is that of ``raycluster``."""
    cluster = raycluster(name, namespace, cpu=cpu, replicas=replicas)["spec"]
    config = {key: value for key, value in cluster.items() if key != "suspend"}
    body = {"suspend": True, "serveConfigV2": "applications: []", "rayClusterConfig": config, **spec}
    return {"apiVersion": "ray.io/v1", "kind": "RayService", "metadata": meta(name, namespace), "spec": body}


def _kubeflow(kind: str, version: str, specs: str, types: dict[str, int], name: str, namespace: str, cpu: str) -> Obj:
    replicas = {key: {"replicas": count, "template": template(cpu)} for key, count in types.items()}
    return {
        "apiVersion": f"kubeflow.org/{version}",
        "kind": kind,
        "metadata": meta(name, namespace),
        "spec": {"runPolicy": {"suspend": True}, specs: replicas},
    }


def tfjob(name: str = "tf", namespace: str = "video", *, cpu: str = "1", workers: int = 2) -> Obj:
    return _kubeflow("TFJob", "v1", "tfReplicaSpecs", {"PS": 1, "Worker": workers}, name, namespace, cpu)


def pytorchjob(name: str = "py", namespace: str = "video", *, cpu: str = "1", workers: int = 2) -> Obj:
    types = {"Master": 1, "Worker": workers}
    return _kubeflow("PyTorchJob", "v1", "pytorchReplicaSpecs", types, name, namespace, cpu)


def xgboostjob(name: str = "xgb", namespace: str = "video", *, cpu: str = "1", workers: int = 2) -> Obj:
    types = {"Master": 1, "Worker": workers}
    return _kubeflow("XGBoostJob", "v1", "xgbReplicaSpecs", types, name, namespace, cpu)


def paddlejob(name: str = "paddle", namespace: str = "video", *, cpu: str = "1", workers: int = 2) -> Obj:
    types = {"Master": 1, "Worker": workers}
    return _kubeflow("PaddleJob", "v1", "paddleReplicaSpecs", types, name, namespace, cpu)


def jaxjob(name: str = "jax", namespace: str = "video", *, cpu: str = "1", workers: int = 3) -> Obj:
    return _kubeflow("JAXJob", "v1", "jaxReplicaSpecs", {"Worker": workers}, name, namespace, cpu)


def jobset(name: str = "set", namespace: str = "video", *, cpu: str = "1", replicas: int = 1, **spec: Any) -> Obj:
    """A JobSet of a driver, and of Jobs of two workers."""
    workers = {"parallelism": 2, "completions": 2, "template": template(cpu, restartPolicy="Never")}
    driver = {"template": template(cpu, restartPolicy="Never")}
    roles = [
        {"name": "driver", "replicas": 1, "template": {"spec": driver}},
        {"name": "workers", "replicas": replicas, "template": {"spec": workers}},
    ]
    body = {"suspend": True, "replicatedJobs": roles, **spec}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": meta(name, namespace), "spec": body}


def trainjob(name: str = "train", namespace: str = "video", *, cpu: str = "1", nodes: int = 2, **spec: Any) -> Obj:
    trainer = {"numNodes": nodes, "resourcesPerNode": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    body = {"suspend": True, "runtimeRef": {"name": "torch-distributed"}, "trainer": trainer, **spec}
    kind = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}
    return {**kind, "metadata": meta(name, namespace), "spec": body}


def appwrapper(name: str = "wrap", namespace: str = "video", *, cpu: str = "1", **spec: Any) -> Obj:
    """An AppWrapper around a Job of two pods."""
    inner = job(f"{name}-job", namespace, cpu=cpu, suspend=False)
    body = {"suspend": True, "components": [{"template": inner}], **spec}
    kind = {"apiVersion": "workload.codeflare.dev/v1beta2", "kind": "AppWrapper"}
    return {**kind, "metadata": meta(name, namespace), "spec": body}


def workflow(name: str = "flow", namespace: str = "video", *, cpu: str = "2", **spec: Any) -> Obj:
    """A Workflow of Argo that says what it needs at least."""
    marks = {"kube-queue/min-resources": f"cpu: {cpu}\nmemory: 2Gi\n"}
    container = {"image": "busybox", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    body = {"suspend": True, "entrypoint": "main", "templates": [{"name": "main", "container": container}], **spec}
    head = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow"}
    return {**head, "metadata": meta(name, namespace, annotations=marks), "spec": body}


def mpijob(name: str = "mpi", namespace: str = "video", *, cpu: str = "1", workers: int = 2) -> Obj:
    types = {"Launcher": 1, "Worker": workers}
    return _kubeflow("MPIJob", "v2beta1", "mpiReplicaSpecs", types, name, namespace, cpu)


def sparkapplication(name: str = "spark", namespace: str = "video", *, cores: int = 1, executors: int = 2) -> Obj:
    """With 1 GiB of heap each: 1408 MiB with its overhead."""
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": meta(name, namespace),
        "spec": {
            "suspend": True,
            "type": "Scala",
            "mode": "cluster",
            "sparkVersion": "3.5.0",
            "mainApplicationFile": "local:///app.jar",
            "driver": {"cores": cores, "memory": "1g"},
            "executor": {"cores": cores, "memory": "1g", "instances": executors},
        },
    }


def at(found: Any, pointer: str) -> Any:
    """What a JSON pointer names."""
    for step in pointer[1:].split("/"):
        found = found[int(step) if isinstance(found, list) else step]
    return found


def conditions(*true: str) -> Obj:
    return {"conditions": [{"type": kind, "status": "True"} for kind in true]}


def _state(state: str) -> Obj:
    return {"applicationState": {"state": state}}


class KindFacts(Struct, frozen=True):
    """A kind as tests know it. ``asks``: cpu (thousandths) of the object that ``make`` makes, by profile."""

    make: Callable[..., Obj]
    ack: int
    full: int
    unit: str
    """What the QueueUnit of one called ``one`` is called."""
    settled: Obj | None
    """Status of one that is suspended and at rest, as its controller confirms it; None where no controller does."""
    starting: Obj
    running: Obj
    suspending: Obj | None
    """Status of one that was just asked to stop; None where that is told by its pods alone."""
    over: dict[str, Obj] = field(default_factory=dict)
    """{outcome: status}"""
    template: str = ""
    """JSON pointer of the pod spec whose priority counts."""
    templates: tuple[str, ...] = ()
    """JSON pointers of its pod templates."""


_REPLICAS = {"replicaStatuses": {"Worker": {"active": 2}}}
_KUBEFLOW_RUNS = {**conditions("Created", "Running"), **_REPLICAS}


def _roles(**counts: int) -> Obj:
    """What a JobSet and a TrainJob tell of the Jobs of a role."""
    return {"name": "workers", "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0, **counts}


def _kubeflow_facts(make: Callable[..., Obj], unit: str, specs: str, first: str) -> KindFacts:
    templates = tuple(f"/spec/{specs}/{replica}/template" for replica in dict.fromkeys((first, "Worker")))
    return KindFacts(
        make,
        ack=3000,
        full=3000,
        unit=unit,
        settled={**conditions("Created", "Suspended"), "replicaStatuses": {"Worker": {}}},
        starting=conditions("Created"),
        running=_KUBEFLOW_RUNS,
        suspending=_KUBEFLOW_RUNS,
        over={"succeeded": conditions("Created", "Succeeded"), "failed": conditions("Created", "Failed")},
        template=f"{templates[0]}/spec",
        templates=templates,
    )


KINDS: dict[str, KindFacts] = {
    "RayJob": KindFacts(
        rayjob,
        ack=12_000,
        full=12_500,
        unit="one-ray-qu",
        settled={"jobDeploymentStatus": "Suspended"},
        starting={"jobDeploymentStatus": "Initializing", "rayClusterName": "x"},
        running={"jobDeploymentStatus": "Running", "rayClusterName": "x"},
        suspending={"jobDeploymentStatus": "Suspending", "rayClusterName": "x"},
        over={
            "succeeded": {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"},
            "failed": {"jobDeploymentStatus": "Failed"},
            "invalid": {"jobDeploymentStatus": "ValidationFailed"},
        },
        template="/spec/rayClusterSpec/headGroupSpec/template/spec",
        templates=(
            "/spec/rayClusterSpec/headGroupSpec/template",
            "/spec/rayClusterSpec/workerGroupSpecs/0/template",
        ),
    ),
    "RayCluster": KindFacts(
        raycluster,
        ack=2000,
        full=2000,
        unit="one-raycluster-qu",
        settled={"state": "suspended", **conditions("RayClusterSuspended")},
        starting={"state": "suspended", "conditions": [{"type": "RayClusterSuspended", "status": "False"}]},
        running={"state": "ready", **conditions("RayClusterProvisioned")},
        suspending={"state": "ready", **conditions("RayClusterSuspending")},
        template="/spec/headGroupSpec/template/spec",
        templates=("/spec/headGroupSpec/template", "/spec/workerGroupSpecs/0/template"),
    ),
    "RayService": KindFacts(
        rayservice,
        ack=2000,
        full=2000,
        unit="one-rayservice-qu",
        settled=conditions("Suspended"),
        starting={"pendingServiceStatus": {"rayClusterName": "x"}},
        running={"activeServiceStatus": {"rayClusterName": "x"}, **conditions("Ready")},
        suspending={"activeServiceStatus": {"rayClusterName": "x"}, **conditions("Suspending")},
        template="/spec/rayClusterConfig/headGroupSpec/template/spec",
        templates=(
            "/spec/rayClusterConfig/headGroupSpec/template",
            "/spec/rayClusterConfig/workerGroupSpecs/0/template",
        ),
    ),
    "Job": KindFacts(
        job,
        ack=2000,
        full=2000,
        unit="one",
        settled=conditions("Suspended"),
        starting={"active": 2, "ready": 0},
        running={"active": 2, "ready": 1},
        suspending={"active": 2, "ready": 2},
        over={"succeeded": conditions("SuccessCriteriaMet", "Complete"), "failed": conditions("Failed")},
        template="/spec/template/spec",
        templates=("/spec/template",),
    ),
    "TFJob": _kubeflow_facts(tfjob, "one-tf-qu", "tfReplicaSpecs", "PS"),
    "PyTorchJob": _kubeflow_facts(pytorchjob, "one-py-qu", "pytorchReplicaSpecs", "Master"),
    "MPIJob": _kubeflow_facts(mpijob, "one-mpi-qu", "mpiReplicaSpecs", "Launcher"),
    "SparkApplication": KindFacts(
        sparkapplication,
        ack=3000,
        full=3000,
        unit="one-spark-qu",
        settled=_state("SUSPENDED"),
        starting=_state("SUBMITTED"),
        running=_state("RUNNING"),
        suspending=_state("SUSPENDING"),
        over={"succeeded": _state("COMPLETED"), "failed": _state("FAILED")},
        template="/spec/driver",
        templates=("/spec/driver", "/spec/executor"),
    ),
    "XGBoostJob": _kubeflow_facts(xgboostjob, "one-xgboostjob-qu", "xgbReplicaSpecs", "Master"),
    "JAXJob": _kubeflow_facts(jaxjob, "one-jaxjob-qu", "jaxReplicaSpecs", "Worker"),
    "PaddleJob": _kubeflow_facts(paddlejob, "one-paddlejob-qu", "paddleReplicaSpecs", "Master"),
    "JobSet": KindFacts(
        jobset,
        ack=3000,
        full=3000,
        unit="one-jobset-qu",
        settled={**conditions("Suspended"), "replicatedJobsStatus": [_roles(suspended=1)]},
        starting={"replicatedJobsStatus": [_roles(active=1)]},
        running={"replicatedJobsStatus": [_roles(active=1, ready=1)]},
        suspending={"replicatedJobsStatus": [_roles(active=1)]},
        over={"succeeded": conditions("Completed"), "failed": conditions("Failed")},
        template="/spec/replicatedJobs/0/template/spec/template/spec",
        templates=tuple(f"/spec/replicatedJobs/{index}/template/spec/template" for index in (0, 1)),
    ),
    "TrainJob": KindFacts(
        trainjob,
        ack=2000,
        full=2000,
        unit="one-trainjob-qu",
        settled={**conditions("Suspended"), "jobsStatus": [_roles(suspended=1)]},
        starting={"jobsStatus": [_roles(active=1)]},
        running={"jobsStatus": [_roles(active=1, ready=1)]},
        suspending={"jobsStatus": [_roles(active=1)]},
        over={"succeeded": conditions("Complete"), "failed": conditions("Failed")},
    ),
    "AppWrapper": KindFacts(
        appwrapper,
        ack=2000,
        full=2000,
        unit="one-appwrapper-qu",
        settled={"phase": "Suspended"},
        starting={"phase": "Resuming"},
        running={"phase": "Running"},
        suspending={"phase": "Suspending"},
        over={"succeeded": {"phase": "Succeeded"}, "failed": {"phase": "Failed"}},
        template="/spec/components/0/template/spec/template/spec",
    ),
    "Workflow": KindFacts(
        workflow,
        ack=2000,
        full=2000,
        unit="one-workflow-qu",
        settled=None,
        starting={},
        running={"phase": "Running"},
        suspending=None,
        over={"succeeded": {"phase": "Succeeded"}, "failed": {"phase": "Error"}},
    ),
}

total(KINDS, registry.KINDS, "tests/kit/jobs.py (KINDS)")

OPERATORS: dict[str, Callable[[], Controller]] = {
    "TFJob": TrainingOperator,
    "PyTorchJob": TrainingOperator,
    "MPIJob": MpiOperator,
    "SparkApplication": SparkOperator,
    "XGBoostJob": OthersOperator,
    "JAXJob": OthersOperator,
    "PaddleJob": OthersOperator,
    "JobSet": JobSetController,
}
"""The simulated controller of each kind that the fake cluster has none for."""
FORMS = ("RayJob", "RayCluster", "RayService", "Job", "PyTorchJob", "MPIJob", "SparkApplication", "JobSet")
"""One kind of each form of controller."""
