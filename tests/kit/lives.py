"""Small clusters over time, for ``muster decide``: jobs come and end, nodes fail and return, limits are edited.

``wrong`` says what may not be left over after a step, by plain numbers and every placement. No code of the core decides
here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from random import Random
from typing import Any

from kit import states
from kit.states import State, placed, share_of
from muster.tracesim.decide.answer import Answer

FIRM = 100
"""From this priority on a job is not preemptible, unless it says so."""
RANKS = {"train": 50, "build-preemptible": 75, "build": 100, "inference": 125}
STEPS = 6


def begun(rng: Random) -> State:
    """Half of them with KAI queues, half with a quota tree. No pod asks for GPU memory: its amount depends on the nodes
    that are there. A pod that runs takes no more of its GPU than before.
    """
    state = states.state(rng)
    for pod in (pod for job in state["jobs"] for pod in job["pods"] if "gpu_memory_mib" in pod):
        pod["gpu_fraction"] = min(0.25, pod.pop("gpu_memory_mib") / 80_000)
    if rng.random() < 0.5:
        if rng.random() < 0.5:
            return _with_ranks(state)
        return _elastic(state)
    state["queues"] = _tree(rng, sum(node["gpus"] for node in state["nodes"]))
    leaves = [name for name, node in _flat(state["queues"]["spec"]["root"]).items() if not node.get("children")]
    jobs = []
    for job in state["jobs"]:
        pods = [
            {key: value for key, value in pod.items() if key not in ("gpu_fraction", "gpu_memory_mib", "devices")}
            for pod in job["pods"]
        ]
        if all(pod.get("gpus") or pod.get("cpu_milli") for pod in pods):
            jobs.append({**job, "queue": rng.choice(leaves), "pods": pods, "preemptible": True})
    return _with_ranks({**state, "jobs": jobs})


def _with_ranks(state: State) -> State:
    """Without elastic gangs: the command submits what joins a gang after the gang, one priority after the other."""
    for job in state["jobs"]:
        job.pop("min_member", None)
    return state


def _elastic(state: State) -> State:
    for job in state["jobs"]:
        job["priority"] = 50
    return state


def _tree(rng: Random, total: int) -> State:
    """A sound tree over ``total`` GPUs: the mins of children sum up to no more than their parent's."""

    def below(name: str, least: int, depth: int) -> list[State]:
        nodes, left = [], least
        for letter in "xyz"[: rng.randint(2, 3)]:
            mine = rng.choice((0, left, rng.randint(0, left)))
            left -= mine
            limit = {"nvidia.com/gpu": rng.randint(mine, total)} if rng.random() < 0.15 else {}
            node: State = {"name": f"{name}{letter}", "min": {"nvidia.com/gpu": mine}, "max": limit}
            if depth < 2 and rng.random() < 0.35:
                node["children"] = below(f"{name}{letter}", mine, depth + 1)
            else:
                node["namespaces"] = [f"{name}{letter}"]
            nodes.append(node)
        return nodes

    whole = {"nvidia.com/gpu": total}
    root = {"name": "root", "min": whole, "max": whole, "children": below("", total, 1)}
    tree = {"apiVersion": "scheduling.sigs.k8s.io/v1beta1", "kind": "ElasticQuotaTree", "metadata": {"name": "t"}}
    return {**tree, "spec": {"root": root}}


def _flat(root: State) -> dict[str, State]:
    """name -> node, parents first."""
    return {root["name"]: root} | {
        name: node for child in root.get("children", ()) for name, node in _flat(child).items()
    }


def later(rng: Random, state: State, answer: Answer, number: int) -> State:
    """The state some minutes after an answer, when something has happened. Nobody has waited for long."""
    began = {each.job for each in answer.admitted}
    state = states.ended(state, answer)
    now = state["now_s"] + 600
    jobs = []
    for job in state["jobs"]:
        runs = any("node" in pod for pod in job["pods"])
        if runs and rng.random() < 0.25:
            continue
        for pod in job["pods"]:
            if "node" in pod:
                pod["started_s"] = state["now_s"] if job["name"] in began else min(job["created_s"], state["now_s"])
        jobs.append(job)
    state = {**state, "now_s": now, "jobs": jobs, "nodes": [dict(node) for node in state["nodes"]]}
    leaves = [name for name, node in queues_of(state).items() if node["leaf"]]
    is_tree, elastic = isinstance(state["queues"], dict), all(job["priority"] == 50 for job in jobs)
    for index in range(rng.randint(0, 3)):
        pods = [{"name": f"p{at}", "gpus": rng.choice((1, 1, 2))} for at in range(rng.choice((1, 1, 2, 3)))]
        job = {"name": f"s{number}-{index}", "queue": rng.choice(leaves), "created_s": now, "pods": pods}
        job["priority"] = 50 if elastic else rng.choice(("train", "train", "build-preemptible", 60))
        if elastic and len(pods) > 1 and rng.random() < 0.3:
            job["min_member"] = rng.randint(1, len(pods))
        jobs.append(job | ({"preemptible": True} if is_tree else {}))
    _happens(rng, state)
    for at, job in enumerate(jobs):
        if not any("node" in pod for pod in job["pods"]):
            job["created_s"] = now - 200 + at
    return state


