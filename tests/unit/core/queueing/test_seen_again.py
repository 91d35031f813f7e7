"""A job is said gone and seen again before the sorter has taken it out of its queue: it is still in its queue."""

from __future__ import annotations

from kit import facts
from kit.bench import Bench
from muster.core.actuation.intents import Actuator
from muster.core.cell.seats import AnySeat, Seat
from muster.events.decisions import GangAdmitted, QuotaDenied, WorkloadQueued
from muster.events.facts import WorkloadGone


def test_it_is_queued_once_denied_once_and_admitted() -> None:
    bench = Bench()
    bench.facts(facts.tree())
    bench.synced()
    for name in ("big", "late"):
        bench.facts(facts.seen(facts.job(name)))
        bench.settle()
    late = facts.job("late")
    bench.facts(WorkloadGone(ref=late.ref, rv=facts.next_rv()), facts.seen(late, rv=facts.next_rv()))
    bench.settle()
    bench.facts(facts.gone("big"))
    bench.settle()
    told = [type(e) for e in bench.happened(WorkloadQueued, QuotaDenied, GangAdmitted) if e.ref == late.ref]
    assert told == [WorkloadQueued, QuotaDenied, GangAdmitted]
    assert bench.states["gang_admitter"].queued[late.ref.uid].rank[1] == bench.happened(WorkloadQueued)[-1].queued_at
    bench.sound()


def test_its_resume_notes_when_it_was_queued() -> None:
    bench, job = Bench(), facts.job("one")
    bench.facts(facts.tree())
    bench.synced()
    bench.paused = frozenset({"gang_admitter"})
    bench.facts(facts.seen(job))
    bench.settle()
    bench.facts(WorkloadGone(ref=job.ref, rv=facts.next_rv()), facts.seen(job, rv=facts.next_rv()))
    bench.paused = frozenset()
    bench.settle()
    seat: AnySeat = Seat(Actuator())
    for stored in bench.log:
        seat.fold(stored)
    assert seat.state.outstanding[job.ref.uid].queued_at == bench.happened(WorkloadQueued)[0].queued_at > 0
