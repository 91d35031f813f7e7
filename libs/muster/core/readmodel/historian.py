"""Writes what happened into the records, and tells it to a listener."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from muster.core.codes.happenings import Happening, Said, add
from muster.core.readmodel.ganghistory import GANG_HISTORY
from muster.core.readmodel.history import HISTORY, observed
from muster.core.readmodel.state import ReadState, record_of
from muster.core.stage import Arm
from muster.events.base import Event
from muster.events.facts import WorkloadObserved
from muster.model.keys import Position, Ref

Listener = Callable[[Ref, Happening], None]


class Historian:
    """``listener`` hears what happens to jobs, while it happens."""

    def __init__(self, listener: Listener | None) -> None:
        self._listener = listener

    def compared(self, fold: Arm) -> Arm:
        """The fold of an observed job, and the history entries of its changes."""

        def arm(state: ReadState, at: Position, event: WorkloadObserved) -> None:
            new = event.workload
            old = state.queues.workloads.get(new.ref.uid)
            fold(state, at, event)
            if state.queues.workloads.get(new.ref.uid) is new:
                self.tell(state, observed(state, at, old, new))

        return arm

    def arm_of(self, kind: type[Event]) -> Arm | None:
        """What tells an event of a type to the records of those it is about; None for one that no record notes."""
        of_job, of_gang = HISTORY.get(kind), GANG_HISTORY.get(kind)
        if of_job is None and of_gang is None:
            return None

        def arm(state: ReadState, at: Position, event: Any) -> None:
            if of_job is not None:
                self.tell(state, of_job(state, at, event))
            if of_gang is not None:
                self._tell_gang(state, of_gang(state, at, event))

        return arm

    def tell(self, state: ReadState, said: Iterable[Said]) -> None:
        """Of jobs that there are, or that are remembered."""
        for ref, happening in said:
            if ref.uid in state.records or ref.uid in state.queues.workloads or happening.what == "object_unreadable":
                add(record_of(state, ref).happenings, happening)
            if self._listener is not None:
                self._listener(ref, happening)

    def below(self, state: ReadState, owner: str, happening: Happening) -> None:
        """News of the object that a job runs through. ``owner``: uid of the job."""
        workload = state.queues.workloads.get(owner)
        if workload is not None:
            self.tell(state, [(workload.ref, happening)])

    def _tell_gang(self, state: ReadState, said: Iterable[tuple[str, Happening]]) -> None:
        for key, happening in said:
            record = state.gang_records.get(key)
            if record is not None:
                add(record.happenings, happening)
