"""No circle without an end: stages that undo each other's work are planted, and the job they turn is set aside."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from kit import facts, nodes
from kit.bench import Bench
from kit.histories import goes_on_from_a_snapshot
from muster.core.cell.seats import Seat
from muster.core.quota.accountant import QuotaAccountant
from muster.core.quota.accountantstate import AccountantState
from muster.events.base import Cause, Decision, Event
from muster.events.decisions import (
    CandidatesProposed,
    GangAdmitted,
    QuotaDenied,
    QuotaReleased,
    WorkloadQueued,
    WorkloadRefused,
)
from muster.events.effects import EffectFailed
from muster.events.reasons import ReleaseReason
from muster.events.refusals import Refusal
from muster.events.system import PlacementChosen
from muster.model.workload import Wishes


class AlwaysStale(QuotaAccountant):
    """It denies whatever is proposed."""

    off = False

    def decide(self, state: AccountantState) -> list[Decision]:
        if self.off or not state.proposals:
            return super().decide(state)
        found = [(each.candidate, each.cause) for each in state.proposals.values()]
        return [
            QuotaDenied(cause=cause, ref=each.ref, attempt=each.attempt, queue=each.queue, reason="stale")
            for each, cause in found
        ]


class AlwaysReleases(QuotaAccountant):
    """It releases whatever it has reserved."""

    reason: ReleaseReason = "gone"
    off = False

    def decide(self, state: AccountantState) -> list[Decision]:
        entries = [each for each in state.entries.values() if not each.resumed_rv]
        if self.off or not entries:
            return super().decide(state)
        return [
            QuotaReleased(
                cause=each.cause,
                ref=each.ref,
                attempt=each.attempt,
                queue=each.queue,
                request=each.request,
                reason=self.reason,
            )
            for each in entries
        ]


def bench(accountant: QuotaAccountant | None = None) -> Bench:
    found = Bench(check=False)
    if accountant is not None:
        seat: Any = Seat(accountant, found.seats["quota_accountant"].state)
        found.seats["quota_accountant"] = seat
    found.facts(facts.tree())
    found.synced()
    found.settle()
    return found


def refusals(bench: Bench) -> list[Refusal]:
    return [event.refusal for event in bench.happened(WorkloadRefused)]


def submitted(bench: Bench, name: str = "one", **changes: Any) -> None:
    bench.facts(facts.seen(facts.job(name, cpu=4, **changes)))
    bench.settle()


def test_a_proposal_that_is_always_stale_is_made_three_times() -> None:
    double = AlwaysStale()
    cell = bench(double)
    submitted(cell)
    assert len(cell.happened(CandidatesProposed)) == len(cell.happened(QuotaDenied)) == 3
    assert refusals(cell) == [Refusal("set_aside", name="quota_denied", other="stale", count=3)]
    double.off = True
    cell.facts(facts.seen(facts.job("one", cpu=4), priority=3))  # an edit
    cell.settle()
    assert len(cell.happened(GangAdmitted)) == 1
    assert cell.happened(WorkloadQueued)[-1].queued_at == cell.happened(WorkloadQueued)[0].queued_at
    goes_on_from_a_snapshot(cell, "queue_sorter", 14)


def test_what_is_always_released_is_reserved_three_times_and_a_new_tree_has_it_tried_again() -> None:
    double = AlwaysReleases()
    cell = bench(double)
    submitted(cell)
    assert len(cell.happened(QuotaReleased)) == 3
    assert refusals(cell) == [Refusal("set_aside", name="quota_released", other="gone", count=3)]
    cell.pass_time(3_600_000)
    submitted(cell, "other", namespace="text")
    assert len(cell.happened(QuotaReleased)) == 6, "another job's circle changes nothing for the first"
    double.off = True
    cell.facts(facts.tree())
    cell.settle()
    assert len(cell.happened(GangAdmitted)) == 6 + 2


def test_a_release_after_which_it_rests_for_a_time_is_no_circle() -> None:
    double = AlwaysReleases()
    double.reason = "resume_failed"
    cell = bench(double)
    submitted(cell)
    cell.pass_time(3_600_000)
    assert len(cell.happened(QuotaReleased)) > 5
    assert not refusals(cell)


@pytest.mark.parametrize("mode", ["off", "pack"])
def test_a_gang_that_is_said_to_have_room_and_has_none_rests(mode: Literal["off", "pack"]) -> None:
    """Its quota is released for want of nodes each time, and the nodes have room for it all the same."""
    double = AlwaysReleases()
    double.reason = "no_nodes"
    cell = bench(double)
    cell.append("gang_admitter", "input", [PlacementChosen(mode=mode, hold_ms=60_000)])
    cell.facts(nodes.node("n1", cpu=64, memory=64), facts.seen(facts.job("one", cpu=4)))
    stages = ("quota_accountant", "gang_admitter", "queue_sorter")
    while any(cell.step(name) for name in stages):
        assert len(cell.log) < 100
    assert len(cell.happened(QuotaReleased)) == 3
    double.off = True
    cell.pass_time(59_000)
    assert not cell.happened(GangAdmitted)
    cell.pass_time(1_000)
    assert len(cell.happened(GangAdmitted)) == 1


def test_an_actuator_that_always_says_it_was_deleted_is_asked_three_times_of_each_job() -> None:
    """An actuator of another cluster: reserved, admitted, refused, released; hold and release have it tried again."""
    cell = bench()
    answered: set[tuple[str, int]] = set()

    def refuse() -> bool:
        for stored in list(cell.log):
            for item, event in enumerate(stored.commit.events):
                if isinstance(event, GangAdmitted) and (event.ref.uid, event.attempt) not in answered:
                    answered.add((event.ref.uid, event.attempt))
                    failed: Event = EffectFailed(
                        cause=Cause(stored.seq, item), ref=event.ref, attempt=event.attempt, reason="gone"
                    )
                    cell.append("actuator", "input", [failed])
                    return True
        return False

    jobs = [facts.job(name, namespace, cpu=1) for name in ("a", "b", "c") for namespace in ("video", "text")]
    cell.facts(*(facts.seen(job) for job in jobs))
    cell.settle(refuse)
    assert len(answered) == 3 * len(jobs)
    assert refusals(cell) == [Refusal("set_aside", name="quota_released", other="gone", count=3)] * len(jobs)
    for hold in (True, False):
        cell.facts(facts.seen(jobs[0], wishes=Wishes(hold=hold, by="ann")))
        cell.settle()
    assert len(cell.happened(GangAdmitted)) == len(answered) + 1
    cell.sound()


def test_a_head_that_is_woken_by_room_which_another_takes_is_no_circle() -> None:
    """It is denied each time with the same numbers, and the quota was used by another each time."""
    cell = bench()
    submitted(cell, "big", namespace="devops")
    for count in range(6):
        name = f"small-{count}"
        cell.facts(facts.seen(facts.job(name, "devops", cpu=8, priority=9)))
        cell.settle()
        cell.facts(facts.seen(facts.job(name, "devops", cpu=8, priority=9), suspended=False, phase="running"))
        cell.settle()
        cell.facts(facts.gone(name, "devops"))
    cell.settle()
    assert not refusals(cell)
