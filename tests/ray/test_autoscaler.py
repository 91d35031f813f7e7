"""Ray's own autoscaler on a real API server, with real raylets as worker pods.

One cluster; its tests run in the order of the file, and each leaves the cluster empty. Where a test
sets `maxReplicas`, it does what the actuator does when growth is granted: a head counts what a new worker has
taken as waiting for some seconds more, and an autoscaler without such a limit may then start one worker too many.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from kit.compose import REPOSITORY
from kit.realray.cluster import LIMIT_S, RealRayCluster
from kit.realray.transcript import Transcript
from kit.waiting import until
from muster.fakecluster.apiserver.kinds import ROLES
from muster.model.api import PODS, RAYCLUSTERS
from muster.model.keys import Ref
from muster.model.raydemand import RayShape
from muster.ray.heads import Head
from muster.ray.reader import HeadReader
from muster.ray.statustext import parse_status

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(400)]

second_version = pytest.mark.parametrize("ray_cluster", ["v2"], indirect=True)
first_version = pytest.mark.parametrize("ray_cluster", ["v1"], indirect=True)
"""With the second one the same is in test_in_the_loop, with Muster in the place of the test."""
SAMPLES = Path(__file__).parent / "samples"
PAGE = REPOSITORY / "docs" / "howto" / "ray-autoscaler.md"
IDLE_S = 5
IDLE_TICKS = IDLE_S + 3
"""Of a second or more each: what has been idle for so many is gone."""
CPU = 10_000


class Later:
    """A clock that a test puts forward."""

    ms = 1_000_000

    def now(self) -> int:
        return self.ms


async def emptied(cluster: RealRayCluster) -> None:
    """No worker is left: the idle ones go by themselves."""
    await cluster.until_workers(0)
    await cluster.until_group("no replicas", replicas=0)
    del cluster.recorder.versions[:-1]
    cluster.kubelet.started.clear()
    cluster.kubelet.ended.clear()


@pytest.mark.row(1)
async def test_the_head_alone_with_its_autoscaler(ray_cluster: RealRayCluster) -> None:
    pods = (await ray_cluster.api.call("GET", PODS.path(ray_cluster.api.namespace))).body["items"]
    assert [len(pod["spec"]["containers"]) for pod in pods] == [2]
    reading = await ray_cluster.reading()
    assert [(node.pod, node.head) for node in reading.nodes] == [(pods[0]["metadata"]["name"], True)]
    assert reading.version == ("v2" if ray_cluster.v2 else "v1")


@pytest.mark.row(2, 3, 4, 7, 8, 9, 10)
async def test_the_walk_of_the_document(ray_cluster: RealRayCluster) -> None:
    """Two detached actors come and go, each with a worker; the page of the docs shows what is printed."""
    cluster, head, shown = ray_cluster, ray_cluster.head, Transcript()
    await cluster.patch(maxReplicas=1)
    shown.note("nothing", await cluster.pods())
    await head.run("python", str(SAMPLES / "detached_actor.py"), "actor1")
    (first,) = await cluster.until_workers(1)
    shown.note("actor1", await cluster.pods())
    assert await cluster.pod_of("actor1") == first
    await cluster.patch(maxReplicas=2)
    await head.run("python", str(SAMPLES / "detached_actor.py"), "actor2")
    second = next(pod for pod in await cluster.until_workers(2) if pod != first)
    shown.note("actor2", await cluster.pods())
    assert await cluster.pod_of("actor2") == second
    listed = await head.run("ray", "list", "actors")
    shown.note("actors", listed)
    assert listed.count("ALIVE") == 2
    assert cluster.recorder.replicas() == [0, 1, 2]
    # The drivers have ended and the actors live: nothing is taken.
    await cluster.ticks(IDLE_TICKS)
    assert await cluster.workers() == sorted([first, second])

    await head.run("python", str(SAMPLES / "terminate_detached_actor.py"), "actor1")
    assert await cluster.until_workers(1) == [second]
    await cluster.settle(lambda: left_alone(cluster, second), LIMIT_S, "one node beside the head")
    shown.note("terminated1", await cluster.pods())
    assert (await cluster.spec())["replicas"] == 1
    assert first in {name for version in cluster.recorder.versions for name in version.to_delete}
    await cluster.settle(lambda: head_is_idle(cluster), LIMIT_S, "the head to be idle")
    printed = await head.run("ray", "status")
    status = parse_status(printed)
    assert (status.passed_over, status.waiting, status.active.get("small-group")) == (0, (), 1)
    shown.note("status", printed)
    await head.run("python", str(SAMPLES / "terminate_detached_actor.py"), "actor2")
    await emptied(cluster)
    shown.note("terminated2", await cluster.pods())
    if cluster.v2:
        shown.compare(PAGE)
    assert head.running
    await cluster.patch(maxReplicas=10)


async def head_is_idle(cluster: RealRayCluster) -> bool:
    return [node.status for node in (await cluster.reading()).nodes if node.head] == ["idle"]


async def left_alone(cluster: RealRayCluster, pod: str) -> bool:
    nodes = (await cluster.reading()).nodes
    return [node.pod for node in nodes if not node.head] == [pod]


@pytest.mark.row(5)
@second_version
async def test_an_actor_that_fits_no_worker_starts_none(ray_cluster: RealRayCluster) -> None:
    cluster = ray_cluster
    await cluster.actor("large", cpus=2)

    async def waits() -> bool:
        return (await cluster.reading()).pending == (RayShape({"CPU": 2 * CPU}),)

    await cluster.settle(waits, LIMIT_S, "the demand")
    await cluster.ticks(5)
    assert (await cluster.spec())["replicas"] == 0
    await cluster.kill("large")
    await emptied(cluster)


@pytest.mark.row(6)
@second_version
async def test_a_placement_group_starts_as_a_whole(ray_cluster: RealRayCluster) -> None:
    cluster = ray_cluster
    await cluster.patch(maxReplicas=3)
    await cluster.head.do("group = placement_group([{'CPU': 1}] * 3, strategy='STRICT_SPREAD')")
    await cluster.until_workers(3)
    assert cluster.recorder.replicas() == [0, 3]
    await cluster.head.do("ray.get(group.ready(), timeout=60)")

    async def all_hold() -> bool:
        return all(node.holds for node in (await cluster.reading()).nodes if not node.head)

    await cluster.settle(all_hold, LIMIT_S, "every worker to hold a part of the group")
    await cluster.head.do("remove_placement_group(group)")
    await emptied(cluster)
    await cluster.patch(maxReplicas=10)


@pytest.mark.row(19)
@first_version
async def test_no_more_workers_than_granted(ray_cluster: RealRayCluster) -> None:
    """Room for 2, demand 4: exactly 2; and with room for 4 the others at once."""
    cluster = ray_cluster
    await cluster.patch(maxReplicas=2)
    await cluster.head.do("kept = [task.remote() for _ in range(4)]")
    two = await cluster.until_workers(2)
    await cluster.ticks(5)
    assert await cluster.workers() == two
    reading = await cluster.reading()
    assert (reading.pending, reading.launching) == ((RayShape({"CPU": CPU}, 2),), {})
    await cluster.patch(maxReplicas=4)
    await cluster.until_workers(4)
    assert max(cluster.recorder.replicas()) == 4
    await cluster.head.do("[ray.cancel(ref, force=True) for ref in kept]; kept = []")
    await emptied(cluster)
    await cluster.patch(maxReplicas=10)


@pytest.mark.row(15)
async def test_conservative_grows_by_its_size(ray_cluster: RealRayCluster) -> None:
    cluster = ray_cluster
    mode = {"spec": {"autoscalerOptions": {"upscalingMode": "Conservative"}}}
    assert (await cluster.api.merge(RAYCLUSTERS, cluster.name, mode)).status == 200
    await cluster.ticks(2)
    await cluster.head.do("kept = [task.remote() for _ in range(4)]")
    await cluster.until_workers(4)
    replicas = cluster.recorder.replicas()
    # The second version starts at most as many as run; the first starts up to five at once in any case.
    most = max if cluster.v2 else lambda _one, _running: 5
    assert replicas[-1] == 4
    assert all(after - before <= most(1, before) for before, after in pairwise(replicas)), replicas
    await cluster.head.do("[ray.cancel(ref, force=True) for ref in kept]; kept = []")
    mode["spec"]["autoscalerOptions"]["upscalingMode"] = "Default"
    assert (await cluster.api.merge(RAYCLUSTERS, cluster.name, mode)).status == 200
    await emptied(cluster)


@pytest.mark.row(17)
@second_version
async def test_what_is_spilled_to_disk_keeps_its_worker(ray_cluster: RealRayCluster) -> None:
    cluster = ray_cluster
    await cluster.patch(maxReplicas=1)
    await cluster.head.do(
        """
