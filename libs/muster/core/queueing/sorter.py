"""The queue sorter: decides the queue of each job, the order of jobs, and which jobs to try now.

Order in a queue (policy Round): priority, queued-at, namespace/name, uid. A job that does not fit never blocks a later
job. Between queues: priority of the Queue object, used/min, age.

Beside the queues, the sorter keeps the jobs with a possible change of standing, and the run times of jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from muster.core.queueing.choice import choose
from muster.core.queueing.circles import ANSWERS
from muster.core.queueing.queuefolds import FOLDS, Fold, folded
from muster.core.queueing.queueorder import Lineup
from muster.core.queueing.sorterstate import SorterState
from muster.core.queueing.standing import change_of, give_way, standings
from muster.core.quota.ledger import quotaledger
from muster.core.stage import MAX_DECISIONS, NEWEST, Arm, Stage, Violation, first, mark
from muster.events.base import Cause, Decision, Event
from muster.events.decisions import (
    CandidatesProposed,
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

# --- upkeep -----------------------------------------------------------------------------------------------------------


_OWN = (WorkloadQueued, WorkloadDequeued, WorkloadRefused)
"""Decisions of the sorter: no cause of another decision."""

_RULES = (
    *(QuotaTreeAccepted, QuotaTreeRemoved, PriorityClassObserved, PriorityClassGone, QueueObserved, QueueGone),
    PlacementChosen,
)
"""Events about all jobs."""


def following(kind: type[Event], fold: Fold) -> Arm:
    """The arm of an event: fold the event into the queues, then recheck the standing of the jobs touched."""
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
    """Recheck the jobs that are no longer set aside."""
    for uid in state.circles.over(state.queues.ledger):
        _recheck(state, uid, None)


def _learn(state: SorterState, workload: Workload, at: Position) -> None:
    """Learn from the start or end of a run, where the tree orders by run times, or by attained service."""
    charge = state.queues.ledger.charges.get(workload.ref.uid)
    if charge is None:
        state.learned.observed(workload, "", {}, at.at)
        return
    rules = state.queues.ledger.rules_of(charge.queue)
    if rules.least_attained_ms or state.queues.order(charge.queue) == "learned":
        state.learned.observed(workload, charge.queue, charge.request, at.at)


def _recheck(state: SorterState, uid: str, at: Position | None) -> None:
    """Recheck ``due`` for a workload. ``at``: the position of the event, if the event may be a cause."""
    queues = state.queues
    known = uid in queues.workloads or uid in queues.jobs or uid in queues.ledger.charges
    if not known:
        state.causes.pop(uid, None)
    elif at is not None or uid not in state.causes:
        state.causes[uid] = Cause(at.seq, at.item) if at is not None else Cause(state.seq, 0)
    mark(state.due, uid, known and change_of(state, uid) is not None)


# --- sorter -----------------------------------------------------------------------------------------------------------


class QueueSorter(Stage[SorterState]):
    """The stage ``queue_sorter``."""

    name: ClassVar[str] = "queue_sorter"
    kept: ClassVar[type[SorterState]] = SorterState
    newest_ruleset: ClassVar[int] = NEWEST

    def arms(self) -> Mapping[type[Event], Arm]:
        return {kind: following(kind, fold) for kind, fold in FOLDS.items()}

    # --- decide -----------------------------------------------------------------------------------------------

    def decide(self, state: SorterState) -> list[Decision]:
        """First the changes of standing (queued, dequeued, refused), then the candidates to try now."""
        if not state.admitting:
            return []
        changes = first(standings(state), MAX_DECISIONS - 1)
        candidates = choose(state, changes)
        if not candidates:
            return [*changes]
        return [*changes, CandidatesProposed(cause=candidates[0].cause, candidates=tuple(candidates))]

    @staticmethod
    def settle(state: SorterState) -> None:
        """After the fold of a commit: sort the touched queues into the order of turns."""
        if state.circles.aside:
            taken_up(state)
        state.queues.book.stirred.update(dict.fromkeys(state.queues.ledger.share_out()))
        state.lineup.stir(state.queues)
        if state.queues.book.stirred:
            state.lineup.settle(state.queues)
        for uid in [uid for uid, until in state.queues.flavor_waits.items() if until <= state.now]:
            del state.queues.flavor_waits[uid]
            _recheck(state, uid, None)
        if state.queues.book.answered or state.looked != state.queues.ledger.changes:
            state.queues.book.answered, state.looked = False, state.queues.ledger.changes
            give_way(state)

    def next_deadline(self, state: SorterState) -> int | None:
        queues = state.queues
        times = [*queues.not_before.values(), *(retry.at for retry in queues.retries.values())]
        times += queues.flavor_waits.values()
        return min((at for at in times if at > state.now), default=None)

    def check(self, state: SorterState) -> list[Violation]:
        """I5 for the copy of the ledger; I16: jobs are listed by their status, queues by their turns."""
        violations = []
        queues, ledger = state.queues, state.queues.ledger
        if (charged := quotaledger.recounted_used(ledger)) != ledger.used:
            violations.append(Violation("I5", f"copy says {ledger.used}, charges sum to {charged}"))
        listed = {place.uid for shape in queues.book.shapes.values() for place in shape.waiting}
        waiting = {uid for uid, job in queues.jobs.items() if job.status == "waiting"}
        if listed != waiting or queues.book.waiting != len(waiting):
            violations.append(Violation("I16", f"waiting jobs and the order differ: {sorted(listed ^ waiting)[:5]}"))
        if state.lineup != Lineup.of(queues):
            violations.append(Violation("I16", "the queues are not in the order in which they take turns"))
        return violations
