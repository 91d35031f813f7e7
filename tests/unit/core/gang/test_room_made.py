"""Others leave for a job whose quota has room and that has no place: what they leave is kept for it until it starts."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kit import facts, nodes
from kit.audits import audit
from kit.clearings import Play, halves
from kit.kai import queue
from muster.core.gang import plantrials
from muster.core.gang.admitterstate import KEPT_MS
from muster.core.quota.claims import LEAVES_WITHIN_MS
from muster.events.base import Cause
from muster.events.claims import PlanStale
from muster.events.decisions import EvictionOrdered, PreemptionProposed, QuotaReleased, QuotaReserved
from muster.events.envelope import Stored
from muster.events.facts import WorkloadGone
from muster.events.reasons import OrderKind
from muster.model.victims import Victim
from muster.model.workload import PodSet


def answer(play: Play, claimant: str, kind: OrderKind, *named: str, attempt: int = 1) -> str:
    """What the accountant says of a proposal that the rules do not make; empty for an order."""
    job, said = play.jobs[claimant], {"cause": Cause(1, 0), "ref": play.jobs[claimant].ref, "attempt": attempt}
    charges = play.bench.states["quota_accountant"].ledger.charges
    victims = tuple(
        Victim(play.jobs[each].ref, 1, charges[play.jobs[each].ref.uid].queue, job.need["full"], 0, 50)
        for each in named
    )
    queue_of = play.bench.states["preemptor"].unplaced[job.ref.uid].job.queue
    pods = play.bench.states["preemptor"].unplaced[job.ref.uid].job.demand.pods
    asked = PreemptionProposed(
        **said,
        queue=queue_of,
        request=job.need["full"],
        pods=pods,
        kind=kind,
        victims=victims,
        short=None,
        priority=50,
        basis=job.basis,
    )
    play.bench.append("preemptor", "decision", [asked])
    stale, before = len(play.bench.happened(PlanStale)), len(play.orders())
    play.bench.step("quota_accountant")
    if len(play.orders()) > before:
        return ""
    return play.bench.happened(PlanStale)[stale].reason


def test_the_room_is_kept_while_the_victim_is_leaving_and_the_job_starts_there() -> None:
    play = halves()
    play.job("big", "a", 2, "build")
    assert play.ordered() == ["y"], "one is enough, and the younger goes"
    assert not play.claims(), "no quota is held for it"
    assert "1 job leaves its nodes to make room for it: default/y" in play.told("big")
    play.suspended("y")
    play.job("thief", "a", 1, "inference")
    assert play.runs()["thief"] == play.runs()["x"], "beside x there is room; what is cleared is kept"
    play.job("late", "a", 1)
    assert "late" not in play.runs() and "big" not in play.runs()
    play.left("y")
    assert play.runs()["big"] != play.runs()["x"]
    assert "make room" not in play.told("big").splitlines()[0]
    assert len(play.ordered()) == 1
    play.bench.sound()


def test_jobs_that_share_a_device_do_not_return_to_it_one_by_one() -> None:
    """Each leaves a part of it, and the job they are evicted for asks for all of it."""
    play = halves(a=12)
    play.bench.facts(nodes.node("gpus", cpu=8, gpu=1), nodes.node("no-cores", cpu=0, gpu=1))
    whole, shares = facts.vector(cpu=1, gpu=1), ("one", "two", "three")
    for name in shares:
        play.shares(name, "a", 250)
    assert all(play.runs()[name] == ["gpus"] for name in shares)
    play.job("owner", "a", 1, "build", pod_sets=(PodSet("main", 1, whole),), need={"ack": whole, "full": whole})
    assert sorted(play.ordered()) == sorted(shares)
    for name in shares:
        play.suspended(name)
    for name in shares:
        play.left(name)
        assert "gpus" not in [at for other in shares for at in play.runs().get(other, ())]
    assert play.runs()["owner"] == ["gpus"]
    play.bench.sound()


def test_a_victim_that_is_owed_itself_does_not_return_to_what_is_kept_for_its_claimant() -> None:
    """It is evicted, and others are evicted for it in turn: it starts where those were, not where it was."""
    play = Play(0, o=9, b=0, c=0)
    of_queues = {"o": (3, -1, 1), "b": (0, -1, 1), "c": (0, -1, 1)}
    play.bench.facts(*(queue(name, gpu=gpu) for name, gpu in of_queues.items()))
    play.bench.facts(*(nodes.node(name, cpu=9, gpu=1) for name in ("n0", "n1", "n2")))
    for name, of, share in SHARED:
        play.shares(name, of, share)
        play.bench.pass_time(1_000)
    play.bench.pass_time(120_000)
    whole = facts.vector(cpu=1, gpu=1)
    play.job("big", "o", 1, pod_sets=(PodSet("main", 1, whole),), need={"ack": whole, "full": whole})
    assert [victim.ref.name for order in play.claims() for victim in order.victims] == ["s7", "s6", "s2"]
    for name in ("s2", "s6", "s7"):
        play.suspended(name)
    for name in ("s2", "s6"):
        play.left(name)
    play.bench.pass_time(1_000)
    play.settle()
    assert [victim.ref.name for victim in play.claims()[-1].victims] == ["s3"], "for s6, which is below its share"
    play.suspended("s3")
    play.left("s3")
    assert play.runs()["s6"] == ["n2"]
    play.left("s7")
    assert play.runs()["big"] == ["n1"]
    assert len(play.claims()) == 2
    play.bench.sound()


SHARED = (
    ("s1", "b", 400), ("s2", "b", 300), ("s3", "b", 400), ("s4", "b", 500), ("s5", "c", 500), ("s6", "c", 300),
    ("s7", "c", 300),
)  # fmt: skip


def test_a_victim_that_cannot_be_suspended_is_not_waited_for() -> None:
    play = halves()
    play.job("big", "a", 2, "build")
    [order] = play.orders()
    [victim] = order.victims
    play.refused(victim.ref.name)
    assert "It runs" in play.told(victim.ref.name).splitlines()[0]
    assert "default/y" not in play.told("big").splitlines()[0]
    play.bench.pass_time(120_000)
    play.settle()
    assert play.ordered() == ["y", "x"], "the other goes in its place"
    play.bench.sound()


@pytest.mark.parametrize("kind", ["move", "guarantee", "priority"])
def test_room_is_kept_for_ten_minutes_from_when_the_last_victim_has_left(kind: str) -> None:
    """However long that takes: one that is slow to stop is not suspended over and over for a job that never starts."""
    of, quota = ("b", {"a": 0, "b": 4}) if kind == "guarantee" else ("a", {"a": 4})
    play = halves(moves=16 * (kind == "move"), **quota)
    play.job("big", of, 2, "build-preemptible" if kind == "priority" else "train")
    play.bench.pass_time(KEPT_MS + 1_000)
    play.suspended("y")
    play.bench.pass_time(KEPT_MS + 1_000)
    play.job("thief", of, 1)
    play.settle()
    assert "thief" not in play.runs() or play.runs()["thief"] == play.runs()["x"]
    play.left("y")
    assert play.runs()["big"] != play.runs()["x"]
    play.bench.pass_time(3_000_000)
    play.settle()
    assert play.ordered() == ["y"]
    play.bench.sound()


def test_after_ten_minutes_nothing_is_kept() -> None:
    play = halves()
    play.job("big", "a", 2, "build")
    play.suspended("y")
    play.bench.facts(nodes.node("n1", cpu=2, schedulable=False))
    play.left("y")
    assert "big" not in play.runs()
    play.bench.pass_time(KEPT_MS - 1_000)
    assert kept_nodes(play) == ["n1"]
    play.bench.pass_time(2_000)
    assert kept_nodes(play) == ["n0"], "the other is cleared now"
    play.bench.sound()


@pytest.mark.parametrize("cores", [1, 2], ids=["for the nodes", "for quota and nodes"])
def test_the_places_are_kept_as_long_as_the_quota_that_is_claimed_with_them(cores: int) -> None:
    """As long as a victim leaves, of another claim, too; and for ten minutes from when the job has its quota."""
    play = halves(a=0, b=4)
    for name in ("x", "y") if cores == 2 else ():
        play.job(f"{name}-beside", "a", 1)
    for name in ("big", "next"):
        play.job(name, "b", 2)
        leave = [each.ref.name for order in play.orders() + play.claims() for each in order.victims]
        for victim in [each for each in leave if each not in play.pods]:
            play.suspended(victim)
    play.bench.paused = frozenset(("queue_sorter",))  # No quota goes to a job that waits.
    for name in [each for each in play.pods if play.at[each] == ["n1"]]:
        play.left(name)
    play.bench.pass_time(2 * KEPT_MS)
    assert "n1" in kept_nodes(play)
    play.bench.paused = frozenset(("gang_admitter",))
    play.settle()
    play.bench.pass_time(KEPT_MS - 1_000)
    assert "n1" in kept_nodes(play)
    play.bench.paused = frozenset()
    play.settle()
    assert play.runs()["big"] == ["n1"]
    play.bench.sound()


@pytest.mark.parametrize("other", ["b", "c"], ids=["of its queue", "of another"])
def test_the_first_to_have_its_quota_has_the_place_that_is_free(other: str) -> None:
    """The job that the victim left for waits for the other victim, for its quota and for its place."""
    play = Play(a=0, b=2 + 2 * (other == "b"), c=2)
    for name in ("x", "y"):
        play.job(name, "a", 2)
        play.bench.pass_time(1_000)
    for name, of, victim in (("first", "b", "y"), ("second", other, "x")):
        play.job(name, of, 2)
        play.suspended(victim)
    play.left("x")
    assert play.runs() == {"first": ["n0"]}
    assert kept_nodes(play) == ["n1"]
    play.left("y")
    assert play.runs() == {"first": ["n0"], "second": ["n1"]}
    assert len(play.claims()) == 2
    play.bench.sound()


def test_an_order_ends_with_the_claim_that_a_job_that_asks_alike_has_served() -> None:
    play = Play(a=0, b=4)
    for name in ("x", "y"):
        play.job(name, "a", 2)
        play.bench.pass_time(1_000)
    play.job("big", "b", 2)
    play.suspended("y")
    play.bench.paused = frozenset(("preemptor",))
    play.job("urgent", "b", 2, "build-preemptible")
    play.left("y")
    assert play.runs()["urgent"] == ["n1"]
    assert [(each.ref.name, each.serves) for each in play.bench.happened(QuotaReserved)][-1:] == [
        ("urgent", play.jobs["big"].ref.uid)
    ]
    assert not play.bench.states["gang_admitter"].orders
    play.bench.sound()


def test_a_job_that_borrows_leaves_the_room_to_one_that_is_owed_it_and_waits_for_nodes() -> None:
    """It has its quota as soon as that is free; the other one has released its own."""
    play = Play(a=0, b=2)
    play.bench.facts(nodes.node("n2", cpu=1))
    for name in ("x", "p", "y", "q", "w"):
        play.job(name, "a", 1)
    for other in ("p", "q"):
        play.ends(other)
    play.bench.paused = frozenset(("preemptor",))
    play.job("owed", "b", 2)
    play.job("borrows", "a", 1, count=3)
    assert sorted(play.runs()) == ["w", "x", "y"]
    assert play.runs()["y"] == ["n0"]
    play.ends("y")
    assert play.runs()["owed"] == ["n0"]
    assert "borrows" not in play.runs()
    play.bench.sound()


def kept_nodes(play: Play) -> list[str]:
    kept = plantrials.in_force(play.bench.states["gang_admitter"])
    return [place.node for _, order in kept for place in order.places]


def test_nobody_waits_longer_than_an_hour_for_a_victim_to_leave() -> None:
    play = halves()
    play.job("big", "a", 2, "build")
    play.suspended("y")
    play.bench.pass_time(LEAVES_WITHIN_MS + 1_000)
    play.settle()
    assert play.ordered() == ["y", "x"], "the other goes in its place"
    play.bench.sound()


def test_a_job_that_is_gone_or_held_meanwhile_keeps_nothing() -> None:
    play = halves()
    play.job("big", "a", 2, "build")
    play.suspended("y")
    play.bench.facts(WorkloadGone(ref=play.jobs["big"].ref, rv=facts.next_rv()))
    play.settle()
    assert not play.bench.states["gang_admitter"].orders
    play.left("y")
    assert "y" in play.runs()
    play.bench.sound()


def test_nobody_is_named_where_nobody_may_go_and_the_stages_fall_quiet() -> None:
    play = halves()
    play.job("big", "a", 2)
    assert not play.bench.happened(PreemptionProposed)
    before = len(play.bench.log)
    play.bench.pass_time(3_600_000)
    assert len(play.bench.log) - before < 5
    play.bench.sound()


def test_what_would_not_do_is_tried_again_only_when_what_runs_has_changed() -> None:
    play = halves()
    play.job("big", "a", 2, "build", count=3)
    assert not play.ordered()
    tries = len(play.bench.happened(PreemptionProposed))
    play.bench.pass_time(3_600_000)
    assert len(play.bench.happened(PreemptionProposed)) == tries
    assert not play.bench.happened(PlanStale)
    play.bench.sound()


def test_victims_give_their_quota_back_and_wait_in_their_old_place() -> None:
    play = halves()
    play.job("big", "a", 2, "build")
    play.suspended("y")
    play.left("y")
    assert [each.reason for each in play.bench.happened(QuotaReleased) if each.ref.name == "y"] == ["preempted"]
    assert play.runs()["y"] == play.runs()["x"], "there is room for it elsewhere"
    play.bench.sound()


def test_the_accountant_judges_what_is_proposed_and_chosen_once_more() -> None:
    within = halves(a=2, b=2)
    within.job("big", "b", 2)
    assert not within.bench.happened(PreemptionProposed), "a is within its quota"
    assert answer(within, "big", "guarantee", "y") == "gives_too_much"
    assert answer(within, "big", "priority", "y") == "gives_too_much", "it is of another queue"
    own = halves()
    own.job("big", "a", 2)
    own.job("firm", "a", 2, "build", count=4)
    assert not own.ordered()


def test_who_gave_its_place_takes_nothing_back() -> None:
    """Shares: b is owed two of four, a keeps two; what was cleared for b is never cleared for a again."""
    play = halves(a=1, b=2)
    play.job("big", "b", 2)
    assert play.ordered() == ["y"]
    play.suspended("y")
    play.left("y")
    assert "big" in play.runs()
    play.job("more", "a", 2)
    play.bench.pass_time(3_600_000)
    assert play.ordered() == ["y"]
    assert not play.claims()
    play.bench.sound()


def told(log: list[Stored], **said: Any) -> list[str]:
    """What is said of a log whose order to clear nodes says something else."""
    found = []
    for stored in log:
        events = tuple(
            replace(each, **said) if isinstance(each, EvictionOrdered) else each for each in stored.commit.events
        )
        found.append(replace(stored, commit=replace(stored.commit, events=events)))
    return [each.detail for each in audit(found).violations if each.invariant == "I19"]


def test_an_order_by_priority_takes_what_is_lower_in_its_own_queue() -> None:
    play = halves()
    play.job("big", "a", 2, "build")
    assert play.ordered() == ["y"]
    log, [order] = play.bench.log, play.orders()
    assert told(log) == []
    [victim] = order.victims
    assert "is evicted for kai/a by guarantee" in told(log, kind="guarantee")[0]
    assert "is evicted for kai/b by priority" in told(log, queue="kai/b")[0]
    assert "without a victim" in told(log, victims=())[0]
    assert "is not charged under attempt 7" in told(log, victims=(replace(victim, attempt=7),))[0]
    assert "does already" in told(log, victims=(victim, victim))[0]
    gone = replace(victim, ref=replace(victim.ref, uid="another"))
    assert "is not charged" in told(log, victims=(gone,))[0]


def test_who_leaves_already_is_not_ordered_to_leave_again() -> None:
    play = halves()
    play.job("big", "a", 2, "build")
    [order] = play.orders()
    at = next(each for each in play.bench.log if order in each.commit.events)
    twice = replace(at, commit=replace(at.commit, events=(*at.commit.events, order)))
    log = [twice if each is at else each for each in play.bench.log]
    assert ["does already" in each for each in told(log)] == [True]


@pytest.mark.parametrize("priority", ["train", "build-preemptible"])
def test_equal_or_higher_priority_does_not_give_way(priority: str) -> None:
    """The victim was queued with a priority of its own; what the order says of it counts for nothing."""
    play = halves()
    play.job("big", "a", 2, "build")
    log = play.bench.log
    lower = {"train": 50, "build-preemptible": 75}[priority]
    assert "is evicted in its own queue" in told(log, priority=lower)[0]
