"""The book of waiting work: which jobs wait in which queue, in which order, and for which request.

Waiting work of one queue and one request forms a *shape*: quota answers all of it alike, so one denial parks the
whole shape on exactly what refused it (path, resource), and a shape is looked at again only when that much is free
there. Looking at what may be tried costs the number of awake shapes, never the number of waiting workloads.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import merge
from typing import NamedTuple

from msgspec import Struct, field

from muster.core.quota.demand import chain_of, counted
from muster.core.quota.ledger.ledger import UNBOUNDED, Ledger
from muster.events.base import Cause
from muster.model.demand import Demand, Shortfall


class Place(NamedTuple):
    """The place of a job in its queue; the smallest is the head."""

    below: int
    """Its priority, negated: a higher priority comes first."""
    rank: int
    """ms since the epoch: when it was queued, or what the order of the tree puts instead."""
    key: str
    """namespace/name"""
    uid: str

    @property
    def priority(self) -> int:
        return -self.below


class Denial(Struct, frozen=True):
    """What refused a shape, with the numbers of the time; parked until as much as it asked for is free there."""

    cause: Cause
    short: Shortfall

    @property
    def slot(self) -> str:
        """What its shape is parked on at the node that refused it."""
        return slot_of(self.short.resource, of_min=self.short.of_min)


def slot_of(resource: str, *, of_min: bool) -> str:
    return f"min {resource}" if of_min else resource


class Shape(Struct):
    """Waiting work of one queue that asks for the same."""

    queue: str
    demand: Demand
    waiting: list[Place] = field(default_factory=list)
    open: int = 0
    """Proposed and not answered yet."""
    denial: Denial | None = None
    woken: Cause | None = None
    """The release that made it worth trying again, while nothing newer is known."""


def shape_key(queue: str, demand: Demand) -> str:
    """``root/a|cpu=12000,memory=12000000000|3``, with ``|firm`` behind it for work that is not preemptible, and the run
    time (ms) that it declares.
    """
    request = demand.request
    asked = ",".join(f"{name}={request[name]}" for name in sorted(request))
    declared = f"|{demand.run_ms}" if demand.run_ms else ""
    return f"{queue}|{asked}|{demand.pods}{'' if demand.preemptible else '|firm'}{declared}"


class Book(Struct):
    """All shapes, and the index of the nodes they are parked on."""

    shapes: dict[str, Shape] = field(default_factory=dict)
    queues: dict[str, dict[str, None]] = field(default_factory=dict)
    """queue path -> keys of its shapes"""
    awake: dict[str, None] = field(default_factory=dict)
    """keys of the shapes that have waiting work and nothing known against trying it"""
    parked: dict[str, dict[str, list[tuple[int, str]]]] = field(default_factory=dict)
    """path -> slot -> sorted (asked, shape key) of every denied shape with waiting work"""
    waiting: int = 0

    def add(self, key: str, queue: str, demand: Demand, place: Place, ledger: Ledger) -> None:
        """One more workload of a shape waits."""
        shape = self.shapes.get(key)
        if shape is None:
            shape = self.shapes[key] = Shape(queue, demand)
            self.queues.setdefault(queue, {})[key] = None
        insort(shape.waiting, place)
        self.waiting += 1
        if len(shape.waiting) == 1:
            self._index(key, shape)
            self._judge(key, shape, ledger)

    def take(self, key: str, place: Place) -> None:
        """A waiting workload no longer waits (or is being proposed)."""
        shape = self.shapes[key]
        index = bisect_left(shape.waiting, place)
        if index == len(shape.waiting) or shape.waiting[index] != place:
            raise AssertionError(f"{place} is not in shape {key}")
        del shape.waiting[index]
        self.waiting -= 1
        if not shape.waiting:
            self._unindex(key, shape)
            self.awake.pop(key, None)
        self._drop_if_unused(key, shape)

    def opened(self, key: str) -> None:
        self.shapes[key].open += 1

    def closed(self, key: str) -> None:
        """A proposal of the shape was answered or withdrawn."""
        shape = self.shapes.get(key)
        if shape is not None:
            shape.open -= 1
            self._drop_if_unused(key, shape)

    def deny(self, key: str, denial: Denial | None, ledger: Ledger) -> None:
        """Park a shape on what refused it, or forget what did."""
        shape = self.shapes.get(key)
        if shape is None:
            return
        self._unindex(key, shape)
        shape.denial = denial
        if shape.waiting:
            self._index(key, shape)
            self._judge(key, shape, ledger)

    def moved(self, queue: str, demand: Demand, ledger: Ledger, cause: Cause) -> None:
        """``demand`` was charged or released at ``queue``: wake or park what it makes a difference to."""
        for path in chain_of(queue):
            by_slot = self.parked.get(path)
            if by_slot is None:
                continue
            for resource, by in counted(demand).items():
                for of_min in (False, True):
                    parked = by_slot.get(slot_of(resource, of_min=of_min))
                    room = ledger.room(queue, path, resource, of_min=of_min) if parked else None
                    if parked and ledger.lends:
                        self._sweep(parked, -1, UNBOUNDED, ledger, cause)
                    elif parked and room is not None:
                        self._sweep(parked, room - by, room + by, ledger, cause)

    def resized(self, ledger: Ledger, cause: Cause) -> None:
        """What some nodes may use by weight has changed: judge again what is parked there."""
        for path in ledger.shares.settle() if ledger.shares.resized else ():
            for parked in self.parked.get(path, {}).values():
                self._sweep(parked, -1, UNBOUNDED, ledger, cause)

    def _sweep(self, parked: list[tuple[int, str]], low: int, high: int, ledger: Ledger, cause: Cause) -> None:
        """Judge again the parked shapes whose ask is over ``low`` and at most ``high``."""
        for _, key in parked[bisect_left(parked, (low + 1, "")) : bisect_left(parked, (high + 1, ""))]:
            if key not in self.awake:
                self.shapes[key].woken = cause
            self._judge(key, self.shapes[key], ledger)

    def rejudge(self, ledger: Ledger) -> None:
        """The limits changed: judge every shape again."""
        for key, shape in self.shapes.items():
            if shape.waiting:
                self._judge(key, shape, ledger)

    def _judge(self, key: str, shape: Shape, ledger: Ledger) -> None:
        if clear(shape, ledger):
            self.awake[key] = None
        else:
            self.awake.pop(key, None)

    def _index(self, key: str, shape: Shape) -> None:
        if shape.denial is not None:
            by_slot = self.parked.setdefault(shape.denial.short.path, {})
            insort(by_slot.setdefault(shape.denial.slot, []), (shape.denial.short.asked, key))

    def _unindex(self, key: str, shape: Shape) -> None:
        denial = shape.denial
        parked = self.parked.get(denial.short.path, {}).get(denial.slot) if denial else None
        if denial is None or parked is None:
            return
        index = bisect_left(parked, (denial.short.asked, key))
        if index < len(parked) and parked[index] == (denial.short.asked, key):
            del parked[index]
            if not parked:
                del self.parked[denial.short.path][denial.slot]
                if not self.parked[denial.short.path]:
                    del self.parked[denial.short.path]

    def _drop_if_unused(self, key: str, shape: Shape) -> None:
        if not shape.waiting and shape.open <= 0:
            del self.shapes[key]
            siblings = self.queues[shape.queue]
            del siblings[key]
            if not siblings:
                del self.queues[shape.queue]

    def in_order(self, queue: str) -> Iterator[tuple[Place, str]]:
        """(place, shape key) of everything that waits in a queue, head first."""
        keys = self.queues.get(queue, ())
        return merge(*([(place, key) for place in self.shapes[key].waiting] for key in keys))

    def position(self, queue: str, place: Place) -> int:
        """The position of a waiting workload in its queue, from 1. O(shapes x log waiting)."""
        return 1 + sum(bisect_left(self.shapes[key].waiting, place) for key in self.queues.get(queue, ()))

    def length(self, queue: str) -> int:
        """How many workloads wait in a queue."""
        return sum(len(self.shapes[key].waiting) for key in self.queues.get(queue, ()))


def clear(shape: Shape, ledger: Ledger) -> bool:
    """Whether nothing known speaks against trying a shape: never denied, or what refused it has room now."""
    if shape.denial is None:
        return True
    short = shape.denial.short
    room = ledger.room(shape.queue, short.path, short.resource, of_min=short.of_min)
    return room is None or room >= short.asked
