"""The start of a search for victims and its progress so far; the rules of reclaim by guarantee in words.

A claimant is work that stays within a guarantee: the guarantee of its leaf, or the part of a higher node's guarantee
that the children of that node do not have. Victims are in queues above their guarantee, outside of this node. On the
path of a victim, below the nodes shared with the claimant, no node falls below its guarantee. So reclaimed quota can
never be claimed again, and no job is suspended twice for the same guarantee.

The order: the lowest priority first, then the shortest work since start or last checkpoint, in any queue. Work evicted
too often comes last among its priority. The search takes no more than needed: of the chosen victims the one with the
most GPU time to lose is spared first. Jobs that end by themselves come before all others.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import gcd
from typing import Any, ClassVar, Literal, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from muster.core.quota.demand import Scratch
from muster.core.quota.ledger.quotaledger import Ledger
from muster.events.claims import PlanObjection
from muster.model.demand import Demand, Shortfall
from muster.model.resources import Vector

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
    deprioritised: Callable[[str], bool] = lambda _: False
    """Whether a workload is evicted after all other workloads of its priority."""
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

    def owed_at(self, queue: str, demand: Demand) -> list[str]:
        """The nodes whose guarantee covers the claimant, the lowest first."""
        return list(self.ledger.owed_at(queue, demand, self.leaving, self.held))

    def refuses_what_is_owed(self, queue: str, demand: Demand) -> bool:
        """Whether the claimant is refused its guarantee, and not by a limit below the guaranteeing node."""
        level = next(self.ledger.owed_at(queue, demand, self.leaving, self.held), None)
        short = self.short(queue, demand) if level is not None else None
        return level is not None and short is not None and (level == queue or len(short.path) < len(level))

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
        extra, firm = ({path: dict(vector) for path, vector in of.items()} for of in (self.gone.extra, self.gone.firm))
        return replace(self, chosen=list(self.chosen), gone=Scratch(extra, firm), moving={**self.moving})

    def missing(self) -> Shortfall | None:
        """The first limit that still refuses the claimant."""
        return next(self.refusals(), None)

    def refusals(self) -> Iterator[Shortfall]:
        """Every limit that still refuses the claimant."""
        return self.ledger.refusals(self.queue, self.demand, self.gone, held=self.basis.held)

    def managed(self) -> list[str]:
        """The requested resources with a limit or a guarantee anywhere on the queue's path."""
        return self.ledger.managed(self.queue, self.demand.request)

    def above_min(self) -> list[str]:
        """The resources in which the claimant's queue would be above its min, without the chosen victims."""
        return self.ledger.above_min(self.queue, self.demand, self.managed(), self.gone, self.basis.held)

    def take(self, uid: str, *, moves: bool = False) -> None:
        self.chosen.append(uid)
        if moves:
            self.moving[uid] = None
        else:
            self.gone.add(*self.giver(uid), -1)

    def leave(self, uid: str) -> None:
        """Spare one of the chosen victims."""
        self.chosen.remove(uid)
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


def search(given: Basis, queue: str, demand: Demand, *, places: bool = False) -> Search:
    """An empty search for a claimant. ``places``: victims may also be chosen for places on nodes."""
    gone = Scratch({path: dict(vector) for path, vector in given.leaving.extra.items()})
    begun = Search(given, queue, demand, [], gone, frozenset())
    begun.names = frozenset(short.resource for short in begun.refusals())
    if places and not begun.names:
        begun.names = frozenset(demand.request)
    return begun


def most_of(amounts: Iterable[int], limit: int) -> int:
    """The largest sum of some of these amounts within the limit; an upper bound where the sum takes too many steps."""
    small = [amount for amount in amounts if 0 < amount <= limit]
    unit = gcd(*small)
    if not small or limit // unit > MAX_LOOKS:
        return min(sum(small), limit)
    sums, below = 1, (2 << limit // unit) - 1  # Bit n: some of the amounts sum to n units.
    for amount in small:
        sums |= sums << amount // unit & below
    return (sums.bit_length() - 1) * unit


class GivingRules(Struct, frozen=True):
    """The rules for one claimant: the work that may be evicted. This base class forbids nothing."""

    keeps: ClassVar[bool] = False
    """Whether each queue keeps its guarantee in any case: this bounds the amount that all queues could give."""
    objects: ClassVar[tuple[PlanObjection, PlanObjection]] = ("below_min", "beyond_guarantee")
    """The objections to one candidate, and to several candidates together."""

    def claims(self) -> Objection:
        """Why these rules evict no work for the claimant."""
        return ""

    def asks(self, leaf: str) -> bool:
        """Whether the rules consider work of a queue."""
        return True

    def turn(self, leaf: str, search: Search) -> Turn:
        """The turn of a queue to give, the least first; at equal turns the order of runs decides."""
        return ()

    def gives(self, giver: Giver, search: Search) -> bool:
        """Whether one more job may leave beside the chosen victims. A refused job stays refused with more victims."""
        return True

    def fair(self, search: Search) -> bool:
        """Whether all chosen victims may leave together."""
        return True
