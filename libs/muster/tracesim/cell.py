"""The real deciding stages in virtual time on a cluster of one number: the free amount.

The log, the commits and the stages are the live ones. Only the two ends are simulated: jobs arrive, start when the
actuator's order is carried out, and end; a job takes its request from one pool.
"""

from __future__ import annotations

from heapq import heappop, heappush

from msgspec import Struct

from muster.core.actuation.orders import Outstanding
from muster.events.base import Event
from muster.events.effects import EffectApplied
from muster.events.facts import WorkloadObserved
from muster.events.system import PlacementChosen, RulesetActivated
from muster.model.workload import Workload
from muster.tracesim.facts import Facts
from muster.tracesim.faults import NO_FAULTS, FaultSchedule
from muster.tracesim.machines import Machines, Running, VirtualTime, node_capacities
from muster.tracesim.model import Trace, TraceJob
from muster.tracesim.stages import ACTUATOR, FOR_EVER_MS, MOVES, WATCHER, Sink, Stages
from muster.tracesim.stops import COSTLY, Stops


class LiveJob(Struct):
    """A job that has been submitted and has not ended."""

    job: TraceJob
    workload: Workload
    done: int = 0
    """Work that is saved, ms."""
    stopped: bool = False
    """It has been stopped, once at least."""


