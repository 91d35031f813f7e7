"""The state of the gang admitter: open reservations, the nodes, and the places held for admitted gangs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from muster.core.gang import podgangs
from muster.core.gang.podgangs import Claimant, PodGangs
from muster.core.laterstarts import Starts
from muster.core.objects.meta import RAY_GROUP, RAY_HEAD, is_ray_head
from muster.core.placement.nodeledger import NodeLedger, Occupant
from muster.core.stage import DueTimes, StageState
from muster.events.base import Cause
from muster.events.decisions import GangAdmitted, PlacesReleased, PreemptionProposed
from muster.events.elastic import GrowthOption
from muster.events.facts import PodObserved
from muster.events.system import PlacementChosen
from muster.model.keys import Position, Ref
from muster.model.places import Placement, Shortage
from muster.model.placing import GPU, Topology
from muster.model.pools import Growth, NodePool
from muster.model.quota import FlavorNodes, Flavors, OnFlavors
from muster.model.workload import SPARK_ROLE, PodSet, PodState, Workload


class QueuedAs(Struct):
    """The terms of an attempt, from the queueing until the attempt is over."""

    attempt: int = 0
    rank: tuple[int, int] = (0, 0)
    """(negated priority, place in the queue in ms since the epoch)."""
    came: int = 0
    """Log time (ms) of the first attempt since the job last ran."""
    placement: str = ""
    """The layout of the pods on nodes asked for by the queue, as last decided; empty: the layout of the cell."""
    nodes: dict[str, FlavorNodes] = field(default_factory=dict)
    """{pod set: what the admission adds to its pods for the nodes of its flavors}."""
    flavors: Flavors = field(default_factory=dict)
    """{pod set: its flavors}."""
    turn: int = 0
    """The place of these flavors among the alternatives of the job."""
    others: tuple[OnFlavors, ...] = ()
    """Further flavors with quota: without a place under its own, the job goes to the first of these with room."""
    rounds: int = 0
    """The number of searches without a place while no node has changed since the first."""
    moves: int = 0
    """``NodeLedger.moves`` at the last search without a place."""
    rests_until: int = 0
    """Log time (ms) until which the job rests after such rounds, without a change of nodes; 0 without a rest."""


def queued_as(queued: Mapping[str, QueuedAs], uid: str) -> QueuedAs:
    """The terms of a job's newest attempt; an adopted job has the default terms, because no queue has a place for the
    job.
    """
    return queued.get(uid) or QueuedAs()


SET_LABELS = (
    RAY_GROUP,
    "training.kubeflow.org/replica-type",
    "training.kubeflow.org/job-role",
    SPARK_ROLE,
)
"""Labels by which operators name the pod set of a pod."""


KEPT_MS = 10 * 60_000
"""The time for which room is kept for a job after the last of its victims has left."""


class Reservation(Struct):
    """Reserved quota without an admission yet."""

    ref: Ref
    attempt: int
    queue: str
    basis: str
    cause: Cause
    shortage: Shortage | None = None
    """The reason without a place, as last reported."""
    until: int = 0
    """Log time (ms) until which the job waits for nodes; 0 while not decided."""
    told: int = 0
    """Log time (ms) of the last report of the reason."""
    deferred: bool = False
    """The release of the quota is decided."""
    owed: bool = False
    """The request is within a guarantee."""
    in_vain: bool = False
    """The awaited nodes did not come."""
    growth: Growth | None = None
    """The awaited nodes."""
    room_until: int = 0
    """Victims were suspended for the job: log time (ms) until which devices may still be kept for the victims."""


class LinePlace(NamedTuple):
    """The place of an unplaced job in the order of tries; the smallest is tried first."""

    borrows: bool
    """The request is not within a guarantee."""
    below: int
    """The negated priority."""
    rank: int
    """The place in the queue, ms since the epoch."""
    key: str
    uid: str
    turn: int = 0
    """A job may wait for nodes of several flavors, in a line each: the best first."""
    flavors: str = ""


class Line(Struct):
    """The unplaced jobs with the same request."""

    places: list[LinePlace] = field(default_factory=list)
    """In order."""
    sought: str = ""
    """The kind of the pods hardest to place, as a key of ``NodeLedger.sought``; empty for a request without pods."""
    pods: int = 0
    """The number of these pods."""


class Unplaced(Struct):
    """A job that released its quota for want of room on the nodes."""

    ref: Ref
    attempt: int
    cause: Cause
    key: str = ""
    """The request: key of the job's line."""
    place: LinePlace = LinePlace(False, 0, 0, "", "")
    owed: bool = False
    """The request was within a guarantee at the release of the quota."""
    flavors: Flavors = field(default_factory=dict)
    """The flavors of the attempt, and"""
    nodes: dict[str, FlavorNodes] = field(default_factory=dict)
    """what its admission would have added to the pods,"""
    turn: int = 0
    """and the place of these flavors among the alternatives of the job."""


