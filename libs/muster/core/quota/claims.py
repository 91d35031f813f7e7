"""Claims: one, and all that are in force with the quota that they hold.

A claim: what is held for one waiting job until it is admitted, where, and what it still waits for.

A *guarantee* claim and a *priority* claim have victims, which leave for it, and are held at every node on the path of
their queue, without what the victims still have there: that is free for none. An *age* claim has none, and is held from
its queue up to the uppermost node that refuses it: at a node above others without what these still lack, for whatever
is released there is released above as well.

All claims in force, and the sums of the quota they hold.

Any number is in force at a time. Held quota is not free for any other job, with two exceptions: that of an age claim is
free for jobs of other queues that are owed it, and for jobs that declare to have left before its claimant is promised
to start.

A further claim is planned against used - leaving + promised: with all victims gone and all claims before it served, it
must fit. So no two of them wait for each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from muster.core.quota.demand import Charge, QueuedRequest, Scratch, chain_of, counted, left_by
from muster.events.elastic import GrowthOption
from muster.events.reasons import ClaimKind
from muster.model.demand import Demand
from muster.model.elastic import Counts
from muster.model.keys import Ref
from muster.model.resources import Vector, add_into

# --- claim ------------------------------------------------------------------------------------------------------------


LEAVES_WITHIN_MS = 3_600_000
"""How long after it was suspended a victim may take to leave before others are suspended in its place."""


class Part(Struct, frozen=True):
    """Workers that a Ray cluster releases for a claimant."""

    attempt: int
    demand: Demand
    left: Counts
    """What its groups are granted afterwards."""


class Claim(Struct):
    """What is held for a waiting workload, and what it still waits for."""

    ref: Ref
    attempt: int
    queue: str
    demand: Demand
    kind: ClaimKind
    opened: int
    """Log time (ms)."""
    top: str = ""
    """The uppermost node at which it is held; empty for all of its path."""
    victims: dict[str, int] = field(default_factory=dict)
    """uid -> attempt of the victims that leave for it and have not left yet"""
    moving: dict[str, int] = field(default_factory=dict)
    """The same of those that start again elsewhere: they release nothing"""
    partial: dict[str, Part] = field(default_factory=dict)
    """uid -> the part that is taken of clusters that release one for it and have not done so yet"""
    progress: int = 0
    """Log time (ms) of its last progress: it was opened, a victim left, something was released."""
    promised: int = 0
    """Log time (ms) by which enough has left for it if the run times that jobs declare are true; 0: not promised."""
    counted_on: dict[str, int] = field(default_factory=dict)
    """uid of a job that runs where it is held and declares to leave by then -> log time (ms) by which it has left"""
    first_end: int = 0
    """The earliest of those; 0 where there is none."""
    lacking: dict[str, Vector] = field(default_factory=dict)
    """Node -> what is to be released first, and is not held there before: by its victims at the node or, for age, at
    the nodes below
    """
    growth: GrowthOption | None = None
    """The replicas that it is held for, where its claimant runs and asks for more."""
    for_nodes: bool = False
    """Its claimant waits for its places, and not in a queue."""
    idle: Vector = field(default_factory=dict)
    """For age: the amounts that were idle for it and that others asked for, times ms."""
    idle_until: int = 0
    """Log time (ms) up to which these are counted."""

    @property
    def uid(self) -> str:
        return self.ref.uid

    @property
    def firm(self) -> bool:
        """Whether it holds against every other job; one for age does not against jobs that are owed quota."""
        return self.kind != "age"

    @property
    def awaits(self) -> bool:
        """Whether a victim is still to leave its nodes, in whole or in part."""
        return bool(self.victims or self.partial or self.moving)

    def serves(self, queue: str, demand: Demand) -> bool:
        """Whether a job of this queue and demand may use the quota it holds, for it asks alike. What one cluster grows
        by helps no other, nor what is held for a job that waits for its places.
        """
        return self.growth is None and not self.for_nodes and self.queue == queue and self.demand.alike(demand)

    def is_for(self, uid: str, groups: Counts) -> bool:
        """Whether it is held for these replicas of a cluster."""
        asked = self.growth
        return (
            asked is not None
            and self.uid == uid
            and all(count <= asked.groups.get(name, 0) * asked.times for name, count in groups.items())
        )

    def promised_now(self, now: int) -> int:
        """Log time (ms) by which it starts if the run times that jobs declare are true; 0 where nothing says so, or
        a job that this counts on is late.
        """
        return self.promised if now < self.first_end or not self.first_end else 0

    def lets_in(self, until: int, now: int) -> bool:
        """Whether a job that has left by ``until``, before its promised time, may pass it at ``now``."""
        return 0 < until <= self.promised_now(now)

    def holds_up(self, queue: str, demand: Demand) -> bool:
        """Whether it is for age and before another job of its own queue, if that is owed something or not."""
        return not self.firm and self.queue == queue and not self.demand.alike(demand)

    def is_outgrown(self, refusing: Iterable[str]) -> bool:
        """Whether it is for age, and only nodes above those at which it is held refuse its claimant by now."""
        return not self.firm and all(len(path) < len(self.top) for path in refusing)

    def paths(self) -> Iterator[str]:
        """The nodes at which it is held, leaf first."""
        return (path for path in chain_of(self.queue) if len(path) >= len(self.top))

    def held_at(self, path: str) -> Vector:
        """The amounts that are held at one of these nodes."""
        amounts = counted(self.demand)
        if lacking := self.lacking.get(path):
            add_into(amounts, lacking, -1)
        return amounts

    def counts_on(self, uid: str, charge: Charge) -> None:
        """A job runs: where the claim is held, and the declared end is in time, that end is counted on."""
        if 0 < charge.until <= self.promised and self.top in chain_of(charge.queue):
            self.counted_on[uid] = charge.until
            self.first_end = min(self.counted_on.values())

    def has_left(self, uid: str, at: int) -> None:
        """A job has left: if that is late, the promise is void."""
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
    """Whether no group is granted more than it is to be left with."""
    return all(groups.get(name, 0) <= count for name, count in left.items())


# --- claims -----------------------------------------------------------------------------------------------------------


class Claims(Struct):
    """All claims in force, and the sums of the quota they hold."""

    by_uid: dict[str, Claim] = field(default_factory=dict)
    """Claimant uid -> its claim, in the order in which they were opened."""
    of: dict[str, dict[str, None]] = field(default_factory=dict)
    """leaf -> claimant uids of those for its jobs, in the same order"""
    calm: dict[str, None] = field(default_factory=dict)
    """Claimant uids of those for which no victim leaves any more."""
    aged: dict[str, None] = field(default_factory=dict)
    """Claimant uids of those for age: few, where a burst has a claim for each of its jobs."""
    tall: dict[str, None] = field(default_factory=dict)
    """Of those, the ones held at nodes above their queue: one at each such node at the most."""
    firm: Scratch = field(default_factory=Scratch)
    """The quota that claims hold against every other job."""
    promised: Scratch = field(default_factory=Scratch)
    """What those hold once their victims have left."""
    total: Scratch = field(default_factory=Scratch)
    """What all claims hold."""
    leaving: dict[str, int] = field(default_factory=dict)
    """uid -> attempt of victims that leave as a whole, whatever has become of their claim, and have not left yet"""
    cuts: dict[str, Part] = field(default_factory=dict)
    """uid -> the part it releases for a claim, and goes on"""
    moving: dict[str, int] = field(default_factory=dict)
    """uid -> attempt of a job that is suspended and starts again elsewhere: its charge is not released"""

    def going(self) -> dict[str, int]:
        """All jobs that were ordered to be suspended for another and have not left: {uid: attempt}."""
        return self.leaving | self.moving

    def open(self, claim: Claim) -> None:
        """From here on it is held; what the same claimant had before is replaced, and its victims stay its own."""
        before = self.end(claim.uid)
        if before is not None:
            claim.idle = dict(before.idle)
            claim.victims = before.victims | claim.victims
            claim.moving = before.moving | claim.moving
            claim.partial = before.partial | claim.partial
        self.by_uid[claim.uid] = claim
        self.of.setdefault(claim.queue, {})[claim.uid] = None
        self._calmed(claim)
        if not claim.firm:
            self.aged[claim.uid] = None
            if claim.top != claim.queue:
                self.tall[claim.uid] = None
        self._hold(claim, 1)
        self.leaving |= claim.victims
        self.moving |= claim.moving
        self.cuts |= claim.partial

    def end(self, uid: str) -> Claim | None:
        """Nothing is held for this claimant any more; its victims leave all the same."""
        claim = self.by_uid.pop(uid, None)
        if claim is not None:
            del self.of[claim.queue][uid]
            if not self.of[claim.queue]:
                del self.of[claim.queue]
            self.calm.pop(uid, None)
            self.aged.pop(uid, None)
            self.tall.pop(uid, None)
            self._hold(claim, -1)
            for victim in claim.partial:
                self.cuts.pop(victim, None)
        return claim

    def lack(self, claim: Claim, lacking: dict[str, Vector]) -> None:
        """What must be released before a claim is held as a whole has changed."""
        if lacking != claim.lacking:
            self._hold(claim, -1)
            claim.lacking = lacking
            self._hold(claim, 1)

    def _calmed(self, claim: Claim) -> None:
        """Note whether a victim still leaves for it."""
        if claim.awaits:
            self.calm.pop(claim.uid, None)
        else:
            self.calm[claim.uid] = None

    def left(self, uid: str, demand: Demand, at: int) -> list[Claim]:
        """A charge was released: its claimant has a victim less, and claims on the same resources are nearer. Returns
        the claims that it has left for.
        """
        found = []
        for claim in self.by_uid.values():
            claim.has_left(uid, at)
            gave = claim.victims.pop(uid, None) is not None
            gave = claim.partial.pop(uid, None) is not None or gave
            gave = claim.moving.pop(uid, None) is not None or gave
            if gave:
                self._calmed(claim)
                found.append(claim)
            if gave or not demand.request.keys().isdisjoint(claim.demand.request):
                claim.progress = max(claim.progress, at)
        self.leaving.pop(uid, None)
        self.moving.pop(uid, None)
        self.cuts.pop(uid, None)
        return found

    def leaves_for(self, uid: str) -> list[Claim]:
        """The claims that await a victim, in whole or in part."""
        claims = self.by_uid.values()
        return [each for each in claims if uid in each.victims or uid in each.partial or uid in each.moving]

    def ask_of(self, uid: str) -> QueuedRequest | None:
        """What is held for a claimant that may be in no queue."""
        claim = self.by_uid.get(uid)
        return QueuedRequest(claim.attempt, claim.queue, claim.demand.request) if claim is not None else None

    def stays(self, uid: str, attempt: int, at: int) -> list[Claim]:
        """A victim could not be suspended: no claim waits for it any more. Returns those that did."""
        found = self.leaves_for(uid)
        if self.moving.get(uid) == attempt:
            del self.moving[uid]
        stays = self.leaving.get(uid) == attempt
        for claim in found:
            part = claim.partial.get(uid)
            if claim.victims.get(uid) == attempt or claim.moving.get(uid) == attempt:
                stays = claim.victims.pop(uid, None) is not None or stays
                claim.moving.pop(uid, None)
                claim.progress = max(claim.progress, at)
            elif part is not None and part.attempt == attempt:
                del claim.partial[uid]
                self.cuts.pop(uid, None)
                claim.progress = max(claim.progress, at)
            self._calmed(claim)
        if stays:
            self._stays(uid)
        return found

    def shrunk(self, uid: str, groups: Counts, at: int) -> list[Claim]:
        """A Ray cluster is granted so many replicas from here on: a claim that waited for that waits no longer. Returns
        those that did.
        """
        found = self.leaves_for(uid)
        for claim in found:
            part = claim.partial.get(uid)
            if part is not None and is_down(groups, part.left):
                del claim.partial[uid]
                self.cuts.pop(uid, None)
                claim.progress = max(claim.progress, at)
                self._calmed(claim)
        return found

    def grown(self, uid: str, added: Counts, at: int) -> Claim | None:
        """A cluster is granted replicas: less is held for it. Returns its claim where nothing is left to hold."""
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
        """The claim whose room a charge uses, and that it ends: the claimant's own, else the oldest with the same
        request. A firm one of those comes before a claim for age, also before its own, which ends beside it.
        """
        own = self.by_uid.get(uid)
        if not self.by_uid or (own is not None and own.firm):
            return own
        alike = [claim for claim in self.for_jobs_of(queue) if claim.serves(queue, demand)]
        return next((claim for claim in alike if claim.firm), own or next(iter(alike), None))

    def pass_on(self, served: Claim) -> Claim | None:
        """Victims that still leave for a claim that a charge ends leave for another, which is returned: the oldest firm
        one that asks alike, else the next that was planned after it. The charge has used room that was made for that.
        """
        if not served.awaits:
            return None
        alike = (claim for claim in self.by_uid.values() if claim is not served and claim.firm)
        heirs = (claim for claim in alike if claim.serves(served.queue, served.demand))
        heir = next(heirs, None) or next(self._planned_beside(served), None)
        if heir is None:
            return None
        for uid in [uid for uid in served.victims if uid not in heir.victims]:
            heir.victims[uid] = served.victims.pop(uid)
        heir.partial |= served.partial
        served.partial = {}
        for each in (served, heir):
            self._calmed(each)
        return heir

    def passed(self, queue: str, demand: Demand, now: int) -> list[Claim]:
        """The claims for age of others that a job passes which takes its quota at ``now``, by its run time."""
        until = left_by(now, demand.run_ms)
        if not until:
            return []
        aged = (claim for claim in self.for_age() if claim.lets_in(until, now))
        return [claim for claim in aged if not claim.serves(queue, demand)]

    def serving(self, queue: str, demand: Demand, mine: Claim | None = None) -> list[Claim]:
        """The claims that are for this demand. ``mine``: its own, that serves no other."""
        return [each for each in self.by_uid.values() if each is mine or each.serves(queue, demand)]

    def held_from(
        self, queue: str, demand: Demand, own: Sequence[Claim], *, owed: bool, lent: bool, now: int | None
    ) -> Scratch:
        """The quota that is not free for a job, for which there are the claims ``own``. ``owed``: it passes age claims,
        by a firm one of these, else but for those of its own queue while nothing is ``lent`` to others. ``now``: log
        time (ms) at which it would be admitted, and may pass claims for age by its declared run time; None: it may not.
        """
        if not self.by_uid:
            return self.total
        alike = [claim for claim in own if claim.firm]
        aged = self.for_age() if owed and not alike and not lent else ()
        passed = self.passed(queue, demand, now) if now is not None else []
        before = [claim for claim in aged if claim.holds_up(queue, demand) and claim not in passed]
        if not own and not before and (owed or not passed):
            return self.firm if owed else self.total
        held = _copy(self.firm if owed else self.total)
        for claim in (*alike, *self._planned_beside(alike[0])) if alike else ():
            _spread(held, claim, -1)
        for claim in (*own, *passed):
            if not claim.firm and not owed:
                _spread(held, claim, -1)
        for claim in before:
            _spread(held, claim, 1)
        return held

    def _planned_beside(self, served: Claim) -> Iterator[Claim]:
        """Firm claims of others that were opened later: their plans count this one as served, so it need not wait until
        their victims have left.
        """
        firm = [claim for claim in self.by_uid.values() if claim.firm]
        later = firm[firm.index(served) + 1 :]
        return (claim for claim in later if not claim.serves(served.queue, served.demand))

    def promised_beside(self, uid: str) -> Scratch:
        """The quota held against every other job once all victims have left, less that held for this claimant."""
        own = self.by_uid.get(uid)
        if own is None or not own.firm:
            return self.promised
        held = _copy(self.promised)
        held.add(own.queue, own.demand, -1)
        return held

    def for_jobs_of(self, queue: str) -> Iterator[Claim]:
        """The claims for jobs of a queue, in the order in which they were opened."""
        return (self.by_uid[uid] for uid in self.of.get(queue, ()))

    def for_age(self) -> Iterator[Claim]:
        """The claims for age, in the order in which they were opened."""
        return (self.by_uid[uid] for uid in self.aged)

    def victims(self) -> Iterator[str]:
        """Uids of all victims that have not left yet."""
        return (uid for claim in self.by_uid.values() for uid in claim.victims)

    def at(self, path: str, resource: str) -> tuple[int, Claim | None]:
        """(how much is held at a node, the first claim for which it is)."""
        held = self.total.extra.get(path, {}).get(resource, 0)
        if not held:
            return 0, None
        return held, next(
            (claim for claim in self.by_uid.values() if path in claim.paths() and claim.held_at(path).get(resource)),
            None,
        )

    def claimant_at(self, path: str, resource: str) -> str:
        """namespace/name of that claim; empty where nothing is held."""
        claim = self.at(path, resource)[1]
        return claim.ref.key if claim is not None else ""

    def aged_at(self, paths: Iterator[str], but: str) -> Claim | None:
        """An age claim that is held at one of these nodes; ``but``: not that of this claimant, by uid."""
        mine = set(paths)
        aged = (claim for claim in self.for_age() if claim.uid != but)
        return next((claim for claim in aged if not mine.isdisjoint(claim.paths())), None)

    def _stays(self, uid: str) -> None:
        """No claim waits for it, unless another one does."""
        if not any(uid in claim.victims for claim in self.by_uid.values()):
            self.leaving.pop(uid, None)

    def _hold(self, claim: Claim, times: int) -> None:
        _spread(self.total, claim, times)
        if claim.firm:
            _spread(self.firm, claim, times)
            self.promised.add(claim.queue, claim.demand, times)


def _spread(scratch: Scratch, claim: Claim, times: int) -> None:
    amounts, preemptible = counted(claim.demand), claim.demand.preemptible
    for path in claim.paths():
        _add(scratch.extra, path, claim.held_at(path) if path in claim.lacking else amounts, times)
        if not preemptible:
            _add(scratch.firm, path, amounts, times)


def _add(totals: dict[str, Vector], path: str, amounts: Vector, times: int) -> None:
    vector = totals.setdefault(path, {})
    add_into(vector, amounts, times)
    if not vector:
        del totals[path]


def _copy(scratch: Scratch) -> Scratch:
    return Scratch(*({path: dict(vector) for path, vector in each.items()} for each in (scratch.extra, scratch.firm)))
