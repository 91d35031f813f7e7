"""The story of a job: its status, and everything that happened to it, from its first fact on, gone or not.

Pure: a view of the read model, in words.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from msgspec import Struct, field

from muster.core.codes.codes import CODES
from muster.core.codes.happenings import Happening
from muster.core.codes.raywaits import RayWaits
from muster.core.presentation.desired import pauses_over
from muster.core.quota.ledger.ledger import leaf_of
from muster.core.readmodel.history import where
from muster.core.readmodel.model import ReadModel
from muster.core.readmodel.records import Record
from muster.core.readmodel.state import ReadState
from muster.core.stage import Folder
from muster.core.status.job import job_status
from muster.core.status.jobstatus import JobStatus
from muster.core.status.raywaits import ray_waits
from muster.core.views.narrator import NarratedEvent, entry_of
from muster.core.views.standing import Standing, standing_of
from muster.core.views.takers import Takers
from muster.core.wording import events_victims, raywaits
from muster.core.wording.events import line
from muster.core.wording.explain import room_made
from muster.events.decisions import PreemptionProposed
from muster.events.envelope import Stored
from muster.model.keys import Ref

SIMILAR_SHOWN = 5


class StoryEntry(Struct, frozen=True):
    """One entry of a story; ``times`` over 1 when the same was said that often in a row, last at ``last_at``."""

    entry: NarratedEvent
    times: int = 1
    last_at: int = 0


class Waits(Struct, frozen=True):
    """What waits in a Ray cluster: ``pieces``, and below each of them what becomes of it in each worker group."""

    text: str
    pieces: list[tuple[str, list[str]]]


class JobStory(Struct, frozen=True):
    """A job's story. ``log_id``, ``generation`` and ``seq`` say how far of which log it goes."""

    ref: Ref
    standing: Standing
    happenings: list[StoryEntry]
    log_id: str
    generation: int
    seq: int
    now: int
    earlier: int = 0
    """How many jobs of the same name there were before this one."""
    pauses: list[str] = field(default_factory=list)
    """What is paused where it belongs."""
    waits: list[Waits] = field(default_factory=list)
    """What waits in its Ray clusters."""


class Matches(Struct, frozen=True):
    """What a name may mean: the jobs themselves, or, when there are none, names like it."""

    keys: list[str] = field(default_factory=list)
    similar: list[str] = field(default_factory=list)


class Story:
    """Jobs of one name, as the read model knows them: ``namespace/name``, or a bare name in any namespace."""

    def __init__(self, wanted: str, kind: str = "", state: ReadState | None = None) -> None:
        """``kind``: of which kind, where jobs of several kinds have one name; ``state``: folded by the caller."""
        model = ReadModel()
        self.state: ReadState = state if state is not None else model.initial()
        self._folder = Folder(model)
        self._kind = kind
        self._wanted = wanted

    def feed(self, stored: Stored) -> None:
        """Hear one more commit; they come in order, from the one after the state's."""
        self._folder.fold(self.state, stored)

    def _keys(self) -> dict[str, None]:
        """namespace/name of every job there is or was, of the kind that is asked for."""
        records = self.state.records.values()
        return {record.ref.key: None for record in records if self._kind in ("", record.ref.kind)}

    def matches(self) -> Matches:
        """The jobs the name means."""
        known = self._keys()
        keys = [key for key in known if self._wanted in (key, key.rpartition("/")[2])]
        if keys:
            return Matches(sorted(keys))
        names = {key: key for key in known} | {key.rpartition("/")[2]: key for key in known}
        close = get_close_matches(self._wanted, list(names), n=SIMILAR_SHOWN, cutoff=0.5)
        close += [name for name in names if self._wanted in name]
        return Matches(similar=list(dict.fromkeys(names[name] for name in close))[:SIMILAR_SHOWN])

    def of(self, key: str, *, acting: bool = True, present: int = 0) -> JobStory:
        """The story of the newest job with that ``namespace/name``, which must be one of ``matches().keys``.

        ``present``: when it is now, if that is known: an idle log has no newer time.
        """
        state = self.state
        records = [each for each in state.records.values() if each.ref.key == key and self._kind in ("", each.ref.kind)]
        record, uid, now = records[-1], records[-1].ref.uid, max(state.now, present)
        told = sorted((*record.happenings, *_parked(state, record)), key=lambda each: (each.seq, each.item))
        return JobStory(
            ref=record.ref,
            standing=standing_of(state, uid, now, acting=acting, more=more_of(state, uid, job_status(state, uid))),
            happenings=[_shown(record.ref, each) for each in told],
            log_id=state.log_id,
            generation=state.generation,
            seq=state.seq,
            now=now,
            earlier=len(records) - 1,
            pauses=pauses_over(state, _queue(state, uid)),
            waits=[_waits(each) for each in ray_waits(state, uid) if each.pieces],
        )


