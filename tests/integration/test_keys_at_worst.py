"""Every key of a service against the whole cell: it fills, empties, makes consumers and asks, as much as NATS takes.

After each attack all other services do their work. What the key took is a row of docs/reference/keys.md.
"""

import asyncio
import json
import os
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from kit.nats import SMALL, commit
from kit.production import FILES, Keys, ProductionNats
from muster.audit.judge import RIGHTS
from muster.bus.cell import POINTER, budgeted, open_log, open_stores
from muster.bus.connection import no_responders
from muster.bus.errors import ApiError, BusError, UnansweredError
from muster.bus.fills import reserves
from muster.bus.jetstream import JetStream, decode_ack
from muster.bus.lease import LEASE_S, JetStreamLease
from muster.bus.marks import JetStreamMarks, Mark
from muster.bus.snapshots import JetStreamSnapshots
from muster.bus.streams import BUDGETS, Limits
from muster.events import subjects
from muster.ports import FencedError, Snapshot
from muster.runtime.connecting import connect_bus
from muster.runtime.layouts import SERVICES
from muster.runtime.natsaccounts import API, User, muster_users
from muster.runtime.opening import openings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="module")]

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "keys.md"
USERS = {user.name: user for user in muster_users("main") if user.name in (*SERVICES, "cli")}
OF_THE_LOG = 1 << 20
"""Bytes that are written to the log: its part of a stage is tested in test_log_trust."""
TRUSTED = {f"$KV.{subjects.state_bucket('main')}.{POINTER}"}
"""What the keeper alone writes, and all others believe: junk there stops the cell until a person puts it right."""
CONSUMERS, REQUESTS = 200, 2_000
LOG = subjects.log_stream("main", 1)


class World(NamedTuple):
    server: ProductionNats
    admin: JetStream
    services: dict[str, JetStream]
    """{service: its connection, which no attack uses}"""


