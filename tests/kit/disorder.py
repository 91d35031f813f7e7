"""DisorderedCell: the real stages on a simulated cluster, in virtual time, without an event loop.

Everything a live system does between the cluster and the log happens here by function calls: observations become
facts through the watcher's own code, decisions are cut into commits, admissions become the actuator's own fenced
patches. ``Disorder`` says what goes wrong on the way; all of it is drawn from one seed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import msgspec
from msgspec import Struct

from muster.core.actuation.carrying import Reply, Request, carry_out, first_request, orders_of
from muster.core.actuation.intents import Actuator, ActuatorState, Known
from muster.core.actuation.orders import Order, Outstanding, RetryLater
from muster.core.cell.deciders import DECIDERS
from muster.core.cell.seats import AnySeat, InMemoryCell, Seat
from muster.core.observed.presence import PATIENCE_MS
from muster.core.reading.watched import WATCHED, required_of, shards_of
from muster.core.reading.watcher import Watcher
from muster.core.stage import Stage, StageState
from muster.events.base import Event
from muster.events.envelope import MAX_EVENTS, Commit, CommitKind, Stored, decode_commit, encode_commit
from muster.events.facts import KindsConfigured, Synced, SyncStarted
from muster.events.system import PlacementChosen
from muster.fakecluster.apiserver.store import StoredChange
from muster.fakecluster.world import SimCluster
from muster.model.keys import Ref
from muster.runtime.logkeeping.snapshotting import decode_state, encode_state


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


class DisorderedCell(InMemoryCell[AnySeat]):
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
        self.rng = Random(f"simulation-{seed}")
        self.disorder = disorder or Disorder()
        self.log: list[Stored] = []
        self.on_commit: Callable[[Stored], None] | None = None
        self._isolate = isolate
        self._kinds = kinds
        self._watchers = {shard: Watcher(shard, kinds) for shard in shards_of(kinds)}
        stages: dict[str, Stage[Any]] = {name: make() for name, make in DECIDERS.items()}
        stages |= {"actuator": Actuator(), **{f"watcher/{shard}": each for shard, each in self._watchers.items()}}
        super().__init__({key: Seat(stage) for key, stage in stages.items()}, self._note, turns=DECIDERS)
        self._changed: dict[str, dict[str, StoredChange]] = {shard: {} for shard in self._watchers}
        """shard -> uid -> newest change not reported yet"""
        self._doubted: dict[str, int] = {}
        """uid -> when it was first put off, since its parent did not know it"""
        self._paused: deque[Request] = deque()
        """patches built by an actuator that was paused before it sent them"""
        self.begin(f"simulation-{seed}", "simulation", self.seats)
        if placement is not None:
            self.append("gang_admitter", "input", [placement])
        self._open()

    # --- the log ----------------------------------------------------------------------------------------------

    def kept(self, commit: Commit) -> Commit:
        return decode_commit(encode_commit(commit)) if self._isolate else commit

    def append(self, key: str, kind: CommitKind, events: Iterable[Event], in_seq: int | None = None) -> int:
        self.now = self.cluster.clock.now()
        return super().append(key, kind, events, in_seq)

    def _note(self, stored: Stored) -> None:
        self.log.append(stored)
        if self.on_commit is not None:
            self.on_commit(stored)

    # --- the cluster ------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Open the watch epoch: report everything that exists, then say that it was everything."""
        server = self.cluster.server
        if self._kinds != StageState().kinds:
            configured = KindsConfigured(kinds=self._kinds, required=required_of(self._kinds))
            self.append("watcher/elasticquotatrees", "input", [configured])
        served = {table.kind.resource for table in server.store.tables()}
        for shard, watcher in self._watchers.items():
            row = watcher.row
            self.append(f"watcher/{shard}", "input", [SyncStarted(kinds=(shard,))])
            if row.resource not in served:
                continue
            for found in server.store.table(row.resource).objects.values():
                self._observe(
                    StoredChange("ADDED", int(found["metadata"]["resourceVersion"]), row.resource, found, None)
                )
            server.subscribe(self._observe, row.resource)
        self._report(everything=True)
        for shard, watcher in self._watchers.items():
            absent = watcher.row.resource not in served
            self.append(f"watcher/{shard}", "input", [Synced(kind=shard, absent=absent)])

    def _observe(self, change: StoredChange) -> None:
        row = next(row for row in WATCHED.values() if row.resource == change.resource)
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
                if not everything and (self._happens(self.disorder.unseen) or self._puts_off(shard, changed[uid])):
                    continue
                facts += self._facts(shard, changed.pop(uid))
                if len(facts) >= MAX_EVENTS - 2:
                    self.append(f"watcher/{shard}", "input", facts)
                    facts, reported = [], True
            if facts:
                self.append(f"watcher/{shard}", "input", facts)
                reported = True
                if self._happens(self.disorder.repeat):
                    self.append(f"watcher/{shard}", "input", facts)
        return reported

    def _puts_off(self, shard: str, change: StoredChange) -> bool:
        """As the watcher's runner does: a new object that its parent does not know is looked at a moment later."""
        watcher, state = self._watchers[shard], self.seats[f"watcher/{shard}"].state
        meta = change.object["metadata"]
        ref = Ref(watcher.kind, meta.get("namespace", ""), meta["name"], meta["uid"])
        if change.type == "DELETED" or not watcher.doubtful(state, ref, msgspec.json.encode(change.object)):  # type: ignore[arg-type]
            return False
        now = self.cluster.clock.now()
        return now < self._doubted.setdefault(ref.uid, now) + PATIENCE_MS

    def _facts(self, shard: str, change: StoredChange) -> list[Event]:
        watcher, state = self._watchers[shard], self.seats[f"watcher/{shard}"].state
        meta = change.object["metadata"]
        ref = Ref(watcher.kind, meta.get("namespace", ""), meta["name"], meta["uid"])
        if change.type == "DELETED":
            return watcher.vanished(state, ref, change.version)  # type: ignore[arg-type]
        return watcher.observe(state, ref, change.version, msgspec.json.encode(change.object))  # type: ignore[arg-type]

    # --- the stages -------------------------------------------------------------------------------------------

    def _happens(self, chance: float) -> bool:
        return chance > 0 and self.rng.random() < chance

    def step(self, key: str) -> list[Event]:
        """Let a stage decide and commit, or reach its deadline, until it has nothing more to say."""
        said: list[Event] = []
        while True:
            if self._happens(self.disorder.crash):
                self._restart(key)
            due = self.seats[key].commit_due(self.cluster.clock.now())
            if due is None:
                return said
            kind, events = due
            in_seq = len(self.log)
            if kind == "decision" and self._happens(self.disorder.late):
                self._something_else(key)
            self.append(key, kind, events, in_seq)
            said += events

    def _something_else(self, but: str) -> None:
        """Time passes and other commits come in between a decision and its storing."""
        for _ in range(self.rng.randrange(1, 4)):
            self.cluster.clock.set(self.cluster.clock.now() + self.rng.randrange(2_000))
            self.cluster.step()
            self._report()
            other = self.rng.choice([key for key in DECIDERS if key != but])
            due = self.seats[other].decisions()
            if due:
                self.append(other, "decision", due)
            self._act()

    def _restart(self, key: str) -> None:
        """The stage's process dies; another takes over, from a snapshot of some moment or from the beginning."""
        seat = self.seats[key]
        if self.rng.random() < 0.5:
            fresh: AnySeat = Seat(seat.stage, decode_state(encode_state(seat.state), type(seat.state)))
        else:
            fresh = Seat(seat.stage)
            for stored in self.log:
                fresh.fold(stored)
        self.seats[key] = fresh
        self.lead(key, "simulation")

    # --- the actuator -----------------------------------------------------------------------------------------

    def _act(self) -> bool:
        """Carry out what is outstanding; effects are stored. Whether anything was answered."""
        seat = self.seats["actuator"]
        state: ActuatorState = seat.state
        effects: list[Event] = []
        if self._paused and self._happens(0.5):
            self._send(self._paused.popleft())
        for order in list(orders_of(state)):
            if self._happens(self.disorder.outage):
                continue
            if isinstance(order, Outstanding) and self._happens(self.disorder.stale_patch):
                self._paused.append(first_request(order, state.known.get(order.ref.uid, Known())))
            effect = self._carry_out(order, state)
            if effect is not None:
                effects.append(effect)
        self.report("actuator", effects)
        return bool(effects)

    def _carry_out(self, order: Order, state: ActuatorState) -> Event | None:
        """The actuator's own requests; some are sent twice, and some tries end between two of them."""
        steps = carry_out(order, lambda: state)
        request = next(steps)
        while True:
            reply = self._send(request)
            if request.method != "GET" and self._happens(self.disorder.lost_answer):
                reply = self._send(request)
            try:
                request = steps.send(reply)
            except StopIteration as ended:
                return None if isinstance(ended.value, RetryLater) else ended.value
            if self._happens(self.disorder.outage):
                return None

    def _send(self, request: Request) -> Reply:
        server = self.cluster.server
        answer = server.handle(
            request.method, request.path, request.query, request.body, content_type=request.content_type
        )
        return Reply(answer.status, answer.body)

    # --- time -------------------------------------------------------------------------------------------------

    def settle(self, act: Callable[[], bool] = lambda: False) -> list[Event]:
        """Let everything that is due now happen."""
        self._hear()
        return super().settle(lambda: self._act() | self._hear() | act())

    def _hear(self) -> bool:
        self.cluster.step()
        return self._report()

    def advance(self, ms: int) -> None:
        """Let that much time pass, stopping wherever something is due on the way."""
        end = self.cluster.clock.now() + ms
        while True:
            self.settle()
            deadline = self.next_deadline()
            times = [self.cluster.driver.next_at(), None if deadline is None else deadline[0]]
            at = min((each for each in times if each is not None), default=None)
            if self._waiting_for_luck():
                at = min(at, self.cluster.clock.now() + 1000) if at is not None else self.cluster.clock.now() + 1000
            if at is None or at > end:
                break
            self.cluster.clock.set(max(at, self.cluster.clock.now()))
        self.cluster.clock.set(max(end, self.cluster.clock.now()))
        self.settle()

    def _waiting_for_luck(self) -> bool:
        """Whether something was put off by the disorder and must be tried again a moment later."""
        state: ActuatorState = self.seats["actuator"].state
        return any(True for _ in orders_of(state)) or any(self._changed.values())

    def heal(self) -> None:
        """Nothing goes wrong from now on."""
        self.disorder = Disorder()
