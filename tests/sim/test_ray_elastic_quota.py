"""In a KAI queue a Ray cluster is admitted with its minimum, and grows by grants to the size that its spec asks for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kit.contention import fixed_size
from kit.deciding import ask, nodes_of
from kit.elastic import CORE, HEAD_CPU, NODES, ElasticPlay, in_queue, kai_queue, raycluster, rayjob
from kit.rayscaler import RayScaler
from muster.events.decisions import EvictionOrdered
from muster.events.elastic import GrowthGranted
from muster.model import api
from muster.model.placing import GPU, GPU_MEMORY

Object = dict[str, Any]


def limited(name: str, cores: float) -> Object:
    """A queue of KAI Scheduler that may use so many cores beside one head."""
    queue = kai_queue(name, 0)
    queue["spec"]["resources"]["cpu"] |= {"limit": round(1_000 * cores) + HEAD_CPU, "quota": 0}
    return queue


def driven(**group: Any) -> Object:
    """Without an autoscaler: Muster writes ``replicas``."""
    made = raycluster(**group)
    made["metadata"].setdefault("annotations", {})["muster.dev/drive-replicas"] = "true"
    made["spec"]["enableInTreeAutoscaling"] = False
    return made


@pytest.mark.parametrize("make", [raycluster, rayjob, driven])
def test_four_workers_of_which_two_are_needed_under_a_limit_of_three(make: Any) -> None:
    play = ElasticPlay(queues=[limited("mine", 3)])
    play.create_raw(in_queue(make(replicas=4, minReplicas=2), "mine"))
    play.cell.advance(10_000)
    assert len(play.pods()) == 3
    assert play.cpu() == 3 * CORE + (0 if make is driven else HEAD_CPU)
    wanted = 3 if make is driven else 4
    assert (play.group()["replicas"], play.group()["maxReplicas"]) == (wanted, 3), "what an autoscaler wants stays"
    assert [event.added for event in play.told(GrowthGranted)] == [{"small": 1}]
    play.clean()


@pytest.mark.parametrize("make", [raycluster, rayjob])
def test_under_a_tree_where_its_owner_says_so(make: Any) -> None:
    play = ElasticPlay(("ns", "3500m", "3500m"), total="3500m")
    made = make(replicas=4, minReplicas=2)
    play.create_raw(made)
    play.cell.advance(10_000)
    assert play.pods() == []
    resource = api.RAYJOBS if make is rayjob else api.RAYCLUSTERS
    patch = {"metadata": {"annotations": {"muster.dev/start": "minimum"}}}
    play.call("PATCH", resource, "ns", "auto", patch, "application/merge-patch+json")
    play.cell.advance(10_000)
    assert len(play.pods()) == 3
    assert play.cpu() == 3 * CORE + HEAD_CPU
    play.clean()


def test_without_an_autoscaler_the_rest_comes_back_for_waiting_tasks() -> None:
    """The same where Muster writes ``replicas``; when the other queue is empty again, what still waits has workers."""
    queues = [kai_queue("mine", 1), kai_queue("other", 3)]
    play = ElasticPlay(queues=queues, nodes={"node-0": {"cpu": "6", "memory": "256Gi"}})
    play.create_raw(in_queue(driven(replicas=4, minReplicas=1), "mine"))
    play.cell.advance(3_000)
    scaler = play.scalers["auto"] = RayScaler()
    scaler.stopped = True
    for number in range(4):
        scaler.start(f"task-{number}")
    play.tick(4)
    assert len(play.pods()) == 4
    play.create_raw(in_queue(fixed_size(3, "owed", "other"), "other"))
    play.tick(14)
    left = len(play.pods())
    assert 1 <= left < 4
    assert play.group()["replicas"] == left
    assert play.cpu("owed") == 3 * CORE
    meta = play.raycluster("owed")["metadata"]
    play.call("DELETE", api.RAYCLUSTERS, meta["namespace"], "owed")
    play.tick(14)
    assert (len(play.pods()), play.group()["replicas"]) == (4, 4)
    play.clean()


def test_the_rest_comes_when_there_is_room_and_goes_before_the_minimum() -> None:
    """Another queue that is owed two cores takes back what is above the minimum, and no more."""
    queues = [kai_queue("mine", 1), kai_queue("other", 3)]
    play = ElasticPlay(queues=queues, nodes={"node-0": {"cpu": "6", "memory": "256Gi"}})
    scaler = play.create(in_queue(raycluster(replicas=4, minReplicas=1), "mine"))
    for number in range(4):
        scaler.start(f"task-{number}")
    play.tick(3)
    assert len(play.pods()) == 4
    play.create_raw(in_queue(fixed_size(3, "owed", "other"), "other"))
    play.tick(12)
    assert len(play.pods()) == 2, "what is above the minimum goes, as far as others are owed it"
    assert not [order for order in play.told(EvictionOrdered) if order.victims]
    assert play.cpu("owed") == 3 * CORE
    play.clean()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 6), st.booleans())
def test_as_many_start_as_muster_decide_says(least: int, more: int, limit: int, job: bool) -> None:
    """``muster decide`` starts the minimum together and each other pod by itself, by code of its own."""
    replicas = least + more
    play = ElasticPlay(queues=[limited("mine", limit)])
    make = rayjob if job else raycluster
    play.create_raw(in_queue(make(replicas=replicas, minReplicas=least), "mine"))
    play.cell.advance(10_000)
    assert len(play.pods()) == decided(least, replicas, limit)
    play.clean()


def decided(least: int, replicas: int, limit: int) -> int:
    """How many workers of a head and so many ``muster decide`` starts under a limit."""
    pods = [{"name": "head", "cpu_milli": HEAD_CPU}]
    pods += [{"name": f"worker-{number}", "cpu_milli": CORE} for number in range(replicas)]
    found = ask(
        nodes=[{"name": "node", "cpu_milli": 64 * CORE}],
        queues=[{"name": "mine", "quota": {"cpu_milli": 0}, "limit": {"cpu_milli": CORE * limit + HEAD_CPU}}],
        jobs=[{"name": "auto", "queue": "mine", "min_member": 1 + least, "pods": pods}],
    )
    started = [pod for pods in nodes_of(found).values() for pod in pods]
    return max(len(started) - 1, 0)


@pytest.mark.parametrize(("says", "part"), [({"gpu-fraction": "0.25"}, 250), ({"gpu-memory": "20000"}, 250)])
@pytest.mark.parametrize("make", [raycluster, rayjob])
def test_growth_by_shares_of_devices_is_granted_and_charged_as_shares(make: Any, says: Any, part: int) -> None:
    """A worker in growth counts as one that was admitted: none of it runs beyond the grant."""
    queue = kai_queue("mine", 0)
    queue["spec"]["resources"]["gpu"] = {"quota": 0, "limit": 1, "overQuotaWeight": 1}
    play = ElasticPlay(queues=[queue], nodes={name: {**gives, GPU: "4"} for name, gives in NODES.items()})
    for name in NODES:
        labels = {"metadata": {"labels": {GPU_MEMORY: "80000"}}}
        play.call("PATCH", api.NODES, "", name, labels, "application/merge-patch+json")
    made = in_queue(make(replicas=6, minReplicas=2), "mine")
    spec = made["spec"]["rayClusterSpec"] if make is rayjob else made["spec"]
    spec["workerGroupSpecs"][0]["template"].setdefault("metadata", {}).setdefault("annotations", {}).update(says)
    play.create_raw(made)
    play.cell.advance(20_000)
    ledger = play.cell.seats["quota_accountant"].state.ledger
    [charge] = ledger.charges.values()
    assert (len(play.pods()), charge.request[GPU], charge.over) == (4, 4 * part, {})
    play.clean()
