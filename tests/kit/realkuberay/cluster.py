"""A real cluster with everything of deploy/ on it, and the real KubeRay operator instead of the simulated one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from kit import jobs
from kit.beside import beside
from kit.cluster import RUN_FOR, Cluster, takes_pods
from kit.controlplane import ControlPlane, User
from kit.controlplane.plane import KWOK
from kit.controlplane.process import Component, free_port
from kit.controlplane.settings import LOOPBACK
from kit.guarded import ALICE, bind, client, guarded
from kit.installation import KUBERAY
from kit.kubeclient import ApiError, KubeClient
from kit.realkuberay.dashboards import Dashboards
from kit.realkuberay.sources import Release
from kit.waiting import until

Object = dict[str, Any]

OPERATOR = User(KUBERAY.name)
"""KubeRay's own account, with the rights of KubeRay's own role."""
ADDRESSES = "198.18.0.0/15"
"""Of pods: an EndpointSlice may have no loopback address. Nothing leads there, see kit.realray.network."""
GATES = {"1.6.2": ("RayServiceIncrementalUpgrade", "RayCronJob"),
         "1.7.0": ("RayServiceIncrementalUpgrade", "RayCronJob", "RayClusterHistoryServer")}  # fmt: skip
BIG = {"cpu": "512", "memory": "8Ti", "pods": "500", "nvidia.com/gpu": "64", "google.com/tpu": "64"}
ROOMS = tuple(f"room-{number}" for number in range(7))
"""Managed namespaces in which Alice works."""
CRDS, RBAC, GATEWAY = "apiextensions.k8s.io/v1", "rbac.authorization.k8s.io", "gateway.networking.k8s.io/v1"
OURS = (f"/apis/{GATEWAY}/gateways", f"/apis/{GATEWAY}/httproutes", "/apis/ray.io/v1/raycronjobs")
BESIDE = ("services", "persistentvolumeclaims", "secrets", "configmaps")
"""What samples bring along."""


@contextlib.asynccontextmanager
async def real_plane(release: Release) -> AsyncIterator[ControlPlane]:
    """A control plane with the definitions of that release, policies, tenants, and nodes with room for all samples."""

    async with guarded(works=True, kuberay=OPERATOR, arguments={KWOK: [f"--cidr={ADDRESSES}"]}) as plane:
        async with KubeClient(plane.url, token=plane.admin.token, ca_file=plane.ca_file) as kube:
            for body in release.definitions():
                await kube.put(body)
            role = release.role()
            await kube.apply(role)
            subject = {"apiGroup": RBAC, "kind": "User", "name": OPERATOR.name}
            named = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role["metadata"]["name"]}
            bound = {"kind": "ClusterRoleBinding", "metadata": {"name": "real-kuberay"}, "roleRef": named}
            await kube.create({"apiVersion": f"{RBAC}/v1", **bound, "subjects": [subject]})
            for index in range(4):
                node = {"metadata": {"name": f"big-{index}"}, "status": {"capacity": BIG, "allocatable": BIG}}
                await kube.create({"apiVersion": "v1", "kind": "Node", **node})
                await until(lambda index=index: takes_pods(kube, f"big-{index}"), 60.0, what="the nodes to be ready")
            for name in ROOMS:
                meta = {"name": name, "labels": {"muster.dev/managed": "true"}}
                await kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
                await bind(kube, name, "editor", ALICE)
        async with client(plane, ALICE) as alice:
            await until(lambda: _knows_services(alice, release), 60.0, what="policies to know the definitions")
        yield plane


async def _knows_services(alice: KubeClient, release: Release) -> bool:
    """The server reads new definitions a moment later."""
    probe = jobs.rayservice("probe", ROOMS[0])
    probe["spec"].pop("suspend")
    try:
        made = await alice.create(probe)
    except ApiError as err:
        return not release.suspends_services() and err.status == 403
    await alice.delete("ray.io/v1", "RayService", "probe", ROOMS[0])
    return release.suspends_services() and bool(made["spec"].get("suspend"))


class RealKubeRay(Cluster):
    """`async with RealKubeRay(plane, release)`: the operator runs, Ray's dashboards are stood in for."""

    SWEPT_S = 240.0

    def __init__(self, plane: ControlPlane, release: Release, dashboards: Dashboards | None = None) -> None:
        super().__init__(plane, pods=True, remains=OURS)
        self.release = release
        self.dashboards = dashboards or Dashboards()
        self.log: Path = plane.folder / "logs" / f"kuberay-{release.version}.log"

    async def __aenter__(self) -> RealKubeRay:
        await self.dashboards.start()
        self._stack.push_async_callback(self.dashboards.stop)
        await super().__aenter__()
        self.keep(self._submitters())
        self.keep(self._gateways())
        return self

    async def _run_kuberay(self) -> None:
        health = f"{LOOPBACK}:{free_port()}"
        gates = ",".join(f"{gate}=true" for gate in GATES[self.release.version])
        component = Component(
            name="kuberay-operator",
            command=[
                str(self.release.operator), "--reconcile-concurrency=4", "--qps=500", "--burst=1000",
                "--enable-leader-election=false", f"--feature-gates={gates}",
                f"--metrics-addr={LOOPBACK}:{free_port()}", f"--health-probe-bind-address={health}",
            ],
            ready_url=f"http://{health}/readyz",
            log=self.log,
            environment={
                "KUBECONFIG": str(self.plane.kubeconfig_for(OPERATOR)),
                "HTTP_PROXY": self.dashboards.url,
            },
        )  # fmt: skip
        component.start()
        self._kuberay.push_async_callback(component.kill)
        await component.wait_ready(60.0)

    async def sweep(self) -> None:
        for plural in BESIDE:
            await self.kube.request("DELETE", f"/api/v1/namespaces/video/{plural}")
        async with beside(self._let_go()):
            try:
                await super().sweep()
            except AssertionError as err:
                raise AssertionError(f"left: {await self._left()}") from err

    async def _left(self) -> list[str]:
        listed = [await self.kube.request("GET", path) for path in self._remains if not path.endswith("/events")]
        metas = [(found.get("kind", ""), item["metadata"]) for found in listed for item in found["items"]]
        return [f"{kind} {meta['name']} {meta.get('finalizers')} {meta.get('deletionTimestamp')}"
                for kind, meta in metas]  # fmt: skip

    async def _let_go(self) -> None:
        """There is no Redis to clean up, and no operator of an object that another one manages."""
        while True:
            with contextlib.suppress(ApiError, aiohttp.ClientError):
                for kind in ("RayJob", "RayService", "RayCluster"):
                    for body in await self.kube.list_objects("ray.io/v1", kind):
                        meta = body["metadata"]
                        if meta.get("deletionTimestamp") and meta.get("finalizers"):
                            patch = {"metadata": {"finalizers": None}}
                            await self.kube.patch("ray.io/v1", kind, meta["name"], meta["namespace"], patch=patch)
            await asyncio.sleep(0.5)

    async def _submitters(self) -> None:
        """What submits a job ends after the job, as Ray's does."""
        while True:
            with contextlib.suppress(ApiError, aiohttp.ClientError):
                for pod in await self.kube.list_objects("v1", "Pod", labels="batch.kubernetes.io/job-name"):
                    meta = pod["metadata"]
                    waits = pod["status"]["phase"] == "Running" and RUN_FOR not in (meta.get("annotations") or {})
                    if waits and self.dashboards.ended(str(pod["spec"]["containers"])):
                        patch = {"metadata": {"annotations": {RUN_FOR: "1s"}}}
                        await self.kube.patch("v1", "Pod", meta["name"], meta["namespace"], patch=patch)
            await asyncio.sleep(1.0)

    async def _gateways(self) -> None:
        """Each Gateway and each HTTPRoute is taken by its controller."""
        while True:
            with contextlib.suppress(ApiError, aiohttp.ClientError):
                for kind, types in (("Gateway", ("Accepted", "Programmed")), ("HTTPRoute", ())):
                    for body in await self.kube.list_objects(GATEWAY, kind):
                        await self._takes(kind, body, types)
            await asyncio.sleep(1.0)

    async def _takes(self, kind: str, body: Object, types: tuple[str, ...]) -> None:
        meta, status = body["metadata"], body.get("status") or {}
        if kind == "Gateway":
            known = {each["type"]: each["status"] for each in status.get("conditions", ())}
            if all(known.get(name) == "True" for name in types):
                return
            patch: Object = {"conditions": [_condition(name, meta) for name in types]}
        else:
            if status.get("parents"):
                return
            conditions = [_condition(name, meta) for name in ("Accepted", "ResolvedRefs")]
            patch = {"parents": [{"parentRef": {"name": parent["name"], "namespace": meta["namespace"]},
                                  "controllerName": "example.com/gateways", "conditions": conditions}
                                 for parent in body["spec"].get("parentRefs") or ()]}  # fmt: skip
        path = f"/apis/{GATEWAY}/namespaces/{meta['namespace']}/{kind.lower()}s/{meta['name']}/status"
        await self.kube.request("PATCH", path, body={"status": patch}, content_type="application/merge-patch+json")


def _condition(name: str, meta: Object) -> Object:
    return {"type": name, "status": "True", "reason": name, "message": "", "observedGeneration": meta["generation"],
            "lastTransitionTime": meta["creationTimestamp"]}  # fmt: skip
