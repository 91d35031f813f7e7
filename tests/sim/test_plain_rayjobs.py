"""RayJobs as the samples of KubeRay write them, in a namespace under a quota: they run when it is their turn."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kit import jobs
from kit.disorder import DisorderedCell
from kit.elastic import NODES, tree
from kit.proof import proven
from muster.fakecluster.world import SimCluster
from muster.model import api

SAMPLES: dict[str, dict[str, Any]] = {
    "says nothing": {"submissionMode": "HTTPMode"},
    "with a submitter": {},
    "for its user": {"submissionMode": "InteractiveMode"},
    "in a sidecar": {"submissionMode": "SidecarMode"},
    "on success": {
        "deletionStrategy": {"onSuccess": {"policy": "DeleteCluster"}, "onFailure": {"policy": "DeleteCluster"}}
    },
}


def call(cluster: SimCluster, method: str, path: str, body: Any = None) -> Any:
    encoded = None if body is None else json.dumps(body).encode()
    answer = cluster.server.handle(method, path, body=encoded, content_type="application/json")
    assert answer.ok, answer.body
    return json.loads(answer.body)


@pytest.mark.parametrize("what", SAMPLES)
def test_it_is_queued_and_runs(what: str) -> None:
    cluster = SimCluster(NODES, suspend_new=True)
    cell = DisorderedCell(cluster, seed=1, kinds=("RayJob", "RayCluster", "Job"))
    call(cluster, "POST", api.QUOTA_TREES.path("kube-system"), tree(("ns", "20", "20"), profile="ack"))
    body = jobs.rayjob("plain", "ns")
    for key in ("suspend", "shutdownAfterJobFinishes"):
        body["spec"].pop(key, None)
    body["spec"] |= SAMPLES[what]
    cell.advance(1_000)
    call(cluster, "POST", api.RAYJOBS.path("ns"), body)
    states: list[str] = []
    for _ in range(30):
        cell.advance(1_000)
        found = call(cluster, "GET", api.RAYJOBS.path("ns", "plain"))
        states.append(found.get("status", {}).get("jobDeploymentStatus", ""))
    wanted = "Waiting" if what == "for its user" else "Running"
    assert wanted in states and "ValidationFailed" not in states
    proven(cell.log)
