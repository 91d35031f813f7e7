"""Ray clusters that scale themselves on a real API server: what a user of the document sees, and what is charged.

The operator is the simulated one and its pods are real; the autoscaler writes what Ray's writes (`kit.rayscaler`), and
what a head says goes the way of the reader's facts.
"""

import re
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from kit.cluster import RAY, TREES, Cluster
from kit.compose import REPOSITORY
from kit.controlplane import ControlPlane
from kit.elastic import HEAD_CPU, raycluster, tree
from kit.installation import figure
from kit.muster import running
from kit.raywalk import NAME, NAMESPACE, Walk
from muster.bus.server import EmbeddedServer
from muster.events.alarms import AlarmRaised
from muster.events.decisions import EvictionOrdered
from muster.events.elastic import GateSet, GrowthDenied, GrowthWithdrawn, WorkersChosen
from muster.events.facts import TreeNodeSpec

SAMPLES = REPOSITORY / "tests" / "ray" / "samples"
CORE = 1_000


@pytest_asyncio.fixture
async def walk(muster_plane: ControlPlane, nats_server: EmbeddedServer, tmp_path: Path) -> AsyncIterator[Walk]:
    """Muster with the tree T0 (video: 14 cpu, counted in full) on an empty cluster."""
    async with Cluster(muster_plane, pods=True) as cluster, running(cluster, nats_server.url, tmp_path) as muster:
        await cluster.apply_tree()
        yield Walk(muster)


@pytest.mark.row(1, 2, 3, 4, 7, 8, 11, 21)
async def test_the_walk_of_the_document(walk: Walk) -> None:
    """Create, two actors, both end, the cluster is deleted; what leads to what is in the log in that order."""
    scripts = {path.name: path.read_text() for path in sorted(SAMPLES.glob("*.py"))}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ray-example", "namespace": NAMESPACE}}
    await walk.kube.create(config | {"data": scripts})
    await walk.create()
    [head] = await walk.pods("head")
    assert [each["name"] for each in head["spec"]["containers"]] == ["ray", "autoscaler"]
    assert head["spec"]["containers"][1]["resources"]["requests"] == {"cpu": "500m", "memory": "512Mi"}
    await walk.until_sized(0, 0, 0)
    walk.scaler.start("actor1")
    await walk.until_sized(1, 1, 1)
    walk.scaler.start("actor2")
    await walk.until_sized(2, 2, 2)
    await walk.until_placed()
    busy = walk.scaler.actors["actor2"].on
    walk.scaler.end("actor1")
    await walk.until_sized(1, 1, 1, timeout_s=120.0)
    assert [pod["metadata"]["name"] for pod in await walk.pods()] == [busy], "the idle one went"
    walk.scaler.end("actor2")
    await walk.until_sized(0, 0, 0, timeout_s=120.0)
    assert await walk.pods("head")
    assert await walk.firsts() == sorted(await walk.firsts())
    assert await walk.told(GrowthWithdrawn)
    found = await walk.kube.get("v1", "ConfigMap", "ray-example", NAMESPACE)
    assert sorted(found["data"]) == ["detached_actor.py", "terminate_detached_actor.py"]
    await walk.kube.delete(RAY, "RayCluster", NAME, NAMESPACE)
    await walk.until_charged(0)

    async def nothing_left() -> bool:
        beside = [
            await walk.kube.list_objects("v1", "ServiceAccount", NAMESPACE),
            *[
                await walk.kube.list_objects("rbac.authorization.k8s.io/v1", kind, NAMESPACE)
                for kind in ("Role", "RoleBinding")
            ],
        ]
        names = [each["metadata"]["name"] for found in beside for each in found]
        return NAME not in names and not await walk.pods() and not await walk.pods("head")

    await walk.cluster.until(nothing_left, 60.0, "what belongs to the cluster to be gone")


