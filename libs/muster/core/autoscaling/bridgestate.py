"""The state of the autoscaler bridge, and what the reader of Ray heads asks of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct, field

from muster.core.autoscaling.wish import Wish
from muster.core.stage import StageState
from muster.events.alarms import AlarmRaised, AlarmReason
from muster.events.base import Cause
from muster.events.elastic import GateSet, GrowthUnit, ReplicaCost, WorkersChosen
from muster.events.growing import NodesRequested, WithdrawalReason
from muster.events.raydemand import RayDemandObserved
from muster.model.elastic import Counts, Elastic, HeadService, running_through
from muster.model.keys import Ref
from muster.model.pools import Growth
from muster.model.problem import FieldProblem
from muster.model.raydemand import RayDemand
from muster.model.resources import Vector

# --- state ------------------------------------------------------------------------------------------------------------


class NodesNeeded(Struct, frozen=True):
    """A claimant lacks nodes that could be added."""

    cause: Cause
    """What told so first."""
    growth: Growth
    namespace: str
    ref: Ref | None = None
    """The job; None for gangs of pods."""
    attempt: int = 0
    owners: tuple[Ref, ...] = ()
    until: int = 0
    """Once it is asked for: log time at which it is given up; 0 where the wait of the job ends it."""


class NodesAsked(Struct):
    """Nodes that are asked for."""

    name: str
    need: NodesNeeded
    cause: Cause
    """The request."""
    templates: tuple[str, ...]
    tries: int
    ending: WithdrawalReason | None = None
    """Why they are not needed any more."""
    problem: FieldProblem | None = None


class NodesRest(Struct):
    """A request for nodes failed: so many times, and not again before then."""

    times: int
    until: int


class Sighted(Struct, frozen=True):
    """A ProvisioningRequest that exists."""

    ref: Ref
    cause: Cause
    templates: tuple[str, ...]


class RayWorkload(Struct):
    """A workload with a Ray cluster, as it was observed last."""

    through: str = ""
    """Name of the cluster that it says it runs through."""
    starting: bool = False
    """It was admitted, and is not ready."""
    sizes: Counts = field(default_factory=dict)
    """The replicas that its spec asks for, where its cluster scales itself."""
    fixed: Counts = field(default_factory=dict)
    """Its pods by worker group, where its cluster has a fixed size."""


NOTHING = RayDemand()


class HeadSaid(Struct, frozen=True):
    """What a Ray head said last."""

    attempt: int
    read_at: int
    demand: RayDemand


class Watch(Struct):
    """What the watchdog notes of a cluster."""

    since: dict[AlarmReason, int] = field(default_factory=dict)
    """What is wrong now, and since when (log time)."""
    groups: dict[AlarmReason, Counts] = field(default_factory=dict)
    """How many replicas or workers it is about, by worker group."""
    sizes: Counts = field(default_factory=dict)
    """The replicas that the spec asked for then."""
    tries: int = 0
    """How often growth was not used since these changed."""
    barren: int = 0
    """How often its workers found no nodes since one found one."""
    headed: bool = False
    """A head of it has been seen."""


class Cluster(Struct):
    """A RayCluster that scales itself; or one of a fixed size, which is watched and nothing else."""

    ref: Ref
    owner: str
    """uid of the charged workload: its RayJob, or itself."""
    elastic: Elastic
    rv: int
    cause: Cause
    """The newest event that says something about it."""
    fixed: bool = False
    runs: bool = True
    wish: Wish = Wish()
    refused: tuple[str, ...] = ()
    """Placement groups that were refused: no other piece counts on their workers."""
    closed: tuple[str, ...] = ()
    """Worker groups whose workers find no nodes, and for which others do meanwhile."""
    unused_since: int = 0
    """Log time since when more is granted than it uses and wants; 0 while it is not."""
    written_rv: int = 0
    """resourceVersion of our last write: what was seen before that says nothing."""
    rests_until: int = 0
    """Log time before which nothing is written again: the last write failed, and its groups say nothing else since."""
    changed: int = 0
    """Sequence of the commit since which its groups say what they say."""
    watch: Watch = field(default_factory=Watch)


class Grant(Struct):
    """The grant of a workload whose cluster scales itself."""

    ref: Ref
    attempt: int
    groups: Counts
    giving: Counts = field(default_factory=dict)
    """What is being released: replicas that the group is left with."""
    giver: str = ""
    """uid of the cluster that releases it"""
    grown: dict[str, ReplicaCost] = field(default_factory=dict)
    """What a pod that is grown in place is charged on top, as it was asked for last."""

    fixed: Counts = field(default_factory=dict)
    """Where it was charged with a fixed size: its pods by worker group."""

    @property
    def kept(self) -> Counts:
        """What it may count on."""
        return {**self.groups, **self.giving}


class GrowthAsked(Struct, frozen=True):
    """A growth that is asked for."""

    attempt: int
    granted: Counts
    units: tuple[GrowthUnit, ...]


class Worker(Struct):
    """A live worker pod."""

    ref: Ref
    replica: str
    """What the hosts of one replica share; its own name where a replica is one host."""
    bound: bool = False
    created: int = 0
    request: Vector = field(default_factory=dict)
    deleting: bool = False
    """It was deleted, and has not ended yet."""
    stuck_since: int = 0
    """Log time since when its scheduler says that no node takes it; 0: it does not."""
    busy_since: int = 0
    """When its head said first that it has something to do again (ms since the epoch); 0: ever since it was made."""


class Reclaim(Struct):
    """Workers that a workload is to release for a job."""

    claimant: Ref | None
    """None: no job asks for them; their autoscaler should have removed them."""
    attempt: int
    left: Counts
    """What its groups are to be granted afterwards."""
    cause: Cause
    since: int
    """Log time."""


class Named(Struct):
    """Workers that their operator was asked to delete, in the write of ``ordered``."""

    ordered: GateSet
    cause: Cause
    """The order, then the effect."""
    since: int = 0
    """Log time of the effect; 0 before."""
    tries: int = 0
    """How often they have been deleted by uid,"""
    retry_at: int = 0
    """and the log time from which they are again."""


class BridgeState(StageState):
    """By uid of the job, or by the key of the gang that represents its group."""

    needs: dict[str, NodesNeeded] = field(default_factory=dict)
    asked: dict[str, NodesAsked] = field(default_factory=dict)
    rests: dict[str, NodesRest] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    """namespace/name of a request that is open -> whose"""
    reserved: dict[str, int] = field(default_factory=dict)
    """uid of a job -> the attempt whose quota is reserved and that was not admitted yet"""
    members: dict[str, dict[str, None]] = field(default_factory=dict)
    """Gang -> its pods that have no node"""
    gang_of: dict[str, str] = field(default_factory=dict)
    """uid of a pod that has no node -> its gang"""
    sighted: dict[str, Sighted] = field(default_factory=dict)
    """By uid."""
    removed: dict[str, None] = field(default_factory=dict)
    """namespace/name of requests that are withdrawn, and may still exist"""
    heard: dict[str, HeadSaid] = field(default_factory=dict)
    """uid of a RayCluster -> what its head said last"""
    jobs: dict[str, RayWorkload] = field(default_factory=dict)
    """By uid."""
    grants: dict[str, Grant] = field(default_factory=dict)
    """By uid of the charged workload."""
    clusters: dict[str, Cluster] = field(default_factory=dict)
    families: dict[str, dict[str, str]] = field(default_factory=dict)
    """uid of the charged workload -> {uid of a cluster of its: its name}, in the order in which they were first seen"""
    workers: dict[str, dict[str, dict[str, Worker]]] = field(default_factory=dict)
    """uid of a RayCluster -> {worker group: {uid of a live pod: what is known of it}}"""
    worker_of: dict[str, str] = field(default_factory=dict)
    """uid of a live worker pod -> uid of its RayCluster"""
    growing: dict[str, GrowthAsked] = field(default_factory=dict)
    """uid of a RayCluster -> what it asks for"""
    gates: dict[str, Cause] = field(default_factory=dict)
    """uid of a RayCluster -> the write to it that is under way"""
    reclaims: dict[str, Reclaim] = field(default_factory=dict)
    """uid of the charged workload -> the workers it is to release"""
    chosen: dict[str, WorkersChosen] = field(default_factory=dict)
    """uid of a RayCluster -> its workers that are about to go"""
    named: dict[str, Named] = field(default_factory=dict)
    """uid of the charged workload -> its workers that their operator was asked to delete"""
    heads: dict[str, dict[str, bool]] = field(default_factory=dict)
    """uid of a RayCluster -> {uid of a live head pod: whether it runs}"""
    head_of: dict[str, str] = field(default_factory=dict)
    """uid of a live head pod -> uid of its RayCluster"""
    alarms: dict[str, AlarmRaised] = field(default_factory=dict)
    """uid of the charged workload -> the alarm of its cluster"""
    watched: dict[str, None] = field(default_factory=dict)
    """RayClusters with which something is wrong, or was."""
    due: dict[str, None] = field(default_factory=dict)
    """RayClusters about which something is to be decided now."""

    def cluster_of(self, owner: str) -> str:
        """Uid of the cluster that is kept within the grant of a workload; empty: there is none."""
        family, job = self.families.get(owner), self.jobs.get(owner)
        return running_through(family, job.through if job is not None else "") if family else ""

    def said_by(self, cluster: str) -> RayDemand:
        """What the head of a cluster said last; nothing where it has not said anything."""
        heard = self.heard.get(cluster)
        return heard.demand if heard is not None else NOTHING

    def workers_of(self, cluster: str) -> Iterator[Worker]:
        """The live workers of a cluster."""
        return (worker for group in self.workers.get(cluster, {}).values() for worker in group.values())

    def workers_in(self, cluster: str, group: str) -> Mapping[str, Worker]:
        """By uid: the live workers of a group."""
        return self.workers.get(cluster, {}).get(group, {})

    def replicas_in(self, cluster: str, group: str) -> dict[str, list[Worker]]:
        """The replicas of a group that have a pod, and these, in the order in which they were seen."""
        found: dict[str, list[Worker]] = {}
        for worker in self.workers_in(cluster, group).values():
            found.setdefault(worker.replica, []).append(worker)
        return found


def templates_of(event: NodesRequested) -> tuple[str, ...]:
    """Names of the PodTemplates of a request, in the order of its pod sets."""
    return tuple(f"{event.name}-{index}" for index in range(len(event.pod_sets)))


def request_ref(namespace: str, name: str) -> Ref:
    """The ref of a request before its uid is known."""
    return Ref("ProvisioningRequest", namespace, name, name)


# --- reading ----------------------------------------------------------------------------------------------------------


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
