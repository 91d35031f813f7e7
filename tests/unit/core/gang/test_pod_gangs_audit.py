"""What the audit asks of gangs of pods is judged by what was known at the decision's in_seq."""

from __future__ import annotations

from kit import facts, nodes
from kit.audits import audit
from kit.podgangs import SIGS, Scene, member
from muster.events.base import Cause
from muster.events.gangs import PodsReserved


def test_a_binding_refused_after_a_decision_was_made_is_not_held_against_it() -> None:
    """One has a place, and another is given one beside it; that the first is not bound is stored in between."""
    scene = Scene()
    scene.bench.facts(nodes.node("n1", cpu=3))
    labels = {f"{SIGS}/match-policy": "waiting-and-running"}
    for name in ("a-0", "a-1"):
        scene.put(member(name, "a", 2, labels=labels))
    scene.bench.settle()
    first, second = scene.orders()
    scene.bind(first)
    scene.put(member("a-2", "a", 2, labels=labels))
    scene.delete(first.ref.uid)
    due, at = (
        scene.bench.seats["gang_admitter"].decisions(),
        len(scene.bench.log),
    )
    assert due, "the third is given a place beside the second"
    scene.bind(second, refuse="a policy says no")
    scene.bench.append("gang_admitter", "decision", due, in_seq=at)
    report = audit(scene.bench.log)
    assert not report.violations, report.violations[0]


def test_a_pod_that_is_placed_without_its_charge_is_found() -> None:
    """I29. The admitter says that quota was reserved, which the accountant never said."""
    scene = Scene()
    scene.bench.facts(nodes.node("n1", cpu=3), facts.tree())
    scene.bench.settle()
    scene.put(member("a"))
    pod = scene.pods["uid-video-a"]
    reserved = PodsReserved(cause=Cause(1, 0), pods=(pod.ref,))
    scene.bench.append("quota_accountant", "decision", [reserved], in_seq=len(scene.bench.log))
    [found] = audit(scene.bench.log).violations
    assert found.invariant == "I29"
    assert "may be placed, and is not charged at root/algorithm/video" in found.detail
