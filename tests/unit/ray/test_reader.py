"""One head read again and again: what is news, which way it is read, and what a head in trouble is."""

from __future__ import annotations

import pytest
from msgspec import Struct, structs

from kit import rayhead
from kit.rayhead import node, request
from muster.model.keys import Ref
from muster.model.raydemand import RayDemand, RayRoom
from muster.ray import ray_head_pb2 as pb
from muster.ray.decoding import reading_of
from muster.ray.errors import (
    DemandError,
    GarbledError,
    RefusedError,
    SlowError,
    UnreachableError,
)
from muster.ray.heads import Drained, Head
from muster.ray.pace import STALLED_MS
from muster.ray.reader import RETRY_GCS_MS, HeadReader
from muster.ray.reading import Reading

HEAD = Head(Ref("rayclusters", "ns", "c", "uid-1"), 1, "c-head-svc:6379", "http://c-head-svc:8265", "secret")


class At(Struct):
    ms: int = 1_700_000_000_000

    def now(self) -> int:
        return self.ms


class Scripted:
    """A source that says what it is given, and fails where that is an error."""

    def __init__(self) -> None:
        self.says: Reading | Exception = reading_of(rayhead.status())
        self.asked = 0
        self.closed = False
        self.drained: list[str] = []

    async def read(self) -> Reading:
        self.asked += 1
        if isinstance(self.says, Exception):
            raise self.says
        return self.says

    async def drain(self, node_id: str, *, deadline_ms: int, why: str, idle_only: bool = False) -> Drained:
        self.drained.append(node_id)
        return Drained(True)

    async def close(self) -> None:
        self.closed = True


class Scene:
    def __init__(self, known: RayDemand | None = None) -> None:
        self.at, self.gcs, self.http = At(), Scripted(), Scripted()
        self.counted: list[tuple[str, str]] = []
        self.reader = HeadReader(
            HEAD,
            clock=self.at,
            known=known,
            on_read=lambda source, outcome, _seconds: self.counted.append((source, outcome)),
            gcs=self.gcs,  # type: ignore[arg-type]
            dashboard=self.http,
        )

    async def after(self, ms: int) -> RayDemand:
        self.at.ms += ms
        return await self.reader.read()


async def test_a_settled_cluster_says_nothing_new() -> None:
    scene = Scene()
    first = await scene.after(0)
    for i in range(1, 50):
        idle = node("w", status=pb.IDLE, idle_duration_ms=2_000 * i + i % 7)
        scene.gcs.says = reading_of(rayhead.status(idle))
        found = await scene.after(2_000)
        first = found if i == 1 else first
        assert found == first
    assert scene.http.asked == 0


async def test_a_restart_says_nothing_new() -> None:
    scene = Scene()
    scene.gcs.says = reading_of(rayhead.status(node("w", status=pb.IDLE, idle_duration_ms=1_000)))
    known = await scene.after(0)
    again = Scene(known)
    again.gcs.says = reading_of(rayhead.status(node("w", status=pb.IDLE, idle_duration_ms=4_321)))
    assert await again.after(3_300) == known


async def test_the_dashboard_helps_out_and_grpc_is_tried_again() -> None:
    scene = Scene()
    scene.gcs.says = UnreachableError("away")
    await scene.after(0)
    assert scene.counted == [("gcs", "unreachable"), ("dashboard", "ok")]
    await scene.after(2_000)
    assert scene.counted[2:] == [("dashboard", "ok")]
    scene.gcs.says = reading_of(rayhead.status())
    await scene.after(RETRY_GCS_MS)
    assert scene.counted[3:] == [("gcs", "ok")]


async def test_grpc_is_tried_at_once_where_the_dashboard_fails_too() -> None:
    scene = Scene()
    scene.gcs.says = UnreachableError("away")
    await scene.after(0)
    scene.http.says, scene.gcs.says = SlowError("slow"), reading_of(rayhead.status())
    await scene.after(2_000)
    assert scene.counted[2:] == [("dashboard", "slow"), ("gcs", "ok")]


async def test_a_wrong_token_is_not_tried_elsewhere() -> None:
    scene = Scene()
    scene.gcs.says = RefusedError("no")
    assert (await scene.after(0)).trouble == "unauthorized"
    assert scene.http.asked == 0


@pytest.mark.parametrize(
    ("error", "trouble"),
    [(UnreachableError("x"), "unreachable"), (GarbledError("x"), "unreadable"), (KeyError("x"), "unreachable")],
)
async def test_a_head_in_trouble_keeps_what_was_known(error: Exception, trouble: str) -> None:
    scene = Scene()
    scene.gcs.says = reading_of(rayhead.status(node("w"), pending=[request({"CPU": 1})]))
    known = await scene.after(0)
    scene.gcs.says = scene.http.says = error
    assert await scene.after(2_000) == known  # one failure is none
    lost = await scene.after(2_000)
    assert lost == structs.replace(known, trouble=trouble)
    assert await scene.after(2_000) == lost
    assert isinstance(scene.reader.error, DemandError)
    scene.gcs.says = reading_of(rayhead.status(node("w"), pending=[request({"CPU": 1})]))
    assert await scene.after(RETRY_GCS_MS) == known


