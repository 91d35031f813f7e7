"""The demand of a real Ray head: read by gRPC and by the dashboard, equal, and as it was asked for."""

import asyncio
import time

import pytest
from msgspec import structs

from kit.realray.head import RayHead
from kit.waiting import until
from muster.model.keys import Ref
from muster.model.raydemand import RayConstraint, RayDemand, RayIdle, RayShape
from muster.ray.dashboard import DashboardClient
from muster.ray.heads import Drained, Head
from muster.ray.reader import HeadReader
from muster.ray.reading import RayNode, Reading, demand_of
from muster.ray.shapes import shapes
from muster.ray.statustext import parse_status
from muster.runtime.clock import SystemClock

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

HEAD = {"environment": {"RAY_min_spilling_size": "1"}}
CPU, GPU = 10_000, 10_000
LIMIT_S = 60.0


def now() -> int:
    return time.time_ns() // 1_000_000


async def demanded(head: RayHead) -> RayDemand:
    return demand_of(await head.client.read(), now())


async def until_demand(head: RayHead, wanted: RayDemand) -> None:
    """Wait for what is asked for, whatever the nodes do."""

    async def same() -> bool:
        return asked(await demanded(head)) == asked(wanted)

    try:
        await until(same, LIMIT_S, every_s=0.2, what="the demand")
    except AssertionError as err:
        raise AssertionError(f"{err}: {await demanded(head)} is not {wanted}") from err


def asked(demand: RayDemand) -> tuple[object, ...]:
    groups = sorted((group.strategy, group.bundles) for group in demand.placement_groups)
    return demand.pending, groups, demand.explicit


