"""How a node of a quota tree divides among its children: by weight, or by fair shares.

Runtime quota: how much of a parent's quota each sibling may use now, by guarantee, demand and weight.

The rule is Koordinator's: first the need of each up to its guarantee, then the rest by weight among those that need
more, and the parts that one cannot use are divided again. Exact integers throughout: a unit left by rounding goes by
the largest remainder, ties by name. In force where a tree asks for it; ``shares.py`` keeps it up to date.

Fair shares between siblings: the guarantee first, then priority, then weight, in whole units and exactly.

One resource at a time. The rule is that of KAI Scheduler's queues, without its floats: first every queue gets its
requests up to its quota; the surplus goes to the highest priority first, in rounds by weight (and by recent use, where
that counts), in whole units; what rounding leaves goes by the largest remainder, ties by age, then by uid.
Quotas are never scaled down, so where they exceed what there is the shares do too; a left-over unit is handed out
whole, so a share may exceed its request or its limit by less than one unit. Any order of the siblings gives the same.

Fair shares down a whole tree: what there is goes to the top queues, each one's share to its children, and so on.

Each resource by itself, by ``fairshare.fair_shares``. A pure function of the nodes and of the requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from msgspec import Struct
from msgspec.structs import replace

from muster.model.quota import COUNTED, DEFAULT_QUEUE_PRIORITY, QuotaNode
from muster.model.resources import EVERYTHING, Vector, add_into, in_bytes

# --- by weight --------------------------------------------------------------------------------------------------------


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


# --- by fair shares, between siblings ---------------------------------------------------------------------------------


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


# --- by fair shares, down a tree --------------------------------------------------------------------------------------


WHOLE = 1000
_NOTHING: Mapping[str, int] = {}


class Divided(Struct, frozen=True):
    """How much one queue gets of one resource."""

    sharer: Sharer
    """What it came with."""
    share: Share
    parent: int
    """The share of its parent, which the siblings divided; of a top queue: all there is."""

    @property
    def allocatable(self) -> int:
        """Up to where its work runs without being reclaimed; UNLIMITED for anything."""
        return allocatable(self.sharer, self.share.amount)


def law_for(resource: str, k: tuple[int, int] = (1, 1)) -> Law:
    """Devices are handed out whole, CPU by the thousandth, memory by the byte."""
    return Law(unit=1 if resource == "cpu" or in_bytes(resource) else WHOLE, k=k)


def asked_above(nodes: Iterable[QuotaNode], asked: Mapping[str, Vector]) -> dict[str, Vector]:
    """What each subtree asks for: what is known of the node itself, else the sum of its children."""
    total: dict[str, Vector] = {}
    for node in reversed(list(nodes)):
        own = asked.get(node.path)
        if own is None:
            own = {}
            for child in node.children:
                add_into(own, total[child])
        total[node.path] = own
    return total


def divide_tree(
    nodes: Iterable[QuotaNode],
    total: Mapping[str, int],
    requests: Mapping[str, Mapping[str, int]],
    usage: Mapping[str, Mapping[str, int]] | None = None,
    laws: Mapping[str, Law] | None = None,
) -> dict[str, dict[str, Divided]]:
    """{path: {resource: its share}} for every node below the root, which has ``total``; parents before children."""
    known, found = tuple(nodes), dict[str, dict[str, Divided]]()
    for resource in sorted(total.keys() - COUNTED):
        law = (laws or {}).get(resource) or law_for(resource)
        for path, each in divide_resource(known, resource, total[resource], requests, usage or {}, law).items():
            found.setdefault(path, {})[resource] = each
    return {node.path: found[node.path] for node in known if node.path in found}


def divide_resource(
    nodes: Iterable[QuotaNode],
    resource: str,
    total: int,
    requests: Mapping[str, Mapping[str, int]],
    usage: Mapping[str, Mapping[str, int]],
    law: Law,
    before: Mapping[str, Mapping[str, Divided]] | None = None,
) -> dict[str, Divided]:
    """{path: its share of one resource} for every node below the root, which has ``total``. ``before``: the shares when
    only requests were others.
    """
    known = {node.path: node for node in nodes}
    found: dict[str, Divided] = {}
    have = {next(iter(known)): total} if known else {}
    for path, node in known.items():
        if before is None:
            siblings = [sharer(known[child], resource, requests, usage) for child in node.children]
        else:
            siblings = [
                asking(before[child][resource].sharer, requests.get(child, _NOTHING).get(resource, 0))
                for child in node.children
            ]
        shares = fair_shares(have[path], siblings, law) if siblings else {}
        for each in siblings:
            have[each.name] = shares[each.name].amount
            found[each.name] = Divided(each, shares[each.name], have[path])
    return found


def asking(one: Sharer, request: int) -> Sharer:
    """The same with another request."""
    return one if one.request == request else replace(one, request=request)


def sharer(
    node: QuotaNode,
    resource: str,
    requests: Mapping[str, Mapping[str, int]],
    usage: Mapping[str, Mapping[str, int]],
) -> Sharer:
    """A node as one of the queues that share a resource."""
    least = node.guaranteed.get(resource, 0)
    return Sharer(
        name=node.path,
        request=requests.get(node.path, _NOTHING).get(resource, 0),
        quota=UNLIMITED if least == EVERYTHING else least,
        limit=node.limit.get(resource, UNLIMITED),
        weight=node.weight.get(resource, 0),
        priority=node.priority,
        usage=usage.get(node.path, _NOTHING).get(resource, 0),
        created=node.created,
        uid=node.uid,
    )
