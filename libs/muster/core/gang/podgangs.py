"""Gangs of pods bound by Muster: the state of each gang, and its changes by events.

A pod of no gang is a gang by itself, under the uid of the pod. The last notice about a gang is kept here, too, so that
only a changed notice is repeated.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from muster.core.gang.declare import Declared, GangCounts, counting, declared_by
from muster.core.objects.meta import digest
from muster.core.stage import leave_out, mark
from muster.events.base import Cause
from muster.events.effects import EffectFailed
from muster.events.facts import PodGroupGone, PodGroupObserved
from muster.events.gangs import GangHeldBack, HeldBackReason, PodPlace, PodsDenied
from muster.model.gang import PodGroup
from muster.model.keys import Position, Ref
from muster.model.places import Placement
from muster.model.pools import Growth
from muster.model.problem import FieldProblem
from muster.model.resources import Vector
from muster.model.workload import DEFAULT_SCHEDULER, PodState

# --- what is known ----------------------------------------------------------------------------------------------------


Stage = Literal["waiting", "placed", "bound", "succeeded", "failed", "leaving"]
"""The stage of a pod of a gang:

waiting    it has no node, and may be given one
placed     it has been given one, and is not seen to be bound to it yet
bound      it has a node
succeeded  it is over, and has succeeded
failed     it is over, and has not
leaving    it is being deleted, or bound by another scheduler: it waits for nothing
"""


class Placed(Struct):
    """A pod with a node and without an observed binding."""

    place: PodPlace
    cause: Cause
    """The decision that placed the pod: outcomes of an older decision do not count."""
    until: int
    applied: bool = False
    """The API server has taken the binding."""
    released: bool = False
    """The pod is about to lose its node: after the actuator's report of no binding."""


class Rest(Struct):
    """A pod with a binding refused by the API server: no try for a while."""

    times: int
    until: int
    problem: FieldProblem | None


class Told(Struct):
    """The last notice about a gang."""

    reason: HeldBackReason
    said: str
    """The rest of the notice, for comparison with the next."""
    at: int
    growing: bool = False
    """The notice named nodes that would help."""
    refused: bool = False
    """The notice said that no node pool can help."""
    pools: int = 0
    """resourceVersion of the declaration of pools at the notice."""


class Claimant(Struct):
    """The wait of a gang of pods or of a job for nodes, for claims on nodes."""

    since: int = 0
    """Log time (ms) of the first notice without a place; 0 before."""
    claimed: int = 0
    """Log time (ms) of the last claim."""
    passed: Vector = field(default_factory=dict)
    """The amounts placed since for work that came later; since the last claim, if any."""
    held: bool = False
    """Quota is held for the age of the job."""


class NodeClaim(Struct):
    """A claim on nodes: room that becomes free there is kept for a gang."""

    gang: str
    places: tuple[Placement, ...]
    until: int
    cause: Cause
    ref: Ref | None = None
    """The job of the gang; None for a gang of pods."""
    passed: Vector = field(default_factory=dict)
    """The amounts that had passed the gang before the claim."""

    @property
    def key(self) -> str:
        return claim_key(self.gang, self.ref)


def claim_key(gang: str, ref: Ref | None) -> str:
    """The key of a claim: the uid of its job, or namespace/name of its gang of pods."""
    return ref.uid if ref is not None else gang


class Parked(Struct, frozen=True):
    """The request of a gang that found no place and has not changed since."""

    key: str
    """Equal for equal requests."""
    rank: tuple[int, int, str]
    """The place in the order of tries."""
    names: tuple[str, ...]
    """The first pod of each shape, by name."""
    owners: tuple[str, ...] = ()
    """The owners of the pods."""


