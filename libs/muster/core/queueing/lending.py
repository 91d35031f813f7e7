"""What of unused guarantees is lent, and to which jobs, where a tree says ``muster.dev/borrow-freely``.

A job that is expected to run no longer than that borrows whatever is free: taken back, it loses little. Any other one
borrows only so much that enough stays for the owners: free, or lent to jobs of the first kind, must stay as much as the
other leaves lack of the guarantees that they have wanted in the last WINDOW_HOURS. The run times of such jobs are
learned from the log alone; a job without a known run time counts as long, and so does one that has run longer than
expected.

A rule for proposals, no limit: a job within a guarantee never waits for it, nor does one for which quota is held
already, nor one that has waited for LONGEST_WAIT_MS.
"""

from __future__ import annotations

from collections.abc import Mapping

from muster.core.queueing.queues import Job, Queues
from muster.core.quota.demand import Scratch, chain_of, counted
from muster.model.demand import Shortfall
from muster.model.keys import root_of
from muster.model.resources import Vector

HOUR_MS = 3_600_000
WINDOW_HOURS = 48
"""How far back it counts what a leaf has wanted: the same hour of the day before is always in it."""
LONGEST_WAIT_MS = 7 * 24 * HOUR_MS
"""A job that has waited so long borrows like any other."""
MAX_TIMED = 8
"""Jobs of a shape that are looked at as soon as they have waited so long; the others when something happens."""

_NOTHING: Mapping[str, int] = {}


def freely_ms(queues: Queues, queue: str) -> int:
    """How long a job of a queue is expected to run at the most if it borrows whatever is free; 0 for any time."""
    ledger = queues.ledger
    return 0 if ledger.by_shares(queue) else ledger.rules_of(queue).borrow_freely_ms


def time_passed(queues: Queues, now: int) -> None:
    """Log time has gone on to ``now``: what was wanted until now is noted."""
    lending, ledger, hour = queues.lending, queues.ledger, now // HOUR_MS
    roots = _roots(queues)
    if not roots:
        lending.wanted.clear()
        return
    for path in [path for path in lending.wanted if path not in ledger.nodes]:
        del lending.wanted[path]
    for path, least in _leaves(queues, roots):
        hours = lending.wanted.setdefault(path, {})
        for name, amount in _wanted(queues, path, least).items():
            before = hours.setdefault(name, {})
            if amount > before.get(hour, -1):
                before[hour] = amount
                for old in [each for each in before if each <= hour - WINDOW_HOURS]:
                    del before[old]


def _roots(queues: Queues) -> list[str]:
    """Of the trees that lend by how long jobs run."""
    trees = queues.ledger.trees
    return [root for root, tree in trees.items() if tree.rules.borrow_freely_ms and not tree.by_shares]


def runs(queues: Queues, uid: str, now: int) -> None:
    """A workload is running, or has stopped."""
    workload = queues.workloads.get(uid)
    if workload is None or workload.phase != "running" or uid not in queues.ledger.charges:
        queues.lending.running.pop(uid, None)
    else:  # Noted in any tree: the rule may be switched on, or the charge move, while it runs.
        queues.lending.running.setdefault(uid, now)


def next_look(queues: Queues, now: int) -> list[int]:
    """Log times (ms) at which a job may borrow that may not now, though nothing happens: the largest recent demand of a
    leaf is forgotten, or one has waited for long enough.
    """
    book, wanted = queues.book, queues.lending.wanted
    tried = (*book.untried, *book.awake(queues.ledger)) if _roots(queues) else ()
    awake = [key for key in tried if freely_ms(queues, book.shapes[key].queue)]
    jobs = (queues.jobs[place.uid] for key in awake for place in book.shapes[key].waiting[:MAX_TIMED])
    times = [job.queued_at + LONGEST_WAIT_MS for job in jobs]
    roots = list(dict.fromkeys(root_of(book.shapes[key].queue) for key in awake))
    for leaf, least in _leaves(queues, roots):
        for name, amount in _wanted(queues, leaf, least).items():
            hours = wanted.get(leaf, {}).get(name, {})
            most = max(hours.values(), default=0)
            if most > amount:
                times.append((max(hour for hour, each in hours.items() if each == most) + WINDOW_HOURS) * HOUR_MS)
    return [at for at in times if at > now]