class Took(NamedTuple):
    """What an attack took: streams that grew, streams that were full in the end, streams that were emptied."""

    grew: set[str]
    full: set[str]
    emptied: set[str]
    consumers: int
    own: list[str]
    """What its own service cannot do then."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """A store that is as large as the budgets, and a tenth more: what one could take beyond its own others lack."""
    keys = Keys(tmp_path_factory.mktemp("keys"), (FILES / "accounts.conf").read_text())
    server = ProductionNats(keys)
    text = server._config.read_text()
    room = reserves("main", SMALL) * 11 // 10
    server._config.write_text(text.replace("64GB", str(room)).replace("sync_interval: always", ""))
    async with server:
        connections = {
            user: await connect_bus(server.config(user), user, lambda _event, _fields: None)
            for user in (*SERVICES, "admin")
        }
        admin = JetStream(connections.pop("admin"))
        await open_stores(admin, "main", create=True, limits=SMALL)
        await open_log(admin, "main", create=True, limits=SMALL, at=1)
        yield World(server, admin, {user: JetStream(connection) for user, connection in connections.items()})
        for connection in (admin.connection, *connections.values()):
            await connection.close()


async def works(world: World, service: str, number: int) -> list[str]:
    """A service does what it does all the time: appends, holds its lease, keeps a snapshot, and says how far it is.

    The parts that fail are named.
    """
    js, failed = world.services[service], list[str]()
    log = await open_log(js, "main")
    for opened in openings(service).values():
        shard = "nodes" if "watcher" in (opened.appends, opened.keeps) else "0"
        if opened.appends:
            last = await log.last(opened.appends, shard)
            with failing(failed, "appends"):
                await log.append(commit(number, stage=opened.appends, shard=shard), expected=last)
        if opened.lease:
            lease = JetStreamLease(js, log.identity, opened.lease, shard, f"{service}-{number}")
            with failing(failed, "lease"):
                assert await lease.acquire()
                await lease.release()
        if opened.keeps:
            snapshots = JetStreamSnapshots(js, log.identity, warn=lambda _: None)
            end = await log.end()
            kept = Snapshot(log.identity.log_id, opened.keeps, shard, end, "schema", secrets.token_bytes(100_000))
            with failing(failed, "snapshots"):
                assert await snapshots.save(kept)
    with failing(failed, "mark"):
        await JetStreamMarks(js, "main").put(log, service, Mark(log.identity.log_id, 1, "00"))
    return failed


async def left_out(world: World, service: str, number: int) -> list[str]:
    """What the service of the key that attacked cannot do, once a lease that the key wrote over has run out."""
    failed, ends = ["all"], time.monotonic() + LEASE_S + 5.0
    while failed and time.monotonic() < ends:
        failed = await works(world, service, number)
    return failed


@contextmanager
def failing(failed: list[str], part: str) -> Iterator[None]:
    try:
        yield
    except (BusError, UnansweredError, FencedError, AssertionError):
        failed.append(part)


def random_tokens(subject: str) -> str:
    return ".".join(f"x{secrets.token_hex(6)}" if token in ("*", ">") else token for token in subject.split("."))


async def fill(js: JetStream, subject: str, size: int, most: int) -> bool:
    """Send until the stream refuses, or ``most`` bytes are stored; whether it refused for want of room."""
    for _ in range(1 + most // (size + 1)):
        try:
            answer = await js.connection.call(random_tokens(subject), bytes(size), timeout_s=30.0)
        except UnansweredError:
            return False
        refusal = None if no_responders(answer) else decode_ack(answer.data).refusal("")
        if refusal is not None:
            return refusal.full
    return False


async def overfill(js: JetStream, subject: str, budget: dict[str, Any]) -> bool:
    """Write more than there is room for, by large messages and by many; whether the stream refused for want of room."""
    if budget["name"] == LOG:
        return await fill(js, subject.replace(".*.", ".1.", 1), OF_THE_LOG // 16, OF_THE_LOG // 8)
    largest = min(budget["max_msg_size"] - 512 if budget["max_msg_size"] > 0 else 500_000, 500_000)
    if budget["discard"] == "old" or "*" not in subject:
        return await fill(js, subject, largest, 4 * largest)
    return await fill(js, subject, largest, 2 * budget["max_bytes"]) or await fill(
        js, subject, 0, 2 * budget["max_msgs"]
    )


async def attack(world: World, user: User) -> Took:
    connection = await connect_bus(world.server.config(user.name), f"{user.name}-in-other-hands", lambda *_: None)
    js, budgets = JetStream(connection), {config["name"]: config for config in budgeted("main", 1, SMALL)}
    before = {stream: await world.admin.info(stream) for stream in budgets}
    full: set[str] = set()
    for subject in user.publish:
        stream = stream_of(subject) if subject not in TRUSTED else None
        if stream is not None and await overfill(js, subject, budgets[stream]):
            full.add(stream)
    after = {stream: await world.admin.info(stream) for stream in budgets}
    grew = {stream for stream in budgets if size(after[stream]) > size(before[stream])}
    emptied: set[str] = set()
    for subject in user.publish:
        if ".STREAM.PURGE." in subject:
            stream = subject.rpartition(".")[2]
            await connection.call(subject, b"{}", timeout_s=30.0)
            info = await world.admin.info(stream)
            if info is not None and not info.state.messages:
                emptied.add(stream)
    await say_everything(world, js, user)
    consumers = await make_consumers(js, user)
    all_subjects = b'{"subjects_filter": ">", "deleted_details": true}'
    asked = [await connection.send(f"{API}.STREAM.INFO.{LOG}", all_subjects) for _ in range(REQUESTS)]
    await asyncio.gather(*asked)
    await connection.close()
    return Took(grew, full, emptied, consumers, [])


async def say_everything(world: World, js: JetStream, user: User) -> None:
    """Send with each header that a server acts on: nothing of another is emptied, replaced or written by it."""
    own = {stream: subject for subject in user.publish if subject not in TRUSTED and (stream := stream_of(subject))}
    theirs = await said_by_others(world, user)
    target = next(subject for subject in theirs if subject.startswith("muster.log."))
    names = [config["name"] for config in budgeted("main", 1, SMALL)]
    held = {name: info for name in names if (info := await world.admin.info(name, checks=1)) is not None}
    for subject in own.values():
        for headers in HEADERS:
            made = {name: value.replace("TARGET", target) for name, value in headers.items()}
            with suppress(UnansweredError):
                await js.publish(random_tokens(subject.replace(".*.", ".1.", 1)), b"{}", made, timeout_s=2.0)
    assert await said_by_others(world, user) == theirs
    for stream, info in held.items():
        now = await world.admin.info(stream)
        assert now is not None
        assert now.config == info.config, stream
        if stream not in own and not info.config.get("max_age"):
            assert now.state.messages >= info.state.messages, (user.name, stream)


async def said_by_others(world: World, user: User) -> dict[str, Any]:
    """{subject: last message} of marks and seats that are not this user's."""
    state = subjects.state_bucket("main")
    places = {f"$KV.{state}.mark.{service}": f"KV_{state}" for service in SERVICES if service != user.name}
    seats = {subjects.log_subject("main", 1, stage, "0"): LOG for stage in SAMPLES if stage != user.name}
    return {subject: await world.admin.last(stream, subject) for subject, stream in (places | seats).items()}


