"""The audit of node requests, from the log alone: one for each gang that lacks nodes, within the limits of pools."""

from __future__ import annotations

from collections.abc import Iterator

from muster.core.audit.seen import Finding
from muster.events.base import Event
from muster.events.envelope import Stored
from muster.events.facts import NodePoolsObserved
from muster.events.growing import NodesRequested, NodesRequestWithdrawn, for_whom


class GrowthAudit:
    """Feed it every commit in order."""

    def __init__(self) -> None:
        self._open: dict[str, str] = {}
        """uid or key of a claimant of nodes -> namespace/name of its request"""
        self._most: dict[str, int] = {}
        """pool -> the most nodes it was ever declared to have"""

    def feed(self, stored: Stored) -> Iterator[Finding]:
        """What is found in one commit."""
        for event in stored.commit.events:
            yield from self._event(event)

    def _event(self, event: Event) -> Iterator[Finding]:
        match event:
            case NodePoolsObserved():
                for pool in event.pools:
                    self._most[pool.name] = max(pool.most, self._most.get(pool.name, 0))
            case NodesRequested():
                owner, name = for_whom(event), f"{event.namespace}/{event.name}"
                yield "I21", owner not in self._open, f"{name} is asked for beside {self._open.get(owner)}, for {owner}"
                for each in event.pools:
                    most = self._most.get(each.pool, 0)
                    yield "I21", each.nodes <= most, f"{name} asks for {each.nodes} of pool {each.pool}, at most {most}"
                self._open[owner] = name
            case NodesRequestWithdrawn():
                if self._open.get(for_whom(event)) == f"{event.namespace}/{event.name}":
                    del self._open[for_whom(event)]
