"""The accounts we ship for production, on a real server: everybody can do what is theirs, and nothing else."""

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import nats
import pytest
from nats.aio.client import Client

from kit.nats import SMALL, commit
from kit.production import FILES, Keys, ProductionNats
from kit.snapshots import loaded
from kit.waiting import until
from muster.bus.cell import POINTER, open_log, open_stores, point_on
from muster.bus.connection import Connection
from muster.bus.errors import ApiError, BusError, ConnectError, ForbiddenError
from muster.bus.generations import JetStreamGenerations
from muster.bus.importing import import_log
from muster.bus.jetstream import ROLLUP, JetStream
from muster.bus.kv import KvBucket
from muster.bus.lease import JetStreamLease
from muster.bus.log import Body, JetStreamLog
from muster.bus.marks import JetStreamMarks, Mark
from muster.bus.public import PublicPublisher
from muster.bus.quarantine import Quarantine
from muster.bus.server import find_binary, free_port
from muster.bus.snapshots import JetStreamSnapshots
from muster.bus.streams import Limits
from muster.events import subjects
from muster.events.envelope import Stored, encode_commit
from muster.ports import LogSealedError, Snapshot
from muster.runtime import natsaccounts
from muster.runtime.clock import SystemClock
from muster.runtime.config import Config
from muster.runtime.connecting import connect_bus
from muster.runtime.layouts import GROUPS, SERVICES, members
from muster.runtime.logkeeping.rolling import roll
from muster.runtime.natsaccounts import API
from muster.runtime.opening import openings

PUB = subjects.PUBLIC_STREAM


def _silent(_event: str, _fields: object) -> None:
    pass


@asynccontextmanager
async def signed_in(config: Config, name: str = "test") -> AsyncIterator[JetStream]:
    connection = await connect_bus(config, name, _silent)
    yield JetStream(connection)
    await connection.close()


@asynccontextmanager
async def running(folder: Path, accounts: str = "") -> AsyncIterator[ProductionNats]:
    """A server with a founded cell."""
    keys = Keys(folder, accounts or (FILES / "accounts.conf").read_text())
    async with ProductionNats(keys) as server:
        async with signed_in(server.config("admin"), "admin") as js:
            await open_stores(js, "main", create=True, limits=SMALL)
            await open_log(js, "main", create=True, limits=SMALL)
        yield server


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ProductionNats]:
    async with running(tmp_path) as server:
        yield server


async def forbidden(server: ProductionNats, user: str, subject: str, body: bytes = b"", **headers: str) -> None:
    """Sending on a subject is refused. The connection is over then, so each attempt has one of its own."""
    connection = await connect_bus(server.config(user), f"{user}-tries", _silent)
    with pytest.raises(ForbiddenError):
        await connection.call(subject, body, headers, timeout_s=60)
    await connection.close()


def test_the_file_is_what_the_code_says() -> None:
    assert (FILES / "accounts.conf").read_text() == natsaccounts.default(), (
        "run `python -m muster.runtime.natsaccounts` and read the difference"
    )


def test_a_server_accepts_the_whole_configuration(tmp_path: Path) -> None:
    Keys(tmp_path, (FILES / "accounts.conf").read_text())
    text = (FILES / "server.conf").read_text().replace("/etc/nats/tls/", f"{tmp_path}/")
    (tmp_path / "server.conf").write_text(text)
    command = [str(find_binary()), "-t", "-c", str(tmp_path / "server.conf")]
    done = subprocess.run(command, capture_output=True, text=True, env={"NATS_SERVER_NAME": "a"}, check=False)
    assert done.returncode == 0, done.stderr
    shutil.rmtree(tmp_path / "data", ignore_errors=True)


@pytest.mark.parametrize("user", [*SERVICES, *GROUPS])
async def test_a_process_does_what_its_runners_open(server: ProductionNats, user: str) -> None:
    opened = openings(user).values()
    async with signed_in(server.config(user), f"muster-{user}") as js:
        await open_stores(js, "main")
        log = await open_log(js, "main")
        stages = [each.appends for each in opened if each.appends]
        for stage in stages:
            seq = await log.append(commit(1, stage=stage), expected=0)
            assert await log.append(commit(2, stage=stage), expected=seq) == seq + 1
        for each in opened:
            if each.lease:
                await _holds(js, log, each.lease)
            if each.keeps:
                await _keeps(js, log, each.keeps)
            for stage in each.begins:
                await loaded(JetStreamSnapshots(js, log.identity, warn=_fail), stage, "0")
        await JetStreamMarks(js, "main").put(log, user, Mark(log.identity.log_id, 1, "00"))
        read = [stored.seq async for batch in _whole(log) for stored in batch]
        assert read == [*range(1, 2 * len(stages) + 2)]
        for each in opened:
            if each.quarantines:
                await Quarantine(js, "main").put(each.appends, b"?", "not readable")
        assert (await log.usage()).last_seq == read[-1]


