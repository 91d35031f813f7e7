"""Every service of Muster in one process, by the same code as in pods; started again after an end, at the same port."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from muster.bus.errors import BusError, UnansweredError
from muster.bus.kv import KvBucket
from muster.core.autoscaling.bridge import AutoscalerBridge
from muster.events.subjects import lease_bucket
from muster.model.language import say
from muster.ports import ApiTransport, Clock
from muster.runtime.config import Config
from muster.runtime.health import HealthServer
from muster.runtime.layouts import SERVICES
from muster.runtime.logkeeping.snapshotting import let_go
from muster.runtime.process import Process
from muster.runtime.runners.leader import Leader
from muster.runtime.service import AGAIN_S, RESTARTS, STANDS_BY, STARTING, open_process
from muster.serving.http import GatewayServer
from muster_cli.composing import add
from muster_cli.state import SEATS
from muster_gateway import add_gateway

PASSING = (*STANDS_BY, *RESTARTS, BusError, UnansweredError)
"""What passes on a busy machine, after its sleep, or once the broker has started again."""

Reach = Callable[[Process], Awaitable[ApiTransport]]
"""How the services get to the API server."""


class Services:
    """Start with :meth:`open`, then :meth:`run`. ``metrics_url`` is set by then."""

    def __init__(self, config: Config, clock: Clock, reach: Reach, note: Callable[[str], None], moments: Path) -> None:
        """``moments``: folder of the gateway's states of earlier moments."""
        self._moments = moments
        self._config = config
        self._clock = clock
        self._reach = reach
        self._note = note
        self.server = ""
        """Address of a real API server; empty for a simulated one."""
        self.origin = ""
        """Where that address comes from: context and file."""
        self.gateway: GatewayServer | None = None
        self._process: Process | None = None
        self._stack = AsyncExitStack()
        self._health: HealthServer | None = None

    @property
    def metrics_url(self) -> str:
        return "" if self._health is None else f"http://{self._health.host}:{self._health.port}/metrics"

    async def open(self) -> None:
        """Connect and make the runners. Raises BusError, KubeConfigError."""
        process = self._process = await open_process(
            self._config, "up", self._stack, clock=self._clock, own_time=True, keeping=True
        )
        await _forget_leases(process)
        transport = process.transport = await self._reach(process)
        target = getattr(transport, "target", None)
        self.server = target.server if target is not None else ""
        self.origin = target.origin if target is not None else ""
        for service in SERVICES:
            await self._add(process, service)
        if self._health is None:
            self._health = HealthServer(
                "127.0.0.1", 0, ready=self._not_ready, started=self._not_started, metrics=self._metrics
            )
            await self._health.start()

    async def _add(self, process: Process, service: str) -> None:
        """As in a pod, but that the port of the gateway may be taken, and Ray clusters may be simulated."""
        if service == "gateway":
            self.gateway = await self._serve(process)
        elif service == AutoscalerBridge.name:
            process.add_decider(AutoscalerBridge, self._bridge(process) if self.server else Leader)
        else:
            await add(process, service)

    @property
    def dashboard_url(self) -> str:
        return "" if self.gateway is None else f"http://{self.gateway.host}:{self.gateway.port}/"

    async def _serve(self, process: Process) -> GatewayServer:
        """The gateway, on its port of before; on any free port where another process has that one."""
        try:
            gateway = await add_gateway(process, acting=self._config.act, folder=self._moments)
        except OSError:
            self._note(
                say(
                    "port {gateway_port} is taken: the dashboard gets another port here",
                    gateway_port=process.config.gateway_port,
                )
            )
            process.config = replace(process.config, gateway_port=0)
            gateway = await add_gateway(process, acting=self._config.act, folder=self._moments)
        self._config = replace(self._config, gateway_port=gateway.port)
        return gateway

    def _bridge(self, process: Process) -> Callable[..., Leader[Any]]:
        """The bridge that reads the heads of Ray clusters, where the heads are real and the extra is installed."""
        try:
            from muster_autoscaler_bridge.leading import bridge_of  # the extra `ray`
        except ImportError:
            self._note(say("heads of Ray clusters are not read: install kube-muster[ray]"))
            return Leader
        return bridge_of(process)

    async def run(self) -> None:
        """Run until cancelled; after a lost lease (a laptop slept) or a lost log everything is started again."""
        while True:
            try:
                if self._process is None:
                    await self.open()
                assert self._process is not None
                await self._process.run()
            except PASSING as err:
                self._note(say("starting the services again: {err}", err=err))
            self._process = self.gateway = None
            await self._stack.aclose()
            self._stack = AsyncExitStack()
            let_go()
            await asyncio.sleep(AGAIN_S)

    async def close(self) -> None:
        if self._health is not None:
            await self._health.stop()
        await self._stack.aclose()

    def _not_ready(self) -> list[str]:
        return list(self._process.not_ready()) if self._process is not None else [STARTING]

    def _not_started(self) -> list[str]:
        return list(self._process.not_started()) if self._process is not None else []

    def _metrics(self) -> bytes:
        return self._process.metrics.render() if self._process is not None else b""


async def _forget_leases(process: Process) -> None:
    """Void the leases of an earlier process: no other can be on this store, so it is dead."""
    bucket = KvBucket(process.js, lease_bucket(process.config.cell))
    for stage, shard in SEATS:
        entry = await bucket.get(f"{stage}.{shard}")
        if entry is not None and entry.value is not None:
            await bucket.delete(f"{stage}.{shard}", revision=entry.revision)
