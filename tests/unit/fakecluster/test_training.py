"""TFJobs in the simulated cluster: their pods come from their templates, and their conditions from their pods."""

from __future__ import annotations

import copy
import json

from kit import jobs
from kit.crds import others
from kit.doubles.training import TrainingOperator
from kit.jobs import Obj
from muster.core.workloads.registry import KINDS
from muster.fakecluster.world import SimCluster, node
from muster.model.api import NODES, PODS, TFJOBS

RUN_FOR = "sim.muster.dev/run-for"
FAIL_AFTER = "sim.muster.dev/fail-after"


def cluster(cpu: str = "8") -> SimCluster:
    definitions = [each for each in others() if each["spec"]["names"]["kind"] in ("TFJob", "PyTorchJob")]
    return SimCluster(
        {"a": {"cpu": cpu, "memory": "64Gi"}}, others=[TrainingOperator()], definitions=copy.deepcopy(definitions)
    )


def submit(made: SimCluster, **annotations: dict[str, str]) -> Obj:
    """A TFJob of one PS and two workers, one cpu each; ``annotations`` of its pods by type."""
    job = jobs.tfjob("one", workers=2)
    del job["spec"]["runPolicy"]
    for kind, replica in job["spec"]["tfReplicaSpecs"].items():
        replica["template"]["metadata"] = {"labels": {"gang": "x"}, "annotations": annotations.get(kind, {})}
    return dict(made.server.objects.create(TFJOBS, "video", job))


def status(made: SimCluster) -> Obj:
    return dict(made.server.objects.get(TFJOBS, "video", "one").get("status") or {})


def true(made: SimCluster) -> list[str]:
    return [each["type"] for each in status(made).get("conditions", ()) if each["status"] == "True"]


def pods(made: SimCluster) -> dict[str, str]:
    found = made.server.store.table(PODS).objects.values()
    return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in found}


def test_its_pods_are_its_templates_and_it_runs_when_all_do() -> None:
    made = cluster(cpu="2")
    job = submit(made)
    made.advance(10_000)
    assert pods(made) == {"one-ps-0": "Running", "one-worker-0": "Running", "one-worker-1": "Pending"}
    assert true(made) == ["Created"]
    found = made.server.objects.get(PODS, "video", "one-worker-1")
    assert found["metadata"]["labels"]["gang"] == "x"
    assert found["metadata"]["labels"]["training.kubeflow.org/replica-type"] == "worker"
    assert found["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
    made.server.objects.create(NODES, "", node("b", {"cpu": "1", "memory": "64Gi"}, made.clock.now()))
    made.advance(10_000)
    assert true(made) == ["Created", "Running"]
    assert {kind: each["active"] for kind, each in status(made)["replicaStatuses"].items()} == {"PS": 1, "Worker": 2}


def test_it_has_succeeded_when_its_first_worker_has_and_the_others_go() -> None:
    made = cluster()
    submit(made, Worker={RUN_FOR: "20s"})
    made.advance(60_000)
    assert true(made) == ["Created", "Succeeded"]
    assert pods(made) == {"one-worker-0": "Succeeded", "one-worker-1": "Succeeded"}


def test_it_has_failed_when_a_pod_has() -> None:
    made = cluster()
    submit(made, PS={FAIL_AFTER: "20s"})
    made.advance(60_000)
    assert true(made) == ["Created", "Failed"]
    assert pods(made) == {"one-ps-0": "Failed"}


def test_a_pod_that_is_deleted_comes_again() -> None:
    made = cluster()
    submit(made)
    made.advance(10_000)
    first = made.server.objects.get(PODS, "video", "one-worker-0")["metadata"]["uid"]
    made.server.objects.delete(PODS, "video", "one-worker-0")
    made.advance(60_000)
    assert made.server.objects.get(PODS, "video", "one-worker-0")["metadata"]["uid"] != first
    assert true(made) == ["Created", "Running"]


def test_suspended_it_has_no_pods_and_says_so_as_we_read_it() -> None:
    made = cluster()
    submit(made)
    made.advance(10_000)
    made.server.objects.patch(TFJOBS, "video", "one", {"spec": {"runPolicy": {"suspend": True}}})
    made.advance(60_000)
    assert (pods(made), true(made)) == ({}, ["Created", "Suspended"])
    found = KINDS["TFJob"].read(json.dumps(made.server.objects.get(TFJOBS, "video", "one")).encode())
    assert found is not None
    assert (found.phase, found.settled) == ("waiting", True)
    made.server.objects.patch(TFJOBS, "video", "one", {"spec": {"runPolicy": {"suspend": False}}})
    made.advance(60_000)
    assert true(made) == ["Created", "Running"]
