"""Pods of admitted jobs that name our scheduler get the places that are held for their set."""

from __future__ import annotations

from msgspec.structs import replace

from kit import facts, nodes
from kit.podgangs import SIGS, Scene
from muster.events.decisions import GangAdmitted
from muster.events.effects import EffectApplied
from muster.events.gangs import PodsPlaced
from muster.model.keys import Ref
from muster.model.resources import summed
from muster.model.workload import PodSet, PodState


class Case(Scene):
    """A job of a head and two workers, admitted with places and resumed."""

    def __init__(self, mode: str = "pack") -> None:
        super().__init__(mode=mode)
        whole = {"cpu": 60}
        leaf = facts.node("video", {"cpu": 0}, whole, ("video",))
        self.bench.facts(facts.tree(facts.node("root", whole, whole, children=(leaf,))))
        for name in ("n1", "n2"):
            self.bench.facts(nodes.node(name, cpu=4))
        head, worker = facts.vector(cpu=1), facts.vector(cpu=3)
        sets = (PodSet("head", 1, head), PodSet("worker", 2, worker))
        need = summed([head, worker, worker])
        job = facts.job("one", need={"ack": need, "full": need}, pod_sets=sets)
        self.job = job
        self.bench.facts(facts.seen(job))
        self.bench.settle()
        self.admitted = next(
            event for stored in self.bench.log for event in stored.commit.events if isinstance(event, GangAdmitted)
        )
        holds = self.bench.states["gang_admitter"].holds
        cause = next(iter(holds.values())).cause if holds else (1, 0)
        effect = EffectApplied(cause=cause, ref=job.ref, attempt=1, rv=facts.next_rv())
        self.bench.append("actuator", "input", [effect])
        running = facts.seen(job, suspended=False, phase="running", settled=False, generation=job.generation + 1)
        self.bench.facts(running)

    def cluster(self) -> None:
        self.bench.facts(facts.cluster("one"))

    def pod(self, group: str, number: int = 0, *, scheduler: str = "muster") -> PodState:
        kind = "head" if group == "head" else "worker"
        name = f"one-{group}-{number}"
        pods = next(each for each in self.job.pod_sets if each.name == group)
        return PodState(
            ref=Ref("Pod", "video", name, f"uid-{name}"),
            rv=facts.next_rv(),
            owner_uid=facts.cluster_ref("one").uid,
            request=pods.request,
            labels={"ray.io/group": group, "ray.io/node-type": kind},
            scheduler=scheduler,
            created=1_000,
        )

    def where(self) -> dict[str, str]:
        return {pod.ref.name: pod.node for pod in self.pods.values()}

    def placed(self) -> list[PodsPlaced]:
        return [e for stored in self.bench.log for e in stored.commit.events if isinstance(e, PodsPlaced)]


def test_each_pod_takes_a_place_of_its_set() -> None:
    case = Case()
    held = {(each.pod_set, each.node) for each in case.admitted.placements}
    case.cluster()
    for pod in (case.pod("worker", 1), case.pod("head"), case.pod("worker", 0)):
        case.put(pod, tell=False)
    case.report()
    case.settle()
    found = {("head" if "head" in name else "worker", node) for name, node in case.where().items()}
    assert found == held
    assert not case.bench.states["gang_admitter"].holds
    assert all(event.gangs == () for event in case.placed())


def test_a_pod_heard_of_before_its_owner_waits_for_its_place() -> None:
    case = Case()
    case.put(case.pod("head"))
    case.settle()
    assert case.where() == {"one-head-0": ""}
    case.cluster()
    case.settle()
    assert case.where()["one-head-0"]


def test_a_pod_whose_owner_never_comes_is_placed_on_its_own() -> None:
    case = Case()
    pod = replace(case.pod("head"), owner_uid="nobody")
    case.put(pod)
    case.settle()
    assert case.where() == {"one-head-0": ""}
    case.bench.pass_time(5_000)
    case.settle()
    assert case.where()["one-head-0"]


def test_a_pod_beyond_the_places_goes_on_its_own() -> None:
    case = Case()
    case.cluster()
    for pod in (case.pod("head"), case.pod("worker", 0), case.pod("worker", 1)):
        case.put(pod)
    case.settle()
    case.put(case.pod("worker", 2))
    case.settle()
    assert case.where()["one-worker-2"] == ""
    case.bench.facts(nodes.node("n3", cpu=3))
    case.settle()
    assert case.where()["one-worker-2"] == "n3"


def test_pods_of_another_scheduler_are_left_alone() -> None:
    case = Case()
    case.cluster()
    case.put(case.pod("head", scheduler=""))
    case.settle()
    assert not case.placed()
    case.put(replace(case.pods["uid-one-head-0"], node="n1"))
    case.settle()
    assert not case.placed()


def test_where_jobs_are_not_placed_their_pods_are_if_they_name_us() -> None:
    case = Case("off")
    case.cluster()
    for pod in (case.pod("head"), case.pod("worker", 0)):
        case.put(pod)
    case.settle()
    assert all(case.where().values())


def test_where_jobs_are_not_placed_the_marks_of_their_pods_make_a_gang() -> None:
    case = Case("off")
    case.cluster()
    marks = {f"{SIGS}/name": "one", f"{SIGS}/min-available": "3"}
    pods = [case.pod("head"), case.pod("worker", 0), case.pod("worker", 1)]
    pods = [replace(pod, labels=pod.labels | marks) for pod in pods]
    case.put(pods[0])
    case.put(pods[1])
    case.settle()
    assert not case.placed()
    case.put(pods[2])
    case.settle()
    assert [event.gangs for event in case.placed()] == [("video/one",)]
    assert all(case.where().values())
