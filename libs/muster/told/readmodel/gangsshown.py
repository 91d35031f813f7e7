"""The state of gangs of pods for presentation: members, PodGroups, and the reasons to wait.

Folds only. A gang is shown only if a pod of the gang names one of Muster's schedulers: other schedulers place the rest.
"""

from __future__ import annotations

from msgspec import Struct, field

from muster.core.gang.declare import Declared, counting, declared_by
from muster.events.base import Cause
from muster.events.facts import PodGone, PodGroupGone, PodGroupObserved, PodObserved
from muster.events.gangs import GangHeldBack, PodsPlaced, lacks_nodes
from muster.model.gang import PodGroup
from muster.model.keys import Position, Ref
from muster.model.problem import FieldProblem
from muster.model.workload import DEFAULT_SCHEDULER, PodState
from muster.told.codes.values import Counted

ENDED = ("Finished", "Failed")
"""Phases that a PodGroup keeps when its pods are taken away."""


class GangHeld(Struct, frozen=True):
    """The last reason why a gang waits."""

    event: GangHeldBack
    cause: Cause
    at: int


class Complaint(Struct, frozen=True):
    """The marks of a gang that were not understood, and a pod on which an Event can say so."""

    found: tuple[FieldProblem, ...]
    ref: Ref
    at: int


class GangShown(Struct):
    """One gang: pods, PodGroups and last notices. A pod in no gang is a gang of its own, under the uid of the pod."""

    pods: dict[str, PodState] = field(default_factory=dict)
    pod_groups: dict[str, PodGroup] = field(default_factory=dict)
    """By uid; each API group may have a PodGroup."""
    held: GangHeld | None = None
    complaint: Complaint | None = None
    began: int = 0
    """Log time of the first try, in ms."""
    lacked: bool = False
    """The status of the gang's pods shows a lack of nodes, until another condition is written there."""
    ended: str = ""
    """The phase in which the gang ended, if the gang ended and no pod has come since."""

    def counted(self) -> Counted:
        """The numbers of pods as a PodGroup counts pods."""
        pods = [pod for pod in self.pods.values() if pod.over or not pod.deleting]
        return Counted(
            pods=len(pods),
            bound=sum(1 for pod in pods if pod.node),
            running=sum(1 for pod in pods if pod.running and not pod.over),
            succeeded=sum(1 for pod in pods if pod.succeeded),
            failed=sum(1 for pod in pods if pod.over and not pod.succeeded),
        )

    @property
    def ours(self) -> bool:
        """Whether Muster places the gang."""
        return any(pod.ours for pod in self.pods.values())

    @property
    def by_default(self) -> bool:
        """Whether all pods of the gang name the default scheduler of Kubernetes."""
        return all(pod.scheduler == DEFAULT_SCHEDULER for pod in self.pods.values())

    @property
    def pod_group(self) -> PodGroup | None:
        """The PodGroup that counts."""
        return counting(self.pod_groups.values(), native=self.native)

    @property
    def native(self) -> bool:
        """Whether a pod of the gang names a PodGroup of Kubernetes itself."""
        return any(pod.group for pod in self.pods.values())

    @property
    def said_by_pods(self) -> Declared | None:
        """The declaration of the gang's first pod, regardless of the PodGroup."""
        pod = min(self.pods.values(), key=lambda member: (member.created, member.ref.key), default=None)
        return None if pod is None else declared_by(pod)

    @property
    def minimum(self) -> int:
        """How many pods the gang takes; 0 when unknown."""
        pod_group = self.pod_group
        if pod_group is not None:
            return max(pod_group.minimum, 0)
        declared = self.said_by_pods
        return declared.minimum if declared is not None else 1


class GangsShown(Struct):
    """Every gang with pods, a PodGroup or something to be shown, by namespace/name."""

    gangs: dict[str, GangShown] = field(default_factory=dict)
    gang_of: dict[str, str] = field(default_factory=dict)
    """uid of a pod -> gang"""
    group_of: dict[str, str] = field(default_factory=dict)
    """uid of a PodGroup -> gang"""


