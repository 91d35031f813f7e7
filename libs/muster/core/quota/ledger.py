"""The ledger: who is charged what, and how much of every node that makes.

The accountant decides on it; everybody else folds the same events into a copy, to foresee and to explain.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct, field

from muster.core.quota.tree import leaves
from muster.model.keys import path_chain
from muster.model.quota import QuotaNode, QuotaTree
from muster.model.resources import Vector, add_into

UNBOUNDED = 2**62
"""The share of a queue that uses what it has no min for."""

_NOTHING: Mapping[str, int] = {}

chain_of = lru_cache(maxsize=65536)(path_chain)


class Shortfall(Struct, frozen=True):
    """The first limit that refuses a request: leaf first, then upwards, resources in sorted order."""

    path: str
    resource: str
    asked: int
    used: int
    limit: int

    @property
    def hopeless(self) -> bool:
        """The request alone is over the limit: no release can ever help."""
        return self.asked > self.limit


class Charge(Struct):
    """What one workload is charged with, and where."""

    namespace: str
    queue: str
    request: Vector


class Scratch(Struct):
    """Charges that are decided or proposed but not in the ledger yet: path -> vector on top of it."""

    extra: dict[str, Vector] = field(default_factory=dict)

    def add(self, queue: str, request: Vector, times: int = 1) -> None:
        for path in chain_of(queue):
            vector = self.extra.setdefault(path, {})
            add_into(vector, request, times)
            if not vector:
                del self.extra[path]


class Ledger(Struct):
    """Charges by workload uid, and what they sum up to at every node.

    ``used`` maps path -> vector over every path that a charge passes; it always equals the sum of the charges.
    """

    tree: QuotaTree | None = None
    nodes: dict[str, QuotaNode] = field(default_factory=dict)
    leaf_of: dict[str, str] = field(default_factory=dict)
    """namespace -> path of the leaf that serves it."""
    charges: dict[str, Charge] = field(default_factory=dict)
    used: dict[str, Vector] = field(default_factory=dict)

    def install(self, tree: QuotaTree | None) -> None:
        """Put a tree in force; charges follow their namespace, or stay where they are if nobody claims it."""
        self.tree = tree
        self.nodes = {node.path: node for node in tree.nodes} if tree else {}
        self.leaf_of = {ns: leaf.path for leaf in leaves(tree) for ns in leaf.namespaces} if tree else {}
        self.used = {}
        for charge in self.charges.values():
            charge.queue = self.leaf_of.get(charge.namespace, charge.queue)
            self._add(charge, 1)

    def charge(self, uid: str, namespace: str, queue: str, request: Vector) -> None:
        """Charge a workload; what it was charged before is replaced."""
        if uid in self.charges:
            self.release(uid)
        charge = self.charges[uid] = Charge(namespace, queue, request)
        self._add(charge, 1)

    def release(self, uid: str) -> Charge | None:
        """End a charge; returns it, or None when there was none."""
        charge = self.charges.pop(uid, None)
        if charge is not None:
            self._add(charge, -1)
        return charge

    def _add(self, charge: Charge, times: int) -> None:
        for path in chain_of(charge.queue):
            vector = self.used.setdefault(path, {})
            add_into(vector, charge.request, times)
            if not vector:
                del self.used[path]

    def shortfall(self, queue: str, request: Vector, *scratches: Scratch) -> Shortfall | None:
        """What refuses the request at ``queue`` with the scratches on top, None when it fits; O(depth x resources)."""
        for path in chain_of(queue):
            node = self.nodes.get(path)
            if node is None:
                continue
            used = self.used.get(path, _NOTHING)
            for name in sorted(request):
                asked, limit = request[name], node.limit.get(name)
                if limit is None or not asked:
                    continue
                taken = used.get(name, 0)
                for scratch in scratches:
                    taken += scratch.extra.get(path, _NOTHING).get(name, 0)
                if taken + asked > limit:
                    return Shortfall(path, name, asked, taken, limit)
        return None

    def headroom(self, path: str, resource: str) -> int | None:
        """How much of a resource is free at one node; None when it has no limit there. May be negative."""
        node = self.nodes.get(path)
        limit = node.limit.get(resource) if node else None
        return None if limit is None else limit - self.used.get(path, _NOTHING).get(resource, 0)

    def share(self, queue: str, *scratches: Scratch) -> int:
        """Dominant used/min of a leaf in millionths; a queue that uses what it has no min for comes last."""
        node = self.nodes.get(queue)
        taken = dict(self.used.get(queue, _NOTHING))
        for scratch in scratches:
            add_into(taken, scratch.extra.get(queue, _NOTHING))
        worst = 0
        for name, amount in taken.items():
            minimum = node.guaranteed.get(name, 0) if node else 0
            if amount > 0:
                worst = max(worst, amount * 1_000_000 // minimum if minimum else UNBOUNDED)
        return worst

    def recount(self) -> dict[str, Vector]:
        """``used`` counted afresh from the charges: what an audit compares with."""
        total: dict[str, Vector] = {}
        for charge in self.charges.values():
            for path in chain_of(charge.queue):
                add_into(total.setdefault(path, {}), charge.request)
        return {path: vector for path, vector in total.items() if vector}
