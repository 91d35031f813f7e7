"""The states at the beginning of a generation of the log: an object per (stage, shard), and a list by its digest.

The genesis of the generation names this digest, so a reader gets exactly the founding states.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from muster.bus.errors import UnansweredError
from muster.bus.jetstream import GrowingPause
from muster.bus.objects import ObjectBroken, ObjectBucket
from muster.events.envelope import UNREADABLE, body_hash
from muster.events.registry import encode
from muster.ports import LogIdentity, Snapshot

TRIES = 10


class Listed(Struct, frozen=True):
    """One state of the list."""

    stage: str
    shard: str
    seq: int
    schema: str
    digest: str

    @property
    def name(self) -> str:
        """Of the object that holds it: the same content has the same name."""
        return f"base/{self.stage}/{self.shard}/{self.seq}-{self.digest}"


class BaseList(Struct, frozen=True):
    """What a generation begins with."""

    states: tuple[Listed, ...] = ()


_lists = msgspec.json.Decoder(BaseList)


async def keep_base(objects: ObjectBucket, states: Sequence[Snapshot]) -> str:
    """Store states and the list of them; returns the digest. Storing them once more changes nothing."""
    listed = _listed(states)
    for state, entry in zip(states, listed.states, strict=True):
        await _put(objects, entry.name, state.body)
    body = encode(listed)
    digest = body_hash(body)
    await _put(objects, f"base/{digest}", body)
    return digest


async def load_base_list(objects: ObjectBucket, digest: str) -> BaseList:
    """The list of that digest. Raises ObjectBroken, BusError."""
    body = await objects.get(f"base/{digest}")
    if body_hash(body) != digest:
        raise ObjectBroken(f"the list of states {digest} is another one")
    try:
        return _lists.decode(body)
    except UNREADABLE as err:
        raise ObjectBroken(f"the list of states {digest} cannot be read: {err}") from err


async def load_base(objects: ObjectBucket, identity: LogIdentity, stage: str, shard: str) -> Snapshot | None:
    """The state of a (stage, shard) that a generation began with, None when there is none. Raises as above."""
    if not identity.state:
        return None
    for entry in (await load_base_list(objects, identity.state)).states:
        if (entry.stage, entry.shard) == (stage, shard):
            return await _load(objects, identity, entry)
    return None


async def load_whole_base(objects: ObjectBucket, identity: LogIdentity) -> list[Snapshot]:
    """Every state that a generation began with. Raises as above."""
    if not identity.state:
        return []
    listed = await load_base_list(objects, identity.state)
    return [await _load(objects, identity, entry) for entry in listed.states]


async def _load(objects: ObjectBucket, identity: LogIdentity, entry: Listed) -> Snapshot:
    body = await objects.get(entry.name)
    if body_hash(body) != entry.digest:
        raise ObjectBroken(f"object {entry.name} is not the state it was")
    return Snapshot(identity.log_id, entry.stage, entry.shard, entry.seq, entry.schema, body)


def _listed(states: Sequence[Snapshot]) -> BaseList:
    return BaseList(
        tuple(Listed(state.stage, state.shard, state.seq, state.schema, body_hash(state.body)) for state in states)
    )


async def _put(objects: ObjectBucket, name: str, body: bytes) -> None:
    backoff = GrowingPause()
    for number in range(TRIES):
        try:
            await objects.put(name, body)
        except UnansweredError:
            if number == TRIES - 1:
                raise
            await backoff.pause()
        else:
            return
