"""The report of a Ray head about its cluster, as a fact: read by the autoscaler bridge, from the head itself."""

from __future__ import annotations

from muster.events.base import Event
from muster.model.keys import Ref
from muster.model.raydemand import RayDemand


class RayDemandObserved(Event, frozen=True, kw_only=True):
    """The report of a Ray head about its cluster: the whole demand, and only after a change."""

    ref: Ref
    """The RayCluster."""
    attempt: int = 0
    """Attempt of the job that runs through it, or of the cluster itself: what names an older one is void."""
    read_at: int
    """When it was read, ms since the epoch; what was read earlier changes nothing."""
    demand: RayDemand
