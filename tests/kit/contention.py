"""Ten cores, two queues: one cluster that scales itself has grown, and another queue is owed what it borrows."""

from __future__ import annotations

from typing import Any

from kit.elastic import ElasticPlay, Object, raycluster
from kit.rayscaler import RayScaler


def contended(**given: Any) -> ElasticPlay:
    """Ten cores, of which ``ns`` is guaranteed three and ``other`` two."""
    return ElasticPlay(("ns", "3", "100"), ("other", "2", "100"), total="10", **given)


def grown(play: ElasticPlay, workers: int, *, make: Any = raycluster, **group: Any) -> RayScaler:
    """A cluster in queue ``other`` that has grown to so many busy workers."""
    scaler = play.create(make("auto", "other", **group))
    for number in range(workers):
        scaler.start(f"actor-{number}")
    play.tick(5)
    assert len(play.pods()) == workers
    return scaler


def fixed_size(cpu: int, name: str = "owed", namespace: str = "ns") -> Object:
    """A cluster of so many cores that does not scale itself."""
    made = raycluster(name, namespace, replicas=cpu, minReplicas=cpu, maxReplicas=cpu)
    made["spec"]["enableInTreeAutoscaling"] = False
    return made


def owed(play: ElasticPlay, cpu: int = 3) -> None:
    """One comes to ``ns``; no time passes."""
    play.create_raw(fixed_size(cpu))


def names(pods: list[Object]) -> set[str]:
    return {pod["metadata"]["name"] for pod in pods}
