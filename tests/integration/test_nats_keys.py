"""The matrix of keys: each key of the accounts we ship × each subject there is, and some that there are not.

What is right is written down here, by hand; a real server says what it allows.
"""

import re
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import nats
import pytest
import pytest_asyncio
from nats.aio.client import Client

from kit.nats import SMALL
from kit.production import FILES, Keys, ProductionNats
from kit.waiting import until
from muster.audit.judge import RIGHTS
from muster.bus.cell import open_log, open_stores
from muster.bus.jetstream import JetStream
from muster.events import subjects
from muster.runtime.connecting import connect_bus
from muster.runtime.natsaccounts import API

pytestmark = pytest.mark.asyncio(loop_scope="module")

DECIDE = ("quota_accountant", "queue_sorter", "gang_admitter", "preemptor", "autoscaler_bridge")
OWNERS = {stage: stage for stage in ("watcher", *DECIDE, "actuator", "publisher", "keeper")}
OWNERS |= {"presenter": "actuator", "readmodel": "publisher"}
"""{stage: the service that runs it}"""
SERVICES = {*OWNERS.values()}
READERS = {"gateway", "cli"}
USERS = (*sorted(SERVICES | READERS), "admin", "reader")
FOUNDERS = {"keeper", "admin"}
READ_THE_LOG = SERVICES | READERS | {"admin"}

LOG, NEXT = subjects.log_stream("main", 1), subjects.next_stream("main")
LEASES, STATE, BASE = "MUSTER_LEASE_main", "MUSTER_STATE_main", "MUSTER_SNAP_main"
REPLICAS = "MUSTER_REPLICA_main"
KEPT = {stage: owner for stage, owner in OWNERS.items() if stage not in ("keeper", "presenter", "publisher")}
"""{stage whose snapshots are kept: the service that keeps them}"""
SNAPSHOTS = {f"MUSTER_SNAP_main_{stage}": owner for stage, owner in KEPT.items()}
STREAMS = {f"KV_{LEASES}": "", f"KV_{REPLICAS}": "", f"KV_{STATE}": "", "MUSTER_QUARANTINE_main": "", "MUSTER_PUB": ""}
STREAMS |= {f"OBJ_{bucket}": owner for bucket, owner in SNAPSHOTS.items()} | {f"OBJ_{BASE}": "keeper"}
"""{each stream that is no generation of the log: the service that may take messages out of it}"""


def _of_the_log() -> Iterator[tuple[str, set[str]]]:
    for generation in (1, 7):
        for seat in RIGHTS:
            stage = seat.partition(".")[0]
            # An archived log is brought back by admin, who may have the server restore any stream anyway.
            owners = FOUNDERS if stage == "genesis" else {OWNERS[stage], "admin"}
            yield f"muster.log.main.{generation}.{seat}", owners
    for stage in (*OWNERS, "genesis", "stranger"):
        yield f"muster.log.main.1.{stage}.another", set()
        yield f"muster.log.main.1.{stage}.0.0", set()
        yield f"muster.log.other.1.{stage}.0", set()
    for operation in ("STREAM.PURGE", "STREAM.MSG.DELETE", "STREAM.SNAPSHOT", "STREAM.PEER.REMOVE", "CONSUMER.LIST"):
        yield f"{API}.{operation}.{LOG}", {"admin"}
    for stream in (LOG, NEXT, "MUSTER_LOG_main_9"):
        for operation in ("STREAM.CREATE", "STREAM.UPDATE", "STREAM.DELETE", "STREAM.LEADER.STEPDOWN"):
            yield f"{API}.{operation}.{stream}", FOUNDERS
    for operation in ("STREAM.INFO.{}", "STREAM.MSG.GET.{}", "CONSUMER.CREATE.{}.x", "CONSUMER.MSG.NEXT.{}.x"):
        yield f"{API}.{operation.format(LOG)}", READ_THE_LOG


