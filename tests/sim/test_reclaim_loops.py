"""Loop shapes that other schedulers have met, each played through here, and random streams that must come to rest.

Named after the reports: evictions that go round (kueue 3779, 7101, 14543; volcano 561), a head that does not fit and
reclaims without progress (kueue 6929), ten evicted where one would do (volcano 5994).
"""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import Any

import pytest
from test_reclaim import Play, three_teams

from kit import facts
from muster.core.reading.kubequeue import CREATED_BY, QUEUE_NAMESPACE, QUOTA_FULLNAME
from muster.events.claims import ClaimOpened
from muster.events.decisions import (
    PreemptionProposed,
)
from muster.events.facts import TreeNodeSpec
from muster.model import api
from muster.model.quota import WIDTHS_TO_AGE


def two_teams(whole: int = 20, least: int = 10) -> TreeNodeSpec:
    """Two leaves of one root, each guaranteed half."""
    leaves = tuple(facts.node(name, {"cpu": least}, {"cpu": whole}, (name,)) for name in ("one", "two"))
    return facts.node("root", {"cpu": whole}, {"cpu": whole}, children=leaves)


def test_who_was_evicted_does_not_evict_in_turn_kueue_3779_7101_14543_volcano_561() -> None:
    play = Play(two_teams())
    for index in range(4):
        play.submit(f"one-{index}", "one", "5", wait_ms=1000)
    for index in range(4):
        play.submit(f"two-{index}", "two", "5", wait_ms=1000)
    play.simulation.advance(6 * 3_600_000)
    assert play.running() == Counter(one=2, two=2)
    assert play.evictions() == ["one-3", "one-2"], "twice, and never again"
    play.clean()


def test_a_lump_larger_than_what_its_queue_borrows_is_given_back_as_a_whole_kueue_6929() -> None:
    """Its queue then claims what is left of its own guarantee, with jobs that fit there; the lump waits for all."""
    play = Play(two_teams(16, 8), {"age-limit": "0"})
    play.submit("lump", "one", "14", wait_ms=30_000)
    play.submit("owed", "two", "4", wait_ms=30_000)
    assert play.evictions() == ["lump"]
    assert play.state_of("owed") == "Running"
    play.submit("small", "one", "8", wait_ms=3_600_000)
    assert play.state_of("small") == "Running"
    assert play.evictions() == ["lump"], "once, and never again"
    play.clean()


def test_many_evictions_of_a_young_job_cost_a_long_run_nothing() -> None:
    """Each eviction counts as five minutes of work; a job that runs for ten hours has more to lose."""
    least = {"owner": 10, "a": 0, "b": 0}
    leaves = tuple(facts.node(name, {"cpu": amount}, {"cpu": 15}, (name,)) for name, amount in least.items())
    play = Play(facts.node("root", {"cpu": 15}, {"cpu": 15}, children=leaves))
    play.submit("own", "owner")
    play.submit("long", "a", wait_ms=10 * 3_600_000)
    play.submit("young", "b", wait_ms=60_000)
    for number in range(12):
        play.submit(f"short-{number}", "owner", runtime="3m", wait_ms=660_000)
    assert play.evictions() == ["young"] * 12
    assert play.state_of("long") == "Running"
    play.clean()


def test_one_is_enough_volcano_5994() -> None:
    play = Play(two_teams(40, 20))
    for index in range(10):
        play.submit(f"small-{index}", "one", "4", wait_ms=1000)
    play.submit("owed", "two", "1", wait_ms=60_000)
    assert play.evictions() == ["small-9"]
    assert play.state_of("owed") == "Running"
    play.clean()


def test_who_has_not_run_long_enough_is_spared_until_then() -> None:
    play = Play(two_teams(), {"min-run": "10m"})
    for index in range(4):
        play.submit(f"one-{index}", "one", "5")
    play.simulation.advance(30_000)
    play.submit("owed", "two", "5", wait_ms=300_000)
    assert play.evictions() == []
    play.simulation.advance(400_000)
    assert len(play.evictions()) == 1
    assert play.state_of("owed") == "Running"
    play.clean()


@pytest.mark.parametrize("paused", ["evictions", "admissions"])
def test_a_pause_holds_until_it_is_lifted(paused: str) -> None:
    play = Play(two_teams(), {"paused": "evictions"} if paused == "evictions" else {})
    for index in range(4):
        play.submit(f"one-{index}", "one", "5", wait_ms=5000)
    if paused == "admissions":
        play.annotate_tree({"muster.dev/paused": "admissions"})
        play.simulation.advance(1000)
    play.submit("owed", "two", "5", wait_ms=600_000)
    assert play.state_of("owed") == "Suspended"
    play.annotate_tree({"muster.dev/paused": None})
    play.simulation.advance(60_000)
    assert play.state_of("owed") == "Running"
    play.clean()


