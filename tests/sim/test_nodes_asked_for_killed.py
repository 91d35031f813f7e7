"""Asking for nodes with the real runners, each killed at await points on the way: one request, and nothing is left."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from kit.nodes import ATOMIC
from kit.podgangs import SIGS
from kit.proof import proven
from kit.shell import Cell, play
from muster.core.objects.nodepools import NAME, NAMESPACE
from muster.events.growing import NodesRequested
from muster.fakecluster.apiserver import FaultDraw
from muster.fakecluster.apiserver.faults import FaultRates
from muster.fakecluster.apiserver.store import StoredChange
from muster.fakecluster.world import node
from muster.model import api
from muster.model.api import ApiResource

pytestmark = pytest.mark.timeout(300)

SHAPE = {"cpu": "40", "memory": "64Gi"}


def made(cell: Cell) -> Counter[str]:
    """{request: how often it was made on the cluster itself}"""
    found: Counter[str] = Counter()

    def heard(change: StoredChange) -> None:
        if change.type == "ADDED":
            found[change.object["metadata"]["name"]] += 1

    cell.cluster.server.subscribe(heard, api.PROVISIONING_REQUESTS)
    return found


async def scene(cell: Cell) -> None:
    """A gang of four that needs two nodes more than there are."""
    pool = {"maxNodes": 2, "allocatable": SHAPE, "labels": {"pool": "large"}, "class": ATOMIC}
    config = {"metadata": {"name": NAME}, "data": {"large": json.dumps(pool)}}
    cell.request("POST", api.CONFIG_MAPS, NAMESPACE, body=config)
    labels = {f"{SIGS}/name": "a", f"{SIGS}/min-available": "4"}
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "20"}}}
    for index in range(4):
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"a-{index}", "labels": labels},
            "spec": {"schedulerName": "muster", "containers": [container]},
        }
        cell.request("POST", api.PODS, "video", body=body)

    def there(resource: ApiResource) -> int:
        return len(cell.request("GET", resource, "")["items"])

    await cell.until(lambda: there(api.PROVISIONING_REQUESTS) == 1, what="nodes to be asked for")
    for name in ("large-1", "large-2"):
        body = node(name, SHAPE, cell.clock.now())
        body["metadata"]["labels"]["pool"] = "large"
        cell.request("POST", api.NODES, "", body=body)

    def bound() -> int:
        return sum(bool(pod["spec"].get("nodeName")) for pod in cell.request("GET", api.PODS, "video")["items"])

    await cell.until(lambda: bound() == 4, what="the gang to be bound")
    gone = (api.PROVISIONING_REQUESTS, api.POD_TEMPLATES)
    await cell.until(lambda: not any(there(each) for each in gone), what="the request to go")


def witnessed(cell: Cell) -> Cell:
    found = made(cell)
    play(cell, scene)
    asked = [event for stored in cell.commits() for event in stored.commit.events if isinstance(event, NodesRequested)]
    assert found == Counter(event.name for event in asked)
    assert len(asked) == 1
    proven(cell.commits())
    return cell


def test_without_faults() -> None:
    cell = witnessed(Cell())
    assert not cell.ended


@pytest.mark.parametrize("service", ["actuator", "autoscaler_bridge", "gang_admitter"])
def test_whoever_is_killed_there_is_one_request(service: str) -> None:
    whole = Cell()
    play(whole, scene)
    points = whole.processes[service].steps
    assert points > 20
    for kill_at in range(3, points, max(points // 25, 1)):
        cell = Cell()
        cell.kills[service] = kill_at
        witnessed(cell)


@pytest.mark.parametrize("seed", range(6))
def test_answers_that_are_lost_and_refusals_that_pass(seed: int) -> None:
    faults = FaultDraw(FaultRates(lose_request=0.1, lose_response=0.2, throttle=0.1, error=0.1), seed)
    witnessed(Cell(seed=seed, faults=faults))
