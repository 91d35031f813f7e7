"""A hold or a pause that comes between a reservation and its admission stops it, and pauses of two objects add up."""

from __future__ import annotations

import pytest

from kit import facts
from kit.bench import Bench
from muster.events.decisions import GangAdmitted, QuotaReleased, QuotaReserved
from muster.events.facts import QueueGone, QueueObserved
from muster.events.system import PlacementChosen
from muster.model.keys import Ref
from muster.model.workload import Wishes, Workload

VIDEO = "root/algorithm/video"
HELD = Wishes(hold=True, by="ann")


def started(*, placement: bool = False) -> Bench:
    bench = Bench()
    if placement:
        bench.append("gang_admitter", "input", [PlacementChosen(mode="pack", grow_ms=10**9)])
    bench.facts(facts.tree())
    bench.synced()
    bench.settle()
    return bench


def a_queue(name: str, *paused: str, path: str = VIDEO) -> QueueObserved:
    ref = Ref("Queue", "kube-queue", name, f"queue-{name}")
    return QueueObserved(ref=ref, rv=facts.next_rv(), path=path, paused=paused)


def proposed(bench: Bench) -> Workload:
    job = facts.job("one", cpu=8)
    bench.facts(facts.seen(job))
    bench.step("queue_sorter")
    return job


def stop(bench: Bench, job: Workload, by: str) -> None:
    if by == "hold":
        bench.facts(facts.seen(job, wishes=HELD))
    elif by == "queue":
        bench.facts(a_queue("q", "admissions"))
    else:
        bench.facts(facts.tree(rules={"paused": "admissions"}))
        bench.step("quota_accountant")  # the tree with the pause is in force


def go(bench: Bench, job: Workload, by: str) -> None:
    if by == "hold":
        bench.facts(facts.seen(job, wishes=Wishes(), rv=facts.next_rv()))
    elif by == "queue":
        bench.facts(a_queue("q"))
    else:
        bench.facts(facts.tree())


@pytest.mark.parametrize("by", ["hold", "queue", "tree"])
@pytest.mark.parametrize("when", ["proposed", "reserved", "awaiting_nodes"])
def test_who_is_held_or_paused_before_its_admission_is_not_admitted(by: str, when: str) -> None:
    bench = started(placement=when == "awaiting_nodes")
    job = proposed(bench)
    if when == "reserved":
        bench.step("quota_accountant")
        assert bench.happened(QuotaReserved)
    elif when == "awaiting_nodes":
        bench.settle()
        assert bench.happened(QuotaReserved)
        assert not bench.happened(QuotaReleased)
    stop(bench, job, by)
    bench.settle()
    assert not bench.happened(GangAdmitted)
    assert not bench.states["quota_accountant"].ledger.charges, "and it keeps no quota from others"
    bench.pass_time(600_000)
    before = len(bench.log)
    bench.pass_time(600_000)
    assert len(bench.log) == before, "the stages are at rest"
    go(bench, job, by)
    bench.settle()
    assert len(bench.happened(GangAdmitted)) == (0 if when == "awaiting_nodes" else 1)
    assert bench.states["quota_accountant"].ledger.charges
    bench.sound()


def test_a_hold_after_the_admission_comes_too_late_and_changes_nothing() -> None:
    bench = started()
    job = proposed(bench)
    bench.settle()
    bench.facts(facts.seen(job, wishes=HELD))
    bench.settle()
    assert len(bench.happened(GangAdmitted)) == 1
    assert job.ref.uid in bench.states["quota_accountant"].ledger.charges
    bench.sound()


def test_pauses_of_two_queue_objects_of_one_path_add_up_for_every_stage() -> None:
    bench = started()
    bench.facts(a_queue("a", "admissions"), a_queue("b", "evictions"))
    both = ("admissions", "evictions")
    sorter, accountant = bench.states["queue_sorter"], bench.states["quota_accountant"]
    assert sorter.queues.resting(VIDEO) == accountant.resting(VIDEO) == both
    bench.facts(a_queue("b"))
    assert sorter.queues.resting(VIDEO) == accountant.resting(VIDEO) == ("admissions",)
    bench.facts(QueueGone(ref=Ref("Queue", "kube-queue", "a", "queue-a"), rv=facts.next_rv()))
    assert sorter.queues.resting(VIDEO) == accountant.resting(VIDEO) == ()
    bench.facts(a_queue("b", "evictions"))
    bench.facts(a_queue("c", "admissions", path="root/devops"))
    assert sorter.queues.resting(VIDEO) == accountant.resting(VIDEO) == ("evictions",)
    assert bench.states["preemptor"].queues.resting("root/devops") == ("admissions",)
    bench.sound()
