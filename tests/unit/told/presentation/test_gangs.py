"""What users see of gangs of pods: Events in the documents' form, PodGroups, and the condition nodes are added for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kit import facts
from kit.words import told as as_told
from muster.core.gang import declare, podgangs
from muster.core.gang.podgangs import PodGangs
from muster.core.stage import Folder
from muster.events.base import Cause, Event
from muster.events.envelope import Commit, Stored
from muster.events.facts import PodGone, PodGroupGone, PodGroupObserved, PodObserved
from muster.events.gangs import GangHeldBack, HeldBackReason, PodPlace, PodsPlaced
from muster.events.system import Genesis
from muster.model import api
from muster.model.gang import PodGroup
from muster.model.keys import Ref
from muster.model.places import Obstacle, Shortage
from muster.model.workload import PodState
from muster.told.presentation import gangnotes
from muster.told.presentation.gangnotes import GangNote
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState
from muster.told.wording import reasons

SIGS, X_K8S = api.POD_GROUPS
GANG = "video/train"
SHORT = Shortage("worker", 0, 3, 3, (Obstacle("insufficient", 3, "cpu"),))
LABELS = {"pod-group.scheduling.sigs.k8s.io/name": "train", "pod-group.scheduling.sigs.k8s.io/min-available": "3"}


class Sight:
    """A view that is fed events one by one."""

    def __init__(self) -> None:
        self.view = ReadModel()
        self.folder = Folder(self.view)
        self.state: ReadState = self.view.initial()
        self.seq = 0
        self.now = 1_736_472_984_000
        self.add(Genesis(log_id="x", generation=1))

    def add(self, *events: Event) -> None:
        self.seq += 1
        self.now += 1000
        stage = "genesis" if self.seq == 1 else "watcher"
        commit = Commit(
            commit_id=f"c-{self.seq}",
            stage=stage,
            shard="0",
            kind="input",
            at=self.now,
            epoch=0,
            in_seq=self.seq - 1,
            events=tuple(events),
        )
        self.folder.fold(self.state, Stored(self.seq, commit))

    def pods(self, *names: str, labels: dict[str, str] | None = None, **known: Any) -> None:
        for name in names:
            options: dict[str, Any] = {"scheduler": "muster", "labels": LABELS if labels is None else labels, **known}
            self.add(PodObserved(pod=PodState(ref=ref(name), rv=facts.next_rv(), **options)))

    def gone(self, *names: str) -> None:
        for name in names:
            self.add(PodGone(ref=ref(name), rv=facts.next_rv()))

    def held(self, reason: HeldBackReason, *names: str, **known: Any) -> None:
        options: dict[str, Any] = {"cycle": 1, "waiting": len(names), "minimum": 3, **known}
        self.add(
            GangHeldBack(
                cause=Cause(1, 0), gang=GANG, reason=reason, pods=tuple(ref(name) for name in names), **options
            )
        )

    def pod_group(self, resource: api.ApiResource = X_K8S, **known: Any) -> None:
        known = {"minimum": 3, **known}
        kind = f"PodGroup.{resource.group}"
        found = PodGroup(ref=Ref(kind, "video", "train", f"uid-{resource.group}"), rv=facts.next_rv(), **known)
        self.add(PodGroupObserved(pod_group=found))

    def events(self) -> list[tuple[str, str, str, int]]:
        """(object, reason, message, count)"""
        return [_shown(each) for each in gangnotes.gang_events(self.state, GANG)]

    def names(self) -> list[str]:
        return [each.note.name for each in gangnotes.gang_events(self.state, GANG)]

    def status(self, home: api.ApiResource | None = X_K8S) -> dict[str, Any]:
        [wanted] = gangnotes.pod_groups(self.state, GANG, home)
        return wanted.status


def _shown(each: GangNote) -> tuple[str, str, str, int]:
    note = each.note
    return f"{note.ref.kind}/{note.ref.name}", note.reason, note.message, each.count


def ref(name: str) -> Ref:
    return Ref("Pod", "video", name, f"uid-{name}")


@pytest.fixture
def sight() -> Sight:
    made = Sight()
    made.pods("a", "b", "c")
    return made


def test_every_tried_pod_is_told_as_the_documents_do_in_its_first_two_rounds(sight: Sight) -> None:
    words = "in gang failed to be scheduled in cycle {}: 0/3 nodes are available: 3 Insufficient cpu"
    sight.held("no_nodes", "a", "b", "c", shortage=SHORT)
    told = sight.events()
    assert told == [(f"Pod/{name}", "GangFailedScheduling", f"{name} {words.format(1)}", 0) for name in "abc"]
    first = sight.names()
    sight.held("timed_out", "a", "b", "c", shortage=SHORT)
    assert sight.names() == first, "one Event per pod and round, however often it is told"
    sight.held("no_nodes", "a", "b", "c", shortage=SHORT, cycle=2)
    assert [message for _, _, message, _ in sight.events()] == [f"{name} {words.format(2)}" for name in "abc"]
    assert not {*sight.names()} & {*first}


def test_later_rounds_are_one_event_that_counts(sight: Sight) -> None:
    found = []
    for cycle in (3, 4):
        sight.held("no_nodes", "a", "b", "c", shortage=SHORT, cycle=cycle)
        [(on, reason, message, count)] = sight.events()
        assert (on, reason, count) == ("Pod/a", "GangFailedScheduling", cycle - 2)
        assert message.startswith(f"{GANG}: 3 pods in gang failed to be scheduled in cycle {cycle}: 0/3 nodes")
        found += sight.names()
    assert found[0] == found[1]
    sight.pod_group()
    assert sight.events()[0][0] == "PodGroup/train"


def test_a_gang_that_gives_way_and_one_that_starves(sight: Sight) -> None:
    sight.held("gave_way", "a", by="video/other")
    words = "in gang failed to be scheduled in cycle 1: rejected by podgroup video/other"
    assert sight.events() == [("Pod/a", "GangFailedScheduling", f"a {words}", 0)]
    sight.held("starved", "a", by="video/other")
    (_, reason, message, _), *_ = sight.events()
    assert reason == "GangStarved"
    assert "20 minutes (video/other)" in message


def test_a_gang_that_has_lost_a_part_is_told_how_much_of_it_is_left(sight: Sight) -> None:
    """Two are bound, and the third has lost its node before it was: nobody unbinds the two."""
    sight.pods("a", "b", node="n")
    sight.held("no_nodes", "c", shortage=SHORT, minimum=0)
    [(on, reason, message, _)] = sight.events()
    assert (on, reason) == ("Pod/c", "GangFailedScheduling")
    assert message.endswith(
        "; 2 of its pods have a node and it needs 3: they stay, and the others are placed as soon as there is room"
    )
    sight.held("bind_refused", "c", problem=as_told("video/c: a policy says no"), cycle=0)
    assert "2 of its pods have a node and it needs 3" in sight.events()[0][2]
    sight.pods("a", node="n", over=True, succeeded=True)
    assert "1 of its pods has a node, 1 has succeeded and it needs 3" in sight.events()[0][2]
    sight.pods("d", node="n")
    assert "of its pods have a node" not in sight.events()[0][2], "it has its minimum"


def test_a_broken_gang_is_told_on_what_stands_for_it_until_it_is_whole(sight: Sight) -> None:
    """None of its pods waits, so that none of them can be told why."""
    sight.pods("a", "b", "c", node="n")
    sight.gone("c")
    sight.held("broken", problem=as_told("2 of its pods run, 1 more are needed"), minimum=1, cycle=1)
    assert [(on, reason) for on, reason, _, _ in sight.events()] == [("Pod/a", "GangBroken")]
    sight.pods("a", node="n", running=True)
    sight.pod_group()
    [(on, reason, message, _)] = sight.events()
    assert (on, reason) == ("PodGroup/train", "GangBroken")
    assert message.count("2 of its pods") == 1
    sight.pods("d", node="n")
    assert sight.events() == []


def test_what_is_wrong_with_its_marks_is_told_once_per_wording(sight: Sight) -> None:
    sight.held("priority_clash", "b", problem=as_told("b has 5, others have 0"), cycle=0)
    told = sight.events()
    assert [on for on, *_ in told] == ["Pod/a", "Pod/b", "Pod/c"]
    assert {reason for _, reason, _, _ in told} == {"GangRefused"}
    assert all(message.endswith("have different priorities: b has 5, others have 0") for _, _, message, _ in told)
    before = sight.names()
    sight.held("priority_clash", "b", problem=as_told("b has 5, others have 0"), cycle=0)
    assert sight.names() == before
    sight.pods("d")
    assert [on for on, *_ in sight.events()][-1] == "Pod/d", "who comes later is told too"
    sight.add(
        PodsPlaced(
            cause=Cause(1, 0),
            gangs=(GANG,),
            pods=(PodPlace(ref("a"), "n"),),
            complaints=(as_told("match-policy: no such thing"),),
        )
    )
    assert sight.events() == [("Pod/a", "GangMarkIgnored", "match-policy: no such thing", 0)]


def test_nothing_is_told_of_pods_that_are_placed_or_gone_or_of_others(sight: Sight) -> None:
    sight.held("no_nodes", "a", "b", "c", shortage=SHORT)
    sight.gone("a")
    assert {on for on, *_ in sight.events()} == {"Pod/b", "Pod/c"}
    sight.add(PodsPlaced(cause=Cause(1, 0), gangs=(GANG,), pods=(PodPlace(ref("b"), "n"), PodPlace(ref("c"), "n"))))
    assert sight.events() == []
    theirs = Sight()
    theirs.pods("a", scheduler="volcano")
    theirs.held("too_few_pods", "a")
    assert theirs.events() == []
    theirs.held("other_scheduler", "a", problem=as_told("set spec.schedulerName: muster"))
    assert [reason for _, reason, _, _ in theirs.events()] == ["GangNotPlaced"]
    assert gangnotes.pod_groups(theirs.state, GANG, X_K8S) == []


def test_labels_ask_for_a_pod_group(sight: Sight) -> None:
    [wanted] = gangnotes.pod_groups(sight.state, GANG, X_K8S)
    assert (wanted.resource, wanted.namespace, wanted.name, wanted.seen) == (X_K8S, "video", "train", None)
    assert wanted.spec == {"minMember": 3}
    assert gangnotes.pod_groups(sight.state, GANG, None) == []
    sight.pod_group(made=True, shown=wanted.shown)
    assert gangnotes.pod_groups(sight.state, GANG, X_K8S) == []


@pytest.mark.parametrize("labels", [{**LABELS, "pod-group.scheduling.sigs.k8s.io/min-available": "0"}, {}])
def test_bad_labels_and_none_ask_for_nothing(labels: dict[str, str]) -> None:
    sight = Sight()
    sight.pods("a", labels=labels)
    for key in sight.state.gangs.gangs:
        assert gangnotes.pod_groups(sight.state, key, X_K8S) == []


def test_annotations_ask_for_nothing() -> None:
    sight = Sight()
    keys = {"gang.scheduling.koordinator.sh/name": "train", "gang.scheduling.koordinator.sh/min-available": "2"}
    sight.pods("a", labels={}, marks=keys)
    assert gangnotes.pod_groups(sight.state, GANG, X_K8S) == []


def test_what_we_made_follows_the_labels_and_goes_with_the_pods(sight: Sight) -> None:
    sight.pod_group(made=True, minimum=2)
    [wanted] = gangnotes.pod_groups(sight.state, GANG, X_K8S)
    assert (wanted.seen is not None, wanted.spec) == (True, {"minMember": 3})
    assert gangnotes.surplus(sight.state, GANG) == []
    sight.gone("a", "b", "c")
    assert [each.ref.name for each in gangnotes.surplus(sight.state, GANG)] == ["train"]
    sight.add(PodGroupGone(ref=gangnotes.surplus(sight.state, GANG)[0].ref, rv=facts.next_rv()))
    assert GANG not in sight.state.gangs.gangs


def test_what_people_made_keeps_its_spec_and_stays(sight: Sight) -> None:
    sight.pod_group(minimum=2)
    [wanted] = gangnotes.pod_groups(sight.state, GANG, X_K8S)
    assert (wanted.seen is not None, wanted.spec) == (True, {})
    sight.gone("a", "b", "c")
    assert gangnotes.surplus(sight.state, GANG) == []


def test_phases_and_counts() -> None:
    sight = Sight()
    sight.pod_group(SIGS)
    sight.pods("a", "b")
    assert sight.status() == {"phase": "Pending", "running": 0, "succeeded": 0, "failed": 0, "scheduled": 0}
    sight.pods("c")
    sight.held("no_nodes", "a", "b", "c", shortage=SHORT)
    found = sight.status()
    assert (found["phase"], found["scheduleStartTime"]) == ("Scheduling", "2025-01-10T01:36:30Z")
    sight.pods("a", "b", "c", node="n")
    assert (sight.status()["phase"], sight.status()["scheduled"]) == ("Scheduled", 3)
    sight.pods("a", "b", "c", node="n", running=True)
    assert (sight.status()["phase"], sight.status()["running"]) == ("Running", 3)
    sight.pods("a", node="n", over=True, succeeded=True)
    assert (sight.status()["phase"], sight.status()["succeeded"]) == ("Running", 1)
    sight.pods("b", "c", node="n", over=True, succeeded=True)
    assert sight.status()["phase"] == "Finished"
    sight.gone("a", "b")
    assert sight.status()["phase"] == "Finished", "it does not begin again because its pods are cleared away"
    sight.pods("d")
    assert sight.status()["phase"] == "Pending"


def test_a_gang_with_a_failed_pod_has_failed_once_all_have_run() -> None:
    sight = Sight()
    sight.pod_group()
    sight.pods("a", "b", node="n", running=True)
    sight.pods("c", node="n", over=True)
    found = sight.status()
    assert (found["phase"], found["running"], found["failed"]) == ("Failed", 2, 1)
    assert "scheduled" not in found


def test_only_pods_that_lack_nodes_say_so_where_nodes_are_added_for_them(sight: Sight) -> None:
    assert gangnotes.conditions(sight.state, GANG) == []
    sight.held("too_few_pods", "a", "b", "c", cycle=0)
    assert gangnotes.conditions(sight.state, GANG) == []
    sight.pods("g", gated=True)
    sight.held("no_nodes", "a", "b", "c", shortage=SHORT)
    found = gangnotes.conditions(sight.state, GANG)
    assert [each.name for each, _, _ in found] == ["a", "b", "c"]
    patch = json.loads(found[0][2])
    assert patch["metadata"] == {"uid": "uid-a"}
    [condition] = patch["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "Unschedulable")
    assert condition["message"] == "0/3 nodes are available: 3 Insufficient cpu"
    sight.pods("a", "b", "c", node="n")
    assert gangnotes.conditions(sight.state, GANG) == []


def said_by(sight: Sight) -> dict[str, tuple[str, str]]:
    """{pod: (reason, message)} of the conditions that are to be written now."""
    found = {}
    for ref, _, patch in gangnotes.conditions(sight.state, GANG):
        [condition] = json.loads(patch)["status"]["conditions"]
        assert condition["status"] == "False"
        found[ref.name] = (condition["reason"], condition["message"])
    return found


def test_the_condition_changes_with_what_a_gang_waits_for(sight: Sight) -> None:
    nodes = "0/3 nodes are available: 3 Insufficient cpu"
    sight.held("no_nodes", "a", "b", "c", shortage=SHORT)
    assert said_by(sight) == dict.fromkeys("abc", ("Unschedulable", nodes))
    before = [said for _, said, _ in gangnotes.conditions(sight.state, GANG)]
    sight.held("gave_way", "a", "b", "c", shortage=SHORT, by="video/other")
    beaten = f"{nodes}; rejected by podgroup video/other"
    assert said_by(sight) == dict.fromkeys("abc", ("Unschedulable", beaten)), "more nodes would help it as well"
    assert not {*before} & {said for _, said, _ in gangnotes.conditions(sight.state, GANG)}, (
        "what was written is outdated"
    )
    sight.gone("c")
    sight.held("too_few_pods", "a", "b", problem=as_told("gang video/train needs 3 and has 2"), cycle=0)
    reason, message = said_by(sight)["a"]
    assert reason == "GangWaits", "nodes would be added in vain"
    assert message.endswith("gang video/train needs 3 and has 2")
    sight.pods("a", "b", node="n")
    sight.pods("d")
    sight.held("too_few_pods", "d", cycle=0)
    assert said_by(sight) == {}, "a pod that never lacked a node has nothing to take back"


@pytest.mark.parametrize("reason", sorted(reasons.HELD_BACK))
def test_unschedulable_is_said_where_nodes_would_help_and_nowhere_else(sight: Sight, reason: HeldBackReason) -> None:
    sight.held("no_nodes", "a", "b", "c", shortage=SHORT)
    sight.held(reason, "a", "b", "c", shortage=SHORT, problem=as_told("as it is"), by="video/other")
    helps = reason in ("no_nodes", "timed_out", "gave_way", "starved")
    assert {code == "Unschedulable" for code, _ in said_by(sight).values()} == {helps}


@pytest.mark.parametrize("first", [0, 1])
def test_of_two_pod_groups_of_one_name_one_counts_for_everybody(sight: Sight, first: int) -> None:
    """The one of scheduling.sigs.k8s.io, also when it is the younger one, in whichever order they are seen."""
    pairs = [(SIGS, {"minimum": 2, "created": 9_000}), (X_K8S, {"minimum": 7, "created": 1_000})]
    for resource, known in (pairs[first], pairs[1 - first]):
        sight.pod_group(resource, **known)
    gang = sight.state.gangs.gangs[GANG]
    assert gang.minimum == 2
    groups = [*gang.pod_groups.values()]
    assert declare.counting(groups) == declare.counting(reversed(groups)) == gang.pod_group
    crew = PodGangs()
    for each in groups:
        podgangs.pod_group_observed(crew, PodGroupObserved(pod_group=each))
    assert podgangs.pod_group_of(crew, GANG) == gang.pod_group, "the admitter counts the same one"


def test_of_two_pod_groups_of_one_api_group_the_older_one_counts_until_it_is_gone(sight: Sight) -> None:
    """Deleted and made anew: the new one may be seen before the end of the old one is."""
    kind = f"PodGroup.{X_K8S.group}"
    for uid, minimum, created in (("new", 5, 9_000), ("old", 4, 1_000)):
        found = PodGroup(ref=Ref(kind, "video", "train", uid), rv=facts.next_rv(), minimum=minimum, created=created)
        sight.add(PodGroupObserved(pod_group=found))
    gang = sight.state.gangs.gangs[GANG]
    assert gang.minimum == 4
    sight.add(PodGroupGone(ref=Ref(kind, "video", "train", "old"), rv=facts.next_rv()))
    assert gang.minimum == 5
