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
"""Order in which the work of one leaf gives way: (priority, -queued-at ms, namespace/name, uid).

The youngest is who came last, not who was started last: who has given way before keeps its age, and is not always next.
"""


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

    def all_missing(self) -> set[str]:
        """The resources in which a limit still refuses the claimant."""
        return {short.resource for short in self.ledger.refusals(self.queue, self.demand, self.gone)}

    def above(self, leaf: str, resource: str) -> int:
        """How far a leaf is above its min, as share of it in millionths, with the chosen gone; 0 when it is not."""
        if leaf not in self.ledger.nodes or self.surplus(leaf, resource) <= 0:
            return 0
        return over_min(self.ledger.nodes[leaf], resource, self._used(leaf, resource))

    def surplus(self, leaf: str, resource: str) -> int:
        """How much a leaf uses above its min, with the chosen gone."""
        return self._used(leaf, resource) - self.ledger.nodes[leaf].guaranteed.get(resource, 0)

    def spares(self, charge: Charge) -> bool:
        """Whether it is of another queue, and nothing between it and the shared path falls below its min without it."""
        if charge.queue == self.queue:
            return False
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

    def trim(self, enough: Callable[[Search], bool] | None = None) -> None:
        """Let go whom the claimant does not need after all, those chosen last first.

        ``enough``: what those who are left must be good for; by default that the claimant fits.
        """
        for uid in reversed(self.chosen.copy()):
            charge = self.ledger.charges[uid]
            at = self.chosen.index(uid)
            del self.chosen[at]
            self.gone.add(charge.queue, charge.demand)
            if not (enough(self) if enough is not None else self.missing() is None):
                self.chosen.insert(at, uid)
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
    """Uids of a smallest sufficient set in the order they were chosen; empty when none was found.

    ``runs``: {leaf: its running work in the order it gives way}. ``may``: whether a workload may be suspended now.
    Who comes first by the rules is taken first. Where that leads nowhere, because what is left is too large to give
    without falling below a min, each of the others is tried as the first: a single sufficient victim is always found.
    """
    found = completed(search(ledger, queue, demand), runs, may)
    found.trim()
    return found.chosen


def completed(begun: Search, runs: Mapping[str, Sequence[Run]], may: Callable[[str], bool]) -> Search:
    """A search with enough victims on top of those it begins with, not trimmed; one without any when there are none."""
    picker = _Picker(begun, runs, may)
    found = picker.pick("")
    if found.chosen or not picker.tried:
        return found
    for first in list(dict.fromkeys(picker.tried)):
        found = picker.pick(first)
        if found.chosen or picker.looks > MAX_LOOKS:
            break
    return found


class _Picker:
    """Picks victims one by one; counts how many runs it has looked at over all its attempts."""

    def __init__(self, begun: Search, runs: Mapping[str, Sequence[Run]], may: Callable[[str], bool]) -> None:
        self.begun, self.runs, self.may = begun, runs, may
        self.looks = 0
        self.tried: list[str] = []
        """Uids looked at, in order."""

    def pick(self, first: str) -> Search:
        """The victims, beginning with ``first`` if it is somebody; none when that leads nowhere."""
        found, nobody = self._afresh(), search(self.begun.ledger, self.begun.queue, self.begun.demand)
        at: dict[tuple[str, str], int] = {}
        if first:
            if not (self.may(first) and found.spares(found.ledger.charges[first])):
                return nobody
            found.take(first)
        while (short := found.missing()) is not None:
            uid = self._next(found, *short, at)
            if not uid or self.looks > MAX_LOOKS:
                return nobody
            charge = found.ledger.charges[uid]
            useful = counted(charge.demand).get(short[1]) and uid not in found.chosen
            if useful and self.may(uid) and found.spares(charge):
                found.take(uid)
        return found

    def _afresh(self) -> Search:
        found = search(self.begun.ledger, self.begun.queue, self.begun.demand)
        for uid in self.begun.chosen:
            found.take(uid)
        return found

    def _next(self, found: Search, path: str, name: str, at: dict[tuple[str, str], int]) -> str:
        """The next to look at for a resource that is short below ``path``: of the leaf that is furthest above."""
        below = [
            leaf
            for leaf, work in self.runs.items()
            if path in chain_of(leaf) and at.get((leaf, name), 0) < len(work) and found.above(leaf, name)
        ]
        if not below:
            return ""
        leaf = min(below, key=lambda leaf: (-found.above(leaf, name), -found.surplus(leaf, name), leaf))
        uid = self.runs[leaf][at.get((leaf, name), 0)][3]
        at[leaf, name] = at.get((leaf, name), 0) + 1
        self.looks += 1
        self.tried.append(uid)
        return uid


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
