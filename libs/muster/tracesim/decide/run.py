"""Lets the real stages decide about a situation, and reports their decisions.

Running units are adopted at their start times. Then pending units are submitted, and the stages decide until they are
quiet: a placed pod runs at once, an evicted pod is gone at once, and nothing ends by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from msgspec.structs import replace

from muster.core.cell.seats import Seat
from muster.core.stage import REQUIRED_KINDS
from muster.events.base import Event
from muster.events.decisions import EvictionOrdered, GangAdmitted, QuotaTreeAccepted
from muster.events.effects import EffectApplied
from muster.events.envelope import Stored
from muster.events.facts import (
    NodeObserved,
    PodGone,
    PodObserved,
    Synced,
    SyncStarted,
    WorkloadGone,
    WorkloadObserved,
    WorkloadStarted,
)
from muster.events.system import PlacementChosen
from muster.model.strategies import Strategy
from muster.told.readmodel.model import ReadModel
from muster.told.status.statuses import job_status
from muster.told.views.story import Takers, more_of
from muster.told.wording import jobs, problems
from muster.tracesim.decide.answer import (
    Answer,
    Eviction,
    Moved,
    PodMember,
    PodsWaitingAnswer,
    PodWhereabouts,
    answer_of,
)
from muster.tracesim.decide.live import LiveUnit
from muster.tracesim.decide.situation import Situation, SituationJob, SituationUnit
from muster.tracesim.stages import ACTUATOR, FOR_EVER_MS, MOVES, WATCHER, Stages

SETTLING_MS = 60_000
"""How much virtual time may pass until everything is quiet: retries and pauses, not waiting."""

MAX_JOINS = 3
"""How often a pod beyond its gang's minimum is submitted: a gang may be evicted and admitted again meanwhile."""


def decide(situation: Situation, done: Callable[[int], None] | None = None) -> Answer:
    """What the stages decide about a situation; ``done`` hears how many of its pods have started so far."""
    return _Run(situation, done).answer()


