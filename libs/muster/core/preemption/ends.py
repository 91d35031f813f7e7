"""Victims that end by themselves before their suspension would free anything: to evict them would gain nothing.

What a suspension takes is learned from the log: from a decision until it is written on its object, and from there until
a suspended job has released its quota. How long a job still holds its quota is what it declares, or what most of those
took that were like it. One that is expected to end first is chosen before others, for nothing is lost by that, and is
not suspended: its quota is planned for the claimant as if it left, and the claimant waits for that no longer than the
suspension would have taken. Then it is planned for again, and a job that was left to end once is not left to end again.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from msgspec import Struct, field

from muster.core.learned.durations import ANY, Durations, RunTimes, kinds_of
from muster.core.quota.demand import Charge
from muster.events.decisions import QuotaReleased
from muster.model.keys import Ref


class Ends(Struct):
    """How long jobs hold their quota, and how long it takes to suspend them."""

    runs: Durations = field(default_factory=Durations)
    """From when a job was resumed until it had ended by itself and released its quota."""
    stops: Durations = field(default_factory=Durations)
    """From when a suspension was written until the quota was released."""
    resumes: RunTimes = field(default_factory=RunTimes)
    """From a decision to resume a job until it was written."""
    suspends: RunTimes = field(default_factory=RunTimes)
    """The same of suspensions: those ask more of the API server."""
    decided: dict[str, int] = field(default_factory=dict)
    """uid of a job that is to be resumed or suspended -> log time (ms) of that decision"""
    suspended: dict[str, int] = field(default_factory=dict)
    """uid of a job that was suspended and has not released its quota -> log time (ms) of the write"""
    due: list[tuple[int, str]] = field(default_factory=list)
    """(log time (ms) at which it is expected to end, uid) of the jobs that run, in order; where that is known"""
    due_at: dict[str, int] = field(default_factory=dict)
    left: dict[str, None] = field(default_factory=dict)
    """uids of jobs that were left to end by themselves in this run: they are not once more"""

    def began(self, ref: Ref, charge: Charge, since: int) -> None:
        """A job runs since a log time (ms)."""
        mean = self.runs.mean(kinds_of(ref.namespace, ref.name, charge.queue, charge.request))
        if mean or charge.until:
            at = self.due_at[ref.uid] = charge.until or since + mean
            insort(self.due, (at, ref.uid))

    def stopped(self, uid: str) -> None:
        """It runs no more."""
        self.left.pop(uid, None)
        at = self.due_at.pop(uid, None)
        if at is not None:
            del self.due[bisect_left(self.due, (at, uid))]

    def about(self, now: int) -> list[str]:
        """The jobs of which as many may have ended as not by the time that a suspension takes, the first to end first:
        those that are expected to have ended by then, and not so long ago that they are not like others.
        """
        takes = self._takes((ANY,))
        begin, end = (bisect_left(self.due, (at, "")) for at in (now - takes, now + takes + 1))
        return [uid for _, uid in self.due[begin:end]] if takes else []

    def written(self, uid: str, now: int, *, suspends: bool) -> None:
        since = self.decided.pop(uid, None)
        if since is not None:
            (self.suspends if suspends else self.resumes).add(now - since)
        if suspends:
            self.suspended[uid] = now

    def released(self, event: QuotaReleased, since: int | None, now: int) -> None:
        """``since``: log time (ms) at which it was resumed; None where it was not."""
        self.decided.pop(event.ref.uid, None)
        suspended = self.suspended.pop(event.ref.uid, None)
        kinds = kinds_of(event.ref.namespace, event.ref.name, event.queue, event.request)
        if event.reason in ("evicted", "preempted") and suspended is not None:
            self.stops.ended(kinds, now - suspended)
        elif event.reason == "finished" and since is not None:
            self.runs.ended(kinds, now - since)

    def ends_by(self, ref: Ref, charge: Charge, since: int, now: int) -> int:
        """Log time (ms) by which a job is expected to have ended that was resumed at ``since``, where no suspension
        would free its quota before that; else 0.
        """
        kinds = kinds_of(ref.namespace, ref.name, charge.queue, charge.request)
        takes = self._takes(kinds) if ref.uid not in self.left else 0
        declared = 0 < charge.until <= now + takes
        return now + takes if takes and (declared or self.runs.ends_within(kinds, now - since, takes)) else 0

    def _takes(self, kinds: tuple[str, ...]) -> int:
        """How long (ms) it takes until a suspension of such jobs frees their quota; 0 where that is not known."""
        known = [most for each in (self.resumes, self.suspends) if (most := each.most()) is not None]
        if not known:
            return 0
        write = max(known)
        stop = self.stops.left(kinds, 0)  # Where that is not known: its controller has to write as well.
        return write + (write if stop is None else stop)
