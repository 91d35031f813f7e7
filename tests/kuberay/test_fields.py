"""The edits of `kit.rayfields` on the real KubeRay: what it does about each is what the table of the page says.

Each kind and state has a namespace of its own. The policies are taken away before the edits, as the page has it.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from kit.cluster import RAY, TREES
from kit.controlplane import ControlPlane
from kit.elastic import tree
from kit.installation import figure
from kit.kubeclient import ApiError
from kit.muster import Muster, running
from kit.rayfieldsplayed import STATES, Row, clusters_of, cpu, decided, done, edit_of, made, pods_of, rows
from kit.realkuberay.cluster import ROOMS, RealKubeRay
from kit.realkuberay.dashboards import JOB_S, Dashboards
from kit.realkuberay.sources import Release
from muster.bus.server import EmbeddedServer
from muster.runtime.runners.leader import Leader

pytestmark = [pytest.mark.timeout(1200), pytest.mark.asyncio(loop_scope="session")]

Object = dict[str, Any]
BINDING = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/muster-jobs"
SCENES = tuple((kind, state) for kind, states in STATES.items() for state in states)
OVER = "over-"
"""Names of RayJobs that end at once begin so."""
LOOKED_S = 60.0
DIFFERS: dict[str, str] = {}
"""{row: what KubeRay does on a real cluster, where the simulated one cannot show it}"""


class Scene:
    """One kind in one state: an object for each row."""

    def __init__(self, cluster: RealKubeRay, muster: Muster, kind: str, state: str) -> None:
        self.cluster, self.muster, self.kind, self.state = cluster, muster, kind, state
        self.namespace = ROOMS[SCENES.index((kind, state))]
        wanted = [row for row in rows() if (row.kind, row.state) == (kind, state)]
        known = [row for row in wanted if _has(cluster.release, row)]
        prefix = OVER if state == "over" else "f-"
        self.rows: dict[str, Row] = {f"{prefix}{number}": row for number, row in enumerate(known)}
        self.before: dict[str, tuple[list[Object], set[str]]] = {}
        self.refused: list[str] = []

    async def create(self) -> None:
        for name in self.rows:
            body = made(self.kind, name, over=False, namespace=self.namespace)
            if self.kind == "RayService":
                body["spec"] |= {"serveConfigV2": "applications:\n- {name: app, import_path: a.b}\n",
                                 "rayClusterDeletionDelaySeconds": 2}  # fmt: skip
            await self.cluster.kube.create(body)

    async def listed(self, kind: str) -> list[Object]:
        version = "v1" if kind == "Pod" else RAY
        return list(await self.cluster.kube.list_objects(version, kind, self.namespace))

    async def ready(self) -> bool:
        objects = {body["metadata"]["name"]: body for body in await self.listed(self.kind)}
        self.waits = [name for name in self.rows if not self._settled(objects[name])]
        return not self.waits

    def _settled(self, body: Object) -> bool:
        status = body.get("status") or {}
        if self.state == "waits":
            return bool(body["metadata"].get("uid"))
        if self.kind == "RayJob":
            return status.get("jobDeploymentStatus") == ("Complete" if self.state == "over" else "Running")
        if self.kind == "RayCluster":
            return status.get("state") == "ready" and status.get("readyWorkerReplicas") == 2
        return bool((status.get("activeServiceStatus") or {}).get("rayClusterName"))

    async def edit(self) -> None:
        clusters, pods = await self.listed("RayCluster"), await self.listed("Pod")
        for name, row in self.rows.items():
            names = clusters_of(clusters, name)
            self.before[name] = (pods_of(pods, names), names)
            try:
                await self.cluster.kube.patch(RAY, self.kind, name, self.namespace, patch=[edit_of(row.field)])
            except ApiError as err:
                self.refused.append(f"{row.name}: {str(err)[:200]}")

    async def differs(self, told: dict[str, list[str]], charges: dict[str, int]) -> list[str]:
        """Where the real one does something else than the row says, or something that runs is not charged."""
        objects = {body["metadata"]["name"]: body for body in await self.listed(self.kind)}
        clusters, pods, found = await self.listed("RayCluster"), await self.listed("Pod"), list[str]()
        for name, row in self.rows.items():
            if any(text.startswith(row.name) for text in self.refused):
                continue
            body, names = objects[name], clusters_of(clusters, name)
            after, uid = pods_of(pods, names), body["metadata"]["uid"]
            before, old = self.before[name]
            does = done(self.state, body, told.get(uid, ()), before, after, old, names)
            if does != DIFFERS.get(row.name, row.does):
                found.append(f"{row.name}: {does}, not: {row.does}")
            if charges.get(uid, 0) < sum(map(cpu, after)):
                found.append(f"{row.name}: runs with {sum(map(cpu, after))}, charged {charges.get(uid, 0)}")
        return found


def _has(release: Release, row: Row) -> bool:
    """Whether the definition of the kind in that release has the field."""
    [body] = [each for each in release.definitions() if each["spec"]["names"]["kind"] == row.kind]
    if row.kind == "RayService" and not release.suspends_services():
        return False
    [version] = [each for each in body["spec"]["versions"] if each["name"] == "v1"]
    schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    for step in row.field.path.replace("[0]", "").split("."):
        schema = schema.get("items", schema).get("properties", {}).get(step)
        if schema is None:
            return False
    return True


def quota(waiting: str) -> Object:
    named = [(namespace, waiting if state == "waits" else "1000", waiting if state == "waits" else "1000")
             for namespace, (_, state) in zip(ROOMS, SCENES, strict=True)]  # fmt: skip
    return tree(*named, profile="ack", total="10000")


async def test_each_edit_comes_to_what_the_table_says(
    plane: ControlPlane, release: Release, nats_server: EmbeddedServer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    dashboards = Dashboards(lambda job: JOB_S if job.startswith(OVER) else 1e6)
    async with RealKubeRay(plane, release, dashboards) as cluster:
        await cluster.kube.create(quota("0"))
        async with running(cluster, nats_server.url, tmp_path, prove=False) as muster:
            scenes = [Scene(cluster, muster, kind, state) for kind, state in SCENES]
            await asyncio.gather(*(scene.create() for scene in scenes))
            for scene in scenes:
                try:
                    await cluster.until(scene.ready, 180.0, every_s=1.0, what=f"{scene.kind}s that {scene.state}")
                finally:
                    print(scene.kind, scene.state, "not ready:", scene.waits)
            binding = await cluster.kube.request("GET", BINDING)
            await cluster.kube.request("DELETE", BINDING)
            began = len(await muster.commits())
            try:
                await asyncio.gather(*(scene.edit() for scene in scenes))
                await _pass(cluster, 5.0)
                roomy = {"spec": quota("1000")["spec"]}
                await cluster.kube.patch(TREES, "ElasticQuotaTree", "tree", "kube-system", patch=roomy)
                await _pass(cluster, LOOKED_S)
            finally:
                binding["metadata"] = {key: binding["metadata"][key] for key in ("name", "labels")}
                await cluster.kube.create(binding)
            told, found = decided((await muster.commits())[began:]), list[str]()
            leader = next(each for each in muster.process.runners
                          if isinstance(each, Leader) and each.stage.name == "quota_accountant")  # fmt: skip
            charges = {uid: charge.request.get("cpu", 0) for uid, charge in leader.state.ledger.charges.items()}
            for scene in scenes:
                found += await scene.differs(told, charges)
            played = sum(len(scene.rows) for scene in scenes)
            refused = [text for scene in scenes for text in scene.refused]
            figure(request, f"fields, KubeRay {release.version}",
                   f"{played} of {len(rows())} rows played, {len(refused)} refused by the definitions, "
                   f"{len(found)} differ")  # fmt: skip
    print(json.dumps({"differ": found, "refused": refused}, indent=1))
    assert not found


async def _pass(cluster: RealKubeRay, seconds: float) -> None:
    until = time.monotonic() + seconds
    await cluster.until(lambda: time.monotonic() > until, seconds + 60.0, what="time to pass")
