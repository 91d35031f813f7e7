"""What presentation knows: the sorter's state, folded by the sorter's own arms, and the objects we keep.

It is a fold like every stage's, and decides nothing. ``touched`` collects what the commits folded since the last
look concern; everything shown is compared with what is desired, so nothing is lost when that list is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from msgspec import Struct, field

from muster.core import explain, explain_nodes
from muster.core.explain import Reason
from muster.core.presentation import gangview
from muster.core.presentation.gangview import GangsShown
from muster.core.queueing.sorter import QueueSorter
from muster.core.queueing.state import SorterState
from muster.core.seen import Seen
from muster.core.stage import Arm, Violation, in_turn
from muster.events.base import Decision, Event
from muster.events.decisions import (
    CandidatesProposed,
    ClaimEnded,
    ClaimOpened,
    EvictionOrdered,
    GangAdmitted,
    GangAwaitingNodes,
    GangDeferred,
    QuotaDenied,
    QuotaReleased,
    QuotaReserved,
    QuotaTreeAccepted,
    QuotaTreeRejected,
    QuotaTreeRemoved,
    Shortage,
    SuspensionOrdered,
    SuspensionRecorded,
    WorkloadAdopted,
    WorkloadDequeued,
    WorkloadQueued,
    WorkloadRefused,
)
from muster.events.effects import EffectApplied, EffectFailed
from muster.events.facts import (
    ChildGone,
    ChildObserved,
    NodeGone,
    NodeObserved,
    NodePoolsGone,
    NodePoolsObserved,
    NodesRequestGone,
    NodesRequestObserved,
    ObjectGone,
    ObjectUnreadable,
    PodGone,
    PodGroupGone,
    PodGroupObserved,
    PodObserved,
    PriorityClassGone,
    PriorityClassObserved,
    QueueGone,
    QueueObserved,
    QueueUnitGone,
    QueueUnitObserved,
    QuotaTreeGone,
    QuotaTreeObserved,
    WorkloadGone,
    WorkloadObserved,
)
from muster.events.gangs import GangHeldBack, PodsPlaced
from muster.model.api import POD_GROUPS
from muster.model.keys import Position, Ref

_SeenByRef = QuotaTreeObserved | PriorityClassObserved | NodesRequestObserved


class Shown(Struct, frozen=True):
    """An object we keep, as it was observed last."""

    ref: Ref
    rv: int
    shown: str
    policy: str = ""
    """Of a Queue: how it orders its jobs, as written there."""


class Trouble(Struct, frozen=True):
    """Something to be told on an object that is no job of ours (any more): an Event on the object itself."""

    ref: Ref
    code: str
    text: str


class Leaving(Struct, frozen=True):
    """Why an admitted job was suspended by a decision of ours, and which one."""

    reason: Reason
    stamp: str


class ViewState(SorterState):
    """The sorter's state and what is shown of it."""

    decides: ClassVar[bool] = False
    units: dict[str, Shown] = field(default_factory=dict)
    """workload uid -> its QueueUnit"""
    unit_owner: dict[str, str] = field(default_factory=dict)
    """QueueUnit uid -> workload uid"""
    queue_objects: dict[str, Shown] = field(default_factory=dict)
    """Queue object uid -> the object"""
    objects_seen: Seen = field(default_factory=Seen)
    suspended_outside: dict[str, None] = field(default_factory=dict)
    failure_messages: dict[str, str] = field(default_factory=dict)
    """workload uid -> why the API server refused to resume it last"""
    shortages: dict[str, Shortage] = field(default_factory=dict)
    """workload uid -> why its gang has no place"""
    pool_words: dict[str, str] = field(default_factory=dict)
    """workload uid -> what node pools could give it, where any is declared"""
    leaving: dict[str, Leaving] = field(default_factory=dict)
    """workload uid -> why it was suspended; until it is admitted again"""
    gangs: GangsShown = field(default_factory=GangsShown)
    troubles: dict[str, Trouble] = field(default_factory=dict)
    """object uid -> what is to be told on it"""


