"""The subject of a simulation: a cluster, its queues, and the arriving jobs; and the units of all values.

Times are ms since the beginning of the trace, amounts base units (a GPU is 1000). Floats appear in the metrics only.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from msgspec import Struct, field

from muster.events.system import PlacementMode
from muster.model.resources import Vector, add_into, scaled

GPU = "nvidia.com/gpu"
CPU = "cpu"
MEMORY = "memory"
WHOLE = 1000
"""One GPU in base units."""


class TraceError(Exception):
    """A file is not what a simulation needs; the message names file, line and column."""


class NodeGroup(Struct, frozen=True):
    """Equal nodes. What ``capacity`` does not name is ample."""

    count: int
    capacity: Vector
    model: str = ""


class TraceQueue(Struct, frozen=True, kw_only=True):
    """One node of the quota tree; ``path`` is its full path below ``root``."""

    name: str
    path: str
    min: Vector = field(default_factory=dict)
    max: Vector = field(default_factory=dict)
    """A resource that is absent has no limit here."""
    weight: int | None = None
    priority: int = 0
    preempts: bool | None = None
    """Whether its work of lower priority is evicted for its own of higher; None: as its parent."""
    children: tuple[TraceQueue, ...] = ()

    def walk(self) -> Iterator[TraceQueue]:
        """The queue and everything below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()


class TraceJob(Struct, frozen=True, kw_only=True):
    """One job as it arrives. ``request`` is of the whole gang."""

    id: str
    queue: str
    """Full path of its leaf."""
    request: Vector
    submit: int
    duration: int | None
    """How long it runs undisturbed; None: it never ends by itself."""
    priority: int = 0
    members: int = 1
    preemptible: bool = True
    run_time: int = 0
    """How long it declares to run at most; 0: it does not say."""
    adopted: bool = False
    """It runs without an admission: what is first seen of it is that it is not suspended."""

    @property
    def gpus(self) -> int:
        """GPUs of the whole gang in base units."""
        return self.request.get(GPU, 0)


class TraceCluster(Struct, frozen=True, dict=True):
    """Nodes and quota. ``root`` holds the queues; its max is what the cluster has."""

    groups: tuple[NodeGroup, ...]
    root: TraceQueue
    rules: dict[str, str] = {}
    """How the quota tree is applied: its annotations ``muster.dev/...``, without the prefix."""
    placement: PlacementMode = "off"
    """How gangs find single nodes; ``off``: nodes count together, and quota alone decides."""
    ruleset: int = 1
    """By which rule set the stages decide."""
    policies: dict[str, str] = {}
    """Path of a leaf -> policy of its queue: ``Round``, ``Priority`` or ``Block``; absent: what is usual."""

    @cached_property
    def capacity(self) -> Vector:
        """What all nodes have together; a resource that any node does not name is ample, and absent."""
        return capacity_of(self.groups)

    @cached_property
    def leaves(self) -> dict[str, TraceQueue]:
        """Path -> queue where jobs may wait, in tree order."""
        return {queue.path: queue for queue in self.root.walk() if not queue.children and queue is not self.root}

    @cached_property
    def queues(self) -> dict[str, TraceQueue]:
        """Path -> every queue, the root included, parents first."""
        return {queue.path: queue for queue in self.root.walk()}

    @property
    def nodes(self) -> int:
        return sum(group.count for group in self.groups)


class Trace(Struct, frozen=True, dict=True):
    """A cluster and its jobs in the order of their arrival."""

    cluster: TraceCluster
    jobs: tuple[TraceJob, ...]

    @cached_property
    def by_id(self) -> dict[str, TraceJob]:
        return {job.id: job for job in self.jobs}


def capacity_of(groups: tuple[NodeGroup, ...]) -> Vector:
    """The sum of the nodes; absent for a resource that any node has in plenty."""
    named = {name for group in groups for name in group.capacity}
    everywhere = sorted(name for name in named if all(name in group.capacity for group in groups if group.count))
    total: Vector = {}
    for group in groups:
        add_into(
            total, scaled({name: group.capacity[name] for name in everywhere if name in group.capacity}, group.count)
        )
    return {name: total.get(name, 0) for name in everywhere}
