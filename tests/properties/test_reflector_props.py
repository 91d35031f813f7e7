"""Whatever server and network do, a Reflector's consumer ends up with what a fresh list would show."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kit.depth import examples
from kit.scripted import bookmark, error, line, obj
from muster.kube.deltas import Delete, Delta, ListSynced, Upsert
from muster.kube.objects import ObjectMeta
from muster.kube.reflector import Reflector
from muster.model.api import PODS
from muster.ports import ApiResponse, ApiStatusError, ApiUnreachableError

Object = dict[str, Any]
#: {uid: resourceVersion}
State = dict[str, str]

NAMES = ("a", "b", "c", "d")


@dataclass(frozen=True)
class WatchPlan:
    """How one watch goes wrong: after `lines` lines, by `end`; `repeats` tells which lines come twice."""

    lines: int
    end: str
    repeats: tuple[int, ...]
    disorder: int
    lasts_s: float


@dataclass
class Cluster:
    """An ApiTransport to a simulated collection that changes by script while it is read."""

    changes: deque[tuple[str, str]]
    list_faults: deque[str]
    watch_plans: deque[WatchPlan]
    #: How many changes happen before each answer, in turn.
    pace: deque[int]
    now_s: float = 0.0
    rv: int = 10
    uids: int = 0
    objects: dict[str, Object] = field(default_factory=dict)
    history: list[tuple[int, str, Object]] = field(default_factory=list)
    #: Versions up to this one cannot be continued from.
    floor: int = 0
    snapshots: dict[str, tuple[int, list[Object]]] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)
    #: Everything is delivered and nothing more will happen.
    quiet: asyncio.Event = field(default_factory=asyncio.Event)
    #: Distort the order of events; the position of the next watch then proves nothing.
    disorderly: bool = False

    # ---- the world

    def state(self) -> State:
        """What a fresh list would show."""
        return {found["metadata"]["uid"]: found["metadata"]["resourceVersion"] for found in self.objects.values()}

    def step(self) -> None:
        """Let some scripted changes happen."""
        if self.pace:
            self.pace.rotate(-1)
        for _ in range(self.pace[0] if self.pace else 1):
            if self.changes:
                self.change(*self.changes.popleft())

    def change(self, what: str, name: str) -> None:
        match what:
            case "put":
                self._put(name)
            case "remove":
                self._remove(name)
            case "replace":
                self._remove(name)
                self._put(name)
            case "compact":
                self.floor = self.rv
                self.snapshots.clear()

    def _put(self, name: str) -> None:
        self.rv += 1
        held = self.objects.get(name)
        self.uids += held is None
        self.objects[name] = obj(name, self.rv, uid=held["metadata"]["uid"] if held else f"u{self.uids}")
        self.history.append((self.rv, "MODIFIED" if held else "ADDED", self.objects[name]))

    def _remove(self, name: str) -> None:
        if (gone := self.objects.pop(name, None)) is not None:
            self.rv += 1
            self.history.append((self.rv, "DELETED", obj(name, self.rv, uid=gone["metadata"]["uid"])))

    # ---- ApiTransport

    async def request(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, **_rest: Any
    ) -> ApiResponse:
        self.step()
        fault = self.list_faults.popleft() if self.list_faults else ""
        match fault:
            case "unreachable":
                raise ApiUnreachableError("reset")
            case "garbled":
                return ApiResponse(200, b"<html>")
            case "429":
                return ApiResponse(429, b"", 2.0)
            case "500" | "403" | "404":
                return ApiResponse(int(fault), b"")
        query = query or {}
        token = query.get("continue", "")
        if token and token not in self.snapshots:
            return ApiResponse(410, b"")
        rv, items = self.snapshots[token] if token else (self.rv, list(self.objects.values()))
        if not token:
            self.states[str(rv)] = self.state()
        limit = int(query.get("limit", 100))
        rest = f"{rv}/{len(items) - limit}" if len(items) > limit else ""
        if rest:
            self.snapshots[rest] = rv, items[limit:]
        meta = {"resourceVersion": str(rv), "continue": rest}
        return ApiResponse(200, json.dumps({"metadata": meta, "items": items[:limit]}).encode())

    async def watch(self, path: str, *, query: Mapping[str, str], idle_limit_s: float) -> AsyncIterator[bytes]:
        self.step()
        plan = self.watch_plans.popleft() if self.watch_plans else None
        position = int(query["resourceVersion"])
        if position < self.floor:
            raise ApiStatusError(410, "too old resource version")
        if plan is not None and plan.end.startswith("http"):
            raise ApiStatusError(int(plan.end[4:]), "no", 3.0)
        lines = 0
        delivered: list[bytes] = []
        while plan is None or lines < plan.lines:
            self.step()
            pending = [entry for entry in self.history if entry[0] > position]
            if not pending and not self.changes:
                if plan is not None:
                    break
                self.quiet.set()
                await asyncio.Event().wait()
            batch = [line(kind, found) for _, kind, found in pending] or [bookmark(self.rv)]
            position = self.rv
            if self.disorderly and plan is not None:
                batch = batch[plan.disorder % len(batch) :] + batch[: plan.disorder % len(batch)]
            for data in batch:
                if plan is not None and lines >= plan.lines:
                    break
                lines += 1
                delivered.append(data)
                yield data
                if plan is not None and lines in plan.repeats:
                    for again in delivered[-3:]:
                        yield again
        if plan is not None:
            self.now_s += plan.lasts_s
            match plan.end:
                case "drop":
                    raise ApiUnreachableError("reset")
                case "gone":
                    yield error(410, "too old resource version", "Expired")
                case "error":
                    yield error(500, "hiccup")
                case "garbled":
                    yield b"<html>"

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        await asyncio.sleep(0)


@dataclass
class Consumer:
    """Folds deltas and objects to what no consumer should ever see."""

    cluster: Cluster
    faithful: bool
    live: dict[str, ObjectMeta] = field(default_factory=dict)
    reported: set[tuple[str, str]] = field(default_factory=set)
    deltas: int = 0

    def take(self, delta: Delta) -> None:
        self.deltas += 1
        match delta:
            case Upsert(meta, raw):
                held = self.live.get(meta.uid)
                assert held is None or held.resource_version != meta.resource_version, "reported though unchanged"
                rivals = [
                    other.uid for other in self.live.values() if other.name == meta.name and other.uid != meta.uid
                ]
                assert rivals == [], "two objects of one name at a time"
                assert json.loads(raw)["metadata"]["uid"] == meta.uid
                if self.faithful:
                    assert (meta.uid, meta.resource_version) not in self.reported, "reported twice"
                self.reported.add((meta.uid, meta.resource_version))
                self.live[meta.uid] = meta
            case Delete(meta, _):
                assert meta.uid in self.live, "the end of something never reported"
                del self.live[meta.uid]
            case ListSynced(count, _, rv):
                assert count == len(self.live)
                assert self.state() == self.cluster.states[rv], "a list does not leave its own state"

    def state(self) -> State:
        return {uid: meta.resource_version for uid, meta in self.live.items()}


async def consume(consumer: Consumer, seed: int, restarts: deque[int]) -> None:
    """Run reflectors, the next one knowing what the last one reported, until cancelled."""
    cluster = consumer.cluster
    while True:
        reflector = Reflector(
            cluster,
            PODS,
            known=list(consumer.live.values()),
            page_size=2,
            rng=Random(seed),
            clock=lambda: cluster.now_s,
            sleep=cluster.sleep,
        )
        stop_at = consumer.deltas + restarts.popleft() if restarts else None
        async with aclosing(reflector.deltas()) as deltas:
            async for delta in deltas:
                consumer.take(delta)
                if consumer.deltas == stop_at:
                    break
                await asyncio.sleep(0)
            assert reflector.store is not None
        if consumer.deltas == stop_at:
            continue
        return


async def until_quiet(cluster: Cluster, consuming: "asyncio.Task[None]") -> None:
    waiting = asyncio.create_task(cluster.quiet.wait())
    await asyncio.wait({waiting, consuming}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if consuming.done():
        consuming.result()
    assert cluster.quiet.is_set()


async def play(cluster: Cluster, seed: int, restarts: list[int]) -> None:
    """Run the script to its end; then the consumer must hold exactly what exists."""
    consumer = Consumer(cluster, faithful=not cluster.disorderly)
    consuming = asyncio.create_task(consume(consumer, seed, deque(restarts)))
    try:
        await until_quiet(cluster, consuming)
        if cluster.disorderly:
            cluster.quiet.clear()
            consuming.cancel()
            await asyncio.gather(consuming, return_exceptions=True)
            consuming = asyncio.create_task(consume(consumer, seed, deque()))
            await until_quiet(cluster, consuming)
    finally:
        consuming.cancel()
        await asyncio.gather(consuming, return_exceptions=True)
    assert consumer.state() == cluster.state()


# Small examples exercise little here, so sizes have a floor and the common cases the greater weight.
changes = st.lists(
    st.tuples(st.sampled_from(["put"] * 6 + ["remove"] * 2 + ["replace", "compact"]), st.sampled_from(NAMES)),
    min_size=8,
    max_size=40,
)
ends = st.sampled_from(
    ["eof", "drop", "gone", "error", "garbled"] * 3 + ["http410", "http500", "http503", "http403", "http404", "http400"]
)
plans = st.builds(
    WatchPlan,
    lines=st.sampled_from([3, 2, 1, 4, 6, 9, 0]),
    end=ends,
    repeats=st.lists(st.integers(1, 6), max_size=4).map(tuple),
    disorder=st.integers(0, 3),
    lasts_s=st.sampled_from([0.0, 1.0, 150.0]),
)
list_faults = st.lists(st.sampled_from([""] * 6 + ["unreachable", "garbled", "429", "500", "403", "404"]), max_size=12)
pace = st.lists(st.sampled_from([1, 0, 0, 2, 3]), min_size=1, max_size=6).filter(any)


@settings(max_examples=examples(300))
@given(
    changes, list_faults, st.lists(plans, max_size=8), pace, st.integers(0, 3), st.lists(st.integers(1, 6), max_size=2)
)
def test_any_interleaving_of_changes_and_faults_ends_in_a_fresh_list(
    script: list[tuple[str, str]],
    faults: list[str],
    watches: list[WatchPlan],
    steps: list[int],
    seed: int,
    restarts: list[int],
) -> None:
    async def main() -> None:
        await play(Cluster(deque(script), deque(faults), deque(watches), deque(steps)), seed, restarts)

    asyncio.run(main())


@settings(max_examples=examples(200))
@given(changes, list_faults, st.lists(plans, min_size=1, max_size=8), pace, st.integers(0, 3))
def test_events_out_of_order_are_repaired_by_the_next_list(
    script: list[tuple[str, str]], faults: list[str], watches: list[WatchPlan], steps: list[int], seed: int
) -> None:
    async def main() -> None:
        cluster = Cluster(deque(script), deque(faults), deque(watches), deque(steps), disorderly=True)
        await play(cluster, seed, [])

    asyncio.run(main())
