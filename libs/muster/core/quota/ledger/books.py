"""The books of the ledger: charges and claims by workload, and their sums at every node.

Decisions become entries here: a reservation makes a charge, an order opens a claim. Folds change the books here;
``quotaledger.py`` decides whether a request fits beside them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field, structs

from muster.core.objects.meta import queue_and_quota
from muster.core.observed.seen import Seen
from muster.core.quota.claims import Claim, Claims, Leaver
from muster.core.quota.demand import Charge, QueuedRequest, Scratch, add_at, chain_of, counted, left_by, spread
from muster.core.quota.ledger.shares import FairShares, Shares
from muster.core.quota.trees.treesource import guaranteed, leaves, pooled, promised
from muster.core.stage import put
from muster.events.base import Cause
from muster.events.claims import ClaimOpened
from muster.events.decisions import EvictionOrdered, QuotaReserved, WorkloadAdopted, WorkloadQueued
from muster.model.demand import Demand
from muster.model.elastic import Counts
from muster.model.keys import Position, root_of
from muster.model.quota import DEFAULT_RULES, KAI_ROOT, ROOT, QuotaNode, QuotaTree, Rules
from muster.model.resources import Vector, add_into, highest

# --- charging ---------------------------------------------------------------------------------------------------------


def charge_of(event: QuotaReserved | WorkloadAdopted, at: Position) -> Charge:
    """The charge of the workload from here on.

    The start of adopted work is not known, so its end is not known either.
    """
    until = left_by(at.at, event.run_ms) if isinstance(event, QuotaReserved) else 0
    return Charge(
        event.ref.namespace,
        event.queue,
        event.request,
        event.pods,
        event.preemptible,
        event.named,
        until=until,
        begun=Cause(at.seq, at.item),
        flavors=event.flavors,
    )


def claimant_of(event: QuotaReserved | WorkloadAdopted) -> str:
    """Uid of the job whose claim the charge ends, if any: named by the event, or else the charged job."""
    return (event.serves if isinstance(event, QuotaReserved) else "") or event.ref.uid


def ask_of(event: WorkloadQueued) -> QueuedRequest:
    """The request of the waiting workload."""
    return QueuedRequest(event.attempt, event.queue, event.request, event.priority)


def claim_of(event: EvictionOrdered | ClaimOpened, at: int) -> Claim:
    """The claim in force from here on. ``at``: log time (ms) of the event."""
    claim = Claim(event.ref, event.attempt, event.queue, event.demand, event.kind, at, progress=at, idle_until=at)
    if isinstance(event, ClaimOpened):
        claim.top, claim.promised, claim.idles_ms = event.top, event.promised, event.idles_ms
    else:
        claim.growth, claim.for_nodes = event.growth, event.for_nodes
        claim.victims = {victim.ref.uid: Leaver(victim.attempt, victim.moves) for victim in event.victims}
        for part in event.partial:
            gives = Demand(part.request, part.pods, jobs=0)
            claim.victims[part.ref.uid] = Leaver(part.attempt, gives=gives, left=part.left)
    return claim


def awaited(claim: Claim, going: Mapping[str, tuple[str, Demand]]) -> dict[str, Vector]:
    """Node on the path of a claim -> the amounts to be released there by the claim's victims, at most the request.

    ``going``: uid -> (leaf, the amounts to be released)
    """
    released: dict[str, Vector] = {}
    amounts, mine = counted(claim.demand), dict.fromkeys(claim.paths())
    for uid in claim.victims:
        queue, demand = going.get(uid, ("", claim.demand))
        for path in chain_of(queue) if queue else ():
            if path in mine:
                add_into(released.setdefault(path, {}), counted(demand))
    return {
        path: {name: min(amount, gives[name]) for name, amount in amounts.items() if gives.get(name)}
        for path, gives in released.items()
    }


def lacking(claim: Claim, nodes: Mapping[str, QuotaNode], used: Mapping[str, Vector]) -> dict[str, Vector]:
    """Node above the queue of an age claim -> the amounts to be released below this node first, at the current
    ``used``.
    """
    missing: dict[str, Vector] = {}
    below: Vector = {}
    amounts = counted(claim.demand)
    for path in claim.paths():
        if below:
            missing[path] = dict(below)
        node, here = nodes.get(path), used.get(path, {})
        for name, limit in node.limit.items() if node is not None and path != claim.top else ():
            asked = amounts.get(name, 0)
            lacks = min(here.get(name, 0) + asked - limit, asked)
            if lacks > below.get(name, 0):
                below[name] = lacks
    return missing


def below_guarantee(node: QuotaNode, used: Mapping[str, int]) -> bool:
    """Whether a node uses less than its guarantee of any resource."""
    return any(used.get(name, 0) < least for name, least in node.owes.items())


def kept_at(node: QuotaNode, kept: Mapping[str, Vector], used: Mapping[str, Vector]) -> Vector:
    """max(sum kept by the children, min - lend limit - used), per resource; empty where nothing is kept."""
    keeps: Vector = {}
    for child in node.children:
        add_into(keeps, kept.get(child, {}))
    here = used.get(node.path, {})
    for name, amount in node.kept.items():
        own = amount - here.get(name, 0)
        if own > keeps.get(name, 0):
            keeps[name] = own
    return keeps


# --- books ------------------------------------------------------------------------------------------------------------


_NOTHING: Mapping[str, int] = {}


class Books(Struct):
    """Charges by workload uid, and their sums at every node.

    ``used`` maps path -> vector over every path of a charge. The vector always equals the sum of the charges, with jobs
    and machines counted in. ``firm`` is the part of ``used`` that is not preemptible.
    """

    trees: dict[str, QuotaTree] = field(default_factory=dict)
    """path of the root -> tree, for every tree in force"""
    nodes: dict[str, QuotaNode] = field(default_factory=dict)
    leaf_of: dict[str, str] = field(default_factory=dict)
    """namespace -> path of its leaf."""
    named: dict[str, list[str]] = field(default_factory=dict)
    """bare name -> paths of the ElasticQuotaTree's nodes with this name."""
    queues: dict[str, str] = field(default_factory=dict)
    """name of a KAI queue -> its path."""
    charges: dict[str, Charge] = field(default_factory=dict)
    used: dict[str, Vector] = field(default_factory=dict)
    firm: dict[str, Vector] = field(default_factory=dict)
    below: dict[str, None] = field(default_factory=dict)
    """paths of the nodes that use less than their guarantee of any resource"""
    inner_below: dict[str, None] = field(default_factory=dict)
    """the pooled nodes in ``below``"""
    pooled: dict[str, None] = field(default_factory=dict)
    """paths of the nodes between root and leaves with a guarantee: any leaf below may be owed this guarantee"""
    guaranteed: dict[str, dict[str, None]] = field(default_factory=dict)
    """root of a tree -> resources with a guarantee at any node below"""
    kept: dict[str, Vector] = field(default_factory=dict)
    """path -> the amounts that its subtree leaves unused and does not lend; empty in a tree without lend limits."""
    promised: dict[str, dict[str, None]] = field(default_factory=dict)
    """root of a tree -> resources with a min at any leaf; without any min, the limited resources"""
    lends: bool = False
    """Whether the tree has lend limits."""
    protects: bool = False
    """Whether a queue protects running work for a time."""
    asks: dict[str, QueuedRequest] = field(default_factory=dict)
    """workload uid -> its queued request, from the queueing to the end of the attempt"""
    attempts: dict[str, int] = field(default_factory=dict)
    """workload uid -> its last queued attempt"""
    changes: int = 0
    """The number of changes of charges, claims and limits."""
    shares: Shares = field(default_factory=Shares)
    """The amounts that every node may use now, in a tree that divides by weight."""
    fair: FairShares = field(default_factory=FairShares)
    """The share of every node, in trees that divide by fair shares; a stage that decides by shares settles them."""
    usage: dict[str, Vector] = field(default_factory=dict)
    """path -> recent use, in millionths of the capacity, from the last decision"""
    claims: Claims = field(default_factory=Claims)
    """The claims of waiting jobs."""
    parked: dict[str, QueuedRequest] = field(default_factory=dict)
    """uid of a job of a KAI queue that waits for places on nodes, in no queue -> its request: it counts for shares"""
    waiting: dict[str, Vector] = field(default_factory=dict)
    """leaf -> the requests of uncharged workloads, queued or waiting for places on nodes"""
    going: dict[str, tuple[str, Demand]] = field(default_factory=dict)
    """uid of a charged workload that leaves for a claim -> (leaf, the amounts to be released)"""
    leaving: Scratch = field(default_factory=Scratch)
    """The amounts that all victims will release, as negative amounts."""

    @property
    def tree(self) -> QuotaTree | None:
        """The tree whose rules count for work of no queue: an ElasticQuotaTree before KAI queues."""
        return self.trees.get(ROOT) or next(iter(self.trees.values()), None)

    def tree_of(self, path: str) -> QuotaTree | None:
        """The tree of a node."""
        return self.trees.get(root_of(path))

    def rules_of(self, path: str) -> Rules:
        """The rules of a node's tree."""
        tree = self.tree_of(path)
        return tree.rules if tree is not None else DEFAULT_RULES

    def by_shares(self, path: str) -> bool:
        """Whether the tree of a node divides by fair shares."""
        tree = self.tree_of(path)
        return tree is not None and tree.by_shares

    def install(self, tree: QuotaTree) -> None:
        """Put a tree in force, instead of the tree with the same root."""
        self.trees[tree.root] = tree
        self.trees = dict(sorted(self.trees.items(), key=lambda item: (item[0] != ROOT, item[0])))
        self._reindex()

    def remove(self, uid: str) -> None:
        """Take the tree of this object out of force."""
        self.trees = {root: tree for root, tree in self.trees.items() if tree.ref.uid != uid}
        self._reindex()

    def _reindex(self) -> None:
        """Charges follow their label or namespace, or stay where no queue claims them."""
        self.nodes = {node.path: node for tree in self.trees.values() for node in tree.nodes}
        self.leaf_of, self.named, self.queues = {}, {}, {}
        for tree in self.trees.values():
            for leaf in leaves(tree):
                for namespace in leaf.namespaces:
                    self.leaf_of.setdefault(namespace, leaf.path)
            if tree.root == KAI_ROOT:
                self.queues = {node.name: node.path for node in tree.nodes[1:]}
            elif tree.root == ROOT:
                for node in tree.nodes:
                    self.named.setdefault(node.name, []).append(node.path)
        self.promised = {root: promised(tree) for root, tree in self.trees.items()}
        self.guaranteed = {root: guaranteed(tree) for root, tree in self.trees.items()}
        self.pooled = {path: None for tree in self.trees.values() for path in pooled(tree)}
        self.lends = any(node.kept for node in self.nodes.values())
        divided = (node for tree in self.trees.values() if tree.by_shares for node in tree.nodes)
        self.protects = any(node.preempt_min_run_ms or node.reclaim_min_run_ms for node in divided)
        self.usage = {path: parts for path, parts in self.usage.items() if path in self.nodes}
        self.used, self.firm, self.kept, self.below, self.inner_below = {}, {}, {}, {}, {}
        for charge in self.charges.values():
            charge.queue = self.leaf_for(charge.namespace, charge.named) or charge.queue
            self._add(charge, 1)
        self._guarantees(self.nodes)
        if self.lends:
            for node in reversed(self.nodes.values()):
                self._keep(node)
        weighted = [tree for tree in self.trees.values() if tree.rules.runtime == "weight"]
        self.shares.install({node.path: node for tree in weighted[:1] for node in tree.nodes}, weighted=bool(weighted))
        self.waiting = {}
        self.fair.install(self.trees)
        for uid in dict.fromkeys((*self.charges, *self.asks, *self.parked, *self.claims.by_uid)):
            self._ask(uid, 1)
            self._settle(uid)
        self._lack(self.claims.by_uid.values())

    def leaf_for(self, namespace: str, named: str = "") -> str | None:
        """The leaf of a workload: the queue or quota named by its label, or else the leaf of its namespace, or else the
        leaf for unbound jobs.

        None without such a leaf. A name of no leaf, or of several leaves, counts as none, unless the namespace's own
        leaf has the name. A workload of a queue and of a quota at the same time has no leaf.
        """
        own = self.leaf_of.get(namespace)
        if own and not named:
            return own
        queue, named = queue_and_quota(named)
        if queue and KAI_ROOT in self.trees:
            path = self.queues.get(queue, "")
            return None if own or named or not path or self.nodes[path].children else path
        if not named:
            return own or next((unbound for tree in self.trees.values() if (unbound := tree.rules.unbound_queue)), None)
        if own is not None and self.nodes[own].name == named:
            return own
        paths = [path for path in self.named.get(named, ()) if not self.nodes[path].children]
        return paths[0] if len(paths) == 1 else None

    def note_usage(self, usage: Mapping[str, Vector]) -> None:
        """Store the recent use of these queues; an empty vector: no use that counts."""
        self.changes += 1
        self.fair.whole |= {root: None for path in usage if (root := root_of(path)) in self.fair.touched}
        for path, parts in usage.items():
            put(self.usage, path, parts or None)

    def share_out(self) -> list[str]:
        """Update the fair shares; returns the queues whose share, or kept amount, has changed."""
        return self.fair.settle(self.trees, self.nodes, self.used, self.waiting, self.usage)

    def queued(self, uid: str, ask: QueuedRequest) -> None:
        """A workload waits under a new attempt; its request counts, unless the workload is still charged for an older
        attempt.
        """
        self.unpark(uid)
        self._ask(uid, -1)
        self.asks[uid] = ask
        self.attempts[uid] = ask.attempt
        self._ask(uid, 1)

    def dequeued(self, uid: str, attempt: int) -> None:
        """The workload waits no longer under this attempt or an older attempt."""
        ask = self.asks.get(uid)
        if ask is not None and ask.attempt <= attempt:
            self._ask(uid, -1)
            del self.asks[uid]
            self._ask(uid, 1)

    def park(self, uid: str, attempt: int, charge: Charge) -> None:
        """A job that had no places goes on asking for its quota, in no queue. Only shares count this request."""
        if self.by_shares(charge.queue):
            self._ask(uid, -1)
            self.parked[uid] = QueuedRequest(attempt, charge.queue, charge.request)
            self._ask(uid, 1)

    def unpark(self, uid: str) -> None:
        """The job is queued or charged, or does not wait any more."""
        if uid in self.parked:
            self._ask(uid, -1)
            del self.parked[uid]
            self._ask(uid, 1)

    def forget(self, uid: str, seen: Seen) -> bool:
        """Forget the attempts of a workload that is gone, not queued and not charged: attempts count from 1 again.
        Whether forgotten.
        """
        if uid in seen.versions or uid in self.asks or uid in self.charges:
            return False
        self.attempts.pop(uid, None)
        return True

    def charge(self, uid: str, charge: Charge, claimant: str = "") -> Claim | None:
        """Charge a workload instead of its earlier charge. Returns the served claim, which ends.

        ``claimant``: uid of the claim's job, where another job is charged.
        """
        self.unpark(uid)
        queued = self.asks.get(uid)
        self._put(uid, structs.replace(charge, priority=queued.priority) if queued is not None else charge)
        for claim in self.claims.by_uid.values() if charge.until else ():
            claim.counts_on(uid, charge)
        served = self._served(self.claims.by_uid.get(claimant or uid))
        self.end_claim(uid)
        return served

    def recharge(self, uid: str, request: Vector, pods: int, over: Vector) -> tuple[str, Demand] | None:
        """Set the charge to the running amounts: (queue, the larger of before and now); None without a charge."""
        before = self.charges.get(uid)
        if before is None:
            return None
        self._put(uid, structs.replace(before, request=request, pods=pods, over=over))
        return before.queue, Demand(highest(before.request, request), max(before.pods, pods), before.preemptible)

    def grown(self, uid: str, added: Counts, at: int) -> Claim | None:
        """A cluster has a larger grant. Returns the served claim, which ends. ``at``: log time (ms)."""
        served = self.claims.grown(uid, added, at)
        self._lack(claim for claim in [self.claims.by_uid.get(uid)] if claim is not None)
        return self._served(served)

    def _served(self, claim: Claim | None) -> Claim | None:
        if claim is None:
            return None
        heir = self.claims.pass_on(claim)
        self._lack([heir] if heir is not None else ())
        return self.end_claim(claim.uid)

    def _put(self, uid: str, charge: Charge) -> None:
        self._ask(uid, -1)
        before = self.charges.get(uid)
        if before is not None:
            self._add(before, -1)
        self.charges[uid] = charge
        self._add(charge, 1)
        self._used_in(before.queue if before is not None else charge.queue, charge.queue)
        self._ask(uid, 1)
        self._settle(uid)
        self._lack(self.claims.leaves_for(uid) if uid in self.going else ())

    def release(self, uid: str, attempt: int = 0, at: int = 0) -> Charge | None:
        """End a charge, and the request under this attempt; returns the charge, or None without a charge.

        ``at``: log time (ms), for the progress of claims.
        """
        self.dequeued(uid, attempt)
        charge = self.charges.get(uid)
        if charge is not None:
            self._ask(uid, -1)
            del self.charges[uid]
            self._add(charge, -1)
            self._used_in(charge.queue)
            self._ask(uid, 1)
            claims = self.claims.left(uid, charge.demand, at)
            self._settle(uid)
            self._lack(claims)
        return charge

    def move(self, uid: str, queue: str, named: str) -> Charge | None:
        """Charge a workload at another leaf; returns the earlier charge, or None without a charge."""
        before = self.charges.get(uid)
        if before is not None:
            self._put(uid, structs.replace(before, queue=queue, named=named))
        return before

    def open_claim(self, claim: Claim) -> None:
        """Hold the claim from here on; its victims leave."""
        for uid, charge in self.charges.items() if claim.promised else ():
            if charge.until > claim.opened:  # A late job does not count.
                claim.counts_on(uid, charge)
        self._ask(claim.uid, -1)
        self.claims.open(claim)
        self._ask(claim.uid, 1)
        for uid in claim.victims:
            self._settle(uid)
        self._lack((claim,))

    def end_claim(self, uid: str) -> Claim | None:
        """Hold nothing for this claimant any more; returns the claim, if any."""
        self._ask(uid, -1)
        ended = self.claims.end(uid)
        self.changes += ended is not None
        self._ask(uid, 1)
        for victim in ended.victims if ended is not None else ():
            self._settle(victim)
        return ended

    def ordered(self, event: EvictionOrdered | ClaimOpened, at: int) -> None:
        """Open the claim of a decision; its charged victims leave. A moving job comes back, and releases nothing.
        ``at``: log time (ms).
        """
        self.open_claim(claim_of(event, at))
        for uid, leaver in [*self.claims.by_uid[event.ref.uid].victims.items()]:
            if uid not in self.charges:
                self.victim_stays(uid, leaver.attempt, at)

    def victim_stays(self, uid: str, attempt: int, at: int) -> None:
        """A victim could not be suspended: no claim awaits the victim any more. ``at``: log time (ms)."""
        claims = self.claims.stays(uid, attempt, at)
        self._settle(uid)
        self._lack(claims)

    def shrunk(self, uid: str, groups: Counts, at: int) -> None:
        """A Ray cluster has a smaller grant: claims await no more than the rest of the release."""
        claims = self.claims.shrunk(uid, groups, at)
        self._settle(uid)
        self._lack(claims)

    def _settle(self, uid: str) -> None:
        """Update the amounts that a workload releases, from its charge and its claims."""
        leaver, charge, gives = self.claims.going.get(uid), self.charges.get(uid), None
        if charge is not None and leaver is not None and not leaver.moves:
            gives = charge.queue, leaver.gives or charge.demand
        before = self.going.get(uid)
        if gives == before:
            return
        if before is not None:
            self.leaving.add(*before)
            del self.going[uid]
        if gives is not None:
            self.leaving.add(*gives, -1)
            self.going[uid] = gives

    def _lack(self, claims: Iterable[Claim]) -> None:
        """Update the amounts to be released first for these claims."""
        self.changes += 1
        for claim in claims:
            self.claims.lack(claim, self.lacking(claim))

    def _ask(self, uid: str, times: int) -> None:
        """Count a workload once: its charge, or else its queued request, or else its claim."""
        entry = self.charges.get(uid) or self.asks.get(uid) or self.parked.get(uid) or self.claims.ask_of(uid)
        if entry is None:
            return
        if isinstance(entry, QueuedRequest):
            add_at(self.waiting, entry.queue, entry.request, times)
            self.fair.touch(entry.queue)
        if self.shares.names:
            self.shares.ask(self.nodes, entry.queue, entry.request, times)

    def _add(self, charge: Charge, times: int) -> None:
        amounts = counted(charge)
        spread(self.used, charge.queue, amounts, times)
        self.fair.touch(charge.queue)
        if not charge.preemptible:
            spread(self.firm, charge.queue, amounts, times)
        self._guarantees(chain_of(charge.queue))

    def _used_in(self, *queues: str) -> None:
        """The usage of these queues has changed: update the kept amounts, and the lacking amounts of age claims."""
        for path in [path for queue in queues for path in chain_of(queue)] if self.lends else ():
            if path in self.nodes:
                self._keep(self.nodes[path])
        aged = [claim for claim in self.claims.for_age() if claim.top != claim.queue]
        self._lack(claim for claim in aged if any(claim.top in chain_of(queue) for queue in queues))

    def lacking(self, claim: Claim) -> dict[str, Vector]:
        """The amounts to be released before a claim is held as a whole; for age, only where limits do not move with
        usage.
        """
        if claim.firm:
            return awaited(claim, self.going)
        return {} if self.lends or self.shares.names else lacking(claim, self.nodes, self.used)

    def _guarantees(self, paths: Iterable[str]) -> None:
        """Note whether these nodes are below their guarantees."""
        for path in paths:
            node = self.nodes.get(path)
            self.below.pop(path, None)
            self.inner_below.pop(path, None)
            if node is not None and below_guarantee(node, self.used.get(path, _NOTHING)):
                self.below[path] = None
                if path in self.pooled:
                    self.inner_below[path] = None

    # --- what is not lent -------------------------------------------------------------------------------------

    def _keep(self, node: QuotaNode) -> None:
        put(self.kept, node.path, kept_at(node, self.kept, self.used) or None)
