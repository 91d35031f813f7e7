"""How long a pod may take to end: it holds its room until it is gone, and a Job makes another one beside it meanwhile.

On a real API server with the shipped policies, as a tenant.
"""

from kit import jobs
from kit.controlplane import ControlPlane
from kit.guarded import ALICE, FREE, MANAGED, client, gang_pod, refused
from kit.kubeclient import ApiError, KubeClient, Object
from kit.waiting import until
from muster.core.workloads.registry import KINDS

LONG = {"terminationGracePeriodSeconds": 3601}


async def bound(admin: KubeClient, name: str) -> None:
    target = {"apiVersion": "v1", "kind": "Node", "name": "none"}
    body: Object = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    await admin.request("POST", f"/api/v1/namespaces/{MANAGED}/pods/{name}/binding", body=body)


async def test_no_kind_makes_pods_that_take_for_ever_to_end(plane: ControlPlane) -> None:
    async with client(plane, ALICE) as alice:
        for kind in KINDS:
            for at in jobs.KINDS[kind].templates:
                made = jobs.KINDS[kind].make("lingers", MANAGED)
                template = jobs.at(made, at)
                (template if kind == "SparkApplication" else template["spec"]).update(LONG)
                await refused(alice.create(made), "terminationGracePeriodSeconds of a pod template is 3601")
        pod = gang_pod(spec={"schedulerName": "muster", **LONG})
        await refused(alice.create(pod), "it may take 3601 s to end, and pods of managed namespaces may take 3600 s")
        pod["metadata"]["namespace"] = FREE
        found = await alice.create(pod)
        await alice.delete("v1", "Pod", found["metadata"]["name"], FREE, grace_s=0)


async def test_a_pod_of_a_job_is_gone_within_a_minute(plane: ControlPlane) -> None:
    """Else each deletion would add a pod to those that run."""
    async with client(plane, ALICE) as alice, client(plane, plane.admin) as admin:
        room = {"cpu": "128", "memory": "1Ti", "pods": "10"}
        status = {"capacity": room, "allocatable": room}
        await admin.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "none"}, "status": status})
        made = jobs.job("ends", MANAGED, parallelism=1)
        made["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 600
        await alice.create(made)
        start: Object = {"metadata": {"annotations": {"muster.dev/intent": "1-7-0"}}, "spec": {"suspend": False}}
        await admin.patch("batch/v1", "Job", "ends", MANAGED, patch=start)

        async def pods() -> list[str]:
            found = await admin.list_objects("v1", "Pod", MANAGED, labels="job-name=ends")
            return [each["metadata"]["name"] for each in found]

        [name] = await until(pods, what="the pod of the Job")
        await alice.delete("v1", "Pod", name, MANAGED)  # Nothing runs so far.

        async def another() -> str | None:
            return next((each for each in await pods() if each not in known), None)

        known = {name}
        name = await until(another, what="another pod of the Job")
        known.add(name)
        await bound(admin, name)
        where = f"/api/v1/namespaces/{MANAGED}/pods/{name}"
        words = "its Job would make another pod while this one takes 600 s to end; delete it with --grace-period=60"
        await refused(alice.delete("v1", "Pod", name, MANAGED), words)
        await refused(alice.delete("v1", "Pod", name, MANAGED, grace_s=86_400), "it may take 86400 s to end")
        await refused(
            alice.request("DELETE", where.rpartition("/")[0], params={"labelSelector": "job-name=ends"}), words
        )

        def eviction(**options: int) -> Object:
            meta = {"name": name, "namespace": MANAGED}
            return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta, "deleteOptions": options}

        for options in ({}, {"gracePeriodSeconds": 600}):
            await refused(
                alice.request("POST", f"{where}/eviction", body=eviction(**options)), "its Job would make another"
            )
        assert await another() is None
        await alice.request("POST", f"{where}/eviction", body=eviction(gracePeriodSeconds=60))
        found = await admin.get("v1", "Pod", name, MANAGED)
        assert found["metadata"]["deletionGracePeriodSeconds"] == 60
        # A node that is drained asks for no grace of its own, and is not asked.
        second = await until(another, what="a third pod of the Job")
        await bound(admin, second)
        await admin.delete("v1", "Pod", second, MANAGED)
        # The whole Job ends as it says.
        await alice.delete("batch/v1", "Job", "ends", MANAGED)
        for each in await pods():
            try:
                await admin.delete("v1", "Pod", each, MANAGED, grace_s=0)
            except ApiError as err:
                assert err.status == 404, err
        await admin.delete("v1", "Node", "none")


async def test_a_pod_is_not_taken_off_the_books_while_it_runs_on(plane: ControlPlane) -> None:
    """Its node gives it the grace that it asked for itself, also where it is deleted by force."""
    words = "deleted with --force it would run on for up to 3600 s, and nothing would count it"
    async with client(plane, ALICE) as alice, client(plane, plane.admin) as admin:
        status = {"capacity": {"cpu": "1", "pods": "10"}}
        await admin.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "none"}, "status": status})
        for name, grace in (("long", 3600), ("short", 60)):
            spec = {"schedulerName": "muster", "terminationGracePeriodSeconds": grace}
            await alice.create(gang_pod(spec=spec, name=name))
            await bound(admin, name)
        await refused(alice.delete("v1", "Pod", "long", MANAGED, grace_s=0), words)
        await alice.delete("v1", "Pod", "long", MANAGED)
        await refused(alice.delete("v1", "Pod", "long", MANAGED, grace_s=0), words)
        await alice.delete("v1", "Pod", "short", MANAGED, grace_s=0)
        spec = {"schedulerName": "muster", "terminationGracePeriodSeconds": 3600}
        await alice.create(gang_pod(spec=spec, name="waits"))
        await alice.delete("v1", "Pod", "waits", MANAGED, grace_s=0)  # It has no node.
        await admin.delete("v1", "Pod", "long", MANAGED, grace_s=0)
        await admin.delete("v1", "Node", "none")
