"""States as tables, and what the real stages decide about them."""

from __future__ import annotations

import json

from muster.tracesim.decide.answer import Answer
from muster.tracesim.decide.reading import read_state
from muster.tracesim.decide.run import decide


def ask(**state: object) -> Answer:
    return decide(read_state(json.dumps(state), "state"))


def node(name: str, gpus: int, **more: object) -> dict[str, object]:
    return {"name": name, "gpus": gpus, **more}


def ran(name: str, gpus: int, node: str, **more: object) -> dict[str, object]:
    """A job of one pod that runs."""
    return {"name": name, "pods": [{"gpus": gpus, "phase": "Running", "node": node}], **more}


def job(name: str, *gpus: int, **more: object) -> dict[str, object]:
    return {"name": name, "pods": [{"gpus": each} for each in gpus], **more}


def nodes_of(answer: Answer) -> dict[str, list[str]]:
    """{job: nodes of the pods that have started}"""
    return {each.job: [pod.node for pod in each.pods] for each in answer.admitted}


def devices_of(answer: Answer) -> dict[str, tuple[str, list[int]]]:
    """{pod: (node, devices)} of all that runs."""
    return {pod.name: (pod.node, pod.devices) for each in (*answer.running, *answer.admitted) for pod in each.pods}


def evicted(answer: Answer) -> list[tuple[str, str, str]]:
    return sorted((each.job, each.claimant, each.rule) for each in answer.evicted)


def waiting(answer: Answer) -> dict[str, str]:
    return {each.job: each.code for each in answer.waiting}


AB = [{"name": "a", "quota": 2}, {"name": "b", "quota": 2}]
