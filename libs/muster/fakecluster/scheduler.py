"""A simple default scheduler for the simulated cluster: highest priority first, then age; first node that fits.

Fits means requests, node selector and cordon; no taints, no affinity, no preemption, no gangs. Pods of other
schedulers (ours) are only counted. A pass costs the placed pods and the shapes without a place, not all waiting pods.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter
from typing import ClassVar

from muster.fakecluster.apiserver.pods import condition, with_condition
from muster.fakecluster.apiserver.status import Obj
from muster.fakecluster.apiserver.store import ChangeType
from muster.fakecluster.controllers import WorkQueue
from muster.fakecluster.operations import ApiOperation, BindPod, Merge, OperationPlan
from muster.fakecluster.podneeds import OVER, amounts, is_going, phase, pod_request
from muster.model.api import NODES, PODS, ApiResource
from muster.model.resources import Vector

NAME = "default-scheduler"
ALL = "all"
"""The one key of its queue."""
ASSUMED_MS = 5_000
"""How long a binding may take to be observed before the pod is placed again."""

Shape = tuple[tuple[tuple[str, int], ...], tuple[tuple[str, str], ...]]
"""(request, node selector): pods of one shape fit or do not fit alike."""


class _NodeRoom:
    """A node and what is left of it."""

    def __init__(self, obj: Obj) -> None:
        self.free: Vector = {}
        self.update(obj)

    def update(self, obj: Obj) -> None:
        self.name = str(obj["metadata"]["name"])
        self.labels: dict[str, str] = obj["metadata"].get("labels") or {}
        self.usable = not obj["spec"].get("unschedulable") if "spec" in obj else True
        status = obj.get("status") or {}
        self.allocatable = amounts(status.get("allocatable") or status.get("capacity") or {})

    def fits(self, shape: Shape) -> bool:
        if not self.usable:
            return False
        request, selector = shape
        free = self.free
        return all(free.get(name, 0) >= amount for name, amount in request) and all(
            self.labels.get(key) == value for key, value in selector
        )

    def refusals(self, shape: Shape) -> list[str]:
        """Why a pod does not fit, in the words of kube-scheduler."""
        request, selector = shape
        if not self.usable:
            return ["node(s) were unschedulable"]
        if any(self.labels.get(key) != value for key, value in selector):
            return ["node(s) didn't match Pod's node affinity/selector"]
        return [f"Insufficient {name}" for name, amount in request if self.free.get(name, 0) < amount]


class DefaultScheduler:
    """Binds pods that name this scheduler, or none; ``names``: the names of this scheduler."""

    watches: ClassVar[tuple[ApiResource, ...]] = (NODES, PODS)

    def __init__(self, *names: str) -> None:
        self._names = (NAME, *names)
        self.queue = WorkQueue()
        self._nodes: dict[str, _NodeRoom] = {}
        self._order: list[str] = []
        """Names of the nodes, sorted: the order in which they are tried."""
        self._placed: dict[str, tuple[str, Vector]] = {}
        """uid of a pod -> (node, what it holds there)."""
        self._waiting: dict[str, Obj] = {}
        """uid -> pod that waits for a node."""
        self._lines: dict[Shape, list[tuple[int, int, str]]] = {}
        """shape -> heap of (minus priority, number, uid); may hold pods that wait no more."""
        self._full: set[Shape] = set()
        """Shapes that fit nowhere until something is freed."""
        self._first: dict[Shape, int] = {}
        """shape -> place in the order before which no node fits it."""
        self._untold: dict[Shape, list[str]] = {}
        """shape -> uids of pods that would have to be marked unschedulable now."""
        self._assumed: dict[str, int] = {}
        """uid -> until when its binding is believed in without having been heard of."""
        self._number = 0

    def heard(self, kind: ChangeType, resource: ApiResource, obj: Obj) -> None:
        """Note nodes and pods."""
        if resource == NODES:
            self._heard_node(kind, obj)
        else:
            self._heard_pod(kind, obj)

    def plan(self, key: str, now: int) -> OperationPlan:
        """Place whatever can be placed, best first; tell the others once that they cannot."""
        for uid in [uid for uid, until in self._assumed.items() if until <= now]:
            del self._assumed[uid]
            self._release(uid)
            if uid in self._waiting:
                self._enqueue(self._waiting[uid])
        operations: list[ApiOperation] = []
        heads = [(*line[0], shape) for shape, line in self._lines.items() if shape not in self._full]
        heapq.heapify(heads)
        while heads:
            _, _, uid, shape = heapq.heappop(heads)
            pod = self._waiting.get(uid)
            if pod is not None and uid not in self._placed:
                node = self._find(shape)
                if node is None:
                    self._full.add(shape)
                    continue
                self._hold(uid, node, dict(shape[0]))
                self._assumed[uid] = now + ASSUMED_MS
                meta = pod["metadata"]
                operations.append(BindPod(meta["namespace"], meta["name"], uid, node))
            line = self._lines[shape]
            heapq.heappop(line)
            if line:
                heapq.heappush(heads, (*line[0], shape))
            else:
                del self._lines[shape]
        for shape in [shape for shape in self._untold if shape in self._full]:
            operations.extend(self._tell(shape, now))
        return OperationPlan(tuple(operations), ASSUMED_MS if self._assumed else None)

    def _find(self, shape: Shape) -> str | None:
        start = self._first.get(shape, 0)
        for place in range(start, len(self._order)):
            name = self._order[place]
            if self._nodes[name].fits(shape):
                self._first[shape] = place
                return name
        self._first[shape] = len(self._order)
        return None

    def _tell(self, shape: Shape, now: int) -> list[ApiOperation]:
        """Mark the pods of a shape as unschedulable, as autoscalers expect."""
        why = Counter(text for node in self._nodes.values() for text in node.refusals(shape))
        told = ", ".join(f"{count} {text}" for text, count in sorted(why.items()))
        message = f"0/{len(self._order)} nodes are available{': ' if told else ''}{told}."
        entry = condition("PodScheduled", "False", now, "Unschedulable", message)
        operations: list[ApiOperation] = []
        for uid in self._untold.pop(shape):
            pod = self._waiting.get(uid)
            if pod is None or uid in self._placed:
                continue
            conditions = with_condition(pod.get("status") or {}, entry)["conditions"]
            meta, patch = pod["metadata"], {"status": {"conditions": conditions}}
            operations.append(Merge(PODS, meta["namespace"], meta["name"], patch, "status"))
        return operations

    def _heard_node(self, kind: ChangeType, obj: Obj) -> None:
        name = obj["metadata"]["name"]
        if kind == "DELETED":
            self._nodes.pop(name, None)
        elif name in self._nodes:
            node, before = self._nodes[name], self._nodes[name].allocatable
            node.update(obj)
            for resource in before.keys() | node.allocatable.keys():
                change = node.allocatable.get(resource, 0) - before.get(resource, 0)
                node.free[resource] = node.free.get(resource, 0) + change
        else:
            node = self._nodes[name] = _NodeRoom(obj)
            node.free = dict(node.allocatable)
            for holder, request in self._placed.values():
                if holder == name:
                    add(node.free, request, -1)
        self._order = sorted(self._nodes)
        self._first.clear()
        self._full.clear()
        self.queue.mark(ALL)

    def _heard_pod(self, kind: ChangeType, pod: Obj) -> None:
        uid = pod["metadata"]["uid"]
        node = pod["spec"].get("nodeName", "")
        if kind == "DELETED" or phase(pod) in OVER:
            self._release(uid)
            self._waiting.pop(uid, None)
            self._assumed.pop(uid, None)
        elif node:
            self._waiting.pop(uid, None)
            self._assumed.pop(uid, None)
            if self._placed.get(uid, ("",))[0] != node:
                self._release(uid)
                self._hold(uid, node, holds(pod))
        elif (
            is_going(pod)
            or pod["spec"].get("schedulingGates")
            or pod["spec"].get("schedulerName", NAME) not in self._names
        ):
            self._waiting.pop(uid, None)
        else:
            new = uid not in self._waiting
            self._waiting[uid] = pod
            if new and uid not in self._placed:
                self._enqueue(pod)

    def _enqueue(self, pod: Obj) -> None:
        spec, shape = pod["spec"], shape_of(pod)
        self._number += 1
        uid = str(pod["metadata"]["uid"])
        heapq.heappush(self._lines.setdefault(shape, []), (-int(spec.get("priority") or 0), self._number, uid))
        self._untold.setdefault(shape, []).append(uid)
        self.queue.mark(ALL)

    def _hold(self, uid: str, node: str, request: Vector) -> None:
        self._placed[uid] = (node, request)
        if node in self._nodes:
            add(self._nodes[node].free, request, -1)

    def _release(self, uid: str) -> None:
        """Release the resources of a pod, and try the pods again that did not fit."""
        held = self._placed.pop(uid, None)
        if held is None or held[0] not in self._nodes:
            return
        node, request = held
        add(self._nodes[node].free, request, 1)
        place = bisect_left(self._order, node)
        for shape, first in self._first.items():
            if first > place:
                self._first[shape] = place
        if self._full or self._lines:
            self._full.clear()
            self.queue.mark(ALL)


def shape_of(pod: Obj) -> Shape:
    """What a pod asks of a node."""
    request = tuple(sorted(holds(pod).items()))
    return request, tuple(sorted((pod["spec"].get("nodeSelector") or {}).items()))


def holds(pod: Obj) -> Vector:
    """The resources of a node taken by a pod; a place for a pod is one of these."""
    return {**pod_request(pod), "pods": 1000}


def add(total: Vector, request: Vector, times: int) -> None:
    """Unlike a vector's own addition this keeps zeros and goes below them: nodes can be overbooked by others."""
    for name, amount in request.items():
        total[name] = total.get(name, 0) + amount * times
