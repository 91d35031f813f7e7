"""The ledger: what fits at a queue beside all that is charged and held, and by which limit or guarantee.

The accountant decides on it; every other stage folds the same events into a copy, to foresee and to explain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import structs

from muster.core.objects.labels import quota_name
from muster.core.quota.claim import Claim
from muster.core.quota.claims import Claims
from muster.core.quota.demand import Scratch, chain_of, counted, lent_beside
from muster.core.quota.ledger.books import Books
from muster.core.quota.ledger.shortfalls import short_of, short_of_min
from muster.model.demand import Demand, Shortfall
from muster.model.quota import KAI_ROOT, QuotaNode
from muster.model.resources import Vector, add_into
from muster.model.workload import Workload

UNBOUNDED = 2**62
"""The share of a queue that uses what it has no min for."""

_NOTHING: Mapping[str, int] = {}


class Ledger(Books):
    """The books, and what may be added to them."""

    def without_claims(self) -> Ledger:
        """The same charges without claims; for reading only."""
        return structs.replace(self, claims=Claims())

    def taken(self, queue: str, *scratches: Scratch) -> Iterator[tuple[QuotaNode, list[Mapping[str, int]], Vector]]:
        """(node, what is used there as parts of a sum, what others keep there from ``queue``), leaf first."""
        outside: Vector = {}
        child = ""
        for path in chain_of(queue):
            node = self.nodes.get(path)
            if node is None:
                continue
            parts = [self.used.get(path), *[scratch.extra.get(path) for scratch in scratches]]
            if self.lends:
                for sibling in node.children:
                    if child and sibling != child:
                        add_into(outside, self.kept.get(sibling, _NOTHING))
            yield node, [part for part in parts if part], outside
            child = path

    def shortfall(
        self, queue: str, demand: Demand, *scratches: Scratch, now: int | None = None, uid: str = ""
    ) -> Shortfall | None:
        """What refuses the demand at ``queue`` with the scratches on top, None when it fits; O(depth x resources).

        What is held for a claimant is not free for any other; ``now``: log time (ms) at which it would be admitted,
        where it may pass claims for age by the run time it declares. A limit that no release helps comes first, and
        of those one that people set before what the nodes have by now.
        ``uid``: its own, for it may have a claim that serves no other that asks alike.
        """
        others = self.held_from(queue, demand, *scratches, now=now, mine=self.claims.by_uid.get(uid))
        found = self.refusals(queue, demand, *scratches, held=others)
        first = next(found, None)
        if first is None and demand.preemptible:
            return None
        least = () if demand.preemptible else self.beyond_mins(queue, demand, *scratches, held=others)
        rest = iter((*found, *least))
        first = first or next(rest, None)
        if first is None or (first.hopeless and first.path != KAI_ROOT):
            return first
        final = (each for each in (first, *rest) if each.hopeless)
        return min(final, key=lambda each: each.path == KAI_ROOT, default=first)

    def refusals(
        self, queue: str, demand: Demand, *scratches: Scratch, held: Scratch | None = None, now: int | None = None
    ) -> Iterator[Shortfall]:
        """Every limit that refuses the demand, leaf first. ``held``: for claimants; None: as claims say."""
        others = self.held_from(queue, demand, *scratches, now=now) if held is None else held
        amounts = sorted(counted(demand).items())
        weighted = self.shares.names
        for node, parts, kept in self.taken(queue, *scratches):
            beside = others.extra.get(node.path, _NOTHING)
            for name, asked in amounts:
                limit = self.limit(node, name) if weighted else node.limit.get(name)
                if limit is None or not asked:
                    continue
                used = 0
                for part in parts:
                    used += part.get(name, 0)
                claimed, spared = beside.get(name, 0), kept.get(name, 0)
                if used + claimed + spared + asked > limit:
                    yield short_of(self.claims, node, name, asked, used, limit, held=claimed, kept=spared)

    def short_now(self, short: Shortfall, queue: str, demand: Demand, now: int) -> Shortfall:
        """A refusal with the numbers of ``now``: it lasts as long as it holds, while all of them may move."""
        node, name = self.nodes.get(short.path), short.resource
        if node is None:
            return short
        others = self.held_from(queue, demand, now=now)
        if short.of_min:
            used = self.firm.get(node.path, _NOTHING).get(name, 0)
            return short_of_min(self.claims, node, name, short.asked, used, others)
        found = next(((parts, kept) for each, parts, kept in self.taken(queue) if each.path == short.path), None)
        limit = self.limit(node, name)
        if found is None or limit is None:
            return short
        parts, kept = found
        used, held = sum(part.get(name, 0) for part in parts), others.extra.get(node.path, _NOTHING).get(name, 0)
        return short_of(self.claims, node, name, short.asked, used, limit, held=held, kept=kept.get(name, 0))

    def held_from(
        self, queue: str, demand: Demand, *scratches: Scratch, now: int | None, mine: Claim | None = None
    ) -> Scratch:
        """What claims hold against a demand."""
        own = self.claims.serving(queue, demand, mine)
        firmly = any(claim.firm for claim in own)  # Then it passes those for age, whatever it is owed.
        owed = firmly or (bool(self.claims.total.extra) and self.owed(queue, demand, *scratches))
        lent = owed and not firmly and lent_beside(self.nodes, self.used, queue, demand)
        return self.claims.held_from(queue, demand, own, owed=owed, lent=lent, now=now)

    def is_final(self, short: Shortfall) -> bool:
        """Whether what was refused, as more than may be used there at all, is more than that still."""
        if not short.hopeless:
            return False
        node = self.nodes.get(short.path)
        limit = self.limit(node, short.resource) if node is not None else 0
        return limit is not None and short.asked > limit

    def limit(self, node: QuotaNode, resource: str) -> int | None:
        """How much a subtree may use now: its max, or less where the tree divides by weight; None for any amount."""
        most = node.limit.get(resource)
        share = self.shares.runtime.get(node.path, _NOTHING).get(resource) if self.shares.names else None
        if share is None or most is None:
            return most if share is None else share
        return min(most, share)

    def beyond_mins(
        self, queue: str, demand: Demand, *scratches: Scratch, held: Scratch | None = None
    ) -> Iterator[Shortfall]:
        """Every min that the demand would pass as work that is not preemptible, leaf first. ``held``: for claimants."""
        managed = self.managed(queue, demand.request)
        for path in chain_of(queue):
            node = self.nodes.get(path)
            if node is None:
                continue
            for name in managed:
                used = self.firm.get(path, _NOTHING).get(name, 0)
                used += sum(scratch.firm.get(path, _NOTHING).get(name, 0) for scratch in scratches)
                short = short_of_min(self.claims, node, name, demand.request[name], used, held)
                if short.missing > 0:
                    yield short

    def managed(self, queue: str, request: Mapping[str, int]) -> list[str]:
        """The asked resources that anything on the path limits or guarantees, sorted: the others are not managed."""
        nodes = [node for path in chain_of(queue) if (node := self.nodes.get(path)) is not None]
        return [
            name
            for name in sorted(request)
            if request[name] and any(name in node.limit or name in node.guaranteed for node in nodes)
        ]

    def owed(self, queue: str, demand: Demand, *scratches: Scratch) -> bool:
        """Whether the demand stays within a guarantee of its own, in everything the tree manages."""
        return next(self.owed_at(queue, demand, *scratches), None) is not None

    def owed_at(self, queue: str, demand: Demand, *scratches: Scratch) -> Iterator[str]:
        """The nodes within whose guarantee the demand stays, the lowest first.

        What an inner node is guaranteed beyond its children is theirs together: any of them may claim it from outside
        of that node, but not what the others leave of their own guarantees. At the root there is no outside.
        """
        managed = self.managed(queue, demand.request) if queue in self.nodes else []
        child = ""
        for path in chain_of(queue)[:-1] if managed else ():
            if path in self.nodes and not self.above_min(path, demand, managed, *scratches):
                beside = self._unfilled(path, child, managed, *scratches) if child else {}
                if not beside or not self.above_min(path, demand, managed, *scratches, Scratch({path: beside})):
                    yield path
            child = path

    def _unfilled(self, path: str, but: str, names: Iterable[str], *scratches: Scratch) -> Vector:
        """The unused guarantees of the children of a node, one apart: no other node may claim them."""
        total: Vector = {}
        for child in self.nodes[path].children:
            least = self.nodes[child].guaranteed
            if child == but or not least:
                continue
            used = [part for part in (self.used.get(child), *[each.extra.get(child) for each in scratches]) if part]
            for name in names:
                left = least.get(name, 0) - sum([part.get(name, 0) for part in used])
                if left > 0:
                    total[name] = total.get(name, 0) + left
        return total

    def above_min(self, path: str, demand: Demand, managed: Iterable[str], *scratches: Scratch) -> list[str]:
        """Of ``managed``, the resources in which the demand would take a node above its own guarantee."""
        least = self.nodes[path].guaranteed
        used = [part for part in (self.used.get(path), *[each.extra.get(path) for each in scratches]) if part]
        return [
            name
            for name in managed
            if sum([part.get(name, 0) for part in used]) + demand.request[name] > least.get(name, 0)
        ]

    def room(self, queue: str, path: str, resource: str, *, of_min: bool = False) -> int | None:
        """How much of a resource is free for ``queue`` at one node on its path, claims apart.

        None when nothing limits it there; may be negative. ``of_min``: how much what is not preemptible may grow.
        """
        node = self.nodes.get(path)
        if node is None:
            return None
        if of_min:
            return node.guaranteed.get(resource, 0) - self.firm.get(path, _NOTHING).get(resource, 0)
        if not self.lends:
            return self.headroom(path, resource)
        limit = self.limit(node, resource)
        found = next(((*parts, kept) for each, parts, kept in self.taken(queue) if each.path == path), None)
        return None if limit is None or found is None else limit - sum(part.get(resource, 0) for part in found)

    def headroom(self, path: str, resource: str) -> int | None:
        """How much of a resource is free at one node by its own limit; None when it has no limit there."""
        node = self.nodes.get(path)
        limit = self.limit(node, resource) if node else None
        return None if limit is None else limit - self.used.get(path, _NOTHING).get(resource, 0)


def leaf_of(ledger: Ledger, workload: Workload) -> str | None:
    """The leaf a workload belongs to, None when no queue claims it."""
    return ledger.leaf_for(workload.ref.namespace, quota_name(workload.labels))
