"""The queue sorter: which jobs wait where, in which order, and which should be tried now.

Order inside a queue (policy Round): priority, then queued-at, then namespace/name, then uid. One that does not fit
never blocks one behind it. Between queues: priority of the Queue object, then used/min, then age.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from muster.core.queueing import lending, upkeep
from muster.core.queueing.choice import choose
from muster.core.queueing.folds import FOLDS
from muster.core.queueing.lineup import Lineup
from muster.core.queueing.standing import standings
from muster.core.queueing.state import SorterState
from muster.core.quota.ledger import recount
from muster.core.rulesets import NEWEST
from muster.core.stage import MAX_DECISIONS, Arm, Stage, Violation, first
from muster.events.base import Decision, Event
from muster.events.decisions import CandidatesProposed


class QueueSorter(Stage[SorterState]):
    """The stage ``queue_sorter``."""

    name: ClassVar[str] = "queue_sorter"
    kept: ClassVar[type[SorterState]] = SorterState
    newest_ruleset: ClassVar[int] = NEWEST

    def arms(self) -> Mapping[type[Event], Arm]:
        return {kind: upkeep.following(kind, fold) for kind, fold in FOLDS.items()}

    # --- decide -----------------------------------------------------------------------------------------------

    def decide(self, state: SorterState) -> list[Decision]:
        """First the jobs whose standing changes (queued, dequeued, refused), then those that should be tried now."""
        if not state.admitting:
            return []
        changes = first(standings(state), MAX_DECISIONS - 1)
        candidates = choose(state, changes)
        if not candidates:
            return [*changes]
        return [*changes, CandidatesProposed(cause=candidates[0].cause, candidates=tuple(candidates))]

    @staticmethod
    def settle(state: SorterState) -> None:
        """A commit is folded: what the queues that it touched want is noted, and they take their place in turn."""
        if state.circles.aside:
            upkeep.taken_up(state)
        state.queues.book.stirred.update(dict.fromkeys(state.queues.ledger.share_out()))
        state.lineup.stir(state.queues)
        if state.queues.book.stirred:
            lending.noted(state.queues, state.now)
            state.lineup.settle(state.queues)

    @staticmethod
    def time_passed(state: SorterState) -> None:
        lending.time_passed(state.queues, state.now)

    def next_deadline(self, state: SorterState) -> int | None:
        times = [*state.queues.not_before.values(), *(retry.at for retry in state.queues.retries.values())]
        times += lending.next_look(state.queues, state.now)
        return min((at for at in times if at > state.now), default=None)

    def check(self, state: SorterState) -> list[Violation]:
        """I5 for the copy of the ledger; every job is exactly where its status says."""
        found = []
        queues, ledger = state.queues, state.queues.ledger
        if (charged := recount.used(ledger)) != ledger.used:
            found.append(Violation("I5", f"copy says {ledger.used}, charges sum to {charged}"))
        listed = {place.uid for shape in queues.book.shapes.values() for place in shape.waiting}
        waiting = {uid for uid, job in queues.jobs.items() if job.status == "waiting"}
        if listed != waiting or queues.book.waiting != len(waiting):
            found.append(Violation("I16", f"waiting jobs and the order differ: {sorted(listed ^ waiting)[:5]}"))
        if not lending.is_counted(queues, state.now):
            found.append(Violation("I5", "what is lent for a short time is not what the charges say"))
        if state.lineup != Lineup.of(queues):
            found.append(Violation("I16", "the queues are not in the order in which they take turns"))
        return found
