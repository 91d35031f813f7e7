"""What one pod needs of a node, and why no node of a class will do."""

from __future__ import annotations

from msgspec import Struct

from muster.core.placement.classes import PODS, NodeClass
from muster.core.placement.gpus import WHOLE, pods_fitting, share_on, shares_gpu
from muster.core.placement.matching import UNSCHEDULABLE, suits_node, suits_volumes, tolerates, untolerated
from muster.model.places import ObstacleCode
from muster.model.placing import GPU, GPU_MEMORY, PodRules
from muster.model.resources import Vector


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
