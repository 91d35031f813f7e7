"""The PodGroup of an admitted job that kube-scheduler places, and what is written where nothing can be any more."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from kit.jobs import KINDS as KNOWN
from muster.core.actuation.carrying import Reply, carry_out, first_request
from muster.core.actuation.intents import ActuatorState, known_of
from muster.core.actuation.orders import Outstanding, RetryLater
from muster.core.actuation.patches import GROUPS, group_name
from muster.core.objects.meta import ATTEMPT, INTENT, SCHEDULING_GROUP
from muster.core.workloads.registry import KINDS
from muster.events.effects import EffectFailed
from muster.fakecluster.apiserver.jsonpatch import json_patch
from muster.model.keys import Intent
from muster.model.workload import Workload, together

Obj = dict[str, Any]


def job(kind: str) -> Obj:
    made = KNOWN[kind].make("one", "video")
    made["metadata"] |= {"uid": "uid-one", "resourceVersion": "7", "generation": 1, "annotations": {"mine": "1"}}
    return made


def read(kind: str, obj: Obj) -> Workload:
    found = KINDS[kind].read(json.dumps(obj).encode())
    assert isinstance(found, Workload)
    return found


def admission(workload: Workload, attempt: int, seq: int) -> Outstanding:
    order = Outstanding(workload.ref, attempt, Intent(1, seq, 0), workload.basis, 1000, 2000)
    return Outstanding(**{**{name: getattr(order, name) for name in order.__struct_fields__}, "together": 2})


def state_of(workload: Workload) -> ActuatorState:
    return ActuatorState(seq=100, known={workload.ref.uid: known_of(workload)})


def test_a_job_that_has_begun_gets_the_podgroup_of_its_next_attempt_and_its_pods_are_left_alone() -> None:
    """The API server lets nobody change the pods of a Job that has begun: they name the same PodGroup for good."""
    obj = job("Job")
    first = read("Job", obj)
    steps = carry_out(admission(first, 1, 7), lambda: state_of(first))
    assert next(steps).path == GROUPS.path("video")
    patch = steps.send(Reply(201, b"{}"))
    obj = dict(json_patch(obj, json.loads(patch.body or b"")))
    name = group_name(first.ref)
    assert obj["spec"]["template"]["metadata"]["annotations"] == {SCHEDULING_GROUP: name}
    obj["spec"]["suspend"] = True
    obj["status"] = {"startTime": "2025-01-09T16:00:00Z"}
    second = read("Job", obj)
    steps = carry_out(admission(second, 2, 9), lambda: state_of(second))
    made = next(steps)
    assert (made.method, made.path) == ("POST", GROUPS.path("video"))
    assert json.loads(made.body or b"")["metadata"]["annotations"][ATTEMPT] == "2"
    patch = steps.send(Reply(201, b"{}"))
    assert not [op for op in json.loads(patch.body or b"") if op["path"].startswith("/spec/template")]


def group(intent: str) -> bytes:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "one", "uid": "uid-one", "controller": True}
    meta = {"name": "pg-one-uid-one", "namespace": "video", "uid": "uid-pg", "resourceVersion": "9"}
    return json.dumps({"metadata": {**meta, "annotations": {INTENT: intent}, "ownerReferences": [owner]}}).encode()


@pytest.mark.parametrize(
    ("intent", "then"),
    [("1-6-0", "removed"), ("", "removed"), ("1-5000-0", "removed"), ("1-50-0", "superseded"), ("2-1-0", "refused")],
)
def test_what_a_podgroup_under_its_name_means(intent: str, then: str) -> None:
    """A decision that is later than our own log ends has been written by somebody else, and stops nobody."""
    workload = read("Job", job("Job"))
    steps = carry_out(admission(workload, 1, 7), lambda: state_of(workload))
    next(steps)
    steps.send(Reply(409, b"{}"))
    if then == "removed":
        assert steps.send(Reply(200, group(intent))).method == "DELETE"
        return
    with pytest.raises(StopIteration) as answer:
        steps.send(Reply(200, group(intent)))
    assert isinstance(answer.value.value, EffectFailed)
    assert answer.value.value.reason == then


def test_a_namespace_that_is_gone_is_not_taken_for_a_cluster_without_podgroups() -> None:
    workload = read("Job", job("Job"))
    steps = carry_out(admission(workload, 1, 7), lambda: state_of(workload))
    next(steps)
    with pytest.raises(StopIteration) as answer:
        steps.send(Reply(404, b'{"message": "namespaces \\"video\\" not found", "reason": "NotFound"}'))
    assert not isinstance(answer.value.value, RetryLater)
    assert answer.value.value.reason == "gone"


def test_pods_that_come_when_others_run_are_not_waited_for() -> None:
    """The driver makes the executors, and a launcher may be told to wait: neither has all of its pods at once."""
    spark, mpi = job("SparkApplication"), job("MPIJob")
    assert together(read("SparkApplication", spark).pod_sets) == 1
    everyone = together(read("MPIJob", mpi).pod_sets)
    mpi["spec"]["launcherCreationPolicy"] = "WaitForWorkersReady"
    assert together(read("MPIJob", mpi).pod_sets) == everyone - 1


def requests(workload: Workload) -> list[tuple[str, str]]:
    """What the actuator asks of the API server for an admission whose pods kube-scheduler is to place."""
    steps = carry_out(admission(workload, 1, 7), lambda: state_of(workload))
    request, made = next(steps), []
    while request.method != "PATCH":
        made.append((request.method, request.path))
        request = steps.send(Reply(201, b"{}"))
    return [*made, *((each["op"], each["path"]) for each in json.loads(request.body or b""))]


def says(obj: Obj) -> list[tuple[str, str]]:
    """What of that is about its PodGroup."""
    return [each for each in requests(read(obj["kind"], obj)) if "roup" in each[1].rpartition("/")[2]]


@pytest.mark.parametrize("kind", sorted(KNOWN))
def test_a_job_that_we_placed_names_no_podgroup_whatever_is_added_to_it(kind: str) -> None:
    """Its pods name us for good: those of a new set would wait for them in a PodGroup for ever."""
    obj = job(kind)
    workload = read(kind, obj)
    placed = replace(admission(workload, 1, 7), together=0, placed=True)
    patch = first_request(placed, known_of(workload))
    obj = dict(json_patch(obj, json.loads(patch.body or b"")))
    assert says(obj) == []
    for new in added(kind, obj):
        assert says(new) == []


def added(kind: str, obj: Obj) -> list[Obj]:
    """With one more set of pods, as its owner may write it, wherever a kind has lists or tables of them."""
    found: list[Obj] = []

    def walk(at: Any) -> None:
        for sets in (at.get("workerGroupSpecs"), *(value for key, value in at.items() if key.endswith("ReplicaSpecs"))):
            if isinstance(sets, list):
                made = json.loads(json.dumps(sets[0]))
                fresh(made)
                sets.append({**made, "groupName": "new"})
                found.append(json.loads(json.dumps(obj)))
            elif isinstance(sets, dict):
                for name in ("Worker", "PS", "Evaluator", "Chief"):
                    if name not in sets:
                        sets[name] = json.loads(json.dumps(next(iter(sets.values()))))
                        fresh(sets[name])
                        found.append(json.loads(json.dumps(obj)))
                        break
        for value in at.values():
            if isinstance(value, dict):
                walk(value)

    walk(obj["spec"])
    return found


def fresh(made: Obj) -> None:
    made["template"].pop("metadata", None)
    made["template"]["spec"].pop("schedulerName", None)


@pytest.mark.parametrize("kind", sorted(KNOWN))
def test_a_job_whose_pods_name_us_gets_no_podgroup(kind: str) -> None:
    """Of a Job, too, whose scheduler nobody may change: kube-scheduler would never see its pods."""
    obj = job(kind)
    templates = pod_specs(obj["spec"])
    for each in templates:
        each["schedulerName"] = "muster"
    assert templates or kind in ("SparkApplication", "TrainJob", "Workflow"), "these have no templates of pods"
    if templates:
        assert says(obj) == []


def pod_specs(at: Any) -> list[Obj]:
    """The specs of all pod templates of an object."""
    if isinstance(at, list):
        return [each for value in at for each in pod_specs(value)]
    if not isinstance(at, dict):
        return []
    return [at] if "containers" in at else [each for value in at.values() for each in pod_specs(value)]
