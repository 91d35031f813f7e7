"""Jobs that Muster admits and the kube-scheduler of a control plane with native gangs places, or does not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from kit import facts
from kit.cluster import Cluster, add_nodes, furnish
from kit.controlplane import ControlPlane
from kit.controlplane.build import Binaries
from kit.controlplane.native import ARGUMENTS, GROUPS
from kit.deployed import objects
from kit.kubeclient import Object, condition
from kit.muster import running
from kit.nats import new_cell
from kit.story import rayjob
from kit.words import in_words
from muster.bus.server import EmbeddedServer
from muster.events.decisions import GangAdmitted, QuotaReleased, SuspensionOrdered
from muster.events.facts import PodGroupObserved, TreeNodeSpec
from muster.events.gangs import PodsPlaced
from muster_cli.clusterchecks import cluster_findings

pytestmark = pytest.mark.timeout(240)
NAMESPACE = "video"
STEERING = ("muster-gang-pods-grouped", "muster-gang-pods-steered")
POLICIES = [each for each in objects("policies") if each["metadata"]["name"] in STEERING]
POLICY, _ = (each for each in POLICIES if not each["kind"].endswith("Binding"))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def native_plane(control_plane_binaries: Binaries) -> AsyncIterator[ControlPlane]:
    """With the policy that has pods name their PodGroup, for kinds whose definition has no field for it."""
    async with ControlPlane(prepare=furnish, arguments=ARGUMENTS) as plane:
        await add_nodes(plane)
        yield plane


@pytest_asyncio.fixture
async def cluster(native_plane: ControlPlane) -> AsyncIterator[Cluster]:
    async with Cluster(native_plane, pods=True, remains=(GROUPS,)) as cluster:
        managed = {"metadata": {"labels": {"muster.dev/managed": "true"}}}
        await cluster.kube.patch("v1", "Namespace", NAMESPACE, patch=managed)
        for each in POLICIES:
            await cluster.kube.apply(each)
        yield cluster


def tree() -> TreeNodeSpec:
    """Quota for more than the nodes have."""
    room = {"cpu": "100", "memory": "400G"}
    return facts.node("root", room, room, children=(facts.node("video", room, room, (NAMESPACE,)),))


def ranks() -> Object:
    """A Job of three pods of ten cores."""
    container = {"name": "main", "image": "example.invalid/none", "resources": {"requests": {"cpu": "10"}}}
    spec = {"restartPolicy": "Never", "containers": [container], "automountServiceAccountToken": False}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "ranks", "namespace": NAMESPACE}}
    return {**body, "spec": {"suspend": True, "parallelism": 3, "completions": 3, "template": {"spec": spec}}}


async def bound(cluster: Cluster, name: str) -> list[str]:
    """The nodes of the pods of a job's cluster; empty texts for those that have none."""
    pods = await cluster.kube.list_objects("v1", "Pod", NAMESPACE)
    return [str(pod["spec"].get("nodeName", "")) for pod in pods if pod["metadata"]["name"].startswith(name)]


async def groups(cluster: Cluster) -> list[Object]:
    found: list[Object] = (await cluster.kube.request("GET", GROUPS))["items"]
    return found