class View:
    """Folds the log for presentation."""

    name: ClassVar[str] = "view"

    def __init__(self) -> None:
        self._sorter = QueueSorter()
        self.touched_jobs: dict[str, None] = {}
        self.touched_queues: dict[str, None] = {}
        self.touched_troubles: dict[str, None] = {}
        self.touched_gangs: dict[str, None] = {}
        self.tree_touched = False
        self.gone: dict[str, None] = {}
        """Keys of objects we kept that were taken away: what was written of them is void."""

    def initial(self) -> ViewState:
        return ViewState()

    def arms(self) -> Mapping[type[Event], Arm]:
        arms: dict[type[Event], Arm] = dict(self._sorter.arms())
        own: dict[type[Event], Callable[[Any, Position, Any], None]] = {
            QueueUnitObserved: self._unit_observed,
            QueueUnitGone: self._unit_gone,
            QueueObserved: self._queue_observed,
            QueueGone: self._queue_gone,
            WorkloadObserved: self._workload_observed,
            WorkloadGone: self._workload_gone,
            ObjectUnreadable: self._unreadable,
            QuotaTreeObserved: self._settled,
            QuotaTreeGone: self._settled,
            PodObserved: self._pod_observed,
            PodGone: self._pod_gone,
            PodGroupObserved: self._pod_group,
            PodGroupGone: self._pod_group_gone,
            PodsPlaced: self._pods_placed,
            GangHeldBack: self._held_back,
            ChildObserved: self._child_observed,
            ChildGone: self._settled,
            NodeObserved: self._node_observed,
            NodeGone: self._settled,
            NodePoolsObserved: self._node_pools,
            NodePoolsGone: self._settled,
            NodesRequestObserved: self._settled,
            NodesRequestGone: self._settled,
            PriorityClassObserved: self._settled,
            PriorityClassGone: self._settled,
            QuotaTreeAccepted: self._tree_accepted,
            QuotaTreeRejected: self._tree_rejected,
            QuotaTreeRemoved: self._tree_changed,
            WorkloadQueued: self._job_changed,
            WorkloadDequeued: self._job_changed,
            WorkloadAdopted: self._job_changed,
            QuotaReserved: self._job_changed,
            QuotaReleased: self._released,
            QuotaDenied: self._denied,
            CandidatesProposed: self._proposed,
            WorkloadRefused: self._refused,
            SuspensionRecorded: self._suspended,
            GangAwaitingNodes: self._short,
            GangDeferred: self._short,
            GangAdmitted: self._placed,
            EvictionOrdered: self._evicted,
            ClaimOpened: self._claim_changed,
            ClaimEnded: self._claim_changed,
            SuspensionOrdered: self._timed_out,
            EffectApplied: self._resumed,
            EffectFailed: self._failed,
        }
        return arms | {kind: in_turn(arms[kind], arm) if kind in arms else arm for kind, arm in own.items()}

    def _job_changed(
        self,
        state: ViewState,
        _at: Position,
        event: WorkloadQueued | WorkloadDequeued | WorkloadAdopted | QuotaReserved,
    ) -> None:
        self.touched_jobs[event.ref.uid] = None
        self.touched_queues[event.queue] = None
        self.tree_touched = True
        if isinstance(event, QuotaReserved):
            state.shortages.pop(event.ref.uid, None)
            state.pool_words.pop(event.ref.uid, None)
        if isinstance(event, QuotaReserved | WorkloadAdopted):
            state.leaving.pop(event.ref.uid, None)
        if isinstance(event, WorkloadQueued):
            self._clear_trouble(state, event.ref.uid)

    def _released(self, state: ViewState, _at: Position, event: QuotaReleased) -> None:
        self.touched_jobs[event.ref.uid] = None
        self.tree_touched = True
        state.suspended_outside.pop(event.ref.uid, None)

    def _denied(self, state: ViewState, _at: Position, event: QuotaDenied) -> None:
        """A denial speaks for everybody of its shape: all of them may have to be told."""
        self.touched_queues[event.queue] = None
        job = state.jobs.get(event.ref.uid)
        shape = state.book.shapes.get(job.shape) if job is not None else None
        if shape is not None and event.reason != "stale":
            for place in shape.waiting:
                self.touched_jobs[place[3]] = None

    def _proposed(self, _state: ViewState, _at: Position, event: CandidatesProposed) -> None:
        for candidate in event.candidates:
            self.touched_queues[candidate.queue] = None

    def _refused(self, state: ViewState, _at: Position, event: WorkloadRefused) -> None:
        self._trouble(state, event.ref, event.reason, event.message)

    def _suspended(self, state: ViewState, _at: Position, event: SuspensionRecorded) -> None:
        state.suspended_outside[event.ref.uid] = None
        self.touched_jobs[event.ref.uid] = None

    def _short(self, state: ViewState, _at: Position, event: GangAwaitingNodes | GangDeferred) -> None:
        if event.ref.uid in state.workloads:
            state.shortages[event.ref.uid] = event.shortage
            growth = event.growth if isinstance(event, GangAwaitingNodes) else None
            refusals = event.refusals if isinstance(event, GangDeferred) else ()
            state.pool_words.pop(event.ref.uid, None)
            if words := explain_nodes.from_pools(growth, refusals):
                state.pool_words[event.ref.uid] = words
        self.touched_jobs[event.ref.uid] = None

    def _placed(self, state: ViewState, _at: Position, event: GangAdmitted) -> None:
        state.shortages.pop(event.ref.uid, None)
        state.pool_words.pop(event.ref.uid, None)
        self.touched_jobs[event.ref.uid] = None

    def _evicted(self, state: ViewState, at: Position, event: EvictionOrdered) -> None:
        for victim in event.victims:
            self._leaves(state, at, victim.ref.uid, explain.leaving_for(event, victim))
        self._claim_changed(state, at, event)

    def _timed_out(self, state: ViewState, at: Position, event: SuspensionOrdered) -> None:
        self._leaves(state, at, event.ref.uid, explain.RUNNING_TIMEOUT)

    def _leaves(self, state: ViewState, at: Position, uid: str, reason: Reason) -> None:
        if uid in state.workloads:
            state.leaving[uid] = Leaving(reason, f"{state.generation}-{at.seq}-{at.item}")
            self.touched_jobs[uid] = None

    def _claim_changed(
        self, state: ViewState, _at: Position, event: EvictionOrdered | ClaimOpened | ClaimEnded
    ) -> None:
        """The claimant reads otherwise now; others who wait read so when they are tried or looked at again."""
        self.touched_jobs[event.ref.uid] = None

    def _resumed(self, state: ViewState, _at: Position, event: EffectApplied) -> None:
        state.failure_messages.pop(event.ref.uid, None)
        self.touched_jobs[event.ref.uid] = None

    def _failed(self, state: ViewState, _at: Position, event: EffectFailed) -> None:
        if event.reason == "refused" and event.ref.uid in state.workloads:
            state.failure_messages[event.ref.uid] = event.message
        self.touched_jobs[event.ref.uid] = None

    def _workload_observed(self, state: ViewState, _at: Position, event: WorkloadObserved) -> None:
        self.touched_jobs[event.workload.ref.uid] = None
        if not event.workload.suspended:
            state.suspended_outside.pop(event.workload.ref.uid, None)
        trouble = state.troubles.get(event.workload.ref.uid)
        if trouble is not None and trouble.code == "unreadable":
            self._clear_trouble(state, event.workload.ref.uid)

    def _workload_gone(self, state: ViewState, _at: Position, event: WorkloadGone) -> None:
        uid = event.ref.uid
        self.touched_jobs.pop(uid, None)
        state.suspended_outside.pop(uid, None)
        state.failure_messages.pop(uid, None)
        state.shortages.pop(uid, None)
        state.pool_words.pop(uid, None)
        state.leaving.pop(uid, None)
        self._clear_trouble(state, uid)

    def _unreadable(self, state: ViewState, _at: Position, event: ObjectUnreadable) -> None:
        self._trouble(state, event.ref, "unreadable", event.reason)

    def _trouble(self, state: ViewState, ref: Ref, code: str, text: str) -> None:
        state.troubles[ref.uid] = Trouble(ref, code, text)
        self.touched_troubles[ref.uid] = None

    def _clear_trouble(self, state: ViewState, uid: str) -> None:
        state.troubles.pop(uid, None)
        self.touched_troubles.pop(uid, None)

    def _settled(self, state: ViewState, _at: Position, event: _SeenByRef | ObjectGone) -> None:
        """It can be read, or is gone: what was wrong with it is over."""
        self._clear_trouble(state, event.ref.uid)

    def _pod_observed(self, state: ViewState, _at: Position, event: PodObserved) -> None:
        self._clear_trouble(state, event.pod.ref.uid)
        self._touch_gangs(gangview.pod_observed(state.gangs, event))

    def _pod_gone(self, state: ViewState, at: Position, event: PodGone) -> None:
        self._settled(state, at, event)
        self._touch_gangs(gangview.pod_gone(state.gangs, at, event))

    def _pod_group(self, state: ViewState, _at: Position, event: PodGroupObserved) -> None:
        self._clear_trouble(state, event.pod_group.ref.uid)
        self._touch_gangs(gangview.pod_group_observed(state.gangs, event))

    def _pod_group_gone(self, state: ViewState, at: Position, event: PodGroupGone) -> None:
        self._settled(state, at, event)
        key = gangview.pod_group_gone(state.gangs, at, event)
        self.gone.update(dict.fromkeys(f"podgroup/{each.group}/{key}" for each in POD_GROUPS))
        self._touch_gangs(key)

    def _pods_placed(self, state: ViewState, at: Position, event: PodsPlaced) -> None:
        self._touch_gangs(*gangview.placed(state.gangs, at, event))

    def _held_back(self, state: ViewState, at: Position, event: GangHeldBack) -> None:
        self._touch_gangs(gangview.held_back(state.gangs, at, event))

    def _touch_gangs(self, *keys: str) -> None:
        self.touched_gangs.update(dict.fromkeys(key for key in keys if key))

    def _child_observed(self, state: ViewState, _at: Position, event: ChildObserved) -> None:
        self._clear_trouble(state, event.child.ref.uid)

    def _node_observed(self, state: ViewState, _at: Position, event: NodeObserved) -> None:
        self._clear_trouble(state, event.node.ref.uid)

    def _node_pools(self, state: ViewState, _at: Position, event: NodePoolsObserved) -> None:
        refused = [pool.refusal for pool in event.pools if pool.refusal]
        if refused:
            more = f"; and {len(refused) - 5} more" if len(refused) > 5 else ""
            text = explain_nodes.POOLS_REFUSED + "; ".join(refused[:5]) + more
            self._trouble(state, event.ref, "pools_refused", text)
        else:
            self._clear_trouble(state, event.ref.uid)

    def _tree_rejected(self, state: ViewState, _at: Position, event: QuotaTreeRejected) -> None:
        lines = "; ".join(str(violation) for violation in event.violations[:10])
        more = f"; and {len(event.violations) - 10} more" if len(event.violations) > 10 else ""
        self._trouble(
            state, event.ref, "tree_rejected", f"Refused as a whole, the last good tree stays in force: {lines}{more}"
        )

    def _tree_accepted(self, state: ViewState, at: Position, event: QuotaTreeAccepted) -> None:
        self._clear_trouble(state, event.tree.ref.uid)
        self.gone["tree/"] = None  # Whoever writes a whole tree takes its status away.
        self._tree_changed(state, at, event)

    def _tree_changed(self, state: ViewState, _at: Position, _event: QuotaTreeAccepted | QuotaTreeRemoved) -> None:
        self.tree_touched = True
        self.touched_queues.update(dict.fromkeys(state.ledger.nodes))
        self.touched_queues.update(dict.fromkeys(state.queue_paths.values()))
        for shape in state.book.shapes.values():
            if shape.denial is not None:
                self.touched_jobs.update(dict.fromkeys(place[3] for place in shape.waiting))

    def _unit_observed(self, state: ViewState, _at: Position, event: QueueUnitObserved) -> None:
        self._clear_trouble(state, event.ref.uid)
        if event.owner_uid and state.objects_seen.newer(event.ref.uid, event.rv):
            state.units[event.owner_uid] = Shown(event.ref, event.rv, event.shown)
            state.unit_owner[event.ref.uid] = event.owner_uid
            self.touched_jobs[event.owner_uid] = None

    def _unit_gone(self, state: ViewState, at: Position, event: QueueUnitGone) -> None:
        self._clear_trouble(state, event.ref.uid)
        owner = state.unit_owner.pop(event.ref.uid, None)
        if state.objects_seen.end(event.ref.uid, at.at) and owner is not None:
            shown = state.units.get(owner)
            if shown is not None and shown.ref.uid == event.ref.uid:
                del state.units[owner]
                self.gone[f"unit/{owner}"] = None
                self.touched_jobs[owner] = None

    def _queue_observed(self, state: ViewState, _at: Position, event: QueueObserved) -> None:
        self._clear_trouble(state, event.ref.uid)
        if state.objects_seen.newer(event.ref.uid, event.rv):
            state.queue_objects[event.ref.uid] = Shown(event.ref, event.rv, event.shown, event.policy)
            self.touched_queues[event.path] = None

    def _queue_gone(self, state: ViewState, at: Position, event: QueueGone) -> None:
        self._clear_trouble(state, event.ref.uid)
        if state.objects_seen.end(event.ref.uid, at.at):
            state.queue_objects.pop(event.ref.uid, None)
            self.gone.update(dict.fromkeys(f"queue/{path}" for path in state.ledger.nodes))
            self.touched_queues.update(dict.fromkeys(state.ledger.nodes))

    def decide(self, state: ViewState) -> list[Decision]:
        return []

    def next_deadline(self, state: ViewState) -> int | None:
        return None

    def check(self, state: ViewState) -> list[Violation]:
        return []
