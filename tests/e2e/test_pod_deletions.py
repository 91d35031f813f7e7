"""Which pods Muster's actuator may delete, on a real API server with everything of deploy/ applied."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from kit import jobs
from kit.cluster import RAY
from kit.controlplane import ControlPlane
from kit.guarded import ACTUATOR, ALICE, FREE, MANAGED, client
from kit.kubeclient import ApiError, KubeClient, Object
from kit.waiting import until
from muster.core.objects.gpushares import RESERVATIONS

WORKER = {"ray.io/cluster": "owner", "ray.io/group": "small", "ray.io/node-type": "worker"}
HEAD = WORKER | {"ray.io/group": "headgroup", "ray.io/node-type": "head"}


def pod(name: str, namespace: str, labels: Object, *owners: Object) -> Object:
    meta = {"name": name, "namespace": namespace, "labels": labels, "ownerReferences": list(owners)}
    spec = {"schedulerName": "muster", "containers": [{"name": "main", "image": "none"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def owned_by(cluster: Object, **changes: object) -> Object:
    meta = cluster["metadata"]
    owner = {"apiVersion": RAY, "kind": "RayCluster", "name": meta["name"], "uid": meta["uid"], "controller": True}
    return owner | changes


@pytest_asyncio.fixture(params=[MANAGED, FREE], ids=["managed", "not managed"])
async def owner(plane: ControlPlane, request: pytest.FixtureRequest) -> AsyncIterator[Object]:
    async with client(plane, plane.admin) as admin:
        made = await admin.create(jobs.raycluster("owner", request.param, suspend=True))
        yield made
        for each in await admin.list_objects("v1", "Pod", request.param):
            await admin.delete("v1", "Pod", each["metadata"]["name"], request.param, grace_s=0)
        await admin.delete(RAY, "RayCluster", "owner", request.param)


async def gone(kube: KubeClient, made: Object, *, uid: str | None) -> bool:
    """Whether the deletion passes the policy; else it has refused."""
    meta = made["metadata"]
    try:
        await kube.delete("v1", "Pod", meta["name"], meta["namespace"], uid=uid, grace_s=0)
    except ApiError as err:
        assert err.status == 403 and "muster-pod-deletions" in str(err), err
        return False
    return True


async def test_it_deletes_workers_of_ray_clusters_by_their_uid_and_no_other_pod(
    plane: ControlPlane, owner: Object
) -> None:
    namespace = owner["metadata"]["namespace"]
    async with client(plane, plane.admin) as admin, client(plane, ACTUATOR) as actuator:
        mine = owned_by(owner)
        others = {
            "plain": ({}, []),
            "head": (HEAD, [mine]),
            "forged": (WORKER, []),
            "in-a-part": (WORKER, [owned_by(owner, controller=False)]),
            "of-another": (WORKER | {"ray.io/cluster": "another"}, [mine]),
        }

        async def works() -> bool:
            made = await admin.create(pod("probe", namespace, {}))
            held = not await gone(actuator, made, uid=made["metadata"]["uid"])
            if held:
                await admin.delete("v1", "Pod", "probe", namespace, grace_s=0)
            return held

        await until(works, what="the policy to be in force")
        for name, (labels, owners) in others.items():
            made = await admin.create(pod(name, namespace, labels, *owners))
            assert not await gone(actuator, made, uid=made["metadata"]["uid"]), name
        worker = await admin.create(pod("worker", namespace, WORKER, mine))
        assert not await gone(actuator, worker, uid=None)
        for uid in ("", "another", owner["metadata"]["uid"]):
            with pytest.raises(ApiError) as refused:  # By the server itself, or by the policy.
                await actuator.delete("v1", "Pod", "worker", namespace, uid=uid, grace_s=0)
            assert refused.value.status in (403, 409), uid
        assert await gone(actuator, worker, uid=worker["metadata"]["uid"])
        left = {each["metadata"]["name"] for each in await admin.list_objects("v1", "Pod", namespace)}
        assert left == {*others}


async def test_it_binds_nobody_else(plane: ControlPlane) -> None:
    async with client(plane, plane.admin) as admin, client(plane, ALICE) as alice:
        made = await admin.create(pod("hers", FREE, {}))
        assert await gone(alice, made, uid=None)


async def test_it_deletes_reservations_of_gpus_by_their_uid(plane: ControlPlane) -> None:
    async with client(plane, plane.admin) as admin, client(plane, ACTUATOR) as actuator:
        made = await admin.create(pod("kept", RESERVATIONS, {}))
        assert not await gone(actuator, made, uid=None)
        assert await gone(actuator, made, uid=made["metadata"]["uid"])
