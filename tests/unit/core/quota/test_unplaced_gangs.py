"""Jobs that kube-scheduler places: how long one keeps its quota that it has no places for, or says nothing about."""

from __future__ import annotations

import pytest

from kit import facts
from kit.scenes import TWO, Scene
from kit.words import in_words
from muster.core.objects.kaiqueue import pod_group_name
from muster.events.base import Cause
from muster.events.decisions import QuotaReleased, SuspensionOrdered
from muster.events.effects import EffectFailed
from muster.events.facts import PodGroupGone, PodGroupObserved
from muster.events.system import PlacementChosen
from muster.model.gang import NATIVE, PodGroup, Verdict
from muster.model.keys import Ref
from muster.model.workload import together

LACKS = Verdict(False, "Unschedulable", "0/3 nodes are available")
FITS = Verdict(True, "Scheduled", "")


class Native(Scene):
    """One job that was resumed for kube-scheduler to place; three of its pods start together."""

    def __init__(self, **rules: str) -> None:
        super().__init__()
        self.bench.append("gang_admitter", "input", [PlacementChosen(mode="native", hold_ms=600_000)])
        self.tree_of(*TWO, **rules)
        self.lines("synced", "job a/one cpu=5", "resumed a/one")
        self.do(facts.cluster("one", "a"))

    @property
    def group(self) -> Ref:
        owner = self.jobs["a/one"].ref
        return Ref(NATIVE, owner.namespace, pod_group_name(owner), "uid-pg-one")

    def says(self, verdict: Verdict | None, attempt: int = 1) -> None:
        owner = self.jobs["a/one"].ref
        found = PodGroup(
            ref=self.group, rv=facts.next_rv(), minimum=3, owner_uid=owner.uid, attempt=attempt, verdict=verdict
        )
        self.do(PodGroupObserved(pod_group=found))

    def pods(self, count: int, node: str = "") -> None:
        self.do(*(facts.pod("one", index, "a", node=node, group=self.group.name) for index in range(count)))

    def passes(self, seconds: int) -> None:
        self.lines(f"time +{seconds}s")

    def refuse(self) -> None:
        """The API server takes no suspension."""
        for stored in self.bench.log:
            for item, event in enumerate(stored.commit.events):
                if isinstance(event, SuspensionOrdered) and (stored.seq, item) not in self.refused:
                    self.refused.append((stored.seq, item))
                    cause = Cause(stored.seq, item)
                    told = EffectFailed(
                        cause=cause, ref=event.ref, attempt=event.attempt, reason="refused", action="suspend"
                    )
                    self.bench.append("actuator", "input", [told])
                    self.settle()

    refused: list[tuple[int, int]]

    @property
    def ordered(self) -> list[tuple[str, str]]:
        return [(each.reason, in_words(each.problem)) for each in self.bench.happened(SuspensionOrdered)]


def test_one_without_places_is_suspended_after_a_moment() -> None:
    found = Native()
    found.says(LACKS)
    found.passes(4)
    assert found.ordered == []
    found.passes(2)
    assert found.ordered == [("unschedulable", "Unschedulable: 0/3 nodes are available")]


def test_a_gang_whose_pods_never_come_is_not_waited_for_for_ever() -> None:
    """kube-scheduler says nothing of a gang before ``minCount`` pods of it are there."""
    found = Native()
    found.says(None)
    found.pods(2)
    found.passes(595)
    assert found.ordered == []
    found.passes(10)
    assert found.ordered == [("unschedulable", "for 600 s 0 of its 2 pods have a node, and 3 start together")]


def test_a_gang_whose_podgroup_was_deleted_is_not_waited_for_for_ever() -> None:
    found = Native()
    found.says(None)
    found.pods(3)
    found.do(PodGroupGone(ref=found.group, rv=facts.next_rv()))
    found.passes(605)
    assert [reason for reason, _ in found.ordered] == ["unschedulable"]


def test_a_gang_whose_podgroup_was_never_seen_is_not_waited_for_for_ever() -> None:
    """It was deleted before our log began: that its pods name it says who is to bind them."""
    found = Native()
    found.pods(2)
    found.passes(605)
    sizes = found.jobs["a/one"].pod_sets
    told = f"for 600 s 0 of its 2 pods have a node, and {together(sizes)} start together"
    assert found.ordered == [("unschedulable", told)]


