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
    """Attempt of the job that runs in the cluster, or of the cluster itself: a report with an older attempt is void."""
    read_at: int
    """The time of reading, ms since the epoch; an older report than the last changes nothing."""
    demand: RayDemand
