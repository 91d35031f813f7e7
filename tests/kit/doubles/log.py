"""The log, leases and snapshots in memory: the ports of the bus for simulations and tests.

No clock and no chance of their own: the only time is the event loop's, so under a loop with virtual time a run is
the same every time. What can go wrong with the real bus is asked of a :class:`LogFaults`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from kit.doubles.broker import Broker
from muster.audit.judge import heard, overtakes
from muster.core.docket import parts
from muster.events.envelope import Commit, Stored, body_hash, encode_commit, genesis_commit
from muster.events.registry import encode
from muster.events.system import Genesis
from muster.ports import (
    Earlier,
    FencedError,
    Fingerprint,
    LogFullError,
    LogGapError,
    LogGoneError,
    LogIdentity,
    LogLostError,
    LogSealedError,
    Replica,
    Snapshot,
)

BATCH = 500
BROKER_MS = 2**62
"""The broker's time: nobody is ever ahead of it, unless a test says another."""


class AckLost(Exception):
    """Raised by a fault: the commit is stored, but its acknowledgement does not arrive."""


class LogFaults(Protocol):
    """What happens on the way to the log and back. Both may wait, for a slow network."""

    async def before_store(self, commit: Commit) -> None:
        """Whatever this raises, append raises, and nothing is stored."""
        ...

    async def after_store(self, commit: Commit, seq: int) -> None:
        """AckLost makes append find out for itself, as the real one does; anything else (a crash of the writer)
        is raised by append although the commit is stored.
        """
        ...


