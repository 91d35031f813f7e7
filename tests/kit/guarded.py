"""A control plane with everything of deploy/ applied, and its users: tenants, a queue manager, break-glass."""

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence

import pytest

from kit import jobs
from kit.cluster import RAY, SCHEDULING, add_nodes, document_job, furnish
from kit.controlplane import ControlPlane, User
from kit.deployed import account, account_groups, objects
from kit.installation import KUBERAY
from kit.kubeclient import ApiError, KubeClient, Object
from kit.kubelet import KUBELET
from kit.waiting import until
from muster.core.gang.declare import NAME_LABELS as GANG_NAMES
from muster.core.objects.meta import DEQUEUE_STAMPS, DEQUEUED_AT, ENQUEUE_STAMPS, INTENT, QUEUED_AT
from muster.core.workloads.registry import KINDS

WATCHER = User(account("watcher"), account_groups())
ACTUATOR = User(account("actuator"), account_groups())
SORTER = User(account("queue-sorter"), account_groups())
ALICE = User("alice")
"""A tenant: has role edit, and may do everything with jobs, pods and QueueUnits in the namespaces of the tests, but
write the status of jobs.
"""
BOB = User("bob")
"""As Alice; and ConfigMap muster-controllers names him as one that may start jobs."""
CAROL = User("carol")
"""As Alice, and manages the queues of namespace video."""
DAVE = User("dave", ("muster:break-glass",))
"""As Alice, and may break the glass everywhere."""
ERIN = User("erin")
"""As Alice; a test gives her a right, and takes it away again."""
OPERATOR = User("kuberay")
"""The operator of Ray's kinds: as Alice, and writes the status of RayJobs and RayClusters."""
AUTOSCALER = User("ray-autoscaler")
"""Ray's autoscaler, with the role that KubeRay gives its ServiceAccount."""
JOBSETS, LEADERS = User("jobset-controller"), User("lws-controller")
"""The controllers of JobSets and of LeaderWorkerSets, with the rights that their installations give them."""
WILMA = User("wilma")
"""May do everything with pods, apps, and all kinds of jobs and their status in namespace video: wildcards, no names."""
CLAUDE = User("claude")
"""Is bound to cluster-admin, in namespace video alone."""
ARGO = User("system:serviceaccount:argocd:argocd-application-controller", ("system:serviceaccounts",))
"""Applies manifests, and is bound to cluster-admin in the whole cluster, as the manuals of Argo CD and Flux have it."""
SPARK = User("spark-operator")
"""The operator of SparkApplications."""
CONTROLLERS = {
    "rayjobs.ray.io": OPERATOR,
    "rayclusters.ray.io": OPERATOR,
    "rayservices.ray.io": OPERATOR,
    "sparkapplications.sparkoperator.k8s.io": SPARK,
    "jobsets.jobset.x-k8s.io": JOBSETS,
}
"""{resource: who runs it here}, beside those that deploy/rbac names."""
STARTERS = ("admin", "kwok", BOB.name)
MANAGED, ANOTHER, FREE, KEPT = "video", "text", "other", "devops"
"""Namespaces: all but the third are managed; in the last one what is applied again keeps jobs running."""
NO_SUBMIT, LEAF = "devops", "intern-video"
"""Leaves: Alice may name the second one, and no other."""
MARKS = (INTENT, QUEUED_AT, DEQUEUED_AT, *ENQUEUE_STAMPS, *DEQUEUE_STAMPS, "muster.dev/anything")


def _rule(group: str, *resources: str, verbs: tuple[str, ...] = ("*",), names: tuple[str, ...] = ()) -> Object:
    rule: Object = {"apiGroups": [group], "resources": [*resources], "verbs": [*verbs]}
    return rule | ({"resourceNames": [*names]} if names else {})


ROLES = {
    "editor": [
        *(_rule(row.resource.group, row.resource.plural) for row in KINDS.values()),
        _rule("batch", "cronjobs"),
        _rule("", "pods", "pods/resize", "configmaps"),
        _rule("kubeflow.org", "pytorchjobs/scale"),
        _rule("jobset.x-k8s.io", "jobsets"),
        _rule("leaderworkerset.x-k8s.io", "leaderworkersets", "leaderworkersets/scale"),
        _rule("scheduling.x-k8s.io", "queueunits", "queueunits/status"),
        _rule("queues.muster.dev", "queues", verbs=("submit",), names=(LEAF,)),
        _rule("queues.muster.dev", "priorityclasses", verbs=("set-priority",), names=("low",)),
    ],
    "jobsets": [
        _rule("jobset.x-k8s.io", "jobsets", "jobsets/status"),
        _rule("batch", "jobs", "jobs/status"),
    ],
    "leaders": [
        _rule("leaderworkerset.x-k8s.io", "leaderworkersets", "leaderworkersets/status"),
        _rule("apps", "statefulsets", "statefulsets/status"),
        _rule("", "pods", verbs=("get", "list", "watch", "create", "delete", "update", "patch")),
    ],
    "autoscaler": [
        _rule("", "pods", verbs=("get", "list", "watch", "patch")),
        _rule("", "pods/resize", verbs=("patch",)),
        _rule("ray.io", "rayclusters", verbs=("get", "patch")),
    ],
    "wildcards": [_rule(group, "*") for group in ("", "apps", *(row.resource.group for row in KINDS.values()))],
    "spark": [
        _rule("sparkoperator.k8s.io", "sparkapplications", "sparkapplications/status"),
        _rule("", "pods"),
    ],
    "operator": [
        _rule("ray.io", "rayjobs/status", "rayclusters/status", "rayservices/status", verbs=("get", "update", "patch"))
    ],
}


