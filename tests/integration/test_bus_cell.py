"""Founding, opening and losing the log of a cell on a real server."""

import asyncio
import contextlib
import json
import secrets

import pytest

from kit.nats import SMALL, commit
from kit.snapshots import loaded
from muster.bus.cell import POINTER, open_log, open_stores
from muster.bus.connection import connect
from muster.bus.errors import BusError
from muster.bus.fills import fills
from muster.bus.generations import JetStreamGenerations
from muster.bus.jetstream import JetStream
from muster.bus.kv import KvBucket
from muster.bus.log import JetStreamLog
from muster.bus.server import EmbeddedServer
from muster.bus.snapshots import JetStreamSnapshots
from muster.bus.streams import Limits, StoreBudget, bucket_config, log_config, public_config, quarantine_config
from muster.events import subjects
from muster.events.envelope import genesis_of
from muster.events.system import Genesis
from muster.ports import LogGoneError, LogSealedError, Snapshot
from muster.runtime.clock import SystemClock
from muster.runtime.logkeeping.rolling import roll


async def genesis(js: JetStream, cell: str, generation: int) -> Genesis:
    first = await js.get(subjects.log_stream(cell, generation), 1)
    assert first is not None
    found = genesis_of(first.data)
    assert found is not None
    return found


async def test_without_a_log_the_command_that_founds_one_is_named(js: JetStream, cell: str) -> None:
    with pytest.raises(LogGoneError, match=f"muster log init --cell {cell}"):
        await open_log(js, cell)
    assert await js.names(f"muster.log.{cell}.>") == []
    assert await js.names(f"$KV.{subjects.state_bucket(cell)}.>") == []


async def test_opening_it_again_finds_the_same_log(js: JetStream, cell: str) -> None:
    founded = await open_log(js, cell, create=True, limits=SMALL, at=77)
    assert founded.identity.generation == 1
    assert await founded.end() == 1
    for create in (False, True):
        assert (await open_log(js, cell, create=create)).identity == founded.identity
    assert await founded.end() == 1
    assert (await genesis(js, cell, 1)).log_id == founded.identity.log_id


async def test_many_founders_at_once_found_one_log(nats_server: EmbeddedServer, cell: str) -> None:
    connections = [await connect(nats_server.url, name=f"founder{index}") for index in range(8)]
    logs = await asyncio.gather(*(open_log(JetStream(each), cell, create=True, limits=SMALL) for each in connections))
    assert len({(log.identity.log_id, log.identity.generation) for log in logs}) == 1
    assert logs[0].identity.generation == 1
    assert await logs[0].end() == 1
    for each in connections:
        await each.close()


async def test_a_lost_log_is_succeeded_by_the_next_generation_only_when_asked(js: JetStream, cell: str) -> None:
    first = await open_log(js, cell, create=True, limits=SMALL)
    await js.delete(subjects.log_stream(cell, 1))
    with pytest.raises(LogGoneError, match=r"MUSTER_LOG_.*_1\) is gone.*muster log init"):
        await open_log(js, cell)
    later = await asyncio.gather(*(open_log(js, cell, create=True, limits=SMALL) for _ in range(4)))
    assert {log.identity.generation for log in later} == {2}
    assert len({log.identity.log_id for log in later}) == 1
    assert (await genesis(js, cell, 2)).parent == first.identity.log_id
    with pytest.raises(LogGoneError):
        await first.append(commit(1), expected=0)
    assert await later[0].append(commit(1), expected=0) == 2


@pytest.mark.parametrize("with_genesis", [False, True])
async def test_what_a_founder_left_half_done_is_finished(js: JetStream, cell: str, with_genesis: bool) -> None:
    lost = await open_log(js, cell, create=True, limits=SMALL)
    if with_genesis:
        # It got as far as the genesis, and not to the pointer.
        await KvBucket(js, subjects.state_bucket(cell)).delete(POINTER, revision=1)
        again = await open_log(js, cell, create=True, limits=SMALL)
        assert again.identity == lost.identity
        return
    await js.delete(subjects.log_stream(cell, 1))
    await js.create({key: value for key, value in log_config(cell, 2, SMALL).items() if value is not False})
    again = await open_log(js, cell, create=True, limits=SMALL)
    assert again.identity.generation == 2
    assert (await genesis(js, cell, 2)).parent == lost.identity.log_id


