"""Trials of plans, and kept places: the preemptor tries a plan on the nodes before the proposal, and the places found
for the claimant are kept from the proposal on.

A plan is tried on the nodes as expected after all earlier orders: their victims are gone, and their claimants have
places. The room released by the victims is kept as long as the claim on quota, then until the job is placed, or
until ten minutes after the last victim has left.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from muster.core.gang import placelines
from muster.core.gang.admitterstate import KEPT_MS, AdmitterState, NodesOrder
from muster.core.gang.jobplaces import (
    asks_of,
    asks_of_claimant,
    elsewhere,
    jobs_on,
    laid_out,
    leave,
    occupants_of,
    placements,
)
from muster.core.placement.place import place
from muster.core.placement.view import Ask, Kept, View
from muster.events.claims import ClaimEnded, ClaimOpened, PlanStale, VictimStays
from muster.events.decisions import (
    EvictionOrdered,
    GangAdmitted,
    GangAwaitingNodes,
    GangDeferred,
    PreemptionProposed,
    QuotaReleased,
    QuotaReserved,
    WorkloadAdopted,
    WorkloadDequeued,
)
from muster.events.effects import EffectFailed
from muster.events.facts import WorkloadGone, WorkloadObserved
from muster.model.keys import Position
from muster.model.places import Move, Placement


def proposed(state: AdmitterState, _at: Position, event: PreemptionProposed) -> None:
    if event.victims and not event.withheld:
        laid_out(state, event)
        state.plans[event.ref.uid] = event


def answered(state: AdmitterState, _at: Position, event: PlanStale) -> None:
    state.plans.pop(event.ref.uid, None)


def opened(state: AdmitterState, _at: Position, event: ClaimOpened) -> None:
    """A claim for owed quota without own victims has an order too: its places come from victims of other orders."""
    if event.kind != "age" and event.ref.uid not in state.orders:
        state.orders[event.ref.uid] = NodesOrder((), 0, {}, {}, open=True, claims=event.queue)


def ordered(state: AdmitterState, at: Position, event: EvictionOrdered) -> None:
    """The places found for the claimant, and for the jobs moved for the claimant, are kept from now on."""
    plan, before = state.plans.pop(event.ref.uid, None), state.orders.get(event.ref.uid)
    places = plan.places if plan is not None else ()
    for past in [uid for uid, order in state.orders.items() if not _stands(state, order)]:
        del state.orders[past]
    leaving = {victim.ref.uid: occupants_of(state, victim.ref.uid) for victim in event.victims}
    awaited = _leaves(state, places) | leaving
    order = NodesOrder(places, at.at + KEPT_MS, awaited, dict.fromkeys(awaited), open=True, of_move=bool(event.moves))
    order.growth, order.pods = event.growth, event.pods
    order.frees = _shared(state, awaited)
    if not event.for_nodes:
        order.claims = event.queue
    if before is not None:
        order.leaving, order.going = before.leaving | order.leaving, before.going | order.going
        for node, devices in before.frees.items():
            order.frees[node] = [*devices, *order.frees.get(node, ())]
        order.places, order.claims = order.places or before.places, order.claims or before.claims
    state.orders[event.ref.uid] = order
    for move in event.moves:
        asks = repr(asks_of(state, state.gangs[move.uid])) if move.uid in state.gangs else ""
        mine = NodesOrder(move.places, order.until, {**leaving}, dict.fromkeys(leaving), of_move=True, moved=asks)
        mine.frees = order.frees
        state.orders[move.uid] = mine


def _leaves(state: AdmitterState, places: Sequence[Placement]) -> dict[str, list[str]]:
    """{uid of a victim of another order: its occupants on the nodes of ``places``}: the places may
    count on this room.
    """
    going = {uid for order in state.orders.values() for uid in order.going}
    by_victim: dict[str, list[str]] = {}
    for node in {planned.node: None for planned in places} if going else ():
        for uid, keys in jobs_on(state, node).items():
            if uid in going:
                by_victim.setdefault(uid, []).extend(keys)
    return by_victim


def _shared(state: AdmitterState, leaving: Mapping[str, Sequence[str]]) -> dict[str, list[int]]:
    """{node: GPU devices shared by the occupants}. ``leaving``: uid -> keys of its occupants."""
    by_node: dict[str, list[int]] = {}
    for occupant in (state.ledger.occupants[key] for keys in leaving.values() for key in keys):
        if occupant.share:
            devices = by_node.setdefault(occupant.node, [])
            devices += [device for device in occupant.devices if device not in devices]
    return by_node


def stays(state: AdmitterState, _at: Position, event: VictimStays | EffectFailed) -> None:
    """A victim does not leave, or not soon: the room expected by the plan does not come."""
    if isinstance(event, EffectFailed) and event.action != "suspend":
        return
    for uid in [uid for uid, order in state.orders.items() if event.ref.uid in order.leaving]:
        del state.orders[uid].leaving[event.ref.uid]
        state.orders[uid].going.pop(event.ref.uid, None)
        _without_places(state, uid)


def over(
    state: AdmitterState, _at: Position, event: GangAdmitted | GangDeferred | GangAwaitingNodes | WorkloadDequeued
) -> None:
    """The job has its places, or was tried with all victims gone, or no longer wants places."""
    _without_places(state, event.ref.uid)
    for order in state.orders.values() if isinstance(event, GangAdmitted) else ():
        order.leaving.pop(event.ref.uid, None)  # The job has left, and runs elsewhere.


def charged(state: AdmitterState, at: Position, event: QuotaReserved | WorkloadAdopted) -> None:
    """No quota is held for the job any more; its places are kept until its admission.

    A job with quota claimed for another job has the other's places, too. Among jobs with the same request, the first to
    have quota has the places of victims already gone; the other job waits for its own victims.
    """
    uid = event.ref.uid
    if isinstance(event, QuotaReserved):
        _taken_over(state, uid, event.serves)
        _exchanged(state, uid)
    own = state.orders.get(uid)
    if own is not None:
        own.open, own.claims, own.until = False, "", at.at + KEPT_MS
        if not own.places:
            del state.orders[uid]


def _taken_over(state: AdmitterState, uid: str, served: str) -> None:
    """A job has the quota claimed for another job."""
    order, own = state.orders.pop(served, None), state.orders.get(uid)
    if order is not None and (own is None or not own.places) and _asks_alike(state, uid, served):
        state.orders[uid] = order


def _exchanged(state: AdmitterState, uid: str) -> None:
    """Job ``uid`` has got quota, and the victims of its order still leave. Let it swap orders with the first job of
    the same request whose victims have all left, so that the job with quota has places at once.
    """
    own = state.orders.get(uid)
    if own is None or not own.claims or not own.places or not _awaited(state, own):
        return
    for other, order in state.orders.items():
        free = order.open and order.places and order.growth is None and not _awaited(state, order)
        if free and other != uid and _asks_alike(state, uid, other):
            state.orders[uid], state.orders[other] = order, own
            break


def _asks_alike(state: AdmitterState, uid: str, other: str) -> bool:
    """Whether two jobs ask the same of the nodes."""
    gang, beside = state.gangs.get(uid), state.gangs.get(other)
    return gang is not None and beside is not None and asks_of(state, gang) == asks_of(state, beside)


def ended(state: AdmitterState, _at: Position, event: ClaimEnded | WorkloadGone) -> None:
    state.orders.pop(event.ref.uid, None)
    if isinstance(event, WorkloadGone):
        state.plans.pop(event.ref.uid, None)


def released(state: AdmitterState, at: Position, event: QuotaReleased) -> None:
    """A victim has left. A job to be moved that does not come back at once loses its kept places."""
    for order in state.orders.values():
        if event.ref.uid in order.going:
            del order.going[event.ref.uid]
            order.until = at.at + KEPT_MS
    moving = state.orders.get(event.ref.uid)
    if moving is not None and moving.moved and event.reason != "moved":
        del state.orders[event.ref.uid]


def observed(state: AdmitterState, _at: Position, event: WorkloadObserved) -> None:
    """A job to be moved with another request than at the order loses its kept places."""
    uid = event.workload.ref.uid
    order = state.orders.get(uid)
    if order is not None and order.moved and order.moved != repr(asks_of(state, state.gangs[uid])):
        del state.orders[uid]


def _without_places(state: AdmitterState, uid: str) -> None:
    """No places are kept for the job any more; a claim on quota still waits for the victims."""
    order = state.orders.get(uid)
    if order is not None:
        order.places = ()
        if not order.claims:
            del state.orders[uid]


# --- what is kept -------------------------------------------------------------------------------------------------


def kept(state: AdmitterState) -> Iterator[str]:
    """Uids of jobs with kept places, in the order of their orders."""
    return (uid for uid, order in state.orders.items() if order.places)


def in_force(state: AdmitterState) -> Iterator[tuple[str, NodesOrder]]:
    """(uid of a job, order) of the orders in force with places, in the order of their making."""
    return ((uid, order) for uid, order in state.orders.items() if order.places and _stands(state, order))


def _stands(state: AdmitterState, order: NodesOrder) -> bool:
    return order.open or bool(order.going) or order.until > state.now


def _awaited(state: AdmitterState, order: NodesOrder) -> bool:
    """Whether a victim is still on the nodes."""
    return any(key in state.ledger.occupants for keys in order.leaving.values() for key in keys)


def awaits(state: AdmitterState, uid: str) -> bool:
    """Whether a victim is still on the nodes, or a device is still kept for a victim."""
    order, ledger = state.orders.get(uid), state.ledger
    if order is None or not order.places or not _stands(state, order):
        return False
    if _awaited(state, order):
        return True
    reservation = state.reservations.get(uid)
    if reservation is not None and 0 < reservation.room_until <= state.now:
        return False
    return any(ledger.nodes[place.node].idle for place in order.places if place.node in ledger.nodes)


def keep(state: AdmitterState, view: View, but: Container[str] = ()) -> dict[str, list[tuple[str, Kept]]]:
    """Keep the free room of ordered places for their jobs; returns {uid: kept room}.

    ``but``: jobs without kept room.
    """
    by_job: dict[str, list[tuple[str, Kept]]] = {}
    for uid, asked, places, frees in _kept(state):
        asks = {ask.name: ask for ask in asked}
        mine = by_job.setdefault(uid, [])
        for ordered_place in places if uid not in but else ():
            if ordered_place.pod_set in asks:
                kept = view.keep(
                    asks[ordered_place.pod_set],
                    ordered_place.node,
                    ordered_place.count,
                    ordered_place.devices,
                    frees.get(ordered_place.node, ()),
                )
                mine.append((ordered_place.node, kept))
    return by_job


KeptPlaces = tuple[str, Sequence[Ask], Sequence[Placement], Mapping[str, Sequence[int]]]
"""(uid of a job, its request, its places, node -> GPU devices shared by its victims)"""


def _kept(state: AdmitterState) -> Iterator[KeptPlaces]:
    """The kept places of orders in force, then of plans, until the plan is ordered or stale."""
    for uid, order in sorted(in_force(state), key=lambda entry: _awaited(state, entry[1])):
        if uid in state.gangs and (state.gangs[uid].waits or order.moved or order.growth is not None):
            yield uid, asks_of_claimant(state, uid, order.growth, order.pods), order.places, order.frees
    for uid, plan in state.plans.items():
        yield uid, asks_of_claimant(state, uid, plan.growth, plan.pods), plan.places, {}
        for move in plan.moves:
            yield move.uid, asks_of_claimant(state, move.uid, None, 0), move.places, {}


def take(state: AdmitterState, view: View, uid: str, asks: Sequence[Ask]) -> bool:
    """Take the places planned for a job of a move; False where the places no longer do. ``view``: without the room kept
    for other jobs.
    """
    order, mode = state.orders.get(uid), state.placement.strategy
    if order is None or not order.places or not _stands(state, order) or not order.of_move or mode is None:
        return False
    planned_nodes = {place.node for place in order.places}
    there = view.onto(state.ledger)
    for name in [name for name in state.ledger.nodes if name not in planned_nodes]:
        there.close(name)
    before = len(there.taken)
    if place(there, asks, mode) is not None:
        return False
    for taken in there.taken[before:]:
        need = view.need(taken.ask, taken.node)
        assert need is not None, f"{taken.node} has had room just now"
        view.take(taken.ask, need, taken.node, taken.count)
    return True


def supposed(state: AdmitterState, but: str = "") -> View:
    """The nodes as expected after all orders for other jobs, and after all plans."""
    view, mode, gone = View(state.ledger), state.placement.strategy, set[str]()

    def give(keys: Iterable[str]) -> None:
        for key in keys:
            if key in state.ledger.occupants and key not in gone:
                view.give(state.ledger.occupants[key])
                gone.add(key)

    unknown = [uid for uid, order in state.orders.items() if not order.places]
    for uid in unknown:
        give(key for victim in state.orders[uid].going for key in occupants_of(state, victim))
    for _, order in in_force(state):
        give(key for keys in order.leaving.values() for key in keys)
    keep(state, view, (but,))
    for uid in unknown:
        if mode is not None and uid != but:  # Any places would do, of all that leaves.
            order = state.orders[uid]
            place(view, asks_of_claimant(state, uid, order.growth, order.pods), mode)
    _started(state, view)
    return view


def settled(state: AdmitterState, but: str = "") -> View:
    """Like :func:`supposed`, without room that only the end of another job would free: a moved job has its place
    whatever happens to victims of other orders.
    """
    view = View(state.ledger)
    keep(state, view, (but,))
    _started(state, view)
    return view


def _started(state: AdmitterState, view: View) -> None:
    """Take the places of the jobs about to start: with quota and without an answer yet, or tried again."""
    mode = state.placement.strategy
    for uid, reservation in state.reservations.items():
        gang = state.gangs.get(uid)
        answered = reservation.told or reservation.deferred or uid in state.orders
        if mode is not None and gang is not None and not answered and not gang.held:
            place(view, asks_of(state, gang), mode)
    placelines.suppose(state, view)


# --- what is tried ------------------------------------------------------------------------------------------------


Places = tuple[tuple[Placement, ...], tuple[Move, ...]]
"""The places of a claimant, and the new places of the jobs that move for it."""


def tried(
    state: AdmitterState, view: View, asks: Sequence[Ask], victims: Iterable[str], moving: Sequence[str]
) -> Places | None:
    """The places for a claimant with its victims gone, and other places for the ``moving`` ones; None without.

    ``view``: of :func:`settled` where jobs move, else of :func:`supposed`. The places are taken in the view.
    """
    mode = state.placement.strategy
    if mode is None:
        return None
    leave(state, view, victims)
    here = view.mark()
    if place(view, asks, mode) is not None:
        return None
    places = placements(view, here)
    moves = elsewhere(state, view, moving, mode)
    return (places, moves) if moves is not None else None
