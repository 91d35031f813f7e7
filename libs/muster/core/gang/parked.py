"""Gangs that found no place and have not changed since: kept with their requests, so that they need not be looked at
pod by pod as long as others with the same request find no place either.

Kept is only what of the gang itself says all there is to say: every pod that waits is needed, asks for its own node
room alone and waits for nothing but that. Whatever changes a gang makes it forget this.
"""

from __future__ import annotations

from collections.abc import Iterable

from muster.core.gang.podgang import Parked, PodGang
from muster.core.gang.state import AdmitterState
from muster.core.gang.units import OWNER_MS, problems, unit_of
from muster.core.placement.matching import pod_labels_asked
from muster.events.gangs import LACKS_NODES


def key_of(shapes: Iterable[tuple[str, int]]) -> str:
    """A text that is equal for equal asks: so many pods of each shape, in the order of these."""
    return repr(list(shapes))


def park(state: AdmitterState, gang: PodGang) -> None:
    """Remember what a gang asks for that has found no place just now, if that is plain."""
    gang.parked = None
    said, told = gang.declared, gang.told
    if said is None or told is None or told.reason not in LACKS_NODES or not gang.waiting or len(gang.group) > 1:
        return
    unit = unit_of(state, gang)
    pool = unit.pools.get(gang.key, [])
    if not unit.needs.get(gang.key) == len(pool) == len(gang.waiting) or problems(state, unit):
        return
    owners = tuple(dict.fromkeys(pod.owner_uid for pod in pool if pod.owner_uid))
    if pod_labels_asked(pod.rules for pod in pool) or (owners and state.now < gang.since + OWNER_MS):
        return
    alike: dict[str, list[str]] = {}
    for pod in pool:
        alike.setdefault(state.pods.shapes[pod.ref.uid], []).append(pod.ref.name)
    ordered = sorted(alike.items())
    key = key_of((shape, len(names)) for shape, names in ordered)
    gang.parked = Parked(key, unit.rank, tuple(names[0] for _, names in ordered), owners)


def is_parked(state: AdmitterState, gang: PodGang) -> bool:
    """Whether its record holds: the job of its pods may have been admitted with their places."""
    parked = gang.parked
    return parked is not None and not any(state.owners.get(uid, uid) in state.whole for uid in parked.owners)
