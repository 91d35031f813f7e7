"""The events about a job or a queue.

Pure; the filter must hear a log from its beginning, or from a state of the read model, to know each job's queue.
"""

from __future__ import annotations

from difflib import get_close_matches

from muster.events import decisions as d
from muster.events import facts
from muster.events.base import Event
from muster.events.envelope import Stored
from muster.model.keys import Ref
from muster.model.language import say
from muster.told.readmodel.readstate import ReadState

_TREE = (d.QuotaTreeAccepted, d.QuotaTreeRejected, d.QuotaTreeRemoved)


class EventFilter:
    """``job``: ``namespace/name`` or a bare name. ``queue``: a quota path; queues below count too."""

    def __init__(self, *, job: str = "", queue: str = "") -> None:
        self._job = job
        self._queue = queue.rstrip("/")
        self._owner: dict[str, str] = {}
        """uid of a child, pod or QueueUnit -> uid of its owner"""
        self._keys: dict[str, Ref] = {}
        """uid -> the job"""
        self._queues: dict[str, str] = {}
        """uid of a job or a Queue object -> quota path"""
        self._leaves: dict[str, str] = {}
        """namespace -> quota path that claims it"""
        self._paths: set[str] = set()
        """every node of every quota tree that was in force"""
        self._begun = 0

    def begin(self, state: ReadState) -> None:
        """Take over the read model's names, and hear the log from the state's position on."""
        self._begun = state.seq
        for uid, record in state.records.items():
            self._keys[uid] = record.ref
            if record.queue:
                self._queues[uid] = record.queue
        self._queues |= state.queues.queue_paths
        self._owner = {**state.presence.owner_of, **state.presence.pod_owner, **state.unit_owner}
        self._leaves = dict(state.queues.ledger.leaf_of)
        self._paths = set(state.queues.ledger.nodes)

    @property
    def empty(self) -> bool:
        """Everything passes."""
        return not (self._job or self._queue)

    def missing(self) -> str:
        """The names of the filter that no commit has so far, with similar names; empty when all names have a commit."""
        if self._job and not any(self._job in (ref.key, ref.name) for ref in self._keys.values()):
            alike = similar(self._job, {ref.key for ref in self._keys.values()})
            return say(
                "no job {job} is in this log{earlier}{similar}", job=self._job, earlier=self._earlier(), similar=alike
            )
        paths = self._paths | set(self._queues.values())
        if self._queue and not any(path == self._queue or path.startswith(f"{self._queue}/") for path in paths):
            return say(
                "no queue {queue} is in this log{earlier}{similar}",
                queue=self._queue,
                earlier=self._earlier(),
                similar=similar(self._queue, paths),
            )
        return ""

    def _earlier(self) -> str:
        return (
            say(" as it is known since sequence {begun} (--since 1 reads all of it)", begun=self._begun)
            if self._begun
            else ""
        )

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
        """Note the owner of each object; returns the uids an event is about."""
        match event:
            case d.QuotaTreeAccepted():
                self._paths.update(node.path for node in event.tree.nodes)
                self._leaves |= {name: node.path for node in event.tree.nodes for name in node.namespaces}
            case facts.WorkloadObserved():
                return [self._observed(event.workload.ref)]
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
        ref = getattr(event, "ref", None)
        if not isinstance(ref, Ref):
            return []
        if ref.kind.endswith("Job"):
            self._keys.setdefault(ref.uid, ref)
        queue = getattr(event, "queue", "")
        if queue:
            self._queues[ref.uid] = queue
        return [ref.uid]

    def _observed(self, ref: Ref) -> str:
        """Note a job; a refused job names no queue: the queue of its namespace counts."""
        self._keys[ref.uid] = ref
        if ref.namespace in self._leaves:
            self._queues.setdefault(ref.uid, self._leaves[ref.namespace])
        return ref.uid

    def _own(self, ref: Ref, owner_uid: str) -> str:
        if owner_uid and owner_uid != ref.uid:
            self._owner[ref.uid] = owner_uid
        return ref.uid


def similar(wanted: str, known: set[str]) -> str:
    """A hint; a bare name is compared with bare names, so that a long namespace hides nothing."""
    shown = {key if "/" in wanted else key.rpartition("/")[2]: key for key in sorted(known)}
    close = [shown[match] for match in get_close_matches(wanted, list(shown), n=3, cutoff=0.5)]
    return say("; did you mean {close}?", close=say(" or ").join(close)) if close else ""
