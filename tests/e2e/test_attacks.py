"""What else a tenant tries, with the roles that clusters give to tenants: a policy refuses it, or it has no effect.

One test for each class of attack that was tried on a real API server with the shipped roles and policies.
"""

from collections.abc import Sequence

import pytest

from kit import jobs
from kit.cluster import RAY, SCHEDULING
from kit.controlplane import ControlPlane
from kit.guarded import (
    ALICE,
    LEAF,
    MANAGED,
    NO_SUBMIT,
    OPERATOR,
    change,
    client,
    cron_job,
    gang_pod,
    job,
    mutates,
    queue_unit,
    refused,
    remove,
)
from kit.kubeclient import ApiError, KubeClient, Object
from kit.waiting import until
from muster.core.objects.meta import INTENT
from muster.core.workloads.registry import KINDS

QUOTA = "quota.scheduling.alibabacloud.com/name"
OURS: Object = {"schedulerName": "muster"}
START: Object = {"spec": {"suspend": False}}


def path(plural: str, name: str, part: str = "", group: str = "", version: str = "v1") -> str:
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    return "/".join(each for each in (root, "namespaces", MANAGED, plural, name, part) if each)


async def gone(kube: KubeClient, found: Object) -> None:
    meta = found["metadata"]
    await kube.delete(found["apiVersion"], found["kind"], meta["name"], meta["namespace"], grace_s=0)


async def collector_has_seen_the_pods(kube: KubeClient) -> None:
    """The garbage collector knows every pod of this moment, and its owner.

    Kubernetes orphans the dependents that the collector has seen. Of an owner that is deleted right after its pod was
    made, a busy collector deletes the pod. It takes the pods in their order, so that one which it has to delete ends
    the wait.
    """
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "never-was", "uid": "never-was"}
    last = await kube.create(gang_pod(spec=OURS, ownerReferences=[owner]))

    async def collected() -> bool:
        return await kube.find("v1", "Pod", last["metadata"]["name"], MANAGED) is None

    await until(collected, what="the collector to delete a pod whose owner does not exist")


# --- pods of others ---------------------------------------------------------------------------------------------------


def workload(kind: str, **pod: object) -> Object:
    labels = {"app": kind.lower()}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "none"}], **pod}}
    spec: Object = {"selector": {"matchLabels": labels}, "template": template}
    if kind == "StatefulSet":
        spec["serviceName"] = "none"
    meta = {"name": kind.lower(), "namespace": MANAGED}
    if kind == "ReplicationController":
        return {"apiVersion": "v1", "kind": kind, "metadata": meta, "spec": {**spec, "selector": labels}}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": meta, "spec": spec}


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "ReplicationController", "StatefulSet"])
async def test_pods_of_what_is_not_queued_name_muster(plane: ControlPlane, kind: str) -> None:
    async with client(plane, ALICE) as alice:
        made = await alice.create(workload(kind))
        warned = [each for each in alice.warnings if "set spec.template.spec.schedulerName to muster" in each]
        assert len(warned) == (0 if kind == "ReplicationController" else 1), alice.warnings
        wanted = f"app={kind.lower()}"

        async def told() -> str:
            events = await alice.list_objects("v1", "Event", MANAGED)
            said = [each["message"] for each in events if each["reason"] == "FailedCreate"]
            return next((each for each in said if f"{kind.lower()}-" in each or f"{kind} {kind.lower()}" in each), "")

        said = await until(told, what="an Event that says why there are no pods")
        assert "to none; set schedulerName: muster in the spec of the pod (in the pod template of its owner)" in said
        assert not await alice.list_objects("v1", "Pod", MANAGED, labels=wanted)
        await gone(alice, made)
        made = await alice.create(workload(kind, **OURS))
        assert alice.warnings.count(warned[0]) == 1 if warned else not alice.warnings

        async def pods() -> object:
            return await alice.list_objects("v1", "Pod", MANAGED, labels=wanted)

        await until(pods, what="its pod, which Muster places and charges")
        await gone(alice, made)


