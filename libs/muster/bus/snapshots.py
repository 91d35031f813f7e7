"""Snapshots: bodies in an object store per stage, and a pointer per (stage, shard) moved by compare-and-set.

A snapshot only saves time: a broken snapshot gets a warning with the fault, and is not used. Bodies are stored
compressed: several stages keep the same tables.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, Callable

import msgspec
from msgspec import Struct

from muster.bus.bases import load_base
from muster.bus.errors import ApiError, BusError, UnansweredError
from muster.bus.jetstream import JetStream
from muster.bus.kv import KvBucket, KvEntry
from muster.bus.objects import ObjectBroken, ObjectBucket
from muster.events import subjects
from muster.events.envelope import UNREADABLE, body_hash
from muster.events.registry import encode
from muster.ports import Fingerprint, LogIdentity, Snapshot

SNAPSHOTS = "snapshot"
"""Below it in the state bucket: a pointer per (stage, shard)."""

KEPT = 3
"""How many snapshots of a (stage, shard) stay, the newest included."""

LEVEL = 1
"""Of compression: more saves a few parts of a hundred, and takes several times as long."""

MOST_BYTES = 2**27
"""Of a body: the state that it becomes takes some eight times as much, all the memory that a service has where nothing
else is said. A larger one is not kept, and not read: bytes that say nothing shrink to a thousandth.
"""

MOST_STORED = 2**26
"""Bytes of a body as it is stored, likewise."""

Warn = Callable[[str], None]
"""Told in one sentence why a snapshot cannot be used."""


class KeptSnapshot(Struct, frozen=True):
    """A snapshot known to the pointer: place, size and digest."""

    generation: int
    log_id: str
    seq: int
    schema: str
    digest: str
    object: str


class Pointer(Struct, frozen=True):
    """The snapshots of a (stage, shard), newest first."""

    kept: tuple[KeptSnapshot, ...] = ()


_pointers = msgspec.json.Decoder(Pointer)


class JetStreamSnapshots:
    """The snapshots of one generation of a log (see ports.Snapshots)."""

    def __init__(self, js: JetStream, identity: LogIdentity, *, warn: Warn) -> None:
        self._identity = identity
        self._state = KvBucket(js, subjects.state_bucket(identity.cell))
        self._bases = ObjectBucket(js, subjects.base_bucket(identity.cell))
        self._js = js
        self._warn = warn

    async def newest(self, stage: str, shard: str) -> Fingerprint | None:
        """See ports.Snapshots. Trouble with the bus is a warning."""
        try:
            pointer, _ = await self._pointer(stage, shard)
        except BusError as err:
            self._warn(f"no snapshot of {stage}/{shard}: {err}")
            return None
        own = (pointed for pointed in pointer.kept if pointed.log_id == self._identity.log_id)
        return next((Fingerprint(pointed.seq, pointed.schema, pointed.digest) for pointed in own), None)

    async def each(self, stage: str, shard: str) -> AsyncGenerator[Snapshot, None]:
        """See ports.Snapshots. An unusable snapshot is passed over with a warning, as is trouble with the bus,
        but for the end of the connection; a snapshot of another generation is passed over in silence.
        """
        try:
            pointer, _ = await self._pointer(stage, shard)
        except BusError as err:
            self._warn(f"no snapshot of {stage}/{shard}: {err}")
            return
        for kept in pointer.kept[:KEPT]:
            if kept.log_id != self._identity.log_id:
                # Of the generation before: each roll-over leaves some.
                continue
            try:
                stored = await self._objects(stage).get(kept.object, MOST_STORED)
                body = await asyncio.to_thread(_inflated, stored)
            except (ObjectBroken, BusError, zlib.error) as err:
                self._warn(f"snapshot of {stage}/{shard} at {kept.seq} is not used: {err}")
                continue
            if body_hash(body) != kept.digest:
                self._warn(f"snapshot of {stage}/{shard} at {kept.seq} is not used: its body is not the one saved")
                continue
            yield Snapshot(log_id=kept.log_id, stage=stage, shard=shard, seq=kept.seq, schema=kept.schema, body=body)
        first = await self._first(stage, shard)
        if first is not None:
            yield first

    async def _first(self, stage: str, shard: str) -> Snapshot | None:
        """The state this generation began with."""
        try:
            return await load_base(self._bases, self._identity, stage, shard)
        except (ObjectBroken, BusError) as err:
            self._warn(f"the state of {stage}/{shard} that log {self._identity.log_id} began with is not used: {err}")
            return None

    async def save(self, snapshot: Snapshot, *, end: int | None = None) -> bool:
        """See ports.Snapshots. False also, with a warning, when it could not be stored: the next one will be.

        Raises ValueError when the snapshot is of another log.
        """
        if snapshot.log_id != self._identity.log_id:
            raise ValueError(f"snapshot of log {snapshot.log_id} offered to the snapshots of {self._identity.log_id}")
        try:
            return await self._save(snapshot, end)
        except (UnansweredError, BusError) as err:
            self._warn(f"snapshot of {snapshot.stage}/{snapshot.shard} at {snapshot.seq} was not saved: {err}")
            return False

    async def _save(self, snapshot: Snapshot, end: int | None) -> bool:
        if len(snapshot.body) > MOST_BYTES:
            self._warn_large(snapshot, len(snapshot.body), MOST_BYTES)
            return False
        digest = body_hash(snapshot.body)
        kept = KeptSnapshot(
            generation=self._identity.generation,
            log_id=snapshot.log_id,
            seq=snapshot.seq,
            schema=snapshot.schema,
            digest=digest,
            object=f"{snapshot.stage}/{snapshot.shard}/{self._identity.generation}-{snapshot.seq}-{digest[:8]}",
        )
        pointer, revision = await self._possible(snapshot, end)
        if not _newer(kept, pointer):
            return False
        body = await asyncio.to_thread(zlib.compress, snapshot.body, LEVEL)
        if len(body) > MOST_STORED:
            self._warn_large(snapshot, len(body), MOST_STORED)
            return False
        try:
            await self._objects(snapshot.stage).put(kept.object, body)
        except ApiError as err:
            # States that have grown: the newest snapshot stays, and the others make room.
            if not err.full or not pointer.kept[1:]:
                raise
            for old in pointer.kept[1:]:
                await self._forget(snapshot.stage, old)
            await self._objects(snapshot.stage).put(kept.object, body)
        while _newer(kept, pointer):
            fits = Pointer(kept=(kept, *pointer.kept)[:KEPT])
            if await self._state.set(_key(snapshot.stage, snapshot.shard), encode(fits), revision=revision) is not None:
                for old in pointer.kept[KEPT - 1 :]:
                    await self._forget(snapshot.stage, old)
                return True
            pointer, revision = await self._possible(snapshot, end)
        if all(pointed.object != kept.object for pointed in pointer.kept):
            await self._forget(snapshot.stage, kept)
        return False

    def _warn_large(self, snapshot: Snapshot, size: int, most: int) -> None:
        self._warn(
            f"snapshot of {snapshot.stage}/{snapshot.shard} at {snapshot.seq} was not saved: it has {size} bytes, and "
            f"{most} are read at the most"
        )

    async def _forget(self, stage: str, kept: KeptSnapshot) -> None:
        try:
            await self._objects(stage).delete(kept.object)
        except BusError as err:
            self._warn(f"snapshot object {kept.object} stays behind: {err}")

    def _objects(self, stage: str) -> ObjectBucket:
        return ObjectBucket(self._js, subjects.snapshot_bucket(self._identity.cell, stage))

    async def _possible(self, snapshot: Snapshot, end: int | None) -> tuple[Pointer, int]:
        """The pointer that a snapshot joins, without impossible positions and generations."""
        pointer, revision = await self._pointer(snapshot.stage, snapshot.shard)
        following = self._identity.generation + 1
        kept = (
            pointed
            for pointed in pointer.kept
            if pointed.generation == following
            or (pointed.generation < following and (end is None or pointed.seq <= end))
        )
        return Pointer(kept=tuple(kept)), revision

    async def _pointer(self, stage: str, shard: str) -> tuple[Pointer, int]:
        entry: KvEntry | None = await self._state.get(_key(stage, shard))
        if entry is None or entry.value is None:
            return Pointer(), entry.revision if entry is not None else 0
        try:
            return _pointers.decode(entry.value), entry.revision
        except UNREADABLE as err:
            self._warn(f"snapshot pointer of {stage}/{shard} cannot be read and is replaced: {err}")
            return Pointer(), entry.revision


async def forget_snapshots(js: JetStream, cell: str) -> None:
    """Have every (stage, shard) of a cell do without its snapshots. Raises BusError."""
    state = KvBucket(js, subjects.state_bucket(cell))
    for key in await state.keys(SNAPSHOTS):
        entry = await state.get(key)
        if entry is not None:
            await state.set(key, encode(Pointer()), revision=entry.revision)


def _inflated(stored: bytes) -> bytes:
    """Raises zlib.error where it is cut, or has more than MOST_BYTES."""
    inflating = zlib.decompressobj()
    body = inflating.decompress(stored, MOST_BYTES)
    if not inflating.eof:
        raise zlib.error(f"it is cut, or has more than {MOST_BYTES} bytes")
    return body


def _newer(kept: KeptSnapshot, pointer: Pointer) -> bool:
    """Whether a snapshot is newer than all that are kept; a later generation is newer than any sequence."""
    return all((kept.generation, kept.seq) > (pointed.generation, pointed.seq) for pointed in pointer.kept)


def _key(stage: str, shard: str) -> str:
    return f"{SNAPSHOTS}.{stage}.{shard}"
