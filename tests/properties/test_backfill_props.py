"""Jobs that declare run times beside claims for age: a promised claimant has its quota by its time if these are true,
and later by no more than the jobs it counted on ran too long; no limit is passed, and a replay decides the same.
"""

from __future__ import annotations

from random import Random

from hypothesis import given, settings

from kit.histories import SEEDS, SETTINGS
from kit.scenes import Scene
from muster.core.cell.seats import Seat
from muster.core.objects.meta import RUN_TIME
from muster.core.quota.demand import left_by
from muster.events.claims import ClaimEnded, ClaimOpened
from muster.events.decisions import QuotaReserved
from muster.model.workload import Wishes
from muster.runtime.logkeeping.snapshotting import decode_state, encode_state

FEWER = settings(SETTINGS, max_examples=6)
STEP_S = 20
MINUTE_MS = 60_000
DECLARED = (1, 2, 5, 15)
"""Minutes."""


class Beside:
    """Two queues of no guarantee on eight cores, small jobs that never stop coming, and a wide one among them.

    ``lies``: of ten jobs so many run longer than they declare.
    """

    def __init__(self, rng: Random, lies: int = 0) -> None:
        self.rng, self.lies, self.scene = rng, lies, Scene()
        self.scene.tree_of(("a", 0), ("b", 0), reclaim="disabled")
        self.scene.lines("synced")
        self.waiting: list[str] = []
        self.wide: set[str] = set()
        self.runs: dict[str, int] = {}
        """name -> log time (ms) at which it ends"""
        self.took: dict[str, int] = {}
        """name -> how long it runs (ms)"""
        self.overrun = 0
        """The longest time (ms) by which any job was later than it declares."""
        self.count = self.read = 0
        self.silent = rng.choice((0, 0, 2))
        """Of ten jobs so many declare nothing."""

    def job(self, cpu: int) -> None:
        rng, self.count = self.rng, self.count + 1
        name, minutes = f"{rng.choice('ab')}/j{self.count}", rng.choice(DECLARED)
        says = rng.randrange(10) >= self.silent
        self.scene.lines(f"job {name} cpu={cpu}{f' run={minutes}m' if says else ''}")
        self.took[name] = rng.randint(1, minutes * 3) * MINUTE_MS // 3
        if says and rng.randrange(10) < self.lies:
            over = rng.choice((5, 30, 120)) * MINUTE_MS
            self.took[name] = minutes * MINUTE_MS + over
            self.overrun = max(self.overrun, over)
        self.waiting.append(name)
        if cpu > 3:
            self.wide.add(name)

    def step(self) -> None:
        """Jobs end and come, and a little time passes; every one that is admitted starts at once."""
        now = self.scene.bench.now
        for name in [name for name, at in self.runs.items() if at <= now]:
            del self.runs[name]
            self.scene.lines(f"finishes {name}", f"gone {name}")
        while len(self.waiting) - len(self.wide.intersection(self.waiting)) < 4:
            self.job(self.rng.choice((1, 1, 2, 3)))
        while len(self.wide.intersection(self.waiting)) < 2:
            self.job(self.rng.choice((6, 8)))
        self.start()
        self.scene.lines(f"time +{STEP_S}s")
        self.start()

    def disturb(self) -> None:
        """Somebody edits, holds, deletes or ends a job, the tree is edited, or a stage goes on from its snapshot."""
        rng, scene = self.rng, self.scene
        name, running = rng.choice(self.waiting), rng.choice([*self.runs, ""])
        match rng.randrange(8):
            case 0 | 1:
                scene.change(name, labels={RUN_TIME: rng.choice(("1m", "20m", "9h", "never"))})
            case 2:
                scene.change(name, wishes=Wishes(hold=not scene.jobs[name].wishes.hold, by="ann"))
            case 3:
                self.waiting.remove(name)
                scene.lines(f"gone {name}")
            case 4:
                scene.lines(f"edit {name} cpu={rng.choice((1, 2, 6))}")
            case 5 if running:
                scene.change(running, labels={RUN_TIME: rng.choice(("1m", "9h"))})
            case 6:
                scene.tree_of(("a", rng.choice((0, 0, 4))), ("b", 0), reclaim="disabled")
            case 7:
                stage, seat = rng.choice(sorted(scene.bench.seats.items()))
                state = decode_state(encode_state(seat.state), type(seat.state))
                scene.bench.seats[stage] = Seat(seat.stage, state)
            case _:
                pass

    def start(self) -> None:
        log = self.scene.bench.log
        new, self.read = log[self.read :], len(log)
        events = [event for stored in new for event in stored.commit.events if isinstance(event, QuotaReserved)]
        for event in events:
            name = f"{event.ref.namespace}/{event.ref.name}"
            self.waiting.remove(name)
            self.runs[name] = self.scene.bench.now + self.took[name]
            self.scene.runs(name)
        if events:
            self.start()

    def served(self) -> list[tuple[ClaimOpened, int, bool]]:
        """(a claim, log time at which its job had quota reserved or now while it stands, whether anybody passed it)."""
        log = self.scene.bench.log
        opened = [
            (each, stored.seq) for stored in log for each in stored.commit.events if isinstance(each, ClaimOpened)
        ]
        return [(claim, *self._end(claim, seq)) for claim, seq in opened]

    def _end(self, claim: ClaimOpened, since: int) -> tuple[int, bool]:
        passed = False
        for stored in self.scene.bench.log[since:]:
            for event in stored.commit.events:
                if isinstance(event, ClaimEnded) and event.ref == claim.ref:
                    return 0, passed
                if isinstance(event, QuotaReserved):
                    alike = event.demand.alike(claim.demand) and event.queue == claim.queue
                    if event.ref == claim.ref or alike:
                        return stored.commit.at, passed
                    passed = passed or event.beside == claim.ref.key
        return self.scene.bench.now, passed


