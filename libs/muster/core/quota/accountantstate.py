"""What the accountant knows, and what follows from it: where a charge belongs, which are missing, which job may leave.

``endings`` says which charges are over.

Every question below is answered from the state as it is (level-triggered); the ``due`` dicts only remember which
workloads have an answer that asks for a decision, so that ``decide`` does not look at all of them.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from muster.core.objects.meta import quota_name
from muster.core.observed.presence import Presence
from muster.core.quota.division.decay import Lately
from muster.core.quota.ledger import standalone
from muster.core.quota.ledger.kaitimes import Members
from muster.core.quota.ledger.quotaledger import Ledger, leaf_of
from muster.core.quota.ledger.running import RunningClusters
from muster.core.quota.ledger.standalone import PodsOpen, StandalonePod
from muster.core.quota.service import Service
from muster.core.quota.trees.forest import Forest
from muster.core.quota.trees.rules import union
from muster.core.stage import StageState
from muster.events.base import Cause
from muster.events.claims import PlanTried
from muster.events.decisions import Candidate, PreemptionProposed
from muster.events.effects import FailureReason
from muster.events.elastic import GateSet, GrowthDenied, GrowthRequested
from muster.events.reasons import AdoptionReason
from muster.model.elastic import Counts
from muster.model.keys import Ref
from muster.model.resources import Vector
from muster.model.workload import Workload

Leaving = Literal["", "evicted", "preempted", "timed_out", "stale", "moved", "overuse"]


class Entry(Struct):
    """One charge: for which workload, since which decision, and how far the workload has come."""

    ref: Ref
    attempt: int
    queue: str
    request: Vector
    cause: Cause
    """The newest event that changed it."""
    resumed_rv: int = 0
    """resourceVersion at which it was known to be resumed; 0 while it is not."""
    admitted: bool = False
    """The actuator has the order to resume it, and will report an effect."""
    failed: FailureReason | None = None
    deferred: bool = False
    """The gang admitter found no place for it."""
    child: str = ""
    """Name of the child the workload's status names."""
    suspension_recorded: bool = False
    acted: bool = False
    """Its controller was seen to act on the newest resume: a status at rest that comes after that proves an end."""
    since: int = 0
    """Log time at which it was resumed; 0 while it is not."""
    ran: bool = False
    """It has been seen running."""
    pods: int = 0
    """How many were granted, where the tree counts machines."""
    aside: Vector = field(default_factory=dict)
    """What runs of it by the spec it was charged for, and is not counted."""
    groups: Counts = field(default_factory=dict)
    """Of a Ray cluster that scales itself: the replicas that are granted to each worker group."""
    fixed: Counts = field(default_factory=dict)
    """Of a Ray cluster that was charged with a fixed size: its pods by worker group."""
    cut: Counts = field(default_factory=dict)
    """Where it is to release workers: the workers that these groups are left with; empty when it is not."""
    leaving: Leaving = ""
    """Why it has been ordered to be suspended; empty while it may stay."""
    suspended_rv: int = 0
    """resourceVersion at which the order was carried out; 0 before."""
    suspended_at: int = 0
    """Log time (ms) of that."""
    ends_by: int = 0
    """Log time (ms) until which a claimant waits for its end, and it is not suspended; 0: it is."""
    whole: bool = False
    """Every set of it has had the pods that it needs, at one time."""
    short_since: int = 0
    """Log time since when it has less than that, of a gang that was whole; 0 while it has not."""
    together: int = 0
    """How many of its pods kube-scheduler is to place together; 0 where no PodGroup of this attempt was seen."""
    unbound_since: int = 0
    """Log time since when fewer than that have a node, or none once it has run; 0 while as many have."""
    bypassed: bool = False
    """It was started without an admission."""
    over_since: int = 0
    """Log time since when it uses what it was not admitted with; 0 while it does not."""
    refusals: int = 0
    """How often an order to suspend it, for no claimant, was refused."""
    spared_until: int = 0
    """Log time (ms) until which it is not ordered again."""
    idle_since: int = 0
    """Log time since when nothing of it was seen though its end is not certain; 0 when certain or not idle."""

    @property
    def suspension(self) -> Leaving:
        """Why it is suspended; empty while it may stay, and where it is left to end by itself."""
        return "" if self.ends_by else self.leaving