class Vain(Struct):
    """A failed request for nodes: no new request before ``until`` (log time, ms)."""

    until: int
    pools: dict[str, int] = field(default_factory=dict)


class Gang(Struct):
    """The pods of a workload, as last observed."""

    pod_sets: tuple[PodSet, ...]
    auxiliary: tuple[PodSet, ...]
    namespace: str
    name: str
    topology: Topology = Topology()
    held: bool = False
    """The job is on hold: no admission, and its reservation is about to be released."""
    waits: bool = True
    """The job is suspended and asks to run."""
    placement: str = ""
    """The layout of the pods on nodes asked for by the queue (``QueuedAs``); empty: the layout of the cell."""
    nodes: dict[str, FlavorNodes] = field(default_factory=dict)
    """As in ``QueuedAs``."""

    @property
    def steered(self) -> tuple[PodSet, ...]:
        """The pod sets as they are once admitted: on the nodes of their flavors."""
        if not self.nodes:
            return self.pod_sets
        return tuple(_on_nodes(pods, self.nodes.get(pods.name)) for pods in self.pod_sets)


def _on_nodes(pods: PodSet, nodes: FlavorNodes | None) -> PodSet:
    if nodes is None:
        return pods
    labels, tolerations = pods.rules.node_labels | nodes.labels, (*pods.rules.tolerations, *nodes.tolerations)
    return replace(pods, rules=replace(pods.rules, node_labels=labels, tolerations=tolerations))


class Hold(Struct):
    """Places held for pods of an admitted gang that have not come yet."""

    ref: Ref
    attempt: int
    until: int
    cause: Cause
    places: dict[str, str] = field(default_factory=dict)
    """Key of the occupant that keeps a place -> pod set."""
    held: int = 0
    """The number of keys used so far."""


class Keeper(Struct):
    """A pod that keeps a GPU device from the device plugin, for the pods of a group."""

    ref: Ref
    node: str
    group: str
    cause: Cause
    over: bool = False
    ended: bool = False
    """The keeper is being deleted."""


class NodesOrder(Struct):
    """The victims of a job, and the places kept for the job."""

    places: tuple[Placement, ...]
    """Empty where the places are unknown: nodes may be added for the job, or a victim stays."""
    until: int
    """Log time (ms) until which the places are kept, once the order is not open and all victims have left."""
    leaving: dict[str, list[str]]
    """uid of a victim without a new admission -> keys of its occupants on the nodes; with victims of other orders on
    the nodes of these places
    """
    going: dict[str, None]
    """uids of victims that are still charged"""
    frees: dict[str, list[int]] = field(default_factory=dict)
    """node -> GPU devices with shares of the victims"""
    open: bool = False
    """The job does not have the quota claimed together with the places."""
    claims: str = ""
    """The queue whose quota the job waits for: the order is kept until the claim ends, with or without places."""
    of_move: bool = False
    """The order moves other jobs: each moved job has own kept places."""
    moved: str = ""
    """For the order of a moved job: the job's request at the time of the order."""
    growth: GrowthOption | None = None
    """The replicas asked for by a running Ray cluster as claimant: the places are for these replicas."""
    pods: int = 0
    """The number of pods of the replicas."""


