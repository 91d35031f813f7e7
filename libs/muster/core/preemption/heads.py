"""The heads of the queues, and the limits on claims for age.

Claims for age: the cost to other jobs of jobs that have waited too long, per node of the quota tree. Quota held for
such a job is idle. Once the job runs, the job uses quota that a younger or shorter job would have had. Both parts of
the node's limit stay small on average: after a job that takes more at once, no quota is held for age at the node until
the average is reached again.

The heads of the queues: sorted by the start of their wait, and by the amounts asked for. Only heads that may be refused
are looked at.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterator, Mapping
from heapq import merge

from msgspec import Struct, field

from muster.core.queueing.book import RefusalSlot
from muster.core.queueing.queues import Job, Queues
from muster.core.quota.demand import chain_of, counted
from muster.core.quota.ledger.idling import limit_of, paid_back_ms
from muster.core.quota.ledger.quotaledger import UNBOUNDED, Ledger
from muster.model.demand import Shortfall
from muster.model.keys import root_of
from muster.model.resources import Vector, add_into, summed, total_of

# --- claims for age ---------------------------------------------------------------------------------------------------


RUNS_PART = 20
"""Jobs admitted by claims for age hold at most 1/20 of the node's limit, at a time and on average. A single wider job
may hold more at a time.
"""

IDLE_PART = 200
"""1/200 of a node's limit is idle for age, on average."""

MILLION = 1_000_000


class AgeClaim(Struct):
    """A claim for age: the node of the claim, and the amounts idle for the claim so far."""

    top: str
    idle: Vector = field(default_factory=dict)


class AgeRun(Struct, frozen=True):
    """A job admitted by a claim for age: the node of the claim, and the job's part of the node's limit."""

    top: str
    part: int
    """Millionths."""


