"""Which queue comes first: by the priority of its Queue object, then by the used part of its guarantee, then by age."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from muster.core.quota.demand import Scratch, chain_of, counted
from muster.core.quota.ledger.ledger import UNBOUNDED, Ledger
from muster.model.demand import Demand
from muster.model.keys import root_of

_NOTHING: Mapping[str, Any] = {}
MILLION = 1_000_000
POOLED = MILLION - 1
"""Of a leaf that uses all of its own guarantee, and not all of one above it: before those that would borrow."""


def share(ledger: Ledger, queue: str, *scratches: Scratch) -> int:
    """How much of its guarantee a leaf uses, in millionths of the resource it uses most of.

    Counted is what the tree promises to any leaf; what it promises to none is no reason to come later. A leaf that uses
    something of which it has no min comes after all that do not, and among such leaves the one that uses the smaller
    part of the total comes first.
    """
    node, promised = ledger.nodes.get(queue), ledger.promised.get(root_of(queue), _NOTHING)
    used, extra = ledger.used.get(queue, _NOTHING), [each.extra[queue] for each in scratches if queue in each.extra]
    most = 0
    for name in promised:
        amount = used.get(name, 0)
        for each in extra:
            amount += each.get(name, 0)
        if amount <= 0:
            continue
        least = node.guaranteed.get(name, 0) if node is not None else 0
        part = amount * MILLION // least if least else UNBOUNDED + _of_all(ledger, queue, name, amount)
        most = max(most, part)
    return most


def used_first(ledger: Ledger, order: str, queue: str, demand: Demand, *scratches: Scratch) -> int:
    """What comes after the priority of a queue: what it uses of its guarantee, or (``order`` is not ``share``) that
    with the job it would send next, where all beyond their guarantees are equal. Beyond its own, but within the one of
    a node above it, it comes just before those that use all of theirs.
    """
    used = _of_own(ledger, order, queue, demand, *scratches)
    if used > POOLED and _may_pool(ledger, queue) and ledger.owed(queue, demand, *scratches):
        return POOLED
    return used


def least_used(ledger: Ledger, order: str, queue: str, demand: Demand, *scratches: Scratch) -> int:
    """No job that asks for as much or more comes before this: if the guarantee above is enough is asked in its turn."""
    used = _of_own(ledger, order, queue, demand, *scratches)
    return POOLED if used > POOLED and _may_pool(ledger, queue) else used


def _of_own(ledger: Ledger, order: str, queue: str, demand: Demand, *scratches: Scratch) -> int:
    if order == "share":
        return share(ledger, queue, *scratches)
    return min(share(ledger, queue, *scratches, Scratch({queue: counted(demand)})), MILLION + 1)


def _may_pool(ledger: Ledger, queue: str) -> bool:
    """Whether a leaf beyond its own guarantee may be within the one of a node above it."""
    return bool(ledger.inner_below) and any(path in ledger.inner_below for path in chain_of(queue))


def _of_all(ledger: Ledger, queue: str, name: str, amount: int) -> int:
    """Millionths of the limit of the uppermost node that limits a resource; the amount where none does."""
    for path in reversed(chain_of(queue)):
        node = ledger.nodes.get(path)
        limit = node.limit.get(name, 0) if node is not None else 0
        if limit:
            return amount * MILLION // limit
    return amount
