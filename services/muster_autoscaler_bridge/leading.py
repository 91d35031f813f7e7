"""The bridge's leader, which also reads the heads of the Ray clusters it answers for: what they say becomes facts.

Only the leader reads, and only clusters that are charged and run. A head that does not answer is a fact too. The one
order it gives a head is to place nothing more on workers that the log says are about to go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import structs

from muster.bus.beat import beat
from muster.core.autoscaling.bridgestate import BridgeState, closely, heads, news, served, to_drain
from muster.events.elastic import WorkersChosen
from muster.model.elastic import HeadService
from muster.model.keys import Ref
from muster.ray.errors import DemandError
from muster.ray.fleet import Fleet, Heard
from muster.ray.heads import Head
from muster.ray.reader import HeadReader, OnRead, unnoticed
from muster.runtime.process import Process
from muster.runtime.runners.leader import Leader
from muster_autoscaler_bridge.measuring import measured
from muster_autoscaler_bridge.tokens import Tokens

LOOK_S = 0.5
"""How often it is looked whether other clusters are to be read, or workers to be drained."""
TLS_DOMAIN = "cluster.local"
"""Certificates of heads name the service in full, as KubeRay's FQ_RAY_IP does."""


def head_of(cluster: Ref, attempt: int, served: HeadService) -> Head:
    """Where the head of a RayCluster is served inside the cluster."""
    host = f"{served.name or f'{cluster.name}-head-svc'}.{cluster.namespace}.svc"
    gcs = f"{host}.{TLS_DOMAIN}" if served.tls else host
    dashboard = f"http://{host}:{served.dashboard}" if served.dashboard else ""
    return Head(cluster, attempt, f"{gcs}:{served.gcs}", dashboard, tls=served.tls)


def bridge_of(process: Process) -> Callable[..., Leader[BridgeState]]:
    """What makes the leader for a process, by its configuration."""
    tokens = Path(process.config.ray_tokens) if process.config.ray_tokens else None
    return partial(BridgeLeader, on_read=measured(process.metrics), tokens=tokens)


class BridgeLeader(Leader[BridgeState]):
    """``address``: tells where a head is. ``on_read``: called after every reading.

    ``tokens``: folder with the tokens and certificates of heads that ask for one; None: none has any.
    """

    address = staticmethod(head_of)

    def __init__(self, *given: Any, on_read: OnRead = unnoticed, tokens: Path | None = None, **named: Any) -> None:
        super().__init__(*given, **named)
        self._on_read = on_read
        self._tokens = Tokens(tokens)
        self._drained: dict[str, WorkersChosen] = {}
        """uid of a RayCluster -> the choice that its head has heard last"""

    async def started(self, tasks: asyncio.TaskGroup) -> None:
        await super().started(tasks)
        tasks.create_task(self._read_heads())

    async def _read_heads(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            fleet = Fleet(self.clock, tasks, self._heard, on_read=self._on_read)
            try:
                while True:
                    chosen = heads(self.state) if self.leading() else []
                    known = {uid: heard.demand for uid, heard in self.state.heard.items()}
                    await fleet.follow({ref.uid: self._head(ref, attempt) for ref, attempt in chosen}, known)
                    for ref, _ in chosen:
                        reader = fleet.reader(ref.uid)
                        assert reader is not None
                        reader.closely = closely(self.state, ref)
                    self._drain(fleet, tasks)
                    await beat(LOOK_S)
            finally:
                await fleet.close()

    def _head(self, cluster: Ref, attempt: int) -> Head:
        head = self.address(cluster, attempt, served(self.state, cluster))
        certificates = self._tokens.certificates(cluster) if head.tls else None
        return structs.replace(head, token=self._tokens.of(cluster), certificates=certificates)

    def _heard(self, heard: Heard) -> None:
        fact = news(self.state, heard.head.ref, heard.head.attempt, heard.demand, heard.read_at)
        if fact is not None and self.leading():
            self.announce(fact)

    def _drain(self, fleet: Fleet, tasks: asyncio.TaskGroup) -> None:
        """Tell each head once of the workers that are about to go; after a restart once more, which changes nothing."""
        orders = {order.ref.uid: order for order in to_drain(self.state)} if self.leading() else {}
        for uid, order in orders.items():
            reader = fleet.reader(uid)
            if reader is not None and self._drained.get(uid) != order:
                self._drained[uid] = order
                tasks.create_task(self._drain_workers(reader, order))
        for uid in [uid for uid in self._drained if uid not in orders]:
            del self._drained[uid]

    async def _drain_workers(self, reader: HeadReader, order: WorkersChosen) -> None:
        whose = f"for {order.claimant}" if order.claimant is not None else "not used"
        for worker in order.workers:
            try:
                answer = await reader.drain(
                    worker.ref.name,
                    deadline_ms=order.until,
                    why=f"taken back by Muster {whose}",
                    idle_only=order.claimant is None,
                )
            except DemandError as err:  # It goes all the same, at the deadline.
                self.hooks.note("warning", "worker_not_drained", pod=str(worker.ref), why=str(err))
                continue
            if answer.accepted:
                self.hooks.note("info", "worker_drained", pod=str(worker.ref))
            else:
                self.hooks.note("warning", "worker_not_drained", pod=str(worker.ref), why=answer.why)
