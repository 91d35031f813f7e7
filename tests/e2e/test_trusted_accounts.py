"""Who is trusted is named: neither a role with wildcards, nor cluster-admin in one namespace, nor the token of a
ServiceAccount makes a tenant a controller, a scheduler or a kubelet. On a real API server, with the shipped policies.
"""

import contextlib

import pytest

from kit import jobs
from kit.cluster import RAY
from kit.controlplane import ControlPlane
from kit.guarded import ALICE, CLAUDE, MANAGED, SPARK, WILMA, client, gang_pod, job, refused
from kit.kubeclient import ApiError, KubeClient, Object
from kit.waiting import until

OURS: Object = {"schedulerName": "muster"}
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
            await refused(attempt, "ask for verb admit on queues.queues.muster.dev in the whole cluster")
        await claude.patch("v1", "Namespace", MANAGED, patch={"metadata": {"labels": {"team": "video"}}})


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
