"""No circle without an end: a job whose try is answered the same way a third time, though nothing has changed that the
answer rests on, is set aside until something does.

Stages are quiescent by design: when its own decisions are folded, a stage has nothing more to decide. Where two of them
undo each other's work all the same, or the actuator refuses each of their decisions, the job goes round: tried,
answered, tried again. Every such circle passes through the queue, so it is ended there.

An answer rests on the job itself, on the rules (trees, Queue objects, priority classes), and, where it names amounts,
on what is charged and held. A job that is tried again at a stated time is in no circle: it rests meanwhile.
"""

from __future__ import annotations

from msgspec import Struct, field

from muster.core.queueing.queues import Queues
from muster.core.quota.ledger.quotaledger import Ledger
from muster.events.base import Event, tag_of
from muster.events.decisions import QuotaDenied, QuotaReleased, WorkloadDequeued
from muster.events.refusals import Refusal

TIMES = 3
"""The same answer so often, without a change, ends the circle."""

Answer = QuotaDenied | QuotaReleased | WorkloadDequeued
ANSWERS: dict[type[Event], str] = {
    kind: tag_of(kind.__name__) for kind in (QuotaDenied, QuotaReleased, WorkloadDequeued)
}
"""{how the try of a job ends, where it does not run: its tag}"""


class Answered(Struct):
    """One answer to the tries of a job."""

    decision: str
    """Its tag."""
    reason: str
    times: int
    rests_on: tuple[int, int]
    """The changes of rules, and of amounts where it names any, that it has come after."""


class Circles(Struct):
    """What jobs were answered since something about them changed."""

    answers: dict[str, list[Answered]] = field(default_factory=dict)
    """By uid of the workload."""
    aside: dict[str, Answered] = field(default_factory=dict)
    """uid of a job that is set aside -> the answer that it got each time"""
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
        """A try has ended so: whether the job is set aside for it. ``now``: log time (ms)."""
        uid = event.ref.uid
        if uid in self.aside:
            return False
        if uid not in queues.workloads or _rests(queues, uid, now):
            self.answers.pop(uid, None)
            return False
        amounts = isinstance(event, QuotaDenied) and event.short is not None
        rests_on = self.rules, queues.ledger.changes if amounts else 0
        known = self.answers.setdefault(uid, [])
        said = ANSWERS[type(event)], event.reason
        found = next((each for each in known if (each.decision, each.reason) == said), None)
        if found is None:
            found = Answered(*said, 0, rests_on)
            known.append(found)
        found.times = found.times + 1 if found.rests_on == rests_on else 1
        found.rests_on = rests_on
        if found.times < TIMES:
            return False
        self.aside[uid] = found
        return True

    def over(self, ledger: Ledger) -> list[str]:
        """The jobs that are set aside no more: what their answer rests on has changed."""
        found = []
        for uid, each in self.aside.items():
            rules, amounts = each.rests_on
            if rules != self.rules or (amounts and amounts != ledger.changes):
                found.append(uid)
        for uid in found:
            self.changed(uid)
        return found


def set_aside(found: Answered) -> Refusal:
    """Why a job is set aside, as users read it."""
    return Refusal("set_aside", name=found.decision, other=found.reason, count=found.times)


def _rests(queues: Queues, uid: str, now: int) -> bool:
    """Whether it is tried again at a stated time, or when nodes have room for it, and not before."""
    job = queues.jobs.get(uid)
    retry = queues.retries.get(job.shape) if job is not None else None
    return queues.not_before.get(uid, 0) > now or uid in queues.unplaced or (retry is not None and retry.at > now)
