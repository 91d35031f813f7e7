"""Pods that take a share of a GPU: how they say so, and that their device stays theirs."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from kit import nodes
from kit.podgangs import Scene, member
from muster.core.objects.gpus import BAD_COUNT, BAD_FRACTION, BAD_MEMORY, COUNT_ALONE
from muster.core.objects.meta import GPU_DEVICE, GPU_GROUPS
from muster.core.reading.cluster import read_pod
from muster.core.workloads.registry import KINDS
from muster.events.facts import PodGone, PodObserved
from muster.events.gangs import GangHeldBack, GpuReservationEnded, PodsPlaced
from muster.events.system import PlacementChosen
from muster.model.keys import Ref
from muster.model.placing import GPU, PodRules
from muster.model.workload import PodState


def read(annotations: dict[str, str], *, gpus: int = 0, scheduler: str = "muster") -> PodState:
    asks = {"cpu": "1", **({GPU: str(gpus)} if gpus else {})}
    raw = {
        "metadata": {"name": "p", "namespace": "video", "uid": "u", "resourceVersion": "1", "annotations": annotations},
        "spec": {
            "schedulerName": scheduler,
            "nodeName": "n",
            "containers": [{"name": "main", "resources": {"limits": asks}}],
        },
    }
    found = read_pod(json.dumps(raw).encode())
    assert found is not None
    return found.pod


@pytest.mark.parametrize(
    ("text", "share"),
    [("0.5", 500), (".25", 250), ("0.125", 125), ("0.10000", 100), ("0.3333", 334), ("5e-1", 500), ("0.0001", 1)],
)
def test_a_share_is_counted_in_thousandths_rounded_up(text: str, share: int) -> None:
    assert read({"gpu-fraction": text}).rules == PodRules(share=share)


def test_the_devices_it_was_given_are_read_with_who_shares_them() -> None:
    two = {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2", GPU_DEVICE: "0,3", GPU_GROUPS: "a,b"}
    assert (read(two).devices, read(two).groups) == ((0, 3), ("a", "b"))
    assert read({"gpu-fraction": "0.5", GPU_DEVICE: "x"}).devices == ()
    assert read({"gpu-fraction": "0.5", GPU_DEVICE: "3", GPU_GROUPS: "a,b"}).groups == ()


@pytest.mark.parametrize(
    ("annotations", "gpus", "told"),
    [
        *(({"gpu-fraction": text}, 0, BAD_FRACTION) for text in ("1", "1.0", "0", "-0.5", "half", "0,5", "", "٠.٥")),
        *(({"gpu-memory": text}, 0, BAD_MEMORY) for text in ("0", "-1", "1.5", "4Gi", "")),
        *(({"gpu-fraction": "0.5", "gpu-fraction-num-devices": text}, 0, BAD_COUNT) for text in ("0", "-1", "x")),
        ({"gpu-fraction": "0.5"}, 1, "cannot have both GPU fraction request and whole GPU resource request/limit"),
        ({"gpu-memory": "100"}, 1, "cannot request both GPU and GPU memory"),
        ({"gpu-memory": "100", "gpu-fraction": "0.5"}, 0, "cannot request both GPU and GPU memory"),
        ({"gpu-fraction-num-devices": "2"}, 0, COUNT_ALONE),
        ({"mps": "true"}, 0, "MPS is only supported with GPU fraction request"),
        ({"mps": "true"}, 1, "MPS is only supported with GPU fraction request"),
        ({"nvidia.com/container.main.gpu-memory.request": "much"}, 0, BAD_MEMORY),
        (
            {"gpu-fraction": "0.5", "kai.scheduler/gpu-compute-sharing-mode": "sm-sharing"},
            0,
            "annotation kai.scheduler/gpu-compute-sharing-mode: only time-slicing is served here",
        ),
    ],
)
def test_what_is_no_share_keeps_the_pod_back_in_the_words_users_know(
    annotations: dict[str, str], gpus: int, told: str
) -> None:
    rules = read(annotations, gpus=gpus).rules
    assert (rules.share, rules.gpu_memory, rules.unsupported) == (0, 0, told)


@pytest.mark.parametrize(
    ("annotations", "rules"),
    [
        ({"gpu-memory": "4096"}, PodRules(gpu_memory=4096)),
        ({"gpu-memory": "4096", "gpu-fraction-num-devices": "2"}, PodRules(gpu_memory=4096, devices=2)),
        ({"gpu-fraction": "0.5", "mps": "true"}, PodRules(share=500)),
        ({"nvidia.com/container.main.gpu-memory.request": "4Gi"}, PodRules(gpu_memory=4096)),
        ({"nvidia.com/container.main.gpu-memory.limit": "512"}, PodRules(gpu_memory=512)),
        ({"gpu-fraction": "0.5", "nvidia.com/container.main.gpu-compute.mode": "time-slicing"}, PodRules(share=500)),
    ],
)
def test_the_other_ways_to_ask_for_a_share(annotations: dict[str, str], rules: PodRules) -> None:
    assert read(annotations).rules == rules


def test_others_pods_are_not_ours_to_read() -> None:
    assert read({"gpu-fraction": "0.5", GPU_DEVICE: "3"}, scheduler="volcano").rules == PodRules()


def test_a_share_in_a_template_is_charged_and_placed_by_device() -> None:
    container = {"resources": {"limits": {"cpu": "1"}}}
    half = {"metadata": {"annotations": {"gpu-fraction": "0.5"}}, "spec": {"containers": [container]}}
    whole = {"spec": {"containers": [{"resources": {"limits": {"cpu": "1", GPU: "1"}}}]}}
    spec = {
        "suspend": True,
        "headGroupSpec": {"template": whole},
        "workerGroupSpecs": [{"groupName": "shared", "replicas": 4, "template": half}],
    }
    meta = {"name": "c", "namespace": "video", "uid": "u", "resourceVersion": "1", "generation": 1}
    raw = json.dumps({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": meta, "spec": spec}).encode()
    workload = KINDS["RayCluster"].read(raw)
    assert {name: need[GPU] for name, need in workload.need.items()} == {"ack": 3000, "full": 3000}
    shared = workload.pod_sets[1]
    assert (shared.request[GPU], GPU in (shared.takes or {}), shared.rules.share) == (500, False, 500)


def test_pods_on_one_device_are_one_group_until_nobody_is_left() -> None:
    scene = Scene()
    scene.bench.facts(nodes.node("n", cpu=8, gpu=2))
    for name in ("a", "b", "c"):
        scene.put(member(name, rules=PodRules(share=500)))
    scene.settle()
    placed = [
        place
        for event in scene.bench.log
        for each in event.commit.events
        if isinstance(each, PodsPlaced)
        for place in each.pods
    ]
    groups = {place.ref.name: place.groups for place in placed}
    assert groups["a"] == groups["b"] != groups["c"]
    assert all(len(group[0]) == 36 for group in groups.values())
    keeper = PodState(
        ref=Ref("Pod", "muster-gpu-reservations", "keeper", "uid-keeper"),
        rv=10**6,
        node="n",
        request={GPU: 1000, "cpu": 1},
        keeps=groups["c"][0],
    )
    scene.bench.facts(PodObserved(pod=keeper))
    assert not [each for each in scene.bench.settle() if isinstance(each, GpuReservationEnded)]
    scene.put(member("whole", request={"cpu": 1000, GPU: 1000}))
    scene.delete("uid-video-c")
    ended = [each for each in scene.bench.settle() if isinstance(each, GpuReservationEnded)]
    assert [(each.ref.name, each.group) for each in ended] == [("keeper", groups["c"][0])]
    assert not scene.pods["uid-video-whole"].node, "the device plugin has not got it back yet"
    scene.bench.facts(PodGone(ref=keeper.ref))
    scene.settle()
    assert scene.pods["uid-video-whole"].node == "n"


def test_where_sharing_is_off_such_a_pod_is_told_so() -> None:
    scene = Scene()
    scene.bench.append("gang_admitter", "input", [PlacementChosen(mode="off", gpu_sharing=False)])
    scene.bench.facts(nodes.node("n", cpu=8, gpu=2))
    scene.put(member("a", rules=PodRules(share=500)))
    scene.settle()
    held = [each for stored in scene.bench.log for each in stored.commit.events if isinstance(each, GangHeldBack)]
    [obstacle] = held[-1].shortage.obstacles if held[-1].shortage is not None else ()
    assert obstacle.detail == (
        "attempting to create a pod video/a with gpu sharing request, while GPU sharing is disabled"
    )


def shares(scene: Scene) -> dict[str, int]:
    """{device: thousandths left} of the one node, as the admitter counts them."""
    node = scene.bench.states["gang_admitter"].ledger.nodes["n"]  # type: ignore[attr-defined]
    assert node.slot is not None
    return dict(node.slot.shared)


def test_a_device_stays_taken_whatever_else_changes_of_the_pod() -> None:
    scene = Scene()
    scene.bench.facts(nodes.node("n", cpu=8, gpu=2))
    for name in ("a", "b", "c"):
        scene.put(member(name, rules=PodRules(share=400)))
    scene.settle()
    assert shares(scene) == {0: 200, 1: 600}
    orders = {order.ref.name: order.devices for order in scene.orders()}
    assert orders == {}, "all are bound"
    pod = scene.pods["uid-video-a"]
    scene.put(replace(pod, labels={"new": "label"}))
    assert shares(scene) == {0: 200, 1: 600}
    scene.delete("uid-video-a")
    scene.delete("uid-video-b")
    assert shares(scene) == {1: 600}, "a whole device is free again"


def test_after_a_lost_log_the_device_is_known_from_the_pod() -> None:
    scene = Scene()
    scene.bench.facts(nodes.node("n", cpu=8, gpu=1))
    scene.put(member("a", rules=PodRules(share=700), node="n", devices=(0,)))
    scene.put(member("b", rules=PodRules(share=400)))
    scene.settle()
    assert shares(scene) == {0: 300}
    assert not scene.pods["uid-video-b"].node
