"""Reclaim by guarantee: whose work is suspended so that a claimant gets what its own queue is guaranteed.

Who may claim: work that stays within its leaf's min in everything the tree manages. Who gives: leaves above their
min, never to below it, at no node between them and the path they share with the claimant. So what was taken back can
never be claimed back, and nobody is suspended twice for the same guarantee. First the leaf furthest above its min
(a min of zero is furthest of all), in it the lowest priority, then the youngest; and no more than is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from muster.core.quota.demand import Charge, Demand, Scratch, chain_of, counted
from muster.core.quota.ledger import Ledger, over_min

MAX_LOOKS = 10_000
"""Running workloads looked at for one claimant: a budget of steps, so that no search holds up the log."""

Run = tuple[int, int, str, str]
"""Order in which the work of one leaf gives way: (priority, -running since ms, namespace/name, uid)."""


class Search(Struct):
    """One search for victims: what is still missing, and who has been chosen."""

    ledger: Ledger
    queue: str
    demand: Demand
    chosen: list[str]
    gone: Scratch
    """What the chosen give back, as negative amounts."""
    names: frozenset[str]
    """The resources that are short."""

    def missing(self) -> tuple[str, str] | None:
        """(path, resource) of the first limit that still refuses the claimant."""
        short = next(self.ledger.refusals(self.queue, self.demand, self.gone), None)
        return (short.path, short.resource) if short is not None else None

    def above(self, leaf: str, resource: str) -> int:
        """How far a leaf is above its min, as share of it in millionths, with the chosen gone; 0 when it is not."""
        node = self.ledger.nodes.get(leaf)
        used = self._used(leaf, resource)
        if node is None or used <= node.guaranteed.get(resource, 0):
            return 0
        return over_min(node, resource, used)

    def spares(self, charge: Charge) -> bool:
        """Whether nothing between the victim and the shared path falls below its min without it."""
        amounts, shared = counted(charge.demand), set(chain_of(self.queue))
        for path in chain_of(charge.queue):
            node = self.ledger.nodes.get(path)
            if node is None or path in shared:
                continue
            for name in self.names:
                taken = amounts.get(name, 0)
                if taken and self._used(path, name) - taken < node.guaranteed.get(name, 0):
                    return False
        return True

    def take(self, uid: str) -> None:
        charge = self.ledger.charges[uid]
        self.chosen.append(uid)
        self.gone.add(charge.queue, charge.demand, -1)

    def trim(self) -> None:
        """Let go whom the claimant does not need after all, those chosen last first."""
        for uid in reversed(self.chosen.copy()):
            charge = self.ledger.charges[uid]
            self.gone.add(charge.queue, charge.demand)
            if self.missing() is None:
                self.chosen.remove(uid)
            else:
                self.gone.add(charge.queue, charge.demand, -1)

    def _used(self, path: str, resource: str) -> int:
        here = self.ledger.used.get(path, {}).get(resource, 0)
        return here + self.gone.extra.get(path, {}).get(resource, 0)


def search(ledger: Ledger, queue: str, demand: Demand) -> Search:
    """An empty search for a claimant."""
    short = frozenset(found.resource for found in ledger.refusals(queue, demand))
    return Search(ledger, queue, demand, [], Scratch(), short)


def victims(
    ledger: Ledger, queue: str, demand: Demand, runs: Mapping[str, Sequence[Run]], may: Callable[[str], bool]
) -> list[str]:
    """Uids of a smallest sufficient set in the order they were chosen; empty when there is none.

    ``runs``: {leaf: its running work in the order it gives way}. ``may``: whether a workload may be suspended now.
    """
    found = search(ledger, queue, demand)
    at: dict[tuple[str, str], int] = {}
    """(leaf, resource) -> how many of its runs have been looked at for it"""
    looks = 0
    while (short := found.missing()) is not None:
        path, name = short
        below = [
            leaf
            for leaf, work in runs.items()
            if path in chain_of(leaf) and at.get((leaf, name), 0) < len(work) and found.above(leaf, name)
        ]
        if not below:
            return []
        leaf = min(below, key=lambda leaf: (-found.above(leaf, name), -_used(found, leaf, name), leaf))
        uid = runs[leaf][at.get((leaf, name), 0)][3]
        at[leaf, name] = at.get((leaf, name), 0) + 1
        looks += 1
        if looks > MAX_LOOKS:
            return []
        charge = ledger.charges[uid]
        if uid not in found.chosen and counted(charge.demand).get(name) and may(uid) and found.spares(charge):
            found.take(uid)
    found.trim()
    return found.chosen


def _used(found: Search, leaf: str, resource: str) -> int:
    node = found.ledger.nodes[leaf]
    return found.ledger.used.get(leaf, {}).get(resource, 0) - node.guaranteed.get(resource, 0)


def objection(ledger: Ledger, queue: str, demand: Demand, chosen: Iterable[str]) -> str:
    """Why these victims may not be suspended for this claimant, judged afresh; empty when they may."""
    if not ledger.owed(queue, demand):
        return "it is beyond the guarantee of its queue"
    found = search(ledger, queue, demand)
    if not found.names:
        return "it fits without taking anything back"
    for uid in chosen:
        charge = ledger.charges.get(uid)
        if charge is None:
            return "a victim has left meanwhile"
        if not found.spares(charge):
            return f"quota {charge.queue} would fall below its min"
        found.take(uid)
    if found.missing() is not None:
        return "it would not fit even then"
    before = len(found.chosen)
    found.trim()
    return "" if len(found.chosen) == before else "it needs fewer victims"
