"""Rows C22 to C27 of the compatibility table: the TFJob of the documents and its gang, and gangs among others."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from kit.cluster import RUN_FOR, Cluster, furnish
from kit.controlplane import ControlPlane
from kit.controlplane.build import Binaries
from kit.controlplane.modules import OLDER_KUBERNETES_VERSION
from kit.doubles.training import TrainingOperator
from kit.gangs import LABEL, Sight, add_node, labels, pod, room
from kit.kubeclient import Object
from kit.muster import Muster, running
from kit.tfjob import GANG, GPUS, PODS, demo, on_four_gpus
from kit.words import in_words
from muster.bus.server import EmbeddedServer
from muster.events.facts import PodObserved
from muster.events.gangs import GangHeldBack, PodsPlaced


@pytest_asyncio.fixture
async def muster(muster_plane: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[Muster]:
    async with on_four_gpus(muster_plane, nats_server.url, tmp_path) as found:
        yield found


def of_anybody(made: Object) -> Object:
    """The same without any mark of a gang, for the default scheduler."""
    plain = copy.deepcopy(made)
    for replica in plain["spec"]["tfReplicaSpecs"].values():
        del replica["template"]["metadata"]
        del replica["template"]["spec"]["schedulerName"]
    return plain


async def placed(muster: Muster, gang: str = GANG) -> list[PodsPlaced]:
    return [each for each in await muster.happened(PodsPlaced) if gang in each.gangs]


async def until_held(muster: Muster, reason: str, gang: str = GANG) -> GangHeldBack:
    async def found() -> list[GangHeldBack]:
        told = await muster.happened(GangHeldBack)
        return [each for each in told if (each.reason, each.gang) == (reason, gang)]

    return (await muster.cluster.until(found, 60.0, f"{gang} to be held back: {reason}"))[-1]


async def test_c22_without_a_gang_the_default_scheduler_starts_it_in_part(muster: Muster) -> None:
    cluster, sight = muster.cluster, Sight(muster.cluster)
    await cluster.submit(of_anybody(demo()))

    async def in_part() -> bool:
        phases = await sight.phases()
        return phases.keys() == PODS and sorted(phases.values()) == ["Pending"] * 2 + ["Running"] * 3

    await cluster.until(in_part, 90.0, "three of five pods to run")
    assert await muster.happened(PodsPlaced) == []


async def test_c23_c24_with_its_gang_all_of_it_starts_or_nothing(muster: Muster) -> None:
    cluster, sight = muster.cluster, Sight(muster.cluster)
    await cluster.submit(demo())
    held = await until_held(muster, "no_nodes")
    assert (held.waiting, held.shortage is not None) == (5, True)
    assert (await sight.phase_of_group("tf-smoke-gpu", "Scheduling"))["running"] == 0

    async def occupied() -> bool:
        return (await sight.group_status("tf-smoke-gpu")).get("occupiedBy") == GANG

    await cluster.until(occupied, what="the PodGroup to say whose it is")
    assert await sight.phases() == dict.fromkeys(PODS, "Pending")
    assert await sight.bound() == {}
    # Nothing is kept for it: what another pod takes meanwhile is free.
    await sight.create(pod("taker", asks={"nvidia.com/gpu": "4"}))
    await sight.all_bound("taker")
    await cluster.kube.delete("v1", "Pod", "taker", "video")
    assert await placed(muster) == []

    await add_node(cluster, "second", GPUS)
    await sight.all_bound(*PODS)

    async def all_run() -> bool:
        return await sight.phases() == dict.fromkeys(PODS, "Running")

    await cluster.until(all_run, 60.0, "all five to run")
    [decision] = await placed(muster)
    assert {each.ref.name for each in decision.pods} == PODS
    assert (await sight.phase_of_group("tf-smoke-gpu", "Running"))["running"] == 5


async def test_c25_pods_of_a_gang_have_one_priority(muster: Muster) -> None:
    cluster, sight = muster.cluster, Sight(muster.cluster)
    await add_node(cluster, "slots", 5)
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "gang-high"}}
    await cluster.kube.create({**high, "value": 1000})
    try:
        marks = labels("five", 5)
        await sight.create(*(pod(f"p-{index}", marks) for index in range(4)))
        await sight.create(pod("odd", marks, priorityClassName="gang-high"))
        held = await until_held(muster, "priority_clash", "video/five")
        assert "odd has 1000, others have 0" in in_words(held.problem)
        await cluster.until(lambda: sight.told("GangRefused"), what="the refusal to be told")
        assert all("odd has 1000" in message for message in (await sight.told("GangRefused")).values())
        assert await sight.bound() == {}
        await cluster.kube.delete("v1", "Pod", "odd", "video")

        async def gone() -> bool:
            return "odd" not in await sight.phases()

        await cluster.until(gone, what="the odd one to be gone")
        await sight.create(pod("even", marks))
        await sight.all_bound("even", *(f"p-{index}" for index in range(4)))
    finally:
        await cluster.kube.delete("scheduling.k8s.io/v1", "PriorityClass", "gang-high")


async def test_c26_of_two_gangs_one_runs_and_the_other_is_told(muster: Muster) -> None:
    cluster, sight = muster.cluster, Sight(muster.cluster)
    await add_node(cluster, "six", 6)
    for index in range(5):
        for gang in ("a", "b"):
            await sight.create(pod(f"{gang}-{index}", labels(gang, 5), notes={RUN_FOR: "1h"}))
    everybody = {f"{gang}-{index}" for gang in ("a", "b") for index in range(5)}
    seen: list[set[str]] = []

    async def one_runs() -> bool:
        seen.append({name.partition("-")[0] for name in await sight.bound()})
        return bool(seen[-1])

    await cluster.until(one_runs, 60.0, "one gang to start")
    first = seen[-1]
    assert len(first) == 1, "one gang or the other, never some of both"
    [winner] = first
    other = "b" if winner == "a" else "a"

    async def rejected() -> bool:
        told = await sight.told("GangFailedScheduling")
        return any(f"rejected by podgroup video/{winner}" in each for name, each in told.items() if name[0] == other)

    await cluster.until(rejected, 60.0, "the other to be told")
    await cluster.end_pods(f"{LABEL}/name={winner}", 5)
    # Its turn comes when the first has ended; nobody has to do anything for that.
    await sight.all_bound(*everybody, timeout_s=120.0)
    decisions = await muster.happened(PodsPlaced)
    assert sorted(len(each.pods) for each in decisions) == [5, 5]
    assert [each.gangs for each in decisions] == [(f"video/{winner}",), (f"video/{other}",)]

    async def other_runs() -> bool:
        return len((await told_of(muster, other))["running"]) == 5

    await cluster.until(other_runs, 60.0, "the other to be seen running")
    # By the time of the log: neither ever waited for the other to let go of something.
    times = {gang: await told_of(muster, gang) for gang in (winner, other)}
    began = max(at for found in times.values() for at in found["seen"].values())
    started = {event.gangs[0]: at for event, at in await placements(muster)}
    assert started[f"video/{winner}"] - began <= 60_000, "they did not lock each other up"
    ended = sorted(times[winner]["over"].values())[3]
    assert ended <= started[f"video/{other}"] <= ended + 60_000, "with four of five ended there is room for the other"
    assert max(times[other]["running"].values()) <= ended + 120_000


async def placements(muster: Muster) -> list[tuple[PodsPlaced, int]]:
    """Which pods were placed, and when by the log."""
    return [
        (event, stored.commit.at)
        for stored in await muster.commits()
        for event in stored.commit.events
        if isinstance(event, PodsPlaced)
    ]


async def told_of(muster: Muster, gang: str) -> dict[str, dict[str, int]]:
    """{"seen", "running", "over": {pod of a gang: when it was so first, by the log}}"""
    found: dict[str, dict[str, int]] = {"seen": {}, "running": {}, "over": {}}
    for stored in await muster.commits():
        for event in stored.commit.events:
            if isinstance(event, PodObserved) and event.pod.labels.get(f"{LABEL}/name") == gang:
                state = {"seen": True, "running": event.pod.running, "over": event.pod.over}
                for word in [word for word, so in state.items() if so]:
                    found[word].setdefault(event.pod.ref.name, stored.commit.at)
    return found


async def test_c27_nodes_are_asked_for_the_whole_gang_and_only_when_nodes_help(muster: Muster) -> None:
    """One shortage for the whole missing set, and all of its pods say so in the words that autoscalers look for."""
    cluster, sight = muster.cluster, Sight(muster.cluster)
    incomplete = pod("alone", {f"{LABEL}/name": "other", f"{LABEL}/min-available": "2"})
    await sight.create(incomplete)
    await until_held(muster, "too_few_pods", "video/other")
    await cluster.submit(demo())
    held = await until_held(muster, "no_nodes")
    assert held.shortage is not None
    assert {each.name for each in held.pods} == PODS

    async def unschedulable() -> dict[str, str]:
        found = {}
        for each in await cluster.kube.list_objects("v1", "Pod", "video"):
            for condition in each["status"].get("conditions") or ():
                if (condition["type"], condition.get("reason")) == ("PodScheduled", "Unschedulable"):
                    found[each["metadata"]["name"]] = condition["message"]
        return found

    async def whole() -> bool:
        return (await unschedulable()).keys() >= PODS

    await cluster.until(whole, 60.0, "every pod of the gang to say that it lacks a node")
    messages = await unschedulable()
    assert messages.keys() == PODS, "a gang that waits for pods needs no nodes"
    assert len({*messages.values()}) == 1
    assert "Insufficient nvidia.com/gpu" in messages.popitem()[1]


@pytest_asyncio.fixture
async def older_plane(control_plane_binaries: Binaries) -> AsyncIterator[ControlPlane]:
    """A server that has no policies that change objects."""
    del control_plane_binaries  # Where they are built, those of the session come first.
    async with ControlPlane(version=OLDER_KUBERNETES_VERSION, prepare=furnish) as plane:
        yield plane


@pytest.mark.timeout(1200)
async def test_a_gang_on_an_older_server(
    older_plane: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path
) -> None:
    """Where no policy changes objects a gang names its scheduler itself, or is told to."""
    assert older_plane.version == OLDER_KUBERNETES_VERSION
    async with Cluster(older_plane, pods=True) as cluster, room(cluster, first=GPUS, second=GPUS):
        sight = Sight(cluster)
        cluster.operate(TrainingOperator())
        async with running(cluster, nats_server.url, tmp_path) as muster:
            await cluster.submit(demo())
            await sight.all_bound(*PODS)
            [decision] = await placed(muster)
            assert {each.ref.name for each in decision.pods} == PODS
            assert (await sight.phase_of_group("tf-smoke-gpu", "Running"))["running"] == 5
            unsteered = pod("bare", labels("bare", 1), scheduler="default-scheduler", asks={"cpu": "64"})
            await sight.create(unsteered)
            held = await until_held(muster, "other_scheduler", "video/bare")
            assert "schedulerName: muster" in in_words(held.problem)
            await cluster.until(lambda: sight.told("GangNotPlaced"), 60.0, what="the pod to be told")
            assert "schedulerName: muster" in (await sight.told("GangNotPlaced"))["bare"]
