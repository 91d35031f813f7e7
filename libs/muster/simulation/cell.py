"""The real deciding stages in virtual time on a cluster of one number: how much is free.

The log, the commits and the stages are the ones that run live. Simulated are only the two ends: jobs arrive, start
when the actuator's order is carried out, and end; a job takes what it asks for from one pool.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from muster.core.actuation.intents import Actuator, ActuatorState, Outstanding
from muster.core.deciders import DECIDERS
from muster.core.stage import Folder, Stage, StageState, next_commit
from muster.events.base import Event
from muster.events.effects import EffectApplied
from muster.events.envelope import MAX_EVENTS, Commit, CommitKind, Stored
from muster.events.facts import Synced, SyncStarted, WorkloadObserved
from muster.events.system import (
    Genesis,
    LeaderStarted,
    LogNearlyFull,
    PlacementChosen,
    RulesetActivated,
    TimeReached,
)
from muster.model.workload import Workload
from muster.simulation.facts import EPOCH_MS, Facts
from muster.simulation.faults import NO_FAULTS, Faults
from muster.simulation.machines import Machines, Timeline, node_capacities, saved
from muster.simulation.model import Job, Trace

WATCHER = "watcher"
ACTUATOR = "actuator"
MAX_ROUNDS = 100_000
"""Of decisions at one moment; more means that stages undo each other's work without end."""

FOR_EVER_MS = 100 * 366 * 24 * 3_600_000

SHARED: frozenset[type[Event]] = frozenset({Genesis, LogNearlyFull, RulesetActivated, SyncStarted, Synced})
"""What every stage listens to."""

Sink = Callable[[Stored], None]


class Live(Struct):
    """A job that has been submitted and has not ended."""

    job: Job
    workload: Workload
    done: int = 0
    """Work that is saved, ms."""


class _Seat:
    """One stage and its state; ``stirred`` when something it listens to came since it last had nothing to say."""

    def __init__(self, stage: Stage[Any]) -> None:
        self.stage = stage
        self.folder = Folder(stage)
        self.hears = frozenset(stage.arms()) | SHARED
        self.state: StageState = stage.initial()
        self.epoch = 0
        self.stirred = True

    def fold(self, stored: Stored, kinds: set[type[Event]]) -> None:
        """Fold a commit; ``kinds``: the types of its events. One that means nothing here only moves the state on."""
        if self.hears.isdisjoint(kinds):
            state = self.state
            state.seq = stored.seq
            state.now = max(state.now, stored.commit.at)
            return
        self.folder.fold(self.state, stored.seq, stored.commit)
        self.stirred = True


