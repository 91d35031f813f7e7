"""The part of a log that each stage writes, and the subjects of a closed stage: the other stages keep their room.

A stream has one limit of bytes for all of its subjects. A stage beyond its part is left out of the subjects of the
stream: the server stores no commit of the stage, the leader waits, and after the reopening the leader continues. The
configuration of the stream alone says which stages are closed, so another keeper finds the closed stages there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from msgspec import Struct

from muster.audit.judge import RIGHTS
from muster.bus.jetstream import JetStream, StreamInfo
from muster.bus.reader import StreamReader
from muster.core.docket import parts
from muster.events import subjects
from muster.model.language import say
from muster.ports import LogGoneError, LogIdentity

STAGES = tuple(dict.fromkeys(seat.partition(".")[0] for seat in RIGHTS))
SIZE = "Nats-Msg-Size"
"""Header of a message that was sent without its body."""
SAMPLE = 100_000
"""The newest messages of a growth that tell the shares of it."""


class LogUsage(Struct, frozen=True):
    """How full a generation is, and the broker's time in ms since the epoch. ``closed``: the stages that the server
    stores nothing of.
    """

    last_seq: int
    messages: int
    bytes: int
    max_bytes: int
    broker_ms: int
    sealed: bool = False
    closed: tuple[str, ...] = ()


async def info_of(js: JetStream, identity: LogIdentity) -> StreamInfo:
    """What the server says of the stream of a generation. Raises LogGoneError."""
    stream = subjects.log_stream(identity.cell, identity.generation)
    info = await js.info(stream, patience_s=None)
    if info is None:
        raise LogGoneError(say("log {stream} does not exist any more; restart this process", stream=stream))
    return info


async def usage_of(js: JetStream, identity: LogIdentity) -> LogUsage:
    """One request. Raises LogGoneError."""
    info = await info_of(js, identity)
    opened = info.config.get("subjects") or ()
    shut = () if _everything(identity) in opened else tuple(s for s in STAGES if _of(identity, s) not in opened)
    return LogUsage(
        last_seq=info.state.last_seq,
        messages=info.state.messages,
        bytes=info.state.bytes,
        max_bytes=info.config.get("max_bytes", -1),
        broker_ms=int(datetime.fromisoformat(info.ts).timestamp() * 1000) if info.ts else 0,
        sealed=bool(info.config.get("sealed")),
        closed=shut,
    )


async def shares(js: JetStream, identity: LogIdentity, after: int, end: int) -> dict[str, float]:
    """{stage: its share of the bytes between two sequences}, by the newest SAMPLE messages of them."""

    async def check(_read: int) -> None:
        await info_of(js, identity)

    sizes: Counter[str] = Counter()
    stream = subjects.log_stream(identity.cell, identity.generation)
    reader = StreamReader(js, stream, max(after, end - SAMPLE, identity.first - 1), check, headers_only=True)
    try:
        seq = after
        while seq < end:
            for raw in await reader.read():
                seat = subjects.seat_of_subject(identity.cell, raw.subject)
                sizes[parts(seat)[1].partition(".")[0]] += int((raw.headers or {}).get(SIZE, 0)) + len(raw.subject)
                seq = raw.seq
    finally:
        await reader.close()
    whole = sum(sizes.values())
    return {stage: size / whole for stage, size in sizes.items()} if whole else {}


async def close(js: JetStream, identity: LogIdentity, stages: Iterable[str]) -> None:
    """Have the server store nothing of these stages, and of all others. Raises ApiError."""
    shut = {*stages}
    stream = subjects.log_stream(identity.cell, identity.generation)
    info = await js.info(stream)
    if info is None or info.config.get("sealed"):
        return
    wanted = [_of(identity, stage) for stage in STAGES if stage not in shut] if shut else [_everything(identity)]
    if info.config.get("subjects") != wanted:
        await js.ask(f"STREAM.UPDATE.{stream}", {**info.config, "subjects": wanted})


def _everything(identity: LogIdentity) -> str:
    return subjects.log_subjects(identity.cell, identity.generation)


def _of(identity: LogIdentity, stage: str) -> str:
    return subjects.log_subject(identity.cell, identity.generation, stage, "*")
