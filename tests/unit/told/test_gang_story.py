"""``muster why`` of a gang of pods: by its name or that of a pod, in every state it may be in."""

from __future__ import annotations

from typing import Any

from kit import facts
from kit.bench import Bench
from kit.scenes import Scene
from muster.events.facts import NodeObserved, PodGone, PodObserved
from muster.model.keys import Ref
from muster.model.workload import NodeState, PodState
from muster.told.views.gangstory import gang_tale, gangs_named
from muster.told.views.narrator import Narrator
from muster.told.views.tellings import GangTale
from muster_cli.render.live import LiveLines

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
        assert "It waits in round 1: the nodes have no places for all of its pods" in tale.text
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
    assert (tale.code, "it needs 2" in tale.text) == ("Waiting", True)


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


def lived(bench: Bench) -> list[str]:
    """What `muster up` prints, without times."""
    narrator, lines = Narrator(), LiveLines(bench.now)
    shown = [line.plain for stored in bench.log for entry in narrator.feed(stored) for line in lines.lines(entry)]
    return [" ".join(line.split()[1:]) for line in shown]


def test_muster_up_tells_of_gangs_of_pods() -> None:
    bench = begun()
    bench.facts(pod("a"), pod("b"))
    bench.settle()
    waits = lived(bench)[-1]
    assert waits.startswith("held back video/train the nodes have no places for all of its pods")
    assert "1 Insufficient cpu" in waits
    bench.facts(node("two", 4))
    bench.settle()
    assert lived(bench)[-1] == "placed video/train 2 pods of video/train placed on one (1), two (1)"
    bench.facts(pod("a", node="one", running=True), pod("b", node="two", running=True))
    assert lived(bench)[-1] == "running video/train 2 of its 2 pods run"
    bench.facts(*(pod(name, node="one", over=True, succeeded=True) for name in "ab"))
    assert lived(bench)[-1] == "finished video/train 2 of its 2 pods succeeded"


def test_muster_up_tells_of_a_pod_in_no_gang_by_its_own_name() -> None:
    bench = begun(cpu=1)
    bench.facts(pod("single", labels={}))
    bench.settle()
    assert lived(bench)[-1].startswith("held back video/single the nodes have no places for all of its pods")


def test_pods_of_a_job_are_told_of_their_job_and_not_one_by_one() -> None:
    scene = Scene()
    scene.lines("placement pack", "node n cpu=8", "tree", "synced", "gang one head=1 workers=2x1", "resumed one")
    scene.lines("cluster one", "member one head 0 node=n", "member one worker 0 node=n")
    assert not [line for line in lived(scene.bench) if "one-" in line]


def test_of_a_group_the_gangs_are_named_and_not_only_a_pod() -> None:
    groups = '["video/ga", "video/gb"]'
    bench = begun(cpu=12)
    for gang in ("ga", "gb"):
        labels = {**LABELS, "pod-group.scheduling.sigs.k8s.io/name": gang}
        marks = {"pod-group.scheduling.sigs.k8s.io/groups": groups}
        bench.facts(pod(f"{gang}-0", labels, marks=marks), pod(f"{gang}-1", labels, marks=marks))
    bench.settle()
    _, tale = told(bench, "video/ga")
    assert (
        "3 of 4 pods like ga-0 of gangs video/ga and video/gb, which start together, fit; for the next one 0/1 nodes"
        in tale.text
    )
