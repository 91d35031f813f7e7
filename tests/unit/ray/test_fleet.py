"""Many heads: one client each, side by side, closed when their cluster is gone."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from kit import rayhead
from kit.rayhead import FakeGcs
from kit.waiting import until
from muster.model.keys import Ref
from muster.model.raydemand import RayDemand
from muster.ray.fleet import Fleet, Heard
from muster.ray.gcs import GcsClient
from muster.ray.heads import Head
from muster.ray.reader import HeadReader
from muster.runtime.clock import SystemClock


def head(number: int, gcs: FakeGcs, attempt: int = 1) -> Head:
    return Head(Ref("rayclusters", "ns", f"c{number}", f"uid-{number}"), attempt, gcs.address)


async def test_changes_of_all_heads_are_told_and_nothing_else() -> None:
    told: list[Heard] = []
    clock = SystemClock()
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        heads = [await stack.enter_async_context(rayhead.fake_gcs()) for _ in range(20)]
        fleet = Fleet(clock, tasks, told.append, every_ms=20)
        followed = {f"uid-{i}": head(i, gcs) for i, gcs in enumerate(heads)}
        await fleet.follow(followed, {})
        await until(lambda: len(told) == 20, what="every head to be read")
        slow = heads[3]
        slow.hangs = asyncio.Event()
        heads[7].status = rayhead.status(pending=[rayhead.request({"CPU": 1}, 5)])
        await until(lambda: len(told) == 21, what="the change of one head")
        assert told[20].head == followed["uid-7"]
        assert told[20].demand.pending[0].count == 5
        reads = [len(gcs.calls) for gcs in heads]
        await until(
            lambda: all(len(gcs.calls) > was + 3 for gcs, was in zip(heads, reads, strict=True) if gcs is not slow),
            what="the others to be read while one hangs",
        )
        assert len(told) == 21
        slow.hangs.set()
        slow.hangs = None

        reader = fleet.reader("uid-0")
        await fleet.follow({uid: each for uid, each in followed.items() if uid != "uid-0"}, {})
        assert fleet.reader("uid-0") is None
        was = len(heads[0].calls)
        await until(lambda: len(heads[1].calls) > 30, what="further readings")
        assert len(heads[0].calls) <= was + 1, "more than the call that was on its way when its channel closed"
        assert reader is not None and isinstance(reader.gcs, GcsClient) and reader.gcs._channel is None

        known = fleet.reader("uid-1")
        await fleet.follow(followed | {"uid-1": head(1, heads[1], attempt=2)}, {"uid-1": RayDemand()})
        assert fleet.reader("uid-1") is not known
        assert isinstance(fleet.reader("uid-2"), HeadReader)
        await fleet.close()
