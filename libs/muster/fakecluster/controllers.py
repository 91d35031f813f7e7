"""The controllers behind the drivers: hear of changes, note the objects to look at, and plan.

Level-triggered, like real controllers: hearing of a change only marks a key; planning looks at the newest state. Time
comes in with each call, so a controller runs the same under a virtual clock and a real clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Protocol

from muster.fakecluster.apiserver.status import Obj
from muster.fakecluster.apiserver.store import ChangeType
from muster.fakecluster.operations import OperationPlan
from muster.model.api import ApiResource

RETRY_MS = 500
"""Until a key whose plan could not be carried out is looked at again; doubled each time, up to MAX_RETRY_MS."""
MAX_RETRY_MS = 30_000


class Controller(Protocol):
    """Something that keeps objects of a few resources as they should be."""

    @property
    def watches(self) -> Sequence[ApiResource]:
        """What it has to hear of."""
        ...

    @property
    def queue(self) -> WorkQueue:
        """Keys to look at, and when."""
        ...

    def heard(self, kind: ChangeType, resource: ApiResource, obj: Obj) -> None:
        """A change, in order per object. Only notes; never plans."""
        ...

    def plan(self, key: str, now: int) -> OperationPlan:
        """What is due for a key, from the state as heard so far."""
        ...


class WorkQueue:
    """Keys to look at: now, in the order they were marked, or at a time."""

    def __init__(self) -> None:
        self._now: dict[str, None] = {}
        self._later: list[tuple[int, str]] = []
        self._at: dict[str, int] = {}
        """key -> when it is due; entries of ``_later`` that say otherwise are void."""
        self._tries: dict[str, int] = {}

    def mark(self, key: str) -> None:
        """Look at the key at once."""
        self._now[key] = None

    def mark_at(self, key: str, at: int) -> None:
        """Look at the key at ``at`` (ms), unless it is looked at sooner."""
        if self._at.get(key, at + 1) > at:
            self._at[key] = at
            heapq.heappush(self._later, (at, key))

    def take(self, now: int) -> str | None:
        """The next key to look at, if any is due."""
        while self._later and self._later[0][0] <= now:
            at, key = heapq.heappop(self._later)
            if self._at.get(key) == at:
                del self._at[key]
                self._now[key] = None
        if not self._now:
            return None
        key = next(iter(self._now))
        del self._now[key]
        return key

    def next_at(self, now: int) -> int | None:
        """When the next key is due: ``now`` if one is waiting, None if nothing is to come."""
        if self._now:
            return now
        while self._later and self._at.get(self._later[0][1]) != self._later[0][0]:
            heapq.heappop(self._later)
        return self._later[0][0] if self._later else None

    def done(self, key: str, plan: OperationPlan, now: int) -> None:
        """The plan was carried out."""
        self._tries.pop(key, None)
        if plan.again_ms is not None:
            self.mark_at(key, now + plan.again_ms)

    def failed(self, key: str, now: int) -> None:
        """An operation of the plan was refused: look again, later each time."""
        tries = self._tries[key] = self._tries.get(key, 0) + 1
        self.mark_at(key, now + min(RETRY_MS << (tries - 1), MAX_RETRY_MS))
