"""What a search for victims begins with, and how far it has come; the rules of reclaim by guarantee in words.

A claimant is work that stays within a guarantee of its own: that of its leaf, or the part of a higher node's guarantee
that its children do not have. Victims are in queues above their guarantee anywhere outside of that node, never to below
it, at no node between them and the path they share with the claimant. So reclaimed quota can never be claimed again,
and no job is suspended twice for the same guarantee.

The order: the lowest priority first, then the shortest work since its start or last checkpoint, whatever its queue;
work that was evicted more often than it should comes last among its priority. And no more than is needed: of the
chosen, the one that would lose most GPU time is spared first. Before all of them comes what ends by itself first.
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
"""Why victims may not be suspended for a claimant; empty when they may."""

MAX_LOOKS = 10_000
"""Running workloads looked at for one claimant: a budget of steps, so that no search holds up the log."""

RESTART_MS = 60_000
"""What a suspension costs beside the work it throws away: that much running time of the quota it frees."""


FIRST = -(2**62)
"""The youth of work that is evicted before all others of its priority, and loses nothing that counts."""

Turn = tuple[tuple[int, int], ...]
"""How a queue comes in turn to give, the least first: (its priority, minus how far it is above) level by level."""


class Run(NamedTuple):
    """A running workload, in the order in which the work of one queue is evicted."""

    priority: int
    youth: int
    """Minus the log time (ms) from which its work would be lost: its start, or its last checkpoint."""
    came: int
    """Minus the time (ms) from which it counts as queued: of those that are equal the youngest comes first."""
    key: str
    """namespace/name"""
    uid: str


class Alike(Struct):
    """Running work of one queue, one priority and the same amounts, kept together."""

    lots: dict[str, dict[str, list[Run]]] = field(default_factory=dict)
    """leaf -> priority and amounts -> the runs that are alike in both, in the order in which they are evicted"""
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
    """What runs where, and what may be done with it now."""

    runs: Mapping[str, Sequence[Run]]
    """leaf -> its running work in the order in which it is evicted"""
    may: Callable[[str], bool] = lambda _: True
    """Whether a workload may be suspended now."""
    deprioritised: Callable[[str], bool] = lambda _: False
    """Whether a workload is evicted only after the others of its priority."""
    now: int = 0
    """Log time, ms."""
    alike: Alike | None = None
    """All of ``runs``, those that are alike together; None where that is not kept."""
    ending: Callable[[Callable[[str], bool]], Iterable[str]] = lambda _: ()
    """uids of those by whose choice nothing is lost, for they end before a suspension would free anything; of these
    only, and asked first: it may be said of most at a glance that they do not help"""

    moves: Callable[[str], bool] = lambda _: False
    """Whether a workload may start again on other nodes instead, with its quota."""
    most: int = 0
    """So many may move at once."""

    def only(self, runs: Mapping[str, Sequence[Run]]) -> Candidates:
        """The same with other runs."""
        return replace(self, runs=runs, alike=None, ending=lambda _: ())


class Basis(Struct):
    """What a claim is planned against: used - leaving + promised, with age claims left out, for it passes them."""

    ledger: Ledger
    """Without claims."""
    leaving: Scratch
    """The amounts that victims of others will release, as negative amounts."""
    held: Scratch
    """What is held for others."""

    def owed_at(self, queue: str, demand: Demand) -> list[str]:
        """The nodes within whose guarantee a claimant stays, the lowest first."""
        return list(self.ledger.owed_at(queue, demand, self.leaving, self.held))

    def refuses_what_is_owed(self, queue: str, demand: Demand) -> bool:
        """Whether a claimant is refused what it is guaranteed, and not by a limit below the node that guarantees it."""
        level = next(self.ledger.owed_at(queue, demand, self.leaving, self.held), None)
        short = self.short(queue, demand) if level is not None else None
        return level is not None and short is not None and (level == queue or len(short.path) < len(level))

    def refusal(self, queue: str, demand: Demand) -> Shortfall | None:
        """What would refuse a claimant once all claims are served."""
        return next(self.ledger.refusals(queue, demand, self.leaving, held=self.held), None)

    def short(self, queue: str, demand: Demand) -> Shortfall | None:
        """What would refuse it then, or refuses it until then."""
        return self.refusal(queue, demand) or self.awaited(queue, demand)

    def awaited(self, queue: str, demand: Demand) -> Shortfall | None:
        """The shortfall of a claimant until the victims of others have left; None where it fits as it is, or does not
        fit then.
        """
        if not self.leaving.extra or self.refusal(queue, demand) is not None:
            return None
        return next(self.ledger.refusals(queue, demand, held=self.held), None)


def basis(ledger: Ledger, uid: str = "") -> Basis:
    """What a claim of this workload is planned against."""
    return Basis(ledger.without_claims(), ledger.leaving, ledger.claims.promised_beside(uid))


class Giver(NamedTuple):
    """The amounts that one victim releases: a whole job, or one replica of a cluster."""

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
    """The amounts that victims of others and the chosen release, as negative amounts."""
    names: frozenset[str]
    """The resources that are short."""
    moving: dict[str, None] = field(default_factory=dict)
    """Those of the chosen that start again on other nodes: they release no quota."""
    parts: Mapping[str, Giver] = field(default_factory=dict)
    """Replicas that may be chosen instead of whole jobs, by names of their own."""

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
        """Those of the chosen that release their quota."""
        return (self.giver(uid) for uid in self.chosen if uid not in self.moving)

    def copied(self) -> Search:
        """One that goes on from here on its own."""
        extra, firm = ({path: dict(each) for path, each in of.items()} for of in (self.gone.extra, self.gone.firm))
        return replace(self, chosen=list(self.chosen), gone=Scratch(extra, firm), moving={**self.moving})

    def missing(self) -> Shortfall | None:
        """The first limit that still refuses the claimant."""
        return next(self.refusals(), None)

    def refusals(self) -> Iterator[Shortfall]:
        """Every limit that still refuses the claimant."""
        return self.ledger.refusals(self.queue, self.demand, self.gone, held=self.basis.held)

    def managed(self) -> list[str]:
        """What it asks for that anything on its path limits or guarantees."""
        return self.ledger.managed(self.queue, self.demand.request)

    def above_min(self) -> list[str]:
        """The resources in which the claimant's queue would be above its min, the chosen gone."""
        return self.ledger.above_min(self.queue, self.demand, self.managed(), self.gone, self.basis.held)

    def take(self, uid: str, *, moves: bool = False) -> None:
        self.chosen.append(uid)
        if moves:
            self.moving[uid] = None
        else:
            self.gone.add(*self.giver(uid), -1)

    def leave(self, uid: str) -> None:
        """One of the chosen stays."""
        self.chosen.remove(uid)
        if uid in self.moving:
            del self.moving[uid]
        else:
            self.gone.add(*self.giver(uid))

    def trim(self, enough: Callable[[Search], bool], cost: Callable[[str], Any]) -> None:
        """Let go those that the claimant does not need after all, the dearest first; of the same cost the last."""
        order = self.chosen[::-1]
        order.sort(key=cost, reverse=True)
        for uid in order:
            at, moves = self.chosen.index(uid), uid in self.moving
            self.leave(uid)
            if not enough(self):
                self.take(uid, moves=moves)
                self.chosen.insert(at, self.chosen.pop())

    def used(self, path: str, resource: str) -> int:
        """What is used at a node, with the chosen gone."""
        here = self.ledger.used.get(path, {}).get(resource, 0)
        return here + self.gone.extra.get(path, {}).get(resource, 0)


