"""Fair shares down a whole tree: what there is goes to the top queues, each one's share to its children, and so on.

Each resource by itself, by ``fairshare.fair_shares``. A pure function of the nodes and of the requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from muster.core.quota.division.fairshare import UNLIMITED, Law, Share, Sharer, allocatable, fair_shares
from muster.model.quota import COUNTED, QuotaNode
from muster.model.resources import EVERYTHING, Vector, add_into, in_bytes

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
