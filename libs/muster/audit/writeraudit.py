"""The audit of the writers of the log: leaders, facts, leaves, restless stages.

I11: no object goes back in time. I13: one leader at a time writes. I16: a suspended job of a queue is queued.
I22: every charge is at the leaf of its workload, below the ElasticQuotaTree. I23: the number of decisions between two
inputs is bounded.

Like the auditor, this audit keeps books of its own, and calls no code of the accountant or the sorter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from muster.audit.auditbooks import Finding, Trees
from muster.events.base import Event
from muster.events.decisions import (
    QuotaDenied,
    QuotaMoved,
    QuotaReleased,
    QuotaReserved,
    QuotaTreeAccepted,
    QuotaTreeRemoved,
    WorkloadAdopted,
    WorkloadDequeued,
    WorkloadQueued,
)
from muster.events.envelope import MAX_EVENTS, Stored
from muster.events.facts import (
    ChildObserved,
    NodeObserved,
    ObjectGone,
    ObjectUnreadable,
    PodGroupObserved,
    PodObserved,
    WorkloadGone,
    WorkloadObserved,
)
from muster.events.system import Genesis, LeaderStarted
from muster.model.keys import Ref
from muster.model.quota import KAI_ROOT
from muster.model.workload import Workload

# --- leaves -----------------------------------------------------------------------------------------------------------


_NAMES = ("quota.scheduling.alibabacloud.com/name", "quota.scheduling.koordinator.sh/name")
_KAI = "kai.scheduler/queue"

GONE = 2**63
"""The version of an ended object."""
MOST_TURNS = 8
"""Most times one workload may be queued or proposed without a result between two inputs."""
MOST_COMMITS = 64
"""Decision commits between two inputs that are never too many, ..."""
COMMITS_PER_WORKLOAD = 8
"""... and as many more for each workload there is."""


def after_end(event: ObjectGone, before: int) -> int:
    """The version that a returning object must exceed after its end; ``before``: the newest known version."""
    if event.unwatched:
        return -1
    return max(event.rv, before) if event.rv else GONE


class LeafAudit:
    """Feed every commit in order, then call :meth:`finish`."""

    def __init__(self) -> None:
        self._trees = Trees()
        """The trees of quota; queues of KAI have rules of their own, and are not checked."""
        self._asked: dict[str, tuple[str, str, int]] = {}
        """workload uid -> (namespace, quota in the label, sequence of the start)"""
        self._charged: dict[str, tuple[str, Ref, str]] = {}
        """workload uid -> (leaf, workload, quota named at the charge)"""
        self._waits: dict[str, int] = {}
        """uid of a workload that waits -> sequence since when"""
        self._queued: set[str] = set()
        self._sorted = 0
        """Sequence up to which the queue sorter knew the log at its last decision."""
        self._versions: dict[str, int] = {}
        """uid -> newest version: a late fact adds nothing"""
        self._judged = 0
        """Sequence up to which the accountant knew the log when its decisions were last complete."""
        self._commits = 0
        self._turns: Counter[str] = Counter()

    def feed(self, stored: Stored) -> Iterator[Finding]:
        """The findings of one commit."""
        commit = stored.commit
        if commit.kind == "input":
            self._commits = 0
            self._turns.clear()
        else:
            self._commits += 1
            most = MOST_COMMITS + COMMITS_PER_WORKLOAD * len(self._asked)
            yield "I23", self._commits <= most, f"{self._commits} commits of decisions follow one input, over {most}"
        for event in commit.events:
            yield from self._event(event, stored)
        if commit.stage == "quota_accountant" and commit.kind == "decision" and len(commit.events) < MAX_EVENTS:
            self._judged = commit.in_seq
        if commit.stage == "queue_sorter" and commit.kind == "decision" and len(commit.events) < MAX_EVENTS:
            self._sorted = commit.in_seq

    def finish(self) -> Iterator[Finding]:
        """Check at the end: the accountant has followed every move that the accountant has seen."""
        for uid, (leaf, ref, _) in self._charged.items():
            home, since = self._home(uid)
            if home and since <= self._judged:
                yield "I22", leaf == home, f"{ref} is charged at {leaf} and belongs to {home}"
        for uid, seq in self._waits.items():
            home, since = self._home(uid)
            if home and max(seq, since) <= self._sorted:
                told = uid in self._queued or uid in self._charged
                yield "I16", told, f"{uid} waits since {seq}, and is not in its queue {home}"

    def _event(self, event: Event, stored: Stored) -> Iterator[Finding]:  # noqa: C901 - a table of events
        match event:
            case QuotaTreeAccepted(tree=tree) if tree.root == KAI_ROOT:
                pass
            case QuotaTreeAccepted() | QuotaTreeRemoved():
                self._trees.note(event, stored.seq)
                for uid, (leaf, ref, named) in self._charged.items():  # A tree moves what is charged along by itself.
                    self._charged[uid] = (self._trees.leaf(ref.namespace, named) or leaf, ref, named)
            case WorkloadObserved() if event.workload.rv > self._versions.get(event.workload.ref.uid, -1):
                workload = event.workload
                self._versions[workload.ref.uid] = workload.rv
                # A queue of KAI has rules of its own; a workload with a label of such a queue is not checked.
                names = (_KAI, *_NAMES)
                named = next((f"{key}:{workload.labels[key]}" for key in names if workload.labels.get(key)), "")
                before = self._asked.get(workload.ref.uid)
                since = before[2] if before is not None and before[1] == named else stored.seq
                self._asked[workload.ref.uid] = (workload.ref.namespace, named, since)
                if workload.waits:
                    self._waits.setdefault(workload.ref.uid, stored.seq)
                else:
                    self._waits.pop(workload.ref.uid, None)
            case ObjectUnreadable():
                self._waits.pop(event.ref.uid, None)
            case WorkloadGone():
                self._asked.pop(event.ref.uid, None)
                self._waits.pop(event.ref.uid, None)
                self._versions[event.ref.uid] = after_end(event, self._versions.get(event.ref.uid, -1))
            case WorkloadQueued():
                self._queued.add(event.ref.uid)
                yield self._turn(event.ref.uid, f"{event.ref} is queued")
            case WorkloadDequeued():
                self._queued.discard(event.ref.uid)
            case QuotaDenied() if event.reason == "stale":
                yield self._turn(event.ref.uid, f"{event.ref} is proposed without a result")
            case QuotaReserved() | WorkloadAdopted() | QuotaMoved():
                home, since = self._home(event.ref.uid)
                told = f"{event.ref} is charged at {event.queue} and belongs to {home}"
                yield "I22", not home or since > stored.commit.in_seq or event.queue == home, told
                self._charged[event.ref.uid] = (event.queue, event.ref, event.named)
            case QuotaReleased():
                self._charged.pop(event.ref.uid, None)
                if event.ref.uid in self._waits:
                    self._waits[event.ref.uid] = stored.seq
            case _:
                pass

    def _turn(self, uid: str, action: str) -> Finding:
        self._turns[uid] += 1
        return "I23", self._turns[uid] <= MOST_TURNS, f"{action} {self._turns[uid]} times and nothing has happened"

    def _home(self, uid: str) -> tuple[str, int]:
        """(leaf of a workload, or none; sequence since when the leaf may be due)."""
        namespace, named, since = self._asked.get(uid, ("", _KAI, 0))
        home = self._trees.leaf(namespace, named.partition(":")[2]) if not named.startswith(_KAI) else ""
        return home, max(since, self._trees.changed)


# --- facts ------------------------------------------------------------------------------------------------------------


class FactAudit:
    """Feed every commit in order."""

    def __init__(self) -> None:
        self.workloads: dict[str, Workload] = {}
        """uid -> the workload as observed last"""
        self._versions: dict[str, int] = {}
        self._epochs: dict[tuple[str, str], int] = {}

    def feed(self, stored: Stored) -> Iterator[Finding]:
        """The findings of one commit."""
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
        """I11: the facts of one object never go back to an older version."""
        before = self._versions.get(uid, -1)
        yield "I11", rv > before, f"fact of {uid} at {rv} after {'its end' if before == GONE else before}"
        self._versions[uid] = max(before, rv)

    def _gone(self, event: ObjectGone) -> None:
        """The object may return to its former role, under a newer version; see ObjectGone."""
        uid = event.ref.uid
        if isinstance(event, WorkloadGone):
            self.workloads.pop(uid, None)
        self._versions[uid] = after_end(event, self._versions.get(uid, -1))
