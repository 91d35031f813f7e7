"""The cluster's clock while it lives in an event loop: what is written between its steps has the right time."""

import asyncio

import pytest

from muster.fakecluster.apiserver.names import moment
from muster.fakecluster.world import BEGINNING_MS, SimCluster
from muster.model.api import NAMESPACES

pytestmark = pytest.mark.looptime


async def test_an_idle_cluster_stamps_what_clients_write_with_the_time_it_is() -> None:
    cluster = SimCluster({})
    task = asyncio.ensure_future(cluster.run(speed=2))
    await asyncio.sleep(30)
    found = cluster.server.objects.create(NAMESPACES, "", {"metadata": {"name": "late"}})
    assert moment(found["metadata"]["creationTimestamp"]) == BEGINNING_MS + 60_000
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    stopped = cluster.clock.now()
    await asyncio.sleep(30)
    assert cluster.clock.now() == stopped