class PodGang(Struct):
    """The pods of a gang, and the progress of the gang."""

    key: str
    since: int
    """Log time (ms) at which the first pod was seen."""
    cause: Cause
    """The newest fact about a pod of the gang."""
    changed: int = 0
    """Log time (ms) of the last change of a pod."""
    declared: Declared | None = None
    """None for a pod of no gang."""
    pods: dict[str, Stage] = field(default_factory=dict)
    """uid -> stage, in the order of first sight"""
    waiting: dict[str, None] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    """Stage -> how many pods."""
    started: bool = False
    """The minimum was reached in the past."""
    granted: dict[str, None] = field(default_factory=dict)
    """Pods placed in the past: such a pod is placed again by itself after a loss of its node."""
    cycle: int = 0
    cycle_since: int = 0
    claimant: Claimant = field(default_factory=Claimant)
    by: str = ""
    """The gang admitted last while pods of this gang waited."""
    told: Told | None = None
    growth: Growth | None = None
    """The awaited nodes."""
    growth_until: int = 0
    """Log time (ms) until which the gang waits for just these nodes."""
    parked: Parked | None = None
    """The request, after a notice without a place; None where the request is not plain."""

    def moved_to(self, uid: str, stage: Stage | None) -> None:
        """A pod has another stage now; None: the pod is gone."""
        before = self.pods.get(uid)
        if before == stage:
            return
        self.parked = None
        if before is not None:
            self.counts[before] -= 1
            self.waiting.pop(uid, None)
        if stage is None:
            del self.pods[uid]
            self.granted.pop(uid, None)
            return
        self.pods[uid] = stage
        self.counts[stage] = self.counts.get(stage, 0) + 1
        if stage == "waiting":
            self.waiting[uid] = None

    def count(self, *stages: Stage) -> int:
        return sum(self.counts.get(stage, 0) for stage in stages)

    @property
    def counted(self) -> GangCounts:
        """The pods counted by the policy, without pods still to be placed."""
        return GangCounts(0, self.count("placed", "bound"), self.count("succeeded"), self.started)

    @property
    def lacks(self) -> int:
        """The number of pods below the minimum in a started gang without waiting pods; 0 for any other gang."""
        declaration, running = self.declared, self.count("placed", "bound")
        if declaration is None or declaration.refusal is not None or not self.started or self.waiting or not running:
            return 0
        return max(declaration.minimum - running - self.count("succeeded"), 0)

    @property
    def group(self) -> tuple[str, ...]:
        """The gangs that start together with this gang, with the gang's own key."""
        return self.declared.group if self.declared is not None else (self.key,)


class PodGangs(Struct):
    """All pods bound by Muster or marked as a gang, by gang; and all PodGroups."""

    pods: dict[str, PodState] = field(default_factory=dict)
    gang_of: dict[str, str] = field(default_factory=dict)
    """uid of a pod -> key of its gang"""
    shapes: dict[str, str] = field(default_factory=dict)
    """uid of a pod -> digest of its request; equal for equal requests"""
    gangs: dict[str, PodGang] = field(default_factory=dict)
    placed: dict[str, Placed] = field(default_factory=dict)
    reserved: dict[str, None] = field(default_factory=dict)
    """Standalone pods with charged quota."""
    proposed: dict[str, str] = field(default_factory=dict)
    """uid of a pod that waits for its quota -> key of the gang in the proposal"""
    proposals: dict[str, dict[str, bool]] = field(default_factory=dict)
    """key of the gang in the proposal -> {uid of a pod: whether the pod starts together with others}"""
    refusals: dict[str, PodsDenied] = field(default_factory=dict)
    """key of the gang in the proposal -> refusal of the pods still waiting"""
    rests: dict[str, Rest] = field(default_factory=dict)
    """By uid of the pod."""
    pod_groups: dict[str, PodGroup] = field(default_factory=dict)
    """By uid."""
    named: dict[str, dict[str, None]] = field(default_factory=dict)
    """namespace/name -> uids of the PodGroups with the name: each API group may have its own"""
    open: dict[str, None] = field(default_factory=dict)
    """Gangs with waiting pods."""
    broken: dict[str, None] = field(default_factory=dict)
    """Started gangs with fewer pods than the minimum."""
    claims: dict[str, NodeClaim] = field(default_factory=dict)
    """uid of the job, or namespace/name of the gang of pods -> claim; no node is in two claims"""

    def settled(self, uid: str) -> None:
        """A pod waits for no quota any more."""
        key = self.proposed.pop(uid, "")
        left = self.proposals.get(key, {})
        left.pop(uid, None)
        if key and not left:
            del self.proposals[key]
            self.refusals.pop(key, None)


