"""Ray clusters that belong to a job or a service: what counts is how the cluster that runs scales itself now."""

from __future__ import annotations

from typing import Any

import pytest

from kit.contention import owed
from kit.elastic import ElasticPlay, raycluster, rayjob
from muster.events.decisions import EvictionOrdered
from muster.events.elastic import WorkersKept

ON = "/spec/enableInTreeAutoscaling"
GROUP = "/spec/workerGroupSpecs/0"


def borrowed() -> ElasticPlay:
    """Ten cores, of which ``ns`` is guaranteed three and ``other`` nothing: it may be suspended as a whole."""
    return ElasticPlay(("ns", "3", "100"), ("other", "0", "100"), total="10")


def write(play: ElasticPlay, path: str, value: Any) -> None:
    """On the RayCluster, whoever made it."""
    play.edit([{"op": "add", "path": path, "value": value}])
    play.tick(1)


def running(play: ElasticPlay, make: Any, *, scales: bool, size: int, **group: Any) -> None:
    made = make("auto", "other", replicas=0 if scales else size, **group)
    spec = made["spec"] if make is raycluster else made["spec"]["rayClusterSpec"]
    spec["enableInTreeAutoscaling"] = scales
    scaler = play.create(made)
    scaler.stopped = not scales
    for number in range(size):
        scaler.start(f"actor-{number}")
    play.tick(5)
    assert len(play.pods()) == size


@pytest.mark.parametrize("make", (raycluster, rayjob))
def test_one_that_scales_itself_since_gives_worker_by_worker(make: Any) -> None:
    play = borrowed()
    running(play, make, scales=False, size=8)
    write(play, ON, True)
    next(iter(play.scalers.values())).stopped = False
    play.tick(4)
    owed(play)
    play.tick(10)
    [order] = play.told(EvictionOrdered)
    assert not order.victims and order.partial, "it is not suspended as a whole"
    assert len(play.pods("owed")) == 3 and 0 < len(play.pods()) < 8
    play.clean()


@pytest.mark.parametrize("make", (raycluster, rayjob))
def test_one_that_has_a_fixed_size_since_is_not_asked_for_workers(make: Any) -> None:
    """They would be waited for in vain for two minutes."""
    play = borrowed()
    running(play, make, scales=True, size=8)
    write(play, ON, False)
    owed(play)
    play.tick(10)
    assert not play.told(WorkersKept)
    [order] = play.told(EvictionOrdered)
    assert order.victims and not order.partial
    assert len(play.pods("owed")) == 3
    play.clean()


@pytest.mark.parametrize("make", (raycluster, rayjob))
def test_its_minimum_is_the_one_of_the_cluster_that_runs(make: Any) -> None:
    play = borrowed()
    running(play, make, scales=True, size=8)
    write(play, f"{GROUP}/minReplicas", 7)
    owed(play)
    play.tick(10)
    assert not [part for order in play.told(EvictionOrdered) for part in order.partial], "it could give one, of three"
    assert len(play.pods("owed")) == 3
    play.clean()
