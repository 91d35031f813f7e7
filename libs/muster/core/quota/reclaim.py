"""Reclaim by guarantee: whose work is suspended so that a claimant gets what it is guaranteed.

Who may claim: work that stays within a guarantee of its own: its leaf's, or what a node above it is guaranteed beyond
its children. Who gives: queues above their guarantee anywhere outside of that node, never to below it, at no node
between them and the path they share with the claimant. So what was taken back can never be claimed back, and nobody is
suspended twice for the same guarantee.

In which order: the lowest priority first, then who has worked the shortest time since its start or last checkpoint,
whatever queue it is of; those who have been evicted more often than they should come last among their priority. And no
more than is needed, those being let go first who would lose most GPU time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import gcd
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from muster.core.quota.demand import Charge, Scratch, chain_of, counted
from muster.core.quota.ledger.ledger import Ledger
from muster.events.claims import PlanObjection
from muster.model.demand import Demand, Shortfall

Objection = PlanObjection | Literal[""]
"""Why victims may not be suspended for a claimant; empty when they may."""

MAX_LOOKS = 10_000
"""Running workloads looked at for one claimant: a budget of steps, so that no search holds up the log."""

RESTART_MS = 60_000
"""What a suspension costs beside the work it throws away: that much running of what it frees."""


FIRST = -(2**62)
"""The youth of what gives way before all others of its priority, and loses nothing that counts."""

Turn = tuple[tuple[int, int], ...]
"""How a queue comes in turn to give, the least first: (its priority, minus how far it is above) level by level."""


class Run(NamedTuple):
    """A running workload, in the order in which the work of one queue gives way."""

    priority: int
    youth: int
    """Minus the log time (ms) from which its work would be lost: its start, or its last checkpoint."""
    came: int
    """Minus the time (ms) from which it counts as queued: of those that are equal the youngest comes first."""
    key: str
    """namespace/name"""
    uid: str


class Market(Struct):
    """What runs where, and what may be done with it now."""

    runs: Mapping[str, Sequence[Run]]
    """leaf -> its running work in the order in which it gives way"""
    may: Callable[[str], bool] = lambda _: True
    """Whether a workload may be suspended now."""
    last: Callable[[str], bool] = lambda _: False
    """Whether a workload gives way only after the others of its priority."""
    now: int = 0
    """Log time, ms."""


class Basis(Struct):
    """What a claim is planned against: used - leaving + held, with age claims left out, for they give way to it."""

    ledger: Ledger
    """With nothing held for anybody."""
    leaving: Scratch
    """What those who leave for others will have given back, as negative amounts."""
    held: Scratch
    """What is held for others."""

    def owed_at(self, queue: str, demand: Demand) -> list[str]:
        """The nodes within whose guarantee a claimant stays, the lowest first."""
        return list(self.ledger.owed_at(queue, demand, self.leaving, self.held))

    def refuses_what_is_owed(self, queue: str, demand: Demand) -> bool:
        """Whether a claimant is refused what it is guaranteed, and not by a limit below the node that guarantees it."""
        level = next(self.ledger.owed_at(queue, demand, self.leaving, self.held), None)
        short = self.refusal(queue, demand) if level is not None else None
        return level is not None and short is not None and (level == queue or len(short.path) < len(level))

    def refusal(self, queue: str, demand: Demand) -> Shortfall | None:
        """What would refuse a claimant once all claims are served."""
        return next(self.ledger.refusals(queue, demand, self.leaving, held=self.held), None)


def basis(ledger: Ledger, uid: str = "") -> Basis:
    """What a claim of this workload is planned against."""
    return Basis(ledger.without_claims(), ledger.leaving, ledger.claims.firmly_held_from(uid))


class Search(Struct):
    """One search for victims: what is still missing, and who has been chosen."""

    basis: Basis
    queue: str
    demand: Demand
    level: str
    """The node within whose guarantee the claimant stays: nobody below it gives. Its own queue for one of priority."""
    chosen: list[str]
    gone: Scratch
    """What those who leave for others and the chosen give back, as negative amounts."""
    names: frozenset[str]
    """The resources that are short."""

    @property
    def ledger(self) -> Ledger:
        return self.basis.ledger

    def copied(self) -> Search:
        """One that goes on from here on its own."""
        extra, firm = ({path: dict(each) for path, each in of.items()} for of in (self.gone.extra, self.gone.firm))
        return replace(self, chosen=list(self.chosen), gone=Scratch(extra, firm))

    def missing(self) -> Shortfall | None:
        """The first limit that still refuses the claimant."""
        return next(self.ledger.refusals(self.queue, self.demand, self.gone, held=self.basis.held), None)

    def all_missing(self) -> set[str]:
        """The resources in which a limit still refuses the claimant."""
        refusals = self.ledger.refusals(self.queue, self.demand, self.gone, held=self.basis.held)
        return {short.resource for short in refusals}

    def above_min(self, managed: Iterable[str]) -> list[str]:
        """Of ``managed``, the resources in which the claimant's queue would be above its min, the chosen gone."""
        return self.ledger.above_min(self.queue, self.demand, managed, self.gone, self.basis.held)

    def spares(self, charge: Charge) -> bool:
        """Whether it is of another queue, and nothing between it and the shared path falls below its min without it."""
        path = chain_of(charge.queue)
        if self.level in path or self.queue == charge.queue:
            return False
        amounts, shared = counted(charge.demand), set(chain_of(self.queue))
        for at in path:
            node = self.ledger.nodes.get(at)
            if node is None or at in shared:
                continue
            for name in self.names:
                taken = amounts.get(name, 0)
                if taken and self.used(at, name) - taken < node.guaranteed.get(name, 0):
                    return False
        return True

    def take(self, uid: str) -> None:
        charge = self.ledger.charges[uid]
        self.chosen.append(uid)
        self.gone.add(charge.queue, charge.demand, -1)

    def verdict(self) -> Literal["", "not_enough", "too_many_victims"]:
        """What is wrong with all that were chosen together; empty when they make room and none of them is too many."""
        if self.missing() is not None:
            return "not_enough"
        before = len(self.chosen)
        self.trim()
        return "" if len(self.chosen) == before else "too_many_victims"

    def trim(self, enough: Callable[[Search], bool] | None = None, cost: Callable[[str], Any] | None = None) -> None:
        """Let go the victims that the claimant does not need after all, the dearest first, else those chosen last.

        ``enough``: what those who are left must be good for; by default that the claimant fits.
        """
        order = list(reversed(self.chosen))
        if cost is not None:
            order.sort(key=cost, reverse=True)
        last = len(order) - 1
        for number, uid in enumerate(order):
            charge = self.ledger.charges[uid]
            # Those before one that was chosen earlier are still in their places where the last goes first.
            at = last - number if cost is None else self.chosen.index(uid)
            del self.chosen[at]
            self.gone.add(charge.queue, charge.demand)
            if not (enough(self) if enough is not None else self.missing() is None):
                self.chosen.insert(at, uid)
                self.gone.add(charge.queue, charge.demand, -1)

    def used(self, path: str, resource: str) -> int:
        """What is used at a node, with the chosen gone."""
        here = self.ledger.used.get(path, {}).get(resource, 0)
        return here + self.gone.extra.get(path, {}).get(resource, 0)


