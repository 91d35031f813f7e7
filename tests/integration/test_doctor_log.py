"""The doctor is never green when red: each breakage of a log or of NATS is named, with a command that repairs it.

One real nats-server. Every breakage has a log of its own; that of a healthy install needs nothing.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from kit import nodes
from kit.breaking import bad, named
from kit.nats import SMALL
from kit.scenes import Scene, beginning
from kit.standings import SCENES, held_up
from kit.words import odd
from muster.bus.cell import open_stores
from muster.bus.connection import connect
from muster.bus.importing import import_log
from muster.bus.jetstream import JetStream
from muster.bus.lease import JetStreamLease
from muster.bus.log import Body
from muster.bus.server import EmbeddedServer
from muster.core.reading.watched import WATCHED
from muster.events import subjects
from muster.events.envelope import Stored, encode_commit
from muster.events.facts import ObjectUnreadable, SyncStarted
from muster.model.keys import Ref
from muster.ports import ApiResponse
from muster.runtime.clock import SystemClock
from muster.runtime.config import Config
from muster.runtime.pairing import record_cluster
from muster.told.wording.events import ref_of
from muster_cli.api import Api, mismatch
from muster_cli.buschecks import bus_findings
from muster_cli.findings import Finding
from muster_cli.reading import LogPlace, opened
from muster_cli.state import SEATS

pytestmark = pytest.mark.timeout(120)


def scene(*lines: str) -> Callable[[], Scene]:
    return lambda: beginning(*lines)


def standing(name: str) -> Callable[[], Scene]:
    return lambda: SCENES[name]()[0]


def resynced() -> Scene:
    made = beginning("job one")
    made.do(SyncStarted(kinds=("RayJob", "Pod")))
    return made


def unready() -> Scene:
    made = beginning()
    made.do(nodes.node("n", ready=False))
    return made


def illegible() -> Scene:
    made = beginning()
    ref = Ref("RayJob", "video", "odd", "uid-odd-one")
    made.do(ObjectUnreadable(ref=ref, rv=99_999_999, problem=odd("spec.x: missing")))
    return made


BY_THE_LOG: dict[str, tuple[Callable[[], Scene], str, str]] = {
    "an object that cannot be read": (illegible, "unreadable RayJob video/odd", "kubectl -n video edit rayjob odd"),
    "a kind that is not listed": (resynced, "the cluster is not fully listed", "logs deploy/muster-watcher"),
    "no tree in force": (standing("NoQuotaTree"), "no valid quota tree is in force", "kubectl apply -f TREE.yaml"),
    "a sorter that is silent": (standing("Seen"), "queue-sorter has not answered", "logs deploy/muster-queue-sorter"),
    "an accountant that is silent": (standing("BeingTried"), "quota-accountant has not", "logs deploy/muster-quota"),
    "an admitter that is silent": (standing("Reserved"), "gang-admitter has not", "logs deploy/muster-gang-admitter"),
    "an actuator that is silent": (standing("Admitted"), "actuator has not", "logs deploy/muster-actuator"),
    "an operator that does nothing": (scene("job one", "resumed one"), "nothing of it exists", "does the operator"),
    "a write that is refused": (standing("ResumeFailed"), "the API server refuses to resume", "muster why video/one"),
    "a paused queue": (standing("Paused"), "paused", "muster resume admissions"),
    "jobs that are refused": (standing("CannotSuspend"), "1 job not queued", "muster ls --state refused"),
    "a pod without a node": (lambda: held_up("Unschedulable")[0], "Unschedulable at 1 job", "muster why video/one"),
    "an image that is missing": (lambda: held_up("ImagePullBackOff")[0], "ImagePullBackOff", "muster why video/one"),
    "a queue over its max": (standing("Running, beyond its grant"), "uses more than its max", "muster ls --queue"),
    "no node is ready": (unready, "none of 1 node is ready", "kubectl get nodes"),
}  # fmt: skip
_cells = itertools.count(1)


class Cell:
    """A log with the commits of a scene, whose stages all have a leader."""

    def __init__(self, url: str, js: JetStream, name: str) -> None:
        self.js, self.name = js, name
        self.place = LogPlace(Config(nats_url=url, cell=name))

    async def findings(self, *, clock: Any = None) -> list[Finding]:
        return await bus_findings(self.place, clock or SystemClock())


def seated(stored: Stored) -> Body:
    """A commit as a log has it: facts of the tests come from no shard that there is."""
    commit, subject = stored.commit, stored.subject
    if commit.stage == "watcher":
        ref = ref_of(commit.events[0])
        shard = next((name for name, row in WATCHED.items() if ref is not None and row.kind == ref.kind), "pods")
        commit, subject = replace(commit, shard=shard), subject.replace("watcher.0", f"watcher.{shard}")
    return Body(stored.seq, encode_commit(commit), "", subject, stored.stored_at)


@asynccontextmanager
async def cell_of(nats_server: EmbeddedServer, made: Scene, without: str = "") -> AsyncIterator[Cell]:
    """``without``: the stage that no process leads."""
    connection = await connect(nats_server.url, name="test")
    js, name = JetStream(connection), f"doctor-{next(_cells)}"
    try:
        bodies = [seated(each) for each in made.bench.log]
        found = await import_log(js, name, bodies, limits=SMALL)
        await open_stores(js, name, create=True, limits=SMALL)
        leases = [JetStreamLease(js, found.identity, *seat, "test") for seat in SEATS if seat[0] != without]
        assert all(await asyncio.gather(*(each.acquire() for each in leases)))
        yield Cell(nats_server.url, js, name)
        for each in await js.names(">"):
            if name in each:
                await js.delete(each)
    finally:
        await connection.close()


QUIET = ("job one", "resumed one", "cluster one", "pod one 0", "runs one")


async def test_each_breakage_that_the_log_knows_is_named(nats_server: EmbeddedServer) -> None:
    missed: dict[str, list[Finding]] = {}
    async with cell_of(nats_server, beginning(*QUIET)) as quiet:
        assert bad(await quiet.findings()) == []
    for name, (made, words, fix) in BY_THE_LOG.items():
        async with cell_of(nats_server, made()) as broken:
            found = await broken.findings(clock=Ahead())
            if not named(found, words, fix):
                missed[name] = [each for each in found if each.grade != "ok"]
    assert not missed


class Behind(SystemClock):
    def now(self) -> int:
        return super().now() - 60_000


class Ahead(SystemClock):
    """Later, so that what is owed an answer has waited."""

    def now(self) -> int:
        return super().now() + 400_000


Spoil = Callable[[Cell], Awaitable[Any]]


async def _smaller(cell: Cell) -> None:
    stream = subjects.log_stream(cell.name, 1)
    info = await cell.js.info(stream)
    assert info is not None
    await cell.js.ask(f"STREAM.UPDATE.{stream}", {**info.config, "max_bytes": info.state.bytes + 10})


async def _opened_up(cell: Cell) -> None:
    stream = subjects.log_stream(cell.name, 1)
    info = await cell.js.info(stream)
    assert info is not None
    await cell.js.ask(f"STREAM.UPDATE.{stream}", {**info.config, "discard": "old"})


def _gone(stream: Callable[[str], str]) -> Spoil:
    return lambda cell: cell.js.delete(stream(cell.name))


STREAMS: dict[str, tuple[Spoil, str, str]] = {
    "the log is gone": (_gone(lambda cell: subjects.log_stream(cell, 1)), "is gone", "muster log recover"),
    "the pointer is gone": (_gone(lambda cell: f"KV_{subjects.state_bucket(cell)}"), "has no log", "muster log init"),
    "leases are gone": (_gone(lambda cell: f"KV_{subjects.lease_bucket(cell)}"), "no stream KV_", "muster log init"),
    "snapshots are gone": (_gone(lambda cell: f"OBJ_{subjects.base_bucket(cell)}"), "no stream OBJ_", "log init"),
    "the log is full": (_smaller, "used (9", "muster log roll"),
    "the log is configured otherwise": (_opened_up, "discard", "muster log init"),
}  # fmt: skip


class Cluster:
    """A cluster that has an identity, and nothing else."""

    def __init__(self, uid: str) -> None:
        self.body = msgspec.json.encode({"metadata": {"uid": uid}})

    async def request(self, *_: Any, **__: Any) -> ApiResponse:
        return ApiResponse(200, self.body)

    def api(self) -> Api:
        return Api(cast("Any", self), "here", simulated=False)


async def test_each_breakage_of_nats_is_named(nats_server: EmbeddedServer) -> None:
    missed: dict[str, list[Finding]] = {}
    for name, (spoil, words, fix) in STREAMS.items():
        async with cell_of(nats_server, beginning(*QUIET)) as cell:
            await spoil(cell)
            found = await cell.findings()
            if not named(found, words, fix):
                missed[name] = [each for each in found if each.grade != "ok"]
    for stage in ("watcher", "queue_sorter", "quota_accountant", "gang_admitter", "actuator", "preemptor", "publisher"):
        async with cell_of(nats_server, beginning(*QUIET), without=stage) as cell:
            found = await cell.findings()
            if not named(found, f"no process leads {stage}", "kubectl -n muster-system rollout status deploy/muster-"):
                missed[f"no {stage}"] = bad(found)
    async with cell_of(nats_server, beginning(*QUIET)) as cell:
        if not named(found := await cell.findings(clock=Behind()), "behind the broker's", "set the clock"):
            missed["a clock"] = found
        async with opened(cell.place) as reading:
            identity = reading.log.identity
            await record_cluster(cell.js, identity, "one", "https://here")
            assert not await mismatch(reading, Cluster("one").api())
            assert "is about another cluster" in await mismatch(reading, Cluster("another").api())
    nowhere = LogPlace(Config(nats_url="nats://127.0.0.1:1"))
    if not named(found := await bus_findings(nowhere, SystemClock()), "NATS", "get pods"):
        missed["no NATS"] = found
    assert not missed


async def test_there_are_many() -> None:
    assert len(BY_THE_LOG) + len(STREAMS) >= 21
