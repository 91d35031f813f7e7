"""How facts and decisions change what is known of gangs of pods (podgang.py)."""

from __future__ import annotations

from msgspec.structs import replace

from muster.core.gang.declare import counting, declared_by
from muster.core.gang.podgang import Placed, PodGang, PodGangs, Rest, Stage, Told
from muster.core.objects.meta import digest
from muster.events.base import Cause
from muster.events.effects import EffectFailed
from muster.events.facts import PodGroupGone, PodGroupObserved
from muster.events.gangs import GangHeldBack, PodPlace
from muster.model.gang import PodGroup
from muster.model.keys import Position
from muster.model.workload import DEFAULT_SCHEDULER, PodState

REFUSED_MS = 30_000
"""How long a pod rests after the API server refused to bind it; twice as long each time, up to 64 times that."""


# --- pods -------------------------------------------------------------------------------------------------------


def pod_observed(state: PodGangs, at: Position, pod: PodState) -> None:
    """A pod that we bind, or of a gang, looks like this now."""
    uid = pod.ref.uid
    if not pod.ours and (
        pod.scheduler != DEFAULT_SCHEDULER or pod.group
    ):  # A gang that kube-scheduler knows is its own.
        pod_gone(state, uid, at.at)
        return
    said = declared_by(pod)
    key = uid if said is None else said.gang
    if state.gang_of.get(uid, key) != key:
        pod_gone(state, uid, at.at)
    before = state.pods.get(uid)
    state.pods[uid], state.gang_of[uid] = pod, key
    state.shapes[uid] = digest((pod.ref.namespace, pod.request, pod.rules))
    gang = state.gangs.get(key)
    if gang is None:
        gang = state.gangs[key] = PodGang(key, at.at, Cause(at.seq, at.item))
    gang.cause, gang.changed = Cause(at.seq, at.item), at.at
    gang.moved_to(uid, _stage(state, pod))
    if before is None or replace(before, rv=pod.rv) != pod:
        gang.parked = None
    if pod.node or pod.over:
        state.rests.pop(uid, None)
        state.placed.pop(uid, None)
    if pod.node and not pod.over:
        gang.started = True
        gang.granted[uid] = None
    _declare(state, gang)
    _reopen(state, gang)


def _stage(state: PodGangs, pod: PodState) -> Stage:
    if pod.over:
        return "succeeded" if pod.succeeded else "failed"
    if pod.node:
        return "bound"
    if pod.deleting:
        return "leaving"
    return "placed" if pod.ref.uid in state.placed else "waiting"


def pod_gone(state: PodGangs, uid: str, now: int) -> None:
    """A pod no longer exists, or is no concern of ours any more."""
    key = state.gang_of.pop(uid, None)
    if key is None:
        return
    state.pods.pop(uid, None)
    state.shapes.pop(uid, None)
    state.placed.pop(uid, None)
    state.rests.pop(uid, None)
    state.reserved.pop(uid, None)
    state.settled(uid)
    gang = state.gangs[key]
    gang.moved_to(uid, None)
    gang.changed = now
    if gang.pods:
        _declare(state, gang)
        _reopen(state, gang)
    else:
        del state.gangs[key]
        state.open.pop(key, None)
        state.broken.pop(key, None)


def _reopen(state: PodGangs, gang: PodGang) -> None:
    if gang.waiting:
        state.open[gang.key] = None
    else:
        state.open.pop(gang.key, None)
    if gang.lacks:
        state.broken[gang.key] = None
    else:
        state.broken.pop(gang.key, None)


def _declare(state: PodGangs, gang: PodGang) -> None:
    """What the oldest of its pods says counts, and the PodGroup of its name above that."""
    pod = state.pods[next(iter(gang.pods))]
    gang.declared = declared_by(pod, pod_group_of(state, gang.key))


# --- PodGroups --------------------------------------------------------------------------------------------------


def pod_group_of(state: PodGangs, key: str) -> PodGroup | None:
    """The PodGroup of a gang."""
    gang = state.gangs.get(key)
    native = gang is not None and bool(state.pods[next(iter(gang.pods))].group)
    return counting((state.pod_groups[uid] for uid in state.named.get(key, ())), native=native)


def pod_group_observed(state: PodGangs, event: PodGroupObserved) -> None:
    found = event.pod_group
    state.pod_groups[found.ref.uid] = found
    state.named.setdefault(found.ref.key, {})[found.ref.uid] = None
    _redeclare(state, found.ref.key)


