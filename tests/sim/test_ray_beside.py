"""Ray beside the queue: the gang label, groups that grow while an upgrade waits, a head that restarts, many hosts."""

from __future__ import annotations

from typing import Any

import pytest

from kit import jobs
from kit.elastic import CORE, HEAD_CPU, ElasticPlay, raycluster, template, tree
from kit.rayscaler import RayScaler
from kit.story import rayjob
from muster.core.autoscaling.bridgestate import heads, news
from muster.events.decisions import GangAdmitted, GangDeferred, SuspensionOrdered
from muster.events.elastic import GrowthDenied, GrowthGranted, GrowthWithdrawn, WorkersChosen
from muster.events.system import PlacementChosen
from muster.model import api
from muster.model.elastic import PENDING
from muster.model.raydemand import RayDemand, RayShape
from muster.model.workload import SCHEDULERS

JSON_PATCH = "application/json-patch+json"
LABEL = {"ray.io/scheduler-name": "kube-scheduler"}


@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_a_job_with_the_gang_label_starts_as_a_whole_or_not_at_all(where: str) -> None:
    """Two nodes with four places: one job of three pods fits, and not two."""
    nodes = {f"node-{index}": {"cpu": "8", "memory": "64Gi"} for index in range(2)}
    play = ElasticPlay(("ns", "100", "100"), nodes=nodes, placement=PlacementChosen(mode="pack"))
    for name in ("first", "second"):
        body = rayjob(name, "ns", runtime="30s", submissionMode="HTTPMode")
        body["metadata"][where] = {**body["metadata"].get(where, {}), **LABEL}
        play.create_raw(body)
    most = 0
    for _ in range(120):
        play.cell.advance(1_000)
        pods = play.pods("first") + play.pods("second") + play.pods("first", "head") + play.pods("second", "head")
        most = max(most, len(pods))
        assert all(pod["spec"]["schedulerName"] == SCHEDULERS[0] for pod in pods)
    assert most == 3 and play.told(GangDeferred)
    assert [event.ref.name for event in play.told(GangAdmitted)] == ["first", "second"]
    play.clean()


class Upgrading(ElasticPlay):
    """A RayService whose two worker groups scale themselves: three workers of one core, none of two cores."""

    def __init__(self, most: int) -> None:
        super().__init__(("ns", str(most), str(most)), kinds=("RayService", "RayCluster", "Job"))
        body = jobs.rayservice("s", "ns")
        groups = [
            {"groupName": name, "replicas": count, "minReplicas": count, "maxReplicas": 6, "template": template(cpu)}
            for name, count, cpu in (("small", 3, "1"), ("large", 0, "2"))
        ]
        body["spec"]["rayClusterConfig"] |= {"enableInTreeAutoscaling": True, "workerGroupSpecs": groups}
        self.call("POST", api.RAYSERVICES, "ns", body=body)
        self.cell.advance(20_000)
        [cluster] = self.clusters()
        self.serving = cluster["metadata"]["name"]

    def upgrade(self) -> None:
        path = "/spec/rayClusterConfig/headGroupSpec/template/spec/containers/0/image"
        body: list[Any] = [{"op": "replace", "path": path, "value": "ray:new"}]
        self.call("PATCH", api.RAYSERVICES, "ns", "s", body, JSON_PATCH)

    def wants(self, *cores: int) -> None:
        """The head says that a task of so many cores waits for each; its autoscaler goes as far as it may."""
        shapes = tuple(RayShape({"CPU": count * 10_000}) for count in cores)
        pinned = tuple(pod["metadata"]["name"] for pod in self.pods(self.serving))
        demand = RayDemand(session="session", version="v2", pending=shapes, joined={"small": 3}, pinned=pinned)
        state = self.cell.seats["autoscaler_bridge"].state
        for ref, attempt in heads(state):
            fact = news(state, ref, attempt, demand, self.cluster.clock.now())
            if fact is not None:
                self.cell.append("autoscaler_bridge", "input", [fact])
        self.cell.settle()
        self.cell.advance(5_000)
        for index, group in enumerate(self.raycluster(self.serving)["spec"]["workerGroupSpecs"]):
            path = f"/spec/workerGroupSpecs/{index}/replicas"
            self.edit([{"op": "replace", "path": path, "value": group["maxReplicas"]}], self.serving)
        self.cell.advance(5_000)

    def workers(self, group: str) -> int:
        return sum(pod["metadata"]["labels"]["ray.io/group"] == group for pod in self.pods(self.serving))


