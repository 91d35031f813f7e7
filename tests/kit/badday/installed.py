"""Muster as the chart installs it: each pod of a layout a process, with the command, settings, key and probes it ships.

In place of what the chart says stand ports, addresses and paths of files, and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kit.badday.cluster import Cluster
from kit.badday.nats import Keys, Nats, answers
from kit.badday.supervisor import Container, Probe
from kit.chart import rendered
from kit.compose import runnable
from kit.container import IMAGE_ENV
from kit.waiting import until
from muster.bus.server import free_port

Object = dict[str, Any]
LOG_BYTES = 96 << 20
"""A stage may write a fifth of them in ten minutes; watchers have been seen to write five million bytes in seven."""


def manifests(layout: str) -> list[Object]:
    return rendered({"layout": layout})


def pod_of(objects: list[Object], kind: str, name: str) -> Object:
    """The pod that an object makes."""
    [found] = [each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    pod: Object = found["spec"]["template"]["spec"]
    return pod


class Deployment:
    """``replicas`` pods of a process, replaced one by one: a new one is ready before an old one ends."""

    def __init__(self, installed: Installed, manifest: Object) -> None:
        self.name = str(manifest["metadata"]["name"]).removeprefix("muster-")
        self.replicas = int(manifest["spec"].get("replicas", 1))
        self.surge = manifest["spec"]["strategy"]["type"] == "RollingUpdate"
        self.pods: list[Container] = []
        self.env: dict[str, str] = {}
        """More variables of the next pod that is made."""
        self._installed = installed
        self._pod: Object = manifest["spec"]["template"]["spec"]
        self._numbers = itertools.count(1)

    @property
    def decides(self) -> bool:
        return self.name not in ("watcher", "actuator", "publisher", "gateway", "keeper")

    async def start(self) -> None:
        for _ in range(self.replicas):
            await self.add()

    async def add(self, **env: str) -> Container:
        """One more pod."""
        made = self._installed.container(self.name, f"muster-{self.name}-{next(self._numbers)}", self._pod, env)
        self.pods.append(made)
        await made.start()
        return made

    async def remove(self, pod: Container) -> None:
        self.pods.remove(pod)
        await pod.stop()

    async def roll(self, limit_s: float) -> list[str]:
        """`kubectl rollout restart`; the pods that were not ready in time, for which nobody waits any longer."""
        late: list[str] = []
        for old in [*self.pods]:
            if not self.surge:
                await self.remove(old)
            new = await self.add()
            try:
                await until(lambda new=new: new.ready, limit_s, 0.2)  # type: ignore[misc]
            except AssertionError:
                late.append(new.name)
            if self.surge:
                await self.remove(old)
        return late


class Installed:
    """`await start()` brings all of it up; ``shim``: a folder for PYTHONPATH, with settings of its own."""

    def __init__(
        self,
        folder: Path,
        layout: str,
        objects: list[Object],
        cluster: Cluster,
        nats: Nats,
        keys: Keys,
        shim: Mapping[str, str],
    ) -> None:
        self.folder = folder
        self.layout = layout
        self.cluster = cluster
        self.nats = nats
        self.keys = keys
        self.shim = dict(shim)
        self.urls: dict[str, str] = {}
        """{pod: addresses of NATS that it has instead}"""
        self.deployments = {
            made.name: made for made in (Deployment(self, each) for each in objects if each["kind"] == "Deployment")
        }
        self._objects = objects
        (folder / "archive").mkdir()

    async def found(self) -> None:
        """Job muster-log-init."""
        pod = pod_of(self._objects, "Job", "muster-log-init")
        container = self.container("admin", "muster-log-init", pod, {"MUSTER_LOG_MAX_BYTES": str(LOG_BYTES)})
        for _ in range(30):
            await container._launch()
            assert container._process is not None
            if await container._process.wait() == 0:
                return
            await asyncio.sleep(1.0)
        raise AssertionError("\n".join(container.tail(20)))

    async def start(self) -> None:
        await self.found()
        await asyncio.gather(*(each.start() for each in self.deployments.values()))

    async def ready(self, limit_s: float) -> list[Container]:
        """The pods that are not ready after so many seconds; none, as soon as all are."""
        with contextlib.suppress(AssertionError):
            await until(lambda: not self.unready(), limit_s, 0.2)
        return self.unready()

    def unready(self) -> list[Container]:
        for pod in self.pods():
            pod.guard()
        return [pod for pod in self.pods() if not pod.ready]

    def pods(self) -> list[Container]:
        return [pod for each in self.deployments.values() for pod in each.pods]

    async def stop(self) -> None:
        await asyncio.gather(*(pod.stop() for pod in self.pods()), return_exceptions=True)

    def container(self, process: str, name: str, pod: Object, env: Mapping[str, str]) -> Container:
        [spec] = pod["containers"]
        port = free_port()
        said = {each["name"]: each.get("value", name) for each in spec.get("env") or ()}
        own = {
            "MUSTER_NATS_URL": self.urls.get(name) or self.nats.url,
            "MUSTER_NATS_NKEY_FILE": str(self.keys.seed(process)),
            "MUSTER_NATS_CA_FILE": str(self.keys.ca_file),
            "MUSTER_HEALTH_HOST": "127.0.0.1",
            "MUSTER_HEALTH_PORT": str(port),
            "MUSTER_LOG_ARCHIVE": str(self.folder / "archive"),
            "MUSTER_GATEWAY_HOST": "127.0.0.1",
            "MUSTER_GATEWAY_PORT": "0",
        }
        made = {**IMAGE_ENV, **said, **{key: value for key, value in own.items() if key in said}}
        if pod.get("automountServiceAccountToken"):
            account = str(pod["serviceAccountName"]).removeprefix("muster-")
            made["MUSTER_KUBECONFIG"] = str(self.cluster.kubeconfig(account))
        made["MUSTER_HEALTH_HOST"] = "127.0.0.1"
        if process == "gateway":
            made["MUSTER_GATEWAY_PORT"] = "0"
        made |= self.shim | {"MUSTER_PROCESS": name} | dict(env)
        probes = {kind: _probe(spec.get(f"{kind}Probe"), port) for kind in ("startup", "readiness", "liveness")}
        return Container(
            name,
            runnable(spec["command"]),
            made,
            self.folder / f"{name}.log",
            startup=probes["startup"],
            readiness=probes["readiness"],
            liveness=probes["liveness"],
            grace_s=float(pod["terminationGracePeriodSeconds"]),
        )


def _probe(said: Object | None, port: int) -> Probe | None:
    if said is None:
        return None
    return Probe(
        lambda: answers(f"http://127.0.0.1:{port}{said['httpGet']['path']}"),
        period_s=float(said.get("periodSeconds", 10)),
        timeout_s=float(said.get("timeoutSeconds", 1)),
        failures=int(said.get("failureThreshold", 3)),
    )
