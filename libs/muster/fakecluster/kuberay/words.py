"""The words KubeRay uses: states, reasons, labels, annotations, names. Facts of its API, in one place."""

from __future__ import annotations

from muster.fakecluster.apiserver.names import derived_suffix
from muster.fakecluster.apiserver.status import Obj

FINALIZER = "ray.io/rayjob-finalizer"
SERVICE_FINALIZER = "ray.io/rayservice-finalizer"
IDLE_FINALIZER = "ray.io/idle-termination-cleanup-finalizer"
"""Ray's autoscaler puts it on a cluster that it deletes for idleness, and the operator takes it off."""
MANAGER = "ray.io/kuberay-operator"

# Labels of pods.
IS_RAY_NODE = "ray.io/is-ray-node"
CLUSTER = "ray.io/cluster"
NODE_TYPE = "ray.io/node-type"
GROUP = "ray.io/group"
IDENTIFIER = "ray.io/identifier"
REPLICA_NAME = "ray.io/worker-group-replica-name"
REPLICA_INDEX = "ray.io/worker-group-replica-index"
HOST_INDEX = "ray.io/replica-host-index"
HEAD_GROUP = "headgroup"
SERVES = "ray.io/serve"
"""Whether a pod of a RayService's cluster takes requests: workers do, the head does once it serves."""
RECREATE_HASH = "ray.io/upgrade-strategy-recreate-hash"
"""Annotation of a head: what of the spec its cluster was made of."""

# Labels of the objects that a RayJob makes.
KAI_QUEUE = "kai.scheduler/queue"
FROM_NAME = "ray.io/originated-from-cr-name"
FROM_KIND = "ray.io/originated-from-crd"
SUBMISSION_MODE = "ray.io/job-submission-mode"
CREATED_BY = "app.kubernetes.io/created-by"
APP_NAME = "app.kubernetes.io/name"
OPERATOR = "kuberay-operator"

NO_HEAD_RESTART = "ray.io/disable-provisioned-head-restart"

# jobDeploymentStatus.
NEW = ""
INITIALIZING = "Initializing"
WAITING = "Waiting"
RUNNING = "Running"
COMPLETE = "Complete"
FAILED = "Failed"
SUSPENDING = "Suspending"
SUSPENDED = "Suspended"
RETRYING = "Retrying"
VALIDATION_FAILED = "ValidationFailed"

# jobStatus.
JOB_SUCCEEDED = "SUCCEEDED"
JOB_FAILED = "FAILED"
JOB_STOPPED = "STOPPED"
JOB_RUNNING = "RUNNING"
JOB_OVER = (JOB_SUCCEEDED, JOB_FAILED, JOB_STOPPED)

# submissionMode.
K8S_JOB = "K8sJobMode"
HTTP = "HTTPMode"
SIDECAR = "SidecarMode"
INTERACTIVE = "InteractiveMode"

# reason.
SUBMISSION_FAILED = "SubmissionFailed"
DEADLINE_EXCEEDED = "DeadlineExceeded"
PRE_RUNNING_DEADLINE_EXCEEDED = "PreRunningDeadlineExceeded"
APP_FAILED = "AppFailed"
GRACE_EXCEEDED = "JobDeploymentStatusTransitionGracePeriodExceeded"
STATUS_CHECK_TIMEOUT = "JobStatusCheckTimeoutExceeded"
NOT_RETRIED = (DEADLINE_EXCEEDED, STATUS_CHECK_TIMEOUT)

# Conditions of a RayCluster.
HEAD_POD_READY = "HeadPodReady"
PROVISIONED = "RayClusterProvisioned"
CLUSTER_SUSPENDING = "RayClusterSuspending"
CLUSTER_SUSPENDED = "RayClusterSuspended"

# state of a RayCluster.
READY = "ready"
STATE_SUSPENDED = "suspended"

MAX_CLUSTER_NAME = 53
MAX_JOB_NAME = 47
MAX_POD_PREFIX = 50

PORTS = {"client": 10001, "dashboard": 8265, "gcs-server": 6379, "metrics": 8080}


def cluster_name(job_name: str, *parts: object) -> str:
    """Name of a RayJob's next cluster; ``parts`` are what makes it another one than the last."""
    return f"{job_name}-{derived_suffix('cluster', job_name, *parts)}"


def pod_prefix(owner: str, node_type: str) -> str:
    """What the names of pods begin with; ``owner``: the cluster, and for workers the group, which may be cut off."""
    return f"{owner[:MAX_POD_PREFIX]}-{node_type}-"


def ray_job_id(job_name: str, *parts: object) -> str:
    """Submission id of a RayJob's next Ray job."""
    return f"{job_name}-{derived_suffix('job', job_name, *parts)}"


def head_service(cluster: Obj) -> str:
    """The name given by the owner, else a name made of the cluster's, which is never cut."""
    own = (cluster["spec"]["headGroupSpec"].get("headService") or {}).get("metadata") or {}
    return str(own.get("name") or f"{cluster['metadata']['name']}-head-svc")


def dashboard_url(cluster: Obj, namespace: str) -> str:
    return f"{head_service(cluster)}.{namespace}.svc.cluster.local:{PORTS['dashboard']}"
