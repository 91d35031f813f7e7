"""The state of the accountant, and its consequences: the leaf of a charge, missing charges, jobs that may be suspended.

``endings`` decides whether a charge is over.

Each function below answers from the current state (level-triggered). The ``due`` dicts name the workloads with a
pending decision, so that ``decide`` does not look at every workload.
"""

from __future__ import annotations

from typing import Literal, assert_never

from msgspec import Struct, field

from muster.core.objects.meta import quota_name
from muster.core.observed.presence import Presence
from muster.core.quota.division.decay import Lately
from muster.core.quota.ledger import standalone
from muster.core.quota.ledger.kaitimes import Members
from muster.core.quota.ledger.quotaledger import Ledger, leaf_of
from muster.core.quota.ledger.running import RunningClusters
from muster.core.quota.ledger.standalone import PodsOpen, StandalonePod
from muster.core.quota.trees.forest import Forest
from muster.core.quota.trees.rules import union
from muster.core.stage import StageState
from muster.events.base import Cause
from muster.events.decisions import Candidate, PreemptionProposed
from muster.events.effects import FailureReason
from muster.events.elastic import GateSet, GrowthDenied, GrowthRequested
from muster.events.facts import ChildObserved
from muster.events.reasons import AdoptionReason
from muster.model.elastic import Counts
from muster.model.keys import Ref
from muster.model.quota import Flavors
from muster.model.resources import Vector
from muster.model.workload import PodState, Workload

Leaving = Literal["", "evicted", "preempted", "timed_out", "stale", "moved", "overuse"]
"""How a charged workload leaves by an order; empty for a workload that stays."""


def for_itself(leaving: Leaving) -> bool:
    """Whether the order to leave names no claimant: such an order is repeated after a refusal, ever later."""
    match leaving:
        case "timed_out" | "stale" | "overuse":
            return True
        case "" | "evicted" | "preempted" | "moved":
            return False
    assert_never(leaving)


class Entry(Struct):
    """One charge: the workload, the cause, and the progress of the workload."""

    ref: Ref
    attempt: int
    queue: str
    request: Vector
    cause: Cause
    """The newest event that changed the entry."""
    resumed_rv: int = 0
    """resourceVersion at which the workload was known to be resumed; 0 while suspended."""
    admitted: bool = False
    """The actuator has the order to resume the workload, and will report an effect."""
    failed: FailureReason | None = None
    deferred: bool = False
    """The gang admitter found no place for the gang."""
    flavors: Flavors = field(default_factory=dict)
    """The flavors of its pod sets, where the tree tells types of nodes apart."""
    child: str = ""
    """Name of the child in the status of the workload."""
    guarded: bool = False
    """The workload has the finalizer of its controller, or had it when the workload was deleted."""
    suspension_recorded: bool = False
    acted: bool = False
    """The controller was seen to act on the newest resume: a later status at rest proves an end."""
    made: bool = False
    """Pods were seen after the newest resume: once the workload is over and they are gone, nothing runs any more."""
    since: int = 0
    """Log time of the resume; 0 while suspended."""
    ran: bool = False
    """The workload has been seen running."""
    lacks_since: int = 0
    """Log time since when the workload has lacked pods that its controller is to make; 0 without a lack."""
    small_since: int = 0
    """Log time since when the workload has lacked pods that it does not run without; 0 without such a lack."""
    podless_since: int = 0
    """Log time since when the workload has lacked all pods; 0 with a pod."""
    looks: int = 0
    """The looks for a refusal of the pods that were ordered since then."""
    refused: bool = False
    """The newest answer was a refusal."""
    succeeded: bool = False
    """A pod has succeeded: the workload may be about to end."""
    pods: int = 0
    """The granted pods, where the tree counts machines."""
    aside: Vector = field(default_factory=dict)
    """Running amounts beside the charged spec, not counted."""
    helpers: Vector = field(default_factory=dict)
    """The request of the pods that the controller adds beside the gang (a submitter): these pods end first."""
    groups: Counts = field(default_factory=dict)
    """For a Ray cluster that scales itself: the granted replicas of each worker group."""
    fixed: Counts = field(default_factory=dict)
    """For a Ray cluster charged with a fixed size: its pods by worker group."""
    upgrading: str = ""
    """A RayService is granted a new cluster beside the serving one: the uid of the new cluster."""
    outgoing: Vector = field(default_factory=dict)
    """The grant of the cluster that ends with the upgrade."""
    incoming: Vector = field(default_factory=dict)
    """The grant of the new cluster, as it began."""
    outgoing_pods: int = 0
    cut: Counts = field(default_factory=dict)
    """For a cluster under an order to release workers: the workers left in these groups; else empty."""
    leaving: Leaving = ""
    """Why the workload has an order to be suspended; empty without an order."""
    suspended_rv: int = 0
    """resourceVersion of the suspension; 0 before."""
    suspended_at: int = 0
    """Log time (ms) of the suspension."""
    ends_by: int = 0
    """Log time (ms) until which a claimant waits for the end of the workload, without a suspension; 0: suspend."""
    whole: bool = False
    """Every pod set has had all needed pods at one time."""
    short_since: int = 0
    """Log time since when a gang that was whole lacks pods; 0 without a lack."""
    together: int = 0
    """The number of pods that kube-scheduler must place together; 0 where no PodGroup of this attempt was seen."""
    unbound_since: int = 0
    """Log time since when fewer than ``together`` pods have a node, or no pod has a node after running; 0 without a
    lack.
    """
    bypassed: bool = False
    """The workload was started without an admission."""
    over_since: int = 0
    """Log time since when the workload uses more than admitted; 0 within the admission."""
    reduced_at: int = 0
    """Log time at which the workers beyond the grant were ordered back; 0 within the admission."""
    refusals: int = 0
    """The refused orders to suspend the workload for no claimant."""
    spared_until: int = 0
    """Log time (ms) until which no new order is made."""
    idle_since: int = 0
    """Log time since when nothing of the workload was seen, while its end is not certain; 0 for a certain end, or for a
    workload in sight.
    """

    @property
    def suspension(self) -> Leaving:
        """The reason of a suspension; empty for a workload that may stay, or is left to end by itself."""
        return "" if self.ends_by else self.leaving