def run(seed: int, lies: int, steps: int = 80, *, disturbed: bool = False) -> Beside:
    beside = Beside(Random(seed), lies)
    for _ in range(steps):
        beside.step()
        if disturbed and beside.rng.random() < 0.2:
            beside.disturb()
            beside.start()
    beside.scene.bench.sound()
    return beside


@FEWER
@given(SEEDS)
def test_who_is_promised_a_start_has_it_by_then_if_all_declared_times_are_true(seed: int) -> None:
    for claim, at, _ in run(seed, lies=0).served():
        assert not claim.promised or at <= claim.promised, f"{claim.ref} is promised {claim.promised}, and in at {at}"


@FEWER
@given(SEEDS)
def test_lies_delay_a_claim_at_most_by_how_long_they_are(seed: int) -> None:
    made = run(seed, lies=3)
    for claim, at, _ in made.served():
        late = at - claim.promised
        assert not claim.promised or late <= made.overrun + STEP_S * 1000, f"{claim.ref} is late by {late} ms"


@FEWER
@given(SEEDS)
def test_nobody_passes_without_a_promise_that_it_keeps(seed: int) -> None:
    """By what the log says alone: the claim stands, is promised that time, and who passes has left by then."""
    made, open_claims = run(seed, lies=2, disturbed=True), dict[str, ClaimOpened]()
    for stored in made.scene.bench.log:
        for event in stored.commit.events:
            match event:
                case ClaimOpened():
                    open_claims[event.ref.key] = event
                case QuotaReserved() if event.beside:
                    claim = open_claims[event.beside]
                    assert event.promised == claim.promised
                    assert left_by(stored.commit.at, event.run_ms) <= claim.promised
                case _:
                    pass


def test_jobs_do_pass_in_these_histories() -> None:
    """Else the properties say nothing."""
    found = [each for seed in range(12) for each in run(seed, lies=0, steps=200).served()]
    assert sum(1 for claim, _, _ in found if claim.promised) >= 6
    assert sum(1 for _, _, passed in found if passed) >= 3