@ray.remote(num_cpus=1)
def make(n):
    import os
    return os.urandom(30 * 2**20)
held = [make.remote(n) for n in range(4)]  # 120 MB where 80 fit
ray.wait(held, num_returns=4, timeout=60, fetch_local=False)
""",
        within_s=90,
    )
    await until(cluster.head.spilled, LIMIT_S, what="spilling")
    await cluster.ticks(IDLE_TICKS)
    (worker,) = await cluster.workers()
    assert (await cluster.node(worker)).status == "running"
    await cluster.head.do("del held")
    await emptied(cluster)
    await cluster.patch(maxReplicas=10)


@pytest.mark.row(20)
@first_version
async def test_an_idle_worker_is_taken_and_the_busy_one_stays(ray_cluster: RealRayCluster) -> None:
    """One of three is owed: an idle one is drained, and one patch takes it; the autoscaler does not fight."""
    cluster, api = ray_cluster, ray_cluster.api
    await cluster.idle_after(600)
    await cluster.patch(maxReplicas=3)
    for name in ("a", "b", "c"):
        await cluster.actor(name)
    await cluster.until_workers(3)
    busy = await cluster.pod_of("a")
    await cluster.kill("b", "c")

    async def two_idle() -> bool:
        return [node.status for node in (await cluster.reading()).nodes if not node.head].count("idle") == 2

    await cluster.settle(two_idle, LIMIT_S, "two idle workers")
    ended = [*cluster.kubelet.ended]  # Those of the tests before are the autoscaler's.
    victim = next(node for node in (await cluster.reading()).nodes if node.status == "idle" and not node.head)
    drained = await cluster.head.client.drain(
        victim.id, deadline_ms=2**52, why="another queue is owed a worker", idle_only=True
    )
    assert drained.accepted, drained

    found = await api.get(RAYCLUSTERS, cluster.name)
    assert found is not None
    group = "/spec/workerGroupSpecs/0"
    replicas = found["spec"]["workerGroupSpecs"][0]["replicas"]
    answer = await api.json_patch(
        RAYCLUSTERS,
        cluster.name,
        {"op": "test", "path": "/metadata/resourceVersion", "value": found["metadata"]["resourceVersion"]},
        {"op": "test", "path": f"{group}/groupName", "value": "small-group"},
        {"op": "replace", "path": f"{group}/replicas", "value": replicas - 1},
        {"op": "replace", "path": f"{group}/maxReplicas", "value": replicas - 1},
        {"op": "add", "path": f"{group}/scaleStrategy", "value": {"workersToDelete": [victim.pod]}},
    )
    assert answer.status == 200, answer
    left = await cluster.until_workers(2)
    assert victim.pod not in left and busy in left
    await cluster.ticks(5)
    assert await cluster.workers() == left
    assert cluster.kubelet.ended == [*ended, victim.pod]
    assert await cluster.pod_of("a") == busy
    await cluster.kill("a")
    await cluster.idle_after(IDLE_S)
    await cluster.patch(maxReplicas=10)
    await emptied(cluster)


@pytest.mark.row(13)
@second_version
async def test_the_minimum_is_kept(ray_cluster: RealRayCluster) -> None:
    cluster = ray_cluster
    await cluster.patch(minReplicas=1)
    kept = await cluster.until_workers(1)
    await cluster.ticks(IDLE_TICKS)
    assert await cluster.workers() == kept
    await cluster.patch(minReplicas=0)
    await emptied(cluster)


@pytest.mark.row(22)
async def test_refused_patches_are_made_up_for(ray_cluster: RealRayCluster) -> None:
    """The API server refuses the autoscaler's patches for a while."""
    cluster, api = ray_cluster, ray_cluster.api
    role = await api.get(ROLES, cluster.name)
    assert role is not None
    await api.merge(ROLES, cluster.name, {"rules": [rule | {"verbs": ["get", "list"]} for rule in role["rules"]]})
    await cluster.actor("refused")

    async def waits() -> bool:
        return bool((await cluster.reading()).pending)

    await cluster.settle(waits, LIMIT_S, "the demand")
    await cluster.ticks(8, or_ended=True)
    assert await cluster.workers() == []
    assert (await api.merge(ROLES, cluster.name, {"rules": role["rules"]})).status == 200
    if not cluster.autoscaler.running:  # the first version ends after five failures; a kubelet starts it again
        cluster.autoscaler.start()
    await cluster.until_workers(1)
    await cluster.kill("refused")
    await emptied(cluster)