class Plan(Struct):
    """An unanswered proposal to suspend others for a claimant."""

    proposed: PreemptionProposed
    cause: Cause


class Proposal(Struct):
    """An unanswered candidate."""

    candidate: Candidate
    cause: Cause


class OpenGrowth(Struct):
    """A request of a Ray cluster that scales itself for more than its grant."""

    asked: GrowthRequested
    cause: Cause
    denied: GrowthDenied | None = None
    """The last denial."""


class Return(Struct):
    """The workers that a cluster releases after a lower ``maxReplicas``."""

    ordered: GateSet
    cause: Cause
    """The order, then the effect."""
    done: bool = False


class Judged(Struct, frozen=True):
    """The verdict of kube-scheduler on the PodGroup of a job."""

    uid: str
    owner: str
    """Uid of the job named as owner."""
    attempt: int
    """The attempt of the job for which the PodGroup was made."""
    lacks_since: int
    """Log time since when the gang has no places; 0 with places, or without a verdict."""
    text: str
    minimum: int = 0
    """The number of pods that start together."""


class AccountantState(StageState):
    """The ledger, the workloads that may need a charge, and the due decisions."""

    ledger: Ledger = field(default_factory=Ledger)
    forest: Forest = field(default_factory=Forest)
    """The observed objects of every quota API, and the resulting trees."""
    workloads: dict[str, Workload] = field(default_factory=dict)
    causes: dict[str, Cause] = field(default_factory=dict)
    """workload uid -> the newest fact about the workload."""
    presence: Presence = field(default_factory=Presence)
    scaling: RunningClusters = field(default_factory=RunningClusters)
    opened: dict[str, str] = field(default_factory=dict)
    """uid of the granted new cluster of an upgrade -> uid of the RayService, until the cluster starts or is gone"""
    members: Members = field(default_factory=Members)
    """Pods with a node."""
    standalone: dict[str, StandalonePod] = field(default_factory=dict)
    """By uid: pods of no job with a node, or waiting for a node from Muster."""
    sharing: dict[str, PodState] = field(default_factory=dict)
    """By uid: pods that share GPUs, as observed."""
    sharing_on: dict[str, dict[str, None]] = field(default_factory=dict)
    """Name of a node -> uids of its pods that share GPUs by an amount of memory"""
    sharing_children: dict[str, ChildObserved] = field(default_factory=dict)
    """By uid: children whose pods ask for amounts of GPU memory."""
    orphans: dict[str, PodState] = field(default_factory=dict)
    """By uid: pods without an owner that count with their former job while the job is there."""
    asks: dict[str, PodsOpen] = field(default_factory=dict)
    asked_by: dict[str, str] = field(default_factory=dict)
    """key of a proposal of pods -> the open rest of the proposal; uid of a pod -> the key of the proposal that names
    the pod
    """
    last_child: dict[str, str] = field(default_factory=dict)
    """workload uid -> name of the last child seen"""
    entries: dict[str, Entry] = field(default_factory=dict)
    untold: dict[str, None] = field(default_factory=dict)
    """queues whose shares may differ from the last event"""
    told_shares: dict[str, Vector] = field(default_factory=dict)
    """path -> the fair share in the last event, if any"""
    lately: dict[str, Lately] = field(default_factory=dict)
    """root of a tree in which past usage counts -> the usage of its queues"""
    weighed: dict[str, dict[str, Vector]] = field(default_factory=dict)
    """root -> path -> the weighed usage, in millionths of the capacity"""
    proposals: dict[str, Proposal] = field(default_factory=dict)
    places: bool = False
    """Gangs are placed on nodes: a plan may make room on nodes alone."""
    native_grow_ms: int = 0
    """How long a gang keeps its quota after kube-scheduler reports no places."""
    native_hold_ms: int = 600_000
    """How long a gang without nodes for all pods keeps its quota, without such a report."""
    judged: dict[str, Judged] = field(default_factory=dict)
    """namespace/name of a PodGroup made for a job -> the last verdict of kube-scheduler"""
    plans: dict[str, Plan] = field(default_factory=dict)
    """claimant uid -> the proposal for the claimant"""
    claim_causes: dict[str, Cause] = field(default_factory=dict)
    """claimant uid -> the event that opened the claim"""
    paused: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    """uid of a Queue object with a pause -> (quota path, paused actions)"""
    evictions: dict[str, int] = field(default_factory=dict)
    """workload uid -> number of suspensions for other workloads"""
    priorities: dict[str, int] = field(default_factory=dict)
    """workload uid -> priority in its last queueing"""
    due_release: dict[str, None] = field(default_factory=dict)
    due_adoption: dict[str, None] = field(default_factory=dict)
    due_move: dict[str, None] = field(default_factory=dict)
    due_suspension: dict[str, None] = field(default_factory=dict)
    growths: dict[str, OpenGrowth] = field(default_factory=dict)
    """workload uid -> the request of its Ray cluster"""
    returns: dict[str, Return] = field(default_factory=dict)
    """workload uid -> the workers to be released by its Ray cluster"""
    due_change: dict[str, None] = field(default_factory=dict)
    """Charged workloads whose running work is more or less than the charge."""
    due_end: dict[str, None] = field(default_factory=dict)
    """Claimants whose claim has lost its reason."""
    due_stay: dict[str, None] = field(default_factory=dict)
    """Victims of a claim that run on without a suspension."""
    overuse: dict[str, int] = field(default_factory=dict)
    """workload uid -> log time of the suspension while the quota is above its max"""
    overdue: dict[str, int] = field(default_factory=dict)
    """uid of a suspended victim that has not left -> log time (ms) from which no claim waits for the victim"""
    deadlines: dict[str, int] = field(default_factory=dict)
    """workload uid -> log time at which the workload's end counts as certain."""

    def resting(self, queue: str) -> tuple[str, ...]:
        """The paused actions of a queue, by the tree or any Queue object: ``admissions``, ``evictions``."""
        mine = (parts for path, parts in self.paused.values() if path == queue) if self.paused else ()
        return union(self.ledger.rules_of(queue).paused, *mine)


