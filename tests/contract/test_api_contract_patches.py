"""The contract of the API server, on the simulated one and on a real one: patches.

Muster's writes stand on JSON patches with `test`, so what a server makes of each is written down here one by one.
"""

import pytest

from kit.api import Api, Object
from muster.model.api import JSON, MERGE_PATCH, PODS, RAYJOBS

INTENT = "/metadata/annotations/muster.dev~1intent"
GROUPS = "/spec/rayClusterSpec/workerGroupSpecs"


async def make(api: Api) -> Object:
    """A RayJob with an intent and two worker groups."""
    groups: list[Object] = [{"groupName": name, "template": {}} for name in ("a", "b")]
    cluster = {"headGroupSpec": {"template": {}}, "workerGroupSpecs": groups}
    meta = {"name": "j", "annotations": {"muster.dev/intent": "1-10-0"}}
    return await api.create(RAYJOBS, {"metadata": meta, "spec": {"suspend": True, "rayClusterSpec": cluster}})


REFUSED = 422


@pytest.mark.parametrize(
    ("operations", "status"),
    [
        pytest.param([{"op": "test", "path": INTENT, "value": "1-10-0"}], 200, id="test that holds"),
        pytest.param([{"op": "test", "path": INTENT, "value": "1-9-0"}], REFUSED, id="test that fails"),
        pytest.param([{"op": "test", "path": "/metadata/uid", "value": "other"}], REFUSED, id="test of the uid"),
        pytest.param([{"op": "test", "path": "/metadata/uid"}], REFUSED, id="test for nothing of what is there"),
        pytest.param([{"op": "test", "path": "/metadata/labels", "value": None}], 200, id="test null of a missing key"),
        pytest.param([{"op": "test", "path": "/metadata/labels"}], 200, id="test nothing of a missing key"),
        pytest.param([{"op": "test", "path": "/metadata/labels", "value": {}}], REFUSED, id="test {} of a missing key"),
        pytest.param(
            [{"op": "test", "path": "/metadata/labels/x", "value": None}], REFUSED, id="test null below a missing key"
        ),
        pytest.param(
            [{"op": "test", "path": "/metadata/labels/x", "value": "y"}], REFUSED, id="test below a missing key"
        ),
        pytest.param(
            [{"op": "test", "path": "/metadata/resourceVersion", "value": "1"}], REFUSED, id="test old version"
        ),
        pytest.param([{"op": "test", "path": "/spec/backoffLimit", "value": 0}], 200, id="test of a number"),
        pytest.param([{"op": "test", "path": "/spec/backoffLimit", "value": "0"}], REFUSED, id="test of another type"),
        pytest.param([{"op": "test", "path": "/spec/suspend", "value": 1}], REFUSED, id="true is not 1"),
        pytest.param([{"op": "test", "path": f"{GROUPS}/1/groupName", "value": "b"}], 200, id="test in a list"),
        pytest.param([{"op": "test", "path": f"{GROUPS}/2/groupName", "value": "b"}], REFUSED, id="test past a list"),
        pytest.param([{"op": "test", "path": f"{GROUPS}/x", "value": "b"}], REFUSED, id="no index"),
        pytest.param([{"op": "test", "path": f"{GROUPS}/-1/groupName", "value": "b"}], 200, id="index from the end"),
        pytest.param(
            [{"op": "add", "path": "/metadata/labels/x", "value": "y"}], REFUSED, id="add below a missing key"
        ),
        pytest.param([{"op": "add", "path": "/metadata/labels", "value": {"x": "y"}}], 200, id="add a map"),
        pytest.param([{"op": "replace", "path": f"{INTENT}2", "value": "x"}], 200, id="replace adds a missing key"),
        pytest.param([{"op": "replace", "path": "/spec/a/b", "value": "x"}], REFUSED, id="replace below a missing key"),
        pytest.param([{"op": "replace", "path": f"{GROUPS}/2", "value": {}}], REFUSED, id="replace past a list"),
        pytest.param([{"op": "remove", "path": INTENT}], 200, id="remove"),
        pytest.param([{"op": "remove", "path": f"{INTENT}2"}], REFUSED, id="remove a missing key"),
        pytest.param([{"op": "remove", "path": f"{GROUPS}/2"}], REFUSED, id="remove past a list"),
        pytest.param([{"op": "bogus", "path": "/spec"}], REFUSED, id="unknown operation"),
        pytest.param([{"op": "test"}], REFUSED, id="no path"),
        pytest.param([{"op": "test", "path": "spec/suspend", "value": True}], REFUSED, id="no leading slash"),
        pytest.param([], 200, id="no operations"),
        pytest.param(
            [{"op": "replace", "path": "/metadata/resourceVersion", "value": "1"}], 409, id="replace the version"
        ),
        pytest.param([{"op": "replace", "path": "/metadata/name", "value": "k"}], 400, id="rename"),
        pytest.param([{"op": "replace", "path": "/metadata/uid", "value": "k"}], REFUSED, id="another uid"),
    ],
)
async def test_json_patch_operations(api: Api, operations: list[Object], status: int) -> None:
    found = await make(api)
    answer = await api.json_patch(RAYJOBS, "j", *operations)
    assert answer.status == status, answer
    if status != 200:
        assert await api.get(RAYJOBS, "j") == found, "a patch applies whole or not at all"


