"""Snapshots on a real server, damaged in every way that must not stop a start."""

import asyncio
from random import Random

import msgspec
import pytest
from msgspec import structs

from kit.nats import SMALL
from kit.proxy import Proxy
from kit.snapshots import loaded
from muster.bus import objects, snapshots
from muster.bus.cell import open_log, open_stores
from muster.bus.connection import connect
from muster.bus.jetstream import JetStream
from muster.bus.kv import KvBucket
from muster.bus.objects import CHUNK
from muster.bus.server import EmbeddedServer
from muster.bus.snapshots import JetStreamSnapshots
from muster.events import subjects
from muster.events.registry import encode
from muster.ports import LogIdentity, Snapshot

BODY = Random(1).randbytes(5 * CHUNK // 2)
"""Several chunks long, also compressed."""


class Kept:
    """The snapshots of a cell, and what was warned of."""

    def __init__(self, js: JetStream, cell: str, log_id: str = "log1", generation: int = 1) -> None:
        self.js, self.cell = js, cell
        self.warnings: list[str] = []
        identity = LogIdentity(cell=cell, log_id=log_id, generation=generation)
        self.snapshots = JetStreamSnapshots(js, identity, warn=self.warnings.append)
        self.log_id = log_id
        self.bucket = subjects.snapshot_bucket(cell, "preemptor")
        self.objects = f"OBJ_{self.bucket}"

    async def save(self, seq: int, body: bytes = BODY) -> bool:
        return await self.snapshots.save(
            Snapshot(log_id=self.log_id, stage="preemptor", shard="0", seq=seq, schema="s", body=body)
        )

    async def load(self) -> int | None:
        found = await loaded(self.snapshots, "preemptor", "0")
        return None if found is None else found.seq


@pytest.fixture
async def kept(js: JetStream, cell: str) -> Kept:
    await open_log(js, cell, create=True, limits=SMALL)
    await open_stores(js, cell, create=True, limits=SMALL)
    return Kept(js, cell)


async def chunks(kept: Kept) -> list[int]:
    """Sequences of all chunks in the bucket."""
    found, seq = [], 1
    while message := await kept.js.next(kept.objects, f"$O.{kept.bucket}.C.>", seq):
        found.append(message.seq)
        seq = message.seq + 1
    return found


async def test_a_snapshot_whose_chunks_are_gone_gives_way_to_the_one_before(kept: Kept) -> None:
    assert await kept.save(10)
    before = set(await chunks(kept))
    assert await kept.save(20)
    newest = sorted(set(await chunks(kept)) - before)
    assert len(newest) > 2
    await kept.js.ask(f"STREAM.MSG.DELETE.{kept.objects}", {"seq": newest[1]})
    assert await kept.load() == 10
    assert len(kept.warnings) == 1
    assert "at 20 is not used" in kept.warnings[0]


async def test_a_snapshot_that_is_not_what_was_saved_is_not_used(kept: Kept) -> None:
    assert await kept.save(10, b"state")
    message = await kept.js.next(kept.objects, f"$O.{kept.bucket}.C.>", 1)
    assert message is not None
    # The chunk is replaced by another of the same length.
    await kept.js.ask(f"STREAM.PURGE.{kept.objects}", {"filter": message.subject})
    await kept.js.publish(message.subject, b"stale", {})
    assert await kept.load() is None
    assert "digest" in kept.warnings[0]


async def test_a_small_object_that_is_a_huge_state_is_not_used(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros shrink to a thousandth: a few megabytes could end every process that reads them."""
    assert await kept.save(10)
    assert await kept.save(20, bytes(3 * len(BODY)))
    monkeypatch.setattr(snapshots, "MOST_BYTES", 2 * len(BODY))
    assert await kept.load() == 10
    assert "at 20 is not used" in kept.warnings[0]
    assert not await kept.save(30, bytes(3 * len(BODY)))
    assert "was not saved" in kept.warnings[-1]


async def test_an_object_larger_than_any_state_is_not_read_to_its_end(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await kept.save(10)
    assert await kept.save(20, Random(3).randbytes(3 * len(BODY)))
    monkeypatch.setattr(snapshots, "MOST_STORED", len(BODY) + CHUNK)
    assert await kept.load() == 10
    assert "has more than" in kept.warnings[0]
    assert not await kept.save(30, Random(2).randbytes(2 * len(BODY)))
    assert "was not saved" in kept.warnings[-1]


async def test_a_pointer_with_many_entries_costs_no_more_than_the_last_three(kept: Kept) -> None:
    for seq in (10, 20, 30, 40):
        assert await kept.save(seq)
    bucket, key = KvBucket(kept.js, subjects.state_bucket(kept.cell)), "snapshot.preemptor.0"
    entry = await bucket.get(key)
    assert entry is not None
    pointer = msgspec.json.decode(entry.value or b"", type=snapshots.Pointer)
    lacking = structs.replace(pointer.kept[0], object="gone")
    await bucket.set(key, encode(snapshots.Pointer((lacking,) * 100 + pointer.kept)), revision=entry.revision)
    assert await kept.load() is None
    assert len(kept.warnings) == snapshots.KEPT


async def test_an_object_that_is_gone_is_warned_of_and_no_error(kept: Kept) -> None:
    assert await kept.save(10)
    await kept.js.ask(f"STREAM.PURGE.{kept.objects}")
    assert await kept.load() is None
    assert "is not in bucket" in kept.warnings[0]
    assert await kept.save(20)
    assert await kept.load() == 20


async def test_a_bucket_that_is_gone_is_warned_of_and_no_error(kept: Kept) -> None:
    assert await kept.save(10)
    await kept.js.delete(kept.objects)
    assert await kept.load() is None
    assert not await kept.save(20)
    assert len(kept.warnings) == 2


async def test_a_pointer_that_cannot_be_read_is_replaced(kept: Kept) -> None:
    bucket = KvBucket(kept.js, subjects.state_bucket(kept.cell))
    await bucket.put("snapshot.preemptor.0", b"\x00", revision=0)
    assert await kept.load() is None
    assert await kept.save(10)
    assert await kept.load() == 10
    assert all("cannot be read" in warning for warning in kept.warnings)


async def test_the_last_three_are_kept_and_no_more(kept: Kept) -> None:
    for seq in (10, 20, 30, 40, 50):
        assert await kept.save(seq)
    per_snapshot = -(-len(BODY) // CHUNK)
    assert len(await chunks(kept)) == 3 * per_snapshot
    info = await kept.js.info(kept.objects)
    assert info is not None
    assert info.state.messages == 3 * (per_snapshot + 1)


async def test_what_says_the_same_over_and_over_takes_little_room(kept: Kept) -> None:
    body = b"a job that waits; " * CHUNK
    assert await kept.save(10, body)
    assert len(await chunks(kept)) == 1
    found = await loaded(kept.snapshots, "preemptor", "0")
    assert found is not None and found.body == body


async def test_one_of_an_earlier_generation_is_not_used_and_not_warned_of(js: JetStream, kept: Kept) -> None:
    assert await kept.save(10)
    later = Kept(js, kept.cell, "log2", 2)
    assert await later.load() is None
    assert later.warnings == []
    assert await later.save(3)
    assert await later.load() == 3


async def test_of_two_that_save_at_once_the_newest_wins_and_nothing_is_left_over(kept: Kept) -> None:
    saved = await asyncio.gather(*(kept.save(seq) for seq in (30, 10, 50, 20, 40)))
    assert any(saved)
    assert await kept.load() == 50
    per_snapshot = -(-len(BODY) // CHUNK)
    assert len(await chunks(kept)) == per_snapshot * min(3, sum(saved))


async def test_an_upload_cut_in_the_middle_is_no_snapshot(
    nats_server: EmbeddedServer, kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "DISCARD_S", 30.0)
    assert await kept.save(10)
    async with Proxy(nats_server.port) as proxy:
        connection = await connect(proxy.url, name="far", reconnect_wait_s=0.05)
        far = Kept(JetStream(connection), kept.cell)

        def cut(chunk: bytes) -> bytes:
            if b'"seq"' in chunk and b"OBJ_" in chunk:
                proxy.answers = None
                proxy.cut()
            return chunk

        proxy.answers = cut
        assert not await far.save(20)
        assert "was not saved" in far.warnings[0]
        await connection.close()
    assert await kept.load() == 10
    assert len(await chunks(kept)) == -(-len(BODY) // CHUNK)