class Reserve:
    """What is kept for owners at one moment; summed up when it is asked for first."""

    def __init__(self, queues: Queues, now: int) -> None:
        self.queues, self.now = queues, now
        self._sums: dict[str, _Sums] = {}

    def spares(self, job: Job) -> bool:
        """Whether a job borrows whatever is free: it is expected to end soon, or has waited for long enough."""
        brief = 0 < job.expected_ms <= freely_ms(self.queues, job.queue)
        return brief or self.now - job.queued_at >= LONGEST_WAIT_MS

    def keeps(self, job: Job, *scratches: Scratch) -> Shortfall | None:
        """What keeps a waiting job from borrowing, with ``kept`` for owners; None where nothing does."""
        queues, ledger = self.queues, self.queues.ledger
        freely = freely_ms(queues, job.queue)
        if not freely or self.spares(job):
            return None
        if ledger.owed(job.queue, job.demand, queues.proposed, *scratches):
            return None
        if ledger.claims.served_by(job.ref.uid, job.queue, job.demand) is not None:
            return None
        root = root_of(job.queue)
        if root not in self._sums:
            self._sums[root] = _Sums(queues, root, freely, self.now)
        sums, asked = self._sums[root], counted(job.demand)
        for path in chain_of(job.queue)[1:]:
            node = ledger.nodes.get(path)
            for name in ledger.promised.get(root, ()) if node is not None else ():
                limit = ledger.limit(node, name) if node is not None else None
                if limit is None or not asked.get(name):
                    continue
                kept, soon = sums.beside(job.queue, path, name, asked[name])
                used = ledger.used.get(path, _NOTHING).get(name, 0)
                used += sum(each.extra.get(path, _NOTHING).get(name, 0) for each in (queues.proposed, *scratches))
                if kept > 0 and limit - used - asked[name] + soon < kept:
                    return Shortfall(path, name, asked[name], used, limit, kept=kept)
        return None


class _Sums:
    """Of one tree: what each leaf lacks, and what of its loans is expected to end soon; summed up at each node."""

    def __init__(self, queues: Queues, root: str, freely: int, now: int) -> None:
        self.lacks: dict[str, Vector] = {}
        self.soon: dict[str, Vector] = {}
        self.brief = _brief(queues, root, freely, now)
        self.over: dict[str, Vector] = {}
        oldest = now // HOUR_MS - WINDOW_HOURS
        for leaf, least in _leaves(queues, [root]):
            used = _used(queues, leaf)
            hours = queues.lending.wanted.get(leaf, {})
            over = self.over[leaf] = {}
            for name, amount in _wanted(queues, leaf, least).items():
                seen = (most for hour, most in hours.get(name, {}).items() if hour > oldest)
                lacks = max(min(max(amount, *seen, 0), least.get(name, 0)) - used.get(name, 0), 0)
                over[name] = used.get(name, 0) - least.get(name, 0)
                soon = max(min(over[name], self.brief.get(leaf, _NOTHING).get(name, 0)), 0)
                for path in chain_of(leaf):
                    _add(self.lacks, path, name, lacks)
                    _add(self.soon, path, name, soon)

    def beside(self, queue: str, path: str, name: str, asked: int) -> tuple[int, int]:
        """(what other leaves below a node lack, what is lent below it for a short time) with ``asked`` admitted."""
        brief = self.brief.get(queue, _NOTHING).get(name, 0)
        before = self.over.get(queue, _NOTHING).get(name, 0)
        more = max(min(before + asked, brief), 0) - max(min(before, brief), 0)
        lacks = self.lacks.get(path, _NOTHING).get(name, 0) - self.lacks.get(queue, _NOTHING).get(name, 0)
        return lacks, self.soon.get(path, _NOTHING).get(name, 0) + more


def _brief(queues: Queues, root: str, freely: int, now: int) -> dict[str, Vector]:
    """Leaf -> what is charged there for jobs that are expected to end soon, and may be suspended."""
    found: dict[str, Vector] = {}
    for uid, charge in queues.ledger.charges.items():
        job = queues.jobs.get(uid)
        if job is None or not 0 < job.expected_ms <= freely or not charge.preemptible:
            continue
        if now - queues.lending.running.get(uid, now) <= freely and root_of(charge.queue) == root:
            for name, amount in charge.request.items():
                _add(found, charge.queue, name, amount)
    return found


def _leaves(queues: Queues, roots: list[str]) -> list[tuple[str, Vector]]:
    nodes = (node for root in roots for node in queues.ledger.trees[root].nodes)
    return [(node.path, node.guaranteed) for node in nodes if not node.children]


def _used(queues: Queues, leaf: str) -> dict[str, int]:
    used, proposed = queues.ledger.used.get(leaf, _NOTHING), queues.proposed.extra.get(leaf, _NOTHING)
    return {name: used.get(name, 0) + proposed.get(name, 0) for name in {**used, **proposed}}


def _wanted(queues: Queues, leaf: str, least: Vector) -> dict[str, int]:
    """What of its guarantee a leaf uses or asks for now, of all that the tree promises to any leaf."""
    used, asked = queues.ledger.used.get(leaf, _NOTHING), queues.ledger.waiting.get(leaf, _NOTHING)
    names = queues.ledger.promised.get(root_of(leaf), {})
    return {name: min(used.get(name, 0) + asked.get(name, 0), least.get(name, 0)) for name in names}


def _add(sums: dict[str, Vector], path: str, name: str, amount: int) -> None:
    if amount:
        vector = sums.setdefault(path, {})
        vector[name] = vector.get(name, 0) + amount
