"""Between the reader of Ray heads and the bridge: which clusters to read, and whether what they say is news. Pure."""

from __future__ import annotations

from muster.core.autoscaling.state import BridgeState
from muster.events.elastic import WorkersChosen
from muster.events.raydemand import RayDemandObserved
from muster.model.elastic import HeadService
from muster.model.keys import Ref
from muster.model.raydemand import RayDemand


def news(state: BridgeState, ref: Ref, attempt: int, demand: RayDemand, read_at: int) -> RayDemandObserved | None:
    """The fact to append; None when the head says what it said before.

    ``ref``: the RayCluster; ``attempt``: of the job that runs through it; ``read_at``: ms since the epoch.
    """
    known = state.heard.get(ref.uid)
    if known is not None and (known.attempt, known.demand) == (attempt, demand):
        return None
    return RayDemandObserved(ref=ref, attempt=attempt, read_at=read_at, demand=demand)


def to_drain(state: BridgeState) -> list[WorkersChosen]:
    """Workers that are about to go, and whose heads should place nothing more on them; by cluster, sorted."""
    return sorted(state.chosen.values(), key=lambda each: (each.ref.key, each.ref.uid))


def closely(state: BridgeState, cluster: Ref) -> bool:
    """Whether workers of it are to go, and none is chosen: what each of them holds is to be known."""
    known = state.clusters.get(cluster.uid)
    return known is not None and known.owner in state.reclaims and cluster.uid not in state.chosen


def served(state: BridgeState, cluster: Ref) -> HeadService:
    """Where its head is served."""
    known = state.clusters.get(cluster.uid)
    return (known.elastic.served if known is not None else None) or HeadService()


def heads(state: BridgeState) -> list[tuple[Ref, int]]:
    """The clusters whose heads are to be read: (RayCluster, attempt of the workload that runs through it), sorted."""
    found = [
        (cluster.ref, grant.attempt)
        for cluster in state.clusters.values()
        if cluster.runs and not cluster.fixed and (grant := state.grants.get(cluster.owner)) is not None
    ]
    return sorted(found, key=lambda each: (each[0].key, each[0].uid))
