"""A big gang of a job among small jobs that never stop coming: once later work of eight times its width has been placed
it starts, within the time those that run before it take to end. Who waits longer than it may come before it.
"""

from __future__ import annotations

from itertools import groupby
from random import Random

from hypothesis import given, settings
from msgspec.structs import replace

from kit import facts, nodes
from kit.audits import audit
from kit.bench import Bench
from kit.histories import SEEDS, SETTINGS
from muster.audit.auditor import Auditor
from muster.core.cell.seats import AnySeat, Seat
from muster.core.gang.admitterstate import AdmitterState
from muster.core.gang.jobplaces import asks_of
from muster.core.gang.nodeclaims import LEAST_MS
from muster.core.gang.podgangs import NodeClaim
from muster.core.placement.place import place
from muster.core.placement.view import View
from muster.events.base import Event
from muster.events.decisions import GangAdmitted, GangDeferred, WorkloadQueued
from muster.events.envelope import Stored
from muster.events.facts import NodeGone
from muster.events.gangs import NodesClaimed, NodesClaimEnded
from muster.events.system import PlacementChosen
from muster.model.keys import Ref
from muster.model.quota import WAIT_PART, WIDTHS_TO_AGE
from muster.model.resources import summed
from muster.model.workload import PodSet, Wishes, Workload
from muster.runtime.replaying.replay import replay

FEWER = settings(SETTINGS, max_examples=12)
STEP_MS = 5_000
MOST_STEPS = 1_000
PLENTY = {"cpu": 100_000}