@pytest.mark.row(22)
async def test_a_new_autoscaler_goes_on(ray_cluster: RealRayCluster) -> None:
    cluster = ray_cluster
    await cluster.patch(maxReplicas=1)
    await cluster.actor("before")
    kept = await cluster.until_workers(1)

    async def nothing_is_on_its_way() -> bool:
        return not (await cluster.reading()).launching

    await cluster.settle(nothing_is_on_its_way, LIMIT_S, "the autoscaler to say that its launch is over")
    await cluster.autoscaler.end()
    await cluster.actor("meanwhile")
    cluster.autoscaler.start()
    await cluster.ticks(2)
    # Its head takes no report of it yet; while it may do nothing it is not taken for one that stalls.
    reader = HeadReader(Head(Ref("rayclusters", "ns", "c", "u"), 1, cluster.head.address), clock=(clock := Later()))
    assert (await reader.read()).pending
    await cluster.ticks(3)
    clock.ms += 60_000
    assert (await reader.read()).trouble == ""
    await reader.close()
    await cluster.patch(maxReplicas=2)
    both = await cluster.until_workers(2)
    assert set(kept) <= set(both)
    assert cluster.kubelet.ended == []
    await cluster.kill("before", "meanwhile")
    await emptied(cluster)
    await cluster.patch(maxReplicas=10)


