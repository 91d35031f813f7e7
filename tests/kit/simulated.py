"""A living simulated cluster behind a real HTTP server, for whoever talks to it from another process."""

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from kit.beside import beside
from muster.fakecluster.apiserver.http import HttpApiServer
from muster.fakecluster.world import SimCluster
from muster.model.api import ApiResource

NODES = {f"node-{number}": {"cpu": "16", "memory": "64Gi"} for number in (1, 2)}


@contextlib.asynccontextmanager
async def cluster(folder: Path) -> AsyncIterator[tuple[SimCluster, Path]]:
    """A living simulated cluster, and the kubeconfig for it."""
    simulated = SimCluster(NODES)
    async with served(simulated, folder) as path:
        yield simulated, path


@contextlib.asynccontextmanager
async def served(
    simulated: SimCluster, folder: Path, context: str = "muster", *, speed: float = 1.0
) -> AsyncIterator[Path]:
    """Let a cluster live and be reached; gives the kubeconfig for it."""
    http = HttpApiServer(simulated.server)
    await http.start()
    try:
        async with beside(simulated.run(speed=speed)):
            path = folder / "kubeconfig"
            http.write_kubeconfig(path, context)
            yield path
    finally:
        await http.stop()


async def create(simulated: SimCluster, resource: ApiResource, body: dict[str, Any]) -> dict[str, Any]:
    """As kubectl does."""
    path = resource.path(body["metadata"].get("namespace", ""))
    answer = await simulated.transport().request("POST", path, body=json.dumps(body).encode())
    assert answer.ok, answer.body
    created: dict[str, Any] = json.loads(answer.body)
    return created