class Stream:
    """Nodes that small jobs keep full, and one big gang that comes when they are."""

    few = 4
    """So many small jobs wait at the start of each step."""

    def __init__(self, rng: Random) -> None:
        self.rng, self.bench = rng, Bench(rng, check=False)
        self.longest_ms = rng.choice((30_000, 90_000))
        self.ends: dict[str, int] = {}
        """Small job that runs -> when it ends."""
        self.waiting: dict[str, None] = {}
        self.count = self.read = 0
        self.admitted_at = self.vain_at = self.aged_at = 0
        """Log time of the big gang's admission, its first failed try, and the last start of those that it takes."""
        self.width = self.passed = 0
        self.queued: dict[str, int] = {}
        """Job -> log time of its first try."""
        chosen = PlacementChosen(mode=rng.choice(("pack", "spread")), hold_ms=10**9)
        self.bench.append("gang_admitter", "input", [chosen])
        leaf = facts.node("video", {"cpu": 0}, PLENTY, ("video",))
        self.bench.facts(facts.tree(facts.node("root", PLENTY, PLENTY, children=(leaf,))))
        size = rng.randint(4, 8)
        self.nodes = rng.randint(2, 4)
        for index in range(self.nodes):
            self.bench.facts(nodes.node(f"n{index}", cpu=size))
        self.bench.synced()
        for _ in range(6):
            self.step()
        # Pods of which a node takes one, and hardly anybody else beside it: on half of the nodes or more.
        workers = rng.randint(max(self.nodes // 2, 1), self.nodes)
        each = facts.vector(cpu=rng.randint(size - 1, size))
        self.width = workers * each["cpu"]
        self.job("big", PodSet("worker", workers, each))
        self.came, self.older = self.bench.now, len(self.waiting)

    @property
    def state(self) -> AdmitterState:
        found = self.bench.states["gang_admitter"]
        assert isinstance(found, AdmitterState)
        return found

    def job(self, name: str, *sets: PodSet) -> None:
        need = summed(each.request for each in sets for _ in range(each.count))
        job = facts.job(name, need={"ack": need, "full": need}, pod_sets=sets, created=self.bench.now)
        self.bench.facts(facts.seen(job))

    def step(self) -> None:
        """Who has run long enough ends, others come, and a few seconds pass."""
        while len(self.waiting) < self.few:
            self.count += 1
            self.waiting[f"small-{self.count}"] = None
            self.job(f"small-{self.count}", PodSet("main", 1, facts.vector(cpu=self.rng.randint(1, 2))))
        for name in [name for name, at in self.ends.items() if at <= self.bench.now]:
            del self.ends[name]
            self.bench.facts(facts.gone(name))
            self.settle()
        self.settle()
        self.bench.pass_time(STEP_MS)
        self.note()

    def settle(self) -> None:
        self.bench.settle()
        self.note()

    def note(self) -> None:
        for stored in self.bench.log[self.read :]:
            for event in stored.commit.events:
                if isinstance(event, WorkloadQueued):
                    self.queued.setdefault(event.ref.name, stored.commit.at)
                elif isinstance(event, GangDeferred) and event.ref.name == "big":
                    self.vain_at = self.vain_at or stored.commit.at
                if not isinstance(event, GangAdmitted):
                    continue
                name = event.ref.name
                if name == "big":
                    self.admitted_at = stored.commit.at
                else:
                    self.waiting.pop(name, None)
                    self.ends[name] = self.bench.now + self.rng.randint(10_000, self.longest_ms)
                    self._passes(
                        name, stored.commit.at, sum(pods.request["cpu"] * pods.count for pods in event.pod_sets)
                    )
        self.read = len(self.bench.log)

    def _passes(self, name: str, at: int, amount: int) -> None:
        if 0 < self.vain_at < self.queued[name]:
            self.passed += amount
            if not self.aged_at and self.passed >= WIDTHS_TO_AGE * self.width:
                self.aged_at = at

    def claims(self) -> list[object]:
        """Of the big gang: their beginnings and ends."""
        return [event for event in self.bench.happened(NodesClaimed, NodesClaimEnded) if event.ref.name == "big"]

    def happened(self, *kinds: type) -> list[object]:
        return self.bench.happened(*kinds)


@FEWER
@given(SEEDS)
def test_a_big_gang_starts_once_it_has_aged_within_the_time_others_take_to_end(seed: int) -> None:
    stream = Stream(Random(seed))
    drained_ms = stream.longest_ms + STEP_MS
    most = STEP_MS + drained_ms * (1 + stream.older)
    for _ in range(MOST_STEPS):
        # A claim lasts a fifth of the wait, the next comes after three times the wait: one lasts for long enough.
        by = max(stream.aged_at, stream.vain_at + 3 * WAIT_PART * most // 2) + most
        if stream.admitted_at or (stream.aged_at and stream.bench.now > by):
            break
        stream.step()
    assert stream.admitted_at, f"not within {most} ms, aged at {stream.aged_at}: {stream.state.pods.claims}"
    stream.step()
    report = audit(stream.bench.log)
    assert not report.violations, report.violations[0]
    assert len(stream.claims()) % 2 == 0, "its claim is over"


@FEWER
@given(SEEDS)
def test_who_comes_while_nodes_are_claimed_fits_beside_the_claim(seed: int) -> None:
    """On a claimed node somebody else is let in only where all that is claimed there stays free."""
    stream = Stream(Random(seed))
    for _ in range(40):
        stream.step()
    fits_beside(stream.bench)


def fits_beside(bench: Bench) -> None:
    seat: AnySeat = Seat(bench.seats["gang_admitter"].stage)
    state = seat.state
    for stored in bench.log:
        claims = [claim for claim in state.pods.claims.values() if claim.ref and claim.ref.uid in state.gangs]
        seat.fold(stored)
        for claim in claims if stored.commit.kind == "decision" else ():
            beside(state, stored, claim)


def beside(state: AdmitterState, stored: Stored, claim: NodeClaim) -> None:
    assert claim.ref is not None
    others = {
        place.node
        for event in stored.commit.events
        if isinstance(event, GangAdmitted) and event.ref.uid != claim.ref.uid
        for place in event.placements
    }
    over = (GangAdmitted, NodesClaimEnded)
    mine = any(isinstance(event, over) and event.ref == claim.ref for event in stored.commit.events)
    need = {ask.name: ask.request["cpu"] for ask in asks_of(state, state.gangs[claim.ref.uid])}
    for kept in claim.places if not mine else ():
        if kept.node in others:
            node = state.ledger.nodes[kept.node]
            free = node.allocatable["cpu"] - node.used.get("cpu", 0)
            assert free >= need[kept.pod_set] * kept.count, (stored.seq, kept, free)


def test_until_it_has_aged_it_starves_and_histories_replay() -> None:
    starved = 0
    for seed in range(6):
        stream = Stream(Random(seed))
        while not stream.aged_at and not stream.admitted_at:
            assert not stream.claims()
            stream.step()
        starved += bool(stream.aged_at)
        for _ in range(3):  # Starts are counted together.
            stream.step()
        assert bool(stream.aged_at) <= bool(stream.claims())
        report = replay(stream.bench.log, silences=False)
        assert not report.divergences, report.divergences[0]
    assert starved >= 4, "else the stream proves nothing"


def changed(log: list[Stored], events: dict[int, tuple[Event, ...]], at: dict[int, int]) -> list[str]:
    """What the audit says of a log in which some commits hold other events, or another time."""
    auditor = Auditor()
    for stored in log:
        commit = replace(
            stored.commit,
            events=events.get(stored.seq, stored.commit.events),
            at=at.get(stored.seq, stored.commit.at),
        )
        auditor.feed(Stored(stored.seq, commit))
    said = [each.detail for each in auditor.finish() if each.invariant == "I3"]
    return [each.partition(": ")[2] for each in said]


def test_the_audit_finds_two_claims_one_too_early_and_one_too_long() -> None:
    stream = Stream(Random(1))
    while not stream.admitted_at:
        stream.step()
    log = stream.bench.log
    assert changed(log, {}, {}) == []
    claims = [(stored, event) for stored in log for event in stored.commit.events if isinstance(event, NodesClaimed)]
    ends = [stored.seq for stored in log if any(isinstance(event, NodesClaimEnded) for event in stored.commit.events)]
    first, claim = claims[0]
    twice = changed(log, {first.seq: (*first.commit.events, claim)}, {})
    assert any("nodes are kept for" in each and " and for " in each for each in twice), twice
    later = {first.seq: tuple(e for e in first.commit.events if e is not claim)}
    begun = next(
        each for each in log if any(isinstance(e, GangDeferred) and e.ref == claim.ref for e in each.commit.events)
    )
    early = changed(log, later | {begun.seq: (*begun.commit.events, claim)}, {})
    assert any(each.endswith("passed it") for each in early), early
    short = tuple(replace(e, until=first.commit.at + 1) if e is claim else e for e in first.commit.events)
    never = {seq: tuple(e for e in log[seq - 1].commit.events if not isinstance(e, NodesClaimEnded)) for seq in ends}
    long = changed(log, {**never, first.seq: short}, {})
    assert any("beyond" in each for each in long), long


# --- many at once -------------------------------------------------------------------------------------------------


class Crowd(Stream):
    """Several big gangs beside the small jobs; nodes come and go, gangs are edited, held back and deleted."""

    few = 12

    def __init__(self, rng: Random) -> None:
        self.gangs: dict[str, Workload] = {}
        super().__init__(rng)
        for index in range(rng.randint(3, 8), 10):
            self.bench.facts(nodes.node(f"n{index}", cpu=rng.randint(4, 8)))

    def gang(self, name: str) -> None:
        sets = (PodSet("worker", self.rng.randint(1, 3), facts.vector(cpu=self.rng.randint(3, 8))),)
        need = summed(each.request for each in sets for _ in range(each.count))
        said = {"need": {"ack": need, "full": need}, "pod_sets": sets, "created": self.bench.now}
        self.gangs[name] = facts.job(name, **said)
        self.bench.facts(facts.seen(self.gangs[name]))

    def odd_step(self) -> None:
        rng = self.rng
        name = rng.choice(sorted(self.gangs)) if self.gangs else ""
        match rng.randrange(9):
            case 0 | 1 | 2 if len(self.gangs) < 8:
                self.gang(f"gang-{self.count}-{len(self.gangs)}")
            case 3 if name:
                self.gang(name)
            case 4 if name:
                job = self.gangs[name]
                hold = Wishes(hold=not job.wishes.hold, by="ann")
                self.gangs[name] = job = replace(job, wishes=hold, rv=facts.next_rv())
                self.bench.facts(facts.seen(job))
            case 5 if name:
                del self.gangs[name]
                self.bench.facts(facts.gone(name))
            case 6:
                self.bench.facts(nodes.node(f"n{rng.randrange(10)}", cpu=rng.randint(4, 8)))
            case 7 if len(self.state.ledger.nodes) > 2:
                name = rng.choice(sorted(self.state.ledger.nodes))
                uid = self.state.ledger.nodes[name].uid
                self.bench.facts(NodeGone(ref=Ref("Node", "", name, uid), rv=facts.next_rv()))
            case _:
                pass
        self.settle()

    def note(self) -> None:
        super().note()
        for name in [name for name in self.ends if name in self.gangs]:
            del self.gangs[name]


def disjoint(bench: Bench) -> int:
    """No node is in two claims, and each ends once with a reason; the most that stood at once."""
    stands: dict[str, set[str]] = {}
    most = 0
    for event in bench.happened(NodesClaimed, NodesClaimEnded):
        key = event.ref.uid if event.ref else event.gang
        if isinstance(event, NodesClaimEnded):
            assert stands.pop(key), "it ends once"
            continue
        mine = {place.node for place in event.places}
        assert key not in stands
        assert not any(mine & nodes for nodes in stands.values()), (event.gang, stands)
        stands[key] = mine
        most = max(most, len(stands))
    return most


@FEWER
@given(SEEDS)
def test_many_gangs_claim_disjoint_nodes_and_each_claim_ends(seed: int) -> None:
    crowd = Crowd(Random(seed))
    for _ in range(60):
        crowd.odd_step()
        crowd.step()
    disjoint(crowd.bench)
    takeovers(crowd.bench)
    fits_beside(crowd.bench)
    report = audit(crowd.bench.log)
    assert not report.violations, report.violations[0]
    assert not replay(crowd.bench.log, silences=False).divergences
    waiting = {name for name, job in crowd.gangs.items() if not job.wishes.hold}
    for name in [*crowd.ends, *crowd.waiting]:  # Nobody else is left: whatever fits the nodes gets in.
        crowd.bench.facts(facts.gone(name))
    crowd.bench.settle()
    crowd.bench.pass_time(4 * LEAST_MS)
    admitted = {event.ref.name for event in crowd.happened(GangAdmitted)}  # type: ignore[attr-defined]
    state = crowd.state
    for name in waiting - admitted:
        if f"uid-video-{name}" in state.gangs and not state.holds:
            asks = asks_of(state, state.gangs[f"uid-video-{name}"])
            assert place(View(state.ledger), asks, "pack") is not None, f"{name} waits and fits"


def takeovers(bench: Bench) -> int:
    """A claim yields to one of a gang that has waited longer, made in the same commit on some of its nodes, and to no
    other; its own turn is still to come. How many did.
    """
    seat: AnySeat = Seat(bench.seats["gang_admitter"].stage)
    state, count = seat.state, 0
    for stored in bench.log:
        events = stored.commit.events
        ends = [event for event in events if isinstance(event, NodesClaimEnded) and event.outcome == "yielded"]
        since = {uid: each.since for uid, each in state.waits.items()} if ends else {}
        kept = {key: {place.node for place in claim.places} for key, claim in state.pods.claims.items()} if ends else {}
        seat.fold(stored)
        for end in ends:
            (taker,) = (event for event in events if isinstance(event, NodesClaimed))
            assert end.ref is not None and taker.ref is not None and end.ref != taker.ref
            assert since[taker.ref.uid] < since[end.ref.uid], "who waits longer takes over"
            assert kept[end.ref.uid] & {place.node for place in taker.places}, "nobody yields nodes that nobody takes"
            assert state.waits[end.ref.uid].claimed == 0, "it may claim again at once"
        count += len(ends)
    return count


def test_claims_do_stand_side_by_side() -> None:
    most, taken = [], 0
    for seed in range(16):
        crowd = Crowd(Random(seed))
        for _ in range(60):
            crowd.odd_step()
            crowd.step()
        most.append(disjoint(crowd.bench))
        taken += takeovers(crowd.bench)
    assert max(most) >= 3, most
    assert sum(each >= 2 for each in most) >= 3, most
    assert taken >= 2, "else the property of takeovers proves nothing"


def test_gangs_that_need_the_same_node_claim_it_in_turn() -> None:
    """A gang of both nodes, and one of a single node: each claims when the claim of the other has expired."""
    bench = Bench()
    bench.append("gang_admitter", "input", [PlacementChosen(mode="pack", hold_ms=10**9)])
    leaf = facts.node("video", {"cpu": 0}, PLENTY, ("video",))
    bench.facts(facts.tree(facts.node("root", PLENTY, PLENTY, children=(leaf,))))
    for index in range(2):
        bench.facts(nodes.node(f"n{index}", cpu=4))
    bench.facts(nodes.node("aside", cpu=2))
    bench.synced()

    def job(name: str, count: int, cpu: int) -> None:
        sets = (PodSet("worker", count, facts.vector(cpu=cpu)),)
        need = facts.vector(cpu=count * cpu)
        made = facts.job(name, need={"ack": need, "full": need}, pod_sets=sets, created=bench.now)
        bench.facts(facts.seen(made))
        bench.settle()
        bench.pass_time(1_000)

    def passed(wide: int) -> None:
        for number in range(wide * WIDTHS_TO_AGE // 2):
            job(f"small-{number}", 1, 2)
            bench.facts(facts.gone(f"small-{number}"))
            bench.settle()

    for name in ("one", "two"):
        job(name, 1, 3)
    job("both", 2, 4)
    passed(8)
    job("first", 1, 4)
    passed(4)
    bench.pass_time(LEAST_MS)  # ``both`` has claimed, and rests; then ``first`` has its turn.
    passed(8)
    bench.pass_time(4 * LEAST_MS)
    said = bench.happened(NodesClaimed, NodesClaimEnded)
    assert {each.outcome for each in said if isinstance(each, NodesClaimEnded)} <= {"expired", "yielded"}
    turns = [gang for gang, _ in groupby(each.gang for each in said)]
    assert turns[:3] == ["video/both", "video/first", "video/both"], turns
    for name in ("one", "two"):
        bench.facts(facts.gone(name))
        bench.settle()
    bench.sound()
    assert [event.ref.name for event in bench.happened(GangAdmitted)][-1] in ("both", "first")
