"""Amounts of GPU memory, from the annotation to the charge: parts of the largest device, then of the device they have.

The objects are read as the watcher reads them; the sizes of devices are labels of nodes.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from kit import facts, kai, nodes
from kit.audits import audit
from kit.scenes import Scene
from muster.core.reading.cluster import read_pod
from muster.core.reading.watched import WATCHED
from muster.events.base import Event
from muster.events.decisions import GangAdmitted, QuotaTreeAccepted
from muster.events.facts import NodeGone, PodGone
from muster.events.system import PlacementChosen
from muster.model.placing import GPU, GPU_MEMORY, GPU_PRODUCT

IN_QUEUE = {"kai.scheduler/queue": "own"}


def play_of(limit: int, **sizes: int) -> Scene:
    """A node with four devices for each size (MiB), and a queue limited to so many GPUs."""
    play = Scene()
    play.do(PlacementChosen(mode="pack"))
    play.lines("synced")
    play.do(*(nodes.node(name, gpu=4, labels={GPU_MEMORY: str(size)}) for name, size in sizes.items()))
    play.do(kai.queue("all", gpu=(-1, -1, 1)), kai.queue("own", "all", gpu=(limit, limit, 1)))
    return play


def template(says: dict[str, str]) -> dict[str, Any]:
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "100m"}}}
    meta = {"labels": IN_QUEUE, "annotations": says}
    return {"metadata": meta, "spec": {"schedulerName": "muster", "containers": [container]}}


def job(name: str, says: dict[str, str], rv: int, *, suspend: bool = True, pods: int = 1, **of_pod: Any) -> Event:
    meta = {"name": name, "namespace": "k", "uid": name, "resourceVersion": str(rv), "labels": IN_QUEUE}
    meta["creationTimestamp"] = "2026-01-01T00:00:00Z"
    spec: dict[str, Any] = {"suspend": suspend, "parallelism": pods, "template": template(says)}
    spec["template"]["spec"] |= of_pod
    status = {} if suspend else {"active": pods}
    raw = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec, "status": status}
    fact = WATCHED["jobs"].read(json.dumps(raw).encode())
    assert fact is not None
    return fact


def pod(name: str, says: dict[str, str], rv: int, node: str, owner: str = "") -> Event:
    body = template(says)
    body["metadata"] |= {"name": name, "namespace": "k", "uid": name, "resourceVersion": str(rv)}
    if owner:
        named = {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": owner, "controller": True}
        body["metadata"]["ownerReferences"] = [named]
    body["spec"]["nodeName"] = node
    fact = read_pod(json.dumps({**body, "status": {"phase": "Running"}}).encode())
    assert fact is not None
    return fact


def over(play: Scene) -> dict[str, int]:
    charges = play.bench.states["quota_accountant"].ledger.charges
    return {uid: charge.over.get(GPU, 0) for uid, charge in charges.items()}


def charged(play: Scene) -> dict[str, int]:
    charges = play.bench.states["quota_accountant"].ledger.charges
    return {uid: charge.request.get(GPU, 0) for uid, charge in charges.items()}


@pytest.mark.parametrize(
    ("amount", "size", "limit", "start"),
    [("8192", 81920, 1, 6), ("8000", 24000, 1, 3), ("40000", 80000, 2, 4), ("1", 81920, 1, 6)],
)
def test_amounts_of_memory_share_the_devices_of_a_quota(amount: str, size: int, limit: int, start: int) -> None:
    play = play_of(limit, big=size)
    play.do(*(job(f"m{number}", {"gpu-memory": amount}, 100 + number) for number in range(6)))
    assert len(play.bench.happened(GangAdmitted)) == start
    assert set(charged(play).values()) == {max(1, int(amount) * 1000 // size)}
    assert not audit(play.bench.log).violations


@pytest.mark.parametrize(
    ("fractions", "start"),
    [
        (["0.3333"] * 4, 3),
        (["0.33333333"] * 4, 3),
        (["0.6667", "0.3333"], 2),
        (["0.5001", "0.4999"], 2),
        (["0.501", "0.5"], 1),
        (["0.0001"], 1),
    ],
)
def test_thirds_share_a_device_however_many_digits_they_have(fractions: list[str], start: int) -> None:
    play = play_of(1, big=80000)
    play.do(*(job(f"m{number}", {"gpu-fraction": text}, 100 + number) for number, text in enumerate(fractions)))
    assert len(play.bench.happened(GangAdmitted)) == start
    assert not audit(play.bench.log).violations


def test_one_that_runs_is_charged_by_its_device() -> None:
    """Before it has a node, by the largest there is."""
    says = {"gpu-memory": "8000"}
    play = play_of(4, big=80000, small=16000)
    play.do(job("j", says, 100))
    assert charged(play) == {"j": 100}
    play.do(job("j", says, 101, suspend=False), pod("p", says, 102, "small", "j"))
    assert charged(play) == {"j": 500}
    play.do(nodes.node("small", gpu=4, labels={GPU_MEMORY: "32000"}))
    assert charged(play) == {"j": 250}, "the node says better"
    play.do(nodes.node("huge", gpu=4, labels={GPU_MEMORY: "160000"}))
    assert charged(play) == {"j": 250}


def test_a_smaller_device_than_the_grant_counted_is_no_overuse() -> None:
    """Two of three pods are granted: only the third runs beyond the grant, by its part of the granted device."""
    says = {"gpu-memory": "8000"}
    play = play_of(4, big=80000, small=16000)
    play.do(job("j", says, 100, pods=2))
    play.do(job("j", says, 101, suspend=False, pods=2), *(pod(f"p{n}", says, 102 + n, "small", "j") for n in range(2)))
    assert (charged(play), over(play)) == ({"j": 1000}, {"j": 0})
    play.do(pod("p2", says, 105, "small", "j"))
    assert (charged(play), over(play)) == ({"j": 1500}, {"j": 100})
    gone = nodes.node("big").node
    play.do(NodeGone(ref=gone.ref, rv=gone.rv))
    play.do(pod("p3", says, 106, "small", "j"))
    assert (charged(play), over(play)) == ({"j": 2000}, {"j": 1000}), "the grant is still of two pods"
    assert not audit(play.bench.log).violations


def test_devices_within_reach_count() -> None:
    """A job that may run on small devices alone is charged by them before it runs, by either selector of nodes."""
    play = play_of(1)
    sizes = {"big": (80000, "A"), "small": (16000, "B"), "tiny": (10000, "C")}
    labels = {name: {GPU_MEMORY: str(size), GPU_PRODUCT: product} for name, (size, product) in sizes.items()}
    play.do(*(nodes.node(name, gpu=4, labels=each) for name, each in labels.items()))
    says = {"gpu-memory": "8000"}
    one_of = {"key": GPU_PRODUCT, "operator": "In", "values": ["B", "C"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [one_of]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    play.do(job("any", says, 1), job("small", says, 2, affinity=affinity))
    play.do(job("tiny", says, 3, nodeSelector={GPU_PRODUCT: "C"}))
    assert charged(play) == {"any": 100, "small": 500}, "0.4 are left, and it would take 0.8"
    assert not audit(play.bench.log).violations


def test_an_elastic_quota_tree_counts_amounts_of_memory() -> None:
    """By the devices of the nodes, too: their change changes the tree, and never brings back a refused version."""
    play, says = Scene(), {"gpu-memory": "8000"}
    leaf = facts.node("own", {"gpu": 1}, {"gpu": 1}, ("k",))
    play.do(facts.tree(facts.node("root", {"gpu": 1}, {"gpu": 1}, children=(leaf,))))
    play.lines("synced")
    play.do(job("early", says, 1))
    assert charged(play) == {"early": 1000}, "no device is known"
    play.do(nodes.node("n", gpu=4, labels={GPU_MEMORY: "80000"}))
    assert charged(play) == {"early": 100}
    play.do(*(job(f"j{number}", says, 2 + number) for number in range(12)))
    assert sum(charged(play).values()) == 1000
    play.do(facts.tree(facts.node("root", {"gpu": 1}, {"gpu": 2}, children=(leaf,))))
    play.do(nodes.node("n", gpu=4, labels={GPU_MEMORY: "40000"}))
    assert [event.tree.gpu_memory for event in play.bench.happened(QuotaTreeAccepted)] == [0, 80000]
    play.do(facts.tree(facts.node("root", {"gpu": 1}, {"gpu": 1}, children=(leaf,))))
    assert set(charged(play).values()) == {200}, "each stays as much as it was"
    assert not audit(play.bench.log).violations


@pytest.mark.parametrize("gpus", [0, 4])
def test_a_device_plugin_that_starts_again_changes_no_charge(gpus: int) -> None:
    """It withdraws the devices of its node, or the label, for a moment; a job of no pod counts as nothing."""
    play, says = play_of(1, one=80000), {"gpu-memory": "8000"}
    play.do(*(job(f"j{number}", says, number + 1) for number in range(5)), job("none", says, 9, pods=0))
    before = charged(play)
    assert [before[f"j{number}"] for number in range(5)] == [100] * 5
    play.do(nodes.node("one", gpu=gpus))
    assert charged(play) == before
    assert not audit(play.bench.log).violations


@pytest.mark.parametrize(("says", "part"), [({"gpu-memory": "8000"}, 500), ({"gpu-fraction": "0.25"}, 250)])
def test_a_pod_of_no_job_is_charged_for_its_share(says: dict[str, str], part: int) -> None:
    play = play_of(4, small=16000)
    play.do(pod("p", says, 102, "small"))
    assert charged(play) == {"p": part}
    gone = pod("p", says, 103, "small").pod.ref  # type: ignore[attr-defined]
    play.do(PodGone(ref=gone, rv=104))
    assert charged(play) == {}
