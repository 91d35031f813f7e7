"""Where Ray's autoscaler would put waiting demand: on existing hosts, and on new hosts. Pure arithmetic.

The rules are the rules of Ray's second version. Larger shapes come first. All shapes are tried on each host, and the
host with the best score takes as many as fit. The score prefers, in order: a host requested by its labels, no GPU for
shapes without a GPU, the most resource kinds in use, the highest use. Among equals the group with the higher priority
wins, then the group whose turn has come. Existing hosts come before new hosts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from msgspec import Struct, field, structs

from muster.model.elastic import Counts, ScaledGroup
from muster.model.raydemand import RayConstraint, RayShape

MAX_STEPS = 50_000
"""Shapes tried on hosts for one cluster: a budget, so that no demand delays the log."""
ENDLESS = 2**31

Amounts = Mapping[str, int]
Score = tuple[int, bool, int, Fraction, Fraction, int]


class How(Struct, frozen=True):
    """How something is placed."""

    apart: bool = False
    """No host takes two."""
    single: bool = False
    """Shapes are placed one by one: Ray lets each shape choose by labels, even without selectors."""


TOGETHER, APART, SINGLY = How(), How(apart=True), How(single=True)


class Launch(Struct):
    """New replicas, and the load of each replica: {index of a shape: count}."""

    group: str
    count: int
    holds: dict[int, int] = field(default_factory=dict)


class Host(Struct):
    """``count`` equal hosts."""

    group: str
    total: Amounts
    free: dict[str, int]
    labels: Mapping[str, str]
    priority: int = 0
    count: int = 1
    kinds: frozenset[str] = frozenset()
    """Resources requested by the shapes placed on the host."""
    chosen: int = 0
    """Fit of the host's labels to the first shape with selectors."""
    taken: bool = False
    """The host has a bundle of the current placement group, and the group wants its bundles apart."""
    launch: Launch | None = None
    """The new replica of the host."""


class _Waiting:
    """The waiting shapes, in the order of the tries."""

    def __init__(self, shapes: Sequence[RayShape], how: How) -> None:
        self.how = how
        self.counts = [shape.count for shape in shapes]
        """How many of each shape are left."""
        largest_first = sorted(enumerate(shapes), key=lambda pair: _size(pair[1]), reverse=True)
        self.order = [(index, shape, [*shape.resources.items()]) for index, shape in largest_first]
        self.least: list[dict[str, int]] = [{}]
        """{resource: least request of all shapes from this place of the order on}, for each place and the end."""
        for place, (_, shape, _) in enumerate(reversed(self.order)):
            asked, rest = shape.resources, self.least[-1]
            both = {name: min(amount, rest[name]) for name, amount in asked.items() if name in rest}
            self.least.append(both if place else dict(asked))
        self.least.reverse()

    def covers(self, attempt: _Try) -> bool:
        """Whether a host would take the same again: a shape without room then has no room now."""
        return all(self.counts[index] >= taken for index, taken in attempt.taken.items())


class _Try(Struct):
    """A host with every shape that fits."""

    host: Host
    taken: dict[int, int]
    free: dict[str, int]
    kinds: frozenset[str]
    chosen: int
    rank: Score


class Packing:
    """Places waiting shapes, on a budget."""

    def __init__(self, groups: Iterable[ScaledGroup]) -> None:
        self._groups = {group.name: group for group in groups if group.offers}
        self._steps = MAX_STEPS

    def fresh(self, name: str, count: int = 1) -> Host:
        """New hosts of a group."""
        group = self._groups[name]
        return Host(name, group.offers, dict(group.offers), group.labels, group.priority, count)

    def place(
        self, hosts: list[Host], rooms: Counts, shapes: Sequence[RayShape], how: How = TOGETHER
    ) -> tuple[list[int], list[Launch]]:
        """(count of each shape without room, new replicas).

        ``rooms``: {group: allowed new replicas}. Changes ``hosts`` and ``rooms``.
        """
        waiting, launches, done = _Waiting(shapes, how), list[Launch](), list[Host]()
        counts, known = waiting.counts, dict[int, tuple[Host, _Try | None]]()
        ready, pools = list(hosts), [name for name in self._groups if rooms.get(name, 0) > 0]
        new = {name: self.fresh(name) for name in pools}
        while any(counts):
            best = self._best(ready, waiting, known)
            if best:
                self._use(best, ready, done, counts)
                continue
            best = self._best([new[name] for name in pools], waiting, known)
            if not best:
                break
            for choice, times in self._made(best, rooms, counts):
                name = choice.host.group
                launch = Launch(name, times, dict(choice.taken))
                launches.append(launch)
                done.append(_filled(choice, times))
                spare = self._groups[name].hosts - 1
                if spare:
                    ready.append(structs.replace(self.fresh(name, spare * times), launch=launch))
                for index, taken in choice.taken.items():
                    counts[index] -= taken * times
                rooms[name] -= times
                pools.remove(name)
                pools += [name] if rooms[name] else []
        hosts[:] = _merged([*ready, *done])
        return counts, launches

    def _best(self, hosts: Sequence[Host], waiting: _Waiting, known: dict[int, tuple[Host, _Try | None]]) -> list[_Try]:
        """The hosts that take anything: the best first, then the others in their order.

        ``known``: earlier tries by identity of the host; the host is kept in the value.
        """
        tries: list[_Try] = []
        for host in hosts:
            if self._steps <= 0:
                return []
            before = known.get(id(host))
            if before is not None and (before[1] is None or waiting.covers(before[1])):
                attempt = before[1]
            else:
                self._steps -= len(waiting.order)
                attempt = _tried(host, waiting)
                known[id(host)] = (host, attempt)
            if attempt is not None:
                tries.append(attempt)
        if tries:
            best = max(tries, key=lambda attempt: attempt.rank)  # Of equals the first.
            tries = [best, *(attempt for attempt in tries if attempt is not best)]
        return tries

    def _use(self, tries: list[_Try], ready: list[Host], done: list[Host], counts: list[int]) -> None:
        """Place the shapes of the best host, as often as the host stays the best."""
        best = tries[0]
        times = min(_repeats(tries, counts), best.host.count)
        for index, taken in best.taken.items():
            counts[index] -= taken * times
        if best.host.launch is not None:
            holds = best.host.launch.holds
            holds |= {index: holds.get(index, 0) + taken * times for index, taken in best.taken.items()}
        done.append(_filled(best, times))
        best.host.count -= times
        if not best.host.count:
            ready[:] = [host for host in ready if host is not best.host]

    def _made(self, tries: list[_Try], rooms: Counts, counts: list[int]) -> list[tuple[_Try, int]]:
        """(try, new replicas in a row): equal groups take turns."""
        best = tries[0]
        if self._groups[best.host.group].hosts > 1:
            return [(best, 1)]
        equal = [attempt for attempt in tries if attempt.rank == best.rank]
        times = _repeats(tries, counts) // len(equal)
        times = min(times, *(rooms[attempt.host.group] for attempt in equal))
        if times and all(attempt.taken == best.taken for attempt in equal):
            return [(attempt, times) for attempt in equal]
        return [(best, 1)]


