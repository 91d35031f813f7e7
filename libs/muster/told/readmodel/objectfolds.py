"""The folds of the read model about objects that are no jobs.

Ray clusters that scale themselves, as far as the status of jobs shows such clusters.

QueueUnits, Queues, the quota tree, pods and nodes.
"""

from __future__ import annotations

from msgspec import structs

from muster.events import facts
from muster.events.decisions import (
    QuotaTreeAccepted,
    QuotaTreeRejected,
    QuotaTreeRemoved,
)
from muster.events.gangs import GangHeldBack, PodsPlaced
from muster.events.raydemand import RayDemandObserved
from muster.events.system import PlacementChosen
from muster.model.elastic import Elastic
from muster.model.keys import Position, Ref
from muster.model.strategies import strategies_text
from muster.model.workload import at_once
from muster.told.readmodel import gangsshown
from muster.told.readmodel.history import Historian, forget_gang, happened, meet_gang
from muster.told.readmodel.readstate import GangRecord, ReadState, Scaled, Shown
from muster.told.readmodel.touched import Marker

# --- Ray clusters that scale themselves -------------------------------------------------------------------------------


def cluster_seen(state: ReadState, mark: Marker, ref: Ref, owner: str, elastic: Elastic | None) -> None:
    """A cluster was observed, newer than before. The owner is looked at where the shown state of the cluster has
    changed.
    """
    if elastic is None:
        state.scaled.pop(ref.uid, None)
        return
    known = state.scaled.get(ref.uid)
    scaled = Scaled(ref, owner, elastic, known.heard if known is not None else None)
    if known is None or (known.owner, known.told) != (owner, scaled.told):
        mark.jobs(owner)
    state.scaled[ref.uid] = scaled


def cluster_gone(state: ReadState, uid: str, owner: str) -> None:
    """A cluster is gone, or was observed in another role, and no longer belongs to this owner."""
    known = state.scaled.get(uid)
    if known is not None and known.owner == owner:
        del state.scaled[uid]


def head_heard(state: ReadState, _at: Position, event: RayDemandObserved) -> None:
    """The head of a cluster reports the waiting demand."""
    known = state.scaled.get(event.ref.uid)
    if known is not None and (known.heard is None or known.heard.read_at < event.read_at):
        state.scaled[event.ref.uid] = structs.replace(known, heard=event)


# --- other objects ----------------------------------------------------------------------------------------------------


_Plain = (
    facts.QuotaTreeGone
    | facts.NodesRequestObserved
    | facts.NodesRequestGone
    | facts.PriorityClassObserved
    | facts.PriorityClassGone
)


