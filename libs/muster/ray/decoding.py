"""Answers of a head's gRPC to readings. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, TypeVar, cast, get_args

from google.protobuf.message import DecodeError, Message

from muster.model.raydemand import RayConstraint, RayPlacementGroup, RayShape, Strategy
from muster.ray import ray_head_pb2 as pb
from muster.ray.errors import GarbledError
from muster.ray.reading import RayNode, Reading, Status, Ticks
from muster.ray.shapes import MAX_SHAPES, bundle, group_of, is_held, room_of, shapes

OBJECTS = "object_store_memory"
HEAD_RESOURCE = "node:__internal_head__"
"""Every head has it, and no other node."""
_STATUS: dict[int, Status] = {pb.RUNNING: "running", pb.IDLE: "idle", pb.DRAINING: "draining"}
_STRATEGIES = get_args(Strategy)
MAX_CONSTRAINTS = 64
"""Of one request, and of one selector."""


Answer = TypeVar("Answer", bound=Message)


def parse(message: Answer, body: bytes, subject: str) -> Answer:
    """The message that the bytes are. Raises GarbledError."""
    try:
        message.ParseFromString(body)
    except DecodeError as err:
        raise GarbledError(f"{subject} answered {len(body)} bytes that are not the message expected: {err}") from err
    return message


def reading_of(
    status: pb.GetClusterStatusReply,
    *,
    version: Literal["", "v1", "v2"] = "",
    constraints: Iterable[dict[str, float]] = (),
    actors_on: frozenset[str] | None = None,
) -> Reading:
    """A reading from GetClusterStatus.

    ``constraints``: bundles of request_resources, where the first version keeps them apart; ``actors_on``: hex ids of
    nodes. Raises GarbledError.
    """
    if not status.HasField("cluster_resource_state"):
        raise GarbledError("the head answered without the state of its cluster; it may still be starting")
    state, autoscaling = status.cluster_resource_state, status.autoscaling_state
    if not state.cluster_session_name and not state.node_states:
        raise GarbledError("the head answered with neither a session nor a node; it may still be starting")
    pending, left_out = shapes(_counted(state.pending_resource_requests))
    asked = [
        *(RayShape(bundle(constraint)) for constraint in constraints),
        *(request for one in state.cluster_resource_constraints for request in _counted(one.resource_requests)),
    ]
    explicit, more = shapes(asked)
    groups, rest = placement_groups(
        (*_id_and_strategy(gang.details), [_shape(bundle) for bundle in _bundles(gang)])
        for gang in state.pending_gang_resource_requests
    )
    launching: dict[str, int] = {}
    for request in autoscaling.pending_instance_requests:
        launching[request.ray_node_type_name] = launching.get(request.ray_node_type_name, 0) + max(0, request.count)
    for instance in autoscaling.pending_instances:
        launching[instance.ray_node_type_name] = launching.get(instance.ray_node_type_name, 0) + 1
    heard = status.HasField("autoscaling_state")
    return Reading(
        session=state.cluster_session_name,
        version="v2" if heard else version,
        pending=pending,
        placement_groups=groups,
        explicit=explicit,
        nodes=_ray_nodes(state.node_states),
        launching=launching,
        actors_on=actors_on,
        ticks=Ticks(autoscaling.last_seen_cluster_resource_state_version, autoscaling.autoscaler_state_version)
        if heard
        else None,
        looks=state.cluster_resource_state_version,
        failed=tuple(
            sorted({(failure.ray_node_type_name, failure.reason) for failure in autoscaling.failed_instance_requests})
        ),
        left_out=left_out + more + rest,
    )


def placement_groups(
    rows: Iterable[tuple[str, str, Sequence[RayShape]]],
) -> tuple[tuple[RayPlacementGroup, ...], int]:
    """(id, strategy, bundles) as placement groups, sorted by id; and how many were left out. Raises GarbledError."""
    groups: list[RayPlacementGroup] = []
    left_out = 0
    for name, strategy, bundles in sorted(rows, key=lambda row: row[0]):
        if strategy not in _STRATEGIES:
            raise GarbledError(f"placement group {name} has strategy {strategy!r}; known are {', '.join(_STRATEGIES)}")
        needs, lost = shapes(bundles)
        if lost or len(groups) >= MAX_SHAPES:  # half a group is no group
            left_out += 1
        elif needs:
            groups.append(RayPlacementGroup(name, cast(Strategy, strategy), needs))
    return tuple(groups), left_out


def _counted(requests: Iterable[pb.ResourceRequestByCount]) -> Iterable[RayShape]:
    for request in requests:
        if not is_held(request.request.resources_bundle):
            yield _shape(request.request, request.count)


def _shape(request: pb.ResourceRequest, count: int = 1) -> RayShape:
    selectors = [
        tuple(_constraint(constraint) for constraint in selector.label_constraints[:MAX_CONSTRAINTS])
        for selector in request.label_selectors[:MAX_CONSTRAINTS]
    ]
    chooses = any(selectors) or len(selectors) > 1  # What asks for no labels comes with one selector that is empty.
    return RayShape(bundle(request.resources_bundle), count, tuple(selectors) if chooses else ())


def _constraint(constraint: pb.LabelSelectorConstraint) -> RayConstraint:
    """One of a kind that is not known is never met, as with Ray."""
    known = constraint.operator in (pb.LABEL_OPERATOR_IN, pb.LABEL_OPERATOR_NOT_IN)
    values = tuple(sorted(value for value in constraint.label_values)) if known else ()
    return RayConstraint(constraint.label_key, values, constraint.operator == pb.LABEL_OPERATOR_NOT_IN)


def _bundles(gang: pb.GangResourceRequest) -> Iterable[pb.ResourceRequest]:
    return gang.bundle_selectors[0].resource_requests if gang.bundle_selectors else gang.requests


def _id_and_strategy(details: str) -> tuple[str, str]:
    """Id and strategy of ``id:STRATEGY|STATE``."""
    name, _, rest = details.partition(":")
    return name, rest.partition("|")[0]


def _ray_nodes(states: Iterable[pb.NodeState]) -> tuple[RayNode, ...]:
    nodes = [
        RayNode(
            id=node.node_id.hex(),
            pod=node.instance_id,
            group=node.ray_node_type_name,
            status=_STATUS[node.status],
            idle_ms=max(0, node.idle_duration_ms),
            head=HEAD_RESOURCE in node.total_resources,
            holds=tuple(sorted({held for name in node.total_resources if (held := group_of(name)) is not None})),
            activity=tuple(node.node_activity),
            free=room_of(node.available_resources),
            total=room_of(node.total_resources),
            stores=node.available_resources.get(OBJECTS, 0.0) < node.total_resources.get(OBJECTS, 0.0),
        )
        for node in states
        if node.status in _STATUS  # the dead stay listed for a while
    ]
    return tuple(sorted(nodes, key=lambda node: node.id))