class MemoryLog:
    """One generation of a log (see ports.Log). Begins with its Genesis at sequence 1, like the real one.

    ``max_bytes``: what it takes before it is full, 0 for no limit. ``isolate``: commits are encoded and decoded on
    their way in, so that nobody shares a mutable value with anybody; switch it off where speed counts more.
    ``before``: the sealed generation it succeeds, which is read as a part of it.
    """

    def __init__(
        self,
        identity: LogIdentity,
        *,
        at: int = 0,
        parent: str = "",
        before: MemoryLog | None = None,
        prefix: str = "",
        max_bytes: int = 0,
        isolate: bool = True,
        faults: LogFaults | None = None,
        broker: Broker | None = None,
    ) -> None:
        self.faults = faults
        self.broker = broker or Broker()
        self.max_bytes = max_bytes
        self.broker_ms = BROKER_MS
        self._identity = identity
        self._isolate = isolate
        self._stored: list[Stored] = before.commits() if before is not None else []
        self.sealed = False
        self._last: dict[tuple[str, str], int] = {}
        """(stage, shard) -> sequence of its last commit."""
        self._bytes = 0
        self._gone = ""
        self._waiting: dict[asyncio.Future[None], None] = {}
        """Followers at the end, in the order they got there: a set would wake them in any."""
        genesis = Genesis(log_id=identity.log_id, generation=identity.generation, parent=parent, state=identity.state)
        self._put(genesis_commit(genesis, at, in_seq=len(self._stored), prefix=prefix), "")

    @property
    def identity(self) -> LogIdentity:
        return self._identity

    async def append(self, commit: Commit, *, expected: int, headers: Mapping[str, str] | None = None) -> int:
        """See ports.Log."""
        await self.broker.answers("append", commit.stage)
        if self.faults is not None:
            await self.faults.before_store(commit)
        seq = self._store(commit, expected, (headers or {}).get("traceparent", ""))
        while self.faults is not None:
            try:
                await self.faults.after_store(commit, seq)
                break
            except AckLost:
                # The same bytes with the same expectation once more: refused by now, and found to be our own.
                seq = self._store(commit, expected, "")
        return seq

    async def follow(self, after: int, last: bytes = b"") -> AsyncGenerator[list[Stored], None]:
        """See ports.Log."""
        self._check_there()
        await self.prove(after, last)
        end = len(self._stored)
        behind = end > after
        if not behind:
            yield []
        while True:
            await self.broker.answers()
            self._check_there()
            await self.prove(after, last)
            batch = self._stored[after : after + BATCH]
            if batch:
                batch = batch[: await self.broker.reads(self._identity, after, batch[-1].seq) - after]
            for stored in batch:
                if stored.seq != after + 1:
                    raise LogGapError(f"log has no commit {after + 1}, the next one is {stored.seq}: stop")
                after, last = stored.seq, stored.digest
            if batch:
                yield batch
                if behind and after >= end:
                    behind = False
                    yield []
            elif self.sealed:
                raise self._sealed_error()
            else:
                await self._wait()

    async def prove(self, seq: int, digest: bytes) -> None:
        """See ports.Log."""
        await self.broker.answers()
        if seq > len(self._stored):
            raise LogLostError(f"log ends at {len(self._stored)} although {seq} was read: it lost commits")
        if seq and digest and seq in self.broker.lacks(self._identity, self.broker.leader):
            try:
                await self.broker.reads(self._identity, seq - 1, seq)
            except LogGapError as err:
                raise LogLostError(f"log does not have {seq}, which was read") from err
        if seq and digest and self._stored[seq - 1].digest != digest:
            raise LogLostError(f"log holds another commit at {seq} than was read there: it lost commits")

    def lose(self, count: int) -> None:
        """The newest commits are gone, as after a crash of a broker that had not written them."""
        del self._stored[len(self._stored) - count :]
        self._last = {(each.commit.stage, each.commit.shard): each.seq for each in self._stored}
        self._wake()

    async def end(self) -> int:
        """See ports.Log."""
        await self.broker.answers()
        self._check_there()
        return len(self._stored)

    async def last(self, stage: str, shard: str) -> int:
        """See ports.Log."""
        await self.broker.answers()
        self._check_there()
        return self._last.get((stage, shard), 0)

    async def time(self) -> int:
        """See ports.Log: nobody is ever ahead of it, unless a test sets ``broker_ms``."""
        return self.broker_ms

    def seal(self) -> None:
        """Nothing is added from here on."""
        self.sealed = True
        self._wake()

    def _sealed_error(self) -> LogSealedError:
        return LogSealedError(f"log {self._identity.log_id} is sealed; its next generation takes over")

    def remove(self) -> None:
        """The log is gone from here on, for writers and readers."""
        self._gone = "was removed"
        self._wake()

    def commits(self) -> list[Stored]:
        """Everything stored so far, for assertions."""
        return list(self._stored)

    def _store(self, commit: Commit, expected: int, trace: str) -> int:
        self._check_there()
        key = (commit.stage, commit.shard)
        last = self._last.get(key, 0)
        own = 0
        for other in self._stored[expected:last] if last > expected else ():
            if (other.commit.stage, other.commit.shard) != key:
                continue
            theirs = other.commit
            same = theirs.commit_id == commit.commit_id
            if same and body_hash(encode_commit(theirs)) == body_hash(encode_commit(commit)):
                own = other.seq
            elif overtakes(other, commit):
                raise FencedError(
                    f"cannot append commit {commit.commit_id} of {commit.stage}/{commit.shard} after {expected}: "
                    f"commit {theirs.commit_id} of epoch {theirs.epoch} is stored at {other.seq}"
                )
            expected = other.seq
        if own:
            return own
        if last < expected:
            raise LogGoneError(
                f"log ends for {commit.stage}/{commit.shard} at {last} although {expected} was acknowledged: "
                "it lost commits; restart"
            )
        return self._put(commit, trace)

    def _put(self, commit: Commit, trace: str) -> int:
        if self.sealed:
            raise self._sealed_error()
        seq = len(self._stored) + 1
        stored = Stored(seq, commit, trace)
        if self._isolate or self.max_bytes:
            body = encode_commit(commit)
            if self.max_bytes and self._bytes + len(body) > self.max_bytes:
                raise LogFullError(f"cannot append commit {commit.commit_id}: the log holds {self._bytes} bytes")
            self._bytes += len(body)
            if self._isolate:
                subject = f"{self._identity.generation}.{commit.stage}.{commit.shard}"
                stored = heard(seq, subject, body, min(self.broker_ms, BROKER_MS), trace)
        return self._take(stored)

    def write(self, seat: str, body: bytes, stored_at: int = BROKER_MS) -> int:
        """Store any bytes on ``stage.shard``, as who has the key to it may."""
        return self._take(heard(len(self._stored) + 1, f"{self._identity.generation}.{seat}", body, stored_at))

    def _take(self, stored: Stored) -> int:
        self._stored.append(stored)
        stage, _, shard = parts(stored.subject)[1].partition(".") if stored.subject else ("", "", "")
        self._last[stage or stored.commit.stage, shard or stored.commit.shard] = stored.seq
        self._wake()
        return stored.seq

    def _check_there(self) -> None:
        if self._gone:
            raise LogGoneError(f"log {self._identity.log_id} {self._gone}; restart this process")

    def _wake(self) -> None:
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)

    async def _wait(self) -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[waiting] = None
        try:
            await waiting
        finally:
            del self._waiting[waiting]


