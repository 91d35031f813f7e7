"""The story of a job, with the status in words and the jobs that took the quota.

A view without decisions: ``told.status`` has the statuses, and ``told.wording`` has the sentences.

The reservations since a job was queued: quota that a waiting job saw pass by.

Pure: a view of the read model, in words.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import islice

from msgspec import Struct, field

from muster.core.queueing.queues import Job
from muster.core.quota.demand import chain_of
from muster.core.quota.ledger.quotaledger import leaf_of
from muster.core.stage import Folder
from muster.events.decisions import PreemptionProposed
from muster.events.envelope import Stored
from muster.model.demand import Shortfall
from muster.model.keys import Ref
from muster.model.resources import format_quantity, format_vector
from muster.told.codes.codetable import CODES, RayWaits
from muster.told.codes.happenings import Happening, Taker
from muster.told.presentation.desired import pauses_over, settings_left_out
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState, Record
from muster.told.status.jobstatus import JobStatus
from muster.told.status.raywaits import ray_waits
from muster.told.status.statuses import job_status, wanting
from muster.told.views.narrator import entry_of
from muster.told.views.tellings import JobStory, ShownHolder, ShownWanting, Standing, StoryEntry, Waits
from muster.told.wording import explain, jobs, nodewords, raywords
from muster.told.wording.events import line
from muster.told.wording.explain import room_made

# --- standing ---------------------------------------------------------------------------------------------------------


def standing_of(state: ReadState, uid: str, now: int, *, acting: bool = True, more: str = "") -> Standing:
    """The status of a job. ``now``: ms since the epoch; ``more``: text that follows the refusal.

    ``acting``: false where admissions are not carried out.
    """
    status = job_status(state, uid, acting=acting)
    return Standing(
        code=status.code,
        text=jobs.text(status, now, more=more),
        queue=status.queue if status.charge is not None or status.phase == "waiting" else "",
        position=status.line.position,
        length=status.line.length,
        charged=format_vector(status.charge.request) if status.charge is not None else "",
        wanting=_wanting(state, status, now),
    )


def _wanting(state: ReadState, status: JobStatus, now: int) -> ShownWanting | None:
    needed = wanting(state, status)
    if needed is None:
        return None
    name = needed.refusal.resource
    return ShownWanting(
        quota=needed.refusal.path,
        resource=name,
        request=format_quantity(needed.refusal.asked, name),
        limit=format_quantity(needed.refusal.limit, name),
        used=format_quantity(needed.refusal.used, name),
        free=format_quantity(needed.free, name),
        missing=format_quantity(needed.missing, name),
        holders=[
            ShownHolder(holder.job, format_quantity(holder.amount, name), jobs.holds(holder, now))
            for holder in needed.holders
        ],
        held_by=needed.held_by,
    )


# --- takers -----------------------------------------------------------------------------------------------------------


SHOWN = 3


class Takers:
    """The remembered reservations, for any number of waiting jobs.

    One look through the reservations for each limit that refuses a job.
    """

    def __init__(self, kept: Iterable[Taker]) -> None:
        """``kept``: oldest first."""
        self._kept = kept
        self._taken: dict[tuple[str, str], _Taken] = {}
        """(path of a queue, resource) -> the reservations of the resource there"""

    def told(self, seq: int, job: Job, refusal: Shortfall) -> str:
        """A sentence about the reservations after a sequence that took the job's resource; empty without any."""
        where = refusal.path, refusal.resource
        if where not in self._taken:
            self._taken[where] = _Taken(self._kept, *where)
        taken, own = self._taken[where], job.ref.key
        count = taken.count(seq, own)
        newest = (taking for taking in reversed(taken.all) if taking.job != own)
        shown = [_one(taking, job, refusal) for taking in islice(newest, min(count, SHOWN))]
        return explain.taken_meanwhile(refusal.resource, shown, count) if count else ""


class _Taken:
    """The reservations of a resource at or below a queue, oldest first."""

    def __init__(self, kept: Iterable[Taker], path: str, resource: str) -> None:
        self.all = [taking for taking in kept if taking.request.get(resource) and path in chain_of(taking.queue)]
        self._seqs = [taking.seq for taking in self.all]
        self._own: dict[str, list[int]] = {}
        """job -> the sequences of the job's own reservations"""
        for taking in self.all:
            self._own.setdefault(taking.job, []).append(taking.seq)

    def count(self, seq: int, own: str) -> int:
        """The number of reservations after a sequence, those of the job ``own`` left out."""
        return _after(self._seqs, seq) - _after(self._own.get(own, ()), seq)


def _after(seqs: Sequence[int], seq: int) -> int:
    return len(seqs) - bisect_right(seqs, seq)


def _one(taker: Taker, job: Job, refusal: Shortfall) -> str:
    amount = format_quantity(taker.request[refusal.resource], refusal.resource)
    queue = taker.queue if taker.queue != job.queue else ""
    return explain.taker(taker.job, amount, queue, ahead=taker.place is not None and taker.place < job.place)


# --- story ------------------------------------------------------------------------------------------------------------


SIMILAR_SHOWN = 5


class Matches(Struct, frozen=True):
    """The jobs that a name may mean, or similar names when no job has the name."""

    keys: list[str] = field(default_factory=list)
    similar: list[str] = field(default_factory=list)


