"""The simulated cluster as a whole: the story of the first document, and what its parts do in it."""

import json

import pytest

from kit.documents import manifest
from kit.ray import Object
from muster.fakecluster.apiserver.store import StoredChange
from muster.fakecluster.kuberay import OUTCOME, RUNTIME, OperatorSettings
from muster.fakecluster.world import BEGINNING_MS, SimCluster
from muster.model.api import EVENTS, JOBS, NODES, PODS, PRIORITY_CLASSES, RAYCLUSTERS, RAYJOBS, ApiResource

THREE_NODES = {f"node-{number}": {"cpu": "8", "memory": "32Gi"} for number in range(3)}


def seconds(cluster: SimCluster) -> float:
    return (cluster.clock.now() - BEGINNING_MS) / 1000


def objects(cluster: SimCluster, resource: ApiResource) -> list[Object]:
    return list(cluster.server.store.table(resource).objects.values())


def create(cluster: SimCluster, name: str = "", **annotations: str) -> str:
    """A RayJob of the document, not suspended if it has a name; returns its name."""
    job = manifest("rayjob-video")
    if name:
        job["metadata"] = {"name": name, "annotations": annotations}
        job["spec"]["suspend"] = False
    return str(cluster.server.objects.create(RAYJOBS, "video", job)["metadata"]["name"])


def status(cluster: SimCluster, name: str) -> Object:
    return dict(cluster.server.objects.get(RAYJOBS, "video", name).get("status") or {})


def shown(cluster: SimCluster, name: str) -> tuple[str, str]:
    """(JOB STATUS, DEPLOYMENT STATUS) as `kubectl get rayjob` shows them."""
    found = status(cluster, name)
    return found.get("jobStatus", ""), found.get("jobDeploymentStatus", "")


def pods(cluster: SimCluster) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in objects(cluster, PODS)}


def resume(cluster: SimCluster, name: str, *, suspend: bool = False) -> None:
    """What a queue does."""
    cluster.server.objects.patch(RAYJOBS, "video", name, {"spec": {"suspend": suspend}})


def until(cluster: SimCluster, name: str, state: str, limit_s: int = 120) -> None:
    reached = cluster.advance_until(lambda: shown(cluster, name)[1] == state, limit_s * 1000)
    assert reached, f"{name} is {shown(cluster, name)} after {seconds(cluster)} s"


def test_the_story_of_the_document() -> None:
    cluster = SimCluster(THREE_NODES)
    first, second = create(cluster), create(cluster)
    cluster.step()
    assert shown(cluster, first) == shown(cluster, second) == ("", "Suspended")
    assert pods(cluster) == {}

    resume(cluster, first)
    cluster.advance(1_000)
    assert shown(cluster, first) == ("", "Initializing")
    until(cluster, first, "Running")
    assert status(cluster, first)["rayClusterName"].startswith(f"{first}-")
    cluster.advance_until(lambda: len(pods(cluster)) == 4 and set(pods(cluster).values()) == {"Running"}, 60_000)
    cluster.advance(1_000)
    raycluster = status(cluster, first)["rayClusterName"]
    prefixes = sorted(name.rpartition("-")[0] for name in pods(cluster))
    workers = f"{raycluster}-small-group-worker"
    assert prefixes == [first, f"{raycluster}-head", workers, workers]
    assert shown(cluster, first) == ("RUNNING", "Running")
    assert shown(cluster, second) == ("", "Suspended")
    assert status(cluster, second)["startTime"] == "2025-01-10T01:36:24Z", "it once was Initializing"

    until(cluster, first, "Complete")
    assert shown(cluster, first) == ("SUCCEEDED", "Complete")
    ended = seconds(cluster)
    assert objects(cluster, RAYCLUSTERS), "the cluster outlives its job by ten seconds"
    gone = cluster.advance_until(lambda: not objects(cluster, RAYCLUSTERS), 60_000)
    assert gone
    assert 9 <= seconds(cluster) - ended <= 10
    cluster.advance(5_000)
    left = objects(cluster, PODS)
    assert [pod["metadata"]["name"].rpartition("-")[0] for pod in left] == [first], "its submitter is kept for its logs"

    resume(cluster, second)
    until(cluster, second, "Complete")


