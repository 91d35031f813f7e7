"""Random state files for ``muster decide``, and what must hold of every answer."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from fractions import Fraction
from random import Random
from typing import Any

from muster.core.quota.demand import CLASSES
from muster.tracesim.decide.answer import Answer, PodPlacedAnswer

State = dict[str, Any]


def state(rng: Random) -> State:
    """Up to four nodes, queues of up to three levels, and up to twelve jobs, of which about half run."""
    nodes = [
        {
            "name": f"n{index}",
            "gpus": rng.choice([1, 2, 2, 4]),
            "cpu_milli": rng.choice([4000, 8000]),
            "gpu_memory_mib": rng.choice([40000, 80000]),
        }
        for index in range(rng.randint(1, 4))
    ]
    if rng.random() < 0.15:
        nodes[0]["schedulable"] = False
    queues: list[State] = []
    leaves = list(_queues(rng, queues, rng.randint(1, 3), sum(node["gpus"] for node in nodes)))
    free = _Free(nodes)
    jobs = [_job(rng, f"j{index}", index, leaves, free) for index in range(rng.randint(1, 12))]
    return {"now_s": 100, "nodes": nodes, "queues": queues, "jobs": jobs, "placement": rng.choice(["pack", "spread"])}


def _queues(rng: Random, found: list[State], depth: int, total: int, parent: str = "", level: int = 1) -> Iterator[str]:
    """Names of the leaves; the queues are added to ``found``."""
    for letter in "abc"[: rng.randint(1, 3)]:
        queue = {
            "name": f"{parent}{letter}",
            "quota": rng.choice([0, 1, 1, 2, 2, 2, 3, -1]),
            "limit": rng.choice([-1, -1, -1, -1, rng.randint(0, total)]),
            "weight": rng.choice([0, 1, 1, 2, 3]),
            "priority": rng.choice([100, 100, 100, 200]),
        }
        found.append(queue | ({"parent": parent} if parent else {}))
        if level < depth and rng.random() < 0.6:
            yield from _queues(rng, found, depth, total, queue["name"], level + 1)
        else:
            yield queue["name"]


class _Free:
    """What running pods have left: node -> what is left of each device, and cores."""

    def __init__(self, nodes: list[State]) -> None:
        self.memory = {node["name"]: node["gpu_memory_mib"] for node in nodes}
        self.left = {node["name"]: [Fraction(1)] * node["gpus"] for node in nodes}
        self.cpu = {node["name"]: node["cpu_milli"] for node in nodes}

    def start(self, rng: Random, pods: list[State], started: int) -> None:
        """All of them run, or none."""
        before = {name: list(each) for name, each in self.left.items()}, dict(self.cpu)
        for pod in pods:
            node = next((name for name in rng.sample(sorted(self.left), len(self.left)) if self._take(name, pod)), None)
            if node is None:
                self.left, self.cpu = before
                for each in pods:
                    each.pop("node", None)
                return
            pod["node"] = node
        for pod in pods:
            pod |= {"phase": "Running", "started_s": started}
            if "taken" in pod:
                pod["devices"] = pod.pop("taken")

    def _take(self, node: str, pod: State) -> bool:
        left, share = self.left[node], share_of(pod, self.memory[node])
        if pod.get("cpu_milli", 0) > self.cpu[node]:
            return False
        if share:
            fitting = sorted((each, device) for device, each in enumerate(left) if each >= share)[: pod["devices"]]
            chosen = [device for _, device in fitting]
            if len(chosen) < pod["devices"]:
                return False
            pod["taken"] = chosen
        else:
            share, chosen = Fraction(1), [device for device, each in enumerate(left) if each == 1][::-1]
            chosen = chosen[: pod.get("gpus", 0)]
            if len(chosen) < pod.get("gpus", 0):
                return False
        for device in chosen:
            left[device] -= share
        self.cpu[node] -= pod.get("cpu_milli", 0)
        return True


def _job(rng: Random, name: str, created: int, leaves: list[str], free: _Free) -> State:
    pods = [{"name": f"p{index}", **_asks(rng)} for index in range(rng.choice([1, 1, 1, 2, 3]))]
    job: State = {"name": name, "queue": rng.choice(leaves), "created_s": created, "pods": pods}
    job["priority"] = rng.choice(["train", "train", "build-preemptible", "build", "inference", 60])
    if rng.random() < 0.2:
        job["preemptible"] = rng.choice([True, False])
    if rng.random() < 0.5:
        free.start(rng, pods, created)
        for pod in pods:
            pod.pop("taken", None)
    if len(pods) > 1 and rng.random() < 0.4:
        job["min_member"] = rng.randint(1, len(pods))
    return job


def _asks(rng: Random) -> State:
    kind = rng.random()
    if kind < 0.55:
        return {"gpus": rng.choice([1, 1, 2])}
    if kind < 0.8:
        return {"gpu_fraction": rng.choice([0.25, 0.5, 0.5, 0.75, 0.3, 0.334]), "devices": rng.choice([1, 1, 1, 2])}
    if kind < 0.9:
        return {"gpu_memory_mib": rng.choice([10000, 20000, 40000, 60000]), "devices": 1}
    return {"cpu_milli": rng.choice([1000, 3000])}


def share_of(pod: Mapping[str, Any], memory: int) -> Fraction:
    """What it takes of each device; 0 where it shares none."""
    if "gpu_fraction" in pod:
        return Fraction(str(pod["gpu_fraction"]))
    return Fraction(pod["gpu_memory_mib"], memory) if "gpu_memory_mib" in pod else Fraction(0)


def shuffled(given: State, rng: Random) -> State:
    """The same in another order."""
    return {
        key: rng.sample(value, len(value)) if key in ("nodes", "queues", "jobs") else value
        for key, value in given.items()
    }


def ended(given: State, answer: Answer) -> State:
    """The state that an answer leads to."""
    places = placed(answer)

    def pod(job: str, each: State) -> State:
        at = places.get((job, each["name"]))
        bare = {key: value for key, value in each.items() if key not in ("phase", "node", "started_s")}
        if "devices" in bare:
            count = len(bare["devices"]) if isinstance(bare["devices"], list) else bare["devices"]
            bare["devices"] = count if at is None else at.devices
        return bare | ({} if at is None else {"phase": "Running", "node": at.node, "started_s": 50})

    jobs = [{**job, "pods": [pod(job["name"], each) for each in job["pods"]]} for job in given["jobs"]]
    return {**given, "jobs": jobs}


def placed(answer: Answer) -> dict[tuple[str, str], PodPlacedAnswer]:
    """{(job, pod): where it runs in the end}"""
    return {(each.job, pod.name): pod for each in (*answer.running, *answer.admitted) for pod in each.pods}


def told(answer: Answer) -> tuple[object, ...]:
    """What an answer says, in an order of its own."""
    return (
        sorted((*key, pod.node, pod.devices) for key, pod in placed(answer).items()),
        sorted((each.job, each.pods, each.claimant, each.rule) for each in answer.evicted),
        sorted((each.job, each.pods, each.claimant, each.after) for each in answer.moved),
        sorted((each.job, each.pods, each.code) for each in answer.waiting),
    )


def wrong(given: State, answer: Answer) -> list[str]:
    """What must not be: pods that are lost, more on a device, a node or in a queue than it has, and parts of gangs."""
    return [*_lost(given, answer), *_devices(given, answer), *_queued(given, answer), *_gangs(given, answer)]


def _lost(given: State, answer: Answer) -> Iterator[str]:
    known = {(job["name"], pod["name"]) for job in given["jobs"] for pod in job["pods"]}
    runs = [(each.job, pod.name) for each in (*answer.running, *answer.admitted) for pod in each.pods]
    waits = [(each.job, pod) for each in answer.waiting for pod in each.pods]
    if sorted(runs + waits) != sorted(known):
        yield f"pods: {sorted(set(runs + waits) ^ known) or 'one is told twice'}"


def _devices(given: State, answer: Answer) -> Iterator[str]:
    nodes = {node["name"]: node for node in given["nodes"]}
    pods = {(job["name"], pod["name"]): pod for job in given["jobs"] for pod in job["pods"]}
    taken: dict[tuple[str, int], list[Fraction]] = defaultdict(list)
    cpu: Counter[str] = Counter()
    for key, at in placed(answer).items():
        pod, node = pods[key], nodes[at.node]
        cpu[at.node] += pod.get("cpu_milli", 0)
        share = share_of(pod, node["gpu_memory_mib"])
        devices = pod.get("devices", 0)
        count = len(devices) if isinstance(devices, list) else devices
        if len(set(at.devices)) != len(at.devices) or len(at.devices) != (count if share else pod.get("gpus", 0)):
            yield f"{key} has devices {at.devices}"
        for device in at.devices:
            taken[at.node, device].append(share)
            if not 0 <= device < node["gpus"]:
                yield f"{key} has device {device} of {node['gpus']}"
    for where, shares in taken.items():
        if len(shares) > 1 and not all(shares):
            yield f"{where} is whole somebody's, and shared"
        if sum(shares) > 1:
            yield f"{where} is taken {sum(shares)} times"
    yield from (f"{name} has {used}m cores" for name, used in cpu.items() if used > nodes[name]["cpu_milli"])


def _queued(given: State, answer: Answer) -> Iterator[str]:
    """Limits, and quotas of work that is not preemptible, hold for everything that has started."""
    queues = {queue["name"]: queue for queue in given["queues"]}
    least = min(node["gpu_memory_mib"] for node in given["nodes"])
    began = {(each.job, pod.name) for each in answer.admitted for pod in each.pods}
    used: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    grown: set[tuple[str, str]] = set()
    for job in given["jobs"]:
        firm = not job.get("preemptible", CLASSES.get(job["priority"], job["priority"]) < 100)
        for pod in job["pods"]:
            if (job["name"], pod["name"]) not in placed(answer):
                continue
            devices = pod.get("devices", 1)
            share = Fraction(-(-share_of(pod, least) * 1000 // 1), 1000)
            amount = share * (len(devices) if isinstance(devices, list) else devices) or Fraction(pod.get("gpus", 0))
            at = job["queue"]
            while at:
                for part in ("limit", "quota") if firm else ("limit",):
                    used[at, part] += amount
                    if amount and (job["name"], pod["name"]) in began:
                        grown.add((at, part))
                at = queues[at].get("parent", "")
    for at, part in sorted(grown):
        if 0 <= queues[at][part] < used[at, part]:
            yield f"{at} has {used[at, part]} of {part} {queues[at][part]}"


def _gangs(given: State, answer: Answer) -> Iterator[str]:
    for job in given["jobs"]:
        runs = sum((job["name"], pod["name"]) in placed(answer) for pod in job["pods"])
        least = job.get("min_member", len(job["pods"]))
        if 0 < runs < least:
            yield f"{job['name']} runs with {runs} of {least}"
