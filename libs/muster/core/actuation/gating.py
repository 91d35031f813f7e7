"""Writing ``maxReplicas`` of a Ray cluster: what is granted there, beside what its owner wanted, in one fenced patch.

The object is read first: its uid, its worker groups in their order, what our last write left on it, and, where
something is lowered, that ``replicas`` is still what the decision saw. The patch then tests that resourceVersion. So a
stale leader, or a decision that the autoscaler was faster than, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from muster.core.actuation.answers import Effect, RetryLater, absent, applied, failed
from muster.core.actuation.orders import Gating
from muster.core.objects.meta import CEILINGS, GATE, GRANTED, Meta, UnreadableError, decode
from muster.core.workloads import rayresize
from muster.core.workloads.ray import RayClusterSpec
from muster.core.workloads.rayscaling import elastic_of
from muster.events.elastic import GateSet
from muster.model.elastic import Counts, Elastic, counts_text
from muster.model.keys import Intent
from muster.model.problem import problem

Op = dict[str, Any]

SCALED = {"RayJob": "/spec/rayClusterSpec", "RayService": "/spec/rayClusterConfig", "RayCluster": "/spec"}
"""{kind: where it describes a Ray cluster}"""


def annotate(values: Mapping[str, str], *, annotated: bool) -> list[Op]:
    """Operations that set annotations; ``annotated``: the object has some."""
    if not annotated:
        return [{"op": "add", "path": "/metadata/annotations", "value": values}]
    return [{"op": "add", "path": pointer(key), "value": value} for key, value in values.items()]


def pointer(annotation: str, metadata: str = "/metadata") -> str:
    """JSON pointer of an annotation."""
    return f"{metadata}/annotations/" + annotation.replace("~", "~0").replace("/", "~1")


class _Cluster(Struct, frozen=True):
    metadata: Meta
    spec: RayClusterSpec = RayClusterSpec()


def opening(elastic: Elastic) -> Counts:
    """What ``maxReplicas`` says when a cluster is admitted: as many as it starts with."""
    return {group.name: max(group.replicas, group.least) for group in elastic.groups}


def gate_notes(most: Counts, elastic: Elastic, intent: Intent) -> dict[str, str]:
    """The annotations that go with it."""
    ceilings = {group.name: elastic.ceiling(group) for group in elastic.groups}
    return {GRANTED: counts_text(most), CEILINGS: counts_text(ceilings), GATE: str(intent)}


def gate_ops(most: Counts, elastic: Elastic, at: str, replicas: Mapping[str, int] | None = None) -> list[Op]:
    """Operations that write it, each after a test that the group is still at its place.

    ``replicas``: {worker group: how many its operator is to make}.
    """
    ops: list[Op] = []
    for index, group in enumerate(elastic.groups):
        path = f"{at}/workerGroupSpecs/{index}"
        ops.append({"op": "test", "path": f"{path}/groupName", "value": group.name})
        # Written even where the value is known to be equal: of a waiting cluster only the ceiling is known, not the
        # field.
        ops.append({"op": "add", "path": f"{path}/maxReplicas", "value": most[group.name]})
        if replicas and group.name in replicas:
            ops.append({"op": "add", "path": f"{path}/replicas", "value": replicas[group.name]})
    return ops


def patch_gate(
    order: Gating, status: int, body: bytes, workers: Mapping[str, list[str]] | None = None
) -> bytes | Effect | RetryLater:
    """The patch on the object as it was just read; or what it says about the order already.

    ``workers``: {worker group: names of pods that go}.
    """
    none = absent(order, status, body)
    if none is not None:
        return none
    decision = order.decision
    try:
        found: _Cluster = decode(body, _Cluster)
        elastic = elastic_of(found.spec, found.metadata, "spec")
    except UnreadableError as err:
        return failed(order, "spec_changed", problem("", "spec_unreadable", err.problem))
    meta = found.metadata
    if meta.uid != order.ref.uid:
        return failed(order, "gone", problem("", "name_taken"))
    if elastic is None:
        return failed(order, "spec_changed", problem("", "scales_no_longer"))
    stored = Intent.parse(elastic.mark)
    if stored == order.intent:
        return applied(order, meta.rv)
    if stored is not None and stored > order.intent:
        return failed(order, "superseded", problem("", "decision_superseded", decision=str(stored)))
    if tuple(group.name for group in elastic.groups) != decision.groups:
        return failed(order, "spec_changed", problem("", "worker_groups_differ"))
    grown = [name for name, size in decision.sizes.items() if (now := elastic.group(name)) and now.asked > size]
    if grown:
        return failed(order, "spec_changed", problem("", "worker_group_grown", group=grown[0]))
    most = {group.name: max(decision.most[group.name], group.least) for group in elastic.groups}
    notes = gate_notes(most, elastic, order.intent) | rayresize.notes_of(found.spec, meta.annotations, decision.grow)
    ops: list[Op] = [
        {"op": "test", "path": "/metadata/uid", "value": order.ref.uid},
        {"op": "test", "path": "/metadata/resourceVersion", "value": meta.resource_version},
    ]
    ops += annotate(notes, annotated=bool(meta.annotations))
    ops += gate_ops(most, elastic, SCALED["RayCluster"], _replicas(decision, elastic))
    ops += _deletions(found.spec, elastic, workers or {})
    return msgspec.json.encode(ops, order="deterministic")


def _replicas(decision: GateSet, elastic: Elastic) -> dict[str, int]:
    """What ``replicas`` is to be; where an autoscaler was faster, as far as that went in the same direction."""
    farther = min if decision.granted else max
    asked = {group.name: group.asked for group in elastic.groups}
    return {
        name: count if elastic.driven else farther(count, asked.get(name, count))
        for name, count in decision.replicas.items()
    }


def _deletions(spec: RayClusterSpec, elastic: Elastic, workers: Mapping[str, list[str]]) -> Iterator[Op]:
    """Operations that name the pods to go, beside those that are named; nothing else of scaleStrategy is touched."""
    for index, (group, raw) in enumerate(zip(elastic.groups, spec.worker_group_specs or (), strict=False)):
        names = workers.get(group.name)
        if names:
            path = f"{SCALED['RayCluster']}/workerGroupSpecs/{index}/scaleStrategy"
            # Where there is no autoscaler no other client takes names away.
            value = [*dict.fromkeys((*(() if elastic.driven else group.leaving), *names))]
            if raw.scale_strategy is None:
                yield {"op": "add", "path": path, "value": {"workersToDelete": value}}
            else:
                yield {"op": "add", "path": f"{path}/workersToDelete", "value": value}