async def test_a_failed_test_looks_like_any_patch_that_does_not_apply(api: Api) -> None:
    await make(api)
    failed = await api.json_patch(RAYJOBS, "j", {"op": "test", "path": INTENT, "value": "other"})
    missing = await api.json_patch(RAYJOBS, "j", {"op": "remove", "path": "/spec/none"})
    assert failed.body == missing.body
    assert failed.body == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "the server rejected our request due to an error in our request",
        "reason": "Invalid",
        "details": {},
        "code": 422,
    }


async def test_test_and_replace_is_one_step(api: Api) -> None:
    found = await make(api)
    move_on = [
        {"op": "test", "path": "/metadata/uid", "value": found["metadata"]["uid"]},
        {"op": "test", "path": INTENT, "value": "1-10-0"},
        {"op": "replace", "path": INTENT, "value": "1-20-0"},
        {"op": "replace", "path": "/spec/suspend", "value": False},
    ]
    answer = await api.json_patch(RAYJOBS, "j", *move_on)
    assert answer.body["metadata"]["annotations"] == {"muster.dev/intent": "1-20-0"}
    assert (answer.body["spec"]["suspend"], answer.body["metadata"]["generation"]) == (False, 2)
    assert (await api.json_patch(RAYJOBS, "j", *move_on)).status == REFUSED
    nothing = await api.json_patch(RAYJOBS, "j", {"op": "test", "path": INTENT, "value": "1-20-0"})
    assert nothing.body == answer.body, "a test alone makes no new version"


async def test_lists_are_changed_by_index(api: Api) -> None:
    await make(api)
    group = {"groupName": "c", "template": {}}
    answer = await api.json_patch(
        RAYJOBS,
        "j",
        {"op": "add", "path": f"{GROUPS}/-", "value": group},
        {"op": "add", "path": f"{GROUPS}/0", "value": group | {"groupName": "z"}},
        {"op": "replace", "path": f"{GROUPS}/1/scaleStrategy", "value": {"workersToDelete": ["w"]}},
        {"op": "remove", "path": f"{GROUPS}/2"},
        {"op": "copy", "from": f"{GROUPS}/1/groupName", "path": "/spec/entrypoint"},
        {"op": "move", "from": "/spec/suspend", "path": "/spec/shutdownAfterJobFinishes"},
    )
    spec = answer.body["spec"]
    groups = spec["rayClusterSpec"]["workerGroupSpecs"]
    assert [entry["groupName"] for entry in groups] == ["z", "a", "c"]
    assert groups[1]["scaleStrategy"] == {"workersToDelete": ["w"]}
    assert groups[2]["maxReplicas"] == 2147483647, "what is added gets its defaults"
    assert (spec["entrypoint"], spec["shutdownAfterJobFinishes"], spec.get("suspend")) == ("a", True, None)


async def test_merge_patches(api: Api) -> None:
    found = await make(api)
    same = await api.merge(RAYJOBS, "j", {"spec": {"suspend": True}})
    assert same.body == found, "no change, no new version"
    patch = {"metadata": {"annotations": {"muster.dev/intent": None, "k": "v"}}, "spec": {"suspend": False}}
    new = (await api.merge(RAYJOBS, "j", patch)).body
    assert new["metadata"]["annotations"] == {"k": "v"}
    assert new["spec"] == found["spec"] | {"suspend": False}
    stale = {"metadata": {"resourceVersion": found["metadata"]["resourceVersion"]}, "spec": {"suspend": True}}
    assert (await api.merge(RAYJOBS, "j", stale)).said == (409, "Conflict")
    fresh = {"metadata": {"resourceVersion": new["metadata"]["resourceVersion"]}, "spec": {"suspend": True}}
    assert (await api.merge(RAYJOBS, "j", fresh)).status == 200
    assert (await api.merge(RAYJOBS, "j", {"metadata": {"uid": "other"}})).said == (422, "Invalid")
    assert (await api.merge(RAYJOBS, "none", {"spec": {}})).said == (404, "NotFound")


async def test_patch_formats(api: Api) -> None:
    await make(api)
    path = api.path(RAYJOBS, "j")
    strategic = "application/strategic-merge-patch+json"
    for content_type in (JSON, strategic):
        answer = await api.call("PATCH", path, {"spec": {}}, content_type=content_type)
        assert answer.said == (415, "UnsupportedMediaType")
    answer = await api.call("PATCH", path, {"op": "test"}, content_type="application/json-patch+json")
    assert answer.said == (400, "BadRequest")
    answer = await api.call("PATCH", path, b"{nonsense", content_type=MERGE_PATCH)
    assert answer.said == (400, "BadRequest")
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}], "schedulerName": "none"}}
    await api.create(PODS, pod)
    patch = {"metadata": {"labels": {"a": "b"}}}
    answer = await api.call("PATCH", api.path(PODS, "p"), patch, content_type=strategic)
    assert answer.body["metadata"]["labels"] == {"a": "b"}
