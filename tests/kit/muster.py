"""Muster as it runs for users, against a given API server and a real nats-server: all of it in this process.

`kit.fleet` runs the same as separate processes. Whatever a test does, `running` ends with the proof: the log keeps
every invariant and replays without divergence under two hash seeds.
"""

import contextlib
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Literal, TypeVar

from kit import proof
from kit.cluster import Cluster
from kit.nats import forget, new_cell
from muster.core.cell.deciders import DECIDERS
from muster.events.base import Event
from muster.events.envelope import Stored
from muster.events.system import PlacementMode
from muster.kube.config import connect
from muster.kube.sources import FromKubeconfig
from muster.ports import ApiTransport
from muster.runtime.config import Config
from muster.runtime.presenting.presenter import Presenter
from muster.runtime.process import Process
from muster.runtime.service import open_process
from muster.telemetry import logs

E = TypeVar("E", bound=Event)

#: Streams reserve their size: many cells have to fit on one disk.
LOG_BYTES = 64 << 20


class Muster:
    """All services on one cell, in this event loop."""

    def __init__(self, cluster: Cluster, nats_url: str, cell: str, folder: Path) -> None:
        self.cluster = cluster
        self.nats_url = nats_url
        self.cell = cell
        self.folder = folder
        self.process: Process
        self.requests: Counter[str] = Counter()
        """`verb resource` -> requests answered, watches and lists included"""
        self.proven: dict[str, object] = {}

    @property
    def presenter(self) -> Presenter:
        return next(runner for runner in self.process.runners if isinstance(runner, Presenter))

    async def commits(self) -> list[Stored]:
        """The log so far."""
        return await proof.commits_of(self.nats_url, self.cell)

    async def happened(self, kind: type[E], name: str = "") -> list[E]:
        """Events of one type in the log; `name`: only those about an object of that name."""
        found = [event for stored in await self.commits() for event in stored.commit.events if isinstance(event, kind)]
        return [event for event in found if not name or getattr(getattr(event, "ref", None), "name", "") == name]

    def ready(self) -> bool:
        return not [*self.process.not_started(), *self.process.not_ready()]


@contextlib.asynccontextmanager
async def running(
    cluster: Cluster,
    nats_url: str,
    folder: Path,
    *,
    cell: str = "",
    profile: str = "kube-queue",
    placement: PlacementMode = "off",
    gpu_sharing_mode: Literal["Disabled", "NonMemoryEnforced"] = "NonMemoryEnforced",
    wrap: Callable[[ApiTransport], ApiTransport] = lambda transport: transport,
    prove: bool = True,
    ready: bool = True,
    log_bytes: int = LOG_BYTES,
) -> AsyncIterator[Muster]:
    """Everything runs and has listed the cluster; `ready`: whether to wait for that.

    `wrap`: what the actuator and the presenter talk through.
    """
    muster = Muster(cluster, nats_url, cell or new_cell(), folder)
    logs.configure(level="warning", style="json", stream=sys.stderr)
    config = Config(
        nats_url=nats_url,
        cell=muster.cell,
        log_create=True,
        log_max_bytes=log_bytes,
        health_port=-1,
        profile="lean" if profile == "lean" else "kube-queue",
        placement=placement,
        gpu_sharing_mode=gpu_sharing_mode,
    )

    def count(verb: str, resource: str, code: int, seconds: float) -> None:
        muster.requests[f"{verb} {resource}"] += 1

    async with contextlib.AsyncExitStack() as stack:
        process = muster.process = await open_process(config, "up", stack)
        transport = await connect(FromKubeconfig(str(cluster.plane.kubeconfig)), on_request=count)
        stack.push_async_callback(transport.close)
        for stage in DECIDERS.values():
            process.add_decider(stage)
        process.add_watchers(transport)
        process.add_actuator(wrap(transport))
        process.add_publisher()
        async with cluster.beside(process.run()):
            if ready:
                await cluster.until(muster.ready, what="Muster to be ready")
            yield muster
    if prove:
        muster.proven = await proof.prove(await proof.commits_of(nats_url, muster.cell, whole=True), folder)
    if not cell:
        await forget(nats_url, muster.cell)
