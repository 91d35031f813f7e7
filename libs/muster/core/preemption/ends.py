"""Victims that end by themselves before their suspension would free anything: to evict them would gain nothing.

What a suspension takes is learned from the log: from a decision until it is written on its object, and from there until
a suspended job has released its quota. How long a job still holds its quota is what it declares, or what most of those
took that were like it. One that is expected to end first is not suspended: its quota is planned for the claimant as if
it left, and the claimant waits for that no longer than the suspension would have taken. Then it is planned for again,
and a job that was left to end once is not left to end again.
"""

from __future__ import annotations

from msgspec import Struct, field

from muster.core.learned.durations import Durations, RunTimes, kinds_of
from muster.core.quota.demand import Charge
from muster.events.decisions import QuotaReleased
from muster.model.keys import Ref


class Ends(Struct):
    """How long jobs hold their quota, and how long it takes to suspend them."""

    runs: Durations = field(default_factory=Durations)
    """From when a job was resumed until it had ended by itself and released its quota."""
    stops: Durations = field(default_factory=Durations)
    """From when a suspension was written until the quota was released."""
    writes: RunTimes = field(default_factory=RunTimes)
    """From a decision to resume or suspend a job until it was written."""
    decided: dict[str, int] = field(default_factory=dict)
    """uid of a job that is to be resumed or suspended -> log time (ms) of that decision"""
    suspended: dict[str, int] = field(default_factory=dict)
    """uid of a job that was suspended and has not released its quota -> log time (ms) of the write"""

    def written(self, uid: str, now: int, *, suspends: bool) -> None:
        since = self.decided.pop(uid, None)
        if since is not None:
            self.writes.add(now - since)
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
        kinds, write = kinds_of(ref.namespace, ref.name, charge.queue, charge.request), self.writes.middle()
        if write is None:
            return 0
        stop = self.stops.left(kinds, 0)  # Where that is not known: its controller has to write as well.
        takes = write + (write if stop is None else stop)
        declared = 0 < charge.until <= now + takes
        return now + takes if declared or self.runs.ends_within(kinds, now - since, takes) else 0
