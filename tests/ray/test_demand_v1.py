"""A head that expects the first autoscaler and wants a token: the same demand, and nothing without the token."""

import time

import pytest

from kit.realray.head import RayHead
from kit.waiting import until
from muster.model.raydemand import RayShape
from muster.ray.dashboard import DashboardClient
from muster.ray.errors import RefusedError
from muster.ray.gcs import GcsClient
from muster.ray.reading import demand_of

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(180)]

TOKEN = "0123456789abcdef0123456789abcdef"
HEAD = {"v2": False, "token": TOKEN, "port": 6479, "http_port": 8365}


@pytest.mark.parametrize("token", ["", "f" * 32], ids=["none", "another"])
async def test_without_its_token_a_head_says_nothing(head: RayHead, token: str) -> None:
    for client in (GcsClient(head.address, token=token), DashboardClient(head.url, token=token)):
        with pytest.raises(RefusedError):
            await client.read()
        with pytest.raises(RefusedError):
            if isinstance(client, DashboardClient):
                await client.read()
            else:
                await client.drain("00" * 28, deadline_ms=1, why="a test")
        await client.close()


async def test_demand_of_the_first_version(head: RayHead) -> None:
    await head.do(
        """
from ray.autoscaler.sdk import request_resources
@ray.remote(num_cpus=2)
class Actor: pass
actors = [Actor.remote() for _ in range(3)]
request_resources(bundles=[{"CPU": 4}, {"CPU": 4}, {"GPU": 1}])
"""
    )

    async def complete() -> bool:
        found = await head.client.read()
        return found.pending == (RayShape({"CPU": 20_000}, 3),) and len(found.explicit) == 2

    await until(complete, 60, every_s=0.2, what="the demand")
    found = demand_of(await head.client.read(), time.time_ns() // 1_000_000)
    assert found.version == "v1"
    assert found.explicit == (RayShape({"CPU": 40_000}, 2), RayShape({"GPU": 10_000}))
    assert (found.launching, found.trouble) == ({}, "")
