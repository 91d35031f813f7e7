"""`ask` on mistakes of every day: what can never run is said first, with what exists; where to go is said, too."""

from __future__ import annotations

from typing import Any

import pytest

from kit import facts, nodes
from kit.advised import asked
from kit.scenes import Scene
from muster.core.stage import Folder
from muster.serving.asking import ask, read_job
from muster.serving.scope import Lens, Scope
from muster.serving.supposed import AskView
from muster.serving.views import moment_of
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState

GPU = "nvidia.com/gpu"


@pytest.fixture(scope="module")
def state() -> ReadState:
    """Four nodes of 8 GPUs; vision and search of 16 GPUs each, 32 in all."""
    scene, half, whole = Scene(), {"cpu": 128, "gpu": 16}, {"cpu": 256, "gpu": 32}
    most, quarter = {"cpu": 128, "gpu": 24}, {"cpu": 64, "gpu": 8}
    leaves = [facts.node(name, quarter, most, (name,)) for name in ("vision", "language")]
    research = facts.node("research", half, whole, children=tuple(leaves))
    search = facts.node("search", half, half, ("search",))
    scene.do(facts.tree(facts.node("root", whole, whole, children=(research, search))))
    for name in ("n1", "n2", "n3", "n4"):
        scene.do(nodes.node(name, cpu=64, memory=512, gpu=8, labels={"zone": f"eu-{name[1]}"}))
    scene.lines("synced")
    read, folder = ReadState(), Folder(ReadModel())
    for stored in scene.bench.log:
        folder.fold(read, stored)
    return read


def manifest(requests: dict[str, str], namespace: str = "vision", **more: Any) -> dict[str, Any]:
    """Two pods that ask for so much each. ``suspend``; other keys are fields of the pod."""
    spec = {"suspend": more.pop("suspend", True), "parallelism": 2, "completions": 2}
    container = {"name": "c", "image": "busybox", "resources": {"requests": requests}}
    pod = {"restartPolicy": "Never", "containers": [container], **more}
    return {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "new", "namespace": namespace},
        "spec": {**spec, "template": {"spec": pod}},
    }  # fmt: skip


def answer(state: ReadState, *args: Any, **more: Any) -> AskView:
    return asked(state, read_job(manifest(*args, **more)), state.now)


@pytest.mark.parametrize(
    ("requests", "more", "first", "way"),
    [
        ({"cpu": "1", "nvidia.com/gpus": "1"}, {}, "None of 4 nodes has nvidia.com/gpus", f"(nodes have {GPU})"),
        ({"nvdia.com/gpu": "1"}, {}, "None of 4 nodes has nvdia.com/gpu", f"(nodes have {GPU})"),
        ({"amd.com/gpu": "1"}, {}, "None of 4 nodes has amd.com/gpu", "or add nodes that have it"),
        ({"cpu": "1", GPU: "9"}, {}, "asks for nvidia.com/gpu 9, and the largest of 4 nodes has 8", "add larger nodes"),
        ({"cpu": "65"}, {}, "asks for cpu 65, and the largest of 4 nodes has 64", "less in each pod"),
        ({"memory": "600Gi"}, {}, "asks for memory 600Gi, and the largest of 4 nodes has 512Gi", "less in each pod"),
        ({"cpu": "1"}, {"nodeSelector": {"zone": "mars"}}, "None of 4 nodes has zone=mars", "(nodes have eu-1, eu-2, "),
        ({"cpu": "1"}, {"nodeSelector": {"zone": "eu_1"}}, "None of 4 nodes has zone=eu_1", "(nodes have eu-1)"),
    ],
)  # fmt: skip
def test_pods_that_no_node_can_run_are_told_so_first(
    state: ReadState, requests: dict[str, str], more: dict[str, Any], first: str, way: str
) -> None:
    view = answer(state, requests, **more)
    assert not view.starts_now
    assert view.promise is None
    assert view.why_no_promise == "it cannot start until it, or its quota, is changed"
    assert view.summary.startswith("It would never run: ")
    assert first in view.summary.partition(". ")[0]
    assert way in view.summary


def test_a_request_above_a_max_promises_nothing_and_names_what_would_start(state: ReadState) -> None:
    view = answer(state, {GPU: "8", "cpu": "40"})
    assert view.starts_now
    wide = manifest({GPU: "8"})
    wide["spec"] |= {"parallelism": 10, "completions": 10}
    view = asked(state, read_job(wide), state.now)
    assert view.summary.startswith(
        f"It would never run: Exceeds quota({GPU}) in quota root/research/vision: request 80"
    )
    assert "runs have ended" not in f"{view.summary}{view.why_no_promise}"
    assert view.advice[0].text.startswith("with 3 instead of 10 pods")


def test_a_job_that_is_not_suspended_is_told_that_it_runs_at_once(state: ReadState) -> None:
    view = answer(state, {GPU: "8"}, suspend=False)
    assert view.starts_now
    assert view.summary.startswith("It is not suspended: it would run at once, in no queue")


def test_a_job_without_requests_is_told_what_to_set(state: ReadState) -> None:
    view = answer(state, {})
    assert view.starts_now
    assert "ask for no resources, so no quota limits it: set resources.requests" in view.summary


@pytest.mark.parametrize(
    ("namespace", "names"),
    [
        ("research", ": vision, language."),  # The name of a quota above those.
        ("visions", ": vision."),
        ("nowhere", ": language, search, vision."),
    ],
)
def test_a_namespace_without_a_quota_is_told_those_that_have_one(state: ReadState, namespace: str, names: str) -> None:
    view = answer(state, {"cpu": "1"}, namespace)
    assert f"no quota claims namespace {namespace}" in view.summary
    assert view.summary.endswith(f"These namespaces have one{names}")


def test_only_namespaces_that_the_viewer_may_see_are_named(state: ReadState) -> None:
    scope = Scope(frozenset({"vision"}), cluster=False)
    job = read_job(manifest({"cpu": "1"}, "language"))
    view = ask(state, Lens(scope, state), moment_of(state, state.now, live=True), job, state.now)
    assert view.summary.endswith("no quota that you may see claims its namespace. These namespaces have one: vision.")


def test_what_keeps_a_job_out_of_its_queue_is_what_the_queue_sorter_says(state: ReadState) -> None:
    job = manifest({"cpu": "1"})
    job["metadata"]["annotations"] = {"muster.dev/hold": "true"}
    view = asked(state, read_job(job), state.now)
    assert view.summary.startswith("It is not queued: ")
    assert not view.starts_now
