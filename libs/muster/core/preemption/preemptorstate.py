"""The state of the preemptor: the queues as the sorter sees them, the running work, and the claimants without a plan.

Victims that end by themselves: an eviction gains nothing where the job ends before a suspension would free its quota.
The time of a suspension is learned from the log: from the decision to the write, and from the write to the release. The
time until a job's end is declared by the job, or learned from similar jobs. A job expected to end first is chosen
before others, because no work is lost. Such a job is not suspended, and its quota is planned for the claimant. The
claimant waits no longer than a suspension would have taken. Then the preemptor plans again; a job left to end once is
not left to end again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from msgspec import Struct, field

from muster.core.gang.admitterstate import AdmitterState
from muster.core.gang.jobplaces import occupants_of
from muster.core.learned import ANY, Durations, RunTimes, kinds_of
from muster.core.observed.seen import FirstSight
from muster.core.preemption.passing import Passing
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
from muster.model.workload import Workload

# --- ends -------------------------------------------------------------------------------------------------------------


class Ends(Struct):
    """Durations of jobs, and durations of their suspensions."""

    runs: Durations = field(default_factory=Durations)
    """From the resume of a job until the release of its quota, for jobs that ended by themselves."""
    stops: Durations = field(default_factory=Durations)
    """From when a suspension was written until the quota was released."""
    resumes: RunTimes = field(default_factory=RunTimes)
    """From a decision to resume a job until the write."""
    suspends: RunTimes = field(default_factory=RunTimes)
    """From a decision to suspend a job until the write: suspensions need more calls of the API server."""
    decided: dict[str, int] = field(default_factory=dict)
    """uid of a job to be resumed or suspended -> log time (ms) of the decision"""
    suspended: dict[str, int] = field(default_factory=dict)
    """uid of a suspended job that still holds its quota -> log time (ms) of the write"""
    due: list[tuple[int, str]] = field(default_factory=list)
    """sorted (log time (ms) of the expected end, uid) of running jobs with a known end"""
    due_at: dict[str, int] = field(default_factory=dict)
    left: dict[str, None] = field(default_factory=dict)
    """uids of jobs left to end by themselves in this run: not to be left again"""

    def began(self, ref: Ref, charge: Charge, since: int) -> None:
        """A job runs since a log time (ms)."""
        mean = self.runs.mean(kinds_of(ref.namespace, ref.name, charge.queue, charge.request))
        if mean or charge.until:
            at = self.due_at[ref.uid] = charge.until or since + mean
            insort(self.due, (at, ref.uid))

    def stopped(self, uid: str) -> None:
        """The job no longer runs."""
        self.left.pop(uid, None)
        at = self.due_at.pop(uid, None)
        if at is not None:
            del self.due[bisect_left(self.due, (at, uid))]

    def about(self, now: int) -> list[str]:
        """Jobs with even odds of an end before a suspension takes effect, earliest expected end first.

        The expected ends are at most one suspension time ahead or ago: a job overdue for longer is not like the others.
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
        """``since``: log time (ms) of the resume; None without a resume."""
        self.decided.pop(event.ref.uid, None)
        suspended = self.suspended.pop(event.ref.uid, None)
        kinds = kinds_of(event.ref.namespace, event.ref.name, event.queue, event.request)
        if after_release(event.reason) == "evicted" and suspended is not None:
            self.stops.ended(kinds, now - suspended)
        elif event.reason == "finished" and since is not None:
            self.runs.ended(kinds, now - since)

    def ends_by(self, ref: Ref, charge: Charge, since: int, now: int) -> int:
        """Log time (ms) by which a job resumed at ``since`` is expected to end, if a suspension would free quota no
        earlier; otherwise 0.
        """
        kinds = kinds_of(ref.namespace, ref.name, charge.queue, charge.request)
        takes = self._takes(kinds) if ref.uid not in self.left else 0
        declared = 0 < charge.until <= now + takes
        return now + takes if takes and (declared or self.runs.ends_within(kinds, now - since, takes)) else 0

    def _takes(self, kinds: tuple[str, ...]) -> int:
        """The time (ms) from an order until a suspension of such jobs frees their quota; 0 where unknown."""
        known = [most for times in (self.resumes, self.suspends) if (most := times.most()) is not None]
        if not known:
            return 0
        write = max(known)
        stop = self.stops.left(kinds, 0)  # Where unknown: the controller has to write as well.
        return write + (write if stop is None else stop)