def home_of(state: AccountantState, uid: str) -> tuple[str, str]:
    """(the leaf of a charged workload, the quota named by its label); empty texts where no queue claims the
    workload.
    """
    workload, pod = state.workloads.get(uid), state.standalone.get(uid)
    if workload is not None:
        return leaf_of(state.ledger, workload) or "", quota_name(workload.labels)
    return (standalone.leaf_of(state.ledger, pod) or "", pod.named) if pod is not None else ("", "")


def moved(state: AccountantState, entry: Entry) -> bool:
    """Whether a charge belongs to another leaf now."""
    return home_of(state, entry.ref.uid)[0] not in ("", entry.queue)


def must_move(state: AccountantState, entry: Entry) -> bool:
    """Whether a charge moves to another leaf. A reservation without an admission is released instead."""
    lets_go = not entry.admitted and not entry.resumed_rv and entry.ref.uid not in state.standalone
    return not lets_go and moved(state, entry)


def adopting_leaf(state: AccountantState, workload: Workload) -> str:
    """The leaf charged for work without an admission, so that no running work is free: its own leaf, or else the leaf
    of its namespace, or else "".
    """
    return leaf_of(state.ledger, workload) or state.ledger.leaf_of.get(workload.ref.namespace, "")


def adoption_reason(state: AccountantState, workload: Workload) -> AdoptionReason:
    """Why the workload runs without an admission."""
    if workload.ref.uid not in state.ledger.attempts:
        return "already_running"
    return "not_stopped" if workload.suspended else "bypassed"


def must_adopt(state: AccountantState, workload: Workload) -> bool:
    """Whether a workload of a queue runs without a charge."""
    if workload.ref.uid in state.entries:
        return False
    runs = (workload.phase in ("starting", "running") and not workload.deleting) or state.presence.occupies(
        workload.ref.uid
    )
    return runs and bool(adopting_leaf(state, workload))


def evictable(state: AccountantState, uid: str, attempt: int) -> bool:
    """Whether a charged workload may be suspended for another: the workload has run long enough, and its controller can
    suspend. A pod of no job can be evicted.
    """
    entry, workload = state.entries.get(uid), state.workloads.get(uid)
    stops = can_suspend(workload) if workload is not None else uid in state.standalone and state.standalone[uid].bound
    if entry is None or not stops or entry.attempt != attempt or entry.leaving or entry.cut:
        return False
    if state.ledger.tree_of(entry.queue) is None:
        return False
    rules = state.ledger.rules_of(entry.queue)
    return (
        entry.resumed_rv > 0
        and state.now - entry.since >= rules.least_run_ms(state.evictions.get(uid, 0))
        and state.ledger.charges[uid].preemptible
        and "evictions" not in state.resting(entry.queue)
    )


def can_suspend(workload: Workload) -> bool:
    """Whether the controller would suspend the workload now."""
    runs = not workload.suspended and workload.phase in ("starting", "running")
    return runs and not (workload.busy or workload.refusal is not None or workload.deleting)
