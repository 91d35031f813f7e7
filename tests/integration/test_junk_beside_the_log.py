"""Junk by each key, wherever it may write, on a real server with the accounts we ship: others read it and go on.

What others read of a service: its commits, its mark, that its replicas live, where its snapshots are, and these. The
keeper reads all of it: it looks, archives, and compares snapshots where it rolls over.
"""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path

import pytest

from kit.keeping import keeper_of
from kit.nats import SMALL, Notices
from kit.production import FILES, Keys, ProductionNats
from muster.audit.judge import RIGHTS
from muster.bus.cell import FOLDERS, open_log, open_stores
from muster.bus.jetstream import JetStream
from muster.bus.marks import JetStreamMarks
from muster.bus.replicas import JetStreamReplicas
from muster.bus.snapshots import JetStreamSnapshots
from muster.events import subjects
from muster.runtime.connecting import connect_bus
from muster.runtime.layouts import SERVICES
from muster.runtime.logkeeping.rolling import kept_snapshots
from muster.runtime.opening import openings
from muster.runtime.pairing import recorded_cluster

DEEP = 5_000
TOO_LARGE = 10054
JUNK = {
    "deep": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "no text": b'{"commit_id":"\xff\xfe"}',
    "a large number": b'{"seq":1e999999999,"at":1e999999999,"chunks":1e999999999}',
    "nothing": b"",
    "another shape": b'{"seq":"x","chunks":-1,"at":[],"newest":7}',
}


def written(service: str) -> list[str]:
    """Every subject that a key may write and others read."""
    state, lease = subjects.state_bucket("main"), subjects.lease_bucket("main")
    found = [f"$KV.{state}.mark.{service}"]
    for each in openings(service).values():
        if each.lease:
            found.append(f"$KV.{lease}.{each.lease}.{'nodes' if each.lease == 'watcher' else '0'}")
        if each.announces:
            found.append(f"$KV.{subjects.replica_bucket('main')}.replica.{each.appends}.0.x")
        if each.keeps:
            shard = "nodes" if each.keeps == "watcher" else "0"
            found += [
                f"$KV.{state}.snapshot.{each.keeps}.{shard}",
                f"$O.{subjects.snapshot_bucket('main', each.keeps)}.M.x",
            ]
        if each.appends:
            found += [f"muster.log.main.1.{seat}" for seat in RIGHTS if seat.startswith(f"{each.appends}.")]
        if each.publishes:
            found.append(f"$KV.{state}.published")
        if each.pairs:
            found.append(f"$KV.{state}.cluster")
    return found


@pytest.mark.timeout(300)
async def test_junk_of_no_key_stops_another(tmp_path: Path) -> None:
    keys = Keys(tmp_path, (FILES / "accounts.conf").read_text())
    async with ProductionNats(keys) as server:
        admin = await connect_bus(server.config("admin"), "admin", Notices())
        await open_stores(JetStream(admin), "main", create=True, limits=SMALL)
        log = await open_log(JetStream(admin), "main", create=True, limits=SMALL, at=1)
        keeping = await connect_bus(server.config("keeper"), "keeper", Notices())
        own = JetStream(keeping)
        connections = {user: await connect_bus(server.config(user), user, Notices()) for user in SERVICES}
        for name, junk in JUNK.items():
            log = await open_log(own, "main")
            for service, connection in connections.items():
                js = JetStream(connection)
                for ack in await asyncio.gather(*(js.publish(each, junk, {}) for each in written(service))):
                    assert ack is not None, (name, service)
                    # What is larger than any true value of the key is not stored at all.
                    assert ack.error is None or ack.error.err_code == TOO_LARGE, (name, service, ack)
            await JetStreamMarks(own, "main").of(log.identity)
            await JetStreamReplicas(own, "main").live()
            await recorded_cluster(own, log.identity)
            snapshots = JetStreamSnapshots(own, log.identity, warn=lambda _: None)
            for stage in FOLDERS:
                async for _ in snapshots.each(stage, "0"):
                    pass
            await keeper_of(own, log, percent=0, stage_percent=20, folder=tmp_path / "archive")._look()
            await kept_snapshots(snapshots)
        log = await open_log(own, "main")
        void = 0
        async for batch in log.follow(0):
            if not batch:
                break
            void += sum(stored.void is not None for stored in batch)
        assert void == len(JUNK) * len(RIGHTS) - len(JUNK), "all but the genesis, which is none of these keys to write"
        assert [gzip.decompress(each.read_bytes()) for each in (tmp_path / "archive").rglob("*.gz")]
        for connection in (*connections.values(), keeping, admin):
            await connection.close()
