"""Abridged observations: the log keeps only the differences to an earlier observation, readers get the whole.

A shard of the watcher compares each observation with the last observation of the same workload, else with the newest
observation of the same basis, from a workload with the same need. The memory of readers begins with ``leader_started``,
so a watch epoch never builds on an earlier epoch.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from muster.events.base import Event
from muster.events.envelope import Stored
from muster.events.facts import WorkloadAbridged, WorkloadObserved
from muster.events.system import Genesis, LeaderStarted
from muster.model.problem import FieldProblem, problem
from muster.model.workload import Workload, WorkloadPart

KEPT = 256
"""Workloads per shard whose newest observation is remembered."""

Newest = dict[str, Workload]
"""{uid: newest observation}, the last reported at the end."""

_FIELDS = Workload.__struct_fields__
_OBSERVATIONS = (WorkloadObserved, WorkloadAbridged)


class IncompleteError(Exception):
    """The base of an abridged observation is unknown to readers of this log."""

    def __init__(self, problem: FieldProblem) -> None:
        super().__init__(problem.code)
        self.problem = problem


def abridged(newest: Newest, events: Sequence[Event]) -> list[Event]:
    """Events as stored in the log; ``newest``: of the reporting shard, before the report."""
    reported = dict(newest)
    return [_short(reported, event) if isinstance(event, WorkloadObserved) else event for event in events]


def whole(newest: dict[str, Newest], stored: Stored) -> Stored:
    """A counted commit with each workload in full; ``newest``: of each shard, updated by the commit.

    Raises IncompleteError.
    """
    commit = stored.commit
    if commit.stage == "genesis":
        if commit.events and isinstance(commit.events[0], Genesis):
            newest.clear()
        return stored
    if commit.stage != "watcher" or not commit.events:
        return stored
    seat = f"{commit.stage}.{commit.shard}"
    if isinstance(commit.events[0], LeaderStarted):
        newest.pop(seat, None)
        return stored
    kinds = {type(event) for event in commit.events}
    if kinds.isdisjoint(_OBSERVATIONS):
        return stored
    reported = newest.setdefault(seat, {})
    events = [_completed(seat, reported, event) for event in commit.events]
    return replace(stored, commit=replace(commit, events=tuple(events))) if WorkloadAbridged in kinds else stored


def _completed(seat: str, newest: Newest, event: Event) -> Event:
    if isinstance(event, WorkloadAbridged):
        before = newest.get(event.like)
        if before is None:
            raise IncompleteError(problem("", "nothing_to_complete", seat=seat, like=event.like))
        event = WorkloadObserved(workload=_long(before, event.but))
    if isinstance(event, WorkloadObserved):
        _remember(newest, event.workload)
    return event


def _like(newest: Newest, workload: Workload) -> Workload | None:
    """The base of the comparison."""
    own = newest.get(workload.ref.uid)
    return own or next((earlier for earlier in reversed(newest.values()) if earlier.basis == workload.basis), None)


def _remember(newest: Newest, workload: Workload) -> None:
    uid = workload.ref.uid
    newest.pop(uid, None)
    newest[uid] = workload
    if len(newest) > KEPT:
        del newest[next(iter(newest))]


def _short(newest: Newest, event: WorkloadObserved) -> Event:
    now = event.workload
    before = _like(newest, now)
    _remember(newest, now)
    if before is None:
        return event
    differing = {name: value for name in _FIELDS if (value := getattr(now, name)) != getattr(before, name)}
    return WorkloadAbridged(like=before.ref.uid, but=WorkloadPart(**differing))


def _long(before: Workload, but: WorkloadPart) -> Workload:
    differing = {name: value for name in _FIELDS if (value := getattr(but, name)) is not msgspec.UNSET}
    return replace(before, **differing)
