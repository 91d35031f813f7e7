"""Jobs that have their quota and no place: whether they keep it and wait for nodes, or release it; and the nodes that
may be added.
"""

from __future__ import annotations

from collections.abc import Sequence

from muster.core.gang.growing import Growing
from muster.core.gang.state import AdmitterState, Reservation, Vain
from muster.core.placement.view import Ask, View
from muster.events.base import Decision
from muster.events.decisions import GangAwaitingNodes, GangDeferred
from muster.events.facts import NodePoolsGone, NodePoolsObserved, Synced
from muster.events.growing import NodesRequestWithdrawn, for_whom
from muster.model.keys import Position
from muster.model.places import Shortage
from muster.model.pools import Growth, PoolRefusal

TELL_EVERY_MS = 60_000
"""That the obstacles of a waiting gang have changed is said again no sooner than this."""
REQUESTS = "provisioningrequests"


def pools_observed(state: AdmitterState, _at: Position, event: NodePoolsObserved) -> None:
    state.pools = {pool.name: pool for pool in event.pools}
    state.pools_uid, state.pools_rv = event.ref.uid, event.rv


def pools_gone(state: AdmitterState, _at: Position, event: NodePoolsGone) -> None:
    if event.ref.uid == state.pools_uid:
        state.pools, state.pools_uid, state.pools_rv = {}, "", 0


def synced(state: AdmitterState, _at: Position, event: Synced) -> None:
    if event.kind == REQUESTS:
        state.unserved = event.absent


def withdrawn(state: AdmitterState, at: Position, event: NodesRequestWithdrawn) -> None:
    """Nodes that were asked for do not come: the gangs that waited for them wait for something else, or not at all."""
    state.in_vain = {key: vain for key, vain in state.in_vain.items() if vain.until > at.at}
    if not event.retry_at:
        return
    reservation = state.reservations.get(event.ref.uid) if event.ref is not None else None
    if reservation is not None:
        reservation.growth, reservation.until = None, 0
    for key in event.gangs:
        gang = state.pods.gangs.get(key)
        if gang is not None:
            gang.growth, gang.growth_until = None, 0
    state.in_vain[for_whom(event)] = Vain(event.retry_at, {each.pool: each.nodes for each in event.pools})


def waits(
    state: AdmitterState,
    reservation: Reservation,
    short: Shortage,
    asks: Sequence[Ask],
    view: View,
    growing: Growing,
) -> Decision | None:
    """Why a gang without a place waits, if that has not been said yet."""
    cause, ref, attempt, queue = reservation.cause, reservation.ref, reservation.attempt, reservation.queue
    growth, refusals = reservation.growth, list[PoolRefusal]()
    if growing.pools and growth is None:
        plan = growing.plan(view, asks, ref.uid, ())
        if isinstance(plan, Growth):
            until = state.now + max(state.placement.grow_ms, plan.wait_ms)
            return GangAwaitingNodes(
                cause=cause, ref=ref, attempt=attempt, queue=queue, shortage=short, until=until, growth=plan
            )
        refusals = plan
    until = reservation.until or state.now + state.placement.grow_ms
    if until <= state.now or refusals:
        if growth is not None:
            refusals = [PoolRefusal(each.pool, "in_vain", needs=each.nodes) for each in growth.pools]
        return GangDeferred(
            cause=cause, ref=ref, attempt=attempt, queue=queue, shortage=short, refusals=tuple(refusals)
        )
    if reservation.until and (reservation.shortage == short or state.now < reservation.told + TELL_EVERY_MS):
        return None
    return GangAwaitingNodes(
        cause=cause, ref=ref, attempt=attempt, queue=queue, shortage=short, until=until, growth=growth
    )
