"""The contract of the API server, on the simulated one and on a real one: creating, changing, deleting, listing.

Every expectation was observed on the real server of release 1.36 first. Patches, watches and pods have files of their
own beside this one.
"""

import copy
import re

import pytest

from kit.api import COLLECTED_S, Api, Object
from kit.waiting import until
from muster.model.api import CONFIG_MAPS, EVENTS, QUEUE_UNITS, RAYCLUSTERS, RAYJOBS

GROUP = {"groupName": "g", "template": {}}
CLUSTER_SPEC = {"headGroupSpec": {"template": {"spec": {"containers": []}}}, "workerGroupSpecs": [GROUP]}


def job(**meta: object) -> Object:
    """A minimal RayJob."""
    return {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": meta, "spec": {"suspend": True}}


def owned_by(owner: Object) -> list[Object]:
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
    return [{**reference, "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}]


async def test_a_new_object_gets_what_the_server_adds(api: Api) -> None:
    given = job(name="a", labels={"team": "x"}, uid="mine", generation=7, creationTimestamp="2001-01-01T00:00:00Z") | {
        "spec": {"suspend": True, "rayClusterSpec": CLUSTER_SPEC},
        "status": {"jobStatus": "RUNNING"},
    }
    found = await api.create(RAYJOBS, given)
    meta = found["metadata"]
    assert (meta["name"], meta["namespace"], meta["generation"]) == ("a", api.namespace, 1)
    assert meta["labels"] == {"team": "x"}
    assert len(meta["uid"]) == 36
    assert int(meta["resourceVersion"]) > 1
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", meta["creationTimestamp"])
    assert not meta["creationTimestamp"].startswith("2001")
    assert "status" not in found
    group = GROUP | {"maxReplicas": 2147483647, "minReplicas": 0, "numOfHosts": 1, "priority": 0, "replicas": 0}
    assert found["spec"] == {
        "suspend": True,
        "backoffLimit": 0,
        "submissionMode": "K8sJobMode",
        "ttlSecondsAfterFinished": 0,
        "rayClusterSpec": CLUSTER_SPEC | {"workerGroupSpecs": [group]},
    }
    again = await api.get(RAYJOBS, "a")
    assert again == found


async def test_names_are_generated_unless_given(api: Api) -> None:
    generated = await api.create(RAYJOBS, job(generateName="made-"))
    assert re.fullmatch(r"made-[bcdfghjklmnpqrstvwxz2456789]{5}", generated["metadata"]["name"])
    assert generated["metadata"]["generateName"] == "made-"
    given = await api.create(RAYJOBS, job(generateName="made-", name="kept"))
    assert given["metadata"]["name"] == "kept"
    assert given["metadata"]["generateName"] == "made-"
    long = await api.create(RAYJOBS, job(generateName="x" * 100))
    assert len(long["metadata"]["name"]) == 63


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param(job(name="Bad_Name"), (422, "Invalid"), id="bad name"),
        pytest.param(job(name="x" * 254), (422, "Invalid"), id="long name"),
        pytest.param(job(), (422, "Invalid"), id="no name"),
        pytest.param(job(generateName="Bad_"), (422, "Invalid"), id="bad generateName"),
        pytest.param(job(name="a", labels={"k": "bad value"}), (422, "Invalid"), id="bad label"),
        pytest.param(job(name="a", annotations={"a b": "x"}), (422, "Invalid"), id="bad annotation"),
        pytest.param(job(name="a", ownerReferences=[{"name": "x"}]), (422, "Invalid"), id="owner without uid"),
        pytest.param(job(name="a", namespace="other"), (400, "BadRequest"), id="other namespace"),
        pytest.param(job(name="a", resourceVersion="5"), (500, ""), id="with a version"),
        pytest.param({"metadata": {"name": "a"}, "apiVersion": "ray.io/v1"}, (400, "BadRequest"), id="no kind"),
        pytest.param(job(name="a") | {"kind": "RayCluster"}, (422, "Invalid"), id="wrong kind"),
        pytest.param(job(name="a") | {"apiVersion": "ray.io/v2"}, (400, "BadRequest"), id="wrong version"),
        pytest.param(b"{nonsense", (400, "BadRequest"), id="no JSON"),
    ],
)
async def test_a_bad_object_is_refused(api: Api, given: Object | bytes, said: tuple[int, str]) -> None:
    assert (await api.call("POST", api.path(RAYJOBS), given)).said == said


async def test_places_that_do_not_exist(api: Api) -> None:
    answer = await api.call("POST", RAYJOBS.path("no-such-namespace"), job(name="a"))
    assert answer.said == (404, "NotFound")
    assert answer.body["details"] == {"name": "no-such-namespace", "kind": "namespaces"}
    missing = await api.call("GET", api.path(RAYJOBS, "none"))
    assert missing.said == (404, "NotFound")
    assert missing.body["message"] == 'rayjobs.ray.io "none" not found'
    assert missing.body["details"] == {"name": "none", "group": "ray.io", "kind": "rayjobs"}
    for path in ("/apis/nope.io/v1/foos", "/apis/ray.io/v1/foos", "/nonsense"):
        answer = await api.call("GET", path)
        assert (answer.status, answer.text.strip()) == (404, "404 page not found")
    assert (await api.call("POST", "/api/v1/configmaps", {"metadata": {"name": "a"}})).status == 405


async def test_a_name_is_taken_once(api: Api) -> None:
    await api.create(RAYJOBS, job(name="a"))
    answer = await api.call("POST", api.path(RAYJOBS), job(name="a"))
    assert answer.said == (409, "AlreadyExists")
    assert answer.body["message"] == 'rayjobs.ray.io "a" already exists'


async def test_replacing_needs_the_newest_version(api: Api) -> None:
    old = await api.create(RAYJOBS, job(name="a"))
    path = api.path(RAYJOBS, "a")
    changed = copy.deepcopy(old)
    changed["spec"]["entrypoint"] = "python a.py"
    new = (await api.call("PUT", path, changed)).body
    assert new["metadata"]["generation"] == 2
    assert int(new["metadata"]["resourceVersion"]) > int(old["metadata"]["resourceVersion"])
    assert (await api.call("PUT", path, changed)).said == (409, "Conflict")
    same = await api.call("PUT", path, new)
    assert same.body == new, "no change, no new version"

    def with_meta(**meta: object) -> Object:
        return new | {"metadata": {key: value for key, value in (new["metadata"] | meta).items() if value}}

    assert (await api.call("PUT", path, with_meta(resourceVersion=None))).said == (422, "Invalid")
    assert (await api.call("PUT", path, with_meta(uid="other"))).said == (409, "Conflict")
    assert (await api.call("PUT", path, with_meta(name="b"))).said == (400, "BadRequest")
    assert (await api.call("PUT", api.path(RAYJOBS, "none"), with_meta(name="none"))).said == (404, "NotFound")


async def test_a_built_in_kind_may_be_replaced_unconditionally(api: Api) -> None:
    await api.create(CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"k": "1"}})
    path = api.path(CONFIG_MAPS, "a")
    answer = await api.call("PUT", path, {"metadata": {"name": "a"}, "data": {"k": "2"}})
    assert (answer.status, answer.body["data"]) == (200, {"k": "2"})
    assert "generation" not in answer.body["metadata"]


