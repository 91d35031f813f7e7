"""Rolling a log over on JetStream: reserve room, seal, keep the states, found the next generation, move the pointer.

Every step may be repeated, by any process, and meets the results of earlier steps: a crash between two steps leaves
either the old generation in force, or a sealed generation whose successor is completed by the next try.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence

from msgspec.structs import replace

from muster.bus.bases import keep_base, load_whole_base
from muster.bus.cell import POINTER, LogPointer, found_generation, open_log, own_genesis, read_pointer
from muster.bus.errors import BusError, NoRoomError, UnansweredError
from muster.bus.jetstream import GrowingPause, JetStream
from muster.bus.kv import KvBucket
from muster.bus.log import JetStreamLog
from muster.bus.objects import ObjectBroken, ObjectBucket
from muster.bus.streams import BUDGETED, SEALED, Limits, ensure, next_config
from muster.events import subjects
from muster.events.registry import encode
from muster.events.system import Genesis
from muster.model.language import say
from muster.ports import Earlier, LogGoneError, LogIdentity, Snapshot

PATIENCE_S = 60.0

SIZE = "muster_max_bytes"
"""Metadata of a sealed stream: how large it might have become."""


class JetStreamGenerations:
    """The generations of one cell (see ports.Generations)."""

    def __init__(self, js: JetStream, cell: str) -> None:
        self._js = js
        self._cell = cell
        self._state = KvBucket(js, subjects.state_bucket(cell))
        self._objects = ObjectBucket(js, subjects.base_bucket(cell))

    async def current(self) -> tuple[JetStreamLog, bool]:
        """See ports.Generations."""
        log = await open_log(self._js, self._cell)
        return log, (await log.usage()).sealed

    async def base(self, identity: LogIdentity) -> Sequence[Snapshot]:
        """See ports.Generations. Raises BusError."""
        try:
            return await load_whole_base(self._objects, identity)
        except ObjectBroken as err:
            raise BusError(
                say("the states that log {log_id} began with cannot be read: {err}", log_id=identity.log_id, err=err)
            ) from err

    async def origin(self, identity: LogIdentity) -> list[Snapshot]:
        """The states before the first commit that can still be read; none where that is the first of all.

        Raises BusError.
        """
        if identity.origin == 1:
            return []
        oldest = identity.earlier[0].generation if identity.earlier else identity.generation
        return list(await self.base(await self.as_it_began(identity, oldest)))

    async def as_it_began(self, identity: LogIdentity, generation: int) -> LogIdentity:
        """What the genesis of a generation that can still be read says. Raises BusError."""
        if generation == identity.generation:
            return identity
        ended = next(ended for ended in identity.earlier if ended.generation == generation)
        genesis = await own_genesis(self._js, self._cell, generation, ended.first)
        if genesis is None or genesis.log_id != ended.log_id:
            raise BusError(
                say(
                    "stream {stream} does not begin with its genesis",
                    stream=subjects.log_stream(self._cell, generation),
                )
            )
        return LogIdentity(identity.cell, ended.log_id, generation, ended.first, genesis.state)

    async def seal(self, identity: LogIdentity) -> int:
        """See ports.Generations. The room the stream had reserved and not used is released."""
        stream = subjects.log_stream(identity.cell, identity.generation)
        info = await self._js.info(stream)
        if info is None:
            raise LogGoneError(say("stream {stream} does not exist any more: it cannot be sealed", stream=stream))
        if not info.config.get("sealed"):
            size = {SIZE: str(info.config.get("max_bytes", -1))}
            metadata = (info.config.get("metadata") or {}) | size
            await self._js.ask(f"STREAM.UPDATE.{stream}", {**info.config, "sealed": True, "metadata": metadata})
            info = await self._js.info(stream)
            if info is None or not info.config.get("sealed"):
                raise BusError(say("stream {stream} is not sealed although the server said so", stream=stream))
        if info.config.get("max_bytes", -1) > info.state.bytes > 0:
            await self._js.ask(f"STREAM.UPDATE.{stream}", {**info.config, "max_bytes": info.state.bytes})
        return info.state.last_seq

    async def reserve(self, identity: LogIdentity) -> None:
        """See ports.Generations. A stream of that size, which the next generation takes the place of."""
        limits = await self.limits(identity)
        try:
            await ensure(self._js, next_config(self._cell, limits), create=True, ignore=BUDGETED)
        except BusError as err:
            raise NoRoomError(
                f"there is no room in NATS for the next generation of the log of cell {self._cell} "
                f"({limits.max_bytes} bytes on {limits.replicas} server(s)): give it more storage, or delete sealed "
                f"generations that an archive has (`muster log prune`); {err}"
            ) from err

    async def keep(self, states: Sequence[Snapshot]) -> str:
        """See ports.Generations. Raises BusError."""
        try:
            return await keep_base(self._objects, states)
        except UnansweredError as err:
            raise BusError(say("the states of the next generation cannot be stored: {err}", err=err)) from err

    async def succeed(
        self,
        identity: LogIdentity,
        end: int,
        state: str,
        at: int,
        *,
        by: str = "",
        reason: str = "",
        prefix: str = "",
    ) -> LogIdentity:
        """See ports.Generations. Raises BusError."""
        born = Genesis(
            log_id=secrets.token_hex(8),
            generation=identity.generation + 1,
            parent=identity.log_id,
            state=state,
            by=by,
            reason=reason,
        )
        limits = await self.limits(identity)
        await self._js.delete(subjects.next_stream(self._cell))
        genesis = await found_generation(self._js, self._cell, born, limits, SEALED, at, first=end + 1, prefix=prefix)
        before = Earlier(identity.generation, identity.log_id, identity.first)
        made = LogPointer.of(self._cell, genesis, end + 1, (*identity.earlier, before))
        made = replace(made, imported=identity.imported)
        async with asyncio.timeout(PATIENCE_S):
            return await self._point_to(identity, made)

    async def _point_to(self, identity: LogIdentity, made: LogPointer) -> LogIdentity:
        backoff = GrowingPause()
        while True:
            entry = await self._state.get(POINTER)
            pointer = read_pointer(self._cell, entry.value if entry is not None else None)
            if pointer is None or entry is None:
                raise LogGoneError(
                    say("the pointer of cell {cell} is gone; `muster log init` finds the newest log", cell=self._cell)
                )
            if pointer.log_id != identity.log_id:
                return pointer.identity(self._cell)  # another process was first
            await self._state.set(POINTER, encode(made), revision=entry.revision)
            await backoff.pause()

    async def limits(self, identity: LogIdentity) -> Limits:
        """The limits of a generation; of a sealed generation the limits before the seal.

        Of a generation without a stream: the limits of the newest that has one, else the replicas of the state bucket.
        """
        info = await self._js.info(subjects.log_stream(identity.cell, identity.generation))
        for generation in range(identity.generation - 1, 0, -1):
            info = info or await self._js.info(subjects.log_stream(identity.cell, generation), checks=1)
        if info is None:
            state = await self._js.info(f"KV_{subjects.state_bucket(identity.cell)}")
            return Limits(replicas=state.config.get("num_replicas", 1) if state is not None else 1)
        config = info.config
        size = (config.get("metadata") or {}).get(SIZE) or config.get("max_bytes", Limits().max_bytes)
        return Limits(max_bytes=int(size), replicas=config.get("num_replicas", 1))
