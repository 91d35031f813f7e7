"""Our CustomResourceDefinitions on a real API server, and the document's manifests under them, as written."""

import ssl

import aiohttp
import pytest

from kit.api import Api, Object, real_api
from kit.controlplane import ControlPlane
from kit.crds import definitions
from kit.documents import manifest
from kit.kubeclient import condition
from muster.fakecluster.apiserver import defaults
from muster.model.api import CONFIG_MAPS, CRDS, NAMESPACES, QUEUES, QUOTA_TREES, RAYCLUSTERS, RAYJOBS

__all__ = ["real_api"]

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


async def ensure_namespace(api: Api, name: str) -> None:
    answer = await api.call("POST", NAMESPACES.path(), {"metadata": {"name": name}})
    assert answer.status in (201, 409), answer


async def columns(plane: ControlPlane, path: str) -> list[str]:
    """The column heads `kubectl get` prints, without those of -o wide."""
    tls = ssl.create_default_context(cafile=plane.ca_file)
    headers = {"Authorization": f"Bearer {plane.admin.token}", "Accept": TABLE}
    async with aiohttp.ClientSession(headers=headers) as session, session.get(plane.url + path, ssl=tls) as answer:
        found = (await answer.json())["columnDefinitions"]
    return [column["name"].upper() for column in found if column["priority"] == 0]


async def test_every_definition_is_accepted_and_served(real_api: Api) -> None:
    for definition in definitions():
        name = definition["metadata"]["name"]
        found = (await real_api.call("GET", CRDS.path(name=name))).body
        assert condition(found, "Established")["status"] == "True", name
        assert condition(found, "NamesAccepted")["status"] == "True", name
        assert not condition(found, "NonStructuralSchema"), name


async def test_the_documents_manifests_are_taken_as_written(real_api: Api) -> None:
    api = real_api
    for name in ("video", "kube-queue"):
        await ensure_namespace(api, name)
    answer = await api.call("POST", CONFIG_MAPS.path("video"), manifest("configmap-video"))
    assert answer.status in (201, 409), answer
    queue = manifest("queue-video")
    answer = await api.call("POST", QUEUES.path("kube-queue"), queue)
    assert answer.status in (201, 409), answer
    found = (await api.call("GET", QUEUES.path("kube-queue", queue["metadata"]["name"]))).body
    assert (found["spec"], found["status"]) == (queue["spec"], queue["status"])
    assert found["metadata"]["generateName"] == "root-algorithm-video-"
    names = []
    for _ in range(2):
        job = manifest("rayjob-video")
        answer = await api.call("POST", RAYJOBS.path("video"), job)
        assert answer.status == 201, answer
        assert answer.body["spec"] == defaults.rayjob(job)["spec"], "nothing is pruned, our defaults are the server's"
        names.append(answer.body["metadata"]["name"])
    assert all(name.startswith("rayjob-video-") and len(name) == 18 for name in names)
    for name in names:
        assert (await api.call("DELETE", RAYJOBS.path("video", name))).status == 200


@pytest.mark.parametrize(
    ("path", "heads"),
    [
        (
            RAYJOBS.path("default"),
            ["NAME", "JOB STATUS", "DEPLOYMENT STATUS", "RAY CLUSTER NAME", "START TIME", "END TIME", "AGE"],
        ),
        (
            RAYCLUSTERS.path("default"),
            ["NAME", "DESIRED WORKERS", "AVAILABLE WORKERS", "CPUS", "MEMORY", "GPUS", "STATUS", "AGE"],
        ),
        (QUEUES.path("default"), ["NAME", "AGE"]),
    ],
)
async def test_kubectl_shows_the_columns_users_know(
    real_api: Api, control_plane: ControlPlane, path: str, heads: list[str]
) -> None:
    assert await columns(control_plane, path) == heads


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"managedBy": "somebody"}, "managedBy must be"),
        ({"deletionStrategy": {}}, "needs both"),
        ({"deletionStrategy": {"deletionRules": []}}, "should have at least 1 items"),
        ({"deletionStrategy": {"deletionRules": [{"policy": "DeleteSelf", "condition": {}}]}}, "needs jobStatus"),
        ({"preRunningDeadlineSeconds": 0}, "should be greater than or equal to 1"),
        ({"rayClusterSpec": {"workerGroupSpecs": []}}, "headGroupSpec: Required"),
        ({"suspend": "yes"}, "must be of type boolean"),
    ],
)
async def test_rayjobs_that_upstream_refuses_are_refused(real_api: Api, spec: Object, message: str) -> None:
    job = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "bad"}, "spec": spec}
    answer = await real_api.call("POST", real_api.path(RAYJOBS), job)
    assert answer.said == (422, "Invalid")
    assert message in answer.body["message"]


async def test_managed_by_stays(real_api: Api) -> None:
    spec = {"managedBy": "ray.io/kuberay-operator"}
    await real_api.create(RAYJOBS, {"metadata": {"name": "a"}, "spec": spec})
    answer = await real_api.merge(RAYJOBS, "a", {"spec": {"managedBy": "kueue.x-k8s.io/multikueue"}})
    assert answer.said == (422, "Invalid")
    assert "immutable" in answer.body["message"]


async def test_a_quota_tree_of_any_depth_is_kept_whole(real_api: Api) -> None:
    leaf = {"name": "leaf", "namespaces": ["video"], "min": {"cpu": 12, "memory": "12Gi"}, "max": {"cpu": "14"}}
    tree: Object = leaf
    for name in ("c", "b", "a"):
        tree = {"name": name, "attributes": {"k": "v"}, "children": [tree, {"name": f"{name}-2", "own": {"x": 1}}]}
    root = {"name": "root", "min": {"nvidia.com/gpu": 2}, "max": {"nvidia.com/gpu": 4}, "children": [tree]}
    given = {"metadata": {"name": "elasticquotatree"}, "spec": {"root": root}, "status": {"root": {"used": {"cpu": 1}}}}
    found = await real_api.create(QUOTA_TREES, given)
    assert (found["spec"], found["status"]) == (given["spec"], given["status"])