def test_the_same_seed_gives_the_same_history() -> None:
    def history(seed: int) -> list[bytes]:
        lines: list[bytes] = []

        def note(change: StoredChange) -> None:
            lines.append(change.line)

        cluster = SimCluster(THREE_NODES, seed=seed)
        cluster.server.subscribe(note)
        resume(cluster, create(cluster))
        create(cluster)
        cluster.advance(60_000)
        return lines

    one = history(1)
    assert one == history(1)
    assert [json.loads(line)["type"] for line in one] == [json.loads(line)["type"] for line in history(2)]
    assert one != history(2)


def test_annotations_say_how_long_a_ray_job_runs_and_how_it_ends() -> None:
    cluster = SimCluster(THREE_NODES)
    quick = create(cluster, "quick", **{RUNTIME: "5s"})
    until(cluster, quick, "Complete")
    assert seconds(cluster) == pytest.approx(9, abs=0.1), "2 s for the cluster, 2 s for the submitter, 5 s of work"
    failing = create(cluster, "failing", **{RUNTIME: "5s", OUTCOME: "failed"})
    until(cluster, failing, "Failed")
    assert (shown(cluster, failing)[0], status(cluster, failing)["reason"]) == ("FAILED", "AppFailed")
    stopped = create(cluster, "stopped", **{RUNTIME: "1s", OUTCOME: "stopped"})
    until(cluster, stopped, "Complete")
    assert shown(cluster, stopped)[0] == "STOPPED"
    refused = create(cluster, "refused", **{RUNTIME: "1s", OUTCOME: "submission-failed"})
    until(cluster, refused, "Failed")
    assert status(cluster, refused)["reason"] == "SubmissionFailed"
    tries = [
        pod
        for pod in pods(cluster)
        if pod.startswith(f"{refused}-") and not pod.startswith(status(cluster, refused)["rayClusterName"])
    ]
    assert len(tries) == 3, "a submitter is tried again twice"


def test_a_failed_job_is_retried_on_a_new_cluster() -> None:
    cluster = SimCluster(THREE_NODES)
    job = manifest("rayjob-video")
    job["metadata"] = {"name": "again", "annotations": {OUTCOME: "failed", RUNTIME: "5s"}}
    job["spec"] |= {"suspend": False, "backoffLimit": 1}
    clusters: set[str] = set()
    states: dict[str, None] = {}

    def note(change: StoredChange) -> None:
        states[(change.object.get("status") or {}).get("jobDeploymentStatus", "")] = None

    cluster.server.subscribe(lambda change: clusters.add(change.object["metadata"]["name"]), RAYCLUSTERS)
    cluster.server.subscribe(note, RAYJOBS)
    cluster.server.objects.create(RAYJOBS, "video", job)
    until(cluster, "again", "Failed")
    assert (status(cluster, "again")["failed"], len(clusters)) == (2, 2)
    assert list(states) == ["", "Initializing", "Running", "Retrying", "Failed"]


def test_suspension_takes_everything_down_and_resumption_begins_anew() -> None:
    cluster = SimCluster(THREE_NODES)
    name = create(cluster, "j")
    until(cluster, name, "Running")
    cluster.advance(10_000)
    before = status(cluster, name)
    resume(cluster, name, suspend=True)
    cluster.step()
    assert shown(cluster, name)[1] == "Suspended", "as soon as the objects are gone"
    assert any(objects(cluster, PODS)), "their pods take a little longer: only then is the room free"
    cluster.advance(2_000)
    assert pods(cluster) == {}
    resume(cluster, name)
    until(cluster, name, "Complete")
    after = status(cluster, name)
    assert after["rayClusterName"] != before["rayClusterName"]
    assert after["startTime"] > before["startTime"]


def test_a_flip_of_suspend_during_suspension_does_not_save_the_cluster() -> None:
    cluster = SimCluster(THREE_NODES)
    name = create(cluster, "j")
    until(cluster, name, "Running")
    before = status(cluster, name)["rayClusterName"]
    held = cluster.server.objects.get(RAYCLUSTERS, "video", before)
    finalizers = {"metadata": {"finalizers": ["test.dev/hold"]}}
    cluster.server.objects.patch(RAYCLUSTERS, "video", held["metadata"]["name"], finalizers)
    resume(cluster, name, suspend=True)
    cluster.step()
    assert shown(cluster, name)[1] == "Suspending"
    resume(cluster, name)
    cluster.step()
    assert shown(cluster, name)[1] == "Suspending"
    cluster.server.objects.patch(RAYCLUSTERS, "video", before, {"metadata": {"finalizers": None}})
    until(cluster, name, "Running")
    assert status(cluster, name)["rayClusterName"] != before


