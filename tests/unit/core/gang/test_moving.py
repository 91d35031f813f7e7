"""Jobs that are moved so that another has room on the nodes: each has a place of its own before anybody goes."""

from __future__ import annotations

import pytest

from kit import facts, nodes
from kit.clearings import Play, halves
from kit.packed import Packed, Shape
from muster.core.gang.jobplaces import relocated
from muster.events.base import Event
from muster.events.decisions import GangAdmitted, PreemptionProposed, QuotaReleased
from muster.events.facts import QueueObserved
from muster.model.keys import Ref
from muster.model.places import Move, Placement
from muster.model.workload import PodSet, Wishes


def test_a_job_is_moved_and_both_run() -> None:
    play = halves(moves=16)
    x, y = play.runs()["x"], play.runs()["y"]
    play.job("big", "a", 2)
    [order] = play.orders()
    assert order.kind == "move"
    assert [each.ref.name for each in order.victims] == ["y"]
    assert [(each.before, each.after) for each in order.moves] == [(tuple(y), tuple(x))]
    play.suspended("y")
    assert "big" not in play.runs()
    play.left("y")
    assert play.runs() == {"x": x, "y": x, "big": y}
    assert not play.claims()
    released = [each for each in play.bench.happened(QuotaReleased) if each.ref.name == "y"]
    assert [each.reason for each in released] == ["moved"]
    play.bench.sound()


def test_nobody_takes_the_place_or_the_quota_of_what_moves() -> None:
    play = halves(moves=16, a=2, b=2)
    x = play.runs()["x"]
    play.job("big", "b", 2)
    play.job("thief", "a", 1, "inference")
    play.suspended("y")
    play.job("late", "a", 1, "inference")
    play.left("y")
    assert play.runs()["y"] == x
    assert "thief" not in play.runs() and "late" not in play.runs()
    assert "big" in play.runs()
    play.bench.sound()


def test_the_one_that_moves_may_stay() -> None:
    play = halves(moves=16)
    play.job("big", "a", 2)
    play.refused("y")
    assert not play.bench.states["gang_admitter"].orders
    assert not play.bench.states["quota_accountant"].ledger.claims.going
    play.bench.pass_time(3_500_000)
    play.settle()
    assert play.ordered() == ["y"], "nobody of this plan takes part in another within the hour"
    play.bench.pass_time(200_000)
    play.settle()
    assert len(play.ordered()) == 2
    play.bench.sound()


def four() -> Play:
    """``s``, ``u``, ``v`` and ``w`` run on a node each, with one core free beside them."""
    play = Play(4, moves=16)
    for name, other in (("s", "o"), ("u", "p"), ("v", "q"), ("w", "r")):
        play.job(name, "a", 1)
        play.job(other, "a", 1)
        play.bench.pass_time(1_000)
    for other in ("o", "p", "q", "r"):
        play.ends(other)
    return play


def test_a_budget_that_refuses_one_of_them_leaves_the_others_a_place() -> None:
    play = four()
    play.job("big", "a", 2, count=2)
    first, second = play.ordered()
    play.suspended(first)
    play.left(first)
    assert first not in play.runs(), "it waits for the other"
    play.refused(second)
    assert first in play.runs() and second in play.runs(), "it has a place, if not the one that was planned"
    assert "big" not in play.runs()
    play.bench.sound()


def test_a_gang_is_moved_for_and_all_run() -> None:
    play = four()
    play.job("big", "a", 2, count=2)
    moving = play.ordered()
    assert len(moving) == 2
    for name in moving:
        play.suspended(name)
    for name in moving:
        play.left(name)
    assert sorted(play.runs()) == ["big", "s", "u", "v", "w"]
    [order] = play.orders()
    for victim, move in zip(order.victims, order.moves, strict=True):
        assert play.runs()[victim.ref.name] == list(move.after)
    play.bench.sound()


def test_one_more_gets_in_than_before_and_nobody_moves_twice_within_an_hour() -> None:
    play = halves(moves=16)
    play.job("big", "a", 2)
    play.suspended("y")
    play.left("y")
    play.ends("big")
    play.job("again", "a", 2)
    assert "again" in play.runs(), "what big had is free"
    play.ends("x")
    play.job("third", "a", 2)
    assert play.ordered() == ["y"]
    assert "third" not in play.runs()
    before = len(play.bench.log)
    play.bench.pass_time(1_800_000)
    assert len(play.bench.log) - before < 10
    play.bench.sound()


@pytest.mark.parametrize("change", ["deleted", "held", "edited", "of another queue"])
def test_what_is_changed_on_its_way_keeps_nothing(change: str) -> None:
    play = halves(moves=16)
    play.job("big", "a", 2)
    play.suspended("y")
    if change == "deleted":
        play.ends("y")
    elif change == "held":
        play.left("y", wishes=Wishes(hold=True, by="ann"))
    elif change == "edited":
        need = facts.vector(cpu=2)
        sets = (PodSet("main", 1, need),)
        play.left("y", pod_sets=sets, need={"ack": need, "full": need}, generation=9)
    else:
        play.left("y", labels={"kai.scheduler/queue": "nowhere"})
    assert "big" in play.runs()
    admitter, accountant = play.bench.states["gang_admitter"], play.bench.states["quota_accountant"]
    assert not admitter.orders
    assert not accountant.ledger.claims.going
    assert play.jobs["y"].ref.uid not in accountant.ledger.charges
    play.bench.pass_time(3_600_000)
    play.bench.sound()