def _gang(state: GangsShown, key: str) -> GangShown:
    return state.gangs.setdefault(key, GangShown())


def _tidy(state: GangsShown, key: str) -> None:
    gang = state.gangs.get(key)
    if gang is not None and not gang.pods and not gang.pod_groups:
        del state.gangs[key]


def pod_observed(state: GangsShown, event: PodObserved) -> str:
    """Fold an observed pod. Returns the changed gang, empty when none."""
    pod = event.pod
    uid = pod.ref.uid
    if not pod.scheduler:
        return ""
    declared = declared_by(pod)
    key = uid if declared is None else declared.gang
    before = state.gang_of.get(uid, key)
    if before != key:
        _leave(state, uid)
    gang = _gang(state, key)
    if uid not in gang.pods and not pod.over:
        gang.ended = ""
    gang.pods[uid], state.gang_of[uid] = pod, key
    counted = gang.counted()
    phase = counted.phase(gang.minimum)
    if phase in ENDED:
        gang.ended = phase
    if gang.held is not None and counted.bound == counted.pods:
        gang.lacked = False
        if gang.held.event.reason != "broken" or counted.alive >= gang.minimum:
            gang.held = None
    return key


def pod_gone(state: GangsShown, event: PodGone) -> str:
    """A pod is gone. Returns the gang of the pod, empty when none."""
    return _leave(state, event.ref.uid)


def _leave(state: GangsShown, uid: str) -> str:
    key = state.gang_of.pop(uid, "")
    gang = state.gangs.get(key)
    if gang is not None:
        gang.pods.pop(uid, None)
        if not gang.pods:
            gang.held = gang.complaint = None
            gang.began, gang.lacked = 0, False
        _tidy(state, key)
    return key


def pod_group_observed(state: GangsShown, event: PodGroupObserved) -> str:
    """Fold an observed PodGroup. Returns the gang."""
    pod_group = event.pod_group
    uid = pod_group.ref.uid
    _gang(state, pod_group.ref.key).pod_groups[uid] = pod_group
    state.group_of[uid] = pod_group.ref.key
    return pod_group.ref.key


def pod_group_gone(state: GangsShown, event: PodGroupGone) -> str:
    """A PodGroup is gone. Returns the gang of the PodGroup."""
    key = state.group_of.pop(event.ref.uid, "")
    gang = state.gangs.get(key)
    if gang is not None:
        gang.pod_groups.pop(event.ref.uid, None)
        _tidy(state, key)
    return key


def placed(state: GangsShown, at: Position, event: PodsPlaced) -> tuple[str, ...]:
    """Pods have a node: the gangs of these pods are no longer held back. Returns the gangs."""
    refs = {state.gang_of[pod.ref.uid]: pod.ref for pod in reversed(event.pods) if pod.ref.uid in state.gang_of}
    for key, ref in refs.items():
        gang = _gang(state, key)
        gang.held = None
        gang.began = gang.began or at.at
        if event.complaints:
            gang.complaint = Complaint(event.complaints, ref, at.at)
    return tuple(refs)


def held_back(state: GangsShown, at: Position, event: GangHeldBack) -> str:
    """Pods of a gang wait. Returns the gang, empty when the gang is gone meanwhile."""
    key = event.gang or (event.pods[0].uid if event.pods else "")
    gang = state.gangs.get(key)
    if gang is None or not gang.pods:
        return ""
    gang.held = GangHeld(event, Cause(at.seq, at.item), at.at)
    gang.lacked = gang.lacked or lacks_nodes(event.reason)
    if event.cycle:
        gang.began = gang.began or at.at
    if event.complaints and event.pods:
        gang.complaint = Complaint(event.complaints, event.pods[0], at.at)
    return key
