"""Whose job it is, its image, and a digest of what it runs: facts for readers, the same for every kind."""

import json
from typing import Any

import msgspec
import pytest

from kit.jobs import template
from muster.core.workloads.common import MAX_IMAGE, MAX_OWNER
from muster.core.workloads.registry import KINDS
from muster.events.facts import WorkloadObserved
from muster.events.registry import encode
from muster.model.workload import UNKNOWN_ORIGIN, Workload

LABEL = {"labels": {"muster.dev/owner": "alice"}}


def pods(**container: Any) -> dict[str, Any]:
    made = template("1", "1Gi")
    made["spec"]["containers"][0] |= container
    return made


def read(kind: str, spec: dict[str, Any], **meta: Any) -> Workload:
    named = {"name": "j", "namespace": "n", "uid": "u", "resourceVersion": "1", "generation": 1}
    versions = {"Job": "batch/v1", "SparkApplication": "sparkoperator.k8s.io/v1beta2"}
    body = {"apiVersion": versions.get(kind, "ray.io/v1"), "metadata": {**named, **meta}, "spec": spec}
    found = KINDS[kind].read(json.dumps(body).encode())
    assert isinstance(found, Workload)
    return found


def job(container: dict[str, Any], **meta: Any) -> Workload:
    return read("Job", {"suspend": True, "template": pods(**container)}, **meta)


def ray(entrypoint: str) -> Workload:
    cluster = {"headGroupSpec": {"template": pods(image="ray:2.9")}}
    return read("RayJob", {"entrypoint": entrypoint, "rayClusterSpec": cluster, "shutdownAfterJobFinishes": True})


def spark(**spec: Any) -> Workload:
    role = {"cores": 1, "memory": "1g"}
    return read("SparkApplication", {"driver": role, "executor": role, "type": "Scala", **spec})


def test_an_owner_is_a_label_or_an_annotation() -> None:
    assert job({}, **LABEL).origin.owner == "alice"
    assert job({}, annotations={"muster.dev/owner": "alice@example.com"}).origin.owner == "alice@example.com"
    both = {"annotations": {"muster.dev/owner": "bob"}, **LABEL}
    assert job({}, **both).origin.owner == "alice"


def test_the_same_program_has_the_same_digest() -> None:
    one, same = job({"image": "a", "command": ["python"], "args": ["x"]}), job({"command": ["python"], "args": ["x"]})
    other = job({"command": ["python", "x"]})
    assert one.origin.image == "a"
    assert one.origin.entrypoint == same.origin.entrypoint != other.origin.entrypoint
    assert len(one.origin.entrypoint) == 16


def test_a_kind_with_a_field_for_its_program_is_read_there() -> None:
    assert ray("python a.py").origin.image == "ray:2.9"
    assert ray("python a.py").origin.entrypoint != ray("python b.py").origin.entrypoint != ""
    one = spark(image="spark:3", mainApplicationFile="local:///a.jar", mainClass="A")
    assert one.origin.image == "spark:3"
    assert one.origin.entrypoint != spark(mainApplicationFile="local:///b.jar", mainClass="A").origin.entrypoint


def test_it_is_bounded_and_no_reason_to_refuse_a_job() -> None:
    long = job({"image": "i" * 5_000, "args": ["a" * 100_000]}, annotations={"muster.dev/owner": "o\n\x1b[1m" * 999})
    assert len(long.origin.owner) <= MAX_OWNER
    assert long.origin.owner.isprintable()
    assert len(long.origin.image) <= MAX_IMAGE
    assert len(long.origin.entrypoint) == 16
    assert job({"image": 5, "command": "python", "args": {"a": 1}}).origin.image == ""


@pytest.mark.parametrize("known", [False, True])
def test_the_wire_has_it_only_where_something_is_known(known: bool) -> None:
    workload = job({"image": "a" if known else None}, **(LABEL if known else {}))
    assert (workload.origin != UNKNOWN_ORIGIN) == known
    fact = WorkloadObserved(workload=workload)
    assert (b"origin" in encode(fact)) == known
    assert msgspec.json.decode(encode(fact), type=WorkloadObserved) == fact


def test_nothing_that_is_decided_rests_on_it() -> None:
    assert job({"image": "a"}, **LABEL).basis == job({}).basis
