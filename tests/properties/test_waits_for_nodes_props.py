"""A gang that quota admits and the nodes refuse waits until something changes on the nodes: it makes no commit and
holds no quota meanwhile, holds nobody up, and is tried at once when there is room.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings

from kit import facts, nodes
from kit.bench import Bench
from kit.depth import examples
from kit.histories import SEEDS, SETTINGS
from muster.core.gang.admitterstate import AdmitterState
from muster.core.gang.jobplaces import asks_of
from muster.core.placement.place import place
from muster.core.placement.view import View
from muster.events.decisions import GangAdmitted, GangDeferred
from muster.events.facts import NodeGone, QueueObserved
from muster.events.system import PlacementChosen
from muster.model.keys import Ref
from muster.model.placing import PodRules
from muster.model.workload import PodSet, Wishes

FEWER = settings(SETTINGS, max_examples=examples(30))
HOUR_MS = 3_600_000
PLENTY = {"cpu": 100_000}


class Cluster:
    """Quota for everything, and nodes of four cores each."""

    def __init__(self, count: int, rng: Random | None = None, mode: str = "pack") -> None:
        self.bench = Bench(rng)
        chosen = PlacementChosen(mode=mode, hold_ms=10**12)  # type: ignore[arg-type]
        self.bench.append("gang_admitter", "input", [chosen])
        leaf = facts.node("video", {"cpu": 0}, PLENTY, ("video",))
        self.bench.facts(facts.tree(facts.node("root", PLENTY, PLENTY, children=(leaf,))))
        for index in range(count):
            self.node(f"n{index}")
        self.bench.synced()
        self.bench.settle()

    @property
    def state(self) -> AdmitterState:
        found = self.bench.states["gang_admitter"]
        assert isinstance(found, AdmitterState)
        return found

    def node(self, name: str, cpu: int = 4) -> None:
        self.bench.facts(nodes.node(name, cpu=cpu))
        self.bench.settle()

    def job(self, name: str, count: int, cpu: int, **more: object) -> None:
        need = facts.vector(cpu=count * cpu)
        sets = (PodSet("worker", count, facts.vector(cpu=cpu)),)
        said = {"need": {"ack": need, "full": need}, "pod_sets": sets, "created": self.bench.now, **more}
        self.bench.facts(facts.seen(facts.job(name, **said)))  # type: ignore[arg-type]
        self.bench.settle()

    def gone(self, name: str) -> None:
        self.bench.facts(facts.gone(name))
        self.bench.settle()

    def admitted(self) -> list[str]:
        return [event.ref.name for event in self.bench.happened(GangAdmitted)]

    def used(self) -> int:
        return self.bench.states["quota_accountant"].ledger.used.get("root", {}).get("cpu", 0)


def full() -> Cluster:
    """Two nodes with one job of three cores each, and a gang of two that needs two cores on each of them."""
    found = Cluster(2)
    for name in ("one", "two"):
        found.job(name, 1, 3)
    found.job("gang", 2, 2)
    assert found.admitted() == ["one", "two"]
    return found


def test_while_nothing_changes_there_is_no_commit_and_no_quota_is_held() -> None:
    cluster = full()
    before = len(cluster.bench.log)
    cluster.bench.pass_time(24 * HOUR_MS)
    assert len(cluster.bench.log) == before
    assert cluster.used() == 6_000
    cluster.bench.sound()


@pytest.mark.parametrize("way", ["ends", "node", "edit", "off"])
def test_it_is_tried_at_once_when_there_is_room(way: str) -> None:
    cluster = full()
    cluster.bench.pass_time(HOUR_MS)
    match way:
        case "ends":
            cluster.gone("one")
        case "node":
            cluster.node("n3")
        case "edit":
            cluster.job("gang", 2, 1, generation=2)
        case _:
            cluster.bench.append("gang_admitter", "input", [PlacementChosen(mode="off")])
            cluster.bench.settle()
    assert cluster.admitted() == ["one", "two", "gang"]
    cluster.bench.sound()


def test_what_is_no_room_for_it_makes_no_commit() -> None:
    cluster = full()
    before = len(cluster.bench.log)
    cluster.bench.facts(nodes.node("n3", cpu=1))
    cluster.bench.settle()
    assert len(cluster.bench.log) == before + 1, "the fact alone"


def test_a_smaller_one_behind_it_starts() -> None:
    cluster = full()
    cluster.job("small", 1, 1)
    assert cluster.admitted() == ["one", "two", "small"]


def test_of_many_alike_as_many_are_tried_as_there_is_room_for() -> None:
    """Not all of them for each core that comes free."""
    cluster = Cluster(1)
    cluster.job("big", 1, 4)
    for index in range(40):
        cluster.job(f"small-{index:02}", 1, 1)
    before = len(cluster.bench.log)
    cluster.gone("big")
    assert cluster.admitted() == ["big", *(f"small-{index:02}" for index in range(4))], "the oldest first"
    assert len(cluster.bench.log) - before <= 10
    assert len(cluster.bench.happened(GangDeferred)) == 40, "each was refused once"
    cluster.bench.sound()


def test_a_higher_priority_is_tried_first() -> None:
    cluster = Cluster(1)
    cluster.job("big", 1, 4)
    cluster.job("low", 1, 4)
    cluster.job("high", 1, 4, priority=5)
    cluster.gone("big")
    assert cluster.admitted() == ["big", "high"]


def test_one_that_cannot_use_its_room_holds_nobody_up_for_long() -> None:
    """Its queue is paused when there is room: others who wait for nodes have it after a few seconds."""
    cluster = Cluster(1)
    leaves = [facts.node(name, {"cpu": 0}, PLENTY, (name,)) for name in ("video", "audio")]
    tree = facts.node("root", PLENTY, PLENTY, children=tuple(leaves))
    cluster.bench.facts(facts.tree(tree))
    cluster.job("big", 1, 4)
    cluster.job("paused", 1, 4)
    for name in ("next", "last"):
        need = facts.vector(cpu=4)
        sets = (PodSet("worker", 1, need),)
        job = facts.job(name, "audio", need={"ack": need, "full": need}, pod_sets=sets, created=cluster.bench.now)
        cluster.bench.facts(facts.seen(job))
        cluster.bench.settle()
        cluster.bench.pass_time(1_000)
    ref = Ref("Queue", "kube-queue", "q", "uid-q")
    cluster.bench.facts(QueueObserved(ref=ref, rv=facts.next_rv(), path="root/video", paused=("admissions",)))
    cluster.bench.settle()
    cluster.gone("big")
    cluster.bench.pass_time(10_000)
    assert cluster.admitted() == ["big", "next"]
    before = len(cluster.bench.log)
    cluster.bench.pass_time(HOUR_MS)
    assert len(cluster.bench.log) == before
    cluster.bench.sound()


def test_who_is_held_back_or_over_while_it_waits_is_not_tried() -> None:
    cluster = full()
    held = facts.vector(cpu=4)
    sets = (PodSet("worker", 2, facts.vector(cpu=2)),)
    job = facts.job(
        "gang", need={"ack": held, "full": held}, pod_sets=sets, wishes=Wishes(hold=True), created=cluster.bench.now
    )
    cluster.bench.facts(facts.seen(job))
    cluster.bench.settle()
    before = len(cluster.bench.log)
    cluster.node("n3")
    assert len(cluster.bench.log) == before + 1
    assert cluster.admitted() == ["one", "two"]


def test_one_that_no_node_may_take_is_tried_once() -> None:
    """It shares a GPU where that is switched off: what it is tried as has to be what it waits as."""
    cluster = Cluster(1)
    need = facts.vector(cpu=1)
    sets = (PodSet("worker", 1, need, rules=PodRules(share=500)),)
    chosen = PlacementChosen(mode="pack", hold_ms=10**12, gpu_sharing=False)
    cluster.bench.append("gang_admitter", "input", [chosen])
    cluster.bench.facts(nodes.node("gpus", gpu=4))
    cluster.bench.facts(facts.seen(facts.job("half", need={"ack": need, "full": need}, pod_sets=sets)))
    cluster.bench.settle()
    assert len(cluster.bench.happened(GangDeferred)) == 1
    cluster.bench.sound()


@FEWER
@given(SEEDS)
def test_commits_are_bounded_by_what_happens_and_nobody_who_fits_waits(seed: int) -> None:
    rng = Random(seed)
    cluster = Cluster(rng.randint(1, 4), Random(seed), rng.choice(("pack", "spread")))
    there, jobs, made = {f"n{index}" for index in range(len(cluster.state.ledger.nodes))}, set[str](), 0
    for _ in range(60):
        before = len(cluster.bench.log)
        match rng.randrange(8):
            case 0 | 1 | 2:
                made += 1
                jobs.add(f"job-{made}")
                cluster.job(f"job-{made}", rng.randint(1, 4), rng.randint(1, 4), priority=rng.choice((None, 3)))
            case 3 | 4 if jobs:
                jobs.discard(name := rng.choice(sorted(jobs)))
                cluster.gone(name)
            case 5:
                there.add(name := f"n{rng.randrange(6)}")
                cluster.node(name, rng.choice((2, 4, 6)))
            case 6 if len(there) > 1:
                there.discard(name := rng.choice(sorted(there)))
                uid = cluster.state.ledger.nodes[name].uid
                cluster.bench.facts(NodeGone(ref=Ref("Node", "", name, uid), rv=facts.next_rv()))
                cluster.bench.settle()
            case _:
                cluster.bench.pass_time(rng.choice((1_000, 70_000, HOUR_MS)))
        waiting = len(jobs) - len(set(cluster.admitted()) & jobs)
        assert len(cluster.bench.log) - before <= 12 * (2 + waiting)
    cluster.bench.pass_time(24 * HOUR_MS)  # Claims of nodes end.
    before = len(cluster.bench.log)
    cluster.bench.pass_time(24 * HOUR_MS)
    assert len(cluster.bench.log) == before, "nothing happens"
    charged = cluster.bench.states["quota_accountant"].entries
    for name in jobs:
        gang = cluster.state.gangs[f"uid-video-{name}"]
        if f"uid-video-{name}" not in charged:
            asks = asks_of(cluster.state, gang)
            assert place(View(cluster.state.ledger), asks, "pack") is not None, f"{name} waits and fits"
    cluster.bench.sound()
