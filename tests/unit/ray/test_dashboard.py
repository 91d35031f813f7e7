"""The dashboard client, and that it says the same demand as gRPC."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
from aiohttp import web

from kit import rayhead
from kit.rayhead import FakeDashboard
from muster.model.raydemand import RayShape
from muster.ray import dashboard as module
from muster.ray import errors
from muster.ray import ray_head_pb2 as pb
from muster.ray.dashboard import DashboardClient
from muster.ray.decoding import reading_of
from muster.ray.reading import demand_of

NOW = 1_700_000_000_000


@pytest_asyncio.fixture
async def head() -> AsyncIterator[FakeDashboard]:
    async with rayhead.fake_dashboard() as running:
        yield running


@pytest_asyncio.fixture
async def client(head: FakeDashboard) -> AsyncIterator[DashboardClient]:
    made = DashboardClient(head.url, timeout_s=5)
    yield made
    await made.close()


async def test_it_says_the_same_demand_as_grpc(head: FakeDashboard, client: DashboardClient) -> None:
    head.requested = "{'CPU': 4.0}: 2 from request_resources()"
    head.demands = (
        "{'CPU': 1.0}: 12+ pending tasks/actors (2+ using placement groups)\n"
        " {'CPU': 1.0} * 3 (STRICT_SPREAD): 1+ pending placement groups\n"
        " {'GPU': 1.0} * 2 (PACK): 2+ pending placement groups"
    )
    head.groups = [
        rayhead.placement_group("aa", [{"CPU": 1}] * 3),
        rayhead.placement_group("bb", [{"GPU": 1}] * 2),
        rayhead.placement_group("cc", [{"GPU": 2}]),  # the text has one of each strategy only
    ]
    head.raylets = [
        rayhead.raylet("head-pod", "headgroup", head=True),
        rayhead.raylet("w1"),
        rayhead.raylet("w2", state="IDLE", idle_ms=3_000),
        rayhead.raylet("w3", state="DRAINING"),
        {**rayhead.raylet("w4"), "state": "DEAD"},
    ]
    head.totals = [{"node_id": b"w1".hex(), "resources_total": {"CPU_group_" + "a" * 36: 1.0}}]
    head.actors = [{"node_id": b"w3".hex()}, {"node_id": None}]
    by_grpc = rayhead.status(
        rayhead.node("w1", totals={"CPU_group_" + "a" * 36: 1.0}),
        rayhead.node("w2", status=pb.IDLE, idle_duration_ms=3_000),
        rayhead.node("w3", status=pb.DRAINING),
        pending=[rayhead.request({"CPU": 1}, 10)],
        gangs=[
            rayhead.gang("aa", "STRICT_SPREAD", [{"CPU": 1}] * 3),
            rayhead.gang("bb", "PACK", [{"GPU": 1}] * 2),
            rayhead.gang("cc", "PACK", [{"GPU": 2}]),
        ],
        asked=[rayhead.request({"CPU": 4}, 2)],
    )
    expected = demand_of(reading_of(by_grpc, version="v2", actors_on=frozenset({b"w3".hex()})), NOW)
    found = await client.read()
    assert demand_of(found, NOW, expected) == expected
    assert expected.pinned == ("w1", "w3")


async def test_bundles_that_are_placed_are_not_asked_for_again(head: FakeDashboard, client: DashboardClient) -> None:
    group = rayhead.placement_group("aa", [{"CPU": 1}, {"CPU": 1}])
    group["bundles"][0]["node_id"] = "ff"
    head.groups = [group]
    assert (await client.read()).placement_groups[0].bundles == (RayShape({"CPU": 10_000}),)


async def test_tokens(head: FakeDashboard) -> None:
    head.token = "secret"
    for token in ("", "other"):
        client = DashboardClient(head.url, token=token)
        with pytest.raises(errors.RefusedError, match=r"40[13]"):
            await client.read()
        await client.close()
    client = DashboardClient(head.url, token="secret")
    await client.read()
    await client.close()


ANSWERS: dict[str, tuple[Callable[[], web.StreamResponse], type[Exception]]] = {
    "no page": (lambda: web.Response(status=404), errors.UnsupportedError),
    "elsewhere": (
        lambda: web.Response(status=302, headers={"location": "http://127.0.0.1:1/"}),
        errors.UnsupportedError,
    ),
    "broken": (lambda: web.Response(status=502), errors.UnreachableError),
    "odd": (lambda: web.Response(status=418), errors.GarbledError),
    "no json": (lambda: web.Response(text="<html>"), errors.GarbledError),
    "a list": (lambda: web.json_response([1]), errors.GarbledError),
    "failed": (lambda: web.json_response({"result": False, "msg": "no"}), errors.GarbledError),
    "another form": (lambda: web.json_response({"result": True, "data": 7}), errors.GarbledError),
    "no text": (lambda: web.json_response({"result": True, "data": {"clusterStatus": None}}), errors.GarbledError),
    "deep": (lambda: web.Response(text="[" * 100_000), errors.DemandError),
    "huge": (lambda: web.Response(body=b" " * (module.ANSWER_LIMIT_BYTES + 1)), errors.TooLargeError),
}


@pytest.mark.parametrize("kind", ANSWERS)
async def test_answers_that_are_none(head: FakeDashboard, client: DashboardClient, kind: str) -> None:
    head.answers, error = ANSWERS[kind]
    with pytest.raises(error):
        await client.read()


async def test_half_a_list_is_refused(head: FakeDashboard, client: DashboardClient) -> None:
    whole = {"result": True, "data": {"clusterStatus": rayhead.TEXT, "summary": [], "result": {"result": []}}}
    whole["data"]["result"]["partial_failure_warning"] = "one of two agents did not answer"  # type: ignore[index]
    head.answers = lambda: web.json_response(whole)
    with pytest.raises(errors.GarbledError, match="half an answer"):
        await client.read()
    head.answers = lambda: web.Response(text=json.dumps(whole)[:-9])
    with pytest.raises(errors.GarbledError, match="JSON"):
        await client.read()


async def test_a_list_of_actors_that_fails_costs_only_that_list(head: FakeDashboard, client: DashboardClient) -> None:
    head.broken = {"actors": 500}
    assert (await client.read()).actors_on is None, "which is not that there are none"
    head.broken = {"placement_groups": 500}
    with pytest.raises(errors.UnreachableError):
        await client.read()


async def test_a_slow_one_is_given_up(head: FakeDashboard) -> None:
    head.hangs = asyncio.Event()
    client = DashboardClient(head.url, timeout_s=0.05)
    with pytest.raises(errors.SlowError):
        await client.read()
    head.hangs.set()
    await client.close()


async def test_a_lost_one_is_unreachable(head: FakeDashboard, client: DashboardClient) -> None:
    await head.stop()
    with pytest.raises(errors.UnreachableError):
        await client.read()
