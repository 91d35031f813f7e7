"""Gangs of pods under random histories: policies, groups, nodes lost, pods deleted, slow and refused binds."""

from __future__ import annotations

from random import Random

from hypothesis import given
from msgspec.structs import replace

from kit import nodes
from kit.histories import SEEDS, SETTINGS, decisions_with_what_was_known, replays_and_goes_on_from_a_snapshot
from kit.podgangs import Chance
from muster.core.audit import audit
from muster.core.gang.declare import satisfied
from muster.core.gang.state import AdmitterState
from muster.events.effects import EffectFailed
from muster.events.gangs import GangHeldBack, PodsPlaced, PodsReleased


def state_of(chance: Chance) -> AdmitterState:
    state = chance.bench.states["gang_admitter"]
    assert isinstance(state, AdmitterState)
    return state


@SETTINGS
@given(SEEDS)
def test_gangs_start_whole_nothing_leaks_and_who_waits_was_told(seed: int) -> None:
    chance = Chance(Random(seed))
    chance.run()
    report = audit(chance.bench.log)
    assert not report.violations, report.violations[0]
    chance.peace()
    state = state_of(chance)
    assert not state.pods.placed
    assert not chance.orders()
    leaked = [key for key in state.ledger.occupants if key not in chance.pods or not chance.pods[key].node]
    assert not leaked, leaked
    report = audit(chance.bench.log)
    assert not report.violations, report.violations[0]
    for key, gang in state.pods.gangs.items():
        if not gang.waiting:
            continue
        assert gang.told is not None, f"{key} waits and was not told why"
        assert gang.told.reason in ("refused", "priority_clash", "gated", "too_few_pods", "group_incomplete"), (
            f"{key} has all it needs, there is room, and it waits: {gang.told}"
        )
        if gang.told.reason == "too_few_pods":
            assert gang.declared is not None
            counts = replace(gang.counted, waiting=len(gang.waiting))
            assert not satisfied(gang.declared.policy, gang.declared.minimum, counts)


@SETTINGS
@given(SEEDS)
def test_every_place_fits_what_was_known(seed: int) -> None:
    """At its in_seq every pod fits beside everybody who was there and everybody who has a place."""
    chance = Chance(Random(seed))
    chance.run()
    for state, stored in decisions_with_what_was_known(chance.bench, "gang_admitter"):
        if any(isinstance(event, PodsReleased) for event in stored.commit.events):
            continue
        oracle = nodes.Naive(state.ledger)
        for event in stored.commit.events:
            for place in event.pods if isinstance(event, PodsPlaced) else ():
                pod = state.pods.pods[place.ref.uid]
                rules = replace(pod.rules, labels=pod.labels)
                one = nodes.Ask(pod.ref.name, 1, pod.request, pod.ref.namespace, rules)
                assert oracle.room(one, place.node) and oracle.static(one, place.node), (place, pod.request)
                oracle.put(one, place.node)


@SETTINGS
@given(SEEDS)
def test_replay_and_snapshots_agree(seed: int) -> None:
    chance = Chance(Random(seed))
    chance.run(40)
    replays_and_goes_on_from_a_snapshot(chance.bench, "gang_admitter", seed % len(chance.bench.log))


def test_the_histories_are_worth_something() -> None:
    events = []
    for seed in range(25):
        chance = Chance(Random(seed))
        chance.run()
        events += [event for stored in chance.bench.log for event in stored.commit.events]
    reasons = {event.reason for event in events if isinstance(event, GangHeldBack)}
    assert {"priority_clash", "too_few_pods", "group_incomplete", "no_nodes", "bind_refused"} <= reasons
    assert {event.reason for event in events if isinstance(event, PodsReleased)} == {
        "node_gone",
        "not_bound",
        "no_room",
    }
    assert {event.reason for event in events if isinstance(event, EffectFailed)} >= {"gone", "refused"}
    assert any(len(event.gangs) == 2 for event in events if isinstance(event, PodsPlaced))
