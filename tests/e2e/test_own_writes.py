"""What Muster's own accounts can do with their credentials, on a real API server with the shipped roles and policies:
no verb on any resource that their role does not name, and no field of those it names that Muster does not write.
"""

import asyncio

from kit import jobs
from kit.cluster import RAY
from kit.controlplane import ControlPlane, User
from kit.deployed import Right, account, account_groups, of_kind, rights
from kit.guarded import ACTUATOR, ALICE, FREE, MANAGED, SORTER, WATCHER, client, gang_pod, job, refused
from kit.kubeclient import KubeClient, Object

GATEWAY = User(account("gateway"), account_groups())
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
MERGE = "application/merge-patch+json"


async def served(kube: KubeClient) -> list[tuple[str, str]]:
    """(API group, resource or part of one) of all that the server has."""
    groups = (await kube.request("GET", "/apis"))["groups"]
    paths = {"": "/api/v1"} | {each["name"]: f"/apis/{each['preferredVersion']['groupVersion']}" for each in groups}
    found = []
    for group, path in paths.items():
        found += [(group, each["name"]) for each in (await kube.request("GET", path))["resources"]]
    return sorted(set(found))


async def may(kube: KubeClient, user: User, right: Right) -> bool:
    resource, _, part = right.resource.partition("/")
    attributes = {"verb": right.verb, "group": right.group, "resource": resource, "subresource": part}
    body: Object = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user.name, "groups": [*user.groups, "system:authenticated"], "resourceAttributes": attributes},
    }
    answer = await kube.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body=body)
    return bool(answer["status"]["allowed"])


EVERYBODY = {("create", "authorization.k8s.io"), ("create", "authentication.k8s.io")}
"""What every authenticated user may do: ask who it is, and what it may."""


async def test_no_account_has_a_right_that_its_role_does_not_name(plane: ControlPlane) -> None:
    roles = of_kind("ClusterRole")
    async with client(plane, plane.admin) as admin:
        resources = await served(admin)
        assert len(resources) > 100
        limit = asyncio.Semaphore(32)
        for user in (WATCHER, ACTUATOR, SORTER, GATEWAY):
            role = roles.get(user.name.rpartition(":")[2])
            named = {
                Right(verb, group, resource)
                for rule in (role["rules"] if role else [])
                if "resourceNames" not in rule
                for verb, group, resource in rights({"rules": [rule]})
            }

            async def asked(right: Right, user: User = user) -> tuple[Right, bool]:
                async with limit:
                    return right, await may(admin, user, right)

            every = [Right(verb, group, resource) for group, resource in resources for verb in VERBS]
            answers = await asyncio.gather(
                *(asked(right) for right in every if (right.verb, right.group) not in EVERYBODY)
            )
            allowed = {right for right, yes in answers if yes}
            assert allowed == {right for right in named & set(every) if (right.verb, right.group) not in EVERYBODY}


