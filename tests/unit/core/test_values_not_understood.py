"""A value that no reader understands is told, whatever the field: 500 malformed values, drawn by a grammar."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from kit import facts
from kit.scenes import Scene
from kit.story import quota_tree, rayjob
from muster.core.objects import meta
from muster.core.quota.demand import run_time_ms, settings_left_out
from muster.core.quota.trees import rules, treesource
from muster.core.quota.trees.rules import span_ms
from muster.core.quota.trees.treesource import read_tree
from muster.core.reading.quotatree import read_quota_tree
from muster.core.workloads.registry import KINDS
from muster.events.system import PlacementChosen, PlacementMode
from muster.model.placing import PodRules
from muster.model.workload import PodSet, Switch, Template
from muster.told.views.story import Story
from muster.told.wording import problems

SPANS = (*meta.TIMES, meta.DRAIN, meta.NODE_WAIT)
JOB = (*SPANS, *meta.STAMPS, *meta.CHOICES, *meta.PREEMPTIBLE, meta.KAI_PREEMPTIBILITY)
FREE = ("paused-by", "paused-reason")
"""Texts for people."""


def job(annotations: dict[str, str], labels: dict[str, str]) -> Any:
    made = rayjob("one", annotations=annotations)
    made["metadata"] |= {"uid": "one", "resourceVersion": "1", "labels": labels}
    made["spec"]["rayClusterSpec"]["enableInTreeAutoscaling"] = True
    return KINDS["RayJob"].read(json.dumps(made).encode())


def told_of_job(key: str, text: str) -> bool:
    label = key in (*meta.PREEMPTIBLE, meta.KAI_PREEMPTIBILITY)
    workload = job({} if label else {key: text}, {key: text} if label else {})
    return any(key in problems.say(error) for error in settings_left_out(workload))


def tree(annotations: dict[str, str] | None = None, **root: Any) -> list[str]:
    """The broken rules of a tree in words."""
    made = quota_tree(facts.node("root", {"cpu": 4}, {"cpu": 4}))
    made["metadata"] |= {"uid": "t", "resourceVersion": "1", "annotations": annotations or {}}
    made["spec"]["root"] |= root
    return [problems.line(error) for error in read_tree(read_quota_tree(json.dumps(made).encode()))[1]]


def malformed(draw: Random) -> str:
    """A text near a value of some grammar, and a value of none."""
    number = str(draw.randint(1, 9_999))
    word = draw.choice(("soon", "never", "yes", "No", "TRUE", "on", "null", "ä", "{]", "[1", "1h2", "h1", "--"))
    glue = draw.choice(("", " ", "-", "/", ":", "  "))
    return draw.choice(
        (f"{number}", f"{word}{glue}{number}", f"{number}{glue}{word}", word, f"{number}{glue}x", f"P{number}")
    )


def test_no_malformed_value_is_ignored_in_silence() -> None:
    draw = Random(54)
    silent = []
    annotations = [name for name in rules.KNOWN if name not in (*FREE, "unbound-queue")]
    attributes = (treesource.PREEMPTS, treesource.REAPPLIED, treesource.PLACEMENT, treesource.LEND_LIMIT)
    for _ in range(500):
        text, place = malformed(draw), draw.randrange(4)
        if place == 0:
            key = draw.choice(JOB)
            spelled = key == meta.KAI_STALENESS and text.startswith("-")
            quiet = not told_of_job(key, text) and not spelled
        elif place == 1:
            key = draw.choice(annotations)
            quiet = not tree({f"{meta.PREFIX}/{key}": text})
        elif place == 2:
            key = draw.choice(attributes)
            quiet = not tree(attributes={key: text})
        else:
            key = draw.choice(("min", "max"))
            text = f"{text}!" if text.isdigit() else text
            quiet = not tree(**{key: {"cpu": text}})
        if quiet:
            silent.append((key, text))
    assert silent == []


@pytest.mark.parametrize("key", JOB)
def test_every_setting_of_a_job_is_told(key: str) -> None:
    assert told_of_job(key, "5 quux")


@pytest.mark.parametrize("name", [name for name in rules.KNOWN if name not in FREE])
def test_every_annotation_of_a_tree_is_refused(name: str) -> None:
    assert any(name in line for line in tree({f"{meta.PREFIX}/{name}": "5 quux"})) or name == "unbound-queue"
    assert tree({f"{meta.PREFIX}/{name}": "5 quux"})


@pytest.mark.parametrize("name", ["requests.cpu", "requests.nvidia.com/gpu", "limits.memory", "count/pods"])
def test_names_of_a_resource_quota_are_refused_with_the_name_that_counts(name: str) -> None:
    lines = tree(min={name: "4"}, max={name: "4"})
    plain = name.removeprefix("requests.").removeprefix("limits.")
    assert lines
    assert all("ResourceQuota" in line and repr(plain) in line for line in lines), lines


def test_an_uncountable_max_is_one_sentence() -> None:
    lines = tree(max={"cpu": "1E"})
    assert len(lines) == 1
    assert "more than this system can count" in lines[0]


@pytest.mark.parametrize(
    ("text", "ms"),
    [("1 h", 3_600_000), ("PT1H", 3_600_000), ("1 h 30 m", 5_400_000), ("PT90S", 90_000), ("P1DT1M", 86_460_000)],
)
def test_other_notations_of_a_span_are_read(text: str, ms: int) -> None:
    assert span_ms(text) == ms
    assert run_time_ms({meta.RUN_TIME: text}) >= ms


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-28 16:05:00.12 +0800 CST m=+100.5",
        "2026-11-28 08:05:00.12 +0000 UTC m=+100.5",
        "2026-11-28 08:05:00.12 +0000 UTC",
        "2026-11-28 05:05:00.12 -0300 -03 m=+0.1",
        "2026-11-28 11:05:00.12 +0300 MSK",
        "2026-11-28 13:35:00.120000001 +0530",
        "2026-11-28T16:05:00.12+08:00",
        "2026-11-28T08:05:00.120000000Z",
        "2026-11-28t08:05:00.12z",
        " 2026-11-28T08:05:00.12Z\n",
        "2026-11-28 13:50:00.12 +0545 +0545 m=+2",
        "2026-11-28 04:35:00.12 -0330 NST m=-0.1",
    ],
)
def test_moments_of_every_zone_are_read(text: str) -> None:
    assert meta.parse_time(text) == meta.parse_time("2026-11-28T08:05:00.12Z") > 0


@pytest.mark.parametrize("where", ["labels", "annotations"])
@pytest.mark.parametrize(
    ("asked", "mode", "told"),
    [
        ("kube-scheduler", "off", True),
        ("muster", "off", True),
        ("kube-scheduler", "native", False),
        ("kube-scheduler", "pack", False),
        ("yunikorn", "off", False),
    ],
)
def test_a_gang_that_is_not_placed_as_one_is_told(where: str, asked: str, mode: PlacementMode, told: bool) -> None:
    read = job(*([{}, {meta.GANG_SWITCH: asked}] if where == "labels" else [{meta.GANG_SWITCH: asked}, {}]))
    scene = Scene()
    scene.tree_of(("video", 5), ("b", 3))
    scene.lines("synced", "job one cpu=9")
    scene.bench.append("gang_admitter", "decision", [PlacementChosen(mode=mode)])
    scene.change("one", labels=read.labels)
    story = Story("video/one")
    for stored in scene.bench.log:
        story.feed(stored)
    assert any("asks for a gang, and placement is off" in text for text in story.of("video/one").pauses) == told


@pytest.mark.parametrize(
    ("named", "mode", "told"),
    [(False, "off", True), (False, "native", True), (False, "pack", False), (True, "off", False)],
)
def test_a_share_of_a_gpu_that_nobody_gives_is_told(named: bool, mode: PlacementMode, told: bool) -> None:
    scene = Scene()
    scene.tree_of(("video", 5), ("b", 3))
    scene.lines("synced", "job one cpu=9")
    scene.bench.append("gang_admitter", "decision", [PlacementChosen(mode=mode)])
    sharing = PodSet("Workers", 2, {"cpu": 1000}, rules=PodRules(share=500))
    template = Template("/spec/template", named=named, pods="workers")
    scene.change("one", pod_sets=(sharing,), switch=Switch(templates=(template,)))
    story = Story("video/one")
    for stored in scene.bench.log:
        story.feed(stored)
    words = "pod set Workers asks for a share of a GPU; with this placement (MUSTER_PLACEMENT) only pods with "
    assert any(words in text for text in story.of("video/one").pauses) == told
