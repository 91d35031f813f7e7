"""All of it at once: a real head, our reader, our stages, our writes on a real API server, and Ray's own autoscaler.

There is room for the head of the cluster and three workers, of which only the head is its queue's own; another queue is
guaranteed a core. The tests run in the order of the file and go on from each other.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import trustme

from kit.controlplane import ControlPlane
from kit.nats import nats_server  # noqa: F401 - a fixture
from kit.realray.cluster import LIMIT_S
from kit.realray.loop import MINE, OTHERS, Loop, looping
from kit.waiting import until
from muster.bus.server import EmbeddedServer
from muster.events.alarms import AlarmRaised
from muster.events.decisions import EvictionOrdered
from muster.events.elastic import GrowthDenied, GrowthGranted, GrowthWithdrawn, WorkersChosen
from muster.model.api import PODS, RAYCLUSTERS

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

V2 = os.environ.get("MUSTER_RAY_AUTOSCALER", "v2") == "v2"
"""Which version of Ray's autoscaler; the first one in `make test-ray AUTOSCALER=v1`."""
GROWN = "spot-group/cpu+1"
"""What a pod of that group has beyond its template once it has grown in place."""
JOINED_S = 400.0
"""On a busy machine a raylet takes a minute to join, and more beside others."""
SERVICE = """
from ray import serve
serve.start(http_options={'location': 'NoServer'})
@serve.deployment(ray_actor_options={'num_cpus': 1}, max_ongoing_requests=2, autoscaling_config={
    'min_replicas': 1, 'max_replicas': 3, 'target_ongoing_requests': 1, 'upscale_delay_s': 0,
    'metrics_interval_s': 0.5, 'look_back_period_s': 1})
class Slow:
    async def __call__(self):
        import asyncio
        await asyncio.sleep(3600)
service = serve.run(Slow.bind(), route_prefix=None)
"""
"""A deployment of Ray Serve that wants a replica for each request, three at the most."""
RUNNING = """
found = serve.status().applications['default'].deployments['Slow'].replica_states
answer = dict(found)
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def loop(
    ray_plane: ControlPlane,
    clients: trustme.CA,
    ray_folder: Path,
    nats_server: EmbeddedServer,  # noqa: F811
) -> AsyncIterator[Loop]:
    async with looping(ray_plane, clients, ray_folder, nats_server.url, v2=V2) as found:
        yield found


@pytest.mark.row(19)
async def test_it_gets_exactly_what_fits(loop: Loop) -> None:
    """Row 19: room for three workers and a demand for four."""
    cluster = loop.cluster
    for name in ("a", "b", "c", "d"):
        await cluster.actor(name)
    await cluster.until_workers(3, within_s=JOINED_S)
    assert (await cluster.spec())["maxReplicas"] == 3
    await cluster.ticks(3)
    assert len(await cluster.workers()) == 3, "nothing is tried beyond the grant"
    assert sum(shape.count for shape in (await cluster.reading()).pending) == 1
    refusals = await loop.muster.told(GrowthDenied)
    short = refusals[-1].short
    assert (short.resource, short.limit) == ("cpu", 4_000)
    assert (await loop.muster.told(GrowthGranted))[-1].groups["small-group"] == 3


@pytest.mark.row(20)
async def test_an_idle_worker_goes_to_the_queue_that_is_owed_it(loop: Loop) -> None:
    """Row 20: of three workers one holds the only copy of an object, one an actor, and one nothing when another queue
    is owed a core.
    """
    cluster = loop.cluster
    await cluster.kill("a", "b")
    keeper, other = await cluster.pod_of("c"), await cluster.pod_of("d")
    await cluster.head.do("held = ray.get_actor('c').make.remote(); ray.wait([held], fetch_local=False)")
    await cluster.kill("c")

    async def one_idle() -> bool:
        nodes = [node for node in (await cluster.reading()).nodes if not node.head]
        idle = {node.pod for node in nodes if node.status == "idle"} - {keeper}
        return len(idle) == 1 and any(node.stores for node in nodes if node.pod == keeper)

    await cluster.settle(one_idle, LIMIT_S, "an idle worker, and one that holds the object")
    busy = {keeper, other}
    await loop.fixed("owed", OTHERS, workers=0)
    left = await cluster.until_workers(2)
    assert set(left) == busy
    await loop.until_admitted("owed", OTHERS)
    [order] = await loop.muster.told(EvictionOrdered)
    assert not order.victims and [part.taken for part in order.partial] == [{"small-group": 1}]
    assert all(worker.idle for each in await loop.muster.told(WorkersChosen) for worker in each.workers)
    assert (await loop.muster.told(GrowthWithdrawn))[-1].claimant.name == "owed"
    await cluster.ticks(5)
    assert set(await cluster.workers()) == busy, "the autoscaler does not fight"
    await cluster.head.do("assert len(ray.get(held, timeout=60)) == 2**20; del held")
    await cluster.actor("c")
    assert {await cluster.pod_of(name) for name in ("c", "d")} == busy
    assert len(cluster.kubelet.ended) == 1


@pytest.mark.row(19)
async def test_it_grows_again_when_there_is_room(loop: Loop) -> None:
    cluster = loop.cluster
    await cluster.actor("e")
    await cluster.ticks(2)
    assert len(await cluster.workers()) == 2
    assert (await cluster.api.call("DELETE", RAYCLUSTERS.path(OTHERS, "owed"))).status == 200
    # There is no garbage collector beside this API server.
    assert (await cluster.api.call("DELETE", PODS.path(OTHERS))).status == 200
    await cluster.until_workers(3, within_s=JOINED_S)
    assert (await cluster.spec())["maxReplicas"] == 3
    await cluster.pod_of("e")


async def test_each_piece_by_itself_and_growth_takes_back_what_is_lent(loop: Loop) -> None:
    """A labelled actor grows its group out of what a queue without a guarantee has borrowed, beside a placement group
    that never fits and an actor whose device has no quota. A second cluster of the same queue keeps its size.
    """
    cluster = loop.cluster
    await loop.quota(cores=8, mine=7, others=0)
    for name, namespace in (("second", MINE), ("lent", OTHERS)):
        await loop.fixed(name, namespace)
        await loop.until_admitted(name, namespace)
    before = await cluster.workers()
    await cluster.head.do("never = placement_group([{'CPU': 1}] * 20, strategy='STRICT_SPREAD')")
    await cluster.head.do("Actor.options(name='g', lifetime='detached', num_gpus=1).remote()")
    await cluster.head.do("Actor.options(name='s', lifetime='detached', label_selector={'market': 'spot'}).remote()")
    pod = await cluster.pod_of("s")
    assert pod not in before
    assert "spot-group" in pod
    [order] = [each for each in await loop.muster.told(EvictionOrdered) if each.victims]
    assert [victim.ref.name for victim in order.victims] == ["lent"]
    await cluster.ticks(2)
    assert await loop.most() == {"small-group": 3, "gpu-group": 0, "spot-group": 1}, "no grant that is not used"
    assert set(await cluster.workers()) >= {*before, pod}
    refusals = [each for denied in await loop.muster.told(GrowthDenied) for each in denied.refusals]
    assert {"nvidia.com/gpu", "cpu"} <= {each.short.resource for each in refusals}


async def test_every_strategy_of_a_placement_group(loop: Loop) -> None:
    """PACK grows by the one bundle that has no room; SPREAD and STRICT_SPREAD find it then; STRICT_PACK, which no
    worker can hold, costs itself alone.
    """
    cluster = loop.cluster
    await cluster.head.do("remove_placement_group(never)")
    await cluster.kill("c", "d", "e")
    before = set(await cluster.workers())
    await cluster.head.do("strict = placement_group([{'CPU': 1}] * 2, strategy='STRICT_PACK')")
    await cluster.head.do("four = placement_group([{'CPU': 1}] * 4, strategy='PACK')")

    async def placed() -> bool:
        return not any(group.strategy == "PACK" for group in (await cluster.reading()).placement_groups)

    await cluster.settle(placed, JOINED_S, "the group to have its workers")
    await cluster.head.do("ray.get(four.ready(), timeout=60)")
    there = set(await cluster.workers())
    assert there > before
    assert len(there) == len(before) + 1
    for strategy in ("SPREAD", "STRICT_SPREAD"):
        await cluster.head.do("remove_placement_group(four)")
        await cluster.head.do(f"four = placement_group([{{'CPU': 1}}] * 4, strategy={strategy!r})")
        await cluster.head.do("ray.get(four.ready(), timeout=60)")
    await cluster.ticks(2)
    assert set(await cluster.workers()) == there
    assert (await cluster.spec())["maxReplicas"] == 4


async def test_a_group_whose_nodes_never_come(loop: Loop) -> None:
    """All workers are full. The group that Ray prefers is granted a worker that no node takes: it goes back, and the
    next group is granted one.
    """
    cluster = loop.cluster
    await loop.quota(cores=10, mine=9, others=0)
    before = await cluster.workers()
    cluster.kubelet.full.add("small-group")
    await cluster.actor("n")
    pod = await cluster.pod_of("n")
    assert "spot-group" in pod
    assert set(await cluster.workers()) == {*before, pod}
    cluster.kubelet.full.clear()
    assert "no_nodes" in {event.reason for event in await loop.muster.told(AlarmRaised)}
    granted = [event.added for event in await loop.muster.told(GrowthGranted)]
    assert granted[-2:] == [{"small-group": 1}, {"spot-group": 1}]
    assert (await loop.muster.told(GrowthWithdrawn))[-1].removed == {"small-group": 1}
    assert await loop.most() == {"small-group": 4, "gpu-group": 0, "spot-group": 2}


async def test_serve_scales_by_requests_as_far_as_it_is_granted(loop: Loop) -> None:
    """Three requests, for which Serve wants three replicas: one finds room, one is granted a worker, one is not."""
    cluster = loop.cluster
    before = await cluster.workers()
    await cluster.kill("n")
    await cluster.head.do(SERVICE, within_s=120)
    denials = len(await loop.muster.told(GrowthDenied))
    await cluster.head.do("asked = [service.remote() for _ in range(3)]")

    async def two_run() -> bool:
        found = await cluster.head.do(RUNNING)
        return (found.get("RUNNING"), found.get("STARTING")) == (2, 1)

    await cluster.settle(two_run, JOINED_S, "two replicas to run and one to wait")
    assert len(await cluster.workers()) == len(before) + 1
    await until(lambda: loop.muster.told_after(GrowthDenied, denials), LIMIT_S, every_s=0.2, what="a denial")
    await cluster.head.do("del asked; serve.shutdown()", within_s=120)


@pytest.mark.skipif(not V2, reason="the first version of the autoscaler makes no pod larger")
async def test_a_resize_is_refused_and_granted(loop: Loop) -> None:
    """An actor of two CPUs fits no worker; one of the group grows in place as soon as there is quota for it."""
    cluster = loop.cluster
    await cluster.kill("s")
    pods = await cluster.workers()
    labelled = "num_cpus=2, label_selector={'market': 'spot'}"
    await cluster.head.do(f"Actor.options(name='large', lifetime='detached', {labelled}).remote()")

    async def refused() -> bool:
        refusals = [each for denied in await loop.muster.told(GrowthDenied) for each in denied.refusals]
        return any(each.groups.get(GROWN) and each.short.resource == "cpu" for each in refusals)

    await cluster.settle(refused, LIMIT_S, "a denial of growth in place")
    await cluster.ticks(3)
    assert await sizes(loop) == {"1"}, "nothing is tried that is not granted"
    await loop.quota(cores=14, mine=13, others=0)
    pod = await cluster.pod_of("large")
    assert "spot-group" in pod
    assert pod in pods, "none is made for it"
    assert "2" in await sizes(loop)
    assert GROWN in (await loop.muster.told(GrowthGranted))[-1].added


async def sizes(loop: Loop) -> set[str]:
    """CPUs that the spot workers ask for."""
    found = (await loop.cluster.api.call("GET", PODS.path(MINE))).body["items"]
    workers = [pod for pod in found if "spot-group" in pod["metadata"]["name"]]
    return {str(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]) for pod in workers}