async def test_the_actuator_writes_no_field_that_muster_does_not(plane: ControlPlane) -> None:
    async with client(plane, ALICE) as alice, client(plane, ACTUATOR) as actuator, client(plane, plane.admin) as admin:
        waits = await alice.create(job(suspend=True))
        name = waits["metadata"]["name"]
        group = waits["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]
        head = {"template": {"spec": {"serviceAccountName": "admin", "containers": []}}}
        for patch, words in (
            ({"spec": {"entrypoint": "steal"}}, "spec.entrypoint is not what Muster writes"),
            ({"spec": {"rayClusterSpec": {"headGroupSpec": head}}}, "is not what Muster writes"),
            ({"spec": {"rayClusterSpec": {"workerGroupSpecs": [group, group]}}}, "is not what Muster writes"),
            ({"metadata": {"annotations": {"other": "1"}}}, "annotation other is not what Muster writes"),
            ({"metadata": {"labels": {"other": "1"}}}, "Muster changes no labels"),
            ({"metadata": {"finalizers": ["a.example/b"]}}, "Muster changes no labels"),
        ):
            await refused(actuator.patch(RAY, "RayJob", name, MANAGED, patch=patch), words)
        body = jobs.job("image", FREE)
        await alice.create(body)
        # What it does write.
        steered = {"metadata": {"annotations": {"muster.dev/gang": "image"}}}
        started: Object = {
            "metadata": {"annotations": {"muster.dev/intent": "1-7-0"}},
            "spec": {"suspend": False, "template": steered},
        }
        await actuator.patch("batch/v1", "Job", "image", FREE, patch=started)
        for kind in ("TFJob", "PyTorchJob", "MPIJob", "SparkApplication", "RayService", "RayCluster"):
            made = await alice.create(jobs.KINDS[kind].make("ours", MANAGED))
            ops: list[Object] = [
                {"op": "add", "path": "/metadata/annotations", "value": {"muster.dev/intent": "1-7-0"}}
            ]
            flat = kind == "SparkApplication"
            ops += [
                {"op": "add", "path": f"{at}{'' if flat else '/spec'}/schedulerName", "value": "muster"}
                for at in jobs.KINDS[kind].templates
            ]
            await actuator.patch(made["apiVersion"], kind, "ours", MANAGED, patch=ops)
            larger = [
                {"op": "add", "path": "/spec/more", "value": 1},
                {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
            ]
            await refused(actuator.patch(made["apiVersion"], kind, "ours", MANAGED, patch=larger), "Muster")
            await alice.delete(made["apiVersion"], kind, "ours", MANAGED)
        pod = await admin.create(gang_pod("kube-system", name="privileged"))
        for patch, words in (
            ({"spec": {"containers": [{"name": "main", "image": "evil"}]}}, "changes nothing else"),
            ({"metadata": {"labels": {"app": "x"}}}, "changes nothing else"),
            ({"metadata": {"annotations": {"a": "x"}}}, "changes nothing else"),
            (
                {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x"}]}},
                "changes nothing else",
            ),
        ):
            await refused(actuator.patch("v1", "Pod", "privileged", "kube-system", patch=patch), words)
        over = {"status": {"phase": "Succeeded"}}
        attempt = actuator.patch("v1", "Pod", "privileged", "kube-system", patch=over, subresource="status")
        await refused(attempt, "writes conditions of pods")
        lacks = {"status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}}
        await actuator.patch("v1", "Pod", "privileged", "kube-system", patch=lacks, subresource="status")
        shares = {"metadata": {"labels": {"runai-gpu-group": "g"}}}
        await actuator.patch("v1", "Pod", "privileged", "kube-system", patch=shares)
        await admin.create(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "coredns", "namespace": "kube-system"},
                "data": {"Corefile": "."},
            }
        )
        stolen = {"data": {"Corefile": "evil"}}
        await refused(
            actuator.patch("v1", "ConfigMap", "coredns", "kube-system", patch=stolen), "share a GPU, and no other"
        )
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "privileged", "uid": pod["metadata"]["uid"]}
        shared: Object = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "shared", "namespace": MANAGED, "ownerReferences": [owner]},
        }
        await refused(actuator.create({**shared, "data": {"key": "x"}}), "share a GPU, and no other")
        await actuator.create({**shared, "data": {"GPU_PORTION": "0.5"}})
        names: Object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mine"}}
        await refused(actuator.create(names), "Muster makes namespace kube-queue, and no other")
        for found in (pod, waits):
            meta = found["metadata"]
            await admin.delete(found["apiVersion"], found["kind"], meta["name"], meta["namespace"], grace_s=0)
        await admin.delete("batch/v1", "Job", "image", FREE)
        await admin.delete("v1", "ConfigMap", "coredns", "kube-system")


async def test_the_actuator_makes_and_deletes_nothing_of_others(plane: ControlPlane) -> None:
    def named(api_version: str, kind: str, namespace: str, **body: object) -> Object:
        meta = {"name": "theirs", "namespace": namespace}
        return {"apiVersion": api_version, "kind": kind, "metadata": meta, **body}

    about = {"kind": "Pod", "name": "x", "namespace": MANAGED}
    template = named("v1", "PodTemplate", MANAGED, template={"spec": gang_pod()["spec"]})
    group = named("scheduling.x-k8s.io/v1alpha1", "PodGroup", MANAGED, spec={"minMember": 1})
    queue = named("scheduling.x-k8s.io/v1alpha1", "Queue", MANAGED, spec={})
    event = named("v1", "Event", MANAGED, involvedObject=about, reason="Real", message="x", type="Normal")
    lease = named("coordination.k8s.io/v1", "Lease", "kube-system", spec={"holderIdentity": "x"})
    async with client(plane, ACTUATOR) as actuator, client(plane, plane.admin) as admin:
        for body, words in ((template, "no other"), (event, "Events of its own"), (lease, "and no other")):
            await refused(actuator.create(body), words)
        for body in (template, group, queue, event):
            await admin.create(body)
        for body in (template, group, queue):
            where = body["metadata"]["namespace"]
            await refused(actuator.delete(body["apiVersion"], body["kind"], "theirs", where), "no other")
        forged = {"reason": "Forged", "reportingComponent": "muster"}
        await refused(actuator.patch("v1", "Event", "theirs", MANAGED, patch=forged), "Events of its own")
        # What it does make and delete.
        ours = {**template, "metadata": {"name": "ours", "namespace": MANAGED, "labels": {"muster.dev/x": "1"}}}
        await actuator.create(ours)
        await actuator.delete("v1", "PodTemplate", "ours", MANAGED)
        await actuator.create(
            {**event, "metadata": {"name": "ours", "namespace": MANAGED}, "reportingComponent": "muster"}
        )
        for body in (template, group, queue, event):
            await admin.delete(body["apiVersion"], body["kind"], "theirs", MANAGED)
        await admin.delete("v1", "Event", "ours", MANAGED)
