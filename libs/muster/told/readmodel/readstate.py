"""The state of the read model.

A record of every job: the phases and their times. Jobs that are gone are remembered, bounded by count and age.

The nodes of the cluster and the pods on nodes, as observed last.

The pods that do not run, by job or by object of a job.

The queues as every stage keeps queues, and the histories of jobs and gangs.

Plain data without a sentence: codes, numbers, names, and texts that others wrote.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct, field

from muster.core.learned import Pace
from muster.core.objects.meta import RAY_GROUP
from muster.core.observed.presence import Presence
from muster.core.observed.seen import FirstSight
from muster.core.promising.promises import Promises
from muster.core.queueing.book import Denial, Shape, clear
from muster.core.queueing.queues import Job, Queues
from muster.core.stage import StageState
from muster.core.workloads.registry import is_job
from muster.events.base import Cause
from muster.events.decisions import EvictionOrdered
from muster.events.elastic import GrowthDenied, GrowthGranted, GrowthUnit, GrowthWithdrawn, SurplusOrdered
from muster.events.facts import PodGone
from muster.events.raydemand import RayDemandObserved
from muster.events.reasons import AdoptionReason
from muster.events.refusals import Refusal, RefusalReason
from muster.model.demand import Shortfall
from muster.model.elastic import Counts, Elastic
from muster.model.kaiqueue import KaiQueue
from muster.model.keys import Ref
from muster.model.places import Shortage
from muster.model.podtrouble import PodCode, PodTrouble
from muster.model.pools import NodePool
from muster.model.problem import FieldProblem
from muster.model.resources import Vector
from muster.model.victims import Victim
from muster.model.workload import NodeState, Outcome, PodState
from muster.told.codes.codetable import POD_CODES, RANK, HeldUp, TroubledPod
from muster.told.codes.happenings import KeptPast, Release, Taker
from muster.told.codes.values import EndedAs, Leaving, NodesKept, Phase, Pools, Scaling
from muster.told.readmodel.gangsshown import GangsShown
from muster.told.readmodel.usage import UsageBooks

# --- records ----------------------------------------------------------------------------------------------------------


GONE_KEPT = 2_000
"""Jobs that are gone and still remembered: the newest."""
GONE_KEPT_MS = 14 * 24 * 3_600_000
"""How long a job that is gone is remembered, by log time."""


class SizeChange(Struct, frozen=True):
    """A decision about the size of a running Ray cluster, and the decision's place in the log."""

    event: GrowthDenied | GrowthGranted | GrowthWithdrawn | SurplusOrdered
    at: Cause
    time: int
    """Log time (ms)."""


class Record(Struct):
    """The record of one job. Times are log times in ms, 0 for a step that has not happened under the present charge."""

    ref: Ref
    phase: Phase = "seen"
    since: int = 0
    """When the phase began."""
    came: bool = False
    """The job was first seen after the cluster was listed."""
    owner: str = ""
    """The owner that the job names."""
    queue: str = ""
    request: Vector | None = None
    """The amounts that the job asks for, or released last."""
    admitted_at: int = 0
    adoption: AdoptionReason | None = None
    """Why the job is charged without an admission."""
    running_at: int = 0
    released_at: int = 0
    """When the job released the quota of an admission: a job that is queued again waits from then on, in its old
    place.
    """
    gone_at: int = 0
    outcome: Outcome = ""
    detail: str = ""
    ended: EndedAs = ""
    """The last event of the kinds that may end a job."""
    failure: TroubledPod | None = None
    """The first pod that failed since the admission; else the last pod that was broken when the pod went."""
    reason: str = ""
    """The reason of the release, or of leaving the queue."""
    growth: Scaling = field(default_factory=Scaling)
    change: SizeChange | None = None
    """The last answer to growth, or the last order to release workers, under the present charge."""
    over_since: int = 0
    """Since when more runs than was granted; 0 within the grant."""
    past: KeptPast = field(default_factory=KeptPast)