# --- how it changes ---------------------------------------------------------------------------------------------------


REFUSED_MS = 30_000
"""The rest of a pod after a binding refused by the API server; doubled each time, up to 64 times the first."""


# --- pods -------------------------------------------------------------------------------------------------------


def pod_observed(state: PodGangs, at: Position, pod: PodState) -> None:
    """Note a pod as just observed. Kept are pods that name our scheduler, and pods of the default scheduler whose
    labels declare a gang; any other pod is forgotten.
    """
    uid = pod.ref.uid
    if not pod.ours and (pod.scheduler != DEFAULT_SCHEDULER or pod.group):  # kube-scheduler owns gangs of its own API.
        pod_gone(state, uid, at.at)
        return
    declaration = declared_by(pod)
    key = uid if declaration is None else declaration.gang
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
    leave_out(uid, state.pods, state.shapes, state.placed, state.rests, state.reserved)
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
    mark(state.open, gang.key, gang.waiting)
    mark(state.broken, gang.key, gang.lacks)


def _declare(state: PodGangs, gang: PodGang) -> None:
    """The declaration of a gang: by its oldest pod, and by the PodGroup of the name above the pod."""
    pod = state.pods[next(iter(gang.pods))]
    gang.declared = declared_by(pod, pod_group_of(state, gang.key))


# --- PodGroups --------------------------------------------------------------------------------------------------


def pod_group_of(state: PodGangs, key: str) -> PodGroup | None:
    """The PodGroup of a gang."""
    gang = state.gangs.get(key)
    native = gang is not None and bool(state.pods[next(iter(gang.pods))].group)
    return counting((state.pod_groups[uid] for uid in state.named.get(key, ())), native=native)


def pod_group_observed(state: PodGangs, event: PodGroupObserved) -> None:
    pod_group = event.pod_group
    state.pod_groups[pod_group.ref.uid] = pod_group
    state.named.setdefault(pod_group.ref.key, {})[pod_group.ref.uid] = None
    _redeclare(state, pod_group.ref.key)


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
    """A pod has a node from now on; False for a pod that no longer waits."""
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
        gang.claimant.passed.clear()
    gang.growth, gang.growth_until = None, 0
    _reopen(state, gang)
    return True


def passed(state: PodGangs, gangs: tuple[str, ...]) -> None:
    """Gangs were admitted while pods of other gangs waited."""
    for key in state.open if gangs else ():
        if key not in gangs:
            state.gangs[key].by = gangs[0]


def release(state: PodGangs, place: PodPlace) -> None:
    """Mark a place as released: the pod loses the node of ``place``, unless bound before."""
    placed = state.placed.get(place.ref.uid)
    if placed is not None and placed.place.node == place.node and not placed.applied:
        placed.released = True


def _unplace(state: PodGangs, uid: str, cause: Cause) -> bool:
    """A pod without a binding loses its node; False for a pod without a node, or an older placement than ``cause``."""
    placed = state.placed.get(uid)
    if placed is None or placed.cause != cause:
        return False
    del state.placed[uid]
    gang = state.gangs[state.gang_of[uid]]
    gang.moved_to(uid, "waiting")
    _reopen(state, gang)
    return True


def bind_applied(state: PodGangs, uid: str, cause: Cause) -> None:
    """The API server has taken a binding."""
    placed = state.placed.get(uid)
    if placed is not None and placed.cause == cause:
        placed.applied = True
    state.rests.pop(uid, None)


def bind_failed(state: PodGangs, event: EffectFailed, now: int) -> bool:
    """A binding failed for good: the pod waits again, unless gone or not Muster's. False for an older binding."""
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
    """Keep a notice about a waiting gang; the end of a round begins the next. Returns the gang, if still known."""
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
    """The text of a notice without the reason, for comparison."""
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
