"""The simulated cluster of ``muster up``: three nodes, kept in the home, served to kubectl on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from muster.model import api
from muster.model.api import CONFIG_MAPS, ApiResource
from muster.model.resources import Vector, add_into, parse_quantity
from muster.ports import ApiTransport, Clock
from muster.sim.apiserver.http import HttpApiServer
from muster.sim.apiserver.journal import Journal, JournalError
from muster.sim.world import SimCluster, VirtualClock
from muster_cli import samples
from muster_cli.exits import CliError
from muster_cli.local.home import Home

NODES: dict[str, dict[str, str]] = {
    f"node-{number}": {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "8"} for number in range(1, 4)
}
CONTEXT = "muster-demo"
MOMENT_S = 1.0
"""Between the two jobs, at normal speed."""


class LocalCluster:
    """A running simulated cluster. ``continued``: it went on from an earlier time."""

    def __init__(self, cluster: SimCluster, http: HttpApiServer, *, continued: bool) -> None:
        self.http = http
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
        """Create the quota tree and the program of the sample jobs."""
        await self._create(api.QUOTA_TREES, samples.QUOTA_TREE)
        await self._create(CONFIG_MAPS, samples.CONFIG_MAP)

    async def submit_jobs(self, speed: float) -> None:
        """Create the two sample jobs, a moment apart."""
        await self._create(api.RAYJOBS, samples.RAYJOB)
        await asyncio.sleep(MOMENT_S / speed)
        await self._create(api.RAYJOBS, samples.RAYJOB)

    async def _create(self, resource: ApiResource, name: str) -> None:
        body = samples.manifest(name)
        path = resource.path(body["metadata"]["namespace"])
        answer = await self.transport().request("POST", path, body=msgspec.json.encode(body))
        if not answer.ok and answer.status != 409:
            raise CliError(f"the simulated cluster refuses sample {name}: {answer.body[:300].decode(errors='replace')}")

    async def jobs(self) -> list[dict[str, Any]]:
        """Every RayJob there is."""
        answer = await self.transport().request("GET", api.RAYJOBS.path())
        found: list[dict[str, Any]] = msgspec.json.decode(answer.body)["items"]
        return found

    async def capacity(self) -> tuple[int, Vector]:
        """How many nodes it has, and what they have together."""
        answer = await self.transport().request("GET", api.NODES.path())
        nodes = msgspec.json.decode(answer.body)["items"]
        total: Vector = {}
        for node in nodes:
            amounts = {name: text for name, text in node["status"]["allocatable"].items() if name != "pods"}
            add_into(total, {name: parse_quantity(text, name) for name, text in amounts.items()})
        return len(nodes), total


@contextlib.asynccontextmanager
async def local_cluster(home: Home, clock: Clock, seed: int) -> AsyncIterator[LocalCluster]:
    """The cluster of a home, new or as it was left; its kubeconfig is written there. Raises CliError, OSError."""
    try:
        journal = Journal(home.journal)
    except JournalError as err:
        raise CliError(f"cannot go on from {home.path}: {err}; give another --data") from err
    with contextlib.closing(journal):
        virtual = VirtualClock(clock.now())
        cluster = SimCluster(NODES, seed=seed, clock=virtual, saved=journal.saved, identity=secrets.token_hex(4))
        journal.follow(cluster.server)
        http = HttpApiServer(cluster.server)
        await http.start()
        try:
            http.write_kubeconfig(home.kubeconfig, CONTEXT)
            yield LocalCluster(cluster, http, continued=journal.saved is not None)
        finally:
            home.kubeconfig.unlink(missing_ok=True)
            await http.stop()
