"""A whole cell in one event loop under virtual time: real runners on a log in memory and a simulated cluster.

Each process of the layout (kit.frozen) may be killed at any await point; a supervisor starts it again a second later
under a new name, as Kubernetes would. Its stages share one reader of the log, as in production.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import looptime

from kit.alone import reader_of
from kit.doubles.broker import Broker
from kit.doubles.log import (
    LogFaults,
    MemoryGenerations,
    MemoryLeases,
    MemoryLog,
    MemoryReplicas,
    MemorySnapshots,
    SnapshotStore,
)
from kit.frozen import FrozenProcess, task_factory
from kit.story import quota_tree, rayjob
from muster.bus.errors import ForbiddenError
from muster.bus.vouching import REACHING
from muster.core.cell.deciders import DECIDERS
from muster.core.reading.watched import shards_of
from muster.core.stage import Stage
from muster.core.workloads.registry import KINDS
from muster.events.envelope import Stored, UnknownEventError
from muster.fakecluster.apiserver import FaultDraw
from muster.fakecluster.world import BEGINNING_MS, SimCluster
from muster.model import api
from muster.model.api import ApiResource
from muster.ports import FencedError, LogGapError, LogGoneError, LogIdentity
from muster.runtime.layouts import LAYOUTS, members
from muster.runtime.logkeeping.rolling import Rolled, kept_snapshots, roll
from muster.runtime.presenting.presenter import Presenter
from muster.runtime.runners.acting import ActuatorRunner
from muster.runtime.runners.activating import Activator, announce
from muster.runtime.runners.hooks import Hooks
from muster.runtime.runners.leader import AnyLeader, Leader
from muster.runtime.runners.leasing import LostLeadershipError
from muster.runtime.runners.shared import SharedLog
from muster.runtime.runners.watching import WatcherRunner
from muster.runtime.witness import VOUCH_S, CellRecord, lacking

NODES = {f"node-{index}": {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "8"} for index in range(3)}
RESTARTABLE = (FencedError, LogGoneError, LogGapError, LostLeadershipError, ForbiddenError)
RESTART_S = 1.0
PAUSE_S = 25.0
"""Longer than a lease: when the paused process goes on, somebody else leads."""


def process_of(service: str, layout: str) -> str:
    """The name of the process that a service is in; the presenter is one of its own here where it can be."""
    if layout == "all":
        return "all"
    return next((name for name in LAYOUTS[layout] if service in members(name)), service)


class LoopClock:
    """The loop's virtual time as ms since the epoch."""

    def now(self) -> int:
        return BEGINNING_MS + int(asyncio.get_running_loop().time() * 1000)


class Keeper:
    """Rolls the log over when it is wanted."""

    def __init__(self, cell: Cell) -> None:
        self._cell = cell

    async def run(self) -> None:
        while True:
            await self._cell.roll_to(self._cell.roll_wanted)
            await asyncio.sleep(0.25)