@pytest.mark.parametrize("group", GROUPS)
async def test_a_process_of_several_services_is_one_witness(server: ProductionNats, group: str) -> None:
    """Two that miss commits have the log given up: no key writes the mark of another user."""
    for user in members(group):
        await forbidden(server, group, f"$KV.{subjects.state_bucket('main')}.mark.{user}", b"{}")
        await forbidden(server, user, f"$KV.{subjects.state_bucket('main')}.mark.{group}", b"{}")


async def _holds(js: JetStream, log: JetStreamLog, stage: str) -> None:
    lease = JetStreamLease(js, log.identity, stage, _shard(stage), "p1", lease_s=60.0)
    assert await lease.acquire()
    assert await lease.renew()
    await lease.release()


def _shard(stage: str) -> str:
    return "nodes" if stage == "watcher" else "0"


async def _keeps(js: JetStream, log: JetStreamLog, stage: str) -> None:
    told: list[str] = []
    snapshots = JetStreamSnapshots(js, log.identity, warn=told.append)
    for seq in range(1, 6):
        body = bytes(300_000) + str(seq).encode()
        snapshot = Snapshot(
            log_id=log.identity.log_id, stage=stage, shard=_shard(stage), seq=seq, schema="s", body=body
        )
        assert await snapshots.save(snapshot), told
    assert await loaded(snapshots, stage, _shard(stage)) == snapshot
    assert not told


async def _whole(log: JetStreamLog) -> AsyncIterator[list[Any]]:
    stream = log.follow(0)
    async for batch in stream:
        if not batch:
            break
        yield batch
    await stream.aclose()


@pytest.mark.parametrize("user", ["keeper", "admin"])
async def test_the_log_is_rolled_over_with_the_rights_of(user: str, tmp_path: Path) -> None:
    async with running(tmp_path) as server, signed_in(server.config("watcher"), "watcher") as js:
        before = await open_log(js, "main")
        await before.append(commit(1, stage="watcher"), expected=0)
        async with signed_in(server.config(user), user) as own:
            rolled = await roll(JetStreamGenerations(own, "main"), clock=SystemClock())
        with pytest.raises(LogSealedError):
            await before.append(commit(2, stage="watcher"), expected=2)
        # A keeper that comes later with the same intent leaves the next generation alone.
        async with signed_in(server.config("keeper"), "keeper") as own:
            with pytest.raises(LogSealedError, match="generation 2 of the log is in force"):
                await roll(JetStreamGenerations(own, "main"), clock=SystemClock(), only=before.identity)
        after = await open_log(js, "main")
        assert after.identity == rolled.after
        assert await after.append(commit(2, stage="watcher"), expected=0) == 4
        assert [stored.seq for batch in await _batches(after) for stored in batch] == [1, 2, 3, 4]
        snapshots = JetStreamSnapshots(js, after.identity, warn=_fail)
        kept = await loaded(snapshots, "watcher", "rayjobs")
        assert kept is not None
        assert kept.seq == 2


