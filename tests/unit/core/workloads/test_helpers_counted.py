"""What KubeRay adds to a Ray cluster is free under profile ``ack`` as far as KubeRay asks for it by itself."""

import json
from typing import Any

import pytest

from kit.cluster import document_job
from kit.jobs import template
from muster.core.workloads.registry import KINDS
from muster.model.workload import Workload

BIG = {"requests": {"cpu": "64", "memory": "512Mi", "nvidia.com/gpu": "8"}}


def asked(**spec: Any) -> dict[str, int]:
    made = document_job("video")
    made["metadata"] |= {"name": "j", "uid": "u", "resourceVersion": "1", "generation": 1}
    cluster = {key: spec.pop(key) for key in [*spec] if key != "submitterPodTemplate"}
    made["spec"] |= spec
    made["spec"]["rayClusterSpec"] |= cluster
    read = KINDS["RayJob"].read(json.dumps(made).encode())
    assert isinstance(read, Workload)
    return dict(read.need["ack"])


@pytest.mark.parametrize(
    ("spec", "more"),
    [
        ({"enableInTreeAutoscaling": True}, {}),
        ({"enableInTreeAutoscaling": True, "autoscalerOptions": {"resources": {"requests": {"cpu": "500m"}}}}, {}),
        (
            {"enableInTreeAutoscaling": True, "autoscalerOptions": {"resources": BIG}},
            {"cpu": 63_500, "nvidia.com/gpu": 8_000},
        ),
        ({"autoscalerOptions": {"resources": BIG}}, {}),
        ({"submitterPodTemplate": template("500m", "200Mi")}, {}),
        ({"submitterPodTemplate": template("4", "200Mi")}, {"cpu": 3_500}),
    ],
    ids=[
        "by itself",
        "no more",
        "a big autoscaler",
        "an autoscaler that is off",
        "a usual submitter",
        "a big submitter",
    ],
)
def test_what_an_owner_adds_to_a_helper_counts(spec: dict[str, Any], more: dict[str, int]) -> None:
    plain = asked()
    assert asked(**spec) == {key: plain.get(key, 0) + more.get(key, 0) for key in sorted({*plain, *more})}
