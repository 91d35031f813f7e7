"""The rules of eviction: which work may be evicted for a claimant. The search and the accountant use the same rules.

Between queues of a quota tree: a queue gives whole jobs as long as it is above its guarantee (``may_go``). Between KAI
queues: a queue above its fair share gives (``Between``). Inside a queue: work of lower priority gives where the tree
lets priority preempt, and jobs with more service give where the tree sets levels of service.

Between KAI queues the claimant's queue stays within its fair share, claimant included; work that is not preemptible
stays within quota at every level. Queues are compared just below the node shared by both. A victim's side gives while
its use is above the larger of quota and share. Where the claimant's side stays within quota in everything, a victim's
side gives while its use of any resource is above quota. In the end no claimant's side is further above its share than a
giving side. No queue gives quota that the queue could claim again: so reclaimed quota is never claimed again. The
comparison covers the resources of the claimant and of the victims.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import ClassVar

from msgspec import field, structs

from muster.core.quota.candidates import Basis, Giver, GivingRules, Objection, Search, Turn
from muster.core.quota.demand import Scratch, chain_of, counted
from muster.core.quota.division.dividing import UNLIMITED
from muster.core.quota.ledger.quotaledger import Ledger, kai_shares, shares_with
from muster.core.quota.ledger.shares import DividedShares
from muster.events.claims import PlanObjection
from muster.model.demand import Demand
from muster.model.keys import root_of
from muster.model.quota import COUNTED
from muster.model.resources import EVERYTHING, summed

# --- between KAI queues -----------------------------------------------------------------------------------------------


UNSPEAKABLE = 2**62
"""The ratio of a queue with usage and no share."""


class Between(GivingRules, frozen=True):
    """The rules for one claimant between KAI queues, with the shares of all queues at this time."""

    objects: ClassVar[tuple[PlanObjection, PlanObjection]] = ("gives_too_much", "unbalanced")

    given: Basis
    queue: str
    demand: Demand
    shares: DividedShares
    names: list[str]
    """The shared resources, sorted."""
    questionable: dict[str, bool] = field(default_factory=dict)
    """leaf -> whether the rules consider the queue; a cache"""
    within: dict[str, bool] = field(default_factory=dict)
    """path -> whether the queue stays within its quota, claimant included; a cache"""
    met: dict[str, tuple[str, str]] = field(default_factory=dict)
    """leaf -> the two sides; a cache"""

    @property
    def ledger(self) -> Ledger:
        return self.given.ledger

    def claims(self) -> Objection:
        return "" if self.may_claim() else "beyond_share"

    def may_claim(self) -> bool:
        """Whether the queue stays within its fair share, claimant included, and within quota for a claimant that is not
        preemptible.
        """
        for name in self.names:
            divided = self.shares.get(self.queue, {}).get(name)
            if (
                divided is None
                or self._used(self.queue, name) + self.demand.request.get(name, 0) > divided.share.amount
            ):
                return False
        return self.demand.preemptible or not any(self.ledger.beyond_mins(self.queue, self.demand, self.given.held))

    def sides(self, leaf: str) -> tuple[str, str]:
        """(the claimant's side, the victim's side) just below the shared node."""
        sides = self.met.get(leaf)
        if sides is None:
            sides = self.met[leaf] = self._sides(leaf)
        return sides

    def _beside(self, leaf: str) -> bool:
        """Whether a queue is in the claimant's tree: queues of other trees share no quota with the claimant."""
        return self.ledger.by_shares(leaf) and root_of(leaf) == root_of(self.queue)

    def _sides(self, leaf: str) -> tuple[str, str]:
        mine, theirs = chain_of(self.queue)[::-1], chain_of(leaf)[::-1]
        for one, other in zip(mine, theirs, strict=False):
            if one != other:
                return one, other
        return mine[-1], theirs[-1]

    def _shareless(self, leaf: str) -> bool:
        """Whether a run is in a queue above the claimant's queue: the run began before the queue had child queues. The
        run has no share beside the children, and cannot start there again.
        """
        return leaf != self.queue and leaf in chain_of(self.queue)

    def gives(self, giver: Giver, uid: str, search: Search) -> bool:
        """Whether a victim's side may give one more job beside the chosen, and cannot take the quota back. The largest
        of a side leaves last: the order in which a search finds the jobs does not matter.
        """
        if self._shareless(giver.queue):
            return True
        if not self.asks(giver.queue):
            return False
        own, side = self.sides(giver.queue)
        keeps = [(name, self._keeps(side, name)) for name in self.names]
        if self._within_quota(own):
            keeps += [(name, self._quota(side, name)) for name in self.names]
        gives = any(
            least != UNLIMITED and self._last_left(giver, side, name, least, search) > least for name, least in keeps
        )
        return gives and not self._comes_back(giver, own, side, search)

    def beside(self, *more: Scratch) -> Between:
        """The same rules once further jobs run."""
        held = dict(self.given.held.extra)
        for path, amounts in chain.from_iterable(scratch.extra.items() for scratch in more):
            held[path] = summed((held.get(path, {}), amounts))
        return between(structs.replace(self.given, held=Scratch(held)), self.queue, self.demand, self.shares)

    def _last_left(self, giver: Giver, side: str, name: str, least: int, search: Search) -> int:
        """The use of a side before its largest victim leaves; a lower bound if above ``least``."""
        left = search.used(side, name)
        if left > least or not search.chosen:
            return left
        amounts = (one.request.get(name, 0) for one in search.givers() if self.sides(one.queue)[1] == side)
        return left - giver.request.get(name, 0) + max(giver.request.get(name, 0), *amounts, 0)

    def _comes_back(self, giver: Giver, own: str, side: str, search: Search) -> bool:
        """Whether a victim of this side could reclaim the quota: the side would be within quota again with the victim
        back, and the claimant's side above quota.
        """
        asked, gives = self.demand.request, giver.request
        if any(self._quota(side, name) - search.used(side, name) + gives.get(name, 0) < 0 for name in self.names):
            return False
        if all(search.used(own, name) + asked.get(name, 0) <= self._quota(own, name) for name in self.names):
            return False
        room = {name: self._quota(side, name) - search.used(side, name) + gives.get(name, 0) for name in self.names}
        gone = (giver, *search.givers())
        return any(
            self._fits_back(victim, giver, room, search) for victim in gone if self.sides(victim.queue)[1] == side
        )

    def _fits_back(self, one: Giver, last: Giver, room: Mapping[str, int], search: Search) -> bool:
        """Whether one victim fits into ``room`` and into the share of its queue; ``last``: the last victim."""
        for name in self.names:
            asked = one.request.get(name, 0)
            used = search.used(one.queue, name) - (last.request.get(name, 0) if last.queue == one.queue else 0)
            if asked > room[name] or used + asked > self._share(one.queue, name):
                return False
        return True

    def asks(self, leaf: str) -> bool:
        """Whether the rules consider a queue, before any of its work is looked at."""
        considered = self.questionable.get(leaf)
        if considered is None:
            considered = self.questionable[leaf] = self._asks(leaf)
        return considered

    def _asks(self, leaf: str) -> bool:
        if leaf == self.queue or not self._beside(leaf):
            return False
        if self._shareless(leaf):
            return True
        own, side = self.sides(leaf)
        if side not in self.ledger.nodes:
            return False  # The queue was deleted or is disabled: running work there has no share.
        if not self._within_quota(own):
            return any(self._above_share(side, name, self._used(side, name)) for name in self.names)
        asked = [name for name in self.names if self.demand.request.get(name)]
        limited = [name for name in asked if self._quota(side, name) != EVERYTHING]
        if any(self._used(side, name) > self._quota(side, name) for name in limited):
            return True
        return not any(self._used(side, name) < self._quota(side, name) for name in limited)

    def fair(self, search: Search) -> bool:
        """Whether in no resource the claimant's side ends further above its share than a giving side."""
        taken: dict[str, set[str]] = {}
        for giver in search.givers():
            if not self._shareless(giver.queue):
                taken.setdefault(giver.queue, set()).update(name for name, amount in giver.request.items() if amount)
        for leaf, given in taken.items():
            own, side = self.sides(leaf)
            for name in self.names:
                if name not in given and not self.demand.request.get(name):
                    continue
                mine = search.used(own, name) + self.demand.request.get(name, 0)
                whole, theirs = self._share(own, name), self._share(side, name)
                if mine <= whole or theirs <= 0:
                    continue
                if not whole or mine * theirs >= search.used(side, name) * whole:
                    return False
        return True

    def turn(self, leaf: str, search: Search) -> Turn:
        """The turn of a queue to give, level by level from the top: lower priority first, then the largest ratio of use
        to the kept amount.
        """
        if self._shareless(leaf):
            return ()
        return tuple(self._turn(at, search) for at in reversed(chain_of(leaf)[:-1]) if at in self.ledger.nodes)

    def _turn(self, path: str, search: Search) -> tuple[int, int]:
        part = 0
        for name in self.names:
            keeps = self._keeps(path, name)
            used = search.used(path, name)
            if keeps != UNLIMITED and used:
                part = max(part, used * 1_000_000 // keeps if keeps else UNSPEAKABLE)
        return (self.ledger.nodes[path].priority, -part)

    def _above_share(self, path: str, name: str, used: int) -> bool:
        keeps = self._keeps(path, name)
        return keeps != UNLIMITED and used > keeps

    def _within_quota(self, path: str) -> bool:
        within = self.within.get(path)
        if within is None:
            asked = self.demand.request
            within = self.within[path] = all(
                self._used(path, name) + asked.get(name, 0) <= self._quota(path, name) for name in self.names
            )
        return within

    def _keeps(self, path: str, name: str) -> int:
        return self.shares[path][name].allocatable

    def _share(self, path: str, name: str) -> int:
        return self.shares[path][name].share.amount

    def _quota(self, path: str, name: str) -> int:
        return self.ledger.nodes[path].guaranteed.get(name, 0)

    def _used(self, path: str, name: str) -> int:
        """The usage of a node once all claims are served."""
        parts = (self.ledger.used, self.given.leaving.extra, self.given.held.extra)
        return sum(part.get(path, {}).get(name, 0) for part in parts)


def between(given: Basis, queue: str, demand: Demand, shares: DividedShares | None = None) -> Between:
    """The rules for a claimant between KAI queues."""
    ledger = given.ledger
    if shares is None:
        shares = kai_shares(ledger) if demand.jobs else shares_with(ledger, "", queue, demand)
    return Between(given, queue, demand, shares, sorted(ledger.nodes[root_of(queue)].limit.keys() - COUNTED))


# --- giving -----------------------------------------------------------------------------------------------------------


def may_go(giver: Giver, uid: str, search: Search, level: str) -> bool:
    """Whether one more job may be evicted beside the chosen for a claimant that the guarantee of node ``level`` covers.

    Claimant and job share a node above ``level``. Then the job goes where all this holds in one resource that the job
    releases and that is short at the shared node or above:

    - every node of the job's side uses more than its guarantee before the job goes;
    - so it does with the job and those of its queue that rank before it alone: a later loan of its queue costs no job
      its place. For a place on nodes it is enough that the job's side keeps its guarantee without the job: which job
      leaves is then a matter of the node;
    - every node of the claimant's side from ``level`` on stays within its guarantee, the claimant included.

    An amount by flavor that the claimant is not guaranteed may be covered by the rest of the guarantee beside its
    amounts by flavor. Such a claimant takes from nodes that are beyond their guarantees in both ways.

    A job leaves as a whole, so a queue may end below its guarantee. It then claims the rest as any other queue does.
    """
    mine, theirs = chain_of(search.queue), chain_of(giver.queue)
    if level in theirs:
        return False
    asked, ledger = search.demand.request, search.ledger
    at = next(place for place, path in enumerate(theirs) if path in mine)
    sides, own = theirs[:at], mine[mine.index(level) : mine.index(theirs[at])]
    return any(
        _above(giver, uid, name, sides, search)
        and _of_any_flavor(
            name,
            [path for path in own if search.total(path, name) + asked[name] > ledger.nodes[path].owes.get(name, 0)],
            sides,
            search,
        )
        for name in search.helps(giver, theirs[at])
    )


def _of_any_flavor(name: str, over: Sequence[str], sides: Iterable[str], search: Search) -> bool:
    """Whether the guarantee that no flavor has covers the claimant at the nodes ``over`` the amount of its flavor, and
    then covers none of the nodes of the job's side.
    """
    if not over:
        return True
    if "@" not in name or any(search.of_any_flavor(path, name, search.demand.request) < 0 for path in over):
        return False
    return all(search.of_any_flavor(path, name) < 0 for path in sides)


def _above(giver: Giver, uid: str, name: str, sides: Sequence[str], search: Search) -> bool:
    """Whether a job is a loan in this resource: see ``may_go``. A node without a queue guarantees nothing."""
    nodes, leaf = search.ledger.nodes, giver.queue
    least = {path: nodes[path].guaranteed.get(name, 0) if path in nodes else 0 for path in sides}
    if any(search.total(path, name) <= least[path] for path in sides):
        return False
    amount = giver.request.get(name, 0)
    if search.places and all(search.total(path, name) - amount >= least[path] for path in sides):
        return True
    return not least.get(leaf) or amount > least[leaf] or search.upto(uid, leaf, name) > least[leaf]


def borrowing(leaves: Iterable[str], search: Search, level: str) -> Iterator[str]:
    """The leaves where ``may_go`` may allow a job, at a glance: they use more than their guarantee of a resource of
    which ``level`` guarantees what the claimant asks for. With further victims gone no other leaf does.
    """
    ledger, mine = search.ledger, chain_of(search.queue)
    nodes, owes, asked = ledger.nodes, ledger.nodes[level].owes, search.demand.request
    names = [name for name in asked if "@" in name or search.total(level, name) + asked[name] <= owes.get(name, 0)]
    used, others = ledger.used, (search.gone.extra, search.basis.held.extra)
    for leaf in leaves:
        here, least = used.get(leaf, {}), nodes[leaf].guaranteed if leaf in nodes else {}
        if leaf in others[0] or leaf in others[1]:
            here = summed((here, *[other[leaf] for other in others if leaf in other]))
        for name in names:
            if here.get(name, 0) > least.get(name, 0):
                yield leaf
                break
        else:
            if leaf in mine:
                yield leaf


class OfGuarantee(GivingRules, frozen=True):
    """Queues above their guarantee give to a claimant that a guarantee covers."""

    queue: str
    level: str
    """The lowest node whose guarantee covers the claimant: no work below this node is evicted. Empty without such a
    node.
    """
    for_good: bool = False
    """No victim is owed its quota afterwards. Such victims always exist where all guarantees can be met at once."""

    @property
    def unlocks(self) -> bool:
        return len(chain_of(self.level)) > 2

    def claims(self) -> Objection:
        return "" if self.level else "beyond_guarantee"

    def asks(self, leaf: str) -> bool:
        return self.level not in chain_of(leaf) and root_of(leaf) == root_of(self.queue)

    def in_question(self, leaves: Iterable[str], search: Search) -> Iterator[str]:
        return filter(self.asks, borrowing(leaves, search, self.level))

    def gives(self, giver: Giver, uid: str, search: Search) -> bool:
        return may_go(giver, uid, search, self.level)

    def fair(self, search: Search) -> bool:
        """Whether the rule allows the victims in their order, and no victim is owed its quota once the claimant has
        started, if that is asked.
        """
        again = search.begun()
        for uid in search.chosen if self.unlocks else ():
            if uid not in search.moving and not may_go(search.giver(uid), uid, again, self.level):
                return False
            again.take(uid, moves=uid in search.moving)
        if not self.for_good:
            return True
        started = Scratch()
        started.add(search.queue, search.demand)
        gone = (search.gone, started, search.basis.held)
        return not any(search.ledger.owed(giver.queue, giver.demand, *gone) for giver in search.givers())


class Inside(GivingRules, frozen=True):
    """Work of the claimant's own queue is evicted; the order of candidates ensures lower priority.

    With these victims gone, the claimant may be within the min of its queue: then other queues above their min may give
    the rest.
    """

    given: Basis
    queue: str
    demand: Demand
    others: bool = True

    def claims(self) -> Objection:
        """Work that is not preemptible takes nothing from lower priorities beyond the min."""
        ledger = self.given.ledger
        node = ledger.nodes.get(self.queue)
        within = self.demand.preemptible or not any(ledger.beyond_mins(self.queue, self.demand, self.given.held))
        return "" if node is not None and node.preempts and within else "not_preempting"

    def asks(self, leaf: str) -> bool:
        return leaf == self.queue or (self.others and root_of(leaf) == root_of(self.queue))

    def turn(self, leaf: str, search: Search) -> Turn:
        """The claimant's own queue first, until the claimant is within the min without the chosen victims."""
        if not self.others:
            return ()
        return ((0 if (leaf == self.queue) == bool(search.above_min()) else 1, 0),)

    def gives(self, giver: Giver, uid: str, search: Search) -> bool:
        return giver.queue == self.queue or (self.others and may_go(giver, uid, search, self.queue))

    def fair(self, search: Search) -> bool:
        if all(giver.queue == self.queue for giver in search.givers()):
            return True
        return bool(search.managed()) and not search.above_min()


class OfService(GivingRules, frozen=True):
    """Jobs of any queue with more service than the claimant give; every other queue is above its guarantee before."""

    queue: str

    def gives(self, giver: Giver, uid: str, search: Search) -> bool:
        mine, theirs = chain_of(self.queue), chain_of(giver.queue)
        sides = [path for path in theirs if path not in mine]
        return giver.queue == self.queue or any(
            _above(giver, uid, name, sides, search) for name in search.helps(giver, search.queue)
        )


class MovesOnly(GivingRules, frozen=True):
    """No job releases quota: jobs may only move."""

    def gives(self, giver: Giver, uid: str, search: Search) -> bool:
        return False


def rules(
    given: Basis, queue: str, demand: Demand, *, inside: bool = False, shares: DividedShares | None = None
) -> GivingRules:
    """The rules for owed quota. ``inside``: the rules for priority in the claimant's queue. ``shares``: of KAI queues,
    if known.
    """
    if inside:
        return Inside(given, queue, demand)
    if given.ledger.by_shares(queue):
        return between(given, queue, demand, shares)
    return OfGuarantee(queue, given.owed_at(queue, demand))


def giving_objection(judge: GivingRules, search: Search, chosen: Iterable[str], *, places: bool = False) -> Objection:
    """Why these victims may not be suspended for the claimant of an empty search, judged again; empty when allowed.

    ``places``: the victims also make places on nodes; then the stage that places gangs judges the number of victims.
    """
    chosen = list(chosen)
    objection = judge.claims()
    if objection or not search.names:
        return objection or "fits"
    begun = search.copied()
    objection = _taken(judge, search, chosen)
    if objection or places:
        return objection
    givers = {uid: search.giver(uid) for uid in chosen}
    alike = {(giver.queue, *sorted(counted(giver.demand).items())): uid for uid, giver in givers.items()}
    rests = ([other for other in chosen if other != uid] for uid in alike.values())
    return "too_many_victims" if any(not _taken(judge, begun.copied(), rest) for rest in rests) else ""


def _taken(judge: GivingRules, search: Search, uids: Iterable[str]) -> Objection:
    """Take the victims one after the other; return the first objection."""
    one, together = judge.objects
    for uid in uids:
        if not search.knows(uid):
            return "victim_left"
        giver = search.giver(uid)
        if not judge.asks(giver.queue) or not judge.gives(giver, uid, search):
            return one
        search.take(uid)
    if search.missing() is not None:
        return "not_enough"
    return "" if judge.fair(search) else together