@pytest.mark.parametrize("verdict", [FITS, None])
def test_what_is_placed_is_left_alone(verdict: Verdict | None) -> None:
    """Its pods have nodes: kube-scheduler may have died before it said so."""
    found = Native()
    found.says(verdict)
    found.pods(3, "n1")
    found.passes(3_600)
    assert found.ordered == []


def test_one_that_loses_its_nodes_before_it_runs_is_not_waited_for_for_ever() -> None:
    """The condition of a PodGroup that said True says so for good."""
    found = Native()
    found.says(FITS)
    found.pods(3, "n1")
    found.passes(900)
    found.do(*(facts.pod_gone("one", index, "a") for index in range(3)))
    found.do(*(facts.pod("one", index, "a", node="", group=found.group.name) for index in (3, 4, 5)))
    found.passes(595)
    assert found.ordered == []
    found.passes(10)
    assert found.ordered == [("unschedulable", "for 600 s 0 of its 3 pods have a node, and 3 start together")]


def test_pods_with_nodes_say_more_than_a_condition_that_nobody_writes_any_more() -> None:
    """kube-scheduler had no places, found some, bound the pods, and died before it could say so."""
    found = Native()
    found.says(LACKS)
    found.pods(3, "n1")
    found.passes(3_600)
    assert found.ordered == []


def test_some_pods_with_nodes_are_no_gang() -> None:
    found = Native()
    found.says(LACKS)
    found.pods(2, "n1")
    found.passes(10)
    assert [reason for reason, _ in found.ordered] == ["unschedulable"]


@pytest.mark.parametrize("verdict", [LACKS, FITS])
def test_a_podgroup_that_says_its_attempt_no_more_still_speaks_of_its_job(verdict: Verdict) -> None:
    """Anybody with the right to change it may remove the annotation."""
    found = Native()
    found.says(LACKS)
    found.says(verdict, attempt=0)
    found.passes(30)
    assert len(found.ordered) == (not verdict.scheduled)


def test_one_of_another_attempt_does_not() -> None:
    found = Native()
    found.says(LACKS, attempt=7)
    found.passes(30)
    assert found.ordered == []


@pytest.mark.parametrize("left", [0, 1])
def test_one_that_runs_is_left_alone(left: int) -> None:
    """Its controller decides what lost pods mean, and may have none of them for five minutes (`start-timeout`)."""
    found = Native()
    found.says(FITS)
    found.pods(3, "n1")
    found.lines("runs a/one")
    found.do(*(facts.pod_gone("one", index, "a") for index in range(left, 3)))
    found.passes(3_600 if left else 299)
    assert found.ordered == []


@pytest.mark.parametrize("verdict", [FITS, LACKS])
def test_one_that_has_run_and_of_which_none_has_a_node_any_more_is_not_waited_for_for_ever(verdict: Verdict) -> None:
    """Of a Job with fewer pods left than ``minCount``, or after the loss of its nodes: new pods wait for good."""
    found = Native()
    found.says(verdict)
    found.pods(3, "n1")
    found.lines("runs a/one")
    found.do(*(facts.pod_gone("one", index, "a") for index in range(3)))
    found.do(facts.pod("one", 7, "a", node="", group=found.group.name))
    found.passes(595)
    assert found.ordered == []
    found.passes(10)
    assert found.ordered == [("unschedulable", "for 600 s 0 of its 1 pods have a node, and 3 start together")]


@pytest.mark.parametrize("why", ["unschedulable", "running_timeout"])
def test_a_refused_suspension_is_not_ordered_over_and_over(why: str) -> None:
    found = Native(**({"running_timeout": "1m"} if why == "running_timeout" else {"start_timeout": "0"}))
    found.refused = []
    if why == "unschedulable":
        found.says(LACKS)
    for _ in range(120):
        found.passes(60)
        for _ in range(20):
            found.refuse()
    assert {reason for reason, _ in found.ordered} == {why}
    assert 2 <= len(found.ordered) <= 5  # after 10, 20 and 40 minutes
    assert found.bench.happened(QuotaReleased) == []
