"""What runs beyond what was admitted is suspended after the time that the tree says, over the max of its quota."""

from __future__ import annotations

from kit import facts
from kit.audits import audit
from kit.scenes import TWO, Scene
from muster.events.decisions import SuspensionOrdered
from muster.events.elastic import SurplusOrdered
from muster.events.facts import QueueObserved
from muster.model.keys import Ref


def scene(timeout: str = "1m") -> Scene:
    """Leaf a has a max of 8; a/mine is admitted with 6."""
    found = Scene()
    found.tree_of(*TWO, overuse_timeout=timeout)
    found.lines("synced", "job a/mine cpu=6")
    found.runs("a/mine")
    return found


def started_around(found: Scene, name: str, cpu: int) -> None:
    """It waits, and another client starts it."""
    found.lines(f"job {name} cpu={cpu}", f"runs {name}")


def ordered(found: Scene) -> list[tuple[str, str]]:
    return [(each.ref.name, each.reason) for each in found.bench.happened(SuspensionOrdered)]


def test_it_is_suspended_after_that_time_and_queued_again() -> None:
    found = scene()
    started_around(found, "a/first", 3)
    found.lines("time +59s")
    assert not ordered(found)
    found.lines("time +2s")
    assert ordered(found) == [("first", "overuse")]
    found.suspended("a/first")
    found.lines("time +600s")
    assert ordered(found) == [("first", "overuse")]
    assert found.bench.states["quota_accountant"].ledger.used["root/a"]["cpu"] == 6000
    assert not audit(found.bench.log).violations


def test_the_youngest_goes_first_and_no_more_than_is_needed() -> None:
    found = scene()
    started_around(found, "a/first", 3)
    found.lines("time +30s")
    started_around(found, "a/second", 6)
    found.lines("finishes a/mine")  # 9 of 8
    found.lines("time +31s")
    assert not ordered(found), "the younger one is enough"
    found.lines("time +30s")
    assert ordered(found) == [("second", "overuse")]
    found.lines("time +600s")
    assert ordered(found) == [("second", "overuse")]


def test_what_runs_beyond_its_grant_is_overuse() -> None:
    found = scene()
    found.do(facts.cluster("mine", "a", asks=facts.vector(cpu=9)))
    found.lines("time +61s")
    assert [each.surplus for each in found.bench.happened(SurplusOrdered)] == [facts.vector(cpu=1)]
    assert not ordered(found), "its workers go first"
    found.lines("time +61s")
    assert ordered(found) == [("mine", "overuse")], "they did not go"


def test_within_the_max_nothing_is_suspended() -> None:
    found = scene()
    found.lines("job a/late cpu=4")
    found.lines("finishes a/mine")
    started_around(found, "a/other", 4)
    found.lines("time +600s")
    assert not ordered(found)


def test_what_ran_before_the_cluster_was_known_is_left_alone() -> None:
    found = Scene()
    found.lines("job a/old cpu=9", "runs a/old")
    found.tree_of(*TWO, overuse_timeout="1m")
    found.lines("synced", "time +600s")
    assert not ordered(found)


def test_without_the_rule_it_runs_on() -> None:
    found = scene("0s")
    started_around(found, "a/first", 3)
    found.lines("time +6000s")
    assert not ordered(found)


def test_paused_evictions_are_paused_for_it_too() -> None:
    found = scene()
    ref = Ref("Queue", "kube-queue", "q", "queue-q")
    found.do(QueueObserved(ref=ref, rv=facts.next_rv(), path="root/a", paused=("evictions",)))
    started_around(found, "a/first", 3)
    found.lines("time +600s")
    assert not ordered(found)
    found.do(QueueObserved(ref=ref, rv=facts.next_rv(), path="root/a"))
    assert ordered(found) == [("first", "overuse")]