async def test_one_gang_is_bound_by_kube_scheduler_and_one_that_does_not_fit_gives_its_quota_back(
    cluster: Cluster, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Three nodes of 16 cores take three pods of 10, and then none of three more."""
    async with running(cluster, nats_server.url, tmp_path, placement="native") as muster:
        await cluster.apply_tree(tree())
        await cluster.kube.create(rayjob("fits", NAMESPACE, cpu="10", runtime="300s", submissionMode="HTTPMode"))

        async def all_bound() -> bool:
            found = await bound(cluster, "fits")
            return len(found) == 3 and all(found)

        await cluster.until(all_bound, what="three pods to be bound by kube-scheduler")
        [group] = await groups(cluster)
        assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}}
        assert condition(group, "PodGroupScheduled")["status"] == "True"
        assert len(set(await bound(cluster, "fits"))) == 3

        await cluster.kube.create(rayjob("toobig", NAMESPACE, cpu="10", runtime="300s", submissionMode="HTTPMode"))

        async def given_back() -> list[QuotaReleased]:
            return await muster.happened(QuotaReleased, "toobig")

        [released] = await cluster.until(given_back, what="the quota of the gang without places to be given back")
        assert released.reason == "timed_out"
        [ordered] = await muster.happened(SuspensionOrdered)
        assert (ordered.ref.name, ordered.reason) == ("toobig", "unschedulable")
        assert in_words(ordered.problem).startswith("Unschedulable: ")
        assert await bound(cluster, "toobig") == []
        told = [each.pod_group for each in await muster.happened(PodGroupObserved)]
        assert {each.verdict.scheduled for each in told if each.verdict is not None} == {True, False}
        assert {each.ref.name for each in await muster.happened(GangAdmitted)} == {"fits", "toobig"}
        assert await muster.happened(PodsPlaced) == []
        assert all(await bound(cluster, "fits"))


async def test_pods_of_a_job_name_their_group_by_policy(
    cluster: Cluster, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """The template of a Job may not be changed, its annotations may: the policy makes the field of them."""
    async with running(cluster, nats_server.url, tmp_path, placement="native"):
        await cluster.apply_tree(tree())
        await cluster.kube.create(ranks())

        async def all_bound() -> bool:
            found = await bound(cluster, "ranks")
            return len(found) == 3 and all(found)

        await cluster.until(all_bound, what="three pods to be bound by kube-scheduler")
        [group] = await groups(cluster)
        pods = await cluster.kube.list_objects("v1", "Pod", NAMESPACE)
        named = {pod["spec"]["schedulingGroup"]["podGroupName"] for pod in pods}
        assert named == {group["metadata"]["name"]}
        assert condition(group, "PodGroupScheduled")["status"] == "True"


async def test_a_job_that_has_begun_is_placed_by_us_once_that_is_chosen(
    cluster: Cluster, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """From 1.36 on the annotations of a Job may be changed when it is suspended again, also where it had begun."""

    async def specs() -> list[Object]:
        return [pod["spec"] for pod in await cluster.kube.list_objects("v1", "Pod", NAMESPACE)]

    cell = new_cell()
    async with running(cluster, nats_server.url, tmp_path, cell=cell, placement="native"):
        await cluster.apply_tree(tree())
        await cluster.kube.create(ranks())

        async def placed_natively() -> bool:
            found = await specs()
            return len(found) == 3 and all(each.get("nodeName") and "schedulingGroup" in each for each in found)

        await cluster.until(placed_natively, what="three pods to be bound by kube-scheduler")
    async with running(cluster, nats_server.url, tmp_path, cell=cell, placement="pack") as muster:
        await cluster.kube.patch("batch/v1", "Job", "ranks", NAMESPACE, patch={"spec": {"suspend": True}})

        async def placed_by_us() -> bool:
            found = await specs()
            ours = [each for each in found if each["schedulerName"] == "muster" and "schedulingGroup" not in each]
            return len(found) == len(ours) == 3 and all(each.get("nodeName") for each in ours)

        await cluster.until(placed_by_us, what="three pods to be bound by us")
        assert [bool(each.placements) for each in await muster.happened(GangAdmitted)] == [False, True]


async def test_doctor_asks_for_what_native_placement_takes(cluster: Cluster) -> None:
    found = {each.title: each.grade for each in await cluster_findings(cluster.transport, acting=True, native=True)}
    assert found["native gangs"] == "ok"
    assert "native placement" not in found
    await cluster.kube.delete(POLICY["apiVersion"], POLICY["kind"], POLICY["metadata"]["name"])
    findings = await cluster_findings(cluster.transport, acting=True, native=True)
    [bad] = [each for each in findings if each.title == "native placement"]
    assert bad.grade == "bad"
    assert "policy muster-gang-pods-grouped missing" in bad.detail