def test_deleting_a_job_takes_everything_with_it() -> None:
    cluster = SimCluster(THREE_NODES)
    name = create(cluster, "j")
    until(cluster, name, "Running")
    cluster.advance(5_000)
    cluster.server.objects.delete(RAYJOBS, "video", name)
    cluster.advance(5_000)
    for resource in (RAYJOBS, RAYCLUSTERS, JOBS, PODS):
        assert objects(cluster, resource) == [], resource


@pytest.mark.parametrize("mode", ["HTTPMode", "SidecarMode"])
def test_modes_without_a_submitter(mode: str) -> None:
    cluster = SimCluster(THREE_NODES)
    job = manifest("rayjob-video")
    job["metadata"] = {"name": "j"}
    job["spec"] |= {"suspend": False, "submissionMode": mode}
    cluster.server.objects.create(RAYJOBS, "video", job)
    until(cluster, "j", "Complete")
    assert objects(cluster, JOBS) == []
    assert len(objects(cluster, PODS)) == 3


def test_interactive_mode_waits_for_its_user() -> None:
    cluster = SimCluster(THREE_NODES)
    job = manifest("rayjob-video")
    job["metadata"] = {"name": "j"}
    job["spec"] |= {"suspend": False, "submissionMode": "InteractiveMode"}
    cluster.server.objects.create(RAYJOBS, "video", job)
    until(cluster, "j", "Waiting")
    cluster.advance(600_000)
    resume(cluster, "j", suspend=True)
    cluster.advance(1_000)
    assert shown(cluster, "j")[1] == "Waiting"
    cluster.server.objects.patch(RAYJOBS, "video", "j", {"spec": {"suspend": False, "jobId": "mine"}})
    until(cluster, "j", "Complete")


def test_without_room_a_job_waits_until_there_is_some() -> None:
    cluster = SimCluster({"small": {"cpu": "12", "memory": "32Gi"}})
    name = create(cluster, "j")
    cluster.advance(60_000)
    assert shown(cluster, name)[1] == "Running", "the cluster just fits"
    submitter = next(pod for pod in objects(cluster, PODS) if pod["metadata"]["name"].count("-") == 1)
    reasons = [entry.get("reason") for entry in submitter["status"]["conditions"]]
    assert (submitter["status"]["phase"], reasons) == ("Pending", ["Unschedulable"])
    cluster.server.objects.create(NODES, "", {"metadata": {"name": "more"}, "status": {"allocatable": {"cpu": "1"}}})
    cluster.advance(1_000)
    assert "nodeName" not in cluster.server.objects.get(PODS, "video", submitter["metadata"]["name"])["spec"]
    roomy = {"cpu": "2", "memory": "4Gi", "pods": "10"}
    cluster.server.objects.patch(NODES, "", "more", {"status": {"allocatable": roomy}}, subresource="status")
    until(cluster, name, "Complete")


def bare_pod(cluster: SimCluster, name: str, cpu: str, **spec: object) -> None:
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]
    cluster.server.objects.create(PODS, "ns", {"metadata": {"name": name}, "spec": {"containers": containers, **spec}})


def places(cluster: SimCluster) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in objects(cluster, PODS)}


