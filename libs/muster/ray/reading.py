"""A reading of a head, and the demand of the reading. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field, structs

from muster.model.raydemand import RayDemand, RayIdle, RayPlacementGroup, RayRoom, RayShape

SAME_IDLE_MS = 5_000
"""Two readings of one idle time differ by less: by the ways of the answers and by the clocks of two machines."""

Status = Literal["running", "idle", "draining"]


class RayNode(Struct, frozen=True):
    """A node of a Ray cluster that lives: a pod."""

    id: str
    """Hex; what `drain` takes."""
    pod: str
    group: str
    status: Status
    idle_ms: int = 0
    head: bool = False
    holds: tuple[str, ...] = ()
    """Ids of the placement groups that have resources set aside here."""
    activity: tuple[str, ...] = ()
    """Why it is not idle, in Ray's words."""
    free: dict[str, int] = field(default_factory=dict)
    """What tasks and actors may still ask for; empty where that was not read."""
    total: dict[str, int] = field(default_factory=dict)
    """The same when nothing runs there."""
    stores: bool = False
    """It holds objects that tasks have made or that were put there."""


class Ticks(Struct, frozen=True):
    """How far the autoscaler is. Equal values in two readings: it made no tick between them."""

    seen: int
    version: int


LEFT_MS = 60_000
"""How long a worker counts as left: longer than its pod needs to end."""


class Reading(Struct, frozen=True):
    """What a head says at one moment."""

    session: str
    version: Literal["", "v1", "v2"]
    pending: tuple[RayShape, ...]
    placement_groups: tuple[RayPlacementGroup, ...]
    explicit: tuple[RayShape, ...]
    nodes: tuple[RayNode, ...]
    """Sorted by id."""
    launching: dict[str, int]
    actors_on: frozenset[str] | None = None
    """Ids of the nodes with actors that live; None where that was not read."""
    ticks: Ticks | None = None
    """None where no autoscaler reports: the first version never does."""
    looks: int = 0
    """How often any client has asked the head for its state, this reading included; 0 where that is not known."""
    failed: tuple[tuple[str, str], ...] = ()
    """(worker group, reason) of launches that failed."""
    left_out: int = 0
    """Requests that are not in the lists because there are too many shapes."""

    def node_of(self, pod: str) -> RayNode | None:
        """The node that runs in a pod."""
        return next((node for node in self.nodes if node.pod == pod), None)


def demand_of(
    reading: Reading,
    read_at: int,
    before: RayDemand | None = None,
    taken: Mapping[str, dict[str, int]] | None = None,
    *,
    last: Reading | None = None,
    closely: bool = False,
) -> RayDemand:
    """The demand of a reading. Equal as long as nothing changes, at any time of reading.

    ``read_at``: ms since the epoch; ``before``: the demand known so far: an idle worker keeps the start of its
    idleness, and pods with actors stay known if this reading does not list the actors; ``taken``: {id of a node:
    resources taken a moment ago and still reported as waiting}; ``last``: the reading before, if any; ``closely``:
    some workers are to go, so the demand lists their load. ``infeasible`` stays empty: to the autoscaler, demand above
    maxReplicas is infeasible as well.
    """
    workers = [node for node in reading.nodes if not node.head]
    joined: dict[str, int] = {}
    for node in workers:
        if node.status != "draining":
            joined[node.group] = joined.get(node.group, 0) + 1
    known = {} if before is None else {idle.pod: idle.since for idle in before.idle}
    pinned = {node.pod for node in workers if node.holds}
    if reading.actors_on is not None:
        pinned |= {node.pod for node in workers if node.id in reading.actors_on}
    elif before is not None and before.session == reading.session:
        pinned |= {node.pod for node in workers if node.pod in before.pinned and node.status != "idle"}
    same_head = before is not None and before.session == reading.session
    return RayDemand(
        session=reading.session,
        version=reading.version or (before.version if before is not None and same_head else ""),
        pending=reading.pending,
        placement_groups=reading.placement_groups,
        explicit=reading.explicit,
        joined=dict(sorted(joined.items())),
        launching={group: count for group, count in sorted(reading.launching.items()) if count},
        idle=tuple(
            RayIdle(node.pod, node.group, _since(read_at - node.idle_ms, known.get(node.pod)))
            for node in sorted(workers, key=lambda node: node.pod)
            if node.status == "idle"
        ),
        room=_room(reading, taken or {}),
        left=_left(reading, read_at, before, last) if before is not None and same_head else (),
        pinned=tuple(sorted(pinned)),
        holding=tuple(sorted(node.pod for node in workers if node.stores)) if closely else (),
    )


def _room(reading: Reading, taken: Mapping[str, dict[str, int]]) -> tuple[RayRoom, ...]:
    """Nodes that are not idle, and where something that waits would fit."""
    waiting = [shape.resources for shape in reading.pending]
    waiting += [bundle.resources for group in reading.placement_groups for bundle in group.bundles]
    counts: dict[tuple[str, tuple[tuple[str, int], ...]], int] = {}
    for node in reading.nodes:
        if node.status == "draining" or (node.status == "idle" and not node.head):
            continue
        free = dict(node.free)
        for name, amount in taken.get(node.id, {}).items():
            free[name] = free.get(name, 0) + amount
        if any(all(free.get(name, 0) >= amount for name, amount in request.items()) for request in waiting):
            key = (node.group, tuple(sorted(free.items())))
            counts[key] = counts.get(key, 0) + 1
    return tuple(RayRoom(group, dict(free), count) for (group, free), count in sorted(counts.items()))


def _left(reading: Reading, read_at: int, before: RayDemand, last: Reading | None) -> tuple[RayIdle, ...]:
    """Idle workers that drain now, and missing workers that were idle or drained: a head that accepts to drain an idle
    worker no longer lists the worker, and a draining worker ends by itself after its work.
    """
    there = {node.pod for node in reading.nodes if node.status != "draining"}
    listed = {node.pod for node in reading.nodes}
    known = {idle.pod: RayIdle(idle.pod, idle.group, read_at) for idle in before.idle}
    for node in last.nodes if last is not None and last.session == reading.session else ():
        if node.status == "draining" and node.pod not in listed:
            known[node.pod] = RayIdle(node.pod, node.group, read_at)
    known |= {idle.pod: idle for idle in before.left}
    return tuple(idle for pod, idle in sorted(known.items()) if pod not in there and read_at < idle.since + LEFT_MS)


def in_trouble(error_trouble: str, before: RayDemand | None) -> RayDemand:
    """The demand that was known last, marked with the problem."""
    return structs.replace(before or RayDemand(), trouble=error_trouble)


def _since(now: int, before: int | None) -> int:
    return before if before is not None and abs(now - before) < SAME_IDLE_MS else now
