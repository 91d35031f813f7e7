"""Which events concern one job or one queue.

Pure; it has to hear a log from its beginning to know who belongs where.
"""

from __future__ import annotations

from muster.events import decisions as d
from muster.events import facts
from muster.events.base import Event
from muster.events.envelope import Stored
from muster.model.keys import Ref

_TREE = (d.QuotaTreeAccepted, d.QuotaTreeRejected, d.QuotaTreeRemoved)


class Filter:
    """``job``: ``namespace/name`` or a bare name. ``queue``: a quota path; what lies below it counts too."""

    def __init__(self, *, job: str = "", queue: str = "") -> None:
        self._job = job
        self._queue = queue.rstrip("/")
        self._owner: dict[str, str] = {}
        """uid of a child, pod or QueueUnit -> uid of what it belongs to"""
        self._keys: dict[str, Ref] = {}
        """uid -> the job"""
        self._queues: dict[str, str] = {}
        """uid of a job or a Queue object -> quota path"""

    @property
    def empty(self) -> bool:
        """Everything passes."""
        return not (self._job or self._queue)

    def wanted(self, stored: Stored) -> set[int]:
        """The indices of the events of a commit that pass."""
        return {index for index, event in enumerate(stored.commit.events) if self._passes(event)}

    def _passes(self, event: Event) -> bool:
        uids = self._learn(event)
        if self.empty:
            return True
        if self._queue and not self._job and isinstance(event, _TREE):
            return True
        return any(self._is_wanted(self._root(uid)) for uid in uids)

    def _is_wanted(self, uid: str) -> bool:
        if self._job:
            ref = self._keys.get(uid)
            if ref is None or self._job not in (ref.key, ref.name):
                return False
        if not self._queue:
            return True
        path = self._queues.get(uid, "")
        return path == self._queue or path.startswith(f"{self._queue}/")

    def _root(self, uid: str) -> str:
        while uid in self._owner:
            uid = self._owner[uid]
        return uid

    def _learn(self, event: Event) -> list[str]:
        """Note who belongs where; returns the uids an event is about."""
        match event:
            case facts.WorkloadObserved():
                ref = event.workload.ref
                self._keys[ref.uid] = ref
                return [ref.uid]
            case facts.ChildObserved():
                return [self._own(event.child.ref, event.child.owner_uid)]
            case facts.PodObserved():
                return [self._own(event.pod.ref, event.pod.owner_uid)]
            case facts.QueueUnitObserved():
                return [self._own(event.ref, event.owner_uid)]
            case facts.QueueObserved():
                self._queues[event.ref.uid] = event.path
                return [event.ref.uid]
            case d.CandidatesProposed():
                for candidate in event.candidates:
                    self._queues[candidate.ref.uid] = candidate.queue
                return [candidate.ref.uid for candidate in event.candidates]
        found = getattr(event, "ref", None)
        if not isinstance(found, Ref):
            return []
        if found.kind.endswith("Job"):
            self._keys.setdefault(found.uid, found)
        queue = getattr(event, "queue", "")
        if queue:
            self._queues[found.uid] = queue
        return [found.uid]

    def _own(self, ref: Ref, owner_uid: str) -> str:
        if owner_uid and owner_uid != ref.uid:
            self._owner[ref.uid] = owner_uid
        return ref.uid
