"""Whose room was made by suspending work, beside a gang that has claimed nodes."""

from __future__ import annotations

from kit import facts, nodes
from kit.bench import Bench
from muster.events.base import Cause, Event
from muster.events.claims import ClaimOpened
from muster.events.decisions import EvictionOrdered, GangAdmitted, QuotaReleased, QuotaReserved
from muster.events.gangs import NodesClaimed
from muster.events.system import PlacementChosen
from muster.model.keys import Ref
from muster.model.victims import Victim
from muster.model.workload import PodSet

FOUR = facts.vector(cpu=4)


class Admitter(Bench):
    """A bench on which only the gang admitter decides, and a node that one job of four cores fills."""

    def __init__(self) -> None:
        super().__init__(check=False)
        chosen = PlacementChosen(mode="pack", hold_ms=10**9)
        self.append("gang_admitter", "input", [chosen])
        self.facts(nodes.node("n", cpu=4))
        self.synced()

    def job(self, name: str) -> Ref:
        asks = {"ack": FOUR, "full": FOUR}
        job = facts.job(name, need=asks, pod_sets=(PodSet("main", 1, FOUR),))
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
