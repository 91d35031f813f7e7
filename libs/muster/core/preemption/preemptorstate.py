"""The state of the preemptor.

Victims that end by themselves before their suspension would free anything: to evict them would gain nothing.

What a suspension takes is learned from the log: from a decision until it is written on its object, and from there until
a suspended job has released its quota. How long a job still holds its quota is what it declares, or what most of those
took that were like it. One that is expected to end first is chosen before others, for nothing is lost by that, and is
not suspended: its quota is planned for the claimant as if it left, and the claimant waits for that no longer than the
suspension would have taken. Then it is planned for again, and a job that was left to end once is not left to end again.

What the preemptor knows: the queues as the sorter sees them, what runs where, and which jobs it cannot help now.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from msgspec import Struct, field

from muster.core.gang.admitterstate import AdmitterState
from muster.core.learned import ANY, Durations, RunTimes, kinds_of
from muster.core.preemption.heads import AgeClaims, Heads
from muster.core.queueing.book import RefusalSlot, Shape, clear
from muster.core.queueing.queues import Job, Queues
from muster.core.quota.candidates import Alike, Candidates, Run, basis
from muster.core.quota.claims import Claim
from muster.core.quota.demand import Charge, chain_of, preemption_delay_ms
from muster.core.quota.ledger.kaitimes import protected_ms, reclaim_grace_ms
from muster.core.quota.ledger.quotaledger import UNBOUNDED
from muster.core.quota.ledger.running import RunningClusters
from muster.core.quota.rayclaims import Spare, spare_of
from muster.core.quota.service import Service
from muster.core.stage import DueTimes, StageState
from muster.events.base import Cause
from muster.events.decisions import QuotaReleased
from muster.events.elastic import GrowthRequested
from muster.events.reasons import after_release
from muster.model.demand import Shortfall
from muster.model.elastic import Counts
from muster.model.keys import Ref
from muster.model.resources import Vector

# --- ends -------------------------------------------------------------------------------------------------------------


class Ends(Struct):
    """How long jobs hold their quota, and how long it takes to suspend them."""

    runs: Durations = field(default_factory=Durations)
    """From when a job was resumed until it had ended by itself and released its quota."""
    stops: Durations = field(default_factory=Durations)
    """From when a suspension was written until the quota was released."""
    resumes: RunTimes = field(default_factory=RunTimes)
    """From a decision to resume a job until it was written."""
    suspends: RunTimes = field(default_factory=RunTimes)
    """The same of suspensions: those ask more of the API server."""
    decided: dict[str, int] = field(default_factory=dict)
    """uid of a job that is to be resumed or suspended -> log time (ms) of that decision"""
    suspended: dict[str, int] = field(default_factory=dict)
    """uid of a job that was suspended and has not released its quota -> log time (ms) of the write"""
    due: list[tuple[int, str]] = field(default_factory=list)
    """(log time (ms) at which it is expected to end, uid) of the jobs that run, in order; where that is known"""
    due_at: dict[str, int] = field(default_factory=dict)
    left: dict[str, None] = field(default_factory=dict)
    """uids of jobs that were left to end by themselves in this run: they are not once more"""

    def began(self, ref: Ref, charge: Charge, since: int) -> None:
        """A job runs since a log time (ms)."""
        mean = self.runs.mean(kinds_of(ref.namespace, ref.name, charge.queue, charge.request))
        if mean or charge.until:
            at = self.due_at[ref.uid] = charge.until or since + mean
            insort(self.due, (at, ref.uid))

    def stopped(self, uid: str) -> None:
        """It runs no more."""
        self.left.pop(uid, None)
        at = self.due_at.pop(uid, None)
        if at is not None:
            del self.due[bisect_left(self.due, (at, uid))]

    def about(self, now: int) -> list[str]:
        """The jobs of which as many may have ended as not by the time that a suspension takes, the first to end first:
        those that are expected to have ended by then, and not so long ago that they are not like others.
        """
        takes = self._takes((ANY,))
        begin, end = (bisect_left(self.due, (at, "")) for at in (now - takes, now + takes + 1))
        return [uid for _, uid in self.due[begin:end]] if takes else []

    def written(self, uid: str, now: int, *, suspends: bool) -> None:
        since = self.decided.pop(uid, None)
        if since is not None:
            (self.suspends if suspends else self.resumes).add(now - since)
        if suspends:
            self.suspended[uid] = now

    def released(self, event: QuotaReleased, since: int | None, now: int) -> None:
        """``since``: log time (ms) at which it was resumed; None where it was not."""
        self.decided.pop(event.ref.uid, None)
        suspended = self.suspended.pop(event.ref.uid, None)
        kinds = kinds_of(event.ref.namespace, event.ref.name, event.queue, event.request)
        if after_release(event.reason) == "evicted" and suspended is not None:
            self.stops.ended(kinds, now - suspended)
        elif event.reason == "finished" and since is not None:
            self.runs.ended(kinds, now - since)

    def ends_by(self, ref: Ref, charge: Charge, since: int, now: int) -> int:
        """Log time (ms) by which a job is expected to have ended that was resumed at ``since``, where no suspension
        would free its quota before that; else 0.
        """
        kinds = kinds_of(ref.namespace, ref.name, charge.queue, charge.request)
        takes = self._takes(kinds) if ref.uid not in self.left else 0
        declared = 0 < charge.until <= now + takes
        return now + takes if takes and (declared or self.runs.ends_within(kinds, now - since, takes)) else 0

    def _takes(self, kinds: tuple[str, ...]) -> int:
        """How long (ms) it takes until a suspension of such jobs frees their quota; 0 where that is not known."""
        known = [most for each in (self.resumes, self.suspends) if (most := each.most()) is not None]
        if not known:
            return 0
        write = max(known)
        stop = self.stops.left(kinds, 0)  # Where that is not known: its controller has to write as well.
        return write + (write if stop is None else stop)


# --- state ------------------------------------------------------------------------------------------------------------


MIN_PAUSE_MS = 1_000
"""Between two looks at a job that outranks running ones."""

MAX_REMEMBERED = 16
"""Evictions of one workload."""

HOUR_MS = 3_600_000

EVICTIONS_AN_HOUR = 5
"""A workload that has been evicted so often within an hour goes last."""

EVICTIONS_IN_ALL = 8
"""A workload that has been evicted so often goes last from then on."""

_NO_SLOTS: Mapping[str, RefusalSlot] = {}

NEVER = -1
"""A supply that has always changed since: a gate with it opens when its rest is over."""


class RetryGate(Struct, frozen=True):
    """Why nothing is proposed for a claimant for now, and what opens the gate again."""

    supply: int
    """It is looked at again when what could be taken back has changed since, ..."""
    until: int = 0
    """... or at this log time (ms), ..."""
    nodes: int = -1
    """... or when the nodes have; -1 where they say nothing."""
    rest: int = 0
    """Not before this log time (ms), whatever else has changed."""


class Started(Struct):
    """What runs under a charge, and since when."""

    leaf: str
    run: Run
    since: int
    """Log time (ms) at which it was resumed."""
    kept: int = 0
    """Log time (ms) of the last checkpoint of this run; ``since`` before the first."""
    listed: bool = False
    gives: Vector = field(default_factory=dict)
    """The amounts it releases, while it is listed."""


class UnplacedClaimant(Struct):
    """A job that has released its quota, for it has found no place on the nodes."""

    job: Job
    """As it was queued then."""
    since: int
    """Log time (ms) at which it found none first."""
    cause: Cause
    gate: RetryGate = RetryGate(NEVER)
    """When it is looked at again by rules that have been tried."""
    awaits: tuple[str, ...] = ()
    """uids of the victims that were ordered to leave for it and have not left"""
    asked: bool = False
    """That others leave for it is proposed, and not answered."""
    ordered: bool = False
    """Others were ordered to leave for it since it found none last."""
    tried: dict[str, None] = field(default_factory=dict)
    """By which rules others were proposed to leave for it since it found none last."""
    again_at: int = 0
    """Log time (ms) before which what has changed under a plan is no reason for another at once."""
    may_at: int = 0
    """Log time (ms) from which others may leave for it: after its own preemption delay, and its reclaim grace."""


class RefusedGrowth(Struct):
    """More replicas that a Ray cluster asks for and was refused."""

    asked: GrowthRequested
    since: int
    """Log time (ms) since when it has asked for more without a break."""
    cause: Cause | None = None
    """The refusal; None while there is none."""
    refusals: tuple[tuple[Counts, Shortfall], ...] = ()
    """(what was asked for in one piece, what refuses it), in the order in which they would be granted"""
    passed: tuple[Counts, ...] = ()
    """The pieces for which nothing could be taken back."""


class PreemptorState(StageState):
    """The queues, and what may be taken back."""

    queues: Queues = field(default_factory=Queues)
    places: AdmitterState = field(default_factory=AdmitterState)
    """The nodes as the gang admitter sees them."""
    runs: dict[str, list[Run]] = field(default_factory=dict)
    """leaf -> its running work that may be suspended, in the order in which it is evicted"""
    alike: Alike = field(default_factory=Alike)
    """The same, those of a leaf that are alike together"""
    sums: dict[str, dict[int, Vector]] = field(default_factory=dict)
    """leaf -> priority -> the amounts that the runs there of that priority release together"""
    started: dict[str, Started] = field(default_factory=dict)
    """uid of a charged workload that has been resumed -> its place among the runs"""
    scaling: RunningClusters = field(default_factory=RunningClusters)
    idle: dict[str, Counts] = field(default_factory=dict)
    """uid of a RayCluster -> {worker group: pods with nothing to do}, as its head said last"""
    granted: dict[str, Counts] = field(default_factory=dict)
    """uid of a charged Ray cluster that scales itself -> replicas granted to its groups"""
    fixed: dict[str, Counts] = field(default_factory=dict)
    """uid of a Ray cluster that was charged with a fixed size -> its pods by worker group"""
    shrinking: dict[str, Counts] = field(default_factory=dict)
    """uid of one that was ordered to release workers -> the workers its groups are left with"""
    kept: dict[str, int] = field(default_factory=dict)
    """uid of one that could not give workers -> log time until which it is not asked for some again"""
    charged: dict[str, int] = field(default_factory=dict)
    """uid of a charged workload -> the attempt it is charged under; it may wait under a newer one"""
    leaving: dict[str, None] = field(default_factory=dict)
    """uids of those that have been ordered to leave"""
    evictions: dict[str, list[int]] = field(default_factory=dict)
    """workload uid -> log times at which it was suspended for another, the newest last, at most MAX_REMEMBERED"""
    stays: dict[str, int] = field(default_factory=dict)
    """uid of a workload that could not be suspended -> log time from which it is tried again"""
    failed: dict[str, int] = field(default_factory=dict)
    """uid of a workload that could not be suspended -> how often in this run"""
    supply: int = 0
    """How often what could be taken back, what is used, or what is held for others has changed."""
    gates: dict[str, RetryGate] = field(default_factory=dict)
    open: dict[str, RetryGate] = field(default_factory=dict)
    """uids of claimants whose proposal has not been answered"""
    sighted: bool = False
    """Everything that is required has been listed once: work found running after that started without an admission."""
    found: dict[str, None] = field(default_factory=dict)
    """uids of workloads without an intent of ours that were there when the cluster was first seen"""
    foreign: dict[str, None] = field(default_factory=dict)
    """Roots of the trees in which work was charged that was never admitted and that ran when the cluster was first
    seen."""
    shown_pauses: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """quota path -> what its Queue object was last seen to pause"""
    unplaced: dict[str, UnplacedClaimant] = field(default_factory=dict)
    """uid of a job that found no place on the nodes, where nodes may be cleared for it"""
    unplaced_in: dict[str, dict[str, list[tuple[int, str]]]] = field(default_factory=dict)
    """root of a tree -> queue -> sorted (priority, negated; uid) of those jobs"""
    unplaced_from: DueTimes = field(default_factory=DueTimes)
    """From when others may leave for those jobs"""
    rests: DueTimes = field(default_factory=DueTimes)
    """Until when nothing is proposed for those jobs"""
    outranked: dict[str, None] = field(default_factory=dict)
    """leaves in which work of lower priority may be suspended than that of a job that waits there, or found no place"""
    moves: int = 0
    """How many jobs may be moved at once; 0: none."""
    moved: dict[str, int] = field(default_factory=dict)
    """uid of a job that was moved, or had others moved for it -> log time (ms), for an hour"""
    age_claims: AgeClaims = field(default_factory=AgeClaims)
    """What is held for age, and runs by it."""
    service: Service = field(default_factory=Service)
    """The attained service of jobs, and how often they were evicted for it."""
    heads: Heads = field(default_factory=Heads)
    delayed: dict[str, None] = field(default_factory=dict)
    """uids of workloads that have a preemption delay"""
    ends: Ends = field(default_factory=Ends)
    owed_since: dict[str, int] = field(default_factory=dict)
    """key of a shape that is owed quota and waits for its grace -> log time (ms) at which that was found"""
    growing: dict[str, RefusedGrowth] = field(default_factory=dict)
    """uid of a charged workload -> what its Ray cluster asks for"""
    served: dict[str, int] = field(default_factory=dict)
    """uid of a running workload -> the level below which a waiting job may take its place, where that is any"""

    def reclaims(self, queue: str) -> bool:
        """Whether evictions are on for a queue: by its tree's own word, else unless foreign work ran at first sight."""
        tree = self.queues.ledger.tree_of(queue)
        if tree is None or tree.rules.reclaim == "disabled":
            return False
        return tree.rules.reclaim == "enabled" or tree.root not in self.foreign

    def may_evict(self, uid: str, queue: str) -> bool:
        """Whether a workload may be suspended now for a claimant of a queue."""
        return self.may_evict_unpaused(uid, queue) and "evictions" not in self.queues.resting(self.started[uid].leaf)

    def may_evict_unpaused(self, uid: str, queue: str) -> bool:
        """Whether it might be if evictions were not paused."""
        return self.now >= self.evictable_at(self.started[uid], queue)

    def may_give_workers(self, uid: str) -> bool:
        """Whether a Ray cluster may lose workers now: no minimum run time of its queue protects what it has grown."""
        started = self.started[uid]
        least = self.queues.ledger.rules_of(started.leaf).least_run_ms(len(self.evictions.get(uid, ())))
        resting = "evictions" in self.queues.resting(started.leaf)
        return not resting and self.now >= max(started.since + least, self.stays.get(uid, 0))

    def evictable_at(self, started: Started, queue: str) -> int:
        """Log time at which a workload has run for as long as it may before a claimant of a queue has it suspended."""
        least = self.queues.ledger.rules_of(started.leaf).least_run_ms(len(self.evictions.get(started.run.uid, ())))
        least = max(least, protected_ms(self.queues.ledger, started.leaf, queue))
        return max(started.since + least, self.stays.get(started.run.uid, 0))

    def evictable_from(self, queue: str, *, own: bool = False) -> int:
        """Log time at which the next workload has run for its minimum for a claimant of a queue; 0 when there is none
        to wait for.

        ``own``: one of that queue, if it has any.
        """
        least = any(tree.rules.min_run_ms or tree.by_shares for tree in self.queues.ledger.trees.values())
        if not (least or self.evictions or self.stays):
            return 0
        times = [self.evictable_at(self.started[run.uid], queue) for run in self.runs.get(queue, ()) if own]
        if not any(at > self.now for at in times):
            times = [self.evictable_at(self.started[run.uid], queue) for runs in self.runs.values() for run in runs]
        return min((at for at in times if at > self.now), default=0)

    def claims_from(self, job: Job) -> int:
        """Log time (ms) from which a waiting job may have others suspended: its own preemption delay, from when it was
        queued or evicted last.
        """
        delay = self.delay_ms(job.ref.uid)
        return max(job.queued_at, *self.evictions.get(job.ref.uid, (0,))) + delay if delay else 0

    def delay_ms(self, uid: str) -> int:
        """The preemption delay of a workload."""
        workload = self.queues.workloads.get(uid)
        return preemption_delay_ms(workload.labels) if workload is not None else 0

    def grace_ms(self, job: Job) -> int:
        """How long a job waits for the quota it is owed before others are evicted for it."""
        workload = self.queues.workloads.get(job.ref.uid)
        own = reclaim_grace_ms(workload.labels) if workload is not None else 0
        return max(self.queues.ledger.rules_of(job.queue).reclaim_grace_ms, own)

    def grace_over_at(self, job: Job) -> int | None:
        """Log time (ms) at which its grace is over; None where no job of its shape was found owed and refused yet."""
        grace, since = self.grace_ms(job), self.owed_since.get(job.shape)
        if not grace:
            return 0
        return None if since is None else max(since, job.queued_at, *self.evictions.get(job.ref.uid, (0,))) + grace

    def may_claim_at(self, job: Job) -> int:
        """Log time (ms) from which a waiting job may claim what it is owed: after its own delay, and its grace."""
        return max(self.claims_from(job), self.grace_over_at(job) or 0)

    def is_gated(self, uid: str) -> bool:
        gate = self.gates.get(uid)
        if gate is None:
            return False
        return not self.opens(gate)

    def opens(self, gate: RetryGate) -> bool:
        """Whether something is proposed again."""
        due = 0 < gate.until <= self.now
        return self.now >= gate.rest and (due or self.has_changed(gate))

    def has_changed(self, gate: RetryGate) -> bool:
        """Whether what may go, or what the nodes hold, has changed since a gate was shut."""
        return gate.supply != self.supply or 0 <= gate.nodes != self.places.ledger.changes

    def shut(self, rest: int) -> RetryGate:
        """A gate for a plan that finds no room on the nodes as they are, until this log time (ms) at least."""
        return RetryGate(self.supply, nodes=self.places.ledger.changes, rest=rest)

    def in_turn(self, job: Job) -> bool:
        """Whether its queue admits it when there is room: admissions are not paused, and no job blocks it there."""
        if "admissions" in self.queues.resting(job.queue):
            return False
        if not self.queues.is_blocking(job.queue) or job.growth is not None:
            return True
        book = self.queues.book
        tried = any(book.shapes[key].open for key in book.queues.get(job.queue, ()))
        first = not tried and book.position(job.queue, job.place) == 1
        return first and not self.queues.before_on_nodes(job.queue, job.place)

    def candidates(self, queue: str, may: Callable[[str], bool] | None = None) -> Candidates:
        """What runs, and which of it may go for a claimant of a queue; ``may``: by another measure than that of now."""
        may = may or partial(self.may_evict, queue=queue)
        return Candidates(self.runs, may, self.deprioritised, self.now, self.alike, self.ending)

    def ending(self, among: Callable[[str], bool]) -> Iterator[str]:
        """The jobs that are left to end if they are chosen, as far as that is to be expected without a look at each."""
        for uid in self.ends.about(self.now):
            if self.started[uid].listed and among(uid) and self.ends_by(self.queues.workloads[uid].ref):
                yield uid

    def ends_by(self, ref: Ref) -> int:
        """See :meth:`Ends.ends_by`."""
        return self.ends.ends_by(ref, self.queues.ledger.charges[ref.uid], self.started[ref.uid].since, self.now)

    def spares(self) -> dict[str, list[Spare]]:
        """{uid: what it may give} of the Ray clusters that are granted more than their minimum."""
        found = {}
        for uid, groups in self.granted.items():
            charge = self.queues.ledger.charges.get(uid)
            tree = self.queues.ledger.tree_of(charge.queue) if charge is not None else None
            workload = self.queues.workloads.get(uid)
            elastic = self.scaling.of(workload) if workload is not None else None
            idle = self.idle.get(self.scaling.runs_through(workload)) if workload is not None else None
            spares = spare_of(elastic, groups, tree.profile if tree is not None else "ack", idle)
            if charge is not None and spares and self.kept.get(uid, 0) <= self.now:
                found[uid] = spares
        return found

    def deprioritised(self, uid: str) -> bool:
        """Whether a workload has been evicted as often, lately or in all, as it should be at the most.

        Those for less service count only in the last hour; of work that was saved in this run only all of them count.
        """
        started = self.started.get(uid)
        saved = started is not None and started.kept > started.since
        lately = 0 if saved else sum(at > self.now - HOUR_MS for at in self.evictions.get(uid, ()))
        return lately >= EVICTIONS_AN_HOUR or self.suffered(uid) >= EVICTIONS_IN_ALL

    def suffered(self, uid: str) -> int:
        """How often a workload was evicted for quota that others were owed, or for priority."""
        return len(self.evictions.get(uid, ())) - self.service.times.get(uid, 0)

    def may_be_next(self, job: Job) -> bool:
        """Whether it is in turn, and nothing is held for age for a job before it in its queue."""
        for uid in self.age_claims.claims:
            before = self.queues.jobs.get(uid)
            if before is not None and before.queue == job.queue and before.priority >= job.priority and before != job:
                return False
        return self.in_turn(job)

    def claimant(self, shape: Shape) -> Job | None:
        """The job of a shape for which too little is on its way: the first for which nothing leaves, or the last of
        those that quota is held for where that lacks some, for a victim could not be suspended.
        """
        claims, jobs, comes, last = self.queues.ledger.claims, self.queues.jobs, None, None
        for place in shape.waiting:
            uid = place.uid
            if uid not in claims.by_uid or (uid in claims.aged and uid in claims.calm):
                return last or jobs[uid]
            if uid not in claims.aged:
                comes = self._comes(claims.by_uid[uid]) if comes is None else comes  # For one as for all alike.
                last = last if comes else jobs[uid]
        return last

    def _comes(self, claim: Claim) -> bool:
        """Whether a claim has its quota once all victims have left."""
        return basis(self.queues.ledger, claim.uid).refusal(claim.queue, claim.demand) is None

    def below_guarantee(self, queue: str) -> bool:
        """Whether a leaf or a node above it, except the root, uses less than its guarantee of anything."""
        return any(path in self.queues.ledger.below for path in chain_of(queue)[:-1])

    def claimants(self, shapes: Iterable[Shape]) -> Iterator[tuple[Shape, Job]]:
        """Each of these with the job for which something may be proposed. They may fit by now: see ``is_refused``."""
        for shape in shapes:
            job = self.claimant(shape)
            if job is not None and not self.is_gated(job.ref.uid):
                yield shape, job

    def is_refused(self, shape: Shape) -> bool:
        """Whether a shape that was refused is refused now: by the limit that refused it, or by any other."""
        ledger = self.queues.ledger
        return not clear(shape, ledger) or ledger.shortfall(shape.queue, shape.demand, now=self.now) is not None

    def parked(self, queue: str, most: Callable[[str], int] = lambda _: UNBOUNDED) -> Iterator[Shape]:
        """The shapes of a queue that were refused and could be admitted some day; ``most``: no more of a resource may
        they ask for.
        """
        book = self.queues.book
        for path in chain_of(queue):
            for slot in book.parked.get(path, _NO_SLOTS).values():
                for key in slot.within(queue, most(slot.resource)) if not slot.of_min and queue in slot.asks else ():
                    shape = book.shapes[key]
                    if self.is_parked(shape):
                        yield shape

    def is_parked(self, shape: Shape) -> bool:
        """Whether a shape was refused and could be admitted some day: the limit may have grown since it was refused."""
        short = shape.denial.short if shape.denial is not None else None
        return short is not None and not short.of_min and not self.queues.ledger.is_final(short)