async def make_consumers(js: JetStream, user: User) -> int:
    """How many consumers of the log that never end by themselves the key gets, of CONSUMERS tried."""
    made = 0
    for _ in range(CONSUMERS):
        name = f"{user.name}-{secrets.token_hex(6)}"
        config: dict[str, Any] = {"durable_name": name, "ack_policy": "explicit", "deliver_policy": "all"}
        try:
            await js.ask(f"CONSUMER.CREATE.{LOG}.{name}", {"stream_name": LOG, "config": config})
        except ApiError:
            break
        made += 1
    return made


SAMPLES = ("quota_accountant", "gang_admitter")
HEADERS: tuple[dict[str, str], ...] = (
    {"Nats-Rollup": "all"},
    {"Nats-Rollup": "sub"},
    {"Nats-TTL": "1s"},
    {"Nats-TTL": "never"},
    {"Nats-Incr": "+1"},
    {"Nats-Msg-Id": "one"},
    {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "TARGET"},
    {"Nats-Schedule": "@at 2020-01-01T00:00:00Z", "Nats-Schedule-Target": "TARGET", "Nats-Schedule-TTL": "1s"},
    {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1"},
    {"Nats-Batch-Id": "open", "Nats-Batch-Sequence": "1"},
    {"Nats-Marker-Reason": "Purge"},
    {"KV-Operation": "PURGE"},
)
"""Of nats-server 2.10 to 2.15; each alone on each subject that a key may write."""


def stream_of(subject: str) -> str | None:
    """The stream that stores what is sent on a subject; None for a request."""
    if subject.startswith("$KV."):
        return f"KV_{subject.split('.')[1]}"
    if subject.startswith("$O."):
        return f"OBJ_{subject.split('.')[1]}"
    if subject.startswith("muster.log."):
        return LOG
    if subject.startswith("muster.pub."):
        return subjects.PUBLIC_STREAM
    return subjects.quarantine_stream("main") if subject.startswith("muster.quarantine.") else None


def size(info: Any) -> int:
    return info.state.bytes if info is not None else 0


async def test_no_key_stops_the_work_of_another(world: World) -> None:
    for service in SERVICES:
        assert await works(world, service, 1) == [], service
    rows: dict[str, Took] = {}
    for number, (name, user) in enumerate(USERS.items(), 2):
        rows[name] = await attack(world, user)
        for service in SERVICES:
            if service != name:
                assert await works(world, service, number) == [], (name, service)
        if name in SERVICES:
            rows[name] = rows[name]._replace(own=await left_out(world, name, number))
        await mend(world, name)
    page = written(rows)
    if os.environ.get("MUSTER_TEST_REWRITE"):
        PAGE.write_text(page)
    assert PAGE.read_text() == page, "run it with MUSTER_TEST_REWRITE=1 and read the difference"


def may_say() -> Iterator[tuple[str, str, str]]:
    """(stage, its facts, its decisions) by the judge."""
    said: dict[str, dict[str, set[str]]] = {}
    for seat, rights in RIGHTS.items():
        for kind, events in rights.items():
            tags = said.setdefault(seat.partition(".")[0], {}).setdefault(kind, set())
            tags.update(str(event.__struct_config__.tag) for event in events)
    for stage, kinds in said.items():
        facts, decided = (", ".join(f"`{tag}`" for tag in sorted(kinds[kind])) or "-" for kind in ("input", "decision"))
        yield stage, facts, decided


async def mend(world: World, name: str) -> None:
    """What `docs/howto/rotate-keys.md` leaves to do once the key was changed: the litter of the attack goes."""
    for config in budgeted("main", 1, SMALL):
        stream = config["name"]
        if stream.startswith(("OBJ_", "KV_MUSTER_LEASE", "KV_MUSTER_REPLICA")):
            await world.admin.ask(f"STREAM.PURGE.{stream}", {})
    answer = await world.admin.ask(f"CONSUMER.NAMES.{LOG}", {})
    for consumer in json.loads(answer)["consumers"] or ():
        await world.admin.ask(f"CONSUMER.DELETE.{LOG}.{consumer}", {})


def written(rows: dict[str, Took]) -> str:
    """docs/reference/keys.md."""
    lines = [
        "# What each key could do at worst",
        "",
        "Generated by `tests/integration/test_keys_at_worst.py`, which attacks a real server with each key. The",
        "key fills each stream that the key may write, empties each stream that the key may empty, sends every",
        "header that a server acts on, makes consumers without an end, and asks thousands of questions. After each",
        "attack every other service appends, holds its lease, keeps a snapshot, and records its mark. The last",
        "column is what the service of the key itself cannot do within 15 s (a lease lasts 10 s).",
        "Not tried: the keeper founds and deletes",
        "generations of the log, and writes the pointer to the newest one. With junk in the pointer no service",
        "starts until `muster log init` has made it again from the streams; a pointer to another log, or a deleted",
        "log, stops the cell until it is put right. The deciders share the bucket of replicas: while that bucket is",
        "full, no rule set is put in force; its entries expire within 10 s.",
        "",
        "| Key | Writes to | Full in the end | Emptied | Consumers of the log | Cannot do itself then |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, took in rows.items():
        consumers = "as many as tried" if took.consumers == CONSUMERS else str(took.consumers)
        cells = [", ".join(f"`{stream}`" for stream in sorted(streams)) or "-" for streams in took[:3]]
        own = ", ".join(dict.fromkeys(took.own)) or "-"
        lines.append(f"| {name.replace('_', ' ')} | {' | '.join(cells)} | {consumers} | {own} |")
    lines += [
        "",
        "## What a key may say",
        "",
        "The judge (`muster.audit.judge.RIGHTS`) voids every other event, for every reader:",
        "`tests/sim/test_keys_matrix.py`. Where events within these rights lead: [reliability](../reliability.md).",
        "",
        "| Stage | Facts | Decisions |",
        "| --- | --- | --- |",
    ]
    lines += [f"| {stage.replace('_', ' ')} | {facts} | {decided} |" for stage, facts, decided in may_say()]
    lines += [
        "",
        "## Budgets",
        "",
        "What a stream may take, at the default size of a generation of the log. NATS reserves it: a full stream takes",
        "nothing from another. At half of a budget the keeper raises the alarm (`StoreHalfFull`); `muster doctor`",
        "compares all budgets with the store.",
        "",
        "| Stream | Bytes | Messages | Bytes of one message |",
        "| --- | --- | --- | --- |",
    ]
    for kind, budget in BUDGETS.items():
        found = budget(Limits())
        shown = [f"{number:,}" if number > 0 else "-" for number in (found.bytes, found.messages, found.message_bytes)]
        lines.append(f"| {kind} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"
