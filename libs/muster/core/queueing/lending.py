"""How much unused guarantee is lent, and to which jobs.

A job expected to end soon borrows all free quota: an eviction loses little. Any other job must leave enough for the
owners, free or lent to jobs of the first kind: as much as the other leaves lack of the guarantees wanted in the last
WINDOW_HOURS. The tree sets the limit of "soon" (``muster.dev/borrow-freely``). In the order ``learned`` the limit is
LONG times the mean run time of all jobs, at the queueing or now, whichever is longer. Run times are learned from the
log alone. Where the tree sets the limit, a job without a known run time is not expected to end soon. In any tree,
neither is a job that has run for longer than the limit.

This is a rule for proposals and no limit. Jobs within a guarantee, jobs with held quota, and jobs that have waited for
a week are exempt.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from itertools import chain, islice

from muster.core.queueing.queues import Job, Loan, Queues, WantedSince
from muster.core.quota.demand import Scratch, chain_of, counted
from muster.core.quota.ledger.quotaledger import Ledger
from muster.model.demand import Shortfall
from muster.model.keys import root_of
from muster.model.quota import Rules
from muster.model.resources import Vector, add_into

HOUR_MS = 3_600_000
WINDOW_HOURS = 25
"""The window of remembered wants of a leaf, with this hour: the same hour of the day before is inside."""
LONG = 4
"""A job expected to run for more than this many mean run times may run long."""
WEEK_MS = 7 * 24 * HOUR_MS
"""The longest wait of a job before borrowing like any other."""
MAX_TIMED = 8
"""Jobs of a shape looked at as soon as their wait is long enough; further jobs are looked at with the next event."""
MAX_LOOKED = 64
"""The most shapes with room, and leaves with larger past wants, for which the time of borrowing is computed."""

_NOTHING: Mapping[str, int] = {}


def keeps_for_owners(ledger: Ledger, queue: str) -> bool:
    """Whether long jobs of a queue borrow only the quota that owners have not wanted lately."""
    tree = ledger.tree_of(queue)
    return tree is not None and not tree.by_shares and tree.rules.keeps_for_owners


def freely_ms(ledger: Ledger, queue: str, mean_ms: int) -> int:
    """The longest expected run time (ms) of a job that borrows all free quota; 0 for any time. ``mean_ms``: mean run
    time of all jobs, 0 where unknown.
    """
    if not keeps_for_owners(ledger, queue):
        return 0
    limit_ms = ledger.rules_of(queue).borrow_freely_ms
    return limit_ms if limit_ms > 0 else mean_ms * LONG


def ruled(queues: Queues, root: str, rules: Rules) -> None:
    """Before a tree is applied: a new limit of "soon" counts for all jobs of the tree."""
    limit_ms = rules.borrow_freely_ms
    if queues.ledger.rules_of(root).borrow_freely_ms == limit_ms:
        return
    longest = queues.lending.soon[root] = max(limit_ms, 0)
    for job in queues.jobs.values():
        if root_of(job.queue) == root:
            job.freely_ms, job.freely_at = longest, job.queued_at + WEEK_MS if longest else 0


def noted(queues: Queues, now: int) -> None:
    """Note the wants of the leaves touched by events, from log time ``now`` (ms) on."""
    lending, nodes, hour = queues.lending, queues.ledger.nodes, now // HOUR_MS
    for path in queues.book.stirred:
        node = nodes.get(path)
        if node is None or node.children or not keeps_for_owners(queues.ledger, path):
            lending.levels.pop(path, None)
            lending.wanted.pop(path, None)
            continue
        before, amounts = lending.levels.get(path), _wanted(queues, path, node.guaranteed)
        if before is None or before.amounts != amounts:
            lending.levels[path] = WantedSince(now, amounts)
            if before is not None and before.since < now:
                past = lending.wanted.setdefault(path, {})
                for name, amount in before.amounts.items():
                    _add_past(past.setdefault(name, []), hour, amount)
    if len(lending.levels) > len(nodes):
        for path in [path for path in lending.levels if path not in nodes]:
            del lending.levels[path]
            lending.wanted.pop(path, None)


def _add_past(past: list[tuple[int, int]], hour: int, amount: int) -> None:
    """An amount was wanted up to ``hour``; older amounts no larger are dropped, as are hours before the window."""
    if past and past[-1][0] == hour and past[-1][1] >= amount:
        return
    while past and past[-1][1] <= amount:
        past.pop()
    past.append((hour, amount))
    while past[0][0] <= hour - WINDOW_HOURS:
        del past[0]


def _most(past: Sequence[tuple[int, int]], hour: int) -> tuple[int, int]:
    """(hour, amount) of the largest want in the window that ends with ``hour``.

    ``past``: wants without a larger want after them, the oldest first. So the first want in the window is the largest.
    """
    return next((past_want for past_want in past if past_want[0] > hour - WINDOW_HOURS), (hour, 0))


def runs(queues: Queues, uid: str, now: int) -> None:
    """A workload is running, or has stopped."""
    workload = queues.workloads.get(uid)
    if workload is None or workload.phase != "running" or uid not in queues.ledger.charges:
        queues.lending.running.pop(uid, None)
    else:  # Noted in any tree: the rule may be switched on, or the charge move, during the run.
        queues.lending.running.setdefault(uid, now)
    charged(queues, uid, now)


def charged(queues: Queues, uid: str, now: int) -> None:
    """The charge or job of a workload may have changed: count the loan again."""
    lending, before = queues.lending, queues.lending.loans.pop(uid, None)
    if before is not None:
        _count(lending.brief, before, -1)
        if before.until:
            del lending.ends[bisect_left(lending.ends, (before.until, uid))]
    loan = _loan(queues, uid)
    if loan is not None and not 0 < loan.until < now:
        lending.loans[uid] = loan
        _count(lending.brief, loan, 1)
        if loan.until:
            insort(lending.ends, (loan.until, uid))


def _loan(queues: Queues, uid: str) -> Loan | None:
    """The charge of a preemptible job expected to end soon; None for any other workload."""
    job, charge, since = queues.jobs.get(uid), queues.ledger.charges.get(uid), queues.lending.running.get(uid)
    if job is None or charge is None or not charge.preemptible or not 0 < job.expected_ms <= job.freely_ms:
        return None
    return Loan(charge.queue, dict(charge.request), since + job.freely_ms if since is not None else 0)


def _count(sums: dict[str, Vector], loan: Loan, times: int) -> None:
    vector = sums.setdefault(loan.leaf, {})
    add_into(vector, loan.amounts, times)
    if not vector:
        del sums[loan.leaf]


def time_passed(queues: Queues, now: int) -> None:
    """Log time is ``now`` (ms): a run longer than expected is a short loan no more."""
    ends = queues.lending.ends
    while ends and ends[0][0] < now:
        charged(queues, ends[0][1], now)


def is_counted(queues: Queues, now: int) -> bool:
    """Whether the short loans follow from the charges."""
    loans = {uid: loan for uid in queues.ledger.charges if (loan := _loan(queues, uid)) is not None}
    return queues.lending.loans == {uid: loan for uid, loan in loans.items() if not 0 < loan.until < now}


def next_look(queues: Queues, now: int) -> list[int]:
    """Log times (ms) at which a kept-back job may borrow without a further event: the largest recent want of a leaf is
    forgotten, or the wait of a job is long enough. With many shapes or leaves: the next full hour.
    """
    book, ledger, wanted = queues.book, queues.ledger, queues.lending.wanted
    if not any(keeps_for_owners(ledger, root) for root in ledger.trees):
        return []
    tried = [*islice(chain(book.untried, book.awake(ledger)), MAX_LOOKED + 1)]
    if tried and max(len(tried), len(wanted)) > MAX_LOOKED:
        return [(now // HOUR_MS + 1) * HOUR_MS]
    awake = [key for key in tried if keeps_for_owners(ledger, book.shapes[key].queue)]
    times = [queues.jobs[place.uid].freely_at for key in awake for place in book.shapes[key].waiting[:MAX_TIMED]]
    roots = {root_of(book.shapes[key].queue) for key in awake}
    for leaf in [leaf for leaf in wanted if root_of(leaf) in roots and leaf in ledger.nodes]:
        for name, amount in _wanted(queues, leaf, ledger.nodes[leaf].guaranteed).items():
            hour, most = _most(wanted[leaf].get(name, ()), now // HOUR_MS)
            if most > amount:
                times.append((hour + WINDOW_HOURS) * HOUR_MS)
    return [at for at in times if at > now]


class Reserve:
    """The quota kept for owners at a moment; the sums are made on first use."""

    def __init__(self, queues: Queues, now: int) -> None:
        self.queues, self.now = queues, now
        self._sums: dict[str, _Sums] = {}

    def spares(self, job: Job) -> bool:
        """Whether a job borrows all free quota: expected to end soon, or has waited for long enough."""
        longest = max(job.freely_ms, self.queues.lending.soon.get(root_of(job.queue), 0))
        soon = not job.freely_ms or 0 < job.expected_ms <= longest
        return soon or self.now >= job.freely_at

    def keeps(self, job: Job, *scratches: Scratch) -> Shortfall | None:
        """The shortfall that keeps a waiting job from borrowing, with ``kept`` for owners; None without a shortfall."""
        queues, ledger = self.queues, self.queues.ledger
        if not keeps_for_owners(ledger, job.queue) or self.spares(job):
            return None
        if ledger.owed(job.queue, job.demand, queues.proposed, *scratches):
            return None
        if ledger.claims.served_by(job.ref.uid, job.queue, job.demand) is not None:
            return None
        root = root_of(job.queue)
        if root not in self._sums:
            self._sums[root] = _Sums(queues, root, self.now)
        sums, asked = self._sums[root], counted(job.demand)
        for path in chain_of(job.queue)[1:]:
            node = ledger.nodes.get(path)
            for name in ledger.promised.get(root, ()) if node is not None else ():
                limit = ledger.limit(node, name) if node is not None else None
                if limit is None or not asked.get(name):
                    continue
                kept, soon = sums.beside(job.queue, path, name, asked[name])
                used = ledger.used.get(path, _NOTHING).get(name, 0)
                used += sum(scratch.extra.get(path, _NOTHING).get(name, 0) for scratch in (queues.proposed, *scratches))
                if kept > 0 and limit - used - asked[name] + soon < kept:
                    return Shortfall(path, name, asked[name], used, limit, kept=kept)
        return None


class _Sums:
    """Sums of a tree, at each node: the quota that leaves lack, and the loans expected to end soon."""

    def __init__(self, queues: Queues, root: str, now: int) -> None:
        self.lacks: dict[str, Vector] = {}
        self.soon: dict[str, Vector] = {}
        self.brief = queues.lending.brief
        self.over: dict[str, Vector] = {}
        for leaf, least in _leaves(queues, root):
            used = _used(queues, leaf)
            past = queues.lending.wanted.get(leaf, {})
            over = self.over[leaf] = {}
            for name, amount in _wanted(queues, leaf, least).items():
                most = max(amount, _most(past.get(name, ()), now // HOUR_MS)[1])
                lacks = max(min(most, least.get(name, 0)) - used.get(name, 0), 0)
                over[name] = used.get(name, 0) - least.get(name, 0)
                soon = max(min(over[name], self.brief.get(leaf, _NOTHING).get(name, 0)), 0)
                for path in chain_of(leaf):
                    _add(self.lacks, path, name, lacks)
                    _add(self.soon, path, name, soon)

    def beside(self, queue: str, path: str, name: str, asked: int) -> tuple[int, int]:
        """(quota lacked by other leaves below a node, short loans below the node), with ``asked`` admitted."""
        brief = self.brief.get(queue, _NOTHING).get(name, 0)
        before = self.over.get(queue, _NOTHING).get(name, 0)
        more = max(min(before + asked, brief), 0) - max(min(before, brief), 0)
        lacks = self.lacks.get(path, _NOTHING).get(name, 0) - self.lacks.get(queue, _NOTHING).get(name, 0)
        return lacks, self.soon.get(path, _NOTHING).get(name, 0) + more


def _leaves(queues: Queues, root: str) -> list[tuple[str, Vector]]:
    return [(node.path, node.guaranteed) for node in queues.ledger.trees[root].nodes if not node.children]


def _used(queues: Queues, leaf: str) -> dict[str, int]:
    used, proposed = queues.ledger.used.get(leaf, _NOTHING), queues.proposed.extra.get(leaf, _NOTHING)
    return {name: used.get(name, 0) + proposed.get(name, 0) for name in {**used, **proposed}}


def _wanted(queues: Queues, leaf: str, least: Vector) -> dict[str, int]:
    """The part of its guarantee used or asked for by a leaf now, for all resources promised to any leaf of the tree."""
    used, asked = queues.ledger.used.get(leaf, _NOTHING), queues.ledger.waiting.get(leaf, _NOTHING)
    names = queues.ledger.promised.get(root_of(leaf), {})
    return {name: min(used.get(name, 0) + asked.get(name, 0), least.get(name, 0)) for name in names}


def _add(sums: dict[str, Vector], path: str, name: str, amount: int) -> None:
    if amount:
        vector = sums.setdefault(path, {})
        vector[name] = vector.get(name, 0) + amount
