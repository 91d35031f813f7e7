"""Answers of a real server with the accounts we ship: no key has them stored where it may not write itself.

A server stores an answer like any other message, in the stream that has the subject it is sent to, and compares that
subject with no permission.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kit.nats import SMALL
from kit.production import FILES, Keys, ProductionNats
from muster.bus.cell import open_log, open_stores
from muster.bus.jetstream import JetStream
from muster.events import subjects
from muster.runtime.connecting import connect_bus
from muster.runtime.natsaccounts import muster_users

LOG = subjects.log_stream("main", 1)
PUBLIC = subjects.PUBLIC_STREAM
STATE, LEASES = subjects.state_bucket("main"), subjects.lease_bucket("main")
VICTIMS = (
    subjects.log_subject("main", 1, "quota_accountant", "0"),
    f"$KV.{STATE}.log",
    f"$KV.{STATE}.snapshot.quota_accountant.0",
    f"$KV.{LEASES}.quota_accountant.0",
    subjects.public_subject("main", "workload_admitted", "a", "b"),
    subjects.quarantine_subject("main", "watcher"),
)
OWN = b"said by its rightful key"
USERS = [user.name for user in muster_users("main") if user.name not in ("admin", "keeper")]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ProductionNats]:
    keys = Keys(tmp_path, (FILES / "accounts.conf").read_text())
    async with ProductionNats(keys) as server:
        async with signed_in(server, "admin") as js:
            await open_stores(js, "main", create=True, limits=SMALL)
            await open_log(js, "main", create=True, limits=SMALL, at=1)
        yield server


@asynccontextmanager
async def signed_in(server: ProductionNats, user: str) -> AsyncIterator[JetStream]:
    connection = await connect_bus(server.config(user), user, lambda _event, _fields: None)
    yield JetStream(connection)
    await connection.close()


async def test_no_key_has_an_answer_stored_where_it_may_not_write(server: ProductionNats) -> None:
    before = await _stored(server)
    asked = 0
    for user in USERS:
        async with signed_in(server, user) as js:
            config = {"name": user, "ack_policy": "none", "mem_storage": True}
            await js.ask(f"CONSUMER.CREATE.{LOG}.{user}", {"stream_name": LOG, "action": "create", "config": config})
            for victim in VICTIMS:
                if any(_below(victim, own) for own in _may(user)):
                    continue
                for subject, payload in (
                    (f"{js.prefix}.STREAM.INFO.{LOG}", b""),
                    (f"{js.prefix}.STREAM.MSG.GET.{LOG}", b'{"seq":1}'),
                    (f"{js.prefix}.CONSUMER.MSG.NEXT.{LOG}.{user}", b'{"batch":1,"no_wait":true}'),
                    *((own.replace("*", "1"), OWN) for own in _may(user) if own.startswith("muster.log.")),
                ):
                    await js.connection.publish(subject, payload, reply=victim)
                    asked += 1
            # Answers come in the order of the questions: after this one, all the others have been given.
            await js.ask(f"STREAM.INFO.{LOG}")
    assert asked > 200
    await asyncio.sleep(0.2)
    for victim, data in (await _stored(server)).items():
        assert data in (before[victim], OWN), f"{victim} holds {data}"


async def _stored(server: ProductionNats) -> dict[str, bytes]:
    """The newest message on each subject."""
    streams = (LOG, f"KV_{STATE}", f"KV_{STATE}", f"KV_{LEASES}", PUBLIC, subjects.quarantine_stream("main"))
    async with signed_in(server, "admin") as js:
        found = [await js.last(stream, victim) for stream, victim in zip(streams, VICTIMS, strict=True)]
    return {victim: each.data if each is not None else b"" for victim, each in zip(VICTIMS, found, strict=True)}


def _may(user: str) -> tuple[str, ...]:
    return next(each.publish for each in muster_users("main") if each.name == user)


def _below(subject: str, allowed: str) -> bool:
    one, other = subject.split("."), allowed.split(".")
    if other[-1] == ">":
        one, other = one[: len(other) - 1], other[:-1]
    return len(one) == len(other) and all(b in ("*", a) for a, b in zip(one, other, strict=True))