def search(given: Basis, queue: str, demand: Demand, *, places: bool = False) -> Search:
    """An empty search for a claimant; ``places``: victims may also be chosen for its places on the nodes."""
    gone = Scratch({path: dict(vector) for path, vector in given.leaving.extra.items()})
    found = Search(given, queue, demand, [], gone, frozenset())
    found.names = frozenset(short.resource for short in found.refusals())
    if places and not found.names:
        found.names = frozenset(demand.request)
    return found


def most_of(amounts: Iterable[int], limit: int) -> int:
    """The largest sum of some of these amounts that is no more than a limit: where that takes too many steps, a bound
    of it.
    """
    small = [amount for amount in amounts if 0 < amount <= limit]
    unit = gcd(*small)
    if not small or limit // unit > MAX_LOOKS:
        return min(sum(small), limit)
    sums, below = 1, (2 << limit // unit) - 1  # Bit n: n units are the sum of some of them.
    for amount in small:
        sums |= sums << amount // unit & below
    return (sums.bit_length() - 1) * unit


class GivingRules(Struct, frozen=True):
    """The rules for one claimant: which work may be evicted for it. Here those that forbid nothing."""

    keeps: ClassVar[bool] = False
    """Whether each queue keeps its guarantee whatever it gives: that bounds what all of them could give."""
    objects: ClassVar[tuple[PlanObjection, PlanObjection]] = ("below_min", "beyond_guarantee")
    """The objections to one candidate that may not go, and to several that may not go together."""

    def claims(self) -> Objection:
        """Why these rules evict no work for the claimant."""
        return ""

    def asks(self, leaf: str) -> bool:
        """Whether work of a queue comes into question."""
        return True

    def turn(self, leaf: str, found: Search) -> Turn:
        """How a queue comes in turn to give, the least first; of those that are equal the runs decide."""
        return ()

    def gives(self, giver: Giver, found: Search) -> bool:
        """Whether one more may go, with those chosen so far gone. One that may not may neither with more gone."""
        return True

    def fair(self, found: Search) -> bool:
        """Whether all that were chosen may go together."""
        return True
