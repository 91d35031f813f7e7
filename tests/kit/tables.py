"""States and outcomes in one line a thing, as tables of other schedulers have them.

Nodes: ``n1:4`` has 4 GPUs; ``n1:4:8c`` and 8 cores, ``:32g`` GiB of memory, ``:40960m`` MiB of each device.
Queues: ``a D2 W1 M4 P200 <dept`` has quota 2, weight 1, limit 4, priority 200 below ``dept``; ``Dcpu:4000`` of cpu.
Jobs: ``name queue pods... key=value``. A pod is ``2`` (GPUs), ``.5`` (of a device), ``.5*2`` (of two), ``2000m`` (MiB
of one), ``3x2`` for three of them; with ``@n1`` where it runs there, ``+4c`` and ``+8g`` for cores and GiB, ``/s`` for
its subgroup. Keys: ``p`` priority, ``min``, ``at`` (created), ``firm`` (1: not preemptible), ``sub`` (``s:2,t:1``).
Outcome: ``name n1 n1 -``: where its pods run in the end, in any order; ``-`` for each that waits.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from kit.deciding import ask
from muster.tracesim.decide.answer import Answer

POD = re.compile(
    r"(?:(?P<times>\d+)x)?(?P<amount>[\d.]+m?)(?:\*(?P<devices>\d+))?(?:\+(?P<cpu>[\d.]+)c)?(?:\+(?P<memory>\d+)g)?"
    r"(?:/(?P<sub>\w+))?(?:@(?P<node>\w+))?"
)


class Case(NamedTuple):
    """A state and how it ends."""

    title: str
    nodes: str
    queues: str
    jobs: str
    ends: str

    def holds(self) -> None:
        assert decided(self.nodes, self.queues, self.jobs) == expected(self.ends)


def nodes(text: str) -> list[dict[str, Any]]:
    found = []
    for each in text.split():
        name, gpus, *more = each.split(":")
        node: dict[str, Any] = {"name": name, "gpus": int(gpus)}
        for extra in more:
            amount = int(extra[:-1])
            node |= {
                "c": {"cpu_milli": amount * 1000},
                "g": {"memory_mib": amount * 1024},
                "m": {"gpu_memory_mib": amount},
            }[extra[-1]]
        found.append(node)
    return found


def queues(text: str) -> list[dict[str, Any]]:
    found = []
    keys = {"D": "quota", "W": "weight", "M": "limit", "P": "priority"}
    for line in filter(None, map(str.strip, text.split(";"))):
        name, *parts = line.split()
        queue: dict[str, Any] = {"name": name}
        for part in parts:
            if part[0] == "<":
                queue["parent"] = part[1:]
            elif part[0] == "P":
                queue["priority"] = int(part[1:])
            elif ":" in part:
                resource, _, amount = part[1:].partition(":")
                unit = {"gpu": "gpus", "cpu": "cpu_milli", "mem": "memory_mib"}[resource]
                queue.setdefault(keys[part[0]], {})[unit] = float(amount)
            else:
                queue[keys[part[0]]] = float(part[1:])
        found.append(queue)
    return found


def job(line: str) -> dict[str, Any]:
    name, queue, *parts = line.split()
    found: dict[str, Any] = {"name": name, "queue": queue, "pods": []}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals:
            found["pods"] += _pods(part)
        elif key == "p":
            found["priority"] = int(value) if value.isdigit() else value
        elif key == "min":
            found["min_member"] = int(value)
        elif key == "at":
            found["created_s"] = int(value)
        elif key == "firm":
            found["preemptible"] = value == "0"
        elif key == "sub":
            pairs = [each.split(":") for each in value.split(",")]
            found["subgroups"] = [{"name": sub, "min_member": int(least)} for sub, least in pairs]
        else:
            raise ValueError(part)
    return found


def _pods(text: str) -> list[dict[str, Any]]:
    match = POD.fullmatch(text)
    assert match is not None, text
    amount, pod = match["amount"], dict[str, Any]()
    if amount.endswith("m"):
        pod["gpu_memory_mib"] = int(amount[:-1])
    elif "." in amount:
        pod["gpu_fraction"] = float(amount)
    elif int(amount):
        pod["gpus"] = int(amount)
    if match["devices"]:
        pod["devices"] = int(match["devices"])
    if match["cpu"]:
        pod["cpu_milli"] = int(float(match["cpu"]) * 1000)
    if match["memory"]:
        pod["memory_mib"] = int(match["memory"]) * 1024
    if match["sub"]:
        pod["subgroup"] = match["sub"]
    if match["node"]:
        pod |= {"phase": "Running", "node": match["node"]}
    return [dict(pod) for _ in range(int(match["times"] or 1))]


def state(there: str, shared: str, wanted: str, **more: Any) -> dict[str, Any]:
    jobs = [job(line) for line in filter(None, map(str.strip, wanted.splitlines()))]
    return {"nodes": nodes(there), "queues": queues(shared), "jobs": jobs, **more}


def outcome(answer: Answer) -> dict[str, list[str]]:
    """{job: where its pods run, - for each that waits}"""
    found: dict[str, list[str]] = {}
    for runs in (*answer.running, *answer.admitted):
        found.setdefault(runs.job, []).extend(pod.node for pod in runs.pods)
    for waits in answer.waiting:
        found.setdefault(waits.job, []).extend("-" for _ in waits.pods)
    return {name: sorted(places) for name, places in sorted(found.items())}


def expected(text: str) -> dict[str, list[str]]:
    lines = [line.split() for line in filter(None, map(str.strip, re.split(r"[\n;]", text)))]
    return {name: sorted(places) for name, *places in sorted(lines)}


def decided(there: str, shared: str, wanted: str, **more: Any) -> dict[str, list[str]]:
    return outcome(ask(**state(there, shared, wanted, **more)))
