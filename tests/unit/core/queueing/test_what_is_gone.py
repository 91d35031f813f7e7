"""What is gone leaves nothing behind: classes, Queue objects, jobs; and what a Queue may not say is refused."""

from __future__ import annotations

import json
from random import Random

import msgspec
import pytest
from msgspec.structs import replace

from kit import facts
from kit.bench import Bench
from kit.chaos import Chaos
from kit.words import in_words
from muster.core.objects.meta import UnreadableError
from muster.core.observed import seen
from muster.core.observed.seen import TOMBSTONE_MS, Seen
from muster.core.queueing.queueorder import share
from muster.core.reading.kubequeue import read_queue
from muster.events.decisions import QuotaReleased, QuotaTreeRemoved, WorkloadDequeued, WorkloadQueued
from muster.events.facts import (
    PriorityClassObserved,
    QueueGone,
    QueueObserved,
    QueueUnitGone,
    QueueUnitObserved,
)
from muster.model.keys import Ref


def a_class(name: str, value: int, *, default: bool) -> PriorityClassObserved:
    ref = Ref("PriorityClass", "", name, f"class-{name}")
    return PriorityClassObserved(ref=ref, rv=facts.next_rv(), value=value, is_default=default)


def a_queue(path: str, name: str = "q", **says: object) -> QueueObserved:
    return QueueObserved(ref=Ref("Queue", "kube-queue", name, f"queue-{name}"), rv=facts.next_rv(), path=path, **says)


def started() -> Bench:
    bench = Bench()
    bench.facts(facts.tree())
    bench.synced()
    bench.settle()
    return bench


def queued(bench: Bench, name: str) -> WorkloadQueued:
    bench.facts(facts.seen(facts.job(name)))
    return next(event for event in bench.settle() if isinstance(event, WorkloadQueued) and event.ref.name == name)


@pytest.mark.parametrize("waits", [True, False])
def test_a_job_on_its_way_out_is_not_queued(waits: bool) -> None:
    """Its finalizers keep the object: once it has left the queue, nothing of it is queued again."""
    bench = started()
    job = facts.job("one")
    if waits:
        bench.facts(facts.seen(job))
        bench.settle()
    for generation in (2, 3):
        going = replace(job, deleting=True, generation=generation, rv=facts.next_rv())
        bench.facts(facts.seen(going))
        bench.settle()
    assert len(bench.happened(WorkloadQueued)) == int(waits)
    gone = bench.happened(WorkloadDequeued) + bench.happened(QuotaReleased)
    assert [event.reason for event in gone] == ["gone"] * int(waits)


def test_a_class_that_stops_being_the_default_is_none() -> None:
    bench = started()
    bench.facts(a_class("high", 100, default=True))
    assert queued(bench, "one").priority == 100
    bench.facts(a_class("high", 100, default=False))
    assert queued(bench, "two").priority == 0


def test_of_two_defaults_the_lower_counts_as_in_kubernetes() -> None:
    bench = started()
    bench.facts(a_class("high", 100, default=True), a_class("low", 5, default=True))
    assert queued(bench, "one").priority == 5


def test_a_queue_object_that_is_given_another_path_leaves_the_old_one_alone() -> None:
    bench = started()
    bench.facts(a_queue("root/algorithm/video", paused=("admissions",), priority=7, policy="Block"))
    bench.facts(facts.seen(facts.job("one")))
    bench.settle()
    assert not bench.states["quota_accountant"].entries
    bench.facts(a_queue("root/devops", paused=("admissions",), priority=7, policy="Block"))
    bench.settle()
    assert bench.states["quota_accountant"].entries
    state = bench.states["queue_sorter"]
    for told in (state.queues.paused, state.queues.policies, state.queues.queue_priorities, state.queues.pauses):
        assert list(told) == ["root/devops"]
    assert list(bench.states["preemptor"].shown_pauses) == ["root/devops"]


def test_of_two_queue_objects_of_one_path_the_other_goes_on_when_one_is_gone() -> None:
    bench = started()
    path = "root/algorithm/video"
    bench.facts(a_queue(path, "a", priority=7), a_queue(path, "b", priority=3))
    assert bench.states["queue_sorter"].queues.queue_priorities == {path: 7}
    bench.facts(QueueGone(ref=Ref("Queue", "kube-queue", "a", "queue-a"), rv=facts.next_rv()))
    assert bench.states["queue_sorter"].queues.queue_priorities == {path: 3}


@pytest.mark.parametrize("policy", ["Rond", "block", "FIFO", "Intelligent"])
def test_a_policy_that_is_none_is_refused_with_those_there_are(policy: str) -> None:
    raw = {"metadata": {"name": "q", "uid": "u", "resourceVersion": "1"}, "spec": {"queuePolicy": policy}}
    with pytest.raises(UnreadableError) as err:
        read_queue(json.dumps(raw).encode())
    assert (
        in_words(err.value.problem)
        == f"spec.queuePolicy: '{policy}' is not a policy; write one of Round, Priority, Block"
    )


