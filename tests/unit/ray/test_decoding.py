"""Answers of a head to readings, and readings to demand."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from kit import rayhead
from muster.model.raydemand import RayConstraint, RayDemand, RayIdle, RayPlacementGroup, RayRoom, RayShape
from muster.ray import ray_head_pb2 as pb
from muster.ray.decoding import parse, reading_of
from muster.ray.errors import GarbledError
from muster.ray.reading import Reading, demand_of, in_trouble

NOW = 1_700_000_000_000
CPU = 10_000
PG = "1d6d16e8f36c9bad8dbc1756288a01000000"


def reading(*nodes: pb.NodeState, actors: frozenset[str] | None = None, **fields: object) -> Reading:
    return reading_of(rayhead.status(*nodes, **fields), actors_on=actors)  # type: ignore[arg-type]


def test_every_kind_of_demand_is_read() -> None:
    found = reading(
        pending=[
            rayhead.request({"CPU": 1}, 8),
            rayhead.request({"CPU": 1}, 2, [rayhead.selector()]),  # the same shape, as Ray 2.60 says it
            rayhead.request({"CPU": 1, "GPU": 1, "memory": 2.0**30, "tpu-x": 0.5}),
            rayhead.request({f"CPU_group_{PG}": 1, f"bundle_group_{PG}": 0.001}, 2),  # waits for its placement group
            rayhead.request({}, 3),
        ],
        gangs=[
            rayhead.gang(PG, "STRICT_SPREAD", [{"CPU": 1}] * 3),
            rayhead.gang("00", "PACK", [{"CPU": 1}, {"GPU": 2}]),
        ],
        asked=[rayhead.request({"CPU": 4}, 2), rayhead.request({"GPU": 1})],
    )
    demand = demand_of(found, NOW)
    assert demand.pending == (
        RayShape({"CPU": CPU}, 10),
        RayShape({"CPU": CPU, "GPU": 10_000, "memory": 2**30 * 10_000, "tpu-x": 5_000}),
    )
    assert demand.placement_groups == (
        RayPlacementGroup("00", "PACK", (RayShape({"CPU": CPU}), RayShape({"GPU": 20_000}))),
        RayPlacementGroup(PG, "STRICT_SPREAD", (RayShape({"CPU": CPU}, 3),)),
    )
    assert demand.explicit == (RayShape({"CPU": 4 * CPU}, 2), RayShape({"GPU": 10_000}))
    assert demand.session == rayhead.SESSION


def test_what_chooses_its_nodes_by_labels_is_another_demand() -> None:
    spot = rayhead.selector(("market", pb.LABEL_OPERATOR_IN, ["spot", "cheap"]))
    far = rayhead.selector(("zone", pb.LABEL_OPERATOR_NOT_IN, ["a"]), ("zone", pb.LABEL_OPERATOR_IN, ["b"]))
    odd = rayhead.selector(("zone", pb.LABEL_OPERATOR_UNSPECIFIED, ["b"]))
    pack = rayhead.gang(PG, "PACK", [{"CPU": 1}])
    with_labels = rayhead.request({"CPU": 2}, 1, [spot]).request
    pack.bundle_selectors.append(pb.BundleSelector(resource_requests=[with_labels]))
    found = reading(
        pending=[
            rayhead.request({"CPU": 1}, 2),
            rayhead.request({"CPU": 1}, 3, [spot, far]),
            rayhead.request({}, 4, [odd]),
        ],
        gangs=[pack],
    )
    cheap = (RayConstraint("market", ("cheap", "spot")),)
    elsewhere = (RayConstraint("zone", ("a",), excluded=True), RayConstraint("zone", ("b",)))
    assert found.pending == (
        RayShape({}, 4, ((RayConstraint("zone"),),)),
        RayShape({"CPU": CPU}, 2),
        RayShape({"CPU": CPU}, 3, (cheap, elsewhere)),
    )
    assert found.placement_groups == (RayPlacementGroup(PG, "PACK", (RayShape({"CPU": 2 * CPU}, 1, (cheap,)),)),)


def test_nodes_with_room_for_what_waits_are_told_and_no_others() -> None:
    totals = {"CPU": 4.0, "node:10.0.0.1": 1.0, "object_store_memory": 1e9, f"CPU_group_{PG}": 1.0}
    left = {**totals, "CPU": 2.5}
    found = reading(
        rayhead.node("w1", totals=totals, available_resources=left),
        rayhead.node("w2", totals=totals, available_resources=left),
        rayhead.node("full", totals=totals, available_resources={**totals, "CPU": 0.5}),
        rayhead.node("idle", totals=totals, available_resources=totals, status=pb.IDLE),
        rayhead.node("odd", totals=totals, available_resources={"CPU": float("nan")}),
        pending=[rayhead.request({"CPU": 2})],
    )
    assert demand_of(found, NOW).room == (RayRoom("small", {"CPU": 25_000}, 2),)
    assert demand_of(reading(rayhead.node("w1", totals=totals, available_resources=left)), NOW).room == ()


def test_nodes_are_told_apart_and_the_head_is_no_worker() -> None:
    found = reading(
        rayhead.node("w1"),
        rayhead.node("w2", status=pb.IDLE, idle_duration_ms=4_000),
        rayhead.node("w3", status=pb.DRAINING),
        rayhead.node("w4", status=pb.DEAD),
        rayhead.node("w5", "large", totals={"CPU": 1, f"CPU_group_0_{PG}": 1, f"CPU_group_{PG}": 1}),
        actors=frozenset({b"w1".hex()}),
    )
    demand = demand_of(found, NOW)
    assert demand.joined == {"large": 1, "small": 2}
    assert demand.idle == (RayIdle("w2", "small", NOW - 4_000),)
    assert demand.pinned == ("w1", "w5")
    assert found.node_of("w5").holds == (PG,)  # type: ignore[union-attr]
    assert found.node_of("w4") is None


def test_what_the_autoscaler_launches_is_counted_by_group() -> None:
    autoscaling = pb.AutoscalingState(
        last_seen_cluster_resource_state_version=7,
        autoscaler_state_version=3,
        pending_instance_requests=[pb.PendingInstanceRequest(ray_node_type_name="small", count=2)],
        pending_instances=[pb.PendingInstance(ray_node_type_name="small", instance_id="i")],
        failed_instance_requests=[pb.FailedInstanceRequest(ray_node_type_name="large", count=1, reason="denied")],
        infeasible_resource_requests=[pb.ResourceRequest(resources_bundle={"CPU": 1})],
    )
    found = reading(pending=[rayhead.request({"CPU": 1}, 5)], autoscaling=autoscaling)
    assert found.version == "v2"
    assert found.launching == {"small": 3}
    assert found.failed == (("large", "denied"),)
    # What waits for a grant does not fit within maxReplicas, so the autoscaler calls it infeasible as well.
    assert demand_of(found, NOW).pending == (RayShape({"CPU": CPU}, 5),)


def test_an_idle_worker_keeps_its_time_and_a_new_idleness_has_a_new_one() -> None:
    first = demand_of(reading(rayhead.node("w", status=pb.IDLE, idle_duration_ms=1_000)), NOW)
    later = demand_of(reading(rayhead.node("w", status=pb.IDLE, idle_duration_ms=61_012)), NOW + 60_000, first)
    assert later == first
    again = demand_of(reading(rayhead.node("w", status=pb.IDLE, idle_duration_ms=2_000)), NOW + 120_000, first)
    assert again.idle == (RayIdle("w", "small", NOW + 118_000),)


def test_an_idle_worker_that_drains_has_left_and_is_not_taken_for_busy() -> None:
    first = demand_of(reading(rayhead.node("w", status=pb.IDLE), rayhead.node("v")), NOW)
    drains = demand_of(reading(rayhead.node("w", status=pb.DRAINING), rayhead.node("v")), NOW + 1, first)
    assert (drains.idle, drains.left, drains.joined) == ((), (RayIdle("w", "small", NOW + 1),), {"small": 1})
    gone = demand_of(reading(rayhead.node("v")), NOW + 2_000, drains)
    assert gone.left == drains.left
    assert demand_of(reading(rayhead.node("v")), NOW + 60_001, gone).left == ()
    assert demand_of(reading(rayhead.node("w"), rayhead.node("v")), NOW + 3_000, gone).left == (), "it is used again"
    assert demand_of(reading(rayhead.node("w")), NOW + 2, first).left == (), "one that was busy is no such worker"


def test_where_actors_are_not_said_what_was_known_stays() -> None:
    busy = rayhead.node("w1"), rayhead.node("w2")
    first = demand_of(reading(*busy, actors=frozenset({b"w1".hex()})), NOW)
    assert demand_of(reading(*busy), NOW, first).pinned == ("w1",)
    other_head = demand_of(reading(*busy, session="session_2"), NOW, first)
    assert other_head.pinned == ()


def test_in_trouble_the_rest_is_what_was_known() -> None:
    known = demand_of(reading(rayhead.node("w")), NOW)
    assert in_trouble("unreachable", known).joined == {"small": 1}
    assert in_trouble("unreachable", None) == RayDemand(trouble="unreachable")


@pytest.mark.parametrize(
    "answer",
    [
        pb.GetClusterStatusReply(),
        pb.GetClusterStatusReply(autoscaling_state=pb.AutoscalingState(autoscaler_state_version=1)),
        pb.GetClusterStatusReply(cluster_resource_state=pb.ClusterResourceState()),
    ],
    ids=["empty", "only the autoscaler", "no session"],
)
def test_half_an_answer_is_refused(answer: pb.GetClusterStatusReply) -> None:
    with pytest.raises(GarbledError, match="starting"):
        reading_of(answer)


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(GarbledError, match=r"'DIAGONAL'.*STRICT_SPREAD"):
        reading(gangs=[rayhead.gang("a", "DIAGONAL", [{"CPU": 1}])])


def test_a_huge_answer_is_bounded() -> None:
    pending = [rayhead.request({"CPU": 1, f"r{i}": 1.0}, i + 1) for i in range(10_000)]
    gangs = [rayhead.gang(f"{i:036x}", "PACK", [{"CPU": 1}]) for i in range(2_000)]
    found = reading(pending=pending, gangs=gangs)
    assert len(found.pending) == len(found.placement_groups) == 1_000
    assert found.left_out == 9_000 * 9_001 // 2 + 1_000


@given(st.binary(max_size=300))
def test_no_bytes_do_more_than_be_refused(body: bytes) -> None:
    try:
        reading_of(parse(pb.GetClusterStatusReply(), body, "head"))
    except GarbledError:
        return
    pb.GetClusterStatusReply.FromString(body)


@given(st.data())
def test_no_damaged_answer_does_more_than_be_refused(data: st.DataObject) -> None:
    body = bytearray(
        rayhead.status(
            rayhead.node("w", status=pb.IDLE, idle_duration_ms=5),
            pending=[rayhead.request({"CPU": 1}, 2)],
            gangs=[rayhead.gang(PG, "SPREAD", [{"CPU": 1}])],
        ).SerializeToString()
    )
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        demand_of(reading_of(parse(pb.GetClusterStatusReply(), bytes(body), "head")), NOW)
    except GarbledError:
        return
    except DecodeError:
        pytest.fail("an error of protobuf came through")


def test_what_holds_objects_is_said_while_workers_are_to_go() -> None:
    full, half = {"CPU": 1.0, "object_store_memory": 100.0}, {"CPU": 1.0, "object_store_memory": 60.0}
    nodes = [rayhead.node("a", totals=full, available_resources=half)]
    nodes += [rayhead.node("b", totals=full, available_resources=full)]
    told = rayhead.status(*nodes)
    reading = reading_of(told, version="v2")
    assert demand_of(reading, 1_000, closely=True).holding == ("a",)
    assert demand_of(reading, 1_000).holding == (), "it would be news with every object"


def test_a_drained_worker_that_is_gone_has_left() -> None:
    drains = reading_of(rayhead.status(rayhead.node("a", status=pb.DRAINING), rayhead.node("b")), version="v2")
    before = demand_of(drains, 1_000)
    assert before.left == (), "it is busy yet"
    gone = reading_of(rayhead.status(rayhead.node("b")), version="v2")
    assert [each.pod for each in demand_of(gone, 3_000, before, last=drains).left] == ["a"]
    lost = reading_of(rayhead.status(rayhead.node("a", status=pb.DRAINING)), version="v2")
    assert demand_of(lost, 3_000, before, last=drains).left == (), "one that was not drained is lost, and has not left"
