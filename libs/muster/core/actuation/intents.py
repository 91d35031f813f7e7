"""The actuator's state: decisions without an effect yet, and the facts about their objects that a patch needs.

The actuator decides nothing. An intent leaves the state when the effect of the intent is in the log, or when the charge
is gone. After a crash every outstanding intent is carried out again, and the fence in every patch makes that harmless.
"""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct, field

from muster.core.actuation.budgets import PodsLeaving
from muster.core.actuation.orders import Asking, Bind, Freeing, Gating, Looking, Order, Outstanding, Removing, Unbind
from muster.core.autoscaling.bridgestate import request_ref
from muster.core.objects.kaiqueue import pod_group_name
from muster.core.stage import Stage, StageState
from muster.events.decisions import (
    EvictionOrdered,
    GangAdmitted,
    PodsAwaited,
    QuotaReleased,
    QuotaReserved,
    SuspensionOrdered,
    WorkloadAdopted,
    WorkloadDequeued,
    WorkloadQueued,
)
from muster.events.effects import Action, EffectApplied, EffectFailed
from muster.events.elastic import GateSet, GrowthWithdrawn, WorkersRemoved
from muster.events.facts import ChildGone, ChildObserved, PodGone, PodObserved, WorkloadGone, WorkloadObserved
from muster.events.gangs import GpuReservationEnded, PodsPlaced, PodsReleased
from muster.events.growing import NodesRequested, NodesRequestWithdrawn
from muster.model.elastic import Elastic
from muster.model.keys import Intent, Position, Ref
from muster.model.quota import KAI_ROOT
from muster.model.workload import Switch, Workload


class Known(Struct):
    """The facts about an object that a patch needs, from the newest observation."""

    intent: str | None = None
    """Annotation muster.dev/intent of the object; None: no annotation is known."""
    annotated: bool = False
    queued_at: int = 0
    switch: Switch = Switch()
    generation: int = 0
    basis: str = ""
    """Digest of the input of a decision about the object, at this generation."""
    elastic: Elastic | None = None
    """The worker groups of a Ray cluster that scales itself."""
    rv: int = 0
    settled: bool = False
    """The last status of the controller says that no part of the object runs."""


def known_of(workload: Workload) -> Known:
    """The facts for a patch, from an observed workload."""
    return Known(
        workload.intent or None,
        workload.annotated,
        workload.queued_at,
        workload.switch,
        workload.generation,
        workload.basis,
        workload.elastic,
        workload.rv,
        workload.settled,
    )


def is_held(state: ActuatorState, order: Order) -> bool:
    """Whether an order to suspend has to wait until the controller has acted on the resume.

    A workload suspended before the controller acts gets no status at all, or may still get pods: nothing would prove
    the end of the workload.
    """
    known = state.known.get(order.ref.uid)
    if order.action != "suspend" or known is None:
        return False
    return known.settled or known.rv < state.resumed.get(order.ref.uid, 0)


def leaving(state: ActuatorState, order: Outstanding) -> PodsLeaving:
    """A victim, and the workloads that leave earlier than the victim."""
    orders = state.outstanding.items()
    ahead = [uid for uid, other in orders if other.evicts and _turn(other) < _turn(order)]
    others = [*ahead, *(uid for uid in state.leaving if uid != order.ref.uid)]
    return PodsLeaving(order.ref.uid, others, state.children, pods_before=_workers_before(state, order))


def workers_leaving(state: ActuatorState, order: Gating) -> PodsLeaving:
    """The workers released by a Ray cluster, and the workloads that leave earlier than these workers."""
    evicted = [uid for uid, other in state.outstanding.items() if other.evicts and other.intent < order.intent]
    own = [pod.uid for pod in _workers_of(order)]
    return PodsLeaving(order.ref.uid, [*evicted, *state.leaving], state.children, own, _workers_before(state, order))


