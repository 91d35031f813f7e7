"""Runtime quota: how much of what there is each of several siblings may use now, by guarantee, demand and weight.

The rule is Koordinator's: first what each needs of its guarantee, then the rest by weight among those who need more,
and what somebody cannot use is divided again. Exact integers throughout: what one unit too many would be goes by the
largest remainder, ties by name. No accountant decides by it yet: limits and guarantees are what is in force.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct


class Sibling(Struct, frozen=True):
    """One of those who share: amounts in base units of one resource."""

    name: str
    request: int
    least: int = 0
    """The larger of its min and what it is guaranteed otherwise."""
    weight: int = 1
    lends: bool = True
    """Whether others may use what it does not need of its min."""


def divide(total: int, siblings: Sequence[Sibling]) -> dict[str, int]:
    """{name: how much it may use}; never more than ``total`` in all, whatever the order of the siblings.

    Where the mins exceed the total they shrink in proportion.
    """
    ordered = sorted(siblings, key=lambda each: each.name)
    leasts = _shrunk(total, ordered)
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
    if sibling.request >= least or not sibling.lends:
        return least
    return sibling.request


def _shrunk(total: int, siblings: Sequence[Sibling]) -> dict[str, int]:
    wanted = {each.name: each.least for each in siblings}
    return wanted if sum(wanted.values()) <= total else _by_weight(total, wanted)


def _by_weight(amount: int, weights: dict[str, int]) -> dict[str, int]:
    """The amount in whole units by weight: the largest remainders get one more, ties by name."""
    whole = sum(weights.values())
    shares = {name: amount * weight // whole for name, weight in weights.items()}
    rest = amount - sum(shares.values())
    by_remainder = sorted(weights, key=lambda name: (-(amount * weights[name] % whole), name))
    for name in by_remainder[:rest]:
        shares[name] += 1
    return shares
