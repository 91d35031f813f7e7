"""``scaleGate`` of Ray clusters: our entry stands while quota refuses growth, where the API can take one entry.

The API server here applies as a real one does: what a manager applied before and does not name now is taken away, and
what somebody else has written stays.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from msgspec import structs

from kit.rayscenes import RayScene
from muster.core.stage import Folder
from muster.kube.scalegates import lacking
from muster.model import api
from muster.model.api import APPLY_PATCH
from muster.model.elastic import SIGNAL, Elastic, ScaledGroup
from muster.model.keys import Ref
from muster.model.raydemand import RAY_UNIT, RayDemand, RayPlacementGroup, RayShape
from muster.ports import ApiResponse, ApiStatusError, ApiUnreachableError
from muster.runtime.presenting.objectwriting import ObjectWriter
from muster.runtime.presenting.scalegates import AGAIN_S, GateSignals
from muster.runtime.presenting.there import There
from muster.runtime.runners.hooks import NoHooks
from muster.told.presentation import scalegates
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.objectfolds import cluster_gone, cluster_seen
from muster.told.readmodel.readstate import ReadState
from muster.told.readmodel.touched import Marker, Touched

Obj = dict[str, Any]
OPENAPI = "/openapi/v3/apis/ray.io/v1"
ENTRY = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
BY_NAME = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
BY_GROUP = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["groupName"]}
GATES = {"type": "array", "items": ENTRY, **BY_NAME}


def described(groups: Obj, strategy: Obj) -> Obj:
    """The OpenAPI of a server, as far as it describes RayClusters."""
    one = {"type": "object", "properties": {"scaleStrategy": {"type": "object", "properties": strategy}}}
    spec = {"type": "object", "properties": {"workerGroupSpecs": {"type": "array", "items": one, **groups}}}
    kinds = [{"group": "ray.io", "kind": "RayCluster", "version": "v1"}]
    schema = {"type": "object", "properties": {"spec": spec}, "x-kubernetes-group-version-kind": kinds}
    return {"openapi": "3.0.0", "components": {"schemas": {"io.ray.v1.RayCluster": schema}}}


WITH_BOTH = described(BY_GROUP, {"scaleGate": GATES})
RELEASED = described({}, {"workersToDelete": {"type": "array", "items": {"type": "string"}}})


class ApplyingServer:
    """An ApiTransport with one RayCluster, that of a scene."""

    def __init__(self, cluster: Obj, openapi: Obj) -> None:
        self.cluster = cluster
        self.openapi = openapi
        self.requests: list[str] = []
        self.applied: list[Obj] = []
        self.owned: set[str] = set()
        self.trouble: int | Exception | None = None

    async def request(self, method: str, path: str, **given: Any) -> ApiResponse:
        self.requests.append(f"{method} {path}")
        if path == OPENAPI:
            return ApiResponse(200, json.dumps(self.openapi).encode())
        assert path == api.RAYCLUSTERS.path("a", "one")
        if method == "GET":
            return ApiResponse(200, json.dumps(self.cluster).encode())
        if isinstance(self.trouble, Exception):
            raise self.trouble
        if self.trouble is not None:
            return ApiResponse(self.trouble, b'{"message": "no"}')
        assert (method, given["content_type"]) == ("PATCH", APPLY_PATCH)
        assert given["query"] == {"fieldManager": "muster-scale-gate", "force": "false"}
        return self._apply(json.loads(given["body"]))

    def _apply(self, applied: Obj) -> ApiResponse:
        meta = self.cluster["metadata"]
        assert applied["metadata"] == {"name": "one", "namespace": "a", "uid": "one-uid"} | {
            "resourceVersion": meta["resourceVersion"]
        }
        self.applied.append(applied)
        named = {each["groupName"]: each for each in applied.get("spec", {}).get("workerGroupSpecs", ())}
        for group in self.cluster["spec"]["workerGroupSpecs"]:
            strategy = group.setdefault("scaleStrategy", {})
            mine = named.pop(group["groupName"], {}).get("scaleStrategy", {}).get("scaleGate", [])
            names = {each["name"] for each in mine}
            owned, self.owned = self.owned, names
            kept = [each for each in strategy.get("scaleGate", []) if each["name"] not in owned | names]
            strategy["scaleGate"] = [*kept, *mine]
        assert not named, "a worker group was made"
        return ApiResponse(200, json.dumps(self.cluster).encode())

    def watch(self, path: str, *, query: Mapping[str, str], idle_limit_s: float) -> AsyncIterator[bytes]:
        raise NotImplementedError


class Signals:
    """A scene of one Ray cluster, what the read model makes of it, and the writer."""

    def __init__(self, openapi: Obj = WITH_BOTH) -> None:
        self.scene = RayScene()
        self.server = ApplyingServer(self.scene.cluster, openapi)
        self.touched = Touched()
        model = ReadModel(self.touched)
        self.folder, self.read = Folder(model), model.initial()
        self.folds = 0
        self.writer = GateSignals(self.server, ObjectWriter(self.server, NoHooks(), There(self.server, lambda _: None)))

    @property
    def state(self) -> ReadState:
        for stored in self.scene.bench.log[self.folds :]:
            self.folder.fold(self.read, stored)
        self.folds = len(self.scene.bench.log)
        return self.read

    async def show(self, now: float) -> float | None:
        return await self.writer.show(self.state, "one-uid", now)

    def seen(self) -> bool:
        """The cluster is observed as it is; whether its owner is looked at for it."""
        assert self.state
        self.touched.jobs.clear()
        self.scene.seen()
        return "one-uid" in self.touched.jobs if self.state else False

    def wants(self, more: int) -> None:
        """A placement group of so many workers waits beside the one that runs; the quota has room for three."""
        bundles = (RayShape({"CPU": RAY_UNIT}, more),)
        groups = (RayPlacementGroup("pg", "STRICT_SPREAD", bundles),) if more else ()
        self.scene.bench.now += 1_000  # What was read at the same time is no news.
        self.scene.demands(RayDemand(joined={"small": 1}, placement_groups=groups))

    def denied(self) -> None:
        """It runs what it was granted, wants more, and the quota has no room."""
        self.wants(4)
        assert self.state.records["one-uid"].growth.denied is not None

    @property
    def gates(self) -> list[str]:
        return [each["name"] for each in self.scene.group.get("scaleStrategy", {}).get("scaleGate", [])]


async def test_it_stands_while_growth_is_denied_and_goes_when_nothing_is() -> None:
    play = Signals()
    assert await play.show(0.0) is None
    assert not play.server.requests, "nothing was asked of the server before quota refused anything"
    play.denied()
    assert await play.show(10.0) == AGAIN_S
    assert play.gates == [SIGNAL]
    [applied] = play.server.applied
    assert applied["spec"] == {
        "workerGroupSpecs": [{"groupName": "small", "scaleStrategy": {"scaleGate": [{"name": SIGNAL}]}}]
    }
    assert play.seen(), "what stands on it is a fact"
    assert await play.show(11.0) is None
    assert scalegates.entries_due(play.state, "one-uid") == []
    play.wants(0)
    await play.show(20.0)
    assert play.gates == [], "at once: it is not what was written last"
    assert "spec" not in play.server.applied[-1]
    play.scene.bench.sound()


async def test_those_of_others_stay() -> None:
    play = Signals()
    play.scene.group["scaleStrategy"] = {"scaleGate": [{"name": "example.com/quota"}], "workersToDelete": ["w"]}
    play.denied()
    await play.show(0.0)
    assert play.gates == ["example.com/quota", SIGNAL]
    play.seen()
    play.wants(0)
    await play.show(10.0)
    assert play.scene.group["scaleStrategy"] == {
        "scaleGate": [{"name": "example.com/quota"}],
        "workersToDelete": ["w"],
    }


async def test_nothing_is_written_while_what_is_granted_is_not_asked_for() -> None:
    """An autoscaler that heeds the entry would not use what it was granted."""
    play = Signals()
    play.denied()
    play.scene.group["replicas"] -= 1
    play.scene.seen()
    assert scalegates.entries_due(play.state, "one-uid") == []
    play.scene.group["replicas"] += 1
    assert play.seen()
    assert [wanted for _, wanted in scalegates.entries_due(play.state, "one-uid")] == [("small",)]


async def test_it_is_asserted_again_when_the_autoscaler_took_it_away_once_a_minute() -> None:
    """Ray 2.60 replaces all of scaleStrategy; one that always does so is not written to without end."""
    play = Signals()
    play.denied()
    for times in range(4):
        now = times * AGAIN_S
        assert await play.show(now) == AGAIN_S
        assert play.gates == [SIGNAL], f"time {times}"
        play.seen()
        play.scene.group["scaleStrategy"] = {"workersToDelete": ["w"]}
        assert play.seen(), "that it went is a fact"
        assert await play.show(now + 1.0) == AGAIN_S - 1.0
        assert play.gates == []
    assert len(play.server.applied) == 4


@pytest.mark.parametrize("trouble", (403, 500, ApiUnreachableError("no answer")))
async def test_a_server_that_takes_no_writes_now_is_the_presenters_to_ask_again(trouble: int | Exception) -> None:
    play = Signals()
    play.denied()
    play.server.trouble = trouble
    with pytest.raises((ApiStatusError, ApiUnreachableError)):
        await play.show(0.0)
    play.server.trouble = None
    await play.show(AGAIN_S)
    assert play.gates == [SIGNAL]


@pytest.mark.parametrize("trouble", (409, 422))
async def test_a_write_that_is_refused_is_made_again_a_minute_later(trouble: int) -> None:
    play = Signals()
    play.denied()
    play.server.trouble = trouble
    assert await play.show(0.0) == AGAIN_S
    before = len(play.server.requests)
    assert await play.show(1.0) == AGAIN_S - 1.0, "looked at for another reason"
    assert len(play.server.requests) == before
    play.server.trouble = None
    await play.show(AGAIN_S)
    assert play.gates == [SIGNAL]


async def test_a_cluster_that_is_another_or_goes_is_left_alone() -> None:
    for change in ({"uid": "other"}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}):
        play = Signals()
        play.denied()
        play.scene.cluster["metadata"] |= change
        await play.show(0.0)
        assert not play.server.applied


@pytest.mark.parametrize(
    ("openapi", "missing"),
    (
        (RELEASED, ("workerGroupSpecs is no list by groupName", "workerGroupSpecs[].scaleStrategy has no scaleGate")),
        (described({}, {"scaleGate": GATES}), ("workerGroupSpecs is no list by groupName",)),
        (described(BY_GROUP, {}), ("workerGroupSpecs[].scaleStrategy has no scaleGate",)),
        (described(BY_GROUP, {"scaleGate": {"type": "array", "items": ENTRY}}), ("scaleGate is no list by name",)),
        (
            described(BY_GROUP, {"scaleGate": GATES | {"items": ENTRY | {"required": ["name", "until"]}}}),
            ("an entry of scaleGate needs until",),
        ),
        ({"components": {"schemas": {}}}, ("the OpenAPI of this server does not describe RayClusters",)),
    ),
)
async def test_nothing_is_written_where_one_entry_cannot_be_applied(openapi: Obj, missing: tuple[str, ...]) -> None:
    play = Signals(openapi)
    found = await lacking(play.server)
    assert [said.startswith(part) for said, part in zip(found, missing, strict=True)] == [True] * len(missing)
    play.denied()
    for now in (0.0, 1.0, 2.0):
        assert await play.show(now) is None
    assert play.server.requests == [f"GET {OPENAPI}"] * 2, "asked once, and believed"
    assert play.gates == []


@pytest.mark.parametrize("gates", ("x", {"name": SIGNAL}, [SIGNAL, None, {"name": 7}]))
def test_a_cluster_is_read_whatever_stands_there(gates: Any) -> None:
    play = Signals()
    play.scene.group["scaleStrategy"] = {"scaleGate": gates}
    play.scene.seen()
    assert play.state.scaled["one-uid"].elastic.signalled == ()


def test_the_owner_of_a_cluster_is_looked_at_when_something_else_stands_on_it() -> None:
    state, touched = ReadState(), Touched()
    cluster, group = Ref("RayCluster", "a", "one", "one-uid"), ScaledGroup("small", asked=1, most=1)
    looks = []
    for each in (group, group, structs.replace(group, signalled=True)):
        cluster_seen(state, Marker(touched), cluster, "job-uid", Elastic((each,)))
        looks.append("job-uid" in touched.jobs)
        touched.jobs.clear()
    assert looks == [True, False, True]
    cluster_gone(state, "one-uid", "one-uid")
    assert list(state.scaled) == ["one-uid"], "it has another role"
    cluster_gone(state, "one-uid", "job-uid")
    assert not state.scaled
