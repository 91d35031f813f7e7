"""The mix: the kinds of GPU pods requested so far, with their counts, and the part of a node useless to these kinds.

The waste of a placement is measured against this mix. Free GPUs that most requests cannot use (no CPU beside the GPUs,
or only slivers of devices) are wasted, in thousandths of a device times requests. GPUs beyond the number that the
remaining CPU serves, at the mean of the mix, are wasted too: a node with room for a single pod may be short of CPU long
before.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from msgspec import Struct, field

from muster.core.placement.matching import suits_node, untolerated
from muster.model.placing import ANYWHERE, GPU, PodRules, Taint
from muster.model.resources import Vector

MAX_KINDS = 512
"""Kinds counted at most; the rarest are dropped."""
MAX_USED = 64
"""Kinds a placement is measured against: the most frequent."""
REFRESH_EVERY = 64
WHOLE = 1000


class GpuShape(Struct):
    """One kind of GPU pod, with the number of its requests."""

    cpu: int
    memory: int
    devices: int
    share: int
    rules: PodRules = ANYWHERE
    times: int = 0


class Mix(Struct):
    """Kinds by an identifying text, and the most frequent kinds at the last refresh."""

    kinds: dict[str, GpuShape] = field(default_factory=dict)
    asked: int = 0
    refresh_at: int = 1
    used: list[str] = field(default_factory=list)

    def learn(self, request: Vector, rules: PodRules, count: int) -> None:
        """Pods of this kind are asked for."""
        devices = request.get(GPU, 0) // WHOLE
        if not devices and not rules.share:
            return
        where = PodRules(node_labels=rules.node_labels, nodes=rules.nodes, tolerations=rules.tolerations)
        kind = GpuShape(request.get("cpu", 0), request.get("memory", 0), devices, rules.share, where)
        text = f"{kind.cpu},{kind.memory},{devices},{rules.share}"
        key = f"{text},{where!r}" if where != ANYWHERE else text
        if key not in self.kinds and len(self.kinds) >= MAX_KINDS:
            del self.kinds[min(self.kinds, key=lambda key: (self.kinds[key].times, key))]
        self.kinds.setdefault(key, kind).times += count
        self.asked += count
        if self.asked >= self.refresh_at:
            self.refresh_at = self.asked + max(REFRESH_EVERY, self.asked // 4) if self.asked >= 8 else self.asked + 1
            self.used = sorted(self.kinds, key=lambda key: (-self.kinds[key].times, key))[:MAX_USED]

    def for_nodes(self, labels: dict[str, str], taints: tuple[Taint, ...]) -> str:
        """The mix for one class of nodes, as a text for ``waste``; empty when no kind is known."""
        parts, odd = [], 0
        for key in self.used:
            kind = self.kinds.get(key)
            if kind is None:
                continue
            if suits_node(kind.rules, labels, "") and untolerated(taints, kind.rules.tolerations) is None:
                parts.append(f"{kind.cpu},{kind.memory},{kind.devices},{kind.share},{kind.times}")
            else:
                odd += kind.times
        return f"{odd};" + ";".join(parts) if parts else ""


class _Parsed(NamedTuple):
    """A mix, parsed for the measure of waste."""

    odd: int
    """Requests of kinds that cannot run on this class of nodes."""
    asked: int
    """Requests of all kinds."""
    cpus: int
    """(CPU in thousandths of a core, GPUs in thousandths of a device) of all kinds that can run here."""
    gpus: int
    shapes: list[tuple[int, int, int, list[int], list[int], list[int], list[int]]]
    """The kinds that can run here, by devices and share."""


@lru_cache(maxsize=256)
def _parsed(mix: str) -> _Parsed:
    odd, *parts = mix.split(";")
    shapes: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    asked, cpus, gpus = int(odd), 0, 0
    for part in parts:
        cpu, memory, devices, share, times = map(int, part.split(","))
        shapes.setdefault((devices, share), []).append((cpu, memory, times))
        asked += times
        cpus += cpu * times
        gpus += (devices * WHOLE + share) * times
    rows = []
    for (devices, share), kinds in sorted(shapes.items()):
        by_cpu, by_memory = sorted(kinds), sorted(kinds, key=lambda row: row[1])
        rows.append(
            (
                devices,
                share,
                sum(times for _, _, times in kinds),
                [cpu for cpu, _, _ in by_cpu],
                [0, *accumulate(times for _, _, times in by_cpu)],
                [memory for _, memory, _ in by_memory],
                [0, *accumulate(times for _, _, times in by_memory)],
            )
        )
    return _Parsed(int(odd), asked, cpus, gpus, rows)


@lru_cache(maxsize=1 << 16)
def waste(cpu: int, memory: int, whole: int, shared: tuple[int, ...], mix: str) -> int:
    """How many of the free GPUs of a node the mix cannot use. ``whole``: free whole devices."""
    odd, asked, cpu_asked, gpu_asked, shapes = _parsed(mix)
    slivers = sum(shared)
    left = whole * WHOLE + slivers
    total = odd * left
    if cpu_asked:
        total += asked * max(0, left - cpu * gpu_asked // cpu_asked)
    top = shared[-1] if shared else 0
    for devices, share, times, cpus, by_cpu, memories, by_memory in shapes:
        if (not whole and top < share) if share else whole < devices:
            total += times * left
            continue
        fits = min(by_cpu[bisect_right(cpus, cpu)], by_memory[bisect_right(memories, memory)])
        small = slivers
        if share:
            small = sum([rest for rest in shared if rest < share]) if shared else 0
        total += fits * small + (times - fits) * left
    return total
