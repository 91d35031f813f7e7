"""The start of a search for victims and its progress so far; the rules of reclaim by guarantee in words.

A claimant is work that stays within a guarantee: of its leaf, or of a node above the leaf. The lowest such node counts,
and no work below this node is evicted. A job is evicted as a whole, as long as each node of its side uses more than its
guarantee before (``evictionrules.may_go``). What started within the guarantee of its queue stays, whatever the queue
borrows later. So a job that left comes back only within its guarantee, and then stays.

The order: the lowest priority first, then the shortest work since start or last checkpoint, in any queue. Work evicted
too often comes last among its priority. The search takes no more than needed: of the chosen victims the one with the
most GPU time to lose is spared first. Jobs that end by themselves come before all others.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from muster.core.quota.demand import Scratch
from muster.core.quota.ledger.quotaledger import Ledger
from muster.events.claims import PlanObjection
from muster.model.demand import Demand, Shortfall
from muster.model.keys import root_of
from muster.model.resources import Vector, total_of

Objection = PlanObjection | Literal[""]
"""Why victims may not be suspended for a claimant; empty when the suspension is allowed."""

MAX_LOOKS = 10_000
"""Running workloads looked at for one claimant: a budget of steps, so that no search delays the log."""

RESTART_MS = 60_000
"""The cost of a suspension beside the lost work: this much running time of the freed quota."""


FIRST = -(2**62)
"""The youth of work evicted before all other work of its priority, at a price of 0."""

Turn = tuple[tuple[int, int], ...]
"""The turn of a queue to give, the least first: (priority, minus the ratio of use to the kept amount), level by level.
"""


class Run(NamedTuple):
    """A running workload; runs of one queue sort in the order of eviction."""

    priority: int
    youth: int
    """Minus the log time (ms) from which work would be lost: the start, or the last checkpoint."""
    came: int
    """Minus the time (ms) from which the workload counts as queued: of equal runs the youngest comes first."""
    key: str
    """namespace/name"""
    uid: str


class Alike(Struct):
    """Running work of one queue, one priority and equal amounts, kept together."""

    lots: dict[str, dict[str, list[Run]]] = field(default_factory=dict)
    """leaf -> priority and amounts -> the runs with this priority and amounts, in the order of eviction"""
    runs: dict[str, Run] = field(default_factory=dict)
    """uid -> run"""

    def add(self, leaf: str, run: Run, amounts: Mapping[str, int]) -> None:
        insort(self.lots.setdefault(leaf, {}).setdefault(_lot_of(run, amounts), []), run)
        self.runs[run.uid] = run

    def remove(self, leaf: str, run: Run, amounts: Mapping[str, int]) -> None:
        lots, name = self.lots[leaf], _lot_of(run, amounts)
        del lots[name][bisect_left(lots[name], run)]
        del self.runs[run.uid]
        if not lots[name]:
            del lots[name]
            if not lots:
                del self.lots[leaf]


def _lot_of(run: Run, amounts: Mapping[str, int]) -> str:
    return f"{run.priority} {sorted(amounts.items())}"


class Candidates(Struct):
    """The running workloads of each queue, and the actions allowed for each workload now."""

    runs: Mapping[str, Sequence[Run]]
    """leaf -> running work in the order of eviction"""
    may: Callable[[str], bool] = lambda _: True
    """Whether a workload may be suspended now."""
    now: int = 0
    """Log time, ms."""
    alike: Alike | None = None
    """All of ``runs``, equal runs together; None where lots are not kept."""
    ending: Callable[[Callable[[str], bool]], Iterable[str]] = lambda _: ()
    """uids of the jobs that end before a suspension would free anything: their choice loses nothing. The predicate
    comes first, and filters out most jobs cheaply.
    """

    moves: Callable[[str], bool] = lambda _: False
    """Whether a workload may start again on other nodes instead, and keep its quota."""
    most: int = 0
    """At most this many workloads may move at once."""

    def only(self, runs: Mapping[str, Sequence[Run]]) -> Candidates:
        """The same candidates with other runs."""
        return replace(self, runs=runs, alike=None, ending=lambda _: ())


class Basis(Struct):
    """The amounts behind a claim's plan: used - leaving + promised. Age claims are left out, because this claim passes
    them.
    """

    ledger: Ledger
    """Without claims."""
    leaving: Scratch
    """The amounts that victims of other claims will release, as negative amounts."""
    held: Scratch
    """The amounts held for other claimants."""
    ranked: dict[str, list[str]] = field(default_factory=dict)
    """leaf -> uids of its running jobs, by rank; a cache"""
    sums: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)
    """(leaf, resource) -> see ``upto``; a cache"""

    def owed_at(self, queue: str, demand: Demand) -> str:
        """The lowest node whose guarantee covers the claimant and that nothing below refuses; empty without such a
        node, and where a resource is short that no queue is guaranteed: no claim brings that.
        """
        ledger = self.ledger
        level = ledger.owed_at(queue, demand, self.leaving, self.held)
        if not level:
            return ""
        names = ledger.guaranteed[root_of(queue)]
        short = ledger.refusals(queue, demand, self.leaving, held=self.held)
        return "" if any(limit.resource not in names or len(limit.path) > len(level) for limit in short) else level

    def upto(self, leaf: str, name: str) -> dict[str, int]:
        """{uid: amount} of a resource that each running job of a leaf and those before it in rank ask for together, in
        this order. Leaving jobs are left out.
        """
        known = self.sums.get((leaf, name))
        if known is None:
            if not self.ranked:
                for uid, charge in sorted(self.ledger.charges.items(), key=lambda entry: entry[1].rank):
                    self.ranked.setdefault(charge.queue, []).append(uid)
            known, total = self.sums.setdefault((leaf, name), {}), 0
            for uid in self.ranked.get(leaf, ()):
                _, gives = self.ledger.going.get(uid, ("", None))
                total += self.ledger.charges[uid].request.get(name, 0)
                total -= gives.request.get(name, 0) if gives is not None else 0
                known[uid] = total
        return known

    def refusal(self, queue: str, demand: Demand) -> Shortfall | None:
        """The shortfall of a claimant once all claims are served."""
        return next(self.ledger.refusals(queue, demand, self.leaving, held=self.held), None)

    def short(self, queue: str, demand: Demand) -> Shortfall | None:
        """The shortfall once all claims are served, or else until then."""
        return self.refusal(queue, demand) or self.awaited(queue, demand)

    def awaited(self, queue: str, demand: Demand) -> Shortfall | None:
        """The shortfall of a claimant until the victims of other claims have left. None where the claimant fits now,
        and where the claimant will not fit then.
        """
        if not self.leaving.extra or self.refusal(queue, demand) is not None:
            return None
        return next(self.ledger.refusals(queue, demand, held=self.held), None)


def basis(ledger: Ledger, uid: str = "") -> Basis:
    """The basis for the plan of this workload's claim."""
    return Basis(ledger.without_claims(), ledger.leaving, ledger.claims.promised_beside(uid))


