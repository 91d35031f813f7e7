"""A process of Muster: connects, builds its runners, serves health, runs until told to stop.

Order of a start: configuration, telemetry, bus, log, API server, health, runners. Order of a stop: runners are
cancelled, then leaders keep a snapshot and give up their leases, then connections close.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from msgspec import Struct, field

from muster.bus.connection import Connection
from muster.bus.errors import BusError
from muster.bus.generations import JetStreamGenerations
from muster.bus.jetstream import JetStream
from muster.bus.lease import JetStreamLease
from muster.bus.public import PublicPublisher
from muster.bus.quarantine import Quarantine
from muster.bus.replicas import JetStreamReplicas
from muster.bus.snapshots import JetStreamSnapshots
from muster.core.deciders import DECIDERS
from muster.core.gang.state import AdmitterState
from muster.core.objects.registry import WATCHED
from muster.core.stage import SHOWN_KINDS
from muster.events.envelope import UnknownEventError, UnreadableCommitError
from muster.events.system import LogNearlyFull, PlacementChosen
from muster.kube.config import connect as connect_kube
from muster.kube.errors import KubeConfigError
from muster.kube.sources import FromKubeconfig, Source, default_source
from muster.ports import (
    ApiTransport,
    ApiUnreachableError,
    Clock,
    FencedError,
    LogFullError,
    LogGapError,
    LogGoneError,
    LogSealedError,
)
from muster.runtime.acting import ActuatorRunner
from muster.runtime.activating import Activator, announce
from muster.runtime.clock import SystemClock
from muster.runtime.config import Config, ConfigError, load
from muster.runtime.connecting import connect_bus, open_cell
from muster.runtime.follower import AnyFollower
from muster.runtime.health import HealthServer
from muster.runtime.keeping import Keeper
from muster.runtime.leader import ClockSkewError, Leader, LostLeadershipError
from muster.runtime.presenting import Presenter
from muster.runtime.publishing import Publisher
from muster.runtime.rolling import RollError, roll
from muster.runtime.shared import SharedLog
from muster.runtime.watching import WatcherRunner
from muster.telemetry import logs
from muster.telemetry.logs import Logger
from muster.telemetry.metrics import Metrics, labels
from muster.telemetry.observer import StageTelemetry
from muster.telemetry.traces import WorkloadTraces, make_tracing

RESTART = 75
"""Exit code: nothing is wrong with the configuration, start me again (a lost lease, a newer leader, another log)."""
UNAVAILABLE = 69
"""Exit code: something this process needs cannot be reached."""
MISCONFIGURED = 78
"""Exit code: the configuration cannot work as it is."""
STOP_LIMIT_S = 5.0
ROOM_CHECK_S = 15.0
SEALED_WAIT_S = 0.5
"""How often a process that finds its log sealed looks for the next generation."""
ALARM_PERCENT = 80
CLOSING_PERCENT = 95
"""How full the log may be until nothing new is let in, so that releases and effects still fit."""

RESTARTS = (FencedError, LostLeadershipError, LogGoneError, LogGapError, LogFullError, ClockSkewError)
"""What ends a process that may be started again."""
_FATAL = (UnknownEventError, UnreadableCommitError)


class Process(Struct, dict=True):
    """What the runners of one process share."""

    config: Config
    name: str
    clock: Clock
    logger: Logger
    metrics: Metrics
    connection: Connection
    js: JetStream
    log: SharedLog
    runners: list[AnyFollower] = field(default_factory=list)
    publishers: list[Publisher] = field(default_factory=list)
    keepers: list[Keeper] = field(default_factory=list)
    telemetries: list[StageTelemetry] = field(default_factory=list)

    snapshotting: bool = True
    """Whether leaders keep a snapshot when they leave."""
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    """What is closed when the process ends."""

    async def api_server(self) -> ApiTransport:
        """A connection to the API server the configuration names. Raises KubeConfigError."""
        source: Source = default_source()
        if self.config.kubeconfig or self.config.kube_context:
            source = FromKubeconfig(path=self.config.kubeconfig, context=self.config.kube_context)

        def measure(verb: str, resource: str, code: int, seconds: float) -> None:
            self.metrics.count("muster_kube_requests", labels(verb=verb, resource=resource, code=str(code)))
            self.metrics.kube_duration.record(seconds, {"verb": verb, "resource": resource})

        transport = await connect_kube(source, check=True, on_request=measure, clock=self.clock)
        self.stack.push_async_callback(transport.close)
        return transport

    def telemetry(self, stage: str, shard: str = "0") -> StageTelemetry:
        """Logs, metrics and spans of one stage."""
        tracing = make_tracing(stage)
        made = StageTelemetry(
            stage, shard, self.metrics, self.logger, WorkloadTraces(tracing, stage, self.log.identity.generation_of)
        )
        self.telemetries.append(made)
        return made

    def lease(self, stage: str, shard: str = "0") -> JetStreamLease:
        return JetStreamLease(self.js, self.log.identity, stage, shard, self.name)

    def snapshots(self) -> JetStreamSnapshots:
        def warn(event: str, *values: object) -> None:
            self.logger.warning(event, values=str(values))

        return JetStreamSnapshots(self.js, self.log.identity, warn=warn)

    def add_decider(self, name: str) -> None:
        """Run one deciding stage."""
        self.runners.append(
            Leader(
                DECIDERS[name](),
                log=self.log,
                lease=self.lease(name),
                snapshots=self.snapshots(),
                clock=self.clock,
                process=self.name,
                hooks=self.telemetry(name),
                opening=self._choose_placement if name == "gang_admitter" else None,
            )
        )

    def _choose_placement(self, state: AdmitterState) -> PlacementChosen | None:
        """What the configuration says of placement, where the log says something else."""
        chosen = PlacementChosen(
            mode=self.config.placement,
            hold_ms=self.config.placement_hold_s * 1000,
            grow_ms=self.config.placement_grow_s * 1000,
            claim_ms=self.config.placement_claim_s * 1000,
        )
        both_off = chosen.mode == state.placement.mode == "off" and chosen.claim_ms == state.placement.claim_ms
        return None if chosen == state.placement or both_off else chosen

    def add_watchers(self, transport: ApiTransport) -> None:
        """Run every shard of the watcher, those of kinds that are off to take back what was reported of them.

        Profile ``lean`` leaves out what only presentation needs.
        """
        for shard in WATCHED:
            if self.config.profile == "lean" and shard in SHOWN_KINDS:
                continue
            telemetry = self.telemetry("watcher", shard)
            self.runners.append(
                WatcherRunner(
                    shard,
                    transport,
                    log=self.log,
                    lease=self.lease("watcher", shard),
                    snapshots=self.snapshots(),
                    clock=self.clock,
                    process=self.name,
                    hooks=telemetry,
                    reflector_hooks=telemetry,
                    quarantine=partial(Quarantine(self.js, self.config.cell).put, "watcher"),
                    kinds=self.config.kinds_on,
                )
            )

    def add_actuator(self, transport: ApiTransport) -> None:
        """Carry decisions out, and show them; does neither where the configuration says to observe only."""
        if not self.config.act:
            return
        self.runners.append(
            ActuatorRunner(
                transport,
                log=self.log,
                lease=self.lease("actuator"),
                snapshots=self.snapshots(),
                clock=self.clock,
                process=self.name,
                hooks=self.telemetry("actuator"),
            )
        )
        if self.config.profile == "kube-queue":
            self.runners.append(
                Presenter(
                    transport,
                    log=self.log,
                    lease=self.lease("presenter"),
                    snapshots=self.snapshots(),
                    clock=self.clock,
                    hooks=self.telemetry("presenter"),
                )
            )

    def add_publisher(self) -> None:
        """Copy public events to the public stream."""
        outlet = PublicPublisher(self.js, self.config.cell)
        self.publishers.append(
            Publisher(log=self.log, outlet=outlet, lease=self.lease("publisher"), hooks=self.telemetry("publisher"))
        )

    def add_keeper(self) -> None:
        """Roll the log over when it is getting full, and keep its archive."""
        self.keepers.append(
            Keeper(
                JetStreamGenerations(self.js, self.config.cell),
                self.log.identity.log_id,
                lease=self.lease("keeper"),
                snapshots=self.snapshots(),
                clock=self.clock,
                hooks=self.telemetry("keeper"),
                percent=self.config.log_roll_percent,
                folder=Path(self.config.log_archive) if self.config.log_archive else None,
            )
        )

    def not_started(self) -> Iterator[str]:
        """Why the process has not started yet."""
        for runner in self.runners:
            if not runner.caught_up:
                yield f"{runner.stage.name}/{runner.shard} has folded up to {runner.state.seq} and not caught up yet"
        for publisher in self.publishers:
            if not publisher.caught_up:
                yield "publisher has not caught up yet"

    def not_ready(self) -> Iterator[str]:
        """Why the process does not do its work right now."""
        if not self.connection.connected:
            yield "not connected to NATS"
        for runner in self.runners:
            if not runner.caught_up:
                yield f"{runner.stage.name}/{runner.shard} is catching up"
            elif runner.state.unsynced and isinstance(runner, Leader) and runner.leading():
                yield f"{runner.stage.name} waits for {', '.join(sorted(runner.state.unsynced))} to be listed"

    async def run(self) -> None:
        """Run everything until cancelled; raises the first thing that goes wrong, by itself."""
        try:
            await self.log.begin()
            async with asyncio.TaskGroup() as tasks:
                if self.runners or self.publishers:
                    tasks.create_task(self.log.pump())
                tasks.create_task(self._watch_room())
                for runner in self.runners:
                    tasks.create_task(runner.run())
                for publisher in self.publishers:
                    tasks.create_task(publisher.run())
                for keeper in self.keepers:
                    tasks.create_task(keeper.run())
                self._watch_rulesets(tasks)
        except BaseExceptionGroup as group:
            why = _first_of(group)
            # What was kept of a sealed generation is of no use any more.
            self.snapshotting = not isinstance(why, LogSealedError)
            raise why from group
        finally:
            await self._leave()

    def _watch_rulesets(self, tasks: asyncio.TaskGroup) -> None:
        """Say which rule sets we support, and put the one that is wanted in force when all do."""
        replicas = JetStreamReplicas(self.js, self.config.cell)
        tasks.create_task(announce(replicas, self.runners, self.name))
        for runner in self.runners:
            if isinstance(runner, Leader) and runner.stage.name == "quota_accountant" and self.config.ruleset:
                tasks.create_task(Activator(runner, replicas, self.config.ruleset).run())

    async def _watch_room(self) -> None:
        """Raise the alarm while there is still room in the log, and have admissions stopped before there is none."""
        closing = False
        while True:
            usage = await self.log.usage()
            percent = usage.bytes * 100 // usage.max_bytes if usage.max_bytes > 0 else 0
            self.metrics.set("muster_log_fill_percent", (), percent)
            if percent >= ALARM_PERCENT:
                self.logger.error("log_nearly_full", percent=percent, bytes=usage.bytes, max_bytes=usage.max_bytes)
            for runner in self.runners:
                first = isinstance(runner, Leader) and runner.stage.name == "quota_accountant" and not closing
                if percent >= CLOSING_PERCENT and first and not runner.state.closing and isinstance(runner, Leader):
                    closing = True
                    runner.announce(LogNearlyFull(percent=percent))
            await asyncio.sleep(ROOM_CHECK_S)

    async def _leave(self) -> None:
        """Leave in good order, within a limit: what is not done then is done by whoever comes next."""
        try:
            async with asyncio.timeout(STOP_LIMIT_S):
                for runner in self.runners:
                    if isinstance(runner, Leader):
                        await runner.stop(keep=self.snapshotting)
                for keeper in self.keepers:
                    await keeper.stop()
        except (TimeoutError, BusError) as err:
            self.logger.warning("left_in_a_hurry", why=str(err))


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
    # Never the same after a restart: commits and leases are told apart by it.
    name = f"{config.process or socket.gethostname()[:24]}-{secrets.token_hex(3)}"
    clock = clock or SystemClock()
    logger = logs.get(service=service, process=name)

    def notice(event: str, fields: object) -> None:
        logger.warning(event, fields=fields)

    connection = await connect_bus(config, f"muster-{service}-{name}", notice)
    stack.push_async_callback(connection.close)
    js = JetStream(connection)
    log = await open_cell(js, config, at=clock.now())
    if (await log.usage()).sealed:
        logger.warning("log_sealed", generation=log.identity.generation, completing=keeping)
    while (await log.usage()).sealed:
        if keeping:
            await roll(JetStreamGenerations(js, config.cell), clock=clock)
        else:
            await asyncio.sleep(SEALED_WAIT_S)
        log = await open_cell(js, config, at=clock.now())
    logger.info("log_opened", cell=config.cell, generation=log.identity.generation, log_id=log.identity.log_id)
    shared = SharedLog(log, clock if own_time else None)
    return Process(config, name, clock, logger, Metrics(service), connection, js, shared, stack=stack)


async def serve(config: Config, service: str, build: Build, *, keeping: bool = False) -> None:
    """Run a service until cancelled or told to stop by SIGTERM or SIGINT; it follows its log through generations."""
    async with AsyncExitStack() as outer:
        process, stack = await _open(config, service, build, keeping)
        current = [process]
        await _serve_health(config, current, outer)
        while True:
            async with stack:
                running = asyncio.ensure_future(process.run())
                stop_on_signals(running)
                try:
                    await running
                except asyncio.CancelledError:
                    process.logger.info("stopped")
                    return
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
    return await _exit_code(config, service, build, keeping)


async def _exit_code(config: Config, service: str, build: Build, keeping: bool) -> int:
    logger = logs.get(service=service)
    try:
        await serve(config, service, build, keeping=keeping)
    except RESTARTS as err:
        logger.warning("restart_needed", why=type(err).__name__, message=str(err))
        return RESTART
    except (BusError, RollError, ApiUnreachableError) as err:
        logger.error("unavailable", message=str(err))
        return UNAVAILABLE
    except KubeConfigError as err:
        logger.error("misconfigured", message=str(err))
        return MISCONFIGURED
    except OSError as err:
        logger.error("cannot_start", message=str(err))
        return UNAVAILABLE
    except _FATAL as err:
        logger.error("log_unreadable", message=str(err), notes=getattr(err, "__notes__", []))
        return UNAVAILABLE
    return os.EX_OK


def _first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first exception of a group, however deep."""
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
