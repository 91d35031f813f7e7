"""The heads of the queues, and what claims for age may cost.

Claims for age: how much jobs that have waited too long may cost the others, per node of the quota tree.

The quota that is held for such a job is idle; once the job runs, it uses quota that a younger or shorter job would
have had. Both are small parts of the node's limit, on average: after a job that takes more at once, nothing is
held for age at this node until the average is reached again.

The heads of the queues: by the time since when they wait, and by the amounts they ask for. Of those that may be
refused no other is looked at.
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
from muster.core.quota.service import Service
from muster.model.demand import Shortfall
from muster.model.keys import root_of
from muster.model.quota import COUNTED
from muster.model.resources import Vector, add_into

# --- claims for age ---------------------------------------------------------------------------------------------------


RUNS_PART = 20
"""Jobs admitted by claims for age hold one part in this many of the node's limit: at a time, but for one job that is
wider by itself, and on average."""

IDLE_PART = 200
"""One part in this many of a node's limit is idle for age, on average."""

MILLION = 1_000_000


class AgeClaim(Struct):
    """A claim for age: the node at which it is held, and what was idle there for it, as the claim counts it."""

    top: str
    idle: Vector = field(default_factory=dict)


class AgeRun(Struct, frozen=True):
    """A job that was admitted by a claim for age: the node of the claim, and its part of the limit of that node."""

    top: str
    part: int
    """Millionths."""


