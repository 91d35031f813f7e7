"""One Muster per cluster: two logs on one simulated API server, in virtual time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest

from kit.shell import NODES, LoopClock
from muster.fakecluster.world import SimCluster
from muster.model import api
from muster.ports import ApiUnreachableError, Earlier, LogIdentity
from muster.runtime.clusterlease import DURATION_S, PATH, RENEW_S, ClusterLease, Fenced

pytestmark = pytest.mark.looptime


class Musters:
    """Logs that want to act on one cluster, and what they are told."""

    def __init__(self) -> None:
        self.cluster = SimCluster(NODES)
        self.told: list[tuple[str, dict[str, str]]] = []

    def lease(self, log: str, *, after: str = "") -> ClusterLease:
        earlier = (Earlier(1, after),) if after else ()
        identity = LogIdentity("main", log, 1 + len(earlier), earlier=earlier)
        transport = self.cluster.transport()
        return ClusterLease(transport, identity, LoopClock(), lambda event, **values: self.told.append((event, values)))

    def writer(self, lease: ClusterLease) -> Fenced:
        return Fenced(self.cluster.transport(), lease)

    async def holder(self) -> str:
        answer = await self.cluster.transport().request("GET", PATH)
        return str(msgspec.json.decode(answer.body)["spec"]["holderIdentity"])


@contextlib.asynccontextmanager
async def kept(lease: ClusterLease) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(lease.run())
    try:
        yield task
    finally:
        task.cancel()


async def write(fenced: Fenced, name: str) -> int:
    body = msgspec.json.encode({"metadata": {"name": name}})
    return (await fenced.request("POST", api.NAMESPACES.path(), body=body)).status


async def test_the_first_one_acts_and_the_second_one_writes_nothing() -> None:
    musters = Musters()
    one, two = musters.lease("one"), musters.lease("two")
    async with kept(one), kept(two):
        assert await write(musters.writer(one), "a") == 201
        for _ in range(20):
            with pytest.raises(ApiUnreachableError, match="held by main/one; stop that one"):
                await write(musters.writer(two), "b")
        assert (await musters.writer(two).request("GET", api.NAMESPACES.path(name="b"))).status == 404
        assert one.missing == ""
        assert two.missing.startswith("another Muster acts on this cluster")
    assert [event for event, values in musters.told if values.get("holder") == "main/two"] == ["cluster_lease_missing"]


async def test_who_leaves_in_good_order_is_followed_at_once() -> None:
    musters = Musters()
    one, two = musters.lease("one"), musters.lease("two")
    async with contextlib.AsyncExitStack() as stack:
        async with kept(one):
            await one.until_held(60)
            await stack.enter_async_context(kept(two))
            await asyncio.sleep(RENEW_S)
        await one.release()
        began = asyncio.get_running_loop().time()
        await two.until_held(60)
        assert asyncio.get_running_loop().time() - began <= RENEW_S
        await one.release()
    assert await musters.holder() == "main/two"


async def test_who_was_killed_is_followed_when_its_lease_is_over_and_writes_no_more() -> None:
    musters = Musters()
    one, two = musters.lease("one"), musters.lease("two")
    async with kept(one) as task:
        await one.until_held(60)
        async with kept(two):
            await asyncio.sleep(2 * RENEW_S)
            task.cancel()
            began = asyncio.get_running_loop().time()
            await two.until_held(60)
            assert DURATION_S - RENEW_S <= asyncio.get_running_loop().time() - began <= DURATION_S + 2 * RENEW_S
            assert not one.held
            with pytest.raises(ApiUnreachableError):
                await write(musters.writer(one), "late")


async def test_replicas_and_generations_of_one_log_share_it() -> None:
    musters = Musters()
    one, replica, rolled = musters.lease("one"), musters.lease("one"), musters.lease("next", after="one")
    async with kept(one), kept(replica):
        await one.until_held(60)
        await replica.until_held(60)
    async with kept(rolled):
        await rolled.until_held(2 * RENEW_S)
    assert await musters.holder() == "main/next"


async def test_an_account_without_the_right_is_told_what_to_apply() -> None:
    musters = Musters()
    musters.cluster.server.denied = frozenset([("get", "coordination.k8s.io", "leases")])
    one = musters.lease("one")
    async with kept(one):
        with pytest.raises(ApiUnreachableError, match=r"may not be read .*apply -k deploy/rbac"):
            await write(musters.writer(one), "a")
