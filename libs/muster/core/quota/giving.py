"""The work that may be evicted, by the rules of each profile: the search asks them about every candidate, and the
accountant judges proposals by the same rules.

Between queues of a quota tree those above their guarantee give, down to that and no further; between KAI queues those
above their share (``kaireclaim.py``). Inside a queue work of lower priority gives, where the tree lets priority
preempt, and jobs that have had more service than the claimant give where the tree asks for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

from muster.core.quota.demand import chain_of, counted
from muster.core.quota.kaireclaim import between
from muster.core.quota.ledger.fairshares import Shares
from muster.core.quota.reclaim import Basis, Giver, GivingRules, Objection, Search, Turn
from muster.model.demand import Demand


class OfGuarantee(GivingRules, frozen=True):
    """Queues that use more than their guarantee give to one that uses less."""

    keeps: ClassVar[bool] = True

    queue: str
    level: str
    """The node within whose guarantee the claimant stays: no work below it is evicted. Empty where there is none."""

    def claims(self) -> Objection:
        return "" if self.level else "beyond_guarantee"

    def asks(self, leaf: str) -> bool:
        return leaf != self.queue and self.level not in chain_of(leaf)

    def gives(self, giver: Giver, found: Search) -> bool:
        return self.asks(giver.queue) and spares(giver, found)


class Inside(GivingRules, frozen=True):
    """Work of the claimant's own queue is evicted; the order ensures that it is of lower priority.

    Where that brings the queue so low that the claimant is within its min, others above theirs may give the rest.
    """

    given: Basis
    queue: str
    demand: Demand
    others: bool = True

    def claims(self) -> Objection:
        """What is not preemptible takes nothing from work of lower priority beyond the min."""
        ledger = self.given.ledger
        node = ledger.nodes.get(self.queue)
        within = self.demand.preemptible or not any(ledger.beyond_mins(self.queue, self.demand, self.given.held))
        return "" if node is not None and node.preempts and within else "not_preempting"

    def asks(self, leaf: str) -> bool:
        return leaf == self.queue or self.others

    def turn(self, leaf: str, found: Search) -> Turn:
        """Its own until the claimant is within its min without them."""
        if not self.others:
            return ()
        return ((0 if (leaf == self.queue) == bool(found.above_min()) else 1, 0),)

    def gives(self, giver: Giver, found: Search) -> bool:
        return giver.queue == self.queue or (self.others and spares(giver, found))

    def fair(self, found: Search) -> bool:
        if all(giver.queue == self.queue for giver in found.givers()):
            return True
        return bool(found.managed()) and not found.above_min()


class OfService(GivingRules, frozen=True):
    """Jobs that have had more service than the claimant, of any queue; no other queue falls below its guarantee."""

    queue: str

    def gives(self, giver: Giver, found: Search) -> bool:
        return giver.queue == self.queue or spares(giver, found)


class MovesOnly(GivingRules, frozen=True):
    """No job gives its quota: others may only move."""

    def gives(self, giver: Giver, found: Search) -> bool:
        return False


def spares(giver: Giver, found: Search) -> bool:
    """Whether nothing between a giver and the path it shares with the claimant falls below its min without it: in the
    resources that are short, or, where it has none of them, in all that are asked for: it gives those on the nodes.
    """
    amounts, shared, ledger = counted(giver.demand), set(chain_of(found.queue)), found.ledger
    short, asked = ([name for name in each if amounts.get(name)] for each in (found.names, found.demand.request))
    for at in chain_of(giver.queue):
        node = ledger.nodes.get(at)
        if node is None or at in shared:
            continue
        if any(found.used(at, name) - amounts[name] < node.guaranteed.get(name, 0) for name in short or asked):
            return False
    return True


def rules(
    given: Basis, queue: str, demand: Demand, *, inside: bool = False, shares: Shares | None = None
) -> GivingRules:
    """The rules for the quota that a claimant is owed; ``inside``: for its priority in its own queue. ``shares``: of
    KAI queues, if known.
    """
    if inside:
        return Inside(given, queue, demand)
    if given.ledger.by_shares(queue):
        return between(given, queue, demand, shares)
    return OfGuarantee(queue, next(iter(given.owed_at(queue, demand)), ""))


def giving_objection(
    judge: GivingRules,
    found: Search,
    chosen: Iterable[str],
    may: Callable[[str], Objection] = lambda _: "",
    *,
    places: bool = False,
) -> Objection:
    """Why these may not be suspended for the claimant of an empty search, judged again; empty when they may.

    ``may``: what is said of one whatever leaves beside it. ``places``: they are for its places on the nodes as well:
    how many of them these take is judged there.
    """
    chosen = list(chosen)
    said = judge.claims() or next((each for uid in chosen if (each := may(uid))), "")
    if said or not found.names:
        return said or "fits"
    begun = found.copied()
    said = _taken(judge, found, chosen)
    if said or places:
        return said
    givers = {uid: found.giver(uid) for uid in chosen}
    alike = {(giver.queue, *sorted(counted(giver.demand).items())): uid for uid, giver in givers.items()}
    rests = ([each for each in chosen if each != uid] for uid in alike.values())
    return "too_many_victims" if any(not _taken(judge, begun.copied(), rest) for rest in rests) else ""


def _taken(judge: GivingRules, found: Search, uids: Iterable[str]) -> Objection:
    """Take them one after the other: why that may not be, or is not enough."""
    one, together = judge.objects
    for uid in uids:
        if not found.knows(uid):
            return "victim_left"
        giver = found.giver(uid)
        if not judge.asks(giver.queue) or not judge.gives(giver, found):
            return one
        found.take(uid)
    if found.missing() is not None:
        return "not_enough"
    return "" if judge.fair(found) else together
