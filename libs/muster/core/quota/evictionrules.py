"""Which work may be evicted for which claimant, by the rules of each profile.

Reclaim between KAI queues: which jobs may take quota back, and from which.

A claimant's queue stays within its fair share with it (and work that is not preemptible within the quota, at every
level). Queues are compared just under the node they share. A victim's side gives while it uses more than it may keep,
the larger of quota and share; or, where the claimant's side stays within its quota in everything, while it uses more
than its quota of anything. In the end no claimant's side may be further above its share than a side that gave, and no
queue gives what it could claim again by its quota: so reclaimed quota is never claimed again. Compared are the
resources that the claimant or a victim has to do with.

The work that may be evicted, by the rules of each profile: the search asks them about every candidate, and the
accountant judges proposals by the same rules.

Between queues of a quota tree those above their guarantee give, down to that and no further; between KAI queues those
above their share (``Between``). Inside a queue work of lower priority gives, where the tree lets priority
preempt, and jobs that have had more service than the claimant give where the tree asks for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

from msgspec import field

from muster.core.quota.candidates import Basis, Giver, GivingRules, Objection, Search, Turn
from muster.core.quota.demand import chain_of, counted
from muster.core.quota.division.dividing import UNLIMITED
from muster.core.quota.ledger.quotaledger import Ledger, kai_shares, shares_with
from muster.core.quota.ledger.shares import DividedShares
from muster.events.claims import PlanObjection
from muster.model.demand import Demand
from muster.model.keys import root_of
from muster.model.quota import COUNTED
from muster.model.resources import EVERYTHING

# --- between KAI queues -----------------------------------------------------------------------------------------------


UNSPEAKABLE = 2**62
"""The ratio of a queue that uses what it has no share of."""


class Between(GivingRules, frozen=True):
    """One claimant, and the shares of all queues while it is judged."""

    objects: ClassVar[tuple[PlanObjection, PlanObjection]] = ("gives_too_much", "unbalanced")

    given: Basis
    queue: str
    demand: Demand
    shares: DividedShares
    names: list[str]
    """The resources that queues share, sorted."""
    questionable: dict[str, bool] = field(default_factory=dict)
    """leaf -> whether it comes into question at all, as far as that was asked"""
    within: dict[str, bool] = field(default_factory=dict)
    """path -> whether it stays within its quota with the claimant, as far as that was asked"""
    met: dict[str, tuple[str, str]] = field(default_factory=dict)
    """leaf -> the sides, as far as they were asked for"""

    @property
    def ledger(self) -> Ledger:
        return self.given.ledger

    def claims(self) -> Objection:
        return "" if self.may_claim() else "beyond_share"

    def may_claim(self) -> bool:
        """Whether its queue stays within its fair share with it, and within quota if it is not preemptible."""
        for name in self.names:
            found = self.shares.get(self.queue, {}).get(name)
            if found is None or self._used(self.queue, name) + self.demand.request.get(name, 0) > found.share.amount:
                return False
        return self.demand.preemptible or not any(self.ledger.beyond_mins(self.queue, self.demand, self.given.held))

    def sides(self, leaf: str) -> tuple[str, str]:
        """(the claimant's side, the victim's side) just under the node both share."""
        found = self.met.get(leaf)
        if found is None:
            found = self.met[leaf] = self._sides(leaf)
        return found

    def _beside(self, leaf: str) -> bool:
        """Whether a queue is in the claimant's tree: queues of other trees have no share of its quota."""
        return self.ledger.by_shares(leaf) and root_of(leaf) == root_of(self.queue)

    def _sides(self, leaf: str) -> tuple[str, str]:
        mine, theirs = chain_of(self.queue)[::-1], chain_of(leaf)[::-1]
        for one, other in zip(mine, theirs, strict=False):
            if one != other:
                return one, other
        return mine[-1], theirs[-1]

    def _shareless(self, leaf: str) -> bool:
        """Whether what runs there began before its queue got queues below it, of which the claimant's is one: it has no
        share beside theirs, and cannot start there again.
        """
        return leaf != self.queue and leaf in chain_of(self.queue)

    def gives(self, giver: Giver, found: Search) -> bool:
        """Whether a victim's side may give one more, with those chosen so far gone, and cannot take it back."""
        if self._shareless(giver.queue):
            return True
        if not self.asks(giver.queue):
            return False
        own, side = self.sides(giver.queue)
        left = {name: found.used(side, name) for name in self.names}
        gives = any(self._above_share(side, name, left[name]) for name in self.names) or (
            self._within_quota(own) and any(left[name] > self._quota(side, name) for name in self.names)
        )
        return gives and not self._comes_back(giver, own, side, found)

    def _comes_back(self, giver: Giver, own: str, side: str, found: Search) -> bool:
        """Whether with one more gone a victim of its side, itself or one chosen before, would be within the quota of
        that side again, and the claimant's side above its own: it would reclaim what it gave.
        """
        asked, gives = self.demand.request, giver.request
        if any(self._quota(side, name) - found.used(side, name) + gives.get(name, 0) < 0 for name in self.names):
            return False
        if all(found.used(own, name) + asked.get(name, 0) <= self._quota(own, name) for name in self.names):
            return False
        room = {name: self._quota(side, name) - found.used(side, name) + gives.get(name, 0) for name in self.names}
        gone = (giver, *found.givers())
        return any(self._fits_back(each, giver, room, found) for each in gone if self.sides(each.queue)[1] == side)

    def _fits_back(self, one: Giver, last: Giver, room: Mapping[str, int], found: Search) -> bool:
        """Whether one of those gone fits into ``room`` and into the share of its queue; ``last``: the last victim."""
        for name in self.names:
            asked = one.request.get(name, 0)
            used = found.used(one.queue, name) - (last.request.get(name, 0) if last.queue == one.queue else 0)
            if asked > room[name] or used + asked > self._share(one.queue, name):
                return False
        return True

    def asks(self, leaf: str) -> bool:
        """Whether a queue comes into question at all, before any of its work is looked at."""
        found = self.questionable.get(leaf)
        if found is None:
            found = self.questionable[leaf] = self._asks(leaf)
        return found

    def _asks(self, leaf: str) -> bool:
        if leaf == self.queue or not self._beside(leaf):
            return False
        if self._shareless(leaf):
            return True
        own, side = self.sides(leaf)
        if side not in self.ledger.nodes:
            return False  # Its queue was deleted, or is disabled: what runs there has no share to be above.
        if not self._within_quota(own):
            return any(self._above_share(side, name, self._used(side, name)) for name in self.names)
        asked = [name for name in self.names if self.demand.request.get(name)]
        limited = [name for name in asked if self._quota(side, name) != EVERYTHING]
        if any(self._used(side, name) > self._quota(side, name) for name in limited):
            return True
        return not any(self._used(side, name) < self._quota(side, name) for name in limited)

    def fair(self, found: Search) -> bool:
        """Whether no side of the claimant ends further above its share than one that gave, in any resource."""
        taken: dict[str, set[str]] = {}
        for giver in found.givers():
            if not self._shareless(giver.queue):
                taken.setdefault(giver.queue, set()).update(name for name, amount in giver.request.items() if amount)
        for leaf, given in taken.items():
            own, side = self.sides(leaf)
            for name in self.names:
                if name not in given and not self.demand.request.get(name):
                    continue
                mine = found.used(own, name) + self.demand.request.get(name, 0)
                whole, theirs = self._share(own, name), self._share(side, name)
                if mine <= whole or theirs <= 0:
                    continue
                if not whole or mine * theirs >= found.used(side, name) * whole:
                    return False
        return True

    def turn(self, leaf: str, found: Search) -> Turn:
        """How a queue comes in turn to give: lower priority first, then the largest part of its limit for keeping; of
        those under one queue the same is asked below it, level by level.
        """
        if self._shareless(leaf):
            return ()
        return tuple(self._turn(at, found) for at in reversed(chain_of(leaf)[:-1]) if at in self.ledger.nodes)

    def _turn(self, path: str, found: Search) -> tuple[int, int]:
        part = 0
        for name in self.names:
            keeps = self._keeps(path, name)
            used = found.used(path, name)
            if keeps != UNLIMITED and used:
                part = max(part, used * 1_000_000 // keeps if keeps else UNSPEAKABLE)
        return (self.ledger.nodes[path].priority, -part)

    def _above_share(self, path: str, name: str, used: int) -> bool:
        keeps = self._keeps(path, name)
        return keeps != UNLIMITED and used > keeps

    def _within_quota(self, path: str) -> bool:
        found = self.within.get(path)
        if found is None:
            asked = self.demand.request
            found = self.within[path] = all(
                self._used(path, name) + asked.get(name, 0) <= self._quota(path, name) for name in self.names
            )
        return found

    def _keeps(self, path: str, name: str) -> int:
        return self.shares[path][name].allocatable

    def _share(self, path: str, name: str) -> int:
        return self.shares[path][name].share.amount

    def _quota(self, path: str, name: str) -> int:
        return self.ledger.nodes[path].guaranteed.get(name, 0)

    def _used(self, path: str, name: str) -> int:
        """What is used there once all claims are served."""
        parts = (self.ledger.used, self.given.leaving.extra, self.given.held.extra)
        return sum(part.get(path, {}).get(name, 0) for part in parts)


def between(given: Basis, queue: str, demand: Demand, shares: DividedShares | None = None) -> Between:
    """A claimant as it is judged."""
    ledger = given.ledger
    if shares is None:
        shares = kai_shares(ledger) if demand.jobs else shares_with(ledger, "", queue, demand)
    return Between(given, queue, demand, shares, sorted(ledger.nodes[root_of(queue)].limit.keys() - COUNTED))


# --- giving -----------------------------------------------------------------------------------------------------------


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
    given: Basis, queue: str, demand: Demand, *, inside: bool = False, shares: DividedShares | None = None
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
