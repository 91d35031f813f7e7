"""In KAI queues Ray clusters give back workers: to queues that are owed, and to a higher priority of their own."""

from __future__ import annotations

from typing import Any

import pytest

from kit.elastic import ElasticPlay, in_queue, kai_queue, raycluster
from muster.events.decisions import EvictionOrdered
from muster.events.elastic import WorkersKept
from muster.model import api

TEN = {"node-0": {"cpu": "10", "memory": "64Gi"}}
"""Half a core of it is for the autoscaler of each cluster."""


def play_of(*queues: Any) -> ElasticPlay:
    return ElasticPlay(nodes=TEN, queues=queues or (kai_queue("a", 5), kai_queue("b", 5)))


def grown(
    play: ElasticPlay, workers: int, queue: str, name: str = "auto", priority: str = "train", **group: Any
) -> None:
    scaler = play.create(in_queue(raycluster(name, "ns", **group), queue, priority))
    for number in range(workers):
        scaler.start(f"actor-{number}")
    play.tick(6)
    assert len(play.pods(name)) == workers


def fixed(play: ElasticPlay, cpu: int, queue: str, name: str = "owed", priority: str = "train") -> None:
    """A cluster of a fixed size."""
    made = raycluster(name, "ns", replicas=cpu, minReplicas=cpu, maxReplicas=cpu)
    made["spec"]["enableInTreeAutoscaling"] = False
    play.create(in_queue(made, queue, priority))


def taken(play: ElasticPlay) -> list[dict[str, int]]:
    orders = play.told(EvictionOrdered)
    assert not any(order.victims for order in orders), "nobody leaves as a whole"
    return [each.taken for order in orders for each in order.partial]


def test_a_queue_gives_worker_by_worker_what_it_has_above_its_quota() -> None:
    play = play_of()
    grown(play, 8, "b")
    fixed(play, 3, "a")
    play.tick(8)
    assert taken(play) == [{"small": 2}]
    assert (len(play.pods("auto")), len(play.pods("owed"))) == (6, 3)
    play.clean()


def test_no_further_than_its_share() -> None:
    """b keeps its half: what a asks for beyond its own waits, and no cluster leaves for it."""
    play = play_of()
    grown(play, 9, "b")
    fixed(play, 6, "a")
    play.tick(8)
    assert taken(play) == []
    assert len(play.pods("auto")) == 9
    play.clean()


def test_a_gang_never_falls_below_its_minimum() -> None:
    """What it has beyond its minimum is too little: it leaves whole, or nobody does, and never a part of the gang."""
    play = play_of()
    grown(play, 8, "b", replicas=7, minReplicas=7)
    fixed(play, 3, "a")
    play.tick(8)
    orders = play.told(EvictionOrdered)
    assert not any(order.partial for order in orders)
    assert len(play.pods("auto")) in (0, 7, 8)
    play.clean()


def test_what_a_gang_has_grown_by_is_not_protected_by_a_minimum_run_time() -> None:
    play = play_of(kai_queue("a", 5), kai_queue("b", 5, reclaimMinRuntime="10h"))
    grown(play, 8, "b")
    fixed(play, 3, "a")
    play.tick(8)
    assert taken(play) == [{"small": 2}]
    play.clean()


def test_of_two_queues_the_one_that_is_further_above_gives() -> None:
    play = play_of(kai_queue("a", 4), kai_queue("b", 4), kai_queue("c", 1))
    grown(play, 4, "b", "bee")
    grown(play, 4, "c", "sea")
    fixed(play, 3, "a")
    play.tick(8)
    [order] = play.told(EvictionOrdered)
    assert {each.ref.name: each.taken for each in order.partial} == {"sea": {"small": 2}}
    play.clean()


@pytest.mark.parametrize(("priority", "gives"), (("build-preemptible", True), ("train", False)))
def test_in_a_queue_a_higher_priority_takes_workers_and_an_equal_one_none(priority: str, *, gives: bool) -> None:
    play = play_of(kai_queue("a", 10))
    grown(play, 8, "a")
    fixed(play, 3, "a", priority=priority)
    play.tick(8)
    assert taken(play) == ([{"small": 2}] if gives else [])
    assert len(play.pods("owed")) == (3 if gives else 0)
    play.clean()


def test_firm_clusters_give_nothing() -> None:
    play = play_of()
    play.call("POST", api.KAI_QUEUES, body=kai_queue("c", 10))
    grown(play, 8, "c", priority="inference")
    fixed(play, 3, "a")
    play.tick(8)
    assert taken(play) == []
    assert len(play.pods("auto")) == 8
    play.clean()


def test_two_claimants_at_once_take_no_worker_twice() -> None:
    play = play_of(kai_queue("a", 3), kai_queue("b", 3), kai_queue("c", 3))
    grown(play, 9, "b")
    play.create_raw(in_queue(raycluster("one", "ns", replicas=2, minReplicas=2, maxReplicas=2), "a"))
    play.create_raw(in_queue(raycluster("two", "ns", replicas=2, minReplicas=2, maxReplicas=2), "c"))
    play.tick(20)
    assert not any(order.victims for order in play.told(EvictionOrdered))
    assert (len(play.pods("one")), len(play.pods("two"))) == (2, 2)
    assert len(play.pods("auto")) >= 4
    play.clean()


def test_a_disruption_budget_keeps_the_workers_and_then_the_cluster() -> None:
    play = play_of()
    grown(play, 8, "b")
    budget: dict[str, Any] = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep", "namespace": "ns"},
        "spec": {"selector": {"matchLabels": {"ray.io/cluster": "auto"}}},
        "status": {"disruptionsAllowed": 0, "desiredHealthy": 9},
    }
    play.call("POST", api.DISRUPTION_BUDGETS, "ns", body=budget)
    fixed(play, 3, "a")
    play.tick(60)
    assert play.told(WorkersKept)
    assert (len(play.pods("auto")), len(play.pods("owed"))) == (8, 0)
    play.clean()
