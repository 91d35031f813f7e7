"""A process of Muster: connects, builds its runners, serves health, runs until told to stop.

Order of a start: configuration, telemetry, bus, log, API server, health, runners. Order of a stop: runners are
cancelled, then leaders give up their leases and keep a snapshot, then connections close.
"""

from __future__ import annotations

import asyncio
import gc
import os
import secrets
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from muster.bus.errors import BusError, ForbiddenError
from muster.bus.jetstream import JetStream
from muster.bus.marks import JetStreamMarks
from muster.events.envelope import UnknownEventError, UnreadableCommitError
from muster.kube.errors import KubeConfigError
from muster.ports import (
    ApiUnreachableError,
    Clock,
    FencedError,
    LogFullError,
    LogGapError,
    LogGoneError,
    LogSealedError,
    RollError,
)
from muster.runtime.clock import SystemClock
from muster.runtime.config import Config, ConfigError, load
from muster.runtime.connecting import connect_bus
from muster.runtime.endings import MISCONFIGURED, RESTART, UNAVAILABLE, tell_lacks, write_ending
from muster.runtime.health import HealthServer
from muster.runtime.layouts import user_of
from muster.runtime.logkeeping.snapshotting import let_go
from muster.runtime.logopening import LogOpening
from muster.runtime.marking import Marking
from muster.runtime.memory import give_back
from muster.runtime.process import Process, Tell
from muster.runtime.runners.follower import AnyFollower
from muster.runtime.runners.leader import ClockSkewError
from muster.runtime.runners.leasing import LostLeadershipError
from muster.runtime.runners.shared import SharedLog
from muster.telemetry import logs
from muster.telemetry.metrics import Metrics

STARTING = "not connected to NATS and the log yet"

COLLECT_AFTER = 20_000
"""Objects that are made before the first are looked at for cycles: a state has none, and folding makes many."""

STANDS_BY = (FencedError, LostLeadershipError, LogFullError, ClockSkewError)
"""After these the state is right, and another process leads, or none can: the service opens the log again as a standby.
"""
AGAIN_S = 1.0
"""The pause before that."""
RESTARTS = (LogGoneError, LogGapError)
"""After these the state may be wrong: the process ends, and may be started again."""
_FATAL = (UnknownEventError, UnreadableCommitError)
_ENDS: tuple[tuple[tuple[type[Exception], ...], tuple[str, int]], ...] = (
    ((ForbiddenError,), ("forbidden", UNAVAILABLE)),
    ((BusError, RollError, ApiUnreachableError), ("unavailable", UNAVAILABLE)),
    ((KubeConfigError,), ("misconfigured", MISCONFIGURED)),
    ((OSError,), ("cannot_start", UNAVAILABLE)),
    (_FATAL, ("log_unreadable", UNAVAILABLE)),
)
"""(errors, (how they are logged, exit code)) of ends that a restart does not correct; the first row that fits"""


Build = Callable[[Process], Awaitable[None]]
"""Adds the runners of a service to a process."""


async def open_process(
    config: Config,
    service: str,
    stack: AsyncExitStack,
    *,
    clock: Clock | None = None,
    own_time: bool = False,
    keeping: bool = False,
    tell: Tell | None = None,
) -> Process:
    """Connect to the bus and open the log. Raises BusError, LogGoneError.

    A sealed log without a successor is waited for; with ``keeping`` the roll-over is completed instead.
    ``own_time``: the broker belongs to this process, and the process's clock counts as the broker's (``muster up``).
    ``tell``: receives the reason of a wait. With ``tell`` nothing is opened before the log was compared with the
    witness
    outside NATS: by this process where it reaches the API server, else by another. Raises KubeConfigError then.
    """
    give_back()
    # Never the same after a restart: it distinguishes commits and leases.
    name = f"{config.process or socket.gethostname()[:24]}-{secrets.token_hex(3)}"
    clock = clock or SystemClock()
    logger = logs.get(service=service, process=name)

    def notice(event: str, fields: object) -> None:
        logger.warning(event, fields=fields)

    connection = await connect_bus(config, f"muster-{service}-{name}", notice)
    stack.push_async_callback(connection.close)
    js = JetStream(connection)
    metrics = Metrics()
    opening = LogOpening(js, config, service, clock, logger, keeping=keeping, own_time=own_time, tell=tell)
    log = await opening.open(name, metrics, stack)
    logger.info("log_opened", cell=config.cell, generation=log.identity.generation, log_id=log.identity.log_id)
    shared = SharedLog(log, clock if own_time else None)
    runners: list[AnyFollower] = []
    marking = Marking(JetStreamMarks(js, config.cell), user_of(service), log, runners, logger)
    return Process(
        config,
        service,
        name,
        clock,
        logger,
        metrics,
        connection,
        js,
        shared,
        marking,
        transport=opening.transport,
        tell=tell,
        witness=opening.witness,
        runners=runners,
        stack=stack,
    )