class AdmitterState(StageState):
    """Reservations by workload uid, nodes, pods, and held places."""

    reservations: dict[str, Reservation] = field(default_factory=dict)
    admitted: dict[str, int] = field(default_factory=dict)
    """uid -> attempt of an admitted workload that is still charged"""
    whole: dict[str, None] = field(default_factory=dict)
    """uids of admitted workloads with a place for every pod needed."""
    placement: PlacementChosen = field(default_factory=lambda: PlacementChosen(mode="off"))
    ledger: NodeLedger = field(default_factory=NodeLedger)
    gangs: dict[str, Gang] = field(default_factory=dict)
    queued: dict[str, QueuedAs] = field(default_factory=dict)
    """uid of a job -> terms of its newest attempt, from the queueing until the attempt is over"""
    owners: dict[str, str] = field(default_factory=dict)
    """uid of a child -> uid of the workload that runs through the child"""
    holds: dict[str, Hold] = field(default_factory=dict)
    ends: DueTimes = field(default_factory=DueTimes)
    """The ends of holds, by workload uid."""
    named: dict[str, str] = field(default_factory=dict)
    """namespace/name of a workload with held places -> uid"""
    waits: dict[str, Claimant] = field(default_factory=dict)
    """By uid of the workload."""
    starts: Starts = field(default_factory=Starts)
    aged: dict[str, None] = field(default_factory=dict)
    """uids of jobs in ``waits`` that may have aged, as of the last look"""
    unplaced: dict[str, Unplaced] = field(default_factory=dict)
    """workload uid -> job that waits for room on the nodes without quota"""
    passed: dict[str, dict[str, Unplaced]] = field(default_factory=dict)
    """workload uid -> {flavors without room: the same, for a job that has been queued under other flavors since}"""
    grow_from: DueTimes = field(default_factory=DueTimes)
    """From when node pools may be asked again for an unplaced job, after nodes of a pool did not come."""
    lines: dict[str, Line] = field(default_factory=dict)
    """request -> unplaced jobs with the request"""
    found: dict[str, tuple[int, bool]] = field(default_factory=dict)
    """uid of a job tried again without an answer yet -> (log time (ms) of the end of its room, whether within a
    guarantee)
    """
    plans: dict[str, PreemptionProposed] = field(default_factory=dict)
    """claimant uid -> a proposal of victims without an answer yet"""
    orders: dict[str, NodesOrder] = field(default_factory=dict)
    """uid of a job -> its victims, and the places kept for the job until its admission"""
    pods: PodGangs = field(default_factory=PodGangs)
    """Pods bound by Muster, and their gangs."""
    quotas: dict[str, None] = field(default_factory=dict)
    """uids of the ElasticQuotaTrees and KAI queues there are"""
    pools: dict[str, NodePool] = field(default_factory=dict)
    """Declared node pools, by name."""
    pools_rv: int = 0
    """resourceVersion of the object with the declaration; 0 without an object."""
    pools_uid: str = ""
    """uid of the object with the declaration."""
    unserved: bool = False
    """The cluster does not serve ProvisioningRequests."""
    keepers: dict[str, Keeper] = field(default_factory=dict)
    """Keeper pods of GPU devices, by uid."""
    in_vain: dict[str, Vain] = field(default_factory=dict)
    """uid of a job, or gang that represents its group -> failed request for nodes."""


def gang_of(workload: Workload) -> Gang:
    return Gang(
        workload.pod_sets,
        workload.auxiliary,
        workload.ref.namespace,
        workload.ref.name,
        workload.topology,
        workload.wishes.hold,
        workload.waits,
    )


# --- held places ------------------------------------------------------------------------------------------------


def hold(state: AdmitterState, event: GangAdmitted, cause: Cause) -> None:
    """Hold the places of an admission for its pods."""
    drop_hold(state, event.ref.uid)
    held = Hold(event.ref, event.attempt, event.held_until, cause)
    hold_places(state, held, event.pod_sets, event.placements)


def hold_places(state: AdmitterState, hold: Hold, pod_sets: Iterable[PodSet], placements: Iterable[Placement]) -> None:
    """Hold these places as well for pods of an admitted workload."""
    uid, sets = hold.ref.uid, {pods.name: pods for pods in pod_sets}
    for place in placements:
        pods = sets[place.pod_set]
        request = pods.request if pods.takes is None else pods.takes
        key = f"{uid}/{hold.held}"  # see holder_of
        hold.held += 1
        hold.places[key] = place.pod_set
        devices = list(place.devices)
        groups = list(place.groups)
        occupant = Occupant(
            place.node, hold.ref.namespace, request, place.count, pods.rules, devices, passing=True, groups=groups
        )
        state.ledger.settle(key, occupant)
    if hold.places:
        state.holds[uid] = hold
        state.ends.put(uid, hold.until)
        state.named[hold.ref.key] = uid


def holder_of(state: AdmitterState, key: str) -> str:
    """The uid of the workload for which an occupant holds a place; empty for any other occupant."""
    uid = key.rpartition("/")[0]
    return uid if uid in state.holds and key in state.holds[uid].places else ""


def drop_hold(state: AdmitterState, uid: str) -> None:
    """Release everything still held for a workload."""
    hold = state.holds.pop(uid, None)
    if hold is None:
        return
    state.ends.put(uid, 0)
    for key in hold.places:
        state.ledger.evict(key)
    if state.named.get(hold.ref.key) == uid:
        del state.named[hold.ref.key]