def _happens(rng: Random, state: State) -> None:
    """To a node, or to a quota."""
    node = rng.choice(state["nodes"])
    draw = rng.random()
    if draw < 0.15:
        node["ready"] = not node.get("ready", True)
    elif draw < 0.3:
        node["schedulable"] = not node.get("schedulable", True)
    elif draw < 0.4 and len(state["nodes"]) > 1:
        state["nodes"].remove(node)
        for pod in (pod for job in state["jobs"] for pod in job["pods"]):
            if pod.get("node") == node["name"]:
                for key in ("node", "phase", "started_s"):
                    del pod[key]
                if isinstance(pod.get("devices"), list):
                    pod["devices"] = len(pod["devices"])
        for job in state["jobs"]:  # A gang that has lost a pod is gone as a whole.
            if any("node" not in pod for pod in job["pods"]):
                for pod in job["pods"]:
                    for key in ("node", "phase", "started_s"):
                        pod.pop(key, None)
                    if isinstance(pod.get("devices"), list):
                        pod["devices"] = len(pod["devices"])
    elif draw < 0.6 and isinstance(state["queues"], list):
        queue = rng.choice(state["queues"])
        queue[rng.choice(("quota", "weight"))] = rng.randint(0, 3)


# --- what may not be ----------------------------------------------------------------------------------------------


def queues_of(state: State) -> dict[str, State]:
    """name -> {parent, least, limit, leaf}, in GPUs; -1: unlimited."""
    if isinstance(state["queues"], list):
        above = {queue.get("parent", "") for queue in state["queues"]}
        return {
            queue["name"]: {
                "parent": queue.get("parent", ""),
                "least": queue["quota"],
                "limit": queue["limit"],
                "leaf": queue["name"] not in above,
            }
            for queue in state["queues"]
        }
    found: dict[str, State] = {}

    def read(node: State, parent: str) -> None:
        limit = node["max"].get("nvidia.com/gpu", -1)
        least = node["min"].get("nvidia.com/gpu", 0)
        found[node["name"]] = {"parent": parent, "least": least, "limit": limit, "leaf": not node.get("children")}
        for child in node.get("children", ()):
            read(child, node["name"])

    read(state["queues"]["spec"]["root"], "")
    return found


def wrong(state: State, answer: Answer) -> Iterator[str]:
    """What no answer may do, in words."""
    if isinstance(state["queues"], list):
        yield from states.wrong(state, answer)
    yield from _idle(state, answer)
    yield from _owed(state, answer)


def hasty(state: State, answer: Answer) -> Iterator[str]:
    """Who left more than once, after a start, or for somebody that left too."""
    jobs = {job["name"]: job for job in state["jobs"]}
    ran = {job["name"] for job in state["jobs"] if any("node" in pod for pod in job["pods"])}
    ran |= {each.job for each in answer.moved}
    runs = {job for job, _ in placed(answer)}
    for (job, _), times in Counter((each.job, tuple(each.pods)) for each in answer.evicted).items():
        joins = all("min_member" in jobs[each.claimant] for each in answer.evicted if each.job == job)
        if times > 1:
            yield f"{job} is evicted {times} times"
        elif job not in ran and not joins:
            yield f"{job} is started and evicted"
    for each in answer.evicted:
        if each.claimant not in runs:
            yield f"{each.job} left in vain, for {each.claimant}"


