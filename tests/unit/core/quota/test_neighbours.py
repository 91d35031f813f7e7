"""Neighbours that change the pods of a job: a mesh that adds a sidecar to each pod, a descheduler that evicts pods."""

from __future__ import annotations

from kit import facts
from kit.scenes import Scene
from muster.events.charges import ChargeChanged
from muster.events.decisions import QuotaReleased, QuotaReserved, SuspensionOrdered
from muster.model.workload import PodSet


def begun() -> Scene:
    """`one` runs with two pods of 2 cpu; `two` waits for its quota."""
    scene = Scene()
    scene.tree_of(("video", 5), ("b", 3))
    scene.lines("synced")
    pods = PodSet("workers", 2, {"cpu": 2_000})
    scene.jobs["one"] = facts.job("one", cpu=4, pod_sets=(pods,), created=scene.bench.now)
    scene.do(facts.seen(scene.jobs["one"]))
    scene.lines("job two cpu=5", "resumed one", "cluster one cpu=4", "pod one 0 cpu=2", "pod one 1 cpu=2", "runs one")
    return scene


def test_the_sidecars_of_a_mesh_are_charged_beyond_the_grant() -> None:
    scene = begun()
    scene.lines("pod-gone one 0", "pod-gone one 1", "pod one 2 cpu=3", "pod one 3 cpu=3")
    changed = scene.bench.happened(ChargeChanged)[-1]
    assert (changed.request["cpu"], changed.over) == (6_000, {"cpu": 2_000})
    scene.lines("time +900s")
    assert scene.bench.happened(SuspensionOrdered) == []
    scene.bench.sound()


def test_a_job_whose_pods_a_descheduler_evicts_keeps_its_quota() -> None:
    scene = begun()
    scene.lines("pod-gone one 0", "time +30s", "pod one 2 cpu=2", "time +60s")
    scene.lines("pod-gone one 1", "pod-gone one 2", "time +200s", "pod one 3 cpu=2", "pod one 4 cpu=2", "time +900s")
    assert scene.bench.happened(SuspensionOrdered) == scene.bench.happened(QuotaReleased) == []
    assert [event.ref.name for event in scene.bench.happened(QuotaReserved)] == ["one"]
    scene.bench.sound()
