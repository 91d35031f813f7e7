"""What is written into the pods of a job that was placed before it is resumed, by the patch that resumes it."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from kit.jobs import KINDS as KNOWN
from kit.jobs import at
from muster.core.actuation.intents import known_of
from muster.core.actuation.orders import Outstanding
from muster.core.actuation.patches import resume_patch, steered
from muster.core.objects.meta import GANG
from muster.core.workloads.registry import KINDS
from muster.core.workloads.steering import pointer_of
from muster.fakecluster.apiserver.jsonpatch import json_patch
from muster.model.keys import Intent
from muster.model.workload import Workload

Obj = dict[str, Any]
TEMPLATES = {kind: known.templates for kind, known in KNOWN.items()}
FIXED = ("Job", "JobSet")
"""Kinds whose pods the API server lets nobody give another scheduler."""
each_kind = pytest.mark.parametrize("kind", [kind for kind in KINDS if TEMPLATES[kind]])


def read(kind: str, obj: Obj) -> Workload:
    found = KINDS[kind].read(json.dumps(obj).encode())
    assert isinstance(found, Workload)
    return found


def job(kind: str) -> Obj:
    made = KNOWN[kind].make("one", "video")
    made["metadata"] |= {"uid": "uid-one", "resourceVersion": "7", "generation": 1, "annotations": {"mine": "1"}}
    return made


def resumed(kind: str, obj: Obj, *, placed: bool = True) -> Obj:
    workload = read(kind, obj)
    known = known_of(workload)
    order = Outstanding(workload.ref, 1, Intent(1, 7, 0), workload.basis, 1000, 2000, placed=placed)
    return dict(json_patch(obj, json.loads(resume_patch(order, known))))


def spec_of(template: Obj) -> Obj:
    return template.get("spec", template)


def marks_of(template: Obj) -> dict[str, str]:
    return (template.get("metadata") or template).get("annotations") or {}


@each_kind
@pytest.mark.parametrize("before", ["absent", "empty", "present"])
def test_every_template_names_us_and_the_gang(kind: str, before: str) -> None:
    obj = job(kind)
    for pointer in TEMPLATES[kind]:
        template = at(obj, pointer)
        flat = "spec" not in template
        for each in ("metadata", "annotations"):
            template.pop(each, None)
        if before == "present":
            template |= {"annotations": {"a/b": "c"}} if flat else {"metadata": {"annotations": {"a/b": "c"}}}
        elif before == "empty" and not flat:
            template["metadata"] = {"creationTimestamp": None, "labels": {"role": "x"}}
    found = resumed(kind, obj)
    for pointer in TEMPLATES[kind]:
        template = at(found, pointer)
        assert spec_of(template).get("schedulerName") == (None if kind in FIXED else "muster")
        assert marks_of(template) == {GANG: "one"} | ({"a/b": "c"} if before == "present" else {})
        if before == "empty" and "metadata" in template:
            assert template["metadata"]["labels"] == {"role": "x"}
    assert read(kind, found).need == read(kind, obj).need
    assert steered(read(kind, found).switch, {GANG: "one"}) == [], "nothing is left to be written by the next resume"


@each_kind
def test_nothing_is_written_where_nothing_was_placed(kind: str) -> None:
    obj = job(kind)
    found = resumed(kind, obj, placed=False)
    for pointer in TEMPLATES[kind]:
        assert at(found, pointer) == at(obj, pointer)


@each_kind
def test_a_job_with_another_scheduler_is_left_to_it_as_a_whole(kind: str) -> None:
    obj = job(kind)
    spec_of(at(obj, TEMPLATES[kind][-1]))["schedulerName"] = "volcano"
    found = resumed(kind, obj)
    for pointer in TEMPLATES[kind]:
        assert at(found, pointer) == at(obj, pointer)


@each_kind
@pytest.mark.parametrize(("name", "after"), [("default-scheduler", "muster"), ("kai-scheduler", "kai-scheduler")])
def test_the_default_is_nobodys_choice_and_our_other_name_stays(kind: str, name: str, after: str) -> None:
    obj = job(kind)
    for pointer in TEMPLATES[kind]:
        spec_of(at(obj, pointer))["schedulerName"] = name
    found = resumed(kind, obj)
    for pointer in TEMPLATES[kind]:
        assert spec_of(at(found, pointer))["schedulerName"] == (name if kind in FIXED else after)
        assert marks_of(at(found, pointer)) == {GANG: "one"}


@pytest.mark.parametrize("where", ["labels", "annotations"])
@pytest.mark.parametrize(("value", "steered"), [("kube-scheduler", True), ("muster", True), ("yunikorn", False)])
def test_the_gang_switch_of_the_documents(where: str, value: str, steered: bool) -> None:
    obj = job("RayJob")
    obj["metadata"].setdefault(where, {})["ray.io/scheduler-name"] = value
    head = at(resumed("RayJob", obj), TEMPLATES["RayJob"][0])
    assert head["spec"].get("schedulerName") == ("muster" if steered else None)


def test_the_submitter_is_steered_where_it_is_described() -> None:
    obj = job("RayJob")
    assert "submitterPodTemplate" not in resumed("RayJob", obj)["spec"]
    obj["spec"]["submitterPodTemplate"] = {"spec": {"containers": [{"name": "submit", "image": "ray"}]}}
    found = resumed("RayJob", obj)["spec"]["submitterPodTemplate"]
    assert (found["spec"]["schedulerName"], found["metadata"]) == ("muster", {"annotations": {GANG: "one"}})


@each_kind
def test_what_may_not_be_there_is_not_written_to(kind: str) -> None:
    """A patch that adds to what is not there is refused as a whole: the job would not be resumed."""
    obj = job(kind)
    for pointer in TEMPLATES[kind]:
        home, _, last = pointer.rpartition("/")
        parent = at(obj, home)
        if last == "template":
            parent["template"] = {"spec": {}}
        else:
            parent[last] = {}
    found = resumed(kind, obj)
    assert not read(kind, found).suspended
    assert at(found, TEMPLATES[kind][0]) == at(obj, TEMPLATES[kind][0])


def test_a_job_that_has_begun_is_resumed_as_it_is() -> None:
    obj = job("Job")
    obj["status"] = {"startTime": "2025-01-10T01:36:24Z"}
    found = resumed("Job", copy.deepcopy(obj))
    assert at(found, "/spec/template") == at(obj, "/spec/template")


def test_an_application_for_a_batch_scheduler_is_left_to_it() -> None:
    obj = job("SparkApplication")
    obj["spec"]["batchScheduler"] = "volcano"
    assert read("SparkApplication", obj).switch.templates == ()


def test_paths_become_pointers() -> None:
    assert pointer_of("spec.groups[12].template") == "/spec/groups/12/template"
    assert [pointer_of(path) for path in ("spec.a[...].template", "spec.a/b", "", "spec..a")] == ["", "", "", ""]
