"""The judge of a bad day (kit.badday) by hand: what it must find in a few states of pods, jobs and commits."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kit.badday import feed, quota, stream, verdict
from kit.badday.plants import PLANTS
from kit.badday.shim import planted
from kit.badday.verdict import ABOVE, CIRCLE, GROUNDLESS, PART, TWICE, WAITS, Judge

Object = dict[str, Any]
NATS = Path(__file__).parents[2] / "deploy" / "nats"

TREE: Object = {
    "spec": {
        "root": {
            "name": "root",
            "max": {"cpu": "4"},
            "children": [
                {"name": "a", "min": {"cpu": "2"}, "max": {"cpu": "4"}, "namespaces": ["a"]},
                {"name": "b", "min": {"cpu": "2"}, "max": {"cpu": "3000m"}, "namespaces": ["b"]},
            ],
        }
    }
}


class Scene:
    """A judge with a clock of its own."""

    def __init__(self) -> None:
        self.now, self.version = 1000.0, 0
        self.judge = Judge(TREE, lambda _: None, lambda: self.now)
        self.judge.calm = True

    def kinds(self) -> list[str]:
        return [each.kind for each in self.judge.violations]

    def pod(self, name: str, namespace: str, job: str = "", *, phase: str = "Running", **spec: Any) -> None:
        owners = [{"kind": "Job", "uid": job}] if job else []
        labels = {"pod-group.scheduling.sigs.k8s.io/name": "gang"} if not job else {}
        body = {"containers": [{"resources": {"requests": {"cpu": "1"}}}], **spec}
        meta = {"uid": name, "name": name, "namespace": namespace, "ownerReferences": owners, "labels": labels}
        self.judge.heard_pod("MODIFIED", {"metadata": meta, "spec": body, "status": {"phase": phase}}, None)
        self.judge.after_pods()

    def job(self, name: str, namespace: str, *, suspend: bool, pods: int = 2, over: bool = False) -> None:
        template = {"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}}
        conditions = [{"type": "Complete", "status": "True"}] if over else []
        meta = {"uid": name, "name": name, "namespace": namespace, "creationTimestamp": "2026-01-01T00:00:00Z"}
        spec = {"suspend": suspend, "parallelism": pods, "completions": pods, "template": template}
        self.judge.heard_job("MODIFIED", {"metadata": meta, "spec": spec, "status": {"conditions": conditions}}, None)

    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1.0
            self.judge.tick()


def test_pods_above_the_max_of_a_node_are_told_with_how_many_and_how_long() -> None:
    scene = Scene()
    for index in range(5):
        scene.pod(f"p{index}", "a", "j")
    scene.now += 2.5
    scene.pod("p0", "a", "j", phase="Succeeded")
    assert sorted(each.text for each in scene.judge.violations) == [
        "a: cpu 5 of cpu 4 for 2.5 s",
        "root: cpu 5 of cpu 4 for 2.5 s",
    ]
    assert set(scene.kinds()) == {ABOVE}


def test_a_job_with_more_pods_than_it_runs_at_once_was_started_twice() -> None:
    scene = Scene()
    scene.job("j", "a", suspend=False)
    for index in range(3):
        scene.pod(f"p{index}", "a", "j")
    assert scene.kinds() == [TWICE]


def test_a_job_for_which_there_is_room_must_run_within_a_minute() -> None:
    scene = Scene()
    scene.job("runs", "a", suspend=False)
    scene.job("waits", "a", suspend=True)
    scene.job("large", "b", suspend=True, pods=4)
    scene.pass_time(59)
    assert scene.kinds() == []
    scene.pass_time(3)
    assert [each.text.partition(":")[0] for each in scene.judge.violations] == ["a/waits"]
    assert scene.kinds() == [WAITS]


def test_a_job_that_was_let_go_is_charged_before_it_has_pods() -> None:
    scene = Scene()
    scene.job("runs", "a", suspend=False, pods=3)
    scene.job("waits", "a", suspend=True)
    scene.pass_time(120)
    assert scene.kinds() == []


def test_a_queue_within_its_min_loses_nothing() -> None:
    scene = Scene()
    scene.job("borrows", "a", suspend=False, pods=3)
    scene.job("borrows", "a", suspend=True, pods=3)
    assert scene.kinds() == []
    scene.job("own", "b", suspend=False, pods=2)
    scene.job("own", "b", suspend=True, pods=2)
    scene.pass_time(4)
    assert scene.kinds() == [GROUNDLESS]


def test_what_was_admitted_before_an_order_may_be_resumed_after_the_eviction() -> None:
    scene = Scene()
    scene.job("borrows", "b", suspend=False, pods=2)
    scene.job("borrows", "b", suspend=True, pods=2)
    scene.pass_time(1)
    scene.job("own", "b", suspend=False, pods=1)
    scene.pass_time(10)
    assert scene.kinds() == []


def test_an_end_between_an_order_and_the_suspension_is_no_fault_of_the_order() -> None:
    scene = Scene()
    scene.job("borrows", "b", suspend=False, pods=2)
    scene.job("own", "b", suspend=False, pods=2)
    scene.job("own", "b", suspend=False, pods=2, over=True)
    scene.job("borrows", "b", suspend=True, pods=2)
    assert scene.kinds() == []
    scene.job("borrows", "b", suspend=False, pods=2)
    scene.pass_time(10)
    scene.job("borrows", "b", suspend=True, pods=2)
    scene.pass_time(10)
    assert scene.kinds() == [GROUNDLESS], "that end is long known"


def test_a_gang_that_is_bound_in_part_is_told() -> None:
    scene = Scene()
    scene.pod("one", "b", nodeName="n")
    scene.pod("two", "b")
    scene.pass_time(40)
    assert scene.kinds() == [PART]


def test_one_decision_again_and_again_is_a_circle() -> None:
    scene = Scene()
    commit = {"kind": "decision", "events": [{"type": "quota_denied", "ref": {"uid": "u", "name": "j"}}]}
    for seq in range(100):
        scene.now += 2.0
        scene.judge.heard_commit(1, seq, "", commit)
    assert scene.kinds() == []
    for seq in range(200):
        scene.now += 0.1
        scene.judge.heard_commit(1, seq, "", commit)
    assert scene.kinds() == [CIRCLE]


@pytest.mark.parametrize("module", [verdict, stream, quota, feed])
def test_the_judge_imports_nothing_of_muster(module: ModuleType) -> None:
    assert module.__file__ is not None
    names: list[str] = []
    for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
        if isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
        elif isinstance(node, ast.Import):
            names += [each.name for each in node.names]
    assert not [name for name in names if name.split(".")[0].startswith("muster")]
    ours = {name for name in names if name.startswith("kit")}
    assert ours <= {"kit.badday.quota", "kit.badday.stream"}


@pytest.mark.parametrize("number", PLANTS)
def test_each_bug_can_be_planted(number: int) -> None:
    plant = PLANTS[number]
    accounts, alive = (NATS / "accounts.conf").read_text(), (NATS / "alive.sh").read_text()
    assert planted.missing(number) == []
    assert number in planted.BUGS or (plant.accounts(accounts), plant.alive(alive)) != (accounts, alive)


def test_a_bug_of_which_the_code_has_nothing_left_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    changes = {"muster.core.quota.endings": {"gone": repr}, "muster.gone": {"note_acted": repr}}
    monkeypatch.setattr(planted, "BUGS", {9: changes})
    assert planted.missing(9) == ["muster.core.quota.endings.gone", "muster.gone.note_acted"]
    assert planted.unused(9, tmp_path) == [*changes]
    with pytest.raises(LookupError, match="bug 1 cannot be planted"):
        PLANTS[1].accounts("may_actuator { } users: [")


@pytest.mark.parametrize("number", planted.BUGS)
def test_a_planted_bug_is_in_the_code_that_a_service_loads(number: int, tmp_path: Path) -> None:
    loads = "; ".join(f"import {module}" for module in planted.BUGS[number])
    shim = Path(planted.__file__).parent
    path = os.pathsep.join([str(shim), *sys.path])
    given = {**os.environ, "PYTHONPATH": path, "BADDAY_PLANT": str(number), "BADDAY_FOLDER": str(tmp_path)}
    subprocess.run([sys.executable, "-c", loads], check=True, env=given)
    assert planted.unused(number, tmp_path) == []
