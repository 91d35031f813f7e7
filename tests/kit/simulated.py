"""A living simulated cluster behind a real HTTP server, for services that run as processes."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from muster.model.api import ApiResource
from muster.sim.apiserver.http import HttpApiServer
from muster.sim.world import SimCluster

NODES = {f"node-{number}": {"cpu": "16", "memory": "64Gi"} for number in (1, 2)}


@contextlib.asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[tuple[SimCluster, Path]]:
    """A living simulated cluster, and the kubeconfig for it."""
    simulated = SimCluster(NODES)
    http = HttpApiServer(simulated.server)
    await http.start()
    living = asyncio.get_running_loop().create_task(simulated.run())
    path = folder / "kubeconfig"
    http.write_kubeconfig(path)
    try:
        yield simulated, path
    finally:
        living.cancel()
        await asyncio.gather(living, return_exceptions=True)
        await http.stop()


async def create(simulated: SimCluster, resource: ApiResource, body: dict[str, Any]) -> dict[str, Any]:
    """As kubectl does."""
    path = resource.path(body["metadata"].get("namespace", ""))
    answer = await simulated.transport().request("POST", path, body=json.dumps(body).encode())
    assert answer.ok, answer.body
    created: dict[str, Any] = json.loads(answer.body)
    return created