BOUNDED = {"docket"}
"""What later observations of a shard may build on: the newest few, whether they are gone or not (core.abridging)."""


@pytest.mark.parametrize("seed", range(60))
def test_no_stage_remembers_what_is_gone(seed: int) -> None:
    chaos = Chaos(Random(seed))
    chaos.run()
    bench = chaos.bench
    units = []
    for job in chaos.jobs.values():
        ref = Ref("QueueUnit", job.ref.namespace, f"{job.ref.name}-ray-qu", f"unit-{job.ref.uid}")
        units.append(ref)
        bench.facts(QueueUnitObserved(ref=ref, rv=facts.next_rv(), owner_uid=job.ref.uid, priority=3))
    bench.settle()
    for name, job in list(chaos.jobs.items()):
        chaos._cluster_gone(name, job)
        chaos.pending.append(facts.gone(name, job.ref.namespace))
    bench.facts(*chaos.pending)
    bench.facts(*(QueueUnitGone(ref=ref, rv=facts.next_rv()) for ref in units))
    bench.settle()
    bench.pass_time(TOMBSTONE_MS + 3_600_000)
    bench.facts(facts.seen(facts.job("last")))
    bench.settle()
    for _ in range(2):  # the first end clears what ended before it
        bench.facts(facts.gone("last"), facts.cluster("last"), facts.cluster_gone("last"))
        bench.facts(QueueUnitGone(ref=Ref("QueueUnit", "video", "last", f"unit-last-{_}"), rv=facts.next_rv()))
        bench.settle()
        bench.pass_time(1)
    left = {
        name: [
            key
            for key in set(state.__struct_fields__) - BOUNDED
            if b"-job-" in msgspec.json.encode(getattr(state, key))
        ]
        for name, state in bench.states.items()
    }
    assert {name: fields for name, fields in left.items() if fields} == {}


def test_a_tree_that_is_gone_is_forgotten_with_its_cause_whether_it_was_in_force_or_not() -> None:
    """Also one whose acceptance is stored after its end: it is taken out of force, and forgotten then."""
    bench = started()
    bench.facts(facts.tree(name="second"))
    bench.settle()
    bench.facts(facts.tree_gone("second"))
    elastic = bench.states["quota_accountant"].forest.elastic
    assert [*elastic.causes] == [*elastic.trees] and len(elastic.trees) == 1
    bench.facts(facts.tree_gone())
    bench.settle()
    bench.facts(facts.tree(name="third"))
    decided, at = bench.seats["quota_accountant"].decisions(), bench.seq
    bench.facts(facts.tree_gone("third"))
    bench.late("quota_accountant", decided, at)
    bench.settle()
    assert [event.ref.name for event in bench.happened(QuotaTreeRemoved)] == ["elasticquotatree", "third"]
    assert not elastic.causes and not elastic.trees
    bench.sound()


def test_what_a_tree_promises_to_nobody_puts_no_queue_behind() -> None:
    """Two leaves with a min of GPUs; one of them uses much of a resource that only has a max."""
    leaves = tuple(facts.node(name, {"gpu": 4}, {"gpu": 8, "cpu": 100}, (name,)) for name in ("a", "b"))
    bench = Bench()
    whole = {"gpu": 8, "cpu": 100}
    bench.facts(facts.tree(facts.node("root", whole, whole, children=leaves)))
    bench.synced()
    bench.settle()
    bench.facts(facts.seen(facts.job("one", "a", cpu=90, gpu=1)), facts.seen(facts.job("two", "b", cpu=1, gpu=2)))
    bench.settle()
    ledger = bench.states["queue_sorter"].queues.ledger
    assert (share(ledger, "root/a"), share(ledger, "root/b")) == (250_000, 500_000)


def test_of_queues_without_a_min_the_one_that_uses_less_comes_first() -> None:
    leaves = tuple(facts.node(name, {}, {"cpu": 100}, (name,)) for name in ("a", "b"))
    bench = Bench()
    owner = facts.node("c", {"cpu": 10}, {"cpu": 100}, ("c",))
    bench.facts(facts.tree(facts.node("root", {"cpu": 100}, {"cpu": 100}, children=(*leaves, owner))))
    bench.synced()
    bench.settle()
    bench.facts(facts.seen(facts.job("one", "a", cpu=60)), facts.seen(facts.job("two", "b", cpu=20)))
    bench.settle()
    ledger = bench.states["queue_sorter"].queues.ledger
    assert share(ledger, "root/b") < share(ledger, "root/a")
    assert share(ledger, "root/c") == 0


def test_what_was_forgotten_is_not_passed_again_at_each_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """To find the first of a table, Python passes every place at its beginning that is free by now."""
    monkeypatch.setattr(seen, "HOLES", 8)
    known, minute = Seen(), TOMBSTONE_MS // 15
    for index in range(100):
        assert known.end(QueueGone(ref=Ref("Queue", "", f"q{index}", f"uid-{index}"), rv=1), index * minute)
        assert [*known.ended] == [f"uid-{each}" for each in range(max(0, index - 15), index + 1)]
        assert known.holes < 8
