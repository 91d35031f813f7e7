"""Ray workloads as KAI Scheduler reads them: which queue they name, what starts together, and what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kit.words import in_words
from muster.core.workloads.registry import KINDS
from muster.model.workload import Workload

QUEUE = "kai.scheduler/queue"


def group(name: str = "workers", **fields: Any) -> dict[str, Any]:
    pod = {"spec": {"containers": [{"name": "ray", "resources": {"requests": {"cpu": "1"}}}]}}
    return {"groupName": name, "template": pod, **fields}


def spec(*groups: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"headGroupSpec": {"template": group()["template"]}, "workerGroupSpecs": [*groups], **fields}


def cluster(*groups: dict[str, Any], labels: dict[str, str] | None = None, **fields: Any) -> Workload:
    meta = {"name": "c", "namespace": "default", "uid": "u", "resourceVersion": "1", "labels": labels or {}}
    body = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": meta, "spec": spec(*groups, **fields)}
    return KINDS["RayCluster"].read(msgspec.json.encode(body))


def job(mode: str, labels: dict[str, str]) -> Workload:
    meta = {"name": "j", "namespace": "default", "uid": "u", "resourceVersion": "1", "labels": labels}
    said = {"rayClusterSpec": spec(group(replicas=1)), "shutdownAfterJobFinishes": True, "submissionMode": mode}
    return KINDS["RayJob"].read(msgspec.json.encode({"apiVersion": "ray.io/v1", "metadata": meta, "spec": said}))


@pytest.mark.parametrize(
    ("fields", "autoscaling", "least"),
    [
        ({"replicas": 5, "minReplicas": 2}, False, 2),
        ({"replicas": 5, "minReplicas": 0}, False, 5),
        ({"replicas": 5}, False, 5),
        ({"replicas": 5, "minReplicas": 2, "numOfHosts": 4}, False, 8),
        ({"replicas": 5, "minReplicas": 2, "numOfHosts": 4}, True, 8),
        ({"replicas": 5, "minReplicas": 0}, True, 0),
        ({"replicas": 5, "minReplicas": 2, "suspend": True}, False, 0),
    ],
)
def test_a_group_needs_its_minimum_to_start(fields: dict[str, Any], autoscaling: bool, least: int) -> None:
    found = cluster(group(**fields), labels={QUEUE: "team-a"}, enableInTreeAutoscaling=autoscaling)
    head, workers = found.pod_sets
    assert (head.minimum, workers.minimum) == (None, least)
    assert cluster(group(**fields), enableInTreeAutoscaling=autoscaling).pod_sets[1].minimum is None


def test_the_label_of_the_workload_counts_before_that_of_its_pods() -> None:
    labelled = group(replicas=1)
    labelled["template"] = {**labelled["template"], "metadata": {"labels": {QUEUE: "of-pods", "other": "x"}}}
    assert cluster(labelled).labels == {QUEUE: "of-pods"}
    assert cluster(labelled, labels={QUEUE: "its-own"}).labels == {QUEUE: "its-own"}
    assert cluster(labelled).pod_sets[1].minimum == 1


def test_a_rayjob_in_k8s_job_mode_is_refused_with_the_other_modes() -> None:
    refused = in_words(job("K8sJobMode", {QUEUE: "team-a"}).refusal)
    assert "KAI-Scheduler does not support RayJob with K8sJobMode" in refused
    assert all(mode in refused for mode in ("HTTPMode", "SidecarMode", "InteractiveMode"))
    assert not job("HTTPMode", {QUEUE: "team-a"}).refusal
    assert not job("K8sJobMode", {}).refusal, "outside KAI queues KubeRay starts it"
