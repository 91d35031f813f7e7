"""Opening the log of a process: nothing is built on the log before each witness was heard.

The witnesses are the marks beside the log (:mod:`muster.bus.marks`), the record of the log's end beside the log
(:mod:`muster.runtime.pairing`), and the record on the API server (:mod:`muster.runtime.witness`). For a lost, forgotten
or sealed log the process waits until the successor is in force; the keeper founds the successor.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from functools import partial

from muster.bus.cell import own_genesis, point_on, pointer_of
from muster.bus.errors import ApiError, BusError
from muster.bus.generations import JetStreamGenerations
from muster.bus.jetstream import GrowingPause, JetStream
from muster.bus.log import JetStreamLog
from muster.bus.marks import give_up, hear_marks, prove_marks, rolled_over
from muster.bus.vouching import REACHING
from muster.events.wire import waits_for_roll_over
from muster.ports import (
    ApiTransport,
    ApiUnreachableError,
    Clock,
    LogGoneError,
    LogIdentity,
    LogLostError,
    LogSealedError,
)
from muster.runtime.config import Config
from muster.runtime.connecting import open_cell
from muster.runtime.layouts import USERS, members
from muster.runtime.pairing import belong, recorded_cluster
from muster.runtime.process import Tell, reach_api_server
from muster.runtime.witness import Bystander, CellRecord, Witness
from muster.telemetry.logs import Logger
from muster.telemetry.metrics import Metrics

READ_ONLY = ("gateway",)
"""Services that build nothing on the log."""
GONE_S = 10.0
"""How long NATS must not know the stream that the pointer names until the log is given up."""


class LogOpening:
    """Of one process; the parameters are as in ``service.open_process``.

    ``transport`` and ``witness``: of a process that reaches the API server, once :meth:`open` has returned.
    """

    def __init__(
        self,
        js: JetStream,
        config: Config,
        service: str,
        clock: Clock,
        logger: Logger,
        *,
        keeping: bool,
        own_time: bool,
        tell: Tell | None,
    ) -> None:
        self._js, self._config, self._clock = js, config, clock
        self._service = service
        self._logger = logger
        self._keeping, self._own_time = keeping, own_time
        self._tell = tell
        self._bystander = Bystander(js, config.cell)
        self.transport: ApiTransport | None = None
        self.witness: Witness | None = None

    async def open(self, name: str, metrics: Metrics, stack: AsyncExitStack) -> JetStreamLog:
        """The log, once it may be built on; ``name``: of the process.

        Raises BusError, LogGoneError, KubeConfigError.
        """
        gone_since, pause = 0.0, GrowingPause()
        while True:
            begun = asyncio.get_running_loop().time()
            try:
                return await self._whole(name, metrics, stack)
            except (LogGoneError, ApiError) as err:
                gone = err.gone if isinstance(err, ApiError) else not isinstance(err, (LogLostError, LogSealedError))
                if gone and self._keeping and await self._points_again():
                    continue
                pointer = await pointer_of(self._js, self._config.cell) if gone and self._tell is not None else None
                if pointer is None or pointer.stream not in str(err):
                    raise
                now = asyncio.get_running_loop().time()
                if not gone_since or now - begun >= GONE_S:  # It was there until now.
                    gone_since = now
                self._say(str(err), lost=False, sealed=False, generation=pointer.generation)
                if now - gone_since >= GONE_S:
                    identity = pointer.identity(self._config.cell)
                    await self._reach(identity, name, metrics, stack)
                    await self._forgotten(identity)
            await pause.pause()

    async def _points_again(self) -> bool:
        """Whether the servers forgot which generation is in force, and the streams say so: then it is again."""
        cell = self._config.cell
        try:
            known = await pointer_of(self._js, cell)
        except BusError:
            known = None  # Junk.
        return known is None and await point_on(self._js, cell, None)

    async def _whole(self, name: str, metrics: Metrics, stack: AsyncExitStack) -> JetStreamLog:
        """The log, as :meth:`open`; raises LogGoneError or ApiError for a stream that NATS does not know."""
        log = await self._cell()
        await self._reach(log.identity, name, metrics, stack)
        told, pause = "", GrowingPause()
        while True:
            sealed = (await log.usage()).sealed
            why = lost = await self._lost(log)
            if not lost:
                why = await self._unwitnessed(log)
            because = "" if why else await self._must_succeed(log.identity, sealed=sealed)
            if not why and not because:
                break
            reason = why or because
            if reason != told:
                told = reason
                self._say(reason, lost=bool(lost), sealed=sealed, generation=log.identity.generation)
            if not self._keeping or not await self._succeed(log, lost=bool(lost), because=because):
                await pause.pause()
            log = await self._cell()
        if self._tell is not None:
            self._tell("")
        return log

    def _say(self, why: str, *, lost: bool, sealed: bool, generation: int) -> None:
        if lost:
            self._logger.error("log_lost_commits", message=why)
        elif sealed:
            self._logger.warning("log_sealed", generation=generation, completing=self._keeping, message=why)
        if self._tell is not None:
            self._tell(why)

    async def _cell(self) -> JetStreamLog:
        return await open_cell(self._js, self._config, at=self._clock.now(), own_time=self._own_time)

    async def _forgotten(self, identity: LogIdentity) -> None:
        """NATS has forgotten the stream of the log in force: the watcher records the loss, the keeper founds what
        follows.
        """
        if self.witness is not None and REACHING[0] in members(self._service):
            with suppress(ApiUnreachableError):
                await self.witness.forgotten(identity)
        if self._keeping:
            await self._give_up(identity)

    async def _reach(self, identity: LogIdentity, name: str, metrics: Metrics, stack: AsyncExitStack) -> None:
        """Connect to the API server once, where this process does, and see that it is the one of the cell."""
        service = next((service for service in REACHING if service in members(self._service)), "")
        if not service or self._tell is None or self.witness is not None:
            return
        config = self._config
        transport = await reach_api_server(config, metrics, self._clock, stack)
        founds = service == REACHING[0]
        if not await belong(self._js, identity, transport, founds=founds, tell=self._tell):
            self._logger.warning("cluster_not_recorded", why="the uid of namespace kube-system may not be read")
        record = CellRecord(transport, config.cell, self._clock)
        self.transport = transport
        self.witness = Witness(record, self._js, config.cell, service, name, self._logger, writes=config.act)

    async def _lost(self, log: JetStreamLog) -> str:
        """Why the log is not whole, by the marks and the record beside the log; empty for a whole log.

        The marks are heard again on each connection. The publisher proves the published commits.
        """
        known = await recorded_cluster(self._js, log.identity)
        if known is not None and known.set_back and not await rolled_over(self._js, log.identity):
            return f"{known.set_back}; the keeper founds the next generation, else `muster log recover`"
        try:
            await log.hear(partial(prove_marks, self._js, log, self._service, USERS))
        except LogLostError as err:
            return str(err)
        return ""

    async def _unwitnessed(self, log: JetStreamLog) -> str:
        """Why the log was not compared with the record of the cell, or falls short of it; empty where it holds."""
        if self.witness is not None:
            return await self.witness.ask(log)
        if self._tell is None or {*members(self._service)} <= {*READ_ONLY}:
            return ""
        known = await recorded_cluster(self._js, log.identity)
        return await self._bystander.ask(log) if known is not None and known.uid else ""

    async def _must_succeed(self, identity: LogIdentity, *, sealed: bool) -> str:
        """Why the keeper must found the generation after a whole log; empty where this process may go on with it."""
        if sealed:
            return "the log is sealed and has no successor yet: the keeper completes the roll-over"
        if {*members(self._service)} <= {*READ_ONLY}:
            return ""
        genesis = await own_genesis(self._js, identity.cell, identity.generation, identity.first)
        return waits_for_roll_over(genesis) if genesis is not None else ""

    async def _succeed(self, log: JetStreamLog, *, lost: bool, because: str) -> bool:
        """Found the generation after a log that is lost, sealed, or of another wire; False where that is not sure.

        ``because``: why a whole log has a successor; empty for a log that is not whole.
        """
        if await point_on(self._js, log.identity.cell, log.identity):
            return True
        if lost and await self._give_up(log.identity):
            return True
        if (await hear_marks(self._js, log, USERS)).agrees:
            await give_up(self._js, log.identity, self._clock.now(), by=self._service)
        elif because:
            from muster.runtime.logkeeping.rolling import roll  # It loads every stage there is.

            generations = JetStreamGenerations(self._js, self._config.cell)
            with suppress(LogSealedError):  # Another process has completed it.
                await roll(generations, clock=self._clock, by=self._service, reason=because, only=log.identity)
        else:
            return False
        return True

    async def _give_up(self, identity: LogIdentity) -> bool:
        """Found the generation after a log whose loss was recorded beside it; False where none was."""
        known = await recorded_cluster(self._js, identity)
        if known is None or not known.set_back:
            return False
        await give_up(
            self._js,
            identity,
            self._clock.now(),
            by=self._service,
            reason=known.set_back,
            generation=known.generation,
            parent=known.parent,
        )
        return True
