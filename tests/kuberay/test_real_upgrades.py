"""Upgrades of RayServices by the real KubeRay, with room, with room for half a cluster, without, and in steps.

Judged by the API server alone: endpoints of the Services that serve, and requests of the pods that have a node.
KubeRay before 1.7 cannot suspend a RayService, and every RayService is refused at create (test_samples).
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from kit import jobs
from kit.cluster import RAY, TREES
from kit.controlplane import ControlPlane
from kit.elastic import tree
from kit.follow import Follow
from kit.guarded import ALICE, client
from kit.installation import figure
from kit.kubeclient import KubeClient
from kit.muster import running
from kit.realkuberay.cluster import ROOMS, RealKubeRay
from kit.realkuberay.sources import Release
from muster.bus.server import EmbeddedServer
from muster.model.api import PODS, ApiResource

pytestmark = [pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="session")]

Object = dict[str, Any]
SLICES = ApiResource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
WORKERS = 3
"""Of one core each, as the head."""
WHOLE = 1 + WORKERS
OVERUSE_S = 10
STEPS = {"type": "NewClusterWithIncrementalUpgrade",
         "clusterUpgradeOptions": {"gatewayClassName": "any", "stepSizePercent": 50, "intervalSeconds": 1,
                                   "maxSurgePercent": 100}}  # fmt: skip
SCENES = {f"{name}{', in steps' if steps else ''}": (most, steps) for steps in (False, True)
          for name, most in (("room for both", 2 * WHOLE), ("room for half a cluster", WHOLE + WHOLE // 2),
                             ("no room", WHOLE))}  # fmt: skip
"""{scene: (cores of its quota, whether the upgrade goes in steps)}; each has a namespace of its own."""


class Judge:
    """Seconds without an endpoint that serves, and seconds above a max, from the first endpoint on."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.dark_s = self.above_s = 0.0
        self.began = False
        self._pods: dict[str, int] = {}
        self._serving: dict[str, int] = {}
        self._last = time.monotonic()

    def pod(self, change: str, pod: Object) -> None:
        self._pass()
        live = change != "DELETED" and pod["spec"].get("nodeName")
        live = live and pod["status"].get("phase") not in ("Succeeded", "Failed")
        asks = pod["spec"]["containers"][0].get("resources", {}).get("requests", {}).get("cpu", "0")
        self._pods[pod["metadata"]["uid"]] = int(asks) if live else 0

    def endpoints(self, change: str, part: Object) -> None:
        self._pass()
        meta = part["metadata"]
        if meta["labels"].get("kubernetes.io/service-name", "").endswith("-serve-svc"):
            ready = sum(bool((each.get("conditions") or {}).get("ready")) for each in part.get("endpoints") or ())
            self._serving[meta["uid"]] = 0 if change == "DELETED" else ready
            self.began = self.began or bool(ready)

    def _pass(self) -> None:
        now = time.monotonic()
        if self.began:
            self.dark_s += 0 if any(self._serving.values()) else now - self._last
            self.above_s += now - self._last if sum(self._pods.values()) > self.most else 0
        self._last = now


