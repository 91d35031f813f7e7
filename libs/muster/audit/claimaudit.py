"""The audit of claims (I25, I26) and of moves (I28), from the log alone.

I25: a claim lasts only as long as its job waits with the request of the claim's opening, or its cluster asks for the
replicas. A job that passes a claim for age declares an end before the promised time of the claim. For age, the amounts
of a job may be idle for at most a tenth of the time that the job has waited.

I26: a job is suspended so that another job is admitted, or grows. A claim with victims ends with an admission or a
grant, or something has changed in between. Without such a change no further victims are ordered to leave for the claim.

I28: no job moves without a place, nor without its quota.

Like the auditor, this audit keeps books of its own, and calls no code of the accountant, the preemptor or the gang
admitter.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from muster.audit.auditbooks import AuditedClaim, Finding, Orders, Trees, asks_for
from muster.audit.writeraudit import after_end
from muster.events.base import Event
from muster.events.charges import ChargeChanged
from muster.events.claims import ClaimEnded, ClaimOpened, VictimStays
from muster.events.decisions import (
    EvictionOrdered,
    GangAdmitted,
    GangDeferred,
    PlacesReleased,
    QuotaMoved,
    QuotaReleased,
    QuotaReserved,
    QuotaTreeAccepted,
    QuotaTreeRejected,
    QuotaTreeRemoved,
    WorkloadAdopted,
    WorkloadDequeued,
    WorkloadQueued,
)
from muster.events.effects import EffectFailed
from muster.events.elastic import GrowthGranted, GrowthRequested, GrowthWithdrawn
from muster.events.envelope import MAX_EVENTS, Commit, Stored
from muster.events.facts import (
    NodeGone,
    NodeObserved,
    ObjectUnreadable,
    PodObserved,
    QueueGone,
    QueueObserved,
    WorkloadGone,
    WorkloadObserved,
)
from muster.events.system import PlacementChosen

# --- claims -----------------------------------------------------------------------------------------------------------


_WAIT_PART = 10
"""Amounts are idle for a claim for one part in so many of the wait."""


class _Asked(Struct):
    """How a job was seen last."""

    waits: bool
    since: int
    """Sequence since when the job waits, or does not."""


class ClaimAudit:
    """Feed every event of every commit in order, before the orders note the event, and the end of the commit."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._jobs: dict[str, _Asked] = {}
        self._versions: dict[str, int] = {}
        """uid -> newest version: a late fact adds nothing"""
        self._told: dict[str, int] = {}
        """workload uid -> sequence of the workload's newest fact"""
        self._supply = 0
        """Sequence of the last change of usage other than by admissions and releases, ..."""
        self._pauses = 0
        """... of the last change of pauses, ..."""
        self._nodes = 0
        """... and of the last change of the nodes, or of other pods on the nodes."""
        self._trees = Trees()
        self._asked: dict[str, tuple[GrowthRequested | None, int]] = {}
        """uid -> (last request of the workload's Ray cluster, None once no longer charged; sequence)"""
        self._came: dict[str, int] = {}
        """workload uid -> log time (ms) of the first attempt since the job last ran"""
        self._ran: set[str] = set()
        """uids of jobs seen at work since their quota was reserved"""
        self._places: dict[str, AuditedClaim] = {}
        """workload uid -> claim served for the workload, until the workload is placed"""

    def over(self, commit: Commit) -> Iterator[Finding]:
        """The findings after the last event of a commit."""
        judged = commit.stage == "quota_accountant" and commit.kind == "decision" and len(commit.events) < MAX_EVENTS
        trees = bool(commit.events) and isinstance(
            commit.events[0], QuotaTreeAccepted | QuotaTreeRejected | QuotaTreeRemoved
        )
        if judged and not trees:
            yield from self._justified(commit.in_seq)

    def _justified(self, seq: int) -> Iterator[Finding]:
        """I25, by the facts known to the accountant when its decisions were complete."""
        for uid, held in self._orders.by_uid.items():
            if held.growth is not None:
                asked, since = self._asked.get(uid, (None, 0))
                wanted = asked is not None and asks_for(asked, held.growth, held.attempt)
                yield "I25", wanted or since > seq, f"{held.ref}: its claim outlives the growth it was opened for"
                continue
            job = self._jobs.get(uid)
            gone = job is None and self._told.get(uid, 0) <= seq
            left = job is not None and not job.waits and job.since <= seq
            yield "I25", not (gone or left), f"{held.ref}: its claim outlives what it was opened for"

    def event(self, event: Event, stored: Stored) -> Iterator[Finding]:  # noqa: C901 - a table of events
        """The findings of one event."""
        seq = stored.seq
        match event:
            case EvictionOrdered():
                reason = "more jobs are suspended for it, and those before are leaving as ordered"
                yield from self._was_needed(event.ref.uid, reason)
            case ClaimEnded():
                yield from self._was_needed(event.ref.uid, f"its claim ends without a change: {event.outcome}")
            case ClaimOpened(kind="age"):
                waited = stored.commit.at - self._came.get(event.ref.uid, stored.commit.at)
                told = f"{event.ref}: quota may be idle for it for {event.idles_ms} ms, and it has waited {waited} ms"
                yield "I25", event.idles_ms * _WAIT_PART <= waited, told
            case QuotaReserved():
                if event.beside:
                    yield self._passed(event, stored.commit.at)
                self._ran.discard(event.ref.uid)
                self._served(event)
            case WorkloadAdopted():
                self._served(event)
                self._supply = seq
            case GangDeferred():
                yield from self._deferred(event)
            case WorkloadObserved():
                self._seen(event, seq)
            case WorkloadGone() | ObjectUnreadable():
                self._lost(event, seq)
            case WorkloadQueued() | WorkloadDequeued():
                self._told[event.ref.uid] = seq
                if isinstance(event, WorkloadQueued):
                    self._came.setdefault(event.ref.uid, stored.commit.at)
            case QuotaTreeAccepted() | QuotaTreeRemoved():
                self._trees.note(event, seq)
            case QueueObserved() | QueueGone():
                self._pauses = seq
            case GrowthRequested() | GrowthGranted() | QuotaReleased():
                self._grows(event, seq)
            case ChargeChanged() | GrowthWithdrawn() | QuotaMoved() | VictimStays():
                self._supply = seq
            case EffectFailed(action="suspend"):
                self._supply = seq
            case NodeObserved() | NodeGone() | PodObserved() | GangAdmitted() | PlacesReleased():
                self._nodes = seq
            case _:
                pass

    def _seen(self, event: WorkloadObserved, seq: int) -> None:
        workload = event.workload
        if workload.rv <= self._versions.get(workload.ref.uid, -1):
            return
        self._versions[workload.ref.uid] = workload.rv
        waits = (
            workload.suspended
            and workload.phase in ("waiting", "suspending")
            and not workload.refusal
            and not (workload.wishes.hold or workload.deleting)
        )
        if not workload.suspended:
            self._ran.add(workload.ref.uid)
        job = self._jobs.get(workload.ref.uid)
        if job is None:
            self._jobs[workload.ref.uid] = _Asked(waits, seq)
        elif job.waits != waits:
            job.waits, job.since = waits, seq
        self._told[workload.ref.uid] = seq

    def _lost(self, event: WorkloadGone | ObjectUnreadable, seq: int) -> None:
        uid, before = event.ref.uid, self._versions.get(event.ref.uid, -1)
        late = 0 < event.rv < before if isinstance(event, WorkloadGone) else event.rv <= before
        if late or (isinstance(event, ObjectUnreadable) and uid not in self._jobs):
            return
        self._versions[uid] = after_end(event, before) if isinstance(event, WorkloadGone) else event.rv
        self._jobs.pop(uid, None)
        if isinstance(event, WorkloadGone):
            self._came.pop(uid, None)
            self._ran.discard(uid)
        self._told[uid] = seq

    def _was_needed(self, uid: str, reason: str) -> Iterator[Finding]:
        """I26: between two orders for a claim, or an order and the end of the claim, something has changed."""
        held = self._orders.by_uid.get(uid)
        if held is not None and held.suspended:
            told = f"{held.ref}: {held.suspended} were suspended for it, {reason}"
            changed = self._changed(uid, held.opened) or (held.for_nodes and self._nodes > held.planned)
            yield "I26", changed, told

    def _passed(self, event: QuotaReserved, at: int) -> Finding:
        """I25, for a job that uses held quota: the claim lasts, and the quota is free again by the promised time."""
        ends = at + event.run_ms
        kept = any(claim.ref.key == event.beside and ends <= claim.promised for claim in self._orders.by_uid.values())
        message = f"{event.ref} passes the claim of {event.beside}, and ends at {ends} ms if what it declares is true"
        return "I25", bool(event.run_ms) and kept, message

    def _changed(self, uid: str, since: int) -> bool:
        """Whether any change since a sequence affects a claim."""
        changed = max(self._supply, self._pauses, self._trees.changed, self._told.get(uid, 0))
        return changed > since or self._trees.move

    def _served(self, event: QuotaReserved | WorkloadAdopted) -> None:
        held = self._orders.by_uid.get(self._orders.served_by(event))
        self._places.pop(event.ref.uid, None)
        if held is not None and held.suspended and held.alone:
            self._places[event.ref.uid] = held

    def _deferred(self, event: GangDeferred) -> Iterator[Finding]:
        """The plan had places for the job before a victim left: the job lacks a place only if the nodes changed."""
        held = self._places.pop(event.ref.uid, None)
        if held is not None:
            message = f"{held.suspended} were suspended for it, the nodes have not changed, and it has no place"
            changed = self._nodes > held.planned or self._changed(event.ref.uid, held.planned)
            yield "I26", changed, f"{event.ref}: {message}"

    def _grows(self, event: GrowthRequested | GrowthGranted | QuotaReleased, seq: int) -> None:
        """A Ray cluster asks for replicas, or for none any more; or some are granted, and held no longer."""
        uid = event.ref.uid
        if isinstance(event, QuotaReleased) and event.reason != "moved" and uid in self._ran:
            self._came.pop(uid, None)
        if not isinstance(event, GrowthGranted):
            self._asked[uid] = event if isinstance(event, GrowthRequested) else None, seq
            self._told[uid] = seq
            return
        self._supply = seq