async def test_a_pod_that_says_it_is_an_executor_is_made_by_a_service_account(plane: ControlPlane) -> None:
    async with client(plane, ALICE) as alice:
        driver = await alice.create(gang_pod(spec=OURS, name="driver"))
        pod = gang_pod(name="executor", labels={"spark-role": "executor"})
        reference = {"apiVersion": "v1", "kind": "Pod", "name": "driver", "uid": driver["metadata"]["uid"]}
        pod["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
        await refused(alice.create(pod), "create a Job, which is queued")
        await gone(alice, driver)


async def test_a_pod_is_charged_to_no_other_team(plane: ControlPlane) -> None:
    async with client(plane, ALICE) as alice:
        await refused(
            alice.create(gang_pod(spec=OURS, labels={QUOTA: NO_SUBMIT})), f"you may not submit to quota {NO_SUBMIT}"
        )
        made = await alice.create(gang_pod(spec=OURS, name="mine", labels={QUOTA: LEAF}))
        for leaf in (NO_SUBMIT, None):
            patch = {"metadata": {"labels": {QUOTA: leaf}}}
            words = "you may not submit" if leaf else "the label of its quota cannot be changed now"
            await refused(alice.patch("v1", "Pod", "mine", MANAGED, patch=patch), words)
        await alice.patch("v1", "Pod", "mine", MANAGED, patch={"metadata": {"labels": {"team": "a"}}})
        await gone(alice, made)


async def test_a_pod_gets_no_other_controller_and_no_gpu_later(plane: ControlPlane) -> None:
    async with client(plane, ALICE) as alice:
        cluster = await alice.create(jobs.raycluster("adopts", MANAGED, suspend=True))
        made = await alice.create(gang_pod(spec=OURS, name="orphan"))
        owner = {"apiVersion": RAY, "kind": "RayCluster", "name": "adopts", "uid": cluster["metadata"]["uid"]}
        patch: Object = {"metadata": {"ownerReferences": [{**owner, "controller": True}]}}
        await refused(alice.patch("v1", "Pod", "orphan", MANAGED, patch=patch), "but only that controller may make")
        # Nor does its controller take it: a Job adopts what has its labels.
        async with client(plane, OPERATOR) as operator:
            attempt = operator.patch("v1", "Pod", "orphan", MANAGED, patch=patch)
            await refused(attempt, "it does not become a pod of RayCluster adopts now")
        for marks in ({"annotations": {"muster.dev/gpu-device": "0"}}, {"labels": {"runai-gpu-group": "x"}}):
            attempt = alice.patch("v1", "Pod", "orphan", MANAGED, patch={"metadata": marks})
            await refused(attempt, "is written by Muster alone")
        for found in (made, cluster):
            await gone(alice, found)


async def test_a_pod_keeps_what_its_controller_knows_it_by(plane: ControlPlane) -> None:
    """Else the controller makes another pod beside it: also by marks that are added, and that no test of ours knows."""
    async with client(plane, ALICE) as alice, client(plane, plane.admin) as admin:
        found = await alice.create(jobs.job("indexed", MANAGED, parallelism=1, completionMode="Indexed"))
        start: Object = {"metadata": {"annotations": {INTENT: "1-7-0"}}, **START}
        await admin.patch("batch/v1", "Job", "indexed", MANAGED, patch=start)

        async def made() -> Sequence[Object]:
            return await admin.list_objects("v1", "Pod", MANAGED, labels="job-name=indexed")

        [pod] = await until(made, what="the pod of the Job")
        index = "batch.kubernetes.io/job-completion-index"
        for part, key, value in (
            ("annotations", index, "7"),
            ("annotations", index, None),
            ("annotations", "batch.kubernetes.io/anything", "1"),
            ("labels", index, "7"),
            ("labels", "job-name", None),
            ("labels", "spark-exec-inactive", "true"),
            ("labels", "training.kubeflow.org/operator-name", "none"),
            ("labels", "ray.io/worker-group-replica-name", "none"),
        ):
            patch: Object = {"metadata": {part: {key: value}}}
            attempt = alice.patch("v1", "Pod", pod["metadata"]["name"], MANAGED, patch=patch)
            await refused(attempt, f"its controller finds it by {part[:-1]} {key}")
        mine: Object = {"metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}}}
        await alice.patch("v1", "Pod", pod["metadata"]["name"], MANAGED, patch=mine)
        await gone(alice, found)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_job_that_is_deleted_is_not_kept_by_a_finalizer(plane: ControlPlane, kind: str) -> None:
    """Its pods would run on, and nothing could stop them for a team that is owed their quota."""
    words = "finalizer team.example/keep would keep its pods after it is deleted"
    keep: Object = {"metadata": {"finalizers": ["team.example/keep"]}}
    async with client(plane, ALICE) as alice, client(plane, plane.admin) as admin:
        made = jobs.KINDS[kind].make("kept", MANAGED)
        await refused(alice.create({**made, "metadata": {**made["metadata"], **keep["metadata"]}}), words)
        made = await alice.create(made)
        changes = (made["apiVersion"], kind, "kept", MANAGED)
        await refused(alice.patch(*changes, patch=keep), words)
        await admin.patch(*changes, patch=keep)
        await alice.patch(*changes, patch={"metadata": {"finalizers": None}})
        await gone(alice, made)


async def test_a_job_gets_no_second_set_of_pods(plane: ControlPlane) -> None:
    """A pod that its controller no longer finds runs on, and the controller makes another one."""
    async with client(plane, ALICE) as alice, client(plane, plane.admin) as admin:
        made = await alice.create(jobs.job("twice", MANAGED, parallelism=1))
        start = {**START, "metadata": {"annotations": {INTENT: "1-7-0"}}}
        await admin.patch("batch/v1", "Job", "twice", MANAGED, patch=start)

        async def pods() -> Sequence[Object]:
            return await alice.list_objects("v1", "Pod", MANAGED, labels="job-name=twice")

        [pod] = await until(pods, what="the pod of the job")
        name = pod["metadata"]["name"]
        for key in ("batch.kubernetes.io/controller-uid", "controller-uid"):
            attempt = alice.patch("v1", "Pod", name, MANAGED, patch={"metadata": {"labels": {key: None}}})
            await refused(attempt, "and would make another pod beside it")
        attempt = alice.patch("v1", "Pod", name, MANAGED, patch={"metadata": {"ownerReferences": None}})
        await refused(attempt, "and would make another pod beside it")
        assert len(await pods()) == 1
        # What Kubernetes does for `kubectl delete --cascade=orphan` passes: the pod stays, and stays charged.
        await collector_has_seen_the_pods(admin)
        await alice.delete("batch/v1", "Job", "twice", MANAGED, propagation="Orphan")

        async def orphaned() -> bool:
            found = await alice.get("v1", "Pod", name, MANAGED)
            return not found["metadata"].get("ownerReferences")

        await until(orphaned, what="the pod to be left alone")
        await admin.patch("v1", "Pod", name, MANAGED, patch={"metadata": {"finalizers": None}})
        await gone(alice, await alice.get("v1", "Pod", name, MANAGED))
        assert made["spec"]["suspend"] is True


async def test_a_pod_does_not_grow_in_place(plane: ControlPlane) -> None:
    async with client(plane, ALICE) as alice, client(plane, plane.admin) as admin:
        spec: Object = {**OURS, "containers": [{"name": "main", "image": "none"}]}
        spec["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
        spec["initContainers"] = [{**spec["containers"][0], "name": "beside", "restartPolicy": "Always"}]
        room = {"cpu": "128", "memory": "1Ti", "pods": "10"}
        status = {"capacity": room, "allocatable": room}
        node = await admin.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "none"}, "status": status})
        made = await alice.create(gang_pod(spec=spec, name="grows"))
        name: Object = {"metadata": {"name": "grows"}, "target": {"apiVersion": "v1", "kind": "Node", "name": "none"}}
        await admin.request(
            "POST", path("pods", "grows", "binding"), body={"apiVersion": "v1", "kind": "Binding", **name}
        )

        async def resize(part: str, container: str, cpu: str) -> Object:
            body = {"spec": {part: [{"name": container, "resources": {"requests": {"cpu": cpu}}}]}}
            where = path("pods", "grows", "resize")
            found = await alice.request(
                "PATCH", where, body=body, content_type="application/strategic-merge-patch+json"
            )
            return found["spec"][part][0]["resources"]["requests"]

        for part, container in (("containers", "main"), ("initContainers", "beside")):
            attempt = resize(part, container, "64")
            await refused(attempt, "it runs with the size that was admitted, which can only shrink")
            assert await resize(part, container, "500m") == {"cpu": "500m"}
        await gone(alice, made)
        await admin.request("DELETE", f"/api/v1/nodes/{node['metadata']['name']}")