class Cell(VirtualTime):
    """A cell and its cluster; ``sink`` gets every commit. ``run`` lets time pass."""

    def __init__(
        self,
        trace: Trace,
        sink: Sink,
        *,
        seed: int = 0,
        stops: Stops = COSTLY,
        faults: FaultSchedule = NO_FAULTS,
    ) -> None:
        super().__init__(trace, Machines(trace, node_capacities(trace), faults, seed), faults)
        self.facts = Facts(trace.cluster)
        self.live: dict[str, LiveJob] = {}
        self._stops = stops
        self._stopping: dict[str, int] = {}
        """evicted job -> when it will have stopped, in the order of the evictions"""
        self._marks: list[tuple[int, int, str]] = []
        """(when, number of the run, job) of the next checkpoint of each that makes any: a heap"""
        self._stages = Stages(sink, f"simulation-{seed}")
        self._pending: list[str] = []
        """Jobs that are resumed and find no room: they start in this order."""
        self._over: list[Workload] = []
        if trace.cluster.ruleset > 1:
            self._stages.append("quota_accountant", "input", [RulesetActivated(number=trace.cluster.ruleset)])
        if trace.cluster.placement != "off":
            # No pod is simulated: the places of a gang are held for all of its life instead.
            chosen = PlacementChosen(mode=trace.cluster.placement, hold_ms=FOR_EVER_MS, moves=MOVES)
            self._stages.append("gang_admitter", "input", [chosen])
        jobs = [job for job in trace.jobs if job.adopted and job.submit <= 0]
        self._watch(self.facts.beginning([self._arrive(job) for job in jobs]))
        self.settle()

    def _watch(self, facts: list[Event]) -> None:
        self._stages.report(WATCHER, facts)

    def settle(self) -> None:
        """Let the stages decide and the actuator act until nothing is due at this moment."""
        self._stages.now = self.now
        self._stages.settle(self._act)

    def next_deadline(self) -> int | None:
        """When a stage may have more to say though nothing happens, ms of the trace."""
        deadline = self._stages.next_deadline()
        return deadline[0] if deadline is not None else None

    def _arrive(self, job: TraceJob) -> WorkloadObserved:
        """A job is there: suspended, or started already by another controller."""
        workload = self.facts.running_already(job) if job.adopted else self.facts.submitted(job)
        self.live[job.id] = LiveJob(job, workload)
        if job.adopted:
            self._pending.append(job.id)
        return WorkloadObserved(workload=workload)

    # --- the cluster ------------------------------------------------------------------------------------------

    def _act(self) -> bool:
        """Carry out what the actuator has outstanding; whether anything was."""
        state = self._stages.orders
        if not state.outstanding or self.faults.answered(self.now) > self.now:
            return False
        effects: list[Event] = []
        seen: list[Event] = []
        for order in list(state.outstanding.values()):
            live = self.live[order.ref.uid]
            if order.action == "resume":
                self._resume(live, order)
            else:
                self._suspend(live, order)
            seen.append(WorkloadObserved(workload=live.workload))
            effects.append(
                EffectApplied(
                    cause=order.cause,
                    ref=order.ref,
                    attempt=order.attempt,
                    rv=live.workload.rv,
                    action=order.action,
                )
            )
        self._stages.report(ACTUATOR, effects)
        self._watch(seen + self._start_pending())
        return True

    def _resume(self, live: LiveJob, order: Outstanding) -> None:
        live.workload = self.facts.starting(live.workload, str(order.intent), order.queued_at)
        self._pending.append(live.job.id)

    def _suspend(self, live: LiveJob, order: Outstanding) -> None:
        """The job is evicted, and holds its resources until it has stopped."""
        uid = live.job.id
        if uid in self._pending:
            self._pending.remove(uid)
        elif uid in self.machines.running and self._stops.stopping:
            self._stopping[uid] = self.now + self._stops.stopping
            live.workload = self.facts.stopping(live.workload, str(order.intent), order.queued_at)
            return
        elif uid in self.machines.running:
            self._save(live, self.machines.stop(uid))
        live.workload = self.facts.suspended(live.workload, str(order.intent), order.queued_at)

    def _save(self, live: LiveJob, run: Running) -> None:
        live.done += self._stops.kept(live.job.id, self.now - run.began, run.idle)
        live.stopped = True

    def _have_stopped(self) -> list[Event]:
        """Evicted jobs that have stopped by now."""
        events: list[Event] = []
        for uid in [uid for uid, at in self._stopping.items() if at <= self.now]:
            del self._stopping[uid]
            live = self.live.get(uid)
            if live is not None and uid in self.machines.running:
                self._save(live, self.machines.stop(uid))
                live.workload = self.facts.rests(live.workload)
                events.append(WorkloadObserved(workload=live.workload))
        return events

    def _marked(self) -> list[Event]:
        """The checkpoints of this moment, as the jobs note them on their objects."""
        events: list[Event] = []
        while self._marks and self._marks[0][0] <= self.now:
            at, number, uid = heappop(self._marks)
            run, live = self.machines.running.get(uid), self.live.get(uid)
            if run is not None and live is not None and run.number == number and uid not in self._stopping:
                live.workload = self.facts.checkpointed(live.workload, at)
                events.append(WorkloadObserved(workload=live.workload))
                heappush(self._marks, (at + (self._stops.interval(uid) or 0), number, uid))
        return events

    def next_happening(self) -> int | None:
        """When a job has stopped, or makes a checkpoint, ms of the trace."""
        times = [*self._stopping.values(), *(mark[0] for mark in self._marks[:1])]
        return min(times, default=None)

    def _start_pending(self) -> list[Event]:
        """Start, in order, what is resumed and finds room."""
        events: list[Event] = []
        left: list[str] = []
        for uid in self._pending:
            live = self.live[uid]
            remaining = None if live.job.duration is None else live.job.duration - live.done
            idle = self._stops.restart if live.stopped else 0
            if self.machines.start(uid, live.job.request, self.now, remaining, idle):
                if interval := self._stops.interval(uid):
                    run = self.machines.running[uid]
                    heappush(self._marks, (self.now + idle + interval, run.number, uid))
                live.workload, started = self.facts.running(live.workload)
                events += started
            else:
                left.append(uid)
        self._pending = left
        return events

    def _change_nodes(self) -> list[Event]:
        """The present effect of a fault: nodes go or return. Jobs on lost nodes start again when they can; those that
        were stopping have stopped.
        """
        change = self.machines.change(self.now)
        if change is None:
            return []
        events: list[Event] = [self.facts.node(name, ready=False) for name in change.lost]
        events += [self.facts.node(name) for name in change.back]
        for uid in change.stopped:
            live = self.live[uid]
            self._save(live, self.machines.forget(uid))
            if self._stopping.pop(uid, None) is not None:
                live.workload = self.facts.rests(live.workload)
            else:
                live.workload = self.facts.lost(live.workload)
                self._pending.append(uid)
            events.append(WorkloadObserved(workload=live.workload))
        return events

    # --- time -------------------------------------------------------------------------------------------------

    def moment(self, arrivals: list[TraceJob]) -> None:
        self._stages.now = self.now
        facts: list[Event] = [self.facts.gone(workload) for workload in self._over]
        self._over.clear()
        for uid in self.machines.ended(self.now):
            workload, ended = self.facts.finished(self.live.pop(uid).workload)
            facts += ended
            self._over.append(workload)
            self.ended += 1
        facts += self._have_stopped()
        facts += self._marked()
        facts += self._change_nodes()
        for job in arrivals:
            if job.id not in self.live:  # What ran from the beginning was there before the first listing ended.
                facts.append(self._arrive(job))
        self._watch(facts + self._start_pending())
        self.settle()

    def deadline(self) -> None:
        self.settle()

    def unfinished(self) -> bool:
        return bool(self.live)
