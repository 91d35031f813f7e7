"""Preemption inside a queue on the simulated cluster: who gives way to whom, what they are told, and that it ends."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from test_reclaim import Play, three_teams

from kit import facts
from kit.why import why
from muster.events.effects import EffectFailed
from muster.events.facts import TreeNodeSpec
from muster.told.views.story import Story

LOWER_GIVES = {"preempt-lower-priority": "true"}


def urgency(priority: int) -> dict[str, str]:
    """Annotations of a job of this priority."""
    return {"muster.dev/priority": str(priority)}


def two_teams(**attributes: str) -> TreeNodeSpec:
    """Two leaves of one root, each guaranteed half of 20; ``attributes`` of the first."""
    one = facts.node("one", {"cpu": 10}, {"cpu": 20}, ("one",), **attributes)
    two = facts.node("two", {"cpu": 10}, {"cpu": 20}, ("two",))
    return facts.node("root", {"cpu": 20}, {"cpu": 20}, children=(one, two))


def test_the_lowest_and_youngest_give_way_and_are_told() -> None:
    play = Play(two_teams(), LOWER_GIVES)
    for name, priority in (("old", 1), ("young", 1), ("high", 5), ("equal", 3)):
        play.submit(name, "one", "5", wait_ms=5_000, annotations=urgency(priority))
    play.submit("urgent", "one", "10", wait_ms=60_000, annotations=urgency(3))
    assert play.evictions() == ["young", "old"]
    assert play.running() == Counter(one=3)
    assert play.state_of("urgent") == "Running"
    play.submit("peer", "one", "5", wait_ms=600_000, annotations=urgency(3))
    assert len(play.evictions()) == 2, "equal priority gives way to nobody"
    assert play.state_of("young") == "Suspended"
    story = Story("one/young")
    for stored in play.simulation.log:
        story.feed(stored)
    said = {each.entry.word: each.entry.text for each in story.of("one/young").happenings}
    assert "a job of higher priority in the same queue: one/urgent had priority 3, this job 1" in said["evicted"]
    assert "position" in said["queued"]
    play.clean()


def test_without_being_asked_for_nobody_gives_way_and_a_node_may_say_otherwise() -> None:
    for rules, attributes, expected in (
        ({}, {}, []),
        ({}, {"preempt-lower-priority": "true"}, ["low"]),
        (LOWER_GIVES, {"preempt-lower-priority": "false"}, []),
    ):
        play = Play(two_teams(**attributes), rules)
        play.submit("low", "one", "15", wait_ms=5_000)
        play.submit("urgent", "one", "15", wait_ms=120_000, annotations=urgency(9))
        assert play.evictions() == expected
        play.clean()


def test_min_run_is_respected_and_the_claimant_told() -> None:
    play = Play(two_teams(), {**LOWER_GIVES, "min-run": "5m"})
    play.submit("low", "one", "15", wait_ms=5_000)
    play.submit("urgent", "one", "15", wait_ms=120_000, annotations=urgency(9))
    assert play.evictions() == []
    story = Story("one/urgent")
    for stored in play.simulation.log:
        story.feed(stored)
    assert "have not run for their minimum yet" in story.of("one/urgent").standing.text
    play.simulation.advance(300_000)
    assert play.evictions() == ["low"]
    assert play.state_of("urgent") == "Running"
    play.clean()


def test_others_give_the_rest_and_get_it_back_when_it_is_over() -> None:
    """one is within its min without its lower job: what two borrows makes up the rest."""
    play = Play(two_teams(), LOWER_GIVES)
    play.submit("low", "one", "4", wait_ms=5_000)
    for index in range(4):
        play.submit(f"two-{index}", "two", "4", wait_ms=1_000)
    play.submit("urgent", "one", "8", wait_ms=60_000, annotations=urgency(9), runtime="120s", ttl_s=0)
    assert play.evictions() == ["low", "two-3"]
    assert play.state_of("urgent") == "Running"
    play.simulation.advance(600_000)
    assert play.running() == Counter(one=1, two=4)
    play.clean()


@pytest.mark.parametrize("seed", range(10))
def test_random_streams_come_to_rest(seed: int) -> None:
    """Once nobody comes any more, evictions end, no two evict each other, and nobody waits behind a lower priority."""
    rng = Random(seed)
    root = three_teams(rng)
    names = [leaf.name for leaf in root.children]
    play = Play(root, LOWER_GIVES)
    priorities: dict[str, int] = {}
    for index in range(25):
        name = f"job-{index}"
        priorities[name] = rng.choice((0, 5, 9))
        play.submit(
            name, rng.choice(names), "3", wait_ms=rng.choice((0, 500, 20_000)), annotations=urgency(priorities[name])
        )
    play.simulation.advance(3_600_000)
    stands: dict[str, dict[str, list[int]]] = {name: {"Running": [], "Suspended": []} for name in names}
    for job in play.jobs():
        meta, state = job["metadata"], job["status"]["jobDeploymentStatus"]
        stands[meta["namespace"]][state].append(priorities[meta["name"]])
    for name in names:
        low, high = min(stands[name]["Running"], default=9), max(stands[name]["Suspended"], default=0)
        assert low >= high, f"in {name} priority {high} waits while {low} runs"
    play.stays_at_rest()
    play.clean()


def test_who_a_disruption_budget_keeps_stays_and_another_gives_way() -> None:
    play = Play(two_teams(), LOWER_GIVES)
    for name in ("old", "young"):
        play.submit(name, "one", "5", wait_ms=30_000, annotations=urgency(1))
    play.submit("other", "one", "10", wait_ms=30_000, annotations=urgency(9))
    play.keep("young", "one", allowed=0)
    play.submit("urgent", "one", "5", wait_ms=120_000, annotations=urgency(9))
    assert play.state_of("urgent") == "Running"
    assert (play.state_of("young"), play.state_of("old")) == ("Running", "Suspended")
    failed = [each for stored in play.simulation.log for each in stored.commit.events if isinstance(each, EffectFailed)]
    assert [each.ref.name for each in failed] == ["young"]
    assert "PodDisruptionBudget young allows 0 of its pods to go, and 1 are of this job" in why(failed[0])
    play.clean()


def test_a_budget_that_lets_nobody_go_keeps_everybody_and_nothing_turns_in_circles() -> None:
    play = Play(two_teams(), LOWER_GIVES)
    for name in ("old", "young"):
        play.submit(name, "one", "10", wait_ms=30_000, annotations=urgency(1))
        play.keep(name, "one", allowed=0)
    play.submit("urgent", "one", "10", wait_ms=600_000, annotations=urgency(9))
    assert (play.state_of("young"), play.state_of("old")) == ("Running", "Running")
    orders = len(play.evictions())
    assert orders <= 4
    play.clean()


@pytest.mark.parametrize("seed", range(3))
def test_a_budget_over_several_jobs_holds_whatever_comes(seed: int) -> None:
    play, rng, least = Play(two_teams(), LOWER_GIVES), Random(seed), 2
    for index in range(4):
        play.submit(f"low-{index}", "one", "5", wait_ms=20_000, annotations=urgency(1))
    play.keep_heads("one", least)
    for index in range(6):
        cpu, priority = rng.choice(["5", "10"]), rng.choice([3, 5, 9])
        play.submit(f"urgent-{index}", "one", cpu, annotations=urgency(priority))
        for _ in range(rng.randint(1, 15)):
            play.simulation.advance(2_000)
            assert play.keep_heads("one", least) >= least
    assert 0 < len(play.evictions()) < 40, "somebody gives way, and it ends"
    play.clean()
