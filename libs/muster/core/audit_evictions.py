"""What the auditor asks of every eviction: that it was owed, legal, and no larger than needed (I8, I19).

Like the auditor it keeps to its own arithmetic, and calls nothing of the preemptor's or the accountant's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from muster.events.decisions import EvictionOrdered, Victim
from muster.model.quota import COUNTED, JOBS, MACHINES, QuotaNode
from muster.model.resources import Vector

Found = tuple[str, bool, str]
"""(invariant, whether it holds, what is wrong otherwise)."""


class Held(Struct):
    """What somebody is charged with, as the auditor knows it."""

    queue: str
    amounts: Vector
    attempt: int
    preemptible: bool
    priority: int | None = None
    """With which it was queued last; None for what never was."""


def counted(request: Mapping[str, int], pods: int) -> Vector:
    """The request, with one job and its machines."""
    return {**request, JOBS: 1000, **({MACHINES: pods * 1000} if pods else {})}


def chain(queue: str) -> list[str]:
    """The queue and everything above it."""
    parts = queue.split("/")
    return ["/".join(parts[:size]) for size in range(len(parts), 0, -1)]


class Books(Struct):
    """The tree and who is charged with what, when an order was made; the victims leave them one by one."""

    event: EvictionOrdered
    nodes: Mapping[str, QuotaNode]
    held: Mapping[str, Held]
    used: dict[str, Vector]
    own: list[Held]
    """Victims of the claimant's own queue."""
    others: list[Held]

    def leave(self, charges: Sequence[Held], times: int = -1) -> None:
        for charge in charges:
            _add(self.used, charge.queue, charge.amounts, times)

    def enough(self) -> bool:
        """Whether the claimant fits; beside what others give it must be within its min."""
        event = self.event
        fits = _fits(chain(event.queue), counted(event.request, event.pods), self.nodes, self.used)
        return fits and (not self.others or all(holds for _, holds, _ in _owed(event, self.nodes, self.used)))


def findings(
    event: EvictionOrdered,
    nodes: Mapping[str, QuotaNode],
    held: Mapping[str, Held],
    *,
    priority: int | None = None,
    fixed: bool = True,
) -> Iterator[Found]:
    """Everything there is to say of one order, given who is charged with what when it was made.

    ``priority``: with which the claimant was queued. ``fixed``: no limit moves with what others ask for, so that the
    need of each victim can be told from the tree.
    """
    books = Books(event, nodes, held, {}, [], [])
    books.leave(list(held.values()), 1)
    for victim in event.victims:
        charge = held.get(victim.ref.uid)
        legal = charge is not None and charge.preemptible and charge.attempt == victim.attempt
        yield "I19", legal, f"{victim.ref} is ordered to leave, and is not charged under attempt {victim.attempt}"
        if charge is not None and charge.queue == event.queue:
            books.own.append(charge)
            yield _outranked(event, victim, charge, priority)
        elif charge is not None:
            books.others.append(charge)
    if books.own:
        asked = event.queue in nodes and nodes[event.queue].preempts
        yield "I19", asked, f"work of lower priority gives way in {event.queue}, and the tree does not ask for that"
        if not event.preemptible:
            yield from _firm(event, nodes, held)
    books.leave(books.own)
    if books.others or not books.own:
        yield from _owed(event, nodes, books.used)
    books.leave(books.others)
    for charge in books.others:
        for at in chain(charge.queue):
            least = nodes[at].guaranteed.get(event.resource, 0) if at in nodes and at not in chain(event.queue) else 0
            left = books.used.get(at, {}).get(event.resource, 0)
            yield "I19", left >= least, f"{at} is left with {event.resource} {left}, below its min {least}"
    if fixed and not any(node.kept for node in nodes.values()):
        yield from _needed(books)


def _needed(books: Books) -> Iterator[Found]:
    ref, count = books.event.ref, len(books.own) + len(books.others)
    yield "I8", books.enough(), f"{ref} would not fit without all {count} victims"
    for mine in (books.own, books.others):
        for charge in list(mine):
            mine.remove(charge)
            books.leave([charge], 1)
            yield "I8", not books.enough(), f"{ref} needs fewer victims than {count}"
            books.leave([charge])
            mine.append(charge)


def _outranked(event: EvictionOrdered, victim: Victim, charge: Held, priority: int | None) -> Found:
    """As both were queued; what never was (it was adopted) has the priority that the order names."""
    lower = victim.priority if charge.priority is None else charge.priority
    holds = lower is not None and priority is not None and lower < priority == event.priority
    return "I19", holds, f"{victim.ref} of priority {lower} gives way in its own queue to priority {priority}"


def _firm(event: EvictionOrdered, nodes: Mapping[str, QuotaNode], held: Mapping[str, Held]) -> Iterator[Found]:
    """A claimant that is not preemptible stays within the min at every level, whoever leaves."""
    firm: dict[str, Vector] = {}
    for each in held.values():
        if not each.preemptible:
            _add(firm, each.queue, each.amounts, 1)
    above = [nodes[at] for at in chain(event.queue) if at in nodes]
    for name, asked in event.request.items():
        if any(name in node.limit or name in node.guaranteed for node in above):
            for node in above:
                least, now = node.guaranteed.get(name, 0), firm.get(node.path, {}).get(name, 0)
                yield "I19", now + asked <= least, f"{event.ref} is not preemptible and beyond the min of {node.path}"


def _owed(event: EvictionOrdered, nodes: Mapping[str, QuotaNode], used: Mapping[str, Vector]) -> Iterator[Found]:
    above = [nodes[at] for at in chain(event.queue) if at in nodes]
    for name, asked in event.request.items():
        if any(name in node.limit or name in node.guaranteed for node in above) and name not in COUNTED:
            least, now = above[0].guaranteed.get(name, 0), used.get(event.queue, {}).get(name, 0)
            yield "I19", now + asked <= least, f"{event.ref} asks for {name} {asked} over {now}, beyond the min {least}"


def _fits(path: list[str], asked: Vector, nodes: Mapping[str, QuotaNode], used: Mapping[str, Vector]) -> bool:
    return all(
        used.get(at, {}).get(name, 0) + amount <= nodes[at].limit[name]
        for at in path
        if at in nodes
        for name, amount in asked.items()
        if name in nodes[at].limit
    )


def _add(used: dict[str, Vector], queue: str, amounts: Vector, times: int) -> None:
    for at in chain(queue):
        totals = used.setdefault(at, {})
        for name, amount in amounts.items():
            totals[name] = totals.get(name, 0) + amount * times
