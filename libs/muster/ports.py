"""The runners' needs of the outside, as Protocols of a few methods each.

Adapters: ``bus`` (JetStream) and ``sim`` (in memory) offer Log, Lease and Snapshots; ``kube`` (a real API server) and
``sim`` (a simulated one) offer ApiTransport. The contract tests run on both of each.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from muster.events.envelope import Commit, Stored


class Earlier(Struct, frozen=True):
    """A sealed generation: the successor continues with the next sequence."""

    generation: int
    log_id: str
    first: int = 1
    """Sequence of its genesis."""


class LogIdentity(Struct, frozen=True):
    """Which log this is. Every position shown outside is (generation, sequence)."""

    cell: str
    log_id: str
    generation: int
    first: int = 1
    """Sequence of its genesis: 1 where it began from nothing, else the one after the end of the generation before."""
    state: str = ""
    """Digest of the states it began with; empty where it began from nothing."""
    earlier: tuple[Earlier, ...] = ()
    """The sealed generations before it that can still be read, oldest first. They and this one are read as one log."""
    imported: int = 0
    """Up to here it was imported: its commits say when they were stored first."""

    @property
    def origin(self) -> int:
        """The first sequence that can be read."""
        return self.earlier[0].first if self.earlier else self.first

    def generation_of(self, seq: int) -> int:
        """Which generation a sequence belongs to."""
        number = self.earlier[0].generation if self.earlier else self.generation
        for generation in self.earlier:
            if generation.first <= seq:
                number = generation.generation
        return self.generation if seq >= self.first else number


class FencedError(Exception):
    """An append was refused because a newer leader has written: this process stops deciding, as a standby."""


class LogGoneError(Exception):
    """The log is not there any more, or is another one than the one followed: exit and start again."""


class LogLostError(LogGoneError):
    """The log lacks commits that were read: the log lost commits, and may have grown over them since."""


class LogSealedError(LogGoneError):
    """The generation takes nothing more: go on with its successor, as soon as that is in force."""


class RollError(Exception):
    """The log cannot be rolled over: what is in the way, and what to do."""


class LogFullError(Exception):
    """The log takes no more: nothing was stored. Retry after room was made; never drop the commit silently."""


class LogGapError(Exception):
    """A sequence is missing where the log has no holes by configuration: stop, and raise the alarm."""


class Log(Protocol):
    """One generation of a cell's log: fenced appends, ordered reads."""

    @property
    def identity(self) -> LogIdentity: ...

    async def append(self, commit: Commit, *, expected: int, headers: Mapping[str, str] | None = None) -> int:
        """Store a commit after ``expected``, the last sequence of its (stage, shard), 0 for none; returns its sequence.

        ``headers`` travel beside the commit and are no part of it; ``traceparent`` comes back as Stored.trace.

        Returns only after the server acknowledged; the commit's id and body hash distinguish
        a lost acknowledgement from a lost race. Waits out reconnects. Raises FencedError, LogGoneError, LogFullError.
        """
        ...

    def follow(self, after: int, last: bytes = b"") -> AsyncGenerator[list[Stored], None]:
        """Every commit with a sequence over ``after``, in order, in batches, for ever; from earlier generations too.

        ``last``: digest of the commit at ``after``. Each connection proves that the log still holds the last commit
        read: LogLostError otherwise.

        Yields an empty list once, at the end that the log had at the start. Raises LogSealedError at the end of a
        sealed generation, LogGapError, LogGoneError, and the errors of decode_commit.
        """
        ...

    async def prove(self, seq: int, digest: bytes) -> None:
        """Raise LogLostError unless the log holds the commit with that digest at a sequence; empty: any that is there.

        What lies in a generation that can no longer be read counts as proven.
        """
        ...

    async def end(self) -> int:
        """The last sequence stored so far."""
        ...

    async def last(self, stage: str, shard: str) -> int:
        """Sequence of the last commit of a (stage, shard) in this generation, 0 when there is none."""
        ...

    async def time(self) -> int:
        """The broker's clock, ms since the epoch: a writer far ahead of it must not append."""
        ...


