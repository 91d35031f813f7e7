"""How a Ray cluster that scales itself grows and shrinks under quota.

The autoscaler bridge reports the wish of a cluster, and the right value of ``maxReplicas``; only the accountant
grants.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from muster.events.base import Decision
from muster.model.demand import Shortfall
from muster.model.elastic import Counts, ReplicaCost
from muster.model.keys import Ref
from muster.model.resources import Vector

GrowthDenialReason = Literal["insufficient_quota", "exceeds_limit"]
"""Why growth is denied:

insufficient_quota  used + asked is over the limit now: tried again when that much is free there
exceeds_limit       what is asked for in one piece is over a limit on the path by itself
"""


WorkersKeptReason = Literal["at_minimum", "no_cluster", "not_written", "in_use"]
"""Why no workers are taken from a cluster:

at_minimum   its groups are at their minReplicas
no_cluster   it has no cluster that scales itself
not_written  the write failed for too long
in_use       those that were idle for too long are used again, or gone
"""


class GrowthOption(Struct, frozen=True, gc=False, omit_defaults=True):
    """Other replicas in place of a unit: these, up to ``times`` times."""

    groups: Counts
    times: int = 1


class GrowthUnit(Struct, frozen=True, gc=False, omit_defaults=True):
    """Replicas granted together or not at all, ``times`` times: a single replica, or the missing part of a placement
    group.
    """

    groups: Counts
    times: int = 1
    otherwise: tuple[GrowthOption, ...] = ()
    """What would do where these are refused, in the order in which Ray would take them."""


class GrowthRefusal(Struct, frozen=True, gc=False, omit_defaults=True):
    """A piece that was asked for, and the first limit that refuses the piece."""

    groups: Counts
    short: Shortfall


class GrowthRequested(Decision, frozen=True, kw_only=True):
    """A cluster asks for these replicas beyond its grant; an empty request asks for no more than the grant."""

    ref: Ref
    """The charged object: the RayJob, or the RayCluster itself."""
    attempt: int
    cluster: Ref
    granted: Counts
    """What it builds on: void once something else is granted."""
    units: tuple[GrowthUnit, ...] = ()
    """Each is granted or refused by itself; within the ceilings."""
    each: dict[str, ReplicaCost] = field(default_factory=dict)
    pending: Ref | None = None
    """The new cluster of an upgrade, where one of the units is ``PENDING``: all of the cluster."""
    start: Counts = field(default_factory=dict)
    """The replicas of each worker group with which the new cluster starts, where it scales itself."""


class Recharge(Decision, frozen=True, kw_only=True):
    """The common part of a grant and its withdrawal: the new grant, and the new charge."""

    ref: Ref
    attempt: int
    queue: str
    cluster: Ref
    groups: Counts
    """Replicas granted to each worker group from here on."""
    grant: Vector
    """All that is granted to the workload from here on."""
    aside: Vector = field(default_factory=dict)
    """What runs beside that by the spec and is not counted."""
    grant_pods: int = 0
    request: Vector
    """The charge from here on: the larger of the granted and the running workers."""
    pods: int = 0
    over: Vector = field(default_factory=dict)
    """The part of ``request`` that was not granted."""


class GrowthGranted(Recharge, frozen=True, kw_only=True):
    """More replicas are granted and charged from here on; ``maxReplicas`` follows."""

    added: Counts
    pending: Ref | None = None
    """The new cluster of an upgrade, where ``added`` has ``PENDING``: the cluster may start beside the serving one."""


class GrowthWithdrawn(Recharge, frozen=True, kw_only=True):
    """Replicas are granted no longer: ``maxReplicas`` is lowered, the pods are gone and no longer charged."""

    removed: Counts
    claimant: Ref | None = None
    """The job that they were taken back for; None for unused ones."""


class GrowthDenied(Decision, frozen=True, kw_only=True):
    """No unit fits, nor any alternative: tried again when there is room for a unit or an alternative."""

    ref: Ref
    attempt: int
    queue: str
    cluster: Ref
    groups: Counts
    """What was asked for first, in one piece."""
    reason: GrowthDenialReason
    short: Shortfall
    """The first limit that refuses it."""
    others: tuple[GrowthRefusal, ...] = ()
    """What else was asked for, and would have done in its place."""

    @property
    def refusals(self) -> tuple[GrowthRefusal, ...]:
        """All refusals, in the order of the request."""
        return (GrowthRefusal(self.groups, self.short), *self.others)


class GateSet(Decision, frozen=True, kw_only=True):
    """``maxReplicas`` of a cluster should be the grant. The actuator writes the value."""

    ref: Ref
    """The RayCluster."""
    owner: Ref
    """The charged object: the RayJob, or the RayCluster itself."""
    attempt: int
    groups: tuple[str, ...]
    """The worker groups in the order of the spec: writes name them by their place in it."""
    most: Counts
    """What ``maxReplicas`` is to be."""
    ceilings: Counts
    """The most that its owner wants."""
    sizes: Counts = field(default_factory=dict)
    """Where something is lowered: ``replicas`` as it was then, group by group; the write tests it."""
    granted: Counts = field(default_factory=dict)
    """Where something is withdrawn: what was granted, and is no longer once this is written."""
    each: dict[str, ReplicaCost] = field(default_factory=dict)
    before: str = ""
    """Annotation muster.dev/gate as it was then."""
    workers: dict[str, tuple[Ref, ...]] = field(default_factory=dict)
    """{worker group: pods that its operator is to delete}, in the same write."""
    claimant: Ref | None = None
    """The job that this is taken back for."""
    replicas: Counts = field(default_factory=dict)
    """Where workers go, or no autoscaler writes it yet: what ``replicas`` is to be, in the same write."""
    grow: tuple[str, ...] = ()
    """Worker groups whose pods may be grown in place, as far as their owner wants."""
    stay: Counts = field(default_factory=dict)
    """Of a cluster of a fixed size: the pods that stay of each worker group; only ``replicas`` is written then."""
    suspend: bool | None = None
    """Of a cluster of a RayService: whether the cluster is to make no pods; nothing else is written then. None: the
    write leaves the field alone.
    """


class ChosenWorker(Struct, frozen=True, gc=False, omit_defaults=True):
    """A worker that is to go."""

    ref: Ref
    """Its pod."""
    group: str
    idle: bool = False
    """It had nothing to do when it was chosen."""


class WorkersChosen(Decision, frozen=True, kw_only=True):
    """These workers of a cluster are released: the head places nothing more there, and then the workers go."""

    ref: Ref
    """The RayCluster."""
    owner: Ref
    """The charged object: the RayJob, or the RayCluster itself."""
    attempt: int
    workers: tuple[ChosenWorker, ...]
    """In the order in which they were chosen: those that lose least first."""
    left: Counts
    """What their groups are granted afterwards."""
    until: int
    """Log time (ms) until which they may finish what they do."""
    claimant: Ref | None = None


class WorkersKept(Decision, frozen=True, kw_only=True):
    """Nothing more can be taken from a cluster that was to release workers: the claimant need not wait any more."""

    ref: Ref
    """The charged object: the RayJob, or the RayCluster itself."""
    attempt: int
    reason: WorkersKeptReason
    unasked: bool = False
    """No claim waits for them: they should have gone because they were idle."""


class WorkersRemoved(Decision, frozen=True, kw_only=True):
    """Workers named to their operator are still there: the pods are deleted, each pod by its uid."""

    ref: Ref
    """The RayCluster."""
    owner: Ref
    """The charged object: the RayJob, or the RayCluster itself."""
    attempt: int
    workers: dict[str, tuple[Ref, ...]]
    """{worker group: pods}"""
    since: int
    """Log time (ms) since when their operator has been asked to delete them."""
    tries: int = 1
    claimant: Ref | None = None
    """The job that they are taken back for; None for unused ones."""


class SurplusOrdered(Decision, frozen=True, kw_only=True):
    """A cluster runs beyond its grant while its quota is above its max: the cluster releases workers, and runs on."""

    ref: Ref
    """The charged object: the RayJob, the RayService, or the RayCluster itself."""
    attempt: int
    queue: str
    surplus: Vector
    """What is to go."""


ElasticDecision = (
    GrowthRequested
    | GrowthGranted
    | GrowthDenied
    | GrowthWithdrawn
    | GateSet
    | WorkersChosen
    | WorkersKept
    | WorkersRemoved
    | SurplusOrdered
)
