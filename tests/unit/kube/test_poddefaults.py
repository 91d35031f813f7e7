"""What the API server adds to pods: any pod spec within the object, and nothing that the author has written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kit import jobs
from muster.core.workloads.registry import KINDS
from muster.kube.poddefaults import PodDefaults
from muster.model.api import LIMIT_RANGES, RUNTIME_CLASSES


def defaults(request: dict[str, str] | None = None, **ranges: Any) -> PodDefaults:
    known = PodDefaults()
    classes = {"overhead": {"podFixed": {"cpu": "250m"}}}
    known.observe(RUNTIME_CLASSES, "", "sandbox", json.dumps(classes).encode())
    for name, row in {"all": {"defaultRequest": request}, **ranges}.items():
        spec = {"limits": [{"type": "Container", **row}, {"type": "Pod", "max": {"cpu": "9"}}]}
        known.observe(LIMIT_RANGES, "video", name, json.dumps({"spec": spec}).encode())
    return known


def pod_specs(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        return ([value] if "containers" in value else []) + [s for each in value.values() for s in pod_specs(each)]
    return [s for each in value for s in pod_specs(each)] if isinstance(value, list) else []


def read(known: PodDefaults, made: dict[str, Any]) -> Any:
    raw = json.dumps({**made, "metadata": {**made["metadata"], "uid": "u", "resourceVersion": "1"}}).encode()
    return KINDS[made["kind"]].read(known.added("video", raw))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("SparkApplication", "TrainJob", "Workflow")])
def test_pods_of_every_kind_cost_what_is_added(kind: str) -> None:
    """250m for each pod, and 2 cpu for each container without a request; ``k`` containers of a pod count."""
    made = jobs.KINDS[kind].make("j", "video")
    for spec in pod_specs(made["spec"]):
        spec["runtimeClassName"] = "sandbox"
        for container in spec["containers"]:
            container["resources"] = {}
    plain, asks = read(PodDefaults(), made), read(defaults({"cpu": "2"}), made)
    assert plain.basis != asks.basis
    assert [pods.count for pods in plain.pod_sets] == [pods.count for pods in asks.pod_sets]
    for before, after in zip(plain.pod_sets, asks.pod_sets, strict=True):
        assert after.request["cpu"] >= before.request.get("cpu", 0) + 2_250, before.name


@pytest.mark.parametrize(
    ("resources", "cpu"),
    [
        ({}, 2_000),
        ({"requests": {"cpu": "1"}}, 1_000),
        ({"limits": {"cpu": "3"}}, 3_000),
        ({"limits": {"cpu": "3"}, "requests": {"cpu": "0"}}, 0),
        ({"requests": {"memory": "1Gi"}}, 2_000),
    ],
)
def test_a_request_or_a_limit_of_its_own_counts(resources: dict[str, Any], cpu: int) -> None:
    made = jobs.job(parallelism=1)
    made["spec"]["template"]["spec"]["containers"][0]["resources"] = resources
    assert read(defaults({"cpu": "2"}), made).need["full"].get("cpu", 0) == cpu


def test_what_is_gone_adds_nothing() -> None:
    """Of two LimitRanges with a default for one resource the first by name is read."""
    made, known = jobs.job(parallelism=1, cpu="1"), defaults({"gpu/a": "1"}, other={"default": {"gpu/a": "2"}})
    made["spec"]["template"]["spec"]["runtimeClassName"] = "sandbox"

    def asks() -> tuple[int, int]:
        full = read(known, made).need["full"]
        return full["cpu"], full.get("gpu/a", 0)

    assert asks() == (1_250, 1_000)
    known.observe(LIMIT_RANGES, "video", "all", b"{}")
    assert asks() == (1_250, 2_000)
    known.observe(LIMIT_RANGES, "video", "other", b"{}")
    known.observe(RUNTIME_CLASSES, "", "sandbox", b"{}")
    assert asks() == (1_000, 0)


def test_an_overhead_in_the_template_is_not_added_twice() -> None:
    made = jobs.job(parallelism=1, cpu="1")
    made["spec"]["template"]["spec"] |= {"runtimeClassName": "sandbox", "overhead": {"cpu": "250m"}}
    assert read(defaults(), made).need["full"]["cpu"] == 1_250


@pytest.mark.parametrize("raw", [b"[]", b"{", b'{"spec":{"containers":[{"resources":7}]}}', b'{"spec":null}'])
def test_an_object_that_is_no_job_is_left_to_its_reader(raw: bytes) -> None:
    assert defaults({"cpu": "2"}).added("video", raw) == raw


def test_other_namespaces_are_left_alone() -> None:
    raw = json.dumps(jobs.job()).encode()
    assert defaults({"cpu": "2"}).added("text", raw) is raw
