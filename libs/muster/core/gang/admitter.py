"""The gang admitter: the only authority on nodes. Admits a workload with reserved quota as a whole, or not at all.

With placement off, quota alone decides. With placement on, a gang is admitted with a place for every pod needed for the
start, and the places are held until the pods come. A gang without places holds no room. Where nodes may be added the
gang keeps its quota for a while; otherwise the quota is released.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import ClassVar

from muster.core.gang import (
    admitterfolds,
    admitterstate,
    binding,
    heldplaces,
    newnodes,
    nodeclaims,
    placelines,
    plantrials,
    podquota,
)
from muster.core.gang.admitterstate import AdmitterState, Hold, Reservation, queued_as
from muster.core.gang.heldplaces import groups_of
from muster.core.gang.jobplaces import asks_of
from muster.core.gang.newnodes import Growing
from muster.core.gang.placer import PodGangPlacer
from muster.core.gang.podgangs import NodeClaim
from muster.core.placement.place import place
from muster.core.placement.view import Kept, View
from muster.core.stage import NEWEST, Arm, Stage, Violation, arms_of, first
from muster.events.base import Decision, Event
from muster.events.decisions import GangAdmitted, PlacesReleased
from muster.events.reasons import GiveBackReason
from muster.model.places import Placement, Shortage
from muster.model.quota import FlavorNodes
from muster.model.workload import PodSet, together


class GangAdmitter(Stage[AdmitterState]):
    """The stage ``gang_admitter``."""

    name: ClassVar[str] = "gang_admitter"
    kept: ClassVar[type[AdmitterState]] = AdmitterState
    newest_ruleset: ClassVar[int] = NEWEST

    def arms(self) -> Mapping[type[Event], Arm]:
        return arms_of(*admitterfolds.SOURCES, podquota)

    # --- decide -----------------------------------------------------------------------------------------------

    def decide(self, state: AdmitterState) -> list[Decision]:
        """First the released places, then the reservations, in the order of their making."""
        return first(self._due(state))

    def _due(self, state: AdmitterState) -> Iterator[Decision]:
        ends = state.ends.first()
        for hold in state.holds.values() if state.ledger.lost or (ends is not None and ends <= state.now) else ():
            if hold.until <= state.now or state.ledger.lost:
                yield from _given_back(state, hold)
        released = list(binding.releases_due(state))
        yield from released
        yield from heldplaces.ends_due(state)
        if not state.admitting:
            return
        view = View(state.ledger)
        placer = PodGangPlacer(state, view, {key for release in released for key in release.gangs}, Growing(state))
        acted = False
        for decision in self._admissions(state, view, placer):
            acted = True
            yield decision
        if not acted:
            yield from placelines.retries_due(state, view, placer.growing)

    def _admissions(self, state: AdmitterState, view: View, placer: PodGangPlacer) -> Iterator[Decision]:
        yield from nodeclaims.over(state)
        claims, ordered = nodeclaims.standing(state), dict.fromkeys(plantrials.kept(state))
        mine = {claim.key for claim in claims}
        if state.placement.strategy is not None and (state.reservations or state.unplaced or state.pods.open or mine):
            yield from self._served(state, view, placer, ordered, mine - ordered.keys())  # else nothing is placed
        owed = [claim for claim in claims if nodeclaims.is_owed(state, claim)]
        yield from self._claimants(state, view, placer, owed)
        others = [claim for claim in claims if claim not in owed]
        if state.placement.strategy is not None:
            yield from self._others(state, view, placer, {*mine, *ordered}, others)
        else:
            yield from self._claimants(state, view, placer, others)
            native = state.placement.mode == "native"
            for uid, reservation in state.reservations.items():
                gang = state.gangs.get(uid)
                if gang is None or not gang.held:
                    yield _admission(
                        reservation,
                        together=together(gang.pod_sets) if native and gang is not None else 0,
                        nodes=queued_as(state.queued, uid).nodes,
                    )
        yield from placer.decisions_due()

    @staticmethod
    def _served(
        state: AdmitterState, view: View, placer: PodGangPlacer, ordered: Mapping[str, None], later: Container[str]
    ) -> Iterator[Decision]:
        """The jobs with suspended victims. Each job has its own kept places, beside the places of the other jobs.

        A job with victims still leaving is admitted where the job has room without their room, unless some victims
        move. No job takes the places kept for another: work was evicted for the other.

        ``ordered``: jobs with an order with places. ``later``: jobs tried later.
        """
        kept = plantrials.keep(state, view)
        for uid, reservation in state.reservations.items():
            if uid in later or not (reservation.room_until or uid in ordered):
                continue
            awaits = plantrials.awaits(state, uid)
            if awaits and state.orders[uid].of_move:
                continue
            mark = _unkept(view, kept.get(uid, ()))
            if awaits and not _fits(state, view, uid):
                view.undo(mark)
                continue
            yield from _tried(state, view, reservation, {}, placer)
            if len(view.taken) == mark[1]:
                view.undo(mark)
                continue
            kept.pop(uid, None)  # The job has its places: no more is kept.
        for uid in [uid for uid in ordered if uid in state.unplaced]:
            here = any(room.whole for _, room in kept.get(uid, ())) and not state.orders[uid].of_move
            if here or not plantrials.awaits(state, uid):
                mark = _unkept(view, kept.get(uid, ()))
                yield from placelines.claimed(state, view, uid)
                view.undo(mark)

    def _others(
        self,
        state: AdmitterState,
        view: View,
        placer: PodGangPlacer,
        kept: Container[str],
        claims: Sequence[NodeClaim],
    ) -> Iterator[Decision]:
        """The jobs with quota and without kept places: first jobs within a guarantee, then unplaced jobs within a
        guarantee, then borrowers. The nodes claimed by gangs that borrow (``claims``) are open to a guarantee.
        """
        hopeless: dict[str, Shortage] = {}
        """Request without a place -> shortage: no further job with the same request is tried in this commit."""
        plain = [
            reservation
            for reservation in state.reservations.values()
            if not reservation.room_until and reservation.ref.uid not in kept
        ]
        for reservation in plain:
            if reservation.owed:
                yield from _tried(state, view, reservation, hopeless, placer)
        borrow, mark, acted = [reservation for reservation in plain if not reservation.owed], view.mark(), False
        trials = [placelines.owed_first(state, view)] if borrow or claims else []
        claimants = self._claimants(state, view, placer, claims)
        tried = (_tried(state, view, reservation, hopeless, placer) for reservation in borrow)
        for decision in chain(*trials, claimants, *tried):
            acted = True
            yield decision
        if not acted:
            view.undo(mark)
            for claim in reversed(claims):
                nodeclaims.keep(view, claim.places, placer.asks_of_claim(claim))

    @staticmethod
    def _claimants(
        state: AdmitterState, view: View, placer: PodGangPlacer, claims: Sequence[NodeClaim]
    ) -> Iterator[Decision]:
        """The gangs with claimed nodes come before other gangs, each beside the room kept for the other claims. The
        nodes of a gang without places now are kept for the gang.

        A job with suspended victims has been tried before: its plan was tried without regard to kept places.
        """
        kept = {
            claim.key: nodeclaims.keep(view, claim.places, placer.asks_of_claim(claim))
            for claim in reversed(claims[1:])
        }
        for claim in claims:
            for node, amounts in kept.get(claim.key, ()):
                view.unkeep(node, amounts)
            mark = view.mark()
            if claim.ref is None:
                yield from placer.claimant(claim)
            elif claim.key in state.orders and state.orders[claim.key].places:
                pass  # Tried before all other jobs.
            elif claim.key in state.reservations and not plantrials.awaits(state, claim.key):
                yield from _tried(state, view, state.reservations[claim.key], {}, placer)
            elif claim.key in state.unplaced:
                yield from placelines.claimed(state, view, claim.key)
            if view.mark() == mark:
                nodeclaims.keep(view, claim.places, placer.asks_of_claim(claim))

    def next_deadline(self, state: AdmitterState) -> int | None:
        """When places are released, or a gang stops waiting for nodes."""
        first = state.ends.first()
        ends = [first] if first is not None else []
        if state.placement.strategy is not None:
            waiting_for = state.reservations.values()
            ends += [reservation.until for reservation in waiting_for if reservation.until and not reservation.deferred]
            ends += [
                reservation.room_until
                for reservation in waiting_for
                if not reservation.deferred and _devices_go(state, reservation)
            ]
        ends += [order.until for order in state.orders.values() if order.places and order.until > state.now]
        ends += placelines.deadlines(state)
        ends += binding.deadlines(state)
        return min(ends, default=None)

    # --- check ------------------------------------------------------------------------------------------------

    def check(self, state: AdmitterState) -> list[Violation]:
        """I9: no workload both waits and is admitted. I3: the used amounts of a node are the sum of its occupants and
        held places.
        """
        violations = []
        both = sorted(state.reservations.keys() & state.admitted.keys())
        if both:
            violations.append(Violation("I9", f"reserved again while admitted: {both[:5]}"))
        used = {name: node.used for name, node in state.ledger.nodes.items() if node.used}
        counted = {name: total for name, total in state.ledger.recount().items() if total}
        if used != counted:
            violations.append(Violation("I3", f"the nodes say {used}, their occupants take {counted}"))
        if state.ledger.idling.keys() != {name for name, node in state.ledger.nodes.items() if node.idle}:
            violations.append(Violation("I3", f"nodes with a device kept for no pod: {sorted(state.ledger.idling)}"))
        for key, sought in state.ledger.sought.items():
            if sought.room != (room := state.ledger.room_for(sought)):
                violations.append(Violation("I3", f"the nodes take {room} pods of {key}, and {sought.room} are known"))
        if state.ends.at != {uid: hold.until for uid, hold in state.holds.items() if hold.until}:
            violations.append(Violation("I3", "held places end at other times than is kept"))
        leaked = sorted(uid for uid in state.holds if uid not in state.admitted)
        if leaked:
            violations.append(Violation("I3", f"places are held without an admission: {leaked[:5]}"))
        return [*violations, *binding.check(state)]


def _fits(state: AdmitterState, view: View, uid: str) -> bool:
    """Whether a job has places beside the room kept for other jobs."""
    gang, mode, mark = state.gangs.get(uid), state.placement.strategy, view.mark()
    fits = gang is None or mode is None or place(view, asks_of(state, gang), mode) is None
    view.undo(mark)
    return fits


def _unkept(view: View, kept: Iterable[tuple[str, Kept]]) -> tuple[int, int]:
    """Release kept room in the view for a job; returns the mark for an undo."""
    mark = view.mark()
    for node, room in kept:
        view.unkeep(node, room)
    return mark


def _tried(
    state: AdmitterState,
    view: View,
    reservation: Reservation,
    hopeless: dict[str, Shortage],
    placer: PodGangPlacer,
) -> Iterator[Decision]:
    """An admission with a place for every pod, or the reason why the gang waits."""
    gang = state.gangs.get(reservation.ref.uid)
    if reservation.deferred or gang is None or gang.held:
        return
    asks, mode = asks_of(state, gang), state.placement.strategy
    assert mode is not None
    key, mark = repr(asks), view.mark()
    as_planned = plantrials.take(state, view, reservation.ref.uid, asks)
    short = None if as_planned else hopeless.get(key)
    if short is None and not as_planned:
        short = place(view, asks, mode)
        if short is not None:
            short = hopeless[key] = nodeclaims.in_the_way(state, view, short, asks, mode, placer.asks_of_claim)
    if short is not None and _devices_go(state, reservation):
        return  # The victims shared devices: soon no group keeps these devices.
    if short is None:
        placements = tuple(
            Placement(
                taken.ask.name, taken.node, taken.count, taken.devices, groups_of(state, taken.node, taken.devices)
            )
            for taken in view.taken[mark[1] :]
        )
        until = state.now + state.placement.hold_ms
        pod_sets = (*gang.steered, *gang.auxiliary)
        yield _admission(reservation, pod_sets, placements, until, gang.placement, nodes=gang.nodes)
        return
    decision = newnodes.waits(state, reservation, short, asks, view, placer.growing)
    if decision is not None:
        yield decision
    if not placer.claimed:
        claim = nodeclaims.claim_of_job(state, reservation, asks)
        placer.claimed = bool(claim)
        yield from claim


def _devices_go(state: AdmitterState, reservation: Reservation) -> bool:
    """Whether victims left for the job, and a device is still kept without a pod that shares the device."""
    ledger = state.ledger
    return state.now < reservation.room_until and any(ledger.nodes[name].ready for name in ledger.idling)


NO_NODES: Mapping[str, FlavorNodes] = {}


def _admission(
    reservation: Reservation,
    pod_sets: tuple[PodSet, ...] = (),
    placements: tuple[Placement, ...] = (),
    held_until: int = 0,
    placement: str = "",
    together: int = 0,
    nodes: Mapping[str, FlavorNodes] = NO_NODES,
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
        nodes=dict(nodes),
    )


def _given_back(state: AdmitterState, hold: Hold) -> Iterator[Decision]:
    """Held places past their time, or on a node that is gone."""
    for reason in ("node_gone", "not_taken"):
        placements = []
        for key, gone in admitterstate.due_places(state, hold):
            occupant = state.ledger.occupants[key]
            if gone == (reason == "node_gone"):
                placements.append(Placement(hold.places[key], occupant.node, occupant.count, tuple(occupant.devices)))
        if placements:
            told: GiveBackReason = "node_gone" if reason == "node_gone" else "not_taken"
            yield PlacesReleased(
                cause=hold.cause, ref=hold.ref, attempt=hold.attempt, reason=told, placements=tuple(placements)
            )
