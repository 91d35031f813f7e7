"""What runs is charged, whatever made it run: read from objects as the API server has them, through all stages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kit import jobs, ray
from kit.audits import audit
from kit.charges import CPU, Cell, admitted_job, cluster_of, job_pod, pod
from kit.jobs import Obj
from muster.core.reading.cluster import read_pod
from muster.events.charges import ChargeChanged
from muster.events.decisions import QuotaReleased, WorkloadAdopted
from muster.events.facts import ChildGone, ChildObserved, PodGone, Synced, SyncStarted, WorkloadGone, WorkloadObserved
from muster.model.keys import Ref


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


@pytest.mark.parametrize("waited", [0, 45, 70])
@pytest.mark.parametrize("made", ["before its end", "after its end", ""], ids=lambda made: f"pods {made or 'never'}")
def test_a_job_deleted_before_its_status_followed_the_resume_is_free_once_its_pods_are_gone(
    made: str, waited: int
) -> None:
    """Seen on a bad day: the job ended and was deleted while every service was down; an owner's job was evicted. Its
    controller has a minute after the resume, not after the news of the deletion. The real job controller makes pods of
    a Job that was deleted a moment before.
    """
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

    def pods_come_and_go() -> None:
        seen = cell.sees("pods", job_pod(1))
        cell.bench.facts(PodGone(ref=seen.pod.ref, rv=cell.rv + 1))

    if made == "before its end":
        pods_come_and_go()
    cell.bench.pass_time(waited * 1000)
    cell.bench.facts(WorkloadGone(ref=fact.workload.ref, rv=cell.rv + 2))
    if made == "after its end":
        pods_come_and_go()

    def released() -> bool:
        return any(isinstance(event, QuotaReleased) for event in cell.bench.settle())

    assert released() == (bool(made) or waited >= 60)
    if not made and waited < 60:
        assert not [event for event in cell.bench.pass_time((59 - waited) * 1000) if isinstance(event, QuotaReleased)]
        assert [event for event in cell.bench.pass_time(2_000) if isinstance(event, QuotaReleased)]


DELETED = "2026-01-01T00:01:00Z"
AT_ONCE, IN_A_MINUTE = 6, 61


def deleted_before_a_child_was_seen(cell: Cell, how: str, *, named: bool) -> None:
    """A RayJob with KubeRay's finalizer was resumed, and deleted before anything of it was seen."""
    job = ray.rayjob(ray.words.SUSPENDED, suspend=True, finalizer=how != "without a finalizer")
    cell.sees("rayjobs", job)
    job["spec"]["suspend"] = False
    if named:
        job["status"] = {"jobDeploymentStatus": "Initializing", "rayClusterName": "j-raycluster-1"}
    fact = cell.sees("rayjobs", job)
    if how == "before a list":
        cell.bench.facts(SyncStarted(kinds=("rayclusters",)))
    if how.startswith("kept by"):
        job["metadata"] |= {"deletionTimestamp": DELETED, "finalizers": [ray.words.FINALIZER, "foregroundDeletion"]}
        cell.sees("rayjobs", job)
    if how == "kept by the garbage collector":
        job["metadata"]["finalizers"] = ["foregroundDeletion"]
        cell.sees("rayjobs", job)
    elif how != "kept by KubeRay":
        cell.bench.facts(WorkloadGone(ref=fact.workload.ref, rv=cell.rv + 2, unwatched=how == "not watched"))


@pytest.mark.parametrize("named", [True, False], ids=["its cluster has a name", "its cluster has no name"])
@pytest.mark.parametrize(
    ("how", "free_s"),
    [
        ("gone", AT_ONCE),
        ("kept by the garbage collector", AT_ONCE),
        ("without a finalizer", IN_A_MINUTE),
        ("kept by KubeRay", IN_A_MINUTE),
        ("not watched", IN_A_MINUTE),
    ],
)
def test_a_job_is_free_once_its_controller_has_let_the_deleted_object_go(how: str, free_s: int, *, named: bool) -> None:
    """Deleted between the resume and its RayCluster: KubeRay makes none any more, and the job was charged for a minute.
    An object without the finalizer, and one whose finalizer is there, proves nothing.
    """
    cell = Cell()
    deleted_before_a_child_was_seen(cell, how, named=named)
    before = cell.bench.pass_time((free_s - 2) * 1000)
    assert not [event for event in before if isinstance(event, QuotaReleased)]
    assert [event.reason for event in cell.bench.pass_time(2_000) if isinstance(event, QuotaReleased)] == ["gone"]
    assert not audit(cell.bench.log).violations


def test_what_a_controller_made_before_it_let_the_object_go_is_charged_though_its_news_is_late() -> None:
    """The API server promises no order between two resources."""
    cell = Cell()
    deleted_before_a_child_was_seen(cell, "gone", named=False)
    cell.bench.pass_time(4_000)
    cell.sees("rayclusters", cluster_of())
    cell.sees("pods", pod(0))
    assert not [event for event in cell.bench.pass_time(90_000) if isinstance(event, QuotaReleased)]
    cell.bench.facts(ChildGone(ref=Ref("RayCluster", "ns", "j-raycluster-1", "cluster-uid"), rv=cell.rv + 1))
    assert not [event for event in cell.bench.settle() if isinstance(event, QuotaReleased)]
    cell.bench.facts(PodGone(ref=Ref("Pod", "ns", "p0", "pod-0"), rv=cell.rv + 2))
    assert [event for event in cell.bench.settle() if isinstance(event, QuotaReleased)]


def test_what_a_controller_made_is_not_looked_for_in_a_list_that_is_not_there_yet() -> None:
    cell = Cell()
    deleted_before_a_child_was_seen(cell, "before a list", named=True)
    assert not [event for event in cell.bench.pass_time(30_000) if isinstance(event, QuotaReleased)]
    cell.bench.facts(Synced(kind="rayclusters", rv=cell.rv + 3))
    assert [event for event in cell.bench.settle() if isinstance(event, QuotaReleased)]


def test_a_job_stopped_by_others_and_deleted_is_free_in_a_minute_without_any_news() -> None:
    """Nothing more is heard of a job whose finalizers hang."""
    cell = Cell()
    job = ray.rayjob(ray.words.SUSPENDED, suspend=True)
    cell.sees("rayjobs", job)
    job["spec"]["suspend"] = False
    cell.sees("rayjobs", job)
    job["spec"]["suspend"] = True
    job["metadata"]["deletionTimestamp"] = DELETED
    cell.sees("rayjobs", job)
    assert not [event for event in cell.bench.pass_time(59_000) if isinstance(event, QuotaReleased)]
    assert [event for event in cell.bench.pass_time(2_000) if isinstance(event, QuotaReleased)]


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
