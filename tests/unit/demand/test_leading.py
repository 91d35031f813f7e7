"""The bridge's runner: reads the heads that its state names, and appends what is new."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kit import rayhead
from kit.waiting import until
from muster.core.autoscaling.state import Cluster, Grant, HeadSaid
from muster.events.base import Cause
from muster.events.raydemand import RayDemandObserved
from muster.model.elastic import Elastic
from muster.model.keys import Ref
from muster.model.raydemand import RayShape
from muster.runtime.clock import SystemClock
from muster_autoscaler_bridge.leading import Addresses, BridgeLeader

REF = Ref("RayCluster", "ns", "c", "uid-1")


def leader(addresses: Addresses) -> BridgeLeader:
    given = {"log": None, "lease": None, "snapshots": None, "clock": SystemClock(), "process": "test"}
    return BridgeLeader(addresses=addresses, every_ms=20, **given)


def with_cluster(bridge: BridgeLeader, elastic: Elastic) -> None:
    bridge.state.clusters[REF.uid] = Cluster(REF, REF.uid, elastic, 1, Cause(1, 0))
    bridge.state.grants[REF.uid] = Grant(REF, 3, {})


async def test_what_a_head_says_is_appended_once() -> None:
    async with rayhead.fake_gcs() as gcs, asyncio.TaskGroup() as tasks:
        port = int(gcs.address.rpartition(":")[2])
        bridge = leader(Addresses("127.0.0.1", ports=(port, 1)))
        bridge._tasks = tasks
        await bridge.follow()
        assert bridge._fleet is None  # it knows no cluster
        with_cluster(bridge, Elastic())
        gcs.status = rayhead.status(pending=[rayhead.request({"CPU": 1}, 2)])
        await bridge.follow()
        await until(lambda: bridge._announcements, what="a fact")
        (event,) = bridge._announcements
        assert isinstance(event, RayDemandObserved)
        assert (event.ref, event.attempt, event.demand.pending) == (REF, 3, (RayShape({"CPU": 10_000}, 2),))
        bridge.state.heard[REF.uid] = HeadSaid(3, event.read_at, event.demand)
        was = len(gcs.calls)
        await until(lambda: len(gcs.calls) > was + 5, what="further readings")
        assert len(bridge._announcements) == 1
        bridge.state.clusters.clear()
        await bridge.follow()
        was = len(gcs.calls)
        assert bridge._fleet is not None and bridge._fleet.reader(REF.uid) is None
        await bridge._fleet.close()
        assert len(gcs.calls) == was


@pytest.mark.parametrize(("file", "token"), [("ns.c", "one"), ("ns", "one"), ("ns.other", ""), ("", "")])
def test_where_a_head_is_and_its_token(tmp_path: Path, file: str, token: str) -> None:
    if file:
        (tmp_path / file).write_text("one\n")
    head = Addresses("{cluster}-head-svc.{namespace}.svc", str(tmp_path)).head(REF, 1)
    assert (head.gcs, head.dashboard) == ("c-head-svc.ns.svc:6379", "http://c-head-svc.ns.svc:8265")
    assert head.token == token