async def test_a_pod_keeps_the_share_of_a_gpu_that_it_is_charged_for(plane: ControlPlane) -> None:
    async with client(plane, ALICE) as alice:
        made = await alice.create(gang_pod(spec=OURS, name="shares", annotations={"gpu-fraction": "0.9"}))
        for key, value in (("gpu-fraction", "0.1"), ("gpu-fraction", None), ("gpu-memory", "1")):
            patch = {"metadata": {"annotations": {key: value}}}
            attempt = alice.patch("v1", "Pod", "shares", MANAGED, patch=patch)
            await refused(attempt, f"annotation {key} says for which share of a GPU it is charged")
        await alice.patch("v1", "Pod", "shares", MANAGED, patch={"metadata": {"annotations": {"mine": "1"}}})
        await gone(alice, made)


async def test_the_class_of_the_cluster_takes_no_right_and_others_do(plane: ControlPlane) -> None:
    version = "scheduling.k8s.io/v1"
    async with client(plane, ALICE) as alice, client(plane, plane.admin) as admin:
        for name, value, default in (("usual", 10, True), ("urgent", 1000, False)):
            meta = {"name": name}
            await admin.create(
                {
                    "apiVersion": version,
                    "kind": "PriorityClass",
                    "metadata": meta,
                    "value": value,
                    "globalDefault": default,
                }
            )
        try:
            # The policy hears of a class a moment later.
            async def known() -> bool:
                try:
                    made = await alice.create(gang_pod(spec={**OURS, "priorityClassName": "urgent"}, name="urgent"))
                except ApiError as err:
                    return "you may not use priority class urgent" in str(err)
                await gone(alice, made)
                return False

            await until(known, what="the class to be guarded")

            async def plain() -> Object | None:
                try:
                    return await alice.create(gang_pod(spec=OURS, name="plain"))
                except ApiError:
                    return None

            made = await until(plain, what="a pod that names no class to pass")
            assert made["spec"]["priorityClassName"] == "usual"
            await gone(alice, made)
        finally:
            for name in ("usual", "urgent"):
                await admin.request("DELETE", f"/apis/{version}/priorityclasses/{name}")


