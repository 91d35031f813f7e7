"""Jobs that found no place on the nodes while quota had room, and lack quota as well by now."""

from __future__ import annotations

from kit.clearings import Play
from muster.events.claims import PlanStale
from muster.events.decisions import EvictionOrdered, GangDeferred, WorkloadQueued


def full(priority: str) -> Play:
    """Two nodes of two cores: firm work has half of each, ``big`` finds no place, and younger work has the rest."""
    play = Play()
    for name, other in (("x", "p"), ("y", "q")):
        play.job(name, "a", 1, "build")
        play.job(other, "a", 1, "build")
    for other in ("p", "q"):
        play.ends(other)
    play.job("big", "a", 2, priority)
    for name in ("small", "other"):
        play.job(name, "a", 1)
    assert {"small", "other"} <= play.runs().keys(), "they pass who waits for nodes"
    return play


def test_work_of_lower_priority_leaves_for_it() -> None:
    play = full("build-preemptible")
    play.ends("x")
    play.bench.pass_time(60_000)
    play.settle()
    [order] = play.bench.happened(EvictionOrdered)
    assert [play.runs()[each.ref.name] for each in order.victims] == [["n0"]], "beside x, where two cores come free"
    play.bench.sound()


def test_it_waits_where_nobody_gives_way_and_the_stages_fall_quiet() -> None:
    play = full("train")
    play.ends("x")
    before = len(play.bench.log)
    play.bench.pass_time(3_600_000)
    play.settle()
    assert not play.bench.happened(EvictionOrdered)
    assert len(play.bench.log) - before < 5


def test_it_stands_in_its_queue_once_and_asks_there() -> None:
    """Nobody who might leave would make room: it comes back to its queue, asks, and is not tried on the nodes again."""
    play = full("build-preemptible")
    play.bench.pass_time(3_600_000)
    play.settle()
    assert not play.bench.happened(EvictionOrdered), "firm work has half of each node"
    assert sum(event.ref.name == "big" for event in play.bench.happened(WorkloadQueued)) <= 2
    assert sum(event.ref.name == "big" for event in play.bench.happened(GangDeferred)) == 1
    stale = [event.reason for event in play.bench.happened(PlanStale)]
    assert len(stale) < 8, stale
    play.bench.sound()


def test_two_that_each_take_the_quota_of_the_other_for_a_moment_fall_quiet() -> None:
    """No node has two cores free, and quota is left for one of them: while one is tried the other is short of quota."""
    play = Play(4)
    for name, other in (("x", "p"), ("y", "q"), ("z", "r")):
        play.job(name, "a", 1, "build")
        play.job(other, "a", 1, "build")
    play.job("w", "a", 1, "build")
    play.job("low", "a", 1)
    for other in ("p", "q", "r"):
        play.ends(other)
    before = len(play.bench.log)
    for name in ("big", "too"):
        play.arrives(name, "a", 2, "build-preemptible")
    play.settle()
    play.bench.pass_time(3_600_000)
    play.settle()
    assert not play.bench.happened(EvictionOrdered), "firm work has half of each node"
    assert len(play.bench.log) - before < 30
    play.bench.sound()
