"""The auditor's own books: charges, waiting jobs, trees in force, evictions and claims.

Jobs: the charge of each job, the start of its wait with its request, and the growth of its cluster. Trees: the trees in
force, and the leaf of a charge, by the auditor's own reading of the trees' rules. Orders: evictions and claims ordered
and not yet served, and the facts about a charge (I26).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, assert_never

from msgspec import Struct, field

from muster.events.base import Event
from muster.events.claims import ClaimEnded, ClaimOpened, PlanStale, VictimStays
from muster.events.decisions import (
    Candidate,
    EvictionOrdered,
    PreemptionProposed,
    QuotaReleased,
    QuotaReserved,
    QuotaTreeAccepted,
    QuotaTreeRemoved,
    SuspensionOrdered,
    WorkloadAdopted,
    WorkloadQueued,
)
from muster.events.effects import EffectFailed
from muster.events.elastic import GrowthGranted, GrowthOption, GrowthRequested, GrowthWithdrawn, WorkersKept
from muster.events.reasons import ReleaseReason
from muster.events.system import PlacementChosen
from muster.model.elastic import Counts
from muster.model.keys import Ref, path_chain
from muster.model.quota import JOBS, KAI_ROOT, MACHINES, QuotaNode, QuotaTree
from muster.model.resources import Vector
from muster.model.victims import PartialVictim

# --- seen -------------------------------------------------------------------------------------------------------------


Finding = tuple[str, bool, str]
"""(invariant, whether the invariant holds, error otherwise)"""


class ChargeSeen(Struct):
    queue: str
    request: Vector
    attempt: int
    pods: int = 0
    preemptible: bool = True
    admitted: bool = False
    adopted: bool = False
    granted: Vector = field(default_factory=dict)
    named: str = ""
    """The quota or queue in the label at the time of the charge."""
    part: bool = False
    """The charge is a part released by a running cluster: the cluster stays a job."""

    @property
    def amounts(self) -> Vector:
        """The request, with one job and its machines."""
        amounts = counted(self.request, self.pods)
        return {name: amount for name, amount in amounts.items() if name != JOBS} if self.part else amounts


def counted(request: Mapping[str, int], pods: int) -> Vector:
    """The request, with one job and its machines."""
    return {**request, JOBS: 1000, **({MACHINES: pods * 1000} if pods else {})}


Asks = tuple[tuple[tuple[str, int], ...], int, bool, str, int]
"""A request: amounts, pods, whether preemptible, digest, and the declared run time (ms).

A job with a declared run time may pass claims for age; other jobs may not."""


def asks_of(event: WorkloadQueued | Candidate) -> Asks:
    return tuple(sorted(event.request.items())), event.pods, event.preemptible, event.basis, event.run_ms


def charge_of(event: QuotaReserved | WorkloadAdopted, *, adopted: bool = False) -> ChargeSeen:
    request, pods = event.request, event.pods
    queue, attempt, gives = event.queue, event.attempt, event.preemptible
    return ChargeSeen(queue, request, attempt, pods, gives, adopted=adopted, granted=request, named=event.named)


def rests_after(reason: ReleaseReason) -> bool:
    """Whether a job rests after the end of its charge for this reason. The queue sorter proposes a resting job again
    after a pause, or when nodes have room.
    """
    match reason:
        case "resume_failed" | "no_nodes" | "timed_out":
            return True
        case "finished" | "gone" | "suspended_outside" | "superseded" | "held" | "paused":
            return False
        case "evicted" | "preempted" | "stale" | "moved" | "overuse":
            return False
    assert_never(reason)


class PlaceSeen(NamedTuple):
    """The place of a job in its queue; the smallest is the head."""

    below: int
    """The negated priority."""
    rank: int
    """ms since the epoch."""
    key: str
    uid: str


class WaitingSeen(Struct):
    place: PlaceSeen
    attempt: int
    queue: str
    asks: Asks
    seq: int
    """Sequence since when the job could be proposed: queued, denied or no longer charged."""
    proposed: bool = False
    rests: bool = False
    """An older attempt of the job has failed: other jobs may be tried earlier until the next try."""

    @property
    def line(self) -> tuple[Any, ...]:
        """The line of equal requests in the job's queue."""
        return (self.queue, *self.asks)


def waiting_of(event: WorkloadQueued, seq: int) -> WaitingSeen:
    place = PlaceSeen(-event.priority, event.rank or event.queued_at, event.ref.key, event.ref.uid)
    return WaitingSeen(place, event.attempt, event.queue, asks_of(event), seq)


def asks_for(asked: GrowthRequested, growth: GrowthOption, attempt: int) -> bool:
    """Whether a cluster still asks for such replicas, at least once."""
    vectors = [vector for unit in asked.units for vector in (unit.groups, *(other.groups for other in unit.otherwise))]
    return asked.attempt == attempt and growth.groups in vectors