class _Held(Struct):
    process: str
    until: float


class MemoryLeases:
    """All leases of a cell; ``lease_s`` is how long one lasts without renewal, by the loop's time."""

    def __init__(self, lease_s: float = 10.0, broker: Broker | None = None) -> None:
        self.lease_s = lease_s
        self.broker = broker or Broker()
        self.held: dict[tuple[str, str], _Held] = {}
        """(stage, shard) -> who holds it until when."""

    def lease(self, stage: str, shard: str, process: str) -> MemoryLease:
        """The lease of one (stage, shard) as seen by ``process``."""
        return MemoryLease(self, (stage, shard), process)

    def take(self, stage: str, shard: str, process: str) -> None:
        """Another process has it from now on, whoever held it."""
        self.held[stage, shard] = _Held(process, asyncio.get_running_loop().time() + self.lease_s)


class MemoryLease:
    """One lease (see ports.Lease)."""

    def __init__(self, leases: MemoryLeases, key: tuple[str, str], process: str) -> None:
        self._leases = leases
        self._key = key
        self._process = process

    async def acquire(self) -> bool | None:
        """See ports.Lease."""
        if not await self._leases.broker.answers_lease(self._key[0]):
            return None
        holder = self.holder()
        return self._hold() if holder in (None, self._process) else False

    async def renew(self) -> bool:
        """See ports.Lease. While the broker does not answer it stays ours until it must have expired."""
        answers = await self._leases.broker.answers_lease(self._key[0])
        ours = self.holder() == self._process
        return self._hold() if ours and answers else ours

    async def release(self) -> None:
        """See ports.Lease."""
        if self.holder() == self._process and self._leases.broker.on:
            del self._leases.held[self._key]

    def holder(self) -> str | None:
        """The process that holds it now."""
        held = self._leases.held.get(self._key)
        return held.process if held is not None and held.until > asyncio.get_running_loop().time() else None

    def _hold(self) -> bool:
        until = asyncio.get_running_loop().time() + self._leases.lease_s
        self._leases.held[self._key] = _Held(self._process, until)
        return True


class SnapshotStore:
    """The snapshots of a cell over all its generations: (stage, shard) -> (generation, snapshot).

    ``bases``: digest -> the states a generation begins with.
    """

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], tuple[int, Snapshot]] = {}
        self.bases: dict[str, list[Snapshot]] = {}


