"""Places that are kept for new workers of a Ray cluster, once they are granted."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from muster.core.gang.state import AdmitterState, Hold, hold_places
from muster.events.base import Cause
from muster.events.elastic import GrowthGranted, GrowthOption
from muster.model.keys import Position
from muster.model.places import Placement


def grown(state: AdmitterState, at: Position, event: GrowthGranted) -> None:
    """New workers are granted to a cluster: as many of the places that are kept for it are held for their pods."""
    uid, order = event.ref.uid, state.orders.get(event.ref.uid)
    if order is None or order.growth is None:
        return
    gang, times = state.gangs.get(uid), order.growth.times
    left = times - min(event.added.get(name, 0) // count for name, count in order.growth.groups.items())
    if left < times and order.places and gang is not None and uid in state.admitted:
        mine, order.places = _divided(order.places, max(left, 0), times)
        found = state.holds.get(uid) or Hold(event.ref, event.attempt, 0, Cause(at.seq, at.item))
        found.until = max(found.until, at.at + state.placement.hold_ms)
        hold_places(state, found, gang.pod_sets, mine)
    if left <= 0:
        del state.orders[uid]
    elif left < times:
        order.growth, order.pods = GrowthOption(order.growth.groups, left), order.pods // times * left


def _divided(places: Iterable[Placement], left: int, of: int) -> tuple[list[Placement], tuple[Placement, ...]]:
    """(the places of those pods that come, the others): ``left`` of ``of`` equal parts of each pod set stay."""
    total: dict[str, int] = {}
    for each in places:
        total[each.pod_set] = total.get(each.pod_set, 0) + each.count
    stay = {name: count // of * left for name, count in total.items()}
    come, rest = list[Placement](), list[Placement]()
    for each in places:
        count = min(stay[each.pod_set], each.count)
        stay[each.pod_set] -= count
        size = len(each.devices) // each.count
        if count:
            rest.append(replace(each, count=count, devices=each.devices[: size * count]))
        if count < each.count:
            come.append(replace(each, count=each.count - count, devices=each.devices[size * count :]))
    return come, tuple(rest)
