"""Who is trusted is named: neither a role with wildcards, nor cluster-admin in one namespace, nor the token of a
ServiceAccount makes a tenant a controller, a scheduler or a kubelet. On a real API server, with the shipped policies.
"""

import contextlib

import pytest

from kit import jobs
from kit.cluster import RAY, TREES
from kit.controlplane import ControlPlane
from kit.guarded import ALICE, CAROL, CLAUDE, MANAGED, SPARK, WILMA, client, gang_pod, job, refused
from kit.kubeclient import MERGE_PATCH, ApiError, KubeClient, Object
from kit.waiting import until

OURS: Object = {"schedulerName": "muster"}
QUOTA = "quota.scheduling.alibabacloud.com/name"
POD = f"/api/v1/namespaces/{MANAGED}/pods"


def owned(body: Object, owner: Object) -> Object:
    meta = owner["metadata"]
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}
    body["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
    return body


async def gone(kube: KubeClient, *found: Object) -> None:
    for each in found:
        meta = each["metadata"]
        await kube.delete(each["apiVersion"], each["kind"], meta["name"], meta["namespace"], grace_s=0)


@pytest.mark.parametrize("user", [WILMA, CLAUDE], ids=lambda user: user.name)
async def test_wildcards_in_a_namespace_make_nobody_a_controller(plane: ControlPlane, user: object) -> None:
    async with client(plane, user) as mine:  # type: ignore[arg-type]
        waits = await mine.create(jobs.job("waits", MANAGED))
        pinned = owned(gang_pod(spec={"nodeName": "node-0"}, name="pinned"), waits)
        await refused(mine.create(pinned), "belong to a queued job")
        free = await mine.create(gang_pod(spec=OURS, name="free"))
        target = {"apiVersion": "v1", "kind": "Node", "name": "node-0"}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "free"}, "target": target}
        for where in (f"{POD}/free/binding", f"/api/v1/namespaces/{MANAGED}/bindings"):
            await refused(mine.request("POST", where, body=binding), "bound to a node by a scheduler")
        over = {"status": {"phase": "Succeeded"}}
        attempt = mine.patch("v1", "Pod", "free", MANAGED, patch=over, subresource="status")
        await refused(attempt, "its status is written by its kubelet")
        tiny = await mine.create(job(suspend=True))
        big = owned(jobs.raycluster("big", MANAGED, replicas=5_000, suspend=False), tiny)
        await refused(mine.create(big), "")
        name = tiny["metadata"]["name"]
        for patch, part, words in (
            ({"spec": {"suspend": False}}, "", "it stays suspended"),
            ({"status": {"jobDeploymentStatus": "Complete"}}, "status", "its status is written by its controller"),
        ):
            attempt = mine.patch(RAY, "RayJob", name, MANAGED, patch=patch, subresource=part)
            await refused(attempt, words)
        await gone(mine, waits, free, tiny)


async def test_an_administrator_of_one_namespace_does_not_take_its_guard_away(plane: ControlPlane) -> None:
    async with client(plane, CLAUDE) as claude:
        for value in (None, "false"):
            patch = {"metadata": {"labels": {"muster.dev/managed": value}}}
            attempt = claude.patch("v1", "Namespace", MANAGED, patch=patch)
            await refused(attempt, "act as the group muster:break-glass")
        await claude.patch("v1", "Namespace", MANAGED, patch={"metadata": {"labels": {"team": "video"}}})


async def test_wildcards_in_a_namespace_are_no_rights_on_queues(plane: ControlPlane) -> None:
    """Neither to start a job, nor to make a part of one bigger, nor to name another team's quota or a priority."""
    async with client(plane, CLAUDE) as claude, client(plane, plane.admin) as admin:
        start: Object = {"metadata": {"annotations": {"muster.dev/intent": "1-7-0"}}, "spec": {"suspend": False}}
        job_of_one = await claude.create(jobs.job("one", MANAGED, parallelism=1))
        await admin.patch("batch/v1", "Job", "one", MANAGED, patch=start)

        async def made() -> object:
            return await admin.list_objects("v1", "Pod", MANAGED, labels="job-name=one")

        [pod] = await until(made, what="the pod of the Job")  # type: ignore[misc]
        more = [{"op": "replace", "path": "/spec/containers/0/resources/requests/cpu", "value": "64"}]
        training = await claude.create(jobs.pytorchjob("training", MANAGED))
        where = f"/apis/kubeflow.org/v1/namespaces/{MANAGED}/pytorchjobs/training"
        for attempt, words in (
            (
                claude.patch("v1", "Pod", pod["metadata"]["name"], MANAGED, patch=more, subresource="resize"),
                "which can only shrink",
            ),
            (
                claude.request("PATCH", f"{where}/scale", body={"spec": {"replicas": 40}}, content_type=MERGE_PATCH),
                "it cannot be scaled by itself",
            ),
            (claude.create(marked(jobs.job("two", MANAGED), "labels", QUOTA, "devops")), "you may not submit to quota"),
            (
                claude.create(marked(jobs.job("two", MANAGED), "annotations", "muster.dev/priority", "9")),
                "you may not set muster.dev/priority",
            ),
            (
                claude.create(gang_pod(spec={**OURS, "priorityClassName": "system-cluster-critical"})),
                "you may not use priority class",
            ),
        ):
            await refused(attempt, words)
        await gone(claude, job_of_one, training)


