"""Simulation: the real stages on a simulated cluster, in virtual time, without an event loop.

Everything a live system does between the cluster and the log happens here by function calls: observations become
facts through the watcher's own code, decisions are cut into commits, admissions become the actuator's own fenced
patches. ``Disorder`` says what goes wrong on the way; all of it is drawn from one seed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
from msgspec import Struct

from muster.core.actuation import provisioning
from muster.core.actuation.answers import Answer, Reread, Retry, applied, message_of
from muster.core.actuation.asking import Asking
from muster.core.actuation.bind import Bind, after_binding, binding_for, read_binding
from muster.core.actuation.intents import Actuator, ActuatorState, Known, Outstanding
from muster.core.actuation.patch import after_reread, patch_for, read_answer
from muster.core.deciders import DECIDERS
from muster.core.objects.registry import SHARD_OF, WATCHED, required_of, shards_of
from muster.core.stage import Folder, Stage, StageState, next_commit
from muster.core.watching.watcher import Watcher
from muster.core.workloads.registry import KINDS
from muster.events.base import Event
from muster.events.envelope import MAX_EVENTS, Commit, CommitKind, Stored, decode_commit, encode_commit
from muster.events.facts import KindsConfigured, Synced, SyncStarted
from muster.events.system import Genesis, LeaderStarted, PlacementChosen, TimeReached
from muster.model.api import JSON_PATCH, PODS
from muster.model.keys import Ref
from muster.runtime.snapshotting import decode_state, encode_state
from muster.sim.apiserver.store import Change
from muster.sim.world import SimCluster


class Disorder(Struct, frozen=True, kw_only=True):
    """Chances of what goes wrong, each per opportunity; all zero is a perfect world."""

    late: float = 0.0
    """A stage's decision is stored only after other commits: they lie in the gap."""
    crash: float = 0.0
    """A stage starts anew, from a snapshot or from the beginning of the log."""
    unseen: float = 0.0
    """An observation waits until later; a newer state of the object may take its place."""
    repeat: float = 0.0
    """A fact is stored twice."""
    lost_answer: float = 0.0
    """A patch is carried out and its answer lost: it is sent again."""
    stale_patch: float = 0.0
    """A patch is built now and sent much later, by an actuator that was paused in between."""
    outage: float = 0.0
    """The API server takes no patch this time."""


class _Seat:
    """One stage: its class, its state, and the last sequence it appended."""

    def __init__(self, stage: Stage[Any]) -> None:
        self.stage = stage
        self.folder = Folder(stage)
        self.state: StageState = stage.initial()
        self.last_own = 0
        self.epoch = 0

    def fold(self, stored: Stored) -> None:
        self.folder.fold(self.state, stored.seq, stored.commit)


