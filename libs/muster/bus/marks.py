"""High-water marks: how far each service has read a log, kept beside it, and what is done when the log falls short.

A log that lost its end and grew again is another log under the same name: its sequences, intents and public ids would
be used twice. So it gets no further commit: its successor starts from the state of the cluster, as after the loss of a
whole log. The marks are the witnesses.
"""

from __future__ import annotations

import secrets

import msgspec
from msgspec import Struct

from muster.bus.cell import POINTER, LogPointer, found_generation, own_genesis, read_pointer
from muster.bus.generations import JetStreamGenerations
from muster.bus.jetstream import JetStream
from muster.bus.kv import KvBucket
from muster.bus.log import JetStreamLog
from muster.bus.streams import SEALED
from muster.events import subjects
from muster.events.envelope import UNREADABLE
from muster.events.registry import encode
from muster.events.system import Genesis
from muster.ports import LogIdentity, LogLostError

LOST = "it lost commits that were read"
MARKS = "mark"
"""Below it in the state bucket: one key for each service."""
AGREEING = 2
"""So many services must have read what a log does not have, where none says otherwise, until it is given up for good
without a person. One alone may hold a stolen key.
"""


class Mark(Struct, frozen=True):
    """A service has read a log up to ``seq``; ``digest`` tells the commit there from any other, in hexadecimal."""

    service: str
    log_id: str
    seq: int
    digest: str


class Testimony(Struct, frozen=True):
    """What the marks say of a log: ``lost`` names positions that it cannot show, ``shown`` those that it can."""

    lost: tuple[Mark, ...] = ()
    shown: tuple[Mark, ...] = ()
    begins: bool = True
    """Whether the log has its genesis. It had one before anything pointed to it, and no key of a stage removes it."""

    @property
    def whole(self) -> bool:
        return self.begins and not self.lost

    @property
    def agrees(self) -> bool:
        """Whether it is sure that the log lost commits."""
        if not self.begins:
            return True
        first = min((each.seq for each in self.lost), default=0)
        against = [each for each in self.shown if each.seq >= first]
        return bool(self.lost) and not against and len(self.lost) >= min(AGREEING, len(self.lost) + len(self.shown))


_marks = msgspec.json.Decoder(Mark)


class JetStreamMarks:
    """The marks of a cell."""

    def __init__(self, js: JetStream, cell: str) -> None:
        self._bucket = KvBucket(js, subjects.state_bucket(cell))

    async def put(self, mark: Mark) -> None:
        """Keep a mark in place of the service's last one. Raises BusError."""
        entry = await self._bucket.get(f"{MARKS}.{mark.service}")
        revision = entry.revision if entry is not None else 0
        await self._bucket.set(f"{MARKS}.{mark.service}", encode(mark), revision=revision)

    async def of(self, service: str) -> Mark | None:
        """The mark of a service. Raises BusError."""
        entry = await self._bucket.get(f"{MARKS}.{service}")
        return _read(entry.value) if entry is not None else None

    async def all(self) -> list[Mark]:
        """Those of every service. Raises BusError."""
        found = [await self.of(key.partition(".")[2]) for key in await self._bucket.keys(MARKS)]
        return [each for each in found if each is not None]


def _read(value: bytes | None) -> Mark | None:
    try:
        return _marks.decode(value) if value else None
    except UNREADABLE:  # It says nothing, then.
        return None


async def is_shown(log: JetStreamLog, mark: Mark) -> bool:
    """Whether a log holds what a service has read of it."""
    try:
        await log.prove(mark.seq, bytes.fromhex(mark.digest))
    except LogLostError:
        return False
    except ValueError:
        return True  # No digest: it says nothing.
    return True


async def hear_marks(js: JetStream, log: JetStreamLog) -> Testimony:
    """What the marks say of a log; those of another one say nothing. Raises BusError, LogGoneError.

    It lost nothing that matters where its successor has begun with states: those were made of it when it was whole.
    """
    if await _rolled_over(js, log.identity):
        return Testimony()
    marks = await JetStreamMarks(js, log.identity.cell).all()
    mine = [mark for mark in marks if mark.log_id == log.identity.log_id]
    shown = [await is_shown(log, mark) for mark in mine]
    return Testimony(
        tuple(mark for mark, good in zip(mine, shown, strict=True) if not good),
        tuple(mark for mark, good in zip(mine, shown, strict=True) if good),
        await own_genesis(js, log.identity.cell, log.identity.generation, log.identity.first) is not None,
    )


async def _rolled_over(js: JetStream, identity: LogIdentity) -> bool:
    """Whether a roll-over has founded the next generation, which the pointer does not name yet."""
    stream = subjects.log_stream(identity.cell, identity.generation + 1)
    info = await js.info(stream, checks=1)
    first = info.state.first_seq if info is not None and info.state.messages else 0
    genesis = await own_genesis(js, identity.cell, identity.generation + 1, first) if first else None
    return genesis is not None and bool(genesis.state) and genesis.parent == identity.log_id


async def give_up(js: JetStream, identity: LogIdentity, at: int, *, by: str, reason: str = LOST) -> LogIdentity:
    """Have a log that lost commits succeeded by one that starts from the state of the cluster. Raises BusError.

    It may be repeated, by several at once: one generation comes of it.
    """
    cell = identity.cell
    old = await own_genesis(js, cell, identity.generation, identity.first)
    born = Genesis(
        log_id=secrets.token_hex(8),
        generation=identity.generation + 1,
        parent=identity.log_id,
        by=by,
        reason=reason,
        own_time=old is not None and old.own_time,
    )
    generations = JetStreamGenerations(js, cell)
    await js.delete(subjects.next_stream(cell))
    genesis = await found_generation(js, cell, born, await generations.limits(identity), SEALED, at)
    state = KvBucket(js, subjects.state_bucket(cell))
    entry = await state.get(POINTER)
    pointer = read_pointer(cell, entry.value if entry is not None else None)
    made = LogPointer.of(cell, genesis)
    if entry is not None and pointer is not None and pointer.log_id == identity.log_id:
        await state.set(POINTER, encode(made), revision=entry.revision)
    # Last: a process that still writes to it finds the successor in force.
    await generations.seal(identity)
    return made.identity(cell)