class Proposal(Struct):
    """An unanswered candidate."""

    candidate: Candidate
    cause: Cause


class Plan(Struct):
    """An unanswered proposal to suspend others for a claimant."""

    proposed: PreemptionProposed
    cause: Cause
    tried: PlanTried | None = None
    """Whether it was found to fit on the nodes, if that is known."""


class OpenGrowth(Struct):
    """A Ray cluster that scales itself wants more than is granted to it."""

    asked: GrowthRequested
    cause: Cause
    denied: GrowthDenied | None = None
    """What refused it last."""


class Return(Struct):
    """The workers that a cluster releases once its ``maxReplicas`` is lowered."""

    ordered: GateSet
    cause: Cause
    """The order, then the effect."""
    done: bool = False


class Judged(Struct, frozen=True):
    """What kube-scheduler says of the PodGroup of a job."""

    uid: str
    owner: str
    """Uid of the job that it names as its owner."""
    attempt: int
    """Of the job that it was made for."""
    lacks_since: int
    """Log time since when there are no places for it; 0 where there are, or nothing is said."""
    text: str
    minimum: int = 0
    """How many of its pods start together."""


class AccountantState(StageState):
    """The ledger, the workloads it may have to charge, and what is due."""

    ledger: Ledger = field(default_factory=Ledger)
    forest: Forest = field(default_factory=Forest)
    """What is observed of every quota API, and the trees it comes to."""
    workloads: dict[str, Workload] = field(default_factory=dict)
    causes: dict[str, Cause] = field(default_factory=dict)
    """workload uid -> the newest fact about it."""
    presence: Presence = field(default_factory=Presence)
    scaling: RunningClusters = field(default_factory=RunningClusters)
    members: Members = field(default_factory=Members)
    """Which pods have a node."""
    standalone: dict[str, StandalonePod] = field(default_factory=dict)
    """By uid: pods of no job that hold a node, or wait for one of us."""
    asks: dict[str, PodsOpen] = field(default_factory=dict)
    asked_by: dict[str, str] = field(default_factory=dict)
    """key of a proposal of pods -> what is left of it; uid of a pod -> the key of the proposal that names it"""
    last_child: dict[str, str] = field(default_factory=dict)
    """workload uid -> name of the child of it seen last"""
    entries: dict[str, Entry] = field(default_factory=dict)
    untold: dict[str, None] = field(default_factory=dict)
    """queues whose shares may be others than the last event has"""
    told_shares: dict[str, Vector] = field(default_factory=dict)
    """path -> the fair share that was said last, where it has one"""
    lately: dict[str, Lately] = field(default_factory=dict)
    """root of a tree in which past usage counts -> what its queues used"""
    weighed: dict[str, dict[str, Vector]] = field(default_factory=dict)
    """root -> path -> the weighed usage, in millionths of the capacity"""
    proposals: dict[str, Proposal] = field(default_factory=dict)
    places: bool = False
    """Gangs are placed on nodes: a plan is answered once it has been tried there."""
    native_grow_ms: int = 0
    """How long a gang keeps its quota that kube-scheduler has no places for."""
    native_hold_ms: int = 600_000
    """How long one keeps it that lacks pods with nodes though kube-scheduler does not say so."""
    judged: dict[str, Judged] = field(default_factory=dict)
    """namespace/name of a PodGroup that was made for a job -> what kube-scheduler said of it last"""
    plans: dict[str, Plan] = field(default_factory=dict)
    """claimant uid -> what is proposed for it"""
    claim_causes: dict[str, Cause] = field(default_factory=dict)
    """claimant uid -> what opened its claim"""
    paused: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    """uid of a Queue object that pauses something -> (its quota path, what rests there)"""
    evictions: dict[str, int] = field(default_factory=dict)
    """workload uid -> how often it has been suspended for another"""
    service: Service = field(default_factory=Service)
    """The attained service of workloads, and how often they were evicted for it."""
    priorities: dict[str, int] = field(default_factory=dict)
    """workload uid -> priority it was queued with last"""
    due_release: dict[str, None] = field(default_factory=dict)
    due_adoption: dict[str, None] = field(default_factory=dict)
    due_move: dict[str, None] = field(default_factory=dict)
    due_suspension: dict[str, None] = field(default_factory=dict)
    growths: dict[str, OpenGrowth] = field(default_factory=dict)
    """workload uid -> what its Ray cluster wants"""
    returns: dict[str, Return] = field(default_factory=dict)
    """workload uid -> the workers that its Ray cluster releases"""
    due_change: dict[str, None] = field(default_factory=dict)
    """Charged workloads of which more runs, or less, than they are charged with."""
    due_end: dict[str, None] = field(default_factory=dict)
    """Claimants whose claim has no reason any more."""
    due_stay: dict[str, None] = field(default_factory=dict)
    """Victims of a claim that run on: they have not been suspended."""
    overuse: dict[str, int] = field(default_factory=dict)
    """workload uid -> log time from which it is suspended while its quota is above its max"""
    overdue: dict[str, int] = field(default_factory=dict)
    """uid of a victim that was suspended and has not left -> log time (ms) from which no claim waits for it"""
    deadlines: dict[str, int] = field(default_factory=dict)
    """workload uid -> log time at which its end counts as certain."""

    def resting(self, queue: str) -> tuple[str, ...]:
        """What is paused for a queue, by its tree or any of its Queue objects: ``admissions``, ``evictions``."""
        mine = (parts for path, parts in self.paused.values() if path == queue) if self.paused else ()
        return union(self.ledger.rules_of(queue).paused, *mine)


