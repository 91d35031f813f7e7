"""Rows C1 to C8 of the conformance table, one test each, on a real API server: what kube-queue's users rely on."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest_asyncio

from kit import facts
from kit.cluster import RAY, TREES, Cluster, document_job
from kit.controlplane import ControlPlane
from kit.documents import manifest
from kit.folded import waited_for
from kit.follow import Diary
from kit.kubeclient import Object
from kit.muster import Muster, running
from kit.story import quota_tree
from kit.witness import Witness
from muster.bus.server import EmbeddedServer
from muster.core.objects.meta import parse_time
from muster.events.decisions import GangAdmitted, QuotaReleased, WorkloadQueued
from muster.events.facts import ChildGone, TreeNodeSpec, WorkloadFinished
from muster.model import api

VIDEO = "root/algorithm/video"
ENQUEUED, DEQUEUED = "kube-queue/job-enqueue-timestamp", "kube-queue/job-dequeue-timestamp"
EMPTY = {"active": [], "backoff": []}


@pytest_asyncio.fixture
async def cluster(muster_plane: ControlPlane) -> AsyncIterator[Cluster]:
    """RayClusters take a while to be ready, as real ones do."""
    async with Cluster(muster_plane, ready_ms=1500) as cluster:
        yield cluster


async def tree_events(cluster: Cluster, name: str = "elasticquotatree", namespace: str = "kube-system") -> list[str]:
    tree = await cluster.kube.get(TREES, "ElasticQuotaTree", name, namespace)
    found = await cluster.events(tree["metadata"]["uid"])
    return [event["message"] for event in found if event["reason"] == "QuotaTreeRejected"]


async def queues_shown(cluster: Cluster) -> dict[str, Object]:
    """Every Queue of T0, once each has a status."""

    async def nine() -> dict[str, Object] | None:
        found = await cluster.queues()
        return found if len(found) == 9 and all("status" in queue for queue in found.values()) else None

    return await cluster.until(nine, what="nine queues") or {}


async def first_runs(cluster: Cluster, **options: object) -> str:
    """The tree is there and the document's first job runs."""
    await cluster.apply_tree()
    name = await cluster.submit(document_job(**options))  # type: ignore[arg-type]
    await cluster.until(lambda: cluster.running(name), what="the first job to run")
    return name


async def second_waits(cluster: Cluster, **options: object) -> str:
    """The same manifest once more: it is enqueued and told so."""
    name = await cluster.submit(document_job(**options))  # type: ignore[arg-type]

    async def enqueued() -> bool:
        return "Insufficient quota" in await cluster.message(name) and ENQUEUED in await cluster.annotations(name)

    await cluster.until(enqueued, what="the second job to be enqueued")
    return name


async def test_c1_only_the_first_tree_in_kube_system_counts(cluster: Cluster, muster_up: Muster) -> None:
    await cluster.apply_tree()
    shown = await queues_shown(cluster)
    found = await cluster.kube.get(TREES, "ElasticQuotaTree", "elasticquotatree", "kube-system")
    assert found["spec"] == quota_tree()["spec"], "it is readable back as it was written"
    nothing = facts.node("root", {"cpu": 1}, {"cpu": 1}, children=(facts.node("a", {}, {"cpu": 1}, ("video",)),))
    await cluster.apply_tree(nothing, namespace="other")
    await cluster.apply_tree(nothing, name="second")

    async def refused() -> list[str]:
        return await tree_events(cluster, "second")

    told = await cluster.until(refused, what="an Event on the second tree")
    assert told == [
        "Refused as a whole, the last good tree stays in force: root: tree kube-system/elasticquotatree is in force; "
        "delete it before using this one"
    ]
    elsewhere = await cluster.kube.get(TREES, "ElasticQuotaTree", "elasticquotatree", "other")

    async def ignored() -> list[str]:
        return [event["message"] for event in await cluster.events(elsewhere["metadata"]["uid"])]

    assert await cluster.until(ignored, what="an Event on the tree outside kube-system") == [
        "metadata.namespace: is other; only an ElasticQuotaTree in kube-system counts: create it there, "
        "and delete this one"
    ]
    name = await cluster.submit(document_job(runtime="1s", ttl_s=0))
    await cluster.complete(name)
    assert {path: queue["metadata"]["uid"] for path, queue in (await cluster.queues()).items()} == {
        path: queue["metadata"]["uid"] for path, queue in shown.items()
    }


