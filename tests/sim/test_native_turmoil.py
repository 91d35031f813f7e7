"""Random histories of jobs that kube-scheduler places: whatever tenants and machines do, all come to their end.

Tenants delete pods and PodGroups, take marks off them, edit and suspend their jobs; nodes are lost, kube-scheduler dies
between binding and saying so, and every stage is started anew.
"""

from __future__ import annotations

import json
import os
from random import Random
from typing import Any

import pytest

from kit.disorder import Disorder, DisorderedCell
from kit.doubles.nativegangs import DEFINITION, NativeScheduler
from kit.proof import proven
from kit.story import quota_tree, rayjob, template
from muster.core.actuation.patches import GROUPS
from muster.core.objects.kaiqueue import pod_group_name
from muster.core.objects.meta import ATTEMPT, INTENT
from muster.events.decisions import GangAdmitted, SuspensionOrdered
from muster.events.envelope import Stored
from muster.events.system import PlacementChosen
from muster.fakecluster.kubelet import KubeletSettings
from muster.fakecluster.operations import ApiOperation
from muster.fakecluster.world import SimCluster, node
from muster.model import api

SEEDS = range(int(os.environ.get("MUSTER_TEST_HISTORIES", "24")))
SIZES = ({"cpu": "4", "memory": "64Gi"}, {"cpu": "8", "memory": "64Gi"})
FINISHED = ("Complete", "Failed")


class Mortal(NativeScheduler):
    """It may die after it has bound the pods of a gang, and before it has said so."""

    def __init__(self, rng: Random) -> None:
        super().__init__()
        self.rng, self.dies = rng, 0.3

    def _told(self, group: dict[str, Any], status: str, reason: str, message: str, now: int) -> list[ApiOperation]:
        if status == "True" and self.rng.random() < self.dies:
            return []
        return super()._told(group, status, reason, message, now)


def scheduled(group: dict[str, Any]) -> bool:
    return any(each["status"] == "True" for each in (group.get("status") or {}).get("conditions") or ())


