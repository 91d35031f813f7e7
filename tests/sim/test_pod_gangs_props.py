"""Gangs of pods under random histories: policies, groups, nodes lost, pods deleted, slow and refused binds."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kit import nodes
from kit.audits import audit
from kit.histories import SEEDS, SETTINGS, decisions_with_what_was_known, replays_and_goes_on_from_a_snapshot, worth
from kit.podgangs import Chance, member
from muster.core.cell.seats import AnySeat, Seat
from muster.core.gang.admitterstate import AdmitterState
from muster.core.gang.declare import satisfied
from muster.events.effects import EffectFailed
from muster.events.gangs import GangHeldBack, PodsPlaced, PodsReleased
from muster.runtime.logkeeping.snapshotting import decode_state, encode_state


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


def looked_at(chance: Chance) -> int:
    """What is decided at every position of a log is the same when nothing is known of gangs that were tried before.

    Returns how often something was.
    """
    seat: AnySeat = Seat(chance.bench.seats["gang_admitter"].stage)
    stage, state, parked = seat.stage, seat.state, 0
    for stored in chance.bench.log:
        seat.fold(stored)
        if any(gang.parked is not None for gang in state.pods.gangs.values()):
            parked += 1
            restored = decode_state(encode_state(state), type(state))
            for gang in restored.pods.gangs.values():
                gang.parked = None
            assert stage.decide(state) == stage.decide(restored)
    return parked


@settings(parent=SETTINGS, max_examples=50)
@given(SEEDS, st.booleans())
def test_a_gang_that_fits_is_never_missed_for_what_is_known_of_it(seed: int, with_pod_rules: bool) -> None:
    rng = Random(seed)
    chance = Chance(rng)
    if with_pod_rules:
        for number in range(rng.randint(2, 12)):
            size = rng.choice((1, 2, 2, 3))
            owner = rng.choice(("", "", "uid-of-a-job"))
            chance.gangs[f"equal-{number}"] = (size, {}, {}, 0)
            for each in range(size):
                pod = member(f"equal-{number}-{each}", f"equal-{number}", size, cpu=2, owner_uid=owner)
                chance.put(pod, tell=rng.random() < 0.9)
            chance.answer()
    chance.run(40)
    for _ in range(12):
        waiting = sorted(uid for uid, pod in chance.pods.items() if not pod.node and not pod.over)
        if waiting and rng.random() < 0.5:
            pod = chance.pods[rng.choice(waiting)]
            chance.put(replace(pod, gated=not pod.gated) if rng.random() < 0.5 else replace(pod, priority=7))
        else:
            chance.bench.pass_time(rng.choice((1_000, 40_000, 61_000, 300_000, 640_000)))
        chance.bench.settle()
    looked_at(chance)


def test_the_histories_are_worth_something() -> None:
    def happened(seed: int) -> Iterator[str]:
        chance = Chance(Random(seed))
        chance.run()
        yield from ["parked"] * looked_at(chance)
        for kind in (GangHeldBack, PodsReleased, EffectFailed):
            yield from (f"{kind.__name__} {event.reason}" for event in chance.bench.happened(kind))
        yield from (f"{len(event.gangs)} together" for event in chance.bench.happened(PodsPlaced))

    wanted = {"parked": 101, "2 together": 1, "EffectFailed gone": 1, "EffectFailed refused": 1}
    for reason in ("priority_clash", "too_few_pods", "group_incomplete", "no_nodes", "bind_refused"):
        wanted[f"GangHeldBack {reason}"] = 1
    for reason in ("node_gone", "not_bound", "no_room"):
        wanted[f"PodsReleased {reason}"] = 1
    worth(map(happened, range(25)), **wanted)