class Scene:
    """One upgrade in a namespace."""

    def __init__(self, cluster: RealKubeRay, alice: KubeClient, namespace: str, most: int, steps: bool) -> None:
        self.cluster, self.alice, self.namespace, self.steps, self.most = cluster, alice, namespace, steps, most
        self.judge = Judge(most)
        self.old = ""

    def service(self) -> Object:
        made = jobs.rayservice("s", self.namespace, replicas=WORKERS)
        made["spec"].pop("suspend", None)
        made["spec"] |= {"serveConfigV2": "applications:\n- {name: app, import_path: a.b}\n",
                         "rayClusterDeletionDelaySeconds": 2}  # fmt: skip
        if self.steps:
            sizes = {"requests": {"cpu": "0"}, "limits": {"cpu": "1"}}
            made["spec"]["upgradeStrategy"] = STEPS
            config = made["spec"]["rayClusterConfig"]
            config |= {"enableInTreeAutoscaling": True, "autoscalerOptions": {"resources": sizes}}
            config["workerGroupSpecs"][0] |= {"minReplicas": WORKERS, "maxReplicas": WORKERS}
        return made

    async def clusters(self) -> list[str]:
        found = await self.cluster.kube.list_objects(RAY, "RayCluster", self.namespace)
        return [each["metadata"]["name"] for each in found]

    async def active(self) -> str:
        status = (await self.cluster.kube.get(RAY, "RayService", "s", self.namespace)).get("status") or {}
        return str((status.get("activeServiceStatus") or {}).get("rayClusterName", ""))

    async def begins(self) -> None:
        follows = [Follow(self.cluster.transport, PODS, self.judge.pod, self.namespace),
                   Follow(self.cluster.transport, SLICES, self.judge.endpoints, self.namespace)]  # fmt: skip
        await self.cluster.follow(*follows)
        await self.alice.create(self.service())

        async def serves() -> bool:
            return self.judge.began and bool(await self.active())

        await self.cluster.until(serves, 120.0, what=f"the first cluster of {self.namespace} to serve")
        [self.old] = await self.clusters()
        image = "/spec/rayClusterConfig/headGroupSpec/template/spec/containers/0/image"
        edit = [{"op": "replace", "path": image, "value": "ray:new"}]
        await self.alice.patch(RAY, "RayService", "s", self.namespace, patch=edit)

        async def second() -> bool:
            return len(await self.clusters()) == 2

        await self.cluster.until(second, 60.0, what=f"the new cluster of {self.namespace}")
        if self.most < 2 * WHOLE:
            await self.cluster.until(self.told, 60.0, what=f"the Event of the waiting upgrade of {self.namespace}")

    async def told(self) -> bool:
        uid = (await self.cluster.kube.get(RAY, "RayService", "s", self.namespace))["metadata"]["uid"]
        return "UpgradeWaits" in {each["reason"] for each in await self.cluster.events(uid)}

    async def upgraded(self) -> bool:
        active = await self.active()
        return active not in ("", self.old) and await self.clusters() == [active]


def quota(mosts: list[int]) -> Object:
    named = [(namespace, str(most), str(most)) for namespace, most in zip(ROOMS, mosts, strict=False)]
    made = tree(*named, profile="ack")
    made["metadata"]["annotations"]["muster.dev/overuse-timeout"] = f"{OVERUSE_S}s"
    return made


@pytest.mark.parametrize("release", ["1.7.0"], indirect=True, scope="session")
async def test_a_cluster_serves_at_every_moment_and_nothing_is_above_max(
    plane: ControlPlane, release: Release, nats_server: EmbeddedServer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with RealKubeRay(plane, release) as cluster, client(plane, ALICE) as alice:
        await cluster.kube.create(quota([most for most, _ in SCENES.values()]))
        async with running(cluster, nats_server.url, tmp_path):
            scenes = [Scene(cluster, alice, namespace, most, steps)
                      for namespace, (most, steps) in zip(ROOMS, SCENES.values(), strict=False)]  # fmt: skip
            try:
                await asyncio.gather(*(scene.begins() for scene in scenes))
                until = time.monotonic() + 2 * OVERUSE_S
                await cluster.until(lambda: time.monotonic() > until, 60.0, what="the overuse timeout to pass")
                for scene in scenes:
                    assert scene.most == 2 * WHOLE or scene.old in await scene.clusters()
                    scene.judge.most = 2 * WHOLE
                roomy = quota([2 * WHOLE for _ in SCENES])["spec"]
                await cluster.kube.patch(TREES, "ElasticQuotaTree", "tree", "kube-system", patch={"spec": roomy})
                for scene in scenes:
                    await cluster.until(scene.upgraded, 120.0, what=f"the upgrade of {scene.namespace}")
            finally:
                for name, scene in zip(SCENES, scenes, strict=True):
                    text = f"{scene.judge.dark_s:.1f} s without an endpoint, {scene.judge.above_s:.1f} s above max"
                    figure(request, f"upgrade, KubeRay {release.version}, {name}", text)
            assert not [scene.namespace for scene in scenes if scene.judge.dark_s or scene.judge.above_s]
