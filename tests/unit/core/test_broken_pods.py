"""Pods that do not run say why: on every surface the same code, from the object that the API server has."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import msgspec
import pytest

from kit import facts
from kit import jobs as jobs_of_kinds
from kit.brokenpods import BROKEN, CROWDED, INIT, UNSCHEDULABLE, Obj, disrupted, ended, waiting
from kit.scenes import Scene, beginning
from muster.core.reading.cluster import read_pod, refusals
from muster.core.reading.watcher import Watcher
from muster.core.stage import Folder
from muster.core.workloads.registry import KINDS
from muster.events.facts import PodObserved, WorkloadFinished
from muster.events.public import PublicWorkloadFinished, PublicWorkloadHeldUp
from muster.model.keys import Position
from muster.model.podtrouble import NodesRefuse
from muster.model.workload import PodState, Workload
from muster.serving.joblist import job_rows
from muster.told.codes.values import STOPPED
from muster.told.presentation import desired
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState
from muster.told.status.statuses import job_status
from muster.told.views.publication import facets_in, public_event
from muster.told.views.story import Story
from muster.told.wording import explain, jobs
from muster.told.wording.pods import WORDS

FINE: list[Obj] = [
    {},
    {"phase": "Pending"},
    waiting("ContainerCreating"),
    waiting("PodInitializing"),
    {"phase": "Running", "containerStatuses": [{"name": "main", "state": {"running": {}}, "lastState": None}]},
    {"phase": "Running", "initContainerStatuses": [INIT]},
    ended("Completed", 0, "Succeeded"),
    {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]},
]


def pod(status: Obj, **meta: Any) -> bytes:
    owner = facts.cluster_ref("one", "video")
    controller = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "controller": True}
    owners = [controller | {"name": owner.name, "uid": owner.uid}]
    metadata = {"name": "one-0", "namespace": "video", "uid": "uid-video-one-pod-0", "ownerReferences": owners}
    metadata |= {"labels": {"ray.io/cluster": owner.name}, "resourceVersion": str(facts.next_rv())} | meta
    spec = {"nodeName": "n", "containers": [{"name": "main", "image": "reg/x:1"}]}
    return msgspec.json.encode({"metadata": metadata, "spec": spec, "status": status})


def observed(status: Obj) -> PodObserved:
    found = read_pod(pod(status))
    assert found is not None
    return found


def starting() -> Scene:
    return beginning("job one", "resumed one", "cluster one", "pod one 0")


def told(scene: Scene) -> tuple[ReadState, str, list[Any]]:
    """The read model, the uid of the job, and what is published."""
    folder, state, public = Folder(ReadModel()), ReadState(), []
    for stored in scene.bench.log:
        known = facets_in(state, stored)
        folder.fold(state, stored)
        found = [public_event("main", 1, stored.seq, i, 0, e, known) for i, e in enumerate(stored.commit.events)]
        public += [each for each in found if isinstance(each, PublicWorkloadHeldUp | PublicWorkloadFinished)]
    return state, scene.jobs["one"].ref.uid, public


def test_every_code_of_a_pod_is_reached() -> None:
    of_no_pod = {"PodsRefused"}  # Of pods that are not made: test_no_pods.
    assert {code for _, code, _ in BROKEN.values()} | of_no_pod == set(WORDS)


@pytest.mark.parametrize("name", BROKEN)
def test_the_standing_the_list_the_event_and_the_public_event_say_the_same_cause(name: str) -> None:
    status, code, words = BROKEN[name]
    fact = observed(status)
    assert fact.pod.trouble is not None
    assert fact.pod.trouble.code == code
    assert b"secret" not in msgspec.json.encode(fact), "messages of others stay in the cluster"
    scene = beginning("job one", "resumed one", "cluster one")
    scene.do(fact)
    over = status["phase"] == "Failed"
    if over:
        scene.do(WorkloadFinished(ref=scene.jobs["one"].ref, outcome="failed", detail="Failed"))
        scene.line("finishes one failed")
    state, uid, public = told(scene)
    story = Story("video/one")
    for stored in scene.bench.log:
        story.feed(stored)
    text = story.of("video/one").standing.text
    assert code in text
    assert words in text
    (row,) = job_rows(state, state.now)
    assert (row.cause, row.outcome) == (code, "failed" if over else "")
    assert words in row.text
    event = desired.pods_event(state, uid)
    assert (event is None) == (code == "InitWaiting"), "a pod that initializes is no warning"
    if event is not None:
        assert (event.reason, words in event.message) == (code, True)
    assert [each.cause for each in public] == [code] * (2 if over else 1)
    later = jobs.text(job_status(state, uid), row.cause_since + 65_000)
    assert (f"{code} for 1 min 5 s: Pod one-0: " in later) == (not over), later


@pytest.mark.parametrize("status", FINE)
def test_a_pod_on_its_way_is_no_trouble(status: Obj) -> None:
    assert observed(status).pod.trouble is None


def test_a_pod_that_is_being_deleted_is_no_trouble() -> None:
    found = read_pod(pod(waiting("CrashLoopBackOff"), deletionTimestamp="2026-01-01T00:00:00Z"))
    assert found is not None
    assert found.pod.trouble is None


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (ended("Error", 143), "PodFailed", "deleted the pod"),
        ({"phase": "Failed"}, "PodFailed", "deleted the pod"),
        (ended("OOMKilled", 137), "OOMKilled", "more memory"),
        (ended("Error", 3), "ContainerFailed", "exit code 3"),
        (disrupted("EvictionByEvictionAPI"), "Evicted", "evicted through the API"),
    ],
)
def test_a_pod_that_somebody_deletes_fails_for_that(status: Obj, code: str, words: str) -> None:
    """Not for the exit code of a container that is told to end."""
    found = read_pod(pod(status, deletionTimestamp="2026-01-01T00:00:00Z"))
    assert found is not None and found.pod.trouble is not None
    trouble = found.pod.trouble
    assert (trouble.code, words in WORDS[trouble.code][0](trouble)) == (code, True)


@pytest.mark.parametrize("finalizer", ["batch.kubernetes.io/job-tracking", "example.com/archive"])
def test_a_pod_that_is_deleted_before_it_has_a_node_holds_nothing_whatever_its_finalizers(finalizer: str) -> None:
    going = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [finalizer]}
    found = msgspec.json.decode(pod({"phase": "Pending"}, **going))
    assert not _read(found).over, "its kubelet may still run it"
    del found["spec"]["nodeName"]
    assert _read(found).over
    del found["metadata"]["deletionTimestamp"]
    assert not _read(found).over


def _read(found: Obj) -> PodState:
    event = read_pod(msgspec.json.encode(found))
    assert event is not None
    return event.pod


LATE = "PreRunningDeadlineExceeded"
FAILED_AS = "PyTorchJob py has failed because it "


@pytest.mark.parametrize(
    ("kind", "status", "detail"),
    [
        ("RayJob", {"jobDeploymentStatus": "Failed", "reason": LATE}, LATE),
        ("PyTorchJob", FAILED_AS + "was active longer than specified deadline", "DeadlineExceeded"),
        ("PyTorchJob", FAILED_AS + "has reached the specified backoff limit", "BackoffLimitExceeded"),
        ("PyTorchJob", "1 replica(s) failed", "PyTorchJobFailed"),
        ("JobSet", "jobset failed due to reaching max number of restarts", "ReachedMaxRestarts"),
        ("MPIJob", "launcher pod evicted", "MPIJobEvicted"),
    ],
)
def test_the_end_of_each_kind_is_read(kind: str, status: Obj | str, detail: str) -> None:
    if isinstance(status, str):
        reason = detail if kind != "PyTorchJob" else "PyTorchJobFailed"
        status = {"conditions": [{"type": "Failed", "status": "True", "reason": reason, "message": status}]}
    made = jobs_of_kinds.KINDS[kind].make("one", "video") | {"status": status}
    made["metadata"] |= {"uid": "uid-one", "resourceVersion": "7", "creationTimestamp": "2025-01-10T01:36:24Z"}
    found = KINDS[kind].read(msgspec.json.encode(made))
    assert isinstance(found, Workload) and (found.outcome, found.detail) == ("failed", detail)
    assert detail in explain.ENDS or detail == "PyTorchJobFailed"


def test_numbers_of_the_scheduler_are_bounded_and_change_nothing_alone() -> None:
    nodes, causes = refusals(CROWDED)
    assert nodes == 5
    assert causes == (
        NodesRefuse(3, "Insufficient nvidia.com/gpu"),
        NodesRefuse(2, "node(s) had untolerated taint {team: research}"),
    )
    assert refusals("") == (0, ())
    long = "0/9999 nodes are available: " + ", ".join(f"{i} {'x' * 500}{i}" for i in range(1, 99))
    assert len(msgspec.json.encode(refusals(long))) < 2000
    watcher = Watcher("pods")
    state = watcher.initial()
    for number, reported in ((3, 1), (4, 0)):
        message = CROWDED.replace("3 Insuff", f"{number} Insuff")
        body = msgspec.json.decode(msgspec.json.encode(UNSCHEDULABLE))
        body["conditions"][0]["message"] = message
        fact = observed(body)
        events = watcher.report(state, fact)
        assert len(events) == reported, "the same causes with other numbers are not reported again"
        for event in events:
            watcher.arms()[PodObserved](state, Position(1, 0, 1), event)


def test_what_a_job_recovers_from_is_no_cause_any_more() -> None:
    scene = starting()
    scene.do(observed(waiting("ErrImagePull")))
    state, uid, _ = told(scene)
    assert job_rows(state, state.now)[0].cause == "ImagePullBackOff"
    scene.do(observed({"phase": "Running"}))
    state, uid, _ = told(scene)
    assert job_rows(state, state.now)[0].cause == ""
    assert desired.pods_event(state, uid) is None


def test_the_first_pod_that_failed_is_the_cause_also_when_it_is_gone() -> None:
    scene = starting()
    scene.do(observed(ended("OOMKilled", 137)), facts.pod("one", 1, running=True))
    scene.lines("pod-gone one 0", "pod-gone one 1")
    scene.do(WorkloadFinished(ref=scene.jobs["one"].ref, outcome="failed", detail="Failed"))
    scene.lines("finishes one failed", "cluster-gone one")
    state, _, _ = told(scene)
    assert job_rows(state, state.now)[0].cause == "OOMKilled"


@pytest.mark.parametrize("reason", explain.ENDS)
def test_an_end_is_told_in_the_words_of_its_controller(reason: str) -> None:
    condition = {"type": "Failed", "status": "True", "reason": reason, "message": "said at length"}
    made = jobs_of_kinds.job("one", "video") | {"status": {"conditions": [condition]}}
    made["metadata"] |= {"uid": "uid-one", "resourceVersion": "7", "creationTimestamp": "2025-01-10T01:36:24Z"}
    found = KINDS["Job"].read(msgspec.json.encode(made))
    assert isinstance(found, Workload) and (found.outcome, found.detail) == ("failed", reason)
    scene = starting()
    scene.do(observed(ended("Error", 143)))
    scene.do(WorkloadFinished(ref=scene.jobs["one"].ref, outcome="failed", detail=reason))
    scene.change("one", phase="finished", outcome="failed", detail=reason)
    state, uid, _ = told(scene)
    text = jobs.text(job_status(state, uid), state.now)
    assert f"{reason}: {explain.ENDS[reason]}" in text
    assert ("143" in text) == (reason not in STOPPED), "what a controller stops ends with the code of a signal"


def instructions(call: Callable[[], object]) -> int:
    """How many instructions of Python a call takes: the same in every run, unlike its time."""
    count = 0

    def trace(frame: FrameType, what: str, _argument: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += what == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def cost_of_a_pod(gang: int) -> int:
    """What the last pod of a gang costs the read model where none of its pods has a node."""
    scene = starting()
    state, _, _ = told(scene)
    folder = Folder(ReadModel())
    trouble = observed(UNSCHEDULABLE).pod.trouble
    for number in range(gang):
        scene.bench.append("observer", "input", [facts.pod("one", number, running=False, trouble=trouble)])
        folder.fold(state, scene.bench.log[-1])
    scene.bench.append("observer", "input", [facts.pod("one", gang, running=False, trouble=trouble)])
    cost = instructions(lambda: folder.fold(state, scene.bench.log[-1]))
    held = job_status(state, scene.jobs["one"].ref.uid).pods
    assert held is not None
    assert held.pods == gang + 1
    return cost


def test_a_pod_that_is_unschedulable_costs_the_same_in_a_gang_of_any_size() -> None:
    assert cost_of_a_pod(200) < 1.5 * cost_of_a_pod(5)
