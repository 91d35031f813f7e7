"""Pods that take a share of a GPU: how they say so, and that their device stays theirs."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from kit import nodes
from kit.podgangs import Scene, member
from muster.core.objects.cluster import read_pod
from muster.core.objects.meta import GPU_DEVICE
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


@pytest.mark.parametrize(("text", "share"), [("0.5", 500), (".25", 250), ("0.125", 125), ("0.10000", 100)])
def test_a_share_is_counted_in_thousandths(text: str, share: int) -> None:
    assert read({"gpu-fraction": text}).rules == PodRules(share=share)
    assert read({"gpu-fraction": text, GPU_DEVICE: "3"}).devices == (3,)
    assert read({"gpu-fraction": text, GPU_DEVICE: "x"}).devices == ()


@pytest.mark.parametrize("text", ["1", "1.0", "0", "0.0", "-0.5", "0.0001", "half", "0,5", "", "٠.٥"])
def test_what_is_no_share_keeps_the_pod_back_with_the_value(text: str) -> None:
    rules = read({"gpu-fraction": text}).rules
    assert rules.share == 0
    assert rules.unsupported == (
        f"annotation gpu-fraction: {text!r} is not a number between 0 and 1 of at most three places"
    )


def test_a_share_beside_whole_gpus_is_no_share_and_others_pods_are_not_ours_to_read() -> None:
    rules = read({"gpu-fraction": "0.5"}, gpus=1).rules
    assert (rules.share, "take one of them" in rules.unsupported) == (0, True)
    assert read({"gpu-fraction": "0.5", GPU_DEVICE: "3"}, scheduler="volcano").rules == PodRules()


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
