"""What a tenant tries with kinds that Muster does not queue: JobSets and LeaderWorkerSets, whose controllers make Jobs
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
        for kind in SETS:
            await admin.create(definition(kind))

            async def served(kind: str = kind) -> bool:
                try:
                    await admin.list_objects(version(kind), kind, MANAGED)
                except ApiError:
                    return False
                return True

            await until(served, what=f"{kind}s to be served")
        yield plane
        for group, _, plural in SETS.values():
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
    """However the JobSet was made: running, or resumed later; its Jobs wait, since their JobSet has no turn."""
    async with client(sets, ALICE) as alice, client(sets, JOBSETS) as controller:
        owner = await boss(alice, "JobSet", suspend=False, replicatedJobs=[{"name": "w", "replicas": 2}])
        body = controlled(jobs.job("boss-w-0", MANAGED, suspend=False), owner)
        if not mutates(sets):
            await refused(controller.create(body), "spec.suspend must be true")
        body["spec"]["suspend"] = not mutates(sets)
        made = await controller.create(body)
        assert made["spec"]["suspend"] is True
        for who in (controller, alice):
            attempt = who.patch("batch/v1", "Job", "boss-w-0", MANAGED, patch=START)
            await refused(attempt, "it stays suspended: Muster starts this job when it is its turn")
        await alice.patch(version("JobSet"), "JobSet", "boss", MANAGED, patch={"spec": {"suspend": True}})
        await alice.patch(version("JobSet"), "JobSet", "boss", MANAGED, patch=START)
        # The size of the set is that of its Jobs, and each of them waits.
        more = [{"name": "w", "replicas": 5_000}]
        await alice.patch(version("JobSet"), "JobSet", "boss", MANAGED, patch={"spec": {"replicatedJobs": more}})
        another = controlled(jobs.job("boss-w-1", MANAGED, parallelism=5_000), owner)
        second = await controller.create(another)
        await refused(controller.patch("batch/v1", "Job", "boss-w-1", MANAGED, patch=START), "it stays suspended")
        assert not await alice.list_objects("v1", "Pod", MANAGED, labels="job-name in (boss-w-0, boss-w-1)")
        await end(alice, made, second, owner)


async def test_a_job_is_not_smuggled_into_a_jobset(sets: ControlPlane) -> None:
    async with client(sets, ALICE) as alice, client(sets, sets.admin) as admin:
        owner = await boss(alice, "JobSet", suspend=False)
        body = controlled(jobs.job("smuggled", MANAGED, suspend=False), owner)
        if mutates(sets):
            made = await alice.create(body)
            assert made["spec"]["suspend"] is True
        else:
            await refused(alice.create(body), "spec.suspend must be true")
            body["spec"]["suspend"] = True
            made = await alice.create(body)
        await refused(alice.patch("batch/v1", "Job", "smuggled", MANAGED, patch=START), "it stays suspended")
        # A pod beside it, in the name of the set or of its Job.
        for of in (owner, made):
            attempt = alice.create(controlled(gang_pod(spec={"schedulerName": "muster"}, name="beside"), of))
            await refused(attempt, f"names {of['kind']} {of['metadata']['name']} as its controller, but only that")
        # What was admitted by itself, and grows.
        start = {**START, "metadata": {"annotations": {"muster.dev/intent": "1-7-0"}}}
        await admin.patch("batch/v1", "Job", "smuggled", MANAGED, patch=start)
        attempt = alice.patch("batch/v1", "Job", "smuggled", MANAGED, patch={"spec": {"parallelism": 5_000}})
        await refused(attempt, "it runs with the size that was admitted")
        await end(alice, made, owner)


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
        owner = await boss(alice, "LeaderWorkerSet", replicas=1)
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
