"""Rows C16 to C21 of the compatibility table: how gangs are declared, refused, told and timed, on a real API server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from kit.cluster import RUN_FOR, Cluster
from kit.controlplane import ControlPlane
from kit.folded import folded
from kit.gangs import ANNOTATION, LABEL, X_LABEL, Sight, add_node, labels, pod, room
from kit.jobs import raycluster
from kit.kubeclient import ApiError, Object
from kit.muster import Muster, running
from kit.words import in_words
from muster.bus.server import EmbeddedServer
from muster.core.gang.admitter import GangAdmitter
from muster.core.gang.podunits import round_ends
from muster.events.gangs import GangHeldBack, PodsPlaced
from muster.model.api import POD_GROUPS, ApiResource


@pytest_asyncio.fixture
async def muster(muster_plane: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[Muster]:
    """Muster on a cluster that has no nodes but those a test adds, and pods that are real."""
    async with (
        Cluster(muster_plane, pods=True) as cluster,
        room(cluster),
        running(cluster, nats_server.url, tmp_path) as found,
    ):
        yield found


async def held(muster: Muster, reason: str, gang: str = "") -> list[GangHeldBack]:
    found = await muster.happened(GangHeldBack)
    return [each for each in found if each.reason == reason and gang in ("", each.gang)]


async def until_held(muster: Muster, reason: str, gang: str = "") -> GangHeldBack:
    found = await muster.cluster.until(lambda: held(muster, reason, gang), 60.0, f"{gang} to be held back: {reason}")
    return found[-1]


def pod_group(resource: ApiResource, name: str, minimum: int, **spec: object) -> Object:
    meta = {"name": name, "namespace": "video"}
    return {
        "apiVersion": resource.api_version,
        "kind": "PodGroup",
        "metadata": meta,
        "spec": {"minMember": minimum, **spec},
    }


# --- C16 --------------------------------------------------------------------------------------------------------------


async def test_c16_every_tried_pod_is_told_per_round(muster: Muster) -> None:
    cluster, sight = muster.cluster, Sight(muster.cluster, "text")
    for index in range(3):
        await add_node(cluster, f"small-{index}", {"cpu": "2"})
    gang = raycluster("sample", "text", cpu="4", replicas=14, suspend=False)
    for template in (gang["spec"]["headGroupSpec"], gang["spec"]["workerGroupSpecs"][0]):
        notes = {f"{ANNOTATION}/waiting-time": "4s"}
        template["template"]["metadata"] = {"labels": labels("sample", 15), "annotations": notes}
        template["template"]["spec"]["schedulerName"] = "muster"
    await cluster.submit(gang)

    async def rounds(number: int) -> dict[str, str]:
        told = [each for each in await sight.events("GangFailedScheduling") if f"in cycle {number}:" in each["message"]]
        return {each["involvedObject"]["name"]: each["message"] for each in told}

    for number in (1, 2):
        await cluster.until(lambda cycle=number: _count(rounds(cycle), 15), 90.0, f"round {number} to be told")
        told = await rounds(number)
        assert sum("-worker-" in name for name in told) == 14
        for name, message in told.items():
            assert message.startswith(f"{name} in gang failed to be scheduled in cycle {number}: ")
            assert "0/3 nodes are available: 3 Insufficient cpu" in message
    events = await sight.events("GangFailedScheduling")
    assert len([each for each in events if "in cycle 1:" in each["message"]]) == 15, "one per pod and round"

    async def counted() -> bool:
        return any(each["count"] > 1 for each in await sight.events("GangFailedScheduling"))

    await cluster.until(counted, 120.0, "later rounds to be one Event that counts")
    assert await sight.bound() == {}
    found = await cluster.kube.list_objects("v1", "Pod", "text")
    for each in found:
        [condition] = [each for each in each["status"]["conditions"] if each["type"] == "PodScheduled"]
        assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")


async def _count(found: object, number: int) -> bool:
    return len(await found) == number  # type: ignore[misc, arg-type]


# --- C17 --------------------------------------------------------------------------------------------------------------


async def test_c17_labels_alone_make_a_gang_and_its_pod_group(muster: Muster) -> None:
    cluster, sight = muster.cluster, Sight(muster.cluster)
    await add_node(cluster, "roomy", 10)
    marks = labels("tf-smoke-gpu", 3)
    await sight.create(pod("a", marks), pod("b", marks))
    status = await sight.phase_of_group("tf-smoke-gpu", "Pending")
    assert (status["running"], status["succeeded"], status["failed"]) == (0, 0, 0)
    made = await sight.pod_group("tf-smoke-gpu")
    assert made is not None
    assert made["spec"]["minMember"] == 3
    held = await until_held(muster, "too_few_pods")
    assert (held.gang, held.waiting) == ("video/tf-smoke-gpu", 2)
    assert await sight.bound() == {}
    await sight.create(pod("c", marks))
    await sight.all_bound("a", "b", "c")
    status = await sight.phase_of_group("tf-smoke-gpu", "Running")
    assert status["running"] == 3
    rows = await cluster.table("/apis/scheduling.x-k8s.io/v1alpha1/namespaces/video/podgroups")
    assert [(row["NAME"], row["PHASE"], row["MINMEMBER"], row["RUNNING"]) for row in rows] == [
        ("tf-smoke-gpu", "Running", "3", "3")
    ]
    for name in "abc":
        await cluster.kube.delete("v1", "Pod", name, "video")

    async def gone() -> bool:
        return await sight.pod_group("tf-smoke-gpu") is None

    await cluster.until(gone, what="the PodGroup to go with its pods")


@pytest.mark.parametrize(
    ("name", "minimum", "words"),
    [
        ("gang", "x", f"{LABEL}/min-available: 'x' is not a count of 1 or more"),
        ("gang", "0", f"{LABEL}/min-available: '0' is not a count of 1 or more"),
        ("Not_A.Name", "2", f"{LABEL}/name: 'Not_A.Name' is not a name of small letters"),
    ],
)
async def test_c17_bad_labels_are_refused_with_a_reason(muster: Muster, name: str, minimum: str, words: str) -> None:
    cluster, sight = muster.cluster, Sight(muster.cluster)
    await add_node(cluster, "roomy", 10)
    await sight.create(pod("a", labels(name, minimum)), pod("b", labels(name, minimum)))

    async def told() -> bool:
        found = await sight.told("GangRefused")
        return found.keys() == {"a", "b"} and all(words in message for message in found.values())

    await cluster.until(told, 60.0, "both pods to be told")
    assert await sight.bound() == {}
    assert await cluster.kube.list_objects(POD_GROUPS[1].api_version, "PodGroup", "video") == []


# --- C18 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("resource", POD_GROUPS, ids=lambda each: each.group)
async def test_c18_a_pod_group_of_either_api_group(muster: Muster, resource: ApiResource) -> None:
    cluster, sight = muster.cluster, Sight(muster.cluster)
    await add_node(cluster, "two", 2)
    await cluster.submit(pod_group(resource, "nginx", 3, scheduleTimeoutSeconds=10))
    keys = (LABEL, f"{LABEL}/name", X_LABEL)
    await sight.create(pod("a", {keys[0]: "nginx"}), pod("b", {keys[1]: "nginx"}))
    await sight.create(pod("elsewhere", {keys[1]: "nginx"}, namespace="other"))
    assert (await until_held(muster, "too_few_pods", "video/nginx")).waiting == 2, "pods elsewhere do not count"
    await sight.create(pod("c", {keys[2]: "nginx"}))
    short = await until_held(muster, "no_nodes", "video/nginx")
    assert short.shortage is not None
    assert await sight.bound() == {}, "two would fit, and nothing is held for them"
    await until_held(muster, "timed_out", "video/nginx")
    times: dict[str, int] = {}
    for event, state in folded(GangAdmitter(), await muster.commits()):
        if isinstance(event, GangHeldBack) and event.gang == "video/nginx" and event.cycle == 1:
            if event.reason == "no_nodes":
                times.setdefault("due", round_ends(state.pods.gangs["video/nginx"]))
            times.setdefault(event.reason, state.now)
    assert times["due"] - times["no_nodes"] == 10_000, "one round takes as long as its PodGroup says"
    assert times["timed_out"] >= times["due"]
    assert (await sight.phase_of_group("nginx", "Scheduling", resource))["running"] == 0
    await add_node(cluster, "third", 1)
    await sight.all_bound("a", "b", "c")
    assert (await sight.phase_of_group("nginx", "Running", resource))["running"] == 3
    placed = [each for each in await muster.happened(PodsPlaced) if each.gangs == ("video/nginx",)]
    assert [len(each.pods) for each in placed] == [3]
    found = await sight.pod_group("nginx", resource)
    assert found is not None
    assert found["spec"] == {"minMember": 3, "scheduleTimeoutSeconds": 10}


# --- C19 --------------------------------------------------------------------------------------------------------------


async def test_c19_annotations_of_koordinator(muster: Muster) -> None:
    cluster, sight = muster.cluster, Sight(muster.cluster)
    await add_node(cluster, "roomy", 10)
    said = {"name": "gang-example", "min-available": "2", "total-number": "9", "mode": "NonStrict"}
    said["match-policy"] = "waiting-and-running"
    notes = {f"{ANNOTATION}/{key}": value for key, value in said.items()}
    await sight.create(pod("a", notes=notes))
    assert (await until_held(muster, "too_few_pods")).gang == "video/gang-example"
    assert await sight.bound() == {}
    await sight.create(pod("b", notes=notes))
    await sight.all_bound("a", "b")
    [placed] = await muster.happened(PodsPlaced)
    [complaint] = placed.complaints
    assert in_words(complaint).startswith(f"{ANNOTATION}/match-policy")
    await cluster.until(lambda: sight.told("GangMarkIgnored"), what="the warning about the policy")
    assert list((await sight.told("GangMarkIgnored")).values()) == [in_words(complaint)]
    assert await cluster.kube.list_objects(POD_GROUPS[1].api_version, "PodGroup", "video") == []


# --- C20 --------------------------------------------------------------------------------------------------------------


async def test_c20_gangs_of_a_group_start_together(muster: Muster) -> None:
    cluster, sight = muster.cluster, Sight(muster.cluster)
    await add_node(cluster, "four", 4)
    group = json.dumps(["video/gang-example1", "video/gang-example2"])
    key = f"{LABEL}/groups"
    with pytest.raises(ApiError) as refused:
        await sight.create(pod("no", {**labels("gang-example1", 2), key: group}))
    assert refused.value.status == 422
    first, second = labels("gang-example1", 2), labels("gang-example2", 3)
    notes = {key: group}
    await sight.create(*(pod(f"one-{index}", first, notes=notes) for index in range(2)))
    held = await until_held(muster, "group_incomplete", "video/gang-example1")
    assert "video/gang-example2" in in_words(held.problem)
    await sight.create(*(pod(f"two-{index}", second, notes=notes) for index in range(3)))
    await until_held(muster, "no_nodes")
    assert await sight.bound() == {}
    await add_node(cluster, "fifth", 1)
    names = {"one-0", "one-1", "two-0", "two-1", "two-2"}
    await sight.all_bound(*names)
    [placed] = await muster.happened(PodsPlaced)
    assert {each.ref.name for each in placed.pods} == names
    assert placed.gangs == ("video/gang-example1", "video/gang-example2")


# --- C21 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "starts"),
    [
        ("once-satisfied", True),
        ("only-waiting", False),
        ("waiting-and-running", False),
        ("waiting-running-succeed", True),
    ],
)
async def test_c21_what_counts_for_a_pod_that_comes_later(muster: Muster, policy: str, starts: bool) -> None:
    cluster, sight = muster.cluster, Sight(muster.cluster)
    await add_node(cluster, "roomy", 10)
    marks = {**labels("gang", 3), f"{LABEL}/match-policy": policy}
    ends = {RUN_FOR: "1s"}
    await sight.create(pod("stays", marks), pod("ends-0", marks, notes=ends), pod("ends-1", marks, notes=ends))

    async def two_over() -> bool:
        return sorted((await sight.phases()).values()) == ["Running", "Succeeded", "Succeeded"]

    await cluster.until(two_over, 60.0, "two of three to succeed")

    async def known() -> bool:
        return (await sight.group_status("gang")).get("succeeded") == 2

    await cluster.until(known, 60.0, "that to be known")
    await sight.create(pod("later", marks))
    if starts:
        await sight.all_bound("later")
    else:
        found = await until_held(muster, "too_few_pods", "video/gang")
        assert [each.name for each in found.pods] == ["later"]
        assert "later" not in await sight.bound()
