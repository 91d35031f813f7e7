"""In a queue with the policy Block nobody passes the head, also where the head waits for room on the nodes."""

from __future__ import annotations

from random import Random

import pytest

from kit import facts, nodes
from kit.bench import Bench
from kit.clearings import halves
from kit.kai import queue as kai_queue
from kit.scenes import Scene
from muster.events.decisions import EvictionOrdered, GangAdmitted, PreemptionProposed
from muster.events.facts import QueueObserved
from muster.events.system import PlacementChosen
from muster.model.keys import Ref
from muster.model.workload import PodSet, Wishes
from muster.told.status.statuses import job_status
from muster.told.views.narrator import Narrator
from muster.told.wording.jobs import text

PLENTY = {"cpu": 100}
HOUR_MS = 3_600_000


class Line:
    """Queues ``video``, which lets nobody pass, and ``audio``; quota for everything, and nodes of four cores."""

    def __init__(self, count: int, policy: str = "Block", mode: str = "pack", rng: Random | None = None) -> None:
        self.bench = Bench(rng)
        self.bench.append("gang_admitter", "input", [PlacementChosen(mode=mode, hold_ms=10**12)])  # type: ignore[arg-type]
        leaves = tuple(facts.node(name, {"cpu": 0}, PLENTY, (name,)) for name in ("video", "audio"))
        self.bench.facts(facts.tree(facts.node("root", PLENTY, PLENTY, children=leaves)))
        self.policy(policy)
        for index in range(count):
            self.bench.facts(nodes.node(f"n{index}", cpu=4))
        self.bench.synced()
        self.bench.settle()

    def policy(self, policy: str) -> None:
        ref = Ref("Queue", "kube-queue", "video", "queue-video")
        self.bench.facts(QueueObserved(ref=ref, rv=facts.next_rv(), path="root/video", policy=policy))
        self.bench.settle()

    def job(
        self, name: str, count: int, cpu: int, namespace: str = "video", *, settle: bool = True, **more: object
    ) -> None:
        need = facts.vector(cpu=count * cpu)
        sets = (PodSet("worker", count, facts.vector(cpu=cpu)),)
        said = {"need": {"ack": need, "full": need}, "pod_sets": sets, "created": self.bench.now, **more}
        self.bench.facts(facts.seen(facts.job(name, namespace, **said)))
        if settle:
            self.bench.settle()

    def gone(self, name: str) -> None:
        self.bench.facts(facts.gone(name))
        self.bench.settle()

    def admitted(self) -> list[str]:
        return [event.ref.name for event in self.bench.happened(GangAdmitted)]

    def told(self, name: str) -> tuple[str, str]:
        narrator = Narrator()
        for stored in self.bench.log:
            narrator.feed(stored)
        status = job_status(narrator.state, facts.job_ref(name).uid)
        return status.code, text(status, narrator.state.now)


def waiting_for_nodes(**more: str) -> Line:
    """``first`` runs; ``head`` asks for both nodes and has none."""
    line = Line(2, **more)
    line.job("first", 1, 3)
    line.job("head", 2, 4)
    line.bench.pass_time(HOUR_MS)
    assert line.admitted() == ["first"]
    return line


def test_nobody_passes_a_head_that_waits_for_nodes() -> None:
    line = waiting_for_nodes()
    line.job("small", 1, 1)
    line.job("other", 1, 1, "audio")
    line.bench.pass_time(HOUR_MS)
    assert line.admitted() == ["first", "other"], "another queue goes on"
    line.bench.facts(facts.gone("other", "audio"))
    line.gone("first")
    assert line.admitted() == ["first", "other", "head"]
    line.gone("head")
    assert line.admitted() == ["first", "other", "head", "small"]
    line.bench.sound()


def test_while_they_wait_there_is_no_commit() -> None:
    line = waiting_for_nodes()
    for name in ("small", "tiny"):
        line.job(name, 1, 1)
    line.bench.pass_time(HOUR_MS)  # Once it is asked whether something is to be held for their age.
    before = len(line.bench.log)
    line.bench.pass_time(24 * HOUR_MS)
    assert len(line.bench.log) == before


@pytest.mark.parametrize("policy", ["Round", "Priority"])
def test_by_the_other_policies_one_that_fits_passes(policy: str) -> None:
    line = waiting_for_nodes(policy=policy)
    line.job("small", 1, 1)
    assert line.admitted() == ["first", "small"]


@pytest.mark.parametrize("way", ["deleted", "held", "elsewhere", "edited", "policy", "off", "native", "outranked"])
def test_what_lets_those_behind_it_go_on(way: str) -> None:
    line = waiting_for_nodes()
    line.job("small", 1, 1)
    found = ["first", "small"]
    match way:
        case "deleted":
            line.gone("head")
        case "held":
            line.job("head", 2, 4, wishes=Wishes(hold=True, by="ann"))
        case "elsewhere":
            line.job("head", 2, 4, labels={"quota.scheduling.alibabacloud.com/name": "audio"})
        case "edited":
            line.job("head", 1, 1, generation=2)
            found = ["first", "head", "small"]
        case "policy":
            line.policy("Round")
        case "outranked":
            line.job("urgent", 1, 1, priority=9)
            found = ["first", "urgent"]
        case _:
            line.bench.append("gang_admitter", "input", [PlacementChosen(mode=way)])  # type: ignore[arg-type]
            line.bench.settle()
            found = ["first", "head", "small"]
    assert line.admitted() == found
    line.bench.sound()


