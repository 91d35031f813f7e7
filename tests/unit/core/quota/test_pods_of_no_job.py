"""Pods of no job in KAI queues: charged, admitted and evicted by their class, as jobs of one pod are."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kit import facts, kai
from kit.audits import audit
from kit.scenes import TWO, Scene
from muster.core.stage import Folder
from muster.events.decisions import EvictionOrdered, GangAdmitted, WorkloadAdopted
from muster.events.facts import PodObserved
from muster.events.gangs import PodsDenied, PodsPlaced
from muster.events.system import PlacementChosen
from muster.model.keys import Ref
from muster.model.workload import PodState
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState
from muster.told.status.statuses import job_status, wanting
from muster.told.wording.jobs import holds


def pod(name: str, queue: str, priority: str = "", *, node: str = "n1", cpu: int = 2) -> PodObserved:
    labels = {"kai.scheduler/queue": queue} | ({"priorityClassName": priority} if priority else {})
    ref = Ref("Pod", queue, name, f"pod-{name}")
    request = facts.vector(cpu=cpu)
    state = PodState(ref, facts.next_rv(), node=node, request=request, labels=labels, scheduler="kai-scheduler")
    return PodObserved(pod=state)


def scene(*, places: bool = False) -> Scene:
    """Eight cores: queue ``own`` has a quota of six, ``loan`` of two."""
    play = Scene()
    if places:
        play.do(PlacementChosen(mode="pack"))
    play.lines("synced", "node n1 cpu=8")
    play.do(
        kai.queue("all", cpu=(8000, -1, 1)),
        kai.queue("own", "all", cpu=(6000, -1, 1)),
        kai.queue("loan", "all", cpu=(2000, -1, 1)),
    )
    return play


@pytest.mark.parametrize("priority", ["train", "", "inference"])
def test_pods_above_the_quota_of_their_queue_leave_for_a_queue_below(priority: str) -> None:
    play = scene()
    play.do(*(pod(f"p{number}", "loan", priority) for number in range(4)))
    assert all(event.preemptible is (priority != "inference") for event in play.bench.happened(WorkloadAdopted))
    play.do(facts.seen(kai.work("owner", "own", need={"ack": facts.vector(cpu=6), "full": facts.vector(cpu=6)})))
    play.lines("time +600s")
    orders = play.bench.happened(EvictionOrdered)
    victims = [victim.ref.kind for order in orders for victim in order.victims]
    assert victims == ([] if priority == "inference" else ["Pod"] * 3), "those within the quota stay"
    assert not audit(play.bench.log).violations


def test_pods_that_are_not_preemptible_wait_at_the_quota_of_their_queue() -> None:
    """A Deployment of class inference with four replicas, under a quota of one."""
    play = scene(places=True)
    play.do(*(pod(f"p{number}", "loan", "inference", node="") for number in range(4)))
    placed = [place.ref.name for event in play.bench.happened(PodsPlaced) for place in event.pods]
    denied = play.bench.happened(PodsDenied)
    assert len(placed) == 1 and len(denied) == 3, "one for each pod that waits"
    assert all(event.short is not None and event.short.path.endswith("loan") for event in denied)


def test_pods_that_are_preemptible_borrow() -> None:
    play = scene(places=True)
    play.do(*(pod(f"p{number}", "loan", "train", node="") for number in range(4)))
    assert len([place for event in play.bench.happened(PodsPlaced) for place in event.pods]) == 4


@pytest.mark.parametrize("named", ["nosuch", "all"])
def test_a_pod_of_a_queue_that_takes_none_waits_until_there_is_one(named: str) -> None:
    """As KAI Scheduler has it; on a node, it would be in no charge."""
    play = scene(places=True)
    play.do(pod("lost", named, node=""))
    [denied] = play.bench.happened(PodsDenied)
    assert (denied.queue, denied.unknown, play.bench.happened(PodsPlaced)) == (named, True, [])
    if named == "nosuch":
        play.do(kai.queue("nosuch", "all", cpu=(2000, -1, 1)))
        assert [place.ref.name for event in play.bench.happened(PodsPlaced) for place in event.pods] == ["lost"]
    assert not audit(play.bench.log).violations


def test_a_pod_that_names_a_quota_of_no_tree_waits() -> None:
    play = Scene()
    play.do(PlacementChosen(mode="pack"))
    play.tree_of(*TWO)
    play.lines("synced", "node n1 cpu=64")
    seen = pod("lost", "a", node="", cpu=50).pod
    labels = {"quota.scheduling.alibabacloud.com/name": "nosuch"}
    play.do(PodObserved(pod=replace(seen, labels=labels, scheduler="muster")))
    [denied] = play.bench.happened(PodsDenied)
    assert denied.unknown and not play.bench.happened(PodsPlaced)


def test_a_pod_of_a_higher_class_outranks_no_job_and_a_job_outranks_pods() -> None:
    """Within their queue the pods with the lowest class go first."""
    play = scene()
    play.do(*(pod(f"p{number}", "loan", "train") for number in range(3)), pod("high", "loan", "build"))
    play.do(facts.seen(kai.work("owner", "own", need={"ack": facts.vector(cpu=2), "full": facts.vector(cpu=2)})))
    play.lines("time +600s")
    names = [victim.ref.name for order in play.bench.happened(EvictionOrdered) for victim in order.victims]
    assert len(names) == 1 and names != ["high"]
    assert not play.bench.happened(GangAdmitted), "before the pod is gone"


def test_a_job_that_waits_is_told_which_pods_hold_its_quota() -> None:
    """They run: none of them is said to be deleted."""
    play = scene()
    play.do(*(pod(f"p{number}", "loan", "inference") for number in range(4)))
    owner = kai.work("owner", "own", need={"ack": facts.vector(cpu=6), "full": facts.vector(cpu=6)})
    play.do(facts.seen(owner))
    folder, state = Folder(ReadModel()), ReadState()
    for stored in play.bench.log:
        folder.fold(state, stored)
    wants = wanting(state, job_status(state, owner.ref.uid))
    assert wants is not None
    told = {holder.job: holds(holder, state.now) for holder in wants.holders}
    assert told == {f"loan/p{number}": "a pod of no job, running for 0 ms" for number in range(4)}