async def test_status_is_a_part_of_its_own(api: Api) -> None:
    old = await api.create(RAYJOBS, job(name="a"))
    ignored = await api.merge(RAYJOBS, "a", {"status": {"jobStatus": "X"}})
    assert ignored.body == old
    status = old | {"spec": {"suspend": False}, "status": {"jobStatus": "RUNNING"}}
    status["metadata"] = old["metadata"] | {"labels": {"k": "v"}}
    new = (await api.call("PUT", api.path(RAYJOBS, "a", "status"), status)).body
    assert new["status"] == {"jobStatus": "RUNNING", "failed": 0, "succeeded": 0}
    assert (new["spec"]["suspend"], new["metadata"].get("labels")) == (True, None)
    assert new["metadata"]["generation"] == 1
    patched = (await api.merge(RAYJOBS, "a", {"spec": {"suspend": False}, "status": {"jobStatus": "Y"}}, "status")).body
    assert (patched["spec"]["suspend"], patched["status"]["jobStatus"]) == (True, "Y")
    spec = (await api.merge(RAYJOBS, "a", {"spec": {"suspend": False}})).body
    assert (spec["status"]["jobStatus"], spec["metadata"]["generation"]) == ("Y", 2)
    assert (await api.call("PUT", api.path(RAYJOBS, "a", "status"), status)).said == (409, "Conflict")
    assert (await api.call("GET", api.path(RAYJOBS, "a", "status"))).body == spec