def asked_in(units: tuple[GrowthUnit, ...]) -> Counts:
    """Replicas in all, group by group."""
    counts: Counts = {}
    for unit in units:
        for name, count in unit.groups.items():
            counts[name] = counts.get(name, 0) + count * unit.times
    return dict(sorted(counts.items()))


def prune(records: dict[str, Record], gone: dict[str, None], now: int) -> None:
    """Forget the jobs that went first, beyond the bounds. ``gone``: uids in the order in which the jobs went."""
    while gone:
        uid = next(iter(gone))
        record = records.get(uid)
        if len(gone) <= GONE_KEPT and record is not None and now - record.gone_at <= GONE_KEPT_MS:
            return
        del gone[uid]
        records.pop(uid, None)


def fade(records: dict[str, Record], over: dict[str, None]) -> None:
    """Drop the happenings of jobs that are over and still exist, except for the newest jobs. ``over``: oldest first."""
    while len(over) > GONE_KEPT:
        oldest = next(iter(over))
        del over[oldest]
        if oldest in records:
            records[oldest].past.forget()


def leaving_for(event: EvictionOrdered, victim: Victim, generation: int, cause: Cause) -> Leaving:
    """Why a victim of an order is suspended: for a guarantee, a higher priority in the same queue, or less service."""
    served = event.kind == "service"
    move = next((move for move in event.moves if move.uid == victim.ref.uid), None)
    preempted = served or move is not None or (victim.priority is not None and event.priority is not None)
    return Leaving(
        "Preempted" if preempted else "Reclaimed",
        generation,
        cause,
        claimant=event.ref.key,
        queue=event.queue,
        owing=event.owing,
        path=event.path,
        resource=event.resource,
        priority=victim.priority or 0,
        claimant_priority=event.priority or 0,
        served=served,
        of_nodes=event.for_nodes,
        before=move.before if move is not None else (),
        after=move.after if move is not None else (),
    )


# --- nodes ------------------------------------------------------------------------------------------------------------


class PodOnNode(Struct, frozen=True, gc=False):
    """A pod that has a node and is not over."""

    ref: Ref
    node: str
    owner: str
    """uid of its owner: a job, or an object that a job runs through."""
    request: Vector
    devices: tuple[int, ...] = ()
    """The shared GPU devices given to the pod."""


class NodesShown(Struct):
    """Nodes by uid, and by uid the pods that hold something of a node."""

    nodes: dict[str, NodeState] = field(default_factory=dict)
    pods: dict[str, PodOnNode] = field(default_factory=dict)
    offering: dict[str, dict[str, None]] = field(default_factory=dict)
    """resource -> uids of the nodes that have some of it; under the empty name: all nodes"""
    pools: dict[str, tuple[NodePool, ...]] = field(default_factory=dict)
    """uid of an object that declares node pools -> the pools that count"""

    @property
    def complete(self) -> bool:
        """Whether every node is listed by its resources."""
        return len(self.offering.get("", {})) == len(self.nodes)

    def node(self, node: NodeState) -> bool:
        """Fold an observed node. Returns whether its amounts or labels differ from before."""
        before = self.nodes.get(node.ref.uid)
        if before is not None and (before.allocatable, before.labels) == (node.allocatable, node.labels):
            self.nodes[node.ref.uid] = node
            return False
        self.node_gone(node.ref.uid)
        self.nodes[node.ref.uid] = node
        for name in ("", *(name for name, amount in node.allocatable.items() if amount > 0)):
            self.offering.setdefault(name, {})[node.ref.uid] = None
        return True

    def node_gone(self, uid: str) -> None:
        """Forget a node."""
        if self.nodes.pop(uid, None) is None:
            return
        for name in [name for name, uids in self.offering.items() if uid in uids]:
            del self.offering[name][uid]
            if not self.offering[name]:
                del self.offering[name]

    def pod(self, pod: PodState) -> None:
        """Fold an observed pod."""
        uid = pod.ref.uid
        if pod.node and not pod.over:
            self.pods[uid] = PodOnNode(pod.ref, pod.node, pod.owner_uid, pod.request, pod.devices)
        else:
            self.pods.pop(uid, None)

    def lost(self, pods: Iterable[str]) -> str:
        """The first of the nodes of these pods, by name, that is known and not ready; else empty."""
        names = {self.pods[uid].node for uid in pods if uid in self.pods}
        away = [node.ref.name for node in self.nodes.values() if not node.ready and node.ref.name in names]
        return min(away, default="")