async def test_wildcards_in_a_namespace_give_no_rights_on_queues_to_others(plane: ControlPlane) -> None:
    """To the API server an account that has every verb gives no more than its own."""
    group = "rbac.authorization.k8s.io"
    meta = {"name": "given", "namespace": MANAGED}
    subject = {"kind": "ServiceAccount", "name": "helper", "namespace": MANAGED}

    def role(**rule: list[str]) -> Object:
        return {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": meta, "rules": [rule]}

    def binding(kind: str, name: str) -> Object:
        to = {"apiGroup": group, "kind": kind, "name": name}
        told = {"roleRef": to, "subjects": [subject]}
        return {"apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": meta, **told}

    async with client(plane, CLAUDE) as claude, client(plane, plane.admin) as admin:
        ours = "queues.muster.dev"
        for kube in (claude, admin):
            for rule in (
                {"apiGroups": [ours], "resources": ["queues"], "verbs": ["get", "hold"]},
                {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "submit"]},
                {"apiGroups": [ours], "resources": ["queues"], "verbs": ["*"], "resourceNames": ["devops"]},
                {"apiGroups": [ours], "resources": ["priorityclasses"], "verbs": ["*"]},
            ):
                await refused(kube.create(role(**rule)), "name it in a ClusterRole, and bind that in namespace")
        for name in ("editor", "muster-queue-manager"):
            await refused(claude.create(binding("ClusterRole", name)), "may give rights on queues")
        attempt = claude.patch(
            f"{group}/v1", "RoleBinding", f"muster-queue-manager-{CAROL.name}", MANAGED, patch={"subjects": [subject]}
        )
        await refused(attempt, "may give rights on queues")
        # What a namespace needs of itself.
        await claude.create(role(apiGroups=["*"], resources=["*"], verbs=["*"]))
        for bound in (binding("Role", "given"), binding("ClusterRole", "edit")):
            await gone(claude, await claude.create(bound))
        await claude.delete(f"{group}/v1", "Role", "given", MANAGED)
        tree = {"apiVersion": TREES, "kind": "ElasticQuotaTree", "metadata": meta, "spec": {"root": {"name": "root"}}}
        await refused(claude.create(tree), "the tree shares out the whole cluster")


def marked(found: Object, part: str, key: str, value: str) -> Object:
    found["metadata"][part] = {key: value}
    return found


async def token(kube: KubeClient, account: str, driver: Object | None) -> str:
    """A token of a ServiceAccount, by itself or as a pod has it."""
    spec: Object = {"expirationSeconds": 600}
    if driver is not None:
        meta = driver["metadata"]
        spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
    where = f"/api/v1/namespaces/{MANAGED}/serviceaccounts/{account}/token"
    made = await kube.request("POST", where, body={"spec": spec})
    return str(made["status"]["token"])


@contextlib.asynccontextmanager
async def spoken_for(plane: ControlPlane, text: str):  # type: ignore[no-untyped-def]
    async with KubeClient(plane.url, token=text, ca_file=plane.ca_file) as kube:
        yield kube


