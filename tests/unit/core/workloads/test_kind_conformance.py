"""What every workload kind must do, for every row of the registry: a kind that is added is tested here at once.

Each kind is driven by what its controller writes (kit.jobs), read by its own adapter, through all stages.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from kit import facts
from kit.bench import Bench
from kit.jobs import KINDS as KNOWN
from kit.jobs import Obj
from kit.words import in_words
from muster.core.actuation.intents import Actuator
from muster.core.actuation.patches import marked, resume_patch, switched
from muster.core.objects.meta import SUSPEND
from muster.core.reading.watched import ALWAYS, required_of
from muster.core.reading.watcher import Watcher
from muster.core.stage import Folder
from muster.core.workloads.registry import KINDS, suspend_field
from muster.events.base import Cause, Event
from muster.events.charges import ChargeChanged
from muster.events.decisions import (
    GangAdmitted,
    QuotaReleased,
    SuspensionRecorded,
    WorkloadAdopted,
    WorkloadQueued,
    WorkloadRefused,
)
from muster.events.effects import EffectApplied
from muster.events.facts import (
    ChildGone,
    ChildObserved,
    KindsConfigured,
    PodGone,
    PodObserved,
    Synced,
    WorkloadObserved,
)
from muster.fakecluster.apiserver.jsonpatch import json_patch
from muster.model.keys import Ref
from muster.model.workload import ChildState, PodState, Workload
from muster.told.presentation.desired import unit_name

ROOT = Path(__file__).parents[4]
each_kind = pytest.mark.parametrize("kind", KINDS)
settling_kind = pytest.mark.parametrize("kind", [kind for kind in KINDS if KNOWN[kind].settled is not None])


def dressed(obj: Obj, *, status: Obj | None = None, rv: int = 0) -> Obj:
    """An object as the API server keeps it."""
    name = obj["metadata"].get("name") or "generated"
    meta = {
        **obj["metadata"],
        "name": name,
        "uid": f"uid-{name}",
        "resourceVersion": str(rv or facts.next_rv()),
        "generation": 1,
        "creationTimestamp": "2025-01-10T01:36:24Z",
    }
    return {**obj, "metadata": meta, **({"status": status} if status is not None else {})}


def new(kind: str, name: str = "one", **more: Any) -> Obj:
    return dressed(KNOWN[kind].make(name, "video", **more))


def read(kind: str, obj: Obj) -> Workload:
    found = KINDS[kind].read(json.dumps(obj).encode())
    assert isinstance(found, Workload)
    return found


def seen(kind: str, obj: Obj) -> WorkloadObserved:
    return WorkloadObserved(workload=read(kind, obj))


def set_to(kind: str, obj: Obj, *, suspended: bool, status: Obj | None = None) -> Obj:
    """The object a moment later, suspended or not by its field, with another status."""
    ops = [{"op": "add", "path": KINDS[kind].suspend_path, "value": suspended}]
    return dressed(json_patch(obj, ops), status=status if status is not None else obj.get("status"))


# --- where it stands ------------------------------------------------------------------------------------------------


@each_kind
def test_a_new_suspended_one_waits(kind: str) -> None:
    found = read(kind, new(kind))
    assert (found.phase, found.suspended, found.settled, found.refusal) == ("waiting", True, False, None)
    assert found.ref == Ref(kind, "video", "one", "uid-one")
    assert found.api_version == KINDS[kind].resource.api_version


@each_kind
def test_it_asks_for_all_its_pods(kind: str) -> None:
    found, known = read(kind, new(kind)), KNOWN[kind]
    assert (found.need["ack"]["cpu"], found.need["full"]["cpu"]) == (known.ack, known.full)
    assert sum(pods.count * pods.request["cpu"] for pods in found.pod_sets) == known.ack
    assert len({pods.name for pods in found.pod_sets}) == len(found.pod_sets)
    assert found.need["ack"]["memory"] >= known.ack // 1000 * 10**9


@settling_kind
def test_its_controller_is_understood(kind: str) -> None:
    known, obj = KNOWN[kind], new(kind)
    rests = read(kind, set_to(kind, obj, suspended=True, status=known.settled))
    assert (rests.phase, rests.settled) == ("waiting", True)
    starts = read(kind, set_to(kind, obj, suspended=False, status=known.starting))
    assert (starts.phase, starts.suspended, starts.settled) == ("starting", False, False)
    runs = read(kind, set_to(kind, obj, suspended=False, status=known.running))
    assert (runs.phase, runs.outcome, runs.busy) == ("running", "", False)
    if known.suspending is not None:
        stops = read(kind, set_to(kind, obj, suspended=True, status=known.suspending))
        assert (stops.phase, stops.settled) == ("suspending", False)
    for outcome, status in known.over.items():
        for suspended in (False, True):
            over = read(kind, set_to(kind, obj, suspended=suspended, status=status))
            assert (over.phase, over.outcome) == ("finished", outcome)


@settling_kind
def test_a_resumed_one_that_nobody_has_looked_at_starts(kind: str) -> None:
    known = KNOWN[kind]
    fresh = read(kind, set_to(kind, new(kind), suspended=False))
    assert fresh.phase == "starting"
    again = read(kind, set_to(kind, new(kind), suspended=False, status=known.settled))
    assert again.phase == "starting"


@settling_kind
def test_its_status_says_whether_its_controller_has_acted_on_the_newest_suspension_or_resume(kind: str) -> None:
    """What proves an end follows from the status alone: the field says only what is asked for."""
    known, obj = KNOWN[kind], new(kind)
    for suspended in (False, True):
        assert read(kind, set_to(kind, obj, suspended=suspended, status=known.settled)).settled
        for status in (known.starting, known.running, known.suspending):
            assert status is None or not read(kind, set_to(kind, obj, suspended=suspended, status=status)).settled


@pytest.mark.parametrize(("done", "left"), [(0, 4), (1, 4), (3, 3), (5, 1), (6, 0)])
def test_what_is_done_of_a_job_is_not_asked_for_whether_it_is_suspended_or_not(done: int, left: int) -> None:
    obj = new("Job", parallelism=4, completions=6)
    for suspended in (True, False):
        found = read("Job", set_to("Job", obj, suspended=suspended, status={"succeeded": done}))
        assert (found.need["ack"].get("cpu", 0), found.asks.get("cpu", 0)) == (left * 1000, left * 1000)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if KNOWN[kind].template])
def test_priority_comes_from_its_template(kind: str) -> None:
    name = KNOWN[kind].template + "/priorityClassName"
    found = read(kind, json_patch(new(kind), [{"op": "add", "path": name, "value": "urgent"}]))
    assert (found.priority_class, found.priority) == ("urgent", None)


@each_kind
def test_what_people_and_we_write_on_it_is_read(kind: str) -> None:
    obj = new(kind)
    obj["metadata"] |= {
        "annotations": {
            "muster.dev/intent": "1-7-0",
            "kube-queue/job-enqueue-timestamp": "2025-01-10 01:36:25.5 +0000 UTC m=+1.5",
            "muster.dev/priority": "7",
            "muster.dev/hold": "true",
            "muster.dev/change-reason": "demo",
        },
        "labels": {"quota.scheduling.alibabacloud.com/name": "text", "other": "x"},
    }
    found = read(kind, obj)
    assert (found.intent, found.annotated, found.queued_at) == ("1-7-0", True, 1_736_472_985_500)
    assert (found.wishes.priority, found.wishes.hold, found.wishes.reason) == (7, True, "demo")
    assert found.labels == {"quota.scheduling.alibabacloud.com/name": "text"}


def test_queue_units_are_called_as_kube_queue_calls_them() -> None:
    assert {kind: unit_name(read(kind, new(kind))) for kind in KINDS} == {kind: KNOWN[kind].unit for kind in KINDS}


# --- how it is resumed, and suspended ---------------------------------------------------------------------------------


def admitted(kind: str, obj: Obj) -> tuple[Bench, bytes]:
    """The patch that resumes an object once it is admitted."""
    bench = Bench()
    bench.facts(facts.tree())
    bench.synced()
    bench.facts(seen(kind, obj))
    decided = bench.settle()
    assert [type(event) for event in decided if isinstance(event, WorkloadQueued | GangAdmitted)] == [
        WorkloadQueued,
        GangAdmitted,
    ]
    actuator = Actuator()
    folder, state = Folder(actuator), actuator.initial()
    for stored in bench.log:
        folder.fold(state, stored)
    [(uid, order)] = state.outstanding.items()
    return bench, resume_patch(order, state.known[uid])


def forms(kind: str) -> list[Obj]:
    """All the ways in which an object of a kind may be suspended."""
    plain = new(kind)
    found = [plain]
    if KINDS[kind].suspend.annotation:
        by_both = new(kind)
        by_both["metadata"]["annotations"] = {SUSPEND: "true"}
        by_mark = set_to(kind, by_both, suspended=False)
        found += [by_both, by_mark]
    home = KINDS[kind].suspend_path.rpartition("/")[0]
    if home != "/spec":
        found.append(json_patch(by_mark, [{"op": "remove", "path": home}]))
    return found


@each_kind
def test_the_registry_says_which_kinds_the_annotation_suspends(kind: str) -> None:
    marked = set_to(kind, new(kind), suspended=False)
    marked["metadata"]["annotations"] = {SUSPEND: "true"}
    assert read(kind, marked).suspended is KINDS[kind].suspend.annotation


@each_kind
def test_the_resume_patch_resumes_it_however_it_was_suspended(kind: str) -> None:
    for obj in forms(kind):
        assert read(kind, obj).suspended
        _, patch = admitted(kind, obj)
        resumed = json_patch(obj, json.loads(patch))
        found = read(kind, resumed)
        assert not found.suspended
        assert found.phase == "starting"
        marks = resumed["metadata"]["annotations"]
        assert {"muster.dev/intent", "muster.dev/queued-at", "muster.dev/dequeued-at"} <= marks.keys()
        assert marks.get(SUSPEND, "false") == "false"
        assert found.queued_at <= found.dequeued_at


@each_kind
def test_it_can_be_suspended_again_by_the_same_row(kind: str) -> None:
    for obj in forms(kind):
        _, patch = admitted(kind, obj)
        resumed = json_patch(obj, json.loads(patch))
        switch = read(kind, resumed).switch
        marks = {**resumed["metadata"]["annotations"], **marked(switch, suspended=True)}
        ops = [*switched(kind, switch, suspended=True), {"op": "add", "path": "/metadata/annotations", "value": marks}]
        again = read(kind, json_patch(resumed, ops))
        assert again.suspended
        assert json_patch(resumed, ops)["metadata"]["annotations"].get(SUSPEND, "true") == "true"


@each_kind
def test_the_field_is_named_as_people_write_it(kind: str) -> None:
    place: Any = new(kind)
    for part in suspend_field(kind).split("."):
        place = place[part]
    assert place is True


# --- from the queue to its end ----------------------------------------------------------------------------------------


CHILD = ChildState(Ref("RayCluster", "video", "x", "uid-x"), 1, "uid-one", "RayJob")
"""What the one job runs through, if its kind runs through something."""


def pod(kind: str, name: str, *, over: bool = False) -> Event:
    """A pod of the one job, as the kind owns its pods."""
    owner = "uid-x" if KINDS[kind].children == ("RayCluster",) else "uid-one"
    ref = Ref("Pod", "video", name, f"uid-{name}")
    return PodObserved(pod=PodState(ref=ref, rv=facts.next_rv(), owner_uid=owner, over=over, running=not over))


def started(kind: str) -> tuple[Bench, Obj]:
    """Two objects that fit only one after the other; the first is admitted, resumed and runs with two pods."""
    first, second = new(kind), new(kind, "two")
    bench, patch = admitted(kind, first)
    whole = {"cpu": f"{read(kind, second).need['ack']['cpu'] + 500}m"}
    leaf = facts.node("a", whole, whole, ("video",))
    bench.facts(facts.tree(facts.node("root", whole, whole, children=(leaf,))), seen(kind, second))
    bench.settle()
    resumed = dressed(json_patch(first, json.loads(patch)))
    cause = next(
        Cause(stored.seq, item)
        for stored in bench.log
        for item, event in enumerate(stored.commit.events)
        if isinstance(event, GangAdmitted)
    )
    found = read(kind, resumed)
    bench.append("actuator", "input", [EffectApplied(cause=cause, ref=found.ref, attempt=1, rv=found.rv)])
    bench.facts(seen(kind, set_to(kind, resumed, suspended=False, status=KNOWN[kind].running)))
    if KINDS[kind].children == ("RayCluster",):
        bench.facts(ChildObserved(child=CHILD))
    bench.facts(pod(kind, "a"), pod(kind, "b"))
    assert not [event for event in bench.settle() if isinstance(event, QuotaReleased | GangAdmitted | WorkloadAdopted)]
    return bench, resumed


def ends_of_pods(kind: str) -> list[Event]:
    ends: list[Event] = [pod(kind, "a", over=True), PodGone(ref=Ref("Pod", "video", "b", "uid-b"), rv=facts.next_rv())]
    return [ChildGone(ref=CHILD.ref, rv=facts.next_rv()), *ends] if KINDS[kind].children == ("RayCluster",) else ends


@pytest.mark.parametrize("kind", [kind for kind in KINDS if KNOWN[kind].over])
def test_its_quota_is_free_when_it_is_over_and_its_pods_are(kind: str) -> None:
    bench, resumed = started(kind)
    status = KNOWN[kind].over["succeeded"]
    bench.facts(seen(kind, set_to(kind, resumed, suspended=False, status=status)))
    assert not [event for event in bench.settle() if isinstance(event, QuotaReleased)]
    bench.facts(*ends_of_pods(kind))
    decided = [event for event in bench.settle() if isinstance(event, QuotaReleased | GangAdmitted)]
    assert [(type(event), event.ref.name) for event in decided] == [(QuotaReleased, "one"), (GangAdmitted, "two")]
    assert isinstance(decided[0], QuotaReleased) and decided[0].reason == "finished"


def test_the_finalizer_of_its_controller_is_told_from_others() -> None:
    for finalizer, guarded in (("example.com/archive", False), ("ray.io/rayjob-finalizer", True)):
        obj = new("RayJob")
        obj["metadata"] |= {"finalizers": [finalizer]}
        assert read("RayJob", obj).guarded == guarded


@each_kind
def test_its_quota_is_free_when_it_is_going_and_its_pods_are_gone_whatever_its_finalizers(kind: str) -> None:
    """The finalizer of a clean-up that failed keeps the object for ever; its controller makes no pods for it."""
    bench, resumed = started(kind)
    runs = set_to(kind, resumed, suspended=False, status=KNOWN[kind].running)
    going = copy.deepcopy(runs)
    going["metadata"] |= {"deletionTimestamp": "2025-01-10T01:40:00Z", "finalizers": ["example.com/archive"]}
    bench.facts(seen(kind, going))
    if KINDS[kind].children == ("RayCluster",):
        cluster = new("RayCluster", "x")
        cluster["metadata"] |= {"deletionTimestamp": "2025-01-10T01:40:00Z", "finalizers": ["ray.io/gcs-ft"]}
        owner = {"apiVersion": KINDS[kind].resource.api_version, "kind": kind, "name": "one", "controller": True}
        cluster["metadata"]["ownerReferences"] = [owner | {"uid": "uid-one"}]
        cluster["spec"]["suspend"] = False
        child = KINDS["RayCluster"].read(json.dumps(cluster).encode())
        assert isinstance(child, ChildState) and child.over
        bench.facts(ChildObserved(child=child))
    assert not [event for event in bench.settle() if isinstance(event, QuotaReleased)], "its pods are there"
    pods = [each for each in ends_of_pods(kind) if not isinstance(each, ChildGone)]
    bench.facts(*pods)
    decided = [event for event in bench.settle() if isinstance(event, QuotaReleased | GangAdmitted | WorkloadAdopted)]
    assert [(type(event), event.ref.name) for event in decided] == [(QuotaReleased, "one"), (GangAdmitted, "two")]
    bench.facts(seen(kind, set_to(kind, going, suspended=False, status=KNOWN[kind].running)))
    assert not [event for event in bench.settle() if isinstance(event, WorkloadAdopted | QuotaReleased)]
    # A pod that cleans up after it counts as itself.
    cleans = PodState(
        ref=Ref("Pod", "video", "c", "uid-c"),
        rv=facts.next_rv(),
        owner_uid="uid-one",
        request={"cpu": 10},
        running=True,
    )
    bench.facts(PodObserved(pod=cleans))
    bench.settle()
    charges = bench.happened(ChargeChanged)
    assert (charges[-1].request, charges[-1].pods) == ({"cpu": 10}, 1)
    bench.facts(PodGone(ref=cleans.ref, rv=facts.next_rv()))
    assert [event.ref.name for event in bench.settle() if isinstance(event, QuotaReleased)] == ["one"]
    bench.sound()


@each_kind
def test_one_that_is_going_is_not_queued(kind: str) -> None:
    bench = Bench()
    bench.facts(facts.tree())
    bench.synced()
    waits = new(kind)
    waits["metadata"] |= {"deletionTimestamp": "2025-01-10T01:40:00Z", "finalizers": ["example.com/archive"]}
    bench.facts(seen(kind, waits))
    assert not [event for event in bench.settle() if isinstance(event, GangAdmitted)]


@settling_kind
def test_its_quota_is_free_when_it_was_suspended_by_others_and_rests(kind: str) -> None:
    bench, resumed = started(kind)
    known = KNOWN[kind]
    stopped = set_to(kind, resumed, suspended=True, status=known.suspending or known.running)
    wrote: Obj = {}
    for step in reversed(KINDS[kind].suspend_path[1:].split("/")):
        wrote = {f"f:{step}": wrote}
    other = {"manager": "kubectl", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {"f:template": {}}}}
    applied = {"manager": "argocd-controller", "operation": "Apply", "fieldsV1": wrote}
    stopped["metadata"]["managedFields"] = [other, applied]
    bench.facts(seen(kind, stopped))
    decided = bench.settle()
    assert [event.by for event in decided if isinstance(event, SuspensionRecorded)] == ["argocd-controller"]
    assert not any(isinstance(event, QuotaReleased) for event in decided)
    bench.facts(*ends_of_pods(kind))
    bench.facts(seen(kind, set_to(kind, stopped, suspended=True, status=known.settled)))
    decided = bench.settle()
    assert [event.reason for event in decided if isinstance(event, QuotaReleased)] == ["suspended_outside"]
    assert len([event for event in decided if isinstance(event, GangAdmitted)]) == 1


@each_kind
def test_one_that_runs_without_being_asked_is_charged_and_left_alone(kind: str) -> None:
    bench = Bench()
    bench.facts(facts.tree())
    bench.synced()
    bench.facts(seen(kind, set_to(kind, new(kind), suspended=False, status=KNOWN[kind].running)))
    decided = bench.settle()
    assert [type(event) for event in decided if not isinstance(event, GangAdmitted)][-1] is WorkloadAdopted
    assert not any(isinstance(event, WorkloadQueued | GangAdmitted) for event in decided)


# --- what is no workload, or can never be suspended -------------------------------------------------------------------


def owned(obj: Obj, owner: str) -> Obj:
    """``owner``: apiVersion and kind of what it names as its controller, called boss."""
    version, _, kind = owner.rpartition("/")
    named = {"apiVersion": version, "kind": kind, "name": "boss", "uid": "uid-boss", "controller": True}
    obj["metadata"]["ownerReferences"] = [named]
    return obj


def test_what_kuberay_runs_beside_is_part_of_that() -> None:
    watcher = Watcher("jobs")
    obj = owned(new("Job", "boss", parallelism=1), "ray.io/v1/RayJob")
    ref = Ref("Job", "video", "boss", "uid-boss-2")
    assert watcher.observe(watcher.initial(), ref, 5, json.dumps(obj).encode()) == []


@pytest.mark.parametrize("owner", ["v1/ConfigMap", "argoproj.io/v1alpha1/Workflow", "batch/v1/CronJob"])
@each_kind
def test_a_controller_that_is_no_parent_takes_nothing_out_of_the_queue(kind: str, owner: str) -> None:
    found = read(kind, owned(new(kind), owner))
    assert (found.phase, found.refusal) == ("waiting", None)


@pytest.mark.parametrize(
    ("kind", "name", "owner"),
    [
        ("RayCluster", "one", "ray.io/v1/RayJob"),
        ("Job", "boss-redis-cleanup", "ray.io/v1/RayCluster"),
        ("Job", "boss-launcher", "kubeflow.org/v2beta1/MPIJob"),
        ("Job", "boss-workers-0", "jobset.x-k8s.io/v1alpha2/JobSet"),
        ("JobSet", "boss", "trainer.kubeflow.org/v1alpha1/TrainJob"),
        ("PyTorchJob", "any", "workload.codeflare.dev/v1beta2/AppWrapper"),
    ],
)
def test_what_a_workload_runs_through_is_its_child(kind: str, name: str, owner: str) -> None:
    watcher = Watcher(KINDS[kind].resource.plural)
    state = watcher.initial()
    obj = owned(new(kind, name, **({"parallelism": 1} if kind == "Job" else {})), owner)
    [fact] = watcher.observe(state, Ref(kind, "video", name, f"uid-{name}"), 5, json.dumps(obj).encode())
    assert isinstance(fact, ChildObserved)
    assert (fact.child.owner_uid, fact.child.owner_kind) == ("uid-boss", owner.rpartition("/")[2])


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("Job", "/spec/managedBy"),
        ("RayCluster", "/spec/managedBy"),
        ("RayJob", "/spec/managedBy"),
        ("RayJob", "/spec/rayClusterSpec/managedBy"),
        ("TFJob", "/spec/runPolicy/managedBy"),
        ("PyTorchJob", "/spec/runPolicy/managedBy"),
        ("MPIJob", "/spec/runPolicy/managedBy"),
    ],
)
def test_one_that_another_controller_manages_is_refused_by_the_name_of_the_field(kind: str, path: str) -> None:
    obj = json_patch(new(kind), [{"op": "add", "path": path, "value": "kueue.x-k8s.io/multikueue"}])
    bench = Bench()
    bench.facts(facts.tree())
    bench.synced()
    bench.facts(seen(kind, obj))
    [refused] = [event for event in bench.settle() if isinstance(event, WorkloadRefused)]
    assert refused.refusal.reason == "cannot_suspend"
    assert in_words(refused.refusal.problem).startswith(path[1:].replace("/", "."))


# --- which kinds are on -----------------------------------------------------------------------------------------------


@each_kind
def test_a_kind_that_is_off_is_not_reported(kind: str) -> None:
    watcher = Watcher(KINDS[kind].resource.plural, [other for other in KINDS if other != kind])
    body = json.dumps(new(kind)).encode()
    assert watcher.observe(watcher.initial(), Ref(kind, "video", "one", "uid-one"), 5, body) == []


@each_kind
def test_nothing_is_admitted_before_its_kind_has_been_listed(kind: str) -> None:
    required, bench = required_of([kind]), Bench()
    assert KINDS[kind].resource.plural in required
    bench.facts(KindsConfigured(kinds=(kind,), required=required), facts.tree(), seen(kind, new(kind)))
    for shard in required:
        assert not any(isinstance(event, GangAdmitted) for event in bench.settle())
        bench.facts(Synced(kind=shard, absent=shard not in ALWAYS))
    assert [type(event) for event in bench.settle()].count(GangAdmitted) == 1
