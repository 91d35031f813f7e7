"""``muster why`` of a gang of pods: by its name or that of a pod, in every state it may be in."""

from __future__ import annotations

from typing import Any

from kit import facts
from kit.bench import Bench
from muster.core.gangstory import GangTale, gang_tale, gangs_named
from muster.core.narrator import Narrator
from muster.events.facts import NodeObserved, PodGone, PodObserved
from muster.model.keys import Ref
from muster.model.workload import NodeState, PodState

LABELS = {"pod-group.scheduling.sigs.k8s.io/name": "train", "pod-group.scheduling.sigs.k8s.io/min-available": "2"}


def ref(name: str) -> Ref:
    return Ref("Pod", "video", name, f"uid-{name}")


def pod(name: str, labels: dict[str, str] | None = None, **known: Any) -> PodObserved:
    options: dict[str, Any] = {"scheduler": "muster", "request": facts.vector(cpu=4), **known}
    return PodObserved(
        pod=PodState(ref=ref(name), rv=facts.next_rv(), labels=LABELS if labels is None else labels, **options)
    )


def node(name: str, cpu: int) -> NodeObserved:
    room = facts.vector(cpu=cpu, memory="64Gi") | {"pods": 110_000}
    return NodeObserved(node=NodeState(ref=Ref("Node", "", name, f"uid-{name}"), rv=facts.next_rv(), allocatable=room))


def told(bench: Bench, wanted: str) -> tuple[list[str], GangTale]:
    """The names that were met, and the story of the first of them."""
    narrator = Narrator()
    for stored in bench.log:
        narrator.feed(stored)
    names = gangs_named(narrator.state, wanted)
    return names, gang_tale(narrator.state, names[0])


def begun(cpu: int = 4) -> Bench:
    bench = Bench()
    bench.facts(facts.tree())
    bench.synced()
    bench.facts(node("one", cpu))
    return bench


def test_a_gang_that_lacks_nodes_says_which_and_goes_on_when_they_come() -> None:
    bench = begun()
    bench.facts(pod("a"), pod("b"))
    bench.settle()
    for wanted in ("video/train", "train", "video/a", "b"):
        names, tale = told(bench, wanted)
        assert names == ["video/train"]
        assert tale.code == "GangFailedScheduling"
        assert "It waits in round 1: the nodes have no place for all of it" in tale.text
        assert "0/1 nodes are available: 1 Insufficient cpu" in tale.text
        assert tale.pods == {"a": "waits", "b": "waits"}
    bench.facts(node("two", 4))
    bench.settle()
    _, tale = told(bench, "video/train")
    assert [entry.word for entry in tale.entries] == ["held back", "placed"]
    bench.facts(pod("a", node="one", running=True), pod("b", node="two"))
    _, tale = told(bench, "video/train")
    assert (tale.code, tale.pods) == ("Running", {"a": "runs on one", "b": "bound on two"})
    bench.facts(*(PodGone(ref=ref(name), rv=facts.next_rv()) for name in "ab"))
    _, tale = told(bench, "video/train")
    assert (tale.code, tale.pods) == ("Gone", {})
    assert tale.entries, "what happened is told of gangs that are gone too"


def test_a_gang_of_another_scheduler_and_one_that_is_new() -> None:
    bench = begun()
    bench.facts(pod("a", scheduler="volcano"))
    _, tale = told(bench, "train")
    assert tale.code == "OtherScheduler"
    bench = begun()
    bench.facts(pod("a"))
    _, tale = told(bench, "train")
    assert (tale.code, "it takes 2" in tale.text) == ("Waiting", True)


def test_a_pod_of_no_gang_is_called_by_its_own_name() -> None:
    bench = begun(cpu=1)
    bench.facts(pod("single", labels={}))
    bench.settle()
    names, tale = told(bench, "single")
    assert (names, tale.name, tale.code) == (["video/single"], "video/single", "FailedScheduling")


def test_others_are_not_told() -> None:
    bench = begun()
    other = {"pod-group.scheduling.sigs.k8s.io/name": "other", "pod-group.scheduling.sigs.k8s.io/min-available": "1"}
    bench.facts(pod("a"), pod("b"), pod("c", other))
    bench.settle()
    names, tale = told(bench, "video/other")
    assert (names, list(tale.pods)) == (["video/other"], ["c"])
    assert all("video/train" not in entry.text for entry in tale.entries)