@pytest.mark.row(19)
async def test_exactly_what_fits_and_the_same_manifest_again_and_again(walk: Walk) -> None:
    """Row 19, and 20 times the same manifest while it grows."""
    await walk.create(maxReplicas=30)
    for number in range(20):
        walk.scaler.start(f"actor-{number}")
    manifest = raycluster(NAME, NAMESPACE, maxReplicas=30)
    manifest["spec"].pop("suspend")
    manifest["spec"]["workerGroupSpecs"][0].pop("replicas")
    for _ in range(20):
        await walk.tick()
        group = manifest["spec"]["workerGroupSpecs"][0]
        group["replicas"] = (await walk.object())["spec"]["workerGroupSpecs"][0].get("replicas", 0)
        await walk.kube.patch(RAY, "RayCluster", NAME, NAMESPACE, patch={"spec": {"workerGroupSpecs": [group]}})
        # In between policy muster-jobs refuses more replicas: see test_ray_policies.
        await walk.cluster.until(walk.is_gated, 30.0, "maxReplicas to be what is granted again")
    room = 14
    await walk.until_sized(room, room, room, timeout_s=120.0)
    assert (await walk.object())["metadata"]["annotations"]["muster.dev/max-replicas"] == "small=30"
    refusals = await walk.told(GrowthDenied)
    assert refusals and refusals[-1].short.resource == "cpu"
    assert walk.charged() <= 14 * CORE + HEAD_CPU


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH: what it shows was not read")
async def test_describe_alone_says_within_5_s_why_growth_is_denied(walk: Walk, request: pytest.FixtureRequest) -> None:
    """Two workers fit; Ray wants a third one."""
    room = tree((NAMESPACE, "2500m", "2500m"))["spec"]
    await walk.kube.patch(TREES, "ElasticQuotaTree", "elasticquotatree", "kube-system", patch={"spec": room})
    await walk.create()
    for number in range(2):
        walk.scaler.start(f"actor-{number}")
    await walk.until_sized(2, 2, 2)
    walk.scaler.start("one too many")
    await walk.tick()
    began, shown = time.monotonic(), ""

    async def says() -> bool:
        nonlocal shown
        shown = await walk.cluster.kubectl("describe", "raycluster", "-n", NAMESPACE, NAME)
        return f"RayCluster {NAMESPACE}/{NAME} cannot grow by 1 of group " in shown

    try:
        await walk.cluster.until(says, 5.0, "the Event")
    except AssertionError as err:
        err.add_note(shown)
        raise
    figure(request, "growth denied, seen by kubectl describe", f"{time.monotonic() - began:.1f} s after Ray's demand")
    assert re.search(r"Warning +GrowthDenied .*cpu in quota root/video: request 1, max 2500m, used", shown)


@pytest.mark.row(12, 14)
async def test_static_replicas_are_left_alone(walk: Walk) -> None:
    """Rows 12 and 14: without an autoscaler one container, maxReplicas untouched, and no more than it."""
    made = raycluster(NAME, NAMESPACE, replicas=9, maxReplicas=5)
    made["spec"]["enableInTreeAutoscaling"] = False
    await walk.kube.create(made)
    await walk.cluster.until(walk.head_runs, 60.0, "the head to run")
    [head] = await walk.pods("head")
    assert len(head["spec"]["containers"]) == 1

    async def five() -> bool:
        return (await walk.sizes())[1:] == (5, 5)

    await walk.cluster.until(five, 60.0, "five workers")
    patch = [{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 2}]
    await walk.kube.patch(RAY, "RayCluster", NAME, NAMESPACE, patch=patch)

    async def two() -> bool:
        return (await walk.sizes())[1:] == (5, 2)

    await walk.cluster.until(two, 60.0, "two workers")
    assert not await walk.told(GateSet)


@pytest.mark.row(13)
async def test_the_least_is_there_from_the_start_and_stays(walk: Walk) -> None:
    """Row 13: min 2, max 5, replicas 0."""
    await walk.create(minReplicas=2, maxReplicas=5)
    await walk.until_sized(2, 2, 2)
    assert walk.charged() >= 2 * CORE


@pytest.mark.row(24)
async def test_hosts_come_and_go_together(walk: Walk) -> None:
    """Row 24: a replica of two hosts for what one could hold."""
    await walk.create(numOfHosts=2)
    walk.scaler.start("actor")
    await walk.until_sized(1, 1, 2)
    assert walk.charged() >= 2 * CORE
    await walk.until_placed()
    walk.scaler.end("actor")
    await walk.until_sized(0, 0, 0, timeout_s=120.0)
    await walk.until_charged(0)


@pytest.mark.row(18)
async def test_the_sidecar_is_counted_as_its_options_say(walk: Walk) -> None:
    """Row 18: autoscalerOptions.resources replaces 500m and 512Mi."""
    full = {"metadata": {"annotations": {"muster.dev/request-profile": "full"}}}
    await walk.kube.patch(TREES, "ElasticQuotaTree", "elasticquotatree", "kube-system", patch=full)
    made = raycluster(NAME, NAMESPACE)
    amounts = {"cpu": "2", "memory": "1Gi"}
    made["spec"]["autoscalerOptions"] = {"resources": {"requests": amounts, "limits": amounts}, "image": "other:1"}
    env = [{"name": "A", "value": "b"}]
    source = [{"configMapRef": {"name": "settings", "optional": True}}]
    made["spec"]["autoscalerOptions"] |= {"imagePullPolicy": "Always", "env": env, "envFrom": source}
    await walk.kube.create(made)
    await walk.cluster.until(walk.head_runs, 60.0, "the head to run")
    [head] = await walk.pods("head")
    sidecar = head["spec"]["containers"][1]
    assert (sidecar["image"], sidecar["resources"]["requests"]) == ("other:1", amounts)
    assert (sidecar["imagePullPolicy"], sidecar["envFrom"]) == ("Always", source)
    assert env[0] in sidecar["env"]
    await walk.until_charged(2 * CORE)


