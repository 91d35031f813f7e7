"""Kinds that a platform team defines: read, queued and started by data alone, refused by the name of the field."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kit import facts, jobs
from kit.bench import Bench
from kit.widgets import WIDGET, defined, widget
from kit.words import in_words
from muster.core.actuation.carrying import first_request
from muster.core.actuation.intents import Actuator
from muster.core.reading.watched import WATCHED
from muster.core.stage import Folder
from muster.core.workloads.registry import DEFINITIONS, KINDS, OWN
from muster.core.workloads.registry import defined as definitions
from muster.events.decisions import GangAdmitted, WorkloadQueued, WorkloadRefused
from muster.events.facts import ChildObserved, KindsConfigured, WorkloadObserved
from muster.fakecluster.apiserver.jsonpatch import json_patch
from muster.model.workload import Workload
from muster.runtime import kinds
from muster.told.presentation.desired import unit_name

Obj = dict[str, Any]


def dressed(obj: Obj) -> bytes:
    meta = {
        "uid": f"uid-{obj['metadata']['name']}",
        "resourceVersion": "7",
        "creationTimestamp": "2025-01-10T01:36:24Z",
    }
    return json.dumps({**obj, "metadata": {**obj["metadata"], **meta, "generation": 1}}).encode()


def read(obj: Obj) -> Workload:
    found = KINDS[obj["kind"]].read(dressed(obj))
    assert isinstance(found, Workload)
    return found


def admitted(seen: WorkloadObserved, *, configured: KindsConfigured | None = None) -> Bench:
    bench = Bench()
    bench.facts(*((configured,) if configured is not None else ()), facts.tree())
    bench.synced()
    bench.facts(seen)
    decided = bench.settle()
    assert [type(each) for each in decided if isinstance(each, WorkloadQueued | GangAdmitted)] == [
        WorkloadQueued,
        GangAdmitted,
    ]
    return bench


def test_a_kind_of_a_platform_team_is_queued_and_started_and_its_log_is_read_without_the_definition() -> None:
    with defined():
        seen = WorkloadObserved(workload=read(widget(size=4)))
        configured = KindsConfigured(kinds=tuple(KINDS), required=(), definitions=definitions(KINDS))
    assert "Widget" not in KINDS and configured.definitions.keys() == {"Widget"}
    assert (seen.workload.need["ack"]["cpu"], seen.workload.phase, seen.workload.suspended) == (4000, "waiting", True)
    bench = admitted(seen, configured=configured)
    actuator = Actuator()
    folder, state = Folder(actuator), actuator.initial()
    for stored in bench.log:
        folder.fold(state, stored)
    assert state.definitions == configured.definitions
    [(uid, order)] = state.outstanding.items()
    request = first_request(order, state.known[uid])
    assert request.path == "/apis/example.com/v1/namespaces/video/widgets/one"
    assert json_patch(json.loads(dressed(widget())), json.loads(request.body))["spec"]["paused"] is False
    assert unit_name(seen.workload) == "one-widget-qu"


def test_a_value_of_its_own_suspends_and_resumes() -> None:
    text = WIDGET.replace("{at: spec.paused}", "{at: spec.mode, value: Paused, resumed: Active}")
    with defined(text):
        assert read(widget(mode="Paused")).suspended
        assert not read(widget(mode="Active")).suspended
        seen = WorkloadObserved(workload=read(widget(mode="Paused")))
    bench = admitted(seen)
    actuator = Actuator()
    folder, state = Folder(actuator), actuator.initial()
    for stored in bench.log:
        folder.fold(state, stored)
    [(uid, order)] = state.outstanding.items()
    ops = json.loads(first_request(order, state.known[uid]).body)
    assert {"op": "add", "path": "/spec/mode", "value": "Active"} in ops


def test_a_job_that_clears_up_after_a_kind_is_a_child_and_says_its_pods() -> None:
    job = jobs.job("one-clear", parallelism=1)
    owner = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "one", "uid": "uid-one", "controller": True}
    job["spec"]["suspend"], job["metadata"]["ownerReferences"] = False, [owner]
    with defined(WIDGET + 'children: [{kind: Job, named: "{owner}-clear", pods: 1, last: true}]'):
        fact = WATCHED["jobs"].read(dressed(job))
    assert isinstance(fact, ChildObserved)
    assert (fact.child.owner_uid, fact.child.asks["cpu"]) == ("uid-one", 1000)
    assert isinstance(WATCHED["jobs"].read(dressed(job)), WorkloadObserved)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("kind: Widget", "kind: Job"), "kind: Job is a kind that Muster knows by itself"),
        (("kind: Widget", "kind: Pod"), "kind: Pod is a kind that Muster knows by itself"),
        (("example.com/v1", "v1"), "apiVersion: 'v1' is no group and version such as example.com/v1"),
        (("spec.template", "spec..x"), "pods[0].template: 'spec..x' is no path such as spec.template"),
        (("in: [Done]", "positive: [status..x]"), "ends[0].when.positive: 'status..x' is no path such as"),
        (("{field: status.state}", "{unless: {field: s t}}"), "stops.unless.field: 's t' is no path such as"),
        (("edits:", "minimum: [spec..x]\nedits:"), "minimum: 'spec..x' is no path such as spec.template"),
        (("count: [spec.size]", "count: 3"), "pods[0].count: expected array, got int"),
        (("settled:", "setled:"), "object contains unknown field setled; the fields are kind, apiVersion, plural"),
        (("ttl: free", "ttl: any"), "edits.ttl: 'any' is none of free, falls"),
        (("{at: spec.paused}", "{at: metadata.name}"), "suspend: 'metadata.name' must be a field of the spec"),
        (("outcome: failed", "outcome: bad"), "ends[1].outcome: invalid enum value 'bad'"),
        (("controllers:", "children: [{kind: Gadget}]\ncontrollers:"), "children[0].kind: 'Gadget' is none of"),
        (("kind: Widget", "kind: [Widget"), "is not YAML"),
        (
            ("stops: {field: status.state}", "stops: {positive: [spec.template]}"),
            "spec.template is int and PodTemplate",
        ),
    ],
)
def test_a_definition_that_is_not_understood_is_refused_by_field(change: tuple[str, str], told: str) -> None:
    before = dict(DEFINITIONS)
    kinds.refused.clear()
    kinds.take([("widget.yaml", WIDGET.replace(*change))])
    [sentence] = kinds.refused
    assert sentence.startswith("ConfigMap muster-system/muster-kinds, widget.yaml: ") and told in sentence
    assert dict(DEFINITIONS) == before and KINDS.keys() == OWN
    kinds.refused.clear()


@pytest.fixture
def widgets() -> Iterator[None]:
    with defined():
        yield


@pytest.mark.usefixtures("widgets")
@pytest.mark.parametrize(
    ("field", "value"),
    [("paused", "yes"), ("size", "many"), ("template", []), ("size", -1), ("size", None)],
)
def test_an_object_with_an_unusable_field_is_reported_with_the_field(field: str, value: object) -> None:
    if value is None:
        assert read(widget(size=None)).need["ack"]["cpu"] == 1000  # type: ignore[arg-type]
        return
    with pytest.raises(Exception, match=rf"spec\.{field}"):
        read(widget(**{field: value}))


# --- readers that read half -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conf", "gpus"),
    [
        ({"spark.executor.resource.gpu.amount": "1", "spark.executor.resource.gpu.vendor": "nvidia.com"}, 2),
        ({"spark.executor.resource.gpu.amount": "4", "spark.executor.resource.gpu.vendor": "nvidia.com"}, 8),
        ({"spark.driver.resource.gpu.amount": "1", "spark.driver.resource.gpu.vendor": "nvidia.com"}, 1),
        ({"spark.executor.resource.fpga.amount": "1", "spark.executor.resource.fpga.vendor": "xilinx.com"}, 0),
        ({}, 0),
    ],
)
def test_devices_in_the_settings_of_spark_count(conf: dict[str, str], gpus: int) -> None:
    app = jobs.sparkapplication("rapids", executors=2)
    app["spec"]["sparkConf"] = conf
    found = read(app)
    assert found.need["ack"].get("nvidia.com/gpu", 0) == gpus * 1000
    assert found.need["ack"].get("xilinx.com/fpga", 0) == (2000 if "spark.executor.resource.fpga.amount" in conf else 0)


_DYNAMIC = {"enabled": "true", "minExecutors": "2", "initialExecutors": "3", "maxExecutors": "10"}
_TEMPLATE = {"spec": {"containers": [{"name": "s", "resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "90"}}}]}}


@pytest.mark.parametrize(
    ("conf", "fields", "asked", "most", "gpus"),
    [
        ({f"spark.dynamicAllocation.{key}": text for key, text in _DYNAMIC.items()}, {}, 3, 10, 0),
        (
            {"spark.dynamicAllocation.maxExecutors": "10"},
            {"dynamicAllocation": {"enabled": True, "minExecutors": 1}},
            1,
            10,
            0,
        ),
        (
            {f"spark.dynamicAllocation.{key}": text for key, text in _DYNAMIC.items()},
            {"dynamicAllocation": {"enabled": True, "maxExecutors": 4}},
            3,
            4,
            0,
        ),
        ({"spark.dynamicAllocation.maxExecutors": "10"}, {"executor": {"instances": 2}}, 2, 2, 0),
        ({}, {"executor": {"instances": 2, "template": _TEMPLATE}}, 2, 2, 2000),
        (
            {"spark.executor.resource.gpu.amount": "0"},
            {"executor": {"instances": 2, "template": _TEMPLATE}},
            2,
            2,
            2000,
        ),
        ({"spark.kubernetes.executor.annotation.gpu-fraction": "0.5"}, {"executor": {"instances": 2}}, 2, 2, 1000),
        ({}, {"executor": {"instances": 2, "annotations": {"gpu-fraction": "0.5"}}}, 2, 2, 1000),
        (
            {},
            {"executor": {"instances": 2, "template": {"metadata": {"annotations": {"gpu-fraction": "0.25"}}}}},
            2,
            2,
            500,
        ),
    ],
)
def test_executors_and_their_devices_count_wherever_they_are_written(
    conf: dict[str, str], fields: Obj, asked: int, most: int, gpus: int
) -> None:
    """One cpu each, and the driver's; in the settings of Spark, in the template, in annotations."""
    app = jobs.sparkapplication("etl")
    app["spec"] |= {"executor": {"cores": 1}, "sparkConf": conf}
    app["spec"] |= {**fields, "executor": {"cores": 1, **fields.get("executor", {})}}
    need = read(app).need
    assert (need["ack"]["cpu"], need["full"]["cpu"]) == (1000 * (1 + asked), 1000 * (1 + most))
    assert need["ack"].get("nvidia.com/gpu", 0) == gpus