def _workers_before(state: ActuatorState, order: Outstanding | Gating) -> list[str]:
    """Uids of the workers released by earlier orders, without the workers of a victim that leaves as a whole."""
    whole = order.ref.uid if isinstance(order, Outstanding) else ""
    ahead = (earlier for earlier in state.gating.values() if earlier.intent < order.intent)
    orders = [pod.uid for earlier in ahead if earlier.decision.owner.uid != whole for pod in _workers_of(earlier)]
    return orders + [uid for owner, workers in state.going.items() if owner != whole for uid in workers]


def _workers_of(order: Gating) -> list[Ref]:
    return [pod for pods in order.decision.workers.values() for pod in pods]


def _turn(order: Outstanding) -> tuple[int, int, int, str]:
    return order.intent.generation, order.intent.seq, order.intent.item, order.ref.uid


class ActuatorState(StageState):
    """Outstanding admissions by workload uid, in the order of the decisions."""

    outstanding: dict[str, Outstanding] = field(default_factory=dict)
    known: dict[str, Known] = field(default_factory=dict)
    queued_at: dict[str, tuple[int, int]] = field(default_factory=dict)
    """uid -> (newest attempt, log time from which the attempt counts as queued); kept from queueing to the attempt's
    end"""
    reserved: dict[str, int] = field(default_factory=dict)
    """uid -> attempt with reserved quota: an admission without quota is not carried out"""
    bases: dict[str, str] = field(default_factory=dict)
    """uid -> digest of the request behind the reservation: an admission of another request is not carried out"""
    resumed: dict[str, int] = field(default_factory=dict)
    """uid of a charged workload -> resourceVersion of the write that resumed the workload"""
    leaving: dict[str, None] = field(default_factory=dict)
    """Workloads that were suspended for other workloads and may still have pods."""
    going: dict[str, list[str]] = field(default_factory=dict)
    """uid of the charged workload -> uids of workers named to the operator for deletion that may still exist"""
    children: dict[str, str] = field(default_factory=dict)
    """uid of a child object of a workload -> uid of the workload"""
    binds: dict[str, Bind] = field(default_factory=dict)
    """Pods to be bound, by uid."""
    unbinds: dict[str, Unbind] = field(default_factory=dict)
    """Pods with a withdrawn binding, by uid."""
    freeing: dict[str, Freeing] = field(default_factory=dict)
    """Pods to be deleted that keep unused GPU devices, by uid."""
    asking: dict[str, Asking] = field(default_factory=dict)
    """Requests for nodes to be made or removed, by name."""
    removing: dict[str, Removing] = field(default_factory=dict)
    """Workers to be deleted by us, not deleted by their operator, by uid of the pod."""
    gating: dict[str, Gating] = field(default_factory=dict)
    """RayClusters with a ``maxReplicas`` to be written, by uid of the cluster. A cluster may be a job."""
    reading: dict[str, Looking] = field(default_factory=dict)
    """Jobs whose Events are to be read, by uid."""


