"""Two bridges, and one that is killed in the middle of a grant: processes, on a real nats-server and a real API server.

Whatever happens the Ray cluster converges, at every position of the log the grants are within the quota, no worker is
lost, and no more go than are needed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from kit import proof
from kit.bridging import HEAD, PROGRAM
from kit.cluster import RAY, Cluster
from kit.controlplane import ControlPlane
from kit.elastic import raycluster
from kit.fleet import Fleet
from kit.rayhead import fake_gcs
from kit.raylaws import taken_for_others, told, within_quota
from kit.rayplayed import PlayedRay
from kit.story import quota_tree
from kit.waiting import until
from muster.events.base import Event
from muster.events.elastic import GateSet, GrowthGranted, GrowthRequested, WorkersChosen
from muster.events.facts import TreeNodeSpec
from muster.events.raydemand import RayDemandObserved

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

BRIDGE, STAGE = "autoscaler-bridge", "autoscaler_bridge"
CORES, OWED = 6, 3
TAKEOVER_S = 90.0
"""A lease of ten seconds, on a busy machine."""


class Stage:
    """Every service as a process, a Ray cluster in a queue that borrows, and a queue that is guaranteed three cores."""

    def __init__(self, cluster: Cluster, fleet: Fleet, ray: PlayedRay) -> None:
        self.cluster, self.fleet, self.ray = cluster, fleet, ray

    async def bridge(self, replica: int = 1) -> None:
        """Run one more bridge."""
        env = {"PYTHONPATH": str(proof.TESTS), HEAD: self.ray.gcs.address}
        await self.fleet.add(BRIDGE, replica, program=PROGRAM, env=env)

    async def until_told(self, kind: type[Event], more_than: int = 0) -> None:
        """Return once there are more of these in the log."""

        async def is_told() -> bool:
            return len(told(await self.fleet.commits(), kind)) > more_than

        await self.cluster.until(is_told, 60.0, f"more than {more_than} {kind.__name__}", every_s=0.05)

    async def end(self, *, needed: int, left: int) -> None:
        """The sentence at the top of this file; nobody but ``left`` workers is there, and all that lived are known."""
        await self.fleet.healthy()
        assert len(await self.ray.until_workers(left)) == left
        commits = await self.fleet.commits()
        within_quota(commits)
        taken_for_others(commits, needed=needed)
        assert len(self.ray.workers) == left + needed, "none was lost, and none came for nothing"
        await self.fleet.judge()


def tree() -> TreeNodeSpec:
    def leaf(name: str, least: int) -> TreeNodeSpec:
        return TreeNodeSpec(name=name, min={"cpu": str(least)}, max={"cpu": str(CORES)}, namespaces=(name,))

    return TreeNodeSpec(
        name="root", min={"cpu": str(CORES)}, max={"cpu": str(CORES)}, children=(leaf("video", 0), leaf("text", OWED))
    )


@pytest_asyncio.fixture
async def stage(muster_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Stage]:
    async with Cluster(muster_plane, pods=True) as cluster, fake_gcs() as gcs:
        await cluster.kube.create(quota_tree(tree()))
        async with Fleet(tmp_path, muster_plane.kubeconfig) as fleet:
            found = Stage(cluster, fleet, PlayedRay(cluster, gcs, "grows", "video"))
            found.ray.scaler.idle_ms = 10**9
            await fleet.remove(BRIDGE)
            await found.bridge()
            await fleet.healthy()
            await found.ray.create(maxReplicas=30)
            yield found


@pytest.mark.row(22)
async def test_the_bridge_is_killed_in_the_middle_of_each_step(stage: Stage) -> None:
    """After it has asked, while it is granted; after it has set the gate, while it is written; while workers drain."""
    fleet, ray = stage.fleet, stage.ray
    fleet.pause("quota-accountant")
    for number in range(CORES + 3):
        ray.scaler.start(f"actor-{number}")
    await stage.until_told(GrowthRequested)
    fleet.kill(BRIDGE)
    gates = len(told(await fleet.commits(), GateSet))
    fleet.pause("actuator")
    fleet.resume("quota-accountant")
    await stage.until_told(GrowthGranted)
    await stage.until_told(GateSet, gates)
    fleet.kill(BRIDGE)
    fleet.resume("actuator")
    busy = await ray.until_workers(CORES)

    owed = raycluster("owed", "text", replicas=OWED, minReplicas=OWED, maxReplicas=OWED)
    owed["spec"]["enableInTreeAutoscaling"] = False
    gates = len(told(await fleet.commits(), GateSet))
    await stage.cluster.kube.create(owed)
    await stage.until_told(WorkersChosen)
    fleet.kill(BRIDGE)
    await stage.until_told(GateSet, gates)
    fleet.kill(BRIDGE)

    async def is_given() -> bool:
        found = await stage.cluster.kube.get(RAY, "RayCluster", "owed", "text")
        return found["spec"].get("suspend") is False

    await stage.cluster.until(is_given, 120.0, "the queue that is owed three cores to have them", every_s=0.2)
    assert await ray.until_workers(CORES - OWED) <= busy
    await stage.end(needed=OWED, left=CORES - OWED)
    assert fleet.running[BRIDGE].ends.count(-9) == 4


@pytest.mark.row(22)
async def test_a_leader_that_was_paused_wakes_up_beside_its_successor_and_changes_nothing(stage: Stage) -> None:
    fleet, ray = stage.fleet, stage.ray
    await stage.bridge(2)
    await fleet.healthy()
    ray.scaler.start("first")
    kept = await ray.until_workers(1)
    old = await fleet.leader(STAGE)
    fleet.pause(old)
    ray.scaler.start("second")

    async def replaced() -> bool:
        return await fleet.leader(STAGE) not in ("", old)

    await until(replaced, TAKEOVER_S, 0.2, what="the other bridge to lead")
    kept |= await ray.until_workers(2)
    for number in range(CORES):
        ray.scaler.start(f"more-{number}")
    before = len(told(await fleet.commits(), RayDemandObserved))
    fleet.resume(old)
    kept |= await ray.until_workers(CORES)
    await until(lambda: fleet.running[old].noted("stands_by"), 60.0, what="the old leader to say that it was replaced")
    assert not fleet.running[old].ends
    assert await fleet.leader(STAGE) != old
    assert len(told(await fleet.commits(), RayDemandObserved)) > before
    assert len(kept) == CORES
    await stage.end(needed=0, left=CORES)
