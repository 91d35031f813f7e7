"""What the auditor asks of leaders and facts: one leader at a time writes (I13), no object goes back in time (I11)."""

from __future__ import annotations

from collections.abc import Iterator

from muster.core.audit.leaves import GONE, after_end
from muster.core.audit.seen import Finding
from muster.events.base import Event
from muster.events.envelope import Stored
from muster.events.facts import (
    ChildObserved,
    NodeObserved,
    ObjectGone,
    PodGroupObserved,
    PodObserved,
    WorkloadGone,
    WorkloadObserved,
)
from muster.events.system import Genesis, LeaderStarted
from muster.model.workload import Workload


class FactAudit:
    """Feed it every commit in order."""

    def __init__(self) -> None:
        self.workloads: dict[str, Workload] = {}
        """uid -> the workload as observed last"""
        self._versions: dict[str, int] = {}
        self._epochs: dict[tuple[str, str], int] = {}

    def feed(self, stored: Stored) -> Iterator[Finding]:
        """What is found in one commit."""
        yield from self._epoch(stored)
        for event in stored.commit.events:
            yield from self._event(event)

    def _event(self, event: Event) -> Iterator[Finding]:
        match event:
            case Genesis():
                self._epochs.clear()
            case WorkloadObserved():
                before = self._versions.get(event.workload.ref.uid, -1)
                yield from self._fact(event.workload.ref.uid, event.workload.rv)
                if event.workload.rv > before:
                    self.workloads[event.workload.ref.uid] = event.workload
            case PodObserved(pod=seen) | ChildObserved(child=seen):
                yield from self._fact(seen.ref.uid, seen.rv)
            case PodGroupObserved(pod_group=seen) | NodeObserved(node=seen):
                yield from self._fact(seen.ref.uid, seen.rv)
            case ObjectGone():
                self._gone(event)
            case _:
                pass

    def _epoch(self, stored: Stored) -> Iterator[Finding]:
        """I13: every commit carries the epoch of the newest leader_started of its (stage, shard)."""
        commit, key = stored.commit, (stored.commit.stage, stored.commit.shard)
        if any(isinstance(event, LeaderStarted) for event in commit.events):
            yield "I13", commit.epoch == 0, f"{key} starts to lead under epoch {commit.epoch}"
            self._epochs[key] = stored.seq
        elif key in self._epochs:
            epoch = self._epochs[key]
            yield "I13", commit.epoch == epoch, f"{key} wrote under epoch {commit.epoch}, {epoch} is in force"

    def _fact(self, uid: str, rv: int) -> Iterator[Finding]:
        """I11: what the facts say of one object never goes back to an older version."""
        before = self._versions.get(uid, -1)
        yield "I11", rv > before, f"fact of {uid} at {rv} after {'its end' if before == GONE else before}"
        self._versions[uid] = max(before, rv)

    def _gone(self, event: ObjectGone) -> None:
        """It may become again what it was, under a newer version; see ObjectGone."""
        uid = event.ref.uid
        if isinstance(event, WorkloadGone):
            self.workloads.pop(uid, None)
        self._versions[uid] = after_end(event, self._versions.get(uid, -1))
