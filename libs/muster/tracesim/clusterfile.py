"""CLUSTER.json, or a node list with one node per line (openb): nodes, and the queues with their quota."""

from __future__ import annotations

import math
from pathlib import Path

from msgspec.structs import replace

from muster.events.system import PlacementMode
from muster.model.language import say
from muster.model.resources import QuantityError, Vector, add_into, format_quantity, is_resource_name, parse_quantity
from muster.told.wording import problems
from muster.tracesim.documents import Document, DocumentPlace
from muster.tracesim.model import (
    CPU,
    GPU,
    MEMORY,
    WHOLE,
    NodeGroup,
    TraceCluster,
    TraceError,
    TraceQueue,
    capacity_of,
)
from muster.tracesim.tables import CsvTable

MIB = 2**20
MAX_NODES = 1_000_000
ROOT = "root"
PLACEMENTS: dict[str, PlacementMode] = {"off": "off", "pack": "pack", "spread": "spread"}
_NODE = ("count", "gpus", "cpu_milli", "memory_mib", "model", "name")
_QUEUE = ("min", "max", "weight", "priority", "preempt_lower_priority", "children")
_SHORT = {"gpus": (GPU, WHOLE), "cpu_milli": (CPU, 1), "memory_mib": (MEMORY, MIB)}
NODE_COLUMNS = ("cpu_milli", "memory_mib", "gpu")


def read_cluster(path: Path, queues: tuple[str, ...] = ()) -> TraceCluster:
    """The cluster of a file. ``queues``: the names in the jobs, for a file without queues: each queue gets an equal
    part of the GPUs as its min. Raises TraceError, and OSError for an unreadable file.
    """
    if path.suffix == ".csv":
        groups = _node_list(path)
        return TraceCluster(groups, _shared_equally(capacity_of(groups), queues))
    document = Document(path)
    members = document.root.members(known=("nodes", "queues", "placement"))
    if "nodes" not in members:
        raise document.root.error('has no nodes; write "nodes": [{"count": 8, "gpus": 8}]')
    groups = tuple(_group(place) for place in members["nodes"].items())
    if not sum(group.count for group in groups):
        raise members["nodes"].error("holds no node")
    capacity = capacity_of(groups)
    placement = _placement(members["placement"]) if "placement" in members else "off"
    if "queues" not in members:
        return TraceCluster(groups, _shared_equally(capacity, queues), placement=placement)
    children = _queues(members["queues"], ROOT, capacity, 1)
    if not children:
        raise members["queues"].error("holds no queue; leave it out, and every queue gets an equal part")
    root = TraceQueue(name=ROOT, path=ROOT, min=capacity, max=capacity, children=children)
    _check_sum(root, members["queues"])
    _check_names(root, members["queues"])
    return TraceCluster(groups, root, placement=placement)


def _placement(place: DocumentPlace) -> PlacementMode:
    mode = PLACEMENTS.get(place.expect(str))
    if mode is None:
        raise place.error(
            f"{place.value!r} is no placement; there are off (nodes count together), pack (the fullest node that has "
            "room) and spread (the emptiest node)"
        )
    return mode


def _group(place: DocumentPlace) -> NodeGroup:
    members = place.members(known=_NODE)
    if "gpus" not in members:
        raise place.error("names no gpus; write 0 for nodes without any")
    count = _whole(members["count"]) if "count" in members else 1
    if count > MAX_NODES:
        raise members["count"].error(f"is more than the {MAX_NODES} nodes this can simulate")
    capacity = {name: _whole(members[key]) * unit for key, (name, unit) in _SHORT.items() if key in members}
    model = members["model"].expect(str) if "model" in members else ""
    return NodeGroup(count, dict(sorted(capacity.items())), model)


def _whole(place: DocumentPlace) -> int:
    value = place.expect(int)
    if value < 0:
        raise place.error(f"must not be negative, and is {value}")
    return int(value)


def _queues(place: DocumentPlace, parent: str, capacity: Vector, depth: int) -> tuple[TraceQueue, ...]:
    if depth > 30:
        raise place.error("the tree is deeper than 30 levels")
    return tuple(_queue(member, name, parent, capacity, depth) for name, member in place.members().items())