@pytest.mark.row(10)
async def test_tasks_actors_placement_groups_and_request_resources(head: RayHead) -> None:
    await head.do(
        """
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as Inside
from ray.autoscaler.sdk import request_resources
import threading
@ray.remote(num_cpus=1)
def task(): threading.Event().wait()
@ray.remote(num_cpus=1)
class Actor: pass
kept = [task.remote() for _ in range(5)]
kept += [task.options(label_selector={"zone": "a"}).remote() for _ in range(2)]
kept += [task.options(scheduling_strategy="SPREAD").remote()]
groups = [placement_group([{"CPU": 1}] * 3, strategy="STRICT_SPREAD", lifetime="detached", name="three"),
          placement_group([{"CPU": 1, "GPU": 1}] * 2, strategy="STRICT_PACK")]
kept += [task.options(scheduling_strategy=Inside(groups[0])).remote() for _ in range(2)]
actors = [Actor.options(name="one", lifetime="detached").remote(),
          Actor.options(num_gpus=0.5, memory=2**30, resources={"tpu-x": 0.25}).remote()]
request_resources(bundles=[{"CPU": 4}, {"CPU": 4}, {"GPU": 1}])
"""
    )
    wanted = RayDemand(
        pending=(
            RayShape({"CPU": CPU}, 7),
            RayShape({"CPU": CPU}, 2, ((RayConstraint("zone", ("a",)),),)),
            RayShape({"CPU": CPU, "GPU": GPU // 2, "memory": 2**30 * 10_000, "tpu-x": 2_500}),
        ),
        explicit=(RayShape({"CPU": 4 * CPU}, 2), RayShape({"GPU": GPU})),
    )

    async def complete() -> bool:
        found = await demanded(head)
        return (found.pending, found.explicit, len(found.placement_groups)) == (wanted.pending, wanted.explicit, 2)

    try:
        await until(complete, LIMIT_S, every_s=0.2, what="the demand")
    except AssertionError as err:
        raise AssertionError(f"{err}: {await demanded(head)}") from err
    found = await demanded(head)
    assert sorted((group.strategy, group.bundles) for group in found.placement_groups) == [
        ("STRICT_PACK", (RayShape({"CPU": CPU, "GPU": GPU}, 2),)),
        ("STRICT_SPREAD", (RayShape({"CPU": CPU}, 3),)),
    ]

    dashboard = DashboardClient(head.url)
    try:
        by_http = demand_of(await dashboard.read(), now(), found)
    finally:
        await dashboard.close()
    unlabelled, _ = shapes(RayShape(each.resources, each.count) for each in found.pending)
    assert by_http == structs.replace(found, pending=unlabelled), "the dashboard says no labels, and all else"
    assert found.version == "v2"

    status = await head.run("ray", "status")
    text = parse_status(status)
    assert (text.waiting, text.requested, text.passed_over) == (unlabelled, found.explicit, 0)
    assert {group.strategy for group in text.groups} == {"STRICT_SPREAD", "STRICT_PACK"}


async def test_what_ends_is_demanded_no_longer_and_then_nothing_is_new(head: RayHead) -> None:
    await head.do(
        """
for ref in kept: ray.cancel(ref, force=True)
for actor in actors: ray.kill(actor)
for group in groups: remove_placement_group(group)
request_resources(num_cpus=0)
kept, actors, groups = [], [], []
"""
    )
    await until_demand(head, RayDemand())
    reader = HeadReader(Head(Ref("rayclusters", "ns", "c", "u"), 1, head.address), clock=SystemClock())
    first = await reader.read()
    for _ in range(20):
        await asyncio.sleep(0.1)
        assert await reader.read() == first
    await reader.close()


async def the_node(head: RayHead, pod: str, **wanted: object) -> RayNode:
    """The node of a pod, once it is as wanted."""
    last: Reading | None = None

    async def found() -> RayNode | None:
        nonlocal last
        head.restart_failed()
        last = await head.client.read()
        node = last.node_of(pod)
        return node if node is not None and all(getattr(node, key) == value for key, value in wanted.items()) else None

    try:
        return await until(found, LIMIT_S, every_s=0.2, what=f"{pod} to be {wanted}")
    except AssertionError as err:
        raise AssertionError(f"{err}; {last}; {head.log(pod)}") from err


@pytest.mark.row(17)
async def test_workers_their_actors_and_what_is_spilled_to_disk(head: RayHead) -> None:
    """A worker that holds an object, in memory or on disk, is not idle; drained, it gets nothing more."""
    await head.join("w1")
    await the_node(head, "w1", status="idle")

    await head.do("actor = Actor.remote(); ray.get(actor.__ray_ready__.remote(), timeout=60)")
    busy = await the_node(head, "w1", status="running")
    assert busy.activity
    found = await demanded(head)
    assert (found.joined, found.idle, found.pinned) == ({"small": 1}, (), ("w1",))
    refused = await head.client.drain(busy.id, deadline_ms=now() + 60_000, why="a test", idle_only=True)
    assert not refused.accepted and refused.why

    await head.do("ray.kill(actor)")
    await the_node(head, "w1", status="idle")
    spilled = await head.do(
        """
@ray.remote(num_cpus=1)
def make(n):
    import os
    return os.urandom(30 * 2**20)
held = [make.remote(n) for n in range(5)]  # 150 MB where 80 fit
ray.wait(held, num_returns=5, timeout=60, fetch_local=False)
answer = len(held)
""",
        within_s=90,
    )
    assert spilled == 5
    await until(head.spilled, LIMIT_S, every_s=0.2, what="objects to be spilled to disk")
    kept = await the_node(head, "w1", status="running")
    assert any("object" in reason.lower() for reason in kept.activity), kept.activity
    assert (await demanded(head)).idle == ()
    refused = await head.client.drain(kept.id, deadline_ms=now() + 60_000, why="a test", idle_only=True)
    assert not refused.accepted

    await head.do("del held")
    free = await the_node(head, "w1", status="idle")
    accepted = await head.client.drain(free.id, deadline_ms=now() + 60_000, why="a test", idle_only=True)
    assert accepted == Drained(True)

    async def leaving() -> bool:
        node = (await head.client.read()).node_of("w1")
        return node is None or node.status == "draining"  # an idle one goes at once

    await until(leaving, LIMIT_S, every_s=0.2, what="w1 to drain")
    before = RayDemand(session=(await demanded(head)).session, idle=(RayIdle("w1", "small", now()),))
    gone = demand_of(await head.client.read(), now(), before)
    assert ([each.pod for each in gone.left], gone.idle, gone.joined) == (["w1"], (), {}), "it is not taken for busy"
    await head.do("late = task.remote()")
    await until_demand(head, RayDemand(pending=(RayShape({"CPU": CPU}),)))
    await head.do("ray.cancel(late, force=True)")
    await head.leave("w1")
