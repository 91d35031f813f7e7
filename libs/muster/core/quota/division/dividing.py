"""How a node of a quota tree divides among its children: by weight, or by fair shares.

By weight: the runtime quota is the part of the parent's quota that each sibling may use now, by guarantee, demand and
weight. The rule is Koordinator's. First each sibling receives its need up to its guarantee. The rest is divided by
weight among siblings with more need, and unused parts are divided again. Exact integers: a unit left by rounding goes
by the largest remainder, ties by name. In force where a tree asks for this rule; ``shares.py`` keeps the result up to
date.

By fair shares: the guarantee first, then priority, then weight, in whole units and exactly, one resource at a time. The
rule is the rule of KAI Scheduler's queues, without floats. First every queue gets its requests up to its quota. The
surplus goes to the highest priority first, in rounds by weight (and by recent use, where use counts), in whole units.
The rest of rounding goes by the largest remainder, ties by age, then by uid. Quotas are never scaled down: where quotas
exceed the total, the shares do too. A left-over unit is handed out whole, so a share may exceed its request or its
limit by less than one unit. The order of the siblings does not matter.

Down a whole tree: the total goes to the top queues, the share of each queue to its children, and so on. A pure function
of the nodes and of the requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from msgspec import Struct
from msgspec.structs import replace

from muster.model.quota import COUNTED, DEFAULT_QUEUE_PRIORITY, QuotaNode
from muster.model.resources import EVERYTHING, Vector, add_into, in_bytes, in_proportion

# --- by weight --------------------------------------------------------------------------------------------------------


class Sibling(Struct, frozen=True):
    """A sibling in the division by weight: amounts in base units of one resource."""

    name: str
    request: int
    least: int = 0
    """The larger of its min and any other guarantee."""
    weight: int = 1
    keeps: int = 0
    """The part of its min that other siblings may not use, needed or not."""


def divide(total: int, siblings: Sequence[Sibling]) -> dict[str, int]:
    """{name: the amount it may use}; in all never more than ``total``, in any order of the siblings.

    Where the needs within the mins exceed the total, the mins shrink in proportion.
    """
    ordered = sorted(siblings, key=lambda sibling: sibling.name)
    shares = {sibling.name: _first_share(sibling, sibling.least) for sibling in ordered}
    if sum(shares.values()) > total:
        leasts = in_proportion(total, {sibling.name: sibling.least for sibling in ordered})
        shares = {sibling.name: _first_share(sibling, leasts[sibling.name]) for sibling in ordered}
    short = [sibling for sibling in ordered if sibling.request > shares[sibling.name] and sibling.weight > 0]
    left = total - sum(shares.values())
    while left > 0 and short:
        for name, more in in_proportion(left, {sibling.name: sibling.weight for sibling in short}).items():
            shares[name] += more
        left = 0
        for sibling in short:
            over = shares[sibling.name] - sibling.request
            if over > 0:
                shares[sibling.name] = sibling.request
                left += over
        short = [sibling for sibling in short if sibling.request > shares[sibling.name]]
    return shares


def _first_share(sibling: Sibling, least: int) -> int:
    return min(least, max(sibling.request, sibling.keeps))


# --- by fair shares, between siblings ---------------------------------------------------------------------------------


UNLIMITED = -1
"""As a quota: the whole total; as a limit: none."""


class Sharer(Struct, frozen=True, kw_only=True):
    """A queue in the division by fair shares: amounts in base units, UNLIMITED without a bound."""

    name: str
    request: int
    """The use and the requests of the queue's subtree."""
    quota: int = 0
    limit: int = UNLIMITED
    weight: int = 1
    """In any unit common to all siblings."""
    priority: int = DEFAULT_QUEUE_PRIORITY
    usage: int = 0
    """The recent use, as a part of ``Law.usage_whole``."""
    created: int = 0
    uid: str = ""

    @property
    def requestable(self) -> int:
        """The request up to the limit."""
        return self.request if self.limit == UNLIMITED else min(self.limit, self.request)


class Law(Struct, frozen=True):
    """The values common to all siblings."""

    unit: int = 1
    """Base units in one unit handed out whole: a GPU, a thousandth of a CPU, a byte."""
    k: tuple[int, int] = (1, 1)
    """The weight of past usage, as a fraction; (0, 1) for none."""
    usage_whole: int = 1_000_000


class Share(Struct):
    """The share of one queue, by parts of the rule."""

    quota: int = 0
    """The part within its own quota."""
    surplus: int = 0
    """The part by priority and weight, in whole units."""
    left_over: int = 0
    """The part from the remainder of rounding."""
    surplus_seen: int = 0
    """The surplus left for its priority."""
    rounds: int = 0
    """The rounds of the surplus in which the queue took part."""
    weight_of: tuple[int, int] = (0, 0)
    """The effective weight in the queue's first round, and the sum of all weights in this round."""

    @property
    def amount(self) -> int:
        return self.quota + self.surplus + self.left_over


LAW = Law()


