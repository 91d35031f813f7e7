"""The write that takes workers of a Ray cluster: verified pod by pod, one patch, and nothing else of scaleStrategy."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import structs

from kit.why import why
from muster.core.actuation.carrying import Reply, carry_out
from muster.core.actuation.intents import Actuator, ActuatorState
from muster.core.actuation.orders import Gating
from muster.events.base import Cause
from muster.events.decisions import QuotaReleased
from muster.events.effects import EffectApplied, EffectFailed
from muster.events.elastic import GateSet
from muster.model.keys import Intent, Position, Ref

CLUSTER = Ref("RayCluster", "ns", "auto", "uid-auto")


def pod(name: str, uid: str = "", **labels: str) -> dict[str, Any]:
    own = {"ray.io/cluster": "auto", "ray.io/group": "small", "ray.io/node-type": "worker", **labels}
    return {"metadata": {"name": name, "namespace": "ns", "uid": uid or f"uid-{name}", "labels": own}}


def cluster(**group: Any) -> dict[str, Any]:
    workers = {"groupName": "small", "replicas": 3, "minReplicas": 0, "maxReplicas": 3, **group}
    return {
        "metadata": {"name": "auto", "namespace": "ns", "uid": "uid-auto", "resourceVersion": "7"},
        "spec": {"enableInTreeAutoscaling": True, "workerGroupSpecs": [workers]},
    }


def order(*names: str, most: int = 1) -> Gating:
    decision = GateSet(
        cause=Cause(1, 0),
        ref=CLUSTER,
        owner=CLUSTER,
        attempt=1,
        groups=("small",),
        most={"small": most},
        ceilings={"small": 10},
        granted={"small": most},
        workers={"small": tuple(Ref("Pod", "ns", name, f"uid-{name}") for name in names)},
    )
    return Gating(decision.ref, decision.attempt, Intent(1, 9, 0), decision)


def written(gate: Gating, pods: list[dict[str, Any]], found: dict[str, Any]) -> list[dict[str, Any]]:
    """The patch that goes out."""
    steps = carry_out(gate, ActuatorState)
    by_name = {each["metadata"]["name"]: each for each in pods}
    request = next(steps)
    while request.method == "GET":
        name = request.path.rpartition("/")[2]
        answer = by_name.get(name) if "/pods/" in request.path else found
        if name == "poddisruptionbudgets":
            answer = {"items": []}
        request = steps.send(Reply(200 if answer else 404, json.dumps(answer or {}).encode()))
    assert request.body is not None
    with pytest.raises(StopIteration) as end:
        steps.send(Reply(200, json.dumps(found).encode()))
    assert isinstance(end.value.value, EffectApplied)
    patch: list[dict[str, Any]] = json.loads(request.body)
    return patch


def strategy(patch: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [op for op in patch if "scaleStrategy" in op["path"]]


GROUP = "/spec/workerGroupSpecs/0"


def test_one_patch_names_them_and_lowers_the_gate_of_this_version_alone() -> None:
    patch = written(order("a", "b"), [pod("a"), pod("b")], cluster(scaleStrategy={"scaleGate": "x"}))
    assert {"op": "test", "path": "/metadata/resourceVersion", "value": "7"} in patch
    assert {"op": "test", "path": f"{GROUP}/groupName", "value": "small"} in patch
    assert {"op": "add", "path": f"{GROUP}/maxReplicas", "value": 1} in patch
    [op] = strategy(patch)
    assert op == {"op": "add", "path": f"{GROUP}/scaleStrategy/workersToDelete", "value": ["a", "b"]}


def test_those_that_are_named_already_stay_named() -> None:
    found = cluster(scaleStrategy={"workersToDelete": ["c", "a"]})
    [op] = strategy(written(order("a", "b"), [pod("a"), pod("b")], found))
    assert op["value"] == ["c", "a", "b"]


def test_without_a_scale_strategy_it_is_made() -> None:
    [op] = strategy(written(order("a"), [pod("a")], cluster()))
    assert op == {"op": "add", "path": f"{GROUP}/scaleStrategy", "value": {"workersToDelete": ["a"]}}


@pytest.mark.parametrize(
    "other",
    [
        pod("a", uid="another"),
        pod("a", **{"ray.io/cluster": "other"}),
        pod("a", **{"ray.io/group": "large"}),
        pod("b"),
    ],
    ids=["replaced", "of another cluster", "of another group", "gone"],
)
def test_a_pod_that_is_not_the_chosen_worker_is_not_named(other: dict[str, Any]) -> None:
    patch = written(order("a"), [other], cluster())
    assert not strategy(patch)
    assert {"op": "add", "path": f"{GROUP}/maxReplicas", "value": 1} in patch


def test_never_below_the_minimum() -> None:
    patch = written(order("a", most=0), [pod("a")], cluster(minReplicas=2))
    assert {"op": "add", "path": f"{GROUP}/maxReplicas", "value": 2} in patch


BUDGETS = {"metadata": {"name": "keep"}, "spec": {"selector": {"matchLabels": {"ray.io/cluster": "auto"}}}}


def effect(gate: Gating, allowed: int, state: ActuatorState | None = None) -> tuple[EffectApplied | EffectFailed, bool]:
    """(what comes of it under a budget, whether anything was written); three workers of the cluster are ready."""
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    pods = [{**pod(name), "status": ready} for name in ("a", "b", "c")]
    budget = {**BUDGETS, "status": {"disruptionsAllowed": allowed, "desiredHealthy": 0}}
    known = state or ActuatorState()
    steps, wrote = carry_out(gate, lambda: known), False
    request = next(steps)
    while True:
        wrote = wrote or request.method == "PATCH"
        name = request.path.rpartition("/")[2]
        answers: dict[str, Any] = {"poddisruptionbudgets": {"items": [budget]}, "pods": {"items": pods}}
        answers |= {each["metadata"]["name"]: each for each in pods}
        try:
            request = steps.send(Reply(200, json.dumps(answers.get(name, cluster())).encode()))
        except StopIteration as end:
            assert isinstance(end.value, EffectApplied | EffectFailed)
            return end.value, wrote


def test_a_disruption_budget_keeps_workers_from_being_taken() -> None:
    assert isinstance(effect(order("a"), allowed=1)[0], EffectApplied)
    kept, wrote = effect(order("a", "b"), allowed=1)
    assert isinstance(kept, EffectFailed)
    assert (kept.reason, kept.action, wrote) == ("refused", "gate", False)
    assert "PodDisruptionBudget keep allows 1 of its pods to go, and 2 would be taken" in why(kept)


def test_two_clusters_do_not_spend_one_allowance_twice() -> None:
    other = structs.replace(order("b"), intent=Intent(1, 8, 0))
    busy = ActuatorState(gating={"uid-other": other})
    assert isinstance(effect(order("a"), allowed=2, state=busy)[0], EffectApplied)
    assert isinstance(effect(order("a"), allowed=1, state=busy)[0], EffectFailed)
    later = ActuatorState(gating={"uid-other": structs.replace(other, intent=Intent(1, 10, 0))})
    assert isinstance(effect(order("a"), allowed=1, state=later)[0], EffectApplied)


def test_workers_that_were_named_and_are_still_there_count() -> None:
    """The status of the budget does not show them yet, whoever goes next."""
    folds, state = Actuator().arms(), ActuatorState(reserved={"uid-other": 1})
    other = Ref("RayCluster", "ns", "o", "uid-other")
    decision = structs.replace(order("b").decision, ref=other, owner=other)
    folds[GateSet](state, Position(8, 0, 0), decision)
    cause = next(iter(state.gating.values())).cause
    folds[EffectApplied](state, Position(9, 0, 0), EffectApplied(cause=cause, ref=other, attempt=1, action="gate"))
    assert not state.gating
    assert isinstance(effect(order("a"), allowed=1, state=state)[0], EffectFailed)
    assert isinstance(effect(order("a"), allowed=2, state=state)[0], EffectApplied)
    over = QuotaReleased(cause=cause, ref=other, attempt=1, queue="q", request={}, reason="gone")
    folds[QuotaReleased](state, Position(10, 0, 0), over)
    assert isinstance(effect(order("a"), allowed=1, state=state)[0], EffectApplied)


def test_what_is_lowered_and_used_by_nobody_asks_no_budget() -> None:
    assert isinstance(effect(order(), allowed=0)[0], EffectApplied)
