"""The nodes of a flavor, written into the pods of a job by the patch that resumes it, and taken out again."""

from __future__ import annotations

import copy
import json

import pytest

from kit.jobs import KINDS as KNOWN
from kit.jobs import Obj, at
from muster.core.actuation.intents import known_of
from muster.core.actuation.orders import Outstanding
from muster.core.actuation.patches import resume_patch, suspend_patch
from muster.core.objects.meta import ON_FLAVORS
from muster.core.workloads.registry import KINDS
from muster.fakecluster.apiserver.jsonpatch import json_patch
from muster.model.keys import Intent
from muster.model.placing import Toleration
from muster.model.quota import FlavorNodes
from muster.model.workload import Workload

H100 = FlavorNodes({"gpu.type": "h100", "a/pool": "big"}, (Toleration("gpu", "Exists", effect="NoSchedule"),))
A100 = FlavorNodes({"gpu.type": "a100"})
TEMPLATES = {kind: known.templates for kind, known in KNOWN.items()}
each_kind = pytest.mark.parametrize("kind", [kind for kind in KINDS if TEMPLATES[kind]])
each_author = pytest.mark.parametrize("author", ["nothing", "empty", "own", "elsewhere"])


def read(kind: str, obj: Obj) -> Workload:
    found = KINDS[kind].read(json.dumps(obj).encode())
    assert isinstance(found, Workload)
    return found


def spec_of(obj: Obj, pointer: str) -> Obj:
    template = at(obj, pointer)
    return dict(template.get("spec", template))


def job(kind: str, author: str) -> Obj:
    """A job whose author says nothing of nodes, or has empty fields, or own values, or names another scheduler."""
    made = KNOWN[kind].make("one", "video")
    made["metadata"] |= {"uid": "uid-one", "resourceVersion": "7", "generation": 1, "annotations": {"mine": "1"}}
    said = {
        "nothing": {},
        "empty": {"nodeSelector": {}, "tolerations": []},
        "elsewhere": {"schedulerName": "volcano"},
        "own": {
            "nodeSelector": {"zone": "z", "a/pool": "big"},
            "tolerations": [{"key": "mine", "operator": "Exists", "tolerationSeconds": 5}],
        },
    }[author]
    for pointer in TEMPLATES[kind]:
        template = at(made, pointer)
        template.get("spec", template).update(copy.deepcopy(said))
    return made


def resumed(kind: str, obj: Obj, nodes: FlavorNodes) -> Obj:
    workload = read(kind, obj)
    by_set = {template.pods: nodes for template in workload.switch.templates}
    order = Outstanding(workload.ref, 1, Intent(1, 7, 0), workload.basis, 1000, 2000, nodes=by_set)
    return dict(json_patch(obj, json.loads(resume_patch(order, known_of(workload)))))


def suspended(kind: str, obj: Obj) -> Obj:
    workload = read(kind, obj)
    order = Outstanding(workload.ref, 1, Intent(1, 9, 0), None, 0, 3000, "suspend")
    return dict(json_patch(obj, json.loads(suspend_patch(order, known_of(workload)))))


@each_kind
@each_author
def test_the_pods_are_sent_to_the_nodes_and_the_author_gets_the_job_back(kind: str, author: str) -> None:
    obj = job(kind, author)
    before = [spec_of(obj, pointer) for pointer in TEMPLATES[kind]]
    on_h100 = resumed(kind, obj, H100)
    for pointer, own in zip(TEMPLATES[kind], before, strict=True):
        spec = spec_of(on_h100, pointer)
        assert spec["nodeSelector"] == (own.get("nodeSelector") or {}) | H100.labels
        given = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}
        assert spec["tolerations"] == [*(own.get("tolerations") or ()), given]
    assert read(kind, on_h100).basis == read(kind, obj).basis, "the author's job, whatever Muster added"
    again = suspended(kind, on_h100)
    changes = not any(template.fixed for template in read(kind, on_h100).switch.templates)
    for pointer, own in zip(TEMPLATES[kind], before, strict=True):
        spec = spec_of(again, pointer)
        if changes:
            assert (spec.get("nodeSelector") or {}) == (own.get("nodeSelector") or {})
            assert (spec.get("tolerations") or []) == (own.get("tolerations") or [])
    assert changes == (again["metadata"]["annotations"][ON_FLAVORS] == "")
    assert read(kind, again).basis == read(kind, obj).basis


@each_kind
@each_author
def test_the_next_attempt_is_on_other_nodes(kind: str, author: str) -> None:
    """Also where nobody took out what the first attempt wrote: another client suspended the job."""
    obj = job(kind, author)
    on_a100 = resumed(kind, resumed(kind, obj, H100), A100)
    for pointer in TEMPLATES[kind]:
        own, spec = spec_of(obj, pointer), spec_of(on_a100, pointer)
        assert spec["nodeSelector"] == (own.get("nodeSelector") or {}) | A100.labels
        assert spec["tolerations"] == (own.get("tolerations") or [])
    assert read(kind, on_a100).basis == read(kind, obj).basis


def test_a_job_whose_template_can_no_longer_be_changed_stays_on_its_nodes() -> None:
    obj = resumed("Job", job("Job", "nothing"), H100)
    begun = {**obj, "status": {"startTime": "2025-01-10T01:36:24Z"}}
    workload = read("Job", begun)
    assert workload.pod_sets[0].rules.node_labels == H100.labels
    assert not any(template.written for template in workload.switch.templates)


def test_what_nobody_can_read_is_the_authors() -> None:
    obj = resumed("RayJob", job("RayJob", "nothing"), H100)
    obj["metadata"]["annotations"][ON_FLAVORS] = "{"
    assert read("RayJob", obj).pod_sets[0].rules.node_labels == H100.labels