class AgeClaims(Struct):
    """The claims for age in force, the jobs admitted by such claims, and the rest times of nodes."""

    claims: dict[str, AgeClaim] = field(default_factory=dict)
    """claimant uid -> claim for age in force"""
    runs: dict[str, AgeRun] = field(default_factory=dict)
    """uid of a charged workload admitted by a claim for age -> node and part"""
    rests: dict[str, int] = field(default_factory=dict)
    """node -> log time (ms) until which no more quota is held for age there"""

    def opened(self, uid: str, top: str, ledger: Ledger, now: int) -> None:
        before = self.claims.get(uid)
        if before is not None:  # The claim was at a lower node until now.
            self._paid_back(before, ledger, now)
        self.claims[uid] = AgeClaim(top)

    def time_passed(self, ledger: Ledger) -> None:
        """Idle amounts have grown with the time."""
        for uid, claim in self.claims.items():
            claim.idle = dict(ledger.claims.by_uid[uid].idle)

    def looked(self, ledger: Ledger, now: int, served: str = "") -> None:
        """Claims may be over; ``served``: uid of the admitted workload."""
        for uid, claim in list(self.claims.items()):
            standing = ledger.claims.by_uid.get(uid)
            if standing is None or standing.firm:
                del self.claims[uid]
                if served and standing is None:
                    part = _part(ledger, claim.top, counted(ledger.charges[served].demand))
                    self.runs[served] = AgeRun(claim.top, part)
                self._paid_back(claim, ledger, now)

    def left(self, uid: str, since: int | None, now: int) -> None:
        """A charge that had run from ``since`` (log time, ms) was released. The node of a job wider than ``RUNS_PART``
        allows now rests.
        """
        run = self.runs.pop(uid, None)
        if run is not None and since is not None and run.part * RUNS_PART > MILLION:
            self._rest(run.top, now, (now - since) * (run.part * RUNS_PART - MILLION) // MILLION)

    def held(self, ledger: Ledger) -> dict[str, Vector]:
        """{node: amounts of charged jobs admitted by claims for age at the node}."""
        by_node: dict[str, Vector] = {}
        for uid, run in self.runs.items():
            charge = ledger.charges.get(uid)
            if charge is not None:
                add_into(by_node.setdefault(run.top, {}), counted(charge.demand))
        return by_node

    def rests_until(self, queue: str) -> int:
        """Log time (ms) until which no quota is held for the jobs of a queue; 0 without a rest."""
        return max((self.rests.get(path, 0) for path in chain_of(queue)), default=0) if self.rests else 0

    def _paid_back(self, claim: AgeClaim, ledger: Ledger, now: int) -> None:
        self._rest(claim.top, now, paid_back_ms(ledger, claim.top, claim.idle, IDLE_PART))

    def _rest(self, top: str, now: int, pause: int) -> None:
        """A node rests for ``pause`` ms; rests in the past are forgotten."""
        until = max(now + pause, self.rests.get(top, 0))
        self.rests = {path: at for path, at in {**self.rests, top: until}.items() if at > now}


def has_room(top: Shortfall, held: Mapping[str, Vector]) -> bool:
    """Whether the jobs admitted by claims for age leave room for the refused job; always true without such jobs.
    ``held``: see ``AgeClaims.held``.
    """
    already = held.get(top.path, {}).get(top.resource, 0)
    return not already or (already + top.asked) * RUNS_PART <= top.limit


def _part(ledger: Ledger, path: str, amounts: Vector) -> int:
    """Millionths of a node's limit, for the resource with the largest part."""
    limits = {name: limit_of(ledger, path, name) for name in amounts}
    return max((amounts[name] * MILLION // limit for name, limit in limits.items() if limit), default=0)


# --- heads ------------------------------------------------------------------------------------------------------------


FEW = 8
"""Where fewer than 1/8 of the queues come into question, only these are sorted; otherwise the kept order is read."""

_NOTHING: Mapping[str, int] = {}


class RankedHead(Struct):
    """The first of a queue."""

    uid: str
    since: int
    """Log time (ms) from which the age of the head counts."""
    asks: Vector


class Refused(Struct):
    """Queues with heads that may be refused."""

    sure: dict[str, None]
    large: list[tuple[str, str, int]] = field(default_factory=list)
    """(node above queues, resource, free amount): a head below the node that asks for more is refused, too"""
    most: int = 0
    """No more than so many are."""


class Heads(Struct):
    """The heads of all queues. Only a queue touched by an event changes its place."""

    heads: dict[str, RankedHead] = field(default_factory=dict)
    """queue -> its head"""
    order: dict[str, list[tuple[int, str, str]]] = field(default_factory=dict)
    """root -> sorted (start of the wait, uid of the head, queue)"""
    asks: dict[str, dict[str, list[tuple[int, str]]]] = field(default_factory=dict)
    """node above queues -> resource -> sorted (amount asked for by a head, queue)"""
    full: dict[str, None] = field(default_factory=dict)
    """queues with limits that refuse their own head, claims apart"""
    near: dict[str, None] = field(default_factory=dict)
    """queues where a refused job may fit in the rest of the queue's guarantee, or of its share"""

    @classmethod
    def of(cls, queues: Queues, evictions: Mapping[str, list[int]]) -> Heads:
        """The heads of all queues, from an empty state."""
        heads = cls()
        for queue in queues.book.lines:
            heads._look(queue, queues, evictions)
        return heads

    def settle(self, queues: Queues, evictions: Mapping[str, list[int]]) -> None:
        """Look again at the queues touched since the last call."""
        for queue in queues.book.stirred:
            self._look(queue, queues, evictions)
        queues.book.stirred.clear()

    def _look(self, queue: str, queues: Queues, evictions: Mapping[str, list[int]]) -> None:
        line, before = queues.book.lines.get(queue), self.heads.get(queue)
        job = queues.jobs[line[0][0].uid] if line else None
        now = RankedHead(job.ref.uid, waits_since(job, evictions), counted(job.demand)) if job else None
        if before != now:
            if before is not None:
                self._remove(queue, before)
            if now is not None:
                self._add(queue, now)
        self.full.pop(queue, None)
        node, used = queues.ledger.nodes.get(queue), queues.ledger.used.get(queue, _NOTHING)
        if now is not None and node is not None:
            for name, most in node.limit.items():
                if now.asks.get(name) and used.get(name, 0) + now.asks[name] > most:
                    self.full[queue] = None
        self.near.pop(queue, None)
        left = left_of(queues.ledger, queue, (queue,)) if now is not None else None
        if left is not None and any(slot.asks[queue][0][0] <= left(slot.resource) for slot in _refused(queues, queue)):
            self.near[queue] = None

    def _add(self, queue: str, head: RankedHead) -> None:
        self.heads[queue] = head
        insort(self.order.setdefault(root_of(queue), []), (head.since, head.uid, queue))
        for path in chain_of(queue)[1:]:
            by_resource = self.asks.setdefault(path, {})
            for name, asked in head.asks.items():
                insort(by_resource.setdefault(name, []), (asked, queue))

    def _remove(self, queue: str, head: RankedHead) -> None:
        del self.heads[queue]
        order = self.order[root_of(queue)]
        del order[bisect_left(order, (head.since, head.uid, queue))]
        if not order:
            del self.order[root_of(queue)]
        for path in chain_of(queue)[1:]:
            for name, asked in head.asks.items():
                asks = self.asks[path][name]
                del asks[bisect_left(asks, (asked, queue))]
                if not asks:
                    del self.asks[path][name]
            if not self.asks[path]:
                del self.asks[path]

    def refused(self, queues: Queues, but: Collection[str] = ()) -> Refused | None:
        """The queues with a claim, and the queues with heads that a node may refuse, by all used and held quota there.

        Held quota counts for its own claimant too. ``but``: nodes left out. None where refusal depends on loans or
        shares.
        """
        ledger = queues.ledger
        if ledger.lends or ledger.shares.names:
            return None
        refused = Refused({**self.full, **{claim.queue: None for claim in ledger.claims.by_uid.values()}})
        for path, by_resource in self.asks.items():
            node = ledger.nodes.get(path) if path not in but else None
            used, held = ledger.used.get(path, _NOTHING), ledger.claims.total.extra.get(path, _NOTHING)
            for name, most in node.limit.items() if node is not None else ():
                if name not in by_resource:
                    continue
                asks, room = by_resource[name], most - used.get(name, 0) - held.get(name, 0)
                if asks[-1][0] > room:
                    refused.large.append((path, name, max(room, 0)))
                    refused.most += len(asks) - bisect_left(asks, (max(room, 0) + 1, ""))
        return refused

    def _all_of(self, among: Refused) -> dict[str, None]:
        """The names of these queues; only for few queues."""
        queues = dict(among.sure)
        for path, name, room in among.large:
            asks = self.asks[path][name]
            queues |= {queue: None for _, queue in asks[bisect_left(asks, (room + 1, "")) :]}
        return queues

    def _is_among(self, queue: str, among: Refused) -> bool:
        chain, asks = chain_of(queue)[1:], self.heads[queue].asks
        return queue in among.sure or any(
            path in chain and asks.get(name, 0) > room for path, name, room in among.large
        )

    def is_due(self, queues: Queues, now: int) -> bool:
        """Whether some head has waited beyond the age limit of its tree."""
        trees = queues.ledger.trees
        return any(
            0 < trees[root].rules.age_limit_ms <= now - order[0][0]
            for root, order in self.order.items()
            if root in trees
        )

    def due(self, queues: Queues, rests: AgeClaims, now: int, among: Refused | None) -> Iterator[str]:
        """The queues with heads for which quota may be held, longest wait first; lazily. ``among``: only these queues;
        None for all.
        """
        trees = (self._due(queues, root, rests, now, among) for root in queues.ledger.trees)
        return (queue for _, _, queue in merge(*trees))

    def _due(
        self, queues: Queues, root: str, rests: AgeClaims, now: int, among: Refused | None
    ) -> Iterator[tuple[int, str, str]]:
        """The due heads of one tree, in order."""
        order, limit = self.order.get(root, []), queues.ledger.trees[root].rules.age_limit_ms
        if not limit or (rests.rests and rests.rests_until(root) > now):
            return
        if among is not None and (len(among.sure) + among.most) * FEW < len(order):
            heads = ((self.heads.get(queue), queue) for queue in self._all_of(among) if root_of(queue) == root)
            order = sorted((head.since, head.uid, queue) for head, queue in heads if head is not None)
        for head in order:
            queue = head[2]
            if head[0] + limit > now:
                break
            if among is not None and not self._is_among(queue, among):
                continue
            if queue in queues.ledger.nodes and rests.rests_until(queue) <= now:
                yield head

    def next_due(self, queues: Queues, rests: AgeClaims, now: int) -> int | None:
        """Log time (ms) at which the next head will have waited too long; None for never."""
        earliest: int | None = None
        for root, tree in queues.ledger.trees.items():
            order, limit = self.order.get(root, []), tree.rules.age_limit_ms
            if not limit:
                continue
            old = bisect_left(order, (now - limit + 1,))
            ends = [until for path, until in rests.rests.items() if root_of(path) == root and until > now]
            for _, _, queue in order[:old] if ends else ():
                if earliest is not None and earliest <= min(ends):
                    break  # No head is due before the end of the first rest.
                due = rests.rests_until(queue)
                if due > now and queue in queues.ledger.nodes and (earliest is None or due < earliest):
                    earliest = due
            for at in range(old, len(order)):
                since, _, queue = order[at]
                if earliest is not None and since + limit >= earliest:
                    break
                due = max(since + limit, rests.rests_until(queue))
                if queue in queues.ledger.nodes and (earliest is None or due < earliest):
                    earliest = due
        return earliest


def left_of(
    ledger: Ledger, queue: str, paths: Collection[str], *others: Mapping[str, Mapping[str, int]]
) -> Callable[[str], int] | None:
    """By resource, the most a job may ask for and be owed, at a glance; None where the queue is owed nothing.

    The amount is the rest of the largest guarantee among ``paths``, or of the share of the queue. ``others``: amounts
    that count beside the use, those of leaving jobs negative.
    """
    names = ledger.guaranteed.get(root_of(queue), _NOTHING)

    def taken(path: str) -> Mapping[str, int]:
        parts = [part[path] for part in others if path in part]
        used = ledger.used.get(path, _NOTHING)
        return summed((used, *parts)) if parts else used

    if ledger.by_shares(queue):
        mine, used = ledger.fair.shares.get(queue, {}), taken(queue)
        some = {name: divided.share.amount - used.get(name, 0) for name, divided in mine.items()}
        return (lambda name: some.get(name, UNBOUNDED)) if some and min(some.values()) >= 0 else None
    # At the root there is no outside to claim from.
    inner = [path for path in chain_of(queue) if path in paths and "/" in path and path in ledger.nodes]
    giving = [(ledger.nodes[path].owes, taken(path)) for path in inner]

    def guaranteed(name: str) -> int:
        if name not in names:
            return UNBOUNDED
        parts = (name, total_of(name)) if "@" in name else (name,)  # The rest of a total is for any flavor.
        rests = [least.get(one, 0) - used.get(one, 0) for least, used in giving for one in parts]
        return max(rests, default=-1)

    return guaranteed


def _refused(queues: Queues, queue: str) -> Iterator[RefusalSlot]:
    """The slots with parked requests of a queue that limits may admit some day."""
    parked = queues.book.parked
    slots = (slot for path in chain_of(queue) if path in parked for slot in parked[path].values())
    return (slot for slot in slots if not slot.of_min and queue in slot.asks)


def waits_since(job: Job, evictions: Mapping[str, list[int]]) -> int:
    """Log time (ms) from which the age of a job counts: its entry, or its last eviction; no run is a wait."""
    return max(job.queued_at, *evictions.get(job.ref.uid, (0,)))
