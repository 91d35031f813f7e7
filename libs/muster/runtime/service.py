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
from contextlib import AsyncExitStack, suppress
from functools import partial

from muster.bus.errors import BusError, ForbiddenError
from muster.bus.generations import JetStreamGenerations
from muster.bus.jetstream import JetStream
from muster.bus.log import JetStreamLog
from muster.bus.marks import JetStreamMarks, give_up, hear_marks, prove_marks
from muster.events.envelope import UnknownEventError, UnreadableCommitError
from muster.kube.errors import KubeConfigError
from muster.ports import (
    ApiUnreachableError,
    Clock,
    FencedError,
    LogFullError,
    LogGapError,
    LogGoneError,
    LogLostError,
    LogSealedError,
    RollError,
)
from muster.runtime.clock import SystemClock
from muster.runtime.config import Config, ConfigError, load
from muster.runtime.connecting import connect_bus, open_cell
from muster.runtime.endings import write_ending
from muster.runtime.health import HealthServer
from muster.runtime.layouts import USERS, user_of
from muster.runtime.marking import Marking
from muster.runtime.process import Process
from muster.runtime.runners.follower import AnyFollower
from muster.runtime.runners.leader import ClockSkewError
from muster.runtime.runners.leasing import LostLeadershipError
from muster.runtime.runners.shared import SharedLog
from muster.telemetry import logs
from muster.telemetry.metrics import Metrics

RESTART = 75
"""Exit code: nothing is wrong with the configuration, start me again (a lost lease, a newer leader, another log)."""
UNAVAILABLE = 69
"""Exit code: something this process needs cannot be reached."""
MISCONFIGURED = 78
"""Exit code: the configuration cannot work as it is."""
SEALED_WAIT_S = 0.5
"""How often a process that finds its log sealed looks for the next generation."""

COLLECT_AFTER = 20_000
"""Objects that are made before the first are looked at for cycles: a state has none, and folding makes many."""

RESTARTS = (FencedError, LostLeadershipError, LogGoneError, LogGapError, LogFullError, ClockSkewError)
"""What ends a process that may be started again."""
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
) -> Process:
    """Connect to the bus and open the log. Raises BusError, LogGoneError.

    A log that is sealed and has no successor yet is waited for; with ``keeping`` its roll-over is completed instead.
    ``own_time``: the broker is ours and our clock counts as its own, whatever it shows (``muster up``).
    """
    # Never the same after a restart: it distinguishes commits and leases.
    name = f"{config.process or socket.gethostname()[:24]}-{secrets.token_hex(3)}"
    clock = clock or SystemClock()
    logger = logs.get(service=service, process=name)

    def notice(event: str, fields: object) -> None:
        logger.warning(event, fields=fields)

    connection = await connect_bus(config, f"muster-{service}-{name}", notice)
    stack.push_async_callback(connection.close)
    js = JetStream(connection)
    log = await open_cell(js, config, at=clock.now(), own_time=own_time)
    if (await log.usage()).sealed:
        logger.warning("log_sealed", generation=log.identity.generation, completing=keeping)
    while (await log.usage()).sealed:
        if keeping and (await hear_marks(js, log, USERS)).agrees:
            await give_up(js, log.identity, clock.now(), by=service)
        elif keeping:
            from muster.runtime.logkeeping.rolling import roll  # It loads every stage there is.

            with suppress(LogSealedError):  # Another process has completed it.
                await roll(JetStreamGenerations(js, config.cell), clock=clock, only=log.identity)
        else:
            await asyncio.sleep(SEALED_WAIT_S)
        log = await open_cell(js, config, at=clock.now(), own_time=own_time)
    log = await _proven(js, config, log, service, clock, logger, keeping=keeping, own_time=own_time)
    logger.info("log_opened", cell=config.cell, generation=log.identity.generation, log_id=log.identity.log_id)
    shared = SharedLog(log, clock if own_time else None)
    runners: list[AnyFollower] = []
    marking = Marking(JetStreamMarks(js, config.cell), user_of(service), log, runners, logger)
    return Process(
        config, service, name, clock, logger, Metrics(), connection, js, shared, marking, runners=runners, stack=stack
    )


async def _proven(
    js: JetStream,
    config: Config,
    log: JetStreamLog,
    service: str,
    clock: Clock,
    logger: logs.Logger,
    *,
    keeping: bool,
    own_time: bool,
) -> JetStreamLog:
    """The log, once it holds what the services of this process have read of it before, in this layout or another: its
    successor where it does not.

    That is waited for; with ``keeping`` it is founded where the processes agree.
    """
    told = False
    while True:
        try:
            await log.hear(partial(prove_marks, js, log, service, USERS))
        except LogLostError as err:
            if not told:
                logger.error("log_lost_commits", message=str(err))
            told = True
            if keeping and (await hear_marks(js, log, USERS)).agrees:
                await give_up(js, log.identity, clock.now(), by=service)
            else:
                await asyncio.sleep(SEALED_WAIT_S)
            log = await open_cell(js, config, at=clock.now(), own_time=own_time)
        else:
            break
    return log


async def serve(config: Config, service: str, build: Build, *, keeping: bool = False) -> None:
    """Run a service until cancelled or told to stop by SIGTERM or SIGINT; it follows its log through generations."""
    serving = asyncio.ensure_future(_serve(config, service, build, keeping))
    stop_on_signals(serving)
    try:
        await serving
    except asyncio.CancelledError:
        logs.get(service=service).info("stopped")


async def _serve(config: Config, service: str, build: Build, keeping: bool) -> None:
    async with AsyncExitStack() as outer:
        process, stack = await _open(config, service, build, keeping)
        current = [process]
        await _serve_health(config, current, outer)
        while True:
            async with stack:
                try:
                    await process.run()
                except LogSealedError as err:
                    process.logger.info("log_rolls_over", message=str(err))
            process, stack = await _open(config, service, build, keeping)
            current[:] = [process]


async def _open(config: Config, service: str, build: Build, keeping: bool) -> tuple[Process, AsyncExitStack]:
    """A process with its runners; closing the stack closes what it holds."""
    async with AsyncExitStack() as stack:
        process = await open_process(config, service, stack, keeping=keeping)
        await build(process)
        return process, stack.pop_all()


async def _serve_health(config: Config, current: list[Process], stack: AsyncExitStack) -> None:
    """Health and metrics of the process that runs now: of the first of the list."""
    if config.health_port < 0:
        return
    health = HealthServer(
        config.health_host,
        config.health_port,
        ready=lambda: list(current[0].not_ready()),
        started=lambda: list(current[0].not_started()),
        metrics=lambda: current[0].metrics.render(),
    )
    await health.start()
    stack.push_async_callback(health.stop)
    current[0].logger.info("health_served", host=health.host, port=health.port)


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
        event, code = next(said for kinds, said in _ENDS if isinstance(err, kinds))
        logger.error(event, message=str(err), notes=getattr(err, "__notes__", []))
        await write_ending(config, user_of(service), err, SystemClock().now())
        return code
    return os.EX_OK