def _tried(host: Host, waiting: _Waiting) -> _Try | None:
    """A host with every waiting shape that fits; None: no shape fits."""
    if waiting.how.apart and host.taken:
        return None
    free, taken, kinds, chosen = dict(host.free), dict[int, int](), set(host.kinds), host.chosen
    counts, single, room = waiting.counts, waiting.how.single, free.get
    for place, (index, shape, asked) in enumerate(waiting.order):
        if not counts[index]:
            continue
        for name, amount in asked:
            if room(name, 0) < amount:
                break
        else:
            suits = suited(host.labels, shape)
            if not suits:
                continue
            count = 1 if waiting.how.apart else min(counts[index], times_in(free, shape.resources))
            taken[index] = count
            take(free, shape.resources, count)
            kinds.update(shape.resources)
            chosen = chosen or (suits if shape.selectors or single else 0)
            if waiting.how.apart or _is_full(free, waiting.least[place + 1]):
                break
    if not taken:
        return None
    used = [Fraction(max(whole - free.get(name, 0), 0) ** 3, whole**2) for name, whole in host.total.items() if whole]
    known = sum(1 for name in kinds if name in host.total)
    no_waste = not host.total.get("GPU") or "GPU" in kinds
    least = min(used, default=Fraction(0))
    rank = (chosen, no_waste, known, least, sum(used, Fraction(0)) / max(len(used), 1), host.priority)
    return _Try(host, taken, free, frozenset(kinds), chosen, rank)


def _is_full(free: Amounts, least: Amounts) -> bool:
    """Whether no remaining shape fits: each of these shapes asks for at least ``least``."""
    return any(free.get(name, 0) < amount for name, amount in least.items())


def suited(labels: Mapping[str, str], shape: RayShape) -> int:
    """Fit of labels to the selectors of a shape, the first selector the best; 1 without selectors; 0: no fit."""
    if not shape.selectors:
        return 1
    for index, selector in enumerate(shape.selectors):
        if all(_holds(labels, requirement) for requirement in selector):
            return len(shape.selectors) - index
    return 0


def _holds(labels: Mapping[str, str], constraint: RayConstraint) -> bool:
    return (labels.get(constraint.key) in constraint.values) is not constraint.excluded


def fits(free: Amounts, shape: Amounts) -> bool:
    """Whether a shape fits once: many tried shapes do not."""
    for name, amount in shape.items():  # noqa: SIM110 - half the time
        if free.get(name, 0) < amount:
            return False
    return True


def times_in(free: Amounts, shape: Amounts) -> int:
    """How often a shape fits; a shape without a request needs no room."""
    return min((free.get(name, 0) // amount for name, amount in shape.items() if amount), default=ENDLESS)


def take(free: dict[str, int], shape: Amounts, times: int) -> None:
    """Subtract a shape from the free amounts, ``times`` times."""
    for name, amount in shape.items():
        free[name] = free.get(name, 0) - amount * times


def _repeats(tries: list[_Try], counts: list[int]) -> int:
    """How often the best host stays the best: while enough shapes wait to fill every host."""
    most: dict[int, int] = {}
    for attempt in tries:
        for index, taken in attempt.taken.items():
            most[index] = max(most.get(index, 0), taken)
    return min((counts[index] - most[index]) // taken + 1 for index, taken in tries[0].taken.items())


def _filled(attempt: _Try, count: int) -> Host:
    return structs.replace(
        attempt.host,
        free=dict(attempt.free),
        count=count,
        kinds=attempt.kinds,
        chosen=attempt.chosen,
        taken=True,
        launch=None,
    )


def _merged(hosts: list[Host]) -> list[Host]:
    """Equal hosts merged into one, ready for the next placement group."""
    known: dict[tuple[object, ...], Host] = {}
    for host in hosts:
        key = (host.group, tuple(sorted(host.free.items())), tuple(sorted(host.total.items())), host.kinds, host.chosen)
        if key in known:
            known[key].count += host.count
        else:
            known[key] = structs.replace(host, taken=False, launch=None)
    return list(known.values())


def _size(shape: RayShape) -> tuple[int, int, int, list[tuple[str, int]]]:
    """Ray's sort key of waiting shapes."""
    first = len(shape.selectors[0]) if shape.selectors else 0
    return first, len(shape.resources), sum(shape.resources.values()), sorted(shape.resources.items())