def due_places(state: AdmitterState, hold: Hold) -> Iterator[tuple[str, bool]]:
    """(key of a held place to release, whether the node is gone)."""
    for key in hold.places:
        node = state.ledger.nodes[state.ledger.occupants[key].node]
        if hold.until <= state.now or not node.uid:
            yield key, not node.uid


def give_back(state: AdmitterState, event: PlacesReleased) -> None:
    """Release places of a hold: as many of each set and node as decided, if still held."""
    hold = state.holds.get(event.ref.uid)
    if hold is None or hold.attempt != event.attempt:
        return
    for place in event.placements:
        for _ in range(place.count):
            key = next((key for key, name in hold.places.items() if _is(state, key, name, place)), None)
            if key is not None:
                _take(state, hold, key)


def _is(state: AdmitterState, key: str, name: str, place: Placement) -> bool:
    return name == place.pod_set and state.ledger.occupants[key].node == place.node


def _take(state: AdmitterState, hold: Hold, key: str) -> None:
    """A place held under a key is held no more."""
    state.ledger.thin(key)
    if key not in state.ledger.occupants:
        del hold.places[key]
        if not hold.places:
            drop_hold(state, hold.ref.uid)


# --- pods -------------------------------------------------------------------------------------------------------


def pod_observed(state: AdmitterState, at: Position, event: PodObserved) -> None:
    """A pod takes room on its node, in exchange for the place held for the pod."""
    pod = event.pod
    uid = pod.ref.uid
    if pod.scheduler or uid in state.pods.gang_of:
        podgangs.pod_observed(state.pods, at, pod)
        if pod.ours:
            state.ledger.learn(pod.rules)
    if pod.over or not pod.node:
        if uid not in state.pods.placed:
            state.ledger.evict(uid)
        return
    rules = replace(pod.rules, labels=pod.labels)
    known = state.ledger.occupants.get(uid)
    if known is None:
        arrived(state, pod)
    if known is None or (known.node, known.request, known.rules) != (pod.node, pod.request, rules):
        here = known is not None and known.node == pod.node
        passing = bool(pod.owner_uid) or pod.ours or bool(pod.keeps)
        devices = list(pod.devices) or (known.devices if known is not None and here else [])
        groups = list(pod.groups) or (known.groups if known is not None and here else [])
        request = {name: amount for name, amount in pod.request.items() if not pod.keeps or name != GPU}
        occupant = Occupant(
            pod.node, pod.ref.namespace, request, 1, rules, devices, passing=passing, groups=groups, keeps=pod.keeps
        )
        occupant.owner = workload_of(state, pod)
        state.ledger.settle(uid, occupant)


def workload_of(state: AdmitterState, pod: PodState) -> str:
    """Uid of the workload of a pod, by the pod's owner or job name; the uid of an unknown owner, empty without an
    owner.
    """
    uid = state.owners.get(pod.owner_uid, pod.owner_uid)
    job = pod.labels.get("batch.kubernetes.io/job-name") or pod.labels.get("job-name", "")
    return state.named.get(f"{pod.ref.namespace}/{job}", uid) if uid not in state.holds and job else uid


def hold_of(state: AdmitterState, pod: PodState) -> tuple[Hold | None, str]:
    """The hold for the job of a pod, or None, and the pod set of the pod."""
    job = pod.labels.get("batch.kubernetes.io/job-name") or pod.labels.get("job-name", "")
    uid = state.owners.get(pod.owner_uid, pod.owner_uid)
    name = member_of(pod)
    if uid not in state.holds and job:
        uid, name = state.named.get(f"{pod.ref.namespace}/{job}", ""), "submitter"
    return state.holds.get(uid), name


def arrived(state: AdmitterState, pod: PodState) -> None:
    """A pod of a gang has come: release a place held for its set, on the pod's node if possible."""
    hold, name = hold_of(state, pod) if state.holds else (None, "")
    if hold is None:
        return
    keys = [key for key, pod_set in hold.places.items() if pod_set == name]
    if keys:
        here = [key for key in keys if state.ledger.occupants[key].node == pod.node]
        _take(state, hold, (here or keys)[0])


def member_of(pod: PodState) -> str:
    """The pod set of a pod, by the labels of the operators; ``main`` for a batch Job, whose pods are a single set."""
    if is_ray_head(pod.labels):
        return RAY_HEAD
    return next((pod.labels[key].lower() for key in SET_LABELS if pod.labels.get(key)), "main")