# --- moves ------------------------------------------------------------------------------------------------------------


APART_MS = 3_600_000
"""Least time between two moves of one job."""
KEPT_MS = 600_000
"""Time the places of a moving job are kept, after the last victim of the same order has left."""


class _Moved(Struct):
    """A job ordered to move."""

    told: str
    nodes: frozenset[str]
    others: frozenset[str]
    """uids of all jobs that leave or move for the same job"""
    going: set[str]
    """uids of the others that have not left"""
    left: int
    """Log time (ms) at which the last job left; before, the log time of the order."""
    changed: bool = False
    """A change since the order affects the places of the job."""
    attempt: int = 0
    """Attempt of the new reservation of quota; 0 before."""


class MoveAudit:
    """Feed every commit in order."""

    def __init__(self) -> None:
        self._most = 0
        self._nodes: set[str] = set()
        self._pods: set[str] = set()
        self._basis: dict[str, str] = {}
        """workload uid -> digest of the decisions' input, as seen last"""
        self._lately: dict[str, int] = {}
        """uid of a moved job -> log time (ms) of the last move"""
        self._moved: dict[str, _Moved] = {}

    def feed(self, stored: Stored) -> Iterator[Finding]:
        """The findings of one commit."""
        commit = stored.commit
        for item, event in enumerate(commit.events):
            if isinstance(event, QuotaReleased):
                self._left(event.ref.uid, commit.at)
            match event:
                case EvictionOrdered() if any(victim.moves for victim in event.victims):
                    yield from self._ordered(event, commit)
                case QuotaReleased() if event.reason == "moved":
                    yield self._handed_on(event, commit.events[item + 1] if item + 1 < len(commit.events) else None)
                case QuotaReleased() | WorkloadGone() | WorkloadDequeued():
                    self._moved.pop(event.ref.uid, None)
                case GangAdmitted() | GangDeferred():
                    yield from self._placed(event, commit)
                case PlacementChosen():
                    self._most = event.moves if event.strategy is not None else 0
                    self._change()
                case VictimStays() | EffectFailed(action="suspend"):
                    self._change(event.ref.uid)
                case _:
                    self._fact(event)

    def _fact(self, event: Event) -> None:
        match event:
            case NodeObserved():
                self._nodes.add(event.node.ref.name)
                self._change()
            case NodeGone():
                self._nodes.discard(event.ref.name)
                self._change()
            case PodObserved() if event.pod.ref.uid not in self._pods and event.pod.node:
                self._pods.add(event.pod.ref.uid)
                for moved in self._moved.values():
                    moved.changed = moved.changed or event.pod.node in moved.nodes
            case WorkloadObserved():
                uid, basis = event.workload.ref.uid, event.workload.basis
                if uid in self._moved and self._basis.get(uid) != basis:
                    self._moved[uid].changed = True
                self._basis[uid] = basis
            case _:
                pass

    def _change(self, uid: str = "") -> None:
        """Note a change that may affect places; ``uid``: only of the jobs that move with this job."""
        for moved in self._moved.values():
            moved.changed = moved.changed or not uid or uid in moved.others

    def _left(self, uid: str, at: int) -> None:
        for moved in self._moved.values():
            if uid in moved.going:
                moved.going.discard(uid)
                moved.left = at

    def _ordered(self, event: EvictionOrdered, commit: Commit) -> Iterator[Finding]:
        job, moving = f"{event.ref}", [victim for victim in event.victims if victim.moves]
        leaving, victims = {victim.ref.uid for victim in event.victims}, [victim.ref.uid for victim in moving]
        whole = [move.uid for move in event.moves] == victims and all(move.places for move in event.moves)
        yield "I28", whole, f"{job}: {len(victims)} are to move for it, and {len(event.moves)} have places"
        yield "I28", len(victims) <= self._most, f"{job}: {len(victims)} move for it, over {self._most}"
        for uid in (event.ref.uid, *victims):
            apart = commit.at - self._lately.get(uid, commit.at - APART_MS)
            yield "I28", apart >= APART_MS, f"{job}: {uid} takes part in two moves within {apart} ms"
            self._lately[uid] = commit.at
        for victim, move in zip(moving, event.moves, strict=False):
            nodes = frozenset(place.node for place in move.places)
            self._moved[move.uid] = _Moved(
                f"{victim.ref}", nodes, frozenset(leaving), set(leaving), commit.at, changed=not nodes <= self._nodes
            )

    def _handed_on(self, event: QuotaReleased, after: Event | None) -> Finding:
        moved = self._moved.get(event.ref.uid)
        kept = isinstance(after, QuotaReserved) and after.ref.uid == event.ref.uid and after.queue == event.queue
        if moved is not None and isinstance(after, QuotaReserved):
            moved.attempt = after.attempt
        return "I28", kept, f"{event.ref} is moved, and its quota is not reserved for it again at once"

    def _placed(self, event: GangAdmitted | GangDeferred, commit: Commit) -> Iterator[Finding]:
        moved = self._moved.get(event.ref.uid)
        if moved is None or moved.attempt != event.attempt:
            return
        del self._moved[event.ref.uid]
        if moved.changed or (not moved.going and commit.at >= moved.left + KEPT_MS):
            return
        if isinstance(event, GangDeferred):
            yield "I28", False, f"{moved.told} is moved, nothing has changed, and it has no place"
            return
        nodes = {place.node for place in event.placements}
        yield "I28", nodes <= moved.nodes, f"{moved.told} is moved to {sorted(nodes)}, not to {sorted(moved.nodes)}"
