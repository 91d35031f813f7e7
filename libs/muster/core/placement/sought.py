"""Pods for which jobs wait to have room: how many of each kind the nodes take together, kept as the nodes change.

What jobs wait for is known by the order of how many they need, so those that may fit are found without a look at the
others. It is a bound: what is kept of the nodes, and what pods say of each other, leaves less room and never more.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from msgspec import Struct, field

from muster.core.placement.classes import NodeClass
from muster.core.placement.needs import PodNeed, need_of, refused
from muster.model.placing import PodRules
from muster.model.resources import Vector


class PodSought(Struct):
    """A kind of pod that jobs wait to place."""

    request: Vector
    rules: PodRules
    pinned: bool
    """Its rules tell nodes of one class apart."""
    room: int = 0
    """No more such pods have room on the nodes."""
    asks: list[tuple[int, str]] = field(default_factory=list)
    """sorted (how many are needed at once, for which line)"""
    needs: dict[str, PodNeed | None] = field(default_factory=dict)
    """class of nodes -> what a pod takes of one; None where it can be on none"""

    def fit(self, key: str, group: NodeClass, free: list[int], shared: list[int]) -> int:
        """How many such pods a node of a class takes that has so much left."""
        if key not in self.needs:
            closed = refused(self.rules, group, self.pinned) is not None
            self.needs[key] = None if closed else need_of(self.request, self.rules, group)[0]
        need = self.needs[key]
        return max(need.fit(free, shared), 0) if need is not None else 0

    def wanted(self, pods: int, line: str) -> None:
        insort(self.asks, (pods, line))

    def unwanted(self, pods: int, line: str) -> None:
        del self.asks[bisect_left(self.asks, (pods, line))]

    def within(self) -> list[str]:
        """The lines that may have room."""
        return [line for _, line in self.asks[: bisect_left(self.asks, (self.room + 1, ""))]]
