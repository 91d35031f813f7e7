"""The contract of the API server, on the simulated one and on a real one: pods and what happens only to them."""

import pytest

from kit.api import Answer, Api, Object
from muster.model.api import JOBS, PODS, PRIORITY_CLASSES


def pod(name: str = "p", **spec: object) -> Object:
    """A pod that no scheduler of the control plane takes."""
    resources = {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}
    containers = [{"name": "c", "image": "i", "resources": resources}]
    return {"metadata": {"name": name}, "spec": {"containers": containers, "schedulerName": "none", **spec}}


async def bind(api: Api, node: str, *, pod: str = "p", **meta: object) -> Answer:
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", **meta},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    return await api.call("POST", api.path(PODS, pod, "binding"), binding)


async def test_a_new_pod_is_pending_and_requests_what_it_is_limited_to(api: Api) -> None:
    found = await api.create(PODS, pod() | {"status": {"phase": "Running"}})
    assert found["status"]["phase"] == "Pending"
    assert found["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}
    assert (found["spec"]["priority"], found["spec"]["restartPolicy"]) == (0, "Always")
    assert found["metadata"]["generation"] == 1
    default = await api.create(PODS, {"metadata": {"name": "q"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    assert default["spec"]["schedulerName"] == "default-scheduler"
    answer = await api.call("POST", api.path(PODS), {"metadata": {"name": "r"}, "spec": {}})
    assert answer.said == (422, "Invalid")
    nonsense = pod("r")
    nonsense["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "-1"}}
    assert (await api.call("POST", api.path(PODS), nonsense)).said == (422, "Invalid")


async def test_a_priority_class_gives_the_priority(api: Api) -> None:
    name = f"high-{api.namespace}"
    path = PRIORITY_CLASSES.path()
    assert (await api.call("POST", path, {"metadata": {"name": name}, "value": 100})).status == 201
    found = await api.create(PODS, pod(priorityClassName=name))
    assert found["spec"]["priority"] == 100
    missing = await api.call("POST", api.path(PODS), pod("q", priorityClassName="none"))
    assert missing.said == (403, "Forbidden")
    assert missing.body["message"] == 'pods "q" is forbidden: no PriorityClass with name none was found'
    await api.call("DELETE", PRIORITY_CLASSES.path(name=name))


async def test_binding(api: Api) -> None:
    uid = (await api.create(PODS, pod()))["metadata"]["uid"]
    assert (await bind(api, "n", uid="other")).said == (409, "Conflict")
    answer = await bind(api, "n", uid=uid, annotations={"a": "b"})
    assert (answer.status, answer.body["status"]) == (201, "Success")
    found = await api.get(PODS, "p")
    assert found is not None
    assert (found["spec"]["nodeName"], found["metadata"]["annotations"]) == ("n", {"a": "b"})
    condition = found["status"]["conditions"][0]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")
    assert found["metadata"]["generation"] == 1
    again = await bind(api, "n", uid=uid)
    assert again.said == (409, "Conflict")
    assert again.body["message"].endswith('pod p is already assigned to node "n"')
    assert (await bind(api, "other")).said == (409, "Conflict")
    await api.delete(PODS, "p")
    assert "is being deleted" in (await bind(api, "n")).body["message"]
    assert (await bind(api, "n", pod="none", name="none")).said == (404, "NotFound")
    assert (await bind(api, "n", pod="none")).said == (400, "BadRequest")
    await api.delete(PODS, "p", gracePeriodSeconds=0)


async def test_a_gated_pod_is_not_bound(api: Api) -> None:
    found = await api.create(PODS, pod(schedulingGates=[{"name": "test.dev/gate"}]))
    assert found["status"]["conditions"][0]["reason"] == "SchedulingGated"
    assert (await bind(api, "n")).said == (409, "Conflict")
    opened = await api.merge(PODS, "p", {"spec": {"schedulingGates": None}})
    assert (opened.status, opened.body["metadata"]["generation"]) == (200, 2)
    closed = await api.merge(PODS, "p", {"spec": {"schedulingGates": [{"name": "test.dev/gate"}]}})
    assert closed.said == (422, "Invalid")
    assert (await bind(api, "n")).status == 201
    await api.delete(PODS, "p", gracePeriodSeconds=0)


async def test_most_of_a_pod_spec_stays(api: Api) -> None:
    await api.create(PODS, pod())
    changes: list[Object] = [{"schedulerName": "other"}, {"nodeName": "n"}, {"containers": []}, {"priority": 5}]
    for patch in changes:
        answer = await api.merge(PODS, "p", {"spec": patch})
        assert answer.said == (422, "Invalid"), patch
    assert (await api.merge(PODS, "p", {"metadata": {"labels": {"a": "b"}}})).status == 200
    status = {"status": {"phase": "Running"}, "metadata": {"labels": {"c": "d"}}, "spec": {"schedulerName": "other"}}
    answer = await api.merge(PODS, "p", status, "status")
    assert answer.body["status"]["phase"] == "Running"
    assert answer.body["metadata"]["labels"] == {"a": "b", "c": "d"}
    assert answer.body["spec"]["schedulerName"] == "none"


async def test_a_bound_pod_gets_time_to_stop(api: Api) -> None:
    uid = (await api.create(PODS, pod()))["metadata"]["uid"]
    await bind(api, "n")
    assert (await api.delete(PODS, "p", preconditions={"uid": "other"})).said == (409, "Conflict")
    marked = (await api.delete(PODS, "p", preconditions={"uid": uid})).body["metadata"]
    assert (marked["deletionGracePeriodSeconds"], marked["generation"]) == (30, 2)
    again = (await api.delete(PODS, "p")).body["metadata"]
    assert again["resourceVersion"] == marked["resourceVersion"]
    sooner = (await api.delete(PODS, "p", gracePeriodSeconds=5)).body["metadata"]
    assert sooner["deletionGracePeriodSeconds"] == 5
    assert sooner["deletionTimestamp"] < marked["deletionTimestamp"]
    forced = await api.delete(PODS, "p", gracePeriodSeconds=0)
    assert (forced.status, forced.body["metadata"]["uid"]) == (200, uid)
    assert await api.get(PODS, "p") is None


@pytest.mark.parametrize("state", ["unbound", "finished"])
async def test_a_pod_with_nothing_to_stop_goes_at_once(api: Api, state: str) -> None:
    await api.create(PODS, pod())
    if state == "finished":
        await bind(api, "n")
        await api.merge(PODS, "p", {"status": {"phase": "Succeeded"}}, "status")
    answer = await api.delete(PODS, "p")
    assert (answer.status, answer.body["metadata"]["deletionGracePeriodSeconds"]) == (200, 0)
    assert await api.get(PODS, "p") is None


async def test_a_finalizer_outlasts_the_grace_period(api: Api) -> None:
    held = pod(nodeName="n")
    held["metadata"]["finalizers"] = ["test.dev/one"]
    await api.create(PODS, held)
    await api.delete(PODS, "p")
    forced = (await api.delete(PODS, "p", gracePeriodSeconds=0)).body["metadata"]
    assert (forced["deletionGracePeriodSeconds"], forced["finalizers"]) == (0, ["test.dev/one"])
    await api.merge(PODS, "p", {"metadata": {"finalizers": None}})
    assert await api.get(PODS, "p") is None


async def test_evicting(api: Api) -> None:
    uid = (await api.create(PODS, pod()))["metadata"]["uid"]
    await bind(api, "n")
    path = api.path(PODS, "p", "eviction")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    # The server tries for ten seconds before it says so: whoever has a stale uid had better DELETE by uid.
    wrong = await api.call("POST", path, eviction | {"deleteOptions": {"preconditions": {"uid": "other"}}})
    assert wrong.said == (409, "Conflict")
    answer = await api.call("POST", path, eviction | {"deleteOptions": {"preconditions": {"uid": uid}}})
    assert (answer.status, answer.body["status"]) == (201, "Success")
    found = await api.get(PODS, "p")
    assert found is not None
    assert "deletionTimestamp" in found["metadata"]
    assert "DisruptionTarget" in [condition["type"] for condition in found["status"]["conditions"]]
    elsewhere = eviction | {"metadata": {"name": "none"}}
    assert (await api.call("POST", api.path(PODS, "none", "eviction"), elsewhere)).said == (404, "NotFound")
    await api.delete(PODS, "p", gracePeriodSeconds=0)


async def test_pods_are_selected_by_node_and_phase(api: Api) -> None:
    await api.create(PODS, pod("a", nodeName="n"))
    await api.create(PODS, pod("b"))
    await api.merge(PODS, "a", {"status": {"phase": "Running"}}, "status")

    async def names(selector: str) -> list[str]:
        return [found["metadata"]["name"] for found in (await api.select(PODS, fieldSelector=selector)).body["items"]]

    assert await names("spec.nodeName=n") == ["a"]
    assert await names("spec.nodeName=") == ["b"]
    assert await names("status.phase!=Running,spec.schedulerName=none") == ["b"]
    await api.delete(PODS, "a", gracePeriodSeconds=0)


async def test_a_batch_job_marks_its_pods_and_orphans_them_unless_told_otherwise(api: Api) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    found = await api.create(JOBS, {"metadata": {"name": "j"}, "spec": {"suspend": True, "template": template}})
    uid = found["metadata"]["uid"]
    marks = {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": "j",
        "controller-uid": uid,
        "job-name": "j",
    }
    assert found["spec"]["template"]["metadata"]["labels"] == marks
    assert found["spec"]["selector"]["matchLabels"] == {"batch.kubernetes.io/controller-uid": uid}
    assert (found["spec"]["backoffLimit"], found["spec"]["parallelism"], found["spec"]["completions"]) == (6, 1, 1)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": uid}
    child = pod()
    child["metadata"]["ownerReferences"] = [owner]
    await api.create(PODS, child)
    await api.collector_knows_all(PODS, spec=pod()["spec"])
    answer = await api.delete(JOBS, "j")
    assert answer.body["metadata"]["finalizers"] == ["orphan"]
    await api.gone(JOBS, "j")
    left = await api.get(PODS, "p")
    assert left is not None
    assert "ownerReferences" not in left["metadata"]
