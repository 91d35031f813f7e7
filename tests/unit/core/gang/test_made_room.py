"""Who comes first, beside a gang that has claimed nodes: whose room was made, and whom a guarantee covers."""

from __future__ import annotations

import pytest

from kit import facts, nodes
from kit.bench import Bench
from muster.events.base import Cause, Event
from muster.events.claims import ClaimOpened
from muster.events.decisions import EvictionOrdered, GangAdmitted, PlacesFound, QuotaReleased, QuotaReserved
from muster.events.gangs import NodesClaimed
from muster.events.reasons import ReleaseReason
from muster.events.system import PlacementChosen
from muster.model.keys import Ref
from muster.model.victims import Victim
from muster.model.workload import PodSet

FOUR = facts.vector(cpu=4)


class Admitter(Bench):
    """A bench on which only the gang admitter decides, and nodes that one job of four cores fills."""

    def __init__(self, *more: str) -> None:
        super().__init__(check=False)
        chosen = PlacementChosen(mode="pack", hold_ms=10**9)
        self.append("gang_admitter", "input", [chosen])
        self.facts(*(nodes.node(name, cpu=4) for name in ("n", *more)))
        self.synced()

    def job(self, name: str, pods: int = 1) -> Ref:
        need = facts.vector(cpu=4 * pods)
        job = facts.job(name, need={"ack": need, "full": need}, pod_sets=(PodSet("main", pods, FOUR),))
        self.facts(facts.seen(job))
        return job.ref

    def said(self, *events: Event) -> list[Event]:
        """The accountant says so; what the gang admitter makes of it."""
        self.append("quota_accountant", "decision", events)
        return self.step("gang_admitter")

    def reserved(self, ref: Ref, attempt: int = 1) -> list[Event]:
        return self.said(
            QuotaReserved(cause=Cause(1, 0), ref=ref, attempt=attempt, queue="root/video", request=FOUR, pods=1)
        )


def admitted(events: list[Event]) -> list[Ref]:
    return [event.ref for event in events if isinstance(event, GangAdmitted)]


def test_who_was_made_room_for_comes_before_a_gang_that_claims_nodes() -> None:
    """Its plan was tried on the nodes without regard to what is kept: else work is suspended for nothing."""
    bench = Admitter()
    victim, claimant, big = (bench.job(name) for name in ("victim", "claimant", "big"))
    assert admitted(bench.reserved(victim)) == [victim]
    common = {"cause": Cause(1, 0), "attempt": 1, "queue": "root/video", "request": FOUR}
    leaves = Victim(victim, 1, "root/video", FOUR, 1, None)
    bench.said(EvictionOrdered(ref=claimant, victims=(leaves,), path="root/video", **common))  # type: ignore[arg-type]
    assert not admitted(bench.reserved(big))
    bench.said(QuotaReleased(ref=big, reason="no_nodes", **common))  # type: ignore[arg-type]
    held = ClaimOpened(kind="age", ref=big, **common)  # type: ignore[arg-type]
    assert any(isinstance(event, NodesClaimed) for event in bench.said(held))
    assert not admitted(bench.reserved(big, 2))
    bench.said(QuotaReleased(ref=victim, reason="evicted", **common))  # type: ignore[arg-type]
    assert admitted(bench.reserved(claimant)) == [claimant]


def reserves(ref: Ref, *, owed: bool, pods: int = 1) -> QuotaReserved:
    request = facts.vector(cpu=4 * pods)
    return QuotaReserved(
        cause=Cause(1, 0), ref=ref, attempt=1, queue="root/video", request=request, pods=pods, owed=owed
    )


def releases(ref: Ref, reason: ReleaseReason = "no_nodes", *, owed: bool = False) -> QuotaReleased:
    return QuotaReleased(
        cause=Cause(1, 0), ref=ref, attempt=1, queue="root/video", request=FOUR, reason=reason, owed=owed
    )


@pytest.mark.parametrize("claims_owed", [True, False])
def test_room_goes_to_an_unplaced_job_within_a_guarantee_before_a_borrower(claims_owed: bool) -> None:
    """In the commit in which the room becomes free, and while the job is tried again."""
    bench = Admitter("m", "o")
    running = [bench.job(f"running-{index}") for index in range(3)]
    for ref in running:
        assert admitted(bench.said(reserves(ref, owed=True))) == [ref]
    due, claims, borrower, late = bench.job("due"), bench.job("claims", 2), bench.job("borrower"), bench.job("late")
    bench.said(reserves(due, owed=True))
    bench.said(releases(due, owed=True))
    bench.said(reserves(claims, owed=claims_owed, pods=2))
    bench.said(releases(claims, owed=claims_owed))
    held = ClaimOpened(kind="age", cause=Cause(1, 0), ref=claims, attempt=1, queue="root/video", request=FOUR)
    claimed = [event for event in bench.said(held) if isinstance(event, NodesClaimed)]
    assert len(claimed) == 1
    kept = {place.node for place in claimed[0].places}
    (free,) = (ref for ref, node in zip(running, placed_on(bench, running), strict=True) if node not in kept)
    told = bench.said(releases(free, "finished"), reserves(borrower, owed=False))
    assert [type(event) for event in told if event.ref in (due, borrower)][:1] == [PlacesFound]
    assert admitted(told) == []
    assert admitted(bench.said(reserves(late, owed=False))) == []


def placed_on(bench: Bench, refs: list[Ref]) -> list[str]:
    where = {event.ref: event.placements[0].node for event in bench.happened(GangAdmitted)}
    return [where[ref] for ref in refs]
