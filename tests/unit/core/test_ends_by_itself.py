"""A victim that is expected to end before its suspension would free anything is left to end, and not for longer."""

from __future__ import annotations

from kit.scenes import Scene, about_to_end
from muster.events.claims import ClaimOpened, VictimStays
from muster.events.decisions import EvictionOrdered, GangAdmitted, QuotaReserved


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


def test_one_that_is_late_is_suspended_once_its_suspension_would_have_freed_its_quota() -> None:
    scene = about_to_end(ran_s=28)
    (order,) = scene.bench.happened(EvictionOrdered)
    left_ms = order.victims[0].ends_by - scene.bench.now
    assert 0 < left_ms <= 10_000, "writes take 8 s, and nothing is known of what comes after them"
    scene.lines("time +11s")
    assert [(each.ref.name, each.reason) for each in scene.bench.happened(VictimStays)] == [("x0", "not_ended")]
    assert orders(scene)[1:] == [(["x0"], [])], "it is not left to end again"
    scene.suspended("b/x0")
    assert [each.ref.name for each in scene.bench.happened(QuotaReserved)][-1] == "owed"
    scene.bench.sound()


def test_one_that_runs_on_for_longer_than_a_suspension_takes_is_suspended_at_once() -> None:
    scene = about_to_end(ran_s=3)
    assert orders(scene) == [(["x0"], [])]


def test_where_nothing_is_known_nobody_is_left_to_end() -> None:
    scene = about_to_end(ran_s=28, before=3)
    assert orders(scene) == [(["x0"], [])]


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