def _beside_the_log() -> Iterator[tuple[str, set[str]]]:
    for stage, owner in OWNERS.items():
        shard = "nodes" if stage == "watcher" else "0"
        yield f"$KV.{LEASES}.{stage}.{shard}", {owner} if stage != "readmodel" else set()
        yield f"$KV.{LEASES}.{stage}.another", set()
        yield f"$KV.{LEASES}.{stage}.witness", {owner} if stage in ("watcher", "actuator") else set()
        yield f"$KV.{REPLICAS}.replica.{stage}.0.a", {owner} if stage in DECIDE else set()
        yield f"$KV.{STATE}.snapshot.{stage}.{shard}", {owner, "admin"} if stage in KEPT else {"admin"}
        yield f"$KV.{STATE}.snapshot.{stage}.another", {"admin"}
    for user in SERVICES | READERS:
        yield f"$KV.{STATE}.ended.{user}", {user} - {"cli"}
        yield f"$KV.{STATE}.mark.{user}", {user, "admin"} - {"cli"}
    yield f"$KV.{STATE}.log", FOUNDERS
    yield f"$KV.{STATE}.cluster", {"watcher", "admin"}
    yield f"$KV.{STATE}.published", {"publisher"}
    yield f"$KV.{STATE}.anything", set()
    for bucket, owners in {**{each: {owner} for each, owner in SNAPSHOTS.items()}, BASE: FOUNDERS}.items():
        yield f"$O.{bucket}.C.a", owners
        yield f"$O.{bucket}.M.a", owners
    for unused in ("presenter", "publisher"):
        yield f"$O.MUSTER_SNAP_main_{unused}.M.a", set()
    for stage, owner in KEPT.items():
        readers = {owner, "keeper", "cli", "admin", *({"actuator", "gateway"} if stage == "readmodel" else ())}
        yield f"{API}.STREAM.MSG.GET.OBJ_MUSTER_SNAP_main_{stage}", readers
    yield "muster.pub.v1.main.workload_admitted.a.b", {"publisher"}
    yield "muster.pub.v1.other.workload_admitted.a.b", set()
    yield "muster.quarantine.main.watcher", {"watcher"}
    yield "muster.next.main", set()


def _of_other_streams() -> Iterator[tuple[str, set[str]]]:
    for stream, owner in STREAMS.items():
        yield f"{API}.STREAM.PURGE.{stream}", {owner, "admin"}
        for operation in ("CREATE", "UPDATE", "DELETE", "MSG.DELETE", "RESTORE", "LEADER.STEPDOWN", "PEER.REMOVE"):
            yield f"{API}.STREAM.{operation}.{stream}", {"admin"}
        for operation in ("CONSUMER.CREATE.{}.x", "CONSUMER.DELETE.{}.x", "CONSUMER.DELETE.{}.reader"):
            yield f"{API}.{operation.format(stream)}", {"admin"}
        yield f"{API}.CONSUMER.MSG.NEXT.{stream}.x", {"admin"}
    yield f"{API}.CONSUMER.MSG.NEXT.MUSTER_PUB.reader", {"admin", "reader"}


def _elsewhere() -> Iterator[tuple[str, set[str]]]:
    yield "$JS.API.INFO", set()
    yield f"$JS.API.STREAM.DELETE.{LOG}", set()
    for asked in ("JSZ", "HEALTHZ"):
        yield f"$SYS.REQ.SERVER.PING.{asked}", {"keeper", "cli", "admin"}
    for asked in ("PING", "PING.VARZ", "PING.CONNZ", "nats-0.JSZ"):
        yield f"$SYS.REQ.SERVER.{asked}", set()
    yield "_INBOX.a", set()
    yield "_INBOX_nobody.a", set()
    yield "anything", set()


END = "the.end"
MATRIX = dict([*_of_the_log(), *_beside_the_log(), *_of_other_streams(), *_elsewhere()])
"""{subject: the keys that may send there}"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ProductionNats]:
    keys = Keys(tmp_path_factory.mktemp("keys"), (FILES / "accounts.conf").read_text())
    async with ProductionNats(keys) as server:
        connection = await connect_bus(server.config("admin"), "admin", lambda _event, _fields: None)
        await open_stores(JetStream(connection), "main", create=True, limits=SMALL)
        await open_log(JetStream(connection), "main", create=True, limits=SMALL, at=1)
        await connection.close()
        yield server


@asynccontextmanager
async def signed_in(server: ProductionNats, user: str, refused: list[str]) -> AsyncIterator[Client]:
    """A NATS client without code of ours."""
    config = server.config(user)

    async def told(error: Exception) -> None:
        found = re.search(r'permissions violation for publish to "([^"]+)"', str(error), re.IGNORECASE)
        if found is not None:
            refused.append(found[1])

    client = await nats.connect(
        config.nats_url,
        nkeys_seed=config.nats_nkey_file,
        inbox_prefix=config.nats_inbox_prefix,
        tls=ssl.create_default_context(cafile=config.nats_ca_file),
        error_cb=told,
    )
    yield client
    await client.close()


@pytest.mark.parametrize("user", USERS)
async def test_a_key_sends_where_it_may_and_nowhere_else(server: ProductionNats, user: str) -> None:
    refused: list[str] = []
    async with signed_in(server, user, refused) as client:
        for subject in MATRIX:
            # No request of the API is valid with such a body: what is allowed changes nothing either.
            await client.publish(subject, b"junk")
        # Refusals come in the order of what was sent: after this one, all have come.
        await client.publish(END, b"")
        await until(lambda: END in refused, what="the last refusal")
    wrong = {END, *(subject for subject, owners in MATRIX.items() if user not in owners)}
    # nats-py tells of errors in lower case.
    assert {each.lower() for each in refused} == {each.lower() for each in wrong}
