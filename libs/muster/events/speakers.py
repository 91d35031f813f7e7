"""The events that each deciding stage and the actuator may append; no other stage may append these.

The events of a shard of the watcher follow from the resources that the shard reads (``audit.judge``).
"""

from __future__ import annotations

from collections.abc import Mapping

from muster.events import alarms, charges, claims, decisions, elastic, gangs, growing, shares, system
from muster.events.base import Event
from muster.events.effects import EffectApplied, EffectFailed
from muster.events.raydemand import RayDemandObserved

EVERY_LEADER: tuple[type[Event], ...] = (system.LeaderStarted, system.TimeReached)
"""What the runner of any stage says."""

SPEAKERS: Mapping[str, tuple[type[Event], ...]] = {
    "quota_accountant": (
        system.LogNearlyFull,
        system.RulesetActivated,
        decisions.QuotaTreeAccepted,
        decisions.QuotaTreeRejected,
        decisions.QuotaTreeRemoved,
        decisions.QuotaReserved,
        decisions.QuotaMoved,
        decisions.QuotaDenied,
        decisions.WorkloadAdopted,
        decisions.SuspensionRecorded,
        decisions.QuotaReleased,
        decisions.EvictionOrdered,
        decisions.SuspensionOrdered,
        decisions.PodsAwaited,
        charges.ChargeChanged,
        shares.SharesChanged,
        claims.ClaimOpened,
        claims.PlanStale,
        claims.ClaimEnded,
        claims.VictimStays,
        elastic.GrowthGranted,
        elastic.GrowthDenied,
        elastic.GrowthWithdrawn,
        elastic.SurplusOrdered,
        gangs.PodsReserved,
        gangs.PodsDenied,
    ),
    "queue_sorter": (
        decisions.WorkloadQueued,
        decisions.WorkloadDequeued,
        decisions.WorkloadRefused,
        decisions.CandidatesProposed,
    ),
    "gang_admitter": (
        system.PlacementChosen,
        decisions.GangAdmitted,
        decisions.GangAwaitingNodes,
        decisions.GangDeferred,
        decisions.PlacesFound,
        decisions.PlacesReleased,
        gangs.GpuReservationEnded,
        gangs.PodsProposed,
        gangs.PodsPlaced,
        gangs.PodsReleased,
        gangs.GangHeldBack,
        gangs.NodesClaimed,
        gangs.NodesClaimEnded,
    ),
    "preemptor": (decisions.PreemptionProposed, decisions.ReclaimDeferred),
    "autoscaler_bridge": (
        RayDemandObserved,
        growing.NodesRequested,
        growing.NodesRequestWithdrawn,
        elastic.GrowthRequested,
        elastic.GateSet,
        elastic.WorkersChosen,
        elastic.WorkersKept,
        elastic.WorkersRemoved,
        alarms.AlarmRaised,
        alarms.AlarmCleared,
    ),
    "actuator": (EffectApplied, EffectFailed),
}
"""{stage: the events it may append, beside those of every leader}"""

DECIDING = tuple(stage for stage in SPEAKERS if stage != "actuator")
"""Every stage that decides; their classes are in ``core.cell.deciders``, which loads all that decisions take."""
