"""The read model's fold: how every event changes the answers to readers. The fold decides nothing.

The queues are folded as in every stage that keeps queues. The arms here note the history of jobs, gangs and objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from muster.core.queueing import queuefolds
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

    ``touched``: collects the objects that may have to be shown again; ``listener``: hears every happening of jobs.
    """

    name: ClassVar[str] = "readmodel"
    kept: ClassVar[type[ReadState]] = ReadState

    def __init__(self, touched: Touched | None = None, listener: Listener | None = None) -> None:
        self._history = Historian(listener)
        mark = Marker(touched)
        self._folds = (JobFolds(mark, self._history), ObjectFolds(mark, self._history))

    def arms(self) -> Mapping[type[Event], Arm]:
        """For each event: the queues fold, the history notes, the read model folds, phases are brought up to date."""
        queues = queuefolds.arms()
        queues[facts.WorkloadObserved] = self._history.compared(queues[facts.WorkloadObserved])
        own = folds_in(jobfolds, *self._folds, objectfolds)
        arms_by_type: dict[type[Event], Arm] = {}
        for kind in dict.fromkeys((*queues, *HISTORY, *GANG_HISTORY, *own, *_PHASES)):
            chain = [queues.get(kind), self._history.arm_of(kind), *own.get(kind, ()), _PHASES.get(kind)]
            if _ABOUT_JOBS & {*kind.__struct_fields__}:
                chain.append(_heard)
            arms_by_type[kind] = in_turn(*[arm for arm in chain if arm is not None])
        return arms_by_type

    @staticmethod
    def time_passed(state: ReadState) -> None:
        """Log time has passed: idle amounts are noted, and an ended month is closed."""
        idling.time_passed(state.queues.ledger, state.now)
        state.usage.time_passed(state)

    @staticmethod
    def settle(state: ReadState) -> None:
        """A commit is folded: the wants of the touched queues are noted, and the use. The read model keeps no order of
        touched queues.
        """
        state.queues.book.stirred.clear()
        state.usage.account.settle(state)

    def check(self, state: ReadState) -> list[Violation]:
        """I24: a job goes from phase to phase as ``phases.STEPS`` allows."""
        return [
            Violation(
                "I24", f"{reason.ref}: {reason.before} to {reason.after} at {reason.seq}; {', '.join(reason.story)}"
            )
            for reason in state.illegal
        ]


_ABOUT_JOBS = frozenset(("ref", "owner", "workload", "victims", "tree"))
"""Fields of an event that may name jobs or queues whose use changes."""


def _heard(state: ReadState, _at: Position, event: Any) -> None:
    state.usage.account.hear(event)


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
"""The events that may bring a job into another phase."""
