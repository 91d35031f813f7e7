"""The ledger, with the questions about it: limits, shares, and sums counted again.

A limit that refuses a demand, with its numbers: what is used, what is held beside it, and for which claimant.

The ledger: what fits at a queue beside all that is charged and held, and by which limit or guarantee.

The accountant decides on it; every other stage folds the same events into a copy, to foresee and to explain.

The part of a node that others are owed: a job that needs it gains nothing by waiting for their releases.

Whether a workload still waits as it was queued: one rule for the stage that proposes and the one that answers.

What is decided at one sequence takes effect at a later one. Because both sides ask the same question of the same
facts, a proposal that is void when it is answered is not made again before something has changed.

The fair shares of queues by the ledger: the quota of their root, divided by charges and requests.

Sums of the ledger counted again from their parts, for audits to compare with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import structs
from msgspec.structs import replace

from muster.core.objects.meta import quota_name
from muster.core.quota.claims import Claim, Claims
from muster.core.quota.demand import Scratch, chain_of, counted, demand_of, lent_beside, spread
from muster.core.quota.division.dividing import Divided
from muster.core.quota.ledger.books import Books
from muster.core.quota.ledger.shares import DividedShares, divided
from muster.model.demand import Demand, Shortfall
from muster.model.quota import KAI_ROOT, QuotaNode, QuotaTree
from muster.model.resources import Vector, add_into
from muster.model.workload import Workload

# --- shortfalls -------------------------------------------------------------------------------------------------------


def short_of(
    claims: Claims, node: QuotaNode, name: str, asked: int, used: int, now: int, *, held: int, kept: int
) -> Shortfall:
    """The shortfall at the limit of a node, ``now``. A request over the max is refused for its max."""
    most = node.limit.get(name)
    limit = most if most is not None and asked > most else now
    claimant = claims.claimant_at(node.path, name) if held else ""
    return Shortfall(
        node.path, name, asked, used, limit, held=held, claimant=claimant, kept=kept, of_runtime=limit != most
    )


def short_of_min(
    claims: Claims, node: QuotaNode, name: str, asked: int, used: int, others: Scratch | None
) -> Shortfall:
    """Of the min, which what is not preemptible stays within. ``others``: what is held for claimants."""
    held = others.firm.get(node.path, {}).get(name, 0) if others is not None else 0
    claimant, least = claims.claimant_at(node.path, name) if held else "", node.guaranteed.get(name, 0)
    return Shortfall(node.path, name, asked, used, least, of_min=True, held=held, claimant=claimant)


# --- ledger -----------------------------------------------------------------------------------------------------------


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


# --- owing ------------------------------------------------------------------------------------------------------------


class Owing:
    """What queues are owed at one moment: summed up once for each node."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._sums: dict[str, Vector] = {}

    def beside(self, queue: str, demand: Demand) -> tuple[str, str, int] | None:
        """(path, resource, how much of it other queues there use or ask for within their guarantees) where a demand
        would need some of that, too; None where it does not.
        """
        ledger = self._ledger
        if ledger.by_shares(queue):
            return None  # There a share is what others leave.
        asked = counted(demand)
        for path in chain_of(queue):
            node = ledger.nodes.get(path)
            if node is None or not node.children:
                continue
            own, owed = self._at(queue), self._at(path)
            for name, amount in asked.items():
                others = owed.get(name, 0) - own.get(name, 0)
                if amount and others and name in node.limit and amount + others > node.limit[name]:
                    return path, name, others
        return None

    def _at(self, path: str) -> Vector:
        """What all queues at or below a node use or ask for within their guarantees."""
        if path not in self._sums:
            found = self._sums[path] = Vector()
            for leaf in _leaves(self._ledger, path):
                used, waiting = self._ledger.used.get(leaf, {}), self._ledger.waiting.get(leaf, {})
                for name, least in self._ledger.nodes[leaf].guaranteed.items():
                    amount = min(least, used.get(name, 0) + waiting.get(name, 0))
                    found[name] = found.get(name, 0) + amount
        return self._sums[path]


def _leaves(ledger: Ledger, path: str) -> list[str]:
    found, inner = list[str](), [path]
    while inner:
        node = ledger.nodes.get(inner.pop())
        if node is not None and node.children:
            inner += node.children
        elif node is not None:
            found.append(node.path)
    return found


# --- waiting ----------------------------------------------------------------------------------------------------------


def waits(workload: Workload | None) -> bool:
    """Whether it is suspended, asks to run, and is not on hold."""
    return workload is not None and workload.waits


def still_waits(ledger: Ledger, workload: Workload | None, queue: str, demand: Demand) -> bool:
    """Whether it waits at this leaf, for this demand, with all that is in its digest."""
    return (
        workload is not None
        and waits(workload)
        and leaf_of(ledger, workload) == queue
        and _demands(ledger, workload, queue) == _by_rules(ledger, queue, demand)
    )