async def test_parts_of_pods_take_rights_or_change_nothing(plane: ControlPlane) -> None:
    async with client(plane, ALICE) as alice:
        made = await alice.create(gang_pod(spec=OURS, name="parts"))
        debug = {
            "spec": {"ephemeralContainers": [{"name": "d", "image": "x", "resources": {"requests": {"cpu": "9"}}}]}
        }
        with pytest.raises(ApiError) as caught:  # Kubernetes lets them ask for nothing.
            await alice.patch("v1", "Pod", "parts", MANAGED, patch=debug, subresource="ephemeralcontainers")
        assert caught.value.status in (403, 422)
        target = {"apiVersion": "v1", "kind": "Node", "name": "none"}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "parts"}, "target": target}
        await refused(alice.request("POST", path("pods", "parts", "binding"), body=binding), "cannot create resource")
        phase = {"status": {"phase": "Succeeded"}}
        await refused(alice.patch("v1", "Pod", "parts", MANAGED, patch=phase, subresource="status"), "cannot patch")
        await gone(alice, made)


# --- jobs -------------------------------------------------------------------------------------------------------------


async def test_a_field_of_another_kind_does_not_make_a_job_wait(plane: ControlPlane) -> None:
    async with client(plane, ALICE) as alice:
        body = job(suspend=False, runPolicy={"suspend": True})
        if mutates(plane):
            made = await alice.create(body)
            assert made["spec"]["suspend"] is True
            await remove(alice, made)
        else:
            await refused(alice.create(body), "spec.suspend must be true")


