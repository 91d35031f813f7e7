"""Claims: one claim, and all claims in force with the quota held by them.

A claim holds quota for one waiting job until the admission of the job. The claim also names the nodes, and the victims
still to leave.

A *guarantee* claim and a *priority* claim have victims. Such a claim holds quota at every node on the path of its
queue, less the amounts that its victims still use there: these are free for no job. An *age* claim has no victims, and
holds quota from its queue up to the uppermost node that refuses the claimant. At a node above others, the claim does
not hold the amounts that these still lack: a release at a lower node is a release above, too.

Any number of claims is in force at a time. Held quota is not free for any other job, with two exceptions. Quota of an
age claim is free for jobs of other queues with owed quota, and for jobs that declare to leave before the promised start
of the claimant.

A new claim is planned against used - leaving + promised: the claimant must fit with all victims gone and all earlier
claims served. So no two claims wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from msgspec import Struct, field
from msgspec.structs import replace

from muster.core.quota.demand import Charge, QueuedRequest, Scratch, add_at, chain_of, counted, left_by
from muster.events.elastic import GrowthOption
from muster.events.reasons import ClaimKind
from muster.model.demand import Demand
from muster.model.elastic import Counts
from muster.model.keys import Ref
from muster.model.resources import Vector, add_into

MAX_NAMED = 5
"""Claimants named beside an amount that is held for them."""

# --- claim ------------------------------------------------------------------------------------------------------------

RESTS = 200
"""A node rests from claims for age so many times as long as the amounts of the last claimant were idle."""

LEAVES_WITHIN_MS = 3_600_000
"""How long a suspended victim may take to leave before other victims are suspended instead."""


class Leaver(Struct, frozen=True):
    """A victim that is still to leave: whole, to start again elsewhere, or some workers of a Ray cluster."""

    attempt: int
    moves: bool = False
    """The job starts again elsewhere, and releases no quota."""
    gives: Demand | None = None
    """The amounts of the workers, where the cluster runs on."""
    left: Counts = {}
    """The replicas granted to its groups afterwards."""


class Claim(Struct):
    """Quota held for a waiting workload, and the victims still to leave."""

    ref: Ref
    attempt: int
    queue: str
    demand: Demand
    kind: ClaimKind
    opened: int
    """Log time (ms)."""
    top: str = ""
    """The uppermost node of the claim; empty for the whole path."""
    victims: dict[str, Leaver] = field(default_factory=dict)
    """uid -> how the victim is still to leave"""
    progress: int = 0
    """Log time (ms) of the last progress: the opening, a victim that left, a release."""
    promised: int = 0
    """Log time (ms) by which enough has left if declared run times are true; 0: not promised."""
    counted_on: dict[str, int] = field(default_factory=dict)
    """uid of a job running at the claim's nodes with a declared end in time -> log time (ms) by which the job has left
    """
    first_end: int = 0
    """The earliest time in ``counted_on``; 0 where empty."""
    lacking: dict[str, Vector] = field(default_factory=dict)
    """Node -> the amounts to be released first, not held there before: by victims at the node or, for age, at lower
    nodes
    """
    growth: GrowthOption | None = None
    """The replicas of the claim, where the claimant runs and asks for more."""
    for_nodes: bool = False
    """The claimant waits for places on nodes, and not in a queue."""
    idle: Vector = field(default_factory=dict)
    """For age: amounts that were idle for the claim while other jobs asked for them, times ms."""
    idle_until: int = 0
    """Log time (ms) up to which ``idle`` is counted."""
    idles_ms: int = 0
    """For age: how long the amounts of the claimant may be idle."""

    @property
    def uid(self) -> str:
        return self.ref.uid

    @property
    def firm(self) -> bool:
        """Whether the claim holds quota against every other job; an age claim does not against jobs with owed quota."""
        return self.kind != "age"

    def idled_ms(self) -> int:
        """For how long the amounts of the claimant were idle, in the resource with the most."""
        asked = counted(self.demand)
        return max((idle // asked[name] for name, idle in self.idle.items() if asked.get(name)), default=0)

    @property
    def awaits(self) -> bool:
        """Whether a victim is still to leave its nodes, in whole or in part."""
        return bool(self.victims)

    def serves(self, queue: str, demand: Demand) -> bool:
        """Whether a job of this queue and demand asks for the same and may use the claim's quota. A claim for growth,
        or for places on nodes, serves no other job.
        """
        return self.growth is None and not self.for_nodes and self.queue == queue and self.demand.alike(demand)

    def is_for(self, uid: str, groups: Counts) -> bool:
        """Whether the claim is for these replicas of a cluster."""
        asked = self.growth
        return (
            asked is not None
            and self.uid == uid
            and all(count <= asked.groups.get(name, 0) * asked.times for name, count in groups.items())
        )

    def promised_now(self, now: int) -> int:
        """Log time (ms) of the promised start, if declared run times are true; 0 without a promise, or once a job in
        ``counted_on`` is late.
        """
        return self.promised if now < self.first_end or not self.first_end else 0

    def lets_in(self, until: int, now: int) -> bool:
        """Whether a job that has left by ``until``, before the promised start, may pass the claim at ``now``."""
        return 0 < until <= self.promised_now(now)

    def holds_up(self, queue: str, demand: Demand, level: str) -> bool:
        """Whether an age claim is before a job that the guarantee of node ``level`` covers: the guarantee is for the
        claimant's queue as well.
        """
        return not self.firm and level in chain_of(self.queue) and not self.serves(queue, demand)

    def is_outgrown(self, refusing: Iterable[str]) -> bool:
        """Whether only nodes above an age claim's nodes still refuse the claimant."""
        return not self.firm and all(len(path) < len(self.top) for path in refusing)

    def paths(self) -> Iterator[str]:
        """The nodes of the claim, leaf first."""
        return (path for path in chain_of(self.queue) if len(path) >= len(self.top))

    def held_at(self, path: str) -> Vector:
        """The amounts held at one of the claim's nodes."""
        amounts = counted(self.demand)
        if lacking := self.lacking.get(path):
            add_into(amounts, lacking, -1)
        return amounts

    def counts_on(self, uid: str, charge: Charge) -> None:
        """Count on a running job with a declared end in time, at one of the claim's nodes."""
        if 0 < charge.until <= self.promised and self.top in chain_of(charge.queue):
            self.counted_on[uid] = charge.until
            self.first_end = min(self.counted_on.values())

    def has_left(self, uid: str, at: int) -> None:
        """A counted job has left; a late end voids the promise."""
        until = self.counted_on.pop(uid, None)
        if until is None:
            return
        if at > until:
            self.promised, self.counted_on = 0, {}
        self.first_end = min(self.counted_on.values(), default=0)