@contextlib.asynccontextmanager
async def guarded(
    *,
    works: bool = False,
    kuberay: User = KUBERAY,
    arguments: Mapping[str, Sequence[str]] | None = None,
) -> AsyncIterator[ControlPlane]:
    """A control plane with everything of deploy/ applied, and the users. ``works``: with nodes that run pods.

    ``kuberay``: who KubeRay's operator is; ``arguments``: see `ControlPlane`.
    """
    tenants = [ALICE, BOB, CAROL, DAVE, ERIN, WILMA, CLAUDE, ARGO]
    users = [WATCHER, ACTUATOR, SORTER, *tenants, OPERATOR, kuberay, KUBELET, AUTOSCALER, JOBSETS, LEADERS, SPARK]
    async with ControlPlane(users=users, scheduler=works, kwok=works, prepare=furnish, arguments=arguments) as plane:
        if works:
            await add_nodes(plane)
        async with client(plane, plane.admin) as kube:
            for folder in ("crds", "rbac", "policies"):
                await apply(plane, kube, folder)
            for name in (MANAGED, ANOTHER, KEPT):
                labels = {"muster.dev/managed": "true"}
                if name == KEPT:
                    labels["muster.dev/reapplied"] = "keep-running"
                await kube.patch("v1", "Namespace", name, patch={"metadata": {"labels": labels}})
            await _let_users_in(kube)
            await _until_policies_work(plane, kube)
        yield plane


async def apply(plane: ControlPlane, kube: KubeClient, folder: str) -> None:
    for found in objects(folder):
        if mutates(plane) or not found["kind"].startswith("MutatingAdmissionPolicy"):
            await kube.apply(found)
    if folder == "rbac":
        await name_controllers(kube)


async def name_controllers(kube: KubeClient) -> None:
    """Name the operators of the tests, as an administrator does; and who starts jobs: Muster runs as ``admin`` here."""
    shipped = await kube.get("v1", "ConfigMap", "muster-controllers", "muster-system")
    data = {key: f"{shipped['data'].get(key, '')} {user.name}".strip() for key, user in CONTROLLERS.items()}
    data["starters"] = " ".join(STARTERS)
    await kube.patch("v1", "ConfigMap", "muster-controllers", "muster-system", patch={"data": data})


def mutates(plane: ControlPlane) -> bool:
    """Whether the server has policies that change objects."""
    return tuple(map(int, plane.version.split(".")[:2])) >= (1, 36)


async def _let_users_in(kube: KubeClient) -> None:
    rbac = "rbac.authorization.k8s.io"
    for name, rules in ROLES.items():
        role = {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}
        await kube.create(role)
    for namespace in (MANAGED, ANOTHER, FREE, KEPT):
        for user in (ALICE, BOB, CAROL, DAVE, ERIN, OPERATOR):
            await bind(kube, namespace, "editor", user)
        for role, user in (("operator", OPERATOR), ("jobsets", JOBSETS), ("leaders", LEADERS)):
            await bind(kube, namespace, role, user)
        # What clusters give to those who work in a namespace.
        await bind(kube, namespace, "edit", ALICE)
    await bind(kube, MANAGED, "autoscaler", AUTOSCALER)
    await bind(kube, MANAGED, "wildcards", WILMA)
    await bind(kube, MANAGED, "cluster-admin", CLAUDE)
    await bind(kube, MANAGED, "spark", SPARK)
    await bind(kube, MANAGED, "muster-queue-manager", CAROL)
    everything = {"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"}
    await kube.create(
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "argocd"},
            "roleRef": everything,
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": ARGO.name}],
        }
    )


async def bind(kube: KubeClient, namespace: str, role: str, user: User) -> None:
    """Give a user a ClusterRole in a namespace."""
    group = "rbac.authorization.k8s.io"
    await kube.create(
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": f"{role}-{user.name}", "namespace": namespace},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user.name}],
        }
    )


