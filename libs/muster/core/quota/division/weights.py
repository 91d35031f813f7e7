"""Runtime quota: how much of a parent's quota each sibling may use now, by guarantee, demand and weight.

The rule is Koordinator's: first the need of each up to its guarantee, then the rest by weight among those that need
more, and the parts that one cannot use are divided again. Exact integers throughout: a unit left by rounding goes by
the largest remainder, ties by name. In force where a tree asks for it; ``shares.py`` keeps it up to date.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class Sibling(Struct, frozen=True):
    """One of the siblings that share: amounts in base units of one resource."""

    name: str
    request: int
    least: int = 0
    """The larger of its min and what it is guaranteed otherwise."""
    weight: int = 1
    keeps: int = 0
    """What of its min others may not use though it does not need it."""


def divide(total: int, siblings: Sequence[Sibling]) -> dict[str, int]:
    """{name: how much it may use}; never more than ``total`` in all, whatever the order of the siblings.

    Where what is needed of the mins exceeds the total, the mins shrink in proportion.
    """
    ordered = sorted(siblings, key=lambda each: each.name)
    found = {each.name: _first_share(each, each.least) for each in ordered}
    if sum(found.values()) > total:
        leasts = _by_weight(total, {each.name: each.least for each in ordered})
        found = {each.name: _first_share(each, leasts[each.name]) for each in ordered}
    short = [each for each in ordered if each.request > found[each.name] and each.weight > 0]
    left = total - sum(found.values())
    while left > 0 and short:
        for name, more in _by_weight(left, {each.name: each.weight for each in short}).items():
            found[name] += more
        left = 0
        for each in short:
            over = found[each.name] - each.request
            if over > 0:
                found[each.name] = each.request
                left += over
        short = [each for each in short if each.request > found[each.name]]
    return found


def _first_share(sibling: Sibling, least: int) -> int:
    return min(least, max(sibling.request, sibling.keeps))


def _by_weight(amount: int, weights: dict[str, int]) -> dict[str, int]:
    """The amount in whole units by weight: the largest remainders get one more, ties by name."""
    whole = sum(weights.values())
    shares = {name: amount * weight // whole for name, weight in weights.items()}
    rest = amount - sum(shares.values())
    by_remainder = sorted(weights, key=lambda name: (-(amount * weights[name] % whole), name))
    for name in by_remainder[:rest]:
        shares[name] += 1
    return shares
