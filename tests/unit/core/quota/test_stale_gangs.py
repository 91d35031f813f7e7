"""Gangs in KAI queues that have lost pods: suspended after a while, never one that is about to finish."""

from __future__ import annotations

from typing import Any

import pytest

from kit import facts, kai, nodes
from kit.bench import Bench
from kit.facts import seen
from muster.events.base import Event
from muster.events.decisions import SuspensionOrdered
from muster.model.workload import PodSet

SET_OF = ({"ray.io/node-type": "head"}, {"ray.io/group": "small-group"}, {"ray.io/group": "small-group"})


def pod(index: int, **changes: Any) -> Event:
    return facts.pod(
        "one", index, "default", **{"node": "n1", "labels": SET_OF[index], "scheduler": "muster"} | changes
    )


def bench(*pods: int, **labels: str) -> Bench:
    """A job of a head and two workers that runs, with these of its pods on a node."""
    found = Bench()
    named: dict[str, Any] = {"labels": {f"kai.scheduler/{key.replace('_', '-')}": text for key, text in labels.items()}}
    found.facts(nodes.node("n1", cpu=64, memory=256), kai.queue("team-a"))
    found.synced()
    one = kai.work("one", "team-a", cpu=3, **named)
    found.facts(seen(one))
    found.settle()
    found.facts(facts.cluster("one", "default"), seen(one, suspended=False, phase="running", settled=False))
    found.facts(*(pod(index) for index in pods))
    found.settle()
    return found


def ordered(events: list[Event]) -> list[str]:
    return [each.reason for each in events if isinstance(each, SuspensionOrdered)]


def test_a_gang_that_lost_a_pod_is_suspended_after_a_minute() -> None:
    found = bench(0, 1, 2)
    found.facts(facts.pod_gone("one", 2, "default"))
    found.settle()
    assert ordered(found.pass_time(59_000)) == []
    assert ordered(found.pass_time(2_000)) == ["stale_gang"]


def test_a_pod_that_comes_back_in_time_saves_it() -> None:
    found = bench(0, 1, 2)
    found.facts(facts.pod_gone("one", 2, "default"))
    found.pass_time(50_000)
    found.facts(facts.pod("one", 3, "default", node="n1", labels=SET_OF[2], scheduler="muster"))
    found.settle()
    assert ordered(found.pass_time(600_000)) == []


@pytest.mark.parametrize(("said", "after_s"), [("5m", 300), ("1s", 1), ("nonsense", 60)])
def test_it_may_say_how_long_it_may_be_short(said: str, after_s: int) -> None:
    found = bench(0, 1, 2, staleness_grace_period=said)
    found.facts(facts.pod_gone("one", 1, "default"))
    found.settle()
    assert ordered(found.pass_time(after_s * 1000 - 500)) == []
    assert ordered(found.pass_time(1_000)) == ["stale_gang"]


def test_what_is_about_to_finish_is_left_alone() -> None:
    found = bench(0, 1, 2)
    found.facts(pod(2, over=True, succeeded=True, running=False))
    found.settle()
    assert ordered(found.pass_time(600_000)) == []


def test_a_gang_that_never_was_whole_is_left_alone() -> None:
    assert ordered(bench(0, 1).pass_time(600_000)) == []


def test_negative_is_never() -> None:
    found = bench(0, 1, 2, staleness_grace_period="-1s")
    found.facts(facts.pod_gone("one", 2, "default"))
    found.settle()
    assert ordered(found.pass_time(600_000)) == []


def test_a_gang_in_a_tree_is_never_stale() -> None:
    found = Bench()
    much = {"cpu": 100, "memory": "1Ti"}
    leaf = facts.node("leaf", much, much, ("default",))
    tree = facts.tree(facts.node("root", much, much, children=(leaf,)))
    found.facts(nodes.node("n1", cpu=64, memory=256), kai.queue("beside"), tree)
    found.synced()
    one = facts.job("one", "default", cpu=3)
    found.facts(seen(one))
    found.settle()
    found.facts(facts.cluster("one", "default"), seen(one, suspended=False, phase="running", settled=False))
    found.facts(*(pod(index) for index in range(3)))
    found.facts(facts.pod_gone("one", 2, "default"))
    found.settle()
    [entry] = found.states["quota_accountant"].entries.values()
    assert entry.queue == "root/leaf"
    assert ordered(found.pass_time(600_000)) == []


def test_what_a_group_has_above_its_minimum_is_not_missed() -> None:
    found = Bench()
    found.facts(nodes.node("n1", cpu=64, memory=256), kai.queue("team-a"))
    found.synced()
    sets = (PodSet("head", 1, facts.vector(cpu=1)), PodSet("small-group", 2, facts.vector(cpu=1), minimum=1))
    one = kai.work("one", "team-a", cpu=3, pod_sets=sets)
    found.facts(seen(one))
    found.settle()
    found.facts(facts.cluster("one", "default"), seen(one, suspended=False, phase="running", settled=False))
    found.facts(*(pod(index) for index in range(3)))
    found.facts(facts.pod_gone("one", 2, "default"))
    found.settle()
    assert ordered(found.pass_time(600_000)) == []
    found.facts(facts.pod_gone("one", 1, "default"))
    found.settle()
    assert ordered(found.pass_time(61_000)) == ["stale_gang"]