class ObjectFolds:
    """One arm for each event about an object."""

    def __init__(self, mark: Marker, history: Historian) -> None:
        self._mark = mark
        self._history = history

    def _placement(self, state: ReadState, _at: Position, event: PlacementChosen) -> None:
        strategy, state.gangs_placed = event.strategy, event.mode != "off"
        if strategy is None:
            state.placement = ""
        elif event.cpu is None or event.cpu == strategy:
            state.placement = strategy
        else:
            state.placement = strategies_text({"gpu": strategy, "cpu": event.cpu})

    def _settled(self, state: ReadState, _at: Position, event: _Plain) -> None:
        """The object can be read, or is gone: the problem of the object is over."""
        self._mark.clear(state, event.ref.uid)

    def _tree_observed(self, state: ReadState, _at: Position, event: facts.QuotaTreeObserved) -> None:
        self._mark.clear(state, event.ref.uid)
        self._mark.tree()

    def _kai_queue(self, state: ReadState, _at: Position, event: facts.KaiQueueObserved) -> None:
        uid = event.queue.ref.uid
        self._mark.clear(state, uid)
        state.kai_queues[uid] = event.queue
        self._mark.tree()

    def _kai_queue_gone(self, state: ReadState, _at: Position, event: facts.KaiQueueGone) -> None:
        self._mark.clear(state, event.ref.uid)
        if state.kai_queues.pop(event.ref.uid, None) is not None:
            self._mark.took_away(event.ref.uid)

    @staticmethod
    def _job_of(state: ReadState, owner: str) -> str:
        return state.presence.owner_of.get(owner, owner)

    def _pod_observed(self, state: ReadState, at: Position, event: facts.PodObserved) -> None:
        self._mark.clear(state, event.pod.ref.uid)
        state.nodes.pod(event.pod)
        job = self._job_of(state, event.pod.owner_uid)
        before = state.pods.of(job, state.presence)
        state.presence.pod_observed(event.pod)
        if state.pods.observed(event.pod, state.records.get(job), state.now):
            self._mark.jobs(job)
            self._history.held_up(state, at, job, before)
        workload = state.queues.workloads.get(job)
        whole = workload is not None and state.presence.live_pods(job) >= at_once(workload.pod_sets)
        if whole and state.pods.refused(job, "", state.now):
            self._mark.jobs(job)
        self._mark.gangs(gangsshown.pod_observed(state.gangs, event))
        meet_gang(state, event.pod.ref)

    def _pod_gone(self, state: ReadState, at: Position, event: facts.PodGone) -> None:
        self._mark.clear(state, event.ref.uid)
        state.nodes.pods.pop(event.ref.uid, None)
        holder = state.presence.pod_owner.get(event.ref.uid) or state.pods.owner_of(event.ref.uid)
        job = self._job_of(state, holder)
        owner = state.presence.pod_gone(event)
        if state.pods.gone(event, state.records.get(job)):
            self._mark.jobs(job)
        if owner is not None and not state.presence.live_pods(owner):
            self._history.below(state, owner, happened(at, "pods_gone", "detail"))
        key = gangsshown.pod_gone(state.gangs, event)
        self._mark.gangs(key)
        forget_gang(state, key)

    def _pod_group(self, state: ReadState, _at: Position, event: facts.PodGroupObserved) -> None:
        self._mark.clear(state, event.pod_group.ref.uid)
        self._mark.gangs(gangsshown.pod_group_observed(state.gangs, event))
        if event.pod_group.attempt:
            self._mark.jobs(event.pod_group.owner_uid)
        key = state.gangs.group_of.get(event.pod_group.ref.uid, "")
        if key and key not in state.gang_records:
            state.gang_records[key] = GangRecord(key)

    def _pod_group_gone(self, state: ReadState, _at: Position, event: facts.PodGroupGone) -> None:
        self._mark.clear(state, event.ref.uid)
        key = gangsshown.pod_group_gone(state.gangs, event)
        self._mark.took_away(event.ref.uid)
        self._mark.gangs(key)

    def _pods_placed(self, state: ReadState, at: Position, event: PodsPlaced) -> None:
        self._mark.gangs(*gangsshown.placed(state.gangs, at, event))

    def _held_back(self, state: ReadState, at: Position, event: GangHeldBack) -> None:
        self._mark.gangs(gangsshown.held_back(state.gangs, at, event))

    def _child_observed(self, state: ReadState, at: Position, event: facts.ChildObserved) -> None:
        self._mark.clear(state, event.child.ref.uid)
        ref, known = event.child.ref, event.child.ref.uid in state.presence.owner_of
        owner = state.presence.child_observed(event)
        if owner is not None and ref.kind == "RayCluster":
            cluster_seen(state, self._mark, ref, owner, event.child.elastic)
        if owner is not None and not known:
            self._history.below(state, owner, happened(at, "child_made", "detail", kind=ref.kind, name=ref.name))

    def _child_gone(self, state: ReadState, at: Position, event: facts.ChildGone) -> None:
        self._mark.clear(state, event.ref.uid)
        owner = state.presence.child_gone(event)
        if owner is not None:
            cluster_gone(state, event.ref.uid, owner)
            left = state.presence.live_pods(owner)
            told = {"kind": event.ref.kind, "name": event.ref.name, "number": left}
            self._history.below(state, owner, happened(at, "child_gone", "step", **told))

    def _node_observed(self, state: ReadState, _at: Position, event: facts.NodeObserved) -> None:
        self._mark.clear(state, event.node.ref.uid)
        if state.nodes.node(event.node):
            self._mark.nodes()

    def _node_gone(self, state: ReadState, _at: Position, event: facts.NodeGone) -> None:
        self._mark.clear(state, event.ref.uid)
        state.nodes.node_gone(event.ref.uid)
        self._mark.nodes()

    def _node_pools(self, state: ReadState, _at: Position, event: facts.NodePoolsObserved) -> None:
        state.nodes.pools[event.ref.uid] = tuple(pool for pool in event.pools if pool.refusal is None)
        self._mark.nodes()
        refused = [pool.refusal for pool in event.pools if pool.refusal is not None]
        if refused:
            self._mark.trouble(state, event.ref, "pools_refused", refused, most=5)
        else:
            self._mark.clear(state, event.ref.uid)

    def _node_pools_gone(self, state: ReadState, _at: Position, event: facts.NodePoolsGone) -> None:
        self._mark.clear(state, event.ref.uid)
        state.nodes.pools.pop(event.ref.uid, None)
        self._mark.nodes()

    def _tree_rejected(self, state: ReadState, _at: Position, event: QuotaTreeRejected) -> None:
        self._mark.trouble(state, event.ref, "tree_rejected", event.violations)

    def _tree_accepted(self, state: ReadState, _at: Position, event: QuotaTreeAccepted) -> None:
        self._mark.clear(state, event.tree.ref.uid)
        self._trees_changed(state)

    def _tree_removed(self, state: ReadState, _at: Position, _event: QuotaTreeRemoved) -> None:
        self._trees_changed(state)

    def _trees_changed(self, state: ReadState) -> None:
        self._mark.tree()
        self._mark.surplus()
        self._mark.queues(*state.queues.ledger.nodes)
        self._mark.queues(*state.queues.queue_paths.values())
        self._mark.jobs(*state.units)  # A QueueUnit names the Queue of its leaf, and the limit that refuses.

    def _unit_observed(self, state: ReadState, _at: Position, event: facts.QueueUnitObserved) -> None:
        self._mark.clear(state, event.ref.uid)
        if event.owner_uid:
            state.units[event.owner_uid] = Shown(event.ref, event.rv, event.shown)
            state.unit_owner[event.ref.uid] = event.owner_uid
            self._mark.jobs(event.owner_uid)

    def _unit_gone(self, state: ReadState, _at: Position, event: facts.QueueUnitGone) -> None:
        self._mark.clear(state, event.ref.uid)
        owner = state.unit_owner.pop(event.ref.uid, None)
        shown = state.units.get(owner) if owner is not None else None
        if owner is not None and shown is not None and shown.ref.uid == event.ref.uid:
            del state.units[owner]
            self._mark.took_away(event.ref.uid)
            self._mark.jobs(owner)

    def _queue_observed(self, state: ReadState, _at: Position, event: facts.QueueObserved) -> None:
        self._mark.clear(state, event.ref.uid)
        state.queue_objects[event.ref.uid] = Shown(event.ref, event.rv, event.shown, event.policy, event.path)
        self._mark.queues(event.path)
        self._mark.surplus()

    def _queue_gone(self, state: ReadState, _at: Position, event: facts.QueueGone) -> None:
        self._mark.clear(state, event.ref.uid)
        shown = state.queue_objects.pop(event.ref.uid, None)
        self._mark.took_away(event.ref.uid)
        if shown is not None:
            self._mark.queues(shown.path)