async def _until_policies_work(plane: ControlPlane, kube: KubeClient) -> None:
    """The server reads new policies a moment later."""
    forbidden: list[Object] = [
        {**job(suspend=True), "metadata": {"name": "probe", "namespace": MANAGED, "annotations": {INTENT: "1-1-1"}}},
        gang_pod(name="probe"),
        cron_job("probe", annotations={INTENT: "1-1-1"}),
        queue_unit("probe"),
        gang_pod(name="probe", spec={"schedulerName": "muster", "priorityClassName": "system-node-critical"}),
    ]
    async with client(plane, ALICE) as alice:
        for probe in forbidden:

            async def works(probe: Object = probe) -> bool:
                try:
                    made = await alice.create(probe)
                except ApiError as err:
                    return err.status == 403 and "ValidatingAdmissionPolicy" in str(err)
                meta = made["metadata"]
                try:
                    await kube.delete(made["apiVersion"], made["kind"], meta["name"], MANAGED)
                except ApiError as err:  # Where nodes run pods, they end them too.
                    assert err.status == 404, err
                return False

            await until(works, what=f"the policy of {probe['kind']}s to be in force")

        async def warns() -> bool:
            labels = {"app": "probe"}
            template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
            made = await alice.create(
                {
                    "apiVersion": "apps/v1",
                    "kind": "Deployment",
                    "metadata": {"name": "probe", "namespace": MANAGED},
                    "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
                }
            )
            await kube.delete(made["apiVersion"], made["kind"], "probe", MANAGED)
            return bool(alice.warnings)

        await until(warns, what="the policy of Deployments to be in force")
    if mutates(plane):
        for kind, row in KINDS.items():
            probe = job(suspend=False) if kind == "RayJob" else jobs.KINDS[kind].make("probe", MANAGED)

            async def suspends(probe: Object = probe, path: str = row.suspend_path) -> bool:
                at, _, field = path.removeprefix("/spec").strip("/").rpartition("/")
                (probe["spec"].setdefault(at, {}) if at else probe["spec"])[field] = False
                made = await kube.create(probe)
                await kube.delete(made["apiVersion"], made["kind"], made["metadata"]["name"], MANAGED)
                return bool((made["spec"][at] if at else made["spec"])[field])

            await until(suspends, what=f"new {kind}s to be suspended")

        async def steers() -> bool:
            made = await kube.create(gang_pod(labels={GANG_NAMES[0]: "probe"}))
            await kube.delete("v1", "Pod", made["metadata"]["name"], MANAGED)
            return bool(made["spec"]["schedulerName"] == "muster")

        await until(steers, what="pods of gangs to be steered")


@contextlib.asynccontextmanager
async def client(plane: ControlPlane, user: User, *, acts_as: tuple[str, ...] = ()) -> AsyncIterator[KubeClient]:
    async with KubeClient(plane.url, token=user.token, ca_file=plane.ca_file, acts_as=acts_as) as kube:
        yield kube


def job(namespace: str = MANAGED, *, suspend: bool | None = None, **spec: object) -> Object:
    made = document_job(namespace)
    made["spec"].pop("suspend", None)
    made["spec"] |= spec if suspend is None else {"suspend": suspend, **spec}
    return made


def cron_job(name: str, *, suspend: bool = True, **metadata: object) -> Object:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}
    made: Object = {"metadata": metadata, "spec": {"suspend": suspend, "template": {"spec": pod}}}
    spec = {"schedule": "0 0 1 1 *", "jobTemplate": made}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name, "namespace": MANAGED},
        "spec": spec,
    }


def queue_unit(name: str, **spec: object) -> Object:
    meta = {"name": name, "namespace": MANAGED}
    return {"apiVersion": SCHEDULING, "kind": "QueueUnit", "metadata": meta, "spec": {"priority": 0, **spec}}


def gang_pod(namespace: str = MANAGED, spec: Object | None = None, **metadata: object) -> Object:
    body = {"containers": [{"name": "main", "image": "none"}], "automountServiceAccountToken": False, **(spec or {})}
    meta = {"generateName": "gang-", "namespace": namespace, **metadata}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": body}


async def remove(kube: KubeClient, found: Object) -> None:
    await kube.delete(RAY, "RayJob", found["metadata"]["name"], found["metadata"]["namespace"])


async def change(kube: KubeClient, found: Object, patch: Object) -> Object:
    meta = found["metadata"]
    return await kube.patch(RAY, "RayJob", meta["name"], meta["namespace"], patch=patch)


async def refused(attempt: object, words: str) -> None:
    """The attempt is forbidden, and the reason says why."""
    with pytest.raises(ApiError) as caught:
        await attempt  # type: ignore[misc]
    assert caught.value.status == 403, caught.value
    assert words in str(caught.value), str(caught.value)