def fair_shares(total: int, sharers: Sequence[Sharer], law: Law = LAW) -> dict[str, Share]:
    """{name: share of ``total``}, in the order of priority, age and uid."""
    ordered = sorted(sharers, key=lambda sharer: (-sharer.priority, sharer.created, sharer.uid, sharer.name))
    shares = {sharer.name: Share(quota=min(guaranteed(total, sharer), sharer.requestable)) for sharer in ordered}
    left = total - sum(share.quota for share in shares.values())
    tiers: list[dict[str, Fraction]] = []
    for priority in dict.fromkeys(sharer.priority for sharer in ordered):
        if left > 0:
            tier = [sharer for sharer in ordered if sharer.priority == priority]
            left, remainders = _rounds(left, tier, shares, law)
            tiers.append(remainders)
    for remainders in tiers:
        for name in sorted(remainders, key=lambda name: -remainders[name]):  # stable: ties as ordered above
            if left <= 0:
                break
            one = min(left, law.unit)
            shares[name].left_over += one
            left -= one
    return shares


def guaranteed(total: int, sharer: Sharer) -> int:
    """The quota of a queue; the total where unlimited."""
    return total if sharer.quota == UNLIMITED else sharer.quota


def allocatable(sharer: Sharer, share: int) -> int:
    """The amount up to which work runs without being reclaimed; UNLIMITED for any amount."""
    if sharer.quota == UNLIMITED:
        return sharer.limit
    most = max(sharer.quota, share)
    return most if sharer.limit == UNLIMITED else min(sharer.limit, most)


def _rounds(left: int, tier: list[Sharer], shares: dict[str, Share], law: Law) -> tuple[int, dict[str, Fraction]]:
    """Hand the surplus out among queues of one priority: (the rest, {name: the amount lost by rounding}).

    Another round follows while a queue needs less than its part.
    """
    kept: dict[str, Fraction] = {}
    while left > 0:
        weights = _weights([sharer for sharer in tier if sharer.requestable > shares[sharer.name].amount], law)
        whole = sum(weights.values())
        if not whole:
            break
        amount, again = left, False
        for sharer in tier:
            weight = weights.get(sharer.name, 0)
            if not weight:
                continue
            share = shares[sharer.name]
            if not share.weight_of[1]:
                share.weight_of, share.surplus_seen = (weight, whole), amount
            share.rounds += 1
            part, wanted = amount * weight, sharer.requestable - share.amount
            if wanted * whole <= part:
                given = wanted
                kept.pop(sharer.name, None)
                again = again or wanted * whole < part
            else:
                given = part // (whole * law.unit) * law.unit
                if part > given * whole:
                    kept[sharer.name] = Fraction(part - given * whole, whole)
            share.surplus += given
            left -= given
        if not again:
            break
    order = {sharer.name: place for place, sharer in enumerate(tier)}
    return left, dict(sorted(kept.items(), key=lambda item: order[item[0]]))


def _weights(unsatisfied: list[Sharer], law: Law) -> dict[str, int]:
    """W + k x (w - usage) with w = weight/all weights, never below 0; as integers of one common unit."""
    whole = sum(sharer.weight for sharer in unsatisfied)
    times, per = law.k
    return {
        sharer.name: max(0, sharer.weight * (per + times) * law.usage_whole - times * sharer.usage * whole)
        for sharer in unsatisfied
        if sharer.weight
    }


# --- by fair shares, down a tree --------------------------------------------------------------------------------------


WHOLE = 1000
_NOTHING: Mapping[str, int] = {}


class Divided(Struct, frozen=True):
    """The share of one queue in one resource."""

    sharer: Sharer
    """The queue's values before the division."""
    share: Share
    parent: int
    """The share of the parent, divided among the siblings; for a top queue the total."""

    @property
    def allocatable(self) -> int:
        """The amount up to which work runs without being reclaimed; UNLIMITED for any amount."""
        return allocatable(self.sharer, self.share.amount)


def law_for(resource: str, k: tuple[int, int] = (1, 1)) -> Law:
    """Devices are handed out whole, CPU by the thousandth, memory by the byte."""
    return Law(unit=1 if resource == "cpu" or in_bytes(resource) else WHOLE, k=k)


def asked_above(nodes: Iterable[QuotaNode], asked: Mapping[str, Vector]) -> dict[str, Vector]:
    """The request of each subtree: the known request of the node itself, or else the sum of its children."""
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
    """{path: {resource: share}} for every node below the root; the root has ``total``. Parents before children."""
    known, shares = tuple(nodes), dict[str, dict[str, Divided]]()
    for resource in sorted(total.keys() - COUNTED):
        law = (laws or {}).get(resource) or law_for(resource)
        for path, divided in divide_resource(known, resource, total[resource], requests, usage or {}, law).items():
            shares.setdefault(path, {})[resource] = divided
    return {node.path: shares[node.path] for node in known if node.path in shares}


def divide_resource(
    nodes: Iterable[QuotaNode],
    resource: str,
    total: int,
    requests: Mapping[str, Mapping[str, int]],
    usage: Mapping[str, Mapping[str, int]],
    law: Law,
    before: Mapping[str, Mapping[str, Divided]] | None = None,
) -> dict[str, Divided]:
    """{path: share of one resource} for every node below the root; the root has ``total``. ``before``: the earlier
    shares, where only requests have changed.
    """
    known = {node.path: node for node in nodes}
    divided: dict[str, Divided] = {}
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
        for sibling in siblings:
            have[sibling.name] = shares[sibling.name].amount
            divided[sibling.name] = Divided(sibling, shares[sibling.name], have[path])
    return divided


def asking(one: Sharer, request: int) -> Sharer:
    """The same queue with another request."""
    return one if one.request == request else replace(one, request=request)


def sharer(
    node: QuotaNode,
    resource: str,
    requests: Mapping[str, Mapping[str, int]],
    usage: Mapping[str, Mapping[str, int]],
) -> Sharer:
    """A node as a queue in the division of a resource."""
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