@pytest.mark.row(16)
@second_version
async def test_each_group_has_its_own_idle_timeout(ray_cluster: RealRayCluster) -> None:
    """A second group whose workers have two CPUs and stay idle for longer."""
    cluster, api = ray_cluster, ray_cluster.api
    second = await cluster.spec() | {"groupName": "large-group", "idleTimeoutSeconds": 4 * IDLE_S, "replicas": 0}
    amounts = {"cpu": "2", "memory": "1Gi"}
    container = second["template"]["spec"]["containers"][0] | {"resources": {"requests": amounts, "limits": amounts}}
    second["template"] = {"spec": {"containers": [container]}}
    second.pop("scaleStrategy", None)
    added = {"op": "add", "path": "/spec/workerGroupSpecs/-", "value": second}
    assert (await api.json_patch(RAYCLUSTERS, cluster.name, added)).status == 200
    await cluster.actor("small")
    await cluster.until_workers(1)
    await cluster.actor("large", cpus=2)
    await cluster.until_workers(2)
    large = await cluster.pod_of("large")
    assert "large-group" in large and "small-group" in await cluster.pod_of("small")
    await cluster.kill("small", "large")
    assert await cluster.until_workers(1) == [large]
    await cluster.until_workers(0)
    removed = {"op": "remove", "path": "/spec/workerGroupSpecs/1"}
    assert (await api.json_patch(RAYCLUSTERS, cluster.name, removed)).status == 200
    await emptied(cluster)


@second_version
@pytest.mark.row(22)
async def test_a_lost_head_is_replaced_and_its_workers_join_again(ray_cluster: RealRayCluster) -> None:
    """Without a store outside Ray its actors are gone with it; no worker pod is lost, and nothing is made twice."""
    cluster = ray_cluster
    await cluster.idle_after(600)
    await cluster.patch(maxReplicas=1)
    await cluster.actor("before")
    kept = await cluster.until_workers(1)
    lost, session = cluster.head.pod, (await cluster.reading()).session
    await cluster.head.crash()

    async def another() -> bool:
        if cluster.head.pod == lost or not cluster.head.running:
            return False
        return (await cluster.reading()).session != session

    await cluster.settle(another, LIMIT_S, "another head")
    assert await cluster.until_workers(1) == kept
    await cluster.actor("after")
    assert await cluster.pod_of("after") == kept[0]
    assert cluster.kubelet.ended == [lost]
    await cluster.kill("after")
    await cluster.idle_after(IDLE_S)
    await emptied(cluster)
