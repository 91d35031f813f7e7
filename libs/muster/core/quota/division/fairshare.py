"""Fair shares between siblings: the guarantee first, then priority, then weight, in whole units and exactly.

One resource at a time. The rule is that of KAI Scheduler's queues, without its floats: first every queue gets its
requests up to its quota; the surplus goes to the highest priority first, in rounds by weight (and by recent use, where
that counts), in whole units; what rounding leaves goes by the largest remainder, ties by age, then by uid.
Quotas are never scaled down, so where they exceed what there is the shares do too; a left-over unit is handed out
whole, so a share may exceed its request or its limit by less than one unit. Any order of the siblings gives the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from msgspec import Struct

from muster.model.quota import DEFAULT_QUEUE_PRIORITY

UNLIMITED = -1
"""As a quota: all there is; as a limit: none."""


class Sharer(Struct, frozen=True, kw_only=True):
    """One of the queues that share: amounts in base units, UNLIMITED where nothing bounds them."""

    name: str
    request: int
    """What its subtree holds and asks for."""
    quota: int = 0
    limit: int = UNLIMITED
    weight: int = 1
    """In any unit, as long as all siblings use the same."""
    priority: int = DEFAULT_QUEUE_PRIORITY
    usage: int = 0
    """What it used lately, as a part of ``Law.usage_whole``."""
    created: int = 0
    uid: str = ""

    @property
    def requestable(self) -> int:
        """What it asks for, as far as its limit allows."""
        return self.request if self.limit == UNLIMITED else min(self.limit, self.request)


class Law(Struct, frozen=True):
    """What is the same for all siblings."""

    unit: int = 1
    """Base units in one unit that is handed out whole: a GPU, a thousandth of a CPU, a byte."""
    k: tuple[int, int] = (1, 1)
    """How much past usage counts, as a fraction; (0, 1) for not at all."""
    usage_whole: int = 1_000_000


class Share(Struct):
    """How much one of them gets, and of which part of the rule."""

    quota: int = 0
    """Of its own quota."""
    surplus: int = 0
    """By priority and weight, in whole units."""
    left_over: int = 0
    """Of the remainder of rounding."""
    surplus_seen: int = 0
    """What was left of the surplus when its priority came."""
    rounds: int = 0
    """Of the surplus, in which it took part."""
    weight_of: tuple[int, int] = (0, 0)
    """Its effective weight in the first round it took part in, and the sum of all in that round."""

    @property
    def amount(self) -> int:
        return self.quota + self.surplus + self.left_over


LAW = Law()


def fair_shares(total: int, sharers: Sequence[Sharer], law: Law = LAW) -> dict[str, Share]:
    """{name: its share of ``total``}, in the order of priority, age and uid."""
    ordered = sorted(sharers, key=lambda each: (-each.priority, each.created, each.uid, each.name))
    shares = {each.name: Share(quota=min(guaranteed(total, each), each.requestable)) for each in ordered}
    left = total - sum(share.quota for share in shares.values())
    tiers: list[dict[str, Fraction]] = []
    for priority in dict.fromkeys(each.priority for each in ordered):
        if left > 0:
            tier = [each for each in ordered if each.priority == priority]
            left, remainders = _rounds(left, tier, shares, law)
            tiers.append(remainders)
    for remainders in tiers:
        for name in sorted(remainders, key=lambda each: -remainders[each]):  # stable: ties as ordered above
            if left <= 0:
                break
            one = min(left, law.unit)
            shares[name].left_over += one
            left -= one
    return shares


def guaranteed(total: int, sharer: Sharer) -> int:
    """Its quota; all there is where it is unlimited."""
    return total if sharer.quota == UNLIMITED else sharer.quota


def allocatable(sharer: Sharer, share: int) -> int:
    """Up to where its work runs without being reclaimed; UNLIMITED for anything."""
    if sharer.quota == UNLIMITED:
        return sharer.limit
    most = max(sharer.quota, share)
    return most if sharer.limit == UNLIMITED else min(sharer.limit, most)


def _rounds(left: int, tier: list[Sharer], shares: dict[str, Share], law: Law) -> tuple[int, dict[str, Fraction]]:
    """Hand the surplus out among queues of one priority: (what is left, {name: what rounding kept from it}).

    Another round follows while a queue needed less than its part.
    """
    kept: dict[str, Fraction] = {}
    while left > 0:
        weights = _weights([each for each in tier if each.requestable > shares[each.name].amount], law)
        whole = sum(weights.values())
        if not whole:
            break
        amount, again = left, False
        for each in tier:
            weight = weights.get(each.name, 0)
            if not weight:
                continue
            share = shares[each.name]
            if not share.weight_of[1]:
                share.weight_of, share.surplus_seen = (weight, whole), amount
            share.rounds += 1
            part, wanted = amount * weight, each.requestable - share.amount
            if wanted * whole <= part:
                given = wanted
                kept.pop(each.name, None)
                again = again or wanted * whole < part
            else:
                given = part // (whole * law.unit) * law.unit
                if part > given * whole:
                    kept[each.name] = Fraction(part - given * whole, whole)
            share.surplus += given
            left -= given
        if not again:
            break
    order = {each.name: place for place, each in enumerate(tier)}
    return left, dict(sorted(kept.items(), key=lambda item: order[item[0]]))


def _weights(unsatisfied: list[Sharer], law: Law) -> dict[str, int]:
    """W + k x (w - usage) with w = weight/all weights, never below 0; as integers of one common unit."""
    whole = sum(each.weight for each in unsatisfied)
    times, per = law.k
    return {
        each.name: max(0, each.weight * (per + times) * law.usage_whole - times * each.usage * whole)
        for each in unsatisfied
        if each.weight
    }