# --- pods that do not run ---------------------------------------------------------------------------------------------


class PodsShown(Struct):
    """Troubled pods. ``owner``: uid of a job or of an object that a job runs through."""

    live: dict[str, dict[PodCode, dict[str, TroubledPod]]] = field(default_factory=dict)
    """owner -> {code: {uid of a pod that is not over: trouble}}; within a code, the pod with the longest trouble is
    first.
    """
    home: dict[str, tuple[str, PodCode]] = field(default_factory=dict)
    """uid of a troubled pod -> (owner, code)"""

    def observed(self, pod: PodState, record: Record | None, now: int) -> bool:
        """Fold an observed pod. Returns whether the trouble has changed. ``record``: of the pod's job."""
        uid = pod.ref.uid
        if not pod.owner_uid:
            return False
        if pod.trouble is None:
            return self._drop(uid) is not None
        place = (pod.owner_uid, pod.trouble.code)
        same = self.home.get(uid) == place
        since = self.live[place[0]][place[1]][uid].since if same else now
        new = TroubledPod(pod.ref.name, pod.trouble, since, pod.over, pod.labels.get(RAY_GROUP, ""))
        if not same or pod.over:
            self._drop(uid)
        if pod.over:
            return _fails(record, new)
        self.home[uid] = place
        self.live.setdefault(place[0], {}).setdefault(place[1], {})[uid] = new
        return True

    def refused(self, job: str, words: str, now: int) -> bool:
        """Fold the refusal of the pods of a job; empty words: none. Returns whether there is or was one."""
        known = self.refusal(job)
        if not words:
            return known is not None and self._drop(job) is not None
        pod = TroubledPod("", PodTrouble("PodsRefused", said=words), known.since if known is not None else now)
        self.home[job] = (job, "PodsRefused")
        self.live.setdefault(job, {}).setdefault("PodsRefused", {})[job] = pod
        return True

    def refusal(self, job: str) -> TroubledPod | None:
        """The pods of a job that the cluster does not let be made."""
        return self.live.get(job, {}).get("PodsRefused", {}).get(job)

    def gone(self, event: PodGone, record: Record | None) -> bool:
        """A pod is gone: the record of the job keeps a code that broke the pod."""
        known = self._drop(event.ref.uid)
        if known is not None and POD_CODES[known.trouble.code] == "breaks":
            _fails(record, known)
        return known is not None

    def _drop(self, uid: str) -> TroubledPod | None:
        place = self.home.pop(uid, None)
        if place is None:
            return None
        owner, code = place
        known = self.live[owner][code].pop(uid)
        if not self.live[owner][code]:
            del self.live[owner][code]
        if not self.live[owner]:
            del self.live[owner]
        return known

    def owner_of(self, uid: str) -> str:
        """Of a troubled pod; empty for any other."""
        return self.home.get(uid, ("", ""))[0]

    def of(self, job: str, presence: Presence) -> HeldUp | None:
        """The worst code that keeps pods of a job from running, by the codes of owners: no pod is looked through."""
        owners = (job, *presence.children.get(job, ()))
        sets = [pods for owner in owners if owner in self.live for pods in self.live[owner].items()]
        if not sets:
            return None
        worst = min((code for code, _ in sets), key=RANK.__getitem__)
        alike = [pods for code, pods in sets if code == worst]
        firsts = [next(iter(pods.values())) for pods in alike]
        return HeldUp(min(firsts, key=lambda pod: (pod.since, pod.name)), sum(map(len, alike)))

    def ended(self, job: str, record: Record, presence: Presence) -> HeldUp | None:
        """The code that made a job fail, as far as the pods reported."""
        live = self.of(job, presence)
        if record.failure is not None and (record.failure.over or live is None):
            return HeldUp(record.failure)
        return live if live is not None and POD_CODES[live.code] == "breaks" else None


