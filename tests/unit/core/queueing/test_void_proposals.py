"""What comes between a proposal and its answer: a moved namespace, a moved job, an edit, a write of a controller."""

from __future__ import annotations

from typing import Any

import pytest

from kit import facts, nodes
from kit.bench import Bench
from muster.core.actuation.orders import said
from muster.events.base import Cause, Event
from muster.events.decisions import (
    CandidatesProposed,
    GangAdmitted,
    GangDeferred,
    QuotaMoved,
    QuotaReleased,
    QuotaReserved,
    SuspensionOrdered,
    WorkloadQueued,
)
from muster.events.effects import EffectApplied, EffectFailed
from muster.events.facts import QuotaTreeObserved
from muster.events.system import PlacementChosen
from muster.model.workload import PodSet, Workload

NAMED = "quota.scheduling.alibabacloud.com/name"


def two_leaves(a: tuple[str, ...] = ("video",), b: tuple[str, ...] = (), **rules: str) -> QuotaTreeObserved:
    """Leaves a and b of 10 cpu each; nothing is wrong with a leaf of no namespace."""
    leaves = (facts.node("a", {"cpu": 4}, {"cpu": 10}, a), facts.node("b", {"cpu": 4}, {"cpu": 10}, b))
    tree = facts.node("root", {"cpu": 20}, {"cpu": 20}, children=leaves)
    return facts.tree(tree, rules={name.replace("_", "-"): text for name, text in rules.items()})


def started(**rules: str) -> Bench:
    bench = Bench()
    bench.facts(two_leaves(**rules))
    bench.synced()
    bench.settle()
    return bench


def of(kind: type[Event], decided: list[Event]) -> list[Event]:
    return [event for event in decided if isinstance(event, kind)]


def leaf(bench: Bench, job: Workload) -> str:
    return bench.states["quota_accountant"].ledger.charges[job.ref.uid].queue


def resumed(bench: Bench, job: Workload, decided: list[Event], **changes: object) -> Workload:
    """The actuator has resumed an admitted job, and it runs as it is seen with the changes."""
    admitted = of(GangAdmitted, decided)[-1]
    seq = next(stored.seq for stored in reversed(bench.log) if admitted in stored.commit.events)
    item = bench.log[seq - 1].commit.events.index(admitted)
    rv = facts.next_rv()
    effect = EffectApplied(cause=Cause(seq, item), ref=job.ref, attempt=admitted.attempt, rv=rv)
    bench.append("actuator", "input", [effect])
    fact = facts.seen(
        job, rv=rv, suspended=False, settled=False, phase="starting", generation=job.generation + 1, **changes
    )
    bench.facts(fact)
    return fact.workload


def test_a_namespace_that_moves_takes_a_proposal_in_flight_along() -> None:
    bench = started()
    job = facts.job("one", cpu=8)
    bench.facts(facts.seen(job))
    bench.step("queue_sorter")  # queued at and proposed for a
    bench.facts(two_leaves(a=(), b=("video",)))
    bench.settle()
    assert leaf(bench, job) == "root/b"
    bench.sound()


def test_a_job_that_moves_takes_a_proposal_in_flight_along() -> None:
    bench = started()
    job = facts.job("one", cpu=8)
    bench.facts(facts.seen(job))
    bench.step("queue_sorter")
    bench.facts(facts.seen(job, labels={NAMED: "b"}))
    bench.settle()
    assert leaf(bench, job) == "root/b"
    bench.sound()


def test_the_room_of_the_leaf_it_left_is_free_for_others() -> None:
    bench = started()
    job, other = facts.job("one", cpu=8), facts.job("two", cpu=8)
    bench.facts(facts.seen(job))
    bench.step("queue_sorter")
    bench.facts(facts.seen(job, labels={NAMED: "b"}), facts.seen(other))
    bench.settle()
    assert (leaf(bench, job), leaf(bench, other)) == ("root/b", "root/a")
    bench.sound()


def test_a_job_that_moves_after_its_admission_is_charged_to_the_leaf_it_moved_to() -> None:
    bench = started()
    job = facts.job("one", cpu=8)
    bench.facts(facts.seen(job))
    running = resumed(bench, job, bench.settle())
    bench.facts(facts.seen(running, labels={NAMED: "b"}))
    decided = bench.settle()
    assert [(event.before, event.queue) for event in of(QuotaMoved, decided)] == [("root/a", "root/b")]
    assert leaf(bench, job) == "root/b"
    bench.facts(facts.seen(facts.job("two", cpu=8)))
    bench.settle()
    assert bench.states["quota_accountant"].ledger.charges.keys() == {job.ref.uid, facts.job_ref("two").uid}
    bench.sound()


def test_a_job_that_moves_between_its_admission_and_its_start_follows() -> None:
    bench = started()
    job = facts.job("one", cpu=8)
    bench.facts(facts.seen(job))
    decided = bench.settle()
    moved = facts.seen(job, labels={NAMED: "b"})
    bench.facts(moved)
    decided += bench.settle()
    resumed(bench, moved.workload, decided)
    bench.settle()
    assert leaf(bench, job) == "root/b"
    bench.sound()


def test_a_job_held_while_it_is_proposed_is_not_let_in() -> None:
    bench = started()
    job = facts.job("one", cpu=8)
    bench.facts(facts.seen(job))
    bench.step("queue_sorter")
    held = facts.seen(job, wishes=job.wishes.__class__(hold=True, by="ann"))
    bench.facts(held)
    decided = bench.settle()
    assert not of(QuotaReserved, decided)
    bench.sound()


