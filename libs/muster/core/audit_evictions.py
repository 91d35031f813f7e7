"""What the auditor asks of every eviction: that it was owed, legal, and no larger than needed (I8, I19).

Like the auditor it keeps to its own arithmetic, and calls nothing of the preemptor's or the accountant's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from muster.events.decisions import EvictionOrdered
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


def counted(request: Mapping[str, int], pods: int) -> Vector:
    """The request, with one job and its machines."""
    return {**request, JOBS: 1000, **({MACHINES: pods * 1000} if pods else {})}


def chain(queue: str) -> list[str]:
    """The queue and everything above it."""
    parts = queue.split("/")
    return ["/".join(parts[:size]) for size in range(len(parts), 0, -1)]


def findings(
    event: EvictionOrdered, nodes: Mapping[str, QuotaNode], held: Mapping[str, Held], *, fixed: bool = True
) -> Iterator[Found]:
    """Everything there is to say of one order, given who is charged with what when it was made.

    ``fixed``: no limit moves with what others ask for, so that the need of each victim can be told from the tree.
    """
    used: dict[str, Vector] = {}
    for each in held.values():
        _add(used, each.queue, each.amounts, 1)
    mine, path = counted(event.request, event.pods), chain(event.queue)
    yield from _owed(event, nodes, used)
    gone: list[Held] = []
    for victim in event.victims:
        charge = held.get(victim.ref.uid)
        legal = charge is not None and charge.preemptible and charge.attempt == victim.attempt
        yield "I19", legal, f"{victim.ref} is ordered to leave, and is not charged under attempt {victim.attempt}"
        if charge is not None:
            gone.append(charge)
            _add(used, charge.queue, charge.amounts, -1)
    for charge in gone:
        for at in chain(charge.queue):
            least = nodes[at].guaranteed.get(event.resource, 0) if at in nodes and at not in path else 0
            left = used.get(at, {}).get(event.resource, 0)
            yield "I19", left >= least, f"{at} is left with {event.resource} {left}, below its min {least}"
    if not fixed or any(node.kept for node in nodes.values()):
        return
    yield "I8", _fits(path, mine, nodes, used), f"{event.ref} would not fit without all {len(gone)} victims"
    for charge in gone:
        _add(used, charge.queue, charge.amounts, 1)
        yield "I8", not _fits(path, mine, nodes, used), f"{event.ref} needs fewer victims than {len(gone)}"
        _add(used, charge.queue, charge.amounts, -1)


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
