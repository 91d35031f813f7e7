"""The state of the autoscaler bridge, and the questions of the reader of Ray heads to this state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct, field

from muster.core.autoscaling.wish import Wish
from muster.core.stage import StageState
from muster.events.alarms import AlarmRaised, AlarmReason
from muster.events.base import Cause
from muster.events.elastic import GateSet, GrowthUnit, WorkersChosen
from muster.events.growing import NodesRequested, WithdrawalReason
from muster.events.raydemand import RayDemandObserved
from muster.model.elastic import Counts, Elastic, HeadService, ReplicaCost, running_through
from muster.model.keys import Ref
from muster.model.pools import Growth
from muster.model.problem import FieldProblem
from muster.model.raydemand import RayDemand
from muster.model.resources import Vector

# --- state ------------------------------------------------------------------------------------------------------------


class NodesNeeded(Struct, frozen=True):
    """A claimant lacks nodes, and a pool could add these nodes."""

    cause: Cause
    """The first event that reported the need."""
    growth: Growth
    namespace: str
    ref: Ref | None = None
    """The job; None for gangs of pods."""
    attempt: int = 0
    owners: tuple[Ref, ...] = ()
    until: int = 0
    """Log time at which an open request is given up; 0 where the wait of the job ends the request."""


class NodesAsked(Struct):
    """Requested nodes."""

    name: str
    need: NodesNeeded
    cause: Cause
    """The request."""
    templates: tuple[str, ...]
    tries: int
    ending: WithdrawalReason | None = None
    """Why the nodes are not needed any more."""
    problem: FieldProblem | None = None


class NodesRest(Struct):
    """A request for nodes failed ``times`` times; no further request before ``until`` (log time, ms)."""

    times: int
    until: int


class Sighted(Struct, frozen=True):
    """An existing ProvisioningRequest."""

    ref: Ref
    cause: Cause
    templates: tuple[str, ...]


class RayWorkload(Struct):
    """A workload with a Ray cluster, as observed last."""

    through: str = ""
    """Name of the workload's cluster, from the status of the workload."""
    starting: bool = False
    """The workload is admitted and not ready."""
    sizes: Counts = field(default_factory=dict)
    """The replicas in the spec, for a self-scaling cluster."""
    fixed: Counts = field(default_factory=dict)
    """The pods by worker group, for a cluster of a fixed size."""
    outgoing: str = ""
    """Name of the cluster that serves while ``through`` is the new cluster of an upgrade."""
    runs: bool = False
    """The workload is not suspended and not over."""
    whole: ReplicaCost = ReplicaCost({})
    """The charge of a whole cluster by the spec of now."""


class ServiceCluster(Struct):
    """A RayCluster of a RayService, running or held."""

    ref: Ref
    held: bool
    cause: Cause
    """The newest event about the cluster."""
    wrote: bool | None = None
    """The value of our last write; None before the first write."""
    tries: int = 0
    """Writes of the same value after the first."""
    rests_until: int = 0
    """Log time (ms) before which the same value is not written again."""


NOTHING = RayDemand()


class HeadSaid(Struct, frozen=True):
    """The last report of a Ray head."""

    attempt: int
    read_at: int
    demand: RayDemand


class Watch(Struct):
    """The watchdog's notes about a cluster."""

    since: dict[AlarmReason, int] = field(default_factory=dict)
    """The current troubles, each with its start (log time)."""
    groups: dict[AlarmReason, Counts] = field(default_factory=dict)
    """Replicas or workers in trouble, by worker group."""
    sizes: Counts = field(default_factory=dict)
    """The replicas in the spec at that time."""
    tries: int = 0
    """How often growth was not used since these changed."""
    barren: int = 0
    """Failed searches of the workers for nodes since the last success."""
    headed: bool = False
    """A head of the cluster has been seen."""