def _demands(ledger: Ledger, workload: Workload, queue: str) -> Demand:
    return _by_rules(ledger, queue, demand_of(ledger.tree_of(queue), workload))


def _by_rules(ledger: Ledger, queue: str, demand: Demand) -> Demand:
    """Without what follows from PriorityClasses in a KAI queue: only the sorter knows their values."""
    return replace(demand, preemptible=True) if ledger.by_shares(queue) else demand


# --- the shares of KAI queues -----------------------------------------------------------------------------------------


def kai_shares(ledger: Ledger) -> DividedShares:
    """Of every queue; empty where there are none: as they are kept, or counted where no stage keeps them."""
    if ledger.fair.settled:
        return ledger.fair.shares
    found: dict[str, Mapping[str, Divided]] = {}
    for tree in ledger.trees.values():
        if tree.by_shares:
            found |= divided(tree, requests(ledger, tree), ledger.usage)
    return found


def shares_with(ledger: Ledger, uid: str, queue: str, demand: Demand) -> DividedShares:
    """The shares with the demand of this job, also while it waits for nodes and is in no queue, or grows."""
    asks = any(uid in each for each in (ledger.asks, ledger.charges, ledger.claims.by_uid))
    more = not demand.jobs or not asks
    return shares_beside(ledger, queue, {queue: demand.request} if more else {})


def shares_beside(ledger: Ledger, queue: str, more: Mapping[str, Vector]) -> DividedShares:
    """The shares in the tree of a queue where leaves ask for so much more."""
    tree = ledger.tree_of(queue)
    if tree is None:
        return {}
    if ledger.fair.settled:
        return ledger.fair.beside(tree, more, ledger.usage)
    asked = requests(ledger, tree)
    for leaf, amounts in more.items():
        if leaf in asked:
            add_into(asked[leaf], amounts)
    return divided(tree, asked, ledger.usage)


def requests(ledger: Ledger, tree: QuotaTree) -> dict[str, Vector]:
    """What is charged to every leaf, and what waits for it: {path: amounts}."""
    found: dict[str, Vector] = {node.path: {} for node in tree.nodes if not node.children}
    for leaf, total in found.items():
        add_into(total, ledger.used.get(leaf, {}))
        add_into(total, ledger.waiting.get(leaf, {}))
    return found


# --- counted again, for audits ----------------------------------------------------------------------------------------


def recounted_used(ledger: Ledger) -> dict[str, Vector]:
    """What is used at each node, from the charges."""
    total: dict[str, Vector] = {}
    for charge in ledger.charges.values():
        spread(total, charge.queue, counted(charge), 1)
    return total


def recounted_leaving(ledger: Ledger) -> Scratch:
    """The amounts released by the workloads that leave for a claim or for room on the nodes."""
    gone = Scratch()
    for uid in ledger.claims.leaving:
        if uid in ledger.charges:
            gone.add(ledger.charges[uid].queue, ledger.charges[uid].demand, -1)
    for uid, part in ledger.claims.cuts.items():
        if uid in ledger.charges and uid not in ledger.claims.leaving:
            gone.add(ledger.charges[uid].queue, part.demand, -1)
    return gone


def recounted_held(ledger: Ledger) -> dict[str, Vector]:
    """What claims hold at each node."""
    found: dict[str, Vector] = {}
    for claim in ledger.claims.by_uid.values():
        fresh = structs.replace(claim, lacking=ledger.lacking(claim))
        for path in claim.paths():
            add_into(found.setdefault(path, {}), fresh.held_at(path))
    return {path: amounts for path, amounts in found.items() if amounts}


def recounted_waiting(ledger: Ledger) -> dict[str, Vector]:
    """The waiting amounts of every leaf, from the requests."""
    found: dict[str, Vector] = {}
    for uid, ask in ledger.asks.items():
        if uid not in ledger.charges:
            add_into(found.setdefault(ask.queue, {}), ask.request)
    for uid, claim in ledger.claims.by_uid.items():
        if uid not in ledger.charges and uid not in ledger.asks:
            add_into(found.setdefault(claim.queue, {}), claim.demand.request)
    return {queue: total for queue, total in found.items() if total}


def recounted_shares(ledger: Ledger) -> list[str]:
    """The queues whose fair shares are not those that all requests make."""
    trees = [tree for tree in ledger.trees.values() if tree.by_shares]
    fresh = [divided(tree, requests(ledger, tree), ledger.usage) for tree in trees] if ledger.fair.settled else []
    return [path for found in fresh for path, mine in found.items() if mine != ledger.fair.shares[path]]