class PastEvictions(Struct, frozen=True):
    """How often a workload was evicted for other jobs."""

    times: int = 0
    last: int = 0
    """Log time (ms) of the newest eviction."""


NO_EVICTIONS = PastEvictions()


# --- state ------------------------------------------------------------------------------------------------------------


MIN_PAUSE_MS = 1_000
"""The pause between two looks at a job that outranks running jobs."""

HOUR_MS = 3_600_000

_NO_SLOTS: Mapping[str, RefusalSlot] = {}

NEVER = -1
"""A supply unequal to all real values: a gate with ``NEVER`` opens at the end of its rest."""


class RetryGate(Struct, frozen=True):
    """The state of a refused plan, and the changes that open the gate again."""

    supply: int
    """The gate opens when the supply has changed since, ..."""
    until: int = 0
    """... or at this log time (ms), ..."""
    nodes: int = -1
    """... or when the nodes have changed; -1: nodes do not matter."""
    rest: int = 0
    """The gate stays shut until this log time (ms), whatever else has changed."""


class Started(Struct):
    """The run of a charged workload."""

    leaf: str
    run: Run
    since: int
    """Log time (ms) of the resume."""
    kept: int = 0
    """Log time (ms) of the last checkpoint of this run; ``since`` before the first."""
    listed: bool = False
    gives: Vector = field(default_factory=dict)
    """The amounts released by an eviction, while the run is listed."""


class Holding(Struct):
    """What a charged workload has. A Ray cluster may release workers."""

    attempt: int
    """The attempt of the charge; the workload may wait under a newer attempt."""
    groups: Counts | None = None
    """Replicas granted to the groups of a cluster with autoscaling."""
    fixed: Counts = {}
    """Pods by worker group, for a cluster charged with a fixed size."""
    left: Counts | None = None
    """The workers left to its groups by an order to release the others."""
    kept_until: int = 0
    """Log time (ms) until which no workers are asked for: the cluster could not release any."""


class UnplacedClaimant(Struct):
    """A job that has released its quota after a search for nodes without a result."""

    job: Job
    """The job as queued at the time."""
    since: int
    """Log time (ms) of the first search without a place."""
    cause: Cause
    gate: RetryGate = RetryGate(NEVER)
    """When the rules already tried are tried again."""
    awaits: tuple[str, ...] = ()
    """uids of ordered victims that have not left"""
    asked: bool = False
    """A proposal of victims for the job is open."""
    ordered: bool = False
    """Victims were ordered to leave for the job since its last search for nodes."""
    tried: dict[str, None] = field(default_factory=dict)
    """Rules that made a proposal, or found no victim, since the last search for nodes."""
    again_at: int = 0
    """Log time (ms) before which a change under a plan is no reason to plan again at once."""
    may_at: int = 0
    """Log time (ms) from which victims may leave for the job: after its preemption delay and its reclaim grace."""


class RefusedGrowth(Struct):
    """The growth refused to a Ray cluster."""

    asked: GrowthRequested
    since: int
    """Log time (ms) since which the cluster has asked for more without a break."""
    cause: Cause | None = None
    """The refusal; None while there is none."""
    refusals: tuple[tuple[Counts, Shortfall], ...] = ()
    """(growth asked for in one piece, shortfall), in the order of granting"""
    passed: tuple[Counts, ...] = ()
    """The pieces for which no quota could be taken back."""


