"""Every reason the log can give has a scene that brings it about, and `why` tells it there, unlike any other.

The reasons are read from the events themselves: a new one without a scene fails here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from msgspec import inspect as mi

from kit import claimscenes, facts, gangscenes, rayscenes, scenes
from kit.bench import Bench
from kit.obstaclescenes import OBSTACLES, obstacle
from kit.overuse import overuse
from kit.scenes import TWO, Scene
from muster.events.base import Event
from muster.events.decisions import WorkloadRefused
from muster.events.effects import EffectFailed
from muster.events.registry import EVENT_TYPES
from muster.model.problem import FieldProblem
from muster.told.views.gangstory import gang_tale
from muster.told.views.narrator import Narrator
from muster.told.views.story import Story
from muster.told.views.tellings import NarratedEvent
from muster.told.wording import reasons as wording

Key = tuple[str, str]
"""(event tag or enum, value)"""

NO_REASONS = {
    "phase",
    "operator",
    "reclaim",
    "runtime",
    "order",
    "action",
    "mode",
    "cpu",
    "charge_pods",
    "rule_profile",
    "capacity",
    "kind",
}
"""Fields with a closed set of values that say what something is, not why."""
TOLD_OTHERWISE = {
    ("workload_refused", ""): "there is one form of it only",
    ("workload_refused", "unreadable"): "nobody decides it: the fact object_unreadable says it, see test_story",
    ("preemption_proposed", ""): "nothing is withheld",
    ("workload_finished", ""): "no outcome is known",
    ("workload_adopted", "reserved"): "it is a pod of no job, and nobody's to list: see pods_wait_for_quota",
    ("nodes_request_withdrawn", "unknown"): "it is nobody's: see test_bridge",
}


def literals(found: mi.Type, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """(path of the field, value) of every closed set of texts inside a type; trees of quota are not entered."""
    match found:
        case mi.LiteralType():
            yield from ((path, str(value)) for value in found.values)
        case mi.StructType() if len(path) < 5 and found.cls is not FieldProblem:  # Those are judged by test_problems.
            for each in found.fields:
                yield from literals(each.type, (*path, each.name))
        case mi.UnionType():
            for each in found.types:
                yield from literals(each, path)
        case mi.VarTupleType():
            yield from literals(found.item_type, path)


def reasons() -> set[Key]:
    """Every reason there is; obstacles stand in several events, and count once."""
    found = set()
    for tag, kind in EVENT_TYPES.items():
        for path, value in literals(mi.type_info(kind), (tag,)):
            if path[-1] in NO_REASONS or path[1:2] in (("workload",), ("but",), ("pod",), ("demand",)):
                continue
            if path[-1] == "why":
                found.add(("pool_refusal", value))
            elif path[-1] == "code":
                found.add(("obstacle", value))
            elif tag == "effect_failed":
                found |= {(f"not_{action}", value) for action in ("resume", "suspend", "bind")}
            else:
                found.add((tag, value))
    return found


GANG_SCENES: dict[str, Callable[[str], tuple[gangscenes.Play, str]]] = {
    "gang_held_back": gangscenes.held_back,
    "pods_released": gangscenes.pods_released,
    "nodes_claim_ended": gangscenes.claim_ended,
    "not_bind": gangscenes.not_bound,
}
"""Of gangs of pods that we bind ourselves: told by the story of the gang."""

SCENES: dict[str, Callable[[str], tuple[Scene, str]]] = {
    "workload_dequeued": scenes.dequeued,
    "workload_refused": scenes.refused,
    "quota_denied": scenes.denied,
    "workload_adopted": scenes.adopted,
    "quota_released": lambda reason: overuse(left=True) if reason == "overuse" else scenes.released(reason),
    "preemption_proposed": scenes.withheld,
    "reclaim_deferred": scenes.deferred,
    "claim_ended": claimscenes.claim_ended,
    "plan_stale": scenes.stale,
    "victim_stays": claimscenes.victim_stays,
    "suspension_ordered": lambda reason: {
        "stale_gang": lambda: (scenes.stale_gang(), "default/short"),
        "unschedulable": lambda: (scenes.unschedulable(), "a/one"),
        "overuse": overuse,
        "no_pods": lambda: (scenes.timed_out("start_timeout"), "a/one"),
    }.get(reason, lambda: (scenes.timed_out(), "a/one"))(),
    "places_released": scenes.places,
    "not_resume": scenes.not_done("resume"),
    "not_suspend": scenes.not_done("suspend"),
    "workload_finished": scenes.finished,
    "obstacle": obstacle,
    "pool_refusal": scenes.pool_refused,
    "nodes_request_withdrawn": scenes.nodes_withdrawn,
}
"""Of jobs."""

RAY_SCENES: dict[str, Callable[[str], tuple[Scene, str]]] = {
    "growth_denied": rayscenes.denied,
    "workers_kept": rayscenes.kept,
    "alarm_raised": rayscenes.alarm,
}
SCENES |= RAY_SCENES

WORDS: dict[str, Any] = {
    "workload_dequeued": wording.DEQUEUED,
    "workload_adopted": wording.ADOPTED,
    "quota_released": wording.RELEASED,
    "claim_ended": wording.CLAIM_ENDED,
    "plan_stale": wording.STALE,
    "victim_stays": wording.STAYS,
    "places_released": wording.GIVEN_BACK,
    "not_resume": wording.NOT_RESUMED,
    "not_suspend": wording.NOT_SUSPENDED,
    "not_bind": wording.NOT_BOUND,
    "preemption_proposed": wording.WITHHELD,
    "nodes_request_withdrawn": wording.WITHDRAWN,
    "gang_held_back": wording.HELD_BACK,
    "pods_released": wording.PODS_RELEASED,
    "nodes_claim_ended": wording.NODES_CLAIM_ENDED,
}


def says(event: Event, key: Key) -> bool:
    """Whether an event of the log gives this reason."""
    kind, value = key
    if kind == "obstacle":
        short = getattr(event, "shortage", None)
        return short is not None and any(each.code == value for each in short.obstacles)
    if kind == "pool_refusal":
        return any(each.why == value for each in getattr(event, "refusals", ()))
    if kind.startswith("not_"):
        return isinstance(event, EffectFailed) and (f"not_{event.action}", event.reason) == key
    fields = ("reason", "outcome", "withheld")
    said = [getattr(event, name, None) for name in fields]
    if isinstance(event, WorkloadRefused):
        said = [event.refusal.reason, event.refusal.detail]
    return event.__struct_config__.tag == kind and value in said


def of_job(bench: Bench, job: str) -> list[NarratedEvent]:
    """What `why` says of a job."""
    story = Story(job)
    for stored in bench.log:
        story.feed(stored)
    return [each.entry for each in story.of(job).happenings]


def of_gang(bench: Bench, gang: str) -> list[NarratedEvent]:
    """What it says of a gang of pods."""
    narrator = Narrator()
    for stored in bench.log:
        narrator.feed(stored)
    return gang_tale(narrator.state, gang).entries


@cache
def told(key: Key) -> str:
    """What `why` says where the reason is given: the entry about that very event."""
    kind, value = key
    if kind in GANG_SCENES:
        play, gang = GANG_SCENES[kind](value)
        bench, entries = play.bench, of_gang(play.bench, gang)
    else:
        scene, job = SCENES[kind](value)
        bench, entries = scene.bench, of_job(scene.bench, job)
    home = f"tests/kit/{'gangscenes' if kind in GANG_SCENES else 'rayscenes' if kind in RAY_SCENES else 'scenes'}.py"
    places = {
        (stored.seq, item)
        for stored in bench.log
        for item, event in enumerate(stored.commit.events)
        if says(event, key)
    }
    last = [event for stored in bench.log[-4:] for event in stored.commit.events]
    assert places, f"{home}: the scene of {kind} does not lead to {value}, add a case there: {last}"
    found = [entry for entry in entries if (entry.seq, entry.item) in places]
    assert found, f"`why` says nothing of {key} at {places}"
    return f"{found[0].word}: {found[0].text}"


ALL = sorted(reasons())
SCENIC = [key for key in ALL if key not in TOLD_OTHERWISE]


def test_the_reasons_are_found() -> None:
    assert len(ALL) > 60
    assert {kind for kind, _ in ALL} == SCENES.keys() | GANG_SCENES.keys(), "a new closed set needs scenes"
    assert TOLD_OTHERWISE.keys() <= set(ALL)
    assert {value for kind, value in ALL if kind == "obstacle"} == OBSTACLES.keys() == wording.OBSTACLES.keys()


@pytest.mark.parametrize("key", SCENIC, ids=": ".join)
def test_why_tells_every_reason_where_it_is_given(key: Key) -> None:
    text, words = told(key), WORDS.get(key[0], {}).get(key[1], "")
    assert words.partition("{")[0] in text
    assert len(text) > 20


@pytest.mark.parametrize("code", sorted(OBSTACLES))
def test_that_nodes_never_do_is_said_only_of_what_no_node_gets_over_by_itself(code: str) -> None:
    """A node that is full, not ready, cordoned or tainted (by its own pressure, too) may take the job later."""
    scene, job = obstacle(code)
    story = Story(job)
    for stored in scene.bench.log:
        story.feed(stored)
    text = story.of(job).standing.text
    assert ("No node there is can run it" in text) == (code in {"too_small", "node_affinity"}), text
    assert ("tried again when the nodes have room" in text) != ("No node there is" in text)


def plain(text: str) -> str:
    """A sentence without what differs between two scenes: numbers, names, quantities."""
    return re.sub(r"\b[a-z-]+/[a-z-]+(/[a-z-]+)*\b|\d+\S*", "…", text)


BY_DETAIL = {("workload_refused", reason) for reason in ("unbound", "two_quotas", "queue_unknown")}
"""Reasons of several forms, which are told apart by the detail beside them."""


def test_no_two_reasons_read_the_same() -> None:
    said: dict[str, list[Key]] = {}
    for key in [key for key in SCENIC if key not in BY_DETAIL]:
        said.setdefault(plain(told(key)), []).append(key)
    assert {text: keys for text, keys in said.items() if len(keys) > 1} == {}


def test_an_eviction_tells_whether_work_is_lost() -> None:
    from muster.events.facts import WorkloadStarted

    scene = Scene()
    scene.tree_of(*TWO)
    scene.lines("synced", "job b/small cpu=3", "time +5s", "job b/greedy cpu=5")
    scene.runs("b/greedy")
    scene.do(WorkloadStarted(ref=scene.jobs["b/greedy"].ref))
    scene.lines("time +120s", "job a/owed cpu=5")
    story = Story("b/greedy")
    for stored in scene.bench.log:
        story.feed(stored)
    evicted = next(each.entry.text for each in story.of("b/greedy").happenings if each.entry.word == "evicted")
    assert "job a/owed was within the min of its queue root/a" in evicted
    assert evicted.endswith("It had run for 2 min: work since its last checkpoint is lost")


def test_an_eviction_names_the_node_whose_guarantee_covers_the_claimant() -> None:
    """The queue of the claimant is guaranteed nothing; the node above the queue is."""
    scene = Scene()
    top = facts.node("a", {"cpu": 5}, {}, children=(facts.node("one", {}, {}, ("a",)),))
    other = facts.node("b", {"cpu": 3}, {}, ("b",))
    scene.do(facts.tree(facts.node("root", {"cpu": 8}, {"cpu": 8}, children=(top, other))))
    scene.lines("synced", "job b/greedy cpu=8")
    scene.runs("b/greedy")
    scene.lines("job a/owed cpu=5")
    story = Story("b/greedy")
    for stored in scene.bench.log:
        story.feed(stored)
    evicted = next(each.entry.text for each in story.of("b/greedy").happenings if each.entry.word == "evicted")
    assert "job a/owed was within the min of quota root/a above its queue root/a/one, and this job ran" in evicted
