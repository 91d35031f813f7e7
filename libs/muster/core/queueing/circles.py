"""No circle without an end: a job with the same answer to three tries, although nothing under the answer has changed,
is set aside until a change.

Stages are quiescent by design: after the fold of its own decisions, a stage has no further decision. Two stages may
still undo each other's work, or the actuator may refuse every decision: then the job goes round, tried, answered, tried
again. Every such circle passes through the queue, so the queue sorter ends the circle.

An answer rests on the job, on the rules (trees, Queue objects, priority classes) and, where the answer names amounts,
on the charged and held quota. A job tried again at a stated time is in no circle: the job rests meanwhile.
"""

from __future__ import annotations

from msgspec import Struct, field

from muster.core.queueing.queues import Queues
from muster.core.quota.ledger.quotaledger import Ledger
from muster.events.base import Event, tag_of
from muster.events.decisions import QuotaDenied, QuotaReleased, WorkloadDequeued
from muster.events.refusals import Refusal

TIMES = 3
"""This many equal answers without a change end the circle."""

Answer = QuotaDenied | QuotaReleased | WorkloadDequeued
ANSWERS: dict[type[Event], str] = {
    kind: tag_of(kind.__name__) for kind in (QuotaDenied, QuotaReleased, WorkloadDequeued)
}
"""{event that ends a try without a run: its tag}"""


class Answered(Struct):
    """An answer to the tries of a job."""

    decision: str
    """The tag of the event."""
    reason: str
    times: int
    rests_on: tuple[int, int]
    """(changes of rules, changes of amounts) at the time of the answer; 0 for amounts where the answer names none."""


class Circles(Struct):
    """The answers to each job since its last change, and the jobs set aside."""

    answers: dict[str, list[Answered]] = field(default_factory=dict)
    """By uid of the workload."""
    aside: dict[str, Answered] = field(default_factory=dict)
    """uid of a job set aside -> the repeated answer"""
    rules: int = 0
    """How often the rules have changed."""

    def changed(self, uid: str) -> None:
        """The job is another now, or gone, or has been started."""
        self.answers.pop(uid, None)
        self.aside.pop(uid, None)

    def ruled(self) -> None:
        """Trees, Queue objects or priority classes have changed."""
        self.rules += 1

    def answered(self, event: Answer, queues: Queues, now: int) -> bool:
        """Note the answer to a try; whether the answer sets the job aside. ``now``: log time (ms)."""
        uid = event.ref.uid
        if uid in self.aside:
            return False
        if uid not in queues.workloads or _rests(queues, uid, now):
            self.answers.pop(uid, None)
            return False
        amounts = isinstance(event, QuotaDenied) and event.short is not None
        rests_on = self.rules, queues.ledger.changes if amounts else 0
        known = self.answers.setdefault(uid, [])
        decision = ANSWERS[type(event)], event.reason
        answer = next((past for past in known if (past.decision, past.reason) == decision), None)
        if answer is None:
            answer = Answered(*decision, 0, rests_on)
            known.append(answer)
        answer.times = answer.times + 1 if answer.rests_on == rests_on else 1
        answer.rests_on = rests_on
        if answer.times < TIMES:
            return False
        self.aside[uid] = answer
        return True

    def over(self, ledger: Ledger) -> list[str]:
        """The jobs set aside until now: rules or amounts under the answer have changed."""
        changed = []
        for uid, answer in self.aside.items():
            rules, amounts = answer.rests_on
            if rules != self.rules or (amounts and amounts != ledger.changes):
                changed.append(uid)
        for uid in changed:
            self.changed(uid)
        return changed


def set_aside(answer: Answered) -> Refusal:
    """The refusal that users read for a job set aside."""
    return Refusal("set_aside", name=answer.decision, other=answer.reason, count=answer.times)


def _rests(queues: Queues, uid: str, now: int) -> bool:
    """Whether the next try of the job waits for a stated time, or for room on nodes."""
    job = queues.jobs.get(uid)
    retry = queues.retries.get(job.shape) if job is not None else None
    return queues.not_before.get(uid, 0) > now or uid in queues.unplaced or (retry is not None and retry.at > now)