def broken(path: str, **changes: object) -> TreeNodeSpec:
    """T0 with one node changed."""

    def change(node: TreeNodeSpec, at: str) -> TreeNodeSpec:
        if at == path:
            return msgspec.structs.replace(node, **changes)
        children = tuple(change(child, f"{at}/{child.name}") for child in node.children)
        return msgspec.structs.replace(node, children=children)

    return change(facts.t0(), "root")


BROKEN = {
    "root/algorithm/video: min cpu 15 is over max 14": broken(VIDEO, min={"cpu": "15"}),
    "root: the children's min cpu sum up to 48, over this node's min 40": broken(
        "root/infrastructure", min={"cpu": "20"}, max={"cpu": "20"}
    ),
    "root/algorithm: namespace algorithm is on a node with children": broken(
        "root/algorithm", namespaces=("algorithm",)
    ),
    "root/algorithm/text: namespace video is already on root/algorithm/video": broken(
        "root/algorithm/text", namespaces=("video",)
    ),
    "root: the root's min and max must be equal, and are 40 and 41 for cpu": broken(
        "root", max={"cpu": "41", "memory": "40Gi", "nvidia.com/gpu": "16"}
    ),
}


async def test_c2_a_tree_that_breaks_a_rule_is_refused_whole(cluster: Cluster, muster_up: Muster) -> None:
    await cluster.apply_tree()
    before = await queues_shown(cluster)
    for said, root in BROKEN.items():
        await cluster.apply_tree(root)

        async def told(said: str = said) -> bool:
            return any(said in message for message in await tree_events(cluster))

        await cluster.until(told, what=f"an Event that says {said!r}")
        assert (await cluster.queues()).keys() == before.keys()
    first = await cluster.submit(document_job(runtime="60s", ttl_s=0))
    second = await second_waits(cluster)
    assert "max 14, used 12" in await cluster.message(second), "the last good tree is in force"
    await cluster.delete_job(second)
    await cluster.let_end(first)
    await cluster.complete(first)


async def test_c3_one_queue_per_node(cluster: Cluster, muster_up: Muster) -> None:
    await cluster.apply_tree()
    shown = await queues_shown(cluster)
    assert sorted(shown) == [
        "root",
        "root/algorithm",
        "root/algorithm/intern-text",
        "root/algorithm/intern-video",
        "root/algorithm/text",
        "root/algorithm/video",
        "root/devops",
        "root/infrastructure",
        "root/infrastructure/devops",
    ]
    for path, queue in shown.items():
        meta = queue["metadata"]
        assert re.fullmatch(r"root(-[a-z0-9-]+)?-[a-z0-9]{5}", meta["name"])
        assert meta["generateName"] == path.replace("/", "-") + "-"
        assert meta["labels"] == {"create-by-kubequeue": "true"}
        parent = path.rpartition("/")[0].rpartition("/")[2]
        fullnames = {"kube-queue/quota-fullname": path, "kube-queue/parent-quota-fullname": parent}
        assert meta["annotations"] == {**fullnames, "muster.dev/made": "true"}
        assert queue["spec"] == {"queuePolicy": "Round"}
        assert queue["status"]["queueItemDetails"] == EMPTY
    wanted = manifest("queue-video")["metadata"]
    assert wanted["annotations"].items() <= shown[VIDEO]["metadata"]["annotations"].items()


