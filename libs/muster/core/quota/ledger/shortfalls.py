"""A limit that refuses a demand, with its numbers: what is used, what is held beside it, and for which claimant."""

from __future__ import annotations

from muster.core.quota.claims import Claims
from muster.core.quota.demand import Scratch
from muster.model.demand import Shortfall
from muster.model.quota import QuotaNode


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
