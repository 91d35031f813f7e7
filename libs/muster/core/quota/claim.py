"""A claim: what is held for one waiting job until it is admitted, where, and what it still waits for.

A *guarantee* claim and a *priority* claim have victims, which leave for it, and are held at every node on the path of
their queue, without what the victims still have there: that is free for none. An *age* claim has none, and is held from
its queue up to the uppermost node that refuses it: at a node above others without what these still lack, for whatever
is released there is released above as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct, field
from msgspec.structs import replace

from muster.core.quota.demand import Charge, chain_of, counted
from muster.events.elastic import GrowthOption
from muster.events.reasons import ClaimKind
from muster.model.demand import Demand
from muster.model.elastic import Counts
from muster.model.keys import Ref
from muster.model.resources import Vector, add_into

LEAVES_WITHIN_MS = 3_600_000
"""How long after it was suspended a victim may take to leave before others are suspended in its place."""


class Part(Struct, frozen=True):
    """Workers that a Ray cluster releases for a claimant."""

    attempt: int
    demand: Demand
    left: Counts
    """What its groups are granted afterwards."""


class Claim(Struct):
    """What is held for a waiting workload, and what it still waits for."""

    ref: Ref
    attempt: int
    queue: str
    demand: Demand
    kind: ClaimKind
    opened: int
    """Log time (ms)."""
    top: str = ""
    """The uppermost node at which it is held; empty for all of its path."""
    victims: dict[str, int] = field(default_factory=dict)
    """uid -> attempt of the victims that leave for it and have not left yet"""
    moving: dict[str, int] = field(default_factory=dict)
    """The same of those that start again elsewhere: they release nothing"""
    partial: dict[str, Part] = field(default_factory=dict)
    """uid -> the part that is taken of clusters that release one for it and have not done so yet"""
    progress: int = 0
    """Log time (ms) of its last progress: it was opened, a victim left, something was released."""
    promised: int = 0
    """Log time (ms) by which enough has left for it if the run times that jobs declare are true; 0: not promised."""
    counted_on: dict[str, int] = field(default_factory=dict)
    """uid of a job that runs where it is held and declares to leave by then -> log time (ms) by which it has left"""
    first_end: int = 0
    """The earliest of those; 0 where there is none."""
    lacking: dict[str, Vector] = field(default_factory=dict)
    """Node -> what is to be released first, and is not held there before: by its victims at the node or, for age, at
    the nodes below
    """
    growth: GrowthOption | None = None
    """The replicas that it is held for, where its claimant runs and asks for more."""
    for_nodes: bool = False
    """Its claimant waits for its places, and not in a queue."""
    idle: Vector = field(default_factory=dict)
    """For age: the amounts that were idle for it and that others asked for, times ms."""
    idle_until: int = 0
    """Log time (ms) up to which these are counted."""

    @property
    def uid(self) -> str:
        return self.ref.uid

    @property
    def firm(self) -> bool:
        """Whether it holds against every other job; one for age does not against jobs that are owed quota."""
        return self.kind != "age"

    @property
    def awaits(self) -> bool:
        """Whether a victim is still to leave its nodes, in whole or in part."""
        return bool(self.victims or self.partial or self.moving)

    def serves(self, queue: str, demand: Demand) -> bool:
        """Whether a job of this queue and demand may use the quota it holds, for it asks alike. What one cluster grows
        by helps no other, nor what is held for a job that waits for its places.
        """
        return self.growth is None and not self.for_nodes and self.queue == queue and self.demand.alike(demand)

    def is_for(self, uid: str, groups: Counts) -> bool:
        """Whether it is held for these replicas of a cluster."""
        asked = self.growth
        return (
            asked is not None
            and self.uid == uid
            and all(count <= asked.groups.get(name, 0) * asked.times for name, count in groups.items())
        )

    def promised_now(self, now: int) -> int:
        """Log time (ms) by which it starts if the run times that jobs declare are true; 0 where nothing says so, or
        a job that this counts on is late.
        """
        return self.promised if now < self.first_end or not self.first_end else 0

    def lets_in(self, until: int, now: int) -> bool:
        """Whether a job that has left by ``until``, before its promised time, may pass it at ``now``."""
        return 0 < until <= self.promised_now(now)

    def holds_up(self, queue: str, demand: Demand) -> bool:
        """Whether it is for age and before another job of its own queue, if that is owed something or not."""
        return not self.firm and self.queue == queue and not self.demand.alike(demand)

    def is_outgrown(self, refusing: Iterable[str]) -> bool:
        """Whether it is for age, and only nodes above those at which it is held refuse its claimant by now."""
        return not self.firm and all(len(path) < len(self.top) for path in refusing)

    def paths(self) -> Iterator[str]:
        """The nodes at which it is held, leaf first."""
        return (path for path in chain_of(self.queue) if len(path) >= len(self.top))

    def held_at(self, path: str) -> Vector:
        """The amounts that are held at one of these nodes."""
        amounts = counted(self.demand)
        if lacking := self.lacking.get(path):
            add_into(amounts, lacking, -1)
        return amounts

    def counts_on(self, uid: str, charge: Charge) -> None:
        """A job runs: where the claim is held, and the declared end is in time, that end is counted on."""
        if 0 < charge.until <= self.promised and self.top in chain_of(charge.queue):
            self.counted_on[uid] = charge.until
            self.first_end = min(self.counted_on.values())

    def has_left(self, uid: str, at: int) -> None:
        """A job has left: if that is late, the promise is void."""
        until = self.counted_on.pop(uid, None)
        if until is None:
            return
        if at > until:
            self.promised, self.counted_on = 0, {}
        self.first_end = min(self.counted_on.values(), default=0)


def times(demand: Demand, count: int, of: int = 1) -> Demand:
    """``count`` of ``of`` equal parts of a demand."""
    request = {name: amount // of * count for name, amount in demand.request.items()}
    return replace(demand, request=request, pods=demand.pods // of * count)


def is_down(groups: Counts, left: Counts) -> bool:
    """Whether no group is granted more than it is to be left with."""
    return all(groups.get(name, 0) <= count for name, count in left.items())
