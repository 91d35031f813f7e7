"""High-water marks: how far each process has read a log, kept beside it, and what is done when the log falls short.

A log that lost its end and grew again is another log under the same name: its sequences, intents and public ids would
be used twice. So it gets no further commit: its successor starts from the state of the cluster, as after the loss of a
whole log. The marks are the witnesses: one for each key, whatever services the process with that key has.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import msgspec
from msgspec import Struct

from muster.bus.cell import POINTER, LogPointer, found_generation, own_genesis, pointer_of, read_pointer
from muster.bus.errors import ApiError
from muster.bus.generations import JetStreamGenerations
from muster.bus.jetstream import JetStream
from muster.bus.kv import KvBucket
from muster.bus.log import JetStreamLog
from muster.bus.streams import SEALED, SIZES
from muster.core.docket import DIGEST
from muster.events import subjects
from muster.events.envelope import UNREADABLE
from muster.events.registry import encode
from muster.events.system import Genesis
from muster.events.wire import WIRE
from muster.ports import LogGoneError, LogIdentity, LogLostError

LOST = "it lost commits that were read"
MARKS = "mark"
"""Below it in the state bucket: one key for each user, which no other user may write."""
AGREEING = 2
"""So many users must have read what a log does not have, where none says otherwise, until it is given up for good
without a person. One alone may be a stolen key.
"""


class Users(NamedTuple):
    """What is known of users, by name."""

    overlap: Callable[[str, str], bool]
    """Whether two have a service in common, and so are of two layouts."""
    alone: Callable[[str], bool]
    """Whether one has all services that read the log for decisions."""


class Mark(Struct, frozen=True):
    """A log was read up to ``seq``; ``digest`` tells the commit there from any other, in hexadecimal."""

    log_id: str
    seq: int
    digest: str


class Testimony(Struct, frozen=True):
    """What the marks say of a log, by user: ``lost`` name positions that it does not hold, ``shown`` those it does."""

    lost: dict[str, Mark] = {}
    shown: dict[str, Mark] = {}
    enough: bool = False
    """Whether one of those that it lacks is of a user with all services: no other witness is to be had."""
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
        first = min((mark.seq for mark in self.lost.values()), default=0)
        against = [mark for mark in self.shown.values() if mark.seq >= first]
        return bool(self.lost) and not against and (self.enough or len(self.lost) >= AGREEING)


_marks = msgspec.json.Decoder(Mark)


class JetStreamMarks:
    """The marks of a cell."""

    def __init__(self, js: JetStream, cell: str) -> None:
        self._js, self._cell = js, cell
        self._bucket = KvBucket(js, subjects.state_bucket(cell))

    async def put(self, log: JetStreamLog, user: str, mark: Mark) -> bool:
        """Keep a mark in place of the user's last one; False where another process of the user was faster, or reads a
        later generation by now.

        The last one is the word of a process that may have read further, so the log must show it: LogLostError where
        it does not, and the mark stays. Raises BusError.
        """
        before, revision = await self._last(user)
        if before is not None and before.log_id == mark.log_id:
            await prove(log, before)
            if before == mark or (before.seq > mark.seq and await is_shown(log, mark)):
                return True
        elif before is not None and not await self._is_in_force(mark.log_id):
            return False
        return await self._bucket.set(f"{MARKS}.{user}", encode(mark), revision=revision) is not None

    async def withdraw(self, user: str) -> Mark | None:
        """Remove the mark of a user; what it was, None where it has none. Raises BusError.

        It has none either where it is written meanwhile: by a process that runs, or with a key in other hands.
        """
        mark, revision = await self._last(user)
        if mark is None or not await self._bucket.delete(f"{MARKS}.{user}", revision=revision):
            return None
        return mark

    async def of(self, log: LogIdentity) -> dict[str, Mark]:
        """Those of a log, by user. Raises BusError."""
        marks: dict[str, Mark] = {}
        for key in await self._bucket.keys(MARKS):
            user = key.partition(".")[2]
            mark, _ = await self._last(user)
            if mark is not None and mark.log_id == log.log_id:
                marks[user] = mark
        return marks

    async def _is_in_force(self, log_id: str) -> bool:
        """Whether the cell points to this log: of two, it is the later one."""
        pointer = await pointer_of(self._js, self._cell)
        return pointer is not None and pointer.log_id == log_id

    async def _last(self, user: str) -> tuple[Mark | None, int]:
        """The mark of a user, None where what is there says nothing, and its revision, 0 for none."""
        entry = await self._bucket.get(f"{MARKS}.{user}")
        return (_read(entry.value), entry.revision) if entry is not None else (None, 0)


def _read(value: bytes | None) -> Mark | None:
    """None where it says nothing: it is no mark, or names no commit."""
    try:
        mark = _marks.decode(value) if value else None
        return mark if mark is not None and mark.seq > 0 and len(bytes.fromhex(mark.digest)) == DIGEST else None
    except (*UNREADABLE, ValueError):
        return None


async def prove(log: JetStreamLog, mark: Mark) -> None:
    """Raise LogLostError unless a log holds what was read of it."""
    await log.prove(mark.seq, bytes.fromhex(mark.digest))


async def is_shown(log: JetStreamLog, mark: Mark) -> bool:
    """Whether a log holds what was read of it."""
    try:
        await prove(log, mark)
    except LogLostError:
        return False
    return True


async def hear_marks(js: JetStream, log: JetStreamLog, users: Users) -> Testimony:
    """What the marks say of a log; those of another one say nothing. Raises BusError, LogGoneError.

    It lost nothing that matters where its successor has begun with states: those were made of it when it was whole.
    """
    if await rolled_over(js, log.identity):
        return Testimony()
    begins = await own_genesis(js, log.identity.cell, log.identity.generation, log.identity.first) is not None
    lost: dict[str, Mark] = {}
    shown: dict[str, Mark] = {}
    for user, mark in (await JetStreamMarks(js, log.identity.cell).of(log.identity)).items():
        (shown if await is_shown(log, mark) else lost)[user] = mark
    return Testimony(_newest(lost, shown, users), _newest(shown, shown, users), any(map(users.alone, lost)), begins)


async def prove_marks(js: JetStream, log: JetStreamLog, process: str, users: Users) -> None:
    """Raise LogLostError unless a log holds what the services of a process have read of it, in this layout or another.

    Raises BusError, LogGoneError.
    """
    for user, mark in (await hear_marks(js, log, users)).lost.items():
        if users.overlap(user, process):
            try:
                await prove(log, mark)
            except LogLostError as err:
                raise LogLostError(
                    f"{err}. That is the mark of {user}; if its key was in other hands, change the key and withdraw "
                    f"the mark: `muster log recover --distrust {user}`"
                ) from None


def _newest(marks: dict[str, Mark], shown: dict[str, Mark], users: Users) -> dict[str, Mark]:
    """These, but for those of a former layout: of users that have a service in common with one that has read further,
    and shows it.
    """
    return {
        user: mark
        for user, mark in marks.items()
        if not any(other.seq > mark.seq and users.overlap(user, by) for by, other in shown.items())
    }


async def rolled_over(js: JetStream, identity: LogIdentity) -> bool:
    """Whether a roll-over has founded the next generation, which the pointer does not name yet."""
    stream = subjects.log_stream(identity.cell, identity.generation + 1)
    info = await js.info(stream, checks=1)
    first = info.state.first_seq if info is not None and info.state.messages else 0
    genesis = await own_genesis(js, identity.cell, identity.generation + 1, first) if first else None
    return genesis is not None and bool(genesis.state) and genesis.parent == identity.log_id


async def give_up(
    js: JetStream,
    identity: LogIdentity,
    at: int,
    *,
    by: str,
    reason: str = LOST,
    generation: int = 0,
    parent: str = "",
    wire: int = WIRE,
) -> LogIdentity:
    """Have a log succeeded by one that starts from the state of the cluster. Raises BusError.

    ``generation``, ``parent``: the newest generation there was, and its log, where the one that is given up is older:
    no number of a generation is used twice; ``wire``: of the builds that append to the new log. Repeated calls, also by
    several at once, found one generation.
    """
    cell = identity.cell
    old = None
    with _gone_is_fine():
        old = await own_genesis(js, cell, identity.generation, identity.first)
    born = Genesis(
        log_id=secrets.token_hex(8),
        generation=max(identity.generation, generation) + 1,
        parent=parent or identity.log_id,
        by=by,
        reason=reason,
        own_time=old is not None and old.own_time,
    )
    generations = JetStreamGenerations(js, cell)
    await js.delete(subjects.next_stream(cell))
    limits = await generations.limits(identity)
    genesis = await found_generation(js, cell, born, limits, SEALED | SIZES, at, wire=wire)
    state = KvBucket(js, subjects.state_bucket(cell))
    entry = await state.get(POINTER)
    pointer = read_pointer(cell, entry.value if entry is not None else None)
    made = LogPointer.of(cell, genesis)
    if entry is not None and pointer is not None and pointer.log_id == identity.log_id:
        await state.set(POINTER, encode(made), revision=entry.revision)
    # Last: a process that still writes to it finds the successor in force.
    with _gone_is_fine():
        await generations.seal(identity)
    return made.identity(cell)


@contextmanager
def _gone_is_fine() -> Iterator[None]:
    """A stream that NATS has forgotten has no genesis to read, and nothing to seal."""
    try:
        yield
    except LogGoneError:
        pass
    except ApiError as err:
        if not err.gone:
            raise