class Cluster(Struct):
    """A RayCluster: a self-scaling one, or one of a fixed size that is only watched."""

    ref: Ref
    owner: str
    """uid of the charged workload: the RayJob, or the RayCluster itself"""
    elastic: Elastic
    rv: int
    cause: Cause
    """The newest event about the cluster."""
    fixed: bool = False
    runs: bool = True
    wish: Wish = Wish()
    refused: tuple[str, ...] = ()
    """Refused placement groups: no other piece relies on their workers."""
    closed: tuple[str, ...] = ()
    """Worker groups whose workers find no nodes; other groups replace these groups meanwhile."""
    unused_since: int = 0
    """Log time since when the grant exceeds the use and the wish; 0 while the whole grant is used."""
    written_rv: int = 0
    """resourceVersion of our last write: older sights of the cluster tell nothing about this write."""
    rests_until: int = 0
    """Log time before which nothing is written again: the last write failed, and the groups are unchanged since."""
    changed: int = 0
    """Sequence of the commit with the last change of the groups."""
    watch: Watch = field(default_factory=Watch)


class Grant(Struct):
    """The grant of a workload with a self-scaling cluster."""

    ref: Ref
    attempt: int
    groups: Counts
    giving: Counts = field(default_factory=dict)
    """The release in progress: {worker group: replicas left after the release}."""
    giver: str = ""
    """uid of the cluster that releases the replicas"""
    grown: dict[str, ReplicaCost] = field(default_factory=dict)
    """The additional charge of a pod grown in place, as in the last request."""

    fixed: Counts = field(default_factory=dict)
    """The pods by worker group, where the charge was for a fixed size."""
    opened: str = ""
    """uid of the new cluster of an upgrade that was granted last"""
    waits: str = ""
    """Name of the new cluster of an upgrade that was denied last"""

    @property
    def kept(self) -> Counts:
        """The replicas that stay granted after the release."""
        return {**self.groups, **self.giving}


class GrowthAsked(Struct, frozen=True):
    """An open request for growth."""

    attempt: int
    granted: Counts
    units: tuple[GrowthUnit, ...]
    pending: Ref | None = None
    cluster: Ref | None = None


class Worker(Struct):
    """A live worker pod."""

    ref: Ref
    replica: str
    """Name shared by the hosts of one replica; the pod's own name where a replica has one host."""
    bound: bool = False
    created: int = 0
    request: Vector = field(default_factory=dict)
    deleting: bool = False
    """The pod was deleted, and has not ended yet."""
    stuck_since: int = 0
    """Log time since when the scheduler reports that no node takes the pod; 0: no such report."""
    busy_since: int = 0
    """First report of the head about new work of the pod (ms since the epoch); 0: at work since the pod's creation."""


class Reclaim(Struct):
    """Workers to be released by a workload for a job."""

    claimant: Ref | None
    """None: no job asks for the workers; the autoscaler should have removed the workers."""
    attempt: int
    left: Counts
    """The grants of the groups after the release."""
    cause: Cause
    since: int
    """Log time."""


class Surplus(Struct, frozen=True):
    """An order to release workers beyond the grant."""

    attempt: int
    amounts: Vector
    cause: Cause


class Named(Struct):
    """Workers named to the operator for deletion, in the write of ``ordered``."""

    ordered: GateSet
    cause: Cause
    """The order, then the effect."""
    since: int = 0
    """Log time of the effect; 0 before."""
    tries: int = 0
    """Deletions by uid so far."""
    retry_at: int = 0
    """Log time of the next deletion by uid."""


class WorkersRefused(Struct):
    """The API server refuses workers of a workload, by the actuator's last look at the Events."""

    since: int = 0
    """Log time of the first such answer; 0 since the grant of the workers was released."""
    until: int = 0
    """Log time before which no growth is requested."""
    tries: int = 0
    """Releases in a row."""