class Cell:
    """``services`` are watcher, the deciders, actuator and presenter; all run unless said.

    ``layout``: which of them share a process. What is kept by service here is kept by process then.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        faults: FaultDraw | None = None,
        log_faults: LogFaults | None = None,
        services: tuple[str, ...] = ("watcher", *DECIDERS, "actuator", "presenter"),
        layout: str = "separate",
        witnessed: bool = False,
    ) -> None:
        self.seed = seed
        self.witnessed = witnessed
        """Nothing is opened before the log was compared with its record on the API server, as in an installation."""
        self.vouched: tuple[str, float] = ("", 0.0)
        """The log that a process has compared, and when"""
        self.faults = faults
        self.clock = LoopClock()
        self.cluster = SimCluster(NODES, seed=seed)
        self.generation = 0
        self.parent = ""
        """The log that was given up for the one in force"""
        self.refounded: list[str] = []
        """The logs that were given up because they fell short of the record"""
        self._log_faults = log_faults
        self.broker = Broker(seed)
        self.leases = MemoryLeases(broker=self.broker)
        self.snapshots = SnapshotStore()
        self.logs: list[MemoryLog] = []
        self.new_log()
        self.layout: dict[str, tuple[str, ...]] = {}
        """{process: its services}"""
        for service in services:
            name = process_of(service, layout)
            self.layout[name] = (*self.layout.get(name, ()), service)
        self.processes: dict[str, FrozenProcess] = {}
        self.all_processes: list[FrozenProcess] = []
        self.starts: dict[str, int] = {}
        self.kills: dict[str, int] = {}
        """service -> await point at which its first process dies"""
        self.pauses: dict[str, int] = {}
        """service -> await point at which its first process is stopped for PAUSE_S; a second one runs beside it"""
        self.stale: list[tuple[FrozenProcess, asyncio.Task[Any]]] = []
        """processes that were paused, and go on later beside their successors"""
        self.ended: list[tuple[str, str]] = []
        """(process, why) of every process that ended by itself"""
        self.kinds: tuple[str, ...] = ("RayJob",)
        """Workload kinds that are on; a watcher that is started later sees a change."""
        self.kinds_before: tuple[str, ...] = ()
        self.transports: list[Any] = []
        self.hooks: Callable[[str], Hooks] | None = None
        """of a stage: who listens to its runners"""
        self.replicas = MemoryReplicas()
        self.builds: dict[str, Callable[[], Stage[Any]]] = dict(DECIDERS)
        """service -> the class of its stage in the version that its next process runs"""
        self.ruleset = 0
        """rule set that the accountant puts in force when all support it"""
        self.rolled: list[Rolled] = []
        self.roll_wanted = 1
        """the generation that the service `keeper` has in force"""
        self.runners: dict[str, list[Any]] = {}
        """process name -> its runners"""

    @property
    def log(self) -> MemoryLog:
        return self.logs[-1]

    def new_log(self) -> None:
        """A new generation: the old stream is gone, its successor starts from nothing."""
        self.generation += 1
        if self.logs:
            self.parent = self.logs[-1].identity.log_id
            self.logs[-1].remove()
        identity = LogIdentity("main", f"log-{self.generation}", self.generation)
        self.logs.append(MemoryLog(identity, at=BEGINNING_MS, faults=self._log_faults, broker=self.broker))

    def commits(self) -> list[Stored]:
        return self.log.commits()

    async def roll_to(self, generation: int) -> None:
        """As the keeper of the log does, until that generation is in force."""
        generations = MemoryGenerations(self.logs, self.snapshots, self._log_faults)
        while self.log.identity.generation < generation:
            log, _ = await generations.current()
            snapshots = await kept_snapshots(MemorySnapshots(log.identity, self.snapshots))
            self.rolled.append(await roll(generations, clock=self.clock, snapshots=snapshots))
        self.generation = generation

    # --- processes --------------------------------------------------------------------------------------------

    async def supervise(self, service: str) -> None:
        """Keep a service running: start it again whenever it has died or ended."""
        while True:
            number = self.starts[service] = self.starts.get(service, 0) + 1
            first = number == 1
            process = FrozenProcess(
                f"{service}-{number}",
                kill_at=self.kills.get(service, 0) if first else 0,
                pause_at=self.pauses.get(service, 0) if first else 0,
                pause_s=PAUSE_S,
            )
            self.processes[service] = process
            self.all_processes.append(process)
            task = process.start(self._main(service, process.name))
            while not task.done() and not process.dead and not process.paused_until:
                await asyncio.sleep(0.25)
            if process.paused_until:
                self.stale.append((process, task))
                continue
            if task.done():
                error = task.exception()
                cause = _first(error) if error is not None else None
                if isinstance(cause, UnknownEventError):
                    self.ended.append((process.name, str(cause)))
                    await asyncio.Event().wait()  # It stays down until somebody installs another version.
                if cause is None or not isinstance(cause, RESTARTABLE):
                    raise AssertionError(f"{process.name} ended unexpectedly") from error
                self.ended.append((process.name, type(cause).__name__))
            await asyncio.sleep(RESTART_S)

    async def _main(self, name: str, process: str) -> None:
        services = self.layout.get(name, (name,))
        record = CellRecord(self.cluster.transport(), "main", self.clock) if {*REACHING} & {*services} else None
        if self.witnessed:
            await self._open(record)
        opened = self.log
        log = reader_of(opened)
        await log.begin()
        by_service = {service: self._runners(service, process, log) for service in services}
        runners = self.runners[process] = [each for found in by_service.values() for each in found]
        async with asyncio.TaskGroup() as tasks:
            if services != ("keeper",):
                tasks.create_task(log.pump())
            if self.witnessed and record is not None:
                tasks.create_task(self._record(record, opened))
            for runner in runners:
                tasks.create_task(runner.run())
            deciding = [each for service in services if service in DECIDERS for each in by_service[service]]
            if deciding:
                tasks.create_task(announce(self.replicas, deciding, process))
            if "quota_accountant" in services and self.ruleset:
                tasks.create_task(Activator(by_service["quota_accountant"][0], self.replicas, self.ruleset).run())

    async def _open(self, record: CellRecord | None) -> None:
        """Wait until the log may be built on; one that falls short of the record is succeeded, as by the keeper."""
        asked = asyncio.get_running_loop().time()
        while True:
            log = self.log
            if record is None:
                if self.vouched[0] == log.identity.log_id and self.vouched[1] > asked:
                    return
            elif (found := await record.read()) is None or not await lacking(log, self.parent, found):
                await record.keep(log.identity, (await log.end(), log.commits()[-1].digest))
                self.vouched = (log.identity.log_id, asyncio.get_running_loop().time())
                return
            elif self.log is log:
                self.generation = found.generation
                self.new_log()
                self.refounded.append(found.log_id)
            await asyncio.sleep(0.25)

    async def _record(self, record: CellRecord, log: MemoryLog) -> None:
        turn = 0
        while True:
            await asyncio.sleep(VOUCH_S)
            seq, digest = await log.end(), log.commits()[-1].digest
            self.vouched = (log.identity.log_id, asyncio.get_running_loop().time())
            turn += 1
            if not turn % 3:
                await record.keep(log.identity, (seq, digest))

    def _transport(self) -> Any:
        transport = self.cluster.transport(self.faults)
        self.transports.append(transport)
        return transport

    def _runners(self, service: str, process: str, log: SharedLog) -> list[Any]:
        common: dict[str, Any] = {
            "log": log,
            "snapshots": MemorySnapshots(self.log.identity, self.snapshots, self.broker),
            "clock": self.clock,
        }
        if self.hooks is not None:
            common["hooks"] = self.hooks(service)
        if service == "watcher":
            shards = dict.fromkeys([*shards_of(self.kinds), *shards_of(self.kinds_before)])
            return [self._watcher(shard, process, common) for shard in shards]
        if service == "keeper":
            return [Keeper(self)]
        lease = self.leases.lease(service, "0", process)
        if service == "actuator":
            return [ActuatorRunner(self._transport(), lease=lease, process=process, rng=Random(self.seed), **common)]
        if service == "presenter":
            return [Presenter(self._transport(), lease=lease, **common)]
        leader: AnyLeader = Leader(self.builds[service](), lease=lease, process=process, **common)
        return [leader]

    def _watcher(self, shard: str, process: str, common: dict[str, Any]) -> WatcherRunner:
        lease = self.leases.lease("watcher", shard, process)
        return WatcherRunner(shard, self._transport(), lease=lease, process=process, kinds=self.kinds, **common)

    # --- the cluster ------------------------------------------------------------------------------------------

    def create(self, obj: dict[str, Any]) -> None:
        kind = obj["kind"]
        resource = KINDS[kind].resource if kind in KINDS else api.QUOTA_TREES
        self.request("POST", resource, obj["metadata"]["namespace"], body=obj)

    def request(
        self, method: str, resource: ApiResource, namespace: str, name: str = "", body: Any = None, **options: Any
    ) -> dict[str, Any]:
        encoded = None if body is None else json.dumps(body).encode()
        answer = self.cluster.server.handle(method, resource.path(namespace, name), body=encoded, **options)
        assert answer.ok, answer.body
        found: dict[str, Any] = json.loads(answer.body)
        return found

    def jobs(self) -> dict[str, str]:
        """{name: deployment status} of every RayJob."""
        found = self.request("GET", api.RAYJOBS, "")["items"]
        return {job["metadata"]["name"]: job.get("status", {}).get("jobDeploymentStatus", "") for job in found}

    async def until(self, condition: Callable[[], bool], limit_s: float = 300.0, what: str = "") -> None:
        """Let virtual time pass until the condition holds."""
        loop = asyncio.get_running_loop()
        end = loop.time() + limit_s
        while not condition():
            assert loop.time() < end, f"not within {limit_s} virtual seconds: {what or condition}"
            await asyncio.sleep(0.25)

    async def run(self, scene: Callable[[Cell], Awaitable[None]]) -> None:
        """Run the scene beside the cluster and all services."""
        scene_task = asyncio.ensure_future(scene(self))
        others = [asyncio.ensure_future(self.cluster.run())]
        others += [asyncio.ensure_future(self.supervise(name)) for name in self.layout]
        try:
            await asyncio.wait([scene_task, *others], return_when=asyncio.FIRST_COMPLETED)
            for task in (*others, scene_task):
                if task.done():
                    task.result()
            assert scene_task.done(), "a service or the cluster ended before the scene"
        finally:
            for process in self.processes.values():
                process.kill()
            for task in (*others, scene_task):
                task.cancel()


def play(cell: Cell, scene: Callable[[Cell], Awaitable[None]]) -> None:
    """Run a scene under virtual time in a loop of its own."""
    loop = looptime.new_event_loop(noop_cycles=2)
    loop.set_task_factory(task_factory)
    try:
        loop.run_until_complete(cell.run(scene))
    finally:
        loop.set_exception_handler(lambda _loop, _context: None)  # killed processes leave tasks that never end
        for process in cell.all_processes:
            process.bury()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


def small_tree() -> dict[str, Any]:
    return quota_tree()


def small_job(name: str, **changes: Any) -> dict[str, Any]:
    options: dict[str, Any] = {"runtime": "1s", "ttl_s": 1, "replicas": 1, "cpu": "6"} | changes
    return rayjob(name, **options)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
