"""The auditor's own books: charges, jobs that wait, trees in force, evictions and claims.

The auditor's notes of jobs: the charge of each, since when it waits for which request, and how a cluster grows.

The trees in force, and which leaf a charge counts at there, by the auditor's own reading of their rules.

What evictions and claims the auditor has seen ordered and not yet served, and what it knows of a charge (I26).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, assert_never

from msgspec import Struct, field

from muster.core.queueing.book import Place
from muster.events.base import Event
from muster.events.claims import ClaimEnded, ClaimOpened, VictimStays
from muster.events.decisions import (
    Candidate,
    EvictionOrdered,
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
from muster.model.keys import Ref, path_chain, root_of
from muster.model.quota import JOBS, KAI_ROOT, MACHINES, QuotaNode, QuotaTree
from muster.model.resources import Vector
from muster.model.victims import PartialVictim

# --- seen -------------------------------------------------------------------------------------------------------------


Finding = tuple[str, bool, str]
"""Invariant, whether it holds, what is wrong if it does not."""


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
    """The quota or queue its label named when it was charged."""
    part: bool = False
    """It is a part that a cluster releases while it goes on: it stays a job."""

    @property
    def amounts(self) -> Vector:
        """The request, with one job and its machines."""
        found = counted(self.request, self.pods)
        return {name: amount for name, amount in found.items() if name != JOBS} if self.part else found


def counted(request: Mapping[str, int], pods: int) -> Vector:
    """The request, with one job and its machines."""
    return {**request, JOBS: 1000, **({MACHINES: pods * 1000} if pods else {})}


Asks = tuple[tuple[tuple[str, int], ...], int, bool, str, int]
"""A request: amounts, pods, whether it is preemptible, its digest; and the run time (ms) that it declares, for a job
that declares one may pass claims for age that others may not.
"""


def asks_of(event: WorkloadQueued | Candidate) -> Asks:
    return tuple(sorted(event.request.items())), event.pods, event.preemptible, event.basis, event.run_ms


def charge_of(event: QuotaReserved | WorkloadAdopted, *, adopted: bool = False) -> ChargeSeen:
    request, pods = event.request, event.pods
    queue, attempt, gives = event.queue, event.attempt, event.preemptible
    return ChargeSeen(queue, request, attempt, pods, gives, adopted=adopted, granted=request, named=event.named)


FREELY_MS = 7 * 24 * 3_600_000
"""How long a job waits at the most that borrows only what is not kept for owners."""


def rests_after(reason: ReleaseReason) -> bool:
    """Whether a job is not proposed before a pause is over, or nodes have room, once its charge ended so."""
    match reason:
        case "resume_failed" | "no_nodes" | "timed_out":
            return True
        case "finished" | "gone" | "suspended_outside" | "superseded" | "held" | "paused":
            return False
        case "evicted" | "preempted" | "stale" | "moved" | "overuse":
            return False
    assert_never(reason)


class WaitingSeen(Struct):
    place: Place
    attempt: int
    queue: str
    asks: Asks
    seq: int
    """Since when it could be proposed: queued, denied or no longer charged."""
    proposed: bool = False
    rests: bool = False
    """An older attempt of it has failed: others may be tried before it until it is tried again."""
    expected_ms: int = 0
    freely_ms: int = 0
    """How long one is expected to run at the most that borrows all that is free, where its tree keeps it."""
    queued_at: int = 0
    """Log time (ms)"""

    def lines(self, at: int, soon: Mapping[str, int]) -> list[tuple[Any, ...]]:
        """The lines in which it waits: those of equal requests, and of these the ones that borrow whatever is free.
        ``soon``: root -> how long one may be expected to run by now that does.
        """
        line = (self.queue, *self.asks)
        ends_soon = 0 < self.expected_ms <= max(self.freely_ms, soon.get(root_of(self.queue), 0))
        freely = self.freely_ms and (ends_soon or at >= self.queued_at + FREELY_MS)
        return [line, (*line, "freely")] if freely else [line]


def waiting_of(event: WorkloadQueued, seq: int) -> WaitingSeen:
    place = Place(-event.priority, event.rank or event.queued_at, event.ref.key, event.ref.uid)
    times = event.expected_ms, event.freely_ms, event.queued_at
    return WaitingSeen(place, event.attempt, event.queue, asks_of(event), seq, False, False, *times)


def asks_for(asked: GrowthRequested, growth: GrowthOption, attempt: int) -> bool:
    """Whether a cluster still asks for such replicas, at least once."""
    vectors = [each for unit in asked.units for each in (unit.groups, *(other.groups for other in unit.otherwise))]
    return asked.attempt == attempt and growth.groups in vectors


def less(growth: GrowthOption, added: Counts) -> GrowthOption | None:
    """What is left to hold once these replicas are granted; None for nothing."""
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
    """Sequence of the last one that came into force or left it."""

    def note(self, event: Event, seq: int) -> bool:
        """Whether the event puts a tree into force, or takes one out of it."""
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
        """Where a tree that comes into force puts a charge; empty where it leaves it."""
        own = self.leaves.get(namespace, "")
        if named.startswith("kai:") and KAI_ROOT in self.by_root:
            queue, _, quota = named[4:].partition("/")
            kai = (path for path in self.nodes if path.startswith(f"{KAI_ROOT}/"))
            found = [path for path in kai if self.nodes[path].name == queue]
            return found[0] if found and not own and not quota and not self.nodes[found[0]].children else ""
        named = named.partition("/")[2] if named.startswith("kai:") else named
        if not named:
            unbound = sorted((root != "root", tree.rules.unbound_queue) for root, tree in self.by_root.items())
            return own or next((path for _, path in unbound if path), "")
        found = [path for path, node in self.nodes.items() if node.name == named and not node.children]
        found = [path for path in found if not path.startswith(f"{KAI_ROOT}/")]
        return own if own in found else found[0] if len(found) == 1 else ""


# --- orders -----------------------------------------------------------------------------------------------------------


def overused(
    event: SuspensionOrdered,
    charge: ChargeSeen | None,
    nodes: Mapping[str, QuotaNode],
    used: Mapping[str, Vector],
) -> Finding:
    """I19: what is suspended for overuse was not admitted with all that it uses, and its quota is above its max."""
    paths = [path for path in path_chain(charge.queue) if path in nodes] if charge is not None else []
    above = any(used.get(path, {}).get(name, 0) > most for path in paths for name, most in nodes[path].limit.items())
    more = charge is not None and (charge.adopted or charge.request != charge.granted)
    return "I19", above and more, f"{event.ref} is suspended for overuse, and its quota is within its max"


class AuditedClaim(Struct):
    """What is held for a job: for which others were ordered to leave, or (without victims) which awaits what leaves for
    others, or has waited too long.
    """

    shape: tuple[object, ...]
    """Queue, request, pods, whether it is preemptible, its digest: a job that asks for the same serves it; and the uid
    of the claimant that alone does, else empty.
    """
    ref: Ref
    attempt: int
    queue: str
    amounts: Vector
    victims: dict[str, int] = field(default_factory=dict)
    """uid -> attempt of the victims that have not left"""
    partial: dict[str, PartialVictim] = field(default_factory=dict)
    """uid -> the part it was ordered to release, and has not"""
    firm: bool = True
    growth: GrowthOption | None = None
    """The replicas that it is held for, where its claimant grows."""
    for_nodes: bool = False
    """Its victims make room on the nodes alone."""
    opened: int = 0
    """Sequence at which its newest order was decided."""
    suspended: int = 0
    """How many jobs were suspended for it."""
    promised: int = 0
    """Log time (ms) by which it is promised to be served, of one for age; 0: not promised."""
    alone: bool = True
    """No other had victims when it was ordered: its plan was tried on nodes that only its own victims leave."""


def shape_of(event: EvictionOrdered | ClaimOpened | QuotaReserved | WorkloadAdopted) -> tuple[object, ...]:
    """A claim serves whatever has the same shape; one for growth, or for places, serves its claimant only."""
    alone = event.ref.uid if isinstance(event, EvictionOrdered) and (event.growth or event.for_nodes) else ""
    return event.queue, tuple(sorted(event.request.items())), event.pods, event.preemptible, event.basis, alone


def amounts_of(event: EvictionOrdered | ClaimOpened) -> Vector:
    """What is held for a claimant; one that grows is a job already."""
    amounts = counted(event.request, event.pods)
    if isinstance(event, EvictionOrdered) and event.growth is not None:
        del amounts[JOBS]
    return amounts


class Orders(Struct):
    """All that is held, in the order in which it was opened."""

    by_uid: dict[str, AuditedClaim] = field(default_factory=dict)
    served: dict[str, int] = field(default_factory=dict)
    """workload uid -> how often it was ordered to leave for one that has had less service"""
    cleared: dict[str, int] = field(default_factory=dict)
    """uid -> attempt of the victims that leave for a claim that has ended, and have not left"""
    moving: dict[str, int] = field(default_factory=dict)
    """The same of those that are to move: they keep their quota"""
    handed_on: str = ""
    """uid of one that has just moved: its quota is reserved for it again"""
    places: bool = False
    """Jobs are placed: victims leave room on nodes as well, so quota alone does not say how many are needed."""

    def _opened(self, event: EvictionOrdered | ClaimOpened, known: int) -> None:
        order = AuditedClaim(shape_of(event), event.ref, event.attempt, event.queue, amounts_of(event), opened=known)
        order.firm = event.kind != "age"
        before = self.by_uid.pop(event.ref.uid, None)
        if isinstance(event, ClaimOpened):
            order.promised = event.promised
        else:
            order.growth, order.for_nodes = event.growth, event.for_nodes
            order.suspended = len(event.victims) + (before.suspended if before is not None else 0)
            order.alone = not any(each.suspended for each in self.by_uid.values())
            order.victims = {victim.ref.uid: victim.attempt for victim in event.gives}
            for uid in order.victims if event.kind == "service" else ():
                self.served[uid] = self.served.get(uid, 0) + 1
            order.partial = {each.ref.uid: each for each in event.partial}
        if before is not None:
            order.victims = before.victims | order.victims
            order.partial = before.partial | order.partial
        self.by_uid[event.ref.uid] = order

    def note(self, event: Event, known: int) -> None:
        """What an event changes. ``known``: sequence up to which its writer knew the log."""
        match event:
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
        """A job was admitted: the claim whose room it uses ends, and its own. The victims that still leave for the
        former make the room that it took from another.
        """
        served = self.served_by(event)
        if served:
            self._serve(served)
        self.by_uid.pop(event.ref.uid, None)

    def served_by(self, event: QuotaReserved | WorkloadAdopted) -> str:
        """Uid of the claimant whose claim a charge ends: as is said, else its own. Empty for none."""
        said = event.serves if isinstance(event, QuotaReserved) else ""
        return next((uid for uid in (said, event.ref.uid) if uid in self.by_uid), "")

    def _serve(self, served: str) -> None:
        order = self.by_uid[served]
        others = [(other, each) for other, each in self.by_uid.items() if each.firm and other != served]
        alike = [each for _, each in others if each.shape == (*order.shape[:-1], "")]
        opened = list(self.by_uid)
        later = [each for other, each in others if opened.index(other) > opened.index(served)]
        del self.by_uid[served]
        heirs = [*alike, *later][:1]
        for heir in heirs:
            heir.victims = order.victims | heir.victims
            heir.partial = heir.partial | order.partial
        self.cleared |= {} if heirs else order.victims

    def _grown(self, event: GrowthGranted) -> None:
        """Less is held for a cluster by as many replicas as it is granted, or nothing."""
        order = self.by_uid.get(event.ref.uid)
        if order is None or order.growth is None:
            return
        before, order.growth = order.growth.times, less(order.growth, event.added)
        left = order.growth.times if order.growth is not None else 0
        order.amounts = {name: amount // before * left for name, amount in order.amounts.items()}
        if not left:
            self._serve(event.ref.uid)

    def _left(self, uid: str, attempt: int | None = None) -> None:
        """A victim has left; with an attempt: it could not be suspended under that."""
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
        """I26: a job that is admitted leaves what is held for others, also while victims are still leaving for them:
        what these still have is used, and not held.

        ``used``: all ``charges`` before. A job may be said to serve the claim of one that asks alike.
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
        """What orders hold for others, by node."""
        held: dict[str, Vector] = {}
        for other, order in self.by_uid.items():
            if order.firm and other != uid:
                add_amounts(held, order.queue, order.amounts, 1)
        return held

    def leaving(self) -> set[str]:
        """Uids of the workloads that were ordered to leave and have not."""
        return {uid for order in self.by_uid.values() for uid in order.victims} | self.cleared.keys()

    def shrinking(self) -> dict[str, PartialVictim]:
        """Uid -> the part it was ordered to release, and has not."""
        return {uid: part for order in self.by_uid.values() for uid, part in order.partial.items()}


def _add_held(held: dict[str, Vector], order: AuditedClaim, charges: Mapping[str, ChargeSeen]) -> None:
    """What one holds at each node beside what its victims still have there."""
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
