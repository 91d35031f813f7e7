"""Decisions of the gang admitter on pods bound by Muster: which pods start, where, and why others wait."""

from __future__ import annotations

from typing import Literal, assert_never

from msgspec import Struct

from muster.events.base import Decision
from muster.model.demand import Shortfall
from muster.model.keys import Ref
from muster.model.places import Placement, Shortage
from muster.model.pools import Growth, PoolRefusal
from muster.model.problem import FieldProblem

NodesClaimOutcome = Literal["placed", "gone", "expired", "changed", "yielded"]
"""How the claim of a gang on nodes ended."""

PodsReleaseReason = Literal["node_gone", "not_bound", "no_room"]
"""Why a pod that had a node loses it before it is bound there:

node_gone  the node no longer exists
not_bound  it was not bound in time, for whatever reason
no_room    pods of another scheduler took the places meanwhile
"""

HeldBackReason = Literal[
    "refused",
    "other_scheduler",
    "priority_clash",
    "gated",
    "too_few_pods",
    "group_incomplete",
    "no_quota",
    "no_nodes",
    "timed_out",
    "gave_way",
    "starved",
    "bind_refused",
    "broken",
]
"""Why pods of a gang wait:

refused           what they or their PodGroup say makes no gang: ``problem`` names key and value
other_scheduler   they have the marks of a gang and no scheduler that knows gangs: ``problem`` names it
priority_clash    they do not have one priority: ``problem`` names the odd one out
gated             its pods have schedulingGates
too_few_pods      fewer pods than its minimum exist
group_incomplete  a gang of its group is missing, refused or too small: ``problem`` says which
no_quota          the nodes have places for it, and its quota has no room: the shortfall says where
no_nodes          the nodes have no place for all it needs at once: the shortage says what is missing
timed_out         a round lasted as long as it may, without a place; the next one has begun
gave_way          another gang was placed before it, and took what it needs (``by``)
starved           that has been so for 20 minutes
bind_refused      the API server refused to bind pods of it: ``problem`` has its words; they are tried again
broken            it had started, and has lost so many pods that fewer than its minimum are left
"""

HeldAs = Literal[
    "GangRefused",
    "GangNotPlaced",
    "GangWaits",
    "GangFailedScheduling",
    "GangStarved",
    "GangBindRefused",
    "GangBroken",
]
"""The standing of a gang that is held back, and the reason of the Events on its pods."""


def held_as(reason: HeldBackReason) -> HeldAs:
    """The standing of a gang that is held back for this reason."""
    match reason:
        case "refused" | "priority_clash":
            return "GangRefused"
        case "other_scheduler":
            return "GangNotPlaced"
        case "gated" | "too_few_pods" | "group_incomplete" | "no_quota":
            return "GangWaits"
        case "no_nodes" | "timed_out" | "gave_way":
            return "GangFailedScheduling"
        case "starved":
            return "GangStarved"
        case "bind_refused":
            return "GangBindRefused"
        case "broken":
            return "GangBroken"
    assert_never(reason)


def ends_a_round(reason: HeldBackReason) -> bool:
    """Whether the pods of the gang were tried, and found no places."""
    return held_as(reason) == "GangFailedScheduling"


def lacks_nodes(reason: HeldBackReason) -> bool:
    """Whether the gang waits for places: its reason may go from one of these to another, not too often."""
    return ends_a_round(reason) or held_as(reason) == "GangStarved"


MAX_PODS_NAMED = 64
"""The most pods that an event names, where the event does not need all pods."""


class PodPlace(Struct, frozen=True, gc=False, omit_defaults=True):
    """The place of one pod: a node, and devices where the pod takes shares of GPUs."""

    ref: Ref
    node: str
    devices: tuple[int, ...] = ()
    """Numbers of the node's GPU devices of which the pod takes a share."""
    groups: tuple[str, ...] = ()
    """The name of the group of pods that shares each of ``devices``, in the same order."""
    share: int = 0
    """The share of each of ``devices``, in thousandths."""


class PodsProposed(Decision, frozen=True, kw_only=True):
    """The gang admitter has found places for pods of no job, and asks the quota accountant to charge these pods.

    The pods get their nodes after the answer (``PodsReserved``). A newer proposal for the gang replaces this proposal.
    """

    gang: str = ""
    """The gang, or the first of a group, namespace/name; empty for a pod of no gang."""
    pods: tuple[Ref, ...] = ()
    """The pods that start together: the accountant charges all of them, or none."""
    beside: tuple[Ref, ...] = ()
    """Further pods of the gang: the accountant charges each of these as soon as the pod fits."""
    priority: int = 0

    @property
    def key(self) -> str:
        """The gang, or the uid of the single pod: an answer and a newer proposal carry the same key."""
        return self.gang or (self.pods or self.beside)[0].uid