@pytest.mark.row(20)
async def test_an_idle_worker_goes_to_the_queue_that_is_owed_it(walk: Walk) -> None:
    """Row 20: one of three is idle when another queue is owed a core; the busy ones stay."""

    def leaf(name: str, least: str) -> TreeNodeSpec:
        return TreeNodeSpec(name=name, min={"cpu": least}, max={"cpu": "3"}, namespaces=(name,))

    most = {"cpu": "3"}
    root = TreeNodeSpec(name="root", min=most, max=most, children=(leaf("video", "0"), leaf("text", "1")))
    await walk.cluster.apply_tree(root)
    await walk.create()
    for name in ("a", "b", "c"):
        walk.scaler.start(name)
    await walk.until_sized(3, 3, 3)
    await walk.until_placed()
    walk.scaler.idle_ms = 10**9
    idle = walk.scaler.actors["b"].on
    walk.scaler.end("b")
    await walk.tick()
    owed = raycluster("owed", "text", replicas=1, minReplicas=1, maxReplicas=1)
    owed["spec"]["enableInTreeAutoscaling"] = False
    await walk.kube.create(owed)

    async def given() -> bool:
        await walk.tick()
        found = await walk.kube.get(RAY, "RayCluster", "owed", "text")
        return found["spec"].get("suspend") is False

    await walk.cluster.until(given, 90.0, "the queue that is owed a core to get it", every_s=0.3)
    left = {pod["metadata"]["name"] for pod in await walk.pods()}
    assert left == {walk.scaler.actors[name].on for name in ("a", "c")} and idle not in left
    assert (await walk.sizes())[1:] == (2, 2)
    [order] = await walk.told(EvictionOrdered)
    assert not order.victims and order.partial[0].taken == {"small": 1}
    [chosen] = await walk.told(WorkersChosen)
    assert [(each.ref.name, each.idle) for each in chosen.workers] == [(idle, True)]


@pytest.mark.parametrize("version", ["v2", "v1"])
async def test_a_head_that_ends_is_replaced_or_started_again_in_its_pod(walk: Walk, version: str) -> None:
    """A head of the second version is replaced, another is restarted in place: either way the workers stay."""
    made = raycluster(NAME, NAMESPACE)
    made["spec"]["autoscalerOptions"] = {"version": version}
    await walk.kube.create(made)
    await walk.cluster.until(walk.head_runs, 60.0, "the head to run")
    walk.scaler.idle_ms = 10**9
    for name in ("a", "b"):
        walk.scaler.start(name)
    await walk.until_sized(2, 2, 2)
    await walk.until_placed()
    kept, charged = {pod["metadata"]["uid"] for pod in await walk.pods()}, walk.charged()
    [old] = await walk.pods("head")
    assert old["spec"]["restartPolicy"] == {"v2": "Never", "v1": "Always"}[version]
    name = old["metadata"]["name"]
    containers = [{**each, "restartCount": 1} for each in old["status"].get("containerStatuses", ())]
    status = {"phase": "Failed"} if version == "v2" else {"containerStatuses": containers}
    await walk.kube.patch("v1", "Pod", name, NAMESPACE, patch={"status": status}, subresource="status")
    walk.scaler.session, walk.scaler.actors = "another", {}
    for name in ("c", "d"):
        walk.scaler.start(name)

    async def another() -> bool:
        heads = await walk.pods("head")
        runs = [head["status"]["phase"] == "Running" for head in heads] == [True]
        return runs and (heads[0]["metadata"]["uid"] == old["metadata"]["uid"]) is (version == "v1")

    await walk.cluster.until(another, 60.0, "the head to run again")
    await walk.until_placed()
    await walk.until_sized(2, 2, 2)
    assert {pod["metadata"]["uid"] for pod in await walk.pods()} == kept
    assert walk.charged() == charged
    assert await walk.told(AlarmRaised) == await walk.told(WorkersChosen) == []