def pod_group_gone(state: PodGangs, event: PodGroupGone) -> None:
    if state.pod_groups.pop(event.ref.uid, None) is None:
        return
    uids = state.named[event.ref.key]
    del uids[event.ref.uid]
    if not uids:
        del state.named[event.ref.key]
    _redeclare(state, event.ref.key)


def _redeclare(state: PodGangs, key: str) -> None:
    gang = state.gangs.get(key)
    if gang is not None:
        gang.parked = None
        _declare(state, gang)


# --- what became of decisions -----------------------------------------------------------------------------------


def place_pod(state: PodGangs, place: PodPlace, cause: Cause, until: int) -> bool:
    """A pod has a node from here on; False when it wants none any more."""
    uid = place.ref.uid
    gang = state.gangs.get(state.gang_of.get(uid, ""))
    if gang is None or uid not in gang.waiting:
        return False
    state.placed[uid] = Placed(place, cause, until)
    gang.moved_to(uid, "placed")
    gang.granted[uid] = None
    gang.started = True
    if not gang.waiting:
        gang.told, gang.by, gang.claimant.since, gang.cycle_since = None, "", 0, 0
    gang.growth, gang.growth_until = None, 0
    _reopen(state, gang)
    return True


def passed(state: PodGangs, gangs: tuple[str, ...]) -> None:
    """Gangs were admitted while others had pods that wait already."""
    for key in state.open if gangs else ():
        if key not in gangs:
            state.gangs[key].by = gangs[0]


def release(state: PodGangs, place: PodPlace) -> None:
    """A pod is to lose its node, unless it has been bound meanwhile."""
    found = state.placed.get(place.ref.uid)
    if found is not None and found.place.node == place.node and not found.applied:
        found.released = True


def _unplace(state: PodGangs, uid: str, cause: Cause) -> bool:
    """A pod that is not bound has its node no more; False when that was so, or ``cause`` names an older place."""
    found = state.placed.get(uid)
    if found is None or found.cause != cause:
        return False
    del state.placed[uid]
    gang = state.gangs[state.gang_of[uid]]
    gang.moved_to(uid, "waiting")
    _reopen(state, gang)
    return True


def bind_applied(state: PodGangs, uid: str, cause: Cause) -> None:
    """The API server has taken a binding."""
    found = state.placed.get(uid)
    if found is not None and found.cause == cause:
        found.applied = True
    state.rests.pop(uid, None)


def bind_failed(state: PodGangs, event: EffectFailed, now: int) -> bool:
    """A binding failed for good: the pod waits again, unless it is gone or not ours; False for an older one."""
    uid, reason = event.ref.uid, event.reason
    if not _unplace(state, uid, event.cause):
        return False
    gang = state.gangs[state.gang_of[uid]]
    if reason in ("gone", "superseded"):
        gang.moved_to(uid, "leaving")
        _reopen(state, gang)
    elif reason != "withdrawn":
        times = state.rests[uid].times + 1 if uid in state.rests else 1
        state.rests[uid] = Rest(times, now + REFUSED_MS * 2 ** min(times - 1, 6), event.problem)
    return True


def held_back(state: PodGangs, at: Position, event: GangHeldBack, pools: int = 0) -> PodGang | None:
    """It was said why a gang waits; the end of a round begins the next. Returns the gang, if it still exists."""
    key = event.gang or (event.pods[0].uid if event.pods else "")
    gang = state.gangs.get(key)
    if gang is None:
        return None
    gang.told = Told(event.reason, said(event), at.at, event.growth is not None, bool(event.refusals), pools)
    if event.growth is None:
        gang.growth, gang.growth_until = None, 0
    elif event.growth != gang.growth:
        gang.growth, gang.growth_until = event.growth, at.at + event.growth.wait_ms
    if event.cycle:
        gang.claimant.since = gang.claimant.since or at.at
        if event.cycle >= gang.cycle and (event.ended or not gang.cycle_since):
            gang.cycle = event.cycle + event.ended
            gang.cycle_since = at.at
    return gang


def said(event: GangHeldBack) -> str:
    """What is said of a gang besides the reason, to compare."""
    reason = "" if event.reason == "timed_out" else event.reason
    parts = (
        reason,
        event.problem,
        event.waiting,
        event.minimum,
        event.shortage or event.short,
        event.by,
        event.complaints,
    )
    return repr((*parts, event.growth, event.refusals) if event.growth or event.refusals else parts)
