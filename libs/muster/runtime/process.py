"""The shared parts of the runners of a process, and how the runners run and leave together.

Parts for some services are imported where they are added: a service does not load the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field

from muster.bus.beat import beat
from muster.bus.connection import Connection
from muster.bus.errors import BusError
from muster.bus.generations import JetStreamGenerations
from muster.bus.jetstream import JetStream
from muster.bus.lease import JetStreamLease
from muster.bus.public import PublicPublisher
from muster.bus.quarantine import Quarantine
from muster.bus.replicas import JetStreamReplicas
from muster.core.stage import SHOWN_KINDS, Stage
from muster.events.system import LogNearlyFull, PlacementChosen
from muster.kube.config import connect as connect_kube
from muster.kube.sources import FromKubeconfig, Source, default_source
from muster.model.api import LIMIT_RANGES, RUNTIME_CLASSES
from muster.ports import (
    ApiTransport,
    ApiUnreachableError,
    Clock,
    LogGoneError,
    LogLostError,
    LogSealedError,
    Snapshot,
)
from muster.runtime import ability
from muster.runtime.clusterlease import ClusterLease, Fenced
from muster.runtime.config import Config
from muster.runtime.connecting import connect_bus
from muster.runtime.marking import Marking, OwnSnapshots
from muster.runtime.measuring import Measuring
from muster.runtime.opening import opening
from muster.runtime.pairing import belong, record_set_back
from muster.runtime.runners.activating import Activator, announce
from muster.runtime.runners.follower import AnyFollower, Follower
from muster.runtime.runners.leader import Leader
from muster.runtime.runners.shared import SharedLog
from muster.runtime.witness import Witness
from muster.telemetry.logs import Logger
from muster.telemetry.metrics import Metrics, labels
from muster.telemetry.observer import StageTelemetry
from muster.telemetry.traces import WorkloadTraces, make_tracing

if TYPE_CHECKING:
    from muster.core.gang.admitterstate import AdmitterState
    from muster.kube.poddefaults import PodDefaults
    from muster.runtime.runners.keeping import LogKeeper
    from muster.runtime.runners.publishing import Publisher

Tell = Callable[[str], object]
"""Takes why a process waits before it does anything."""

STOP_LIMIT_S = 5.0
READ_MODEL_COMMITS = 500
"""How far the newest snapshot of the read model lies behind, unless it is large: commands that ask fold that much."""
ROOM_CHECK_S = 5.0
"""How often the room in the log and the clock are looked at."""
ALARM_PERCENT = 80
CLOSING_PERCENT = 95
"""How full the log may be until nothing new is admitted, so that releases and effects still fit."""


class Opened(Struct, frozen=True):
    """What a runner is given of the bus, by its row of :mod:`muster.runtime.opening`."""

    log: SharedLog
    lease: JetStreamLease
    snapshots: OwnSnapshots


class Process(Struct, dict=True):
    """What the runners of one process share."""

    config: Config
    service: str
    """Its services by name, or that of their group: what its runners may open follows from that."""
    name: str
    clock: Clock
    logger: Logger
    metrics: Metrics
    connection: Connection
    js: JetStream
    log: SharedLog
    marking: Marking
    transport: ApiTransport | None = None
    """The connection to the API server, which its services share."""
    tell: Tell | None = None
    """Takes why another cluster than that of the cell is not read; without it that is raised."""
    witness: Witness | None = None
    """What keeps the record of the log on the API server, where the process reaches one."""
    runners: list[AnyFollower] = field(default_factory=list)
    publishers: list[Publisher] = field(default_factory=list)
    keepers: list[LogKeeper] = field(default_factory=list)
    telemetries: list[StageTelemetry] = field(default_factory=list)

    followed: list[Callable[[], Coroutine[Any, Any, None]]] = field(default_factory=list)
    """What is followed of the API server beside the log, until the process ends."""
    cluster_leases: list[ClusterLease] = field(default_factory=list)
    ahead_ms: int = 0
    """How far its clock is ahead of the broker's, where it leads or may lead a stage."""
    pod_defaults: PodDefaults | None = None
    """What the API server adds to pods, where the process runs the watcher."""
    snapshotting: bool = True
    """Whether leaders keep a snapshot when they leave."""
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    """What is closed when the process ends."""

    def __post_init__(self) -> None:
        self.metrics.read_from(Measuring(self))

    async def api_server(self) -> ApiTransport:
        """The connection to the API server the configuration names, once it leads to the cluster of the cell.

        Raises KubeConfigError, BusError.
        """
        if self.transport is None:
            transport = await reach_api_server(self.config, self.metrics, self.clock, self.stack)
            await self._belong(transport, founds=False)
            self.transport = transport
        return self.transport

    async def pair(self, transport: ApiTransport) -> None:
        """Write down that the cell belongs to this cluster, or wait until it does. Raises KubeConfigError, BusError."""
        if not await self._belong(transport, founds=True):
            self.logger.warning("cluster_not_recorded", why="the uid of namespace kube-system may not be read")

    async def _belong(self, transport: ApiTransport, *, founds: bool) -> bool:
        return await belong(self.js, self.log.identity, transport, founds=founds, tell=self.tell)

    def telemetry(self, stage: str, shard: str = "0") -> StageTelemetry:
        """Logs, metrics and spans of one stage."""
        tracing = make_tracing(stage)
        made = StageTelemetry(
            stage, shard, self.metrics, self.logger, WorkloadTraces(tracing, stage, self.log.identity.generation_of)
        )
        self.telemetries.append(made)
        return made

    def opened(self, runner: str, shard: str = "0") -> Opened:
        """The log, the lease and the snapshots of one of its runners. Raises UndeclaredError."""
        own = opening(self.service, runner)

        def warn(event: str, *values: object) -> None:
            self.logger.warning(event, values=str(values))

        return Opened(
            log=self.log,
            lease=JetStreamLease(self.js, self.log.identity, own.lease, shard, self.name),
            snapshots=OwnSnapshots(self.js, self.log.identity, warn=warn, marking=self.marking, own=own),
        )

    async def base(self) -> Sequence[Snapshot]:
        """The states where the readable log begins, after deleted generations. Raises BusError."""
        return await JetStreamGenerations(self.js, self.config.cell).origin(self.log.identity)

    def add_decider(self, stage: Callable[[], Stage[Any]], leader: Callable[..., Leader[Any]] = Leader) -> None:
        """Run a deciding stage, given by its class. ``leader``: the runner."""
        decider = stage()
        name = decider.name
        own = self.opened(name)
        self.runners.append(
            leader(
                decider,
                log=own.log,
                lease=own.lease,
                snapshots=own.snapshots,
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
            gpu_sharing=self.config.gpu_sharing_mode != "Disabled",
            cpu=self.config.placement_cpu or None,
            moves=self.config.placement_moves,
        )
        both_off = chosen.mode == state.placement.mode == "off"
        same = both_off and chosen.gpu_sharing == state.placement.gpu_sharing
        return None if chosen == state.placement or same else chosen

    def add_watchers(self, transport: ApiTransport) -> None:
        """Run every shard of the watcher, shards of disabled kinds too, to withdraw their reports.

        Profile ``lean`` leaves out resources for presentation only.
        """
        from muster.core.reading.watched import WATCHED
        from muster.kube.poddefaults import PodDefaults
        from muster.runtime.runners.watching import WatcherRunner

        defaults = self.pod_defaults = PodDefaults()
        hooks = {resource: self.telemetry("watcher", resource.plural) for resource in (RUNTIME_CLASSES, LIMIT_RANGES)}
        self.followed.append(partial(defaults.run, transport, hooks))
        for shard in WATCHED:
            if self.config.profile == "lean" and shard in SHOWN_KINDS:
                continue
            telemetry, own = self.telemetry("watcher", shard), self.opened("watcher", shard)
            self.runners.append(
                WatcherRunner(
                    shard,
                    transport,
                    log=own.log,
                    lease=own.lease,
                    snapshots=own.snapshots,
                    clock=self.clock,
                    process=self.name,
                    hooks=telemetry,
                    reflector_hooks=telemetry,
                    quarantine=partial(Quarantine(self.js, self.config.cell).put, "watcher"),
                    set_back=partial(record_set_back, self.js, self.log.identity),
                    kinds=self.config.kinds_on,
                    defaults=defaults,
                )
            )

    def add_actuator(self, transport: ApiTransport) -> None:
        """Carry decisions out, and show them; does neither where the configuration says to observe only."""
        if not self.config.act:
            return
        from muster.runtime.runners.acting import ActuatorRunner

        parent = self.witness.parent if self.witness is not None else ""
        lease = ClusterLease(transport, self.log.identity, self.clock, self.logger.warning, parent)
        self.cluster_leases.append(lease)
        transport = Fenced(transport, lease)
        own = self.opened("actuator")
        self.runners.append(
            ActuatorRunner(
                transport,
                log=own.log,
                lease=own.lease,
                snapshots=own.snapshots,
                clock=self.clock,
                process=self.name,
                hooks=self.telemetry("actuator"),
                image=self.config.gpu_reservation_image,
            )
        )
        if self.config.profile == "kube-queue":
            from muster.runtime.presenting.presenter import Presenter

            own = self.opened("presenter")
            self.runners.append(
                Presenter(
                    transport,
                    log=own.log,
                    lease=own.lease,
                    snapshots=own.snapshots,
                    clock=self.clock,
                    hooks=self.telemetry("presenter"),
                )
            )

    def add_publisher(self) -> None:
        """Copy public events to the public stream; keep the read model for questions, in every profile."""
        from muster.runtime.runners.publishing import Publisher
        from muster.told.readmodel.model import ReadModel

        own = self.opened("readmodel")
        self.runners.append(
            Follower(
                ReadModel(),
                log=own.log,
                snapshots=own.snapshots,
                clock=self.clock,
                hooks=self.telemetry("readmodel"),
                every=READ_MODEL_COMMITS,
            )
        )
        outlet, own = PublicPublisher(self.js, self.config.cell), self.opened("publisher")
        self.publishers.append(
            Publisher(
                log=own.log,
                outlet=outlet,
                lease=own.lease,
                snapshots=own.snapshots,
                base=self.base,
                testify=self.marking.testify,
                hooks=self.telemetry("publisher"),
            )
        )

    def add_keeper(self) -> None:
        """Roll the log over when it is getting full, and keep its archive."""
        from muster.runtime.runners.guarding import Guard
        from muster.runtime.runners.keeping import LogKeeper

        own = self.opened("keeper")
        hooks = self.telemetry("keeper")
        connect = partial(connect_bus, self.config, f"{self.connection.name}-guard", self.connection.notice)
        self.keepers.append(
            LogKeeper(
                self.js,
                JetStreamGenerations(self.js, self.config.cell),
                self.log.identity.log_id,
                lease=own.lease,
                snapshots=own.snapshots,
                clock=self.clock,
                hooks=hooks,
                guard=Guard(connect, self.config.cell, hooks),
                percent=self.config.log_roll_percent,
                stage_percent=self.config.log_stage_percent,
                folder=Path(self.config.log_archive) if self.config.log_archive else None,
                keep=self.config.log_keep,
            )
        )

    def not_started(self) -> Iterator[str]:
        """Why the process has not started yet."""
        return ability.not_started(self)

    def not_ready(self) -> Iterator[str]:
        """Why the process does not do its work right now."""
        return ability.not_ready(self)

    async def run(self) -> None:
        """Run everything until cancelled; raises the first thing that goes wrong, by itself."""
        try:
            await self.log.begin()
            async with asyncio.TaskGroup() as tasks:
                if self.runners or self.publishers:
                    tasks.create_task(self.log.pump())
                tasks.create_task(self._watch_room())
                tasks.create_task(self.marking.run())
                if self.witness is not None:
                    tasks.create_task(self.witness.run())
                for runner in self.runners:
                    tasks.create_task(runner.run())
                for publisher in self.publishers:
                    tasks.create_task(publisher.run())
                for keeper in self.keepers:
                    tasks.create_task(keeper.run())
                for follow in self.followed:
                    tasks.create_task(follow())
                for lease in self.cluster_leases:
                    tasks.create_task(lease.run())
                self._watch_rulesets(tasks)
        except BaseExceptionGroup as group:
            why = _first_of(group)
            # What was kept of a sealed generation is of no use any more.
            self.snapshotting = not isinstance(why, LogSealedError | LogLostError)
            if isinstance(why, LogLostError):
                await self._testify()
            raise why from group
        finally:
            await self._leave()

    async def _testify(self) -> None:
        """Have what the log has lost written down: on the API server, and beside the log."""
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_LIMIT_S):
                if self.witness is not None:
                    await self.witness.testify()
        with suppress(LogGoneError, TimeoutError):  # Another process of the user has said so.
            async with asyncio.timeout(STOP_LIMIT_S):
                await self.marking.keep()

    def _watch_rulesets(self, tasks: asyncio.TaskGroup) -> None:
        """Announce our supported rule sets, and put the wanted rule set in force when all replicas support it."""
        replicas = JetStreamReplicas(self.js, self.config.cell)
        tasks.create_task(announce(replicas, self.runners, self.name))
        for runner in self.runners:
            if isinstance(runner, Leader) and runner.stage.name == "quota_accountant" and self.config.ruleset:
                tasks.create_task(Activator(runner, replicas, self.config.ruleset).run())

    async def _watch_room(self) -> None:
        """Raise the alarm while there is still room in the log, and have admissions stopped before there is none. See
        how far our clock is ahead.
        """
        closing = False
        while True:
            asked_ms, usage = self.clock.now(), await self.log.usage()
            if usage.broker_ms and any(isinstance(runner, Leader) for runner in self.runners):
                self.ahead_ms = asked_ms - usage.broker_ms
            percent = usage.bytes * 100 // usage.max_bytes if usage.max_bytes > 0 else 0
            self.metrics.set("muster_log_fill_percent", (), percent)
            if percent >= ALARM_PERCENT:
                self.logger.error("log_nearly_full", percent=percent, bytes=usage.bytes, max_bytes=usage.max_bytes)
            for runner in self.runners:
                first = isinstance(runner, Leader) and runner.stage.name == "quota_accountant" and not closing
                if percent >= CLOSING_PERCENT and first and not runner.state.closing and isinstance(runner, Leader):
                    closing = True
                    runner.announce(LogNearlyFull(percent=percent))
            await beat(ROOM_CHECK_S)

    async def _leave(self) -> None:
        """Leave in good order, within a limit: what is not done then is done by the next process.

        First of all others may lead: a snapshot takes long on a busy disk, and a lease that is not given up 10 s.
        """
        try:
            async with asyncio.timeout(STOP_LIMIT_S):
                await asyncio.gather(*(runner.lease.release() for runner in self.runners if runner.lease is not None))
                for runner in self.runners:
                    await runner.stop(keep=self.snapshotting)
                for publisher in self.publishers:
                    await publisher.stop()
                for keeper in self.keepers:
                    await keeper.stop()
                for lease in self.cluster_leases:
                    await lease.release()
                if self.witness is not None and self.snapshotting:
                    await self.witness.testify()
        except (TimeoutError, BusError, ApiUnreachableError) as err:
            self.logger.warning("left_in_a_hurry", why=str(err))


async def reach_api_server(config: Config, metrics: Metrics, clock: Clock, stack: AsyncExitStack) -> ApiTransport:
    """A connection to the API server that a configuration names; the stack closes it. Raises KubeConfigError."""
    source: Source = default_source()
    if config.kubeconfig or config.kube_context:
        source = FromKubeconfig(path=config.kubeconfig, context=config.kube_context)

    def measure(verb: str, resource: str, code: int, seconds: float) -> None:
        metrics.count("muster_kube_requests", labels(verb=verb, resource=resource, code=str(code)))
        metrics.observe("muster_kube_request_duration_seconds", labels(verb=verb), seconds)

    transport = await connect_kube(source, check=True, on_request=measure, clock=clock)
    stack.push_async_callback(transport.close)
    return transport


def _first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first exception of a group, however deep."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
