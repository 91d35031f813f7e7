"""What the preemptor knows: the queues as the sorter sees them, what runs where, and whom it cannot help now."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import ClassVar

from msgspec import Struct, field

from muster.core.preemption.reclaim import Run
from muster.core.queueing.book import Shape, clear
from muster.core.queueing.state import Job, SorterState
from muster.core.quota.demand import Demand, Scratch, counted
from muster.core.quota.ledger import Ledger
from muster.core.quota.state import can_suspend
from muster.model.resources import Vector, add_into

MIN_PAUSE_MS = 1_000
"""Between two looks at who has waited too long."""


class Bar(Struct, frozen=True):
    """Why nothing is proposed for a claimant for now."""

    supply: int
    """It is looked at again when what could be taken back has changed since, ..."""
    until: int = 0
    """... or at this log time (ms); with ``hard`` both must have come."""
    hard: bool = False
    rest: int = 0
    """Not before this log time (ms), whatever has changed."""


class Started(Struct):
    """What runs under a charge, and since when."""

    leaf: str
    run: Run
    since: int
    """Log time (ms) at which it was resumed."""
    listed: bool = False
    gives: Vector = field(default_factory=dict)
    """What it gives back, while it is listed."""


class PreemptorState(SorterState):
    """The sorter's state, and what may be taken back."""

    decides: ClassVar[bool] = False
    runs: dict[str, list[Run]] = field(default_factory=dict)
    """leaf -> what runs there and may be suspended, in the order in which it gives way"""
    sums: dict[str, dict[int, Vector]] = field(default_factory=dict)
    """leaf -> priority -> what the runs there of that priority give back together"""
    started: dict[str, Started] = field(default_factory=dict)
    """uid of a charged workload that has been resumed -> its place among the runs"""
    leaving: dict[str, None] = field(default_factory=dict)
    """uids of those that have been ordered to leave"""
    evictions: dict[str, int] = field(default_factory=dict)
    """workload uid -> how often it has been suspended for somebody else"""
    supply: int = 0
    """How often what could be taken back has changed."""
    barred: dict[str, Bar] = field(default_factory=dict)
    open: dict[str, None] = field(default_factory=dict)
    """uids of claimants whose proposal has not been answered"""
    foreign: bool = False
    """Work that nobody had admitted was running when the cluster was first seen."""
    shown_pauses: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """quota path -> what its Queue object was last seen to pause"""
    aged: dict[str, None] = field(default_factory=dict)
    """uids that have waited at the head of their queue for longer than the age limit"""
    age_check: int = 0
    """Log time (ms) at which somebody may be added to them; 0 for never."""

    def reclaims(self) -> bool:
        """Whether evictions are on: by the tree's own word, else unless foreign work ran at first sight."""
        rules = self.ledger.tree.rules if self.ledger.tree is not None else None
        if rules is None or rules.reclaim == "disabled":
            return False
        return rules.reclaim == "enabled" or not self.foreign

    def may_evict(self, uid: str) -> bool:
        """Whether a workload may be suspended now."""
        return self.may_evict_unpaused(uid) and "evictions" not in self.resting(self.started[uid].leaf)

    def may_evict_unpaused(self, uid: str) -> bool:
        """Whether it might be if nobody had paused evictions."""
        return self.now >= self.ripe(self.started[uid])

    def ripe(self, started: Started) -> int:
        """Log time at which a workload has run for as long as it may without being evicted."""
        tree = self.ledger.tree
        least = tree.rules.least_run_ms(self.evictions.get(started.run[3], 0)) if tree is not None else 0
        return started.since + least

    def ripe_at(self, leaf: str = "") -> int:
        """Log time at which the next workload has run for its minimum; 0 when there is none to wait for.

        ``leaf``: one of that leaf, if it has any.
        """
        if self.ledger.tree is None or not (self.ledger.tree.rules.min_run_ms or self.evictions):
            return 0
        times = [self.ripe(self.started[run[3]]) for run in self.runs.get(leaf, ())]
        if not any(at > self.now for at in times):
            times = [self.ripe(self.started[run[3]]) for runs in self.runs.values() for run in runs]
        return min((at for at in times if at > self.now), default=0)

    def rests(self, uid: str) -> bool:
        """Whether a claim of it has failed, and it is too early for another: nothing has changed, or not for long."""
        bar = self.barred.get(uid)
        return bar is not None and bar.hard and self.is_barred(uid)

    def is_barred(self, uid: str) -> bool:
        bar = self.barred.get(uid)
        if bar is None:
            return False
        if bar.hard:
            return self.now < bar.until or bar.supply == self.supply
        if self.now < bar.rest:
            return True
        return bar.supply == self.supply and not (bar.until and self.now >= bar.until)

    def in_turn(self, job: Job) -> bool:
        """Whether its queue lets it in when there is room: admissions are not paused, and nobody blocks it there."""
        if "admissions" in self.resting(job.queue):
            return False
        return self.policies.get(job.queue, "") != "Block" or self.book.position(job.queue, job.place) == 1

    def may_be_next(self, job: Job) -> bool:
        """Whether it is in turn, and nothing is held for somebody who stands before it in its queue."""
        claim = self.ledger.claim
        if claim is not None and claim.queue == job.queue and self.priority_of_claim(claim.uid) >= job.priority:
            return False
        return self.in_turn(job)

    def priority_of_claim(self, uid: str) -> int:
        """The priority of a claimant, as it is queued."""
        return self.jobs[uid].priority if uid in self.jobs else 0

    def outranks(self, queue: str, priority: int, demand: Demand, ledger: Ledger) -> bool:
        """Whether work of lower priority in a leaf, by its sums, could make room for a claimant of that leaf.

        It gives enough itself, or the leaf is within its min without it, so that others might.
        """
        lower: Vector = {}
        for each, amounts in self.sums.get(queue, {}).items():
            if each < priority:
                add_into(lower, amounts)
        if not lower:
            return False
        over = ((each.resource, each.used + each.asked - each.limit) for each in ledger.refusals(queue, demand))
        if all(lower.get(name, 0) >= amount for name, amount in over):
            return True
        gone = Scratch({queue: {name: -amount for name, amount in lower.items()}})
        managed = ledger.managed(queue, demand.request)
        return bool(managed) and not ledger.above_min(queue, demand, managed, gone)

    def hungry(self, queue: str) -> bool:
        """Whether a leaf uses less than its guarantee of anything."""
        node, used = self.ledger.nodes.get(queue), self.ledger.used.get(queue, {})
        return node is not None and any(used.get(name, 0) < least for name, least in node.guaranteed.items())

    def refused(self, queue: str) -> Iterator[Shape]:
        """The shapes of a queue that are refused now and could be let in some day."""
        for key in self.book.queues.get(queue, ()):
            shape = self.book.shapes[key]
            denial = shape.denial
            if denial is None or not shape.waiting or denial.hopeless or denial.of_min:
                continue
            if not clear(shape, self.ledger):
                yield shape

    def enlist(self, uid: str) -> None:
        """Bring a workload's place among the runs in line with what is known of it."""
        started, charge, workload = self.started.get(uid), self.ledger.charges.get(uid), self.workloads.get(uid)
        if started is not None and started.listed:
            runs = self.runs[started.leaf]
            del runs[bisect_left(runs, started.run)]
            if not runs:
                del self.runs[started.leaf]
            started.listed = False
            self._sum(started, -1)
        if charge is None or workload is None:
            self.started.pop(uid, None)
            return
        if workload.suspended and started is None:
            return
        since = started.since if started is not None else self.now
        job = self.jobs.get(uid)
        priority = job.priority if job is not None else self.priority_of(workload)
        came = job.queued_at if job is not None else workload.queued_at or workload.created
        started = self.started[uid] = Started(charge.queue, (priority, -came, workload.ref.key, uid), since)
        if charge.preemptible and uid not in self.leaving and can_suspend(workload):
            insort(self.runs.setdefault(charge.queue, []), started.run)
            started.listed, started.gives = True, counted(charge.demand)
            self._sum(started, 1)

    def _sum(self, started: Started, times: int) -> None:
        by_priority = self.sums.setdefault(started.leaf, {})
        sums = by_priority.setdefault(started.run[0], {})
        add_into(sums, started.gives, times)
        if not sums:
            del by_priority[started.run[0]]
            if not by_priority:
                del self.sums[started.leaf]
