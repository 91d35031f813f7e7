"""How far a process has read the log, written down beside it: one that starts later sees when the log is shorter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

from muster.bus.beat import beat
from muster.bus.errors import BusError, UnansweredError
from muster.bus.jetstream import JetStream
from muster.bus.log import JetStreamLog
from muster.bus.marks import JetStreamMarks, Mark
from muster.bus.snapshots import JetStreamSnapshots, Warn
from muster.ports import Fingerprint, LogIdentity, Snapshot
from muster.runtime.opening import Opening, UndeclaredError
from muster.runtime.runners.follower import AnyFollower
from muster.telemetry.logs import Logger

MARK_S = 5.0
"""How often it is written down."""


class Marking:
    """The mark of a process, under the name of its user. ``runners``: the states show how far the process has read."""

    def __init__(
        self, marks: JetStreamMarks, user: str, log: JetStreamLog, runners: Sequence[AnyFollower], logger: Logger
    ) -> None:
        self._marks = marks
        self._user = user
        self._log = log
        self._runners = runners
        self._logger = logger
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        """Keep the mark until cancelled. Raises LogLostError."""
        while True:
            await beat(MARK_S)
            await self.keep()

    async def keep(self) -> bool:
        """Record how far the process has read, where further than the mark; False where the write failed.

        Raises LogLostError where the log lacks a commit that another process of the user has read.
        """
        async with self._turn:
            state = max(
                (runner.state for runner in self._runners if runner.folds), key=lambda state: state.seq, default=None
            )
            if state is None or not state.docket.last:
                return True
            return await self._put(int(state.seq), state.docket.last)

    async def testify(self, seq: int, digest: bytes) -> bool:
        """Write down a commit that outsiders have read and the log does not hold; as for :meth:`keep`."""
        async with self._turn:
            return await self._put(seq, digest)

    async def _put(self, seq: int, digest: bytes) -> bool:
        try:
            return await self._marks.put(self._log, self._user, Mark(self._log.identity.log_id, seq, digest.hex()))
        except (BusError, UnansweredError) as err:
            self._logger.warning("mark_not_kept", seq=seq, why=str(err))
            return False


class OwnSnapshots(JetStreamSnapshots):
    """The snapshots that a runner may read and write. A snapshot is saved after the mark: a log that
    cannot show the position of a snapshot falls short of the mark too. So such a snapshot need not be believed.
    """

    def __init__(self, js: JetStream, identity: LogIdentity, *, warn: Warn, marking: Marking, own: Opening) -> None:
        super().__init__(js, identity, warn=warn)
        self._marking = marking
        self._own = own

    async def newest(self, stage: str, shard: str) -> Fingerprint | None:
        """See ports.Snapshots. Raises UndeclaredError."""
        self._declared("reads", stage, self._own.begins)
        return await super().newest(stage, shard)

    def each(self, stage: str, shard: str) -> AsyncGenerator[Snapshot, None]:
        """See ports.Snapshots. Raises UndeclaredError."""
        self._declared("reads", stage, self._own.begins)
        return super().each(stage, shard)

    async def save(self, snapshot: Snapshot, *, end: int | None = None) -> bool:
        """See ports.Snapshots. False also where the mark could not be kept. Raises LogLostError, UndeclaredError."""
        self._declared("keeps", snapshot.stage, (self._own.keeps,))
        return await self._marking.keep() and await super().save(snapshot, end=end)

    def _declared(self, verb: str, stage: str, those: Sequence[str]) -> None:
        if stage not in those:
            raise UndeclaredError(
                f"a runner {verb} the snapshots of {stage}, and its row of muster.runtime.opening does not say so: its "
                "account of NATS would refuse it"
            )
