"""How workloads scale themselves through their running Ray clusters, in place of their own specs."""

from __future__ import annotations

from msgspec import Struct, field

from muster.events.facts import ChildObserved
from muster.model.elastic import Counts, Elastic, granted_before, running_through
from muster.model.workload import Workload, at_once

HEAD = 1
"""A Ray cluster has one head pod."""


class Through(Struct, frozen=True):
    """A RayCluster of a workload."""

    name: str
    elastic: Elastic | None
    """None: a fixed size, or no pods kept."""
    fixed: Counts = field(default_factory=dict)
    """The pods by worker group, for a fixed size."""


class RunningClusters(Struct):
    """The clusters of each RayJob or RayService, by uid of the owner, in the order of first sight."""

    families: dict[str, dict[str, Through]] = field(default_factory=dict)
    owner_of: dict[str, str] = field(default_factory=dict)
    """uid of a RayCluster -> uid of its owner"""

    def observed(self, event: ChildObserved) -> None:
        child = event.child
        if child.held:
            self.forget(child.ref.uid)
        elif child.ref.kind == "RayCluster" and child.owner_uid:
            if self.owner_of.get(child.ref.uid, child.owner_uid) != child.owner_uid:
                self.forget(child.ref.uid)
            self.owner_of[child.ref.uid] = child.owner_uid
            self.families.setdefault(child.owner_uid, {})[child.ref.uid] = Through(
                child.ref.name, child.elastic, child.fixed
            )

    def forget(self, uid: str) -> None:
        """Forget a deleted RayCluster, or a cluster that is a workload by itself."""
        owner = self.owner_of.pop(uid, None)
        if owner is not None:
            del self.families[owner][uid]
            if not self.families[owner]:
                del self.families[owner]

    def of(self, workload: Workload) -> Elastic | None:
        """How a workload scales itself: by its running cluster, or by its own spec before the first cluster."""
        uid = self.runs_through(workload)
        return self.families[workload.ref.uid][uid].elastic if uid != workload.ref.uid else workload.elastic

    def fixed_of(self, workload: Workload) -> Counts:
        """The pods by worker group of the running cluster with a fixed size, as scaled now."""
        uid = self.runs_through(workload)
        return self.families[workload.ref.uid][uid].fixed if uid != workload.ref.uid else workload.fixed_pods

    def pods_of(self, workload: Workload) -> tuple[int, int]:
        """(the pods that the controller is to make at once, the least of them): two numbers for a cluster that scales
        itself. The new cluster of an upgrade does not count: what serves is not stopped for it.
        """
        elastic, most = self.of(workload), at_once(workload.pod_sets)
        if elastic is None:
            return most, most
        least = sum(group.least * group.hosts for group in elastic.groups)
        return max(most, HEAD + sum(group.replicas * group.hosts for group in elastic.groups)), HEAD + least

    def runs_through(self, workload: Workload) -> str:
        """Uid of the running RayCluster; the workload's own uid for a RayCluster, or without a cluster."""
        family = self.families.get(workload.ref.uid)
        if not family:
            return workload.ref.uid
        return running_through({uid: cluster.name for uid, cluster in family.items()}, workload.child)

    def granted(self, workload: Workload) -> Counts:
        """The replicas granted to the worker groups with a charge; empty for a fixed size."""
        if workload.elastic is not None:
            return workload.elastic.sizes
        elastic = self.of(workload)
        return granted_before(workload.fixed_pods, elastic) if elastic is not None else {}