class Story:
    """Jobs of one name, as the read model knows the jobs: ``namespace/name``, or a bare name in any namespace."""

    def __init__(self, wanted: str, kind: str = "", state: ReadState | None = None) -> None:
        """``kind``: the kind of the job, for a name of several kinds; ``state``: folded by the caller."""
        model = ReadModel()
        self.state: ReadState = state if state is not None else model.initial()
        self._folder = Folder(model)
        self._kind = kind
        self._wanted = wanted

    def feed(self, stored: Stored) -> None:
        """Hear one more commit, in order, from the commit after the state."""
        self._folder.fold(self.state, stored)

    def _keys(self) -> dict[str, None]:
        """namespace/name of every present and past job of the wanted kind."""
        records = self.state.records.values()
        return {record.ref.key: None for record in records if self._kind in ("", record.ref.kind)}

    def matches(self) -> Matches:
        """The jobs the name means."""
        known = self._keys()
        keys = [key for key in known if self._wanted in (key, key.rpartition("/")[2])]
        if keys:
            return Matches(sorted(keys))
        names = {key: key for key in known} | {key.rpartition("/")[2]: key for key in known}
        from difflib import get_close_matches  # For names that are none.

        close = get_close_matches(self._wanted, list(names), n=SIMILAR_SHOWN, cutoff=0.5)
        close += [name for name in names if self._wanted in name]
        return Matches(similar=list(dict.fromkeys(names[name] for name in close))[:SIMILAR_SHOWN])

    def of(self, key: str, *, acting: bool = True, present: int = 0) -> JobStory:
        """The story of the newest job with a ``namespace/name``, which must be one of ``matches().keys``.

        ``present``: the time now, if known: an idle log has no newer time.
        """
        state = self.state
        records = [
            record for record in state.records.values() if record.ref.key == key and self._kind in ("", record.ref.kind)
        ]
        record, uid, now = records[-1], records[-1].ref.uid, max(state.now, present)
        return JobStory(
            ref=record.ref,
            standing=standing_of(state, uid, now, acting=acting, more=more_of(state, uid, job_status(state, uid))),
            happenings=[_shown(record.ref, happening) for happening in record.past.all()],
            log_id=state.log_id,
            generation=state.generation,
            seq=state.seq,
            now=now,
            earlier=len(records) - 1,
            pauses=[*pauses_over(state, _queue(state, uid)), *settings_left_out(state, uid)],
            waits=[_waits(waits) for waits in ray_waits(state, uid) if waits.pieces],
        )


def _waits(waits: RayWaits) -> Waits:
    pieces = [(raywords.piece(piece), [raywords.fate(fate) for fate in piece.fates]) for piece in waits.pieces]
    return Waits(raywords.heading(waits), pieces)


def _shown(ref: Ref, happening: Happening) -> StoryEntry:
    return StoryEntry(entry_of(ref, happening), happening.times, happening.last_at or happening.at)


def _queue(state: ReadState, uid: str) -> str:
    """The queue of a job; empty when the job belongs to no queue."""
    if uid in state.queues.ledger.charges:
        return state.queues.ledger.charges[uid].queue
    workload = state.queues.workloads.get(uid)
    return (leaf_of(state.queues.ledger, workload) if workload is not None else None) or ""


def more_of(state: ReadState, uid: str, status: JobStatus, takers: Takers | None = None) -> str:
    """The end of a refusal: the jobs that took the quota of a waiting job, and the last try to make room for the job.

    For the growth of a Ray cluster, the last try for the growth. ``status``: of the job; ``takers``: of this state, for
    callers that ask about many jobs.
    """
    job, record = state.queues.jobs.get(uid), state.records.get(uid)
    if record is not None and status.charge is not None and record.growth.denied is not None:
        return _tried(state, record)
    if status.short is None or job is None or record is None:
        return ""
    tried = _tried(state, record)
    if CODES[status.code].holders == "none":
        return tried
    since = next((happening.seq for happening in reversed(record.past.all()) if happening.what == "workload_queued"), 0)
    return (takers or Takers(state.takers)).told(since, job, status.short.refusal) + tried


_TRIES = ("reclaim_deferred", "plan_stale", "claim_ended", "preemption_proposed")
"""Attempts to make room for a job."""


def _tried(state: ReadState, record: Record) -> str:
    """The last try to make room for a job since the job was queued, and the outcome.

    A proposal counts only while its victims hold quota. A proposal without victims counts only until the job's claim is
    open. From then on, the proposed jobs are the victims of the claim.
    """
    charges, served = state.queues.ledger.charges, record.ref.uid in state.queues.ledger.claims.by_uid
    for happening in reversed(record.past.all()):
        event = happening.event
        if happening.what in ("workload_queued", "growth_granted"):
            return ""
        if isinstance(event, PreemptionProposed):
            victims = [victim.ref.uid for victim in event.victims] + [victim.ref.uid for victim in event.partial]
            if not any(uid in charges for uid in victims) and (victims or served):
                continue
            if served:
                return room_made(nodewords.leaving(event))
        if happening.what in _TRIES:
            return room_made(line(happening).text)
    return ""