def home_of(state: AccountantState, uid: str) -> tuple[str, str]:
    """(the leaf of a charged workload, the quota its label names); empty texts where no queue claims it."""
    workload, pod = state.workloads.get(uid), state.standalone.get(uid)
    if workload is not None:
        return leaf_of(state.ledger, workload) or "", quota_name(workload.labels)
    return (standalone.leaf_of(state.ledger, pod) or "", pod.named) if pod is not None else ("", "")


def moved(state: AccountantState, entry: Entry) -> bool:
    """Whether what is charged belongs to another leaf by now."""
    return home_of(state, entry.ref.uid)[0] not in ("", entry.queue)


def must_move(state: AccountantState, entry: Entry) -> bool:
    """Whether a charge follows to another leaf: what is reserved and not admitted yet is released instead."""
    lets_go = not entry.admitted and not entry.resumed_rv and entry.ref.uid not in state.standalone
    return not lets_go and moved(state, entry)


def adopting_leaf(state: AccountantState, workload: Workload) -> str:
    """Where work without an admission is charged: its leaf, else that of its namespace, else "": never for free."""
    return leaf_of(state.ledger, workload) or state.ledger.leaf_of.get(workload.ref.namespace, "")


def adoption_reason(state: AccountantState, workload: Workload) -> AdoptionReason:
    """Why it runs without an admission."""
    if workload.ref.uid not in state.ledger.attempts:
        return "already_running"
    return "not_stopped" if workload.suspended else "bypassed"


def must_adopt(state: AccountantState, workload: Workload) -> bool:
    """Whether something runs that is not charged and belongs to a queue."""
    if workload.ref.uid in state.entries:
        return False
    runs = workload.phase in ("starting", "running") or state.presence.occupies(workload.ref.uid)
    return runs and bool(adopting_leaf(state, workload))


def evictable(state: AccountantState, uid: str, attempt: int) -> bool:
    """Whether a charged workload may be suspended for another: it runs, long enough, and its controller can."""
    entry, workload = state.entries.get(uid), state.workloads.get(uid)
    if entry is None or workload is None or entry.attempt != attempt or entry.leaving or entry.cut:
        return False
    if state.ledger.tree_of(entry.queue) is None:
        return False
    rules = state.ledger.rules_of(entry.queue)
    return (
        entry.resumed_rv > 0
        and state.now - entry.since >= rules.least_run_ms(state.evictions.get(uid, 0))
        and state.ledger.charges[uid].preemptible
        and can_suspend(workload)
        and "evictions" not in state.resting(entry.queue)
    )


def kept_ms(state: AccountantState, workload: Workload, entry: Entry) -> int:
    """How long the work of this run is that it keeps: from its start to the last checkpoint it noted."""
    return max(min(workload.checkpointed_at, state.now) - entry.since, 0) if entry.since else 0


def can_suspend(workload: Workload) -> bool:
    """Whether its controller would suspend it now."""
    runs = not workload.suspended and workload.phase in ("starting", "running")
    return runs and not (workload.busy or workload.refusal is not None or workload.deleting)
