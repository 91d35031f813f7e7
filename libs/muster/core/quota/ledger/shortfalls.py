"""A limit that refuses a demand, with its numbers: what is used, what is held beside it, and for which claimant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.core.quota.demand import Scratch
from muster.model.demand import Demand, Shortfall
from muster.model.quota import QuotaNode

if TYPE_CHECKING:
    from muster.core.quota.ledger.ledger import Ledger


def short_of(
    ledger: Ledger, node: QuotaNode, name: str, asked: int, used: int, *, held: int, kept: int = 0
) -> Shortfall:
    """Of what a node may use. A request over the max is refused for that: no division could help."""
    most, now = node.limit.get(name), ledger.limit(node, name) or 0
    limit = most if most is not None and asked > most else now
    claimant = ledger.claims.claimant_at(node.path, name) if held else ""
    return Shortfall(
        node.path, name, asked, used, limit, held=held, claimant=claimant, kept=kept, of_runtime=limit != most
    )


def short_of_min(
    ledger: Ledger, node: QuotaNode, name: str, asked: int, used: int, others: Scratch | None
) -> Shortfall:
    """Of the min, which what is not preemptible stays within. ``others``: what is held for claimants."""
    held = others.firm.get(node.path, {}).get(name, 0) if others is not None else 0
    claimant, least = ledger.claims.claimant_at(node.path, name) if held else "", node.guaranteed.get(name, 0)
    return Shortfall(node.path, name, asked, used, least, of_min=True, held=held, claimant=claimant)


def short_at(ledger: Ledger, short: Shortfall, queue: str, demand: Demand, now: int) -> Shortfall:
    """A refusal with the numbers of ``now``: it lasts as long as it holds, while all of them may move."""
    node, name = ledger.nodes.get(short.path), short.resource
    if node is None:
        return short
    others = ledger.held_from(queue, demand, now=now)
    if short.of_min:
        return short_of_min(ledger, node, name, short.asked, ledger.firm.get(node.path, {}).get(name, 0), others)
    found = next(((parts, kept) for each, parts, kept in ledger.taken(queue) if each.path == short.path), None)
    if found is None or ledger.limit(node, name) is None:
        return short
    parts, kept = found
    used, held = sum(part.get(name, 0) for part in parts), others.extra.get(node.path, {}).get(name, 0)
    return short_of(ledger, node, name, short.asked, used, held=held, kept=kept.get(name, 0))
