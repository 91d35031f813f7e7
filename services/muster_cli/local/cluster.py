"""The simulated cluster of ``muster up``: three nodes, kept in the home, served to kubectl on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from muster.core.objects.meta import RAY_CLUSTER
from muster.fakecluster.apiserver.http import HttpApiServer
from muster.fakecluster.apiserver.journal import Journal, JournalError
from muster.fakecluster.deviceplugin import DevicePlugin
from muster.fakecluster.forgetting import Forgetting
from muster.fakecluster.kuberay import OperatorSettings
from muster.fakecluster.world import SimCluster, VirtualClock
from muster.model import api
from muster.model.language import say
from muster.model.resources import Vector, add_into, parse_quantity
from muster.ports import ApiTransport, Clock
from muster_cli import samples
from muster_cli.exits import CliError
from muster_cli.local import living
from muster_cli.local.home import Home
from muster_cli.local.stories import DemoStory

NODES: dict[str, dict[str, str]] = {
    f"node-{number}": {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "8"} for number in range(1, 4)
}
RESIZED = "/spec/workerGroupSpecs/0/replicas"
CONTEXT = "muster-demo"
RESOURCES = {
    (resource.api_version, resource.kind): resource
    for resource in (api.QUOTA_TREES, api.KAI_QUEUES, api.CONFIG_MAPS, api.RAYJOBS, api.RAYCLUSTERS)
}
"""(apiVersion, kind) -> what samples may hold"""
HISTORY = 1_000
"""Changes of each kind that a watch may go on from. Each is a whole object."""
MOMENT_S = 1.0
"""Between two jobs, at normal speed."""


class LocalCluster:
    """A running simulated cluster. ``continued``: it went on from an earlier time."""

    def __init__(self, cluster: SimCluster, http: HttpApiServer, story: DemoStory, *, continued: bool) -> None:
        self.http = http
        self.story = story
        self.continued = continued
        self._cluster = cluster

    def transport(self) -> ApiTransport:
        """How the services reach it."""
        return self._cluster.transport()

    async def run(self, clock: Clock, speed: float) -> None:
        """Let it live, until cancelled, from the time the clock shows."""
        self._cluster.clock.set(max(clock.now(), self._cluster.clock.now()))
        await self._cluster.run(speed=speed)

    async def set_up(self) -> None:
        """Create the objects that the story has before the jobs: a quota tree or queues."""
        for name in self.story.first:
            await self._create(name)

    async def submit_jobs(self, speed: float, seed: int) -> None:
        """Create the jobs of the story, a moment apart; for ever, where it lives."""
        for turn in living.turns(seed) if self.story.lives else ():
            await asyncio.sleep(turn.wait_s / speed)
            await (self._create_one(turn.body) if turn.resize < 0 else self._resize(turn.body, turn.resize))
        if self.story.lives:
            return
        for number, name in enumerate(self.story.jobs):
            if number:
                await asyncio.sleep(MOMENT_S / speed)
            await self._create(name)

    async def _create(self, name: str) -> None:
        for body in samples.manifests(name):
            await self._create_one(body)

    async def _create_one(self, body: dict[str, Any]) -> None:
        meta = body["metadata"]
        path = RESOURCES[body["apiVersion"], body["kind"]].path(meta.get("namespace", ""))
        answer = await self.transport().request("POST", path, body=msgspec.json.encode(body))
        if not answer.ok and answer.status != 409:
            words = answer.body[:300].decode(errors="replace")
            raise CliError(
                say(
                    "the simulated cluster refuses {kind} {name}: {words}",
                    kind=body["kind"],
                    name=meta.get("name", ""),
                    words=words,
                )
            )

    async def _resize(self, body: dict[str, Any], workers: int) -> None:
        """Resize as the autoscaler of a Ray cluster writes sizes. A cluster that is gone has no size."""
        meta, patch = body["metadata"], [{"op": "replace", "path": RESIZED, "value": workers}]
        path = f"{RESOURCES[body['apiVersion'], body['kind']].path(meta['namespace'])}/{meta['name']}"
        await self.transport().request(
            "PATCH", path, body=msgspec.json.encode(patch), content_type="application/json-patch+json"
        )

    async def pods_of(self, cluster: str) -> list[dict[str, Any]]:
        """The pods of a Ray cluster, once the cluster has pods and all have a node; the head first, then by name."""
        changed = asyncio.Event()
        stop = self._cluster.server.subscribe(lambda _: changed.set(), api.PODS)
        try:
            while True:
                changed.clear()
                query = {"labelSelector": f"{RAY_CLUSTER}={cluster}"}
                answer = await self.transport().request("GET", api.PODS.path(), query=query)
                pods = msgspec.json.decode(answer.body)["items"]
                if pods and all(pod["spec"].get("nodeName") for pod in pods):
                    return sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))
                await changed.wait()
        finally:
            stop()

    async def jobs(self) -> list[dict[str, Any]]:
        """Every RayJob and RayCluster there is."""
        items: list[dict[str, Any]] = []
        for resource in (api.RAYJOBS, api.RAYCLUSTERS):
            answer = await self.transport().request("GET", resource.path())
            items += msgspec.json.decode(answer.body)["items"]
        return items

    async def capacity(self) -> tuple[int, Vector]:
        """The number of nodes, and the sum of the nodes' amounts."""
        answer = await self.transport().request("GET", api.NODES.path())
        nodes = msgspec.json.decode(answer.body)["items"]
        total: Vector = {}
        for node in nodes:
            amounts = {name: text for name, text in node["status"]["allocatable"].items() if name != "pods"}
            add_into(total, {name: parse_quantity(text, name) for name, text in amounts.items()})
        return len(nodes), total


@contextlib.asynccontextmanager
async def local_cluster(home: Home, clock: Clock, seed: int, story: DemoStory) -> AsyncIterator[LocalCluster]:
    """The cluster of a home, new or continued; the kubeconfig is written in the home. Raises CliError, OSError."""
    try:
        journal = Journal(home.journal)
    except JournalError as err:
        raise CliError(say("cannot go on from {path}: {err}; give another --data", path=home.path, err=err)) from err
    with contextlib.closing(journal):
        virtual = VirtualClock(clock.now())
        cluster = SimCluster(
            living.NODES if story.lives else NODES,
            seed=seed,
            clock=virtual,
            saved=journal.saved,
            identity=secrets.token_hex(4),
            kuberay=OperatorSettings(batch_scheduler="kai-scheduler" if story.kai else ""),
            others=(Forgetting(), *((DevicePlugin(),) if story.kai else ())),
            history=HISTORY,
            suspend_new=story.kai,
        )
        journal.follow(cluster.server)
        http = HttpApiServer(cluster.server)
        await http.start()
        try:
            http.write_kubeconfig(home.kubeconfig, CONTEXT)
            yield LocalCluster(cluster, http, story, continued=journal.saved is not None)
        finally:
            home.kubeconfig.unlink(missing_ok=True)
            await http.stop()
