"""A charge is what may still run: it falls with the pods and the spec, and the auditor sees where it does not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kit import ray
from kit.audits import audit
from kit.charges import CPU, Cell, admitted_job, cluster_of, gone, job_pod, plain_job, pod, running_job
from kit.jobs import Obj
from muster.core.quota import accountant
from muster.core.quota.accounting import rechecks
from muster.core.quota.accounting.rechecks import beyond, charge_due
from muster.core.stage import Folder
from muster.events.base import Event
from muster.events.decisions import QuotaReserved, WorkloadQueued
from muster.events.envelope import Stored
from muster.events.facts import ChildGone, ObjectUnreadable
from muster.model.keys import Ref
from muster.model.problem import problem
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState
from muster.told.views.measures import measures


@pytest.mark.parametrize("profile", ["ack", "full"])
def test_a_job_scaled_down_is_charged_for_the_pods_that_are_left(profile: str) -> None:
    """Seen live: six pods scaled to one, 24 devices charged, 4 in use; an owner waits."""
    cell = Cell(profile)
    job = running_job(cell, 6, parallelism=6, completions=100)
    job["spec"]["parallelism"] = 1
    cell.sees("jobs", job)
    assert cell.charged()["cpu"] == 6 * CPU, "its pods are still there"
    for left in (4, 3, 2, 1):
        gone(cell, left + 1)
        assert cell.charged()["cpu"] == (left + 1) * CPU
    gone(cell, 1)
    assert cell.charged()["cpu"] == CPU and not cell.over()
    job["spec"]["parallelism"] = 6
    cell.sees("jobs", job)
    assert cell.charged()["cpu"] == 6 * CPU and cell.over()["cpu"] == 5 * CPU, "what was given back is not granted"
    assert not audit(cell.bench.log).violations


@pytest.mark.parametrize(
    ("spec", "status", "left"),
    [
        ({"parallelism": 4, "completions": 4, "completionMode": "Indexed"}, {"succeeded": 3}, 1),
        ({"parallelism": 4, "completions": 9}, {"succeeded": 7}, 2),
        ({"parallelism": 4, "completions": 4, "backoffLimitPerIndex": 0}, {"succeeded": 1, "failedIndexes": "1,3"}, 1),
        ({"parallelism": 4, "completions": 6, "backoffLimitPerIndex": 0}, {"succeeded": 2, "failedIndexes": "0-2"}, 1),
    ],
)
def test_the_tail_of_a_job_is_charged_for_what_is_still_to_do(spec: Obj, status: Obj, left: int) -> None:
    cell = Cell()
    job = running_job(cell, 4, **spec)
    gone(cell, *range(4 - left))
    assert cell.charged()["cpu"] == 4 * CPU, "it may make others, as far as its status says"
    job["status"] |= {**status, "active": left, "ready": left}
    cell.sees("jobs", job)
    assert cell.charged()["cpu"] == left * CPU and not cell.over()
    cell.sees("pods", job_pod(9))  # A pod in place of one that is ending.
    assert cell.charged()["cpu"] == (left + 1) * CPU
    assert not audit(cell.bench.log).violations


def test_what_is_charged_and_no_pod_asks_for_is_measured() -> None:
    cell = Cell()

    def unused() -> float | None:
        folder, state = Folder(ReadModel()), ReadState()
        for stored in cell.bench.log:
            folder.fold(state, stored)
        names = {name: value for gauge, (_, (_, name)), value in _named(state, "muster_queue_unused")}
        return names.get("cpu")

    running_job(cell, 4, parallelism=4, completions=40)
    assert unused() is None
    gone(cell, 0, 1)
    assert (cell.charged()["cpu"], unused()) == (4 * CPU, 2.0), "others may be made in their place"


def _named(state: ReadState, gauge: str) -> list[Any]:
    return [measure for measure in measures(state, state.now) if measure[0] == gauge]


TRAINING = {"TFJob": "tfReplicaSpecs", "PyTorchJob": "pytorchReplicaSpecs", "XGBoostJob": "xgbReplicaSpecs"}


@pytest.mark.parametrize("kind", TRAINING)
def test_a_training_is_charged_for_the_roles_that_are_not_done(kind: str) -> None:
    """Its operator makes no pod again that has succeeded, until the training is suspended and resumed."""
    cell, shard, order = Cell(), kind.lower() + "s", ("Master" if kind != "TFJob" else "PS", "Worker")

    def member(number: int, phase: str) -> Obj:
        made = pod(number, phase=phase)
        owner = {"apiVersion": "kubeflow.org/v1", "kind": kind, "name": "j", "uid": "job-uid", "controller": True}
        made["metadata"] |= {"ownerReferences": [owner], "labels": {}}
        return made

    def status(*conditions: str, **roles: int) -> Obj:
        told = [{"type": each, "status": "True" if each == conditions[-1] else "False"} for each in conditions]
        return {"conditions": told, "replicaStatuses": {role: {"succeeded": done} for role, done in roles.items()}}

    one = {"replicas": 1, "template": ray.pod_template()}
    specs = {order[0]: one, "Worker": {**one, "replicas": 3}}
    meta = {"name": "j", "namespace": "ns", "uid": "job-uid", "generation": 1}
    spec: Obj = {"runPolicy": {"suspend": True}, TRAINING[kind]: specs}
    training: Obj = {"apiVersion": "kubeflow.org/v1", "kind": kind, "metadata": meta, "spec": spec}
    cell.sees(shard, training)
    spec["runPolicy"]["suspend"] = False
    cell.sees(shard, training)
    for number in range(4):
        cell.sees("pods", member(number, "Running"))
    training["status"] = status("Created", "Running")
    cell.sees(shard, training)
    assert cell.charged()["cpu"] == 4 * CPU
    cell.sees("pods", member(1, "Succeeded"))
    cell.sees("pods", member(2, "Succeeded"))
    assert cell.charged()["cpu"] == 4 * CPU, "as long as its operator does not say that they succeeded"
    training["status"] = status("Created", "Running", Worker=2)
    cell.sees(shard, training)
    assert cell.charged()["cpu"] == 2 * CPU and not cell.over()
    spec["runPolicy"]["suspend"] = True
    training["status"] = status("Running", "Suspended", Worker=2)
    fact = cell.sees(shard, training)
    assert fact.workload.need["ack"]["cpu"] == 4 * CPU, "it waits for all of its pods"
    assert not audit(cell.bench.log).violations


def test_a_job_scaled_to_nothing_is_charged_with_nothing() -> None:
    cell = Cell()
    job = running_job(cell, 2, parallelism=2)
    job["spec"]["parallelism"] = 0
    cell.sees("jobs", job)
    gone(cell, 0, 1)
    assert not any(cell.charged().values()) and not cell.over()


@pytest.mark.parametrize("profile", ["ack", "full"])
def test_a_cluster_scaled_by_hand_is_charged_as_it_is_now(profile: str) -> None:
    cell = Cell(profile)
    cluster = ray.raycluster(suspend=True, workerGroupSpecs=[ray.group(replicas=5)])
    cell.sees("rayclusters", cluster)
    cluster["spec"]["suspend"] = False
    cell.sees("rayclusters", cluster)
    before = cell.charged("cluster-uid")["cpu"]
    cluster["spec"]["workerGroupSpecs"][0]["replicas"] = 1
    cell.sees("rayclusters", cluster)
    assert cell.charged("cluster-uid")["cpu"] == before - 4 * CPU


@pytest.mark.parametrize("profile", ["ack", "full"])
def test_the_cluster_of_a_job_scaled_by_hand_is_charged_as_it_is_now(profile: str) -> None:
    cell = Cell(profile)
    admitted_job(cell, rayClusterSpec=ray.cluster_spec(ray.group(replicas=5)))
    granted = cell.charged()["cpu"]
    cell.sees("rayclusters", cluster_of(workerGroupSpecs=[ray.group(replicas=5)]))
    assert cell.charged()["cpu"] == granted
    cell.sees("rayclusters", cluster_of(workerGroupSpecs=[ray.group(replicas=2)]))
    assert cell.charged()["cpu"] == granted - 3 * CPU


def test_an_ended_job_is_charged_for_the_pods_that_still_end() -> None:
    cell = Cell()
    job = running_job(cell, 4, parallelism=4)
    job["status"] = {**job["status"], "conditions": [{"type": "Failed", "status": "True"}]}
    cell.sees("jobs", job)
    assert cell.charged()["cpu"] == 4 * CPU
    gone(cell, 0, 1, 2)
    assert cell.charged()["cpu"] == CPU
    gone(cell, 3)
    assert "job-uid" not in cell.bench.states["quota_accountant"].ledger.charges
    assert not audit(cell.bench.log).violations


def test_a_cluster_that_is_being_made_again_stays_charged_in_full() -> None:
    """KubeRay retries: the old cluster goes, and the new one has no object yet."""
    cell = Cell()
    job = admitted_job(cell, rayClusterSpec=ray.cluster_spec(ray.group(replicas=5)))
    granted = cell.charged()["cpu"]
    cell.sees("rayclusters", cluster_of(workerGroupSpecs=[ray.group(replicas=5)]))
    cell.sees("pods", pod(0))
    job["status"] = {"jobDeploymentStatus": "Retrying", "rayClusterName": "j-raycluster-1"}
    cell.sees("rayjobs", job)
    cell.bench.facts(ChildGone(ref=Ref("RayCluster", "ns", "j-raycluster-1", "cluster-uid")))
    cell.bench.settle()
    assert cell.charged()["cpu"] == granted


@pytest.mark.parametrize("profile", ["ack", "full"])
def test_an_ended_job_is_charged_for_the_cluster_that_it_leaves(profile: str) -> None:
    """KubeRay keeps the cluster for a while; the submitter is over."""
    cell = Cell(profile)
    job = admitted_job(cell)
    cell.sees("rayclusters", cluster_of())
    job["status"]["jobDeploymentStatus"] = "Complete"
    cell.sees("rayjobs", job)
    assert cell.charged()["cpu"] == 3 * CPU


# --- the auditor notices ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["never falls", "never rises"])
def test_a_charge_that_does_not_follow_what_may_run_is_noticed_after_a_minute(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stuck(state: Any, entry: Any) -> Any:
        charge = state.ledger.charges[entry.ref.uid]
        right = charge_due(state, entry)
        falls = right is not None and bool(beyond(charge.request, right[0]))
        return None if falls == (fault == "never falls") else right

    monkeypatch.setattr(rechecks, "charge_due", stuck)
    monkeypatch.setattr(accountant, "charge_due", stuck)
    cell = Cell()
    running_job(cell, 4, parallelism=4)
    if fault == "never falls":
        gone(cell, 0, 1, 2)
        cell.sees("jobs", plain_job(suspend=False, parallelism=1) | {"status": {"active": 1, "ready": 1}})
    else:
        for number in range(4, 9):
            cell.sees("pods", job_pod(number))
    for number, seconds in enumerate((50, 40, 30)):
        assert not audit(cell.bench.log).violations
        cell.bench.pass_time(seconds * 1_000)
        other = plain_job()
        other["metadata"] |= {"name": f"other-{number}", "uid": f"other-{number}"}
        cell.sees("jobs", other)  # The accountant has something to decide.
    assert {each.invariant for each in audit(cell.bench.log).violations} == {"I30"}


@pytest.mark.parametrize("readable", [True, False])
def test_a_suspended_job_that_no_queue_has_is_noticed(readable: bool) -> None:
    """A job that cannot be read any more is reported, and in no queue."""
    cell = Cell()
    job = plain_job()
    cell.sees("jobs", job)
    if not readable:
        ref = Ref("Job", "ns", "j", "job-uid")
        cell.bench.facts(ObjectUnreadable(ref=ref, rv=cell.rv + 1, problem=problem("spec", "spec_missing")))
        cell.bench.settle()
    log = [_without(stored, WorkloadQueued, QuotaReserved) for stored in cell.bench.log]
    assert ("I16" in {each.invariant for each in audit(log).violations}) is readable


def _without(stored: Stored, *kinds: type[Event]) -> Stored:
    """The commit as by a sorter that forgets the job."""
    events = tuple(event for event in stored.commit.events if not isinstance(event, kinds))
    return replace(stored, commit=replace(stored.commit, events=events))
