"""What is known of gangs of pods that we bind ourselves: their pods, the gang that these declare, and their nodes.

A pod of no gang is a gang of one, kept under its uid. The last notice about a gang is here as well, so that it is
repeated only when it has changed.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from muster.core.gang.declare import Declared, GangCounts
from muster.events.base import Cause
from muster.events.gangs import HeldBackReason, PodPlace, PodsDenied
from muster.model.gang import PodGroup
from muster.model.keys import Ref
from muster.model.places import Placement
from muster.model.pools import Growth
from muster.model.problem import FieldProblem
from muster.model.workload import PodState

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
    """A pod that has a node and has not been seen to be bound to it."""

    place: PodPlace
    cause: Cause
    """The decision that placed it: what becomes of an older one says nothing of this one."""
    until: int
    applied: bool = False
    """The API server has taken the binding."""
    released: bool = False
    """It is to lose its node, and does so when the actuator says that it has not been bound."""


class Rest(Struct):
    """A pod that the API server refused to bind: it is left alone for a while."""

    times: int
    until: int
    problem: FieldProblem | None


class Told(Struct):
    """What was said of a gang last."""

    reason: HeldBackReason
    said: str
    """Everything else that was said, to know whether it is different now."""
    at: int
    growing: bool = False
    """It was said which nodes would do."""
    refused: bool = False
    """It was said that no node pool can help."""
    pools: int = 0
    """As of which declaration of pools."""


class Claimant(Struct):
    """A gang, of pods or of a job, as one that may claim nodes."""

    since: int = 0
    """Log time at which it was said first that the nodes have no place for it; 0 while it was not."""
    claimed: int = 0
    """Log time at which it claimed nodes last."""


class NodeClaim(Struct):
    """What becomes free on these nodes is kept for a gang."""

    gang: str
    places: tuple[Placement, ...]
    until: int
    cause: Cause
    ref: Ref | None = None
    """The job whose gang it is; None for a gang of pods."""

    @property
    def key(self) -> str:
        return claim_key(self.gang, self.ref)


def claim_key(gang: str, ref: Ref | None) -> str:
    """What a claim is found by: the uid of its job, else namespace/name of its gang of pods."""
    return ref.uid if ref is not None else gang


class Parked(Struct, frozen=True):
    """The request of a gang that found no place and has not changed since."""

    key: str
    """Equal for all that ask for the same."""
    rank: tuple[int, int, str]
    """Its place in the order."""
    names: tuple[str, ...]
    """Of each shape the pod that represents it."""
    owners: tuple[str, ...] = ()
    """The owners of its pods."""


class PodGang(Struct):
    """The pods of one gang, and how far it has come."""

    key: str
    since: int
    """Log time at which the first of its pods was seen."""
    cause: Cause
    """The newest fact about its pods."""
    changed: int = 0
    """Log time at which something of its pods changed last."""
    declared: Declared | None = None
    """None for a pod of no gang."""
    pods: dict[str, Stage] = field(default_factory=dict)
    """uid -> its stage, in the order they were seen"""
    waiting: dict[str, None] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    """Stage -> how many pods."""
    started: bool = False
    """Its minimum was reached once."""
    granted: dict[str, None] = field(default_factory=dict)
    """Pods that were given a node once: should they lose it, they are given another one on their own."""
    cycle: int = 0
    cycle_since: int = 0
    claimant: Claimant = field(default_factory=Claimant)
    by: str = ""
    """The gang that was admitted last while its pods waited."""
    told: Told | None = None
    growth: Growth | None = None
    """The nodes that it waits for."""
    growth_until: int = 0
    """Log time until which it goes on waiting for just those."""
    parked: Parked | None = None
    """None also where it is not that plain what it asks for."""

    def moved_to(self, uid: str, stage: Stage | None) -> None:
        """A pod has another stage now; None: it is gone."""
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
        """What its policy counts, besides pods that are to be placed."""
        return GangCounts(0, self.count("placed", "bound"), self.count("succeeded"), self.started)

    @property
    def lacks(self) -> int:
        """How many pods a gang that has started lacks of its minimum, none of which waits."""
        said, running = self.declared, self.count("placed", "bound")
        if said is None or said.refusal is not None or not self.started or self.waiting or not running:
            return 0
        return max(said.minimum - running - self.count("succeeded"), 0)

    @property
    def group(self) -> tuple[str, ...]:
        """The gangs that start together with it, itself among them."""
        return self.declared.group if self.declared is not None else (self.key,)


class PodGangs(Struct):
    """Every pod that we bind or that has the marks of a gang, by gang; and every PodGroup."""

    pods: dict[str, PodState] = field(default_factory=dict)
    gang_of: dict[str, str] = field(default_factory=dict)
    """uid of a pod -> key of its gang"""
    shapes: dict[str, str] = field(default_factory=dict)
    """uid of a pod -> digest of its request: pods that ask alike have the same"""
    gangs: dict[str, PodGang] = field(default_factory=dict)
    placed: dict[str, Placed] = field(default_factory=dict)
    reserved: dict[str, None] = field(default_factory=dict)
    """Pods of no job whose quota is charged."""
    proposed: dict[str, str] = field(default_factory=dict)
    """uid of a pod that waits for its quota -> the key of the gang that it was proposed with"""
    proposals: dict[str, dict[str, bool]] = field(default_factory=dict)
    """that key -> uids of its pods, and whether they start together"""
    refusals: dict[str, PodsDenied] = field(default_factory=dict)
    """that key -> what refuses those that wait still"""
    rests: dict[str, Rest] = field(default_factory=dict)
    """By uid of the pod."""
    pod_groups: dict[str, PodGroup] = field(default_factory=dict)
    """By uid."""
    named: dict[str, dict[str, None]] = field(default_factory=dict)
    """namespace/name -> uids of the PodGroups of that name: there may be one of each API group"""
    open: dict[str, None] = field(default_factory=dict)
    """Gangs with pods that wait."""
    broken: dict[str, None] = field(default_factory=dict)
    """Gangs that have started, and of which less than the minimum is left"""
    claims: dict[str, NodeClaim] = field(default_factory=dict)
    """uid of the job, else namespace/name of the gang of pods -> its claim; no node is in two of them"""

    def settled(self, uid: str) -> None:
        """A pod waits for no quota any more."""
        key = self.proposed.pop(uid, "")
        left = self.proposals.get(key, {})
        left.pop(uid, None)
        if key and not left:
            del self.proposals[key]
            self.refusals.pop(key, None)