async def test_without_a_status_subresource_status_is_content(api: Api) -> None:
    unit = {"metadata": {"name": "u"}, "spec": {"priority": 1}, "status": {"phase": "Enqueued"}}
    found = await api.create(QUEUE_UNITS, unit)
    assert found["status"] == {"phase": "Enqueued"}
    changed = (await api.merge(QUEUE_UNITS, "u", {"status": {"phase": "Dequeued"}})).body
    assert (changed["status"], changed["metadata"]["generation"]) == ({"phase": "Dequeued"}, 2)
    labelled = (await api.merge(QUEUE_UNITS, "u", {"metadata": {"labels": {"a": "b"}}})).body
    assert labelled["metadata"]["generation"] == 2
    assert (await api.merge(QUEUE_UNITS, "u", {"status": {}}, "status")).said == (404, "NotFound")


async def test_deleting(api: Api) -> None:
    found = await api.create(RAYJOBS, job(name="a"))
    uid = found["metadata"]["uid"]
    assert (await api.delete(RAYJOBS, "a", preconditions={"uid": "other"})).said == (409, "Conflict")
    assert (await api.delete(RAYJOBS, "a", preconditions={"resourceVersion": "1"})).said == (409, "Conflict")
    answer = await api.delete(RAYJOBS, "a", preconditions={"uid": uid}, propagationPolicy="Background")
    assert (answer.status, answer.body["status"]) == (200, "Success")
    assert answer.body["details"] == {"name": "a", "group": "ray.io", "kind": "rayjobs", "uid": uid}
    assert (await api.delete(RAYJOBS, "a")).said == (404, "NotFound")


async def test_finalizers_hold_an_object(api: Api) -> None:
    await api.create(RAYJOBS, job(name="a", finalizers=["test.dev/one", "test.dev/two"]))
    marked = await api.delete(RAYJOBS, "a")
    meta = marked.body["metadata"]
    assert marked.status == 200
    assert (meta["deletionGracePeriodSeconds"], meta["generation"]) == (0, 2)
    assert (await api.delete(RAYJOBS, "a")).body == marked.body, "asking again changes nothing"
    again = await api.call("POST", api.path(RAYJOBS), job(name="a"))
    assert again.said == (409, "AlreadyExists")
    assert again.body["message"].startswith("object is being deleted")
    more = {"metadata": {"finalizers": ["test.dev/one", "test.dev/two", "test.dev/three"]}}
    assert (await api.merge(RAYJOBS, "a", more)).said == (422, "Invalid")
    kept = await api.merge(RAYJOBS, "a", {"metadata": {"finalizers": ["test.dev/two"], "deletionTimestamp": None}})
    assert kept.body["metadata"]["deletionTimestamp"] == meta["deletionTimestamp"], "there is no way back"
    last = await api.merge(RAYJOBS, "a", {"metadata": {"finalizers": None}})
    assert (last.status, "finalizers" in last.body["metadata"]) == (200, False)
    assert await api.get(RAYJOBS, "a") is None


async def test_dependents_follow_their_owner(api: Api) -> None:
    owner = await api.create(RAYJOBS, job(name="owner"))
    for name in ("child", "other"):
        cluster = {"metadata": {"name": name, "ownerReferences": owned_by(owner)}, "spec": CLUSTER_SPEC}
        cluster = await api.create(RAYCLUSTERS, cluster)
    held = {"metadata": {"name": "held", "ownerReferences": owned_by(cluster), "finalizers": ["test.dev/one"]}}
    await api.create(CONFIG_MAPS, held)
    await api.delete(RAYJOBS, "owner", propagationPolicy="Background")
    await api.gone(RAYCLUSTERS, "child")
    await api.gone(RAYCLUSTERS, "other")

    async def marked() -> bool:
        return "deletionTimestamp" in ((await api.get(CONFIG_MAPS, "held")) or {})["metadata"]

    await until(marked, COLLECTED_S)
    await api.merge(CONFIG_MAPS, "held", {"metadata": {"finalizers": None}})
    await api.gone(CONFIG_MAPS, "held")


