"""Gangs of Kubernetes itself, on a control plane that serves them: placed by us, or by kube-scheduler and told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from kit.cluster import Cluster, add_nodes, furnish
from kit.controlplane import ControlPlane
from kit.controlplane.build import Binaries
from kit.controlplane.native import ARGUMENTS, GROUPS, VERSION
from kit.elastic import raycluster
from kit.muster import Muster, running
from kit.raywalk import NAME, Walk
from kit.words import in_words
from muster.bus.server import EmbeddedServer
from muster.core.stage import Folder
from muster.events.decisions import QuotaReserved
from muster.events.facts import PodGroupObserved
from muster.events.gangs import GangHeldBack, PodsPlaced
from muster.told.readmodel.model import ReadModel
from muster.told.views.gangstory import gang_tale
from muster_cli.clusterchecks import cluster_findings

pytestmark = pytest.mark.timeout(240)
NAMESPACE = "video"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def native_plane(control_plane_binaries: Binaries) -> AsyncIterator[ControlPlane]:
    async with ControlPlane(prepare=furnish, arguments=ARGUMENTS) as plane:
        await add_nodes(plane)
        yield plane


@pytest_asyncio.fixture
async def cluster(native_plane: ControlPlane) -> AsyncIterator[Cluster]:
    async with Cluster(native_plane, remains=(GROUPS,)) as cluster:
        yield cluster


async def gang(cluster: Cluster, name: str, minimum: int) -> None:
    body = {"metadata": {"name": name}, "spec": {"schedulingPolicy": {"gang": {"minCount": minimum}}}}
    await cluster.kube.request("POST", GROUPS.replace("podgroups", f"namespaces/{NAMESPACE}/podgroups"), body=body)


async def member(cluster: Cluster, name: str, group: str, scheduler: str, cpu: str) -> None:
    container = {"name": "main", "image": "example.invalid/none", "resources": {"requests": {"cpu": cpu}}}
    spec = {
        "schedulerName": scheduler,
        "schedulingGroup": {"podGroupName": group},
        "containers": [container],
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
    }
    body = {"metadata": {"name": name}, "spec": spec}
    await cluster.kube.request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", body=body)


async def story(muster: Muster, name: str) -> str:
    folder, state = Folder(ReadModel()), ReadModel().initial()
    for stored in await muster.commits():
        folder.fold(state, stored)
    return gang_tale(state, f"{NAMESPACE}/{name}").text if f"{NAMESPACE}/{name}" in state.gangs.gangs else ""


async def test_a_gang_that_names_us_is_bound_whole(
    cluster: Cluster, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    async with running(cluster, nats_server.url, tmp_path) as muster:
        for name in "ab":
            await member(cluster, name, "train", "muster", "10")

        async def refused() -> bool:
            told = await muster.happened(GangHeldBack)
            return any(
                "PodGroup video/train of scheduling.k8s.io does not exist" in in_words(each.problem) for each in told
            )

        await cluster.until(refused, what="the missing PodGroup to be told")
        await gang(cluster, "train", 3)

        async def read() -> Any:
            return await muster.happened(PodGroupObserved)

        [group] = await cluster.until(read, what="the PodGroup to be read")
        assert (group.pod_group.minimum, group.pod_group.native) == (3, True)
        assert set((await cluster.nodes()).values()) == {""}
        await member(cluster, "c", "train", "muster", "10")

        async def bound() -> bool:
            return all((await cluster.nodes()).values())

        await cluster.until(bound, what="three pods to be bound")
        [placed] = await muster.happened(PodsPlaced)
        assert {each.ref.name: each.node for each in placed.pods} == await cluster.nodes()
        assert len(set((await cluster.nodes()).values())) == 3


async def test_what_kube_scheduler_says_of_its_gang_is_a_fact(
    cluster: Cluster, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Four pods of 10 cores on three nodes of 16: it places none of them, and says so; of three it places all."""
    async with running(cluster, nats_server.url, tmp_path) as muster:
        await gang(cluster, "big", 4)
        for name in "abcd":
            await member(cluster, name, "big", "default-scheduler", "10")

        async def told() -> bool:
            return "kube-scheduler places it: it has no places for it (Unschedulable)" in await story(muster, "big")

        await cluster.until(told, what="what kube-scheduler says of the gang that is too big")
        assert set((await cluster.nodes()).values()) == {""}
        await gang(cluster, "fits", 3)
        await cluster.kube.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods")
        for name in "efg":
            await member(cluster, name, "fits", "default-scheduler", "10")

        async def placed() -> bool:
            return "it has places for it" in await story(muster, "fits")

        await cluster.until(placed, what="what kube-scheduler says of the gang that fits")

        async def bound() -> bool:  # It binds its pods one after the other, after it said so.
            found = await cluster.nodes()
            return len({found[name] for name in "efg"} - {""}) == 3

        await cluster.until(bound, what="each of the three on a node of its own")
        assert await muster.happened(PodsPlaced) == await muster.happened(GangHeldBack) == []


async def test_doctor_says_in_which_version_they_are_read(cluster: Cluster) -> None:
    findings = await cluster_findings(cluster.transport, acting=False)
    [found] = [each for each in findings if each.title == "native gangs"]
    assert (found.grade, found.detail) == ("ok", f"PodGroups are read as scheduling.k8s.io/{VERSION}")


async def test_a_fixed_ray_cluster_of_kuberays_own_gangs_is_charged_once_and_one_that_scales_grows_by_grants(
    native_plane: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """KubeRay makes gangs of Kubernetes for clusters of a fixed size alone; those that scale themselves have none."""
    async with (
        Cluster(native_plane, pods=True, remains=(GROUPS,)) as cluster,
        running(cluster, nats_server.url, tmp_path) as muster,
    ):
        await cluster.apply_tree()
        fixed = raycluster("fixed", NAMESPACE, replicas=2, minReplicas=2, maxReplicas=2)
        fixed["spec"]["enableInTreeAutoscaling"] = False
        for group in (fixed["spec"]["headGroupSpec"], *fixed["spec"]["workerGroupSpecs"]):
            group["template"]["spec"]["schedulingGroup"] = {"podGroupName": "fixed"}
        await gang(cluster, "fixed", 3)
        await cluster.kube.create(fixed)
        walk = Walk(muster)
        await walk.create()
        walk.scaler.start("actor")
        await walk.until_sized(1, 1, 1)

        async def whole() -> bool:
            found = await cluster.kube.list_objects("v1", "Pod", NAMESPACE, labels="ray.io/cluster=fixed")
            return [pod["status"]["phase"] for pod in found] == ["Running"] * 3

        await cluster.until(whole, 60.0, "all of the fixed cluster to run")
        mine = [*await walk.pods(), *await walk.pods("head")]
        assert len(mine) == 2 and not [pod for pod in mine if "schedulingGroup" in pod["spec"]]
        [group] = (await cluster.kube.request("GET", GROUPS))["items"]
        assert group["metadata"]["name"] == "fixed"
        await walk.until_charged(3_000)
        assert {event.ref.name for event in await muster.happened(QuotaReserved)} == {"fixed", NAME}
        assert await muster.happened(PodsPlaced) == await muster.happened(GangHeldBack) == []
