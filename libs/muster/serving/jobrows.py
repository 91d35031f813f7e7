"""The jobs of a list as values: rows, which of them are asked for, and rows for programs. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from muster.model.keys import path_chain
from muster.model.resources import Vector, texts
from muster.model.text import instant
from muster.serving.promises import promise_record
from muster.told.codes.values import Phase, Promise

if TYPE_CHECKING:
    from muster.model.workload import Outcome
    from muster.told.codes.codetable import JobCode

ENDED: tuple[Phase, ...] = ("finished", "gone")


ORDER: tuple[Phase, ...] = (
    "running",
    "leaving",
    "admitted",
    "reserved",
    "waiting",
    "refused",
    "outside",
    "seen",
    "finished",
    "gone",
)
"""Jobs that hold quota first, then waiting jobs, then the rest."""


class JobRow(Struct, frozen=True):
    """One job. Times in ms since the epoch."""

    uid: str
    kind: str
    namespace: str
    name: str
    phase: Phase
    code: JobCode
    queue: str
    position: int
    length: int
    priority: int | None
    request: Vector
    since: int
    """When the state of the job began."""
    text: str
    outcome: Outcome = ""
    """How the job ended."""
    cause: str = ""
    """The code of a pod that keeps the pods from running, or made the job fail."""
    cause_since: int = 0
    promise: Promise = Promise(why="not_waiting")
    owner: str = ""
    headline: str = ""
    """One short sentence; jobs that wait for the same read alike."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


class ListedJobs(Struct, frozen=True):
    """The jobs that were asked for. ``known``: how many there are in all."""

    rows: list[JobRow]
    now: int
    seq: int
    known: int


class JobFilter(Struct, frozen=True):
    """Which jobs; an empty field leaves no job out. ``ended_after``: log time (ms) from which on ended jobs count."""

    states: tuple[str, ...] = ()
    queue: str = ""
    namespace: str = ""
    kind: str = ""
    ended_after: int = 0
    name: str = ""
    """A part of ``namespace/name``."""
    outcome: str = ""
    """How the job ended."""
    owners: tuple[str, ...] = ()
    """The owners, one of which the job must have."""

    def takes(self, row: JobRow) -> bool:
        """Whether the filter takes a row. A queue is given by path, by the end of a path, or by a path above."""
        if self.states and row.phase not in self.states:
            return False
        if self.namespace and row.namespace != self.namespace:
            return False
        if self.kind and row.kind.lower() != self.kind.lower():
            return False
        if self.outcome and row.outcome != self.outcome:
            return False
        if self.name and self.name not in row.key:
            return False
        if self.owners and row.owner not in self.owners:
            return False
        if self.queue and not any(
            path == self.queue or path.endswith(f"/{self.queue}") for path in path_chain(row.queue)
        ):
            return False
        return row.phase not in ENDED or row.since >= self.ended_after


def place_of(row: JobRow) -> tuple[Any, ...]:
    """The sort key of rows."""
    return (ORDER.index(row.phase), row.queue, row.position, row.since, row.key, row.uid)


def record_of_row(row: JobRow) -> dict[str, Any]:
    """For programs: quantities as Kubernetes writes them, times in RFC 3339."""
    return {
        "kind": row.kind,
        "namespace": row.namespace,
        "name": row.name,
        "uid": row.uid,
        "owner": row.owner or None,
        "state": row.phase,
        "status": row.code,
        "outcome": row.outcome or None,
        "cause": row.cause or None,
        "cause_since": instant(row.cause_since) if row.cause_since else None,
        "queue": row.queue,
        "position": row.position or None,
        "length": row.length or None,
        "priority": row.priority,
        "request": texts(row.request),
        "since": instant(row.since),
        "promise": promise_record(row.promise),
        "message": row.text,
    }
