"""The jobs of a cell as rows, with the same status as for every other reader. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from muster.serving.jobrows import ENDED, ORDER, JobFilter, JobRow, place_of
from muster.told.codes.values import Over, Phase, Promise
from muster.told.readmodel.jobfolds import phase_of
from muster.told.readmodel.readstate import ReadState, Record
from muster.told.status.statuses import job_status, promises_of
from muster.told.wording import jobs


def kinds_of(state: ReadState) -> set[str]:
    """The kinds of the jobs of a log."""
    return {record.ref.kind for record in state.records.values()}


def job_rows(state: ReadState, now: int, *, starts: bool = True) -> list[JobRow]:
    """Every job that exists or is remembered: jobs with quota first, then the others in queue order.

    ``starts``: with projected starts, for which the queues are played forward.
    """
    promises = promises_of(state, state.records if starts else (), now)
    rows = [
        _row(state, uid, record, now, promises.get(uid, Promise(why="not_waiting")))
        for uid, record in state.records.items()
    ]
    return sorted(rows, key=place_of)


class Listing(Struct, frozen=True):
    """The jobs that a filter takes, in the order of the list, and the number of all jobs by state."""

    uids: list[str]
    states: Counter[Phase]
    failed: int


def listing(state: ReadState, wanted: JobFilter, sees: Callable[[str], bool]) -> Listing:
    """One walk over all jobs, at a small cost for each job.

    ``sees``: whether jobs of a namespace may be listed. Here a queue is given by its full path.
    """
    rows: list[tuple[tuple[Any, ...], str]] = []
    states: Counter[Phase] = Counter()
    failed = 0
    for uid, record in state.records.items():
        ref = record.ref
        if not sees(ref.namespace):
            continue
        phase = phase_of(state, uid)
        outcome = record.outcome if phase in ENDED else ""
        states[phase] += 1
        failed += outcome == "failed"
        if phase in ENDED and record.since < wanted.ended_after:
            continue
        if (wanted.states and phase not in wanted.states) or (wanted.outcome and wanted.outcome != outcome):
            continue
        if wanted.namespace and ref.namespace != wanted.namespace:
            continue
        if (wanted.kind and ref.kind.lower() != wanted.kind.lower()) or (wanted.name and wanted.name not in ref.key):
            continue
        job = state.queues.jobs.get(uid)
        queue = job.queue if job is not None else record.queue
        if wanted.queue and wanted.queue != queue and not queue.startswith(f"{wanted.queue}/"):
            continue
        waits = (tuple(job.place),) if job is not None and phase == "waiting" else (record.since, ref.key, uid)
        since = -record.since if phase in ENDED else 0
        rows.append(((ORDER.index(phase), since, queue, job is None, *waits), uid))
    return Listing([uid for _, uid in sorted(rows)], states, failed)


def row_of(state: ReadState, uid: str, now: int, promise: Promise) -> JobRow:
    """One job as a row of the list."""
    return _row(state, uid, state.records[uid], now, promise)


def _row(state: ReadState, uid: str, record: Record, now: int, promise: Promise) -> JobRow:
    status, workload, job = job_status(state, uid), state.queues.workloads.get(uid), state.queues.jobs.get(uid)
    ref = record.ref
    priority = job.priority if job is not None else state.queues.priority_of(workload) if workload is not None else None
    request = status.charge.request if status.charge is not None else (job.demand.request if job is not None else None)
    if request is None and workload is not None:
        request = state.queues.demand_of(workload).request
    return JobRow(
        uid=uid,
        kind=ref.kind,
        namespace=ref.namespace,
        name=ref.name,
        phase=status.phase,
        code=status.code,
        queue=status.queue,
        position=status.line.position,
        length=status.line.length,
        priority=priority,
        request=request or record.request or {},
        since=status.since or record.since,
        text=jobs.reason(status).text if status.phase not in ENDED else jobs.text(status, now),
        outcome=status.values.outcome if isinstance(status.values, Over) else "",
        cause=status.pods.code if status.pods is not None else "",
        cause_since=status.pods.first.since if status.pods is not None else 0,
        promise=promise,
        owner=record.owner,
        headline=jobs.headline(status) if status.phase not in ENDED else "",
    )
