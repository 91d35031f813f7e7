"""Nodes in groups: a class has the fields that static filters see in common, a bucket of it the free resources too."""

from __future__ import annotations

from bisect import bisect_left, insort

from msgspec import Struct, field

from muster.model.placing import Taint

PODS = "pods"


class Slot(Struct):
    """What one node can still give: amounts in the order of its class's resources, and its shared devices."""

    group: str
    free: list[int]
    shared: dict[int, int] = field(default_factory=dict)
    """Device -> what is left of it, thousandths; whole devices are in ``free``."""

    @property
    def key(self) -> str:
        text = ",".join(map(str, self.free))
        return f"{text};{','.join(map(str, sorted(self.shared.values())))}" if self.shared else text


class Bucket(Struct):
    """Nodes of one class with the same left."""

    free: list[int]
    shared: list[int]
    names: list[str]
    """Sorted."""


class NodeClass(Struct):
    """Nodes that static filters cannot tell apart."""

    resources: list[str]
    labels: dict[str, str]
    """Only those that rules of known pods look at."""
    taints: tuple[Taint, ...]
    schedulable: bool
    ready: bool
    buckets: dict[str, Bucket] = field(default_factory=dict)
    """By the amounts that they have left,"""
    empty: dict[str, Bucket] = field(default_factory=dict)
    """and by those that they would have if they were empty."""


def enter(buckets: dict[str, Bucket], slot: Slot, name: str) -> None:
    """Put a node into the bucket of its free resources."""
    key = slot.key
    bucket = buckets.get(key)
    if bucket is None:
        buckets[key] = Bucket(list(slot.free), sorted(slot.shared.values()), [name])
    else:
        insort(bucket.names, name)


def leave(buckets: dict[str, Bucket], slot: Slot, name: str) -> None:
    """Take a node out of its bucket."""
    key = slot.key
    bucket = buckets[key]
    del bucket.names[bisect_left(bucket.names, name)]
    if not bucket.names:
        del buckets[key]