class AgeClaims(Struct):
    """What is held for age, what runs by it, and until when a node has had enough of both."""

    claims: dict[str, AgeClaim] = field(default_factory=dict)
    """claimant uid -> its claim for age in force"""
    runs: dict[str, AgeRun] = field(default_factory=dict)
    """uid of a charged workload that was admitted by a claim for age -> where"""
    rests: dict[str, int] = field(default_factory=dict)
    """node -> log time (ms) until which nothing more is held there for age"""

    def opened(self, uid: str, top: str, ledger: Ledger, now: int) -> None:
        before = self.claims.get(uid)
        if before is not None:  # It was held further down until now.
            self._paid_back(before, ledger, now)
        self.claims[uid] = AgeClaim(top)

    def time_passed(self, ledger: Ledger) -> None:
        """What is idle was so for longer."""
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
        """A charge was released that had run since ``since``: a job wider than ``RUNS_PART`` allows took too much."""
        run = self.runs.pop(uid, None)
        if run is not None and since is not None and run.part * RUNS_PART > MILLION:
            self._rest(run.top, now, (now - since) * (run.part * RUNS_PART - MILLION) // MILLION)

    def held(self, ledger: Ledger) -> dict[str, Vector]:
        """Node -> what runs by claims for age that were held there."""
        found: dict[str, Vector] = {}
        for uid, run in self.runs.items():
            charge = ledger.charges.get(uid)
            if charge is not None:
                add_into(found.setdefault(run.top, {}), counted(charge.demand))
        return found

    def rests_until(self, queue: str) -> int:
        """Log time (ms) until which nothing is held for a job of a queue; 0 for none."""
        return max((self.rests.get(path, 0) for path in chain_of(queue)), default=0) if self.rests else 0

    def _paid_back(self, claim: AgeClaim, ledger: Ledger, now: int) -> None:
        self._rest(claim.top, now, paid_back_ms(ledger, claim.top, claim.idle, IDLE_PART))

    def _rest(self, top: str, now: int, pause: int) -> None:
        """A node rests for so long (ms); rests that are over are forgotten."""
        until = max(now + pause, self.rests.get(top, 0))
        self.rests = {path: at for path, at in {**self.rests, top: until}.items() if at > now}


def has_room(top: Shortfall, held: Mapping[str, Vector]) -> bool:
    """Whether what runs by claims for age leaves room for one more that a limit refuses; for one always. ``held``: as
    of ``AgeClaims.held``.
    """
    already = held.get(top.path, {}).get(top.resource, 0)
    return not already or (already + top.asked) * RUNS_PART <= top.limit


def _part(ledger: Ledger, path: str, amounts: Vector) -> int:
    """Millionths of a node's limit, of the resource of which it is most."""
    limits = {name: limit_of(ledger, path, name) for name in amounts}
    return max((amounts[name] * MILLION // limit for name, limit in limits.items() if limit), default=0)


# --- heads ------------------------------------------------------------------------------------------------------------


FEW = 8
"""Where less than one part in this many of the queues comes into question, they are sorted; else their order is gone
through."""

_NOTHING: Mapping[str, int] = {}


class RankedHead(Struct):
    """The first of a queue."""

    uid: str
    since: int
    """Log time (ms) from which its age counts."""
    asks: Vector


class Refused(Struct):
    """Queues whose heads may be refused."""

    sure: dict[str, None]
    large: list[tuple[str, str, int]] = field(default_factory=list)
    """(node above queues, resource, what is free of it): heads below it that ask for more are refused, too"""
    most: int = 0
    """No more than so many are."""


class Heads(Struct):
    """Only a queue that an event has touched changes its place."""

    heads: dict[str, RankedHead] = field(default_factory=dict)
    """queue -> its head"""
    order: dict[str, list[tuple[int, str, str]]] = field(default_factory=dict)
    """root -> sorted (since when the head waits, its uid, queue)"""
    asks: dict[str, dict[str, list[tuple[int, str]]]] = field(default_factory=dict)
    """node above queues -> resource -> sorted (amount that a head asks for, queue)"""
    full: dict[str, None] = field(default_factory=dict)
    """queues that refuse their own head, claims apart"""
    near: dict[str, None] = field(default_factory=dict)
    """queues where a refused job may ask for no more than they leave of their guarantee, or of their share"""

    @classmethod
    def of(cls, queues: Queues, evictions: Mapping[str, list[int]], service: Service) -> Heads:
        """All of them."""
        found = cls()
        for queue in queues.book.lines:
            found._look(queue, queues, evictions, service)
        return found

    def settle(self, queues: Queues, evictions: Mapping[str, list[int]], service: Service) -> None:
        """Bring the queues in line that were touched since."""
        for queue in queues.book.stirred:
            self._look(queue, queues, evictions, service)
        queues.book.stirred.clear()

    def _look(self, queue: str, queues: Queues, evictions: Mapping[str, list[int]], service: Service) -> None:
        line, before = queues.book.lines.get(queue), self.heads.get(queue)
        job = queues.jobs[line[0][0].uid] if line else None
        now = RankedHead(job.ref.uid, waits_since(job, evictions, service), counted(job.demand)) if job else None
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
        left = left_of(queues.ledger, queue, (queue,), {}) if now is not None else None
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
        """The queues that have a claim, and those whose heads may be refused by a node, those of ``but`` apart: by all
        that is used and held there, whatever is held for them. None where that depends on more.
        """
        ledger = queues.ledger
        if ledger.lends or ledger.shares.names:
            return None
        found = Refused({**self.full, **{claim.queue: None for claim in ledger.claims.by_uid.values()}})
        for path, by_resource in self.asks.items():
            node = ledger.nodes.get(path) if path not in but else None
            used, held = ledger.used.get(path, _NOTHING), ledger.claims.total.extra.get(path, _NOTHING)
            for name, most in node.limit.items() if node is not None else ():
                asks = by_resource.get(name)
                room = most - used.get(name, 0) - held.get(name, 0)
                if asks and asks[-1][0] > room:
                    found.large.append((path, name, max(room, 0)))
                    found.most += len(asks) - bisect_left(asks, (max(room, 0) + 1, ""))
        return found

    def _all_of(self, among: Refused) -> dict[str, None]:
        """Their names, where they are few."""
        found = dict(among.sure)
        for path, name, room in among.large:
            asks = self.asks[path][name]
            found |= {queue: None for _, queue in asks[bisect_left(asks, (room + 1, "")) :]}
        return found

    def _is_among(self, queue: str, among: Refused) -> bool:
        chain, asks = chain_of(queue)[1:], self.heads[queue].asks
        return queue in among.sure or any(
            path in chain and asks.get(name, 0) > room for path, name, room in among.large
        )

    def due(self, queues: Queues, rests: AgeClaims, now: int, among: Refused | None) -> Iterator[str]:
        """The queues for whose heads something may be held, those first that have waited longest; each is looked at as
        its turn comes. ``among``: only these; None for all.
        """
        trees = (self._due(queues, root, rests, now, among) for root in queues.ledger.trees)
        return (queue for _, _, queue in merge(*trees))

    def _due(
        self, queues: Queues, root: str, rests: AgeClaims, now: int, among: Refused | None
    ) -> Iterator[tuple[int, str, str]]:
        """Those of one tree, as in its order."""
        order, limit = self.order.get(root, []), queues.ledger.trees[root].rules.age_limit_ms
        if not limit or (rests.rests and rests.rests_until(root) > now):
            return
        if among is not None and (len(among.sure) + among.most) * FEW < len(order):
            heads = ((self.heads.get(queue), queue) for queue in self._all_of(among) if root_of(queue) == root)
            order = sorted((each.since, each.uid, queue) for each, queue in heads if each is not None)
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
        found: int | None = None
        for root, tree in queues.ledger.trees.items():
            order, limit = self.order.get(root, []), tree.rules.age_limit_ms
            if not limit:
                continue
            old = bisect_left(order, (now - limit + 1,))
            ends = [until for path, until in rests.rests.items() if root_of(path) == root and until > now]
            for _, _, queue in order[:old] if ends else ():
                if found is not None and found <= min(ends):
                    break  # None of these is due before the first of them.
                due = rests.rests_until(queue)
                if due > now and queue in queues.ledger.nodes and (found is None or due < found):
                    found = due
            for at in range(old, len(order)):
                since, _, queue = order[at]
                if found is not None and since + limit >= found:
                    break
                due = max(since + limit, rests.rests_until(queue))
                if queue in queues.ledger.nodes and (found is None or due < found):
                    found = due
        return found


def left_of(
    ledger: Ledger, queue: str, paths: Collection[str], leaving: Mapping[str, Mapping[str, int]]
) -> Callable[[str], int] | None:
    """How much of a resource a job of a queue may ask for that is owed it, at a glance: what the guarantee of one of
    these ``paths`` leaves, or the share of its queue. None where it is owed nothing. ``leaving``: what leaves, as
    negative amounts.
    """
    nodes = [ledger.nodes[path] for path in chain_of(queue) if path in ledger.nodes]

    def left(path: str, name: str, most: int) -> int:
        return most - ledger.used.get(path, _NOTHING).get(name, 0) - leaving.get(path, _NOTHING).get(name, 0)

    if ledger.by_shares(queue):
        mine = ledger.fair.shares.get(queue, {})
        some = {name: left(queue, name, each.share.amount) for name, each in mine.items()}
        return (lambda name: some.get(name, UNBOUNDED)) if some and min(some.values()) >= 0 else None
    # At the root there is no outside to claim from.
    giving = [node for node in nodes if "/" in node.path and node.path in paths]

    def guaranteed(name: str) -> int:
        if name in COUNTED or not any(name in node.limit or name in node.guaranteed for node in nodes):
            return UNBOUNDED
        return max((left(node.path, name, node.guaranteed.get(name, 0)) for node in giving), default=-1)

    return guaranteed


def _refused(queues: Queues, queue: str) -> Iterator[RefusalSlot]:
    """What is parked of a queue, and may be admitted some day."""
    parked = queues.book.parked
    slots = (slot for path in chain_of(queue) if path in parked for slot in parked[path].values())
    return (slot for slot in slots if not slot.of_min and queue in slot.asks)


def waits_since(job: Job, evictions: Mapping[str, list[int]], service: Service) -> int:
    """Log time from which its age counts: a job that made room for jobs with less service has had its turn before."""
    if job.ref.uid not in service.times:
        return job.queued_at
    return max(job.queued_at, *evictions.get(job.ref.uid, (0,)))