async def test_a_lost_pointer_is_found_again_at_the_newest_generation(js: JetStream, cell: str) -> None:
    await open_log(js, cell, create=True, limits=SMALL)
    await js.delete(subjects.log_stream(cell, 1))
    second = await open_log(js, cell, create=True, limits=SMALL)
    await js.delete(f"KV_{subjects.state_bucket(cell)}")
    with pytest.raises(LogGoneError):
        await open_log(js, cell)
    assert (await open_log(js, cell, create=True, limits=SMALL)).identity == second.identity


async def test_a_stream_that_is_not_a_log_is_not_taken_for_one(js: JetStream, cell: str) -> None:
    await js.create({key: value for key, value in log_config(cell, 1, SMALL).items() if value is not False})
    await js.publish(subjects.log_subject(cell, 1, "watcher", "pods"), b"something", {})
    with pytest.raises(BusError, match="does not begin with its genesis"):
        await open_log(js, cell, create=True, limits=SMALL)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("discard", "old"),
        ("max_age", 3600 * 10**9),
        ("max_msgs", 5),
        ("max_msgs_per_subject", 1),
        ("deny_delete", False),
        ("deny_purge", False),
        ("allow_direct", True),
        ("allow_rollup_hdrs", True),
        ("storage", "memory"),
        ("allow_msg_ttl", True),
        ("subjects", ["muster.log.{cell}.1.watcher.>", "muster.log.{cell}.1.genesis.>"]),
    ],
)
async def test_a_stream_that_could_lose_commits_is_refused_and_the_field_named(
    js: JetStream, cell: str, field: str, value: object
) -> None:
    if isinstance(value, list):
        value = [each.format(cell=cell) for each in value]
    wanted = {**log_config(cell, 1, SMALL), field: value}
    if field == "allow_rollup_hdrs":
        wanted["deny_purge"] = False
    await js.create({key: kept for key, kept in wanted.items() if kept is not False})
    with pytest.raises(BusError, match=rf"{field} is .*, must be") as caught:
        await open_log(js, cell, create=True)
    if field != "allow_rollup_hdrs":
        assert str(caught.value).count(", must be ") == 1


async def test_a_new_log_is_not_compressed_and_one_that_is_goes_on(js: JetStream, cell: str) -> None:
    """A server that was killed could not read a compressed log after its next start (docs/decisions/0024)."""
    await open_log(js, cell, create=True, limits=SMALL)
    info = await js.info(subjects.log_stream(cell, 1))
    assert info is not None
    assert info.config["compression"] == "none"
    before = f"{cell}-before"
    log = await open_log(js, before, create=True, limits=SMALL)
    stream = subjects.log_stream(before, 1)
    made = await js.info(stream)
    assert made is not None
    await js.ask(f"STREAM.UPDATE.{stream}", {**made.config, "compression": "s2"})
    assert (await open_log(js, before)).identity == log.identity


async def test_given_limits_must_be_those_of_the_log_and_none_take_any(js: JetStream, cell: str) -> None:
    log = await open_log(js, cell, create=True, limits=Limits(max_bytes=1 << 20))
    with pytest.raises(BusError, match="max_bytes is 1048576, must be 2097152"):
        await open_log(js, cell, limits=Limits(max_bytes=2 << 20))
    assert (await open_log(js, cell)).identity == log.identity


async def test_the_pointer_to_another_log_is_refused(js: JetStream, cell: str) -> None:
    log = await open_log(js, cell, create=True, limits=SMALL)
    bucket = KvBucket(js, subjects.state_bucket(cell))
    entry = await bucket.get(POINTER)
    assert entry is not None
    assert entry.value is not None
    forged = entry.value.replace(log.identity.log_id.encode(), b"another")
    await bucket.put(POINTER, forged, revision=entry.revision)
    with pytest.raises(BusError, match="another"):
        await open_log(js, cell, create=True)


