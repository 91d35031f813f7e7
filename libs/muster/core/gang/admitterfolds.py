"""The facts about nodes and waiting jobs in the gang admitter: the folds of its events."""

from __future__ import annotations

import sys

from muster.core.gang import admitterstate, binding, heldplaces, newnodes, nodeclaims, placelines, plantrials, podgangs
from muster.core.gang.admitterstate import AdmitterState, Reservation, queued_as
from muster.core.gang.jobplaces import laid_out
from muster.core.stage import leave_out
from muster.events.base import Cause
from muster.events.decisions import (
    GangAdmitted,
    GangAwaitingNodes,
    GangDeferred,
    PlacesReleased,
    QuotaReleased,
    QuotaReserved,
    WorkloadAdopted,
)
from muster.events.facts import (
    ChildGone,
    ChildObserved,
    NodeGone,
    NodeObserved,
    PodGone,
    PodGroupGone,
    PodGroupObserved,
    PodObserved,
    WorkloadGone,
    WorkloadObserved,
)
from muster.events.system import PlacementChosen
from muster.model.keys import Position
from muster.model.placing import PodRules
from muster.model.resources import Vector, scaled, summed

DEVICES_GO_MS = 5 * 60_000
"""The longest wait of a job, after its victims have left, for the end of the keepers of their devices."""


SOURCES = (sys.modules[__name__], placelines, binding, nodeclaims, plantrials, heldplaces, newnodes)
"""The modules with folds of nodes and gangs. An event goes through the modules in this order."""


# --- facts ------------------------------------------------------------------------------------------------------------


def placement_chosen(state: AdmitterState, _at: Position, event: PlacementChosen) -> None:
    state.placement = event
    placelines.chosen(state)
    if event.strategy is None:
        for uid in list(state.holds):
            admitterstate.drop_hold(state, uid)


def workload_observed(state: AdmitterState, _at: Position, event: WorkloadObserved) -> None:
    workload = event.workload
    state.owners.pop(workload.ref.uid, None)
    gang = state.gangs[workload.ref.uid] = admitterstate.gang_of(workload)
    queued = queued_as(state.queued, workload.ref.uid)
    gang.placement, queued.rounds, queued.rests_until = queued.placement, 0, 0
    gang.nodes = queued.nodes
    for pods in (*gang.steered, *workload.auxiliary):
        state.ledger.learn(pods.rules)
    state.ledger.learn(PodRules(topology=workload.topology))
    placelines.observed(state, workload.ref.uid)


def workload_gone(state: AdmitterState, _at: Position, event: WorkloadGone) -> None:
    if event.ref.uid in state.unplaced:  # In no queue, and not charged.
        state.queued.pop(event.ref.uid, None)
    placelines.forget(state, event.ref.uid)
    leave_out(event.ref.uid, state.found, state.gangs)
    nodeclaims.forget(state, event.ref.uid)


def child_observed(state: AdmitterState, _at: Position, event: ChildObserved) -> None:
    if event.child.owner_uid:
        state.owners[event.child.ref.uid] = event.child.owner_uid
        state.ledger.hand_on(event.child.ref.uid, event.child.owner_uid)


def child_gone(state: AdmitterState, _at: Position, event: ChildGone) -> None:
    state.owners.pop(event.ref.uid, None)


def node_observed(state: AdmitterState, _at: Position, event: NodeObserved) -> None:
    state.ledger.node_observed(event)


def node_gone(state: AdmitterState, _at: Position, event: NodeGone) -> None:
    state.ledger.node_gone(event)


def pod_observed(state: AdmitterState, at: Position, event: PodObserved) -> None:
    admitterstate.pod_observed(state, at, event)
    if event.pod.keeps:
        heldplaces.keeper_observed(state, at, event.pod)


def pod_gone(state: AdmitterState, at: Position, event: PodGone) -> None:
    podgangs.pod_gone(state.pods, event.ref.uid, at.at)
    state.keepers.pop(event.ref.uid, None)
    state.ledger.evict(event.ref.uid)


def pod_group_observed(state: AdmitterState, _at: Position, event: PodGroupObserved) -> None:
    podgangs.pod_group_observed(state.pods, event)


def pod_group_gone(state: AdmitterState, _at: Position, event: PodGroupGone) -> None:
    podgangs.pod_group_gone(state.pods, event)


# --- decisions --------------------------------------------------------------------------------------------------------


def reserved(state: AdmitterState, at: Position, event: QuotaReserved) -> None:
    laid_out(state, event)
    order = state.orders.get(event.ref.uid)
    room_until = at.at + DEVICES_GO_MS if order is not None and order.claims else 0
    placelines.drop(state, event.ref.uid)
    state.found.pop(event.ref.uid, None)
    if (gang := state.gangs.get(event.ref.uid)) is not None:
        gang.nodes = queued_as(state.queued, event.ref.uid).nodes
    state.reservations[event.ref.uid] = Reservation(
        event.ref,
        event.attempt,
        event.queue,
        event.basis,
        Cause(at.seq, at.item),
        owed=event.owed,
        room_until=room_until,
    )


def adopted(state: AdmitterState, _at: Position, event: WorkloadAdopted) -> None:
    placelines.forget(state, event.ref.uid)


def released(state: AdmitterState, at: Position, event: QuotaReleased) -> None:
    placelines.released(state, at, event, state.reservations.pop(event.ref.uid, None))
    state.admitted.pop(event.ref.uid, None)
    state.whole.pop(event.ref.uid, None)
    admitterstate.drop_hold(state, event.ref.uid)


def admitted(state: AdmitterState, at: Position, event: GangAdmitted) -> None:
    reservation = _reservation(state, event)
    if reservation is not None:
        del state.reservations[event.ref.uid]
        nodeclaims.forget(state, event.ref.uid)
        if event.placements:
            queued = queued_as(state.queued, event.ref.uid)
            nodeclaims.passed(state, queued.came, -queued.rank[0], _amounts(event))
        placelines.forget(state, event.ref.uid)
        state.admitted[event.ref.uid] = event.attempt
        if event.placements:
            state.whole[event.ref.uid] = None
        admitterstate.hold(state, event, Cause(at.seq, at.item))
        for pods in event.pod_sets:
            state.ledger.mix.learn(pods.request, pods.rules, pods.count)


def _amounts(event: GangAdmitted) -> Vector:
    requests = {pods.name: pods.request for pods in event.pod_sets}
    return summed(scaled(requests.get(place.pod_set, {}), place.count) for place in event.placements)


def awaiting(state: AdmitterState, at: Position, event: GangAwaitingNodes) -> None:
    reservation = _reservation(state, event)
    if reservation is not None:
        reservation.shortage, reservation.until = event.shortage, event.until
        reservation.told, reservation.growth = at.at, event.growth
        nodeclaims.in_vain(state, event.ref.uid, at.at)


def deferred(state: AdmitterState, at: Position, event: GangDeferred) -> None:
    reservation = _reservation(state, event)
    if reservation is not None:
        reservation.deferred = True
        reservation.in_vain = any(refusal.why == "in_vain" for refusal in event.refusals)
        nodeclaims.in_vain(state, event.ref.uid, at.at)


def given_back(state: AdmitterState, _at: Position, event: PlacesReleased) -> None:
    admitterstate.give_back(state, event)


def _reservation(state: AdmitterState, event: GangAdmitted | GangAwaitingNodes | GangDeferred) -> Reservation | None:
    reservation = state.reservations.get(event.ref.uid)
    return reservation if reservation is not None and reservation.attempt == event.attempt else None