class PreemptorState(StageState):
    """The queues, and the quota that may be taken back."""

    queues: Queues = field(default_factory=Queues)
    places: AdmitterState = field(default_factory=AdmitterState)
    """The nodes as the gang admitter sees them."""
    runs: dict[str, list[Run]] = field(default_factory=dict)
    """leaf -> running work that may be suspended, in the order of eviction"""
    alike: Alike = field(default_factory=Alike)
    """The same runs, with similar runs of a leaf together."""
    sums: dict[str, dict[int, Vector]] = field(default_factory=dict)
    """leaf -> priority -> the amounts released by all runs of the priority"""
    started: dict[str, Started] = field(default_factory=dict)
    """uid of a charged workload after its resume -> place among the runs"""
    lone: dict[str, Workload] = field(default_factory=dict)
    """uid of a pod without an owner, with a node -> the pod as a job of one pod"""
    scaling: RunningClusters = field(default_factory=RunningClusters)
    idle: dict[str, Counts] = field(default_factory=dict)
    """uid of a RayCluster -> {worker group: idle pods}, as last reported by the head"""
    charged: dict[str, Holding] = field(default_factory=dict)
    """By uid of the workload."""
    leaving: dict[str, None] = field(default_factory=dict)
    """uids of workloads ordered to leave"""
    evictions: dict[str, PastEvictions] = field(default_factory=dict)
    """By uid of the workload, for workloads that were evicted."""
    stays: dict[str, int] = field(default_factory=dict)
    """uid of a workload that could not be suspended -> log time (ms) of the next attempt"""
    failed: dict[str, int] = field(default_factory=dict)
    """uid of a workload that could not be suspended -> failures in this run"""
    supply: int = 0
    """The number of changes in the used, reclaimable or held quota."""
    gates: dict[str, RetryGate] = field(default_factory=dict)
    open: dict[str, RetryGate] = field(default_factory=dict)
    """uids of claimants with an unanswered proposal"""
    sight: FirstSight = field(default_factory=FirstSight)
    shown_pauses: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """quota path -> pauses of the Queue object, as last seen"""
    unplaced: dict[str, UnplacedClaimant] = field(default_factory=dict)
    """uid of a job without a place on the nodes, where victims may make room"""
    unplaced_in: dict[str, dict[str, list[tuple[int, str]]]] = field(default_factory=dict)
    """root of a tree -> queue -> sorted (negated priority, uid) of unplaced jobs"""
    unplaced_from: DueTimes = field(default_factory=DueTimes)
    """From when victims may leave for unplaced jobs."""
    rests: DueTimes = field(default_factory=DueTimes)
    """Until when no plan is made for unplaced jobs."""
    outranked: dict[str, None] = field(default_factory=dict)
    """leaves with work of lower priority than a job that waits in the leaf or found no place"""
    moves: int = 0
    """How many jobs may be moved at once; 0: none."""
    moved: dict[str, int] = field(default_factory=dict)
    """uid of a moved job, or of a claimant of moves -> log time (ms), for an hour"""
    passing: Passing = field(default_factory=Passing)
    """The order of coming, and what has passed the jobs that wait."""
    service: Service = field(default_factory=Service)
    """The attained service of jobs, and their evictions for service."""
    near: dict[str, None] = field(default_factory=dict)
    """queues where a refused job may fit in the rest of the queue's guarantee, or of its share"""
    delayed: dict[str, None] = field(default_factory=dict)
    """uids of workloads with a preemption delay"""
    ends: Ends = field(default_factory=Ends)
    owed_since: dict[str, int] = field(default_factory=dict)
    """key of an owed shape that waits for its grace -> log time (ms) of the finding"""
    growing: dict[str, RefusedGrowth] = field(default_factory=dict)
    """uid of a charged workload -> growth refused to its Ray cluster"""
    served: dict[str, int] = field(default_factory=dict)
    """uid of a running workload -> the level below which a waiting job may take its place; absent without a level"""

    def running(self, uid: str) -> Workload | None:
        """A workload, or a pod of no job as a job of one pod."""
        return self.queues.workloads.get(uid) or self.lone.get(uid)

    def job_of(self, uid: str) -> Workload:
        """The same of one that runs."""
        running = self.running(uid)
        assert running is not None, uid
        return running

    def reclaims(self, queue: str) -> bool:
        """Whether evictions are on for a queue."""
        return self.sight.reclaims(self.queues.ledger.tree_of(queue))

    def may_evict(self, uid: str, queue: str) -> bool:
        """Whether a workload may be suspended now for a claimant of a queue."""
        return self.may_evict_unpaused(uid, queue) and "evictions" not in self.queues.resting(self.started[uid].leaf)

    def may_evict_unpaused(self, uid: str, queue: str) -> bool:
        """Whether a workload could be suspended now without a pause of evictions."""
        return self.now >= self.evictable_at(self.started[uid], queue) and not self.is_lost(uid)

    def has_lost_nodes(self) -> bool:
        """Whether a known node is not ready."""
        return any(not kind.ready for kind in self.places.ledger.classes.values())

    def is_lost(self, uid: str) -> bool:
        """Whether a workload has pods on a node that is not ready: an eviction there frees nothing until the node is
        back.
        """
        ledger = self.places.ledger
        if not self.has_lost_nodes():
            return False
        nodes = (ledger.nodes[ledger.occupants[key].node] for key in occupants_of(self.places, uid))
        return any(node.uid and not node.ready for node in nodes)

    def may_give_workers(self, uid: str) -> bool:
        """Whether a Ray cluster may lose workers now: the minimum run time of the queue has passed, without a pause or
        a rest.
        """
        started = self.started[uid]
        least = self.queues.ledger.rules_of(started.leaf).least_run_ms(self.suffered(uid).times)
        resting = "evictions" in self.queues.resting(started.leaf)
        return not resting and self.now >= max(started.since + least, self.stays.get(uid, 0))

    def evictable_at(self, started: Started, queue: str) -> int:
        """Log time (ms) at which the minimum run time of a workload against claimants of a queue has passed."""
        least = self.queues.ledger.rules_of(started.leaf).least_run_ms(self.suffered(started.run.uid).times)
        least = max(least, protected_ms(self.queues.ledger, started.leaf, queue))
        return max(started.since + least, self.stays.get(started.run.uid, 0))

    def evictable_from(self, queue: str, *, own: bool = False) -> int:
        """Log time (ms) at which the next workload has run for its minimum for a claimant of a queue; 0 without such a
        workload.

        ``own``: only workloads of the claimant's queue, where these still have to wait.
        """
        least = any(tree.rules.min_run_ms or tree.by_shares for tree in self.queues.ledger.trees.values())
        if not (least or self.evictions or self.stays):
            return 0
        times = [self.evictable_at(self.started[run.uid], queue) for run in self.runs.get(queue, ()) if own]
        if not any(at > self.now for at in times):
            times = [self.evictable_at(self.started[run.uid], queue) for runs in self.runs.values() for run in runs]
        return min((at for at in times if at > self.now), default=0)

    def claims_from(self, job: Job) -> int:
        """Log time (ms) from which a waiting job may have victims: its preemption delay, counted from its queueing or
        last eviction.
        """
        delay = self.delay_ms(job.ref.uid)
        return max(job.queued_at, self.suffered(job.ref.uid).last) + delay if delay else 0

    def delay_ms(self, uid: str) -> int:
        """The preemption delay of a workload."""
        workload = self.queues.workloads.get(uid)
        return preemption_delay_ms(workload.labels) if workload is not None else 0

    def grace_ms(self, job: Job) -> int:
        """The time (ms) that a job waits for owed quota before any eviction."""
        workload = self.queues.workloads.get(job.ref.uid)
        own = reclaim_grace_ms(workload.labels) if workload is not None else 0
        return max(self.queues.ledger.rules_of(job.queue).reclaim_grace_ms, own)

    def grace_over_at(self, job: Job) -> int | None:
        """Log time (ms) of the end of the grace; None where no job of the shape was found owed and refused yet."""
        grace, since = self.grace_ms(job), self.owed_since.get(job.shape)
        if not grace:
            return 0
        return None if since is None else max(since, job.queued_at, self.suffered(job.ref.uid).last) + grace

    def may_claim_at(self, job: Job) -> int:
        """Log time (ms) from which a waiting job may claim owed quota: after its own delay and its grace."""
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
        """Whether the supply, or the nodes, have changed since the gate was shut."""
        return gate.supply != self.supply or 0 <= gate.nodes != self.places.ledger.changes

    def shut(self, rest: int) -> RetryGate:
        """A gate for a plan without room on the present nodes, shut until ``rest`` (log time, ms) at least."""
        return RetryGate(self.supply, nodes=self.places.ledger.changes, rest=rest)

    def in_turn(self, job: Job) -> bool:
        """Whether the queue would admit the job, given room: admissions are not paused, and no job blocks the job."""
        if "admissions" in self.queues.resting(job.queue):
            return False
        if not self.queues.is_blocking(job.queue) or job.growth is not None:
            return True
        book = self.queues.book
        tried = any(book.shapes[key].open for key in book.queues.get(job.queue, ()))
        first = not tried and book.position(job.queue, job.place) == 1
        return first and not self.queues.before_on_nodes(job.queue, job.place)

    def candidates(self, queue: str, may: Callable[[str], bool] | None = None) -> Candidates:
        """The running work, and which jobs may leave for a claimant of a queue. ``may``: decides which
        jobs may leave, in place of ``may_evict``.
        """
        may = may or partial(self.may_evict, queue=queue)
        return Candidates(self.runs, may, self.now, self.alike, self.ending)

    def ending(self, among: Callable[[str], bool]) -> Iterator[str]:
        """The chosen jobs that will probably be left to end; a look at every job is not needed."""
        for uid in self.ends.about(self.now):
            if self.started[uid].listed and among(uid) and self.ends_by(self.job_of(uid).ref):
                yield uid

    def ends_by(self, ref: Ref) -> int:
        """See :meth:`Ends.ends_by`."""
        return self.ends.ends_by(ref, self.queues.ledger.charges[ref.uid], self.started[ref.uid].since, self.now)

    def spares(self) -> dict[str, list[Spare]]:
        """{uid: workers to spare} of the Ray clusters granted more than their minimum."""
        by_uid = {}
        for uid, holding in self.charged.items():
            if holding.groups is None or holding.kept_until > self.now:
                continue
            charge = self.queues.ledger.charges.get(uid)
            tree = self.queues.ledger.tree_of(charge.queue) if charge is not None else None
            workload = self.queues.workloads.get(uid)
            elastic = self.scaling.of(workload) if workload is not None else None
            idle = self.idle.get(self.scaling.runs_through(workload)) if workload is not None else None
            spares = spare_of(elastic, holding.groups, tree, charge.flavors if charge is not None else {}, idle)
            if charge is not None and spares:
                by_uid[uid] = spares
        return by_uid

    def suffered(self, uid: str) -> PastEvictions:
        return self.evictions.get(uid, NO_EVICTIONS)

    def may_be_next(self, job: Job) -> bool:
        """Whether the job is in turn, and no quota is held for age for an earlier job of its queue."""
        for claim in self.queues.ledger.claims.for_age():
            before = self.queues.jobs.get(claim.uid)
            if before is not None and before.queue == job.queue and before.priority >= job.priority and before != job:
                return False
        return self.in_turn(job)

    def claimant(self, shape: Shape) -> Job | None:
        """The job of a shape for which too little quota is on its way.

        The first job without a claim, or with an age claim and without leaving victims. But if the quota of earlier
        claims falls short, because a victim could not be suspended: the last job with such a claim.
        """
        claims, jobs, comes, last = self.queues.ledger.claims, self.queues.jobs, None, None
        for place in shape.waiting:
            uid = place.uid
            if uid not in claims.by_uid or (uid in claims.aged and not claims.by_uid[uid].victims):
                return last or jobs[uid]
            if uid not in claims.aged:
                comes = self._comes(claims.by_uid[uid]) if comes is None else comes  # As for all similar jobs.
                last = last if comes else jobs[uid]
        return last

    def _comes(self, claim: Claim) -> bool:
        """Whether a claim has its quota after the departure of all victims."""
        return basis(self.queues.ledger, claim.uid).refusal(claim.queue, claim.demand) is None

    def below_guarantee(self, queue: str) -> bool:
        """Whether a leaf, or a node above except the root, uses less than its guarantee of any resource."""
        return any(path in self.queues.ledger.below for path in chain_of(queue)[:-1])

    def claimants(self, shapes: Iterable[Shape]) -> Iterator[tuple[Shape, Job]]:
        """Every shape with the job for a proposal. The shape may fit by now: see ``is_refused``."""
        for shape in shapes:
            job = self.claimant(shape)
            if job is not None and not self.is_gated(job.ref.uid):
                yield shape, job

    def is_refused(self, shape: Shape) -> bool:
        """Whether a refused shape is refused now, by the same limit or by another."""
        ledger = self.queues.ledger
        return not clear(shape, ledger) or ledger.shortfall(shape.queue, shape.demand, now=self.now) is not None

    def parked(self, queue: str, most: Callable[[str], int] = lambda _: UNBOUNDED) -> Iterator[Shape]:
        """The refused shapes of a queue that limits may admit some day. ``most``: by resource, the largest request to
        consider.
        """
        book = self.queues.book
        for path in chain_of(queue):
            for slot in book.parked.get(path, _NO_SLOTS).values():
                for key in slot.within(queue, most(slot.resource)) if not slot.of_min and queue in slot.asks else ():
                    shape = book.shapes[key]
                    if self.is_parked(shape):
                        yield shape

    def is_parked(self, shape: Shape) -> bool:
        """Whether limits may admit a refused shape some day: a limit may have grown since the denial."""
        short = shape.denial.short if shape.denial is not None else None
        return short is not None and not short.of_min and not self.queues.ledger.is_final(short)
