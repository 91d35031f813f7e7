"""The ledger: whether a request fits at a queue beside all charges and claims, and the refusing limit or guarantee.

The accountant decides on the ledger. Every other stage folds the same events into a copy, to foresee and to explain.
The ledger answers:

- the shortfall: the refusing limit with its numbers (used, held beside, and the claimant);
- the part of a node owed to other queues: a job with need of this part gains nothing from a release there;
- whether a workload still waits as in its queueing: one rule for the proposing and the answering stage;
- the fair shares of queues: the quota of their root, divided by charges and requests;
- sums counted again from their parts, for audits.

A decision of one sequence takes effect at a later sequence. Both sides ask the same question of the same facts, so a
proposal void at its answer is not made again before a change.
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
from muster.model.keys import root_of
from muster.model.quota import KAI_ROOT, QuotaNode, QuotaTree
from muster.model.resources import Vector, add_into, summed, total_of
from muster.model.workload import Workload

# --- shortfalls -------------------------------------------------------------------------------------------------------


def short_of(
    claims: Claims, node: QuotaNode, name: str, asked: int, used: int, now: int, *, held: int, kept: int
) -> Shortfall:
    """The shortfall at the limit of a node, ``now``. A request above the max is refused by the max."""
    most = node.limit.get(name)
    limit = most if most is not None and asked > most else now
    claimant, others = claims.claimants_at(node.path, name) if held else ("", ())
    moves = limit != most
    return Shortfall(
        node.path, name, asked, used, limit, held=held, claimant=claimant, beside=others, kept=kept, of_runtime=moves
    )


def short_of_min(
    claims: Claims, node: QuotaNode, name: str, asked: int, used: int, others: Scratch | None
) -> Shortfall:
    """The shortfall at the min of a node, the limit of work that is not preemptible. ``others``: the amounts held for
    claimants.
    """
    held, least = (
        (others.firm.get(node.path, {}) if others is not None else {}).get(name, 0),
        node.guaranteed.get(name, 0),
    )
    claimant, rest = claims.claimants_at(node.path, name) if held else ("", ())
    return Shortfall(node.path, name, asked, used, least, of_min=True, held=held, claimant=claimant, beside=rest)


# --- ledger -----------------------------------------------------------------------------------------------------------


UNBOUNDED = 2**62
"""The share of a queue with usage and no min."""

_NOTHING: Mapping[str, int] = {}


class Ledger(Books):
    """The books, and whether a request fits beside them."""

    def without_claims(self) -> Ledger:
        """The same charges without claims; for reading only."""
        return structs.replace(self, claims=Claims())

    def taken(self, queue: str, *scratches: Scratch) -> Iterator[tuple[QuotaNode, list[Mapping[str, int]], Vector]]:
        """(node, its usage as parts of a sum, the amounts that siblings of ``queue``'s path keep there), leaf first."""
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
        """The shortfall of the demand at ``queue`` on top of the scratches, None when the demand fits; O(depth x
        resources).

        Quota held for a claimant is not free for any other job. ``now``: log time (ms) of the admission, where the
        demand may pass age claims by its declared run time. A limit that no release helps comes first; among such
        limits a limit set by people comes before the capacity of the nodes. ``uid``: the job's own uid, because the
        job's claim may serve no other job.
        """
        others = self.held_from(queue, demand, *scratches, now=now, mine=self.claims.by_uid.get(uid))
        refusals = self.refusals(queue, demand, *scratches, held=others)
        first = next(refusals, None)
        if first is None and demand.preemptible:
            return None
        least = () if demand.preemptible else self.beyond_mins(queue, demand, *scratches, held=others)
        rest = iter((*refusals, *least))
        first = first or next(rest, None)
        if first is None or (first.hopeless and first.path != KAI_ROOT):
            return first
        final = (short for short in (first, *rest) if short.hopeless)
        return min(final, key=lambda short: short.path == KAI_ROOT, default=first)

    def refusals(
        self, queue: str, demand: Demand, *scratches: Scratch, held: Scratch | None = None, now: int | None = None
    ) -> Iterator[Shortfall]:
        """Every limit that refuses the demand, leaf first. ``held``: the amounts held for claimants; None: by the
        claims.
        """
        others = self.held_from(queue, demand, *scratches, now=now) if held is None else held
        amounts = sorted(counted(demand).items())
        if demand.flavors:
            amounts = [part for part in amounts if "@" in part[0]] + [part for part in amounts if "@" not in part[0]]
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
                claimed, spared = beside.get(name, 0) if beside else 0, kept.get(name, 0) if kept else 0
                if used + claimed + spared + asked > limit:
                    yield short_of(self.claims, node, name, asked, used, limit, held=claimed, kept=spared)

    def short_now(self, short: Shortfall, queue: str, demand: Demand, now: int) -> Shortfall:
        """A refusal with the numbers of ``now``: a refusal lasts, while its numbers may change."""
        node, name = self.nodes.get(short.path), short.resource
        if node is None:
            return short
        others = self.held_from(queue, demand, now=now)
        if short.of_min:
            used = self.firm.get(node.path, _NOTHING).get(name, 0)
            return short_of_min(self.claims, node, name, short.asked, used, others)
        taken = next(((parts, kept) for node, parts, kept in self.taken(queue) if node.path == short.path), None)
        limit = self.limit(node, name)
        if taken is None or limit is None:
            return short
        parts, kept = taken
        used, held = sum(part.get(name, 0) for part in parts), others.extra.get(node.path, _NOTHING).get(name, 0)
        return short_of(self.claims, node, name, short.asked, used, limit, held=held, kept=kept.get(name, 0))

    def held_from(
        self, queue: str, demand: Demand, *scratches: Scratch, now: int | None, mine: Claim | None = None
    ) -> Scratch:
        """The amounts that claims hold against a demand."""
        own = self.claims.serving(queue, demand, mine)
        firmly = any(claim.firm for claim in own)  # A firm claim passes age claims, owed or not.
        level = self.owed_at(queue, demand, *scratches) if self.claims.total.extra and not firmly else ""
        # What is lent comes back: then the job need not wait for a claim of the same guarantee.
        before = level if level and not lent_beside(self.nodes, self.used, level, demand) else ""
        return self.claims.held_from(queue, demand, own, owed=firmly or bool(level), level=before, now=now)

    def is_final(self, short: Shortfall) -> bool:
        """Whether a request above the limit, once refused for good, is still above the limit."""
        if not short.hopeless:
            return False
        node = self.nodes.get(short.path)
        limit = self.limit(node, short.resource) if node is not None else 0
        return limit is not None and short.asked > limit

    def limit(self, node: QuotaNode, resource: str) -> int | None:
        """The amount that a subtree may use now: the max, or less where the tree divides by weight; None for any
        amount.
        """
        most = node.limit.get(resource)
        if not self.shares.names:
            return most
        share = self.shares.runtime.get(node.path, _NOTHING).get(resource)
        if share is None or most is None:
            return most if share is None else share
        return min(most, share)

    def beyond_mins(
        self, queue: str, demand: Demand, *scratches: Scratch, held: Scratch | None = None
    ) -> Iterator[Shortfall]:
        """Every min that the demand would pass as work that is not preemptible, leaf first. ``held``: the amounts held
        for claimants.
        """
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
        """The requested resources with a limit or a guarantee anywhere on the path, sorted."""
        nodes = [node for path in chain_of(queue) if (node := self.nodes.get(path)) is not None]
        return [
            name
            for name in sorted(request)
            if request[name] and any(name in node.limit or name in node.guaranteed for node in nodes)
        ]

    def guaranteed_of(self, queue: str, request: Mapping[str, int]) -> list[str]:
        """The requested resources that some queue of the tree is guaranteed, sorted."""
        names = self.guaranteed.get(root_of(queue), _NOTHING)
        return [name for name in sorted(request) if request[name] and name in names]

    def owed(self, queue: str, demand: Demand, *scratches: Scratch) -> bool:
        """Whether a guarantee covers the demand, in every guaranteed resource."""
        return bool(self.owed_at(queue, demand, *scratches))

    def owed_at(self, queue: str, demand: Demand, *scratches: Scratch) -> str:
        """The lowest node below the root within whose guarantee the demand stays; empty without such a node.

        A node above the queue covers the demand too, whatever its children are guaranteed: a child that claims its own
        guarantee later is owed at a lower node, and goes first.
        """
        names = self.guaranteed_of(queue, demand.request) if queue in self.nodes else []
        path = chain_of(queue)[:-1] if names else ()
        within = (at for at in path if at in self.nodes and not self.above_min(at, demand, names, *scratches))
        return next(within, "")

    def owed_depth(self, queue: str, demand: Demand, *scratches: Scratch) -> int:
        """How deep the node of ``owed_at`` lies; 0 without such a node. A job that is owed deeper is served first."""
        level = self.owed_at(queue, demand, *scratches)
        return len(chain_of(level)) if level else 0

    def above_min(self, path: str, demand: Demand, names: Iterable[str], *scratches: Scratch) -> list[str]:
        """The resources in ``names`` in which the demand would take a node above its guarantee. What a guarantee has
        beside its amounts by flavor covers any flavor.
        """
        least = self.nodes[path].owes
        used = [part for part in (self.used.get(path), *[scratch.extra.get(path) for scratch in scratches]) if part]
        above = [
            name
            for name in names
            if sum([part.get(name, 0) for part in used]) + demand.request[name] > least.get(name, 0)
        ]
        if any("@" in name for name in above):
            total = summed((demand.request, *used))
            above = [name for name in above if "@" not in name or not self._of_any_flavor(path, name, total)]
        return above

    def _of_any_flavor(self, path: str, name: str, used: Mapping[str, int]) -> bool:
        node = self.nodes[path]
        return node.of_any_flavor(total_of(name), used, node.owes) >= 0

    def by_flavor(self, queue: str, demand: Demand) -> bool:
        """Whether amounts by flavor cover a demand at a node of its path."""
        return any(
            all(
                self.used.get(path, _NOTHING).get(name, 0) + amount <= self.nodes[path].owes.get(name, 0)
                for name, amount in demand.request.items()
                if "@" in name
            )
            for path in chain_of(queue)[:-1]
            if path in self.nodes
        )

    def lent(self, queue: str, name: str) -> int:
        """What other leaves use of a resource by flavor beyond all of their guarantees, and what the root has free;
        UNBOUNDED where the root has no limit.
        """
        free = self.headroom(root_of(queue), name)
        if free is None:
            return UNBOUNDED
        lent = max(free, 0)
        for path, used in self.used.items():
            node = self.nodes.get(path)
            if node is not None and not node.children and path != queue and root_of(path) == root_of(queue):
                beyond = -node.of_any_flavor(total_of(name), used)
                lent += max(0, min(beyond, used.get(name, 0) - node.guaranteed.get(name, 0)))
        return lent

    def room(self, queue: str, path: str, resource: str, *, of_min: bool = False) -> int | None:
        """The amount of a resource free for ``queue`` at one node on its path, without claims.

        None without a limit there; may be negative. ``of_min``: the room of work that is not preemptible.
        """
        node = self.nodes.get(path)
        if node is None:
            return None
        if of_min:
            return node.guaranteed.get(resource, 0) - self.firm.get(path, _NOTHING).get(resource, 0)
        limit = self.limit(node, resource)
        if not self.lends:
            return None if limit is None else limit - self.used.get(path, _NOTHING).get(resource, 0)
        taken = next(((*parts, kept) for node, parts, kept in self.taken(queue) if node.path == path), None)
        return None if limit is None or taken is None else limit - sum(part.get(resource, 0) for part in taken)

    def headroom(self, path: str, resource: str) -> int | None:
        """The amount of a resource free at one node by the node's own limit; None without a limit."""
        node = self.nodes.get(path)
        limit = self.limit(node, resource) if node else None
        return None if limit is None else limit - self.used.get(path, _NOTHING).get(resource, 0)


def leaf_of(ledger: Ledger, workload: Workload) -> str | None:
    """The leaf of a workload; None where no queue claims the workload."""
    return ledger.leaf_for(workload.ref.namespace, quota_name(workload.labels))


# --- owing ------------------------------------------------------------------------------------------------------------


class Owing:
    """The owed amounts of queues at one moment, summed once for each node."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._sums: dict[str, Vector] = {}

    def beside(self, queue: str, demand: Demand) -> tuple[str, str, int] | None:
        """(path, resource, the amount that other queues there use or request within their guarantees) where a demand
        needs a part of this amount; None where not.
        """
        ledger = self._ledger
        if ledger.by_shares(queue):
            return None  # A fair share already accounts for other queues.
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
        """The amounts that all queues at or below a node use or request within their guarantees."""
        if path not in self._sums:
            owed = self._sums[path] = Vector()
            for leaf in _leaves(self._ledger, path):
                used, waiting = self._ledger.used.get(leaf, {}), self._ledger.waiting.get(leaf, {})
                for name, least in self._ledger.nodes[leaf].owes.items():
                    amount = min(least, used.get(name, 0) + waiting.get(name, 0))
                    owed[name] = owed.get(name, 0) + amount
        return self._sums[path]


def _leaves(ledger: Ledger, path: str) -> list[str]:
    leaves, inner = list[str](), [path]
    while inner:
        node = ledger.nodes.get(inner.pop())
        if node is not None and node.children:
            inner += node.children
        elif node is not None:
            leaves.append(node.path)
    return leaves


# --- waiting ----------------------------------------------------------------------------------------------------------


def waits(workload: Workload | None) -> bool:
    """Whether the workload is suspended, asks to run, and is not on hold."""
    return workload is not None and workload.waits


def still_waits(ledger: Ledger, workload: Workload | None, queue: str, demand: Demand) -> bool:
    """Whether the workload waits at this leaf, for this demand with every part of its digest."""
    if workload is None or not waits(workload) or leaf_of(ledger, workload) != queue:
        return False
    asked = demand_of(ledger.tree_of(queue), workload, queue=queue, flavors=demand.flavors)
    return _by_rules(ledger, queue, asked) == _by_rules(ledger, queue, demand)


def _by_rules(ledger: Ledger, queue: str, demand: Demand) -> Demand:
    """The demand without the consequences of PriorityClasses in a KAI queue: only the sorter knows their values."""
    return replace(demand, preemptible=True) if ledger.by_shares(queue) else demand


# --- the shares of KAI queues -----------------------------------------------------------------------------------------


def kai_shares(ledger: Ledger) -> DividedShares:
    """The shares of every KAI queue; empty without such queues. Taken from the ledger, or computed where no stage
    settles them.
    """
    if ledger.fair.settled:
        return ledger.fair.shares
    shares: dict[str, Mapping[str, Divided]] = {}
    for tree in ledger.trees.values():
        if tree.by_shares:
            shares |= divided(tree, requests(ledger, tree), ledger.usage)
    return shares


def shares_with(ledger: Ledger, uid: str, queue: str, demand: Demand) -> DividedShares:
    """The shares with the demand of this job, also for a growing cluster, or a job waiting for nodes in no queue."""
    asks = any(uid in known for known in (ledger.asks, ledger.parked, ledger.charges, ledger.claims.by_uid))
    more = not demand.jobs or not asks
    return shares_beside(ledger, queue, {queue: demand.request} if more else {})


def shares_beside(ledger: Ledger, queue: str, more: Mapping[str, Vector]) -> DividedShares:
    """The shares in the tree of a queue, where leaves request ``more``."""
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
    """{path: charged and waiting amounts} of every leaf."""
    asked: dict[str, Vector] = {node.path: {} for node in tree.nodes if not node.children}
    for leaf, total in asked.items():
        add_into(total, ledger.used.get(leaf, {}))
        add_into(total, ledger.waiting.get(leaf, {}))
    return asked


# --- counted again, for audits ----------------------------------------------------------------------------------------


def recounted_used(ledger: Ledger) -> dict[str, Vector]:
    """The usage of each node, from the charges."""
    total: dict[str, Vector] = {}
    for charge in ledger.charges.values():
        spread(total, charge.queue, counted(charge), 1)
    return total


def recounted_leaving(ledger: Ledger) -> Scratch:
    """The amounts released by the workloads that leave for a claim or for room on nodes."""
    gone = Scratch()
    for uid, leaver in ledger.claims.going.items():
        charge = ledger.charges.get(uid)
        if charge is not None and not leaver.moves:
            gone.add(charge.queue, leaver.gives or charge.demand, -1)
    return gone


def recounted_held(ledger: Ledger) -> dict[str, Vector]:
    """The amounts held by claims at each node."""
    held: dict[str, Vector] = {}
    for claim in ledger.claims.by_uid.values():
        fresh = structs.replace(claim, lacking=ledger.lacking(claim))
        for path in claim.paths():
            add_into(held.setdefault(path, {}), fresh.held_at(path))
    return {path: amounts for path, amounts in held.items() if amounts}


def recounted_waiting(ledger: Ledger) -> dict[str, Vector]:
    """The waiting amounts of every leaf, from the requests."""
    waiting: dict[str, Vector] = {}
    for uid, ask in ledger.asks.items():
        if uid not in ledger.charges:
            add_into(waiting.setdefault(ask.queue, {}), ask.request)
    for uid, ask in ledger.parked.items():
        if uid not in ledger.charges and uid not in ledger.asks:
            add_into(waiting.setdefault(ask.queue, {}), ask.request)
    for uid, claim in ledger.claims.by_uid.items():
        if not any(uid in known for known in (ledger.charges, ledger.asks, ledger.parked)):
            add_into(waiting.setdefault(claim.queue, {}), claim.demand.request)
    return {queue: total for queue, total in waiting.items() if total}


def recounted_shares(ledger: Ledger) -> list[str]:
    """The queues whose fair shares differ from the shares by all requests."""
    trees = [tree for tree in ledger.trees.values() if tree.by_shares]
    fresh = [divided(tree, requests(ledger, tree), ledger.usage) for tree in trees] if ledger.fair.settled else []
    return [path for shares in fresh for path, mine in shares.items() if mine != ledger.fair.shares[path]]