@pytest.mark.parametrize("seed", range(12))
def test_nobody_passes_one_that_is_tried_at_the_same_time(seed: int) -> None:
    """All of them come at once, and quota has room for all: whatever stage is the first to decide."""
    rng = Random(seed)
    line = Line(2, rng=rng)
    line.job("first", 1, 3)
    line.job("head", 2, 4, settle=False)
    for index in range(rng.randint(1, 4)):
        line.job(f"small-{index}", 1, 1, settle=False)
    line.bench.settle()
    line.bench.pass_time(HOUR_MS)
    assert line.admitted() == ["first"]
    line.gone("first")
    assert line.admitted() == ["first", "head"]
    line.bench.sound()


def test_many_that_fit_start_in_their_order() -> None:
    line = Line(3)
    names = [f"job-{index:02}" for index in range(20)]
    for name in names:
        line.job(name, 1, 1, settle=False)
    line.bench.settle()
    assert line.admitted() == names[:12]
    line.bench.sound()


def test_nobody_is_evicted_for_one_that_may_not_pass() -> None:
    scene = Scene()
    scene.tree_of(("a", 6), ("b", 0))
    ref = Ref("Queue", "kube-queue", "a", "queue-a")
    scene.do(QueueObserved(ref=ref, rv=facts.next_rv(), path="root/a", policy="Block"))
    scene.lines("placement pack", "node n0 cpu=4", "node n1 cpu=4", "synced", "gang a/big head=1 workers=1x5")
    for name in ("b/x", "b/y"):
        scene.lines(f"gang {name} head=1 workers=1x3", "time +1s")
        scene.runs(name)
    scene.lines("gang a/owed head=1 workers=1x1", "time +3600s")
    assert not scene.bench.happened(EvictionOrdered, PreemptionProposed), "big stands before it, and has no place"
    scene.lines("gone a/big")
    assert [event.ref.name for event in scene.bench.happened(PreemptionProposed)] == ["owed"]
    scene.bench.sound()


def test_a_head_that_quota_is_held_for_is_not_behind_one_that_comes_back() -> None:
    """Both would wait until the claim has had its time."""
    scene = Scene()
    scene.tree_of(("a", 4), ("b", 0))
    ref = Ref("Queue", "kube-queue", "a", "queue-a")
    scene.do(QueueObserved(ref=ref, rv=facts.next_rv(), path="root/a", policy="Block"))
    scene.lines("synced", "gang b/x head=1 workers=1x6")
    scene.runs("b/x")
    scene.lines("gang a/held head=1 workers=1x3")
    assert [event.ref.name for event in scene.bench.happened(EvictionOrdered)] == ["held"]
    scene.lines("gang a/before head=1 workers=1x4 prio=5")
    scene.suspended("b/x")
    assert [event.ref.name for event in scene.bench.happened(GangAdmitted)] == ["x", "held"]
    scene.bench.sound()


def test_one_that_quota_is_held_for_by_its_age_passes_no_head() -> None:
    """No job has been evicted for it."""
    scene = Scene()
    scene.tree_of(("a", 0))
    ref = Ref("Queue", "kube-queue", "a", "queue-a")
    scene.do(QueueObserved(ref=ref, rv=facts.next_rv(), path="root/a", policy="Block"))
    scene.lines("placement pack", "node n0 cpu=4", "node n1 cpu=4", "synced", "gang a/first head=4 workers=1x4 prio=5")
    scene.runs("a/first")
    scene.lines("gang a/aged head=1 workers=1x3", "time +3600s", "gang a/front head=2 workers=1x2 prio=5")
    scene.lines("gang a/head head=1 workers=1x3 prio=5", "gone a/first")
    assert [event.ref.name for event in scene.bench.happened(GangAdmitted)] == ["first", "front", "head"]
    scene.bench.sound()


@pytest.mark.parametrize("kind", ["move", "guarantee", "priority"])
@pytest.mark.parametrize("lacks", ["a place", "quota"])
def test_no_node_is_cleared_for_one_that_may_not_pass(kind: str, lacks: str) -> None:
    """By whatever rule of KAI queues: while it waits to take from others, somebody comes to stand before it."""
    of, quota = ("b", {"a": 0, "b": 4}) if kind == "guarantee" else ("a", {"a": 4})
    play = halves(moves=16 * (kind == "move"), **quota)
    ref = Ref("Queue", "kube-queue", of, f"queue-{of}")
    play.bench.facts(
        kai_queue(of, cpu=(4000, 5000, 1)), QueueObserved(ref=ref, rv=facts.next_rv(), path=f"kai/{of}", policy="Block")
    )
    priority = "build-preemptible" if kind == "priority" else "train"
    play.job("late", of, 2, priority, labels={"kai.scheduler/preemption-delay": "1m"})
    play.job("head", of, 3 if lacks == "a place" else 6, "inference")
    play.bench.pass_time(HOUR_MS)
    play.settle()
    assert play.ordered() == []
    play.ends("head")
    play.bench.pass_time(120_000)
    play.settle()
    assert play.ordered() == ["y"]


def test_it_is_said_who_stands_before_it() -> None:
    line = waiting_for_nodes()
    line.job("small", 1, 1)
    code, said = line.told("small")
    assert code == "BehindHead"
    assert "position 2 of 2, 1 ahead: video/head" in said and "policy Block" in said
    assert line.told("head")[0] == "GangUnschedulable"
    line.gone("head")
    assert line.told("small")[0] == "Admitted"
