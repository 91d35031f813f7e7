"""The bridge's leader, which also reads the heads of the Ray clusters it answers for: what they say becomes facts.

Only the leader reads, and only clusters that are charged and run. A head that does not answer is a fact too.
"""

from __future__ import annotations

import asyncio
from typing import Any

from muster.core.autoscaling.reading import heads, news
from muster.core.autoscaling.state import BridgeState
from muster.model.keys import Ref
from muster.runtime.leader import Leader
from muster_autoscaler_bridge.demand.fleet import Fleet, Heard
from muster_autoscaler_bridge.demand.heads import DASHBOARD_PORT, GCS_PORT, Head

LOOK_S = 0.5
"""How often it is looked whether other clusters are to be read."""
MAX_SERVICE = 50
"""As KubeRay cuts the names that it makes services of."""


def head_of(cluster: Ref, attempt: int) -> Head:
    """Where KubeRay serves the head of a RayCluster inside the cluster."""
    host = f"{cluster.name[-(MAX_SERVICE - len('-head-svc')) :]}-head-svc.{cluster.namespace}.svc"
    return Head(cluster, attempt, f"{host}:{GCS_PORT}", f"http://{host}:{DASHBOARD_PORT}")


class BridgeLeader(Leader[BridgeState]):
    """``address``: tells where a head is."""

    address = staticmethod(head_of)

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._fleet: Fleet | None = None

    async def started(self, tasks: asyncio.TaskGroup) -> None:
        await super().started(tasks)
        tasks.create_task(self._read_heads())

    async def _read_heads(self) -> None:
        async with asyncio.TaskGroup() as readers:
            fleet = self._fleet = Fleet(self.clock, readers, self._heard)
            try:
                while True:
                    chosen = heads(self.state) if self.leading() else []
                    known = {uid: said.demand for uid, said in self.state.heard.items()}
                    await fleet.follow({ref.uid: self.address(ref, attempt) for ref, attempt in chosen}, known)
                    await asyncio.sleep(LOOK_S)
            finally:
                await fleet.close()

    def _heard(self, heard: Heard) -> None:
        fact = news(self.state, heard.head.ref, heard.head.attempt, heard.demand, heard.read_at)
        if fact is not None and self.leading():
            self.announce(fact)
