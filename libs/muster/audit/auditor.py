"""The auditor: reads a log and checks the invariants at every position, without any code of the deciders.

The auditor keeps a few books of its own on purpose: a check with the guarded code itself proves nothing. The invariants
are described in docs/reference/invariants.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from muster.audit.auditbooks import (
    ChargeSeen,
    Orders,
    PlaceSeen,
    Trees,
    WaitingSeen,
    charge_of,
    overused,
    rests_after,
    waiting_of,
)
from muster.audit.chargeaudit import ChargeAudit
from muster.audit.claimaudit import ClaimAudit, MoveAudit
from muster.audit.evictionaudit import findings
from muster.audit.podaudit import GangAudit, GrowthAudit, PodChargeAudit, WorkersAudit
from muster.audit.writeraudit import FactAudit, LeafAudit
from muster.core.docket import Docket, Judge
from muster.core.stage import Violation
from muster.events.charges import ChargeChanged
from muster.events.decisions import (
    CandidatesProposed,
    EvictionOrdered,
    GangAdmitted,
    QuotaDenied,
    QuotaMoved,
    QuotaReleased,
    QuotaReserved,
    QuotaTreeAccepted,
    QuotaTreeRemoved,
    SuspensionOrdered,
    WorkloadAdopted,
    WorkloadDequeued,
    WorkloadQueued,
)
from muster.events.effects import EffectApplied
from muster.events.elastic import GrowthGranted, GrowthWithdrawn
from muster.events.envelope import Commit, Stored
from muster.events.facts import WorkloadGone
from muster.model.keys import Ref, path_chain, root_of
from muster.model.placing import GPU, GPU_PRODUCT, PodRules
from muster.model.quota import QuotaNode, QuotaTree
from muster.model.resources import Vector, format_quantity
from muster.model.workload import Workload

_OTHERS = (7, 10, 12, 14, 18, 20, 24)
CHECKED = tuple(f"I{number}" for number in range(1, 31) if number not in _OTHERS)
"""The invariants checked by this auditor; the other invariants need facts that are not in the log yet."""

MAX_KEPT = 1_000
"""Violations kept word by word; all are counted."""


def _by_flavor(event: QuotaReserved, workload: Workload, tree: QuotaTree | None) -> Iterator[tuple[str, int, int]]:
    """(resource by flavor, the least and the most of a fair charge): the least is what the pod sets of the flavor ask
    for; what a profile counts beside the pod sets may be added.
    """
    for flavor in tree.flavors if tree is not None else ():
        for resource in flavor.resources:
            asked = {pods.name: pods.count * pods.request.get(resource, 0) for pods in workload.pod_sets}
            mine = sum(amount for name, amount in asked.items() if flavor.name in event.flavors.get(name, ()))
            rest = max(event.request.get(resource, 0) - sum(asked.values()), 0)
            yield f"{resource}@{flavor.name}", min(mine, event.request.get(resource, 0)), mine + rest if mine else 0


class Auditor:
    """Feed every commit in order, then call :meth:`finish`."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.counts: Counter[str] = Counter(dict.fromkeys(CHECKED, 0))
        """Invariant -> number of checks."""
        self.broken: Counter[str] = Counter()
        self.commits = 0
        self.events: Counter[str] = Counter()
        self._judge = Judge(Docket())
        self._seq = 0
        self._trees = Trees()
        self._charges: dict[str, ChargeSeen] = {}
        self._used: dict[str, Vector] = {}
        self._waiting: dict[str, WaitingSeen] = {}
        self._priorities: dict[str, int] = {}
        """uid -> priority at the last queueing"""
        self._applied: set[tuple[str, int, str]] = set()
        self._facts = FactAudit()
        self._leaves = LeafAudit()
        self._orders = Orders()
        self._claims = ClaimAudit(self._orders)
        self._running = ChargeAudit()
        others = (self._running, GangAudit(), GrowthAudit(), WorkersAudit(), MoveAudit(), PodChargeAudit())
        self._books = (self._facts, self._leaves, *others)

    def feed(self, stored: Stored) -> None:  # noqa: C901 - a table of events
        """Check one commit against everything before."""
        stored = self._judge.hear(stored)
        self._seq = stored.seq
        self.commits += 1
        if stored.void:
            return
        for book in self._books:
            for invariant, holds, detail in book.feed(stored):
                self._check(invariant, holds, detail)
        for event in stored.commit.events:
            self.events[type(event).__name__] += 1
            match event:
                case QuotaTreeAccepted() | QuotaTreeRemoved():
                    self._settle(event)
                case WorkloadGone() if event.ref.uid not in self._waiting and event.ref.uid not in self._charges:
                    self._priorities.pop(event.ref.uid, None)
                case WorkloadQueued():
                    self._queued(event)
                case WorkloadDequeued():
                    self._waiting.pop(event.ref.uid, None)
                case CandidatesProposed():
                    self._proposed(event, stored.commit)
                case QuotaDenied():
                    self._free_again(event.ref.uid, event.attempt)
                case QuotaReserved():
                    self._reserved(event)
                case QuotaMoved():
                    self._leaf_moved(event)
                case WorkloadAdopted():
                    self._waiting.pop(event.ref.uid, None)
                    # Suspended, and started without an admission again: the same attempt may be suspended again.
                    self._applied.discard((event.ref.uid, event.attempt, "suspend"))
                    self._open(event.ref.uid, charge_of(event, adopted=True))
                    if event.reason == "reserved":
                        self._within(event.ref, event.queue, event.request)
                case GrowthGranted() | GrowthWithdrawn():
                    self._grown(event)
                case ChargeChanged():
                    self._changed(event)
                case GangAdmitted():
                    self._admitted(event)
                case SuspensionOrdered(reason="overuse"):
                    self._check(*overused(event, self._charges.get(event.ref.uid), self._trees.nodes, self._used))
                case EvictionOrdered():
                    self._evicts(event)
                case EffectApplied():
                    self._effect(event)
                case QuotaReleased():
                    self._released(event)
            for finding in self._claims.event(event, stored):
                self._check(*finding)
            self._orders.note(event, stored.commit.in_seq)
        for finding in self._claims.over(stored.commit):
            self._check(*finding)

    def finish(self) -> list[Violation]:
        """Check the invariants at the end; returns every violation found."""
        live = Counter[tuple[str, str]]()
        for charge in self._charges.values():
            for path, _ in self._chain(charge.queue):
                for name, amount in charge.request.items():
                    live[path, name] += amount
        self._check("I5", {k: v for k, v in live.items() if v} == self._totals(), "usage is not the sum of the charges")
        for invariant, holds, detail in (*self._leaves.finish(), *self._running.finish()):
            self._check(invariant, holds, detail)
        for uid, workload in self._facts.workloads.items():
            # What a finalizer alone keeps makes no pods.
            runs = workload.phase == "running" and not workload.deleting
            runs = runs and workload.ref.namespace in self._trees.leaves
            self._check("I17", not runs or uid in self._charges, f"{workload.ref} runs without a charge")
        return self.violations

    # --- the rules --------------------------------------------------------------------------------------------

    def _check(self, invariant: str, holds: bool, detail: str) -> None:
        self.counts[invariant] += 1
        if not holds:
            self.broken[invariant] += 1
            if len(self.violations) < MAX_KEPT:
                self.violations.append(Violation(invariant, f"at {self._seq}: {detail}"))

    def _settle(self, event: QuotaTreeAccepted | QuotaTreeRemoved) -> None:
        """Move charges to the leaves of the trees in force."""
        self._trees.note(event, self._seq)
        self._used = {}
        for uid, charge in self._charges.items():
            workload = self._facts.workloads.get(uid)
            if workload is not None:
                charge.queue = self._trees.leaf(workload.ref.namespace, charge.named) or charge.queue
            self._add(charge, 1)

    def _queued(self, event: WorkloadQueued) -> None:
        self._priorities[event.ref.uid] = event.priority
        self._waiting[event.ref.uid] = waiting_of(event, self._seq)

    def _proposed(self, event: CandidatesProposed, commit: Commit) -> None:
        """I15: of equal requests in one queue the first is tried first.

        A job that waited for its places uses the quota held for this job, and no other claim's quota.
        """
        proposed = {candidate.ref.uid for candidate in event.candidates}
        heads: dict[tuple[Any, ...], PlaceSeen] = {}
        for uid, waiting in self._waiting.items():
            if (
                not (waiting.proposed or waiting.rests)
                and uid not in proposed
                and uid not in self._charges
                and waiting.seq <= commit.in_seq
            ):
                heads[waiting.line] = min(waiting.place, heads.get(waiting.line, waiting.place))
        for candidate in event.candidates:
            mine = self._waiting.get(candidate.ref.uid)
            if mine is None or mine.attempt != candidate.attempt:
                continue
            mine.proposed, mine.rests = True, False
            if self._trees.changed > commit.in_seq:
                continue
            head, held = heads.get(mine.line), self._orders.by_uid.get(candidate.ref.uid)
            first = head is None or mine.place < head or (held is not None and held.for_nodes)
            self._check("I15", first, f"{candidate.ref} is tried before {head.key if head else ''}")

    def _reserved(self, event: QuotaReserved) -> None:
        """I2: the request fits at the leaf and every ancestor. I4: the request equals the templates' request."""
        workload = self._facts.workloads.get(event.ref.uid)
        if workload is not None and workload.basis == event.basis:
            tree = self._trees.by_root.get(root_of(event.queue))
            need = dict(workload.need.get(tree.profile if tree is not None else "ack", {}))
            for pods in workload.pod_sets:
                device = _device_of(tree, pods.rules) if tree is not None else 0
                if 0 < pods.rules.gpu_memory < device and pods.count and GPU in need:
                    part = max(1, pods.rules.gpu_memory * 1000 // device)
                    need[GPU] -= (1000 - part) * pods.rules.devices * pods.count
            total = {name: amount for name, amount in event.request.items() if "@" not in name}
            self._check("I4", need == total, f"{event.ref} needs {need} and is charged {event.request}")
            for name, least, most in _by_flavor(event, workload, tree):
                fair = least <= event.request.get(name, 0) <= most
                self._check("I4", fair, f"{event.ref} asks for {least} to {most} of {name}, and is charged otherwise")
        for finding in self._orders.taken(event, self._trees.nodes, self._used, self._charges):
            self._check(*finding)
        self._open(event.ref.uid, charge_of(event))
        self._within(event.ref, event.queue, event.request)

    def _open(self, uid: str, charge: ChargeSeen) -> None:
        self._check("I6", uid not in self._charges, f"{uid} is charged twice")
        if uid in self._charges:
            self._add(self._charges[uid], -1)
        self._charges[uid] = charge
        self._add(charge, 1)

    def _leaf_moved(self, event: QuotaMoved) -> None:
        charge = self._charges.get(event.ref.uid)
        if charge is not None and charge.attempt == event.attempt:
            self._add(charge, -1)
            charge.queue, charge.named = event.queue, event.named
            self._add(charge, 1)

    def _changed(self, event: ChargeChanged) -> None:
        """I6: the event changes an existing charge. The grant of running work follows the charge down."""
        charge = self._charges.get(event.ref.uid)
        same = charge is not None and charge.attempt == event.attempt
        self._check("I6", same, f"{event.ref} attempt {event.attempt} is charged differently, and is not charged")
        if charge is None:
            return
        charge.granted = {name: amount - event.over.get(name, 0) for name, amount in event.request.items()}
        self._add(charge, -1)
        charge.request, charge.pods = event.request, event.pods
        self._add(charge, 1)

    def _grown(self, event: GrowthGranted | GrowthWithdrawn) -> None:
        """I6: grant and charge change together; I2: a grant stays within every limit."""
        charge = self._charges.get(event.ref.uid)
        same = charge is not None and charge.attempt == event.attempt
        self._check("I6", same, f"{event.ref} attempt {event.attempt} is granted differently, and is not charged")
        if charge is None:
            return
        self._add(charge, -1)
        before, charge.granted = charge.request, event.grant
        charge.request, charge.pods = event.request, event.pods
        self._add(charge, 1)
        if isinstance(event, GrowthGranted):
            more = [name for name, amount in event.request.items() if amount > before.get(name, 0)]
            self._within(event.ref, charge.queue, more)

    def _within(self, ref: Ref, queue: str, names: Iterable[str]) -> None:
        """I2: usage at the leaf and every ancestor stays within the limits."""
        for path, node in self._chain(queue):
            for name in names:
                limit, used = node.limit.get(name) if node else None, self._used.get(path, {}).get(name, 0)
                text = f"{ref} takes {path} to {name} {format_quantity(used, name)}, over its limit"
                self._check("I2", limit is None or used <= limit, text)

    def _admitted(self, event: GangAdmitted) -> None:
        charge = self._charges.get(event.ref.uid)
        if charge is not None and charge.attempt == event.attempt:
            self._check("I9", not charge.admitted, f"{event.ref} is admitted twice under attempt {event.attempt}")
            charge.admitted = True
            self._whole(event)
            self._waiting.pop(event.ref.uid, None)

    def _whole(self, event: GangAdmitted) -> None:
        """I3: an admission with placements has a place for every pod of every set, on existing nodes."""
        if not event.placements:
            return
        placed = Counter[str]()
        for placement in event.placements:
            placed[placement.pod_set] += placement.count
        wanted = {
            pods.name: pods.count if pods.minimum is None else min(pods.minimum, pods.count)
            for pods in event.pod_sets
            if pods.count
        }
        self._check("I3", dict(placed) == wanted, f"{event.ref} is admitted with places for {dict(placed)} of {wanted}")

    def _evicts(self, event: EvictionOrdered) -> None:
        """I8, I19: the reclaimed quota is owed, may be reclaimed, and is needed."""
        for finding in findings(event, self._trees, self._charges, self._orders, self._priorities):
            self._check(*finding)

    def _effect(self, event: EffectApplied) -> None:
        """I1: no resume without an earlier admission. I9: one resume per admission."""
        # A new decision is another write: a pod bound elsewhere, a job suspended after another start.
        attempt = event.attempt if event.action == "resume" else event.cause.seq
        key = (event.ref.uid, attempt, event.action)
        self._check("I1", event.cause.seq < self._seq, f"{event.ref}: {event.action} before it was decided")
        self._check("I9", key not in self._applied, f"{event.ref}: {event.action} twice, attempt {event.attempt}")
        self._applied.add(key)

    def _released(self, event: QuotaReleased) -> None:
        """I6: each release ends exactly one charge."""
        charge = self._charges.pop(event.ref.uid, None)
        same = charge is not None and (charge.attempt, charge.request) == (event.attempt, event.request)
        self._check("I6", same, f"release of {event.ref} attempt {event.attempt} ends no charge like it")
        if charge is not None:
            self._add(charge, -1)
        if event.ref.uid in self._waiting:
            waiting = self._waiting[event.ref.uid]
            waiting.seq, waiting.rests = self._seq, rests_after(event.reason)

    def _free_again(self, uid: str, attempt: int) -> None:
        waiting = self._waiting.get(uid)
        if waiting is not None and waiting.attempt == attempt:
            waiting.proposed, waiting.seq = False, self._seq

    def _add(self, charge: ChargeSeen, times: int) -> None:
        for path, _ in self._chain(charge.queue):
            used = self._used.setdefault(path, {})
            for name, amount in charge.request.items():
                used[name] = used.get(name, 0) + amount * times
                self._check("I5", used[name] >= 0, f"usage of {name} at {path} is negative")

    def _totals(self) -> dict[tuple[str, str], int]:
        return {(path, name): v for path, used in self._used.items() for name, v in used.items() if v}

    def _chain(self, path: str) -> list[tuple[str, QuotaNode | None]]:
        return [(node, self._trees.nodes.get(node)) for node in path_chain(path)]


def _device_of(tree: QuotaTree, rules: PodRules) -> int:
    """MiB of the largest GPU that the pods of a set may have, as the tree knows the GPUs."""
    wanted = rules.node_labels.get(GPU_PRODUCT)
    sizes = [tree.gpu_products.get(wanted, 0)] if wanted is not None else []
    for term in rules.nodes or () if wanted is None else ():
        values = [need.values for need in term.labels if need.key == GPU_PRODUCT and need.operator == "In"]
        if not values:
            return tree.gpu_memory
        sizes += [tree.gpu_products.get(name, 0) for name in values[0]]
    return max(sizes, default=0) or tree.gpu_memory