class Giver(NamedTuple):
    """The amounts released by one victim: a whole job, or one replica of a cluster."""

    queue: str
    demand: Demand

    @property
    def request(self) -> Vector:
        return self.demand.request


class Search(Struct):
    """One search for victims: the amounts still missing, and the chosen victims."""

    basis: Basis
    queue: str
    demand: Demand
    chosen: list[str]
    gone: Scratch
    """The amounts released by victims of other claims and by the chosen, as negative amounts."""
    names: frozenset[str]
    """The short resources."""
    moving: dict[str, None] = field(default_factory=dict)
    """The chosen victims that start again on other nodes: their quota is not released."""
    parts: Mapping[str, Giver] = field(default_factory=dict)
    """Replicas that may be chosen instead of whole jobs: {name of the replica: amounts}."""
    places: bool = False
    """Victims are also chosen for places on nodes."""
    lacks: list[Shortfall] | None = None
    """The limits that still refuse the claimant; None: not looked up yet."""

    @property
    def ledger(self) -> Ledger:
        return self.basis.ledger

    def knows(self, uid: str) -> bool:
        return uid in self.parts or uid in self.ledger.charges

    def giver(self, uid: str) -> Giver:
        part = self.parts.get(uid)
        if part is not None:
            return part
        charge = self.ledger.charges[uid]
        return Giver(charge.queue, charge.demand)

    def givers(self) -> Iterator[Giver]:
        """The chosen victims that release their quota."""
        return (self.giver(uid) for uid in self.chosen if uid not in self.moving)

    def copied(self) -> Search:
        """An independent copy of this search."""
        return replace(self, chosen=list(self.chosen), gone=self.gone.copied(), moving={**self.moving})

    def missing(self) -> Shortfall | None:
        """The first limit that still refuses the claimant."""
        return next(self.refusals(), None)

    def refusals(self) -> Iterator[Shortfall]:
        """Every limit that still refuses the claimant."""
        return self.ledger.refusals(self.queue, self.demand, self.gone, held=self.basis.held)

    def helps(self, giver: Giver, shared: str) -> list[str]:
        """The resources of a giver that are short at the shared node or above; for places all that are asked for."""
        if self.places:
            return [name for name, amount in sorted(self.demand.request.items()) if amount and giver.request.get(name)]
        if self.lacks is None:
            self.lacks = list(self.refusals())
        above = (short for short in self.lacks if len(short.path) <= len(shared))
        return list(dict.fromkeys(short.resource for short in above if giver.request.get(short.resource)))

    def upto(self, uid: str, leaf: str, name: str) -> int:
        """The amount that a job and those of its queue that rank before it ask for together, without the chosen.
        Replicas that a cluster may release rank last.
        """
        sums, charges, part = self.basis.upto(leaf, name), self.ledger.charges, uid in self.parts
        total = next(reversed(sums.values()), 0) if part else sums.get(uid, 0)
        for other in self.chosen:
            giver = self.giver(other)
            before = part or other in self.parts or charges[other].rank <= charges[uid].rank
            if giver.queue == leaf and other not in self.moving and before:
                total -= giver.request.get(name, 0)
        return total

    def of_any_flavor(self, path: str, name: str, more: Mapping[str, int] | None = None) -> int:
        """What is left at a node of the part of its guarantee that no flavor has, for a resource by flavor. ``more``:
        of a claimant there, whose guarantee counts.
        """
        node = self.ledger.nodes.get(path)
        if node is None:
            return -1
        resource = total_of(name)
        names = [other for other in node.guaranteed if total_of(other) == resource] + [resource]
        used = {other: self.total(path, other) + (more or {}).get(other, 0) for other in names}
        return node.of_any_flavor(resource, used, None if more is None else node.owes)

    def managed(self) -> list[str]:
        """The requested resources with a limit or a guarantee anywhere on the queue's path."""
        return self.ledger.managed(self.queue, self.demand.request)

    def above_min(self) -> list[str]:
        """The resources in which the claimant's queue would be above its min, without the chosen victims."""
        return self.ledger.above_min(self.queue, self.demand, self.managed(), self.gone, self.basis.held)

    def take(self, uid: str, *, moves: bool = False) -> None:
        self.chosen.append(uid)
        self.lacks = None
        if moves:
            self.moving[uid] = None
        else:
            self.gone.add(*self.giver(uid), -1)

    def leave(self, uid: str) -> None:
        """Spare one of the chosen victims."""
        self.chosen.remove(uid)
        self.lacks = None
        if uid in self.moving:
            del self.moving[uid]
        else:
            self.gone.add(*self.giver(uid))

    def trim(self, enough: Callable[[Search], bool], cost: Callable[[str], Any]) -> None:
        """Spare the victims that the claimant does not need, the dearest first; of equal cost the last chosen first."""
        order = self.chosen[::-1]
        order.sort(key=cost, reverse=True)
        for uid in order:
            at, moves = self.chosen.index(uid), uid in self.moving
            self.leave(uid)
            if not enough(self):
                self.take(uid, moves=moves)
                self.chosen.insert(at, self.chosen.pop())

    def used(self, path: str, resource: str) -> int:
        """The usage of a node without the chosen victims."""
        here = self.ledger.used.get(path, {}).get(resource, 0)
        return here + self.gone.extra.get(path, {}).get(resource, 0)

    def total(self, path: str, resource: str) -> int:
        """``used``, and the amounts held for other claimants."""
        return self.used(path, resource) + self.basis.held.extra.get(path, {}).get(resource, 0)

    def begun(self) -> Search:
        """The search before any victim was chosen."""
        again = search(self.basis, self.queue, self.demand, places=self.places)
        again.parts = self.parts
        return again


