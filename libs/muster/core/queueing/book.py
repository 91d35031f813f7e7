"""The book of waiting work: the waiting jobs of each queue, their order, and their requests.

Waiting jobs of a queue with the same request of quota and nodes form a *shape*. All jobs of a shape have the same
answer, so a single denial parks the whole shape on its shortfall (path, resource). A shape is looked at again only when
the amount asked for is free there. The awake shapes follow from the order of the asks: no note is made on a shape when
room comes or goes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from muster.core.quota.demand import Scratch, chain_of
from muster.core.quota.ledger.quotaledger import UNBOUNDED, Ledger
from muster.events.base import Cause
from muster.model.demand import Demand, Shortfall
from muster.model.quota import COUNTED, flavors_text
from muster.model.resources import Vector, add_into, total_of


class Place(NamedTuple):
    """The place of a job in its queue; the smallest is the head."""

    below: int
    """The negated priority: a higher priority comes first."""
    rank: int
    """The time of queueing, ms since the epoch, or a later time by the order of the tree."""
    key: str
    """namespace/name"""
    uid: str

    @property
    def priority(self) -> int:
        return -self.below


class Denial(Struct, frozen=True):
    """The shortfall of a shape at the time of the denial; the shape is parked until the amount
    asked for is free there.
    """

    cause: Cause
    short: Shortfall

    @property
    def slot(self) -> str:
        """The slot of the shape at the node of the shortfall."""
        return slot_of(self.short.resource, of_min=self.short.of_min)


def slot_of(resource: str, *, of_min: bool) -> str:
    return f"min {resource}" if of_min else resource


class Shape(Struct):
    """Waiting jobs of a queue with the same request."""

    queue: str
    demand: Demand
    waiting: list[Place] = field(default_factory=list)
    open: int = 0
    """Proposed and not answered yet."""
    denial: Denial | None = None


def shape_key(queue: str, demand: Demand) -> str:
    """``root/a|cpu=12000,memory=12000000000|3|9e722a1639c36eb9``, followed by ``|firm`` for work that is not
    preemptible, by the declared run time (ms), and by the flavors of the pod sets.
    """
    request = demand.request
    asked = ",".join([f"{name}={request[name]}" for name in sorted(request)])
    declared = f"|{demand.run_ms}" if demand.run_ms else ""
    flavors = f"|{flavors_text(demand.flavors)}" if demand.flavors else ""
    return f"{queue}|{asked}|{demand.pods}|{demand.basis}{'' if demand.preemptible else '|firm'}{declared}{flavors}"


class RefusalSlot(Struct):
    """The waiting shapes refused by the same resource at the same node."""

    resource: str
    of_min: bool
    asks: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    """queue -> sorted (asked, shape key)"""
    least: list[tuple[int, str]] = field(default_factory=list)
    """sorted (the smallest ask of a queue, the queue)"""
    steps: list[tuple[int, Cause | None]] = field(default_factory=list)
    """Sorted (amount, change that made room for asks above the last step and up to this amount); the last amount is
    free now.
    """

    def park(self, queue: str, ask: tuple[int, str]) -> None:
        asks = self.asks.setdefault(queue, [])
        first = asks[0][0] if asks else None
        insort(asks, ask)
        self._sort(queue, first, asks)

    def unpark(self, queue: str, ask: tuple[int, str]) -> None:
        asks = self.asks[queue]
        first = asks[0][0]
        del asks[bisect_left(asks, ask)]
        self._sort(queue, first, asks)

    def _sort(self, queue: str, before: int | None, asks: list[tuple[int, str]]) -> None:
        if before is not None:
            del self.least[bisect_left(self.least, (before, queue))]
        if asks:
            insort(self.least, (asks[0][0], queue))
        else:
            del self.asks[queue]

    def resized(self, room: int, cause: Cause | None) -> None:
        """So much is free from here on."""
        while self.steps and self.steps[-1][0] > room:
            cause = self.steps.pop()[1]
        if not self.steps or self.steps[-1][0] < room:
            self.steps.append((room, cause))

    def first(self, room: int) -> list[tuple[int, str]]:
        """(smallest ask of a queue, queue), of asks up to ``room``."""
        return self.least[: bisect_left(self.least, (room + 1, ""))]

    def within(self, queue: str, room: int) -> list[str]:
        """Keys of the shapes of a queue with asks up to ``room``."""
        asks = self.asks.get(queue, [])
        return [key for _, key in asks[: bisect_left(asks, (room + 1, ""))]]

    def since(self, asked: int) -> Cause | None:
        """The change that made room for ``asked``; None where unknown."""
        index = bisect_left(self.steps, (asked,))
        return self.steps[index][1] if index < len(self.steps) else None


class Book(Struct):
    """All shapes, and the index of the nodes with parked shapes."""

    shapes: dict[str, Shape] = field(default_factory=dict)
    queues: dict[str, dict[str, None]] = field(default_factory=dict)
    """queue path -> keys of its shapes"""
    lines: dict[str, list[tuple[Place, str]]] = field(default_factory=dict)
    """queue path -> (place, shape key) of its waiting jobs, head first"""
    untried: dict[str, None] = field(default_factory=dict)
    """keys of shapes with waiting jobs and without a denial"""
    parked: dict[str, dict[str, RefusalSlot]] = field(default_factory=dict)
    """path -> slot -> the parked shapes with waiting jobs"""
    roomy: dict[str, None] = field(default_factory=dict)
    """paths with possible room for a parked shape"""
    stirred: dict[str, None] = field(default_factory=dict)
    """queues with a changed line, use or rules, until the stage that keeps the book has looked at these"""
    answered: bool = False
    """A proposal was answered or withdrawn since the stage that keeps the book has looked for other flavors."""
    waiting: int = 0

    def add(self, key: str, queue: str, demand: Demand, place: Place, ledger: Ledger) -> None:
        """A further job of a shape waits."""
        shape = self.shapes.get(key)
        if shape is None:
            shape = self.shapes[key] = Shape(queue, demand)
            self.queues.setdefault(queue, {})[key] = None
        self.stirred[queue] = None
        insort(shape.waiting, place)
        insort(self.lines.setdefault(queue, []), (place, key))
        self.waiting += 1
        if len(shape.waiting) == 1:
            self._index(key, shape, ledger)

    def take(self, key: str, place: Place, ledger: Ledger) -> None:
        """A waiting job no longer waits, or is proposed."""
        shape = self.shapes[key]
        index = bisect_left(shape.waiting, place)
        if index == len(shape.waiting) or shape.waiting[index] != place:
            raise AssertionError(f"{place} is not in shape {key}")
        del shape.waiting[index]
        self.stirred[shape.queue] = None
        line = self.lines[shape.queue]
        del line[bisect_left(line, (place, key))]
        if not line:
            del self.lines[shape.queue]
        self.waiting -= 1
        if not shape.waiting:
            self._unindex(key, shape, ledger)
        self._drop_if_unused(key, shape)

    def opened(self, key: str) -> None:
        self.shapes[key].open += 1

    def closed(self, key: str) -> None:
        """A proposal of the shape was answered or withdrawn."""
        self.answered = True
        shape = self.shapes.get(key)
        if shape is not None:
            shape.open -= 1
            self._drop_if_unused(key, shape)

    def deny(self, key: str, denial: Denial | None, ledger: Ledger) -> None:
        """Park a shape on the shortfall of a denial; None: the shape is untried."""
        shape = self.shapes[key]
        self.stirred[shape.queue] = None
        self._unindex(key, shape, ledger)
        shape.denial = denial
        self._index(key, shape, ledger)

    def moved(self, queue: str, ledger: Ledger, cause: Cause) -> None:
        """The use of a queue has changed, and with it the room for the shapes parked on its path."""
        self.used(queue)
        for path in chain_of(queue):
            self._resized(path, ledger, cause)

    def used(self, queue: str) -> None:
        """Note a change of the used or proposed amounts of a queue and of the nodes above. A node above may have jobs
        of its own, from its time as a leaf.
        """
        self.stirred.update(dict.fromkeys(chain_of(queue)))

    def resized(self, ledger: Ledger, cause: Cause) -> None:
        """The amounts that some nodes may use by weight have changed."""
        for path in ledger.shares.settle() if ledger.shares.resized else ():
            self._resized(path, ledger, cause)

    def rejudge(self, ledger: Ledger) -> None:
        """The limits have changed: shapes with room at their slot now are untried again."""
        self.stirred.update(dict.fromkeys(self.lines))
        for path in self.parked:
            self._resized(path, ledger, None)
        for key in [*self.awake(ledger)]:
            self.deny(key, None, ledger)

    def _resized(self, path: str, ledger: Ledger, cause: Cause | None) -> None:
        self.roomy.pop(path, None)
        for slot in self.parked.get(path, _NO_SLOTS).values():
            room = room_at(ledger, path, path, slot)
            slot.resized(UNBOUNDED if ledger.lends and cause else room, cause)
            if slot.least[0][0] <= room:
                self.roomy[path] = None

    def _index(self, key: str, shape: Shape, ledger: Ledger) -> None:
        if shape.denial is None:
            self.untried[key] = None
            return
        short = shape.denial.short
        by_slot = self.parked.setdefault(short.path, {})
        if shape.denial.slot not in by_slot:
            by_slot[shape.denial.slot] = RefusalSlot(short.resource, short.of_min)
        by_slot[shape.denial.slot].park(shape.queue, (short.asked, key))
        self._resized(short.path, ledger, None)

    def _unindex(self, key: str, shape: Shape, ledger: Ledger) -> None:
        if shape.denial is None:
            self.untried.pop(key, None)
            return
        short = shape.denial.short
        by_slot = self.parked[short.path]
        slot = by_slot[shape.denial.slot]
        slot.unpark(shape.queue, (short.asked, key))
        if not slot.asks:
            del by_slot[shape.denial.slot]
        if not by_slot:
            del self.parked[short.path]
        self._resized(short.path, ledger, None)

    def _drop_if_unused(self, key: str, shape: Shape) -> None:
        if not shape.waiting and shape.open <= 0:
            del self.shapes[key]
            siblings = self.queues[shape.queue]
            del siblings[key]
            if not siblings:
                del self.queues[shape.queue]

    def with_room(self, ledger: Ledger, *, by_shares: bool = False) -> Iterator[tuple[str, RefusalSlot, int, str]]:
        """(path, slot, smallest ask of a queue, queue) with possible room for the ask. ``by_shares``: only in trees of
        fair shares.
        """
        for path in self.roomy:
            if by_shares and not ledger.by_shares(path):
                continue
            for slot in self.parked[path].values():
                for asked, queue in slot.first(room_at(ledger, path, path, slot)):
                    yield path, slot, asked, queue

    def awake(self, ledger: Ledger) -> Iterator[str]:
        """Keys of the refused shapes with room at their slot now."""
        for path, slot, _, queue in self.with_room(ledger):
            yield from slot.within(queue, room_at(ledger, queue, path, slot))

    def since(self, shape: Shape) -> Cause | None:
        """The change that woke a refused shape; None where unknown."""
        if shape.denial is None:
            return None
        slot = self.parked.get(shape.denial.short.path, _NO_SLOTS).get(shape.denial.slot)
        return slot.since(shape.denial.short.asked) if slot is not None else None

    def in_order(self, queue: str) -> Iterator[tuple[Place, str]]:
        """(place, shape key) of the waiting jobs of a queue, head first."""
        return iter(self.lines.get(queue, ()))

    def head(self, queue: str) -> Place | None:
        """The first of a queue."""
        line = self.lines.get(queue)
        return line[0][0] if line else None

    def ahead(self, queue: str, count: int) -> tuple[str, ...]:
        """namespace/name of the first ``count`` jobs of a queue, the head first."""
        return tuple(place.key for place, _ in self.lines.get(queue, [])[:count])

    def first_rank(self, queue: str) -> int:
        """The smallest rank of the waiting jobs of a queue."""
        line, index, least = self.lines.get(queue, []), 0, UNBOUNDED
        while index < len(line):  # By rank within each priority.
            place = line[index][0]
            least = min(least, place.rank)
            index = bisect_left(line, ((place.below + 1,),))
        return least

    def least_asked(self, queue: str) -> Vector:
        """A lower bound for the requests of a queue's waiting jobs; empty where only a look at the jobs would give a
        bound.
        """
        parked, least = 0, Vector()
        for path in chain_of(queue):
            for slot in self.parked.get(path, _NO_SLOTS).values():
                asks = slot.asks.get(queue)
                if asks:
                    parked += len(asks)
                    least[slot.resource] = min(asks[0][0], least.get(slot.resource, asks[0][0]))
        return least if len(least) == 1 and parked == len(self.queues.get(queue, ())) else {}

    def position(self, queue: str, place: Place) -> int:
        """The position of a waiting workload in its queue, from 1."""
        return 1 + bisect_left(self.lines.get(queue, []), (place, ""))

    def length(self, queue: str) -> int:
        """How many workloads wait in a queue."""
        return len(self.lines.get(queue, ()))


_NO_SLOTS: Mapping[str, RefusalSlot] = {}
_NOTHING: Mapping[str, int] = {}


def room_at(ledger: Ledger, queue: str, path: str, slot: RefusalSlot | Shortfall) -> int:
    """The most a shape of a queue may ask for at the slot of its denial, claims apart."""
    room = ledger.room(queue, path, slot.resource, of_min=slot.of_min)
    return UNBOUNDED if room is None else room


class Rooms:
    """A glance at the room beside other demands, at a moment: where an ask has no room, no larger ask fits."""

    def __init__(self, ledger: Ledger, proposed: Scratch, now: int) -> None:
        self.ledger, self._proposed, self._now = ledger, proposed, now
        self._own = False
        self._look()

    def _look(self) -> None:
        self.claimants = self.ledger.claims.of
        self._aged: dict[str, Vector] = {}
        for claim in self.ledger.claims.for_age():
            for path in claim.paths() if not claim.promised_now(self._now) else ():
                add_into(self._aged.setdefault(path, {}), claim.held_at(path))

    def never_fits(self, queue: str, demand: Demand) -> bool:
        """Whether a job is tried for its refusal alone, and takes no room."""
        short = self.ledger.shortfall(queue, demand, now=self._now)
        return short is not None and short.hopeless

    def admits(self, uid: str, queue: str, demand: Demand) -> None:
        """Count a job about to be admitted once: the claim that the job is served by ends here, and nowhere else."""
        claim = self.ledger.claims.served_by(uid, queue, demand)
        if claim is None:
            return
        if not self._own:
            self.ledger, self._own = replace(self.ledger, claims=self.ledger.claims.copied()), True
        self.ledger.claims.end(claim.uid)
        self._look()

    def takes(self, queue: str, path: str, slot: RefusalSlot | Shortfall, asked: int, *scratches: Scratch) -> bool:
        """Whether a queue may have room for ``asked`` at the slot of an earlier denial, beside the scratches."""
        room = self._left(queue, path, slot, *scratches)
        return asked <= room and asked <= room - self._held(queue, path, slot, asked)

    def _left(self, queue: str, path: str, slot: RefusalSlot | Shortfall, *scratches: Scratch) -> int:
        room = room_at(self.ledger, queue, path, slot)
        for scratch in (self._proposed, *scratches):
            room -= (scratch.firm if slot.of_min else scratch.extra).get(path, _NOTHING).get(slot.resource, 0)
        return room

    def _held(self, queue: str, path: str, slot: RefusalSlot | Shortfall, asked: int) -> int:
        """The held amounts that count against the whole queue: firm claims of other queues, and quota held for age."""
        if slot.of_min or queue in self.claimants:
            return 0
        held = self.ledger.claims.firm.extra.get(path, _NOTHING).get(slot.resource, 0)
        aged = self.aged_at(path, slot)
        if not aged or slot.resource in COUNTED or self._may_be_owed(queue, slot.resource, asked):
            return held
        return held + aged

    def aged_at(self, path: str, slot: RefusalSlot | Shortfall) -> int:
        """The amount held for age at the path."""
        return 0 if slot.of_min else self._aged.get(path, _NOTHING).get(slot.resource, 0)

    def free(self, path: str, slot: RefusalSlot, *scratches: Scratch) -> int:
        """The most a queue without a claim and without owed quota may ask for, beside the scratches."""
        room = self._left(path, path, slot, *scratches)
        if slot.of_min:
            return room
        held = self.ledger.claims.firm.extra.get(path, _NOTHING).get(slot.resource, 0)
        return room - held - (0 if slot.resource in COUNTED else self.aged_at(path, slot))

    def _may_be_owed(self, queue: str, resource: str, asked: int) -> bool:
        nodes, used = self.ledger.nodes, self.ledger.used
        return any(
            used.get(path, _NOTHING).get(name, 0) + asked <= nodes[path].owes.get(name, 0)
            for path in chain_of(queue)[:-1]
            if path in nodes
            for name in dict.fromkeys((resource, total_of(resource)))
        )


def clear(shape: Shape, ledger: Ledger) -> bool:
    """Whether a shape is worth a try: without a denial, or with room at the slot of the denial now."""
    if shape.denial is None:
        return True
    short = shape.denial.short
    return short.asked <= room_at(ledger, shape.queue, short.path, short)