class MemorySnapshots:
    """The snapshots of one generation (see ports.Snapshots); give a restarted process the same ``store``."""

    def __init__(self, identity: LogIdentity, store: SnapshotStore | None = None, broker: Broker | None = None) -> None:
        self._identity = identity
        self._broker = broker or Broker()
        self._store = store or SnapshotStore()

    async def newest(self, stage: str, shard: str) -> Fingerprint | None:
        """See ports.Snapshots."""
        if not self._broker.on:
            return None
        _, kept = self._store.kept.get((stage, shard), (0, None))
        if kept is None or kept.log_id != self._identity.log_id:
            return None
        return Fingerprint(kept.seq, kept.schema, body_hash(kept.body))

    async def each(self, stage: str, shard: str) -> AsyncGenerator[Snapshot, None]:
        """See ports.Snapshots."""
        await self._broker.answers("snapshots", stage)
        _, kept = self._store.kept.get((stage, shard), (0, None))
        if kept is not None and kept.log_id == self._identity.log_id:
            yield kept
        for first in self._store.bases.get(self._identity.state, ()):
            if (first.stage, first.shard) == (stage, shard):
                yield replace(first, log_id=self._identity.log_id)

    async def save(self, snapshot: Snapshot, *, end: int | None = None) -> bool:
        """See ports.Snapshots. Raises ValueError when the snapshot is of another log."""
        if snapshot.log_id != self._identity.log_id:
            raise ValueError(f"snapshot of log {snapshot.log_id} offered to the snapshots of {self._identity.log_id}")
        if not self._broker.on:
            return False
        key = (snapshot.stage, snapshot.shard)
        if key in self._store.kept:
            generation, kept = self._store.kept[key]
            beyond = end is not None and kept.seq > end
            if not beyond and (generation, kept.seq) >= (self._identity.generation, snapshot.seq):
                return False
        self._store.kept[key] = (self._identity.generation, snapshot)
        return True


class MemoryGenerations:
    """The generations of a cell in memory (see ports.Generations); ``logs`` ends with the one in force.

    Between the founding of a generation and its coming into force lies a moment, as with the real one.
    """

    def __init__(self, logs: list[MemoryLog], snapshots: SnapshotStore, faults: LogFaults | None = None) -> None:
        self._logs = logs
        self._snapshots = snapshots
        self._faults = faults
        self._founded: dict[int, MemoryLog] = {}

    async def current(self) -> tuple[MemoryLog, bool]:
        """See ports.Generations."""
        await asyncio.sleep(0)
        return self._logs[-1], self._logs[-1].sealed

    async def base(self, identity: LogIdentity) -> list[Snapshot]:
        """See ports.Generations."""
        await asyncio.sleep(0)
        return self._snapshots.bases[identity.state] if identity.state else []

    async def reserve(self, identity: LogIdentity) -> None:
        """See ports.Generations: memory has room."""
        await asyncio.sleep(0)

    async def seal(self, identity: LogIdentity) -> int:
        """See ports.Generations."""
        await asyncio.sleep(0)
        log = next(log for log in self._logs if log.identity.generation == identity.generation)
        log.seal()
        await asyncio.sleep(0)
        return await log.end()

    async def keep(self, states: Sequence[Snapshot]) -> str:
        """See ports.Generations."""
        await asyncio.sleep(0)
        digest = body_hash(b"".join(encode(each) for each in states))
        self._snapshots.bases[digest] = list(states)
        await asyncio.sleep(0)
        return digest

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
        """See ports.Generations."""
        await asyncio.sleep(0)
        number, old = identity.generation + 1, next(log for log in self._logs if log.identity == identity)
        if number not in self._founded:
            before = (*identity.earlier, Earlier(identity.generation, identity.log_id, identity.first))
            born = LogIdentity(identity.cell, f"log-{number}", number, end + 1, state, before)
            self._founded[number] = MemoryLog(
                born, at=at, parent=identity.log_id, before=old, prefix=prefix, faults=self._faults, broker=old.broker
            )
        await asyncio.sleep(0)
        if self._logs[-1] is old:
            self._logs.append(self._founded[number])
        await asyncio.sleep(0)
        return self._logs[-1].identity


class MemoryReplicas:
    """Who is alive (see ports.Replicas), by the loop's time."""

    def __init__(self, lease_s: float = 10.0) -> None:
        self.lease_s = lease_s
        self._told: dict[Replica, float] = {}

    async def announce(self, replica: Replica) -> None:
        """See ports.Replicas."""
        self._told[replica] = asyncio.get_running_loop().time()

    async def live(self) -> list[Replica]:
        """See ports.Replicas."""
        now = asyncio.get_running_loop().time()
        return [replica for replica, at in self._told.items() if now - at < self.lease_s]