async def test_orphaning_and_foreground_deletion(api: Api) -> None:
    owner = await api.create(RAYJOBS, job(name="owner"))
    spec = {"spec": CLUSTER_SPEC}
    await api.create(RAYCLUSTERS, spec | {"metadata": {"name": "child", "ownerReferences": owned_by(owner)}})
    await api.collector_knows_all(RAYCLUSTERS, **spec)
    await api.delete(RAYJOBS, "owner", propagationPolicy="Orphan")
    await api.gone(RAYJOBS, "owner")
    child = await api.get(RAYCLUSTERS, "child")
    assert child is not None
    assert "ownerReferences" not in child["metadata"]

    blocking = [owned_by(child)[0] | {"blockOwnerDeletion": True}]
    held = {"metadata": {"name": "held", "ownerReferences": blocking, "finalizers": ["test.dev/one"]}}
    await api.create(CONFIG_MAPS, held)
    await api.collector_knows_all(CONFIG_MAPS)
    answer = await api.delete(RAYCLUSTERS, "child", propagationPolicy="Foreground")
    assert answer.body["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert await api.get(RAYCLUSTERS, "child") is not None, "the owner waits for what it owns"

    async def marked() -> bool:
        return "deletionTimestamp" in ((await api.get(CONFIG_MAPS, "held")) or {})["metadata"]

    await until(marked, COLLECTED_S)
    await api.merge(CONFIG_MAPS, "held", {"metadata": {"finalizers": None}})
    await api.gone(RAYCLUSTERS, "child")


async def test_what_comes_after_its_owner_is_gone_is_collected(api: Api) -> None:
    owner = await api.create(RAYJOBS, job(name="owner"))
    await api.delete(RAYJOBS, "owner")
    cluster = {"metadata": {"name": "late", "ownerReferences": owned_by(owner)}, "spec": CLUSTER_SPEC}
    await api.create(RAYCLUSTERS, cluster)
    await api.gone(RAYCLUSTERS, "late")


async def test_lists_select(api: Api) -> None:
    for name in ("b", "a", "c"):
        await api.create(RAYJOBS, job(name=name, labels={"name": name, "all": "yes"}))
    await api.create(RAYJOBS, job(name="plain"))

    async def names(**query: str) -> list[str]:
        answer = await api.select(RAYJOBS, **query)
        assert answer.status == 200, answer
        assert answer.body["kind"] == "RayJobList"
        return [found["metadata"]["name"] for found in answer.body["items"]]

    assert await names() == ["a", "b", "c", "plain"]
    assert await names(labelSelector="all=yes,name!=a") == ["b", "c"]
    assert await names(labelSelector="name in (a, c)") == ["a", "c"]
    assert await names(labelSelector="name notin (a,c)") == ["b", "plain"]  # codespell:ignore notin
    assert await names(labelSelector="!name") == ["plain"]
    assert await names(labelSelector="name,all==yes") == ["a", "b", "c"]
    assert await names(fieldSelector="metadata.name=b") == ["b"]
    assert await names(fieldSelector="metadata.name!=b", labelSelector="all") == ["a", "c"]
    assert (await api.select(RAYJOBS, fieldSelector="spec.suspend=true")).said == (400, "BadRequest")
    assert (await api.select(RAYJOBS, labelSelector="a=b=c")).said == (400, "BadRequest")
    everywhere = await api.call("GET", RAYJOBS.path(), query={"fieldSelector": f"metadata.namespace={api.namespace}"})
    assert len(everywhere.body["items"]) == 4


async def test_listed_objects_say_what_they_are_only_where_they_are_custom(api: Api) -> None:
    await api.create(RAYJOBS, job(name="a"))
    await api.create(CONFIG_MAPS, {"metadata": {"name": "a"}})
    listed = (await api.select(RAYJOBS)).body["items"][0]
    assert (listed["apiVersion"], listed["kind"]) == ("ray.io/v1", "RayJob")
    found = (await api.select(CONFIG_MAPS, fieldSelector="metadata.name=a")).body
    assert (found["apiVersion"], found["kind"]) == ("v1", "ConfigMapList")
    assert not {"apiVersion", "kind"} & found["items"][0].keys()
    watched = await api.watch(CONFIG_MAPS, lambda events: len(events) == 1, fieldSelector="metadata.name=a")
    assert (watched[0]["object"]["apiVersion"], watched[0]["object"]["kind"]) == ("v1", "ConfigMap")


async def test_pages_are_one_moments_truth(api: Api) -> None:
    for name in "abcde":
        await api.create(RAYJOBS, job(name=name))
    first = (await api.select(RAYJOBS, limit="2")).body
    version = first["metadata"]["resourceVersion"]
    assert first["metadata"]["remainingItemCount"] == 3
    await api.create(RAYJOBS, job(name="bb"))
    await api.delete(RAYJOBS, "c")
    await api.merge(RAYJOBS, "d", {"spec": {"suspend": False}})
    names, token = [found["metadata"]["name"] for found in first["items"]], first["metadata"]["continue"]
    pages = 1
    while token:
        page = (await api.select(RAYJOBS, **{"limit": "2", "continue": token})).body
        assert page["metadata"]["resourceVersion"] == version
        names += [found["metadata"]["name"] for found in page["items"]]
        assert all(found["spec"]["suspend"] for found in page["items"]), "as it was when the list began"
        token, pages = page["metadata"].get("continue"), pages + 1
    assert (names, pages) == (list("abcde"), 3)
    assert (await api.select(RAYJOBS, **{"limit": "2", "continue": "nonsense"})).said == (400, "BadRequest")


async def test_a_list_of_the_future_has_to_wait(api: Api) -> None:
    answer = await api.select(RAYJOBS, resourceVersion="99999999999")
    assert answer.said == (504, "Timeout")
    assert answer.body["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


async def test_events_are_found_by_type_and_reason(api: Api) -> None:
    about = {"kind": "Pod", "namespace": api.namespace, "name": "a", "uid": "u"}
    for kind, reason in (("Warning", "GangFailedScheduling"), ("Warning", "Other"), ("Normal", "GangFailedScheduling")):
        event = {"metadata": {"generateName": "a."}, "involvedObject": about, "type": kind, "reason": reason}
        await api.create(EVENTS, event | {"source": {"component": "test"}})
    found = (await api.select(EVENTS, fieldSelector="type=Warning,reason=GangFailedScheduling")).body["items"]
    assert [(event["type"], event["reason"]) for event in found] == [("Warning", "GangFailedScheduling")]


async def test_discovery(api: Api) -> None:
    entries = {entry["name"]: entry for entry in (await api.call("GET", "/apis/ray.io/v1")).body["resources"]}
    kinds = ("rayjobs", "rayclusters", "rayservices")
    assert set(entries) == {*kinds, *(f"{kind}/status" for kind in kinds)}
    assert entries["rayjobs"]["kind"] == "RayJob"
    assert {"create", "get", "list", "patch", "watch"} <= set(entries["rayjobs"]["verbs"])
    queueing = (await api.call("GET", "/apis/scheduling.x-k8s.io/v1alpha1")).body["resources"]
    names = {entry["name"]: entry.get("shortNames") for entry in queueing}
    podgroups = {"podgroups": ["pg", "pgs"], "podgroups/status": None}
    assert names == {"queues": None, "queueunits": ["qu", "qus"]} | podgroups
    core = (await api.call("GET", "/api/v1")).body["resources"]
    assert {"pods", "pods/binding", "pods/status", "nodes"} <= {entry["name"] for entry in core}
    groups = {group["name"] for group in (await api.call("GET", "/apis")).body["groups"]}
    assert {"ray.io", "batch", "scheduling.x-k8s.io"} <= groups
    assert (await api.call("GET", "/api")).body["versions"] == ["v1"]
    assert (await api.call("GET", "/version")).body["gitVersion"].startswith("v1.")
    assert (await api.call("GET", "/readyz")).text == "ok"
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}},
    }
    answer = await api.call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    assert (answer.status, answer.body["status"]["allowed"]) == (201, True)
