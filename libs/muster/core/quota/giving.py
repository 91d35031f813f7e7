"""Who may give single workers, one replica after the other: between KAI queues, and inside a queue.

Between KAI queues each replica is taken as a victim of its own: its side must still be above what it may keep before it
goes, and the queue whose turn it is gives next. Inside a queue clusters of strictly lower priority give, the lowest
first, where the tree lets priority preempt.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct

from muster.core.quota import inqueue
from muster.core.quota.demand import Charge
from muster.core.quota.kaireclaim import Between, between
from muster.core.quota.reclaim import Basis, Objection, Search
from muster.model.demand import Demand


class GivingRules(Struct):
    """The rules for one claimant."""

    queue: str
    between: Between | None
    """How KAI queues are compared; None inside the claimant's own queue."""
    objection: Objection
    """Why it may claim nothing like that at all; empty when it may."""

    def asks(self, leaf: str) -> bool:
        """Whether clusters of a queue come into question."""
        return leaf == self.queue if self.between is None else self.between.may_give(leaf)

    def gives(self, charge: Charge, found: Search) -> bool:
        """Whether one replica may go, with those taken so far gone."""
        return self.between is None or self.between.gives(charge, found)

    def excess(self, leaf: str, found: Search) -> tuple[int, int]:
        """How a queue comes in turn to give; the least first."""
        return (0, 0) if self.between is None else self.between.excess(leaf, found)

    def balanced(self, found: Search, taken: Mapping[str, Collection[str]]) -> bool:
        """Whether the claimant ends no further above its share than who gave. ``taken``: {leaf: resources}."""
        return self.between is None or self.between.balanced_against(found, taken)


def judge_of(given: Basis, queue: str, demand: Demand, *, inside: bool) -> GivingRules | None:
    """The rules by replica; None where whole sums count: between queues of an ElasticQuotaTree."""
    if inside:
        allowed = inqueue.allowed(given.ledger, queue, demand, given.held)
        return GivingRules(queue, None, "" if allowed else "not_preempting")
    if not given.ledger.by_shares(queue):
        return None
    rules = between(given, queue, demand)
    return GivingRules(queue, rules, "" if rules.may_claim() else "beyond_share")
