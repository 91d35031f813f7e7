"""What a choice of nodes costs beyond being less tight."""

from __future__ import annotations

from collections.abc import Callable

from muster.core.placement.choices import BucketChoice, pinned_to_nodes
from muster.core.placement.classes import Bucket, Slot
from muster.core.placement.gpus import WHOLE
from muster.core.placement.mix import waste
from muster.core.placement.needs import PodNeed, need_of, refused
from muster.core.placement.view import Ask, View, share_devices
from muster.model.placing import GPU

Rank = Callable[[BucketChoice], int]
"""What a choice costs beyond being less tight: the lower, the better."""


def wasting(view: View) -> Rank:
    """How many more of a node's GPUs would be of no use to the usual requests."""
    mixes = view.mixes
    places: dict[str, dict[str, int]] = {}

    def rank(choice: BucketChoice) -> int:
        need, bucket = choice.need, choice.bucket
        if need.gpu < 0 or (bucket.free[need.gpu] <= 0 and not bucket.shared):
            return 0
        mix = mixes.get(choice.group)
        if mix is None:
            group = view.ledger.classes[choice.group]
            mix = mixes[choice.group] = view.ledger.mix.for_nodes(group.labels, group.taints)
            places[choice.group] = {name: index for index, name in enumerate(group.resources)}
        if not mix:
            return 0
        if choice.group not in places:
            group = view.ledger.classes[choice.group]
            places[choice.group] = {name: index for index, name in enumerate(group.resources)}
        at = places[choice.group]
        return _wasted(*_after(need, bucket), at, mix) - _wasted(bucket.free, bucket.shared, at, mix)

    return rank


def sparing(view: View, main: Ask) -> Rank:
    """Where the places for the largest set shrink least."""

    def rank(choice: BucketChoice) -> int:
        group = view.ledger.classes[choice.group]
        other, _ = need_of(main.request, main.rules, group)
        if other is None or refused(main.rules, group, pinned_to_nodes(view, main)):
            return 0
        return other.fit(choice.bucket.free, choice.bucket.shared) - other.fit(*_after(choice.need, choice.bucket))

    return rank


def _after(need: PodNeed, bucket: Bucket) -> tuple[list[int], list[int]]:
    """What is left in a bucket's node after one pod."""
    free, shared = list(bucket.free), bucket.shared
    for index, amount in need.parts:
        free[index] -= amount
    if need.share:
        slot = Slot("", free, dict(enumerate(shared)))
        share_devices(slot, need, 1)
        shared = sorted(slot.shared.values())
    return free, shared


def _wasted(free: list[int], shared: list[int], places: dict[str, int], mix: str) -> int:
    cpu = free[places["cpu"]] if "cpu" in places else 0
    memory = free[places["memory"]] if "memory" in places else 0
    return waste(cpu, memory, max(free[places[GPU]], 0) // WHOLE, tuple(shared), mix)
