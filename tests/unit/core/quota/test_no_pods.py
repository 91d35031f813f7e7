"""An admitted job that gets no pod gives its quota back: a ResourceQuota, an unknown PriorityClass, or an admission
policy refuses the pods, or the operator is down.
"""

from __future__ import annotations

import pytest

from kit.scenes import Scene
from muster.events.decisions import GangAdmitted, QuotaReleased, QuotaReserved, SuspensionOrdered


def begun(**rules: str) -> Scene:
    """`one` is admitted and resumed, and has no pod; `two` waits for its quota."""
    scene = Scene()
    scene.tree_of(("video", 5), ("b", 3), **rules)
    scene.lines("synced", "job one cpu=5", "job two cpu=5", "resumed one")
    return scene


def ordered(scene: Scene) -> list[tuple[str, str]]:
    return [(event.ref.name, event.reason) for event in scene.bench.happened(SuspensionOrdered)]


@pytest.mark.parametrize(("rules", "limit_s"), [({}, 300), ({"start_timeout": "1m"}, 60)])
def test_the_quota_of_a_job_without_pods_goes_to_the_next(rules: dict[str, str], limit_s: int) -> None:
    scene = begun(**rules)
    scene.lines(f"time +{limit_s - 2}s")
    assert ordered(scene) == []
    scene.lines("time +4s")
    assert ordered(scene) == [("one", "no_pods")]
    scene.suspended("one")
    assert [event.ref.name for event in scene.bench.happened(QuotaReleased)] == ["one"]
    assert [event.ref.name for event in scene.bench.happened(GangAdmitted)] == ["one", "two"]
    # In its place, after the pause.
    scene.lines("resumed two", "cluster two", "runs two", "time +70s")
    assert [event.ref.name for event in scene.bench.happened(QuotaReserved)] == ["one", "two"]
    scene.lines("finishes two", "cluster-gone two")
    assert [event.ref.name for event in scene.bench.happened(QuotaReserved)] == ["one", "two", "one"]
    scene.bench.sound()


def test_one_with_a_pod_waits_for_the_pod() -> None:
    scene = begun()
    scene.lines("cluster one", "pod one 0", "time +900s")
    assert ordered(scene) == []


def test_without_a_limit_it_waits() -> None:
    scene = begun(start_timeout="0")
    scene.lines("time +900s")
    assert ordered(scene) == []
