"""What a job asks of the nodes is one thing: forecasts, plans and admissions ask for the same, else they never rest."""

from __future__ import annotations

import pytest

from kit import nodes
from kit.bench import Bench
from kit.facts import job, node, seen, tree, vector
from muster.events.base import Cause
from muster.events.decisions import EvictionOrdered, GangAdmitted, GangDeferred, ReclaimDeferred
from muster.events.effects import EffectApplied
from muster.events.facts import QuotaTreeObserved
from muster.events.system import PlacementChosen
from muster.model.placing import PodRules
from muster.model.workload import PodSet, Workload

WHOLE = {"cpu": 13}
SETS = (PodSet("s0", 2, vector(cpu=4)), PodSet("s1", 1, vector(cpu=5)))
"""Packed on nodes of 6 and 8 they have places, spread they have none."""
SHARES = (PodSet("s0", 2, vector(cpu=4), rules=PodRules(share=500)), PodSet("s1", 1, vector(cpu=5)))


def cell(placement: str, **chosen: str) -> Bench:
    """Two nodes; video is guaranteed everything, and text borrows it."""
    bench = Bench()
    bench.append("gang_admitter", "input", [PlacementChosen(mode="pack", gpu_sharing=False, hold_ms=10**12, **chosen)])
    bench.facts(
        tree_of(placement), nodes.node("n0", cpu=6, memory=256, gpu=4), nodes.node("n1", cpu=8, memory=256, gpu=4)
    )
    bench.synced()
    bench.settle()
    return bench


def tree_of(placement: str) -> QuotaTreeObserved:
    says = {"placement": placement} if placement else {}
    children = (node("video", WHOLE, WHOLE, ("video",), **says), node("text", {}, WHOLE, ("text",)))
    return tree(node("root", WHOLE, WHOLE, children=children), rules={"reclaim": "enabled"})


def gang(name: str, namespace: str, sets: tuple[PodSet, ...]) -> Workload:
    need = vector(cpu=13)
    return job(name, namespace, need={"ack": need, "full": need}, pod_sets=sets)


@pytest.mark.parametrize(("placement", "cpu", "sets"), [("spread", "", SETS), ("", "spread", SETS), ("", "", SHARES)])
def test_one_that_finds_no_place_is_tried_once(placement: str, cpu: str, sets: tuple[PodSet, ...]) -> None:
    bench = cell(placement, **({"cpu": cpu} if cpu else {}))
    bench.facts(seen(gang("mine", "video", sets)))
    bench.settle()
    bench.pass_time(3_600_000)
    assert len(bench.happened(GangDeferred)) == 1
    bench.sound()


@pytest.mark.parametrize(("placement", "sets"), [("spread", SETS), ("", SHARES)])
def test_nobody_leaves_for_one_that_finds_no_place_then(placement: str, sets: tuple[PodSet, ...]) -> None:
    bench = cell(placement)
    low = gang("low", "text", SETS)
    bench.facts(seen(low))
    bench.settle()
    [admitted] = bench.happened(GangAdmitted)
    runs = seen(low, suspended=False, phase="running", settled=False)
    bench.facts(runs)
    applied = EffectApplied(
        cause=Cause(bench.seq, 0), ref=admitted.ref, attempt=admitted.attempt, action="resume", rv=runs.workload.rv
    )
    bench.append("actuator", "input", [applied])
    bench.settle()
    bench.facts(seen(gang("mine", "video", sets)))
    bench.settle()
    bench.pass_time(3_600_000)
    assert [each.reason for each in bench.happened(ReclaimDeferred)] == ["no_place"]
    assert not bench.happened(EvictionOrdered)
    bench.sound()


def test_a_queue_that_packs_from_now_on_lets_in_what_waited_because_it_spread() -> None:
    bench = cell("spread")
    bench.facts(seen(gang("mine", "video", SETS)))
    bench.settle()
    bench.pass_time(3_600_000)
    bench.facts(tree_of(""))
    bench.settle()
    [admitted] = bench.happened(GangAdmitted)
    assert admitted.ref.name == "mine"
    bench.sound()