def test_nodes_labels_and_memory_of_spark_are_read_from_its_settings_too() -> None:
    app = jobs.sparkapplication("etl")
    own = {"node.selector.pool": "a100", "label.kai.scheduler/queue": "research"}
    app["spec"]["sparkConf"] = {f"spark.kubernetes.executor.{key}": text for key, text in own.items()}
    app["spec"]["sparkConf"] |= {"spark.executor.minMemoryOverhead": "1g", "spark.kubernetes.node.selector.zone": "b"}
    found = read(app)
    driver, executor = found.pod_sets
    assert (driver.rules.node_labels, executor.rules.node_labels) == ({"zone": "b"}, {"pool": "a100", "zone": "b"})
    assert (driver.request["memory"], executor.request["memory"]) == (1408 << 20, 2048 << 20)
    assert found.labels["kai.scheduler/queue"] == "research"
    app["spec"]["sparkConf"]["spark.kubernetes.scheduler.name"] = "volcano"
    assert all(template.elsewhere for template in read(app).switch.templates), "its pods are another scheduler's"


def test_the_field_of_a_role_wins_over_the_setting_of_spark() -> None:
    app = jobs.sparkapplication("rapids", executors=2)
    app["spec"]["sparkConf"] = {f"spark.executor.resource.gpu.{key}": value for key, value in (("amount", "1"),)}
    app["spec"]["sparkConf"]["spark.executor.resource.gpu.vendor"] = "nvidia.com"
    app["spec"]["executor"]["gpu"] = {"name": "nvidia.com/gpu", "quantity": 2}
    assert read(app).need["ack"]["nvidia.com/gpu"] == 4000