class BridgeState(StageState):
    """Keys: uid of the job, or the gang that represents a group of gangs."""

    needs: dict[str, NodesNeeded] = field(default_factory=dict)
    asked: dict[str, NodesAsked] = field(default_factory=dict)
    rests: dict[str, NodesRest] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    """namespace/name of an open request -> key of the claimant"""
    reserved: dict[str, int] = field(default_factory=dict)
    """uid of a job -> attempt with reserved quota and without admission"""
    members: dict[str, dict[str, None]] = field(default_factory=dict)
    """Gang -> the gang's pods without a node"""
    gang_of: dict[str, str] = field(default_factory=dict)
    """uid of a pod without a node -> gang"""
    sighted: dict[str, Sighted] = field(default_factory=dict)
    """By uid."""
    removed: dict[str, None] = field(default_factory=dict)
    """namespace/name of withdrawn requests that may still exist"""
    heard: dict[str, HeadSaid] = field(default_factory=dict)
    """uid of a RayCluster -> last report of the head"""
    jobs: dict[str, RayWorkload] = field(default_factory=dict)
    """By uid."""
    grants: dict[str, Grant] = field(default_factory=dict)
    """By uid of the charged workload."""
    clusters: dict[str, Cluster] = field(default_factory=dict)
    services: dict[str, dict[str, ServiceCluster]] = field(default_factory=dict)
    """uid of a RayService -> {uid of a RayCluster of the service: known facts}, in order of the first sight"""
    surplus: dict[str, Surplus] = field(default_factory=dict)
    """uid of the charged workload -> the workers beyond the grant that its cluster is to release"""
    refused: dict[str, WorkersRefused] = field(default_factory=dict)
    """uid of the charged workload -> workers that the API server refuses"""
    upgrades: dict[str, GrowthAsked] = field(default_factory=dict)
    """uid of a RayService of a fixed size -> open request for the new cluster of an upgrade"""
    families: dict[str, dict[str, str]] = field(default_factory=dict)
    """uid of the charged workload -> {uid of a RayCluster of the workload: name}, in order of the first sight"""
    workers: dict[str, dict[str, dict[str, Worker]]] = field(default_factory=dict)
    """uid of a RayCluster -> {worker group: {uid of a live pod: known facts}}"""
    worker_of: dict[str, str] = field(default_factory=dict)
    """uid of a live worker pod -> uid of the RayCluster"""
    growing: dict[str, GrowthAsked] = field(default_factory=dict)
    """uid of a RayCluster -> open request for growth"""
    gates: dict[str, Cause] = field(default_factory=dict)
    """uid of a RayCluster -> cause of the write in progress"""
    reclaims: dict[str, Reclaim] = field(default_factory=dict)
    """uid of the charged workload -> workers to be released"""
    chosen: dict[str, WorkersChosen] = field(default_factory=dict)
    """uid of a RayCluster -> workers chosen for release"""
    named: dict[str, Named] = field(default_factory=dict)
    """uid of the charged workload -> workers named to the operator for deletion"""
    heads: dict[str, dict[str, bool]] = field(default_factory=dict)
    """uid of a RayCluster -> {uid of a live head pod: whether the pod runs}"""
    head_of: dict[str, str] = field(default_factory=dict)
    """uid of a live head pod -> uid of the RayCluster"""
    alarms: dict[str, AlarmRaised] = field(default_factory=dict)
    """uid of the charged workload -> alarm of the workload's cluster"""
    watched: dict[str, None] = field(default_factory=dict)
    """RayClusters in trouble, or with an earlier trouble."""
    due: dict[str, None] = field(default_factory=dict)
    """RayClusters with a decision due."""

    def cluster_of(self, owner: str) -> str:
        """Uid of the cluster kept within the grant of a workload; empty: the workload has no such cluster."""
        family, job = self.families.get(owner), self.jobs.get(owner)
        if not family or job is None:
            return running_through(family, "") if family else ""
        return running_through(family, job.outgoing if self.pending_of(owner) is not None else job.through)

    def asks_by_itself(self, owner: str) -> bool:
        """Whether the cluster kept within the grant of a workload scales itself, and asks for an upgrade too."""
        cluster = self.clusters.get(self.cluster_of(owner))
        return cluster is not None and not cluster.fixed

    def pending_of(self, owner: str) -> ServiceCluster | None:
        """The new cluster of an upgrade without a grant; None: no upgrade waits."""
        job, grant = self.jobs.get(owner), self.grants.get(owner)
        if job is None or grant is None or not (job.runs and job.outgoing):
            return None
        newest = self.newest_of(owner)
        return newest if newest is not None and newest.ref.uid != grant.opened else None

    def newest_of(self, owner: str) -> ServiceCluster | None:
        """The cluster of a RayService that is to serve from now on."""
        job = self.jobs.get(owner)
        clusters = self.services.get(owner, {}).values() if job is not None else ()
        return next((cluster for cluster in clusters if job is not None and cluster.ref.name == job.through), None)

    def said_by(self, cluster: str) -> RayDemand:
        """The last report of a cluster's head; ``NOTHING`` before the first report."""
        heard = self.heard.get(cluster)
        return heard.demand if heard is not None else NOTHING

    def workers_of(self, cluster: str) -> Iterator[Worker]:
        """The live workers of a cluster."""
        return (worker for group in self.workers.get(cluster, {}).values() for worker in group.values())

    def workers_in(self, cluster: str, group: str) -> Mapping[str, Worker]:
        """By uid: the live workers of a group."""
        return self.workers.get(cluster, {}).get(group, {})

    def replicas_in(self, cluster: str, group: str) -> dict[str, list[Worker]]:
        """The replicas of a group with at least one pod, in order of the first sight: {name: live pods}."""
        replicas: dict[str, list[Worker]] = {}
        for worker in self.workers_in(cluster, group).values():
            replicas.setdefault(worker.replica, []).append(worker)
        return replicas