def ticking(seen: int, *, pending: int = 1, looks: int = 0, launching: int = 0) -> Reading:
    state = pb.AutoscalingState(last_seen_cluster_resource_state_version=seen, autoscaler_state_version=1)
    if launching:
        state.pending_instance_requests.add(ray_node_type_name="small", count=launching)
    waits = [request({"CPU": 1}, pending)] if pending else []
    said = rayhead.status(node("w"), pending=waits, autoscaling=state)
    said.cluster_resource_state.cluster_resource_state_version = looks
    return reading_of(said)


async def test_an_autoscaler_that_makes_no_tick_is_reported() -> None:
    scene = Scene()
    for i in range(30):
        scene.gcs.says = ticking(i)
        assert (await scene.after(5_000)).trouble == ""
    assert (await scene.after(STALLED_MS)).trouble == ""
    assert (await scene.after(1)).trouble == "stalled"
    scene.gcs.says = ticking(99)
    assert (await scene.after(5_000)).trouble == ""


async def test_an_autoscaler_whose_ticks_take_long_has_three_of_them() -> None:
    scene = Scene()
    for number in range(3):
        scene.gcs.says = ticking(number)
        await scene.after(100_000)
    said = await scene.after(300_000)
    assert (said.trouble, said.tick_ms) == ("", 160_000)
    assert (await scene.after(1)).trouble == "stalled"
    scene.gcs.says = ticking(3)
    said = await scene.after(1)
    assert (said.trouble, said.tick_ms) == ("", 320_000), "no tick counts for more than five minutes"
    for number in range(4, 12):
        scene.gcs.says = ticking(number)
        said = await scene.after(5_000)
    assert said.tick_ms == 0, "it is quick again"


@pytest.mark.parametrize(
    ("others", "launching", "trouble"), [(1, 0, ""), (0, 0, "stalled"), (1, 2, "stalled")], ids=["new", "gone", "fails"]
)
async def test_an_autoscaler_whose_reports_are_not_taken_yet(others: int, launching: int, trouble: str) -> None:
    """It was started anew beside its head, and looks at it; one that is gone does not, one that fails has launches."""
    scene = Scene()
    for number in range(10):
        scene.gcs.says = ticking(7, looks=1 + number * (1 + others), launching=launching)
        said = await scene.after(5_000)
    assert said.trouble == trouble


async def test_what_could_not_be_read_is_no_slow_tick() -> None:
    scene = Scene()
    scene.gcs.says = ticking(1)
    await scene.after(5_000)
    scene.gcs.says = scene.http.says = UnreachableError("away")
    await scene.after(100_000)
    scene.gcs.says = ticking(2)
    assert (await scene.after(5_000)).tick_ms == 0


async def test_an_autoscaler_with_nothing_to_do_is_left_alone() -> None:
    scene = Scene()
    scene.gcs.says = ticking(1, pending=0)
    await scene.after(0)
    assert (await scene.after(10 * STALLED_MS)).trouble == ""


async def test_the_first_version_never_stalls() -> None:
    scene = Scene()
    scene.gcs.says = reading_of(rayhead.status(pending=[request({"CPU": 1})]), version="v1")
    await scene.after(0)
    assert (await scene.after(10 * STALLED_MS)).trouble == ""


async def test_a_pod_is_drained_by_its_node() -> None:
    scene = Scene()
    assert not (await scene.reader.drain("w", deadline_ms=1, why="owed")).accepted
    scene.gcs.says = reading_of(rayhead.status(node("w")))
    await scene.after(0)
    assert (await scene.reader.drain("w", deadline_ms=1, why="owed")).accepted
    assert scene.gcs.drained == [b"w".hex()]


async def test_both_ways_are_closed() -> None:
    scene = Scene()
    await scene.reader.close()
    assert scene.gcs.closed and scene.http.closed


def test_a_token_is_not_shown() -> None:
    assert "secret" not in f"{HEAD!r} {HEAD}"


async def test_what_a_new_worker_has_just_taken_does_not_wait_any_more_though_the_head_says_so() -> None:
    """Seen with Ray 2.60: the demand is told for some seconds after the worker has it."""
    scene = Scene()
    old = node("old", totals={"CPU": 1.0}, available_resources={})
    waits = [request({"CPU": 1}, 2)]
    scene.gcs.says = reading_of(rayhead.status(old, pending=waits))
    assert (await scene.reader.read()).room == ()
    new = node("new", totals={"CPU": 1.0}, available_resources={})
    scene.at.ms += 2_000
    scene.gcs.says = reading_of(rayhead.status(old, new, pending=waits))
    assert (await scene.reader.read()).room == (RayRoom("small", {"CPU": 10_000}),)
    scene.at.ms += 2_000
    assert (await scene.reader.read()).room == (RayRoom("small", {"CPU": 10_000}),)
    scene.at.ms += 4_000
    assert (await scene.reader.read()).room == (), "by now it is counted"


async def test_a_worker_that_is_not_new_may_take_and_finish_one_task_after_the_other() -> None:
    scene = Scene()
    waits = [request({"CPU": 1}, 5)]
    for _ in range(30):
        for free in ({}, {"CPU": 1.0}):
            busy = node("old", totals={"CPU": 1.0}, available_resources=free)
            scene.at.ms += 2_000
            scene.gcs.says = reading_of(rayhead.status(busy, pending=waits))
            room = (await scene.reader.read()).room
            assert room == ((RayRoom("small", {"CPU": 10_000}),) if free else ())