class _World:
    """What runs where after an answer."""

    def __init__(self, state: State, at: Mapping[tuple[str, str], Any]) -> None:
        self.queues, self.nodes = queues_of(state), {node["name"]: node for node in state["nodes"]}
        self.smallest = min(node["gpu_memory_mib"] for node in state["nodes"])
        self.jobs = {job["name"]: job for job in state["jobs"]}
        self.free = {node["name"]: [Fraction(1)] * node["gpus"] for node in state["nodes"]}
        self.cpu = {node["name"]: node["cpu_milli"] for node in state["nodes"]}
        self.used: dict[str, Fraction] = defaultdict(Fraction)
        self.firm: dict[str, Fraction] = defaultdict(Fraction)
        for job in state["jobs"]:
            for pod in job["pods"]:
                where = at.get((job["name"], pod["name"]))
                if where is not None:
                    share = share_of(pod, self.nodes[where.node]["gpu_memory_mib"]) or Fraction(1)
                    for device in where.devices:
                        self.free[where.node][device] -= share
                    self.cpu[where.node] -= pod.get("cpu_milli", 0)
                    for path in self.up(job["queue"]):
                        self.used[path] += self.asks(pod)
                        self.firm[path] += self.asks(pod) if is_firm(job) else 0

    def up(self, queue: str) -> Iterator[str]:
        while queue:
            yield queue
            queue = self.queues[queue]["parent"]

    def asks(self, pod: State) -> Fraction:
        devices = pod.get("devices", 1)
        count = len(devices) if isinstance(devices, list) else devices
        return share_of(pod, self.smallest) * count or Fraction(pod.get("gpus", 0))

    def serves(self, node: str) -> bool:
        return self.nodes[node].get("ready", True) and self.nodes[node].get("schedulable", True)

    def fits(self, job: State, pods: Sequence[State]) -> bool:
        """In its quotas, and on the nodes."""
        asked = sum(map(self.asks, pods), Fraction(0))
        for path in self.up(job["queue"]):
            queue = self.queues[path]
            if asked and 0 <= queue["limit"] < self.used[path] + asked:
                return False
            if asked and is_firm(job) and 0 <= queue["least"] < self.firm[path] + asked:
                return False
        return self._lands(list(pods))

    def _lands(self, pods: list[State]) -> bool:
        """Whether some placement takes all pods."""
        if not pods:
            return True
        pod, rest = pods[0], pods[1:]
        for name in self.nodes:
            if not self.serves(name) or pod.get("cpu_milli", 0) > self.cpu[name]:
                continue
            share, devices = share_of(pod, self.nodes[name]["gpu_memory_mib"]), pod.get("devices", 1)
            count = (len(devices) if isinstance(devices, list) else devices) if share else pod.get("gpus", 0)
            left = self.free[name]
            room = sorted((each, at) for at, each in enumerate(left) if (each >= share if share else each == 1))
            if len(room) < count:
                continue
            for _, at in room[:count]:
                left[at] -= share or 1
            self.cpu[name] -= pod.get("cpu_milli", 0)
            landed = self._lands(rest)
            for _, at in room[:count]:
                left[at] += share or 1
            self.cpu[name] += pod.get("cpu_milli", 0)
            if landed:
                return True
        return False


def is_firm(job: State) -> bool:
    rank = RANKS.get(job["priority"], job["priority"])
    return not job.get("preemptible", rank < FIRM)


def _waiting(state: State, answer: Answer) -> Iterator[tuple[State, list[State], str]]:
    """(job, the pods that it would start with next, why it waits)"""
    at = placed(answer)
    why = {each.job: each.code for each in reversed(answer.waiting)}
    for job in state["jobs"]:
        missing = [pod for pod in job["pods"] if (job["name"], pod["name"]) not in at]
        if missing:
            least = job.get("min_member", len(job["pods"]))
            has = len(job["pods"]) - len(missing)
            yield job, missing[: 1 if has else least], why[job["name"]]


def _idle(state: State, answer: Answer) -> Iterator[str]:
    """Who would fit, in its quotas and on nodes that serve."""
    world = _World(state, placed(answer))
    for job, pods, code in _waiting(state, answer):
        fits = world.fits(job, pods)
        if fits:
            yield f"{job['name']} waits ({code}) and would fit"


def _owed(state: State, answer: Answer) -> Iterator[str]:
    """Who stays within the guarantee of its queue and of each queue above, where one borrower's whole leaving would do:
    the borrower's queue, and each above it up to the shared one, is above what it is guaranteed even without it.
    """
    at = placed(answer)
    world = _World(state, at)
    queues = world.queues
    for job, pods, code in _waiting(state, answer):
        asked = sum(map(world.asks, pods), Fraction(0))
        mine = [path for path in world.up(job["queue"]) if queues[path]["parent"] or isinstance(state["queues"], list)]
        if not asked or any(
            queues[path]["least"] < 0 or world.used[path] + asked > queues[path]["least"] for path in mine
        ):
            continue
        for other in state["jobs"]:
            theirs = [path for path in world.up(other["queue"]) if path not in list(world.up(job["queue"]))]
            if not theirs or is_firm(other) or not _all_run(other, at) or job["queue"] == other["queue"]:
                continue
            if not all(world.serves(at[other["name"], pod["name"]].node) for pod in other["pods"]):
                continue
            gives = sum(map(world.asks, other["pods"]), Fraction(0))
            if any(queues[path]["least"] < 0 or world.used[path] - gives < queues[path]["least"] for path in theirs):
                continue
            if isinstance(state["queues"], list) and any(map(partial(_weighs, state), theirs)):
                continue
            left = {key: where for key, where in at.items() if key[0] != other["name"]}
            if _World(state, left).fits(job, pods):
                yield f"{job['name']} waits ({code}) within its guarantee, and {other['name']} only borrows"
                break


def _weighs(state: State, path: str) -> bool:
    """Whether a queue may have a share beyond its quota."""
    return next(queue for queue in state["queues"] if queue["name"] == path)["weight"] != 0


def _all_run(job: State, at: Mapping[tuple[str, str], Any]) -> bool:
    return all((job["name"], pod["name"]) in at for pod in job["pods"])