class Simulation:
    """A cell and its cluster. ``log`` grows; ``step`` and ``advance`` move things along."""

    def __init__(
        self,
        cluster: SimCluster,
        *,
        seed: int = 0,
        disorder: Disorder | None = None,
        isolate: bool = True,
        kinds: tuple[str, ...] = ("RayJob",),
        placement: PlacementChosen | None = None,
    ) -> None:
        """``placement``: how gangs are placed; not at all where there is none."""
        self.cluster = cluster
        self.rng = Random(f"simulation-{seed}")  # noqa: S311 -- repeatable on purpose
        self.disorder = disorder or Disorder()
        self.log: list[Stored] = []
        self.on_commit: Callable[[Stored], None] | None = None
        self._isolate = isolate
        self._kinds = kinds
        self._count = 0
        self.seats: dict[str, _Seat] = {name: _Seat(make()) for name, make in DECIDERS.items()}
        self.seats["actuator"] = _Seat(Actuator())
        self._watchers = {shard: Watcher(shard, kinds) for shard in shards_of(kinds)}
        for shard, watcher in self._watchers.items():
            self.seats[f"watcher/{shard}"] = _Seat(watcher)
        self._changed: dict[str, dict[str, Change]] = {shard: {} for shard in self._watchers}
        """shard -> uid -> newest change not reported yet"""
        self._paused: deque[tuple[Outstanding, bytes]] = deque()
        """patches built by an actuator that was paused before it sent them"""
        self._append("genesis", "0", "input", [Genesis(log_id=f"simulation-{seed}", generation=1)])
        for key in self.seats:
            self._take_over(key)
        if placement is not None:
            self._append_as("gang_admitter", "input", [placement])
        self._open()

    # --- the log ----------------------------------------------------------------------------------------------

    def _append(
        self,
        stage: str,
        shard: str,
        kind: CommitKind,
        events: list[Event],
        *,
        in_seq: int | None = None,
        epoch: int = 0,
    ) -> int:
        self._count += 1
        commit = Commit(
            commit_id=f"sim-{self._count}",
            stage=stage,
            shard=shard,
            kind=kind,
            at=self.cluster.clock.now(),
            epoch=epoch,
            in_seq=len(self.log) if in_seq is None else in_seq,
            events=tuple(events),  # type: ignore[arg-type]
        )
        if self._isolate:
            commit = decode_commit(encode_commit(commit))
        stored = Stored(len(self.log) + 1, commit)
        self.log.append(stored)
        for seat in self.seats.values():
            seat.fold(stored)
        if self.on_commit is not None:
            self.on_commit(stored)
        return stored.seq

    def _append_as(self, key: str, kind: CommitKind, events: list[Event], in_seq: int | None = None) -> None:
        stage, _, shard = key.partition("/")
        seat = self.seats[key]
        seat.last_own = self._append(stage, shard or "0", kind, events, in_seq=in_seq, epoch=seat.epoch)

    def _take_over(self, key: str) -> None:
        self.seats[key].epoch = 0
        self._append_as(key, "input", [LeaderStarted(process="simulation")])
        self.seats[key].epoch = self.seats[key].last_own

    # --- the cluster ------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Open the watch epoch: report everything that exists, then say that it was everything."""
        server = self.cluster.server
        if self._kinds != StageState().kinds:
            configured = KindsConfigured(kinds=self._kinds, required=required_of(self._kinds))
            self._append_as("watcher/elasticquotatrees", "input", [configured])
        for shard, watcher in self._watchers.items():
            row = watcher.row
            self._append_as(f"watcher/{shard}", "input", [SyncStarted(kinds=(shard,))])
            for found in server.store.table(row.resource).objects.values():
                self._observe(Change("ADDED", int(found["metadata"]["resourceVersion"]), row.resource, found, None))
            server.subscribe(self._observe, row.resource)
        self._report(everything=True)
        for shard in self._watchers:
            self._append_as(f"watcher/{shard}", "input", [Synced(kind=shard)])

    def _observe(self, change: Change) -> None:
        row = WATCHED[SHARD_OF[change.resource]]
        meta = change.object["metadata"]
        if row.namespace and meta.get("namespace", "") != row.namespace:
            return
        if row.name and meta["name"] != row.name:
            return
        if row.label_selector:
            key, _, value = row.label_selector.partition("=")
            if (meta.get("labels") or {}).get(key) != value:
                return
        self._changed[row.shard].pop(meta["uid"], None)
        self._changed[row.shard][meta["uid"]] = change

    def _report(self, *, everything: bool = False) -> bool:
        """Report what has changed; some of it later, where the disorder wants it so."""
        reported = False
        for shard, changed in self._changed.items():
            facts: list[Event] = []
            for uid in list(changed):
                if not everything and self._happens(self.disorder.unseen):
                    continue
                facts += self._facts(shard, changed.pop(uid))
                if len(facts) >= MAX_EVENTS - 2:
                    self._append_as(f"watcher/{shard}", "input", facts)
                    facts, reported = [], True
            if facts:
                self._append_as(f"watcher/{shard}", "input", facts)
                reported = True
                if self._happens(self.disorder.repeat):
                    self._append_as(f"watcher/{shard}", "input", facts)
        return reported

    def _facts(self, shard: str, change: Change) -> list[Event]:
        watcher, state = self._watchers[shard], self.seats[f"watcher/{shard}"].state
        meta = change.object["metadata"]
        ref = Ref(watcher.kind, meta.get("namespace", ""), meta["name"], meta["uid"])
        if change.type == "DELETED":
            return watcher.vanished(state, ref, change.version)  # type: ignore[arg-type]
        return watcher.observe(state, ref, change.version, msgspec.json.encode(change.object))  # type: ignore[arg-type]

    # --- the stages -------------------------------------------------------------------------------------------

    def _happens(self, chance: float) -> bool:
        return chance > 0 and self.rng.random() < chance

    def _decide(self, key: str) -> bool:
        """Let a stage decide and commit, or reach its deadline; whether it did anything."""
        seat = self.seats[key]
        if self._happens(self.disorder.crash):
            self._restart(key)
        due = next_commit(seat.stage, seat.state)
        if due:
            in_seq = len(self.log)
            if self._happens(self.disorder.late):
                self._something_else(key)
            self._append_as(key, "decision", due, in_seq)
            return True
        deadline = seat.stage.next_deadline(seat.state)
        now = self.cluster.clock.now()
        if deadline is not None and seat.state.now < deadline <= now:
            self._append_as(key, "input", [TimeReached(at=now)])
            return True
        return False

    def _something_else(self, but: str) -> None:
        """Time passes and other commits come in between a decision and its storing."""
        for _ in range(self.rng.randrange(1, 4)):
            self.cluster.clock.set(self.cluster.clock.now() + self.rng.randrange(2_000))
            self.cluster.step()
            self._report()
            other = self.rng.choice([key for key in DECIDERS if key != but])
            due = next_commit(self.seats[other].stage, self.seats[other].state)
            if due:
                self._append_as(other, "decision", due)
            self._act()

    def _restart(self, key: str) -> None:
        """The stage's process dies; another takes over, from a snapshot of some moment or from the beginning."""
        seat = self.seats[key]
        fresh = _Seat(seat.stage)
        if self.rng.random() < 0.5:
            fresh.state = decode_state(encode_state(seat.state), type(seat.state))
        else:
            for stored in self.log:
                fresh.fold(stored)
        fresh.last_own = seat.last_own
        self.seats[key] = fresh
        self._take_over(key)

    # --- the actuator -----------------------------------------------------------------------------------------

    def _act(self) -> bool:
        """Carry out what is outstanding; effects are stored. Whether anything was answered."""
        seat = self.seats["actuator"]
        state: ActuatorState = seat.state  # type: ignore[assignment]
        effects: list[Event] = []
        if self._paused and self._happens(0.5):
            self._send(*self._paused.popleft())
        for order in list(state.outstanding.values()):
            if self._happens(self.disorder.outage):
                continue
            known = state.known.get(order.ref.uid, Known())
            if self._happens(self.disorder.stale_patch):
                self._paused.append((order, patch_for(order, known)))
            effect = self._carry_out(order, known, state.seq)
            if effect is not None:
                effects.append(effect)
        for bind in list(state.binds.values()):
            effect = None if self._happens(self.disorder.outage) else self._bind(bind)
            if effect is not None:
                effects.append(effect)
        for each in list(state.asking.values()):
            effect = None if self._happens(self.disorder.outage) else self._ask(each)
            if effect is not None:
                effects.append(effect)
        for start in range(0, len(effects), MAX_EVENTS):
            self._append_as("actuator", "input", effects[start : start + MAX_EVENTS])
        return bool(effects)

    def _carry_out(self, order: Outstanding, known: Known, end: int) -> Event | None:
        for _ in range(5):
            answer = self._send(order, patch_for(order, known))
            if self._happens(self.disorder.lost_answer):
                answer = self._send(order, patch_for(order, known))
            if isinstance(answer, Retry):
                return None
            if not isinstance(answer, Reread):
                return answer
            path = KINDS[order.ref.kind].resource.path(order.ref.namespace, order.ref.name)
            found = self.cluster.server.handle("GET", path)
            after = after_reread(order, known, end, found.status, found.body, "patch refused")
            if not isinstance(after, Known):
                return None if isinstance(after, Retry) else after
            known = after
        return None

    def _bind(self, order: Bind) -> Event | None:
        path, body = PODS.path(order.ref.namespace, order.ref.name), binding_for(order)
        times = 2 if self._happens(self.disorder.lost_answer) else 1
        for _ in range(times):
            response = self.cluster.server.handle("POST", f"{path}/binding", body=body)
        answer: object = read_binding(order, response.status, response.body)
        if isinstance(answer, Reread):
            found = self.cluster.server.handle("GET", path)
            answer = after_binding(order, found.status, found.body, message_of(response.body))
        return answer if isinstance(answer, Event) else None

    def _ask(self, order: Asking) -> Event | None:
        times = 2 if self._happens(self.disorder.lost_answer) else 1
        for _ in range(times):
            answer: object = None
            for call in provisioning.calls(order):
                if self._happens(self.disorder.outage):
                    return None  # In between: the rest is made by the next try.
                response = self.cluster.server.handle(call.method, call.path(order.ref.namespace), body=call.body)
                answer = provisioning.read_call(order, call, response.status, response.body)
                if answer is not None:
                    break
        if answer is None:
            return applied(order)
        return answer if isinstance(answer, Event) else None

    def _send(self, order: Outstanding, patch: bytes) -> Answer:
        path = KINDS[order.ref.kind].resource.path(order.ref.namespace, order.ref.name)
        response = self.cluster.server.handle("PATCH", path, body=patch, content_type=JSON_PATCH)
        return read_answer(order, response.status, response.body)

    # --- time -------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Let everything that is due now happen."""
        busy = True
        while busy:
            self.cluster.step()
            busy = self._report()
            for key in DECIDERS:
                while self._decide(key):
                    busy = True
            busy = self._act() or busy

    def advance(self, ms: int) -> None:
        """Let that much time pass, stopping wherever something is due on the way."""
        end = self.cluster.clock.now() + ms
        while True:
            self.settle()
            times = [at for at in (self.cluster.driver.next_at(), self._next_deadline()) if at is not None]
            at = min(times, default=None)
            if self._waiting_for_luck():
                at = min(at, self.cluster.clock.now() + 1000) if at is not None else self.cluster.clock.now() + 1000
            if at is None or at > end:
                break
            self.cluster.clock.set(max(at, self.cluster.clock.now()))
        self.cluster.clock.set(max(end, self.cluster.clock.now()))
        self.settle()

    def _waiting_for_luck(self) -> bool:
        """Whether something was put off by the disorder and must be tried again a moment later."""
        state: ActuatorState = self.seats["actuator"].state  # type: ignore[assignment]
        return bool(state.outstanding or state.binds or state.asking) or any(self._changed.values())

    def _next_deadline(self) -> int | None:
        deadlines = [
            deadline
            for key in DECIDERS
            if (deadline := self.seats[key].stage.next_deadline(self.seats[key].state)) is not None
            and deadline > self.seats[key].state.now
        ]
        return min(deadlines, default=None)

    def heal(self) -> None:
        """Nothing goes wrong from now on."""
        self.disorder = Disorder()
