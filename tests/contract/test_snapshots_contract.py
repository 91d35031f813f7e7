"""What every Snapshots promises, asked of the one in memory and of JetStream."""

from typing import Protocol

import pytest

from kit.doubles.log import MemorySnapshots, SnapshotStore
from kit.nats import SMALL
from kit.snapshots import loaded
from muster.bus.cell import open_log, open_stores
from muster.bus.jetstream import JetStream
from muster.bus.snapshots import JetStreamSnapshots
from muster.events.envelope import body_hash
from muster.ports import Fingerprint, LogIdentity, Snapshot, Snapshots


class World(Protocol):
    """The snapshots of one cell."""

    async def snapshots(self, log_id: str = "log1", generation: int = 1) -> Snapshots:
        """As a process of that generation of the log sees them."""
        ...


class MemoryWorld:
    def __init__(self) -> None:
        self.store = SnapshotStore()

    async def snapshots(self, log_id: str = "log1", generation: int = 1) -> Snapshots:
        return MemorySnapshots(LogIdentity(cell="c", log_id=log_id, generation=generation), self.store)


class NatsWorld:
    def __init__(self, js: JetStream, cell: str) -> None:
        self.js, self.cell = js, cell

    async def snapshots(self, log_id: str = "log1", generation: int = 1) -> Snapshots:
        await open_log(self.js, self.cell, create=True, limits=SMALL)
        await open_stores(self.js, self.cell, create=True, limits=SMALL)
        identity = LogIdentity(cell=self.cell, log_id=log_id, generation=generation)
        return JetStreamSnapshots(self.js, identity, warn=lambda _: None)


@pytest.fixture(params=["memory", "nats"])
def world(request: pytest.FixtureRequest, cell: str) -> World:
    return MemoryWorld() if request.param == "memory" else NatsWorld(request.getfixturevalue("js"), cell)


def snapshot(
    seq: int, *, log_id: str = "log1", stage: str = "preemptor", shard: str = "0", body: bytes = b"state"
) -> Snapshot:
    return Snapshot(log_id=log_id, stage=stage, shard=shard, seq=seq, schema="s1", body=body)


async def test_there_is_none_at_first(world: World) -> None:
    assert await loaded(await world.snapshots(), "preemptor", "0") is None


async def test_the_newest_one_comes_back_as_it_was_saved(world: World) -> None:
    kept = await world.snapshots()
    for seq in (10, 20, 30, 40, 50):
        assert await kept.save(snapshot(seq, body=f"state at {seq}".encode()))
    assert await loaded(await world.snapshots(), "preemptor", "0") == snapshot(50, body=b"state at 50")


async def test_an_older_or_equal_one_is_not_kept(world: World) -> None:
    kept = await world.snapshots()
    assert await kept.save(snapshot(20))
    assert not await kept.save(snapshot(20, body=b"other"))
    assert not await kept.save(snapshot(10))
    assert await loaded(kept, "preemptor", "0") == snapshot(20)


async def test_stages_have_snapshots_of_their_own(world: World) -> None:
    kept = await world.snapshots()
    assert await kept.save(snapshot(20))
    assert await kept.save(snapshot(10, stage="watcher", shard="pods", body=b"w"))
    assert await loaded(kept, "preemptor", "0") == snapshot(20)
    assert await loaded(kept, "watcher", "pods") == snapshot(10, stage="watcher", shard="pods", body=b"w")
    assert await loaded(kept, "watcher", "1") is None


@pytest.mark.parametrize("size", [0, 1, 3_000_000])
async def test_bodies_of_any_size_come_back(world: World, size: int) -> None:
    kept = await world.snapshots()
    body = (bytes(range(256)) * (size // 256 + 1))[:size]
    assert await kept.save(snapshot(5, body=body))
    found = await loaded(kept, "preemptor", "0")
    assert found is not None
    assert found.body == body


async def test_the_snapshot_of_another_log_is_refused(world: World) -> None:
    assert await (await world.snapshots()).save(snapshot(90))
    later = await world.snapshots("log2", 2)
    assert await loaded(later, "preemptor", "0") is None
    with pytest.raises(ValueError, match="log1"):
        await later.save(snapshot(100))


async def test_a_later_generation_replaces_an_earlier_one_whatever_the_sequence(world: World) -> None:
    earlier, later = await world.snapshots(), await world.snapshots("log2", 2)
    assert await earlier.save(snapshot(90))
    assert await later.save(snapshot(3, log_id="log2"))
    assert not await earlier.save(snapshot(95))
    assert await loaded(later, "preemptor", "0") == snapshot(3, log_id="log2")
    assert await loaded(earlier, "preemptor", "0") in (None, snapshot(90))


async def test_the_newest_is_known_by_its_fingerprint(world: World) -> None:
    kept = await world.snapshots()
    assert await kept.newest("preemptor", "0") is None
    for seq in (10, 20):
        assert await kept.save(snapshot(seq, body=f"state at {seq}".encode()))
    assert await kept.newest("preemptor", "0") == Fingerprint(20, "s1", body_hash(b"state at 20"))
    assert await (await world.snapshots("log2", 2)).newest("preemptor", "0") is None


async def test_one_of_a_position_that_the_log_does_not_have_makes_room(world: World) -> None:
    """A process that writes one with the key of another would keep that from ever having a newer one."""
    kept = await world.snapshots()
    assert await kept.save(snapshot(1_000_000))
    assert not await kept.save(snapshot(20), end=1_000_000)
    assert await kept.save(snapshot(20), end=25)
    assert await loaded(kept, "preemptor", "0") == snapshot(20)
