"""Two clusters of one owner, as a RayService has them while it is upgraded: one of them is kept within the grant."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kit import facts
from kit.folded import heard
from muster.core.autoscaling.bridge import AutoscalerBridge
from muster.core.autoscaling.bridgestate import BridgeState
from muster.core.autoscaling.gate import decisions
from muster.core.stage import Folder
from muster.events.base import Cause, Event
from muster.events.decisions import QuotaReserved
from muster.events.effects import EffectApplied
from muster.events.elastic import GateSet
from muster.events.facts import ChildGone, ChildObserved
from muster.model.elastic import Elastic, ScaledGroup
from muster.model.keys import Ref
from muster.model.workload import ChildState, Workload

SERVICE = Ref("RayService", "ns", "s", "uid-s")


class Play:
    """One service of which five replicas are granted; its two clusters have three each."""

    def __init__(self) -> None:
        self.stage = AutoscalerBridge()
        self.state: BridgeState = self.stage.initial()
        self.folder, self.rv = Folder(self.stage), 0
        self.service: Workload = replace(facts.job("s"), ref=SERVICE, phase="running", suspended=False)
        self.service = replace(self.service, elastic=Elastic((ScaledGroup("small", 5, 5),)))
        self.say("a")
        self.fold(QuotaReserved(cause=Cause(1, 0), ref=SERVICE, attempt=1, queue="root/a", request={}, pods=6))

    def fold(self, event: Event) -> None:
        heard(self.folder, self.state, event)

    def say(self, name: str) -> None:
        """The service says through which cluster it runs."""
        self.rv += 1
        self.fold(facts.seen(self.service, rv=self.rv, child=name))

    def see(self, name: str, *, fixed: bool = False) -> None:
        """Its ``maxReplicas`` says less than what is granted."""
        self.rv += 1
        groups, granted, ceilings = (ScaledGroup("small", 3, 3, most=3),), {"small": 3}, {"small": 10}
        elastic = None if fixed else Elastic(groups, granted, ceilings)
        ref = Ref("RayCluster", "ns", name, f"uid-{name}")
        child = ChildState(ref, self.rv, SERVICE.uid, "RayService", asks={"cpu": 1}, elastic=elastic)
        self.fold(ChildObserved(child=child))

    def end(self, name: str) -> None:
        self.rv += 1
        self.fold(ChildGone(ref=Ref("RayCluster", "ns", name, f"uid-{name}"), rv=self.rv))

    def gates(self) -> list[str]:
        return [event.ref.name for event in decisions(self.state) if isinstance(event, GateSet)]

    @property
    def grant(self) -> Any:
        return self.state.grants[SERVICE.uid]


def test_the_one_that_the_service_says_is_kept_within_the_grant_whichever_is_seen_last() -> None:
    play = Play()
    play.see("a")
    play.see("b")
    assert play.gates() == ["a"]
    play.say("b")
    assert play.gates() == ["b"]
    play.see("a")
    assert play.gates() == ["b"], "another sight of the old one changes nothing"


def test_before_it_says_so_it_is_the_newer_one() -> None:
    play = Play()
    play.say("")
    play.see("a")
    play.see("b")
    play.see("a")
    assert play.gates() == ["b"]


@pytest.mark.parametrize("seen_last", ["a", "b"])
@pytest.mark.parametrize("ends", ["a", "b"], ids=["done", "rolled back"])
def test_when_one_is_gone_the_other_one_is_looked_at(ends: str, seen_last: str) -> None:
    play = Play()
    for name in ("a", "b", seen_last):
        play.see(name)
    play.say("b")
    play.end(ends)
    [left] = {"a", "b"} - {ends}
    assert play.gates() == [left]
    play.end(left)
    assert not play.state.families and not play.state.clusters


def lowered(play: Play, name: str) -> GateSet:
    """A return that is under way on one of the two."""
    order = GateSet(
        cause=Cause(1, 0),
        ref=Ref("RayCluster", "ns", name, f"uid-{name}"),
        owner=SERVICE,
        attempt=1,
        groups=("small",),
        most={"small": 3},
        ceilings={"small": 10},
        granted={"small": 3},
    )
    play.fold(order)
    return order


@pytest.mark.parametrize("how", ["gone", "fixed"])
def test_a_return_goes_on_when_the_other_cluster_is_no_more(how: str) -> None:
    play = Play()
    play.see("a")
    play.see("b")
    play.say("b")
    lowered(play, "b")
    at = play.state.seq
    if how == "gone":
        play.end("a")
    else:
        play.see("a", fixed=True)
    assert play.grant.giving == {"small": 3}
    play.fold(EffectApplied(cause=Cause(at, 0), ref=Ref("RayCluster", "ns", "b", "uid-b"), attempt=1, action="gate"))
    assert play.grant.giving == {"small": 3}, "until what it gives back is not charged any more"


def test_a_return_is_over_when_its_own_cluster_is_no_more() -> None:
    play = Play()
    play.see("a")
    play.see("b")
    play.say("b")
    lowered(play, "b")
    play.end("b")
    assert not play.grant.giving
    assert play.gates() == ["a"]
