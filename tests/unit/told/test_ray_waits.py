"""What waits in a Ray cluster is told by `muster why`, all of it, with what each worker group says to it."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from kit import raydemands
from kit.depth import examples
from kit.rayscenes import RayScene, denied, with_groups
from muster.core.cell.seats import Seat
from muster.events.elastic import GateSet
from muster.model.raydemand import RAY_UNIT, RayConstraint, RayDemand, RayShape
from muster.serving import views
from muster.serving.scope import EVERYTHING, Lens, Scope
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState
from muster.told.status.raywaits import ray_waits
from muster.told.views.gangstory import pods_named
from muster.told.views.story import Story
from muster.told.views.tellings import JobStory
from muster.told.wording import raywords
from muster_cli.render.why import record, story_lines

SPOT = (RayConstraint("market", ("spot",)),)


def cpus(count: float, times: int = 1, **more: Any) -> RayShape:
    return RayShape({"CPU": round(count * RAY_UNIT)}, times, **more)


def read(scene: RayScene) -> ReadState:
    seat = Seat(ReadModel())
    for stored in scene.bench.log:
        seat.fold(stored)
    state = seat.state
    assert isinstance(state, ReadState)
    return state


def story(scene: RayScene) -> JobStory:
    return Story("a/one", state=read(scene)).of("a/one", present=scene.bench.now)


def told(scene: RayScene) -> dict[str, list[str]]:
    [cluster] = story(scene).waits
    return dict(cluster.pieces)


def test_an_actor_its_groups_and_what_each_says() -> None:
    """Quota for one group only, another with other labels, a third without the device."""
    scene = with_groups(
        ("small", 1, {}), ("big", 4, {}), ("spot", 1, {"labels": {"market": "spot"}}), cores=2
    )  # fmt: skip
    decided = scene.demands(RayDemand(version="v2", pending=(cpus(1, 5), cpus(8), cpus(1, 2, selectors=(SPOT,)))))
    [gate] = [event for event in decided if isinstance(event, GateSet)]
    assert told(scene)["5 x CPU 1"][0] == "small: 2 replicas granted, of which 0 have joined"
    scene.gated(gate)
    found = told(scene)
    assert [*found] == ["5 x CPU 1", "1 x CPU 8", "2 x CPU 1 where market is spot"]
    assert [each.partition(":")[0] for each in found["5 x CPU 1"]] == ["small", "big", "spot"]
    assert found["1 x CPU 8"] == [
        "small: too small: CPU 8 is asked for, and one worker offers 1",
        "big: too small: CPU 8 is asked for, and one worker offers 4",
        "spot: too small: CPU 8 is asked for, and one worker offers 1",
    ]
    assert found["2 x CPU 1 where market is spot"][:2] == [
        "small: its nodes do not have these labels",
        "big: its nodes do not have these labels",
    ]
    assert found["5 x CPU 1"][1] == "big: refused: cpu in quota root/a: request 4, max 3, used 3"
    assert found["2 x CPU 1 where market is spot"][2] == "spot: refused: cpu in quota root/a: request 1, max 3, used 3"


def test_the_holders_of_what_refuses_growth_are_named() -> None:
    scene, _ = denied("insufficient_quota")
    wanting = story(scene).standing.wanting
    assert wanting is not None
    assert (wanting.quota, wanting.resource, wanting.request) == ("root/a", "cpu", "4")
    assert [each.job for each in wanting.holders] == ["a/one"]
    [cluster] = story(scene).waits
    [(piece, groups)] = cluster.pieces
    assert piece.startswith("placement group pg (STRICT_SPREAD): 4 x CPU 1")
    assert groups == ["small: refused: cpu in quota root/a: request 4, max 4, used 2"]


def test_a_worker_without_a_node_is_found_by_its_name() -> None:
    scene = RayScene()
    scene.demands(RayDemand(version="v2", joined={}, pending=(cpus(1),)))
    scene.pod("one-small-worker-x", stuck=True)
    [(_, [text])] = story(scene).waits[0].pieces
    assert text.startswith("small: 1 pod without a node: one-small-worker-x: kube-scheduler finds no node for it")
    state = read(scene)
    for wanted in ("one-small-worker-x", "a/one-small-worker-x"):
        [pod] = pods_named(state, wanted, scene.bench.now).values()
        assert (pod.key, pod.job.key) == ("a/one-small-worker-x", "a/one")
        assert "Unschedulable" in pod.text
    assert pods_named(state, "b/one-small-worker-x", scene.bench.now) == {}
    scene.pod("one-small-worker-x")
    [pod] = pods_named(read(scene), "one-small-worker-x", scene.bench.now).values()
    assert pod.text == "Pod one-small-worker-x is on node n"


def test_it_is_in_the_lines_and_in_the_record() -> None:
    scene = RayScene()
    scene.demands(RayDemand(version="v2", pending=(cpus(8),), trouble="unreachable"))
    lines = [str(line) for line in story_lines(story(scene), "Pod x is on node n", width=80)]
    assert "  Pod x is on node n." in lines
    at = lines.index("    1 x CPU 8")
    assert lines[at - 1].startswith("  Waits in RayCluster a/one, as its head said at ")
    assert lines[at + 1] == "      small: too small: CPU 8 is asked for, and one worker offers 1"
    [cluster] = record(story(scene))["waits"]
    assert cluster["text"].endswith("; its head does not answer since")
    assert cluster["pieces"][0]["text"] == "1 x CPU 8"


def test_the_gateway_shows_the_same_to_those_who_may_see_the_job() -> None:
    scene = RayScene()
    scene.demands(RayDemand(version="v2", pending=(cpus(8),)))
    state = read(scene)
    for scope in (EVERYTHING, Scope(frozenset({"a"}), cluster=False)):
        told = views.why(state, Lens(scope, state), views.moment_of(state, 0, live=True), "a/one", "", now=0)
        [cluster] = told.waits
        [piece] = cluster.pieces
        assert cluster.text.startswith("Waits in RayCluster a/one, as its head said at ")
        assert (piece.text, piece.groups) == (
            "1 x CPU 8",
            ["small: too small: CPU 8 is asked for, and one worker offers 1"],
        )


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 100_000), st.booleans())
def test_nothing_that_waits_is_left_out(seed: int, labels: bool) -> None:
    """Of random demands each shape and each placement group is told, with every worker group."""
    case = raydemands.drawn(seed, labels=labels)
    demand, elastic = raydemands.demand_of(case), raydemands.elastic_of(case)
    scene = RayScene()
    scene.demands(demand)
    state = read(scene)
    known = state.scaled["one-uid"]
    state.scaled["one-uid"] = structs.replace(known, elastic=elastic)
    [found] = ray_waits(state, "one-uid")
    alone = [piece.shapes[0] for piece in found.pieces if piece.kind == "alone"]
    assert alone == [*demand.pending]
    gangs = [piece.name for piece in found.pieces if piece.kind == "placement_group"]
    assert gangs == [gang.name for gang in demand.placement_groups]
    for piece in found.pieces:
        assert [fate.group for fate in piece.fates] == [group.name for group in elastic.groups]
        for text in map(raywords.fate, piece.fates):
            assert text, piece
