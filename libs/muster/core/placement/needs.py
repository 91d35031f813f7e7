"""The need of one pod on a node, and the classes of nodes.

Nodes are grouped: the nodes of a class agree in every field that static filters read; the nodes of a bucket also agree
in their free resources.

For jobs that wait for room: the total number of pods of each kind that fit on all nodes, kept current as nodes change.
Waiting jobs are sorted by the number of needed pods, so that jobs that may fit are found without a look at the others.
The total is an upper bound: held room on nodes, and rules between pods, only reduce the room.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from msgspec import Struct, field

from muster.core.placement.devices import DEVICE, pods_fitting, share_on, shares_gpu
from muster.core.placement.matching import UNSCHEDULABLE, suits_node, suits_volumes, tolerates, untolerated
from muster.model.places import ObstacleCode
from muster.model.placing import GPU, GPU_MEMORY, WHOLE, PodRules, Taint
from muster.model.resources import Vector

# --- classes ----------------------------------------------------------------------------------------------------------


PODS = "pods"


class Slot(Struct):
    """The free resources of one node: amounts in the order of the class's resources, and the shared devices."""

    group: str
    free: list[int]
    shared: dict[int, int] = field(default_factory=dict)
    """Device -> rest of the device, parts; whole devices are in ``free``."""

    @property
    def key(self) -> str:
        text = ",".join(map(str, self.free))
        return f"{text};{','.join(map(str, sorted(self.shared.values())))}" if self.shared else text


class Bucket(Struct):
    """Nodes of one class with the same free resources."""

    free: list[int]
    shared: list[int]
    names: list[str]
    """Sorted."""


class NodeClass(Struct):
    """Nodes that static filters cannot distinguish."""

    resources: list[str]
    labels: dict[str, str]
    """Only the labels used by rules of known pods."""
    taints: tuple[Taint, ...]
    schedulable: bool
    ready: bool
    buckets: dict[str, Bucket] = field(default_factory=dict)
    """Buckets by the free amounts of the nodes."""
    empty: dict[str, Bucket] = field(default_factory=dict)
    """Buckets by the amounts of the empty nodes."""


def enter(buckets: dict[str, Bucket], slot: Slot, name: str) -> None:
    """Add a node to the bucket of the node's free resources."""
    key = slot.key
    bucket = buckets.get(key)
    if bucket is None:
        buckets[key] = Bucket(list(slot.free), sorted(slot.shared.values()), [name])
    else:
        insort(bucket.names, name)


def leave(buckets: dict[str, Bucket], slot: Slot, name: str) -> None:
    """Remove a node from its bucket."""
    key = slot.key
    bucket = buckets[key]
    del bucket.names[bisect_left(bucket.names, name)]
    if not bucket.names:
        del buckets[key]


# --- needs ------------------------------------------------------------------------------------------------------------


class PodNeed(Struct, frozen=True):
    """The need of one pod, in the order of a class's resources."""

    parts: tuple[tuple[int, int], ...]
    gpu: int
    """Index of the whole GPU devices in the class's resources; -1 for a class without GPUs."""
    share: int
    """Parts of a device, where the pod shares; else 0."""
    devices: int = 1

    def fit(self, free: list[int], shared: list[int]) -> int:
        """Number of such pods that fit into the free resources; 0 or less when no pod fits."""
        fit = 1 << 40
        for index, amount in self.parts:
            most = free[index] // amount
            if most < fit:
                if most <= 0:
                    return 0
                fit = most
        if not self.share:
            return fit
        whole = free[self.gpu] // WHOLE if self.gpu >= 0 else 0
        if whole < 0:
            return 0  # The node offers fewer devices than are taken, and it is unknown which of them are left.
        return min(pods_fitting(shared, whole, self.share, self.devices), fit)


def need_of(request: Vector, rules: PodRules, group: NodeClass) -> tuple[PodNeed | None, list[str]]:
    """The need of a pod on nodes of a class, or the resources missing on all of these nodes."""
    places = {name: index for index, name in enumerate(group.resources)}
    parts, missing = [], []
    for name in sorted(request):
        amount = request[name]
        if amount > 0 and name in places:
            parts.append((places[name], amount))
        elif amount > 0:
            missing.append(name)
    share = share_on(rules, group.labels)
    if shares_gpu(rules) and GPU not in places:
        missing.append(GPU)
    elif share > DEVICE:
        missing.append(GPU_MEMORY)
    if PODS in places:
        keepers = rules.devices if share else 0  # A device that it opens is kept by a pod of its own.
        parts.append((places[PODS], 1000 * (1 + keepers)))
    if missing:
        return None, missing
    return PodNeed(tuple(parts), places.get(GPU, -1), share, rules.devices), []


def refused(rules: PodRules, group: NodeClass, pinned: bool) -> tuple[ObstacleCode, str] | None:
    """Why no node of a class will do, even an empty node: (code, detail), in the order of Kubernetes' checks."""
    if rules.unsupported is not None:
        return "unsupported", ""
    if not group.schedulable and not any(tolerates(toleration, UNSCHEDULABLE) for toleration in rules.tolerations):
        return "unschedulable", ""
    taint = untolerated([taint for taint in group.taints if taint.key != UNSCHEDULABLE.key], rules.tolerations)
    if taint is not None:
        return "taint", f"{taint.key}: {taint.value}"
    if not group.ready:
        return "not_ready", ""
    if not pinned and not suits_node(rules, group.labels, ""):
        return "node_affinity", ""
    if not pinned and not suits_volumes(rules, group.labels, ""):
        return "volume", ""
    return None


# --- sought -----------------------------------------------------------------------------------------------------------


class PodSought(Struct):
    """A kind of pod for which jobs wait to find room."""

    request: Vector
    rules: PodRules
    pinned: bool
    """Whether the rules of the pod suit only some nodes of a class."""
    room: int = 0
    """Upper bound of the pods of this kind with room on the nodes."""
    asks: list[tuple[int, str]] = field(default_factory=list)
    """(pods needed at once, line of waiting jobs), sorted"""
    needs: dict[str, PodNeed | None] = field(default_factory=dict)
    """class of nodes -> need of a pod; None where the class cannot run the pod"""

    def fit(self, key: str, group: NodeClass, free: list[int], shared: list[int]) -> int:
        """Number of such pods that fit on a node of a class with these free resources."""
        if key not in self.needs:
            closed = refused(self.rules, group, self.pinned) is not None
            self.needs[key] = None if closed else need_of(self.request, self.rules, group)[0]
        need = self.needs[key]
        return max(need.fit(free, shared), 0) if need is not None else 0

    def wanted(self, pods: int, line: str) -> None:
        insort(self.asks, (pods, line))

    def unwanted(self, pods: int, line: str) -> None:
        del self.asks[bisect_left(self.asks, (pods, line))]

    def within(self) -> list[str]:
        """The lines that may have room."""
        return [line for _, line in self.asks[: bisect_left(self.asks, (self.room + 1, ""))]]
