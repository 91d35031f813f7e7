"""Where the head of a RayCluster is said to be served: by its status, as operators of KubeRay write it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from muster.core.workloads.registry import KINDS
from muster.model.elastic import HeadService
from muster.model.workload import Workload

POD = {"podIP": "10.128.0.7", "podName": "one-head-drktb", "serviceIP": "10.128.0.7"}
PORTS = {"client": "10001", "dashboard": "8265", "gcs-server": "6379", "metrics": "8080", "serve": "8000"}
NODE_PORTS = {"client": "30626", "dashboard": "30835", "gcs-server": "32156"}


def served(head: Any = None, endpoints: Any = None, *, name: str = "one", **group: Any) -> HeadService | None:
    tls = group.pop("tls", None)
    container = {"name": "ray", "env": group.pop("env", None), "ports": group.pop("ports", None)}
    spec = {
        "enableInTreeAutoscaling": True,
        "headGroupSpec": {"template": {"spec": {"containers": [container]}}, **group},
        "tlsOptions": tls,
    }
    cluster = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name, "namespace": "a", "uid": "u", "resourceVersion": "1"},
        "spec": spec,
        "status": {"head": head, "endpoints": endpoints},
    }
    found = KINDS["RayCluster"].read(json.dumps(cluster).encode())
    assert isinstance(found, Workload) and found.elastic is not None
    return found.elastic.served


@pytest.mark.parametrize("name", ["one", "a" * 42, "a" * 53])
def test_the_usual_place_says_nothing(name: str) -> None:
    assert served(name=name) is None
    assert served({"serviceName": f"{name}-head-svc", "podName": "p"}, PORTS, name=name) is None
    assert served({**POD, "serviceName": f"{name}-head-svc"}, PORTS, name=name) is None


def test_a_service_of_its_own_name_and_ports() -> None:
    assert served({**POD, "serviceName": "mine"}, PORTS) == HeadService("mine")
    assert served({**POD, "serviceName": "mine"}, {**PORTS, "gcs-server": "6380"}) == HeadService("mine", 6380)


def test_node_ports_are_no_ports_of_the_service() -> None:
    outside = {**POD, "serviceIP": "10.96.92.109", "serviceName": "my-own-head"}
    assert served(outside, NODE_PORTS) == HeadService("my-own-head")
    ports = [{"name": "gcs-server", "containerPort": 6380}, {"name": "dashboard", "containerPort": 9265}, {}]
    assert served(outside, NODE_PORTS, ports=ports) == HeadService("my-own-head", 6380, 9265)


def test_a_head_without_a_dashboard() -> None:
    assert served(rayStartParams={"include-dashboard": "false"}) == HeadService(dashboard=0)


@pytest.mark.parametrize("value", ["1", "true", "True"])
def test_tls_is_read_from_the_environment_of_the_head(value: str) -> None:
    assert served(env=[{"name": "A"}, {"name": "RAY_USE_TLS", "value": value}]) == HeadService(tls=True)
    assert served(env=[{"name": "RAY_USE_TLS", "value": "0"}]) is None


def test_tls_by_the_option_of_the_operator() -> None:
    assert served(tls={"enabled": True}) == HeadService(tls=True)
    assert served(tls={"enabled": False}) is None


@pytest.mark.parametrize("odd", ["text", 7, [], {"serviceName": 7, "gcs-server": "x" * 9}, {"dashboard": "99999"}])
def test_what_cannot_be_read_says_nothing(odd: Any) -> None:
    assert served(odd, odd, env=odd, tls=odd) is None
