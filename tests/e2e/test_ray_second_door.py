"""What Ray's autoscaler writes besides ``replicas`` (Ray 2.60), on a real API server with our policies: pods grow in
place, and a cluster that it stops since nothing uses it.
"""

import contextlib
from collections.abc import AsyncIterator

from kit.cluster import RAY
from kit.controlplane import ControlPlane
from kit.granted import granted, patch
from kit.guarded import AUTOSCALER, MANAGED, OPERATOR, client, refused
from kit.kubeclient import ApiError, KubeClient, Object
from kit.waiting import until


def grown(cpu: float, memory: int) -> list[Object]:
    """As Ray 2.60 writes it: the first container, requests and limits by the same step, plain numbers."""
    at = "/spec/containers/0/resources"
    values = {"cpu": cpu, "memory": memory}
    return [
        {"op": "replace", "path": f"{at}/{part}/{name}", "value": value}
        for name, value in values.items()
        for part in ("limits", "requests")
    ]


@contextlib.asynccontextmanager
async def worker(plane: ControlPlane, cluster: str) -> AsyncIterator[KubeClient]:
    """A worker pod of that cluster, made by its operator and bound to a node; yields the cluster's administrator."""
    amounts = {"cpu": "1", "memory": "1Gi"}
    async with client(plane, OPERATOR) as operator, client(plane, plane.admin) as admin:
        owner = await operator.get(RAY, "RayCluster", cluster, MANAGED)
        reference = {"apiVersion": RAY, "kind": "RayCluster", "controller": True, "name": cluster}
        labels = {"ray.io/cluster": cluster, "ray.io/group": "small", "ray.io/node-type": "worker"}
        meta = {
            "name": f"{cluster}-worker",
            "namespace": MANAGED,
            "labels": labels,
            "ownerReferences": [{**reference, "uid": owner["metadata"]["uid"]}],
        }
        container = {"name": "ray", "image": "none", "resources": {"requests": amounts, "limits": amounts}}
        spec: Object = {"containers": [container], "automountServiceAccountToken": False}
        made = await operator.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
        room = {"cpu": "128", "memory": "1Ti", "pods": "10"}
        status = {"capacity": room, "allocatable": room}
        node: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "big"}, "status": status}
        await admin.create(node)
        binding: Object = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": made["metadata"]["name"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "big"},
        }
        where = f"/api/v1/namespaces/{MANAGED}/pods/{made['metadata']['name']}"
        await admin.request("POST", f"{where}/binding", body=binding)
        try:
            yield admin
        finally:
            await admin.request("DELETE", where, body={"gracePeriodSeconds": 0})
            await admin.request("DELETE", "/api/v1/nodes/big")


async def resize(kube: KubeClient, cluster: str, cpu: float, memory: int) -> Object:
    where = f"/api/v1/namespaces/{MANAGED}/pods/{cluster}-worker/resize"
    kind = "application/json-patch+json"
    found = await kube.request("PATCH", where, body=grown(cpu, memory), content_type=kind)
    return found["spec"]["containers"][0]["resources"]["requests"]


async def guarded(kube: KubeClient, cluster: str) -> None:
    """Wait until the server has read the policy."""

    async def refuses() -> bool:
        try:
            await resize(kube, cluster, 64, 2**36)
        except ApiError as err:
            return err.status == 403
        await resize(kube, cluster, 1, 2**30)
        return False

    await until(refuses, what="the policy to be in force")


async def test_neither_its_autoscaler_nor_a_tenant_makes_a_worker_larger_than_granted(plane: ControlPlane) -> None:
    async with (
        granted(plane, "resizes") as (alice, _),
        worker(plane, "resizes"),
        client(plane, AUTOSCALER) as autoscaler,
    ):
        await guarded(autoscaler, "resizes")
        for kube in (autoscaler, alice):
            await refused(resize(kube, "resizes", 4, 2 * 2**30), "Pod resizes-worker: ")
            await refused(resize(kube, "resizes", 1, 2 * 2**30), "Pod resizes-worker: ")
        assert await resize(autoscaler, "resizes", 0.5, 2**29) == {"cpu": "500m", "memory": str(2**29)}
        await refused(resize(autoscaler, "resizes", 1, 2**30), "Pod resizes-worker: ")