@pytest.mark.parametrize("junk", [b"{}", b"", b"\xff" * 500])
async def test_a_pointer_that_is_junk_is_made_again_from_the_streams(js: JetStream, cell: str, junk: bytes) -> None:
    log = await open_log(js, cell, create=True, limits=SMALL)
    bucket = KvBucket(js, subjects.state_bucket(cell))
    entry = await bucket.get(POINTER)
    assert entry is not None
    await bucket.put(POINTER, junk, revision=entry.revision)
    with pytest.raises(LogGoneError, match="put it right with `muster log init"):
        await open_log(js, cell)
    assert (await open_log(js, cell, create=True, limits=SMALL)).identity == log.identity
    assert (await open_log(js, cell)).identity == log.identity


async def test_the_other_streams_are_created_once_and_missed_by_name(js: JetStream, cell: str) -> None:
    with pytest.raises(BusError, match=r"KV_MUSTER_LEASE_.*muster log init"):
        await open_stores(js, cell)
    await open_stores(js, cell, create=True, limits=SMALL)
    await open_stores(js, cell)
    for config in (
        bucket_config(subjects.lease_bucket(cell), "leases", SMALL, ttl_s=10.0),
        quarantine_config(cell, SMALL),
        public_config(SMALL),
    ):
        info = await js.info(config["name"])
        assert info is not None
        assert info.config["max_age"] == config["max_age"]
        assert info.config["discard"] == config["discard"]
    await js.delete(f"OBJ_{subjects.snapshot_bucket(cell, 'preemptor')}")
    with pytest.raises(BusError, match="OBJ_MUSTER_SNAP"):
        await open_stores(js, cell)


async def test_a_stream_of_an_earlier_version_gets_the_budget_that_it_lacks(js: JetStream, cell: str) -> None:
    await open_stores(js, cell, create=True, limits=SMALL)
    stream = f"OBJ_{subjects.snapshot_bucket(cell, 'preemptor')}"
    info = await js.info(stream)
    assert info is not None
    await js.ask(f"STREAM.UPDATE.{stream}", {**info.config, **StoreBudget(-1).config()})
    log = await open_log(js, cell, create=True, limits=SMALL)
    assert [fill.stream for fill in await fills(js, log.identity) if not fill.bounded] == [stream]
    await open_stores(js, cell, create=True, limits=SMALL)
    again = await js.info(stream)
    assert again is not None
    assert again.config == info.config


async def test_states_that_outgrow_their_budget_keep_the_newest_snapshot(js: JetStream, cell: str) -> None:
    log = await open_log(js, cell, create=True, limits=SMALL)
    await open_stores(js, cell, create=True, limits=SMALL)
    told: list[str] = []
    snapshots = JetStreamSnapshots(js, log.identity, warn=told.append)

    async def keep(seq: int, size: int) -> bool:
        return await snapshots.save(
            Snapshot(log.identity.log_id, "preemptor", "0", seq, "s", secrets.token_bytes(size))
        )

    assert [await keep(seq, 5 << 20) for seq in (1, 2, 3)] == [True, True, True]
    assert await keep(4, 6 << 20), told
    newest = [kept.seq async for kept in snapshots.each("preemptor", "0")]
    assert newest[:2] == [4, 3]
    assert not await keep(5, 17 << 20), "larger than the whole budget: the newest stays"
    assert await anext(snapshots.each("preemptor", "0")) is not None


async def test_a_cell_needs_a_proper_name(js: JetStream) -> None:
    with pytest.raises(ValueError, match="Not A Cell"):
        await open_log(js, "Not A Cell", create=True)


