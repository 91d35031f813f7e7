"""When a claimant that was refused is looked at again: its gate rests on what would change the plan."""

from __future__ import annotations

import pytest
from test_preemption import borrowed, ended, orders, reserved, unreadable

from kit import facts
from kit.scenes import Scene
from muster.events.decisions import PreemptionProposed, ReclaimDeferred
from muster.events.facts import QueueObserved
from muster.model.keys import Ref
from muster.model.workload import Wishes


@pytest.mark.parametrize("claim", ["1m", "10m"])
def test_who_could_not_be_suspended_is_asked_again_though_the_claim_has_expired(claim: str) -> None:
    """The claim ends before its only victim may be asked again, or in that very moment; nothing else changes."""
    scene = borrowed(jobs=1, cpu=8, claim=claim, age_limit="0")
    scene.lines("job a/owed cpu=4")
    scene.fails("b/x0", "suspend", "refused")
    scene.lines("time +590s")
    assert orders(scene) == [("owed", ["x0"])]
    scene.lines("time +20s", "time +600s")
    assert ended(scene) == [("owed", "expired")]
    assert orders(scene)[1:] == [("owed", ["x0"])]
    scene.suspended("b/x0")
    assert reserved(scene)[-1] == "owed"
    scene.bench.sound()


def test_who_refuses_for_ever_is_asked_a_bounded_number_of_times() -> None:
    scene = borrowed(jobs=1, cpu=8, claim="1m", age_limit="0")
    scene.lines("job a/owed cpu=4")
    before = len(scene.bench.log)
    for _ in range(12):
        scene.fails("b/x0", "suspend", "refused")
        scene.lines("time +60s", "time +60s", "time +480s")
    assert len(orders(scene)) == 4, "after 10 minutes, 30 and 70; the next time is after 150"
    assert len(scene.bench.log) - before < 12 * 15
    scene.bench.sound()


def test_the_end_of_a_claim_opens_the_gates_of_others() -> None:
    """What root/n/a claims is held and comes from nobody; beside that d/x1 is not enough for c, without it it is."""
    scene = Scene()
    inner = tuple(facts.node(name, {"cpu": least}, {"cpu": 8}, (name,)) for name, least in (("a", 2), ("b", 0)))
    outer = tuple(facts.node(name, {"cpu": least}, {"cpu": 8}, (name,)) for name, least in (("c", 4), ("d", 0)))
    leaves = (facts.node("n", {"cpu": 2}, {"cpu": 4}, children=inner), *outer)
    scene.do(facts.tree(facts.node("root", {"cpu": 8}, {"cpu": 8}, children=leaves), rules={"age-limit": "0"}))
    scene.lines("synced")
    for name in ("b/x0", "d/x1"):
        scene.lines(f"job {name} cpu=4")
        scene.runs(name)
    scene.lines("job a/one cpu=2")
    scene.fails("b/x0", "suspend", "refused")
    scene.lines("job c/two cpu=4")
    assert orders(scene) == [("one", ["x0"])]
    scene.change("a/one", wishes=Wishes(hold=True, by="ann"))
    assert ended(scene) == [("one", "held")]
    assert orders(scene)[1:] == [("two", ["x1"])]
    scene.bench.sound()


def test_the_end_of_its_grace_opens_the_gate_of_one_that_outranks_others() -> None:
    """a/low may be suspended for it after ten minutes; b/x0, which borrows, when its grace of two is over."""
    scene = Scene()
    scene.tree_of(("a", 8), ("b", 0), min_run="10m", reclaim_grace="2m", preempt_lower_priority="true", age_limit="0")
    scene.lines("synced", "job b/x0 cpu=4")
    scene.runs("b/x0")
    scene.lines("time +700s", "job a/low cpu=4 prio=1")
    scene.runs("a/low")
    scene.lines("job a/high cpu=4 prio=9")
    assert [each.reason for each in scene.bench.happened(ReclaimDeferred)] == ["grace", "lower_too_young"]
    scene.lines("time +110s")
    assert orders(scene) == []
    scene.lines("time +20s")
    assert orders(scene) == [("high", ["x0"])]
    scene.bench.sound()


def test_who_comes_of_age_gives_way_while_evictions_of_another_queue_are_paused() -> None:
    scene = Scene()
    scene.tree_of(("a", 4), ("b", 0), ("d", 0), min_run="10m", age_limit="0")
    scene.lines("synced", "job b/x0 cpu=4")
    scene.runs("b/x0")
    scene.lines("time +700s", "job d/x1 cpu=4")
    scene.runs("d/x1")
    ref = Ref("Queue", "kube-queue", "b", "queue-b")
    scene.do(QueueObserved(ref=ref, rv=facts.next_rv(), path="root/b", paused=("evictions",)))
    scene.lines("job a/owed cpu=4")
    assert [each.reason for each in scene.bench.happened(ReclaimDeferred)] == ["evictions_paused"]
    scene.lines("time +610s")
    assert orders(scene) == [("owed", ["x1"])]
    scene.bench.sound()


def test_a_limit_that_refuses_by_now_counts_as_the_one_that_did() -> None:
    """root/n refused a/owed; since c/x has gone the root does, and no denial says so."""
    scene = Scene()
    inner = tuple(facts.node(name, {"cpu": least}, {"cpu": 8}, (name,)) for name, least in (("a", 4), ("c", 0)))
    leaves = (
        facts.node("n", {"cpu": 4}, {"cpu": 4}, children=inner),
        facts.node("b", {"cpu": 0}, {"cpu": 8}, ("b",)),
    )
    scene.do(facts.tree(facts.node("root", {"cpu": 8}, {"cpu": 8}, children=leaves)))
    scene.lines("synced")
    for name, cpu in (("c/x", 2), ("b/y", 6)):
        scene.lines(f"job {name} cpu={cpu}")
        scene.runs(name)
    unreadable(scene, "c/x")
    scene.lines("job a/owed cpu=4", "time +590s")
    assert orders(scene) == []
    scene.bench.now += 20_000
    scene.line("gone c/x")
    scene.take("quota_accountant", "preemptor")
    assert [each.kind for each in scene.bench.happened(PreemptionProposed)] == ["guarantee"]
    scene.settle()
    assert orders(scene) == [("owed", ["y"])]
    scene.bench.sound()