def test_several_groups_grow_while_an_upgrade_waits_and_the_upgrade_starts_with_room() -> None:
    """The upgrade asks for 4.5 cores of 3.5; a worker of each group has room."""
    play = Upgrading(8)
    play.upgrade()
    play.cell.advance(20_000)
    assert any(PENDING in refusal.groups for event in play.told(GrowthDenied) for refusal in event.refusals)
    play.wants(1, 2)
    assert (play.workers("small"), play.workers("large")) == (4, 1)
    assert not any(PENDING in event.added for event in play.told(GrowthGranted))
    play.wants()
    body = play.call("GET", api.QUOTA_TREES, "kube-system", "tree")
    body["spec"] = tree(("ns", "20", "20"))["spec"]
    play.call("PUT", api.QUOTA_TREES, "kube-system", "tree", body)
    for _ in range(180):
        play.cell.advance(1_000)
        assert play.cpu("s") <= 20 * CORE
    assert any(PENDING in event.added for event in play.told(GrowthGranted))
    assert [cluster["metadata"]["name"] == play.serving for cluster in play.clusters()] == [False]
    assert play.cpu("s") == 4 * CORE + HEAD_CPU and not play.told(SuspensionOrdered)
    play.clean()


def fault_tolerant() -> tuple[ElasticPlay, RayScaler, set[str]]:
    """A cluster with GCS fault tolerance and three actors, each on a worker; the uids of the workers."""
    play = ElasticPlay()
    body = raycluster()
    body["spec"]["gcsFaultToleranceOptions"] = {"redisAddress": "redis:6379"}
    scaler = play.create(body)
    for number in range(3):
        scaler.start(f"actor-{number}")
    play.tick(5)
    workers = {pod["metadata"]["uid"] for pod in play.pods()}
    assert len(workers) == 3 and play.cpu() == HEAD_CPU + 3 * CORE
    return play, scaler, workers


def test_a_head_that_restarts_with_gcs_fault_tolerance_gives_nothing_back() -> None:
    play, scaler, workers = fault_tolerant()
    before = play.cpu()
    decided = len(play.told(GrowthGranted))
    for _ in range(3):
        [head] = play.pods(node_type="head")
        play.call("DELETE", api.PODS, "ns", head["metadata"]["name"])
        scaler.session = f"after {head['metadata']['uid']}"
        for _ in range(6):
            play.tick()
            assert play.cpu() == before
    assert {pod["metadata"]["uid"] for pod in play.pods()} == workers
    assert not play.told(GrowthWithdrawn, WorkersChosen, SuspensionOrdered)
    assert len(play.told(GrowthGranted)) == decided
    play.clean()


def test_a_slice_of_hosts_is_granted_charged_and_lost_as_one() -> None:
    """As a TPU slice: four hosts for each replica; the quota has room for a slice and a half."""
    play = ElasticPlay(("ns", "6500m", "6500m"))
    scaler = play.create(raycluster(numOfHosts=4))
    for number in range(8):
        scaler.start(f"actor-{number}")
    sizes = set[int]()
    for _ in range(10):
        play.tick()
        sizes.add(len(play.pods()))
        assert (play.cpu() - HEAD_CPU) % (4 * CORE) == 0
    assert sizes <= {0, 4} and len(play.pods()) == 4 and play.told(GrowthDenied)
    lost = play.pods()[0]
    names = {pod["metadata"]["name"] for pod in play.pods()}
    play.call("DELETE", api.PODS, "ns", lost["metadata"]["name"])
    for _ in range(10):
        play.tick()
        assert play.cpu() == HEAD_CPU + 4 * CORE, "a slice that is made again is charged as one slice"
    assert len(play.pods()) == 4 and not names & {pod["metadata"]["name"] for pod in play.pods()}
    play.clean()


def test_a_slice_of_hosts_finds_all_of_its_nodes_or_none() -> None:
    """Three nodes for four hosts: the job waits, and no pod of it holds a node."""
    nodes = {f"node-{index}": {"cpu": "2", "memory": "64Gi", "google.com/tpu": "4"} for index in range(3)}
    play = ElasticPlay(("ns", "100", "100"), nodes=nodes, placement=PlacementChosen(mode="pack"))
    body = raycluster("slice", replicas=1, minReplicas=1, maxReplicas=1, numOfHosts=4)
    body["spec"]["enableInTreeAutoscaling"] = False
    container = body["spec"]["workerGroupSpecs"][0]["template"]["spec"]["containers"][0]
    for part in ("requests", "limits"):
        container["resources"][part]["google.com/tpu"] = "4"
    play.create_raw(body)
    play.cell.advance(30_000)
    assert not play.pods("slice") and play.told(GangDeferred) and not play.told(GangAdmitted)
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "node-3"},
        "status": play.call("GET", api.NODES, "", "node-0")["status"],
    }
    play.call("POST", api.NODES, body=node)
    play.cell.advance(60_000)
    assert len({pod["spec"]["nodeName"] for pod in play.pods("slice")}) == 4
    play.clean()
