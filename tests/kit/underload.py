"""A fleet on a cluster under jobs that keep coming, with a witness of what really runs: what tests of faults share."""

from __future__ import annotations

from kit.cluster import Cluster
from kit.fleet import Fleet
from kit.traffic import Traffic, tree
from kit.waiting import until
from kit.witness import Witness
from muster.events.decisions import GangAdmitted


class Scene:
    """``at_once``: how many jobs the tree lets run at once."""

    def __init__(self, cluster: Cluster, fleet: Fleet, at_once: int) -> None:
        self.cluster = cluster
        self.fleet = fleet
        self.witness = Witness(cluster.transport, tree(at_once))
        self.traffic = Traffic(cluster)
        cluster.keep(self.witness.follow.run())
        cluster.keep(self.traffic.run())

    async def flowing(self, more: int = 4) -> None:
        """Return once further jobs have started: everything works."""
        before = len(self.witness.order)
        await self.cluster.until(lambda: len(self.witness.order) >= before + more, 90.0, "jobs to be started")

    async def over(self) -> None:
        """Nobody submits any more, every job has run once, and every service is well."""
        await self.traffic.over()
        await self.witness.clean(*self.traffic.names)
        await self.fleet.healthy()

    async def admitted(self) -> list[str]:
        """Every admission in the log, namespace/name, in order."""
        return [f"{event.ref.namespace}/{event.ref.name}" for event in await self.fleet.happened(GangAdmitted)]

    async def proven(self) -> None:
        """The log keeps every invariant and replays, and outsiders read of each admission once, in order."""
        await self.fleet.judge()
        admitted = await self.admitted()

        async def all_published() -> bool:
            return await self.fleet.published("workload_admitted") == admitted

        await until(all_published, what="outsiders to read of each admission once, in order")
