"""Opening and founding a cell: the stream of the log, and every other stream of the cell with the right configuration.

A pointer in the state bucket names the generation that counts. The pointer is written last: the named generation
exists and opens with its Genesis. Two processes that found a generation at the same time meet the same stream, where
only one Genesis can be first; a founder that dies half-way leaves work that the next founder continues.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

import muster
from muster.audit.judge import RIGHTS
from muster.bus.errors import STREAM_NOT_FOUND, STREAM_SEALED, WRONG_LAST_SEQUENCE, ApiError, BusError, UnansweredError
from muster.bus.jetstream import EXPECTED_LAST, EXPECTED_STREAM, GrowingPause, JetStream, StreamInfo
from muster.bus.kv import KvBucket, KvEntry
from muster.bus.lease import LEASE_S
from muster.bus.log import JetStreamLog
from muster.bus.reader import message_at
from muster.bus.shares import STAGES
from muster.bus.streams import (
    BUDGETED,
    BUDGETED_AND_AGE,
    COMPRESSED,
    NARROWED,
    ROLLED_UP,
    SEALED,
    SIZES,
    Limits,
    bucket_config,
    ensure,
    log_config,
    next_config,
    objects_config,
    public_config,
    quarantine_config,
)
from muster.events import subjects
from muster.events.envelope import UNREADABLE, encode_commit, genesis_commit, genesis_of
from muster.events.registry import encode
from muster.events.system import Genesis
from muster.events.wire import WIRE, UnknownWireError, check_wire
from muster.model.language import say
from muster.ports import Earlier, LogGoneError, LogIdentity

POINTER = "log"
"""Key of the state bucket that names the generation in force."""

KNOWN_S = 5.0
"""How long one of three servers may not know a stream that another has just made."""
FOUNDING_TRIES = 60
MOST_GENERATIONS = 1 << 31
"""No pointer names so many: the next one would be founded behind that, for ever."""
BEGUN = frozenset({*WRONG_LAST_SEQUENCE, STREAM_SEALED})
"""How a stream refuses a first commit that it has, also where its successor was founded meanwhile."""


class LogPointer(Struct, frozen=True):
    """The generation in force."""

    generation: Annotated[int, Meta(ge=1, lt=MOST_GENERATIONS)]
    log_id: str
    stream: str
    first: Annotated[int, Meta(ge=1)] = 1
    state: str = ""
    earlier: tuple[Earlier, ...] = ()
    imported: int = 0

    @classmethod
    def of(cls, cell: str, genesis: Genesis, first: int = 1, earlier: tuple[Earlier, ...] = ()) -> LogPointer:
        """To the generation that begins with a genesis, stored at sequence ``first``, after ``earlier`` ones."""
        stream = subjects.log_stream(cell, genesis.generation)
        return cls(genesis.generation, genesis.log_id, stream, first, genesis.state, earlier)

    def identity(self, cell: str) -> LogIdentity:
        return LogIdentity(cell, self.log_id, self.generation, self.first, self.state, self.earlier, self.imported)


async def open_log(
    js: JetStream,
    cell: str,
    *,
    create: bool = False,
    limits: Limits | None = None,
    at: int = 0,
    own_time: bool = False,
) -> JetStreamLog:
    """The log of a cell.

    With ``create`` a cell without log gets its first generation, and a cell with a lost log the next, which names the
    lost generation as its parent; ``at`` (ms since the epoch) is the time of founding, ``own_time`` is as in Genesis.
    ``limits`` are the limits of a new log and the required limits of an existing log; None means the defaults for a
    new log, and any limits of an existing log.

    A pointer that is lost or junk is made again from the streams, with ``create``.

    Raises LogGoneError without a log or pointer and without ``create``, BusError for a log with a wrong configuration.
    """
    subjects.check_cell(cell)
    ignore = SEALED | COMPRESSED | NARROWED | (SIZES if limits is None else frozenset[str]())
    bucket = bucket_config(subjects.state_bucket(cell), "state", limits or Limits())
    if await ensure(js, bucket, create=create, ignore=BUDGETED) is None:
        raise LogGoneError(
            say("cell {cell} has no log yet; found it with `{command}`", cell=cell, command=_command(cell))
        )
    state = KvBucket(js, subjects.state_bucket(cell))
    while True:
        entry = await _pointer_entry(state)
        pointer, junk = None, ""
        try:
            pointer = read_pointer(cell, entry.value if entry is not None else None)
        except BusError as err:
            junk = str(err)  # As good as lost: the streams say what it must have been.
        if pointer is not None:
            config = log_config(cell, pointer.generation, limits or Limits())
            info = await ensure(js, config, create=False, ignore=ignore)
            if info is not None:
                _check_subjects(config, info)
                await _check_genesis(js, cell, pointer)
                return JetStreamLog(js, await _readable(js, pointer.identity(cell)))
        if not create:
            if junk:
                raise LogGoneError(
                    say("{junk} with `{command}`, which finds the newest log", junk=junk, command=_command(cell))
                )
            lost = f"the log of cell {cell} (stream {pointer.stream}) is gone" if pointer else f"cell {cell} has no log"
            raise LogGoneError(
                say(
                    "{lost}; restore it, or start its next generation from the state of the cluster: `{command}`",
                    lost=lost,
                    command=_command(cell),
                )
            )
        if pointer is None and await point_on(js, cell, None):
            continue
        newest = None if pointer else await _newest_generation(js, cell)
        generation = pointer.generation + 1 if pointer else newest or 1
        parent = pointer.log_id if pointer else ""
        born = Genesis(log_id=secrets.token_hex(8), generation=generation, parent=parent, own_time=own_time)
        genesis = await found_generation(js, cell, born, limits or Limits(), ignore, at)
        made = LogPointer.of(cell, genesis)
        # Another process may move it first: the next look finds it.
        await state.set(POINTER, encode(made), revision=entry.revision if entry is not None else 0)


async def _pointer_entry(state: KvBucket) -> KvEntry | None:
    """The value at the pointer of a bucket found or made just now: one of three servers may not know the bucket yet.

    Raises ApiError for a bucket still unknown after KNOWN_S.
    """
    backoff = GrowingPause()
    try:
        async with asyncio.timeout(KNOWN_S):
            while True:
                try:
                    return await state.get(POINTER)
                except ApiError as err:
                    if err.err_code != STREAM_NOT_FOUND:
                        raise
                    await backoff.pause()
    except TimeoutError:
        return await state.get(POINTER)


async def pointer_of(js: JetStream, cell: str) -> LogPointer | None:
    """The generation that the pointer names, with or without a stream; None for a cell without a pointer."""
    bucket = bucket_config(subjects.state_bucket(cell), "state", Limits())
    if await ensure(js, bucket, create=False, ignore=BUDGETED) is None:
        return None
    entry = await KvBucket(js, subjects.state_bucket(cell)).get(POINTER)
    return read_pointer(cell, entry.value if entry is not None else None)


async def point_to(js: JetStream, cell: str, pointer: LogPointer) -> None:
    """Put a generation in force in a cell that has none, or has lost this very one. Raises BusError."""
    state = KvBucket(js, subjects.state_bucket(cell))
    entry = await state.get(POINTER)
    current = read_pointer(cell, entry.value if entry is not None else None)
    if current == pointer:
        return
    if current is not None and current.log_id != pointer.log_id:
        raise BusError(
            say(
                "cell {cell} has log {log_id} by now, generation {generation}",
                cell=cell,
                log_id=current.log_id,
                generation=current.generation,
            )
        )
    await state.set(POINTER, encode(pointer), revision=entry.revision if entry is not None else 0)


async def point_on(js: JetStream, cell: str, identity: LogIdentity | None) -> bool:
    """Put the newest generation in force where the pointer names none, or an earlier generation (``identity``): the
    servers forgot the pointer or the last change of the pointer, or a roll-over ended too early. Raises BusError.

    The genesis of a generation is the founder's last word before the pointer, and only the founder's key writes one.
    """
    newest = await _newest_generation(js, cell)
    made = await _rebuilt(js, cell, newest) if newest else None
    if made is None or (identity is not None and made.generation <= identity.generation):
        return False
    if identity is not None and identity.log_id in {ended.log_id for ended in made.earlier}:
        made = replace(made, imported=identity.imported)
    state = KvBucket(js, subjects.state_bucket(cell))
    entry = await state.get(POINTER)
    try:
        pointer = read_pointer(cell, entry.value if entry is not None else None)
    except BusError:
        pointer = None  # Junk: as good as lost.
    if (pointer.log_id if pointer is not None else "") == (identity.log_id if identity is not None else ""):
        await state.set(POINTER, encode(made), revision=entry.revision if entry is not None else 0)
    return True


FOLDERS = (
    *dict.fromkeys(seat.partition(".")[0] for seat in RIGHTS if seat != "genesis.0"),
    "readmodel",
)
"""What folds the log and keeps snapshots of its state."""


def object_buckets(cell: str) -> list[str]:
    """Every bucket of objects of a cell."""
    return [subjects.base_bucket(cell), *(subjects.snapshot_bucket(cell, stage) for stage in FOLDERS)]


async def open_stores(
    js: JetStream, cell: str, *, create: bool = False, limits: Limits | None = None, lease_s: float = LEASE_S
) -> None:
    """Make sure that leases, snapshots, public events and quarantine of a cell have their streams.

    Raises BusError for a missing stream without ``create``, or for a wrong configuration.
    """
    subjects.check_cell(cell)
    for config, ignore in _stores(cell, limits or Limits(), lease_s):
        if await ensure(js, config, create=create, ignore=ignore) is None:
            raise BusError(
                say(
                    "cell {cell} has no stream {name}; create it with `{command}`",
                    cell=cell,
                    name=config["name"],
                    command=_command(cell),
                )
            )


def _stores(cell: str, size: Limits, lease_s: float) -> Iterator[tuple[dict[str, Any], frozenset[str]]]:
    """Each stream beside the log and the state bucket, and the fields that may differ there."""
    # A lease that never ran out would outlive its holder.
    yield bucket_config(subjects.lease_bucket(cell), "leases", size, ttl_s=lease_s), BUDGETED
    yield bucket_config(subjects.replica_bucket(cell), "replicas", size, ttl_s=lease_s), BUDGETED
    yield objects_config(subjects.base_bucket(cell), "bases", size), BUDGETED | ROLLED_UP
    for stage in FOLDERS:
        yield objects_config(subjects.snapshot_bucket(cell, stage), "snapshots", size), BUDGETED | ROLLED_UP
    yield quarantine_config(cell, size), BUDGETED_AND_AGE
    yield public_config(size), BUDGETED_AND_AGE


def budgeted(cell: str, generation: int, limits: Limits) -> list[dict[str, Any]]:
    """The configuration of every stream of a cell, with its budget: what the cell reserves of the store."""
    state = bucket_config(subjects.state_bucket(cell), "state", limits)
    stores = [config for config, _ in _stores(cell, limits, LEASE_S)]
    return [log_config(cell, generation, limits), next_config(cell, limits), state, *stores]


async def found_generation(
    js: JetStream,
    cell: str,
    genesis: Genesis,
    limits: Limits,
    ignore: frozenset[str],
    at: int,
    *,
    first: int = 1,
    prefix: str = "",
    wire: int = WIRE,
) -> Genesis:
    """Create a generation and its first commit, or find the work of another founder.

    ``first``: the first sequence; ``prefix``: hash of the earlier log; ``wire``: of the builds that append there.
    """
    genesis = replace(genesis, build=muster.__version__, wire=wire)
    generation = genesis.generation
    await ensure(js, log_config(cell, generation, limits, first=first), create=True, ignore=ignore)
    stream = subjects.log_stream(cell, generation)
    commit = genesis_commit(genesis, at, in_seq=first - 1, prefix=prefix)
    subject = subjects.log_subject(cell, generation, commit.stage, commit.shard)
    body = encode_commit(commit)
    backoff = GrowingPause()
    for _ in range(FOUNDING_TRIES):
        try:
            ack = await js.publish(subject, body, {EXPECTED_LAST: str(first - 1), EXPECTED_STREAM: stream})
        except UnansweredError:
            ack = None
        refusal = ack.refusal(f"cannot found stream {stream}") if ack is not None else None
        if refusal is not None and refusal.err_code not in BEGUN and not refusal.passing:
            raise refusal
        stored = await js.get(stream, first)
        if stored is not None:
            begun = genesis_of(stored.data)
            if begun is None or begun.generation != generation:
                raise BusError(
                    say("stream {stream} does not begin with its genesis: it is no log; delete it", stream=stream)
                )
            return begun
        await backoff.pause()
    raise BusError(say("stream {stream} takes no first commit; see what the servers say about it", stream=stream))


async def _readable(js: JetStream, identity: LogIdentity) -> LogIdentity:
    """The generations without those before a removed stream."""
    kept: list[Earlier] = []
    for ended in reversed(identity.earlier):
        if await js.info(subjects.log_stream(identity.cell, ended.generation), checks=1) is None:
            break
        kept.append(ended)
    return replace(identity, earlier=tuple(reversed(kept)))


def _check_subjects(wanted: Mapping[str, Any], info: StreamInfo) -> None:
    """A stage may be closed for a while, and nothing but the log has a place in it."""
    (whole,) = wanted["subjects"]
    opened = info.config.get("subjects") or ()
    if opened != [whole] and not {*opened} < {f"{whole.removesuffix('>')}{stage}.*" for stage in STAGES}:
        raise BusError(
            say(
                "stream {name} is not as it must be: subjects is {given!r}, must be {wanted!r}",
                name=wanted["name"],
                given=opened,
                wanted=[whole],
            )
        )


async def own_genesis(js: JetStream, cell: str, generation: int, first: int) -> Genesis | None:
    """The first commit of a generation; None if the commit is lost. A commit by another key in its place is no
    genesis.
    """
    stored = await message_at(js, subjects.log_stream(cell, generation), first)
    if stored is None or stored.subject != subjects.log_subject(cell, generation, "genesis", "0"):
        return None
    return genesis_of(stored.data)


async def _check_genesis(js: JetStream, cell: str, pointer: LogPointer) -> None:
    """A generation without a genesis has lost it: the generation is opened, so that it can be given up
    (muster.bus.marks).
    """
    genesis = await own_genesis(js, cell, pointer.generation, pointer.first)
    if genesis is not None and (genesis.log_id != pointer.log_id or genesis.generation != pointer.generation):
        raise BusError(
            say(
                "stream {stream} holds log {held} where log {wanted} is expected: it was replaced or "
                "restored from elsewhere; restore the right one, or delete it",
                stream=pointer.stream,
                held=genesis.log_id,
                wanted=pointer.log_id,
            )
        )
    if genesis is not None:
        readable(genesis)


def readable(genesis: Genesis) -> None:
    """Raises BusError for a generation with a wire that this build does not read: before anything is written there."""
    try:
        check_wire(genesis)
    except UnknownWireError as err:
        raise BusError(str(err)) from err


async def _newest_generation(js: JetStream, cell: str) -> int | None:
    """The highest generation that has a stream, for when the pointer is lost."""
    names = await js.names(subjects.cell_log_subjects(cell))
    generations = [subjects.log_generation(cell, name) for name in names]
    return max((number for number in generations if number is not None), default=None)


async def _rebuilt(js: JetStream, cell: str, generation: int) -> LogPointer | None:
    """What the lost pointer to a generation must have said; None when that has no genesis yet."""
    chain: list[tuple[Genesis, int]] = []
    while generation:
        info = await js.info(subjects.log_stream(cell, generation), checks=1)
        first = info.state.first_seq if info is not None else 0
        stored = await js.get(subjects.log_stream(cell, generation), first) if first else None
        genesis = genesis_of(stored.data) if stored is not None else None
        if genesis is None or (chain and chain[-1][0].parent != genesis.log_id):
            break
        chain.append((genesis, first))
        generation = generation - 1 if genesis.state else 0
    if not chain:
        return None
    newest, first = chain[0]
    earlier = tuple(Earlier(genesis.generation, genesis.log_id, seq) for genesis, seq in reversed(chain[1:]))
    return LogPointer.of(cell, newest, first, earlier)


def read_pointer(cell: str, value: bytes | None) -> LogPointer | None:
    """What the key POINTER holds. Raises BusError when that is no pointer."""
    if value is None:
        return None
    try:
        pointer = msgspec.json.decode(value, type=LogPointer)
        if pointer.stream != subjects.log_stream(cell, pointer.generation):
            raise ValueError(f"generation {pointer.generation} has another stream")
        return pointer
    except UNREADABLE as err:
        raise BusError(
            say(
                "key {pointer} of bucket {cell} is not a log pointer: {err}; put it right",
                pointer=POINTER,
                cell=subjects.state_bucket(cell),
                err=err,
            )
        ) from err


def _command(cell: str) -> str:
    return "muster log init" if cell == subjects.DEFAULT_CELL else f"muster log init --cell {cell}"
