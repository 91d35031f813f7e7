"""Muster's own services beside a real Ray: real stages over a real log, and the bridge that reads the real head."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from kit import proof
from kit.beside import beside
from kit.controlplane import ControlPlane
from kit.nats import forget, new_cell
from kit.waiting import until
from muster.core.autoscaling.bridge import AutoscalerBridge
from muster.core.cell.deciders import DECIDERS
from muster.events.base import Event
from muster.kube.config import connect
from muster.kube.sources import FromKubeconfig
from muster.model.keys import Ref
from muster.ray.heads import Head
from muster.runtime.config import Config
from muster.runtime.process import Process
from muster.runtime.runners.leader import Leader
from muster.runtime.service import open_process
from muster.telemetry import logs
from muster_autoscaler_bridge.leading import BridgeLeader, bridge_of


class Deciding:
    """All services on one cell, in this event loop."""

    def __init__(self, nats_url: str, cell: str, process: Process) -> None:
        self.nats_url, self.cell, self.process = nats_url, cell, process

    async def told(self, kind: type[Event]) -> list[Any]:
        """Events of one type in the log."""
        commits = await proof.commits_of(self.nats_url, self.cell)
        return [event for stored in commits for event in stored.commit.events if isinstance(event, kind)]

    async def told_after(self, kind: type[Event], count: int) -> list[Any]:
        """What was told of it after so many."""
        return (await self.told(kind))[count:]


@asynccontextmanager
async def deciding(
    plane: ControlPlane, nats_url: str, folder: Path, address: Callable[[Ref], str]
) -> AsyncIterator[Deciding]:
    """``address``: where the gRPC of a cluster's head is. What it has decided is proven at the end."""
    cell = new_cell()
    logs.configure(level="warning", style="json", stream=sys.stderr)
    config = Config(nats_url=nats_url, cell=cell, log_create=True, log_max_bytes=64 << 20, health_port=-1)
    async with AsyncExitStack() as stack:
        process = await open_process(config, "up", stack)
        transport = await connect(FromKubeconfig(str(plane.kubeconfig)))
        stack.push_async_callback(transport.close)
        for stage in DECIDERS.values():
            process.add_decider(stage, bridge_of(process) if stage is AutoscalerBridge else Leader)
        bridge = next(runner for runner in process.runners if isinstance(runner, BridgeLeader))
        bridge.address = lambda ref, attempt, _served: Head(ref, attempt, address(ref))  # type: ignore[method-assign]
        process.add_watchers(transport)
        process.add_actuator(transport)
        async with beside(process.run()):
            await until(
                lambda: not [*process.not_started(), *process.not_ready()], 60.0, every_s=0.2, what="Muster to be ready"
            )
            yield Deciding(nats_url, cell, process)
    await proof.prove(await proof.commits_of(nats_url, cell, whole=True), folder)
    await forget(nats_url, cell)