class _Run:
    def __init__(self, situation: Situation, done: Callable[[int], None] | None) -> None:
        self._situation = situation
        self._done = done
        self._begun: dict[str, None] = {}
        """uids of the units that have started once"""
        self._pods = 0
        self._jobs = {job.name: job for job in situation.jobs}
        self._rv = 1000
        self._live: dict[str, LiveUnit] = {}
        """uid of a workload -> its unit."""
        self._units: dict[str, LiveUnit] = {}
        """uid of a unit -> what was submitted of it last."""
        self._joined: dict[str, int] = {}
        """uid -> how often it was submitted."""
        self._admitted: dict[str, GangAdmitted] = {}
        self._evictions: list[Eviction] = []
        self._moved: list[Moved] = []
        self._warnings: list[str] = []
        self._began: dict[str, PodWhereabouts] = {}
        self._readers = Seat(ReadModel())
        self._stages = Stages(self._heard, "state")
        mode: Strategy = "spread" if situation.placement == "spread" else "pack"
        chosen = PlacementChosen(mode=mode, hold_ms=FOR_EVER_MS, moves=MOVES)
        self._stages.append("gang_admitter", "input", [chosen])
        beginning: list[Event] = [SyncStarted(kinds=REQUIRED_KINDS), *situation.queues]
        beginning += [NodeObserved(node=node) for node in situation.nodes]
        self._watch(beginning + [Synced(kind=kind) for kind in REQUIRED_KINDS])
        self._settle()
        self._adopt()
        self._began = {
            f"{live.job.name}/{name}": at for live in self._units.values() for name, at in live.places.items()
        }
        self._stages.now = situation.now
        self._submit_all()
        self._pass_time()

    def _heard(self, stored: Stored) -> None:
        self._readers.hear(stored)
        for event in stored.commit.events:
            if isinstance(event, GangAdmitted):
                self._admitted[event.ref.uid] = event
            elif isinstance(event, QuotaTreeAccepted):
                self._warnings = [problems.line(warning) for warning in event.warnings]
            elif isinstance(event, EvictionOrdered):
                self._ordered(event)

    def _ordered(self, event: EvictionOrdered) -> None:
        moves = {move.uid: move for move in event.moves}
        for victim in event.victims:
            live, move = self._live[victim.ref.uid], moves.get(victim.ref.uid)
            if move is not None:
                pods, claimant = [pod.name for pod in live.unit.pods], self._live[event.ref.uid].job.name
                self._moved.append(Moved(live.job.name, pods, claimant, list(move.before), list(move.after)))
                continue
            self._evictions.append(
                Eviction(
                    job=live.job.name,
                    pods=[pod.name for pod in live.unit.pods],
                    claimant=self._live[event.ref.uid].job.name,
                    rule="preempt" if victim.priority is not None else "reclaim",
                    queue=live.job.queue,
                    quota=event.path or event.queue,
                    resource=event.resource or "nodes",
                )
            )

    # --- what is there ----------------------------------------------------------------------------------------

    def _next_rv(self) -> int:
        self._rv += 1
        return self._rv

    def _watch(self, events: list[Event]) -> None:
        self._stages.report(WATCHER, events)

    def _adopt(self) -> None:
        """The running units, in the order of their start."""
        running = [(unit, job) for job in self._situation.jobs for unit in job.units if unit.running]
        for unit, job in sorted(running, key=lambda pair: (pair[0].started, pair[0].created)):
            self._stages.now = max(self._stages.now, min(unit.started, self._situation.now))
            live = self._enlist(unit, job)
            events = self._start(live, {pod.name: PodWhereabouts(pod.node, pod.devices) for pod in unit.pods})
            self._watch(events)
            self._stages.step("quota_accountant")  # At the time it started; no job waits until all are charged.
        self._settle()

    def _submit_all(self) -> None:
        """The pending units. Where gangs may grow, in order of priority: the gangs first, then the joining pods."""
        pending = [(unit, job) for job in self._situation.jobs for unit in job.units if not unit.running]
        if all(unit.core for unit, _ in pending):
            self._submit(pending)
            self._join()
            return
        for priority in sorted({job.priority for _, job in pending}, reverse=True):
            here = [(unit, job) for unit, job in pending if job.priority == priority]
            self._submit([(unit, job) for unit, job in here if unit.core])
            self._join(priority)

    def _join(self, least: int | None = None) -> None:
        """Pods join gangs that run, of jobs with at least this priority; no pod more often than MAX_JOINS times."""
        self._submit(
            [
                (unit, job)
                for job in self._situation.jobs
                for unit in job.units
                if not unit.core
                and (least is None or job.priority >= least)
                and unit.uid not in self._units
                and self._runs(job)
                and self._joined.get(unit.uid, 0) < MAX_JOINS
            ]
        )

    def _runs(self, job: SituationJob) -> bool:
        """Whether the least a job starts with runs."""
        core = self._units.get(job.units[0].uid)
        return core is not None and bool(core.places)

    def _submit(self, units: Iterable[tuple[SituationUnit, SituationJob]]) -> None:
        events: list[Event] = []
        for unit, job in units:
            events.append(WorkloadObserved(workload=self._enlist(unit, job).workload))
        if events:
            self._watch(events)
            self._settle()

    def _enlist(self, unit: SituationUnit, job: SituationJob) -> LiveUnit:
        times = self._joined[unit.uid] = self._joined.get(unit.uid, 0) + 1
        uid = unit.uid if times == 1 else f"{unit.uid} ({times})"
        live = LiveUnit(unit, job, uid, self._next_rv())
        self._live[uid] = self._units[unit.uid] = live
        return live

    # --- what the cluster does --------------------------------------------------------------------------------

    def _settle(self) -> None:
        self._stages.settle(self._act)

    def _pass_time(self) -> None:
        until = self._stages.now + SETTLING_MS
        self._join()  # A gang that has moved meanwhile has lost the pods beyond its minimum.
        while (deadline := self._stages.next_deadline()) is not None and deadline[0] <= until:
            self._stages.now = max(self._stages.now, deadline[0])
            self._settle()
            self._join()

    def _act(self) -> bool:
        """Carry out what is ordered; whether anything was."""
        orders = list(self._stages.orders.outstanding.values())
        facts: list[Event] = []
        effects: list[Event] = []
        for order in orders:
            live = self._live[order.ref.uid]
            if self._units.get(live.unit.uid) is not live:
                continue  # It went with its gang, by an order before.
            live.workload = replace(
                live.workload,
                rv=self._next_rv(),
                generation=live.workload.generation + 1,
                annotated=True,
                intent=str(order.intent),
                queued_at=order.queued_at or live.workload.queued_at,
            )
            effects.append(
                EffectApplied(
                    cause=order.cause,
                    ref=order.ref,
                    attempt=order.attempt,
                    rv=live.workload.rv,
                    action=order.action,
                )
            )
            if order.action == "resume":
                facts += self._start(live, live.assigned(self._admitted[order.ref.uid].placements))
            else:
                facts += self._stop(live)
        self._stages.report(ACTUATOR, effects)
        self._watch(facts)
        return bool(orders)

    def _start(self, live: LiveUnit, places: dict[str, PodWhereabouts]) -> list[Event]:
        """A unit runs: its pods are bound, all at once."""
        live.places, live.starts = places, live.starts + 1
        if live.unit.uid not in self._begun:
            self._begun[live.unit.uid] = None
            self._pods += len(places)
            if self._done is not None:
                self._done(self._pods)
        now = live.workload = replace(
            live.workload, rv=self._next_rv(), phase="running", detail="Running", suspended=False, settled=False
        )
        pods = [PodObserved(pod=live.pod_state(name, pod, self._next_rv())) for name, pod in live.members()]
        return [WorkloadObserved(workload=now), *pods, WorkloadStarted(ref=now.ref, detail="Running")]

    def _stop(self, live: LiveUnit) -> list[Event]:
        """A unit is evicted: the unit waits again, and its pods are gone. With its core the whole job goes."""
        gone = list(self._gone(live))
        now = live.workload = replace(
            live.workload,
            rv=self._next_rv(),
            phase="waiting",
            suspended=True,
            settled=True,
            detail="Suspended",
        )
        events: list[Event] = [*gone, WorkloadObserved(workload=now)]
        if live.unit.core:
            units = (self._units.get(unit.uid) for unit in live.job.units)
            others = [unit for unit in units if unit is not None and unit is not live]
            for other in others:
                if other.places:
                    pods = [pod.name for pod in other.unit.pods]
                    self._evictions.append(self._with_its_gang(live.job, pods))
                events += [*self._gone(other), WorkloadGone(ref=other.workload.ref, rv=self._next_rv())]
                del self._units[other.unit.uid]
        return events

    def _with_its_gang(self, job: SituationJob, pods: list[str]) -> Eviction:
        """The pods of a job that go because the least it starts with was evicted, or moved."""
        last = next((eviction for eviction in reversed(self._evictions) if eviction.job == job.name), None)
        if last is not None:
            return replace(last, pods=pods, rule="gang")
        claimant = next(move.claimant for move in reversed(self._moved) if move.job == job.name)
        return Eviction(job.name, pods, claimant, "gang", job.queue, job.queue, "nodes")

    def _gone(self, live: LiveUnit) -> Iterator[Event]:
        for pod in live.unit.pods if live.places else ():
            yield PodGone(ref=live.pod_ref(pod), rv=self._next_rv())
        live.places = {}

    # --- what came of it --------------------------------------------------------------------------------------

    def answer(self) -> Answer:
        members, waiting = list[PodMember](), list[PodsWaitingAnswer]()
        takers = Takers(self._readers.state.takers)
        left = {(eviction.job, pod) for eviction in self._evictions for pod in eviction.pods}
        left |= {(move.job, pod) for move in self._moved for pod in move.pods}
        for job in self._situation.jobs:
            for unit in job.units:
                live = self._units.get(unit.uid)
                for pod in unit.pods:
                    where = live.places.get(pod.name) if live is not None else None
                    if where is not None:
                        new = self._began.get(f"{job.name}/{pod.name}") != where or (job.name, pod.name) in left
                        members.append(PodMember(job.name, pod.name, where, new))
                if live is None or not live.places:
                    waiting.append(self._waits(job, unit, live, takers))
        return answer_of(self._situation, members, self._evictions, self._moved, waiting, self._warnings)

    def _waits(
        self, job: SituationJob, unit: SituationUnit, live: LiveUnit | None, takers: Takers
    ) -> PodsWaitingAnswer:
        pods = [pod.name for pod in unit.pods]
        if live is None:
            least = len(job.units[0].pods)
            text = f"It joins the gang of {job.name} once the {least} pods that gang starts with run"
            return PodsWaitingAnswer(job.name, pods, "WaitsForGang", text)
        state, uid = self._readers.state, live.workload.ref.uid
        status = job_status(state, uid)
        text = jobs.text(status, state.now, more=more_of(state, uid, status, takers))
        return PodsWaitingAnswer(job.name, pods, status.code, text)
