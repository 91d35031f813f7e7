"""The read model's fold: how every event changes the answers to readers. It decides nothing.

The queues are folded as in every stage that keeps them; what is noted of jobs, gangs and objects is added by the
arms here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from muster.core.queueing import lending, queuefolds
from muster.core.quota.ledger import idling
from muster.core.stage import Arm, Stage, Violation, folds_in, in_turn
from muster.events import decisions as d
from muster.events import facts
from muster.events.base import Event
from muster.events.effects import EffectApplied
from muster.model.keys import Position
from muster.told.readmodel import jobfolds, objectfolds
from muster.told.readmodel.history import GANG_HISTORY, HISTORY, Historian, Listener
from muster.told.readmodel.jobfolds import JobFolds, advance
from muster.told.readmodel.objectfolds import ObjectFolds
from muster.told.readmodel.readstate import ReadState
from muster.told.readmodel.touched import Marker, Touched


class ReadModel(Stage[ReadState]):
    """The stage ``readmodel``.

    ``touched``: noted there is what may have to be shown otherwise; ``listener``: hears what happens to jobs.
    """

    name: ClassVar[str] = "readmodel"
    kept: ClassVar[type[ReadState]] = ReadState

    def __init__(self, touched: Touched | None = None, listener: Listener | None = None) -> None:
        self._history = Historian(listener)
        mark = Marker(touched)
        self._folds = (JobFolds(mark, self._history), ObjectFolds(mark, self._history))

    def arms(self) -> Mapping[type[Event], Arm]:
        """The queues fold an event first, then it is noted, then the read model changes, then phases are looked at."""
        queues = queuefolds.arms()
        queues[facts.WorkloadObserved] = self._history.compared(queues[facts.WorkloadObserved])
        own = folds_in(jobfolds, *self._folds, objectfolds)
        found: dict[type[Event], Arm] = {}
        for kind in dict.fromkeys((*queues, *HISTORY, *GANG_HISTORY, *own, *_PHASES)):
            chain = [queues.get(kind), self._history.arm_of(kind), *own.get(kind, ()), _PHASES.get(kind)]
            found[kind] = in_turn(*[arm for arm in chain if arm is not None])
        return found

    @staticmethod
    def time_passed(state: ReadState) -> None:
        """Log time has gone on: what was idle is noted, and what has run longer than expected."""
        lending.time_passed(state.queues, state.now)
        idling.time_passed(state.queues.ledger, state.now)

    @staticmethod
    def settle(state: ReadState) -> None:
        """A commit is folded: what the queues that it touched want is noted; no order of them is kept here."""
        lending.noted(state.queues, state.now)
        state.queues.book.stirred.clear()

    def check(self, state: ReadState) -> list[Violation]:
        """I24: a job goes from phase to phase as ``phases.STEPS`` allows."""
        return [
            Violation("I24", f"{each.ref}: {each.before} to {each.after} at {each.seq}; {', '.join(each.story)}")
            for each in state.illegal
        ]


def _of_ref(state: ReadState, _at: Position, event: Any) -> None:
    advance(state, event.ref.uid)


def _of_workload(state: ReadState, _at: Position, event: facts.WorkloadObserved) -> None:
    advance(state, event.workload.ref.uid)


def _of_victims(state: ReadState, _at: Position, event: d.EvictionOrdered) -> None:
    for victim in event.victims:
        advance(state, victim.ref.uid)


_PHASES: Mapping[type[Event], Arm] = {
    facts.WorkloadObserved: _of_workload,
    d.EvictionOrdered: _of_victims,
    **dict.fromkeys(
        (
            facts.WorkloadGone,
            facts.ObjectUnreadable,
            facts.WorkloadFinished,
            facts.WorkloadStarted,
            d.WorkloadQueued,
            d.WorkloadDequeued,
            d.WorkloadRefused,
            d.WorkloadAdopted,
            d.QuotaReserved,
            d.QuotaReleased,
            d.GangAdmitted,
            d.SuspensionOrdered,
            d.SuspensionRecorded,
            EffectApplied,
        ),
        _of_ref,
    ),
}
"""What may bring a job into another phase."""
