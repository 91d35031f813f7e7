"""What the sorter keeps beside the queues: whose standing may have to change, and how long jobs run."""

from __future__ import annotations

from typing import Any

from muster.core.queueing.circles import ANSWERS
from muster.core.queueing.folds import Fold, folded
from muster.core.queueing.standing import change_of
from muster.core.queueing.state import SorterState
from muster.core.stage import Arm
from muster.events.base import Cause, Decision, Event
from muster.events.decisions import (
    QuotaTreeAccepted,
    QuotaTreeRemoved,
    WorkloadDequeued,
    WorkloadQueued,
    WorkloadRefused,
)
from muster.events.effects import EffectFailed
from muster.events.facts import (
    ObjectUnreadable,
    PriorityClassGone,
    PriorityClassObserved,
    QueueGone,
    QueueObserved,
    WorkloadGone,
    WorkloadObserved,
)
from muster.events.system import PlacementChosen
from muster.model.keys import Position
from muster.model.workload import Workload

_OWN = (WorkloadQueued, WorkloadDequeued, WorkloadRefused)
"""Decisions of the sorter itself: no cause for another one."""

_RULES = (
    *(QuotaTreeAccepted, QuotaTreeRemoved, PriorityClassObserved, PriorityClassGone, QueueObserved, QueueGone),
    PlacementChosen,
)
"""What changes for all jobs, and not for one."""


def following(kind: type[Event], fold: Fold) -> Arm:
    """The arm of an event: the queues fold it, then what may be due is brought in line."""
    is_cause, learns = kind not in _OWN, kind is WorkloadObserved
    ends = kind in (WorkloadGone, ObjectUnreadable)
    rules, is_answer = kind in _RULES, kind in ANSWERS
    is_news = not (rules or issubclass(kind, Decision) or kind is EffectFailed)

    def arm(state: SorterState, at: Position, event: Any) -> None:
        touched = folded(fold, state, event, at)
        if rules:
            state.circles.ruled()
        elif is_answer and state.circles.answered(event, state.queues, at.at):
            touched = (event.ref.uid,)
        for uid in touched:
            if is_news:
                state.circles.changed(uid)
            if learns:
                _learn(state, event.workload, at)
            elif ends:
                state.learned.gone(uid)
            _recheck(state, uid, at if is_cause else None)

    return arm


def taken_up(state: SorterState) -> None:
    """Jobs that were set aside are looked at again."""
    for uid in state.circles.over(state.queues.ledger):
        _recheck(state, uid, None)


def _learn(state: SorterState, workload: Workload, at: Position) -> None:
    """Its run begins or ends: learned from where the tree orders or lends by that, or by attained service."""
    charge = state.queues.ledger.charges.get(workload.ref.uid)
    if charge is None:
        state.learned.observed(workload, "", {}, at.at)
        return
    rules = state.queues.ledger.rules_of(charge.queue)
    if rules.least_attained_ms or rules.keeps_for_owners or state.queues.order(charge.queue) == "learned":
        state.learned.observed(workload, charge.queue, charge.request, at.at)


def _recheck(state: SorterState, uid: str, at: Position | None) -> None:
    """Bring ``due`` in line with the state; ``at`` is the event that asks for it, if it may be a cause."""
    queues = state.queues
    known = uid in queues.workloads or uid in queues.jobs or uid in queues.ledger.charges
    if not known:
        state.causes.pop(uid, None)
    elif at is not None or uid not in state.causes:
        state.causes[uid] = Cause(at.seq, at.item) if at is not None else Cause(state.seq, 0)
    if known and change_of(state, uid) is not None:
        state.due[uid] = None
    else:
        state.due.pop(uid, None)
