"""Gangs as Kubernetes itself declares them: the PodGroup that spec.schedulingGroup names."""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import replace

from kit import facts
from kit.bench import Bench
from kit.nodes import node
from kit.podgangs import Scene, member, pod_group
from kit.words import in_words
from muster.core.gang.declare import counting, declared_by, read_native_group
from muster.core.reading.cluster import read_pod
from muster.core.stage import Folder
from muster.events.facts import PodGroupGone, PodGroupObserved
from muster.events.gangs import GangHeldBack, PodsPlaced
from muster.model.gang import NATIVE, PodGroup, Verdict
from muster.model.keys import Ref
from muster.told.readmodel.model import ReadModel
from muster.told.views.gangstory import gang_tale

WHEN = "2026-11-22T10:00:00Z"


def native(minimum: int = 3, name: str = "train", rv: int = 0, **fields: Any) -> PodGroup:
    ref = Ref(NATIVE, "video", name, f"uid-native-{name}")
    return PodGroup(ref=ref, rv=rv or facts.next_rv(), minimum=minimum, **fields)


def body(policy: dict[str, Any], *conditions: dict[str, str], version: str = "v1alpha2") -> bytes:
    found = {
        "apiVersion": f"scheduling.k8s.io/{version}",
        "kind": "PodGroup",
        "metadata": {"name": "train", "namespace": "video", "uid": "u", "resourceVersion": "7"},
        "spec": {"schedulingPolicy": policy},
        "status": {"conditions": list(conditions)},
    }
    return json.dumps(found).encode()


# --- reading ------------------------------------------------------------------------------------------------------


def test_a_gang_and_what_kube_scheduler_says_of_it() -> None:
    said = {"status": "False", "reason": "Unschedulable", "message": "0/3 nodes", "lastTransitionTime": WHEN}
    for name in ("PodGroupScheduled", "PodGroupInitiallyScheduled"):
        found = read_native_group(
            body({"gang": {"minCount": 3}}, {"type": "Other", "status": "True"}, {"type": name} | said)
        )
        assert (found.ref.kind, found.minimum, found.alone) == (NATIVE, 3, False)
        verdict = found.verdict
        assert verdict is not None
        assert (verdict.scheduled, verdict.reason, verdict.message) == (False, "Unschedulable", "0/3 nodes")
        assert verdict.since > 0


def test_pods_that_start_one_by_one_are_no_gang() -> None:
    found = read_native_group(body({"basic": {}}, {"type": "PodGroupScheduled", "status": "Unknown"}))
    assert (found.alone, found.minimum, found.verdict) == (True, 0, None)


def test_a_pod_names_its_group_in_its_spec() -> None:
    spec = {"schedulerName": "muster", "schedulingGroup": {"podGroupName": "train"}, "containers": [{"name": "c"}]}
    raw = {"metadata": {"name": "a", "namespace": "video", "uid": "a", "resourceVersion": "1"}, "spec": spec}
    found = read_pod(json.dumps(raw).encode())
    assert found is not None
    assert found.pod.group == "train"
    # One that kube-scheduler binds is read as well: what becomes of its gang is told.
    spec["schedulerName"] = "default-scheduler"
    found = read_pod(json.dumps(raw).encode())
    assert found is not None
    assert (found.pod.group, found.pod.ours) == ("train", False)


# --- which PodGroup counts ----------------------------------------------------------------------------------------


def test_the_spec_beats_the_marks_and_each_has_its_own_pod_groups() -> None:
    both = (native(2), pod_group("train", 5))
    pod = member("a", "other", 4, group="train")
    found = declared_by(pod, counting(both, native=True))
    assert found is not None
    assert (found.gang, found.way, found.minimum, found.policy) == ("video/train", "native", 2, "waiting-and-running")
    marked = declared_by(member("b", "train"), counting(both))
    assert marked is not None
    assert (marked.way, marked.minimum) == ("pod_group", 5)


def test_what_cannot_be_a_gang_is_refused_with_the_way_out() -> None:
    pod = member("a", group="train")
    missing = declared_by(pod, None)
    assert missing is not None
    assert (
        in_words(missing.refusal)
        == "spec.schedulingGroup: PodGroup video/train of scheduling.k8s.io does not exist; create it"
    )
    wrong = declared_by(pod, native(0))
    assert wrong is not None
    assert "minCount: PodGroup video/train says 0; write 1 or more" in in_words(wrong.refusal)


# --- pods that name us --------------------------------------------------------------------------------------------


def scene() -> Scene:
    play = Scene()
    play.bench.facts(node("n1", cpu=2), node("n2", cpu=2))
    return play


def test_a_gang_is_placed_whole_once_its_group_and_its_pods_are_there() -> None:
    play = scene()
    for name in "ab":
        play.put(member(name, group="train"))
    play.bench.settle()
    [told] = play.bench.happened(GangHeldBack)
    assert told.reason == "refused"
    play.bench.facts(PodGroupObserved(pod_group=native(3)))
    play.bench.settle()
    assert play.bench.happened(PodsPlaced) == []
    play.put(member("c", group="train"))
    play.bench.settle()
    [placed] = play.bench.happened(PodsPlaced)
    assert sorted(each.ref.name for each in placed.pods) == ["a", "b", "c"]
    assert placed.gangs == ("video/train",)
    play.bench.sound()


def test_pods_of_a_basic_group_start_one_by_one() -> None:
    play = scene()
    play.bench.facts(PodGroupObserved(pod_group=native(0, alone=True)))
    for name in "abcde":
        play.put(member(name, group="train"))
    play.bench.settle()
    assert sum(len(each.pods) for each in play.bench.happened(PodsPlaced)) == 4
    play.bench.sound()


def test_a_group_made_anew_with_another_count_counts() -> None:
    play = scene()
    first = native(5)
    play.bench.facts(PodGroupObserved(pod_group=first))
    for name in "abc":
        play.put(member(name, group="train"))
    play.bench.settle()
    assert play.bench.happened(PodsPlaced) == []
    again = replace(native(3), ref=replace(first.ref, uid="another"))
    play.bench.facts(PodGroupGone(ref=first.ref, rv=facts.next_rv()), PodGroupObserved(pod_group=again))
    play.bench.settle()
    assert len(play.bench.happened(PodsPlaced)) == 1
    play.bench.sound()


# --- pods that kube-scheduler binds -------------------------------------------------------------------------------


def told(bench: Bench) -> str:
    folder, state = Folder(ReadModel()), ReadModel().initial()
    for stored in bench.log:
        folder.fold(state, stored)
    return gang_tale(state, "video/train").text


def test_what_kube_scheduler_says_is_told_and_nothing_is_decided() -> None:
    play = scene()
    group = native(2)
    play.bench.facts(PodGroupObserved(pod_group=group))
    for name in "ab":
        play.put(member(name, group="train", scheduler="default-scheduler"))
    play.bench.settle()
    assert "kube-scheduler places it: it has not said yet whether it has places, and its PodGroup needs 2" in told(
        play.bench
    )
    for verdict, text in (
        (Verdict(False, "Unschedulable", "0/2 nodes"), "it has no places for it (Unschedulable): 0/2 nodes"),
        (Verdict(True, "Scheduled"), "it has places for it"),
    ):
        group = replace(group, rv=facts.next_rv(), verdict=verdict)
        play.bench.facts(PodGroupObserved(pod_group=group))
        assert text in told(play.bench)
    play.bench.settle()
    assert play.bench.happened(PodsPlaced) == play.bench.happened(GangHeldBack) == []
    play.bench.sound()