def _fails(record: Record | None, pod: TroubledPod) -> bool:
    """Keep the first failed pod of a job; else the last pod that was broken when the pod went."""
    if record is None or (record.failure is not None and record.failure.over):
        return False
    record.failure = pod
    return True


# --- state ------------------------------------------------------------------------------------------------------------


class Shown(Struct, frozen=True):
    """An object that Muster keeps, as observed last."""

    ref: Ref
    rv: int
    shown: str
    policy: str = ""
    """Of a Queue: the order of jobs, as written on the Queue."""
    path: str = ""
    """Of a Queue: the quota path."""


class Scaled(Struct, frozen=True):
    """A Ray cluster that scales itself, as observed last, and the last report of the head."""

    ref: Ref
    owner: str
    """uid of the charged object."""
    elastic: Elastic
    heard: RayDemandObserved | None = None

    @property
    def told(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The signals for the autoscaler to wait: worker groups whose limit is reached, and groups with Muster's
        scaleGate.
        """
        return self.elastic.full, self.elastic.signalled


TroubleCode = Literal[RefusalReason, "tree_rejected", "pools_refused"]


class Trouble(Struct, frozen=True):
    """The problem of an object, for an Event on the object."""

    ref: Ref
    code: TroubleCode
    found: tuple[FieldProblem, ...] = ()
    more: int = 0
    """How many findings are beyond ``found``."""
    refusal: Refusal | None = None
    """Instead of findings: why a workload is not in a queue."""

    @property
    def first(self) -> FieldProblem | None:
        """The only finding there is, of all but trees and node pools."""
        return self.found[0] if self.found else None


class Illegal(Struct, frozen=True):
    """A step from one phase to another that is not allowed, with the newest event: ``SEQ WHAT``."""

    seq: int
    ref: Ref
    before: Phase
    after: Phase
    story: tuple[str, ...]


class GangRecord(Struct):
    """The history of a gang of pods, or of a pod in no gang."""

    name: str
    """namespace/name"""
    past: KeptPast = field(default_factory=KeptPast)


class ReadState(StageState):
    """The queues, and the notes about jobs, gangs and objects."""

    queues: Queues = field(default_factory=Queues)
    presence: Presence = field(default_factory=Presence)
    """The objects of every workload that exist in the cluster."""
    units: dict[str, Shown] = field(default_factory=dict)
    """workload uid -> QueueUnit"""
    unit_owner: dict[str, str] = field(default_factory=dict)
    """QueueUnit uid -> workload uid"""
    queue_objects: dict[str, Shown] = field(default_factory=dict)
    """Queue object uid -> the object"""
    kai_queues: dict[str, KaiQueue] = field(default_factory=dict)
    """uid of a KAI queue -> the queue as observed last"""
    records: dict[str, Record] = field(default_factory=dict)
    """workload uid -> the record of the job"""
    gone: dict[str, None] = field(default_factory=dict)
    """uids of jobs that are gone and remembered, in the order in which the jobs went"""
    over: dict[str, None] = field(default_factory=dict)
    """uids of jobs that are over and hold no quota, with an object and with happenings, oldest first"""
    suspended_outside: dict[str, str] = field(default_factory=dict)
    write_failures: dict[str, FieldProblem | None] = field(default_factory=dict)
    """workload uid -> the API server's last reason to refuse the resume"""
    shortages: dict[str, Shortage] = field(default_factory=dict)
    """workload uid -> why the gang has no place"""
    pools: dict[str, Pools] = field(default_factory=dict)
    """workload uid -> the nodes that node pools could add, where a pool is declared"""
    tried: dict[str, int] = field(default_factory=dict)
    """workload uid -> log time (ms) at which the gang found no place last"""
    nodes_kept: dict[str, NodesKept] = field(default_factory=dict)
    """uid of a job, or key of a gang of pods -> the claimed nodes"""
    leaving: dict[str, Leaving] = field(default_factory=dict)
    """workload uid -> why the job was suspended; until the next admission"""
    gangs_placed: bool = False
    """Gangs of jobs are placed as a whole, by Muster or by kube-scheduler."""
    placement: str = ""
    """How the configuration wants pods laid out on nodes (``model.strategies``); empty: gangs are not placed."""
    gangs: GangsShown = field(default_factory=GangsShown)
    nodes: NodesShown = field(default_factory=NodesShown)
    pods: PodsShown = field(default_factory=PodsShown)
    """Pods that do not run, or have failed."""
    troubles: dict[str, Trouble] = field(default_factory=dict)
    """object uid -> the problem to be shown on the object"""
    releases: dict[str, Release] = field(default_factory=dict)
    """``SEQ-ITEM`` of the newest events that made other jobs worth trying -> the release"""
    gang_records: dict[str, GangRecord] = field(default_factory=dict)
    """key of a gang, or uid of a pod in no gang -> history; also of the newest gangs that are gone"""
    gangs_gone: dict[str, int] = field(default_factory=dict)
    """key of a gang without pods -> log time (ms) at which the last pod went, in this order"""
    pace: Pace = field(default_factory=Pace)
    """How fast the queues move."""
    promises: Promises = field(default_factory=Promises)
    """The run times and waits of jobs, and the promises to waiting jobs."""
    illegal: list[Illegal] = field(default_factory=list)
    """Steps of jobs that are not allowed: the newest."""
    unanswered: dict[str, dict[str, None]] = field(default_factory=dict)
    """key of a shape without a denial -> uids of jobs that were queued since, and wait for the first answer"""
    lone: dict[str, Record] = field(default_factory=dict)
    """uid of a charged pod of no job -> its record"""
    scaled: dict[str, Scaled] = field(default_factory=dict)
    """uid of a Ray cluster that scales itself -> the cluster's shown state"""
    takers: list[Taker] = field(default_factory=list)
    """The newest reservations, oldest first."""
    sight: FirstSight = field(default_factory=FirstSight)
    usage: UsageBooks = field(default_factory=UsageBooks)
    """What was used, lost and waited for, month by month."""


def record_of(state: ReadState, ref: Ref) -> Record:
    """The record of a job, made when there is none."""
    record = state.records.get(ref.uid)
    if record is None:
        record = Record(ref, since=state.now, came=state.synced)
        if is_job(ref.kind):  # Pods of no job are charged too, and not listed.
            state.records[ref.uid] = record
    return record


def waits_since(state: ReadState, job: Job) -> int:
    """Since when a job waits: since the first queueing, or since the job released the quota of an earlier run."""
    record = state.records.get(job.ref.uid)
    return max(job.queued_at, record.released_at if record is not None else 0)


def refused_by(state: ReadState, job: Job, shape: Shape, denial: Denial) -> Shortfall | None:
    """The limit that refuses a denied job now: the limit on which the job is parked, else the first limit without
    room.

    The parked limit may have room again while an ancestor has none: then the job waits for the ancestor.
    """
    if not clear(shape, state.queues.ledger):
        return state.queues.ledger.short_now(denial.short, job.queue, job.demand, state.now)
    return state.queues.ledger.shortfall(job.queue, job.demand, now=state.now, uid=job.ref.uid)