def test_the_scheduler_takes_the_highest_priority_and_the_first_node_that_fits() -> None:
    cluster = SimCluster({"a": {"cpu": "4"}, "b": {"cpu": "8"}})
    cluster.server.objects.create(PRIORITY_CLASSES, "", {"metadata": {"name": "high"}, "value": 10})
    bare_pod(cluster, "low", "4")
    bare_pod(cluster, "big", "6")
    bare_pod(cluster, "high", "4", priorityClassName="high")
    bare_pod(cluster, "ours", "1", schedulerName="muster")
    bare_pod(cluster, "gated", "1", schedulingGates=[{"name": "g"}])
    bare_pod(cluster, "picky", "1", nodeSelector={"kubernetes.io/hostname": "b"})
    cluster.step()
    assert places(cluster) == {"high": "a", "low": "b", "picky": "b", "big": "", "ours": "", "gated": ""}
    cluster.server.objects.delete(PODS, "ns", "low")
    cluster.advance(500)
    assert places(cluster)["big"] == "", "a pod that is going holds its place"
    cluster.advance(1_000)
    assert places(cluster)["big"] == "b"
    cluster.server.objects.patch(PODS, "ns", "gated", {"spec": {"schedulingGates": None}})
    cluster.step()
    assert places(cluster)["gated"] == "b"


def test_the_scheduler_counts_pods_that_others_bind() -> None:
    cluster = SimCluster({"a": {"cpu": "4"}})
    bare_pod(cluster, "ours", "3", schedulerName="muster")
    cluster.server.objects.bind("ns", "ours", {"target": {"name": "a"}})
    bare_pod(cluster, "theirs", "2")
    cluster.step()
    assert places(cluster) == {"ours": "a", "theirs": ""}


def test_a_deleted_pod_is_reported_stopped_before_it_goes() -> None:
    cluster = SimCluster({"a": {"cpu": "4"}})
    bare_pod(cluster, "p", "1")
    cluster.advance(5_000)
    seen: list[tuple[str, str]] = []
    cluster.server.subscribe(lambda change: seen.append((change.type, change.object["status"]["phase"])), PODS)
    cluster.server.objects.delete(PODS, "ns", "p")
    cluster.advance(5_000)
    assert seen == [
        ("MODIFIED", "Running"),
        ("MODIFIED", "Failed"),
        ("MODIFIED", "Failed"),
        ("DELETED", "Failed"),
    ]


def test_an_invalid_cluster_is_reported_once() -> None:
    cluster = SimCluster(THREE_NODES)
    spec = manifest("rayjob-video")["spec"]["rayClusterSpec"]
    made = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "c"}, "spec": spec}
    cluster.server.objects.create(RAYCLUSTERS, "video", made)
    cluster.advance(5_000)
    assert cluster.server.objects.get(RAYCLUSTERS, "video", "c")["status"]["state"] == "ready"
    group = spec["workerGroupSpecs"][0]
    broken = {"spec": {"workerGroupSpecs": [{**group, "replicas": 9, "minReplicas": 5, "maxReplicas": 1}]}}
    cluster.server.objects.patch(RAYCLUSTERS, "video", "c", broken)
    cluster.advance(60_000)
    events = [event["reason"] for event in objects(cluster, EVENTS)]
    assert events == ["InvalidRayClusterSpec"]
    assert len(objects(cluster, PODS)) == 3, "the operator does not touch it any more"
    mended = {"spec": {"workerGroupSpecs": [{**group, "replicas": 3, "minReplicas": 0, "maxReplicas": 5}]}}
    cluster.server.objects.patch(RAYCLUSTERS, "video", "c", mended)
    cluster.advance(5_000)
    assert len(objects(cluster, PODS)) == 4


def test_a_plan_that_is_refused_is_made_again_later() -> None:
    cluster = SimCluster(THREE_NODES)
    name = create(cluster, "j")
    operator = cluster.operator
    refused: list[str] = []
    plan = operator.plan

    def interfere(key: str, now: int) -> object:
        """Somebody writes to the job between the operator's look and its write."""
        found = plan(key, now)
        if found.operations and not refused:
            refused.append(key)
            cluster.server.objects.patch(RAYJOBS, "video", name, {"metadata": {"labels": {"a": "b"}}})
        return found

    operator.plan = interfere  # type: ignore[method-assign, assignment]
    until(cluster, name, "Complete")
    assert refused


def test_a_cluster_without_pods_serves_simulations_of_policies() -> None:
    coarse = OperatorSettings(pods=False, services=False, submitter_pods=False)
    cluster = SimCluster({}, kuberay=coarse)
    name = create(cluster, "j", **{RUNTIME: "1h"})
    until(cluster, name, "Complete", 4_000)
    assert seconds(cluster) == pytest.approx(3_602, abs=1)
    assert objects(cluster, PODS) == []
