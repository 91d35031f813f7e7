"""The log on JetStream: appends fenced by the server, ordered reads.

Fencing is one header: the last sequence of the writer's own subject. It also makes sending again harmless: once
the bytes are stored, the subject has moved on and they cannot be stored a second time. So no ``Nats-Msg-Id`` is
sent. It would add nothing, cost memory for every commit of the duplicate window, and be answered differently by one
replica (wrong sequence, as checked first) and three (a duplicate); without it both say "wrong sequence".
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping

from msgspec import Struct

from muster.audit.judge import heard, overtakes
from muster.bus.errors import (
    STREAM_MISMATCH,
    STREAM_NOT_FOUND,
    STREAM_SEALED,
    WRONG_LAST_SEQUENCE,
    ApiError,
    BusError,
    UnansweredError,
)
from muster.bus.jetstream import (
    EXPECTED_LAST_OF_SUBJECT,
    EXPECTED_STREAM,
    GrowingPause,
    JetStream,
    Message,
    PubAck,
)
from muster.bus.reader import HEARTBEAT_S, Raw, StreamReader, message_at
from muster.bus.shares import LogUsage, info_of, usage_of
from muster.core.docket import digest_of
from muster.events import subjects
from muster.events.envelope import (
    Commit,
    Stored,
    body_hash,
    encode_commit,
    genesis_of,
)
from muster.model.language import say
from muster.ports import FencedError, LogFullError, LogGoneError, LogIdentity, LogLostError, LogSealedError

TRACE = "traceparent"

HEADER_ROOM = 1024
"""Bytes of a message left for headers."""


STORED_AT = "Muster-Stored-At"
"""Header of an imported commit: when the broker of the log it comes from stored it, ms since the epoch."""


class Body(Struct, frozen=True):
    """A commit as the log has it, not decoded; ``trace`` is the traceparent it was appended with.

    ``subject``: ``generation.stage.shard``; ``stored_at``: the broker's time, ms since the epoch.
    """

    seq: int
    data: bytes
    trace: str = ""
    subject: str = ""
    stored_at: int = 0


class JetStreamLog:
    """One generation of a cell's log (see ports.Log). Made by ``cell.open_log``."""

    def __init__(self, js: JetStream, identity: LogIdentity, *, heartbeat_s: float = HEARTBEAT_S) -> None:
        self._js = js
        self._identity = identity
        self.stream = subjects.log_stream(identity.cell, identity.generation)
        self._heartbeat_s = heartbeat_s
        self._verified_epoch = 0
        self._known = (0, b"")
        """The newest commit that was read or acknowledged, and its digest: the log holds it on every connection."""
        self._waiting: dict[str, float] = {}
        """{subject: since when (time of the loop) a commit of it waits to be stored}"""
        self._witness: Callable[[], Awaitable[None]] | None = None
        self._heard_epoch = 0

    @property
    def identity(self) -> LogIdentity:
        return self._identity

    @property
    def known(self) -> tuple[int, bytes]:
        """Sequence and digest of the newest commit of this generation that was read or acknowledged; 0 for none."""
        return self._known

    async def learn(self) -> tuple[int, bytes]:
        """Know the end of the log as it is now, without reading up to it."""
        seq = max(await self.end(), self._identity.first)
        message = await message_at(self._js, self.stream, seq, patience_s=None)
        if message is not None:
            self._knows(seq, digest_of(seq, self._seat(message.subject), message.data))
        return self._known

    def _knows(self, seq: int, digest: bytes) -> None:
        if seq > self._known[0]:
            self._known = (seq, digest)

    async def append(self, commit: Commit, *, expected: int, headers: Mapping[str, str] | None = None) -> int:
        """See ports.Log. ``headers`` travel with the commit and are no part of it (``traceparent``).

        Raises BusError when the server can never take the commit (too large, forbidden).
        """
        body = encode_commit(commit)
        if len(body) + HEADER_ROOM > self._js.connection.max_payload:
            raise BusError(
                say(
                    "cannot append commit {commit_id}: it has {size} bytes and the server takes messages of "
                    "{max_payload}; raise max_payload in its configuration",
                    commit_id=commit.commit_id,
                    size=len(body),
                    max_payload=self._js.connection.max_payload,
                )
            )
        subject = subjects.log_subject(self._identity.cell, self._identity.generation, commit.stage, commit.shard)
        sent = {EXPECTED_LAST_OF_SUBJECT: str(expected), EXPECTED_STREAM: self.stream, **(headers or {})}
        self._waiting[subject] = asyncio.get_running_loop().time()
        try:
            return await self._append(commit, body, subject, expected, sent)
        finally:
            del self._waiting[subject]

    def waits_s(self) -> float:
        """For how many seconds a commit has been waiting to be stored; 0 where none is."""
        since = min(self._waiting.values(), default=0.0)
        return asyncio.get_running_loop().time() - since if since else 0.0

    async def _append(self, commit: Commit, body: bytes, subject: str, expected: int, sent: dict[str, str]) -> int:
        backoff = GrowingPause()
        for tries in itertools.count(1):
            sent[EXPECTED_LAST_OF_SUBJECT] = str(expected)
            # After a reconnect the server may have another log under the name; with no expectation nothing else
            # would tell. Both are rare.
            if not expected or self._verified_epoch != self._js.connection.epoch:
                await self._verify()
            known = self._known[0]
            try:
                ack = await self._js.publish(subject, body, sent)
            except UnansweredError:
                continue  # Stored or not: what comes back to the same bytes sent again tells.
            if ack is not None and ack.error is None and not ack.duplicate and ack.stream == self.stream:
                stored = ack.seq
                if stored <= known:
                    raise self._lost(f"took a commit at {stored} although {known} was read or acknowledged before")
            else:
                stored, expected = await self._settle(commit, body, subject, expected, ack)
            if stored:
                self._knows(stored, digest_of(stored, self._seat(subject), body))
                return stored
            if tries % 10 == 0:
                self._js.connection.notice(
                    "bus_append_waits",
                    {"subject": subject, "commit": commit.commit_id, "tries": tries, "answer": str(ack)},
                )
            await backoff.pause()
        raise AssertionError("counted to the end")

    async def _settle(
        self, commit: Commit, body: bytes, subject: str, expected: int, ack: PubAck | None
    ) -> tuple[int, int]:
        """What a refusal means: the sequence when the commit is stored after all, 0 when to try again, or raises.

        And the last sequence of the subject to expect from then on: behind what is void there.
        """
        refusal = None if ack is None else ack.refusal(f"cannot append commit {commit.commit_id} to {subject}")
        if ack is None or (refusal is not None and refusal.err_code in (STREAM_NOT_FOUND, STREAM_MISMATCH)):
            await self._verify()  # Raises when the log is gone; else it has no leader just now.
            return 0, expected
        if refusal is not None and refusal.err_code == STREAM_SEALED:
            raise self._sealed()
        full = refusal is not None and refusal.full
        if refusal is not None and not full and refusal.err_code not in WRONG_LAST_SEQUENCE:
            if refusal.code < 500:
                raise BusError(str(refusal)) from refusal
            # The server's own trouble (no leader, store closing): nothing is known, so ask again.
            return 0, expected
        last = await self._last(subject)
        if last is not None and last.seq > expected:
            return await self._since(commit, body, subject, expected, last.seq)
        if expected > (last.seq if last is not None else 0):
            ends = last.seq if last is not None else 0
            raise self._lost(f"ends for {commit.stage}/{commit.shard} at {ends} although {expected} was acknowledged")
        if full and refusal is not None:
            raise LogFullError(f"{refusal}; make room: roll the log over or raise max_bytes")
        # Nothing is in the way: another try of the same subject is still on its way through the replicas.
        return 0, expected

    async def _since(self, commit: Commit, body: bytes, subject: str, expected: int, last: int) -> tuple[int, int]:
        """The messages of the subject after ``expected``, up to ``last``: our own commit, another leader's, or junk.

        The first answer to arrive may be a later answer, so this also finds the commit of an unanswered try: the same
        bytes, by their hash. A void commit there fences no writer and is passed over.
        """
        own = 0
        while expected < last:
            message = await self._js.next(self.stream, subject, expected + 1)
            if message is None:
                break
            other = heard(message.seq, self._seat(subject), message.data)
            if body_hash(message.data) == body_hash(body):
                own = message.seq
            elif overtakes(other, commit):
                raise FencedError(
                    f"cannot append commit {commit.commit_id} of {commit.stage}/{commit.shard} after {expected}: "
                    f"commit {other.commit.commit_id} of epoch {other.commit.epoch} is stored at {message.seq}; "
                    "another leader has taken over, so this process becomes a standby"
                )
            expected = message.seq
        return own, expected

    async def _last(self, subject: str) -> Message | None:
        try:
            message: Message | None = await self._js.last(self.stream, subject, patience_s=None)
        except ApiError as err:
            if err.err_code == STREAM_NOT_FOUND:
                await self._verify()
            raise BusError(str(err)) from err
        return message

    async def follow(self, after: int, last: bytes = b"") -> AsyncGenerator[list[Stored], None]:
        """See ports.Log. Batches hold what is there, up to 500 commits."""
        after = max(after, self._identity.origin - 1)
        async for batch in self._earlier(after):
            after, last = batch[-1].seq, batch[-1].digest
            yield batch
        end = await self.end()
        self._check_end(end, after)

        async def check(_read: int) -> None:
            await self._verify(after)
            await self.prove(after, last)

        async def quiet() -> None:
            read = after  # More may be read while the server answers.
            usage = await self.usage()
            self._check_end(usage.last_seq, read)
            if usage.sealed and usage.last_seq <= read:
                raise self._sealed()

        reader = StreamReader(self._js, self.stream, after, check, heartbeat_s=self._heartbeat_s, quiet=quiet)
        try:
            behind = end > after
            if not behind:
                yield []
            while True:
                batch = [self._heard(raw) for raw in await reader.read()]
                after, last = batch[-1].seq, batch[-1].digest
                self._knows(after, last)
                yield batch
                if behind and after >= end:
                    behind = False
                    yield []
        finally:
            await reader.close()

    async def bodies(self, after: int) -> AsyncGenerator[Body, None]:
        """The bytes of every commit over ``after``, up to the end of the log as it is now: for copies of it."""
        after = max(after, self._identity.origin - 1)
        for sealed, end in self._chain():
            if after < end:
                async with contextlib.aclosing(sealed.own_bodies(after, end)) as stream:
                    async for body in stream:
                        after = body.seq
                        yield body
        async with contextlib.aclosing(self.own_bodies(after, await self.end())) as stream:
            async for body in stream:
                yield body

    async def own_bodies(self, after: int, end: int) -> AsyncGenerator[Body, None]:
        """The same of this generation alone, up to a sequence."""
        self._check_end(end, after)
        if end <= after:
            return
        reader = StreamReader(self._js, self.stream, after, self._verify, heartbeat_s=self._heartbeat_s)
        try:
            while True:
                for raw in await reader.read():
                    trace = raw.headers.get(TRACE, "") if raw.headers else ""
                    yield Body(raw.seq, raw.data, trace, self._seat(raw.subject), self._stored_at(raw))
                    if raw.seq >= end:
                        return
        finally:
            await reader.close()

    def _heard(self, raw: Raw) -> Stored:
        trace = raw.headers.get(TRACE, "") if raw.headers else ""
        return heard(raw.seq, self._seat(raw.subject), raw.data, self._stored_at(raw), trace)

    def _seat(self, subject: str) -> str:
        return subjects.seat_of_subject(self._identity.cell, subject)

    def _stored_at(self, raw: Raw) -> int:
        """Log time (ms) of a message; an imported message carries the time of its own broker."""
        if raw.seq <= self._identity.imported and raw.headers:
            return int(raw.headers.get(STORED_AT, 0))
        return raw.stored_at

    def _chain(self) -> Iterator[tuple[JetStreamLog, int]]:
        """The sealed generations before this generation, oldest first, each with its last sequence."""
        identity = self._identity
        begins = (*(generation.first for generation in identity.earlier[1:]), identity.first)
        for generation, begin in zip(identity.earlier, begins, strict=False):
            known = LogIdentity(
                identity.cell, generation.log_id, generation.generation, generation.first, imported=identity.imported
            )
            yield JetStreamLog(self._js, known, heartbeat_s=self._heartbeat_s), begin - 1

    async def _earlier(self, after: int) -> AsyncGenerator[list[Stored], None]:
        """What sealed generations hold after a sequence, up to where this one begins."""
        for sealed, end in self._chain():
            if after >= end:
                continue
            async with contextlib.aclosing(sealed.follow(after)) as stream:
                async for batch in stream:
                    if batch:
                        after = batch[-1].seq
                        yield batch
                    if after >= end:
                        break

    def _sealed(self) -> LogSealedError:
        return LogSealedError(
            f"log {self.stream} is sealed and its next generation takes over; if that is not founded, "
            "finish it with `muster log roll`"
        )

    async def end(self) -> int:
        """See ports.Log."""
        return (await info_of(self._js, self._identity)).state.last_seq

    async def last(self, stage: str, shard: str) -> int:
        """See ports.Log."""
        message = await self._last(subjects.log_subject(self._identity.cell, self._identity.generation, stage, shard))
        return 0 if message is None else message.seq

    async def time(self) -> int:
        """See ports.Log."""
        return (await self.usage()).broker_ms

    async def usage(self) -> LogUsage:
        """How full the log is. One request; ask every few seconds, not for every commit."""
        return await usage_of(self._js, self._identity)

    async def raw(self, seq: int) -> bytes | None:
        """The bytes stored at a sequence, for a message that cannot be decoded; None when there are none."""
        message = await self._js.get(self.stream, seq)
        return None if message is None else message.data

    async def _verify(self, after: int = 0) -> None:
        """Raise LogGoneError unless this is still our log, reaches at least to ``after``, and holds what is known."""
        epoch = self._js.connection.epoch
        self._check_end(await self.end(), after)
        genesis = genesis_of(await self._first())
        if genesis is None or genesis.log_id != self._identity.log_id:
            raise LogGoneError(
                say(
                    "stream {stream} holds log {held} now and not {wanted}; restart this process",
                    stream=self.stream,
                    held=genesis.log_id if genesis else say("without a genesis"),
                    wanted=self._identity.log_id,
                )
            )
        await self.prove(*self._known)
        if self._witness is not None and self._heard_epoch != epoch:
            await self.hear(self._witness)
        self._verified_epoch = epoch

    async def hear(self, witness: Callable[[], Awaitable[None]]) -> None:
        """Ask now, and on each connection before all else; raises LogLostError where the log lacks what others read."""
        epoch = self._js.connection.epoch
        await witness()
        self._witness, self._heard_epoch = witness, epoch

    async def prove(self, seq: int, digest: bytes) -> None:
        """See ports.Log."""
        if seq < self._identity.first:
            await self._prove_earlier(seq, digest)
            return
        self._check_end(await self.end(), seq)  # First: no server looks beyond the largest sequence.
        if not digest:
            return
        message = await message_at(self._js, self.stream, seq, patience_s=None)
        if message is None:
            raise self._lost(f"does not have sequence {seq}, which was read")
        if digest_of(seq, self._seat(message.subject), message.data) != digest:
            raise self._lost(f"holds another commit at {seq} than was read there")

    async def _prove_earlier(self, seq: int, digest: bytes) -> None:
        """What lies in a generation before this one, where that can still be read."""
        for sealed, end in self._chain():
            if sealed.identity.first <= seq <= end and await self._js.info(sealed.stream, checks=1) is not None:
                await sealed.prove(seq, digest)

    def _lost(self, trouble: str) -> LogLostError:
        return LogLostError(
            f"log {self.stream} {trouble}: it lost commits, and nothing more is built on it. Its next generation "
            "starts from the state of the cluster: the keeper founds it where the processes agree, "
            "else `muster log recover`"
        )

    async def _first(self) -> bytes | None:
        message = await message_at(self._js, self.stream, self._identity.first, patience_s=None)
        return None if message is None else message.data

    def _check_end(self, end: int, after: int) -> None:
        if end < after:
            raise self._lost(f"ends at {end} although {after} was read or acknowledged")