def search(given: Basis, queue: str, demand: Demand) -> Search:
    """An empty search for a claimant."""
    gone = Scratch({path: dict(vector) for path, vector in given.leaving.extra.items()})
    level = next(given.ledger.owed_at(queue, demand, given.leaving, given.held), queue)
    found = Search(given, queue, demand, level, [], gone, frozenset())
    found.names = frozenset(found.all_missing())
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


def below_min(given: Basis, queue: str, demand: Demand, chosen: Iterable[str]) -> Objection:
    """Why these may not give way for what a claimant is guaranteed, however many of them are needed."""
    if not given.owed_at(queue, demand):
        return "beyond_guarantee"
    found = search(given, queue, demand)
    found.names = found.names or frozenset(demand.request)
    for uid in chosen:
        charge = found.ledger.charges.get(uid)
        if charge is None:
            return "victim_left"
        if not found.spares(charge):
            return "below_min"
        found.take(uid)
    return ""


def objection(given: Basis, queue: str, demand: Demand, chosen: Iterable[str], *, places: bool = False) -> Objection:
    """Why these victims may not be suspended for this claimant, judged afresh; empty when they may. ``places``: they
    are for its places on the nodes as well: how many of them these take is judged there.
    """
    chosen = list(chosen)
    found = search(given, queue, demand)
    if not found.names:
        return "fits" if given.owed_at(queue, demand) else "beyond_guarantee"
    refused = below_min(given, queue, demand, chosen)
    if refused:
        return refused
    for uid in chosen:
        found.take(uid)
    said = found.verdict()
    return "" if places and said == "too_many_victims" else said
