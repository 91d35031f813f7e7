"""Where a pod of an ask could go: the buckets of nodes that take one, and why the others do not."""

from __future__ import annotations

from typing import NamedTuple

from muster.core.placement.classes import Bucket, NodeClass
from muster.core.placement.ledger import SHOWN
from muster.core.placement.matching import (
    asked_labels,
    names_nodes,
    suits_node,
    suits_volumes,
)
from muster.core.placement.needs import PodNeed, need_of, refused
from muster.core.placement.view import Ask, View
from muster.model.placing import GPU

LATE = 1 << 62
"""Added to how tight a choice is, where its nodes are to be taken last."""


class BucketChoice(NamedTuple):
    """Nodes of one bucket that take at least one pod of an ask; compared by how tight they are, then by name."""

    left: int
    first: str
    group: str
    need: PodNeed
    bucket: Bucket
    names: list[str]

    @property
    def fit(self) -> int:
        """How many pods each of its nodes takes."""
        return self.need.fit(self.bucket.free, self.bucket.shared)


def choices(view: View, ask: Ask) -> list[BucketChoice]:
    """Every bucket that has room for a pod of the ask on suitable nodes."""
    pinned = pinned_to_nodes(view, ask)
    found: list[BucketChoice] = []
    for key, group in view.ledger.classes.items():
        if refused(ask.rules, group, pinned):
            continue
        need, missing = need_of(ask.request, ask.rules, group)
        if need is None or missing:
            continue
        weights, gpu = _weights(view, group)
        for bucket, names in view.buckets(key):
            free = bucket.free
            for index, amount in need.parts:
                if free[index] < amount:
                    break
            else:
                if need.share and need.fit(free, bucket.shared) <= 0:
                    continue
                suited = [name for name in names if suits(view, ask, name)] if pinned else names
                if suited:
                    left = LATE if key in view.late else 0
                    for index, weight in weights:
                        left += free[index] * weight
                    if bucket.shared:
                        left += sum(bucket.shared) * gpu
                    found.append(BucketChoice(left, suited[0], key, need, bucket, suited))
    return found


def _weights(view: View, group: NodeClass) -> tuple[list[tuple[int, int]], int]:
    """How much an amount of each resource weighs: all of the largest node's weighs the same, whatever the resource."""
    scale = view.ledger.scale
    places = {name: index for index, name in enumerate(group.resources)}
    weights = {name: (1 << 50) // scale[name] for name in SHOWN if scale.get(name)}
    return [(places[name], weight) for name, weight in weights.items() if name in places], weights.get(GPU, 0)


def pinned_to_nodes(view: View, ask: Ask) -> bool:
    """Whether its rules tell nodes of one class apart."""
    return names_nodes(ask.rules) or any(key not in view.ledger.asked for key in asked_labels(ask.rules))


def suits(view: View, ask: Ask, name: str) -> bool:
    labels = view.ledger.nodes[name].labels
    return suits_node(ask.rules, labels, name) and suits_volumes(ask.rules, labels, name)


def short_of(group: NodeClass, need: PodNeed | None, bucket: Bucket) -> list[str]:
    """The resources of which a bucket's nodes have too little."""
    if need is None:
        return []
    short = [group.resources[index] for index, amount in need.parts if bucket.free[index] < amount]
    if need.share and need.fit(bucket.free, bucket.shared) <= 0 and not short:
        short.append(GPU)
    return short