class Actuator(Stage[ActuatorState]):
    """The stage ``actuator``."""

    name: ClassVar[str] = "actuator"
    kept: ClassVar[type[ActuatorState]] = ActuatorState

    def _observed(self, state: ActuatorState, _at: Position, event: WorkloadObserved) -> None:
        workload = event.workload
        if workload.phase == "finished":
            state.known.pop(workload.ref.uid, None)
        else:
            state.known[workload.ref.uid] = known_of(workload)

    def _gone(self, state: ActuatorState, _at: Position, event: WorkloadGone) -> None:
        state.known.pop(event.ref.uid, None)

    def _queued(self, state: ActuatorState, _at: Position, event: WorkloadQueued) -> None:
        state.queued_at[event.ref.uid] = event.attempt, event.queued_at

    def _dequeued(self, state: ActuatorState, _at: Position, event: WorkloadDequeued) -> None:
        self._over(state, event.ref.uid, event.attempt)

    @staticmethod
    def _over(state: ActuatorState, uid: str, attempt: int) -> None:
        if state.queued_at.get(uid, (attempt + 1, 0))[0] <= attempt:
            del state.queued_at[uid]

    def _reserved(self, state: ActuatorState, _at: Position, event: QuotaReserved | WorkloadAdopted) -> None:
        state.reserved[event.ref.uid] = event.attempt
        state.bases[event.ref.uid] = event.basis if isinstance(event, QuotaReserved) else ""

    def _admitted(self, state: ActuatorState, at: Position, event: GangAdmitted) -> None:
        uid = event.ref.uid
        if state.reserved.get(uid) != event.attempt or state.bases.get(uid) != event.basis:
            return
        state.outstanding[uid] = Outstanding(
            ref=event.ref,
            attempt=event.attempt,
            intent=Intent(state.generation, at.seq, at.item),
            basis=event.basis,
            queued_at=state.queued_at.get(uid, (0, 0))[1],
            at=at.at,
            placed=bool(event.placements),
            together=event.together,
            nodes=event.nodes,
            pod_group=pod_group_name(event.ref) if event.queue.startswith(f"{KAI_ROOT}/") else "",
        )

    def _evicted(self, state: ActuatorState, at: Position, event: EvictionOrdered) -> None:
        for victim in event.suspended:
            self._suspend(state, at, victim.ref, victim.attempt, evicts=True)

    def _suspended(self, state: ActuatorState, at: Position, event: SuspensionOrdered) -> None:
        self._suspend(state, at, event.ref, event.attempt)

    @staticmethod
    def _suspend(state: ActuatorState, at: Position, ref: Ref, attempt: int, *, evicts: bool = False) -> None:
        intent = Intent(state.generation, at.seq, at.item)
        state.outstanding[ref.uid] = Outstanding(ref, attempt, intent, None, 0, at.at, "suspend", evicts=evicts)

    def _pods_awaited(self, state: ActuatorState, at: Position, event: PodsAwaited) -> None:
        if state.reserved.get(event.ref.uid) == event.attempt:
            intent = Intent(state.generation, at.seq, at.item)
            state.reading[event.ref.uid] = Looking(event.ref, event.attempt, intent, event.since)

    def _placed(self, state: ActuatorState, at: Position, event: PodsPlaced) -> None:
        """Bind all pods of the event; none when a pod of the event is gone by now.

        The admitter folds the event alike.
        """
        if any(place.ref.uid in state.seen.ended for place in event.pods):
            return
        intent = Intent(state.generation, at.seq, at.item)
        for place in event.pods:
            state.binds[place.ref.uid] = Bind(
                place.ref, event.cycle, intent, place.node, place.devices, place.groups, place.share
            )

    def _pods_released(self, state: ActuatorState, at: Position, event: PodsReleased) -> None:
        intent = Intent(state.generation, at.seq, at.item)
        for place in event.pods:
            order = state.binds.get(place.ref.uid)
            if order is not None and order.node == place.node:
                del state.binds[place.ref.uid]
                state.unbinds[place.ref.uid] = Unbind(order.ref, order.attempt, intent, order.node, order.cause)

    def _pod_observed(self, state: ActuatorState, _at: Position, event: PodObserved) -> None:
        """A pod exists: a pod noted as gone may exist again."""

    def _pod_gone(self, state: ActuatorState, _at: Position, event: PodGone) -> None:
        for orders in (state.binds, state.unbinds, state.freeing, state.removing):
            orders.pop(event.ref.uid, None)

    def _reservation_ended(self, state: ActuatorState, at: Position, event: GpuReservationEnded) -> None:
        if event.ref.uid not in state.seen.ended:
            state.freeing[event.ref.uid] = Freeing(event.ref, 0, Intent(state.generation, at.seq, at.item))

    def _nodes_asked(self, state: ActuatorState, at: Position, event: NodesRequested | NodesRequestWithdrawn) -> None:
        """A withdrawn request, made or not: every object made for the request is removed."""
        ref, intent = request_ref(event.namespace, event.name), Intent(state.generation, at.seq, at.item)
        state.asking[ref.uid] = Asking(ref, event.attempt, intent, event)

    def _gate_set(self, state: ActuatorState, at: Position, event: GateSet) -> None:
        if state.reserved.get(event.owner.uid) == event.attempt:
            state.gating[event.ref.uid] = Gating(
                event.ref, event.attempt, Intent(state.generation, at.seq, at.item), event
            )

    def _workers_removed(self, state: ActuatorState, at: Position, event: WorkersRemoved) -> None:
        if state.reserved.get(event.owner.uid) != event.attempt:
            return
        intent = Intent(state.generation, at.seq, at.item)
        for group, pods in event.workers.items():
            for pod in pods:
                if pod.uid not in state.seen.ended:
                    order = Removing(pod, event.attempt, intent, event.ref, group, event.owner.uid)
                    state.removing[pod.uid] = order

    def _given_back(self, state: ActuatorState, _at: Position, event: GrowthWithdrawn) -> None:
        """The pods of the workers named for deletion are gone."""
        state.going.pop(event.ref.uid, None)

    def _child_observed(self, state: ActuatorState, _at: Position, event: ChildObserved) -> None:
        if event.child.owner_uid:
            state.children[event.child.ref.uid] = event.child.owner_uid

    def _child_gone(self, state: ActuatorState, _at: Position, event: ChildGone) -> None:
        state.gating.pop(event.ref.uid, None)
        state.children.pop(event.ref.uid, None)

    def _released(self, state: ActuatorState, _at: Position, event: QuotaReleased) -> None:
        state.reserved.pop(event.ref.uid, None)
        state.bases.pop(event.ref.uid, None)
        for table in (state.resumed, state.leaving, state.going, state.reading):
            table.pop(event.ref.uid, None)
        for uid in [uid for uid, order in state.gating.items() if order.decision.owner.uid == event.ref.uid]:
            del state.gating[uid]
        for uid in [uid for uid, order in state.removing.items() if order.owner == event.ref.uid]:
            del state.removing[uid]
        self._drop(state, event.ref.uid, event.attempt)
        self._over(state, event.ref.uid, event.attempt)

    def _done(self, state: ActuatorState, _at: Position, event: EffectApplied | EffectFailed) -> None:
        tables: dict[Action, dict[str, Any]] = {
            "request_nodes": state.asking,
            "withdraw_nodes": state.asking,
            "bind": state.binds,
            "gate": state.gating,
            "remove_worker": state.removing,
            "read_refusal": state.reading,
        }
        unbind = state.unbinds.get(event.ref.uid) if event.action == "bind" else None
        if unbind is not None and unbind.cause == event.cause:
            del state.unbinds[event.ref.uid]
        if event.action in tables:
            order = tables[event.action].get(event.ref.uid)
            if order is not None and order.cause == event.cause:
                del tables[event.action][event.ref.uid]
                if isinstance(order, Gating) and isinstance(event, EffectApplied):
                    self._workers_named(state, order)
            return
        if event.action == "free_gpu":
            state.freeing.pop(event.ref.uid, None)
            return
        if event.action == "resume" and isinstance(event, EffectApplied) and event.ref.uid in state.reserved:
            state.resumed[event.ref.uid] = event.rv
        outstanding = state.outstanding.get(event.ref.uid)
        if outstanding is not None and outstanding.action == event.action:
            if outstanding.evicts and isinstance(event, EffectApplied):
                state.leaving[event.ref.uid] = None
            self._drop(state, event.ref.uid, event.attempt)

    @staticmethod
    def _workers_named(state: ActuatorState, order: Gating) -> None:
        """Their operator deletes them from here on; a budget does not show that yet."""
        if workers := _workers_of(order):
            state.going.setdefault(order.decision.owner.uid, []).extend(pod.uid for pod in workers)

    @staticmethod
    def _drop(state: ActuatorState, uid: str, attempt: int) -> None:
        outstanding = state.outstanding.get(uid)
        if outstanding is not None and outstanding.attempt <= attempt:
            del state.outstanding[uid]
