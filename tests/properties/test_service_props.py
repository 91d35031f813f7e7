"""Least attained service and reclaim grace in random histories: bounded, sound, and the same when decided again."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import example, given, settings

from kit.audits import audit
from kit.depth import examples
from kit.histories import SEEDS, SETTINGS
from kit.scenes import Scene
from muster.core.quota.service import MOST_TIMES
from muster.events.decisions import EvictionOrdered, QuotaReserved
from muster.runtime.replaying.replay import replay

FEWER = settings(SETTINGS, max_examples=examples(25))
STEPS = 60
QUEUES = (("a", 4), ("b", 2), ("c", 0))


class History(Scene):
    """Jobs come, save their work, are stopped, end or are deleted, and the tree is edited, in any order."""

    def __init__(self, rng: Random) -> None:
        super().__init__()
        self.rng = rng
        self.count = 0
        self.edit()
        self.lines("synced")

    def edit(self) -> None:
        rules = {"least_attained": self.rng.choice(("", "1h", "1h,4h")), "reclaim_grace": self.rng.choice(("0", "5m"))}
        self.tree_of(*QUEUES, **{name: text for name, text in rules.items() if text})

    def where(self, *, runs: bool) -> list[str]:
        charged = self.bench.states["quota_accountant"].ledger.charges
        return [
            name for name, job in self.jobs.items() if job.suspended is not runs and (job.ref.uid in charged or runs)
        ]

    def act(self) -> None:
        """What was ordered and admitted is carried out, or not yet."""
        entries = self.bench.states["quota_accountant"].entries
        for name, job in list(self.jobs.items()):
            entry = entries.get(job.ref.uid)
            if entry is None or self.rng.random() < 0.2:
                continue
            if job.suspended and entry.admitted and not entry.resumed_rv:
                self.runs(name)
            elif not job.suspended and entry.leaving:
                self._change(name, suspended=True, phase="suspending", settled=False, generation=job.generation + 1)
                self.settle()
                self.lines(f"settles {name}")

    def step(self) -> None:
        rng = self.rng
        running = self.where(runs=True)
        match rng.choice(("job", "job", "mark", "mark", "mark", "time", "time", "time", "end", "gone", "edit")):
            case "job":
                self.count += 1
                self.lines(
                    f"job {rng.choice('abc')}/j{self.count} cpu={rng.randint(1, 4)} prio={rng.choice((0, 0, 1))}"
                )
            case "mark" if running:
                shift = rng.choice((0, 0, 0, -3_600_000, 3_600_000))
                self.change(rng.choice(running), checkpointed_at=self.bench.now + shift)
            case "time":
                self.bench.pass_time(rng.choice((10_000, 300_000, 3_700_000)))
                self.settle()
            case "end" if running:
                name = rng.choice(running)
                self.lines(f"finishes {name}", f"gone {name}")
                del self.jobs[name]
            case "gone" if self.jobs and rng.random() < 0.3:
                name = rng.choice(sorted(self.jobs))
                self.lines(f"gone {name}")
                del self.jobs[name]
            case "edit" if rng.random() < 0.3:
                self.edit()
            case _:
                pass
        self.act()


@FEWER
@example(2**32)  # an admission while time passes
@given(SEEDS)
def test_service_and_grace_keep_every_bound(seed: int) -> None:
    history = History(Random(seed))
    for _ in range(STEPS):
        history.step()
    log = history.bench.log
    events = [event for stored in log for event in stored.commit.events]
    served = Counter(
        victim.ref.uid
        for event in events
        if isinstance(event, EvictionOrdered) and event.kind == "service"
        for victim in event.victims
    )
    assert max(served.values(), default=0) <= MOST_TIMES
    assert any(isinstance(event, QuotaReserved) for event in events)
    report = audit(log)
    assert not report.violations, report.violations[0]
    assert not replay(log, silences=False).divergences
