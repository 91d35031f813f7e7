"""Amounts and shapes as Ray counts them: ten-thousandths, as integers, in one order."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping

from muster.model.raydemand import RAY_UNIT, RayConstraint, RayShape
from muster.ray.errors import GarbledError

MAX_SHAPES = 1_000
"""Of one list. A list with more keeps those with the highest counts."""
MAX_RESOURCES = 64
"""Of one shape."""
_LARGEST = 2**62
_NOT_ASKED = ("node:", "object_store_memory")
_OF_PLACEMENT_GROUP = re.compile(r".+_group_(?:[0-9]+_)?([0-9a-f]{36})")

Bundle = Mapping[str, float]
_Key = tuple[tuple[tuple[str, int], ...], tuple[tuple[tuple[str, tuple[str, ...], bool], ...], ...]]


def amount(value: float, resource: str) -> int:
    """Ten-thousandths, rounded to the nearest as Ray does. Raises GarbledError where the value is no amount."""
    if not math.isfinite(value) or value < 0 or value * RAY_UNIT > _LARGEST:
        raise GarbledError(f"{resource} {value!r} is not an amount of a Ray resource")
    return round(value * RAY_UNIT)


def bundle(resources: Bundle) -> dict[str, int]:
    """``{"CPU": 0.5}`` as ``{"CPU": 5000}``, sorted, without zeros. Raises GarbledError."""
    if len(resources) > MAX_RESOURCES:
        raise GarbledError(f"a request names {len(resources)} resources; at most {MAX_RESOURCES} are read")
    exact = {name: amount(resources[name], name) for name in sorted(resources)}
    return {name: value for name, value in exact.items() if value}


def room_of(resources: Bundle) -> dict[str, int]:
    """What of a node's resources tasks and actors may ask for; empty where it cannot be read: then nothing is counted
    on.
    """
    asked = {
        name: amount for name, amount in resources.items() if not name.startswith(_NOT_ASKED) and not group_of(name)
    }
    try:
        return bundle(asked)
    except GarbledError:
        return {}


def group_of(resource: str) -> str | None:
    """Id of the placement group that the resource was set aside for; None for an ordinary one."""
    match = _OF_PLACEMENT_GROUP.fullmatch(resource)
    return match[1] if match else None


def is_held(resources: Bundle) -> bool:
    """Whether a request waits for its placement group, or runs inside it: then the group is the demand."""
    return any(group_of(name) is not None for name in resources)


def shapes(requests: Iterable[RayShape], *, limit: int = MAX_SHAPES) -> tuple[tuple[RayShape, ...], int]:
    """Equal shapes added up, sorted; and how many requests were left out because there are more shapes than ``limit``.

    A request for nothing (``num_cpus=0``) fits anywhere and is not demand, unless it chooses its node by labels.
    """
    counts: dict[_Key, int] = {}
    for request in requests:
        if request.count > 0 and (request.resources or request.selectors):
            chosen = tuple(tuple((one.key, one.values, one.excluded) for one in every) for every in request.selectors)
            key = (tuple(request.resources.items()), chosen)
            counts[key] = counts.get(key, 0) + request.count
    left_out = 0
    if len(counts) > limit:
        ranked = sorted(counts, key=lambda key: (-counts[key], key))
        left_out = sum(counts[key] for key in ranked[limit:])
        counts = {key: counts[key] for key in ranked[:limit]}
    return tuple(_shape(key, counts[key]) for key in sorted(counts)), left_out


def _shape(key: _Key, count: int) -> RayShape:
    resources, chosen = key
    return RayShape(dict(resources), count, tuple(tuple(RayConstraint(*one) for one in every) for every in chosen))
