"""A log on a real server with the accounts we ship: a key alone makes nothing count that is not its own to say."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path

import pytest

from kit.alone import alone, reader_of
from kit.doubles.log import MemoryLeases
from kit.hostilelog import SEATS, matrix
from kit.keeping import Notes, keeper_of
from kit.nats import SMALL, commit
from kit.production import FILES, Keys, ProductionNats
from kit.waiting import until
from muster.bus.cell import open_log, open_stores
from muster.bus.connection import no_responders
from muster.bus.generations import JetStreamGenerations
from muster.bus.jetstream import JetStream
from muster.bus.log import JetStreamLog
from muster.core.cell.deciders import DECIDERS
from muster.core.docket import Docket, Judge
from muster.events import subjects
from muster.events.base import Cause
from muster.events.decisions import GangAdmitted
from muster.events.envelope import Commit, Stored, encode_commit
from muster.events.system import TimeReached
from muster.model.keys import Ref
from muster.ports import LogFullError
from muster.runtime.clock import SystemClock
from muster.runtime.config import Config
from muster.runtime.connecting import connect_bus
from muster.runtime.logkeeping.rolling import roll
from muster.runtime.runners.leader import AnyLeader, Leader
from muster_cli.buschecks import closed_stages

ADMITTED = GangAdmitted(cause=Cause(1, 0), ref=Ref("RayJob", "ns", "n", "u"), attempt=1, queue="q")


def _silent(_event: str, _fields: object) -> None:
    pass


@asynccontextmanager
async def signed_in(config: Config) -> AsyncIterator[JetStream]:
    connection = await connect_bus(config, "test", _silent)
    yield JetStream(connection)
    await connection.close()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ProductionNats]:
    keys = Keys(tmp_path, (FILES / "accounts.conf").read_text())
    async with ProductionNats(keys) as server:
        async with signed_in(server.config("admin")) as js:
            await open_stores(js, "main", create=True, limits=SMALL)
            await open_log(js, "main", create=True, limits=SMALL, at=1)
        yield server


@asynccontextmanager
async def led(js: JetStream, stage: str) -> AsyncIterator[AnyLeader]:
    """A real leader of a stage, at work."""
    leader: AnyLeader = Leader(
        DECIDERS[stage](),
        log=reader_of(await open_log(js, "main")),
        lease=MemoryLeases().lease(stage, "0", "p"),
        snapshots=None,
        clock=SystemClock(),
        process="p",
    )
    task = asyncio.ensure_future(alone(leader))
    await until(lambda: task.done() or leader.leading())
    yield leader
    assert not task.done(), task.exception()
    task.cancel()
    await asyncio.wait({task})


async def says(leader: AnyLeader) -> None:
    """It appends something, and folds it."""
    before = leader.state.seq
    leader.announce(TimeReached(at=1))
    await until(lambda: leader.state.seq > before)


async def took(js: JetStream, stage: str, shard: str, body: bytes) -> bool:
    """Whether the server stores it."""
    ack = await js.publish(subjects.log_subject("main", 1, stage, shard), body, {})
    assert ack is not None
    return ack.error is None


async def sent(js: JetStream, stage: str, shard: str, body: bytes) -> None:
    assert await took(js, stage, shard, body)


async def test_what_one_key_says_in_the_name_of_another_stage_is_void_and_fences_nobody(server: ProductionNats) -> None:
    forged = Commit(
        commit_id="f", stage="gang_admitter", shard="0", kind="decision", at=1, epoch=2, in_seq=2, events=(ADMITTED,)
    )
    async with (
        signed_in(server.config("gang_admitter")) as own,
        signed_in(server.config("autoscaler_bridge")) as bridge,
        led(own, "gang_admitter") as admitter,
    ):
        await says(admitter)
        await sent(bridge, "autoscaler_bridge", "0", encode_commit(forged))
        await until(lambda: admitter.state.seq == 4)
        assert admitter.last_own == 3
        await says(admitter)
        assert admitter.last_own == 5


async def test_junk_stops_nobody_and_fences_nobody_on_whichever_subject(server: ProductionNats) -> None:
    async with signed_in(server.config("gang_admitter")) as own, signed_in(server.config("preemptor")) as other:
        async with led(own, "gang_admitter") as admitter:
            for number in range(3):
                await sent(own, "gang_admitter", "0", b'{"commit_id":"x"}')
                await sent(other, "preemptor", "0", b"\x00\xff%d" % number)
                # It has folded none of this yet, or all: either way it comes behind it.
                await says(admitter)
            end = await admitter.log.end()
            await until(lambda: admitter.state.seq == end)
        async with signed_in(server.config("keeper")) as keeper:
            rolled = await roll(JetStreamGenerations(keeper, "main"), clock=SystemClock())
            assert rolled.end == end


async def test_each_key_tries_everything_while_every_stage_is_led(server: ProductionNats) -> None:
    """An unknown shard is refused by the server: test_nats_keys."""
    written: set[int] = set()
    async with AsyncExitStack() as stack:
        users = {
            user: await stack.enter_async_context(signed_in(server.config(user)))
            for user in ("watcher", *DECIDERS, "actuator")
        }
        leaders = {stage: await stack.enter_async_context(led(users[stage], stage)) for stage in DECIDERS}
        log = await open_log(users["actuator"], "main")
        known = {f"{stage}.0": leader.epoch for stage, leader in leaders.items()}
        for seat in [each for each in SEATS if each != "genesis.0"]:
            stage, _, _ = seat.partition(".")
            now = int(time.time() * 1000)
            tries = matrix(seat, known.get(seat, 0), now)
            for where, body in [said for what, said in tries.items() if what != "unknown shard"]:
                _, _, shard = where.partition(".")
                ack = await users[stage].publish(subjects.log_subject("main", 1, stage, shard), body, {})
                assert ack is not None
                assert ack.error is None
                written.add(ack.seq)
        for leader in leaders.values():
            await says(leader)
        judge = Judge(Docket())
        counted = [judge.hear(stored) async for stored in _all(log)]
    assert {stored.seq for stored in counted if stored.void} == written


async def _all(log: JetStreamLog) -> AsyncIterator[Stored]:
    async with aclosing(log.follow(0)) as batches:
        async for batch in batches:
            if not batch:
                return
            for stored in batch:
                yield stored


async def test_a_flood_from_one_key_is_rolled_over_and_the_others_go_on(server: ProductionNats) -> None:
    async with (
        signed_in(server.config("autoscaler_bridge")) as bridge,
        signed_in(server.config("keeper")) as own,
        signed_in(server.config("gang_admitter")) as js,
    ):
        log = await open_log(js, "main")
        seq = await log.append(commit(1, stage="gang_admitter"), expected=0)
        for size in (1_000_000, 10_000, 1):
            while await took(bridge, "autoscaler_bridge", "0", bytes(size)):
                pass
        usage = await log.usage()
        assert usage.bytes > usage.max_bytes * 0.99
        with pytest.raises(LogFullError, match="make room"):
            await log.append(commit(2, stage="gang_admitter"), expected=seq)
        await keeper_of(own, log)._look()
        after = await open_log(js, "main")
        assert after.identity.generation == 2
        assert await after.append(commit(2, stage="gang_admitter"), expected=0) == after.identity.first + 1


async def test_a_stage_beyond_its_part_is_closed_while_the_others_append(
    server: ProductionNats, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two keepers: the first closes the stage, the second opens it again, as its time is over."""
    async with (
        signed_in(server.config("autoscaler_bridge")) as bridge,
        signed_in(server.config("keeper")) as own,
        signed_in(server.config("gang_admitter")) as js,
    ):
        log = await open_log(js, "main")
        notes = Notes()
        first = keeper_of(own, log, hooks=notes, stage_percent=20)
        await first._look()
        seq = await log.append(commit(1, stage="gang_admitter"), expected=0)
        while (await log.usage()).bytes < SMALL.max_bytes // 4:
            await sent(bridge, "autoscaler_bridge", "0", bytes(500_000))
        seq = await log.append(commit(2, stage="gang_admitter"), expected=seq)
        await first._look()
        (told,) = notes.of("log_stage_closed")
        assert told["stage"] == "autoscaler_bridge"
        assert int(str(told["bytes"])) > SMALL.max_bytes // 5
        assert [finding.title for finding in closed_stages(await log.usage())] == ["stage autoscaler_bridge"]

        size = (await log.usage()).bytes
        own_subject = subjects.log_subject("main", 1, "autoscaler_bridge", "0")
        assert no_responders(await bridge.connection.call(own_subject, bytes(500_000), timeout_s=60.0))
        assert (await log.usage()).bytes == size
        seq = await log.append(commit(3, stage="gang_admitter"), expected=seq)
        assert (await open_log(js, "main")).identity == log.identity, "a service starts meanwhile"

        monkeypatch.setattr("muster.runtime.logkeeping.budget.WINDOW_S", 0.0)
        second = keeper_of(own, log, hooks=notes, stage_percent=20)
        waiting = asyncio.create_task(
            (await open_log(bridge, "main")).append(
                commit(1, stage="autoscaler_bridge"), expected=await log.last("autoscaler_bridge", "0")
            )
        )
        await second._look()
        assert [each["stage"] for each in notes.of("log_stage_opened")] == ["autoscaler_bridge"]
        assert await waiting == await log.end()
        assert await log.append(commit(4, stage="gang_admitter"), expected=seq) == await log.end()


async def test_a_time_far_ahead_moves_no_clock(server: ProductionNats) -> None:
    async with signed_in(server.config("preemptor")) as js, led(js, "preemptor") as preemptor:
        before = preemptor.state.now
        late = Commit(
            commit_id="l", stage="preemptor", shard="0", kind="input", at=253_402_300_799_000, epoch=2, in_seq=2
        )
        await sent(js, "preemptor", "0", encode_commit(late))
        await until(lambda: preemptor.state.seq == 3)
        assert preemptor.state.now == before


async def test_a_copy_of_the_log_is_judged_as_the_log_is(server: ProductionNats) -> None:
    async with signed_in(server.config("preemptor")) as js:
        await sent(js, "preemptor", "0", b"junk\n")
        log = await open_log(js, "main")
        assert await log.append(commit(1, stage="preemptor"), expected=2) == 3
        bodies = [body async for body in log.bodies(0)]
    assert [(body.subject, body.data == b"junk\n") for body in bodies] == [
        ("1.genesis.0", False),
        ("1.preemptor.0", True),
        ("1.preemptor.0", False),
    ]
    assert all(body.stored_at > 1_700_000_000_000 for body in bodies)
    assert isinstance(log, JetStreamLog)