class Turmoil:
    """One history; everything is drawn from ``seed``."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(f"native turmoil {seed}")
        nodes = {f"node-{index}": self.rng.choice(SIZES) for index in range(2)}
        self.scheduler = Mortal(Random(f"mortal {seed}"))
        self.cluster = SimCluster(
            nodes,
            seed=seed,
            kubelet=KubeletSettings(start_ms=self.rng.choice((2_000, 30_000))),
            scheduler=False,
            others=[self.scheduler],
            definitions=[DEFINITION],
        )
        disorder = self.rng.choice((None, Disorder(late=0.4, crash=0.03, repeat=0.1, lost_answer=0.3, outage=0.1)))
        placement = PlacementChosen(mode="native", grow_ms=self.rng.choice((0, 20_000)), hold_ms=120_000)
        self.cell = DisorderedCell(self.cluster, seed=seed, disorder=disorder, placement=placement)
        self.nodes, self.jobs, self.switches = len(nodes), 0, self.rng.random() < 0.5
        self.wrong: list[str] = []
        if disorder is None:
            self.cell.on_commit = self._judge
        self.send("POST", api.QUOTA_TREES, "kube-system", body=quota_tree())
        self.cell.advance(1_000)

    def _judge(self, stored: Stored) -> None:
        """No gang is suspended for want of places that has them."""
        for event in stored.commit.events:
            if isinstance(event, SuspensionOrdered) and event.reason == "unschedulable":
                name = pod_group_name(event.ref)
                least = [
                    each["spec"]["schedulingPolicy"]["gang"]["minCount"]
                    for each in self.found(GROUPS)
                    if each["metadata"]["name"] == name
                ]
                bound = [
                    each
                    for each in self.found(api.PODS)
                    if each["spec"].get("nodeName")
                    and each["spec"].get("schedulingGroup", {}).get("podGroupName") == name
                ]
                if least and len(bound) >= least[0]:
                    self.wrong.append(f"{event.ref.key}: {event.problem}")

    def send(
        self,
        method: str,
        resource: api.ApiResource,
        namespace: str,
        name: str = "",
        body: Any = None,
        content_type: str = api.JSON,
    ) -> bool:
        data = json.dumps(body).encode() if body is not None else None
        path = resource.path(namespace, name)
        return self.cluster.server.handle(method, path, body=data, content_type=content_type).ok

    def merge(self, resource: api.ApiResource, found: dict[str, Any], patch: Any) -> None:
        meta = found["metadata"]
        self.send("PATCH", resource, meta.get("namespace", ""), meta["name"], patch, api.MERGE_PATCH)

    def found(self, resource: api.ApiResource) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = json.loads(self.cluster.server.handle("GET", resource.path()).body)["items"]
        return items

    def some(self, resource: api.ApiResource) -> dict[str, Any] | None:
        items = self.found(resource)
        return self.rng.choice(items) if items else None

    @property
    def unfinished(self) -> list[dict[str, Any]]:
        return [
            each
            for each in self.found(api.RAYJOBS)
            if (each.get("status") or {}).get("jobDeploymentStatus") not in FINISHED
        ]

    # --- what tenants and machines do -----------------------------------------------------------------------------

    def submit(self) -> None:
        rng, namespace = self.rng, self.rng.choice(("video", "text"))
        replicas, cpu = rng.randint(1, 3), rng.choice(("2", "3"))
        job = rayjob(
            f"job-{self.jobs}",
            namespace,
            runtime=rng.choice(("30s", "300s")),
            cpu=cpu,
            memory="1G",
            replicas=replicas,
            submissionMode="HTTPMode",
            backoffLimit=50,
        )
        self.jobs += 1
        self.send("POST", api.RAYJOBS, namespace, body=job)

    def pod_deleted(self) -> None:
        pod = self.some(api.PODS)
        if pod is not None:
            self.send("DELETE", api.PODS, pod["metadata"]["namespace"], pod["metadata"]["name"])

    def group_deleted(self) -> None:
        """Of a gang that waits, if there is one."""
        groups = self.found(GROUPS)
        waiting = [each for each in groups if not scheduled(each)]
        if groups:
            group = self.rng.choice(waiting or groups)
            self.send("DELETE", GROUPS, group["metadata"]["namespace"], group["metadata"]["name"])

    def marks_taken_off(self) -> None:
        group = self.some(GROUPS)
        if group is not None:
            taken = self.rng.choice(({ATTEMPT: None}, {INTENT: None}, {ATTEMPT: None, INTENT: None}, {ATTEMPT: "7"}))
            self.merge(GROUPS, group, {"metadata": {"annotations": taken}})

    def suspended(self) -> None:
        jobs = self.unfinished
        if jobs:
            self.merge(api.RAYJOBS, self.rng.choice(jobs), {"spec": {"suspend": True}})

    def edited(self) -> None:
        """A worker group more, or a worker more; only of jobs that wait, as KubeRay has it."""
        jobs = [each for each in self.unfinished if each["spec"].get("suspend")]
        if not jobs:
            return
        job = self.rng.choice(jobs)
        groups = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
        if len(groups) == 1 and self.rng.random() < 0.5:
            groups.append(
                {"replicas": 1, "groupName": "more", "rayStartParams": {}, "template": template("w", "1", "1G")}
            )
        else:
            groups[0]["replicas"] = self.rng.randint(1, 3)
        self.merge(api.RAYJOBS, job, {"spec": {"rayClusterSpec": {"workerGroupSpecs": groups}}})

    def deleted(self) -> None:
        job = self.some(api.RAYJOBS)
        if job is not None and self.rng.random() < 0.3:
            self.send("DELETE", api.RAYJOBS, job["metadata"]["namespace"], job["metadata"]["name"])

    def node_lost(self) -> None:
        nodes = self.found(api.NODES)
        if len(nodes) > 1:
            lost = self.rng.choice(nodes)["metadata"]["name"]
            self.send("DELETE", api.NODES, "", lost)
            for pod in self.found(api.PODS):
                if pod["spec"].get("nodeName") == lost:
                    self.send("DELETE", api.PODS, pod["metadata"]["namespace"], pod["metadata"]["name"])

    def node_comes(self) -> None:
        self.nodes += 1
        made = node(f"node-{self.nodes}", self.rng.choice(SIZES), self.cluster.clock.now())
        self.cluster.server.objects.create(api.NODES, "", made)

    def placed_otherwise(self) -> None:
        mode = self.rng.choice(("native", "native", "pack", "off"))
        self.cell.append("gang_admitter", "input", [PlacementChosen(mode=mode, hold_ms=120_000)])

    def run(self) -> None:
        acts = (
            *(self.submit,) * 4,
            *(self.pod_deleted,) * 2,
            *(self.group_deleted,) * 2,
            self.marks_taken_off,
            self.suspended,
            self.edited,
            self.deleted,
            self.node_lost,
            self.node_comes,
            *((self.placed_otherwise,) if self.switches else ()),
        )
        for _ in range(40):
            self.rng.choice(acts)()
            self.cell.advance(self.rng.choice((0, 200, 1_000, 5_000, 30_000)))

    def begins_anew(self, seed: int) -> None:
        """The log is lost: what runs is adopted by one that knows nothing."""
        placement = PlacementChosen(mode="native", hold_ms=120_000)
        self.cell = DisorderedCell(self.cluster, seed=seed + 1, placement=placement)
        self.wrong, self.cell.on_commit = [], self._judge

    def comes_to_rest(self) -> None:
        """Nobody does anything any more, and there is room for everybody."""
        self.cell.heal()
        self.scheduler.dies = 0.0
        for _ in range(8):
            self.node_comes()
        self.cell.advance(3 * 3_600_000)
        assert [each["metadata"]["name"] for each in self.unfinished] == []

    def decided(self, kind: type) -> list[Any]:
        return [event for stored in self.cell.log for event in stored.commit.events if isinstance(event, kind)]


@pytest.mark.parametrize("seed", SEEDS)
def test_all_come_to_their_end(seed: int) -> None:
    turmoil = Turmoil(seed)
    turmoil.run()
    turmoil.comes_to_rest()
    proven(turmoil.cell.log, but="I11")  # Facts are stored twice on purpose.
    again: dict[str, int] = {}
    for each in turmoil.decided(SuspensionOrdered):
        again[each.ref.uid] = again.get(each.ref.uid, 0) + 1
    assert max(again.values(), default=0) <= 40, "one is suspended over and over"
    assert turmoil.decided(GangAdmitted)
    assert turmoil.wrong == []


@pytest.mark.parametrize("seed", SEEDS)
def test_all_come_to_their_end_after_the_log_was_lost(seed: int) -> None:
    turmoil = Turmoil(seed)
    turmoil.run()
    turmoil.begins_anew(seed)
    turmoil.comes_to_rest()
    proven(turmoil.cell.log, but="I11")
    assert turmoil.wrong == []
