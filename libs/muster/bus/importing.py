"""An archived log into an empty stream again: the same bytes at the same sequences, or nothing.

The pointer that puts the generation in force is written last, so no reader meets a log that is not whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from msgspec.structs import replace
from nats.aio.msg import Msg

from muster.bus.cell import LogPointer, point_to, pointer_of, readable
from muster.bus.connection import no_responders
from muster.bus.errors import BusError, UnansweredError
from muster.bus.jetstream import EXPECTED_LAST, EXPECTED_STREAM, GrowingPause, JetStream, decode_ack
from muster.bus.log import STORED_AT, TRACE, Body, JetStreamLog
from muster.bus.snapshots import forget_snapshots
from muster.bus.streams import Limits, bucket_config, ensure, log_config
from muster.core.docket import parts
from muster.events import subjects
from muster.events.envelope import decode_envelope, genesis_of
from muster.model.language import say
from muster.ports import Earlier

TRIES = 60
WINDOW = 256
"""Messages on their way at once."""
WINDOW_TIMEOUT_S = 30.0


class OccupiedError(BusError):
    """There is a log where one should be imported."""


async def import_log(
    js: JetStream,
    cell: str,
    bodies: Iterable[Body],
    *,
    limits: Limits | None = None,
    progress: Callable[[int], None] = lambda _seq: None,
) -> JetStreamLog:
    """Store the commits of a log, from the genesis on, as the log in force of a cell without a log, or with a lost
    log.

    Raises OccupiedError when the cell has a log or the stream exists, BusError for an incomplete log.
    """
    subjects.check_cell(cell)
    size = limits or Limits()
    rest = iter(bodies)
    first = next(rest, None)
    genesis = genesis_of(first.data) if first is not None and first.seq == 1 else None
    if first is None or genesis is None:
        raise BusError(say("what should be imported does not begin with the genesis of a log"))
    readable(genesis)
    stream = subjects.log_stream(cell, genesis.generation)
    made = LogPointer.of(cell, genesis)
    held = await pointer_of(js, cell)
    if held is not None and held.log_id != made.log_id:
        raise OccupiedError(
            f"cell {cell} has log {held.log_id}, generation {held.generation}: a log is imported where there is none, "
            "or where this very one was lost; name another cell with --cell"
        )
    info = await js.info(stream, checks=1)
    if info is not None:
        raise OccupiedError(
            f"stream {stream} exists and has {info.state.messages} messages: a log is imported into an empty one. "
            "If it is what an import left that broke off, delete the stream and import again"
        )
    await ensure(js, bucket_config(subjects.state_bucket(cell), "state", size), create=True)
    await ensure(js, log_config(cell, genesis.generation, size), create=True)
    await _store(js, cell, genesis.generation, first)
    window: list[Body] = []
    last = 1
    for body in rest:
        last = body.seq
        begins = _begins(body, made.generation)
        if begins or len(window) == WINDOW:
            await _store_all(js, cell, made.generation, window)
            progress(body.seq - 1)
            window = []
        if begins:
            made = await _next_generation(js, cell, made, body, size)
        window.append(body)
    await _store_all(js, cell, made.generation, window)
    # Those of the log that was lost may lie beyond what was imported: another history than the one that follows now.
    await forget_snapshots(js, cell)
    made = replace(made, imported=last)
    await point_to(js, cell, made)
    return JetStreamLog(js, made.identity(cell))


async def _next_generation(js: JetStream, cell: str, before: LogPointer, body: Body, size: Limits) -> LogPointer:
    """Make room for the generation that begins with a commit."""
    genesis = genesis_of(body.data)
    if genesis is None or genesis.parent != before.log_id:
        raise BusError(
            say(
                "what follows generation {generation} at sequence {seq} is not its successor",
                generation=before.generation,
                seq=body.seq,
            )
        )
    readable(genesis)
    await ensure(js, log_config(cell, genesis.generation, size, first=body.seq), create=True)
    earlier = (*before.earlier, Earlier(before.generation, before.log_id, before.first))
    return LogPointer.of(cell, genesis, body.seq, earlier)


async def _store_all(js: JetStream, cell: str, generation: int, window: list[Body]) -> None:
    """Append many messages, all on their way at once. Each message names the one before, so none is stored out of
    place.

    After a message that was not stored, or without an answer, the messages go one by one.
    """
    answers: list[asyncio.Future[Msg]] = []
    stored: list[Msg] = []
    try:
        async with asyncio.timeout(WINDOW_TIMEOUT_S):
            for body in window:
                subject, headers = _addressed(cell, generation, body)
                answers.append(await js.connection.send(subject, body.data, headers))
            stored = [await answer for answer in answers]
    except (TimeoutError, UnansweredError):
        stored = []
    finally:
        for answer in answers:
            answer.cancel()
    if len(stored) == len(window) and all(_is_stored(message) for message in stored):
        return
    for body in window:
        await _store(js, cell, generation, body)


def _is_stored(answer: Msg) -> bool:
    return not no_responders(answer) and decode_ack(answer.data).error is None


def _addressed(cell: str, generation: int, body: Body) -> tuple[str, dict[str, str]]:
    """Subject and headers of a message."""
    headers = {EXPECTED_LAST: str(body.seq - 1), EXPECTED_STREAM: subjects.log_stream(cell, generation)}
    if body.trace:
        headers[TRACE] = body.trace
    if body.stored_at:
        headers[STORED_AT] = str(body.stored_at)
    return subjects.log_subject(cell, generation, *_writer(body)), headers


def _writer(body: Body) -> tuple[str, str]:
    """(stage, shard) by the subject; by the body if the archive is too old for a subject."""
    if not body.subject:
        envelope = decode_envelope(body.data)
        return envelope.stage, envelope.shard
    stage, _, shard = parts(body.subject)[1].partition(".")
    return stage, shard


def _begins(body: Body, generation: int) -> bool:
    """Whether the commit is the genesis of another generation than the generation being written."""
    return _writer(body)[0] == "genesis" and (not body.subject or parts(body.subject)[0] != generation)


async def _store(js: JetStream, cell: str, generation: int, body: Body) -> None:
    """Append a message at exactly its sequence; a message sent again is stored once."""
    stream = subjects.log_stream(cell, generation)
    subject, headers = _addressed(cell, generation, body)
    backoff = GrowingPause()
    refusal = None
    for _ in range(TRIES):
        try:
            ack = await js.publish(subject, body.data, headers)
        except UnansweredError:
            ack = None
        if ack is not None and ack.error is None:
            return
        refusal = None if ack is None else ack.refusal(f"cannot import sequence {body.seq} into {stream}")
        there = await js.get(stream, body.seq)
        if there is not None and there.data == body.data:
            return  # The acknowledgement was lost.
        if there is not None or (refusal is not None and not refusal.passing):
            break
        await backoff.pause()
    raise refusal or BusError(
        say("cannot import sequence {seq} into {stream}: another client writes there", seq=body.seq, stream=stream)
    )
