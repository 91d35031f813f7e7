"""What one pod needs of a node, and the nodes in classes of which that is asked.

Nodes in groups: a class has the fields that static filters see in common, a bucket of it the free resources too.

Pods for which jobs wait to have room: how many of each kind the nodes take together, kept as the nodes change.

What jobs wait for is known by the order of how many they need, so those that may fit are found without a look at the
others. It is a bound: what is kept of the nodes, and what pods say of each other, leaves less room and never more.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from msgspec import Struct, field

from muster.core.placement.devices import WHOLE, pods_fitting, share_on, shares_gpu
from muster.core.placement.matching import UNSCHEDULABLE, suits_node, suits_volumes, tolerates, untolerated
from muster.model.places import ObstacleCode
from muster.model.placing import GPU, GPU_MEMORY, PodRules, Taint
from muster.model.resources import Vector

# --- classes ----------------------------------------------------------------------------------------------------------


PODS = "pods"


class Slot(Struct):
    """What one node can still give: amounts in the order of its class's resources, and its shared devices."""

    group: str
    free: list[int]
    shared: dict[int, int] = field(default_factory=dict)
    """Device -> what is left of it, thousandths; whole devices are in ``free``."""

    @property
    def key(self) -> str:
        text = ",".join(map(str, self.free))
        return f"{text};{','.join(map(str, sorted(self.shared.values())))}" if self.shared else text


class Bucket(Struct):
    """Nodes of one class with the same left."""

    free: list[int]
    shared: list[int]
    names: list[str]
    """Sorted."""


class NodeClass(Struct):
    """Nodes that static filters cannot tell apart."""

    resources: list[str]
    labels: dict[str, str]
    """Only those that rules of known pods look at."""
    taints: tuple[Taint, ...]
    schedulable: bool
    ready: bool
    buckets: dict[str, Bucket] = field(default_factory=dict)
    """By the amounts that they have left,"""
    empty: dict[str, Bucket] = field(default_factory=dict)
    """and by those that they would have if they were empty."""


def enter(buckets: dict[str, Bucket], slot: Slot, name: str) -> None:
    """Put a node into the bucket of its free resources."""
    key = slot.key
    bucket = buckets.get(key)
    if bucket is None:
        buckets[key] = Bucket(list(slot.free), sorted(slot.shared.values()), [name])
    else:
        insort(bucket.names, name)


def leave(buckets: dict[str, Bucket], slot: Slot, name: str) -> None:
    """Take a node out of its bucket."""
    key = slot.key
    bucket = buckets[key]
    del bucket.names[bisect_left(bucket.names, name)]
    if not bucket.names:
        del buckets[key]


# --- needs ------------------------------------------------------------------------------------------------------------


class PodNeed(Struct, frozen=True):
    """What one pod takes, in the order of a class's resources."""

    parts: tuple[tuple[int, int], ...]
    gpu: int
    """Where the class keeps its whole GPU devices; -1 when it has none."""
    share: int
    """Thousandths of a device, where the pod shares; else 0."""
    devices: int = 1

    def fit(self, free: list[int], shared: list[int]) -> int:
        """How many such pods fit into the free resources; 0 or less when none does."""
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
    """What a pod takes of nodes of a class, or the resources such nodes do not have at all."""
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
    elif share > WHOLE:
        missing.append(GPU_MEMORY)
    if PODS in places:
        keepers = rules.devices if share else 0  # A device that it opens is kept by a pod of its own.
        parts.append((places[PODS], 1000 * (1 + keepers)))
    if missing:
        return None, missing
    return PodNeed(tuple(parts), places.get(GPU, -1), share, rules.devices), []


def refused(rules: PodRules, group: NodeClass, pinned: bool) -> tuple[ObstacleCode, str] | None:
    """Why no node of a class will do, whatever it has left: (code, detail), in the order Kubernetes asks."""
    if rules.unsupported is not None:
        return "unsupported", ""
    if not group.schedulable and not any(tolerates(each, UNSCHEDULABLE) for each in rules.tolerations):
        return "unschedulable", ""
    taint = untolerated([each for each in group.taints if each.key != UNSCHEDULABLE.key], rules.tolerations)
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
    """A kind of pod that jobs wait to place."""

    request: Vector
    rules: PodRules
    pinned: bool
    """Its rules tell nodes of one class apart."""
    room: int = 0
    """No more such pods have room on the nodes."""
    asks: list[tuple[int, str]] = field(default_factory=list)
    """sorted (how many are needed at once, for which line)"""
    needs: dict[str, PodNeed | None] = field(default_factory=dict)
    """class of nodes -> what a pod takes of one; None where it can be on none"""

    def fit(self, key: str, group: NodeClass, free: list[int], shared: list[int]) -> int:
        """How many such pods a node of a class takes that has so much left."""
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
