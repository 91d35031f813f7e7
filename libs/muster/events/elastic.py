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
    """Other replicas that serve the same tasks if this unit is refused, in the order of Ray's own choice."""


class GrowthRefusal(Struct, frozen=True, gc=False, omit_defaults=True):
    """A refused part of a request for growth, and the first limit that refuses this part."""

    groups: Counts
    short: Shortfall


class GrowthRequested(Decision, frozen=True, kw_only=True):
    """A Ray cluster asks for the replicas in ``units``, beyond its grant. Without units the cluster takes back the
    request before.
    """

    ref: Ref
    """The charged object: the RayJob, or the RayCluster itself."""
    attempt: int
    cluster: Ref
    granted: Counts
    """The grant that the request adds to: the request is void once the grant differs."""
    units: tuple[GrowthUnit, ...] = ()
    """Each unit is granted or refused by itself. No unit exceeds the largest size of its worker group."""
    each: dict[str, ReplicaCost] = field(default_factory=dict)
    pending: Ref | None = None
    """The new cluster of a RayService's upgrade, if a unit is ``PENDING``: that unit is the whole new cluster."""
    start: Counts = field(default_factory=dict)
    """The replicas of each worker group at the start of the new cluster, for a cluster that scales itself."""


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
    """Pods that the spec demands beside the grant, and that no quota counts."""
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
    """The job that gets their quota; None for workers removed as unused."""


class GrowthDenied(Decision, frozen=True, kw_only=True):
    """No unit fits, nor any alternative: tried again when there is room for a unit or an alternative."""

    ref: Ref
    attempt: int
    queue: str
    cluster: Ref
    groups: Counts
    """The first unit of the request."""
    reason: GrowthDenialReason
    short: Shortfall
    """The first limit that refuses ``groups``."""
    others: tuple[GrowthRefusal, ...] = ()
    """The refused alternatives of ``groups``, and the further units."""

    @property
    def refusals(self) -> tuple[GrowthRefusal, ...]:
        """All refusals, in the order of the request."""
        return (GrowthRefusal(self.groups, self.short), *self.others)


class GateSet(Decision, frozen=True, kw_only=True):
    """A write to a Ray cluster is due: ``maxReplicas`` becomes the grant, unless ``stay`` or ``suspend`` asks for
    another write. The actuator writes the value.
    """

    ref: Ref
    """The RayCluster."""
    owner: Ref
    """The charged object: the RayJob, or the RayCluster itself."""
    attempt: int
    groups: tuple[str, ...]
    """The worker groups in the order of the spec: a write names a group by this place."""
    most: Counts
    """The new ``maxReplicas`` of each worker group."""
    ceilings: Counts
    """The owner's own ``maxReplicas`` of each worker group."""
    sizes: Counts = field(default_factory=dict)
    """For groups that are lowered: the ``replicas`` just read. The write tests this value."""
    granted: Counts = field(default_factory=dict)
    """For a withdrawal: the grant so far, which ends with the write."""
    each: dict[str, ReplicaCost] = field(default_factory=dict)
    before: str = ""
    """Annotation muster.dev/gate as just read; the write tests this value."""
    workers: dict[str, tuple[Ref, ...]] = field(default_factory=dict)
    """{worker group: pods named in the same write, for the operator to delete}."""
    claimant: Ref | None = None
    """The job that gets the quota; None without."""
    replicas: Counts = field(default_factory=dict)
    """The new ``replicas`` in the same write, where workers go or no autoscaler writes ``replicas`` yet."""
    grow: tuple[str, ...] = ()
    """Worker groups whose pods may grow in place, up to the owner's own size."""
    stay: Counts = field(default_factory=dict)
    """For a cluster of a fixed size: the pods that stay of each worker group. Only ``replicas`` is written then."""
    suspend: bool | None = None
    """For a cluster of a RayService: the new ``spec.suspend``. Nothing else is written then. None: the write leaves the
    field alone.
    """


class ChosenWorker(Struct, frozen=True, gc=False, omit_defaults=True):
    """A worker that leaves its cluster."""

    ref: Ref
    """The worker's pod."""
    group: str
    idle: bool = False
    """The worker was idle at the choice."""


class WorkersChosen(Decision, frozen=True, kw_only=True):
    """These workers of a cluster are released: the head places nothing more there, and then the workers go."""

    ref: Ref
    """The RayCluster."""
    owner: Ref
    """The charged object: the RayJob, or the RayCluster itself."""
    attempt: int
    workers: tuple[ChosenWorker, ...]
    """In order of lost work: the worker whose release loses least comes first."""
    left: Counts
    """The grant of the worker groups afterwards."""
    until: int
    """Log time (ms) until which the workers may finish their tasks."""
    claimant: Ref | None = None


class WorkersKept(Decision, frozen=True, kw_only=True):
    """Nothing more can be taken from a cluster that was to release workers: the claimant need not wait any more."""

    ref: Ref
    """The charged object: the RayJob, or the RayCluster itself."""
    attempt: int
    reason: WorkersKeptReason
    unasked: bool = False
    """The workers had been chosen as idle, for no claim."""


class WorkersRemoved(Decision, frozen=True, kw_only=True):
    """The operator has not deleted the workers named to it: Muster deletes these pods, each by its uid."""

    ref: Ref
    """The RayCluster."""
    owner: Ref
    """The charged object: the RayJob, or the RayCluster itself."""
    attempt: int
    workers: dict[str, tuple[Ref, ...]]
    """{worker group: pods}"""
    since: int
    """Log time (ms) of the first order to the operator."""
    tries: int = 1
    claimant: Ref | None = None
    """The job that gets their quota; None for workers removed as unused."""


class SurplusOrdered(Decision, frozen=True, kw_only=True):
    """A cluster runs beyond its grant while its quota is above its max: the cluster releases workers, and runs on."""

    ref: Ref
    """The charged object: the RayJob, the RayService, or the RayCluster itself."""
    attempt: int
    queue: str
    surplus: Vector
    """The amounts that the cluster has to release."""


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
