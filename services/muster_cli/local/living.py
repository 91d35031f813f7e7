"""The living demo: four teams on 32 GPUs, the events of the first minute, and jobs that go on coming.

Everything is drawn from one seed, so the same seed submits the same jobs at the same times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from random import Random
from typing import Any

from msgspec import Struct

from muster_cli import samples

Manifest = dict[str, Any]

NODES: Mapping[str, Mapping[str, str]] = {
    f"gpu-{number}": {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8"} for number in range(1, 5)
}
WORDS: Mapping[str, tuple[str, ...]] = {
    "vision": ("detector", "segment", "diffusion", "depth"),
    "language": ("pretrain", "finetune", "reward", "distill"),
    "interns": ("sweep", "baseline", "probe"),
    "search": ("ranker", "embed", "index"),
}
TEAMS, WEIGHTS = tuple(WORDS), (5, 5, 6, 3)


A_ROUND, CALM_S = 60, 120
"""So many jobs are a little more than the cluster manages meanwhile, and after so many seconds the line is gone."""


class Turn(Struct, frozen=True):
    """Something that is done: so many seconds after the turn before, at normal speed."""

    wait_s: float
    body: Manifest
    resize: int = -1
    """The new worker replicas of an existing cluster; -1: the cluster is created."""


def job(namespace: str, name: str, workers: int, gpus: int, run_s: int, *, outcome: str = "succeeded") -> Manifest:
    """A RayJob of so many workers with so many GPUs each."""
    [body] = [deepcopy(manifest) for manifest in samples.manifests(samples.TRAINING)]
    body["metadata"] = {
        "name": name,
        "namespace": namespace,
        "annotations": {"sim.muster.dev/runtime": f"{run_s}s", "sim.muster.dev/outcome": outcome},
    }
    group = body["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]
    group |= dict.fromkeys(("replicas", "minReplicas", "maxReplicas"), workers)
    for amounts in group["template"]["spec"]["containers"][0]["resources"].values():
        amounts |= {"cpu": str(2 * gpus), "nvidia.com/gpu": str(gpus)}
    return body


def cluster(namespace: str, name: str, workers: int, most: int) -> Manifest:
    """A RayCluster that scales itself between 0 workers and ``most``, with one GPU each."""
    spec = job(namespace, name, workers, 1, 0)["spec"]["rayClusterSpec"]
    spec["workerGroupSpecs"][0] |= {"minReplicas": 0, "maxReplicas": most}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {**spec, "enableInTreeAutoscaling": True, "suspend": True},
    }


def first_minute() -> Iterator[Turn]:
    """A borrow, a gang, a failure, a job that can never start, two clusters that are resized, and a reclaim."""
    grows, gives = cluster("search", "notebook", 1, 4), cluster("vision", "service", 3, 4)
    yield Turn(0, job("language", "pretrain-0", 2, 4, 150))
    yield Turn(1, job("interns", "sweep-0", 2, 4, 400))  # Borrows: the interns are guaranteed nothing.
    yield Turn(1, job("interns", "sweep-1", 1, 4, 400))
    yield Turn(1, job("vision", "gang-0", 3, 1, 60))
    yield Turn(2, grows)
    yield Turn(1, gives)
    yield Turn(2, job("search", "broken-0", 1, 1, 8, outcome="failed"))
    yield Turn(2, job("vision", "too-large-0", 6, 8, 60))  # 48 GPUs where the max is 24: it can never start.
    yield Turn(6, grows, resize=3)
    yield Turn(4, job("language", "urgent-0", 1, 4, 80))  # Within the guarantee: a job of the interns is evicted.
    yield Turn(4, job("vision", "detector-0", 2, 2, 60))
    yield Turn(8, gives, resize=1)


def endless(seed: int, calm_s: int = CALM_S) -> Iterator[Turn]:
    """Jobs of every team, for ever; about as many as the cluster manages, so that a line forms and dissolves.

    ``calm_s``: the pause after each round.
    """
    chance = Random(seed)  # noqa: S311 - a demo that can be repeated
    for number in range(1, 1 << 30):
        team = chance.choices(TEAMS, WEIGHTS)[0]
        name = f"{chance.choice(WORDS[team])}-{number}"
        workers, gpus = chance.choice(((1, 1), (1, 2), (2, 1), (2, 2), (1, 4), (4, 1), (2, 4), (3, 2)))
        outcome = "failed" if chance.random() < 0.06 else "succeeded"
        run_s = int(chance.choice((12, 20, 35, 60, 90)) * (0.75 + chance.random() / 2))
        calm = calm_s if number % A_ROUND == 0 else 0
        yield Turn(chance.choice((2, 4, 6, 9)) + calm, job(team, name, workers, gpus, run_s, outcome=outcome))


def turns(seed: int) -> Iterator[Turn]:
    """All of it."""
    yield from first_minute()
    yield from endless(seed)
