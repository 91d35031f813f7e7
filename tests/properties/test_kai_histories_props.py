"""KAI queues that people edit while jobs come, run and end: whatever they do, the ledger is right and a replay equal.

Queues are made, deleted, hung under others (in circles too), given quotas and limits of -1 and 0; the same queue of a
job is changed, its priority, its protection. In between everything may be listed again.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from kit import facts, nodes
from kit.bench import Bench
from kit.depth import examples
from kit.facts import seen
from kit.histories import kinds_of, worth
from kit.kai import queue, queue_gone, work
from kit.proof import proven
from muster.core.quota.ledger.quotaledger import Ledger
from muster.events.base import Cause
from muster.events.decisions import EvictionOrdered, GangAdmitted
from muster.events.effects import EffectApplied
from muster.events.facts import WorkloadGone
from muster.model.quota import KAI_ROOT
from muster.model.workload import Workload

QUEUES = ("top", "mid", "a", "b", "c")
JOBS = 10
GPUS = 6
AMOUNTS = (-1, 0, 1, 2, 4)


class History:
    """One cluster of six GPUs, its queues, and jobs of one to three GPUs."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.bench = Bench(self.rng)
        self.jobs: dict[str, Workload] = {}
        self.read = self.came = 0
        self.bench.facts(nodes.node("n1", cpu=640, memory=256, gpu=GPUS), *(queue(name) for name in QUEUES[2:]))
        self.bench.synced()

    def step(self) -> None:
        often = (self.come,) * 5 + (self.edit,) * 2
        self.rng.choice((*often, self.drop, self.relabel, self.end))()
        self.bench.settle()
        self.carry_out()
        self.bench.settle()

    def edit(self) -> None:
        """A queue is made, or says something else; its parent may be below it, missing, or itself."""
        name, rng = self.rng.choice(QUEUES), self.rng
        self.bench.facts(
            queue(
                name,
                rng.choice(("", "", "top", "mid", "nowhere", name)),
                gpu=(rng.choice(AMOUNTS), rng.choice((-1, -1, 0, 2, 4)), rng.randint(0, 2)),
                priority=rng.choice((None, 50, 200)),
                preempt_min_runtime=rng.choice(("", "0s", "1m")),
                reclaim_min_runtime=rng.choice(("", "0s", "1m", "nonsense")),
            )
        )

    def drop(self) -> None:
        self.bench.facts(queue_gone(self.rng.choice(QUEUES)))

    def come(self) -> None:
        if len(self.jobs) < JOBS:
            self.came += 1
            self.look(f"j{self.came}", suspended=True, phase="waiting", settled=True)

    def relabel(self) -> None:
        """Its queue, its priority and what it asks for are changed, while it waits or runs."""
        if self.jobs:
            name = self.rng.choice(sorted(self.jobs))
            job = self.jobs[name]
            self.look(name, suspended=job.suspended, phase=job.phase, settled=job.settled)

    def end(self) -> None:
        if self.jobs:
            job = self.jobs.pop(self.rng.choice(sorted(self.jobs)))
            self.bench.facts(WorkloadGone(ref=job.ref, rv=facts.next_rv()))

    def look(self, name: str, **state: object) -> None:
        rng = self.rng
        chosen = rng.choice((*QUEUES, "", "a", "b", "c"))
        priority = rng.choice(("train", "train", "train", "build", "inference", "unknown"))
        job = work(name, chosen, priority_class=priority, gpu=rng.randint(1, 3), rv=facts.next_rv(), **state)
        self.jobs[name] = job
        self.bench.facts(seen(job))

    def carry_out(self) -> None:
        """What was decided happens: jobs are resumed and run, victims are suspended and leave."""
        log, self.read = self.bench.log[self.read :], len(self.bench.log)
        for stored in log:
            for item, event in enumerate(stored.commit.events):
                if isinstance(event, GangAdmitted) and event.ref.name in self.jobs:
                    self.moved(event.ref.name, Cause(stored.seq, item), event.attempt, suspended=False, phase="running")
                elif isinstance(event, EvictionOrdered):
                    for victim in event.victims:
                        if victim.ref.name in self.jobs:
                            cause = Cause(stored.seq, item)
                            self.moved(victim.ref.name, cause, victim.attempt, suspended=True, phase="waiting")

    def moved(self, name: str, cause: Cause, attempt: int, *, suspended: bool, phase: str) -> None:
        rv = facts.next_rv()
        job = self.jobs[name]
        action = "suspend" if suspended else "resume"
        effect = EffectApplied(cause=cause, ref=job.ref, attempt=attempt, rv=rv, action=action)
        self.bench.append("actuator", "input", [effect])
        fact = seen(job, suspended=suspended, phase=phase, settled=suspended, rv=facts.next_rv())
        self.jobs[name] = fact.workload
        self.bench.facts(fact)

    @property
    def ledger(self) -> Ledger:
        found: Ledger = self.bench.states["quota_accountant"].ledger
        return found


@settings(max_examples=examples(60))
@example(473)  # the charge of a deleted queue ends after the queue above it has become a leaf
@given(st.integers(0, 2**32))
def test_whatever_people_do_with_queues_the_ledger_is_right_and_replays(seed: int) -> None:
    history = History(seed)
    for _ in range(25):
        history.step()
        names = {node.name for node in history.ledger.nodes.values() if node.path != KAI_ROOT}
        disabled = history.bench.states["quota_accountant"].forest.kai.compiled.disabled
        assert not names & disabled.keys(), "a queue is in force or disabled, never both"
    for name in sorted(history.jobs):
        history.bench.facts(WorkloadGone(ref=history.jobs.pop(name).ref, rv=facts.next_rv()))
    history.bench.settle()
    assert (history.ledger.used, history.ledger.charges) == ({}, {}), "nothing stays charged"
    assert not history.ledger.claims.by_uid and not history.ledger.waiting and not history.ledger.leaving.extra
    proven(history.bench.log)


def test_the_histories_are_worth_something() -> None:
    def happened(seed: int) -> Iterator[str]:
        history = History(seed)
        for _ in range(25):
            history.step()
        return kinds_of(history.bench.log)

    worth(map(happened, range(25)), QuotaReserved=61, EvictionOrdered=4)