async def test_dry_runs_server_side_apply_and_generated_names_pass_by_nothing(plane: ControlPlane) -> None:
    async with client(plane, ALICE) as alice, client(plane, plane.admin) as admin:
        made = await alice.create(job(suspend=True))
        name = made["metadata"]["name"]
        where = path("rayjobs", name, group="ray.io")
        merge = "application/merge-patch+json"
        attempt = alice.request("PATCH", where, body=START, params={"dryRun": "All"}, content_type=merge)
        await refused(attempt, "it stays suspended")
        applied = {"apiVersion": RAY, "kind": "RayJob", "metadata": {"name": name, "namespace": MANAGED}, **START}
        await refused(alice.apply(applied), "it stays suspended")
        # To own a field of Muster's by apply, and to drop it later, is to take it away.
        note = {"metadata": {"annotations": {INTENT: "1-7-0"}}}
        await admin.patch(RAY, "RayJob", name, MANAGED, patch=note)
        same = {**applied, "spec": {}, "metadata": {**applied["metadata"], **note["metadata"]}}
        del same["spec"]
        await alice.apply(same, field_manager="kubectl")
        await admin.patch(RAY, "RayJob", name, MANAGED, patch={"metadata": {"annotations": {INTENT: "1-8-0"}}})
        await refused(alice.apply(same, field_manager="kubectl"), "written by Muster alone")
        removes = [{"op": "remove", "path": "/metadata/annotations/muster.dev~1intent"}]
        await refused(alice.patch(RAY, "RayJob", name, MANAGED, patch=removes), "written by Muster alone")
        await remove(alice, made)


async def test_status_is_written_by_operators(plane: ControlPlane) -> None:
    async with client(plane, ALICE) as alice:
        made = await alice.create(job(suspend=True))
        done = {"status": {"jobDeploymentStatus": "Complete"}}
        attempt = alice.patch(RAY, "RayJob", made["metadata"]["name"], MANAGED, patch=done, subresource="status")
        await refused(attempt, "cannot patch resource")
        # Written beside the spec it is dropped.
        found = await change(alice, made, {**done, "metadata": {"labels": {"a": "b"}}})
        assert not (found.get("status") or {}).get("jobDeploymentStatus")
        await remove(alice, made)


async def test_a_child_that_runs_is_not_made_bigger(plane: ControlPlane) -> None:
    async with client(plane, ALICE) as alice, client(plane, OPERATOR) as operator:
        parent = await alice.create(job(suspend=True))
        meta = parent["metadata"]
        submitter = jobs.job(meta["name"], MANAGED, parallelism=1, suspend=False)
        owner = {"apiVersion": RAY, "kind": "RayJob", "name": meta["name"], "uid": meta["uid"], "controller": True}
        submitter["metadata"]["ownerReferences"] = [owner]
        made = await operator.create(submitter)
        attempt = alice.patch("batch/v1", "Job", meta["name"], MANAGED, patch={"spec": {"parallelism": 5000}})
        await refused(attempt, "it runs with the size that was admitted")
        await gone(alice, made)
        await remove(alice, parent)


async def test_what_submits_is_small(plane: ControlPlane) -> None:
    def submitting(**asked: str) -> Object:
        container = {"name": "submit", "image": "none", "resources": {"limits": asked, "requests": asked}}
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        return job(suspend=True, submitterPodTemplate=template)

    async with client(plane, ALICE) as alice:
        for asked in ({"nvidia.com/gpu": "8"}, {"cpu": "64"}, {"memory": "2Ti"}):
            await refused(alice.create(submitting(**asked)), "what submits is not charged")
        await remove(alice, await alice.create(submitting(cpu="1", memory="1Gi")))


@pytest.mark.parametrize("kind", ["PyTorchJob"])
async def test_a_training_is_not_scaled_by_its_part(plane: ControlPlane, kind: str) -> None:
    async with client(plane, ALICE) as alice:
        made = await alice.create(jobs.KINDS[kind].make("scaled", MANAGED))
        where = path("pytorchjobs", "scaled", "scale", "kubeflow.org")
        scale = {"spec": {"replicas": 500}}
        attempt = alice.request("PATCH", where, body=scale, content_type="application/merge-patch+json")
        await refused(attempt, "it cannot be scaled by itself; change the size in its spec while it waits")
        await gone(alice, made)