async def test_an_archived_log_is_brought_back_with_the_rights_of_admin(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        async with signed_in(server.config("watcher"), "watcher") as js:
            log = await open_log(js, "main")
            await log.append(commit(1, stage="watcher"), expected=0)
            bodies = [Body(each.seq, encode_commit(each.commit)) for batch in await _batches(log) for each in batch]
        async with signed_in(server.config("admin"), "admin") as js:
            await js.delete(subjects.log_stream("main", 1))
            await import_log(js, "main", bodies, limits=SMALL)
        async with signed_in(server.config("cli"), "cli") as js:
            assert await (await open_log(js, "main")).end() == 2


async def test_generations_far_from_the_first_need_no_new_permissions(server: ProductionNats) -> None:
    async with signed_in(server.config("keeper"), "keeper") as own:
        state = KvBucket(own, subjects.state_bucket("main"))
        first = await state.get(POINTER)
        assert first is not None
        before = (await open_log(own, "main")).identity
        for _ in range(12):
            rolled = await roll(JetStreamGenerations(own, "main"), clock=SystemClock())
        moved = await state.get(POINTER)
        assert moved is not None
        await state.set(POINTER, first.value or b"", revision=moved.revision)
        assert await point_on(own, "main", before), "what the servers forgot of the pointer"
    assert rolled.after.generation == 13
    for user in ("queue_sorter", "publisher", "cli"):
        async with signed_in(server.config(user), user) as js:
            log = await open_log(js, "main")
            assert log.identity == rolled.after
            assert len([stored.seq for batch in await _batches(log) for stored in batch]) == 13


async def _batches(log: JetStreamLog) -> list[list[Stored]]:
    return [batch async for batch in _whole(log)]


def _fail(told: str) -> None:
    raise AssertionError(told)


@pytest.mark.parametrize("subject", ["muster.log.>", "$KV.>", "_INBOX_actuator.>", "_INBOX.>", ">"])
async def test_nobody_listens_to_others(server: ProductionNats, subject: str) -> None:
    for user in ("watcher", "cli", "reader"):
        connection = await connect_bus(server.config(user), "listener", _silent)
        await connection.subscribe(subject, lambda _: None)
        await until(lambda connection=connection: isinstance(connection.failure, ForbiddenError))
        await connection.close()


async def test_a_header_does_not_empty_what_others_keep(server: ProductionNats) -> None:
    """A roll-up of a whole bucket needs no more than the right to write one key of it."""
    async with signed_in(server.config("watcher"), "watcher") as js:
        log = await open_log(js, "main")
        for bucket, key in (
            (subjects.state_bucket("main"), "snapshot.watcher.nodes"),
            (subjects.lease_bucket("main"), "watcher.nodes"),
        ):
            ack = await js.publish(f"$KV.{bucket}.{key}", b"", {ROLLUP: "all"})
            assert ack is not None
            assert ack.error is not None, f"bucket {bucket} was emptied"
        assert (await open_log(js, "main")).identity == log.identity


async def test_a_consumer_cannot_be_aimed_at_another_stage(server: ProductionNats) -> None:
    """The server does not ask who may publish where a consumer delivers to. It delivers to listeners only, and none
    of our users may listen to a subject of the log."""
    log = subjects.log_stream("main", 1)
    target = subjects.log_subject("main", 1, "quota_accountant", "0")
    async with signed_in(server.config("watcher"), "watcher") as js:
        opened = await open_log(js, "main")
        await opened.append(commit(1, stage="watcher"), expected=0)
        for name, goal in (("a", target), ("b", f"$KV.{subjects.state_bucket('main')}.log")):
            config = {"name": name, "deliver_subject": goal, "ack_policy": "none", "mem_storage": True}
            body = {"stream_name": log, "action": "create", "config": config}
            try:
                await js.request(f"CONSUMER.CREATE.{log}.{name}", body)
            except ApiError as err:
                assert "cycle" in str(err)
        await asyncio.sleep(1.0)
        assert await js.last(log, target) is None
        assert (await open_log(js, "main")).identity == opened.identity


async def test_the_command_line_reads(server: ProductionNats) -> None:
    async with signed_in(server.config("cli"), "cli") as js:
        log = await open_log(js, "main")
        assert [stored.seq async for batch in _whole(log) for stored in batch] == [1]
        assert await JetStreamLease(js, log.identity, "watcher", "pods", "x").holder() is None


async def test_the_next_generation_is_readable_too(server: ProductionNats) -> None:
    async with signed_in(server.config("admin"), "admin") as js:
        await js.delete(subjects.log_stream("main", 1))
        assert (await open_log(js, "main", create=True, limits=SMALL)).identity.generation == 2
    async with signed_in(server.config("queue_sorter"), "sorter") as js:
        log = await open_log(js, "main")
        assert await log.append(commit(1, stage="queue_sorter"), expected=0) == 2


@pytest.mark.slow
async def test_three_servers_keep_everything_three_times(tmp_path: Path) -> None:
    keys = Keys(tmp_path, (FILES / "accounts.conf").read_text())
    routes = tuple(free_port() for _ in range(3))
    async with AsyncExitStack() as stack:
        servers = [ProductionNats(keys, name=f"nats-{n}", route=route, routes=routes) for n, route in enumerate(routes)]
        await asyncio.gather(*(stack.enter_async_context(server) for server in servers))
        urls = ",".join(server.url for server in servers)
        limits = Limits(max_bytes=SMALL.max_bytes, replicas=3)
        async with signed_in(servers[0].config("admin", url=urls), "admin") as js:
            await until(lambda: _founded(js, limits), timeout_s=60, every_s=0.2)
        async with signed_in(servers[0].config("watcher", url=urls), "watcher") as js:
            log = await open_log(js, "main")
            seq = await log.append(commit(1), expected=0)
            await servers[0].stop()
            assert await log.append(commit(2), expected=seq) == seq + 1


async def _founded(js: JetStream, limits: Limits) -> bool:
    """Also that the servers have found each other: until then they cannot keep anything three times."""
    try:
        await open_stores(js, "main", create=True, limits=limits)
        await open_log(js, "main", create=True, limits=limits)
    except BusError:
        return False
    return True


# --- outside --------------------------------------------------------------------------------------------------------


async def publish(server: ProductionNats, numbers: range, *, namespace: str = "video", by: str = "publisher") -> None:
    async with signed_in(server.config(by), by) as js:
        outlet = PublicPublisher(js, "main")
        await outlet.resume()
        for number in numbers:
            subject = subjects.public_subject("main", "workload_admitted", namespace, f"job-{number}")
            await outlet.publish(subject, {"ce-id": f"main-1-{number}-0"}, b"{}")
        await outlet.settle()


@asynccontextmanager
async def outside(server: ProductionNats, user: str = "reader") -> AsyncIterator[tuple[Client, list[Exception]]]:
    """Anybody's NATS client: no code of ours."""
    errors: list[Exception] = []

    async def told(error: Exception) -> None:
        errors.append(error)

    config = server.config(user)
    client = await nats.connect(
        config.nats_url,
        nkeys_seed=config.nats_nkey_file,
        inbox_prefix=config.nats_inbox_prefix,
        tls=_trusting(config.nats_ca_file),
        error_cb=told,
    )
    yield client, errors
    await client.close()


def _trusting(ca_file: str) -> Any:
    return ssl.create_default_context(cafile=ca_file)


async def fetch(client: Client, name: str, count: int, filter_: str = subjects.PUBLIC_SUBJECTS) -> list[str]:
    js = client.jetstream(prefix=API)
    subscription = await js.pull_subscribe(filter_, durable=name, stream=PUB)
    found = await subscription.fetch(count, timeout=30)
    for message in found:
        await message.ack_sync()
    return [message.headers["ce-id"] for message in found]


@pytest.mark.parametrize("publisher", ["publisher", "all"])
async def test_outsiders_go_on_where_they_stopped(server: ProductionNats, publisher: str) -> None:
    await publish(server, range(5), by=publisher)
    async with outside(server) as (client, errors):
        assert await fetch(client, "reader", 3) == ["main-1-0-0", "main-1-1-0", "main-1-2-0"]
        assert not errors
    await publish(server, range(5, 7), by=publisher)
    async with outside(server) as (client, errors):
        assert await fetch(client, "reader", 4) == [f"main-1-{number}-0" for number in (3, 4, 5, 6)]
        live = await client.subscribe(subjects.public_cell_subjects("main"))
        await client.flush()
        await publish(server, range(7, 8), by=publisher)
        assert (await live.next_msg(timeout=30)).headers["ce-id"] == "main-1-7-0"
        assert not errors


async def test_outsiders_do_nothing_else(server: ProductionNats) -> None:
    log, api, own = subjects.log_stream("main", 1), API, "$JS.API"
    await publish(server, range(2))
    for subject in (
        subjects.public_subject("main", "workload_admitted", "a", "b"),
        subjects.log_subject("main", 1, "quota_accountant", "0"),
        f"$KV.{subjects.state_bucket('main')}.log",
        *(
            f"{prefix}.STREAM.{verb}.{PUB}"
            for prefix in (api, own)
            for verb in ("DELETE", "PURGE", "UPDATE", "MSG.DELETE")
        ),
        *(f"{prefix}.STREAM.MSG.GET.{stream}" for prefix in (api, own) for stream in (PUB, log)),
        *(f"{prefix}.CONSUMER.CREATE.{log}.reader" for prefix in (api, own)),
        f"{api}.CONSUMER.CREATE.{PUB}.another",
        f"{api}.CONSUMER.DELETE.{PUB}.reader",
        f"{api}.CONSUMER.MSG.NEXT.{PUB}.another",
        f"{api}.STREAM.NAMES",
        f"{api}.STREAM.CREATE.MINE",
        f"{own}.STREAM.CREATE.MINE",
        f"{own}.INFO",
        "anything.else",
    ):
        await forbidden(server, "reader", subject)
    async with signed_in(server.config("admin"), "admin") as js:
        info = await js.info(PUB)
        assert info is not None
        assert info.state.messages == 2


async def test_a_consumer_outside_delivers_nothing_inside(server: ProductionNats) -> None:
    await publish(server, range(2))
    target = subjects.log_subject("main", 1, "watcher", "pods")
    config = {"durable_name": "reader", "name": "reader", "deliver_subject": target, "ack_policy": "none"}
    body = msgspec.json.encode({"stream_name": PUB, "action": "create", "config": config})
    async with outside(server) as (client, _):
        await client.request(f"{API}.CONSUMER.CREATE.{PUB}.reader", body, timeout=30)
    await asyncio.sleep(1.0)
    async with signed_in(server.config("cli"), "cli") as js:
        assert await (await open_log(js, "main")).end() == 1


async def test_a_reader_of_one_namespace_sees_no_other(tmp_path: Path) -> None:
    accounts = natsaccounts.render("main", {"team": "video", "reader": ""})
    async with running(tmp_path, accounts) as server:
        await publish(server, range(2), namespace="video")
        await publish(server, range(2, 4), namespace="text")
        mine = subjects.public_namespace_subjects("main", "video")
        async with outside(server, "team") as (client, errors):
            assert await fetch(client, "team", 2, mine) == ["main-1-0-0", "main-1-1-0"]
            assert not errors
        async with outside(server, "reader") as (client, errors):
            assert len(await fetch(client, "reader", 4)) == 4
        for wider in ("", ".muster.pub.v1.>", ".muster.pub.v1.main.*.*.*", ".muster.pub.v1.main.*.text.*"):
            await forbidden(server, "team", f"{API}.CONSUMER.CREATE.{PUB}.team{wider}")
        # The allowed subject with another filter in the body is refused by the server itself.
        config = {"name": "team", "durable_name": "team", "ack_policy": "explicit", "filter_subject": "muster.pub.v1.>"}
        body = msgspec.json.encode({"stream_name": PUB, "config": config})
        async with outside(server, "team") as (client, _):
            answer = await client.request(f"{API}.CONSUMER.CREATE.{PUB}.team.{mine}", body, timeout=30)
            assert b"error" in answer.data


# --- signing in -----------------------------------------------------------------------------------------------------


async def test_without_the_right_key_nobody_comes_in(server: ProductionNats, tmp_path: Path) -> None:
    with pytest.raises(ConnectError, match=r"(?i)authorization"):
        async with signed_in(msgspec.structs.replace(server.config("watcher"), nats_nkey_file="")):
            pass
    missing = str(tmp_path / "nobody.nk")
    with pytest.raises(ConnectError, match=r"nobody\.nk"):
        async with signed_in(msgspec.structs.replace(server.config("watcher"), nats_nkey_file=missing)):
            pass


async def test_a_server_of_another_authority_is_not_trusted(server: ProductionNats, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Keys(tmp_path / "other", "").ca_file
    with pytest.raises(ConnectError, match=r"(?i)certificate"):
        await connect_bus(
            msgspec.structs.replace(server.config("watcher"), nats_ca_file=str(other)), "t", _silent, timeout_s=6.0
        )
    with pytest.raises(ConnectError, match=r"cannot use .*nowhere.* as the CA of NATS.*nats_ca_file"):
        await connect_bus(msgspec.structs.replace(server.config("watcher"), nats_ca_file="/nowhere"), "t", _silent)


async def test_the_shared_inbox_is_refused_by_name(server: ProductionNats) -> None:
    config = msgspec.structs.replace(server.config("watcher"), nats_inbox_prefix="_INBOX")
    connection: Connection = await connect_bus(config, "t", _silent)
    with pytest.raises(BusError, match=r"(?i)_inbox"):
        await JetStream(connection).ask("STREAM.INFO.x")
    await connection.close()
