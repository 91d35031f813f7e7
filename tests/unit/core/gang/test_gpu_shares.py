"""Pods that take a share of a GPU: how they say so, and that their device stays theirs."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from kit import facts, nodes
from kit.bench import Bench
from kit.podgangs import Scene, member
from kit.words import in_words
from muster.core.actuation.orders import Bind, RetryLater, Unbind
from muster.core.actuation.podwrites import CONFIG_MAP, Wiring, after_unbind, wiring_for
from muster.core.objects.gpushares import BAD_COUNT, BAD_FRACTION, BAD_MEMORY, COUNT_ALONE, LIMIT_BESIDE, SEVERAL
from muster.core.objects.meta import GPU_DEVICE, GPU_GROUPS
from muster.core.placement.devices import PART
from muster.core.reading.cluster import read_pod
from muster.core.workloads.registry import KINDS
from muster.events.base import Cause
from muster.events.decisions import GangAdmitted, GangDeferred, QuotaReserved
from muster.events.effects import EffectApplied
from muster.events.facts import PodGone, PodObserved
from muster.events.gangs import GangHeldBack, GpuReservationEnded, PodsPlaced, PodsReleased
from muster.events.system import PlacementChosen
from muster.model.keys import Intent, Ref
from muster.model.placing import GPU, GPU_MEMORY, PodRules
from muster.model.problem import FieldProblem
from muster.model.workload import PodSet, PodState

OF_MAIN = "nvidia.com/container.main.gpu-memory"


def read(annotations: dict[str, str], *, gpus: int | None = None, scheduler: str = "muster") -> PodState:
    asks = {"cpu": "1", **({GPU: str(gpus)} if gpus is not None else {})}
    raw = {
        "metadata": {"name": "p", "namespace": "video", "uid": "u", "resourceVersion": "1", "annotations": annotations},
        "spec": {
            "schedulerName": scheduler,
            "nodeName": "n",
            "initContainers": [{"name": "first"}],
            "containers": [{"name": "main", "resources": {"limits": asks}}, {"name": "other"}],
        },
    }
    found = read_pod(json.dumps(raw).encode())
    assert found is not None
    return found.pod


@pytest.mark.parametrize(
    ("text", "share"),
    [("0.5", 500), (".25", 250), ("0.125", 125), ("0.10000", 100), ("0.3333", 333), ("0.6667", 667), ("0.0001", 1)],
)
def test_a_share_is_counted_in_the_nearest_thousandths(text: str, share: int) -> None:
    assert read({"gpu-fraction": text}).rules == PodRules(share=share)


def test_the_devices_it_was_given_are_read_with_who_shares_them() -> None:
    two = {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2", GPU_DEVICE: "0,3", GPU_GROUPS: "a,b"}
    assert (read(two).devices, read(two).groups) == ((0, 3), ("a", "b"))
    assert read({"gpu-fraction": "0.5", GPU_DEVICE: "x"}).devices == ()
    assert read({"gpu-fraction": "0.5", GPU_DEVICE: "3", GPU_GROUPS: "a,b"}).groups == ()


@pytest.mark.parametrize(
    ("annotations", "gpus", "told"),
    [
        *(({"gpu-fraction": text}, None, BAD_FRACTION) for text in ("1", "1.0", "0", "-0.5", "half", "0,5", "", "٠.٥")),
        *(({"gpu-memory": text}, None, BAD_MEMORY) for text in ("0", "-1", "1.5", "4Gi", "")),
        *(({"gpu-fraction": "0.5", "gpu-fraction-num-devices": text}, None, BAD_COUNT) for text in ("0", "-1", "x")),
        ({"gpu-fraction": "0.5"}, 1, "cannot have both GPU fraction request and whole GPU resource request/limit"),
        ({"gpu-memory": "100"}, 1, "cannot request both GPU and GPU memory"),
        ({"gpu-memory": "100", "gpu-fraction": "0.5"}, None, "cannot request both GPU and GPU memory"),
        ({"gpu-fraction-num-devices": "2"}, None, COUNT_ALONE),
        ({"mps": "true"}, None, "MPS is only supported with GPU fraction request"),
        ({"mps": "true"}, 1, "MPS is only supported with GPU fraction request"),
        ({"gpu-fraction": "0.5"}, 0, "cannot have both GPU fraction request and whole GPU resource request/limit"),
        ({"gpu-memory": "100"}, 0, "cannot request both GPU and GPU memory"),
        *(
            (
                {f"{OF_MAIN}.request": text},
                None,
                f"{OF_MAIN}.request annotation value must be a valid Kubernetes memory quantity greater than 0",
            )
            for text in ("much", "", "0", "-4Gi")
        ),
        ({f"{OF_MAIN}.request": "1Gi", "nvidia.com/container.other.gpu-memory.request": "1Gi"}, None, SEVERAL),
        ({f"{OF_MAIN}.limit": "1Gi", "nvidia.com/container.other.gpu-memory.request": "1Gi"}, None, SEVERAL),
        ({f"{OF_MAIN}.limit": "1Gi", "nvidia.com/container.other.gpu-compute.mode": "time-slicing"}, None, SEVERAL),
        (
            {f"{OF_MAIN}.request": "2Gi", f"{OF_MAIN}.limit": "1Gi"},
            None,
            "invalid fraction request for container main: request is greater than limit",
        ),
        ({f"{OF_MAIN}.limit": "1Gi", "gpu-memory": "1024"}, None, LIMIT_BESIDE),
        (
            {f"{OF_MAIN}.request": "1Gi", "gpu-memory": "1000"},
            None,
            "NvFractions memory request (1024Mi) does not match gpu-memory annotation value (1000 MiB)",
        ),
        ({f"{OF_MAIN}.request": "1Gi", "gpu-fraction": "0.5"}, None, "cannot request both GPU and GPU memory"),
        (
            {f"{OF_MAIN}.request": "1Gi", "gpu-fraction-container-name": "other"},
            None,
            "gpu-fraction-container-name annotation value other does not match container name main",
        ),
        (
            {"gpu-fraction": "0.5", "gpu-fraction-container-name": "none"},
            None,
            "container none not found in pod spec, but a fractional annotation referencing it was found",
        ),
        (
            {"nvidia.com/container.none.gpu-memory.request": "1Gi"},
            None,
            "container none not found in pod spec, but a fractional annotation referencing it was found",
        ),
        (
            {"gpu-fraction": "0.5", "kai.scheduler/gpu-compute-sharing-mode": "sm-sharing"},
            None,
            "annotation kai.scheduler/gpu-compute-sharing-mode: only time-slicing is served here",
        ),
    ],
)
def test_what_is_no_share_keeps_the_pod_back_in_the_words_users_know(
    annotations: dict[str, str], gpus: int | None, told: str | FieldProblem
) -> None:
    rules = read(annotations, gpus=gpus).rules
    words = told if isinstance(told, str) else in_words(told)
    assert (rules.share, rules.gpu_memory, in_words(rules.unsupported)) == (0, 0, words)


@pytest.mark.parametrize(
    ("annotations", "rules"),
    [
        ({"gpu-memory": "4096"}, PodRules(gpu_memory=4096)),
        ({"gpu-memory": "4096", "gpu-fraction-num-devices": "2"}, PodRules(gpu_memory=4096, devices=2)),
        ({"gpu-fraction": "0.5", "mps": "true"}, PodRules(share=500)),
        ({f"{OF_MAIN}.request": "4Gi"}, PodRules(gpu_memory=4096)),
        ({f"{OF_MAIN}.limit": "512"}, PodRules(gpu_memory=512)),
        ({f"{OF_MAIN}.limit": "8Gi", f"{OF_MAIN}.request": "4Gi"}, PodRules(gpu_memory=4096)),
        ({f"{OF_MAIN}.request": "4Gi", "gpu-memory": "4096"}, PodRules(gpu_memory=4096)),
        ({f"{OF_MAIN}.request": "4Gi", "gpu-fraction-container-name": "main"}, PodRules(gpu_memory=4096)),
        ({"nvidia.com/container.first.gpu-memory.request": "4Gi"}, PodRules(gpu_memory=4096)),
        ({"gpu-fraction": "0.5", "gpu-fraction-container-name": "other"}, PodRules(share=500)),
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
    assert held[-1].shortage is not None
    assert in_words(held[-1].shortage.unsupported) == (
        "attempting to create a pod video/a with gpu sharing request, while GPU sharing is disabled"
    )


def shares(scene: Scene) -> dict[str, int]:
    """{device: thousandths left} of the one node, as the admitter counts them."""
    node = scene.bench.states["gang_admitter"].ledger.nodes["n"]  # type: ignore[attr-defined]
    assert node.slot is not None
    return {device: left // PART for device, left in node.slot.shared.items()}


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


def test_a_job_with_shares_is_tried_once_where_sharing_is_off() -> None:
    """Room for its pods as they would be elsewhere is none here: it is not tried again, and nobody leaves for it."""
    bench = Bench()
    bench.append("gang_admitter", "input", [PlacementChosen(mode="pack", gpu_sharing=False)])
    halves = PodSet("main", 2, facts.vector(cpu=1), PodRules(share=500))
    bench.facts(
        facts.tree(), nodes.node("n1", cpu=64, memory=256, gpu=8), facts.seen(facts.job("halves", pod_sets=(halves,)))
    )
    bench.synced()
    bench.settle()
    for _ in range(5):
        bench.pass_time(60_000)
        bench.settle()
    assert len(bench.happened(QuotaReserved)) == 1
    [told] = bench.happened(GangDeferred)
    assert "while GPU sharing is disabled" in in_words(told.shortage.unsupported)
    bench.sound()
    bench.append("gang_admitter", "input", [PlacementChosen(mode="pack")])
    bench.settle()
    assert len(bench.happened(GangAdmitted)) == 1
    bench.sound()


@pytest.mark.parametrize(
    ("annotations", "index"),
    [
        ({"gpu-fraction": "0.5"}, "0"),
        ({"gpu-fraction": "0.5", "gpu-fraction-container-name": "other"}, "1"),
        ({"gpu-fraction": "0.5", "gpu-fraction-container-name": "first"}, "i0"),
        ({"nvidia.com/container.other.gpu-memory.request": "1Gi"}, "1"),
        ({"nvidia.com/container.other.gpu-memory.limit": "1Gi"}, "1"),
        ({"nvidia.com/container.first.gpu-memory.request": "1Gi"}, "i0"),
    ],
)
def test_the_config_map_of_the_container_that_shares_is_written(annotations: dict[str, str], index: str) -> None:
    ref = Ref("Pod", "video", "p", "u")
    order = Bind(ref, 1, Intent(1, 7, 0), "n", devices=(0,), groups=("g",), share=500)
    spec = {"containers": [{"name": "main"}, {"name": "other"}], "initContainers": [{"name": "first"}]}
    meta = {"name": "p", "namespace": "video", "uid": "u", "resourceVersion": "1"}
    pod = {"metadata": {**meta, "annotations": {**annotations, CONFIG_MAP: "p-shared-gpu"}}, "spec": spec}
    wiring = wiring_for(order, 200, json.dumps(pod).encode(), ("GPU-1",))
    assert isinstance(wiring, Wiring)
    assert [name for name, _ in wiring.config_maps] == [f"p-shared-gpu-{index}", f"p-shared-gpu-{index}-evar"]


def test_a_binding_that_nobody_heard_of_keeps_its_device() -> None:
    """Bound, the effect lost, the pod reported late: its time is over, and its device is not given to others."""
    scene = Scene(hold_ms=60_000)
    scene.bench.facts(nodes.node("n", cpu=8, gpu=1))
    scene.put(member("a", rules=PodRules(share=700)))
    scene.bench.settle()
    [order] = scene.orders()
    scene.put(replace(scene.pods["uid-video-a"], node="n", devices=order.devices, groups=order.groups), tell=False)
    scene.bench.pass_time(61_000)
    scene.fresh.clear()
    scene.put(member("b", rules=PodRules(share=700)))
    scene.bench.settle()
    assert [each.reason for each in scene.bench.happened(PodsReleased)] == ["not_bound"]
    assert shares(scene) == {0: 300}, "whether it was bound is not known yet"
    scene.settle()
    assert shares(scene) == {0: 300}, "it was"
    assert not scene.pods["uid-video-b"].node
    scene.delete("uid-video-a")
    scene.settle()
    assert scene.pods["uid-video-b"].node == "n"
    scene.bench.sound()


@pytest.mark.parametrize(
    ("status", "spec", "told"),
    [
        (404, {}, "gone"),
        (200, {"nodeName": "n"}, ""),
        (200, {"nodeName": "m"}, "superseded"),
        (200, {}, "withdrawn"),
        (503, {}, "unavailable"),
    ],
)
def test_what_became_of_a_binding_that_was_withdrawn(status: int, spec: dict[str, str], told: str) -> None:
    order = Unbind(Ref("Pod", "video", "p", "u"), 1, Intent(1, 9, 0), "n", Cause(5, 0))
    pod = {"metadata": {"name": "p", "namespace": "video", "uid": "u", "resourceVersion": "1"}, "spec": spec}
    answer = after_unbind(order, status, json.dumps(pod).encode())
    assert isinstance(answer, RetryLater) or (answer.cause, answer.action) == (Cause(5, 0), "bind")
    assert ("" if isinstance(answer, EffectApplied) else answer.reason) == told


def test_pods_on_one_device_stay_one_group_when_its_memory_is_labelled_anew() -> None:
    scene = Scene()
    for memory, pod in (("8192", "a"), ("16384", "b")):
        scene.bench.facts(nodes.node("n", cpu=8, gpu=2, labels={GPU_MEMORY: memory}))
        scene.put(member(pod, rules=PodRules(gpu_memory=8192)))
        scene.settle()
    placed = [place for event in scene.bench.happened(PodsPlaced) for place in event.pods]
    assert {place.devices for place in placed} == {(0,)}
    assert len({place.groups for place in placed}) == 1


def test_no_share_goes_to_a_node_that_has_lost_more_devices_than_are_free() -> None:
    """Which of them are left nobody says."""
    scene = Scene()
    scene.bench.facts(nodes.node("n", cpu=8, gpu=2))
    for name in ("a", "b"):
        scene.put(member(name, rules=PodRules(share=600)))
    scene.settle()
    scene.bench.facts(nodes.node("n", cpu=8, gpu=1))
    scene.put(member("c", rules=PodRules(share=100)))
    scene.settle()
    assert not scene.pods["uid-video-c"].node
    scene.delete("uid-video-a")
    scene.settle()
    assert scene.pods["uid-video-c"].devices in ((), (1,))
    assert scene.pods["uid-video-c"].node == "n"