def search(given: Basis, queue: str, demand: Demand, *, places: bool = False) -> Search:
    """An empty search for a claimant. ``places``: victims may also be chosen for places on nodes."""
    begun = Search(given, queue, demand, [], Scratch(given.leaving.copied().extra), frozenset(), places=places)
    begun.names = frozenset(short.resource for short in begun.refusals())
    if places and not begun.names:
        begun.names = frozenset(demand.request)
    return begun


class GivingRules(Struct, frozen=True):
    """The rules for one claimant: the work that may be evicted. This base class forbids nothing."""

    objects: ClassVar[tuple[PlanObjection, PlanObjection]] = ("below_min", "beyond_guarantee")
    """The objections to one candidate, and to several candidates together."""

    @property
    def unlocks(self) -> bool:
        """Whether one victim may make another legal: after the first, the work below a common ancestor may be within
        the guarantee of this ancestor.
        """
        return False

    def claims(self) -> Objection:
        """Why these rules evict no work for the claimant."""
        return ""

    def asks(self, leaf: str) -> bool:
        """Whether the rules consider work of a queue."""
        return True

    def in_question(self, leaves: Iterable[str], search: Search) -> Iterator[str]:
        """The queues among ``leaves`` with work that may give; a glance rules out others that the rules consider."""
        return filter(self.asks, leaves)

    def turn(self, leaf: str, search: Search) -> Turn:
        """The turn of a queue to give, the least first; at equal turns the order of runs decides."""
        return ()

    def gives(self, giver: Giver, uid: str, search: Search) -> bool:
        """Whether one more job may leave beside the chosen victims. A refused job stays refused with more victims,
        except where these unlock it.
        """
        return True

    def fair(self, search: Search) -> bool:
        """Whether all chosen victims may leave together."""
        return True
