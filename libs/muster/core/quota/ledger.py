"""The ledger: who is charged what, how much of every node that makes, and what is held for whom.

The accountant decides on it; everybody else folds the same events into a copy, to foresee and to explain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct, field, structs

from muster.core.objects.labels import quota_name
from muster.core.quota.demand import Ask, Charge, Claim, Demand, Scratch, Shortfall, chain_of, counted, spread
from muster.core.quota.shares import Shares
from muster.core.quota.tree import leaves
from muster.model.quota import COUNTED, QuotaNode, QuotaTree
from muster.model.resources import Vector, add_into
from muster.model.workload import Workload

UNBOUNDED = 2**62
"""The share of a queue that uses what it has no min for."""

_NOTHING: Mapping[str, int] = {}


class Ledger(Struct):
    """Charges by workload uid, and what they sum up to at every node.

    ``used`` maps path -> vector over every path that a charge passes; it always equals the sum of the charges, jobs
    and machines counted in. ``firm`` is the part of it that is not preemptible.
    """

    tree: QuotaTree | None = None
    nodes: dict[str, QuotaNode] = field(default_factory=dict)
    leaf_of: dict[str, str] = field(default_factory=dict)
    """namespace -> path of the leaf that serves it."""
    named: dict[str, list[str]] = field(default_factory=dict)
    """bare name -> paths of the nodes called so."""
    charges: dict[str, Charge] = field(default_factory=dict)
    used: dict[str, Vector] = field(default_factory=dict)
    firm: dict[str, Vector] = field(default_factory=dict)
    kept: dict[str, Vector] = field(default_factory=dict)
    """path -> what its subtree leaves unused and does not lend; empty in a tree without lend limits."""
    lends: bool = False
    """Whether the tree has lend limits."""
    asks: dict[str, Ask] = field(default_factory=dict)
    """workload uid -> what it is queued for, from its queueing until that attempt is over"""
    shares: Shares = field(default_factory=Shares)
    """What every node may use right now, in a tree that divides by weight."""
    claim: Claim | None = None
    held: Scratch = field(default_factory=Scratch)
    """What the claim asks for, at every node it passes."""

    def install(self, tree: QuotaTree | None) -> None:
        """Put a tree in force; charges follow their label or namespace, or stay where nobody claims them."""
        self.tree = tree
        self.nodes = {node.path: node for node in tree.nodes} if tree else {}
        self.leaf_of = {ns: leaf.path for leaf in leaves(tree) for ns in leaf.namespaces} if tree else {}
        self.named = {}
        for node in self.nodes.values():
            self.named.setdefault(node.name, []).append(node.path)
        self.lends = any(node.kept for node in self.nodes.values())
        self.used, self.firm, self.kept = {}, {}, {}
        for charge in self.charges.values():
            charge.queue = self.leaf_for(charge.namespace, charge.named) or charge.queue
            self._add(charge, 1)
        if self.lends:
            for node in reversed(self.nodes.values()):
                self._keep(node)
        self.shares.install(self.nodes, weighted=tree is not None and tree.rules.runtime == "weight")
        for uid in dict.fromkeys((*self.charges, *self.asks)):
            self._ask(uid, 1)

    def leaf_for(self, namespace: str, named: str = "") -> str | None:
        """The leaf a workload belongs to: the quota its label names, else its namespace's, else the tree's for all.

        None when there is none; a name that no leaf or more than one leaf has counts as none (unless the namespace's
        own leaf has it).
        """
        own = self.leaf_of.get(namespace)
        if not named:
            return own or (self.tree.rules.unbound_queue or None if self.tree else None)
        if own is not None and self.nodes[own].name == named:
            return own
        found = [path for path in self.named.get(named, ()) if not self.nodes[path].children]
        return found[0] if len(found) == 1 else None

    def queued(self, uid: str, ask: Ask) -> None:
        """A workload waits under a new attempt; it counts as asking unless it is still charged for an older one."""
        self._ask(uid, -1)
        self.asks[uid] = ask
        self._ask(uid, 1)

    def dequeued(self, uid: str, attempt: int) -> None:
        """It no longer waits under this attempt, nor under an older one."""
        ask = self.asks.get(uid)
        if ask is not None and ask.attempt <= attempt:
            self._ask(uid, -1)
            del self.asks[uid]
            self._ask(uid, 1)

    def charge(self, uid: str, charge: Charge) -> None:
        """Charge a workload; what it was charged before is replaced, and a claim that waited for this is served."""
        self._ask(uid, -1)
        before = self.charges.get(uid)
        if before is not None:
            self._add(before, -1)
            self._keep_chain(before.queue)
        self.charges[uid] = charge
        self._add(charge, 1)
        self._keep_chain(charge.queue)
        self._ask(uid, 1)
        if self.claim is not None and self.claim.served_by(uid, charge.queue, charge.demand):
            self.end_claim()

    def release(self, uid: str, attempt: int = 0) -> Charge | None:
        """End a charge, and with it what was asked for under that attempt; returns it, or None when there was none."""
        self.dequeued(uid, attempt)
        charge = self.charges.get(uid)
        if charge is not None:
            self._ask(uid, -1)
            del self.charges[uid]
            self._add(charge, -1)
            self._keep_chain(charge.queue)
            self._ask(uid, 1)
        return charge

    def open_claim(self, claim: Claim) -> None:
        """From here on, what the claim asks for is not free for others."""
        self.end_claim()
        self.claim = claim
        self.held.add(claim.queue, claim.demand)
        above = len(claim.top) - 1 if claim.top else -1
        for path in chain_of(claim.queue):
            if len(path) <= above:
                self.held.extra.pop(path, None)

    def without_claim(self) -> Ledger:
        """The same charges with nothing held for anybody; for reading only."""
        return structs.replace(self, claim=None, held=Scratch())

    def end_claim(self) -> None:
        self.claim, self.held = None, Scratch()

    def _ask(self, uid: str, times: int) -> None:
        """What a workload is charged, else what it asks for, counts once; only where the tree divides by it."""
        found = (self.charges.get(uid) or self.asks.get(uid)) if self.shares.names else None
        if found is not None:
            self.shares.ask(self.nodes, found.queue, found.request, times)

    def _add(self, charge: Charge, times: int) -> None:
        amounts = counted(charge)
        spread(self.used, charge.queue, amounts, times)
        if not charge.preemptible:
            spread(self.firm, charge.queue, amounts, times)

    # --- what is not lent -------------------------------------------------------------------------------------

    def _keep_chain(self, queue: str) -> None:
        if self.lends:
            for path in chain_of(queue):
                node = self.nodes.get(path)
                if node is not None:
                    self._keep(node)

    def _keep(self, node: QuotaNode) -> None:
        """max(what the children keep, min - lend limit - used), per resource; 0 where there is nothing to keep."""
        kept: Vector = {}
        for child in node.children:
            add_into(kept, self.kept.get(child, _NOTHING))
        used = self.used.get(node.path, _NOTHING)
        for name, amount in node.kept.items():
            own = amount - used.get(name, 0)
            if own > kept.get(name, 0):
                kept[name] = own
        if kept:
            self.kept[node.path] = kept
        else:
            self.kept.pop(node.path, None)

    def _taken(self, queue: str, *scratches: Scratch) -> Iterator[tuple[QuotaNode, list[Mapping[str, int]]]]:
        """(node, what is used there or kept from ``queue``, as parts of a sum), leaf first."""
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
                parts.append(outside)
            yield node, [part for part in parts if part]
            child = path

    # --- what fits --------------------------------------------------------------------------------------------

    def shortfall(self, queue: str, demand: Demand, *scratches: Scratch) -> Shortfall | None:
        """What refuses the demand at ``queue`` with the scratches on top, None when it fits; O(depth x resources).

        What is held for a claimant counts as used for everybody else.
        """
        found = next(self.refusals(queue, demand, *scratches), None)
        return found if found is not None or demand.preemptible else self.beyond_min(queue, demand, *scratches)

    def refusals(self, queue: str, demand: Demand, *scratches: Scratch) -> Iterator[Shortfall]:
        """Every limit that refuses the demand, leaf first."""
        others = self.held if self.claim is not None and not self.claim.serves(queue, demand) else None
        on_top = (*scratches, others) if others is not None else scratches
        amounts = counted(demand)
        names = sorted(amounts)
        for node, parts in self._taken(queue, *on_top):
            for name in names:
                asked, limit = amounts[name], self.limit(node, name)
                if limit is None or not asked:
                    continue
                taken = sum([part.get(name, 0) for part in parts])
                if taken + asked > limit:
                    held = others.extra.get(node.path, _NOTHING).get(name, 0) if others is not None else 0
                    limit, moving = self.told_limit(node, name, asked)
                    yield Shortfall(node.path, name, asked, taken, limit, held=held, of_runtime=moving)

    def told_limit(self, node: QuotaNode, resource: str, asked: int) -> tuple[int, bool]:
        """(the limit that refuses so much, whether it moves with what others ask for); 0 where there is none.

        Whoever asks for more than the max is told of that: no division could help.
        """
        limit, most = self.limit(node, resource) or 0, node.limit.get(resource)
        if most is not None and asked > most:
            limit = most
        return limit, limit != most

    def limit(self, node: QuotaNode, resource: str) -> int | None:
        """How much a subtree may use now: its max, or less where the tree divides by weight; None for any amount."""
        most = node.limit.get(resource)
        share = self.shares.runtime.get(node.path, _NOTHING).get(resource) if self.shares.names else None
        if share is None or most is None:
            return most if share is None else share
        return min(most, share)

    def beyond_min(self, queue: str, demand: Demand, *scratches: Scratch) -> Shortfall | None:
        """The first min that the demand would pass as work that is not preemptible, leaf first."""
        managed = self.managed(queue, demand.request)
        for path in chain_of(queue):
            node = self.nodes.get(path)
            if node is None:
                continue
            for name in managed:
                taken = self.firm.get(path, _NOTHING).get(name, 0)
                taken += sum(scratch.firm.get(path, _NOTHING).get(name, 0) for scratch in scratches)
                least = node.guaranteed.get(name, 0)
                if taken + demand.request[name] > least:
                    return Shortfall(path, name, demand.request[name], taken, least, of_min=True)
        return None

    def managed(self, queue: str, request: Mapping[str, int]) -> list[str]:
        """The asked resources that anything on the path limits or guarantees, sorted: the others are nobody's."""
        nodes = [node for path in chain_of(queue) if (node := self.nodes.get(path)) is not None]
        return [
            name
            for name in sorted(request)
            if request[name] and any(name in node.limit or name in node.guaranteed for node in nodes)
        ]

    def owed(self, queue: str, demand: Demand) -> bool:
        """Whether the demand stays within the leaf's own guarantee, in everything the tree manages."""
        managed = self.managed(queue, demand.request)
        return queue in self.nodes and bool(managed) and not self.above_min(queue, demand, managed)

    def above_min(self, queue: str, demand: Demand, managed: Iterable[str], *scratches: Scratch) -> list[str]:
        """Of ``managed``, the resources in which the demand would take the leaf above its own guarantee."""
        least, used = self.nodes[queue].guaranteed, self.used.get(queue, _NOTHING)
        return [
            name
            for name in managed
            if used.get(name, 0)
            + sum(scratch.extra.get(queue, _NOTHING).get(name, 0) for scratch in scratches)
            + demand.request[name]
            > least.get(name, 0)
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
        if limit is None:
            return None
        found = next((parts for found, parts in self._taken(queue) if found.path == path), None)
        return None if found is None else limit - sum(part.get(resource, 0) for part in found)

    def headroom(self, path: str, resource: str) -> int | None:
        """How much of a resource is free at one node by its own limit; None when it has no limit there."""
        node = self.nodes.get(path)
        limit = self.limit(node, resource) if node else None
        return None if limit is None else limit - self.used.get(path, _NOTHING).get(resource, 0)

    def share(self, queue: str, *scratches: Scratch) -> int:
        """Dominant used/min of a leaf in millionths; a queue that uses what it has no min for comes last."""
        node = self.nodes.get(queue)
        taken = dict(self.used.get(queue, _NOTHING))
        for scratch in scratches:
            add_into(taken, scratch.extra.get(queue, _NOTHING))
        return max((over_min(node, name, amount) for name, amount in taken.items() if name not in COUNTED), default=0)

    def recount(self) -> dict[str, Vector]:
        """``used`` counted afresh from the charges: what an audit compares with."""
        total: dict[str, Vector] = {}
        for charge in self.charges.values():
            spread(total, charge.queue, counted(charge), 1)
        return total


def leaf_of(ledger: Ledger, workload: Workload) -> str | None:
    """The leaf a workload belongs to, None when nobody claims it."""
    return ledger.leaf_for(workload.ref.namespace, quota_name(workload.labels))


def over_min(node: QuotaNode | None, resource: str, amount: int) -> int:
    """amount/min in millionths; UNBOUNDED for anything above a min of zero."""
    minimum = node.guaranteed.get(resource, 0) if node else 0
    if amount <= 0:
        return 0
    return amount * 1_000_000 // minimum if minimum else UNBOUNDED