async def test_c4_the_first_job_is_dequeued(cluster: Cluster, muster_up: Muster) -> None:
    units = Diary(cluster.transport, api.QUEUE_UNITS)
    await cluster.follow(units.follow)
    name = await first_runs(cluster, runtime="60s", ttl_s=0)

    async def phase_is(wanted: str) -> bool:
        return await cluster.phase(name) == wanted

    await cluster.until(lambda: phase_is("Running"), what="the unit to be Running")
    job = await cluster.job(name)
    stamps = job["metadata"]["annotations"]
    assert parse_time(stamps[ENQUEUED]) < parse_time(stamps[DEQUEUED])
    waited = waited_for(await muster_up.commits(), name, WorkloadQueued, GangAdmitted)
    assert waited == [], "it is let in as soon as everybody concerned has answered"
    assert job["spec"]["suspend"] is False
    unit = await cluster.unit(name)
    assert unit is not None
    assert unit["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
    consumer = unit["spec"]["consumerRef"]
    assert (consumer["apiVersion"], consumer["kind"], consumer["name"]) == (RAY, "RayJob", name)
    assert unit["spec"]["resource"] == {"cpu": "12", "memory": "12G"}
    assert {entry["name"]: entry["count"] for entry in unit["spec"]["podSet"]} == {"head": 1, "small-group": 2}
    assert not unit["spec"].get("priority")
    await cluster.let_end(name)
    await cluster.complete(name)
    await cluster.until(lambda: phase_is("Succeed"), what="the unit to be Succeed")
    given = [("head", 1), ("small-group", 2)]

    def says(unit: Object) -> tuple[str, list[tuple[str, int]]]:
        return unit["status"]["phase"], [(each["name"], each["replicas"]) for each in unit["status"]["admissions"]]

    await units.follow.caught_up()
    # A unit is shown as Enqueued first where its admission takes longer than a glance.
    course = [step for step in units.course(f"{name}-ray-qu", says) if step != ("Enqueued", [])]
    assert course == [("Dequeued", given), ("Running", given), ("Succeed", [])]


async def test_c5_the_second_job_waits_and_says_why(cluster: Cluster, muster_up: Muster) -> None:
    await first_runs(cluster, runtime="60s")

    async def charged() -> dict[str, dict[str, str]] | None:
        found = await cluster.tree_used()
        return found if found.get("root", {}).get("cpu") == "12" else None

    before = await cluster.until(charged, what="the tree to show what the first job uses")
    second = await second_waits(cluster)
    job = await cluster.job(second)
    assert DEQUEUED not in job["metadata"]["annotations"]
    assert job["spec"]["suspend"] is True

    async def suspended() -> bool:
        return await cluster.state(second) == "Suspended"

    await cluster.until(suspended)
    assert "rayClusterName" not in (await cluster.job(second))["status"]
    unit = await cluster.unit(second)
    assert unit is not None
    assert (unit["status"]["phase"], unit["status"]["admissions"]) == ("Enqueued", [])
    assert unit["status"]["message"] == (
        "Insufficient quota(cpu) in quota root/algorithm/video: request 12, max 14, used 12. "
        "Wait for running jobs to complete; position 1 in queue root/algorithm/video"
    )

    async def requested() -> bool:
        tree = await cluster.kube.get(TREES, "ElasticQuotaTree", "elasticquotatree", "kube-system")
        return bool(tree["status"]["root"]["request"]["cpu"] == "24")

    await cluster.until(requested, what="the tree to show what is asked for")
    used = await cluster.tree_used()
    assert used == before
    assert [used[path]["cpu"] for path in ("root", "root/algorithm", VIDEO, "root/devops")] == ["12", "12", "12", "0"]
    assert [used[path]["memory"] for path in ("root", "root/algorithm", VIDEO)] == ["12G"] * 3


async def test_c6_the_queue_shows_who_waits(cluster: Cluster, muster_up: Muster) -> None:
    await first_runs(cluster, runtime="60s")
    second = await second_waits(cluster)
    wanted = {"active": [], "backoff": [{"name": f"{second}-ray-qu", "namespace": "video", "position": 1}]}

    async def shown() -> bool:
        return await cluster.line() == wanted

    await cluster.until(shown, what=f"queueItemDetails {wanted}")
    third = await second_waits(cluster)

    async def both() -> bool:
        return [item["position"] for item in (await cluster.line())["backoff"]] == [1, 2]

    await cluster.until(both, what="two positions")
    assert [item["name"] for item in (await cluster.line())["backoff"]] == [f"{second}-ray-qu", f"{third}-ray-qu"]


async def test_c7_exactly_four_pods(muster_plane: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path) -> None:
    async with Cluster(muster_plane, pods=True) as cluster, running(cluster, nats_server.url, tmp_path):
        seen = Diary(cluster.transport, api.PODS)
        await cluster.follow(seen.follow)
        first = await first_runs(cluster, runtime="1h", ttl_s=0)
        second = await second_waits(cluster)
        raycluster = (await cluster.job(first))["status"]["rayClusterName"]
        # Before there is room for it.
        await cluster.delete_job(second)

        async def gone() -> bool:
            return await cluster.state(second) == "gone"

        await cluster.until(gone, what="the second job to be gone")
        await cluster.let_end(first)
        await cluster.complete(first)
        await seen.follow.caught_up()
        ours = sorted(name.rpartition("-")[0] for name in seen.states if name.startswith(first))
        worker = f"{raycluster}-small-group-worker"
        assert ours == [first, f"{raycluster}-head", worker, worker]
        assert not [name for name in seen.states if name.startswith(second)]


async def test_c8_release_and_the_next_one(cluster: Cluster, muster_up: Muster) -> None:
    witness, units = Witness(cluster.transport, facts.t0()), Diary(cluster.transport, api.QUEUE_UNITS)
    await cluster.follow(witness.follow, units.follow)
    first = await first_runs(cluster, runtime="60s", ttl_s=8)
    second = await second_waits(cluster, runtime="1s", ttl_s=0)
    third = await second_waits(cluster)

    async def charged() -> dict[str, dict[str, str]]:
        used = await cluster.tree_used()
        return used if used and used["root"]["cpu"] == "12" else {}

    used = await cluster.until(charged, what="the first job to be shown as used")
    await cluster.delete_job(third)

    async def two_gone() -> bool:
        names = [item["name"] for item in (await cluster.line()).get("backoff", [])]
        return await cluster.unit(third) is None and names == [f"{second}-ray-qu"]

    await cluster.until(two_gone, what="unit and position of the deleted job to go")
    assert await cluster.tree_used() == used
    await cluster.let_end(first)
    await cluster.complete(first)

    async def succeeded() -> bool:
        unit = await cluster.unit(first)
        return unit is not None and (unit["status"]["phase"], unit["status"]["admissions"]) == ("Succeed", [])

    await cluster.until(succeeded, what="the unit of the first job to be Succeed")
    await witness.follow.caught_up()
    await cluster.until(lambda: not witness.live, what="the RayCluster of the first job to go")

    await cluster.complete(second)

    async def empty() -> bool:
        return await cluster.line() == EMPTY

    await cluster.until(empty, what="the queue lists to be empty")
    await units.follow.caught_up()
    phases = units.course(f"{second}-ray-qu", lambda unit: unit["status"]["phase"])
    assert phases[:2] == ["Enqueued", "Dequeued"]
    assert phases.count("Dequeued") == 1
    await witness.clean(f"video/{first}", f"video/{second}")
    assert witness.most == 1, "the RayCluster of the first job stays for its ttl and keeps its quota"
    order = [
        type(event)
        for stored in await muster_up.commits()
        for event in stored.commit.events
        if (isinstance(event, WorkloadFinished | QuotaReleased) and event.ref.name == first)
        or (isinstance(event, ChildGone) and event.ref.name.startswith(first))
        or (isinstance(event, GangAdmitted) and event.ref.name == second)
    ]
    assert order == [WorkloadFinished, ChildGone, QuotaReleased, GangAdmitted]