class PodsReserved(Decision, frozen=True, kw_only=True):
    """The gang admitter may place these pods: each pod is charged, or no quota counts the pod."""

    gang: str = ""
    pods: tuple[Ref, ...]


class PodsDenied(Decision, frozen=True, kw_only=True):
    """The quota has no room for proposed pods. The proposal stays open: the pods are charged when there is room."""

    gang: str = ""
    pod: Ref
    """A pod that does not fit."""
    queue: str
    short: Shortfall | None = None
    """None while the queue is paused, or takes no pods."""
    unknown: bool = False
    """The pod names a queue, or a quota, that takes no pods: ``queue`` is the name, as the pod has it."""


class PodsPlaced(Decision, frozen=True, kw_only=True):
    """Pods that start together have a node each: the actuator binds all pods.

    Void as a whole when a pod is gone before the decision takes effect.
    """

    gangs: tuple[str, ...] = ()
    """The gangs that start together, namespace/name; empty for a pod of no gang, and for pods of an admitted job."""
    cycle: int = 1
    """The number of the gang's round."""
    pods: tuple[PodPlace, ...]
    bind_until: int = 0
    """Log time at which pods that are not bound lose their node again."""
    complaints: tuple[FieldProblem, ...] = ()
    """Values of the pods or the PodGroup that were not understood, and count as absent."""


class PodsReleased(Decision, frozen=True, kw_only=True):
    """Pods with a node and without a known binding are to lose the node: the actuator binds them there no more.

    The pods wait again, and the room is free, once the actuator has reported that no binding happened:
    ``effect_failed`` with reason ``withdrawn``. A pod that was bound all the same keeps node and room.
    """

    gangs: tuple[str, ...] = ()
    reason: PodsReleaseReason
    pods: tuple[PodPlace, ...]


class GangHeldBack(Decision, frozen=True, kw_only=True):
    """Pods of a gang wait for this reason. Told again only after a change of the reason, and at the end of a round."""

    gang: str = ""
    """namespace/name; empty for a pod of no gang."""
    cycle: int = 0
    """The number of the gang's round; 0 before the first round, while pods or gangs are missing."""
    reason: HeldBackReason
    problem: FieldProblem | None = None
    """The fault in the declaration of the gang, by pods or PodGroup."""
    pods: tuple[Ref, ...] = ()
    """The first MAX_PODS_NAMED of the waiting pods, by name."""
    waiting: int = 0
    """The number of pods of the gang that wait."""
    minimum: int = 0
    """The number of pods that the gang needs to start, from the waiting pods or from pods still to come."""
    shortage: Shortage | None = None
    short: Shortfall | None = None
    """The limit of quota that refuses the gang, where the nodes have places."""
    by: str = ""
    """namespace/name of a gang admitted meanwhile, without whose pods this gang has its places."""
    ended: bool = False
    """The round ends with this event; the next round begins."""
    group: tuple[str, ...] = ()
    """namespace/name of the gangs that start together, with this gang; empty for a gang that starts alone."""
    complaints: tuple[FieldProblem, ...] = ()
    growth: Growth | None = None
    """The nodes that the gang lacks, as new nodes of declared node pools; None without such pools."""
    refusals: tuple[PoolRefusal, ...] = ()
    """Why no declared node pool can help, pool by pool."""


class NodesClaimed(Decision, frozen=True, kw_only=True):
    """Too much later work has passed a gang: freed room on these nodes is kept for the gang."""

    gang: str
    """namespace/name, of the gang of pods or of the job."""
    places: tuple[Placement, ...]
    until: int
    ref: Ref | None = None
    """The job of the gang; None for a gang of pods."""


class NodesClaimEnded(Decision, frozen=True, kw_only=True):
    """Nothing is kept for the gang any more."""

    gang: str
    outcome: NodesClaimOutcome
    ref: Ref | None = None


class GpuReservationEnded(Decision, frozen=True, kw_only=True):
    """No pod uses a share of this device any more: the actuator deletes the reservation pod, and the device plugin gets
    the device back.
    """

    ref: Ref
    """The reservation pod."""
    node: str
    group: str


PodDecision = (
    GpuReservationEnded
    | PodsProposed
    | PodsReserved
    | PodsDenied
    | PodsPlaced
    | PodsReleased
    | GangHeldBack
    | NodesClaimed
    | NodesClaimEnded
)