def test_what_ran_before_us_is_charged_and_not_evicted_until_reclaim_is_enabled() -> None:
    play = Play(two_teams(), before=[("one", "5")] * 4)
    assert play.running() == Counter(one=4)
    play.submit("owed", "two", "5", wait_ms=600_000)
    assert play.evictions() == []
    proposed = [
        e for s in play.simulation.log for e in s.commit.events if isinstance(e, PreemptionProposed) and e.victims
    ]
    assert [each.withheld for each in proposed] == ["reclaim_disabled"], "it is shown what would be reclaimed"
    assert len(proposed[0].victims) == 1
    play.annotate_tree({"muster.dev/reclaim": "enabled"})
    play.simulation.advance(60_000)
    assert len(play.evictions()) == 1
    assert play.state_of("owed") == "Running"
    play.clean()


@pytest.mark.parametrize("seed", range(12))
def test_random_streams_come_to_rest(seed: int) -> None:
    """Once nobody comes any more, evictions end, and whoever is owed its guarantee in full units has it."""
    rng = Random(seed)
    root = three_teams(rng)
    play = Play(root)
    for index in range(25):
        play.submit(f"job-{index}", rng.choice(root.children).name, "3", wait_ms=rng.choice((0, 500, 20_000)))
    play.simulation.advance(3_600_000)
    running, waiting = play.running(), Counter(job["metadata"]["namespace"] for job in play.jobs())
    for leaf in root.children:
        guaranteed = int(leaf.min["cpu"]) // 3
        assert running[leaf.name] >= min(guaranteed, waiting[leaf.name]), f"{leaf.name} has what it is guaranteed"
    play.stays_at_rest()
    assert max(Counter(play.evictions()).values(), default=0) <= 3, "nobody is evicted again and again"
    play.clean()


def test_nobody_is_evicted_for_a_queue_whose_admissions_are_paused() -> None:
    """It is refused, and who runs has not run for its minimum yet; until it has, the queue is paused."""
    play = Play(two_teams(), {"min-run": "10m"})
    for index in range(4):
        play.submit(f"one-{index}", "one", "5", wait_ms=1000)
    play.submit("owed", "two", "5", wait_ms=60_000)
    play.annotate_tree({"muster.dev/paused": "admissions"})
    play.simulation.advance(3_600_000)
    assert play.evictions() == [], "nobody could be let in instead"
    assert not claims(play), "and nothing is kept from others"
    play.annotate_tree({"muster.dev/paused": None})
    play.simulation.advance(60_000)
    assert play.evictions() == ["one-3"], "the youngest of those who have run for an hour"
    assert play.state_of("owed") == "Running"
    play.clean()


def test_nothing_is_held_for_an_aged_job_whose_queue_is_paused() -> None:
    play = Play(two_teams(20, 0))
    play.submit("first", "one", "12", runtime="3600s", ttl_s=0, wait_ms=1000)
    play.submit("beside", "one", "8", runtime="3700s", ttl_s=0, wait_ms=1000)
    play.submit("wide", "two", "16", wait_ms=1000)
    play.submit("long", "one", "12", wait_ms=3_750_000)
    for index in range(WIDTHS_TO_AGE * 2):
        play.submit(f"small-{index}", "one", "8", runtime="10s", ttl_s=0, wait_ms=30_000)
    assert [event.ref.name for event in claims(play)] == ["wide"]
    play.annotate_tree({"muster.dev/paused": "admissions"})
    play.simulation.advance(60_000)
    assert not play.simulation.seats["quota_accountant"].state.ledger.claims.by_uid
    play.clean()


def test_nobody_is_evicted_for_who_is_blocked_by_its_head() -> None:
    """The head asks for more than its queue is owed; under Block who comes after it cannot be let in before it."""
    play = Play(two_teams(), {"age-limit": "0", "min-run": "10m"})
    for index in range(4):
        play.submit(f"one-{index}", "one", "5", wait_ms=1000)
    play.submit("head", "two", "15", wait_ms=60_000)
    play.submit("owed", "two", "5", wait_ms=1000)
    queue_object(play, "two", "Block")
    play.simulation.advance(3_600_000)
    assert play.evictions() == []
    queue_object(play, "two", "Round")
    play.simulation.advance(60_000)
    assert play.evictions() == ["one-3"]
    assert play.state_of("owed") == "Running"
    play.clean()


def queue_object(play: Play, leaf: str, policy: str) -> None:
    """The Queue of a leaf, with that policy, in place of the one before."""
    meta: dict[str, Any] = {"name": leaf, "namespace": QUEUE_NAMESPACE, "annotations": {QUOTA_FULLNAME: f"root/{leaf}"}}
    meta["labels"] = {CREATED_BY: "true"}
    obj = {"apiVersion": api.QUEUES.api_version, "kind": "Queue", "metadata": meta, "spec": {"queuePolicy": policy}}
    play.cluster.server.handle("DELETE", api.QUEUES.path(QUEUE_NAMESPACE, leaf))
    answer = play.cluster.server.handle("POST", api.QUEUES.path(QUEUE_NAMESPACE), body=json.dumps(obj).encode())
    assert answer.ok, answer.body
    play.simulation.advance(1000)


def claims(play: Play) -> list[ClaimOpened]:
    return [e for s in play.simulation.log for e in s.commit.events if isinstance(e, ClaimOpened)]