class Cell(Timeline):
    """A cell and its cluster; ``sink`` gets every commit. ``run`` lets time pass."""

    def __init__(
        self,
        trace: Trace,
        sink: Sink,
        *,
        seed: int = 0,
        checkpoint: int | None = None,
        faults: Faults = NO_FAULTS,
    ) -> None:
        """``checkpoint``: ms between two savings of a job's work; None: it is never saved."""
        super().__init__(trace, Machines(trace, node_capacities(trace), faults, seed), faults)
        self.facts = Facts(trace.cluster)
        self.live: dict[str, Live] = {}
        self._sink = sink
        self._checkpoint = checkpoint
        self._seq = 0
        self._deciders = {name: _Seat(make()) for name, make in DECIDERS.items()}
        self._actuator = _Seat(Actuator())
        self._seats = [*self._deciders.values(), self._actuator]
        self._epochs = {WATCHER: 0}
        self._pending: list[str] = []
        """Jobs that are resumed and find no room: they start in this order."""
        self._over: list[Workload] = []
        self._append("genesis", "0", "input", [Genesis(log_id=f"simulation-{seed}", generation=1)])
        for name in (WATCHER, ACTUATOR, *self._deciders):
            self._epochs[name] = 0
            self._epochs[name] = self._append(name, "0", "input", [LeaderStarted(process="simulation")])
        if trace.cluster.ruleset > 1:
            self._append("quota_accountant", "0", "input", [RulesetActivated(number=trace.cluster.ruleset)])
        if trace.cluster.placement != "off":
            # No pod is simulated: the places of a gang are held for all of its life instead.
            chosen = PlacementChosen(mode=trace.cluster.placement, hold_ms=FOR_EVER_MS)
            self._append("gang_admitter", "0", "input", [chosen])
        self._watch(self.facts.beginning())
        self.settle()

    # --- the log ----------------------------------------------------------------------------------------------

    def _append(self, stage: str, shard: str, kind: CommitKind, events: list[Event]) -> int:
        in_seq = self._seq
        self._seq += 1
        commit = Commit(
            commit_id=f"{stage}-{self._seq}",
            stage=stage,
            shard=shard,
            kind=kind,
            at=EPOCH_MS + self.now,
            epoch=self._epochs.get(stage, 0) if stage != "genesis" else 0,
            in_seq=in_seq,
            events=tuple(events),  # type: ignore[arg-type]
        )
        stored = Stored(self._seq, commit)
        kinds: set[type[Event]] = {type(event) for event in events}
        for seat in self._seats:
            seat.fold(stored, kinds)
        self._sink(stored)
        return self._seq

    def _watch(self, facts: list[Event]) -> None:
        for start in range(0, len(facts), MAX_EVENTS):
            self._append(WATCHER, "0", "input", facts[start : start + MAX_EVENTS])

    # --- the stages -------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Let the stages decide and the actuator act until nothing is due at this moment."""
        for _ in range(MAX_ROUNDS):
            decided = [name for name, seat in self._deciders.items() if self._decide(name, seat)]
            if not self._act() and not decided:
                return
        raise AssertionError(f"after {MAX_ROUNDS} rounds at {self.now} ms the stages still decide")

    def _decide(self, name: str, seat: _Seat) -> bool:
        deadline = seat.stage.next_deadline(seat.state)
        now = EPOCH_MS + self.now
        if deadline is not None and seat.state.now < deadline <= now:
            self._append(name, "0", "input", [TimeReached(at=now)])
            seat.stirred = True
        if not seat.stirred:
            return False
        seat.stirred = False
        due = next_commit(seat.stage, seat.state)
        if not due:
            return False
        self._append(name, "0", "decision", due)
        seat.stirred = True
        return True

    def next_deadline(self) -> int | None:
        """When a stage may have more to say though nothing happens, ms of the trace."""
        found = []
        for seat in self._deciders.values():
            deadline = seat.stage.next_deadline(seat.state)
            if deadline is not None and deadline > seat.state.now:
                found.append(deadline - EPOCH_MS)
        return min(found, default=None)

    # --- the cluster ------------------------------------------------------------------------------------------

    def _act(self) -> bool:
        """Carry out what the actuator has outstanding; whether anything was."""
        state: ActuatorState = self._actuator.state  # type: ignore[assignment]
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
        for start in range(0, len(effects), MAX_EVENTS):
            self._append(ACTUATOR, "0", "input", effects[start : start + MAX_EVENTS])
        self._watch(seen + self._start_pending())
        return True

    def _resume(self, live: Live, order: Outstanding) -> None:
        live.workload = self.facts.starting(live.workload, str(order.intent), order.queued_at)
        self._pending.append(live.job.id)

    def _suspend(self, live: Live, order: Outstanding) -> None:
        """It stops at once, and keeps what it saved last."""
        uid = live.job.id
        if uid in self.machines.running:
            run = self.machines.stop(uid)
            live.done = saved(live.done, self.now - run.began, self._checkpoint)
        elif uid in self._pending:
            self._pending.remove(uid)
        live.workload = self.facts.suspended(live.workload, str(order.intent), order.queued_at)

    def _start_pending(self) -> list[Event]:
        """Start, in order, what is resumed and finds room."""
        events: list[Event] = []
        left: list[str] = []
        for uid in self._pending:
            live = self.live[uid]
            remaining = None if live.job.duration is None else live.job.duration - live.done
            if self.machines.start(uid, live.job.request, self.now, remaining):
                live.workload, started = self.facts.running(live.workload)
                events += started
            else:
                left.append(uid)
        self._pending = left
        return events

    def _change_nodes(self) -> list[Event]:
        """What a fault does now: nodes go or come back, and what ran on those that go starts again when it can."""
        change = self.machines.change(self.now)
        if change is None:
            return []
        events: list[Event] = [self.facts.node(name, ready=False) for name in change.lost]
        events += [self.facts.node(name) for name in change.back]
        for uid in change.stopped:
            live = self.live[uid]
            run = self.machines.forget(uid)
            live.done = saved(live.done, self.now - run.began, self._checkpoint)
            live.workload = self.facts.lost(live.workload)
            events.append(WorkloadObserved(workload=live.workload))
            self._pending.append(uid)
        return events

    # --- time -------------------------------------------------------------------------------------------------

    def moment(self, arrivals: list[Job]) -> None:
        facts: list[Event] = [self.facts.gone(workload) for workload in self._over]
        self._over.clear()
        for uid in self.machines.ended(self.now):
            workload, ended = self.facts.finished(self.live.pop(uid).workload)
            facts += ended
            self._over.append(workload)
            self.ended += 1
        facts += self._change_nodes()
        for job in arrivals:
            workload = self.facts.submitted(job)
            self.live[job.id] = Live(job, workload)
            facts.append(WorkloadObserved(workload=workload))
        self._watch(facts + self._start_pending())
        self.settle()

    def deadline(self) -> None:
        self.settle()

    def unfinished(self) -> bool:
        return bool(self.live)