def templates_of(event: NodesRequested) -> tuple[str, ...]:
    """Names of the PodTemplates of a request, in the order of the pod sets."""
    return tuple(f"{event.name}-{index}" for index in range(len(event.pod_sets)))


def request_ref(namespace: str, name: str) -> Ref:
    """The ref of a request before the uid is known."""
    return Ref("ProvisioningRequest", namespace, name, name)


# --- reading ----------------------------------------------------------------------------------------------------------


def news(state: BridgeState, ref: Ref, attempt: int, demand: RayDemand, read_at: int) -> RayDemandObserved | None:
    """The fact to append; None when the head repeats its last report.

    ``ref``: the RayCluster; ``attempt``: of the job behind the cluster; ``read_at``: ms since the epoch.
    """
    known = state.heard.get(ref.uid)
    if known is not None and (known.attempt, known.demand) == (attempt, demand):
        return None
    return RayDemandObserved(ref=ref, attempt=attempt, read_at=read_at, demand=demand)


def to_drain(state: BridgeState) -> list[WorkersChosen]:
    """Chosen workers, whose heads should place nothing more on these workers; sorted by cluster."""
    return sorted(state.chosen.values(), key=lambda workers: (workers.ref.key, workers.ref.uid))


def closely(state: BridgeState, cluster: Ref) -> bool:
    """Whether workers of a cluster have to go and none is chosen: then the load of each worker must be known."""
    known = state.clusters.get(cluster.uid)
    return known is not None and known.owner in state.reclaims and cluster.uid not in state.chosen


def served(state: BridgeState, cluster: Ref) -> HeadService:
    """The address of the cluster's head."""
    known = state.clusters.get(cluster.uid)
    return (known.elastic.served if known is not None else None) or HeadService()


def heads(state: BridgeState) -> list[tuple[Ref, int]]:
    """The clusters with heads to be read: (RayCluster, attempt of the workload behind the cluster), sorted."""
    running = [
        (cluster.ref, grant.attempt)
        for cluster in state.clusters.values()
        if cluster.runs and not cluster.fixed and (grant := state.grants.get(cluster.owner)) is not None
    ]
    return sorted(running, key=lambda pair: (pair[0].key, pair[0].uid))