@pytest.mark.parametrize(
    ("policy", "elastic", "least"),
    [
        ({}, {"minReplicas": 1}, [1, 0]),
        ({}, {"minReplicas": 3}, [1, 2]),
        ({"minAvailable": 2}, {"minReplicas": 3}, [1, 1]),
        ({"minAvailable": 9}, {}, [1, 6]),
        ({}, {}, [1, 6]),
    ],
)
@pytest.mark.parametrize("kind", ["PyTorchJob", "PaddleJob"])
def test_the_gang_minimum_counts_in_a_kai_queue(kind: str, policy: Obj, elastic: Obj, least: list[int]) -> None:
    job = jobs.KINDS[kind].make("elastic", "video")
    specs = job["spec"][f"{kind.removesuffix('Job').lower()}ReplicaSpecs"]
    specs["Worker"]["replicas"] = 6
    job["spec"]["runPolicy"]["schedulingPolicy"] = policy
    job["spec"]["elasticPolicy"] = elastic
    assert [each.minimum for each in read(job).pod_sets] == [None, None]
    job["metadata"]["labels"] = {"kai.scheduler/queue": "research"}
    found = read(job)
    assert [each.count if each.minimum is None else each.minimum for each in found.pod_sets] == least


# --- what a kind does not say -----------------------------------------------------------------------------------------


