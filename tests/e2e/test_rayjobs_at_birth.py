"""How Ray objects begin, and that no RayJob is created dead: on a real API server with the shipped policies.

A tenant writes what the samples of KubeRay write.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from kit import jobs
from kit.cluster import RAY
from kit.controlplane import ControlPlane
from kit.guarded import ALICE, MANAGED, OPERATOR, client, mutates, remove
from kit.kubeclient import ApiError, Object
from muster.core.workloads.registry import KINDS
from muster.fakecluster.kuberay.validation import rayjob_problem
from muster.model.workload import Workload

POLICY = {"policy": "DeleteCluster"}
RULES = [{"policy": "DeleteCluster", "condition": {"jobStatus": "SUCCEEDED", "ttlSeconds": 60}}]
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "says nothing": ({}, ""),
    "keeps its cluster": ({"shutdownAfterJobFinishes": False}, "spec.shutdownAfterJobFinishes must be true"),
    "is shut down": ({"shutdownAfterJobFinishes": True, "ttlSecondsAfterFinished": 60}, ""),
    "deletion rules": ({"deletionStrategy": {"deletionRules": RULES}}, "spec.deletionStrategy.deletionRules cannot be"),
    "on success": ({"deletionStrategy": {"onSuccess": POLICY, "onFailure": POLICY}}, ""),
    "for its user": ({"submissionMode": "InteractiveMode"}, ""),
    "retries": ({"backoffLimit": 2, "activeDeadlineSeconds": 600}, ""),
    "in a sidecar": ({"submissionMode": "SidecarMode"}, ""),
    "on a cluster that is there": ({"clusterSelector": {"ray.io/cluster": "c"}, "rayClusterSpec": None}, ""),
    "the same, suspended": (
        {"clusterSelector": {"ray.io/cluster": "c"}, "rayClusterSpec": None, "suspend": True},
        "spec.suspend must be left out beside spec.clusterSelector",
    ),
}
"""{what the RayJob says: (fields, the refusal; empty: taken)}"""


def rayjob(name: str, fields: dict[str, Any], *, suspend: bool) -> Object:
    body = jobs.rayjob(name, MANAGED)
    for key in ("suspend", "shutdownAfterJobFinishes", "ttlSecondsAfterFinished"):
        body["spec"].pop(key, None)
    body["spec"] |= ({"suspend": True} if suspend and "clusterSelector" not in fields else {}) | fields
    body["spec"] = {key: value for key, value in body["spec"].items() if value is not None}
    return body


@pytest.mark.parametrize("suspend", [False, True], ids=["as in the sample", "suspended"])
async def test_it_is_queued_or_refused_with_the_way_out(plane: ControlPlane, suspend: bool) -> None:
    async with client(plane, ALICE) as alice:
        for number, (what, (fields, refusal)) in enumerate(CASES.items()):
            body = rayjob(f"birth-{number}", fields, suspend=suspend)
            try:
                made = await alice.create(body)
            except ApiError as err:
                if not mutates(plane) and not suspend and "spec.suspend must be true" in str(err):
                    continue
                if not mutates(plane) and what == "says nothing":
                    assert "spec.shutdownAfterJobFinishes must be true" in str(err)
                    continue
                assert refusal and refusal in str(err), (what, str(err))
                continue
            assert not refusal, what
            assert not rayjob_problem(made), (what, rayjob_problem(made))
            assert made["spec"].get("suspend", False) is ("clusterSelector" not in fields), what
            read = KINDS["RayJob"].read(json.dumps(made).encode())
            assert isinstance(read, Workload) and (read.refusal is None or "clusterSelector" in fields), what
            await remove(alice, made)


async def test_the_flag_stays_while_it_runs(plane: ControlPlane) -> None:
    async with client(plane, ALICE) as alice:
        made = await alice.create(rayjob("kept", {"shutdownAfterJobFinishes": True}, suspend=True))
        try:
            with pytest.raises(ApiError, match="must stay true"):
                await alice.patch(RAY, "RayJob", "kept", MANAGED, patch={"spec": {"shutdownAfterJobFinishes": False}})
        finally:
            await remove(alice, made)


@pytest.mark.parametrize("kind", ["RayService", "RayJob"])
async def test_a_cluster_of_a_service_begins_suspended_and_one_of_a_job_does_not(
    plane: ControlPlane, kind: str
) -> None:
    """Muster lifts the suspension once the quota of the cluster is granted."""
    made = jobs.rayservice("parent", MANAGED) if kind == "RayService" else jobs.rayjob("parent", MANAGED)
    async with client(plane, ALICE) as alice, client(plane, OPERATOR) as operator:
        owner = await alice.create(made)
        cluster = jobs.raycluster("parent-x", MANAGED)
        cluster["spec"].pop("suspend", None)
        reference = {key: owner["metadata"][key] for key in ("name", "uid")}
        cluster["metadata"]["ownerReferences"] = [{"apiVersion": RAY, "kind": kind, "controller": True, **reference}]
        born = await operator.create(cluster)
        await alice.delete(RAY, "RayCluster", "parent-x", MANAGED)
        await alice.delete(RAY, kind, "parent", MANAGED)
    assert born["spec"].get("suspend", False) is (kind == "RayService" and mutates(plane))
