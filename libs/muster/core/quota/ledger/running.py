"""How the Ray clusters that workloads run through scale themselves now, whatever their own specs say of it."""

from __future__ import annotations

from msgspec import Struct, field

from muster.events.facts import ChildObserved
from muster.model.elastic import Counts, Elastic, granted_before, running_through
from muster.model.workload import Workload


class Through(Struct, frozen=True):
    """A RayCluster that belongs to a workload."""

    name: str
    elastic: Elastic | None
    """None: it has a fixed size, or keeps no pods."""


class RunningClusters(Struct):
    """By uid of the RayJob or RayService: its clusters, in the order in which they were first seen."""

    families: dict[str, dict[str, Through]] = field(default_factory=dict)
    owner_of: dict[str, str] = field(default_factory=dict)
    """uid of a RayCluster -> whose it is"""

    def observed(self, event: ChildObserved) -> None:
        child = event.child
        if child.ref.kind == "RayCluster" and child.owner_uid:
            if self.owner_of.get(child.ref.uid, child.owner_uid) != child.owner_uid:
                self.forget(child.ref.uid)
            self.owner_of[child.ref.uid] = child.owner_uid
            self.families.setdefault(child.owner_uid, {})[child.ref.uid] = Through(child.ref.name, child.elastic)

    def forget(self, uid: str) -> None:
        """A RayCluster is gone, or a workload by itself."""
        owner = self.owner_of.pop(uid, None)
        if owner is not None:
            del self.families[owner][uid]
            if not self.families[owner]:
                del self.families[owner]

    def of(self, workload: Workload) -> Elastic | None:
        """How a workload scales itself: as the cluster that runs does, or as it says itself before there is one."""
        uid = self.runs_through(workload)
        return self.families[workload.ref.uid][uid].elastic if uid != workload.ref.uid else workload.elastic

    def runs_through(self, workload: Workload) -> str:
        """Uid of the RayCluster that runs; the workload's own where it is one, or has none yet."""
        family = self.families.get(workload.ref.uid)
        if not family:
            return workload.ref.uid
        return running_through({uid: each.name for uid, each in family.items()}, workload.child)

    def granted(self, workload: Workload) -> Counts:
        """What is granted to its worker groups when it is charged; empty while it has a fixed size."""
        if workload.elastic is not None:
            return workload.elastic.sizes
        elastic = self.of(workload)
        return granted_before(workload.fixed_pods, elastic) if elastic is not None else {}
