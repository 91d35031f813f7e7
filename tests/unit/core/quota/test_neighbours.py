"""Neighbours of docs/howto/neighbours.md: a mesh, a descheduler, an applier, a policy on jobs, nodes that are gone."""

from __future__ import annotations

import pytest

from kit import facts
from kit.scenes import Scene
from muster.events.charges import ChargeChanged
from muster.events.decisions import GangAdmitted, QuotaReleased, QuotaReserved, SuspensionOrdered
from muster.model.workload import PodSet
from muster.told.views.story import Story


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


def why(scene: Scene, name: str) -> str:
    story = Story(f"video/{name}")
    for stored in scene.bench.log:
        story.feed(stored)
    return story.of(f"video/{name}").standing.text


def charged(scene: Scene) -> set[str]:
    return {entry.ref.name for entry in scene.bench.states["quota_accountant"].entries.values()}


def test_a_job_that_an_applier_suspends_names_the_applier_and_is_queued_again() -> None:
    scene = begun()
    scene.lines("suspends one by=flux-controller")
    assert "Where flux-controller applies a manifest again: leave suspend out of the manifest" in why(scene, "one")
    scene.lines("pod-gone one 0", "pod-gone one 1", "cluster-gone one", "settles one")
    assert [event.ref.name for event in scene.bench.happened(QuotaReleased)] == ["one"]
    assert [event.ref.name for event in scene.bench.happened(QuotaReserved)] == ["one", "two"]
    scene.lines("resumed two", "cluster two", "runs two", "finishes two", "cluster-gone two", "time +120s")
    assert [event.ref.name for event in scene.bench.happened(QuotaReserved)] == ["one", "two", "one"]
    scene.bench.sound()


def test_a_policy_on_jobs_is_quoted_and_the_resume_tried_again() -> None:
    scene = Scene()
    scene.tree_of(("video", 5), ("b", 3))
    scene.lines("synced", "job one cpu=5", "failed one refused a policy says no")
    assert "the API server refused to resume it: a policy says no" in why(scene, "one")
    scene.lines("time +120s")
    assert [event.ref.name for event in scene.bench.happened(GangAdmitted)] == ["one", "one"]
    scene.lines("resumed one", "cluster one", "runs one")
    assert "a policy says no" not in why(scene, "one")


def test_a_job_that_waits_for_a_node_keeps_its_quota_until_its_running_timeout() -> None:
    for rules, ends in (({}, []), ({"running_timeout": "10m"}, ["one"])):
        scene = Scene()
        scene.tree_of(("video", 5), ("b", 3), **rules)
        scene.lines("synced", "job one cpu=5", "resumed one", "cluster one", "pod one 0", "time +900s")
        assert [event.ref.name for event in scene.bench.happened(SuspensionOrdered)] == ends


@pytest.mark.parametrize("ends", ["the pods are deleted", "the node is deleted", "the node is back"])
def test_the_quota_of_a_job_on_a_lost_node_is_free_when(ends: str) -> None:
    """The API server ends the pods of a deleted node; the kubelet of a node that is back ends them itself."""
    scene = begun()
    scene.lines("node n1 cpu=64")
    pods = [facts.pod("one", number, node="n1", request={"cpu": 2_000}) for number in (0, 1)]
    scene.do(*pods)
    scene.lines("node n1 cpu=64 not-ready", "time +60s")
    assert "its node n1 is not ready" in why(scene, "one")
    scene.change("one", deleting=True)
    scene.lines("cluster-gone one", "time +900s")
    assert charged(scene) == {"one"}
    scene.lines(*{"the node is deleted": ["node-gone n1"], "the node is back": ["node n1 cpu=64"]}.get(ends, []))
    assert charged(scene) == {"one"}, "its pods are there"
    scene.lines("pod-gone one 0", "pod-gone one 1")
    assert charged(scene) == {"two"}
    scene.bench.sound()