def test_a_job_whose_size_nothing_tells_is_refused_with_the_field() -> None:
    train, flow, wrap = jobs.trainjob(), jobs.workflow(), jobs.appwrapper()
    del train["spec"]["trainer"]["resourcesPerNode"]
    flow["metadata"]["annotations"] = {}
    wrap["spec"]["components"] = [{"template": {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {}}}]
    told = [in_words(read(each).refusal) for each in (train, flow, wrap)]
    assert [each.partition(":")[0] for each in told] == [
        "spec.trainer.resourcesPerNode",
        "metadata.annotations[kube-queue/min-resources]",
        "spec.components[0].podSets",
    ]
    bench = Bench()
    bench.facts(facts.tree())
    bench.synced()
    bench.facts(WorkloadObserved(workload=read(train)))
    assert any(isinstance(each, WorkloadRefused) for each in bench.settle())


def test_the_roles_of_a_jobset_that_are_over_are_not_asked_for() -> None:
    made = jobs.jobset(replicas=3)
    status = {"replicatedJobsStatus": [{"name": "workers", "succeeded": 2, "ready": 0, "failed": 0, "active": 1}]}
    assert read(made).need["ack"]["cpu"] == 7000
    assert read({**made, "status": status}).need["ack"]["cpu"] == 3000


@pytest.mark.parametrize("make", [jobs.jobset, jobs.trainjob])
def test_a_suspended_set_is_at_rest_once_no_role_has_pods(make: Callable[[], Obj]) -> None:
    key = "jobsStatus" if make is jobs.trainjob else "replicatedJobsStatus"
    roles = [{"name": name, "ready": 0, "succeeded": 0, "failed": 0, "active": 0} for name in ("driver", "workers")]
    status = {**jobs.conditions("Suspended"), key: roles}
    assert read({**make(), "status": status}).settled
    roles[1]["active"] = 1
    stopping = read({**make(), "status": status})
    assert (stopping.phase, stopping.settled) == ("suspending", False)


def test_the_pods_that_an_appwrapper_names_count() -> None:
    inner = {"spec": {"groups": [{"template": jobs.template("2")}, {"template": jobs.template("1")}]}}
    sets = [{"path": "template.spec.groups[0].template", "replicas": 2}, {"path": "template.spec.groups[1].template"}]
    made = jobs.appwrapper(components=[{"template": {"kind": "Thing", **inner}, "podSets": sets}])
    assert read(made).need["ack"]["cpu"] == 5000
    wrong = jobs.appwrapper(components=[{"template": {"kind": "Thing"}, "podSets": [{"path": "template.spec.x[7]"}]}])
    with pytest.raises(Exception, match=r"spec\.components\[0\]\.podSets"):
        read(wrong)


def claiming(value: Any) -> Any:
    """The same object, with every description of a pod asking for a device by a claim."""
    if isinstance(value, list):
        return [claiming(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    inner = {key: claiming(each) for key, each in value.items()}
    return {**inner, "resourceClaims": [{"name": "gpu"}]} if "containers" in value else inner


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("TrainJob", "Workflow", "SparkApplication")])
def test_devices_of_resource_claims_are_refused_by_their_field_rather_than_counted_as_none(kind: str) -> None:
    """The others have no template of a pod: a Workflow says its size, a TrainJob its resources, Spark has fields."""
    made = jobs.KINDS[kind].make("one", "video")
    assert read(made).refusal is None
    refusal = read(claiming(made)).refusal
    assert refusal is not None and (refusal.code, refusal.path[-15:]) == ("claims_uncounted", ".resourceClaims")