def _queue(place: DocumentPlace, name: str, parent: str, capacity: Vector, depth: int) -> TraceQueue:
    if not name or "/" in name or len(name) > 250 or not name.isprintable():
        raise place.error(f"{name!r} is not a queue's name: 1 to 250 readable characters without a slash")
    members = place.members(known=_QUEUE)
    path = f"{parent}/{name}"
    low = _amounts(members["min"]) if "min" in members else {}
    high = _amounts(members["max"]) if "max" in members else {}
    for resource, amount in low.items():
        if amount > high.get(resource, amount):
            shown = [format_quantity(value, resource) for value in (amount, high[resource])]
            raise members["min"].error(f"min {resource} {shown[0]} is over max {shown[1]}")
    weight = _whole(members["weight"]) if "weight" in members else None
    if weight == 0:
        raise members["weight"].error("must be 1 or more")
    priority = int(members["priority"].expect(int)) if "priority" in members else 0
    preempts = bool(members["preempt_lower_priority"].expect(bool)) if "preempt_lower_priority" in members else None
    children: tuple[TraceQueue, ...] = ()
    if "children" in members:
        children = _queues(members["children"], path, capacity, depth + 1)
    queue = TraceQueue(
        name=name,
        path=path,
        min=low,
        max=high,
        weight=weight,
        priority=priority,
        preempts=preempts,
        children=children,
    )
    if children and "min" in members:
        _check_sum(queue, members["min"])
    if children and "min" not in members:
        total: Vector = {}
        for child in children:
            add_into(total, child.min)
        queue = replace(queue, min=total)
    return queue


def _amounts(place: DocumentPlace) -> Vector:
    """A number of GPUs, or an object per resource."""
    if not isinstance(place.value, dict):
        return {GPU: _gpus(place)}
    amounts: Vector = {}
    for key, member in place.members().items():
        if key in _SHORT:
            name, unit = _SHORT[key]
            amounts[name] = _gpus(member) if name == GPU else _whole(member) * unit
        elif not is_resource_name(key):
            raise member.error(f"{key!r} is not the name of a resource")
        else:
            value = member.expect(int, float, str)
            try:
                amounts[key] = parse_quantity(value if isinstance(value, str) else repr(value), key)
            except QuantityError as err:
                raise member.error(problems.say(err.problem)) from err
    return dict(sorted(amounts.items()))


def _gpus(place: DocumentPlace) -> int:
    value = float(place.expect(int, float))
    if not math.isfinite(value) or value < 0 or round(value * WHOLE) != value * WHOLE:
        raise place.error(f"must be a number of GPUs, in thousandths at the finest, and is {value}")
    return round(value * WHOLE)


def _check_sum(queue: TraceQueue, place: DocumentPlace) -> None:
    total: Vector = {}
    for child in queue.children:
        add_into(total, child.min)
    for name, amount in total.items():
        limit = queue.min.get(name)
        if limit is None and queue.path == ROOT:
            continue
        if amount > (limit or 0):
            shown = [format_quantity(value, name) for value in (amount, limit or 0)]
            owner = "the cluster has" if queue.path == ROOT else f"min of {queue.path} is"
            raise place.error(f"the queues' min {name} sum up to {shown[0]}, and {owner} {shown[1]}")


def _check_names(root: TraceQueue, place: DocumentPlace) -> None:
    seen: dict[str, str] = {}
    for queue in root.walk():
        if queue.children:
            continue
        other = seen.setdefault(queue.name, queue.path)
        if other != queue.path:
            raise place.error(f"two leaf queues are called {queue.name}: {other} and {queue.path}; rename one")


def _shared_equally(capacity: Vector, names: tuple[str, ...]) -> TraceQueue:
    names = names or ("default",)
    per_name = {name: amount // len(names) for name, amount in capacity.items()}
    if GPU in per_name and len(names) > 1:
        per_name[GPU] -= per_name[GPU] % WHOLE
    children = tuple(TraceQueue(name=name, path=f"{ROOT}/{name}", min=per_name) for name in names)
    return TraceQueue(name=ROOT, path=ROOT, min=capacity, max=capacity, children=children)


def _node_list(path: Path) -> tuple[NodeGroup, ...]:
    """A node per line; equal nodes become a group, in the order of the first node of each group."""
    table = CsvTable(path, NODE_COLUMNS)
    counts: dict[tuple[int, int, int, str], int] = {}
    for row in table.rows():
        key = (row.whole("gpu"), row.whole("cpu_milli"), row.whole("memory_mib"), row.text("model", ""))
        counts[key] = counts.get(key, 0) + 1
    if not counts:
        raise TraceError(say("{path} holds no node", path=path))
    return tuple(
        NodeGroup(count, {CPU: cpu, MEMORY: memory * MIB, GPU: gpus * WHOLE}, model)
        for (gpus, cpu, memory, model), count in counts.items()
    )
