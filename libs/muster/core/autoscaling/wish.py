"""How many replicas a Ray cluster wants: what waits there, packed onto workers as Ray would do it. Pure arithmetic.

What waits goes onto workers that are on their way or idle first, then onto new ones, up to the ceiling of each group.
A placement group is one piece: all of its new workers, or none. Ray may pack a little better or worse; whatever is
granted and not used is withdrawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from muster.events.elastic import GrowthUnit
from muster.model.elastic import Counts, Elastic, ScaledGroup, grown
from muster.model.raydemand import RayDemand, RayPlacementGroup, RayShape

MAX_BINS = 20_000
"""Workers looked at for one cluster: a budget of steps, so that no demand holds up the log."""

Amounts = Mapping[str, int]


class Bin(Struct):
    """What one host still has to offer."""

    group: str
    free: dict[str, int]
    new: bool = False
    """It would be made for this."""
    shared: bool = False
    """A placement group uses it that wants its bundles apart."""


class Wish(Struct, frozen=True):
    """What a cluster wants beyond what it has."""

    units: tuple[GrowthUnit, ...] = ()
    wanted: Counts = field(default_factory=dict)
    """Replicas in all, group by group."""


def wish_of(elastic: Elastic, demand: RayDemand | None, large: Counts | None = None) -> Wish:
    """What a cluster wants: by what its head says, and by the size its spec asks for.

    ``large``: {worker group: pods that have grown in place}.
    """
    packing = Packing(elastic)
    if demand is not None:
        packing.stock(demand)
        for gang in demand.placement_groups:
            packing.gang(gang)
        packing.singles(demand.pending)
        packing.hold(demand.explicit)
        packing.enlarge(demand, large or {})
    return packing.wish()


class Packing:
    """One attempt at placing what waits."""

    def __init__(self, elastic: Elastic) -> None:
        self._elastic = elastic
        self._groups = [group for group in elastic.groups if group.offers]
        self._room: Counts = {group.name: max(elastic.ceiling(group) - group.replicas, 0) for group in elastic.groups}
        self._bins: list[Bin] = []
        self._added: Counts = {}
        self._slow: Counts = {group.name: max(group.replicas, 1) for group in elastic.groups}
        self._units: list[GrowthUnit] = []
        self._left: list[tuple[Amounts, int]] = []
        for group in elastic.groups:
            wanted = min(max(group.asked, group.least), elastic.ceiling(group)) - group.replicas
            self._single(group.name, max(wanted, 0))

    def stock(self, demand: RayDemand) -> None:
        """Workers that have room: those on their way, and those that are idle."""
        idle: Counts = {}
        for each in demand.idle:
            idle[each.group] = idle.get(each.group, 0) + 1
        for group in self._groups:
            coming = max(group.replicas * group.hosts - demand.joined.get(group.name, 0), 0)
            for _ in range(min(coming + idle.get(group.name, 0), MAX_BINS - len(self._bins))):
                self._bins.append(Bin(group.name, dict(group.offers)))
            for _ in range(self._added.get(group.name, 0) * group.hosts):
                self._bins.append(Bin(group.name, dict(group.offers)))

    def gang(self, gang: RayPlacementGroup) -> None:
        """Place a placement group as a whole, or not at all."""
        kept = [Bin(each.group, dict(each.free), each.new) for each in self._bins]
        room, added = dict(self._room), dict(self._added)
        bundles: list[Amounts] = [each.resources for each in gang.bundles for _ in range(each.count)]
        if gang.strategy == "STRICT_PACK":
            bundles = [_summed(bundles)]
        apart = gang.strategy == "STRICT_SPREAD"
        if len(bundles) > MAX_BINS or not all(self._place(bundle, apart=apart) for bundle in _largest_first(bundles)):
            self._bins, self._room, self._added = kept, room, added
            return
        for each in self._bins:
            each.shared = False
        new = {name: count - added.get(name, 0) for name, count in self._added.items()}
        if new := {name: count for name, count in sorted(new.items()) if count}:
            self._units.append(GrowthUnit(new))

    def singles(self, shapes: Iterable[RayShape]) -> None:
        """Place what waits one by one."""
        before = dict(self._added)
        for shape in sorted(shapes, key=lambda each: _size(each.resources), reverse=True):
            left = self._many(shape.resources, shape.count)
            if left:
                self._left.append((shape.resources, left))
        for name, count in self._added.items():
            new = count - before.get(name, 0)
            most = self._slow[name] if self._elastic.slow else new
            self._count(name, min(new, most))

    def hold(self, shapes: Iterable[RayShape]) -> None:
        """Let the whole cluster be large enough for what is asked for explicitly, whatever of it is in use."""
        whole = Packing(self._elastic)
        whole._bins = [Bin("", dict(self._elastic.head))]
        for group in self._groups:
            count = (group.replicas + self._added.get(group.name, 0)) * group.hosts
            whole._bins += [Bin(group.name, dict(group.offers)) for _ in range(min(count, MAX_BINS))]
        whole._room = dict(self._room)
        whole._added = {}
        for shape in sorted(shapes, key=lambda each: _size(each.resources), reverse=True):
            whole._many(shape.resources, shape.count)
        for name, count in whole._added.items():
            self._added[name] = self._added.get(name, 0) + count
            self._count(name, count)

    def enlarge(self, demand: RayDemand, large: Counts) -> None:
        """What no worker can hold as it is made goes onto workers that are grown in place, all those of a group."""
        idle: Counts = {}
        for worker in demand.idle:
            idle[worker.group] = idle.get(worker.group, 0) + 1
        more: list[tuple[Amounts, int]] = [(each.resources, each.count) for each in demand.infeasible]
        for group in self._groups:
            mine = [left for left in (*self._left, *more) if _times(group.grows_to, left[0])] if group.grows else []
            if not mine:
                continue
            self._left = [left for left in self._left if left not in mine]
            more = [left for left in more if left not in mine]
            there = (group.replicas + self._added.get(group.name, 0)) * group.hosts
            empty = min(there, max(there - demand.joined.get(group.name, 0), 0) + idle.get(group.name, 0))
            extra = {name: amount - group.offers.get(name, 0) for name, amount in group.grows_to.items()}
            busy = min(max(there - empty - large.get(group.name, 0), 0), MAX_BINS)
            bins = [dict(group.grows_to) for _ in range(min(empty, MAX_BINS))] + [dict(extra) for _ in range(busy)]
            placed, new = _on_large(bins, mine, group, self._room[group.name])
            if placed:
                self._room[group.name] -= new
                pods = {grown(group): there + new * group.hosts}
                self._units.append(GrowthUnit(pods | ({group.name: new} if new else {})))

    def wish(self) -> Wish:
        """What is wanted in all."""
        wanted = dict(self._elastic.sizes)
        for unit in self._units:
            for name, count in unit.groups.items():
                wanted[name] = wanted.get(name, 0) + count * unit.times
        return Wish(tuple(self._units), dict(sorted(wanted.items())))

    # --- one piece ------------------------------------------------------------------------------------------------

    def _single(self, name: str, count: int) -> None:
        """Replicas that the spec itself asks for."""
        if count:
            self._room[name] -= min(count, self._room[name])
            self._added[name] = self._added.get(name, 0) + count
            self._count(name, count)

    def _count(self, name: str, count: int) -> None:
        if count:
            self._units.append(GrowthUnit({name: 1}, count))

    def _many(self, shape: Amounts, count: int) -> int:
        """Place many of one shape: each worker takes as many as it can. Returns how many are left."""
        for each in self._bins:
            if not count:
                return 0
            taken = min(_times(each.free, shape), count)
            if taken:
                _take(each.free, shape, taken)
                count -= taken
        while count:
            bins = self._open(shape)
            if not bins:
                return count
            for each in bins:
                taken = min(_times(each.free, shape), count)
                _take(each.free, shape, taken)
                count -= taken
        return 0

    def _place(self, shape: Amounts, *, apart: bool) -> bool:
        for each in self._bins:
            if not (apart and each.shared) and _times(each.free, shape):
                _take(each.free, shape, 1)
                each.shared = apart
                return True
        bins = self._open(shape)
        if not bins:
            return False
        _take(bins[0].free, shape, 1)
        bins[0].shared = apart
        return True

    def _open(self, shape: Amounts) -> list[Bin]:
        """The hosts of a new replica that can hold the shape; none when no group can."""
        if not any(shape.values()) or len(self._bins) >= MAX_BINS:
            return []
        fitting = [group for group in self._groups if self._room[group.name] and _times(group.offers, shape)]
        if not fitting:
            return []
        chosen = min(fitting, key=lambda group: _waste(group, shape))
        self._room[chosen.name] -= 1
        self._added[chosen.name] = self._added.get(chosen.name, 0) + 1
        bins = [Bin(chosen.name, dict(chosen.offers), new=True) for _ in range(chosen.hosts)]
        self._bins += bins
        return bins


def _times(free: Amounts, shape: Amounts) -> int:
    """How often the shape fits; what asks for nothing needs no room."""
    return min((free.get(name, 0) // amount for name, amount in shape.items() if amount), default=MAX_BINS)


def _take(free: dict[str, int], shape: Amounts, times: int) -> None:
    for name, amount in shape.items():
        if amount:
            free[name] = free.get(name, 0) - amount * times


def _waste(group: ScaledGroup, shape: Amounts) -> int:
    """Resources that the group has and the shape does not ask for: a task without a GPU goes where there is none."""
    return sum(1 for name in group.offers if name != "memory" and not shape.get(name))


def _size(shape: Amounts) -> tuple[int, int]:
    return len(shape), sum(amount for name, amount in shape.items() if name != "memory")


def _largest_first(bundles: list[Amounts]) -> list[Amounts]:
    return sorted(bundles, key=_size, reverse=True)


def _on_large(
    bins: list[dict[str, int]], left: Iterable[tuple[Amounts, int]], group: ScaledGroup, room: int
) -> tuple[int, int]:
    """(how many are placed, replicas made for that) of what is left, on the room of workers that are grown."""
    placed = new = 0
    for shape, count in left:
        rest = _fill(bins, shape, count)
        while rest and new < room and len(bins) < MAX_BINS:
            new += 1
            more = [dict(group.grows_to) for _ in range(group.hosts)]
            rest = _fill(more, shape, rest)
            bins += more
        placed += count - rest
    return placed, new


def _fill(bins: Iterable[dict[str, int]], shape: Amounts, count: int) -> int:
    """How many of a shape find no room there."""
    left = count
    for free in bins:
        taken = min(_times(free, shape), left)
        _take(free, shape, taken)
        left -= taken
    return left


def _summed(bundles: Iterable[Amounts]) -> Amounts:
    total: dict[str, int] = {}
    for bundle in bundles:
        for name, amount in bundle.items():
            total[name] = total.get(name, 0) + amount
    return total
