"""A victim that is expected to end before its suspension would free anything is left to end, and not for longer."""

from __future__ import annotations

from kit import facts
from kit.claimscenes import about_to_end
from kit.scenes import Scene
from muster.core.preemption.preemptorstate import Ends
from muster.core.quota.demand import Charge
from muster.events.claims import ClaimOpened, VictimStays
from muster.events.decisions import EvictionOrdered, GangAdmitted, QuotaReleased, QuotaReserved
from muster.events.system import TimeReached


def orders(scene: Scene) -> list[tuple[list[str], list[str]]]:
    """(those that are suspended, those that are left to end) of each order."""
    found = []
    for each in scene.bench.happened(EvictionOrdered):
        suspended = [victim.ref.name for victim in each.suspended]
        found.append((suspended, [victim.ref.name for victim in each.victims if victim.ends_by]))
    return found


def test_one_that_ends_sooner_than_it_is_suspended_is_not_and_what_it_frees_is_for_the_claimant() -> None:
    scene = about_to_end(ran_s=28)
    assert orders(scene) == [([], ["x0"])]
    scene.lines("job b/greedy cpu=8", "time +1s", "finishes b/x0")
    assert [each.ref.name for each in scene.bench.happened(GangAdmitted)][-1] == "owed"
    assert not scene.bench.happened(VictimStays)
    scene.bench.sound()


def test_one_that_is_about_to_end_goes_before_one_that_is_not_though_that_loses_less() -> None:
    scene = about_to_end(ran_s=6, cpu=4, lasts_s=60, apart_s=22)
    assert orders(scene) == [([], ["x0"])]
    scene.lines("finishes b/x0")
    assert [each.ref.name for each in scene.bench.happened(GangAdmitted)][-1] == "owed"
    scene.bench.sound()


def test_for_a_second_claimant_one_is_suspended_that_does_not_end_soon() -> None:
    scene = about_to_end(ran_s=6, cpu=4, lasts_s=60, apart_s=22)
    scene.lines("job a/too cpu=4")
    assert orders(scene)[1:] == [(["x1"], [])], "what x0 frees is for the one before"
    scene.bench.sound()


def test_one_that_is_late_is_suspended_once_its_suspension_would_have_freed_its_quota() -> None:
    scene = about_to_end(ran_s=28)
    (order,) = scene.bench.happened(EvictionOrdered)
    left_ms = order.victims[0].ends_by - scene.bench.now
    assert 0 < left_ms <= 20_000, "writes take 8 s, and what comes after them is taken to last as long"
    scene.lines("time +21s")
    assert [(each.ref.name, each.reason) for each in scene.bench.happened(VictimStays)] == [("x0", "not_ended")]
    assert orders(scene)[1:] == [(["x0"], [])], "it is not left to end again"
    scene.suspended("b/x0")
    assert [each.ref.name for each in scene.bench.happened(QuotaReserved)][-1] == "owed"
    scene.bench.sound()


def test_one_that_its_user_suspends_meanwhile_was_not_evicted() -> None:
    scene = about_to_end(ran_s=28)
    scene.lines("suspends b/x0", "settles b/x0")
    released = scene.bench.happened(QuotaReleased)[-1]
    assert (released.ref.name, released.reason) == ("x0", "suspended_outside")
    assert [each.ref.name for each in scene.bench.happened(GangAdmitted)][-1] == "owed"
    scene.bench.sound()


def test_one_that_runs_on_for_longer_than_a_suspension_takes_is_suspended_at_once() -> None:
    scene = about_to_end(ran_s=3)
    assert orders(scene) == [(["x0"], [])]


def test_one_that_has_run_longer_than_all_that_are_known_is_expected_to_run_as_long_again() -> None:
    assert orders(about_to_end(ran_s=1, before=5, lasts_s=0)) == [([], ["x0"])]


def test_where_no_run_has_ended_none_is_expected_to_end() -> None:
    """The youngest has run for less than a write takes, which says nothing of how long it will."""
    scene = Scene()
    scene.tree_of(("a", 8), ("b", 0), age_limit="0")
    scene.lines("synced")
    for name in (f"b/x{index}" for index in range(8)):
        scene.lines(f"job {name} cpu=1", "time +8s")
        scene.runs(name)
    scene.lines("time +2s", "job a/owed cpu=1")
    assert orders(scene) == [(["x7"], [])]


def test_where_it_is_not_known_what_a_suspension_takes_none_is_left_to_end() -> None:
    assert orders(about_to_end(ran_s=28, before=3)) == [(["x0"], [])]


def test_one_write_that_takes_for_ever_says_nothing_of_the_others() -> None:
    ends, ref, charge = Ends(), facts.job_ref("x0"), Charge("video", "root/b", {"cpu": 1000}, until=1_100)
    for number in range(8):
        ends.decided[f"x{number}"] = 0
        ends.written(f"x{number}", 100 if number else 3_600_000, suspends=False)
    assert ends.ends_by(ref, charge, since=900, now=1_000) == 1_222, "two writes, each as long as its span"


def test_a_second_claimant_does_not_count_on_the_same_end() -> None:
    scene = about_to_end(ran_s=28, cpu=4)
    assert orders(scene) == [([], ["x0"])]
    scene.lines("job a/too cpu=4")
    assert orders(scene)[1:] == [([], ["x1"])]
    scene.lines("job a/third cpu=4")
    assert len(orders(scene)) == 2
    assert not scene.bench.happened(ClaimOpened)
    scene.bench.sound()


def test_a_declared_run_time_counts_where_nothing_is_learned_of_such_jobs() -> None:
    scene = about_to_end(ran_s=175, run="30s", lasts_s=600)
    assert orders(scene) == [([], ["x0"])]


def test_no_job_is_evicted_by_a_plan_that_counts_on_one_that_turns_out_to_stay() -> None:
    """Its deadline is reached while the plan of another claimant waits for its answer."""
    scene = about_to_end(ran_s=28, cpu=4)
    bench, every = scene.bench, [*scene.bench.turns()]
    (order,) = bench.happened(EvictionOrdered)
    for held in ("preemptor", "quota_accountant"):
        bench.turns = lambda held=held: [name for name in every if name != held]  # type: ignore[method-assign]
        scene.lines("job a/too cpu=4") if held == "preemptor" else bench.settle()
    bench.now = order.victims[0].ends_by
    bench.append("quota_accountant", "input", [TimeReached(at=bench.now)])
    bench.turns = lambda: every  # type: ignore[method-assign]
    bench.settle()
    assert bench.happened(VictimStays)[0].ref.name == "x0"
    bench.sound()
