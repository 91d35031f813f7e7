"""Node pools as they are declared: what is read, and what each that cannot be read is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kit.nodes import ATOMIC
from kit.words import in_words
from muster.core.objects.meta import UnreadableError
from muster.core.objects.nodepools import MAX_POOLS, read_node_pools, read_nodes_request
from muster.model.placing import Taint
from muster.model.pools import NodePool

GOOD: dict[str, Any] = {
    "maxNodes": 4,
    "allocatable": {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": 4},
    "labels": {"pool": "gpu"},
    "taints": [{"key": "gpu", "value": "yes"}, {"key": "soft", "effect": "PreferNoSchedule"}],
    "class": ATOMIC,
}


def config(name: str = "muster-node-pools", namespace: str = "muster-system", **data: str) -> bytes:
    meta = {"name": name, "namespace": namespace, "uid": "u-1", "resourceVersion": "7"}
    return json.dumps({"metadata": meta, "data": data}).encode()


def read(**data: str) -> tuple[NodePool, ...]:
    fact = read_node_pools(config(**data))
    assert fact is not None
    return fact.pools


def test_a_pool_is_read() -> None:
    [pool] = read(gpu=json.dumps(GOOD))
    assert pool == NodePool(
        name="gpu",
        most=4,
        allocatable={"cpu": 16_000, "memory": 64 << 30, "nvidia.com/gpu": 4000, "pods": 110_000},
        labels={"pool": "gpu"},
        taints=(Taint("gpu", "yes"),),
        provisioning=ATOMIC,
        wait_ms=900_000,
    )
    [by_pods] = read(gpu=json.dumps({**GOOD, "class": "unschedulable-pods", "waitSeconds": 60}))
    assert (by_pods.provisioning, by_pods.wait_ms) == ("", 60_000)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"maxNodes": None}, "maxNodes: is missing; say how many nodes"),
        ({"maxNodes": -1}, "maxNodes: is -1; say how many nodes"),
        ({"maxNodes": "4"}, "maxNodes: expected"),
        ({"labels": {}}, "labels: is empty; name the labels"),
        ({"allocatable": {}}, "allocatable: is empty; give the resources of one node"),
        ({"allocatable": {"cpu": "lots"}}, "allocatable.cpu: 'lots' is not a quantity"),
        ({"class": "soon"}, "class: 'soon' is neither the class of a ProvisioningRequest"),
        ({"class": ""}, "class: is missing; write the class"),
        ({"waitSeconds": 0}, "waitSeconds: is 0; take 1 to 86400"),
        ({"taints": [{"key": "a", "effect": "Never"}]}, "taints[0].effect: 'Never' is none of NoSchedule"),
        ({"maxnodes": 4}, "unknown field maxnodes; it is JSON with the keys maxNodes, allocatable"),
    ],
    ids=str,
)
def test_a_pool_that_cannot_be_read_says_key_value_and_what_would_do(change: dict[str, Any], words: str) -> None:
    said = {key: value for key, value in {**GOOD, **change}.items() if value is not None}
    bad, good = read(bad=json.dumps(said), good=json.dumps(GOOD))
    assert (good.refusal, good.most) == (None, 4)
    assert in_words(bad.refusal).startswith("data[bad]")
    assert words in in_words(bad.refusal)
    assert bad == NodePool("bad", refusal=bad.refusal), "nothing else of it counts"


def test_what_is_no_json_and_what_is_no_name() -> None:
    odd, yaml = read(Odd_Name=json.dumps(GOOD), yaml="maxNodes: 4")
    assert "the name of a pool is up to 63 small letters" in in_words(odd.refusal)
    assert "it is JSON with the keys maxNodes" in in_words(yaml.refusal)


def test_only_one_config_map_counts() -> None:
    assert read_node_pools(config(namespace="video", gpu=json.dumps(GOOD))) is None
    assert read_node_pools(config(name="other", gpu=json.dumps(GOOD))) is None
    with pytest.raises(UnreadableError, match="many_pools"):
        read_node_pools(config(**{f"p{index}": "{}" for index in range(MAX_POOLS + 1)}))


@pytest.mark.parametrize(
    ("conditions", "phase"),
    [
        ((), ""),
        (("Accepted",), "accepted"),
        (("Accepted", "Provisioned"), "provisioned"),
        (("Accepted", "Provisioned", "BookingExpired"), "lapsed"),
        (("Provisioned", "CapacityRevoked"), "lapsed"),
        (("Accepted", "Failed"), "failed"),
    ],
)
def test_how_far_a_request_has_come(conditions: tuple[str, ...], phase: str) -> None:
    labels = {"muster.dev/nodes-requested": "true"}
    meta = {"name": "r", "namespace": "video", "uid": "u-2", "resourceVersion": "9", "labels": labels}
    held = [{"type": each, "status": "True", "message": f"{each} it is"} for each in conditions]
    more = [{"type": "Failed", "status": "False"}] if phase != "failed" else []
    spec = {"podSets": [{"podTemplateRef": {"name": "r-0"}, "count": 2}]}
    body = {"metadata": meta, "spec": spec, "status": {"conditions": [*more, *held]}}
    fact = read_nodes_request(json.dumps(body).encode())
    assert fact is not None
    assert (fact.phase, fact.templates, bool(fact.message)) == (phase, ("r-0",), bool(phase))
    assert read_nodes_request(json.dumps({**body, "metadata": {**meta, "labels": {}}}).encode()) is None
