"""An API server that was restored to an earlier state: the next generation of the log starts from what it says."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from kit.alone import alone, reader_of
from kit.beside import beside
from kit.cli import Cli
from kit.doubles.log import MemoryLeases
from kit.keeping import Notes, keeper_of
from kit.nats import SMALL
from kit.simulated import create
from kit.story import rayjob
from kit.waiting import until
from muster.bus.cell import open_log, open_stores
from muster.bus.jetstream import JetStream
from muster.bus.log import JetStreamLog
from muster.bus.server import EmbeddedServer
from muster.core.objects.meta import INTENT
from muster.events.facts import Synced, WorkloadAbridged, WorkloadObserved
from muster.fakecluster.world import SimCluster
from muster.model import api
from muster.ports import LogSealedError
from muster.runtime.clock import SystemClock
from muster.runtime.pairing import cluster_uid, record_cluster, record_set_back, recorded_cluster
from muster.runtime.runners.watching import WatcherRunner


@asynccontextmanager
async def watched(js: JetStream, log: JetStreamLog, cluster: SimCluster, notes: Notes) -> AsyncIterator[WatcherRunner]:
    runner = WatcherRunner(
        "rayjobs",
        cluster.transport(),
        log=reader_of(log),
        lease=MemoryLeases().lease("watcher", "rayjobs", "p"),
        snapshots=None,
        clock=SystemClock(),
        process="p",
        hooks=notes,
        set_back=partial(record_set_back, js, log.identity),
    )
    task = asyncio.ensure_future(alone(runner))
    yield runner
    task.cancel()
    await asyncio.wait({task})


async def facts(log: JetStreamLog) -> list[object]:
    found: list[object] = []
    async for batch in log.follow(0):
        if not batch:
            return found
        found += [event for each in batch for event in each.commit.events]
    return found


async def cluster_with(*names: str, others: int = 0) -> SimCluster:
    made = SimCluster({})
    for number in range(others):
        await create(made, api.RAYJOBS, rayjob(f"gone-{number}", runtime="1h"))
    for name in names:
        await create(made, api.RAYJOBS, rayjob(name, runtime="1h"))
    return made


@pytest.mark.parametrize("others", [0, 5], ids=["as it was or later", "an earlier state"])
async def test_the_next_generation_starts_from_what_a_restored_cluster_says(
    js: JetStream, cell: str, others: int
) -> None:
    await open_stores(js, cell, create=True, limits=SMALL)
    log = await open_log(js, cell, create=True, limits=SMALL, at=1)
    before, notes = await cluster_with("kept", others=others), Notes()
    uid = await cluster_uid(before.transport())
    await record_cluster(js, log.identity, uid, "https://server")

    async def synced(times: int) -> bool:
        return sum(isinstance(each, Synced) for each in await facts(log)) == times

    async with watched(js, log, before, notes):
        await until(lambda: synced(1), what="the first list")
    restored = await cluster_with("kept")
    keeper = keeper_of(js, log, hooks=notes)
    if not others:
        async with watched(js, log, restored, notes):
            await until(lambda: synced(2), what="the second list")
        await keeper._look()
        assert notes.noted == []
        return
    async with watched(js, log, restored, notes):
        await until(lambda: ("error", "cluster_set_back") in notes.levels, what="it to be noticed")

        async def told() -> bool:
            known = await recorded_cluster(js, log.identity)
            return known is not None and "restored to an earlier state" in known.set_back

        await until(told, what="it to be told")
        known = await recorded_cluster(js, log.identity)
        assert known is not None
        assert known.server == "https://server", "what was recorded of the cluster stays"
    assert not await synced(2), "a list of an earlier state is not complete for this log"
    with pytest.raises(LogSealedError, match="generation 2 of the log is in force"):
        await keeper._look()
    after = await open_log(js, cell)
    assert (after.identity.generation, after.identity.earlier) == (2, ())
    assert (await log.usage()).sealed
    async with watched(js, after, restored, notes):
        await until(lambda: _observed(after), what="the job of the cluster as it is")
    known = await recorded_cluster(js, after.identity)
    assert known is not None
    assert (known.uid, known.set_back) == (uid, ""), "the cell belongs to its cluster, and this log need not end"


async def test_where_no_keeper_runs_a_person_starts_it(
    js: JetStream, nats_server: EmbeddedServer, cell: str, tmp_path: Path
) -> None:
    await open_stores(js, cell, create=True, limits=SMALL)
    log = await open_log(js, cell, create=True, limits=SMALL, at=1)
    cli, where = Cli(tmp_path), ("--url", nats_server.url, "--cell", cell)
    assert "nothing to recover" in (await cli.run("log", "recover", *where)).ok().out
    await record_set_back(js, log.identity, "the API server was restored to an earlier state: it lists pods")
    asked = await cli.run("log", "recover", *where)
    assert (asked.code, "it lists pods" in asked.out) == (1, True)
    assert "Generation 2" in (await cli.run("log", "recover", "--yes", *where)).ok().out


async def _observed(log: JetStreamLog) -> bool:
    return any(isinstance(each, WorkloadObserved) for each in await facts(log))


async def test_an_object_written_for_a_decision_that_the_log_lacks_raises_an_alarm_alone(
    js: JetStream, cell: str
) -> None:
    """A copied manifest has another uid and says nothing; nothing of it closes the log."""
    await open_stores(js, cell, create=True, limits=SMALL)
    log = await open_log(js, cell, create=True, limits=SMALL, at=1)
    cluster, notes = await cluster_with("kept"), Notes()
    async with beside(cluster.run()), watched(js, log, cluster, notes):
        await until(lambda: _observed(log), what="the job")
        await create(cluster, api.RAYJOBS, rayjob("copied", annotations={INTENT: "1-9000-0"}))

        async def seen() -> bool:
            return sum(isinstance(each, WorkloadObserved | WorkloadAbridged) for each in await facts(log)) > 2

        await until(seen, what="the copy, and a change of it")
        assert ("error", "intent_beyond_log") not in notes.levels
        body = json.dumps({"metadata": {"annotations": {INTENT: "1-9000-0"}}}).encode()
        path, merge = api.RAYJOBS.path("video", "kept"), "application/merge-patch+json"
        assert (await cluster.transport().request("PATCH", path, body=body, content_type=merge)).ok
        await until(lambda: ("error", "intent_beyond_log") in notes.levels, what="the alarm")
    await keeper_of(js, log, hooks=notes)._look()
    assert (await open_log(js, cell)).identity == log.identity