async def test_executors_are_made_by_a_driver_that_its_operator_made(plane: ControlPlane) -> None:
    group = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": "spark", "namespace": MANAGED}
    meta = {"name": "spark-drivers", "namespace": MANAGED}
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "edit"},
        "subjects": [subject],
    }
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "spark", "namespace": MANAGED}}
    async with client(plane, ALICE) as alice, client(plane, SPARK) as spark, client(plane, plane.admin) as admin:
        await admin.create(account)
        await admin.create(binding)
        app = await alice.create(jobs.sparkapplication("app", MANAGED))
        spec = {"serviceAccountName": "spark"}

        def executor(driver: Object, **more: object) -> Object:
            return owned(gang_pod(spec=more, labels={"spark-role": "executor"}), driver)

        # A driver of one's own, by its name, by its label, and by the token that a pod has.
        words = "are made by the operator of Spark"
        await refused(alice.create(gang_pod(spec={**spec, **OURS}, name="my-driver")), words)
        await refused(alice.create(gang_pod(spec=OURS, name="mine", labels={"spark-role": "driver"})), words)
        mine = await alice.create(gang_pod(spec={**spec, **OURS}, name="mine"))
        await refused(token(alice, "spark", mine), "is made by its kubelet")
        driver = owned(gang_pod(spec=spec, name="app-driver", labels={"spark-role": "driver"}), app)
        await refused(alice.create(driver), "belong to a queued job")
        driver = await spark.create(driver)
        # With the account's token alone, or that of another pod.
        for text, of in (
            (await token(alice, "spark", None), driver),
            (await token(alice, "spark", None), mine),
            (await token(admin, "spark", mine), mine),
            (await token(admin, "spark", mine), driver),
        ):
            async with spoken_for(plane, text) as kube:

                async def known(kube: KubeClient = kube, of: Object = of) -> bool:
                    try:
                        await kube.create(executor(of))
                    except ApiError as err:
                        return "belong to a queued job" in str(err)
                    raise AssertionError("it was made")

                await until(known, what="the account's rights to be known")
        async with spoken_for(plane, await token(admin, "spark", driver)) as kube:
            await refused(kube.create(executor(driver, nodeName="node-0")), "passes by every scheduler")
            foreign = executor(driver)
            foreign["metadata"]["labels"]["quota.scheduling.alibabacloud.com/name"] = "devops"
            await refused(kube.create(foreign), "you may not submit to quota devops")
            made = await kube.create(executor(driver))
        await gone(admin, made, mine, driver, app)
        await admin.delete(f"{group}/v1", "RoleBinding", "spark-drivers", MANAGED)
        await admin.delete("v1", "ServiceAccount", "spark", MANAGED)


async def test_what_no_quota_counts_is_refused(plane: ControlPlane) -> None:
    async with client(plane, ALICE) as alice, client(plane, WILMA) as wilma, client(plane, plane.admin) as admin:
        for part in ({"resources": {"requests": {"cpu": "640"}}}, {"overhead": {"cpu": "64"}}, {"nodeName": "node-0"}):
            template = jobs.template("1", restartPolicy="Never", **part)
            shared = job(suspend=False, submitterPodTemplate=template, clusterSelector={"ray.io/cluster": "shared"})
            await refused(alice.create(shared), "")
        many = jobs.template("4", restartPolicy="Never")
        many["spec"]["containers"] = [{**many["spec"]["containers"][0], "name": f"c{index}"} for index in range(200)]
        await refused(alice.create(job(suspend=True, submitterPodTemplate=many)), "what submits is not charged")
        for key in ("muster.dev/anything", "muster.dev/gpu-groups"):
            pod = gang_pod(spec=OURS, name="marked", annotations={key: "1"})
            await refused(wilma.create(pod), f"{key} is written by Muster alone")
        await refused(
            alice.create(jobs.job("pinned", MANAGED, template=jobs.template("1", restartPolicy="Never", nodeName="n"))),
            "use nodeSelector",
        )
        # Devices of a class as a resource: the scheduler claims them for the pod.
        devices = {"limits": {"deviceclass.resource.kubernetes.io/gpu.example.com": "8"}}
        for part, named in (("containers", "main"), ("initContainers", "first")):
            pod = gang_pod(spec=OURS, name="devices")
            pod["spec"][part] = [{"name": named, "image": "none", "resources": devices}]
            await refused(alice.create(pod), "devices of DeviceClass gpu.example.com are counted in no quota")
        if "resource.k8s.io/v1" not in {
            each["groupVersion"]
            for group in (await admin.request("GET", "/apis"))["groups"]
            for each in group["versions"]
        }:
            return
        exactly = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
        first = {"name": "gpu", "firstAvailable": [{"name": "a", "deviceClassName": "gpu.example.com"}]}
        rbac = "rbac.authorization.k8s.io"
        rule = {"apiGroups": ["resource.k8s.io"], "resources": ["*"], "verbs": ["*"]}
        await admin.create(
            {
                "apiVersion": f"{rbac}/v1",
                "kind": "Role",
                "metadata": {"name": "claims", "namespace": MANAGED},
                "rules": [rule],
            }
        )
        await admin.create(
            {
                "apiVersion": f"{rbac}/v1",
                "kind": "RoleBinding",
                "metadata": {"name": "claims", "namespace": MANAGED},
                "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "claims"},
                "subjects": [{"apiGroup": rbac, "kind": "User", "name": "alice"}],
            }
        )
        for request in (exactly, first):
            spec: Object = {"devices": {"requests": [request]}}
            for kind, inner in (("ResourceClaim", spec), ("ResourceClaimTemplate", {"spec": spec})):
                body: Object = {
                    "apiVersion": "resource.k8s.io/v1",
                    "kind": kind,
                    "metadata": {"name": "gpu", "namespace": MANAGED},
                    "spec": inner,
                }

                async def known(body: Object = body) -> bool:
                    try:
                        await alice.create(body)
                    except ApiError as err:
                        return "are counted in no quota" in str(err)
                    raise AssertionError("it was made")

                await until(known, what="the right to be known")
