"""What a tenant tries with JobSets, and with LeaderWorkerSets, which Muster does not queue: their controllers make Jobs
and StatefulSets. A test plays those controllers, with the rights that their installations give them.
"""

from collections.abc import AsyncIterator

import pytest_asyncio

from kit import jobs
from kit.controlplane import ControlPlane
from kit.guarded import ALICE, JOBSETS, LEADERS, MANAGED, client, gang_pod, mutates, refused
from kit.kubeclient import ApiError, KubeClient, Object
from kit.waiting import until

SETS = {
    "JobSet": ("jobset.x-k8s.io", "v1alpha2", "jobsets"),
    "LeaderWorkerSet": ("leaderworkerset.x-k8s.io", "v1", "leaderworkersets"),
}
START: Object = {"spec": {"suspend": False}}


def version(kind: str) -> str:
    group, number, _ = SETS[kind]
    return f"{group}/{number}"


def definition(kind: str) -> Object:
    """As much of it as the API server needs: any fields, a status, and a size that can be scaled."""
    group, number, plural = SETS[kind]
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    served = {
        "name": number,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        "subresources": {"status": {}, **({"scale": scale} if kind == "LeaderWorkerSet" else {})},
    }
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [served]},
    }


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def sets(plane: ControlPlane) -> AsyncIterator[ControlPlane]:
    """The control plane with both kinds on it."""
    async with client(plane, plane.admin) as admin:
        for kind in ("LeaderWorkerSet",):
            await admin.create(definition(kind))

            async def served(kind: str = kind) -> bool:
                try:
                    await admin.list_objects(version(kind), kind, MANAGED)
                except ApiError:
                    return False
                return True

            await until(served, what=f"{kind}s to be served")
        yield plane
        for group, _, plural in (SETS["LeaderWorkerSet"],):
            path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.{group}"
            await admin.request("DELETE", path)


async def boss(kube: KubeClient, kind: str, **spec: object) -> Object:
    meta = {"name": "boss", "namespace": MANAGED}
    return await kube.create({"apiVersion": version(kind), "kind": kind, "metadata": meta, "spec": spec})


def controlled(body: Object, owner: Object) -> Object:
    meta = owner["metadata"]
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta["name"], "uid": meta["uid"]}
    body["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
    return body


async def end(kube: KubeClient, *found: Object) -> None:
    for each in found:
        meta = each["metadata"]
        await kube.delete(each["apiVersion"], each["kind"], meta["name"], MANAGED, grace_s=0)


async def test_the_jobs_of_a_jobset_are_started_by_nobody_around_the_queue(sets: ControlPlane) -> None:
    """A JobSet waits for its turn, and its Jobs are its parts."""
    async with client(sets, ALICE) as alice, client(sets, JOBSETS) as controller:
        if not mutates(sets):
            await refused(alice.create(jobs.jobset("boss", MANAGED, suspend=False)), "spec.suspend must be true")
        owner = await alice.create(jobs.jobset("boss", MANAGED, suspend=not mutates(sets)))
        assert owner["spec"]["suspend"] is True
        made = await controller.create(controlled(jobs.job("boss-workers-0", MANAGED), owner))
        for kind, name in (("JobSet", "boss"), ("Job", "boss-workers-0")):
            attempt = alice.patch(version(kind) if kind in SETS else "batch/v1", kind, name, MANAGED, patch=START)
            await refused(attempt, "it stays suspended: Muster starts this job when it is its turn")
        await end(alice, made, owner)


async def test_a_job_is_not_smuggled_into_a_jobset(sets: ControlPlane) -> None:
    async with client(sets, ALICE) as alice:
        owner = await alice.create(jobs.jobset("boss", MANAGED))
        body = controlled(jobs.job("smuggled", MANAGED), owner)
        await refused(alice.create(body), "names JobSet boss as its controller, but only the controller of JobSets")
        attempt = alice.create(controlled(gang_pod(spec={"schedulerName": "muster"}, name="beside"), owner))
        await refused(attempt, "names JobSet boss as its controller, but only that")
        await end(alice, owner)


async def test_the_pods_of_a_leader_worker_set_name_muster(sets: ControlPlane) -> None:
    """As those of any StatefulSet; then Muster places and charges each of them, and so those of a size raised later."""

    def leaders(owner: Object, name: str, replicas: int, **pod: object) -> Object:
        labels = {"leaderworkerset.sigs.k8s.io/name": name}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "m", "image": "none"}], **pod}}
        spec = {
            "replicas": replicas,
            "serviceName": name,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": template,
        }
        body: Object = {"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": spec}
        return controlled({**body, "metadata": {"name": name, "namespace": MANAGED}}, owner)

    async with client(sets, ALICE) as alice, client(sets, LEADERS) as controller:
        template = {"spec": {"containers": [{"name": "m", "image": "none"}]}}
        owner = await boss(alice, "LeaderWorkerSet", replicas=1, leaderWorkerTemplate={"workerTemplate": template})
        assert "set spec.leaderWorkerTemplate.workerTemplate.spec.schedulerName to muster" in str(alice.warnings)
        around = await controller.create(leaders(owner, "around", 2))

        async def told() -> bool:
            events = await alice.list_objects("v1", "Event", MANAGED)
            said = [e["message"] for e in events if e["reason"] == "FailedCreate" and "around" in e["message"]]
            return any("and those of StatefulSet around to none" in s for s in said)

        await until(told, what="an Event that says why there are no pods")
        assert not await alice.list_objects("v1", "Pod", MANAGED, labels="leaderworkerset.sigs.k8s.io/name=around")
        # A leader by hand, and workers under it.
        leader = controlled(gang_pod(spec={"schedulerName": "muster"}, name="leader"), owner)
        await refused(alice.create(leader), "names LeaderWorkerSet boss as its controller, but only that controller")
        plain = await controller.create(controlled(gang_pod(spec={"schedulerName": "muster"}, name="leader"), owner))
        await refused(
            controller.create(controlled(gang_pod(name="worker"), plain)),
            "create a Job, which is queued",
        )
        through = await controller.create(leaders(owner, "through", 1, schedulerName="muster"))

        async def pods(number: int) -> bool:
            found = await alice.list_objects("v1", "Pod", MANAGED, labels="leaderworkerset.sigs.k8s.io/name=through")
            return len(found) == number and all(
                p["spec"]["schedulerName"] == "muster" and not p["spec"].get("nodeName") for p in found
            )

        await until(lambda: pods(1), what="a pod that waits for Muster")
        await alice.patch("apps/v1", "StatefulSet", "through", MANAGED, patch={"spec": {"replicas": 3}})
        await until(lambda: pods(3), what="three of them, none of which has a node")
        await end(alice, plain, around, through, owner)
