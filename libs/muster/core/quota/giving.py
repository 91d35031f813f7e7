"""Who may give way, by the rules of each profile: every search asks them, and the accountant judges by them.

Between queues of a quota tree those above their guarantee give, down to that and no further; between KAI queues those
above their share. Inside a queue work of lower priority gives, where the tree lets priority preempt.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from msgspec import Struct

from muster.core.quota import inqueue
from muster.core.quota.demand import Charge, chain_of
from muster.core.quota.kaireclaim import Between, between
from muster.core.quota.reclaim import Basis, Objection, Search, Turn
from muster.model.demand import Demand

Taken = Mapping[str, Collection[str]]
"""leaf -> the resources that were taken from it"""


class GivingRules(Protocol):
    """The rules for one claimant."""

    @property
    def keeps(self) -> bool:
        """Whether each queue keeps its guarantee whatever it gives: that bounds what all of them could give."""

    def asks(self, leaf: str) -> bool:
        """Whether work of a queue comes into question."""

    def turn(self, leaf: str, found: Search) -> Turn:
        """How a queue comes in turn to give, the least first; of those that are equal the runs decide."""

    def gives(self, charge: Charge, found: Search) -> bool:
        """Whether one more may go, with those chosen so far gone. One that may not may neither with more gone."""

    def fair(self, found: Search, taken: Taken | None = None) -> bool:
        """Whether all that were chosen may go together. ``taken``: from which queues, where no whole job goes."""


class OfGuarantee(Struct, frozen=True):
    """Queues that use more than their guarantee give to one that uses less."""

    queue: str
    level: str
    """The node within whose guarantee the claimant stays: nobody below it gives."""
    keeps: bool = True

    def asks(self, leaf: str) -> bool:
        return leaf != self.queue and self.level not in chain_of(leaf)

    def turn(self, leaf: str, found: Search) -> Turn:
        return ()

    def gives(self, charge: Charge, found: Search) -> bool:
        return found.spares(charge)

    def fair(self, found: Search, taken: Taken | None = None) -> bool:
        return True


class OfShare(Struct, frozen=True):
    """KAI queues above what they may keep give to one within its share."""

    between: Between
    keeps: bool = False

    def asks(self, leaf: str) -> bool:
        return self.between.may_give(leaf)

    def turn(self, leaf: str, found: Search) -> Turn:
        return self.between.excess(leaf, found)

    def gives(self, charge: Charge, found: Search) -> bool:
        return self.between.may_give(charge.queue) and self.between.gives(charge, found)

    def fair(self, found: Search, taken: Taken | None = None) -> bool:
        return self.between.balanced(found) if taken is None else self.between.balanced_against(found, taken)


class Inside(Struct, frozen=True):
    """Work of the claimant's own queue gives way; that it is of lower priority is seen to by the order."""

    queue: str
    keeps: bool = False

    def asks(self, leaf: str) -> bool:
        return leaf == self.queue

    def turn(self, leaf: str, found: Search) -> Turn:
        return ()

    def gives(self, charge: Charge, found: Search) -> bool:
        return charge.queue == self.queue

    def fair(self, found: Search, taken: Taken | None = None) -> bool:
        return True


def by_replica(given: Basis, queue: str, demand: Demand, *, inside: bool) -> tuple[GivingRules | None, Objection]:
    """The rules where single workers go, one replica after the other, and why the claimant may take none so; None where
    whole sums count: between queues of an ElasticQuotaTree.
    """
    if inside:
        allowed = inqueue.allowed(given.ledger, queue, demand, given.held)
        return Inside(queue), "" if allowed else "not_preempting"
    if not given.ledger.by_shares(queue):
        return None, ""
    rules = between(given, queue, demand)
    return OfShare(rules), "" if rules.may_claim() else "beyond_share"