async def test_a_worker_grows_as_far_as_that_is_granted(plane: ControlPlane) -> None:
    async with (
        granted(plane, "enlarges") as (alice, actuator),
        worker(plane, "enlarges"),
        client(plane, AUTOSCALER) as autoscaler,
    ):

        async def write(kube: KubeClient, **notes: str | None) -> Object:
            keys = {"ippr": "ray.io/ippr", "own": "muster.dev/ippr", "resize": "muster.dev/resize"}
            patch = {"metadata": {"annotations": {keys[key]: text for key, text in notes.items()}}}
            return await kube.patch(RAY, "RayCluster", "enlarges", MANAGED, patch=patch)

        mine = '{"groups":{"small":{"max-cpu":4,"max-memory":"4Gi","resize-timeout":60}}}'
        await guarded(autoscaler, "enlarges")
        await write(alice, ippr=mine)
        await refused(resize(autoscaler, "enlarges", 4, 4 * 2**30), "may grow in place to nothing more now")
        for key in ("own", "resize"):
            await refused(write(alice, **{key: "small/cpu=64,small/memory=64Gi"}), "is written by Muster alone")
        await write(actuator, ippr=mine, own=mine, resize=f"small/cpu=4000m,small/memory={4 * 2**30}")

        async def grows() -> bool:
            try:
                await resize(autoscaler, "enlarges", 4, 4 * 2**30)
            except ApiError as err:
                assert err.status == 403, err
                return False
            return True

        await until(grows, what="the grant to count")
        for kube in (autoscaler, alice):
            await refused(resize(kube, "enlarges", 5, 4 * 2**30), "may grow in place to small/cpu=4000m")
        await refused(write(alice, ippr=mine.replace(":4,", ":64,")), "cannot be changed while its pods may grow")
        await write(alice, ippr=mine)
        await write(alice, ippr=None)
        await write(actuator, ippr=mine, resize="")
        assert await resize(autoscaler, "enlarges", 1, 2**30) == {"cpu": "1", "memory": str(2**30)}

        async def closed() -> bool:
            try:
                await resize(autoscaler, "enlarges", 4, 4 * 2**30)
            except ApiError as err:
                return err.status == 403
            await resize(autoscaler, "enlarges", 1, 2**30)
            return False

        await until(closed, what="the grant to be over")


async def test_a_cluster_that_its_autoscaler_stopped_runs_again_by_the_queue_alone(plane: ControlPlane) -> None:
    async with granted(plane, "idles") as (alice, actuator), client(plane, AUTOSCALER) as autoscaler:

        async def write(kube: KubeClient, **spec: object) -> Object:
            return await kube.patch(RAY, "RayCluster", "idles", MANAGED, patch={"spec": spec})

        stopped = await write(autoscaler, idleSuspend=True)
        assert (stopped["spec"]["idleSuspend"], stopped["spec"]["suspend"]) == (True, False)
        for kube in (alice, autoscaler):
            for value in (False, None):
                await refused(write(kube, idleSuspend=value), "set spec.suspend to true in the same change")
        again = await write(alice, idleSuspend=False, suspend=True)
        assert (again["spec"]["idleSuspend"], again["spec"]["suspend"]) == (False, True)
        await refused(write(alice, suspend=False), "it stays suspended")
        ops: list[Object] = [
            {"op": "add", "path": "/metadata/annotations/muster.dev~1intent", "value": "1-9-0"},
            {"op": "add", "path": "/spec/suspend", "value": False},
        ]
        resumed = await patch(actuator, "idles", ops)
        assert resumed["spec"]["suspend"] is False


async def test_an_owner_may_have_replicas_driven(plane: ControlPlane) -> None:
    async with granted(plane, "driven") as (alice, actuator):
        patch_it = {"metadata": {"annotations": {"muster.dev/drive-replicas": "true"}}}
        await alice.patch(RAY, "RayCluster", "driven", MANAGED, patch=patch_it)
        at = "/spec/workerGroupSpecs/0"
        more: list[Object] = [{"op": "add", "path": f"{at}/{key}", "value": 3} for key in ("maxReplicas", "replicas")]
        await refused(patch(alice, "driven", more), "cannot be changed so; granted are small=2")
        assert (await patch(actuator, "driven", more))["spec"]["workerGroupSpecs"][0]["replicas"] == 3


async def test_a_cluster_that_its_autoscaler_deletes_waits_for_its_operator(plane: ControlPlane) -> None:
    finalizer = "ray.io/idle-termination-cleanup-finalizer"
    async with granted(plane, "deleted") as (_, _), client(plane, AUTOSCALER) as autoscaler:
        found = await autoscaler.get(RAY, "RayCluster", "deleted", MANAGED)
        ops = [
            {"op": "test", "path": "/metadata/resourceVersion", "value": found["metadata"]["resourceVersion"]},
            {"op": "add", "path": "/metadata/finalizers", "value": [finalizer]},
        ]
        made = await patch(autoscaler, "deleted", ops)
        assert made["metadata"]["finalizers"] == [finalizer]
        async with client(plane, OPERATOR) as operator:
            await operator.delete(RAY, "RayCluster", "deleted", MANAGED)
            going = await operator.get(RAY, "RayCluster", "deleted", MANAGED)
            assert going["metadata"]["deletionTimestamp"]
            await operator.patch(RAY, "RayCluster", "deleted", MANAGED, patch={"metadata": {"finalizers": None}})

            async def gone() -> bool:
                try:
                    await operator.get(RAY, "RayCluster", "deleted", MANAGED)
                except ApiError as err:
                    return err.status == 404
                return False

            await until(gone, what="the cluster to be gone")
