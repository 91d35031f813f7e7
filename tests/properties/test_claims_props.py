"""A big gang of a job among small jobs that never stop coming: it starts within its age, the time those that run
before it take to end, and the pause between two tries. Who waits longer than it may come before it.
"""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from msgspec.structs import replace

from kit import facts, nodes
from kit.bench import Bench
from kit.histories import SEEDS, SETTINGS
from muster.core.audit import Auditor, audit
from muster.core.gang.state import AdmitterState, asks_of
from muster.core.queueing.folds import NODES_BACKOFF_MAX_MS
from muster.core.seat import AnySeat, Seat
from muster.events.base import Event
from muster.events.decisions import GangAdmitted
from muster.events.envelope import Stored
from muster.events.gangs import NodesClaimed, NodesClaimEnded
from muster.events.system import PlacementChosen
from muster.model.resources import summed
from muster.model.workload import PodSet
from muster.runtime.replay import replay

FEWER = settings(SETTINGS, max_examples=25)
STEP_MS = 5_000
PLENTY = {"cpu": 100_000}


class Stream:
    """Nodes that small jobs keep full, and one big gang that comes when they are."""

    def __init__(self, rng: Random, claim_ms: int) -> None:
        self.rng, self.bench = rng, Bench(rng, check=False)
        self.claim_ms = claim_ms
        self.longest_ms = rng.choice((30_000, 90_000))
        self.ends: dict[str, int] = {}
        """Small job that runs -> when it ends."""
        self.waiting: dict[str, None] = {}
        self.count = self.read = 0
        self.admitted_at = 0
        chosen = PlacementChosen(mode=rng.choice(("pack", "spread")), hold_ms=10**9, claim_ms=claim_ms)
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
        self.job("big", PodSet("worker", workers, facts.vector(cpu=rng.randint(size - 1, size))))
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
        while len(self.waiting) < 4:
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
                if not isinstance(event, GangAdmitted):
                    continue
                name = event.ref.name
                if name == "big":
                    self.admitted_at = stored.commit.at
                else:
                    self.waiting.pop(name, None)
                    self.ends[name] = self.bench.now + self.rng.randint(10_000, self.longest_ms)
        self.read = len(self.bench.log)

    def happened(self, *kinds: type) -> list[object]:
        return [event for stored in self.bench.log for event in stored.commit.events if isinstance(event, kinds)]


@FEWER
@given(SEEDS)
def test_a_big_gang_starts_within_its_age_and_the_time_others_take_to_end(seed: int) -> None:
    stream = Stream(Random(seed), claim_ms=60_000)
    drained_ms = NODES_BACKOFF_MAX_MS + stream.longest_ms + STEP_MS
    most = stream.claim_ms + NODES_BACKOFF_MAX_MS + drained_ms * (1 + stream.older)
    while not stream.admitted_at and stream.bench.now <= stream.came + most:
        stream.step()
    assert stream.admitted_at, f"not within {most} ms: {stream.state.pods.claim}"
    stream.step()
    report = audit(stream.bench.log)
    assert not report.violations, report.violations[0]
    mine = [event for event in stream.happened(NodesClaimed, NodesClaimEnded) if event.ref.name == "big"]
    assert len(mine) % 2 == 0, "its claim is over"


@FEWER
@given(SEEDS)
def test_who_comes_while_nodes_are_claimed_fits_beside_the_claim(seed: int) -> None:
    """On a claimed node somebody else is let in only where all that is claimed there stays free."""
    stream = Stream(Random(seed), claim_ms=60_000)
    for _ in range(40):
        stream.step()
    bench = stream.bench
    seat: AnySeat = Seat(bench.seats["gang_admitter"].stage)
    state = seat.state
    for stored in bench.log:
        claim = state.pods.claim
        seat.fold(stored)
        if claim is None or claim.ref is None or stored.commit.kind != "decision":
            continue
        others = {
            place.node
            for event in stored.commit.events
            if isinstance(event, GangAdmitted) and event.ref.uid != claim.ref.uid
            for place in event.placements
        }
        mine = any(isinstance(event, GangAdmitted) and event.ref == claim.ref for event in stored.commit.events)
        need = {ask.name: ask.request["cpu"] for ask in asks_of(state.gangs[claim.ref.uid])}
        for place in claim.places if not mine else ():
            if place.node in others:
                node = state.ledger.nodes[place.node]
                free = node.allocatable["cpu"] - node.used.get("cpu", 0)
                assert free >= need[place.pod_set] * place.count, (stored.seq, place, free)


def test_without_claims_it_starves_and_with_them_histories_replay() -> None:
    starved = 0
    for seed in range(6):
        without = Stream(Random(seed), claim_ms=0)
        for _ in range(60):
            without.step()
        starved += not without.admitted_at
        assert not without.happened(NodesClaimed), "an older log has none, and decides as it did"
        stream = Stream(Random(seed), claim_ms=60_000)
        for _ in range(60):
            stream.step()
        report = replay(stream.bench.log, silences=False)
        assert not report.divergences, report.divergences[0]
        assert stream.happened(NodesClaimed)
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
    stream = Stream(Random(1), claim_ms=60_000)
    for _ in range(60):
        stream.step()
    log = stream.bench.log
    assert changed(log, {}, {}) == []
    claims = [(stored, event) for stored in log for event in stored.commit.events if isinstance(event, NodesClaimed)]
    ends = [stored.seq for stored in log if any(isinstance(event, NodesClaimEnded) for event in stored.commit.events)]
    first, claim = claims[0]
    twice = changed(log, {first.seq: (*first.commit.events, claim)}, {})
    assert any("nodes are kept for" in each and " and for " in each for each in twice), twice
    early = changed(log, {}, {first.seq: first.commit.at - 40_000})
    assert any(each.endswith("before 60000") for each in early), early
    short = tuple(replace(e, until=first.commit.at + 1) if e is claim else e for e in first.commit.events)
    never = {seq: tuple(e for e in log[seq - 1].commit.events if not isinstance(e, NodesClaimEnded)) for seq in ends}
    long = changed(log, {**never, first.seq: short}, {})
    assert any("beyond" in each for each in long), long