def test_paused_admissions_keep_what_moves_waiting() -> None:
    play = halves(moves=16)
    play.job("big", "a", 2)
    play.suspended("y")
    queue = Ref("Queue", "kube-queue", "q", "queue-q")
    play.bench.facts(QueueObserved(ref=queue, rv=facts.next_rv(), path="kai/a", paused=("admissions",)))
    play.left("y")
    assert "y" not in play.runs() and "big" not in play.runs()
    assert not play.bench.states["quota_accountant"].ledger.claims.going
    play.bench.facts(QueueObserved(ref=queue, rv=facts.next_rv(), path="kai/a"))
    play.settle()
    assert sorted(play.runs()) in (["big", "x"], ["x", "y"], ["big", "x", "y"])
    play.bench.sound()


def test_the_job_it_makes_room_for_may_be_gone() -> None:
    play = halves(moves=16)
    x = play.runs()["x"]
    play.job("big", "a", 2)
    play.suspended("y")
    play.ends("big")
    play.left("y")
    assert play.runs()["y"] == x
    play.bench.sound()


def test_both_say_from_where_to_where() -> None:
    play = halves(moves=16)
    play.job("big", "a", 2)
    told = play.told("y")
    assert "Moved from n1 to n0 to make room for default/big of queue kai/a" in told
    assert "moved to make room for it on the nodes: default/y from n1 to n0" in play.told("big")
    play.suspended("y")
    play.left("y")
    assert "its quota is reserved for it again" in play.told("y")


def others_decide(play: Play, but: str) -> None:
    """All stages but one decide until they have nothing more to say."""
    bench, said = play.bench, True
    while said:
        said = False
        for name in bench.turns():
            due = bench.seats[name].decisions() if name != but else []
            if due:
                bench.append(name, "decision", due)
                said = True


def test_nobody_gets_a_place_of_a_plan_that_is_found_and_not_ordered_yet() -> None:
    """Quota is reserved for another one between the search for the plan and its order."""
    play = halves(moves=16)
    y = play.runs()["y"]
    bench = play.bench
    play.arrives("big", "a", 2)
    found = list[Event]()
    while not any(isinstance(each, PreemptionProposed) for each in found):
        if found:
            bench.append("preemptor", "decision", found)
        others_decide(play, "preemptor")
        found = bench.seats["preemptor"].decisions()
    at = len(bench.log)
    play.arrives("late", "a", 1)
    for name in ("queue_sorter", "quota_accountant"):
        bench.append(name, "decision", bench.seats[name].decisions())
    bench.late("preemptor", found, at)
    bench.append("gang_admitter", "decision", bench.seats["gang_admitter"].decisions())
    play.settle()
    assert play.ordered() == ["y"]
    assert "late" not in play.runs()
    play.suspended("y")
    play.left("y")
    assert play.runs()["big"] == y
    assert "late" not in play.runs()
    play.bench.sound()


def test_no_plan_counts_on_the_room_of_a_job_that_has_its_quota_already() -> None:
    """Its admission and the plan are decided at the same time."""
    play = halves(moves=16, a=8)
    bench, (y_on,) = play.bench, play.runs()["y"]
    bench.facts(nodes.node("n2", cpu=1))
    bench.paused = frozenset({"preemptor"})
    play.arrives("big", "a", 2)
    bench.settle()
    bench.paused = frozenset({"preemptor", "gang_admitter"})
    play.arrives("late", "a", 1)
    bench.settle()
    at, admits, plans = len(bench.log), bench.seats["gang_admitter"].decisions(), bench.seats["preemptor"].decisions()
    bench.late("gang_admitter", admits, at)
    bench.late("preemptor", plans, at)
    bench.paused = frozenset()
    play.settle()
    [taken], [order] = bench.happened(GangAdmitted)[-1].placements, play.orders()
    assert [(each.before, each.after) for each in order.moves] == [((y_on,), ("n2",))]
    assert taken.node not in ("n2", y_on)
    bench.sound()


def test_a_job_that_would_start_again_where_it_is_is_not_moved() -> None:
    """Others of a plan leave its node; which of its GPUs it has there is all the same."""
    cluster = Packed([4, 4], {"a": 8}, kai=False, moves=16)
    cluster.arrives("job", "a", Shape(2, 1), "n0")
    state, uid = cluster.bench.states["gang_admitter"], cluster.jobs["job"].ref.uid
    stays, spread = (Placement("main", "n0", 2),), (Placement("main", "n0", 1), Placement("main", "n1", 1))
    assert not relocated(state, [Move(uid, ("n0",), stays)])
    for places in (spread, (Placement("main", "n1", 2),), (Placement("main", "n0", 2, (0, 0)),)):
        assert relocated(state, [Move(uid, ("n0",), places)]) == (Move(uid, ("n0",), places),)
