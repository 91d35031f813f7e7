"""Evictions and PodDisruptionBudgets: nobody is suspended whose pods a budget does not let go."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kit.why import why
from muster.core.actuation.carrying import Reply, carry_out
from muster.core.actuation.intents import ActuatorState
from muster.core.actuation.orders import Effect, Outstanding, RetryLater, said
from muster.events.effects import EffectApplied, EffectFailed
from muster.model.keys import Intent, Ref

BUDGETS = "/apis/policy/v1/namespaces/video/poddisruptionbudgets"
PODS = "/api/v1/namespaces/video/pods"


def order(name: str, seq: int = 7, *, evicts: bool = True) -> Outstanding:
    ref = Ref("RayJob", "video", name, f"uid-{name}")
    return Outstanding(ref, 1, Intent(1, seq, 0), None, 0, 0, "suspend", evicts=evicts)


def pod(name: str, owner: str, *, ready: bool = True, leaving: bool = False, **labels: str) -> dict[str, Any]:
    reference = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": owner, "uid": owner, "controller": True}
    meta = {"name": name, "uid": f"pod-{name}", "labels": labels, "ownerReferences": [reference]}
    if leaving:
        meta["deletionTimestamp"] = "2025-01-10T00:00:00Z"
    return {"metadata": meta, "status": {"conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}}


def budget(name: str, allowed: int, desired: int = 0, **labels: str) -> dict[str, Any]:
    spec = {"selector": {"matchLabels": labels}}
    status = {"disruptionsAllowed": allowed, "desiredHealthy": desired}
    return {"metadata": {"name": name}, "spec": spec, "status": status}


def state(*others: Outstanding, leaving: tuple[str, ...] = ()) -> ActuatorState:
    found = ActuatorState(children={f"c-{name}": f"uid-{name}" for name in ("one", "two", "three")})
    found.outstanding = {each.ref.uid: each for each in others}
    found.leaving = dict.fromkeys(leaving)
    return found


def carried(
    victim: Outstanding, known: ActuatorState, answers: dict[str, tuple[int, Any]]
) -> tuple[Effect | RetryLater, list[str]]:
    """(what became of it, its requests)"""
    steps, asked = carry_out(victim, lambda: known), list[str]()
    request = next(steps)
    while True:
        asked.append(f"{request.method} {request.path}")
        status, body = answers.get(request.path, (200, {"metadata": {"resourceVersion": "9"}}))
        try:
            request = steps.send(Reply(status, json.dumps(body).encode()))
        except StopIteration as ended:
            return ended.value, asked


def asking(budgets: list[dict[str, Any]], pods: list[dict[str, Any]]) -> dict[str, tuple[int, Any]]:
    return {BUDGETS: (200, {"items": budgets}), PODS: (200, {"items": pods})}


TWO = [pod("a", "c-one", app="one"), pod("b", "c-one", app="one")]


def test_a_job_leaves_where_the_budget_lets_all_its_pods_go() -> None:
    found, asked = carried(order("one"), state(), asking([budget("b", 2, app="one")], TWO))
    assert isinstance(found, EffectApplied)
    assert [each.split()[0] for each in asked] == ["GET", "GET", "PATCH"]


def test_a_job_stays_where_the_budget_lets_too_few_go_and_nothing_is_written() -> None:
    found, asked = carried(order("one"), state(), asking([budget("b", 1, app="one")], TWO))
    assert isinstance(found, EffectFailed)
    assert (found.reason, found.action) == ("refused", "suspend")
    assert "PodDisruptionBudget b allows 1 of its pods to go, and 2 are of this job" in why(found)
    assert all(each.startswith("GET") for each in asked)


def test_every_budget_is_asked() -> None:
    budgets = [budget("wide", 9, app="one"), budget("narrow", 0, app="one")]
    found, _ = carried(order("one"), state(), asking(budgets, TWO))
    assert isinstance(found, EffectFailed) and "narrow" in why(found)


@pytest.mark.parametrize(
    "pods",
    [
        [pod("a", "c-one", app="other")],
        [pod("a", "c-two", app="one")],
        [pod("a", "c-one", app="one", ready=False)],
        [pod("a", "c-one", app="one", leaving=True)],
    ],
    ids=["not selected", "of another job", "not ready", "leaving already"],
)
def test_only_healthy_pods_of_its_own_that_a_budget_selects_count(pods: list[dict[str, Any]]) -> None:
    found, _ = carried(order("one"), state(), asking([budget("b", 0, app="one")], pods))
    assert isinstance(found, EffectApplied)


def test_two_victims_at_once_do_not_spend_one_allowance_twice() -> None:
    pods = [pod("a", "c-one", app="x"), pod("b", "c-two", app="x")]
    first, second = order("one", 7), order("two", 8)
    answers = asking([budget("b", 1, app="x")], pods)
    assert isinstance(carried(first, state(first, second), answers)[0], EffectApplied)
    found, _ = carried(second, state(first, second), answers)
    assert isinstance(found, EffectFailed) and "1 of them are on their way" in why(found)
    found, _ = carried(second, state(second, leaving=("uid-one",)), answers)
    assert isinstance(found, EffectFailed)
    gone = asking([budget("b", 1, app="x")], pods[1:])
    assert isinstance(carried(second, state(second, leaving=("uid-one",)), gone)[0], EffectApplied)


def test_a_status_that_is_behind_allows_no_more_than_the_pods_that_are_there() -> None:
    pods = [pod("b", "c-two", app="x"), pod("c", "c-three", app="x")]
    # Two of three are to stay; one has gone since the status was written.
    found, _ = carried(order("two"), state(), asking([budget("b", 1, desired=2, app="x")], pods))
    assert isinstance(found, EffectFailed) and "allows 0 of its pods to go" in why(found)
    found, _ = carried(order("two"), state(), asking([budget("b", 1, desired=1, app="x")], pods))
    assert isinstance(found, EffectApplied)


def test_no_budget_costs_one_request_and_no_such_api_none_more() -> None:
    for answer in ((200, {"items": []}), (404, {"message": "not found"})):
        found, asked = carried(order("one"), state(), {BUDGETS: answer})
        assert isinstance(found, EffectApplied)
        assert len(asked) == 2


def test_who_may_not_read_budgets_suspends_nobody_for_others() -> None:
    found, _ = carried(order("one"), state(), {BUDGETS: (403, {"message": "cannot list resource"})})
    assert found == RetryLater("forbidden", said("cannot list resource"))
    found, _ = carried(order("one"), state(), {BUDGETS: (500, {"message": "etcd"})})
    assert found == RetryLater("unavailable", said("etcd"))


def test_what_is_not_suspended_for_others_asks_nobody() -> None:
    found, asked = carried(order("one", evicts=False), state(), {})
    assert isinstance(found, EffectApplied)
    assert len(asked) == 1
