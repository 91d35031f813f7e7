"""The report of a Ray head about its cluster: demand that waits for workers, and workers with nothing to do."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

RAY_UNIT = 10_000
"""Ray counts every resource in ten-thousandths: ``CPU: 0.5`` is 5,000, one byte of ``memory`` is 10,000."""

Strategy = Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]

RayTrouble = Literal["unreachable", "unauthorized", "unreadable", "stalled"]
"""What is wrong with a head or its autoscaler:

unreachable   its address does not answer
unauthorized  it wants a token that we do not have
unreadable    it answers with something that cannot be read
stalled       its autoscaler says nothing new for three ticks, while there is demand or an idle worker
"""
Trouble = Literal["", RayTrouble]
"""Of a demand: mostly none."""


class RayConstraint(Struct, frozen=True, gc=False, omit_defaults=True):
    """A node label with one of these values, or, ``excluded``, with none of them."""

    key: str
    values: tuple[str, ...] = ()
    excluded: bool = False


RaySelector = tuple[RayConstraint, ...]
"""All of them hold."""


class RayShape(Struct, frozen=True, gc=False, omit_defaults=True):
    """``count`` requests of one shape."""

    resources: dict[str, int] = field(default_factory=dict)
    """{Ray's name of a resource (``CPU``, ``GPU``, ``memory``, or a custom one): amount in ten-thousandths}"""
    count: int = 1
    selectors: tuple[RaySelector, ...] = ()
    """Which nodes it chooses by their labels: the first that any node suits, in this order; empty: any node."""


class RayPlacementGroup(Struct, frozen=True, gc=False, omit_defaults=True):
    """A waiting placement group: starts as a whole."""

    name: str = ""
    """Its id in hex, where Ray says it."""
    strategy: Strategy = "PACK"
    bundles: tuple[RayShape, ...] = ()


class RayIdle(Struct, frozen=True, gc=False, omit_defaults=True):
    """A worker with nothing to do."""

    pod: str
    """Name of its pod."""
    group: str
    """Name of its worker group."""
    since: int = 0
    """ms since the epoch. The reader keeps what it said first while the worker stays idle, so that nothing changes."""


class RayRoom(Struct, frozen=True, gc=False, omit_defaults=True):
    """So many busy nodes have this room left, enough for a waiting shape."""

    group: str
    free: dict[str, int]
    count: int = 1


class RayDemand(Struct, frozen=True, gc=False, omit_defaults=True):
    """The report of a head at one moment. Everything is sorted, so equal values are the same demand."""

    session: str = ""
    """Ray's name of its session: another one is another head."""
    version: Literal["", "v1", "v2"] = ""
    """Which autoscaler runs; empty where that is not known."""
    pending: tuple[RayShape, ...] = ()
    """Tasks and actors that wait, by shape; what can never be placed apart."""
    infeasible: tuple[RayShape, ...] = ()
    """Tasks and actors that no worker group could ever hold, as the autoscaler says."""
    placement_groups: tuple[RayPlacementGroup, ...] = ()
    explicit: tuple[RayShape, ...] = ()
    """The size that ``request_resources`` asks of the whole cluster; not in addition to the waiting tasks."""
    joined: dict[str, int] = field(default_factory=dict)
    """{worker group: workers (hosts) that have joined and are not draining}"""
    launching: dict[str, int] = field(default_factory=dict)
    """{worker group: workers that the autoscaler has asked for and that have not joined}; v2 only."""
    idle: tuple[RayIdle, ...] = ()
    room: tuple[RayRoom, ...] = ()
    """Nodes that are not idle, the head too, where something of this fits; what a worker that joined took a moment ago
    counts as free, since the head still says that it waits.
    """
    left: tuple[RayIdle, ...] = ()
    """Workers that had nothing to do and drain, or that drained and have left the cluster a moment ago; ``since`` when
    that was seen.
    """
    pinned: tuple[str, ...] = ()
    """Pods that hold actors or parts of placement groups, where the head says so: they are taken last."""
    holding: tuple[str, ...] = ()
    """Pods that hold objects of which they may have the only copy. Only while workers of it are to go: it would
    be news all the time.
    """
    tick_ms: int = 0
    """How long its autoscaler takes from tick to tick, in a few steps; 0: as long as usual, or that is not known."""
    trouble: Trouble = ""
    """Empty while all is well; then the rest is what was known last."""