async def test_a_cron_job_hides_no_class_in_a_label(plane: ControlPlane) -> None:
    async with client(plane, ALICE) as alice:
        await refused(
            alice.create(cron_job("vain", labels={"priorityClassName": "high"})),
            "you may not set a priority (class high)",
        )


# --- what Muster writes -----------------------------------------------------------------------------------------------


async def test_a_unit_stands_for_the_job_it_was_made_for(plane: ControlPlane) -> None:
    async with client(plane, ALICE) as alice, client(plane, plane.admin) as admin:
        made = await admin.create(
            queue_unit("unit", consumerRef={"kind": "RayJob", "name": "mine", "namespace": MANAGED})
        )
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x"}
        for patch in (
            {"spec": {"consumerRef": {"name": "other"}}},
            {"spec": {"resource": {"cpu": "1"}}},
            {"status": {"phase": "Running"}},
            {"metadata": {"finalizers": ["alice.example/stay"]}},
            {"metadata": {"ownerReferences": [owner]}},
        ):
            attempt = alice.patch(SCHEDULING, "QueueUnit", "unit", MANAGED, patch=patch)
            await refused(attempt, "it is written by Muster alone, but for spec.priority")
        await alice.patch(SCHEDULING, "QueueUnit", "unit", MANAGED, patch={"metadata": {"labels": {"mine": "1"}}})
        await gone(admin, made)


async def test_the_guard_is_not_taken_away_with_a_label(plane: ControlPlane) -> None:
    rbac = "rbac.authorization.k8s.io"
    async with client(plane, ALICE) as alice, client(plane, plane.admin) as admin:
        taken = {"metadata": {"labels": {"muster.dev/managed": None}}}
        await refused(alice.patch("v1", "Namespace", MANAGED, patch=taken), "cannot patch resource")
        # Where tenants may look after their namespaces.
        rule = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["patch", "update"]}
        role = {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": "labels"}, "rules": [rule]}
        binding = {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "labels", "namespace": MANAGED},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "labels"},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": "alice"}],
        }
        await admin.create(role)
        await admin.create(binding)

        async def may() -> bool:
            try:
                await alice.patch("v1", "Namespace", MANAGED, patch={"metadata": {"labels": {"team": "video"}}})
            except ApiError:
                return False
            return True

        await until(may, what="the right to be in force")
        for labels in (
            {"muster.dev/managed": None},
            {"muster.dev/managed": "false"},
            {"muster.dev/reapplied": "keep-running"},
        ):
            attempt = alice.patch("v1", "Namespace", MANAGED, patch={"metadata": {"labels": labels}})
            await refused(attempt, "keeps its jobs in the queue; to change")
        await admin.delete(f"{rbac}/v1", "RoleBinding", "labels", MANAGED)
        await admin.request("DELETE", f"/apis/{rbac}/v1/clusterroles/labels")


async def test_rights_are_not_given_to_oneself(plane: ControlPlane) -> None:
    """Nor taken by another name: `edit` may speak for the ServiceAccounts of its namespace, and they have no rights."""
    rbac = "rbac.authorization.k8s.io"
    async with client(plane, ALICE) as alice:
        rule = {"apiGroups": ["queues.muster.dev"], "resources": ["queues"], "verbs": ["hold"]}
        meta = {"name": "mine", "namespace": MANAGED}
        role = {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": meta, "rules": [rule]}
        await refused(alice.create(role), "cannot create resource")
        token = {"spec": {"expirationSeconds": 600}}
        elsewhere = "/api/v1/namespaces/muster-system/serviceaccounts/muster-actuator/token"
        await refused(alice.request("POST", elsewhere, body=token), "cannot create resource")
        lease = "/apis/coordination.k8s.io/v1/namespaces/muster-system/leases"
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "muster"}}
        await refused(alice.request("POST", lease, body=body), "cannot create resource")
