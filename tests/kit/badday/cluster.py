"""The cluster of a bad day: a real API server on etcd with its job controller, as late as one likes; no kubelet."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp.client_exceptions import ClientError

from kit.badday.delayed import LateWatches
from kit.cluster import furnish
from kit.controlplane import ControlPlane, User
from kit.controlplane.plane import APISERVER, CONTROLLER_MANAGER, ETCD
from kit.controlplane.settings import kubeconfig
from kit.deployed import ACCOUNTS, account, account_groups, objects
from kit.kubeclient import KubeClient

Object = dict[str, Any]

OFF = ("node-lifecycle-controller", "taint-eviction-controller", "validatingadmissionpolicy-status-controller")
"""Controllers that would see that nobody keeps the nodes."""
NODES, NODE = 4, {"cpu": "64", "memory": "256Gi", "pods": "500"}
CPU = 32
TEAMS = ("team-a", "team-b", "team-c")
CANARY, GANGS = "canary", "gangs"


def quota(name: str, least: int, most: int, *namespaces: str, children: tuple[Object, ...] = ()) -> Object:
    """A node of the tree, in cpu."""
    node: Object = {"name": name, "min": {"cpu": str(least)}, "max": {"cpu": str(most)}}
    if namespaces:
        node["namespaces"] = [*namespaces]
    if children:
        node["children"] = [*children]
    return node


TREE: Object = {
    "apiVersion": "scheduling.sigs.k8s.io/v1beta1",
    "kind": "ElasticQuotaTree",
    "metadata": {
        "name": "elasticquotatree",
        "namespace": "kube-system",
        "annotations": {"muster.dev/overuse-timeout": "1m"},
    },
    "spec": {
        "root": quota(
            "root",
            CPU,
            CPU,
            children=(
                quota(
                    "research",
                    18,
                    CPU,
                    children=(quota("a", 10, 28, TEAMS[0]), quota("b", 8, 24, TEAMS[1])),
                ),
                quota("product", 8, 20, TEAMS[2]),
                quota("canaries", 2, 2, CANARY),
                quota("gangs", 4, 12, GANGS),
            ),
        )
    },
}


class Cluster:
    """The plane, the line to its controllers, and who is who on it."""

    def __init__(self, plane: ControlPlane, line: LateWatches, users: dict[str, User]) -> None:
        self.plane = plane
        self.line = line
        self.users = users
        self.path = "/apis/batch/v1/namespaces/{}/jobs"

    def kubeconfig(self, service: str) -> Path:
        return self.plane.kubeconfig_for(self.users[service])

    def send(self, component: str, number: signal.Signals) -> None:
        process = self.plane.component(component).process
        assert process is not None
        process.send_signal(number)

    @contextlib.asynccontextmanager
    async def stopped(self, component: str) -> AsyncIterator[None]:
        """SIGSTOP for as long as the block lasts."""
        self.send(component, signal.SIGSTOP)
        try:
            yield
        finally:
            self.send(component, signal.SIGCONT)

    @contextlib.contextmanager
    def slow(self, late_s: float) -> contextlib._GeneratorContextManager[None]:  # type: ignore[misc]
        """The controllers hear of everything so late."""
        self.line.late_s = late_s
        try:
            yield  # type: ignore[misc]
        finally:
            self.line.late_s = 0.0

    async def compact(self) -> None:
        """Have etcd forget everything but the present."""
        url = self.plane.etcd_url
        with contextlib.suppress(ClientError):
            async with aiohttp.ClientSession(raise_for_status=True) as session:
                async with session.post(f"{url}/v3/kv/range", json={"key": "AA=="}) as answer:
                    revision = (await answer.json())["header"]["revision"]
                body = {"revision": revision, "physical": True}
                async with session.post(f"{url}/v3/kv/compaction", json=body) as answer:
                    await answer.read()


@contextlib.asynccontextmanager
async def cluster() -> AsyncIterator[Cluster]:
    """With the definitions and rights of deploy/, nodes, namespaces and the tree on it."""
    users = {name: User(account(name), account_groups()) for name in ACCOUNTS}
    slow: list[str] = []

    async def prepare(plane: ControlPlane) -> None:
        path, authority = plane.folder / "late.kubeconfig", plane.folder / "late.crt"
        line.write_authority(authority)
        user = plane._clients[CONTROLLER_MANAGER]
        kubeconfig(path, url=f"https://127.0.0.1:{line.port}", ca_file=authority, user=user)
        plane._arguments[CONTROLLER_MANAGER] = [*slow, f"--kubeconfig={path}"]
        await furnish(plane)

    plane = ControlPlane(
        users=[*users.values()],
        scheduler=False,
        kwok=False,
        prepare=prepare,
        arguments={CONTROLLER_MANAGER: []},
    )
    slow += [f"--controllers=-{name}" for name in OFF]
    async with LateWatches(lambda: (plane.url, plane.ca_file)) as line, plane:
        async with KubeClient(plane.url, token=plane.admin.token, ca_file=plane.ca_file) as kube:
            for found in objects("rbac"):
                if not found["kind"].startswith("MutatingAdmissionPolicy"):
                    await kube.apply(found)
            for name in (*TEAMS, CANARY, GANGS):
                await kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            for index in range(NODES):
                ready = {"type": "Ready", "status": "True", "reason": "Kubelet", "message": ""}
                status = {"capacity": NODE, "allocatable": NODE, "conditions": [ready]}
                meta = {"name": f"node-{index}"}
                await kube.create({"apiVersion": "v1", "kind": "Node", "metadata": meta, "status": status})
                await kube.patch("v1", "Node", meta["name"], patch={"status": status}, subresource="status")
                taints = {"spec": {"taints": None}}
                await kube.patch("v1", "Node", meta["name"], patch=taints)
            await kube.create(TREE)
        yield Cluster(plane, line, users)


__all__ = ["APISERVER", "CANARY", "CONTROLLER_MANAGER", "ETCD", "GANGS", "TEAMS", "TREE", "Cluster", "cluster"]
