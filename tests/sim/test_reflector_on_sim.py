"""The reflector on the simulated API server, through hours of faults in virtual time."""

import asyncio
import json
import math
from contextlib import aclosing
from random import Random

import pytest

from muster.fakecluster.apiserver import SimApiServer, SimTransport
from muster.fakecluster.apiserver.faults import FaultDraw, FaultRates
from muster.kube.deltas import Delete, ListSynced, Upsert
from muster.kube.reflector import Reflector
from muster.model.api import NODES

RATES = FaultRates(
    lose_request=0.1,
    lose_response=0.1,
    outage=0.05,
    throttle=0.1,
    error=0.1,
    cut_watch=0.05,
    end_watch=0.05,
    expire_watch=0.05,
    repeat_line=0.1,
)
CHANGES = 600


async def change(api: SimTransport, chance: Random) -> None:
    """Create, label or delete one of twenty nodes."""
    name = f"n{chance.randrange(20)}"
    path = NODES.path(name=name)
    if (await api.request("GET", path)).status == 404:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        answer = await api.request("POST", NODES.path(), body=json.dumps(node).encode())
    elif chance.random() < 0.3:
        answer = await api.request("DELETE", path)
    else:
        patch = {"metadata": {"labels": {"turn": str(chance.randrange(1_000_000))}}}
        body = json.dumps(patch).encode()
        answer = await api.request("PATCH", path, body=body, content_type="application/merge-patch+json")
    assert answer.ok, answer


async def sleep(seconds: float) -> None:
    """Sleep for a multiple of 1/64 s: such times are exact both in floats and in looptime's microseconds.

    With others the sum of two times may lie an ulp behind the timer that was set for it, and who waits for it by
    comparing loops for ever, since virtual time does not move by itself.
    """
    await asyncio.sleep(math.ceil(seconds * 64) / 64)


@pytest.mark.looptime
@pytest.mark.parametrize("seed", range(10))
async def test_after_the_faults_the_reflector_holds_what_exists(seed: int) -> None:
    loop = asyncio.get_running_loop()
    server = SimApiServer(lambda: int(loop.time() * 1000), seed=seed, history=50)
    calm, faults = SimTransport(server), FaultDraw(RATES, seed)
    live: dict[str, str] = {}
    lists = 0

    async def follow() -> None:
        nonlocal lists
        reflector = Reflector(SimTransport(server, faults), NODES, page_size=7, rng=Random(seed), sleep=sleep)
        async with aclosing(reflector.deltas()) as deltas:
            async for delta in deltas:
                match delta:
                    case Upsert(meta, _):
                        assert live.get(meta.uid) != meta.resource_version
                        live[meta.uid] = meta.resource_version
                    case Delete(meta, _):
                        del live[meta.uid]
                    case ListSynced(count):
                        assert count == len(live)
                        lists += 1

    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(follow())
        chance = Random(seed)
        for _ in range(CHANGES):
            await change(calm, chance)
            await asyncio.sleep(chance.choice([0.0, 0.0, 0.125, 5.0, 60.0]))
        faults.heal()
        await asyncio.sleep(700.0)  # longer than any back-off, and than a watch may last
        listed = json.loads((await calm.request("GET", NODES.path())).body)["items"]
        assert live == {found["metadata"]["uid"]: found["metadata"]["resourceVersion"] for found in listed}
        assert lists > 1
        following.cancel()
