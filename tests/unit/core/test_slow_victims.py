"""Victims that do not leave: nobody waits for them for ever, others are asked for instead, and once they go they go."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kit import facts, nodes
from kit.audits import audit
from kit.scenes import Scene
from muster.core.actuation.orders import said as answered
from muster.events.base import Cause
from muster.events.claims import ClaimEnded, VictimStays
from muster.events.decisions import EvictionOrdered, GangAdmitted, QuotaReserved, WorkloadQueued
from muster.events.effects import EffectApplied, EffectFailed
from muster.events.envelope import Stored
from muster.model.victims import Victim

HOUR_S = 3_600


def borrowed(jobs: int = 4, cpu: int = 2, *, of: int = 6, asks: int = 4) -> Scene:
    """Eight cores, all of them borrowed by jobs of b that run; a/owed claims four of the six that a is guaranteed."""
    scene = Scene()
    scene.tree_of(("a", of), ("b", 0), age_limit="0")
    scene.lines("synced")
    for index in range(jobs):
        scene.lines(f"job b/x{index} cpu={cpu}")
        scene.runs(f"b/x{index}")
    scene.lines(f"job a/owed cpu={asks}")
    return scene


def orders(scene: Scene) -> list[list[str]]:
    return [[victim.ref.name for victim in each.victims] for each in scene.bench.happened(EvictionOrdered)]


def told(scene: Scene, name: str) -> None:
    """The actuator has suspended it, and its controller never gets it done."""
    order = next(
        stored.seq for stored in scene.bench.log if any(isinstance(e, EvictionOrdered) for e in stored.commit.events)
    )
    job, rv = scene.jobs[name], facts.next_rv()
    effect = EffectApplied(cause=Cause(order, 0), ref=job.ref, attempt=1, rv=rv, action="suspend")
    scene.bench.append("actuator", "input", [effect])
    scene.change(name, rv=rv, suspended=True, phase="suspending", settled=False, generation=job.generation + 1)


def test_a_victim_that_never_stops_is_replaced_after_an_hour_and_what_was_freed_stays_held() -> None:
    scene = borrowed()
    assert orders(scene) == [["x0", "x1"]]
    told(scene, "b/x0")
    scene.suspended("b/x1")
    scene.lines(f"time +{HOUR_S - 60}s")
    assert orders(scene) == [["x0", "x1"]]
    scene.lines("time +120s")
    assert [(each.ref.name, each.reason) for each in scene.bench.happened(VictimStays)] == [("x0", "overdue")]
    assert orders(scene)[1:] == [["x2"]], "one more, and not the one that does not stop"
    scene.lines("job b/greedy cpu=2")
    scene.suspended("b/x2")
    assert [each.ref.name for each in scene.bench.happened(QuotaReserved)][-1] == "owed"
    scene.lines("settles b/x0")
    assert [each.ref.name for each in scene.bench.happened(QuotaReserved)][-1] == "x0", (
        "it leaves, and is first in line"
    )
    assert not scene.bench.happened(ClaimEnded)
    scene.bench.sound()


@pytest.mark.parametrize("suspended", [False, True])
def test_a_victim_on_a_lost_node_is_replaced_at_once_and_asked_for_no_more(suspended: bool) -> None:
    scene = borrowed(asks=2)
    scene.do(nodes.node("n1"), facts.cluster("x0", "b"), facts.pod("x0", 0, "b", node="n1"))
    assert orders(scene) == [["x0"]]
    if suspended:
        told(scene, "b/x0")
    scene.do(nodes.node("n1", ready=False))
    assert [(each.ref.name, each.reason) for each in scene.bench.happened(VictimStays)] == [("x0", "node_lost")]
    assert orders(scene)[1:] == [["x1"]]
    scene.suspended("b/x1")
    assert [each.ref.name for each in scene.bench.happened(QuotaReserved)][-1] == "owed"
    scene.lines("job a/more cpu=2")
    assert orders(scene)[2:] == [["x2"]]
    scene.bench.sound()


def test_nobody_else_is_asked_for_while_the_actuator_is_down() -> None:
    scene = borrowed()
    scene.lines(f"time +{9 * HOUR_S}s")
    assert orders(scene) == [["x0", "x1"]]
    assert not scene.bench.happened(VictimStays)
    told(scene, "b/x0")
    told(scene, "b/x1")
    scene.lines("time +60s", "settles b/x0", "settles b/x1")
    assert [each.ref.name for each in scene.bench.happened(QuotaReserved)][-1] == "owed"
    scene.bench.sound()


class Stubborn:
    """b/x0 can never be suspended; b/x1 leaves at once, borrows again, and runs. a/owed needs what both have."""

    def __init__(self) -> None:
        self.scene = borrowed(2, 4, of=8, asks=8)
        self.read = 0

    def let(self, hours: int) -> None:
        for _ in range(hours * 60):
            self.answer()
            self.scene.lines("time +60s")

    def answer(self) -> None:
        log = self.scene.bench.log
        while self.read < len(log):
            stored = log[self.read]
            self.read += 1
            for event in stored.commit.events:
                if isinstance(event, GangAdmitted) and self.scene.jobs[event.ref.key].suspended:
                    self.scene.runs(event.ref.key)
                for victim in event.victims if isinstance(event, EvictionOrdered) else ():
                    self.ordered(Cause(stored.seq, 0), victim)

    def ordered(self, cause: Cause, victim: Victim) -> None:
        said = {"cause": cause, "ref": victim.ref, "attempt": victim.attempt, "action": "suspend"}
        if victim.ref.name == "x0":
            self.scene.bench.append(
                "actuator", "input", [EffectFailed(reason="refused", problem=answered("no"), **said)]
            )
            self.scene.settle()
            return
        name, rv = victim.ref.key, facts.next_rv()
        self.scene.bench.append("actuator", "input", [EffectApplied(rv=rv, **said)])
        self.scene.change(name, rv=rv, suspended=True, phase="suspending", settled=False)
        self.scene.lines(f"settles {name}")


def test_who_leaves_together_with_one_that_never_does_is_not_suspended_over_and_over() -> None:
    play = Stubborn()
    play.let(24)
    told = [sorted(each) for each in orders(play.scene)]
    assert set(map(tuple, told)) == {("x0", "x1")}
    assert 3 <= len(told) <= 9, f"{len(told)} times in a day, and a/owed never comes in"
    play.scene.bench.sound()


def test_a_new_run_may_be_asked_at_once() -> None:
    play = Stubborn()
    play.let(2)
    before = len(orders(play.scene))
    play.scene.lines("gone b/x0", "job b/x2 cpu=4")
    play.let(1)
    assert [event.ref.name for event in play.scene.bench.happened(QuotaReserved)][-1] == "owed"
    assert len(orders(play.scene)) <= before + 1
    state = play.scene.bench.states["preemptor"]
    assert not state.failed and not state.stays


def test_a_victim_that_somebody_starts_again_is_waited_for_no_longer() -> None:
    """Its manifest is applied again, and it says that it runs: another job gives way, and it is left alone for now."""
    scene = borrowed()
    told(scene, "b/x0")
    scene.suspended("b/x1")
    scene.change("b/x0", suspended=False, phase="running", generation=9)
    assert [(each.ref.name, each.reason) for each in scene.bench.happened(VictimStays)] == [("x0", "runs_again")]
    assert orders(scene)[1:] == [["x2"]]
    scene.suspended("b/x2")
    assert [each.ref.name for each in scene.bench.happened(QuotaReserved)][-1] == "owed"
    scene.lines("time +700s", "job a/more cpu=2")
    assert orders(scene)[2:] == [["x0"]], "after ten minutes it may be asked again"
    scene.bench.sound()


def test_the_audit_finds_who_takes_what_is_held_for_another() -> None:
    """One of two victims has left; b/greedy has room by its limits, and may not have what that one gave back."""
    scene = borrowed()
    scene.lines("job b/greedy cpu=2")
    told(scene, "b/x0")
    scene.suspended("b/x1")
    scene.bench.sound()
    log = scene.bench.log
    queued = next(event for event in scene.bench.happened(WorkloadQueued) if event.ref.name == "greedy")
    asks = {name: getattr(queued, name) for name in ("ref", "attempt", "queue", "request", "pods", "preemptible")}
    taken = QuotaReserved(cause=Cause(log[-1].seq, 0), basis=queued.basis, **asks)
    last = next(stored for stored in reversed(log) if stored.commit.stage == "quota_accountant")
    commit = replace(last.commit, events=(taken,), in_seq=log[-1].seq)
    found = [each.detail for each in audit([*log, Stored(log[-1].seq + 1, commit)]).violations]
    assert any("greedy takes cpu 2000 of root" in each and "2000 is held for others" in each for each in found), found
