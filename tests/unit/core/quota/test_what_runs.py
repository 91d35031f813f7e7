"""What runs is charged, whatever made it run: read from objects as the API server has them, through all stages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from kit import facts, jobs, ray
from kit.audits import audit
from kit.bench import Bench
from kit.jobs import Obj
from kit.scenes import TWO, Scene
from muster.core.actuation.carrying import Reply, carry_out, orders_of
from muster.core.actuation.intents import Actuator, ActuatorState
from muster.core.actuation.orders import Order
from muster.core.quota import accountant
from muster.core.quota.accounting import rechecks
from muster.core.quota.accounting.rechecks import beyond, charge_due
from muster.core.reading.cluster import read_pod
from muster.core.reading.watched import WATCHED
from muster.core.stage import Folder
from muster.events.charges import ChargeChanged
from muster.events.decisions import EvictionOrdered, GangAdmitted, QuotaReleased, WorkloadAdopted
from muster.events.effects import EffectApplied
from muster.events.facts import ChildGone, ChildObserved, PodGone, PodObserved, Synced, WorkloadGone, WorkloadObserved
from muster.events.gangs import PodsPlaced
from muster.model.keys import Ref
from muster.model.resources import Vector
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState
from muster.told.views.measures import measures

CPU = 1000


class Cell:
    """A bench that is handed objects."""

    def __init__(self, profile: str = "ack") -> None:
        self.bench = Bench()
        ten = {"cpu": 100}
        leaf = facts.node("team", ten, ten, ("ns",))
        self.bench.facts(facts.tree(facts.node("root", ten, ten, children=(leaf,)), profile=profile))
        self.bench.synced()
        self.rv = 100

    def sees(self, shard: str, obj: Obj) -> Any:
        """The watcher sees an object; returns the fact."""
        self.rv += 1
        obj["metadata"]["resourceVersion"] = str(self.rv)
        fact = WATCHED[shard].read(json.dumps(obj).encode())
        assert fact is not None
        seq = self.bench.facts(fact)
        self.decided = self.bench.settle()
        for event in self.decided:
            if isinstance(event, GangAdmitted):
                effect = EffectApplied(cause=(seq, 0), ref=event.ref, attempt=event.attempt, rv=self.rv)
                self.bench.append("actuator", "input", [effect])
        return fact

    def charged(self, uid: str = "job-uid") -> Vector:
        return self.bench.states["quota_accountant"].ledger.charges[uid].request

    def over(self, uid: str = "job-uid") -> Vector:
        return self.bench.states["quota_accountant"].ledger.charges[uid].over


def admitted_job(cell: Cell, **spec: Any) -> Obj:
    """A RayJob that was queued, admitted and resumed."""
    job = ray.rayjob("", suspend=True, **spec)
    cell.sees("rayjobs", job)
    job["spec"]["suspend"] = False
    job["status"] = {"jobDeploymentStatus": "Initializing", "rayClusterName": "j-raycluster-1"}
    cell.sees("rayjobs", job)
    return job


def cluster_of(**spec: Any) -> Obj:
    owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "j", "uid": "job-uid", "controller": True}
    return ray.raycluster(meta={"ownerReferences": [owner]}, **spec)


def pod(number: int, cpu: str = "1", **status: Any) -> Obj:
    owner = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "name": "j-raycluster-1",
        "uid": "cluster-uid",
        "controller": True,
    }
    container = {"name": "ray", "resources": {"requests": {"cpu": cpu}}}
    meta = {"name": f"p{number}", "namespace": "ns", "uid": f"pod-{number}", "ownerReferences": [owner]}
    meta["labels"] = {"ray.io/cluster": "j-raycluster-1"}
    return {"metadata": meta, "spec": {"containers": [container]}, "status": {"phase": "Running", **status}}


@pytest.mark.parametrize("profile", ["ack", "full"])
def test_workers_that_ray_or_a_person_adds_are_charged(profile: str) -> None:
    """Seen on a real operator: 2 -> 14 workers, charged as before."""
    cell = Cell(profile)
    admitted_job(cell)
    granted = cell.charged()
    cell.sees("rayclusters", cluster_of())
    assert cell.charged() == granted and not cell.over()
    cell.sees("rayclusters", cluster_of(workerGroupSpecs=[ray.group(replicas=14)]))
    assert cell.over()["cpu"] == 12 * CPU and cell.charged()["cpu"] == granted["cpu"] + 12 * CPU
    assert any(isinstance(event, ChargeChanged) for event in cell.decided)
    cell.sees("rayclusters", cluster_of())
    assert cell.charged() == granted and not cell.over()


def test_a_worker_group_of_a_thousand_hosts_is_a_thousand_workers() -> None:
    cell = Cell()
    cluster = ray.cluster_spec(ray.group(replicas=1, numOfHosts=1000))
    fact: WorkloadObserved = cell.sees("rayjobs", ray.rayjob("", suspend=True, rayClusterSpec=cluster))
    assert fact.workload.need["ack"]["cpu"] == 1001 * CPU
    assert fact.workload.pod_sets[1].count == 1000


def test_a_group_that_is_unsuspended_later_is_charged() -> None:
    cell = Cell()
    groups = [ray.group("one", replicas=1), ray.group("two", replicas=5, suspend=True)]
    admitted_job(cell, rayClusterSpec=ray.cluster_spec(*groups))
    assert cell.charged()["cpu"] == 2 * CPU
    groups[1]["suspend"] = False
    cell.sees("rayclusters", cluster_of(workerGroupSpecs=groups))
    assert cell.over()["cpu"] == 5 * CPU


@pytest.mark.parametrize("profile", ["ack", "full"])
def test_helpers_of_the_admitted_spec_are_no_overuse(profile: str) -> None:
    """Autoscaler, submitter: what kube-queue does not count stays uncounted, what was reserved stays reserved."""
    cell = Cell(profile)
    admitted_job(cell, rayClusterSpec=ray.cluster_spec(enableInTreeAutoscaling=True))
    granted = cell.charged()
    cell.sees("rayclusters", cluster_of(enableInTreeAutoscaling=True))
    for number, cpu in enumerate(("1500m", "1", "1")):
        cell.sees("pods", pod(number, cpu))
    assert cell.charged() == granted and not cell.over()


def test_pods_count_where_no_spec_tells_of_them() -> None:
    """Defaults of a LimitRange, a mutating webhook: the pods ask for more than their templates."""
    cell = Cell()
    admitted_job(cell)
    cell.sees("rayclusters", cluster_of())
    for number in range(3):
        cell.sees("pods", pod(number, "3"))
    assert cell.over()["cpu"] == 6 * CPU


def test_pods_that_their_controller_does_not_find_are_charged_with_it() -> None:
    """By labels of their template, which older operators keep, it finds none of its pods, and goes on making more."""
    cell = Cell()
    admitted_job(cell)
    cell.sees("rayclusters", cluster_of())
    for number in range(9):
        lost = pod(number)
        lost["metadata"]["labels"] = {"ray.io/cluster": "another"}
        cell.sees("pods", lost)
    assert cell.charged()["cpu"] == 9 * CPU and cell.over()["cpu"] == 6 * CPU


def test_a_pod_resized_in_place_is_charged_with_the_larger_of_both() -> None:
    """2 -> 1,000 CPU without any new pod."""
    cell = Cell()
    admitted_job(cell)
    cell.sees("rayclusters", cluster_of())
    cell.sees("pods", pod(0))
    cell.sees("pods", pod(0, "1000"))
    assert cell.over()["cpu"] == 997 * CPU


def allocated(cpu: str) -> Obj:
    return {"containerStatuses": [{"name": "ray", "allocatedResources": {"cpu": cpu}}]}


def test_a_resize_downwards_counts_once_the_kubelet_has_done_it() -> None:
    fact = read_pod(json.dumps(pod(0, "1", **allocated("4"))).encode())
    assert fact is not None and fact.pod.request == {"cpu": 4 * CPU}


def test_a_resize_that_can_never_be_done_does_not_count() -> None:
    pending = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    fact = read_pod(json.dumps(pod(0, "900", **allocated("4"), conditions=[pending])).encode())
    assert fact is not None and fact.pod.request == {"cpu": 4 * CPU}


def test_a_raised_parallelism_is_charged() -> None:
    cell = Cell()
    job: Obj = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "ns", "uid": "job-uid", "generation": 1},
        "spec": {"suspend": True, "parallelism": 2, "template": ray.pod_template()},
    }
    cell.sees("jobs", job)
    job["spec"]["suspend"] = False
    cell.sees("jobs", job)
    assert cell.charged()["cpu"] == 2 * CPU
    job["spec"]["parallelism"] = 50
    cell.sees("jobs", job)
    assert cell.over()["cpu"] == 48 * CPU


def test_a_raycluster_scaled_by_hand_is_charged() -> None:
    cell = Cell()
    cluster = ray.raycluster(suspend=True)
    cell.sees("rayclusters", cluster)
    cluster["spec"]["suspend"] = False
    cell.sees("rayclusters", cluster)
    cluster["spec"]["workerGroupSpecs"][0]["replicas"] = 14
    cell.sees("rayclusters", cluster)
    assert cell.over("cluster-uid")["cpu"] == 12 * CPU


def test_an_adopted_cluster_is_charged_as_it_has_grown() -> None:
    cell = Cell()
    job = ray.rayjob("Running", suspend=False)
    cell.sees("rayjobs", job)
    assert any(isinstance(event, WorkloadAdopted) for event in cell.decided)
    cell.sees("rayclusters", cluster_of(workerGroupSpecs=[ray.group(replicas=14)]))
    assert cell.charged()["cpu"] == 15 * CPU


def test_a_child_that_cannot_be_read_is_a_child_still() -> None:
    cell = Cell()
    broken = cluster_of(workerGroupSpecs=[{**ray.group(), "replicas": -4}])
    fact: ChildObserved = cell.sees("rayclusters", broken)
    assert fact.child.owner_uid == "job-uid" and fact.child.asks == {}


def test_what_is_released_is_what_was_charged() -> None:
    cell = Cell()
    job = admitted_job(cell)
    cell.sees("rayclusters", cluster_of(workerGroupSpecs=[ray.group(replicas=14)]))
    job["status"]["jobDeploymentStatus"] = "Complete"
    cell.sees("rayjobs", job)
    cell.bench.facts(ChildGone(ref=Ref("RayCluster", "ns", "j-raycluster-1", "cluster-uid")))
    cell.bench.settle()
    state = cell.bench.states["quota_accountant"]
    assert not state.ledger.charges and not state.ledger.used


@pytest.mark.parametrize(("listed", "released"), [(0, False), (1, True)], ids=["before the end", "after the end"])
def test_a_list_newer_than_the_end_proves_that_a_child_nobody_saw_is_gone(listed: int, released: bool) -> None:
    """The watcher was away while the cluster came and went; the fresh list lacks the cluster."""
    cell = Cell()
    job = admitted_job(cell)
    job["status"] = {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "rayClusterName": "j-raycluster-1"}
    cell.sees("rayjobs", job)
    cell.bench.facts(Synced(kind="rayclusters", rv=cell.rv - 1 + listed))
    decided = cell.bench.settle()
    assert any(isinstance(event, QuotaReleased) for event in decided) == released
    assert ("job-uid" in cell.bench.states["quota_accountant"].ledger.charges) != released


@pytest.mark.parametrize("made", [True, False], ids=["its pods were seen", "no pod was seen"])
def test_a_job_deleted_before_its_status_followed_the_resume_is_free_once_its_pods_are_gone(made: bool) -> None:
    """Seen on a bad day: the job ended and was deleted while every service was down; an owner's job was evicted."""
    cell = Cell()
    job: Obj = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "ns", "uid": "job-uid", "generation": 1},
        "spec": {"suspend": True, "parallelism": 1, "template": ray.pod_template()},
        "status": {"conditions": [{"type": "Suspended", "status": "True"}]},
    }
    cell.sees("jobs", job)
    job["spec"]["suspend"] = False
    fact = cell.sees("jobs", job)
    if made:
        one = pod(1)
        one["metadata"]["ownerReferences"] = [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job-uid", "controller": True}
        ]
        seen = cell.sees("pods", one)
        cell.bench.facts(PodGone(ref=seen.pod.ref, rv=cell.rv + 1))
    cell.bench.facts(WorkloadGone(ref=fact.workload.ref, rv=cell.rv + 2))
    assert any(isinstance(event, QuotaReleased) for event in cell.bench.settle()) == made