def times(demand: Demand, count: int, of: int = 1) -> Demand:
    """``count`` of ``of`` equal parts of a demand."""
    request = {name: amount // of * count for name, amount in demand.request.items()}
    return replace(demand, request=request, pods=demand.pods // of * count)


def is_down(groups: Counts, left: Counts) -> bool:
    """Whether every group is granted at most its number in ``left``."""
    return all(groups.get(name, 0) <= count for name, count in left.items())


# --- claims -----------------------------------------------------------------------------------------------------------


class Claims(Struct):
    """All claims in force, and the sums of the held quota."""

    by_uid: dict[str, Claim] = field(default_factory=dict)
    """Claimant uid -> claim, in the order of opening."""
    of: dict[str, dict[str, None]] = field(default_factory=dict)
    """leaf -> claimant uids of the leaf's claims, in the order of opening"""
    aged: dict[str, None] = field(default_factory=dict)
    """Claimant uids of age claims: few, where a burst has a claim for each job."""
    firm: Scratch = field(default_factory=Scratch)
    """The quota held against every other job."""
    promised: Scratch = field(default_factory=Scratch)
    """The quota of firm claims once their victims have left."""
    total: Scratch = field(default_factory=Scratch)
    """The quota of all claims."""
    going: dict[str, Leaver] = field(default_factory=dict)
    """uid -> how the victim leaves, and has not left yet; also after the end of its claim, but for workers"""
    rests: dict[str, int] = field(default_factory=dict)
    """node -> log time (ms) until which no quota is held for age there, after its last age claim"""

    def copied(self) -> Claims:
        """The same claims, for a forecast of ends."""
        sums = self.firm.copied(), self.promised.copied(), self.total.copied()
        of = {leaf: dict(uids) for leaf, uids in self.of.items()}
        return Claims(dict(self.by_uid), of, dict(self.aged), *sums, dict(self.going), dict(self.rests))

    def open(self, claim: Claim) -> None:
        """Hold the claim from here on. An earlier claim of the same claimant is replaced; the new claim takes over its
        victims.
        """
        before = self.end(claim.uid)
        if before is not None:
            if not claim.firm:  # The claim moves up, and has not ended.
                self.rests.pop(before.top, None)
            claim.idle = dict(before.idle)
            claim.victims = before.victims | claim.victims
        self.by_uid[claim.uid] = claim
        self.of.setdefault(claim.queue, {})[claim.uid] = None
        if not claim.firm:
            self.aged[claim.uid] = None
        self._hold(claim, 1)
        self.going |= claim.victims

    def end(self, uid: str) -> Claim | None:
        """Hold nothing for this claimant any more; the victims leave all the same."""
        claim = self.by_uid.pop(uid, None)
        if claim is not None:
            del self.of[claim.queue][uid]
            if not self.of[claim.queue]:
                del self.of[claim.queue]
            self.aged.pop(uid, None)
            self._hold(claim, -1)
            if claim.idle and not claim.firm:
                self.rests[claim.top] = claim.idle_until + RESTS * claim.idled_ms()
            for victim, leaver in claim.victims.items():
                if leaver.gives is not None:
                    self.going.pop(victim, None)
        return claim

    def lack(self, claim: Claim, lacking: dict[str, Vector]) -> None:
        """Set the amounts to be released before the claim is held as a whole."""
        if lacking != claim.lacking:
            self._hold(claim, -1)
            claim.lacking = lacking
            self._hold(claim, 1)

    def left(self, uid: str, demand: Demand, at: int) -> list[Claim]:
        """A charge was released: claims that await the workload have one victim less, and claims on the same resources
        make progress. Returns the claims that awaited the workload.
        """
        claims = []
        for claim in self.by_uid.values():
            claim.has_left(uid, at)
            gave = claim.victims.pop(uid, None) is not None
            if gave:
                claims.append(claim)
            if gave or not demand.request.keys().isdisjoint(claim.demand.request):
                claim.progress = max(claim.progress, at)
        self.going.pop(uid, None)
        return claims

    def leaves_for(self, uid: str) -> list[Claim]:
        """The claims that await a victim, in whole or in part."""
        return [claim for claim in self.by_uid.values() if uid in claim.victims]

    def ask_of(self, uid: str) -> QueuedRequest | None:
        """The claim of a claimant, as a queued request; the claimant may be in no queue."""
        claim = self.by_uid.get(uid)
        return QueuedRequest(claim.attempt, claim.queue, claim.demand.request) if claim is not None else None

    def stays(self, uid: str, attempt: int, at: int) -> list[Claim]:
        """A victim could not be suspended: no claim awaits the victim any more. Returns the claims that awaited the
        victim.
        """
        claims = self.leaves_for(uid)
        for claim in claims:
            if claim.victims[uid].attempt == attempt:
                del claim.victims[uid]
                claim.progress = max(claim.progress, at)
        gone = self.going.get(uid)
        if gone is not None and gone.attempt == attempt and not self.leaves_for(uid):
            del self.going[uid]
        return claims

    def shrunk(self, uid: str, groups: Counts, at: int) -> list[Claim]:
        """A Ray cluster has a smaller grant: no claim awaits the released part any more. Returns the claims that
        awaited the cluster.
        """
        claims = self.leaves_for(uid)
        for claim in claims:
            leaver = claim.victims[uid]
            if leaver.gives is not None and is_down(groups, leaver.left):
                del claim.victims[uid]
                claim.progress = max(claim.progress, at)
                self.going.pop(uid, None)
        return claims

    def grown(self, uid: str, added: Counts, at: int) -> Claim | None:
        """A cluster has a larger grant: its claim holds less. Returns the claim where nothing is left to hold."""
        claim = self.by_uid.get(uid)
        if claim is None or claim.growth is None:
            return None
        asked = claim.growth
        left = asked.times - min(added.get(name, 0) // count for name, count in asked.groups.items() if count)
        if left <= 0:
            return claim
        if left < asked.times:
            self._hold(claim, -1)
            claim.demand = times(claim.demand, left, asked.times)
            claim.growth, claim.progress = GrowthOption(asked.groups, left), max(claim.progress, at)
            claim.lacking = {}
            self._hold(claim, 1)
        return None

    def served_by(self, uid: str, queue: str, demand: Demand) -> Claim | None:
        """The claim whose quota a charge uses, and ends: the claimant's own, or else the oldest claim with the same
        request. A firm claim comes before an age claim, even before the claimant's own age claim, which ends beside the
        firm claim.
        """
        own = self.by_uid.get(uid)
        if not self.by_uid or (own is not None and own.firm):
            return own
        alike = [claim for claim in self.for_jobs_of(queue) if claim.serves(queue, demand)]
        return next((claim for claim in alike if claim.firm), own or next(iter(alike), None))

    def pass_on(self, served: Claim) -> Claim | None:
        """Pass the victims still leaving for an ended claim to another claim, the heir; returns the heir. The heir is
        the oldest firm claim with the same request, or else the next claim planned after the ended claim. The charge
        has used quota meant for the heir.
        """
        if not served.awaits:
            return None
        alike = (claim for claim in self.by_uid.values() if claim is not served and claim.firm)
        heirs = (claim for claim in alike if claim.serves(served.queue, served.demand))
        heir = next(heirs, None) or next(self._planned_beside(served), None)
        if heir is None:
            return None
        for uid in [uid for uid, leaver in served.victims.items() if not leaver.moves and uid not in heir.victims]:
            heir.victims[uid] = served.victims.pop(uid)
        return heir

    def passed(self, queue: str, demand: Demand, now: int) -> list[Claim]:
        """The age claims of other jobs that a job passes by its run time, taking its quota at ``now``."""
        until = left_by(now, demand.run_ms)
        if not until:
            return []
        aged = (claim for claim in self.for_age() if claim.lets_in(until, now))
        return [claim for claim in aged if not claim.serves(queue, demand)]

    def serving(self, queue: str, demand: Demand, mine: Claim | None = None) -> list[Claim]:
        """The claims for this demand. ``mine``: the job's own claim, also where it serves no other job."""
        return [claim for claim in self.by_uid.values() if claim is mine or claim.serves(queue, demand)]

    def held_from(
        self, queue: str, demand: Demand, own: Sequence[Claim], *, owed: bool, level: str, now: int | None
    ) -> Scratch:
        """The quota that is not free for a job with the claims ``own``. ``owed``: the job has owed quota and passes age
        claims. Exception: age claims of queues below ``level``, the node whose guarantee covers the job; empty for
        none. ``now``: log time (ms) of the admission, where the job may pass age claims by its declared run time;
        None: no passing.
        """
        if not self.by_uid:
            return self.total
        alike = [claim for claim in own if claim.firm]
        aged = self.for_age() if level and not alike else ()
        passed = self.passed(queue, demand, now) if now is not None else []
        before = [claim for claim in aged if claim.holds_up(queue, demand, level) and claim not in passed]
        if not own and not before and (owed or not passed):
            return self.firm if owed else self.total
        held = (self.firm if owed else self.total).copied()
        for claim in (*alike, *self._planned_beside(alike[0])) if alike else ():
            _spread(held, claim, -1)
        for claim in (*own, *passed):
            if not claim.firm and not owed:
                _spread(held, claim, -1)
        for claim in before:
            _spread(held, claim, 1)
        return held

    def _planned_beside(self, served: Claim) -> Iterator[Claim]:
        """Firm claims of other claimants, opened later. Their plans count this claim as served, so this claim need not
        wait for their victims.
        """
        firm = [claim for claim in self.by_uid.values() if claim.firm]
        later = firm[firm.index(served) + 1 :]
        return (claim for claim in later if not claim.serves(served.queue, served.demand))

    def promised_beside(self, uid: str) -> Scratch:
        """The quota held against every other job once all victims have left, less the quota of this claimant's
        claim.
        """
        own = self.by_uid.get(uid)
        if own is None or not own.firm:
            return self.promised
        held = self.promised.copied()
        held.add(own.queue, own.demand, -1)
        return held

    def for_jobs_of(self, queue: str) -> Iterator[Claim]:
        """The claims for jobs of a queue, in the order of opening."""
        return (self.by_uid[uid] for uid in self.of.get(queue, ()))

    def for_age(self) -> Iterator[Claim]:
        """The age claims, in the order of opening."""
        return (self.by_uid[uid] for uid in self.aged)

    def holding_at(self, path: str, resource: str) -> Iterator[Claim]:
        """The claims that hold an amount at a node, in the order of opening."""
        claims = self.by_uid.values() if self.total.extra.get(path, {}).get(resource) else ()
        return (claim for claim in claims if path in claim.paths() and claim.held_at(path).get(resource))

    def claimants_at(self, path: str, resource: str) -> tuple[str, tuple[str, ...]]:
        """(namespace/name of the first claimant of ``holding_at``, of the next four): empty where nothing is held."""
        named = [*islice(dict.fromkeys(claim.ref.key for claim in self.holding_at(path, resource)), MAX_NAMED)]
        return next(iter(named), ""), tuple(named[1:])

    def aged_at(self, paths: Iterable[str]) -> Iterator[Claim]:
        """The age claims held at one of these nodes, in the order of opening."""
        mine = set(paths)
        return (claim for claim in self.for_age() if not mine.isdisjoint(claim.paths()))

    def _hold(self, claim: Claim, times: int) -> None:
        _spread(self.total, claim, times)
        if claim.firm:
            _spread(self.firm, claim, times)
            self.promised.add(claim.queue, claim.demand, times)


def _spread(scratch: Scratch, claim: Claim, times: int) -> None:
    amounts, preemptible = counted(claim.demand), claim.demand.preemptible
    for path in claim.paths():
        add_at(scratch.extra, path, claim.held_at(path) if path in claim.lacking else amounts, times)
        if not preemptible:
            add_at(scratch.firm, path, amounts, times)