def less(growth: GrowthOption, added: Counts) -> GrowthOption | None:
    """The rest to hold after a grant of these replicas; None for no rest."""
    times = growth.times - min(added.get(name, 0) // count for name, count in growth.groups.items())
    return GrowthOption(growth.groups, times) if times > 0 else None


# --- trees ------------------------------------------------------------------------------------------------------------


class Trees(Struct):
    """The trees in force."""

    by_root: dict[str, QuotaTree] = field(default_factory=dict)
    nodes: dict[str, QuotaNode] = field(default_factory=dict)
    """By path."""
    leaves: dict[str, str] = field(default_factory=dict)
    """namespace -> leaf"""
    changed: int = 0
    """Sequence of the last tree that came into force or left."""

    def note(self, event: Event, seq: int) -> bool:
        """Whether the event puts a tree into force, or takes a tree out of force."""
        if isinstance(event, QuotaTreeAccepted):
            self.by_root[event.tree.root] = event.tree
        elif isinstance(event, QuotaTreeRemoved):
            self.by_root = {root: tree for root, tree in self.by_root.items() if tree.ref.uid != event.ref.uid}
        else:
            return False
        nodes = [node for tree in self.by_root.values() for node in tree.nodes]
        self.nodes, self.changed = {node.path: node for node in nodes}, seq
        self.leaves = {name: node.path for node in nodes if not node.children for name in node.namespaces}
        return True

    @property
    def move(self) -> bool:
        """Whether a limit moves with the requests."""
        return any(tree.rules.runtime for tree in self.by_root.values())

    def leaf(self, namespace: str, named: str) -> str:
        """The leaf of a charge in a new tree; empty where the tree leaves the charge at its old leaf."""
        own = self.leaves.get(namespace, "")
        if named.startswith("kai:") and KAI_ROOT in self.by_root:
            queue, _, quota = named[4:].partition("/")
            kai = (path for path in self.nodes if path.startswith(f"{KAI_ROOT}/"))
            paths = [path for path in kai if self.nodes[path].name == queue]
            return paths[0] if paths and not own and not quota and not self.nodes[paths[0]].children else ""
        named = named.partition("/")[2] if named.startswith("kai:") else named
        if not named:
            unbound = sorted((root != "root", tree.rules.unbound_queue) for root, tree in self.by_root.items())
            return own or next((path for _, path in unbound if path), "")
        paths = [path for path, node in self.nodes.items() if node.name == named and not node.children]
        paths = [path for path in paths if not path.startswith(f"{KAI_ROOT}/")]
        return own if own in paths else paths[0] if len(paths) == 1 else ""


# --- orders -----------------------------------------------------------------------------------------------------------


def overused(
    event: SuspensionOrdered,
    charge: ChargeSeen | None,
    nodes: Mapping[str, QuotaNode],
    used: Mapping[str, Vector],
) -> Finding:
    """I19: a job suspended for overuse uses more than its admission, and its quota is above the max."""
    paths = [path for path in path_chain(charge.queue) if path in nodes] if charge is not None else []
    above = any(used.get(path, {}).get(name, 0) > most for path in paths for name, most in nodes[path].limit.items())
    more = charge is not None and (charge.adopted or charge.request != charge.granted)
    return "I19", above and more, f"{event.ref} is suspended for overuse, and its quota is within its max"


class AuditedClaim(Struct):
    """The amounts held for a job.

    Other jobs were ordered to leave for the job; or, without victims, the job awaits the leavings of other orders, or
    later work has passed the job.
    """

    shape: tuple[object, ...]
    """Queue, request, pods, whether preemptible, digest: a job with the same request serves the claim. Last the uid of
    the only possible claimant, else empty."""
    ref: Ref
    attempt: int
    queue: str
    amounts: Vector
    victims: dict[str, int] = field(default_factory=dict)
    """uid -> attempt of the victims that have not left"""
    partial: dict[str, PartialVictim] = field(default_factory=dict)
    """uid -> part ordered for release and not released yet"""
    firm: bool = True
    growth: GrowthOption | None = None
    """The claimed replicas, for a growing claimant."""
    for_nodes: bool = False
    """The victims only make room on nodes."""
    opened: int = 0
    """Sequence known to the newest order's decider."""
    planned: int = 0
    """Sequence known when its victims and places were chosen."""
    suspended: int = 0
    """Jobs suspended for the claim."""
    promised: int = 0
    """Log time (ms) of the promised service, for a claim for age; 0: no promise."""
    alone: bool = True
    """No other claim had victims at the order: the places were found without this claim's victims only."""


def shape_of(event: EvictionOrdered | ClaimOpened | QuotaReserved | WorkloadAdopted) -> tuple[object, ...]:
    """A claim serves any job of the same shape; a claim for growth, or for places, serves only its claimant."""
    alone = event.ref.uid if isinstance(event, EvictionOrdered) and (event.growth or event.for_nodes) else ""
    return event.queue, tuple(sorted(event.request.items())), event.pods, event.preemptible, event.basis, alone


def amounts_of(event: EvictionOrdered | ClaimOpened) -> Vector:
    """The amounts held for a claimant; a growing claimant counts as a job already."""
    amounts = counted(event.request, event.pods)
    if isinstance(event, EvictionOrdered) and event.growth is not None:
        del amounts[JOBS]
    return amounts


class Orders(Struct):
    """All claims, in the order of their opening."""

    by_uid: dict[str, AuditedClaim] = field(default_factory=dict)
    served: dict[str, int] = field(default_factory=dict)
    """workload uid -> times ordered to leave for a job with less service"""
    cleared: dict[str, int] = field(default_factory=dict)
    """uid -> attempt of the victims of ended claims that have not left"""
    moving: dict[str, int] = field(default_factory=dict)
    """The same for moving jobs: moving jobs keep their quota."""
    handed_on: str = ""
    """uid of a job that has just moved: the quota is reserved again for the job."""
    places: bool = False
    """Jobs are placed: victims leave room on nodes as well, so quota alone does not say how many are needed."""
    planned: dict[str, int] = field(default_factory=dict)
    """uid of a claimant -> sequence known to the preemptor when it planned"""

    def _opened(self, event: EvictionOrdered | ClaimOpened, known: int) -> None:
        order = AuditedClaim(shape_of(event), event.ref, event.attempt, event.queue, amounts_of(event), opened=known)
        order.planned, order.firm = self.planned.pop(event.ref.uid, known), event.kind != "age"
        before = self.by_uid.pop(event.ref.uid, None)
        if isinstance(event, ClaimOpened):
            order.promised = event.promised
        else:
            order.growth, order.for_nodes = event.growth, event.for_nodes
            order.suspended = len(event.victims) + (before.suspended if before is not None else 0)
            order.alone = not any(claim.suspended for claim in self.by_uid.values())
            order.victims = {victim.ref.uid: victim.attempt for victim in event.gives}
            for uid in order.victims if event.kind == "service" else ():
                self.served[uid] = self.served.get(uid, 0) + 1
            order.partial = {part.ref.uid: part for part in event.partial}
        if before is not None:
            order.victims = before.victims | order.victims
            order.partial = before.partial | order.partial
        self.by_uid[event.ref.uid] = order

    def note(self, event: Event, known: int) -> None:
        """Note an event. ``known``: sequence up to which the event's writer knew the log."""
        match event:
            case PreemptionProposed():
                self.planned[event.ref.uid] = known
            case PlanStale():
                self.planned.pop(event.ref.uid, None)
            case EvictionOrdered():
                self.moving |= {victim.ref.uid: victim.attempt for victim in event.victims if victim.moves}
                self._opened(event, known)
            case ClaimOpened():
                self._opened(event, known)
            case PlacementChosen():
                self.places = event.strategy is not None
            case ClaimEnded():
                order = self.by_uid.pop(event.ref.uid, None)
                self.cleared |= order.victims if order is not None else {}
            case QuotaReserved() | WorkloadAdopted():
                self._charged(event)
            case QuotaReleased():
                self._left(event.ref.uid)
                self.handed_on = event.ref.uid if event.reason == "moved" else ""
            case EffectFailed(action="suspend") | VictimStays():
                self._left(event.ref.uid, event.attempt)
            case GrowthGranted():
                self._grown(event)
            case GrowthWithdrawn() | WorkersKept():
                self._shrunk(event)
            case _:
                pass

    def _charged(self, event: QuotaReserved | WorkloadAdopted) -> None:
        """A job was admitted: the claim whose room the job uses ends, and the job's own claim.

        The victims still leaving for the used claim make the room that the job took from another claim.
        """
        served = self.served_by(event)
        if served:
            self._serve(served)
        self.by_uid.pop(event.ref.uid, None)

    def served_by(self, event: QuotaReserved | WorkloadAdopted) -> str:
        """Uid of the claimant whose claim a charge ends: the named claimant, else the charged job. Empty for none."""
        named = event.serves if isinstance(event, QuotaReserved) else ""
        return next((uid for uid in (named, event.ref.uid) if uid in self.by_uid), "")

    def _serve(self, served: str) -> None:
        order = self.by_uid[served]
        others = [(other, claim) for other, claim in self.by_uid.items() if claim.firm and other != served]
        alike = [claim for _, claim in others if claim.shape == (*order.shape[:-1], "")]
        opened = list(self.by_uid)
        later = [claim for other, claim in others if opened.index(other) > opened.index(served)]
        del self.by_uid[served]
        heirs = [*alike, *later][:1]
        for heir in heirs:
            heir.victims = order.victims | heir.victims
            heir.partial = heir.partial | order.partial
        self.cleared |= {} if heirs else order.victims

    def _grown(self, event: GrowthGranted) -> None:
        """A grant reduces the claim of a cluster by the granted replicas, or ends the claim."""
        order = self.by_uid.get(event.ref.uid)
        if order is None or order.growth is None:
            return
        before, order.growth = order.growth.times, less(order.growth, event.added)
        left = order.growth.times if order.growth is not None else 0
        order.amounts = {name: amount // before * left for name, amount in order.amounts.items()}
        if not left:
            self._serve(event.ref.uid)

    def _left(self, uid: str, attempt: int | None = None) -> None:
        """A victim has left; with an attempt: the victim could not be suspended under this attempt."""
        for gone in (self.cleared, self.moving):
            if attempt is None or gone.get(uid) == attempt:
                gone.pop(uid, None)
        for order in self.by_uid.values():
            if attempt is None or order.victims.get(uid) == attempt:
                order.victims.pop(uid, None)
                order.partial.pop(uid, None)

    def _shrunk(self, event: GrowthWithdrawn | WorkersKept) -> None:
        """A cluster has released workers, or cannot."""
        if isinstance(event, WorkersKept) and event.unasked:
            return
        for order in self.by_uid.values():
            part = order.partial.get(event.ref.uid)
            groups = event.groups if isinstance(event, GrowthWithdrawn) else {}
            if part is not None and all(groups.get(name, 0) <= count for name, count in part.left.items()):
                del order.partial[event.ref.uid]

    def taken(
        self,
        event: QuotaReserved,
        nodes: Mapping[str, QuotaNode],
        used: Mapping[str, Vector],
        charges: Mapping[str, ChargeSeen],
    ) -> Iterator[Finding]:
        """I26: an admission leaves the amounts held for other jobs, also while victims still leave for these jobs.

        The victims' remaining amounts count as used, not as held. ``used``: all ``charges`` before. A job may serve the
        claim of a job with an equal request.
        """
        shape, asked = shape_of(event), counted(event.request, event.pods)
        if event.serves:
            order = self.by_uid.get(event.serves)
            alike = order is not None and order.shape == shape
            yield "I26", alike, f"{event.ref} is said to serve the claim of {event.serves}, which asks something else"
            return
        if event.ref.uid in (*self.by_uid, self.handed_on):
            return
        held: dict[str, Vector] = {}
        for order in self.by_uid.values():
            if order.firm:
                _add_held(held, order, charges)
        for at in path_chain(event.queue) if held else ():
            for name, kept in held.get(at, {}).items():
                limit = nodes[at].limit.get(name) if at in nodes else None
                if limit is None or not asked.get(name, 0):
                    continue
                fits = used.get(at, {}).get(name, 0) + kept + asked[name] <= limit
                yield "I26", fits, f"{event.ref} takes {name} {asked[name]} of {at}, where {kept} is held for others"

    def held_beside(self, uid: str) -> dict[str, Vector]:
        """The amounts held by orders for other jobs, by node."""
        held: dict[str, Vector] = {}
        for other, order in self.by_uid.items():
            if order.firm and other != uid:
                add_amounts(held, order.queue, order.amounts, 1)
        return held

    def leaving(self) -> set[str]:
        """Uids of the workloads ordered to leave that have not left."""
        return {uid for order in self.by_uid.values() for uid in order.victims} | self.cleared.keys()

    def shrinking(self) -> dict[str, PartialVictim]:
        """Uid -> part ordered for release and not released yet"""
        return {uid: part for order in self.by_uid.values() for uid, part in order.partial.items()}


def _add_held(held: dict[str, Vector], order: AuditedClaim, charges: Mapping[str, ChargeSeen]) -> None:
    """The amounts of one claim at each node beyond the victims' remaining amounts there."""
    mine: dict[str, Vector] = {}
    add_amounts(mine, order.queue, order.amounts, 1)
    for uid in (*order.victims, *order.partial):
        charge, part = charges.get(uid), order.partial.get(uid)
        if charge is not None:
            add_amounts(mine, charge.queue, counted(part.request, part.pods) if part else charge.amounts, -1)
    for at in path_chain(order.queue):
        totals = held.setdefault(at, {})
        for name in order.amounts:
            totals[name] = totals.get(name, 0) + max(mine[at][name], 0)


def add_amounts(used: dict[str, Vector], queue: str, amounts: Vector, times: int) -> None:
    for at in path_chain(queue):
        totals = used.setdefault(at, {})
        for name, amount in amounts.items():
            totals[name] = totals.get(name, 0) + amount * times