@pytest.mark.parametrize("profile", ["ack", "full"])
@pytest.mark.parametrize("cpu", ["4", None])
@pytest.mark.parametrize("mode", ["K8sJobMode", "", "HTTPMode"])
def test_the_submitter_of_a_job_on_a_cluster_of_others_is_charged(profile: str, cpu: str | None, mode: str) -> None:
    """A pod of any size, with any command: twenty of them ran under "1 of 14"."""
    cell = Cell(profile)
    spec: Obj = {"entrypoint": "sleep 1d", "clusterSelector": {"ray.io/cluster": "tiny"}, "submissionMode": mode}
    if cpu:
        container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
        spec["submitterPodTemplate"] = {"spec": {"containers": [container]}}
    meta = {"name": "j", "namespace": "ns", "uid": "job-uid", "generation": 1}
    job: Obj = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": meta, "spec": spec}
    cell.sees("rayjobs", job)
    asked = 0 if mode == "HTTPMode" else int(cpu) * CPU if cpu else 500
    assert cell.charged().get("cpu", 0) == asked
    job["status"] = {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING", "rayClusterName": "tiny"}
    cell.sees("rayjobs", job)
    assert cell.charged().get("cpu", 0) == asked and not cell.over()
    job["status"] |= {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}
    cell.sees("rayjobs", job)
    assert "job-uid" not in cell.bench.states["quota_accountant"].ledger.charges, "at once"
    assert not audit(cell.bench.log).violations


def spark_pod(role: str, name: str, owner: tuple[str, str], **meta: Any) -> Obj:
    kind, uid = owner
    version = "v1" if kind == "Pod" else "sparkoperator.k8s.io/v1beta2"
    reference = {"apiVersion": version, "kind": kind, "name": uid, "uid": uid, "controller": True}
    container = {"name": "main", "resources": {"requests": {"cpu": "2"}}}
    labels = {"spark-role": role, "spark-app-selector": "s"}
    made = {"name": name, "namespace": "ns", "uid": name, "labels": labels, "ownerReferences": [reference], **meta}
    return {"metadata": made, "spec": {"containers": [container], "nodeName": "n"}, "status": {"phase": "Running"}}


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


@pytest.mark.parametrize("driver_first", [True, False])
def test_executors_count_under_a_driver_that_a_job_runs_through_and_by_themselves_else(driver_first: bool) -> None:
    """Whoever has the token of a driver's account may make pods that say they are executors."""
    cell = Cell()
    cell.sees("pods", spark_pod("executor", "stray", ("Pod", "nobody")))
    assert cell.charged("stray")["cpu"] == 2 * CPU

    application = jobs.sparkapplication("s", "ns", cores=2, executors=1)
    application["metadata"] |= {"uid": "app", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"}
    cell.sees("sparkapplications", application)
    application["spec"]["suspend"] = False
    application["status"] = {"applicationState": {"state": "RUNNING"}}
    cell.sees("sparkapplications", application)
    both = [spark_pod("driver", "driver", ("SparkApplication", "app")), spark_pod("executor", "e", ("Pod", "driver"))]
    for each in both if driver_first else reversed(both):
        cell.sees("pods", each)
    charges = cell.bench.states["quota_accountant"].ledger.charges
    assert "e" not in charges, "it is charged with its job"
    assert charges["app"].request["cpu"] == 4 * CPU
    assert "stray" in charges
    over = spark_pod("executor", "stray", ("Pod", "nobody"))
    over["status"]["phase"] = "Succeeded"
    cell.sees("pods", over)
    assert "stray" not in charges


# --- what cannot run any more is not charged --------------------------------------------------------------------------


def plain_job(**spec: Any) -> Obj:
    meta = {"name": "j", "namespace": "ns", "uid": "job-uid", "generation": 1}
    spec = {"suspend": True, "template": ray.pod_template(), **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def job_pod(number: int, **status: Any) -> Obj:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job-uid", "controller": True}
    made = pod(number, **status)
    made["metadata"] |= {"ownerReferences": [owner], "labels": {"batch.kubernetes.io/job-name": "j"}}
    return made


def running_job(cell: Cell, pods: int, **spec: Any) -> Obj:
    """A Job that was queued, admitted and resumed, and runs with so many pods."""
    job = plain_job(**spec)
    cell.sees("jobs", job)
    job["spec"]["suspend"] = False
    cell.sees("jobs", job)
    for number in range(pods):
        cell.sees("pods", job_pod(number))
    job["status"] = {"active": pods, "ready": pods, "startTime": "2026-01-01T00:00:00Z"}
    cell.sees("jobs", job)
    return job


def gone(cell: Cell, *numbers: int) -> None:
    for number in numbers:
        cell.sees("pods", job_pod(number, phase="Succeeded"))


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
    other = plain_job()
    other["metadata"] |= {"name": "other", "uid": "other-uid"}
    for seconds in (50, 20):
        assert not audit(cell.bench.log).violations
        cell.bench.pass_time(seconds * 1_000)
        other["metadata"]["generation"] += 1
        other["spec"]["parallelism"] = seconds
        cell.sees("jobs", other)
    assert {each.invariant for each in audit(cell.bench.log).violations} == {"I30"}
