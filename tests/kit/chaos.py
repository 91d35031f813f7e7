"""A little world of jobs for property tests: random but legal observations, delivered late, twice and out of order.

The true state of every object is kept apart from what the stages are told. Deciders commit what they decided at an
older position, so that foreign commits lie in the gap. When the chaos ends, everything true is told once more and the
stages settle: whatever was done to the deliveries, the outcome must be the one the truth asks for.
"""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec

from kit import facts
from kit.audits import audit
from kit.bench import Bench
from muster.core.observed.seen import TOMBSTONE_MS
from muster.events.base import Cause, Event
from muster.events.decisions import EvictionOrdered, GangAdmitted
from muster.events.effects import EffectApplied, EffectFailed
from muster.events.facts import TreeNodeSpec
from muster.model.keys import Ref
from muster.model.workload import Workload

NAMESPACES = ("video", "text", "intern-text", "devops")
SHAPES = (
    {"cpu": 12, "memory": "12G"},
    {"cpu": 4, "memory": "4G"},
    {"cpu": 6, "memory": "2G"},
    {"cpu": 15, "memory": "1G"},
)


class Chaos:
    """One run; everything is drawn from ``rng``."""

    def __init__(self, rng: Random, jobs: int = 12, root: TreeNodeSpec | None = None, **rules: str) -> None:
        self.rng = rng
        self.bench = Bench()
        self.pending: list[Event] = []
        """Facts that are true and not delivered yet."""
        self.jobs: dict[str, Workload] = {}
        self.clusters: dict[str, int] = {}
        """job name -> which start of it the RayCluster that exists belongs to"""
        self.runs: dict[str, int] = {}
        self.to_make = jobs
        self.outstanding: dict[tuple[str, int, str], tuple[Cause, Ref]] = {}
        """(uid, attempt, action) -> decision that has not been carried out"""
        self.admitted: dict[tuple[str, int], str] = {}
        """(uid, attempt) -> what was admitted, by its digest"""
        self.delivered: list[tuple[int, Event]] = []
        self.bench.facts(facts.tree(root, rules=rules))
        self.bench.synced()

    # --- the truth --------------------------------------------------------------------------------------------

    def truth_changes(self) -> None:
        """One step in the life of a random job."""
        rng = self.rng
        if self.to_make and rng.random() < 0.4:
            self.to_make -= 1
            name = f"job-{self.to_make}"
            job = facts.job(
                name,
                rng.choice(NAMESPACES),
                **rng.choice(SHAPES),
                created=self.bench.now,
                priority=rng.choice((None, None, 5)),
            )
            self._tell(name, job)
            return
        if not self.jobs:
            return
        name = rng.choice(sorted(self.jobs))
        self._step(name, self.jobs[name])

    def _step(self, name: str, job: Workload) -> None:
        """The next step in the life of a job."""
        rng = self.rng
        if job.suspended:
            self._suspended_step(name, job)
        elif job.phase == "starting":
            if name not in self.clusters:
                run = self.clusters[name] = self.runs[name] = self.runs.get(name, 0) + 1
                self.pending.append(facts.cluster(name, job.ref.namespace, run))
                self._tell(name, job, child=facts.cluster_ref(name, job.ref.namespace, run).name)
            else:
                self._tell(name, job, phase="running")
        elif job.phase == "running":
            if rng.random() < 0.2:
                self._tell(name, job, suspended=True, phase="suspending", generation=job.generation + 1)
            else:
                self._tell(name, job, phase="finished", outcome="succeeded")
        else:
            self._end(name, job)

    def _suspended_step(self, name: str, job: Workload) -> None:
        if job.phase == "suspending":
            self._cluster_gone(name, job)
            self._tell(name, job, phase="waiting", settled=True, child="")
        elif self.rng.random() < 0.15:
            need = facts.vector(**self.rng.choice(SHAPES))
            self._tell(name, job, need={"ack": need, "full": need}, generation=job.generation + 1)
        elif self.rng.random() < 0.08:
            self._tell(name, job, suspended=False, phase="starting", generation=job.generation + 1, settled=False)
        elif self.rng.random() < 0.08:
            self._end(name, job)

    def _end(self, name: str, job: Workload) -> None:
        self._cluster_gone(name, job)
        if self.rng.random() < 0.6 or job.suspended:
            del self.jobs[name]
            self.pending.append(facts.gone(name, job.ref.namespace))

    def _cluster_gone(self, name: str, job: Workload) -> None:
        run = self.clusters.pop(name, None)
        if run:
            self.pending.append(facts.cluster_gone(name, job.ref.namespace, run))

    def _tell(self, name: str, job: Workload, **changes: Any) -> None:
        if changes:
            job = msgspec.structs.replace(job, rv=facts.next_rv(), **changes)
        fact = facts.seen(job)
        self.jobs[name] = fact.workload
        self.pending.append(fact)

    def actuate(self) -> None:
        """Carry out an admission nobody has carried out yet, on the truth, as the fenced patch would."""
        if not self.outstanding:
            return
        key = self.rng.choice(sorted(self.outstanding))
        cause, ref = self.outstanding.pop(key)
        job, (_, attempt, action) = self.jobs.get(ref.name), key
        about: dict[str, Any] = {"cause": cause, "ref": ref, "attempt": attempt, "action": action}
        effect: Event
        if job is None or job.ref.uid != ref.uid:
            effect = EffectFailed(**about, reason="gone")
        elif action == "suspend":
            if not job.suspended and job.phase != "finished":
                self._tell(ref.name, job, suspended=True, phase="suspending", generation=job.generation + 1)
            effect = EffectApplied(**about, rv=self.jobs[ref.name].rv)
        elif job.basis != self.admitted[ref.uid, attempt] or not job.suspended or job.phase == "finished":
            effect = EffectFailed(**about, reason="spec_changed")
        else:
            self._tell(ref.name, job, suspended=False, phase="starting", settled=False, generation=job.generation + 1)
            effect = EffectApplied(**about, rv=self.jobs[ref.name].rv)
        self.bench.append("actuator", "input", [effect])

    # --- what the stages are told -----------------------------------------------------------------------------

    def deliver(self) -> None:
        """Some of what is pending, in any order; sometimes an old fact once more."""
        if self.pending:
            fact = self.pending.pop(self.rng.randrange(len(self.pending)))
            self.delivered.append((self.bench.now, fact))
            self.bench.facts(fact)
        recent = [fact for at, fact in self.delivered[-50:] if self.bench.now - at < TOMBSTONE_MS]
        if recent and self.rng.random() < 0.2:
            self.bench.facts(self.rng.choice(recent))

    def decide_late(self) -> None:
        """A stage decides now and commits after others have committed."""
        name = self.rng.choice(sorted(self.bench.seats))
        due, in_seq = self.bench.seats[name].decisions(), len(self.bench.log)
        if not due:
            return
        for _ in range(self.rng.randrange(3)):
            self.rng.choice((self.deliver, self.actuate, self.decide_other(name)))()
        self._committed(self.bench.append(name, "decision", due, in_seq=in_seq))

    def decide_other(self, but: str) -> Any:
        def step() -> None:
            name = self.rng.choice([each for each in sorted(self.bench.seats) if each != but])
            due = self.bench.seats[name].decisions()
            if due:
                self._committed(self.bench.append(name, "decision", due))

        return step

    def _committed(self, seq: int) -> None:
        for item, event in enumerate(self.bench.log[seq - 1].commit.events):
            if isinstance(event, GangAdmitted):
                self.outstanding[event.ref.uid, event.attempt, "resume"] = (Cause(seq, item), event.ref)
                self.admitted[event.ref.uid, event.attempt] = event.basis
            elif isinstance(event, EvictionOrdered):
                for victim in event.victims:
                    self.outstanding[victim.ref.uid, victim.attempt, "suspend"] = (Cause(seq, item), victim.ref)

    def pass_time(self) -> None:
        self.bench.now += self.rng.choice((1, 10, 1000, 20_000))

    def run(self, steps: int = 500) -> None:
        """Chaos, then peace: everything true is told, everything outstanding is carried out, the stages settle."""
        for _ in range(steps):
            self.rng.choice(
                (
                    self.truth_changes,
                    self.deliver,
                    self.deliver,
                    self.decide_late,
                    self.decide_late,
                    self.actuate,
                    self.pass_time,
                )
            )()
        for _ in range(60):
            before = len(self.bench.log)
            for name, job in self.jobs.items():
                if job.phase == "suspending":
                    self._suspended_step(name, job)
            while self.pending:
                self.deliver()
            self.bench.settle()
            self.bench.pass_time(400_000)
            for seq in range(before + 1, len(self.bench.log) + 1):
                self._committed(seq)
            while self.outstanding:
                self.actuate()
            if len(self.bench.log) == before:
                return
        raise AssertionError("peace does not come")

    def audit(self) -> None:
        """The log keeps every invariant (facts delivered twice or late are the watcher's to prevent, so not I11)."""
        report = audit(self.bench.log)
        broken = [v for v in report.violations if v.invariant != "I11"]
        assert not broken, broken[:3]