async def serve(config: Config, service: str, build: Build, *, keeping: bool = False) -> None:
    """Run a service until cancelled or told to stop by SIGTERM or SIGINT.

    It follows its log through generations, and is a standby where another process leads.
    """
    serving = asyncio.ensure_future(_serve(config, service, build, keeping))
    stop_on_signals(serving)
    try:
        await serving
    except asyncio.CancelledError:
        logs.get(service=service).info("stopped")


class ServiceStanding:
    """What health says of: the process that runs now, or why none does."""

    def __init__(self, service: str) -> None:
        self.process: Process | None = None
        self._waits = ""
        self.logger = logs.get(service=service)

    def tell(self, why: str) -> None:
        """What is waited for, empty for nothing."""
        if why and why != self._waits:
            self.logger.warning("waits_before_start", message=why)
        self._waits = why

    def not_ready(self) -> list[str]:
        return [self._waits or STARTING] if self.process is None else list(self.process.not_ready())

    def not_started(self) -> list[str]:
        """What a person must put right is not helped by a restart."""
        if self.process is None:
            return [] if self._waits else [STARTING]
        return list(self.process.not_started())

    def metrics(self) -> bytes:
        return b"" if self.process is None else self.process.metrics.render()


async def _serve(config: Config, service: str, build: Build, keeping: bool) -> None:
    async with AsyncExitStack() as outer:
        standing = ServiceStanding(service)
        await _serve_health(config, standing, outer)
        telling = asyncio.ensure_future(tell_lacks(config, user_of(service), standing.not_ready))
        outer.callback(telling.cancel)
        while True:
            if standing.process is not None:
                standing.process = None
                let_go()
            standing.process, stack = await _open(config, service, build, keeping, standing)
            async with stack:
                try:
                    await standing.process.run()
                except LogSealedError as err:
                    standing.process.logger.info("log_rolls_over", message=str(err))
                except STANDS_BY as err:
                    standing.process.logger.warning("stands_by", why=type(err).__name__, message=str(err))
                    await asyncio.sleep(AGAIN_S)


async def _open(
    config: Config, service: str, build: Build, keeping: bool, standing: ServiceStanding
) -> tuple[Process, AsyncExitStack]:
    """A process with its runners; closing the stack closes what it holds."""
    async with AsyncExitStack() as stack:
        process = await open_process(config, service, stack, keeping=keeping, tell=standing.tell)
        await build(process)
        return process, stack.pop_all()


async def _serve_health(config: Config, standing: ServiceStanding, stack: AsyncExitStack) -> None:
    """Health and metrics of the process that runs now."""
    if config.health_port < 0:
        return
    health = HealthServer(
        config.health_host,
        config.health_port,
        ready=standing.not_ready,
        started=standing.not_started,
        metrics=standing.metrics,
    )
    await health.start()
    stack.push_async_callback(health.stop)
    standing.logger.info("health_served", host=health.host, port=health.port)


def stop_on_signals(task: asyncio.Future[None]) -> None:
    """Cancel a task on SIGTERM and SIGINT."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)


def main(service: str, build: Build) -> None:
    """Entry point of a service: the environment is its configuration; the exit code says what to do about its end."""
    sys.exit(asyncio.run(run_service(service, build)))


async def run_service(service: str, build: Build, *, keeping: bool = False) -> int:
    """Run a service as the environment says; its exit code. ``keeping``: it completes roll-overs others began."""
    try:
        config = load()
    except ConfigError as err:
        print(f"muster {service}: {err}", file=sys.stderr)  # noqa: T201
        return MISCONFIGURED
    logs.configure(level=config.log_level, style=config.log_style)
    gc.freeze()  # What was imported lives as long as the process does.
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])
    return await _exit_code(config, service, build, keeping)


async def _exit_code(config: Config, service: str, build: Build, keeping: bool) -> int:
    logger = logs.get(service=service)
    try:
        await serve(config, service, build, keeping=keeping)
    except RESTARTS as err:
        logger.warning("restart_needed", why=type(err).__name__, message=str(err))
        return RESTART
    except (BusError, RollError, ApiUnreachableError, KubeConfigError, OSError, *_FATAL) as err:
        event, code = next(end for kinds, end in _ENDS if isinstance(err, kinds))
        logger.error(event, message=str(err), notes=getattr(err, "__notes__", []))
        await write_ending(config, user_of(service), err, SystemClock().now())
        return code
    return os.EX_OK