def test_a_controller_that_only_raises_the_generation_costs_no_place() -> None:
    """KubeRay's operator writes empty objects into every new RayJob, and its generation grows."""
    bench = started()
    job = facts.job("one", cpu=8)
    bench.facts(facts.seen(job))
    decided = bench.step("queue_sorter")
    bench.facts(facts.seen(job, generation=2))
    decided += bench.settle()
    assert [event.attempt for event in of(WorkloadQueued, decided)] == [1]
    assert [event.attempt for event in of(GangAdmitted, decided)] == [1]
    bench.sound()


def test_an_edit_of_what_was_decided_on_is_a_new_attempt_though_the_request_stays() -> None:
    bench = started()
    job = facts.job("one", cpu=8)
    bench.facts(facts.seen(job))
    bench.step("queue_sorter")
    bench.facts(facts.seen(job, generation=2, pod_sets=job.pod_sets[:1]))
    decided = bench.settle()
    assert [event.attempt for event in of(GangAdmitted, decided)] == [2]
    bench.sound()


@pytest.mark.parametrize("edit", ["pods", "tree", "profile"])
def test_a_job_that_timed_out_is_not_proposed_before_its_pause_is_over(edit: str) -> None:
    bench = started(running_timeout="5s", backoff="60s")
    job = facts.job("one", cpu=8)
    bench.facts(facts.seen(job))
    decided = bench.settle()
    edited = facts.seen(job, generation=2, pod_sets=job.pod_sets[:1])
    bench.facts(edited)
    decided += bench.settle()  # under a newer attempt now, and still charged under the first
    running = resumed(bench, edited.workload, [event for event in decided if isinstance(event, GangAdmitted)])
    bench.settle()
    ordered = of(SuspensionOrdered, bench.pass_time(5_000))
    assert len(ordered) == 1
    rv = facts.next_rv()
    bench.append(
        "actuator", "input", [EffectApplied(cause=Cause(1, 0), ref=job.ref, attempt=1, rv=rv, action="suspend")]
    )
    changes = {"pods": {"pod_sets": job.pod_sets}, "tree": {}, "profile": {}}[edit]
    back = facts.seen(running, rv=rv + 1, suspended=True, phase="waiting", settled=True, generation=4, **changes)
    for _ in range(2):
        facts.next_rv()
    bench.facts(back)
    if edit == "tree":
        bench.facts(two_leaves(a=(), b=("video",), running_timeout="5s", backoff="60s"))
    elif edit == "profile":
        tree = two_leaves(running_timeout="5s", backoff="60s")
        bench.facts(tree.__class__(**{**{f: getattr(tree, f) for f in tree.__struct_fields__}, "profile": "full"}))
    decided = bench.settle()
    assert len(of(QuotaReleased, decided)) == 1
    assert not of(CandidatesProposed, decided)
    later = bench.pass_time(60_000)
    assert len(of(QuotaReserved, later)) == 1
    bench.sound()


def test_others_are_tried_before_an_edited_job_that_rests():
    """It could not be resumed, and was edited before its quota came back. One that came later does not rest."""
    bench = started()
    job = facts.job("first", cpu=8)
    bench.facts(facts.seen(job))
    (admitted,) = of(GangAdmitted, bench.settle())
    cause = Cause(len(bench.log), 0)
    failed = EffectFailed(cause=cause, ref=admitted.ref, attempt=1, reason="refused", problem=said("no"))
    bench.append("actuator", "input", [failed])
    bench.facts(facts.seen(job, generation=2, **asking(2)))
    assert of(WorkloadQueued, bench.step("queue_sorter"))
    assert of(QuotaReleased, bench.step("quota_accountant"))
    bench.facts(facts.seen(facts.job("second", created=5, **asking(2))))
    assert [event.ref.name for event in of(GangAdmitted, bench.settle())] == ["second"]
    assert [event.ref.name for event in of(GangAdmitted, bench.pass_time(60_000))] == ["first"]
    bench.sound()


def asking(cpu: int) -> dict[str, Any]:
    need = facts.vector(cpu=cpu)
    return {"need": {"ack": need, "full": need}, "pod_sets": (PodSet("main", 1, need),)}


def test_a_job_that_is_edited_while_it_waits_for_nodes_is_tried_as_it_is_now():
    """It found no nodes, and was edited before its quota came back: what it asks for now has not been refused."""
    bench = started()
    bench.append("gang_admitter", "input", [PlacementChosen(mode="pack")])
    bench.facts(nodes.node("n", cpu=4))
    asks = asking(2)
    job = facts.job("first", cpu=8, pod_sets=(PodSet("main", 1, facts.vector(cpu=8)),))
    bench.facts(facts.seen(job))
    bench.step("queue_sorter")
    assert of(QuotaReserved, bench.step("quota_accountant"))
    assert of(GangDeferred, bench.step("gang_admitter"))
    bench.facts(facts.seen(job, generation=2, **asks))
    assert of(WorkloadQueued, bench.step("queue_sorter"))
    assert of(QuotaReleased, bench.step("quota_accountant"))
    bench.facts(facts.seen(facts.job("second", created=5, **asks)))
    assert [event.ref.name for event in of(GangAdmitted, bench.settle())] == ["first", "second"]
    bench.sound()