def _waits(found: RayWaits) -> Waits:
    pieces = [(raywaits.piece(each), [raywaits.fate(fate) for fate in each.fates]) for each in found.pieces]
    return Waits(raywaits.heading(found), pieces)


def _shown(ref: Ref, each: Happening) -> StoryEntry:
    return StoryEntry(entry_of(ref, each), each.times, each.last_at or each.at)


def _queue(state: ReadState, uid: str) -> str:
    """The queue a job belongs to; empty when it belongs to none."""
    if uid in state.queues.ledger.charges:
        return state.queues.ledger.charges[uid].queue
    workload = state.queues.workloads.get(uid)
    return (leaf_of(state.queues.ledger, workload) if workload is not None else None) or ""


def _parked(state: ReadState, record: Record) -> Iterator[Happening]:
    """That a job waits because one of its size was refused in its stead, where it was not tried itself since."""
    job = state.queues.jobs.get(record.ref.uid)
    shape = state.queues.book.shapes.get(job.shape) if job is not None and job.status == "waiting" else None
    denial = shape.denial if shape is not None else None
    if job is None or denial is None:
        return
    tried = next((each for each in reversed(record.happenings) if each.what == "quota_denied"), None)
    if tried is not None and max(tried.seq, tried.last_seq) >= denial.cause.seq:
        return
    at, seq, item = state.parked_at.get(job.shape, record.since), denial.cause.seq, denial.cause.item
    queued = next((each for each in reversed(record.happenings) if each.what == "workload_queued"), None)
    if queued is not None and (queued.seq, queued.item) > (seq, item):
        at, seq, item = queued.at, queued.seq, queued.item
    yield Happening(
        at=at,
        seq=seq,
        item=item,
        what="parked",
        weight="turn",
        refusal=denial.short,
        where=where(state, job),
    )


def more_of(state: ReadState, uid: str, status: JobStatus, takers: Takers | None = None) -> str:
    """The end of a refusal: the jobs that took the quota of a waiting job, and what was tried for it; for the growth of
    a Ray cluster, what was tried for that. ``status``: the job's; ``takers``: of this state, where many jobs are asked
    about.
    """
    job, record = state.queues.jobs.get(uid), state.records.get(uid)
    if record is not None and status.charge is not None and record.growth.denied is not None:
        return _tried(state, record)
    if status.short is None or job is None or record is None:
        return ""
    tried = _tried(state, record)
    if CODES[status.code].holders == "none":
        return tried
    since = next((each.seq for each in reversed(record.happenings) if each.what == "workload_queued"), 0)
    return (takers or Takers(state.takers)).told(since, job, status.short.refusal) + tried


_TRIES = ("reclaim_deferred", "plan_stale", "claim_ended", "preemption_proposed")
"""What was tried to make room for a job."""


def _tried(state: ReadState, record: Record) -> str:
    """What was tried last to make room for it, and what became of that, since it was queued; a proposal only while its
    victims hold quota, and one without victims only until its claim is open. Once it is, they are its victims.
    """
    charges, served = state.queues.ledger.charges, record.ref.uid in state.queues.ledger.claims.by_uid
    for each in reversed(record.happenings):
        event = each.event
        if each.what in ("workload_queued", "growth_granted"):
            return ""
        if isinstance(event, PreemptionProposed):
            victims = [victim.ref.uid for victim in event.victims] + [victim.ref.uid for victim in event.partial]
            if not any(uid in charges for uid in victims) and (victims or served):
                continue
            if served:
                return room_made(events_victims.leaving(event))
        if each.what in _TRIES:
            return room_made(line(each).text)
    return ""
