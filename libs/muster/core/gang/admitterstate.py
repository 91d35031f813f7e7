"""What the gang admitter keeps: reservations to be admitted, the nodes, and the places held for admitted gangs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from muster.core.gang import podgangs
from muster.core.gang.podgangs import Claimant, PodGangs
from muster.core.gang.queued import QueuedAs
from muster.core.objects.meta import RAY_GROUP, RAY_HEAD, is_ray_head
from muster.core.placement.nodeledger import NodeLedger, Occupant
from muster.core.stage import DueTimes, StageState
from muster.events.base import Cause
from muster.events.claims import PlanTried
from muster.events.decisions import GangAdmitted, PlacesReleased, PreemptionProposed
from muster.events.elastic import GrowthOption
from muster.events.facts import PodObserved
from muster.events.system import PlacementChosen
from muster.model.keys import Position, Ref
from muster.model.places import Placement, Shortage
from muster.model.placing import GPU, Topology
from muster.model.pools import Growth, NodePool
from muster.model.workload import SPARK_ROLE, PodSet, PodState, Workload

SET_LABELS = (
    RAY_GROUP,
    "training.kubeflow.org/replica-type",
    "training.kubeflow.org/job-role",
    SPARK_ROLE,
)
"""Labels by which operators say which set of its job a pod is of."""


KEPT_MS = 10 * 60_000
"""How long room is kept for a job since the last of its victims has left."""


class Reservation(Struct):
    """Reserved quota that has not become an admission yet."""

    ref: Ref
    attempt: int
    queue: str
    basis: str
    cause: Cause
    shortage: Shortage | None = None
    """Why it had no place when that was said last."""
    until: int = 0
    """Log time until which it waits for nodes; 0 while that is not decided."""
    told: int = 0
    """Log time at which it was said last why it waits."""
    deferred: bool = False
    """It is decided that it releases its quota."""
    owed: bool = False
    """It is guaranteed what it asks for."""
    in_vain: bool = False
    """The nodes that it waited for did not come."""
    growth: Growth | None = None
    """The nodes that it waits for."""
    room_until: int = 0
    """Work was suspended so that it is admitted: log time (ms) until which devices may still be kept for that work."""


class LinePlace(NamedTuple):
    """The place of a job among those that wait for nodes; the smallest is tried first."""

    borrows: bool
    """It is not guaranteed what it asks for."""
    below: int
    """Its priority, negated."""
    rank: int
    """ms since the epoch: its place in its queue."""
    key: str
    uid: str


class Line(Struct):
    """The jobs of one request that wait for nodes."""

    places: list[LinePlace] = field(default_factory=list)
    """In order."""
    sought: str = ""
    """Its pods that are hardest to place, by the name the ledger has for them; empty: it has none."""
    pods: int = 0
    """How many those are."""


class Unplaced(Struct):
    """A job that released its quota for want of room on the nodes."""

    ref: Ref
    attempt: int
    cause: Cause
    key: str = ""
    """What it asks for: its line."""
    place: LinePlace = LinePlace(False, 0, 0, "", "")
    owed: bool = False
    """It was guaranteed what it asks for when it released its quota."""


class Vain(Struct):
    """A request for nodes that failed: they are not asked for again until then."""

    until: int
    pools: dict[str, int] = field(default_factory=dict)


class Gang(Struct):
    """The pods of a workload, as it was observed last."""

    pod_sets: tuple[PodSet, ...]
    auxiliary: tuple[PodSet, ...]
    namespace: str
    name: str
    topology: Topology = Topology()
    held: bool = False
    """It is on hold: it is not admitted, and its reservation is about to be released."""
    waits: bool = True
    """It is suspended and asks to run."""
    placement: str = ""
    """How its queue wants its pods laid out on nodes, as was said last (``QueuedAs``); empty: as everything else."""


class Hold(Struct):
    """Places held for the pods of an admitted gang that have not come yet."""

    ref: Ref
    attempt: int
    until: int
    cause: Cause
    places: dict[str, str] = field(default_factory=dict)
    """Key of the occupant that keeps a place -> its pod set."""
    held: int = 0
    """How many keys it has had."""


class Keeper(Struct):
    """A pod that keeps a GPU device from the device plugin, for the pods of a group."""

    ref: Ref
    node: str
    group: str
    cause: Cause
    over: bool = False
    ended: bool = False
    """It is being deleted."""


class PlanToTry(Struct):
    """The proposed victims of a claimant; not ordered yet."""

    proposed: PreemptionProposed
    cause: Cause
    tried: PlanTried | None = None


class NodesOrder(Struct):
    """The victims of a job, and the places that are kept for it."""

    places: tuple[Placement, ...]
    """Empty where they are not known: nodes may be added for it, or a victim stays."""
    until: int
    """Log time (ms) until which they are kept, once the order is not open and no victim leaves any more."""
    leaving: dict[str, list[str]]
    """uid of a victim that has not been admitted again -> keys of its occupants on the nodes; also those of another
    order, where they are on nodes of these places"""
    going: dict[str, None]
    """uids of those that are still charged"""
    frees: dict[str, list[int]] = field(default_factory=dict)
    """node -> its GPU devices of which the victims have shares"""
    open: bool = False
    """The job does not have the quota that is claimed with its places."""
    claims: str = ""
    """The queue of which it waits for quota: the order is kept until that claim ends, with places or without."""
    of_move: bool = False
    """Others are moved for it: they have their places kept, too, and each takes its own."""
    moved: str = ""
    """Of one of those, which runs, or is on its way: what it asked of the nodes when that was ordered."""
    growth: GrowthOption | None = None
    """The replicas that it is about, where the claimant is a Ray cluster that runs: the places are theirs."""
    pods: int = 0
    """How many pods those are."""


class AdmitterState(StageState):
    """Reservations to be admitted, by workload uid; nodes, pods, and held places."""

    reservations: dict[str, Reservation] = field(default_factory=dict)
    admitted: dict[str, int] = field(default_factory=dict)
    """uid -> attempt of the workload that is admitted and still charged"""
    whole: dict[str, None] = field(default_factory=dict)
    """Those of them that were admitted with a place for every pod they need."""
    placement: PlacementChosen = field(default_factory=lambda: PlacementChosen(mode="off"))
    ledger: NodeLedger = field(default_factory=NodeLedger)
    gangs: dict[str, Gang] = field(default_factory=dict)
    queued: dict[str, QueuedAs] = field(default_factory=dict)
    """uid of a job -> as it was queued last, from then until that attempt is over"""
    owners: dict[str, str] = field(default_factory=dict)
    """uid of a child -> uid of the workload that runs through it"""
    holds: dict[str, Hold] = field(default_factory=dict)
    ends: DueTimes = field(default_factory=DueTimes)
    """When they end, by uid of the workload"""
    named: dict[str, str] = field(default_factory=dict)
    """namespace/name of a workload that holds places -> its uid"""
    waits: dict[str, Claimant] = field(default_factory=dict)
    """By uid of the workload."""
    unplaced: dict[str, Unplaced] = field(default_factory=dict)
    """By uid of the workload: the jobs that wait for room on the nodes, and hold no quota"""
    grow_from: DueTimes = field(default_factory=DueTimes)
    """From when node pools may be asked for one of them again, where nodes of a pool did not come."""
    lines: dict[str, Line] = field(default_factory=dict)
    """request -> the jobs of it"""
    found: dict[str, tuple[int, bool]] = field(default_factory=dict)
    """uid of a job that is tried again and has no answer yet -> (log time (ms) of its end, whether it is guaranteed)"""
    plans: dict[str, PlanToTry] = field(default_factory=dict)
    """claimant uid -> a proposal to suspend jobs for it that has no answer yet"""
    orders: dict[str, NodesOrder] = field(default_factory=dict)
    """uid of a job -> its victims, and the places that are kept for it until it is admitted"""
    pods: PodGangs = field(default_factory=PodGangs)
    """Pods that we bind ourselves, and their gangs"""
    quotas: dict[str, None] = field(default_factory=dict)
    """uids of the ElasticQuotaTrees and KAI queues there are"""
    pools: dict[str, NodePool] = field(default_factory=dict)
    """Node pools that are declared, by name."""
    pools_rv: int = 0
    """resourceVersion of the object that declares them; 0 where none does."""
    pools_uid: str = ""
    """Of the object that declares them."""
    unserved: bool = False
    """The cluster knows no objects that ask for nodes."""
    keepers: dict[str, Keeper] = field(default_factory=dict)
    """Pods that keep GPU devices from the device plugin, by uid."""
    in_vain: dict[str, Vain] = field(default_factory=dict)
    """uid of a job, or gang that represents its group -> which nodes did not come."""


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
    found = Hold(event.ref, event.attempt, event.held_until, cause)
    hold_places(state, found, event.pod_sets, event.placements)


def hold_places(state: AdmitterState, found: Hold, pod_sets: Iterable[PodSet], placements: Iterable[Placement]) -> None:
    """Hold these places as well for pods of an admitted workload."""
    uid, sets = found.ref.uid, {pods.name: pods for pods in pod_sets}
    for place in placements:
        pods = sets[place.pod_set]
        request = pods.request if pods.takes is None else pods.takes
        key = f"{uid}/{found.held}"  # see holder_of
        found.held += 1
        found.places[key] = place.pod_set
        devices = list(place.devices)
        groups = list(place.groups)
        occupant = Occupant(
            place.node, found.ref.namespace, request, place.count, pods.rules, devices, passing=True, groups=groups
        )
        state.ledger.settle(key, occupant)
    if found.places:
        state.holds[uid] = found
        state.ends.put(uid, found.until)
        state.named[found.ref.key] = uid


def holder_of(state: AdmitterState, key: str) -> str:
    """The uid of the workload for whose pods an occupant holds a place; empty where it is none."""
    uid = key.rpartition("/")[0]
    return uid if uid in state.holds and key in state.holds[uid].places else ""


def drop_hold(state: AdmitterState, uid: str) -> None:
    """Release everything still held for a workload."""
    found = state.holds.pop(uid, None)
    if found is None:
        return
    state.ends.put(uid, 0)
    for key in found.places:
        state.ledger.evict(key)
    if state.named.get(found.ref.key) == uid:
        del state.named[found.ref.key]


def due_places(state: AdmitterState, found: Hold) -> Iterator[tuple[str, bool]]:
    """Keys of held places that must be released, and whether for a gone node."""
    for key in found.places:
        node = state.ledger.nodes[state.ledger.occupants[key].node]
        if found.until <= state.now or not node.uid:
            yield key, not node.uid


def give_back(state: AdmitterState, event: PlacesReleased) -> None:
    """Places are released: as many of each set and node as the decision says, if they are still held."""
    found = state.holds.get(event.ref.uid)
    if found is None or found.attempt != event.attempt:
        return
    for place in event.placements:
        for _ in range(place.count):
            key = next((key for key, name in found.places.items() if _is(state, key, name, place)), None)
            if key is not None:
                _take(state, found, key)


def _is(state: AdmitterState, key: str, name: str, place: Placement) -> bool:
    return name == place.pod_set and state.ledger.occupants[key].node == place.node


def _take(state: AdmitterState, found: Hold, key: str) -> None:
    """One of the places held under a key is held no more."""
    state.ledger.thin(key)
    if key not in state.ledger.occupants:
        del found.places[key]
        if not found.places:
            drop_hold(state, found.ref.uid)


# --- pods -------------------------------------------------------------------------------------------------------


def pod_observed(state: AdmitterState, at: Position, event: PodObserved) -> None:
    """A pod takes its room on its node, and the place that was held for it becomes its own."""
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
    """Uid of the workload that a pod is of, as far as its owner or its name tells; empty for a pod of none."""
    uid = state.owners.get(pod.owner_uid, pod.owner_uid)
    job = pod.labels.get("batch.kubernetes.io/job-name") or pod.labels.get("job-name", "")
    return state.named.get(f"{pod.ref.namespace}/{job}", uid) if uid not in state.holds and job else uid


def hold_of(state: AdmitterState, pod: PodState) -> tuple[Hold | None, str]:
    """The places that are held for a pod's job, if there are any, and which set of it the pod is of."""
    job = pod.labels.get("batch.kubernetes.io/job-name") or pod.labels.get("job-name", "")
    uid = state.owners.get(pod.owner_uid, pod.owner_uid)
    name = member_of(pod)
    if uid not in state.holds and job:
        uid, name = state.named.get(f"{pod.ref.namespace}/{job}", ""), "submitter"
    return state.holds.get(uid), name


def arrived(state: AdmitterState, pod: PodState) -> None:
    """A pod of a gang has come: of the places held for its set one is given up, on its own node if there is one."""
    found, name = hold_of(state, pod) if state.holds else (None, "")
    if found is None:
        return
    keys = [key for key, each in found.places.items() if each == name]
    if keys:
        here = [key for key in keys if state.ledger.occupants[key].node == pod.node]
        _take(state, found, (here or keys)[0])


def member_of(pod: PodState) -> str:
    """Which set of its gang a pod belongs to, as the operators of the kinds say; a batch Job has one set only."""
    if is_ray_head(pod.labels):
        return RAY_HEAD
    return next((pod.labels[key].lower() for key in SET_LABELS if pod.labels.get(key)), "main")
