"""The gang admitter: the one authority on nodes. Admits a workload whose quota is reserved as a whole, or not at all.

Where placement is off quota alone decides. Where it is on, a gang is admitted with a place for every pod it needs to
start; the places are held until its pods come. A gang without them holds nothing: it keeps its quota for a while
where nodes may be added, and gives it back otherwise.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import ClassVar

from muster.core.gang import binding, claims, clearing, gpugroups, planned, podquota, pods, unplaced, waiting
from muster.core.gang import state as g
from muster.core.gang.asks import asks_of, laid_out
from muster.core.gang.gpugroups import groups_of
from muster.core.gang.growing import Growing
from muster.core.gang.placer import PodGangPlacer
from muster.core.gang.state import AdmitterState, Hold, Reservation
from muster.core.placement.place import place
from muster.core.placement.view import View
from muster.core.rulesets import NEWEST
from muster.core.stage import Arm, Violation, first, in_turn
from muster.events.base import Cause, Decision, Event
from muster.events.claims import ClaimEnded, PlanStale, PlanTried, VictimStays
from muster.events.clearing import ClearingOrdered, ClearingProposed, ClearingTried
from muster.events.decisions import (
    EvictionOrdered,
    GangAdmitted,
    GangAwaitingNodes,
    GangDeferred,
    PlacesFound,
    PlacesReleased,
    PreemptionProposed,
    QuotaDenied,
    QuotaReleased,
    QuotaReserved,
    WorkloadAdopted,
    WorkloadDequeued,
    WorkloadQueued,
)
from muster.events.effects import EffectApplied, EffectFailed
from muster.events.facts import (
    ChildGone,
    ChildObserved,
    NodeGone,
    NodeObserved,
    NodePoolsGone,
    NodePoolsObserved,
    PodGone,
    PodGroupGone,
    PodGroupObserved,
    PodObserved,
    Synced,
    WorkloadGone,
    WorkloadObserved,
)
from muster.events.gangs import (
    GangHeldBack,
    GpuReservationEnded,
    NodesClaimed,
    NodesClaimEnded,
    PodsPlaced,
    PodsReleased,
)
from muster.events.growing import NodesRequestWithdrawn
from muster.events.reasons import GiveBackReason
from muster.events.system import PlacementChosen
from muster.model.keys import Position
from muster.model.places import Placement, Shortage
from muster.model.placing import PodRules
from muster.model.workload import PodSet, together

DEVICES_GO_MS = 5 * 60_000
"""How long a job that others left for waits for the pods that keep their devices to go."""


class GangAdmitter:
    """The stage ``gang_admitter``."""

    name: ClassVar[str] = "gang_admitter"
    newest_ruleset: ClassVar[int] = NEWEST

    def initial(self) -> AdmitterState:
        return AdmitterState()

    def arms(self) -> Mapping[type[Event], Arm]:
        return {
            **podquota.arms(),
            PlacementChosen: self._chosen,
            WorkloadObserved: in_turn(self._workload, clearing.observed),
            WorkloadGone: in_turn(self._workload_gone, clearing.gone),
            ChildObserved: self._child,
            ChildGone: self._child_gone,
            NodeObserved: self._node,
            NodeGone: self._node_gone,
            PodObserved: self._pod,
            PodGone: self._pod_gone,
            WorkloadQueued: unplaced.queued,
            WorkloadDequeued: in_turn(claims.left, clearing.over),
            QuotaReserved: in_turn(self._reserved, planned.over),
            QuotaDenied: unplaced.denied,
            WorkloadAdopted: in_turn(self._adopted, planned.over),
            ClaimEnded: planned.over,
            PreemptionProposed: planned.proposed,
            EvictionOrdered: in_turn(planned.ordered, clearing.answered),
            PlanStale: in_turn(planned.answered, clearing.answered),
            ClearingProposed: clearing.proposed,
            ClearingTried: clearing.tried,
            ClearingOrdered: clearing.ordered,
            PlanTried: planned.answered,
            QuotaReleased: in_turn(self._released, clearing.released),
            GangAdmitted: in_turn(self._admitted, clearing.over),
            GangAwaitingNodes: in_turn(self._awaiting, clearing.over),
            GangDeferred: in_turn(self._deferred, clearing.over),
            PlacesFound: unplaced.found,
            PlacesReleased: self._given_back,
            PodGroupObserved: self._pod_group,
            PodGroupGone: self._pod_group_gone,
            PodsPlaced: binding.placed,
            PodsReleased: binding.released,
            GpuReservationEnded: gpugroups.ended,
            GangHeldBack: binding.held_back,
            NodesClaimed: claims.claimed,
            NodesClaimEnded: claims.ended,
            NodePoolsObserved: waiting.pools_observed,
            NodePoolsGone: waiting.pools_gone,
            NodesRequestWithdrawn: waiting.withdrawn,
            Synced: waiting.synced,
            EffectApplied: binding.applied,
            EffectFailed: in_turn(in_turn(binding.failed, planned.stays), clearing.stays),
            VictimStays: in_turn(planned.stays, clearing.stays),
        }

    # --- facts ------------------------------------------------------------------------------------------------

    def _chosen(self, state: AdmitterState, _at: Position, event: PlacementChosen) -> None:
        state.placement = event
        if event.strategy is None:
            for uid in list(state.holds):
                g.drop_hold(state, uid)

    def _workload(self, state: AdmitterState, _at: Position, event: WorkloadObserved) -> None:
        workload = event.workload
        if state.seen.newer(workload.ref.uid, workload.rv):
            state.owners.pop(workload.ref.uid, None)
            before = state.gangs.get(workload.ref.uid)
            gang = state.gangs[workload.ref.uid] = g.gang_of(workload)
            if before is not None:
                gang.rank, gang.placement = before.rank, before.placement
            unplaced.observed(state, workload.ref.uid)
            for each in (*workload.pod_sets, *workload.auxiliary):
                state.ledger.learn(each.rules)
            state.ledger.learn(PodRules(topology=workload.topology))

    def _workload_gone(self, state: AdmitterState, at: Position, event: WorkloadGone) -> None:
        if state.seen.end(event, at.at):
            unplaced.drop(state, event.ref.uid)
            state.found.pop(event.ref.uid, None)
            state.gangs.pop(event.ref.uid, None)
            state.waits.pop(event.ref.uid, None)
            state.plans.pop(event.ref.uid, None)
            state.orders.pop(event.ref.uid, None)

    def _child(self, state: AdmitterState, _at: Position, event: ChildObserved) -> None:
        if state.children_seen.newer(event.child.ref.uid, event.child.rv) and event.child.owner_uid:
            state.owners[event.child.ref.uid] = event.child.owner_uid
            state.ledger.hand_on(event.child.ref.uid, event.child.owner_uid)

    def _child_gone(self, state: AdmitterState, at: Position, event: ChildGone) -> None:
        if state.children_seen.end(event, at.at):
            state.owners.pop(event.ref.uid, None)

    def _node(self, state: AdmitterState, _at: Position, event: NodeObserved) -> None:
        state.ledger.node_observed(event)

    def _node_gone(self, state: AdmitterState, at: Position, event: NodeGone) -> None:
        state.ledger.node_gone(event, at.at)

    def _pod(self, state: AdmitterState, at: Position, event: PodObserved) -> None:
        if g.pod_observed(state, at, event) and event.pod.keeps:
            gpugroups.keeper_observed(state, at, event.pod)

    def _pod_gone(self, state: AdmitterState, at: Position, event: PodGone) -> None:
        if state.seen.end(event, at.at):
            pods.pod_gone(state.pods, event.ref.uid, at.at)
            state.keepers.pop(event.ref.uid, None)
            state.ledger.evict(event.ref.uid)

    def _pod_group(self, state: AdmitterState, _at: Position, event: PodGroupObserved) -> None:
        pods.pod_group_observed(state.pods, event)

    def _pod_group_gone(self, state: AdmitterState, at: Position, event: PodGroupGone) -> None:
        pods.pod_group_gone(state.pods, at, event)

    # --- decisions --------------------------------------------------------------------------------------------

    def _reserved(self, state: AdmitterState, at: Position, event: QuotaReserved) -> None:
        laid_out(state, event)
        room_until = at.at + DEVICES_GO_MS if event.ref.uid in state.orders else 0
        unplaced.drop(state, event.ref.uid)
        state.found.pop(event.ref.uid, None)
        state.reservations[event.ref.uid] = Reservation(
            event.ref,
            event.attempt,
            event.queue,
            event.basis,
            Cause(at.seq, at.item),
            room_until=room_until,
        )

    def _adopted(self, state: AdmitterState, _at: Position, event: WorkloadAdopted) -> None:
        unplaced.drop(state, event.ref.uid)

    def _released(self, state: AdmitterState, at: Position, event: QuotaReleased) -> None:
        unplaced.released(state, at, event, state.reservations.pop(event.ref.uid, None))
        state.admitted.pop(event.ref.uid, None)
        state.whole.pop(event.ref.uid, None)
        g.drop_hold(state, event.ref.uid)

    def _admitted(self, state: AdmitterState, at: Position, event: GangAdmitted) -> None:
        reservation = _reservation(state, event)
        if reservation is not None:
            del state.reservations[event.ref.uid]
            state.waits.pop(event.ref.uid, None)
            state.admitted[event.ref.uid] = event.attempt
            if event.placements:
                state.whole[event.ref.uid] = None
            g.hold(state, event, Cause(at.seq, at.item))
            for each in event.pod_sets:
                state.ledger.mix.learn(each.request, each.rules, each.count)

    def _awaiting(self, state: AdmitterState, at: Position, event: GangAwaitingNodes) -> None:
        reservation = _reservation(state, event)
        if reservation is not None:
            reservation.shortage, reservation.until = event.shortage, event.until
            reservation.told, reservation.growth = at.at, event.growth
            claims.in_vain(state, at, event)

    def _deferred(self, state: AdmitterState, at: Position, event: GangDeferred) -> None:
        reservation = _reservation(state, event)
        if reservation is not None:
            reservation.deferred = True
            reservation.in_vain = any(each.why == "in_vain" for each in event.refusals)
            claims.in_vain(state, at, event)

    def _given_back(self, state: AdmitterState, _at: Position, event: PlacesReleased) -> None:
        g.give_back(state, event)

    # --- decide -----------------------------------------------------------------------------------------------

    def decide(self, state: AdmitterState) -> list[Decision]:
        """Places given back first, then every reservation in the order they were made."""
        return first(self._due(state))

    def _due(self, state: AdmitterState) -> Iterator[Decision]:
        for found in state.holds.values():
            if found.until <= state.now or state.ledger.lost:
                yield from _given_back(state, found)
        released = list(binding.due(state))
        yield from released
        yield from gpugroups.due(state)
        if not state.admitting:
            return
        view = View(state.ledger)
        placer = PodGangPlacer(state, view, {key for each in released for key in each.gangs}, Growing(state))
        acted = False
        for each in self._admissions(state, view, placer):
            acted = True
            yield each
        if not acted:  # What is placed in this commit is on no node yet: plans are tried on what it leaves.
            yield from planned.due(state)
            yield from clearing.due(state)
            yield from unplaced.due(state, view, placer.growing)

    def _admissions(self, state: AdmitterState, view: View, placer: PodGangPlacer) -> Iterator[Decision]:
        hopeless: dict[str, Shortage] = {}
        """Asks that found no place -> why: nobody who asks for the same is tried again in this commit."""
        yield from claims.over(state)
        mine = {claim.key for claim in claims.standing(state)}
        if state.placement.strategy is not None:
            placed: set[str] = set()
            for uid, reservation in state.reservations.items():
                first = bool(reservation.room_until) or uid in state.cleared
                if first and (uid not in mine or uid in state.cleared) and not clearing.awaits(state, uid):
                    mark = view.mark()
                    yield from _tried(state, view, reservation, hopeless, placer, placed)
                    if view.mark() != mark:
                        placed.add(uid)
            for uid in state.cleared:
                if uid in state.unplaced and not clearing.awaits(state, uid):
                    yield from unplaced.claimed(state, view, uid)
            clearing.keep(state, view, placed)
        yield from self._claimants(state, view, placer)
        if state.placement.strategy is None:
            native = state.placement.mode == "native"
            for uid, reservation in state.reservations.items():
                gang = state.gangs.get(uid)
                if gang is None or not gang.held:
                    yield _admission(
                        reservation, together=together(gang.pod_sets) if native and gang is not None else 0
                    )
        else:
            for uid, reservation in state.reservations.items():
                if uid not in mine and not reservation.room_until and uid not in state.cleared:
                    yield from _tried(state, view, reservation, hopeless, placer)
        yield from placer.due()

    @staticmethod
    def _claimants(state: AdmitterState, view: View, placer: PodGangPlacer) -> Iterator[Decision]:
        """The gangs that have claimed nodes come before the others, each beside what is kept for the rest of them; what
        it does not get yet is kept for it.

        A job that others were suspended for has been tried before: its plan was tried without regard to what is kept.
        """
        found = claims.standing(state)
        kept = {
            claim.key: claims.keep(state, view, claim.places, placer.asks_of_claim(claim))
            for claim in reversed(found[1:])
        }
        for claim in found:
            for node, amounts in kept.get(claim.key, ()):
                view.unkeep(node, amounts)
            mark = view.mark()
            if claim.ref is None:
                yield from placer.claimant(claim)
            elif claim.key in state.cleared:
                pass  # It has been tried before the others.
            elif claim.key in state.reservations and not clearing.awaits(state, claim.key):
                yield from _tried(state, view, state.reservations[claim.key], {}, placer)
            elif claim.key in state.unplaced:
                yield from unplaced.claimed(state, view, claim.key)
            if view.mark() == mark:
                claims.keep(state, view, claim.places, placer.asks_of_claim(claim))

    def next_deadline(self, state: AdmitterState) -> int | None:
        """When places are given back, or a gang stops waiting for nodes."""
        ends = [found.until for found in state.holds.values()]
        if state.placement.strategy is not None:
            waiting_for = state.reservations.values()
            ends += [each.until for each in waiting_for if each.until and not each.deferred]
            ends += [each.room_until for each in waiting_for if not each.deferred and _devices_go(state, each)]
            ends += unplaced.deadlines(state)
        ends += [each.until for each in state.cleared.values() if each.until > state.now]
        ends += binding.deadlines(state)
        return min(ends, default=None)

    # --- check ------------------------------------------------------------------------------------------------

    def check(self, state: AdmitterState) -> list[Violation]:
        """I9: nothing both waits and is admitted. I3: what a node gives is what its occupants and holds take."""
        found = []
        both = sorted(state.reservations.keys() & state.admitted.keys())
        if both:
            found.append(Violation("I9", f"reserved again while admitted: {both[:5]}"))
        used = {name: node.used for name, node in state.ledger.nodes.items() if node.used}
        counted = {name: total for name, total in state.ledger.recount().items() if total}
        if used != counted:
            found.append(Violation("I3", f"the nodes say {used}, their occupants take {counted}"))
        leaked = sorted(uid for uid in state.holds if uid not in state.admitted)
        if leaked:
            found.append(Violation("I3", f"places are held for nobody admitted: {leaked[:5]}"))
        return [*found, *binding.check(state)]


def _reservation(state: AdmitterState, event: GangAdmitted | GangAwaitingNodes | GangDeferred) -> Reservation | None:
    found = state.reservations.get(event.ref.uid)
    return found if found is not None and found.attempt == event.attempt else None


def _tried(
    state: AdmitterState,
    view: View,
    reservation: Reservation,
    hopeless: dict[str, Shortage],
    placer: PodGangPlacer,
    placed: Container[str] = (),
) -> Iterator[Decision]:
    """An admission with a place for every pod, or why a gang without one waits.

    ``placed``: uids of jobs that were placed before it; nothing is kept for them any more.
    """
    gang = state.gangs.get(reservation.ref.uid)
    if reservation.deferred or gang is None or gang.held:
        return
    asks, mode = asks_of(state, gang), state.placement.strategy
    assert mode is not None
    key, mark = repr(asks), view.mark()
    as_planned = clearing.take(state, view, reservation.ref.uid, asks, placed)
    short = None if as_planned else hopeless.get(key)
    if short is None and not as_planned:
        short = place(view, asks, mode)
        if short is not None:
            short = hopeless[key] = claims.in_the_way(state, view, short, asks, mode, placer.asks_of_claim)
    if short is not None and _devices_go(state, reservation):
        return  # Those who left for it shared devices: a moment later nobody keeps these any more.
    if short is None:
        placements = tuple(
            Placement(
                taken.ask.name, taken.node, taken.count, taken.devices, groups_of(state, taken.node, taken.devices)
            )
            for taken in view.taken[mark[1] :]
        )
        until = state.now + state.placement.hold_ms
        yield _admission(reservation, (*gang.pod_sets, *gang.auxiliary), placements, until, gang.placement)
        return
    decision = waiting.waits(state, reservation, short, asks, view, placer.growing)
    if decision is not None:
        yield decision
    if not placer.claimed:
        claim = claims.claim_of_job(state, reservation, asks)
        placer.claimed = bool(claim)
        yield from claim


def _devices_go(state: AdmitterState, reservation: Reservation) -> bool:
    """Whether work left for it, and a device is still kept though nobody shares it any more."""
    return state.now < reservation.room_until and any(each.idle and each.ready for each in state.ledger.nodes.values())


def _admission(
    reservation: Reservation,
    pod_sets: tuple[PodSet, ...] = (),
    placements: tuple[Placement, ...] = (),
    held_until: int = 0,
    placement: str = "",
    together: int = 0,
) -> GangAdmitted:
    return GangAdmitted(
        cause=reservation.cause,
        ref=reservation.ref,
        attempt=reservation.attempt,
        queue=reservation.queue,
        placement=placement,
        basis=reservation.basis,
        pod_sets=pod_sets if placements else (),
        placements=placements,
        held_until=held_until if placements else 0,
        together=together,
    )


def _given_back(state: AdmitterState, found: Hold) -> Iterator[Decision]:
    """Held places whose time is over, or whose node is gone."""
    for reason in ("node_gone", "not_taken"):
        placements = []
        for key, gone in g.due_places(state, found):
            occupant = state.ledger.occupants[key]
            if gone == (reason == "node_gone"):
                placements.append(Placement(found.places[key], occupant.node, occupant.count, tuple(occupant.devices)))
        if placements:
            told: GiveBackReason = "node_gone" if reason == "node_gone" else "not_taken"
            yield PlacesReleased(
                cause=found.cause, ref=found.ref, attempt=found.attempt, reason=told, placements=tuple(placements)
            )
