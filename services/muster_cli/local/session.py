"""One ``muster up`` from start to end: the order of the start, and the cleaning at the end.

Order: home, broker, clock, cluster, services, run file, banner. Then all parts run side by side until a signal stops
the session, the time is up, or a part fails. The session ends in the opposite order.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from msgspec import Struct
from rich.text import Text

import muster
from muster.bus.cell import open_log
from muster.bus.jetstream import JetStream
from muster.bus.server import EmbeddedServer
from muster.core.cell.deciders import DECIDERS
from muster.events.envelope import UnknownEventError, UnreadableCommitError, decode_commit
from muster.events.subjects import log_stream
from muster.kube.config import connect as connect_kube
from muster.kube.sources import FromKubeconfig
from muster.model.language import say, speaking
from muster.model.text import counted, span
from muster.ports import ApiTransport, Clock, LogGoneError
from muster.runtime.clock import SystemClock, WarpedClock
from muster.runtime.config import Config, load
from muster.runtime.process import Process
from muster.telemetry import logs
from muster.told.views.tellings import NarratedEvent
from muster_cli.commands.version import nats_server_version
from muster_cli.console import BAD, DIM, Output, styled
from muster_cli.exits import FAILED, OK
from muster_cli.findings import Finding, must_fix
from muster_cli.instances import Instance, Registration
from muster_cli.local.broker import broker, keep_alive
from muster_cli.local.cluster import CONTEXT, LocalCluster, local_cluster
from muster_cli.local.home import Home
from muster_cli.local.services import Reach, Services
from muster_cli.local.stories import STORIES, DemoStory, command, printed
from muster_cli.local.teller import Teller
from muster_cli.ourselves import own_command
from muster_cli.reading import LogPlace, connected
from muster_cli.render.banner import BannerFacts, banner, tries
from muster_cli.render.findings import findings_lines
from muster_cli.render.live import LiveLines

LOG_MAX_BYTES = 1 << 30
MAX_WIDTH = 160


class UpOptions(Struct, frozen=True, kw_only=True):
    """What the user asked for."""

    context: str = ""
    kubeconfig: str = ""
    act: bool = False
    headless: bool = False
    duration_s: float | None = None
    speed: float = 1.0
    seed: int = 0
    data: Path | None = None
    port: int | None = None
    quiet: bool = False
    jobs: bool = True
    story: DemoStory = STORIES["teams"]

    @property
    def real(self) -> bool:
        """On a real cluster."""
        return bool(self.context or self.kubeconfig)

    @property
    def acting(self) -> bool:
        return self.act or not self.real


class Session:
    """Run with :meth:`run` as a task; :meth:`stop` ends the session in good order."""

    def __init__(self, wishes: UpOptions, out: Output) -> None:
        self.wishes = wishes
        self.out = out
        self.stopped = False
        self._task: asyncio.Task[int] | None = None
        self._system = SystemClock()
        self._teller: Teller | None = None
        self._expects_admission = False
        self._refused: list[Finding] = []
        self._home = ""

    def stop(self) -> None:
        """Begin to end; further calls change nothing, so that the end is not disturbed."""
        if not self.stopped and self._task is not None:
            self.stopped = True
            self._task.cancel()

    async def run(self) -> int:
        """Everything; the exit code. Raises CliError, BusError, KubeConfigError, OSError when a part fails."""
        self._task = asyncio.current_task()
        began = self._system.now()
        with contextlib.suppress(asyncio.CancelledError, TimeoutError):
            try:
                async with AsyncExitStack() as stack:
                    await self._run(stack, began)
            except BaseExceptionGroup as group:
                raise _first_of(group) from group
        if self._refused:
            return FAILED
        return self._farewell(self._system.now() - began)

    async def _run(self, stack: AsyncExitStack, began: int) -> None:
        wishes = self.wishes
        if wishes.real:  # A missing context is an error before anything starts.
            await (await connect_kube(FromKubeconfig(wishes.kubeconfig, wishes.context))).close()
        home = stack.enter_context(Home(wishes.data))
        self._home = "" if home.temporary else str(home.path)
        service_log = stack.enter_context(home.service_log.open("a", encoding="utf-8"))
        logs.configure(level="info", style="json", stream=service_log)
        server = await stack.enter_async_context(broker(home.store, wishes.port, self._note))
        config = _config(wishes, server.url)
        js = await stack.enter_async_context(connected(LogPlace(config), patient=True))
        after, log_time = await _end_of(js, config.cell)
        clock = self._clock(log_time)
        cluster: LocalCluster | None = None
        if not wishes.real:
            home.lay_out(wishes.story.samples)
            cluster = await stack.enter_async_context(local_cluster(home, clock, wishes.seed, wishes.story))
        services = Services(config, clock, self._reach(cluster), self._note, home.moments)
        stack.push_async_callback(services.close)
        with speaking(None):  # What services write to objects is in English, whatever the terminal speaks.
            await services.open()
        if self._refused:
            return
        registration = Registration()
        stack.callback(registration.close)
        registration.publish(self._instance(home, server, config, cluster, services.dashboard_url, began))
        facts = await self._facts(home, server, services, cluster, after, self._system.now() - began)
        self._greet(facts)
        lines = LiveLines(clock.now(), acting=wishes.acting, width=self._width())
        self._teller = Teller(js, config.cell, clock.now(), self._printer(lines))
        async with asyncio.timeout(wishes.duration_s), asyncio.TaskGroup() as tasks:
            if cluster is not None:
                tasks.create_task(cluster.run(clock, wishes.speed))
            with speaking(None):
                tasks.create_task(services.run())
            tasks.create_task(self._teller.run(after))
            tasks.create_task(keep_alive(server, self._note))
            if cluster is not None:
                await self._play(cluster)
                if wishes.jobs and wishes.story.shows:
                    await self._show(cluster, wishes.story.shows)

    async def _show(self, cluster: LocalCluster, name: str) -> None:
        """Print the output of the documented command, once the pods of a Ray cluster have nodes."""
        pods = await cluster.pods_of(name)
        if not self.wishes.quiet:
            self.out.lines([Text(""), Text(f"$ {command(name)}"), *map(Text, printed(pods)), Text("")])

    async def _play(self, cluster: LocalCluster) -> None:
        """Set the scene, once: a continued cluster has its scene already."""
        assert self._teller is not None
        if cluster.continued:
            self._expects_admission = any(job["spec"].get("suspend") for job in await cluster.jobs())
            return
        self._expects_admission = self.wishes.jobs
        await cluster.set_up()
        await self._teller.ready.wait()
        if self.wishes.jobs:
            await cluster.submit_jobs(self.wishes.speed, self.wishes.seed)

    def _clock(self, log_time: int) -> Clock:
        """The system clock, or a clock that goes on from the log's time: a clock behind the log would delay every
        deadline.
        """
        now, speed = self._system.now(), self.wishes.speed
        if speed == 1 and log_time <= now:
            return self._system
        return WarpedClock(self._system, start=max(now, log_time), speed=speed)

    def _reach(self, cluster: LocalCluster | None) -> Reach:
        async def reach(process: Process) -> ApiTransport:
            if cluster is not None:
                return cluster.transport()
            transport = await process.api_server()
            if self.wishes.act:
                from muster_cli.clusterchecks import cluster_findings

                config = process.config
                native = config.placement == "native"
                findings = await cluster_findings(transport, acting=True, kinds=config.kinds_on, native=native)
                self._refused = [finding for finding in findings if must_fix([finding])]
                if self._refused:
                    self.out.note(styled((say("muster up: not acting on this cluster, because:"), BAD)))
                    for line in findings_lines(self._refused):
                        self.out.note(line)
            return transport

        return reach

    def _instance(
        self,
        home: Home,
        server: EmbeddedServer,
        config: Config,
        cluster: LocalCluster | None,
        gateway: str,
        began: int,
    ) -> Instance:
        return Instance(
            pid=os.getpid(),
            started=began,
            url=server.url,
            cell=config.cell,
            home=str(home.path),
            temporary=home.temporary,
            acting=self.wishes.acting,
            simulated=cluster is not None,
            kubeconfig=str(home.kubeconfig) if cluster is not None else self.wishes.kubeconfig,
            context=CONTEXT if cluster is not None else self.wishes.context,
            gateway=gateway,
        )

    async def _facts(
        self,
        home: Home,
        server: EmbeddedServer,
        services: Services,
        cluster: LocalCluster | None,
        after: int,
        took_ms: int,
    ) -> BannerFacts:
        nodes, capacity = await cluster.capacity() if cluster is not None else (0, {})
        names = ["watcher", *DECIDERS, *(["actuator"] if self.wishes.acting else []), "publisher"]
        return BannerFacts(
            version=muster.__version__,
            nats_version=nats_server_version(),
            url=server.url,
            home=str(home.path),
            temporary=home.temporary,
            continued=after,
            nodes=nodes,
            capacity=capacity,
            server="" if cluster is not None else services.server,
            origin=services.origin,
            acting=self.wishes.acting,
            services=names,
            metrics_url=services.metrics_url,
            dashboard_url=services.dashboard_url,
            kubeconfig=str(home.kubeconfig) if cluster is not None else "",
            speed=self.wishes.speed,
            ready_ms=took_ms,
            command=own_command(),
            nats_command=shutil.which("nats") is not None,
            kind=self.wishes.story.kind,
            sample=self.wishes.story.jobs[-1],
        )

    def _greet(self, facts: BannerFacts) -> None:
        if self.wishes.quiet:
            return
        self.out.lines(banner(facts))
        if not self.wishes.headless:
            self.out.line()
            self.out.lines(tries(facts))
        self.out.line()

    def _width(self) -> int:
        return min(self.out.width, MAX_WIDTH) if self.out.is_terminal and not self.wishes.headless else 0

    def _printer(self, lines: LiveLines) -> Callable[[NarratedEvent], None]:
        def print_entry(entry: NarratedEvent) -> None:
            if not self.wishes.quiet:
                self.out.lines(lines.lines(entry))

        return print_entry

    def _note(self, text: str) -> None:
        self.out.note(styled((text, DIM)))

    def _farewell(self, took_ms: int) -> int:
        """The last line, and whether it went well."""
        counts = self._teller.counts if self._teller is not None else None
        if counts is None:
            return OK
        verb = say("admitted") if self.wishes.acting else say("would have been admitted")
        first = ""
        if counts.first_admission_ms >= 0:
            first = say(" (the first after {waited})", waited=span(int(counts.first_admission_ms / self.wishes.speed)))
        kept = say(" Kept in {home}.", home=self._home) if self._home else ""
        if not self.wishes.quiet:
            self.out.line(
                say(
                    "Ended after {took_ms}: {queued} queued, {admitted} {verb}{first}, {finished} finished; "
                    "{commits}.{kept}",
                    took_ms=span(took_ms),
                    queued=counted(counts.queued, "job"),
                    admitted=counts.admitted,
                    verb=verb,
                    first=first,
                    finished=counts.finished,
                    commits=counted(counts.commits, "commit"),
                    kept=kept,
                )
            )
        if self._expects_admission and not counts.admitted and self.wishes.duration_s is not None:
            assert self._teller is not None
            self.out.note(
                say(
                    "muster up: no job was admitted in {took_ms}: {why_not}",
                    took_ms=span(took_ms),
                    why_not=self._teller.why_not(),
                )
            )
            return FAILED
        return OK


def _first_of(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first exception of a group, at any depth, for the one line of an error."""
    exception: BaseException = group
    while isinstance(exception, BaseExceptionGroup):
        exception = exception.exceptions[0]
    return exception


def _config(wishes: UpOptions, url: str) -> Config:
    """The settings of the services: the environment, without the settings of this session."""
    chosen: dict[str, Any] = {"placement": wishes.story.placement} if wishes.story.kai else {}
    return load(
        **chosen,
        nats_url=url,
        log_create=True,
        log_max_bytes=LOG_MAX_BYTES,
        replicas=1,
        health_port=-1,
        gateway_host="127.0.0.1",
        gateway_access="none",
        kube_context=wishes.context,
        kubeconfig=wishes.kubeconfig,
        act=wishes.acting,
    )


async def _end_of(js: JetStream, cell: str) -> tuple[int, int]:
    """(last sequence, log time) of the cell's log; zeros when it has none."""
    try:
        log = await open_log(js, cell, create=False)
    except LogGoneError:
        return 0, 0
    end = await log.end()
    last = await js.get(log_stream(cell, log.identity.generation), end)
    try:
        return end, decode_commit(last.data).at if last is not None else 0
    except (UnknownEventError, UnreadableCommitError):
        return end, 0  # The stages that fold the commit report its problems.
