"""Jobs that cannot be read for a while: their attempts go on counting, and nothing is proposed in vain."""

from __future__ import annotations

from kit import facts
from kit.bench import Bench
from kit.scenes import Scene
from kit.words import odd
from muster.events.decisions import GangAdmitted, WorkloadQueued
from muster.events.facts import ObjectUnreadable
from muster.model.workload import Workload


def unreadable(job: Workload) -> ObjectUnreadable:
    return ObjectUnreadable(ref=job.ref, rv=facts.next_rv(), problem=odd("spec.rayClusterSpec: expected object"))


def test_a_proposed_job_that_could_not_be_read_for_a_moment_is_answered() -> None:
    """Both facts lie between its proposal and the answer."""
    bench = Bench()
    bench.facts(facts.tree())
    bench.synced()
    bench.settle()
    job = facts.job("one", cpu=8)
    bench.facts(facts.seen(job))
    bench.step("queue_sorter")
    bench.facts(unreadable(job), facts.seen(job, rv=facts.next_rv()))
    decided = bench.settle()
    assert [event.attempt for event in decided if isinstance(event, GangAdmitted)] == [1]
    bench.sound()


def test_no_attempt_comes_twice() -> None:
    """A job that ran under its first attempt, could not be read, and is suspended: it is queued under its second."""
    scene = Scene()
    scene.lines("tree", "synced", "job one cpu=8")
    scene.runs("one")
    scene.do(unreadable(scene.jobs["one"]))
    scene.change("one", rv=facts.next_rv())
    scene.lines("suspends one", "settles one")
    queued = [e.attempt for s in scene.bench.log for e in s.commit.events if isinstance(e, WorkloadQueued)]
    assert queued == [1, 2]
    scene.bench.sound()


def test_a_rule_that_says_what_holds_anyway_is_encoded_as_none() -> None:
    """An encoding leaves out defaults: a text that is equal to one, and another object, must not make a difference."""
    for rules in ({"order": "share"}, {"start-timeout": "5m", "order": "share", "reclaim": "enabled"}):
        bench = Bench()
        bench.facts(facts.tree(rules=rules))
        bench.synced()
        bench.settle()
        bench.sound()
