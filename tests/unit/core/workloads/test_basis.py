"""What a decision rests on is told by its digest: a controller that writes defaults takes no place, an edit does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from kit import ray
from kit.jobs import KINDS as KNOWN
from kit.jobs import Obj
from muster.core.actuation.intents import Known, known_of
from muster.core.actuation.orders import Outstanding, RetryLater
from muster.core.actuation.patches import after_reread, patch_for, resume_patch
from muster.core.workloads.registry import KINDS
from muster.events.effects import EffectFailed
from muster.fakecluster.apiserver.jsonpatch import json_patch
from muster.fakecluster.kuberay.rayjob import reconcile_rayjob
from muster.fakecluster.kuberay.settings import OperatorSettings
from muster.fakecluster.kuberay.step import RayJobSeen
from muster.model.keys import Intent
from muster.model.workload import Workload


def read(kind: str, obj: Obj) -> Workload:
    found = KINDS[kind].read(json.dumps(obj).encode())
    assert isinstance(found, Workload)
    return found


def made(kind: str) -> Obj:
    obj = KNOWN[kind].make("one", "video")
    obj["metadata"] |= {"uid": "uid-one", "resourceVersion": "7", "generation": 1, "annotations": {"mine": "1"}}
    return obj


def at_generation(obj: Obj, number: int) -> Obj:
    return {**obj, "metadata": {**obj["metadata"], "generation": number, "resourceVersion": str(7 + number)}}


def _more_cpu(text: str) -> str:
    return text.replace('"cpu": "', '"cpu": "1').replace('"cores": ', '"cores": 1')


def order_for(workload: Workload) -> Outstanding:
    return Outstanding(workload.ref, 1, Intent(1, 7, 0), workload.basis, 1000, 2000)


def looked(order: Outstanding, tried: Known, obj: Obj) -> Any:
    return after_reread(order, tried, 100, 200, json.dumps(obj).encode(), "refused")


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_generation_that_grew_by_itself_is_resumed_all_the_same(kind: str) -> None:
    obj = made(kind)
    workload = read(kind, obj)
    order, known = order_for(workload), known_of(workload)
    grown = at_generation(obj, 2)
    with pytest.raises(Exception, match="422"):
        json_patch(grown, json.loads(resume_patch(order, known)))
    found = looked(order, known, grown)
    assert isinstance(found, Known)
    assert json_patch(grown, json.loads(resume_patch(order, found)))["metadata"]["annotations"]["muster.dev/intent"]


@pytest.mark.parametrize("evicts", [False, True], ids=["resumed", "suspended"])
@pytest.mark.parametrize(
    "mark", ["", "mine", "1-7", "9" * 65, "é" * 70], ids=["empty", "a word", "a part", "long", "é"]
)
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_whatever_its_owner_writes_as_our_intent_keeps_nobody_from_it(kind: str, mark: str, evicts: bool) -> None:
    obj = made(kind)
    obj["metadata"]["annotations"]["muster.dev/intent"] = mark
    workload = read(kind, obj)
    order, known = order_for(workload), known_of(workload)
    if evicts:
        order = replace(order, action="suspend", basis=None)
    for _ in range(2):
        try:
            written = json_patch(obj, json.loads(patch_for(order, known)))
        except Exception:
            found = looked(order, known, obj)
            assert isinstance(found, Known), found
            known = found
        else:
            break
    assert written["metadata"]["annotations"]["muster.dev/intent"] == str(order.intent)


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"Workflow"}))
def test_another_request_is_an_edit(kind: str) -> None:
    obj = made(kind)
    workload = read(kind, obj)
    edited = at_generation(json.loads(_more_cpu(json.dumps(obj))), 2)
    assert read(kind, edited).basis != workload.basis
    found = looked(order_for(workload), known_of(workload), edited)
    assert isinstance(found, EffectFailed)
    assert found.reason == "spec_changed"
    with pytest.raises(Exception, match="422"):
        json_patch(edited, json.loads(resume_patch(order_for(workload), known_of(read(kind, edited)))))


def test_an_object_that_cannot_be_read_any_more_is_an_edit() -> None:
    obj = made("RayJob")
    workload = read("RayJob", obj)
    found = looked(order_for(workload), known_of(workload), at_generation({**obj, "spec": None}, 2))
    assert isinstance(found, EffectFailed)
    assert found.reason == "spec_changed"


def test_an_api_server_in_trouble_is_asked_again() -> None:
    workload = read("RayJob", made("RayJob"))
    assert isinstance(after_reread(order_for(workload), known_of(workload), 100, 503, b"{}", ""), RetryLater)


def test_the_operator_writes_empty_structs_which_change_nothing() -> None:
    """As the real one does with its finalizer: ``metadata: {}`` and ``scaleStrategy: {}``."""
    job = ray.rayjob(finalizer=False)
    plan = reconcile_rayjob(RayJobSeen(job), 1_000_000, OperatorSettings())
    [write] = plan.operations
    written = write.body  # type: ignore[union-attr]
    assert written["spec"] != job["spec"]
    groups = written["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    assert all("scaleStrategy" in group and "metadata" in group["template"] for group in groups)
    assert read("RayJob", written).basis == read("RayJob", job).basis