class Lease(Protocol):
    """Leadership of one (stage, shard) for a while. Only keeps the peace: safety is in the append."""

    async def acquire(self) -> bool | None:
        """Take the lease if the lease is free or already ours; never waits for another holder.

        False: another process holds and renews the lease; None: neither can be found out.
        """
        ...

    async def renew(self) -> bool:
        """Keep it; False when it was lost."""
        ...

    async def release(self) -> None:
        """Give it up, so that a successor need not wait for the end of the lease."""
        ...


class Snapshot(Struct, frozen=True):
    """The state of a (stage, shard) after folding everything up to ``seq`` of log ``log_id``."""

    log_id: str
    stage: str
    shard: str
    seq: int
    schema: str
    """Hash of the state's schema: another one means rebuild from the log."""
    body: bytes


class Fingerprint(Struct, frozen=True):
    """What a snapshot must be: the hash of its body at a position, as states of a schema are written."""

    seq: int
    schema: str
    digest: str


class Snapshots(Protocol):
    """Where snapshots are kept; the newest per (stage, shard) counts."""

    async def newest(self, stage: str, shard: str) -> Fingerprint | None:
        """Of the newest one of this log; None where there is none, or where that cannot be found out."""
        ...

    def each(self, stage: str, shard: str) -> AsyncGenerator[Snapshot, None]:
        """All that can be used, the newest first; the state that this generation of the log began with comes last."""
        ...

    async def save(self, snapshot: Snapshot, *, end: int | None = None) -> bool:
        """Keep the snapshot if it is newer than the kept snapshot; False if a newer snapshot is kept already.

        ``end``: of the log; a snapshot with a position beyond the end is no snapshot, and makes room.
        """
        ...


class Replica(Struct, frozen=True):
    """A process that runs a (stage, shard), and the newest rule set it can decide by."""

    stage: str
    shard: str
    process: str
    ruleset: int


class Replicas(Protocol):
    """The processes that are alive. An announcement is forgotten when it is not repeated within the time of a lease."""

    async def announce(self, replica: Replica) -> None: ...

    async def live(self) -> list[Replica]: ...


class Generations(Protocol):
    """The generations of a cell's log, for the process that rolls it over. Every step may be repeated without harm."""

    async def current(self) -> tuple[Log, bool]:
        """The generation in force, and whether it is sealed. Raises LogGoneError."""
        ...

    async def base(self, identity: LogIdentity) -> Sequence[Snapshot]:
        """The states a generation began with; none where it began from nothing."""
        ...

    async def reserve(self, identity: LogIdentity) -> None:
        """Keep room for the generation after this one. Raises where there is none."""
        ...

    async def seal(self, identity: LogIdentity) -> int:
        """Have a generation take nothing more; returns its last sequence."""
        ...

    async def keep(self, states: Sequence[Snapshot]) -> str:
        """Keep the states the next generation begins with; returns their digest."""
        ...

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
        """Found the generation after a sealed generation, unless it exists, and put it in force.

        ``by``, ``reason``: the user and the reason, for the genesis; ``prefix``: hash of the log at the seal.
        """
        ...


class ApiResponse(Struct, frozen=True):
    """What the API server answered. ``retry_after_s`` is set when it named a time."""

    status: int
    body: bytes
    retry_after_s: float | None = None

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


class ApiUnreachableError(Exception):
    """No answer: connection refused, reset, timed out. The request may or may not have been carried out."""


class ApiStatusError(Exception):
    """A watch was answered with a status instead of a stream."""

    def __init__(self, status: int, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(f"HTTP {status}: {message}")
        self.status = status
        self.message = message
        self.retry_after_s = retry_after_s


class ApiTransport(Protocol):
    """Requests to an API server, real or simulated: paths, verbs and bodies exactly as Kubernetes has them."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_s: float = 10.0,
    ) -> ApiResponse:
        """A request and its answer, of any status. Raises ApiUnreachableError without an answer."""
        ...

    def watch(self, path: str, *, query: Mapping[str, str], idle_limit_s: float) -> AsyncIterator[bytes]:
        """The lines of a watch stream, each complete (a line cut off by the end of the stream is dropped).

        Ends when the server ends it. Raises ApiStatusError when the answer is not a stream, ApiUnreachableError
        when the connection fails or nothing arrives for ``idle_limit_s``.
        """
        ...


class Clock(Protocol):
    """The only source of time in the runners."""

    def now(self) -> int:
        """Ms since the epoch."""
        ...
