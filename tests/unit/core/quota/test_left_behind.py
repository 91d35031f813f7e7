"""Pods that a deleted job has left behind: charged without a gap, and evicted for owners."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from kit import facts
from kit.audits import audit
from kit.scenes import TWO, Scene
from muster.core.actuation.carrying import Reply, carry_out, orders_of
from muster.core.actuation.intents import Actuator, ActuatorState
from muster.core.actuation.orders import Effect, Order, Outstanding
from muster.core.quota.ledger.standalone import OF_JOBS
from muster.core.stage import Folder
from muster.events.decisions import EvictionOrdered, GangAdmitted
from muster.events.effects import EffectApplied, EffectFailed
from muster.events.facts import PodGone, PodObserved
from muster.events.gangs import PodsPlaced
from muster.fakecluster.world import SimCluster
from muster.model.api import PODS
from muster.model.keys import Intent, Ref
from muster.model.workload import PodState


@pytest.mark.parametrize("bound", [True, False])
@pytest.mark.parametrize("job_first", [True, False])
def test_a_pod_that_its_job_leaves_behind_is_charged_once(bound: bool, job_first: bool) -> None:
    """``kubectl delete --cascade=orphan``: the charge goes on without a gap, and the pod gets its node by it."""
    scene = Scene()
    scene.tree_of(*TWO)
    scene.lines("synced", "node n1 cpu=64", "job a/mine cpu=6")
    scene.runs("a/mine")
    owned = facts.pod("mine", 0, "a", request=facts.vector(cpu=6), node="n1" if bound else "", scheduler="muster")
    scene.do(facts.cluster("mine", "a"), owned)
    orphan = PodObserved(pod=replace(owned.pod, owner_uid="", rv=facts.next_rv()))
    ends = [facts.gone("mine", "a"), facts.cluster_gone("mine", "a")]
    state = scene.bench.states["quota_accountant"]
    for step in (*ends, orphan) if job_first else (orphan, *ends):
        scene.do(step)
        assert state.ledger.used["root"]["cpu"] == 6000
    scene.lines("time +600s")
    assert state.ledger.used["root"]["cpu"] == 6000
    assert bound or [place.ref.name for placed in scene.bench.happened(PodsPlaced) for place in placed.pods] == [
        owned.pod.ref.name
    ]
    scene.do(facts.pod_gone("mine", 0, "a"))
    scene.lines("time +60s")
    assert not state.ledger.used.get("root", {}).get("cpu")
    assert not audit(scene.bench.log).violations


def due(scene: Scene) -> tuple[ActuatorState, list[Order]]:
    """(the actuator's state, its orders)."""
    state, folder = Actuator().initial(), Folder(Actuator())
    for stored in scene.bench.log:
        folder.fold(state, stored)
    return state, [*orders_of(state)]


@pytest.mark.parametrize("job_first", [True, False])
def test_pods_left_behind_by_a_borrower_leave_for_an_owner(job_first: bool) -> None:
    """Each by its uid, and no more of them than needed; the other ones go on."""
    scene = Scene()
    scene.tree_of(("a", 6), ("b", 0))
    scene.lines("synced", "job b/loan cpu=8")
    scene.runs("b/loan")
    pods = [facts.pod("loan", number, "b", request=facts.vector(cpu=2), node="n1") for number in range(4)]
    scene.do(facts.cluster("loan", "b"), *pods)
    orphans = [PodObserved(pod=replace(each.pod, owner_uid="", rv=facts.next_rv())) for each in pods]
    ends = [facts.gone("loan", "b"), facts.cluster_gone("loan", "b")]
    for step in (*ends, *orphans) if job_first else (*orphans, *ends):
        scene.do(step)
    scene.lines("job a/owner cpu=4", "time +60s")
    [order] = scene.bench.happened(EvictionOrdered)
    assert [victim.ref.kind for victim in order.victims] == ["Pod", "Pod"]
    actuator, orders = due(scene)
    assert [order.ref for order in orders] == [victim.ref for victim in order.victims]
    for each in orders:
        steps = carry_out(each, lambda: actuator)
        request = next(steps)
        assert request.path == f"/api/v1/namespaces/b/pods/{each.ref.name}/eviction"
        assert json.loads(request.body or b"")["deleteOptions"]["preconditions"] == {"uid": each.ref.uid}
        with pytest.raises(StopIteration) as done:
            steps.send(Reply(201, b"{}"))
        scene.bench.append("actuator", "input", [done.value.value])
        scene.settle()
    assert not due(scene)[1], "once is enough"
    scene.do(*(PodGone(ref=each.ref, rv=facts.next_rv()) for each in orders))
    assert [event.ref.name for event in scene.bench.happened(GangAdmitted)][-1] == "owner"
    assert scene.bench.states["quota_accountant"].ledger.used["root"]["cpu"] == 8000
    assert not audit(scene.bench.log).violations


@pytest.mark.parametrize(("label", "known"), [(OF_JOBS[0], True), (OF_JOBS[1], True), ("app", False)])
def test_a_pod_left_behind_before_the_log_began_is_charged_and_leaves(label: str, known: bool) -> None:
    """Of other pods without an owner that name no scheduler of ours the tree says whether they count."""
    scene = Scene()
    scene.tree_of(("a", 6), ("b", 0))
    labels = {label: "x"}
    state = PodState(Ref("Pod", "b", "p", "p"), facts.next_rv(), node="n", request=facts.vector(cpu=8), labels=labels)
    scene.do(PodObserved(pod=state))
    scene.lines("synced", "job a/owner cpu=4", "time +60s")
    state = scene.bench.states["quota_accountant"]
    assert ("p" in state.ledger.charges) is known
    assert [victim.ref.name for order in scene.bench.happened(EvictionOrdered) for victim in order.victims] == (
        ["p"] if known else []
    )


def test_a_pod_whose_eviction_is_refused_stays_and_another_goes() -> None:
    scene = Scene()
    scene.tree_of(("a", 6), ("b", 0))
    scene.lines("synced", "job b/loan cpu=8")
    scene.runs("b/loan")
    pods = [facts.pod("loan", number, "b", request=facts.vector(cpu=4), node="n1") for number in range(2)]
    scene.do(facts.cluster("loan", "b"), *pods, facts.gone("loan", "b"), facts.cluster_gone("loan", "b"))
    scene.do(*(PodObserved(pod=replace(each.pod, owner_uid="", rv=facts.next_rv())) for each in pods))
    scene.lines("job a/owner cpu=4", "time +60s")
    actuator, [first] = due(scene)
    steps = carry_out(first, lambda: actuator)
    next(steps)
    with pytest.raises(StopIteration) as done:
        steps.send(Reply(403, b'{"message": "a policy says no"}'))
    scene.bench.append("actuator", "input", [done.value.value])
    scene.settle()
    scene.lines("time +60s")
    [second] = due(scene)[1]
    assert second.ref.uid != first.ref.uid


@pytest.mark.parametrize(("same", "effect"), [(True, EffectApplied), (False, EffectFailed)])
def test_an_eviction_is_of_one_pod_and_of_no_other_with_its_name(same: bool, effect: type[Effect]) -> None:
    server = SimCluster({"n1": {"cpu": "8"}}).server
    container = {"name": "c", "image": "x"}
    body = {"metadata": {"name": "p", "namespace": "b"}, "spec": {"nodeName": "n1", "containers": [container]}}
    made = json.loads(server.handle("POST", PODS.path("b"), body=json.dumps(body).encode()).body)
    ref = Ref("Pod", "b", "p", made["metadata"]["uid"] if same else "another")
    order = Outstanding(ref, 0, Intent(1, 5, 0), None, 0, 0, "suspend", evicts=True)
    steps = carry_out(order, ActuatorState)
    request = next(steps)
    answer = server.handle(request.method, request.path, body=request.body)
    with pytest.raises(StopIteration) as done:
        steps.send(Reply(answer.status, answer.body))
    assert isinstance(done.value.value, effect)
    left = json.loads(server.handle("GET", PODS.path("b", "p")).body)
    assert ("deletionTimestamp" in left.get("metadata", {"deletionTimestamp": ""})) is same
