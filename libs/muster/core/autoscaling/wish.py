"""The wish of a Ray cluster beyond its grant: the waiting demand, piece by piece, in Ray's order.

Waiting demand goes onto workers that exist or are starting, then onto granted workers, then onto new workers, up to the
ceiling of each group. A placement group is one piece, and so is the load of one new worker. Each piece names the other
suitable groups, in the order in which Ray would take these groups with the earlier groups closed. Each piece is granted
or refused alone, and no piece relies on a worker of a refused piece.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field, structs

from muster.core.autoscaling.packing import (
    APART,
    SINGLY,
    TOGETHER,
    Host,
    How,
    Launch,
    Packing,
    fits,
    suited,
    take,
    times_in,
)
from muster.events.elastic import GrowthOption, GrowthUnit
from muster.model.elastic import Counts, Elastic, ScaledGroup, grown
from muster.model.raydemand import RayDemand, RayPlacementGroup, RayShape

MAX_UNITS = 64
"""Pieces in one request: further pieces follow after the answers."""
MAX_OTHERS = 8
"""Alternatives of one piece."""
MAX_TRIES = 24
"""Tries to find alternatives."""
EXPLICIT = "request_resources"
"""Name of the explicit requests among the placement groups."""


class Wish(Struct, frozen=True):
    """The wish of a cluster beyond its present size."""

    units: tuple[GrowthUnit, ...] = ()
    """The pieces beyond the grant."""
    wanted: Counts = field(default_factory=dict)
    """Replicas in all, by group, as far as granted: the used part of the grant."""
    gangs: tuple[str, ...] = ()
    """Placement groups among the units."""
    unfit: tuple[RayShape, ...] = ()
    """Demand that no worker of any group can hold, one by one."""

    @property
    def in_all(self) -> Counts:
        """Replicas in all, if every unit were granted."""
        replicas = dict(self.wanted)
        for unit in self.units:
            for name, count in unit.groups.items():
                replicas[name] = replicas.get(name, 0) + count * unit.times
        return replicas


def wish_of(
    elastic: Elastic,
    demand: RayDemand | None,
    granted: Counts | None = None,
    large: Counts | None = None,
    refused: Sequence[str] = (),
    closed: Counts | None = None,
) -> Wish:
    """The demand of a cluster, from the report of the head and the sizes in the spec.

    - ``granted``: {worker group: replicas}.
    - ``large``: {worker group: pods grown in place}.
    - ``refused``: names of refused placement groups: these groups come last, and no demand relies on their workers.
    - ``closed``: {worker group without further requests: pods without a node, on which no demand relies}.
    """
    wishing = _Wishing(elastic, granted if granted is not None else elastic.sizes, frozenset(refused), closed or {})
    if demand is not None:
        wishing.stock(demand)
        wishing.waiting(demand)
        wishing.enlarge(demand, large or {})
    return wishing.wish()


class _Wishing:
    """One try at placing the waiting demand."""

    def __init__(self, elastic: Elastic, granted: Counts, refused: frozenset[str], closed: Counts) -> None:
        self._elastic, self._granted, self._refused, self._closed = elastic, granted, refused, closed
        self._groups = [group for group in elastic.groups if group.offers]
        self._packing = Packing(elastic.groups)
        self._hosts: list[Host] = []
        self._spare: Counts = {}
        self._room: Counts = {}
        self._wanted: Counts = dict(elastic.sizes)
        self._slow: Counts = {group.name: max(group.replicas, 1) for group in elastic.groups}
        self._units: list[GrowthUnit] = []
        self._gangs: list[str] = []
        self._left: list[RayShape] = []
        self._unfit: list[RayShape] = []
        self._asked: Counts = {}
        for group in elastic.groups:
            self._stated(group)

    def _stated(self, group: ScaledGroup) -> None:
        """The replicas in the spec, the rest of the grant, and the rest up to the ceiling."""
        name, ceiling = group.name, self._elastic.ceiling(group)
        spare = max(min(self._granted.get(name, 0), ceiling) - group.replicas, 0)
        asked = max(min(max(group.asked, group.least), ceiling) - group.replicas, 0)
        self._asked[name], self._wanted[name] = asked, group.replicas + asked
        if asked > spare:
            self._units.append(GrowthUnit({name: 1}, asked - spare))
        self._spare[name] = max(spare - asked, 0)
        self._room[name] = max(ceiling - group.replicas - max(spare, asked), 0)
        if name in self._closed:
            self._spare[name] = self._room[name] = 0

    def stock(self, demand: RayDemand) -> None:
        """Hosts with room: starting hosts, idle hosts, and the reported room of other hosts."""
        idle: Counts = {}
        for worker in demand.idle:
            idle[worker.group] = idle.get(worker.group, 0) + 1
        for group in self._groups:
            made = group.replicas * group.hosts - self._closed.get(group.name, 0)
            coming = max(made - demand.joined.get(group.name, 0), 0)
            count = coming + idle.get(group.name, 0) + self._asked[group.name] * group.hosts
            if count:
                self._hosts.append(self._packing.fresh(group.name, count))
        known = {group.name: group for group in self._groups}
        for room in demand.room:
            twin = known.get(room.group)
            total = twin.offers if twin is not None else room.free
            labels = twin.labels if twin is not None else {}
            priority = twin.priority if twin is not None else 0
            self._hosts.append(Host(room.group, total, dict(room.free), labels, priority, room.count))

    def waiting(self, demand: RayDemand) -> None:
        """All waiting demand, in Ray's order; demand refused before comes last."""
        gangs = sorted(demand.placement_groups, key=_rank, reverse=True)
        last = EXPLICIT in self._refused
        if not last:
            self._hold(demand)
        for gang in gangs:
            if gang.name not in self._refused:
                self._gang(gang)
        self._singly(self._hosts, demand.pending)
        if last:
            self._hold(demand)
        for gang in gangs:
            if gang.name in self._refused:
                self._gang(gang)

    def _gang(self, gang: RayPlacementGroup) -> None:
        shapes = _packed(gang.bundles) if gang.strategy == "STRICT_PACK" else gang.bundles
        self._whole(gang.name, self._hosts, shapes, APART if gang.strategy == "STRICT_SPREAD" else TOGETHER)

    def _hold(self, demand: RayDemand) -> None:
        """Make the whole cluster large enough for the explicit requests, including resources in use."""
        if not demand.explicit:
            return
        hosts = [Host("", self._elastic.head, dict(self._elastic.head), {})]
        for group in self._groups:
            count = (group.replicas + self._asked[group.name]) * group.hosts
            if count:
                hosts.append(self._packing.fresh(group.name, count))
        if demand.version == "v1":
            self._singly(hosts, demand.explicit)
        else:
            self._whole(EXPLICIT, hosts, demand.explicit, TOGETHER)

    def _whole(self, name: str, hosts: list[Host], shapes: Sequence[RayShape], how: How) -> None:
        """Place a piece as a whole, or not at all: within the grant, else with the workers that Ray would add."""
        trial, rooms = _copied(hosts), dict(self._spare)
        left, launches = self._packing.place(trial, rooms, shapes, how)
        if not any(left):
            self._spare = rooms
            self._keep(launches, hosts, trial)
            return
        trial, rooms = _copied(hosts), {group: self._spare[group] + self._room[group] for group in self._room}
        left, launches = self._packing.place(trial, rooms, shapes, how)
        if any(left):
            self._unfit += [structs.replace(shape, count=1) for shape in shapes if not self._ever(shape)]
            return
        lacks = self._lacks(launches)
        others = self._others(hosts, shapes, lacks, how)
        self._add(GrowthUnit(lacks, otherwise=tuple(GrowthOption(option) for option in others)), name)
        for group, count in _counted(launches).items():
            self._spare[group] -= count - lacks.get(group, 0)
            self._room[group] -= lacks.get(group, 0)
        if name not in self._refused:
            self._keep([], hosts, trial, launches)

    def _keep(self, launches: list[Launch], hosts: list[Host], trial: list[Host], more: Sequence[Launch] = ()) -> None:
        """The use of a piece, and the new hosts of the piece; ``launches`` are granted, ``more`` are not."""
        for launch in launches:
            self._wanted[launch.group] = self._wanted.get(launch.group, 0) + launch.count
        if hosts is self._hosts:
            self._hosts = trial
            return
        for name, count in _counted([*launches, *more]).items():  # They were made for nothing that runs on them.
            group = next(candidate for candidate in self._groups if candidate.name == name)
            self._hosts.append(self._packing.fresh(name, count * group.hosts))

    def _lacks(self, launches: Sequence[Launch]) -> Counts:
        """Replicas beyond the grant."""
        made = _counted(launches)
        return {name: count - self._spare[name] for name, count in made.items() if count > self._spare[name]}

    def _others(self, hosts: list[Host], shapes: Sequence[RayShape], first: Counts, how: How) -> list[Counts]:
        """Other sets of replicas for the piece: Ray's choices where a group has fewer replicas, or none."""
        options: list[Counts] = [first]
        queue: list[tuple[Counts, Counts]] = [({}, first)]
        seen: list[Counts] = []
        tries = MAX_TRIES if len(self._groups) > 1 else 0
        while queue and len(options) <= MAX_OTHERS:
            caps, lacks = queue.pop(0)
            closed = [(name, 0) for name in lacks]
            fewer = [(name, most) for name, count in lacks.items() for most in (count - 1, count // 2) if most]
            for name, most in (*closed, *fewer):
                tighter = {**caps, name: most}
                if tighter in seen or not tries:
                    continue
                seen.append(tighter)
                tries -= 1
                rooms = {
                    group: self._spare[group] + min(room, tighter.get(group, room))
                    for group, room in self._room.items()
                }
                left, launches = self._packing.place(_copied(hosts), rooms, shapes, how)
                if any(left):
                    continue
                other = self._lacks(launches)
                queue.append((tighter, other))
                if other and other not in options:
                    options.append(other)
        return options[1 : MAX_OTHERS + 1]

    def _singly(self, hosts: list[Host], shapes: Sequence[RayShape]) -> None:
        """Place waiting shapes one by one: within the grant, then one piece for each new worker."""
        left, launches = self._packing.place(hosts, self._spare, shapes, SINGLY)
        self._keep(launches, hosts, hosts)
        rest = [structs.replace(shape, count=count) for shape, count in zip(shapes, left, strict=True) if count]
        rooms = dict(self._room)
        left, launches = self._packing.place([], rooms, rest, SINGLY)
        for launch in launches:
            most = self._slow[launch.group] if self._elastic.slow else launch.count
            times = min(launch.count, most)
            self._slow[launch.group] -= times
            held = [structs.replace(rest[index], count=count) for index, count in sorted(launch.holds.items())]
            if times:
                self._add(GrowthUnit({launch.group: 1}, times, self._elsewhere(launch.group, held)))
        self._room = rooms
        for shape, count in zip(rest, left, strict=True):
            if count:
                self._left.append(structs.replace(shape, count=count))
                self._unfit += [] if self._ever(shape) else self._left[-1:]

    def _elsewhere(self, closed: str, shapes: Sequence[RayShape]) -> tuple[GrowthOption, ...]:
        """Other groups for the load of one worker while its group is closed; last, groups for a part of the load."""
        whole: list[GrowthOption] = []
        parts: list[GrowthOption] = []
        rooms = {name: room for name, room in self._room.items() if room and name != closed}
        while rooms and len(whole) < MAX_OTHERS:
            left, launches = self._packing.place([], dict(rooms), shapes, SINGLY)
            made = _counted(launches)
            if not made:
                break
            single = [GrowthOption({name: 1}, count) for name, count in made.items()]
            if not any(left):
                whole.append(single[0] if len(single) == 1 else GrowthOption(made))
            if any(left) or len(single) > 1:
                parts += single
            rooms = {name: room for name, room in rooms.items() if name not in made}
        return tuple(whole + parts)[:MAX_OTHERS]

    def enlarge(self, demand: RayDemand, large: Counts) -> None:
        """Shapes too large for any new worker go onto workers grown in place, all workers of a group."""
        idle: Counts = {}
        for worker in demand.idle:
            idle[worker.group] = idle.get(worker.group, 0) + 1
        left_over = [*self._left, *demand.infeasible]
        for group in self._groups:
            mine = [shape for shape in left_over if times_in(group.grows_to, shape.resources)] if group.grows else []
            if not mine:
                continue
            left_over = [shape for shape in left_over if shape not in mine]
            self._unfit = [shape for shape in self._unfit if not times_in(group.grows_to, shape.resources)]
            there = self._wanted[group.name] * group.hosts
            empty = min(there, max(there - demand.joined.get(group.name, 0), 0) + idle.get(group.name, 0))
            extra = {name: amount - group.offers.get(name, 0) for name, amount in group.grows_to.items()}
            busy = max(there - empty - large.get(group.name, 0), 0)
            packing = Packing([structs.replace(group, offers=group.grows_to)])
            hosts = [packing.fresh(group.name, empty)] if empty else []
            hosts += [Host(group.name, extra, dict(extra), group.labels, count=busy)] if busy else []
            rooms = {group.name: self._spare[group.name] + self._room[group.name]}
            left, launches = packing.place(hosts, rooms, mine, SINGLY)
            if left != [shape.count for shape in mine]:
                self._grow(group, there, sum(_counted(launches).values()))

    def _grow(self, group: ScaledGroup, there: int, new: int) -> None:
        """So many replicas are to be made, and all pods of the group may grow."""
        name, pods, lacks = grown(group), there + new * group.hosts, dict[str, int]()
        self._wanted[name], self._wanted[group.name] = pods, self._wanted[group.name] + new
        lacks[name] = max(pods - self._granted.get(name, 0), 0)
        lacks[group.name] = max(new - self._spare[group.name], 0)
        self._spare[group.name] -= new - lacks[group.name]
        self._room[group.name] -= lacks[group.name]
        if lacks := {group: count for group, count in sorted(lacks.items()) if count}:
            self._add(GrowthUnit(lacks))

    def _ever(self, shape: RayShape) -> bool:
        """Whether a new and empty worker of any group could hold one."""
        return any(
            self._elastic.ceiling(group)
            and fits(group.offers, shape.resources)
            and (not shape.selectors or suited(group.labels, shape))
            for group in self._groups
        )

    def _add(self, unit: GrowthUnit, gang: str = "") -> None:
        if unit.groups:
            self._units.append(unit)
            self._gangs += [gang] if gang else []

    def wish(self) -> Wish:
        """The complete wish."""
        wanted, units = dict(sorted(self._wanted.items())), tuple(self._units[:MAX_UNITS])
        return Wish(units, wanted, tuple(sorted(self._gangs)), tuple(self._unfit))


def _rank(gang: RayPlacementGroup) -> tuple[int, int]:
    """Ray's sort key of placement groups."""
    count = sum(bundle.count for bundle in gang.bundles)
    return (count if gang.strategy.startswith("STRICT") else 0, count)


def _packed(bundles: Sequence[RayShape]) -> tuple[RayShape, ...]:
    """All bundles on one host; bundles with different selectors cannot share a host, and are summed apart."""
    packed: list[RayShape] = []
    for bundle in bundles:
        known = next((index for index, shape in enumerate(packed) if shape.selectors == bundle.selectors), None)
        total = dict(packed[known].resources) if known is not None else {}
        take(total, bundle.resources, -bundle.count)
        whole = RayShape(dict(sorted(total.items())), selectors=bundle.selectors)
        if known is None:
            packed.append(whole)
        else:
            packed[known] = whole
    return tuple(packed)


def _counted(launches: Sequence[Launch]) -> Counts:
    counts: Counts = {}
    for launch in launches:
        counts[launch.group] = counts.get(launch.group, 0) + launch.count
    return dict(sorted(counts.items()))


def _copied(hosts: Sequence[Host]) -> list[Host]:
    return [structs.replace(host, free=dict(host.free)) for host in hosts]