async def test_a_generation_goes_on_where_the_one_before_was_sealed(js: JetStream, cell: str) -> None:
    log = await open_log(js, cell, create=True, limits=SMALL)
    await open_stores(js, cell, create=True, limits=SMALL)
    last = await log.append(commit(1), expected=0)
    rolled = await roll(JetStreamGenerations(js, cell), clock=SystemClock())
    assert (rolled.end, rolled.after.first, rolled.after.generation) == (last, last + 1, 2)
    with pytest.raises(LogSealedError):
        await log.append(commit(2), expected=last)
    info = await js.info(subjects.log_stream(cell, 1))
    assert info is not None
    assert info.config["max_bytes"] == info.state.bytes, "room that is not needed is given back"
    after = await open_log(js, cell)
    assert await after.append(commit(2), expected=0) == last + 2
    assert (await js.info(subjects.log_stream(cell, 2))).config["max_bytes"] == SMALL.max_bytes  # type: ignore[union-attr]
    assert await sequences(after, 0) == [1, 2, 3, 4]
    assert await sequences(after, 1) == [2, 3, 4]
    assert await sequences(after, 3) == [4]
    assert [body.seq async for body in after.bodies(0)] == [1, 2, 3, 4]


async def test_rolling_over_again_completes_what_was_begun(js: JetStream, cell: str) -> None:
    log = await open_log(js, cell, create=True, limits=SMALL)
    await open_stores(js, cell, create=True, limits=SMALL)
    generations = JetStreamGenerations(js, cell)
    await generations.seal(log.identity)
    assert (await generations.current())[1], "sealed, and still the one in force"
    done = await asyncio.gather(*(roll(JetStreamGenerations(js, cell), clock=SystemClock()) for _ in range(3)))
    assert {(each.after.generation, each.after.log_id) for each in done} == {(2, done[0].after.log_id)}
    assert await js.names(subjects.cell_log_subjects(cell)) == [subjects.log_stream(cell, each) for each in (1, 2)]


async def test_a_lost_pointer_finds_all_generations_again(js: JetStream, cell: str) -> None:
    await open_log(js, cell, create=True, limits=SMALL)
    await open_stores(js, cell, create=True, limits=SMALL)
    for _ in range(2):
        await roll(JetStreamGenerations(js, cell), clock=SystemClock())
    before = (await open_log(js, cell)).identity
    bucket = KvBucket(js, subjects.state_bucket(cell))
    entry = await bucket.get(POINTER)
    assert entry is not None
    await bucket.delete(POINTER, revision=entry.revision)
    assert (await open_log(js, cell, create=True, limits=SMALL)).identity == before


async def test_a_generation_whose_predecessors_were_removed_is_read_from_its_own_beginning(
    js: JetStream, cell: str
) -> None:
    await open_log(js, cell, create=True, limits=SMALL)
    await open_stores(js, cell, create=True, limits=SMALL)
    for _ in range(2):
        await roll(JetStreamGenerations(js, cell), clock=SystemClock())
    await js.delete(subjects.log_stream(cell, 1))
    log = await open_log(js, cell)
    assert log.identity.origin == 2
    assert await sequences(log, 0) == [2, 3]
    snapshots = JetStreamSnapshots(js, log.identity, warn=lambda _: None)
    kept = await loaded(snapshots, "queue_sorter", "0")
    assert kept is not None
    assert kept.seq == 2, "what it began with is still there"


async def sequences(log: JetStreamLog, after: int) -> list[int]:
    found: list[int] = []
    async with contextlib.aclosing(log.follow(after)) as stream:
        async for batch in stream:
            if not batch:
                break
            found += [stored.seq for stored in batch]
    return found


@pytest.mark.parametrize(
    "other",
    [{"generation": 10**30}, {"generation": -1}, {"generation": 0}, {"first": 0}, {"first": -5}, {"stream": ">"}],
    ids=str,
)
async def test_a_pointer_that_names_no_generation_is_made_again(
    js: JetStream, cell: str, other: dict[str, object]
) -> None:
    """A generation of 31 digits was followed by the next number; with a first sequence of 0 nothing helped."""
    log = await open_log(js, cell, create=True, limits=SMALL)
    state = KvBucket(js, subjects.state_bucket(cell))
    entry = await state.get(POINTER)
    assert entry is not None
    await state.set(POINTER, json.dumps(json.loads(entry.value) | other).encode(), revision=entry.revision)
    with pytest.raises(LogGoneError, match=r"not a log pointer: .*muster log init"):
        await open_log(js, cell)
    again = await open_log(js, cell, create=True, limits=SMALL)
    assert again.identity == log.identity
    now = await state.get(POINTER)
    assert now is not None
    assert now.value == entry.value
