"""Our entry in ``scaleStrategy.scaleGate`` of the worker groups that quota refuses more replicas.

It is a signal and nothing else: no decision rests on it, and ``maxReplicas`` keeps the limit with and without it.
An entry is there while the growth of a group is denied and its autoscaler has asked for all that is granted: one that
heeds the entry still gets what it was granted.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from muster.core.objects.meta import Meta, UnreadableError, decode
from muster.core.workloads.ray import RayClusterSpec
from muster.core.workloads.rayscaling import elastic_of
from muster.model import api
from muster.model.elastic import SIGNAL
from muster.model.keys import Ref
from muster.told.presentation.desired import Body
from muster.told.readmodel.readstate import ReadState, Scaled

MANAGER = "muster-scale-gate"
"""The field manager of these entries, and of nothing else."""


class _Signalled(Struct, frozen=True):
    metadata: Meta
    spec: RayClusterSpec = RayClusterSpec()


def entries_due(state: ReadState, owner: str) -> list[tuple[Ref, tuple[str, ...]]]:
    """(cluster, worker groups that should have our entry) of an owner, where the cluster was seen with others."""
    uids = dict.fromkeys((owner, *state.presence.children.get(owner, ())))
    known = [cluster for uid in uids if (cluster := state.scaled.get(uid)) is not None and cluster.owner == owner]
    pairs = [(cluster, _wanted(state, cluster)) for cluster in known]
    return [(cluster.ref, wanted) for cluster, wanted in pairs if wanted != cluster.elastic.signalled]


def _wanted(state: ReadState, cluster: Scaled) -> tuple[str, ...]:
    """The full groups of those that are asked for, none of which fits."""
    record = state.records.get(cluster.owner)
    if record is None or record.growth.denied is None or record.growth.denied.cluster.uid != cluster.ref.uid:
        return ()
    return tuple(name for name in cluster.elastic.full if record.growth.asked.get(name))


def patch(ref: Ref, wanted: Sequence[str], body: bytes) -> bytes | None:
    """What is applied to the cluster as it was just read; None when nothing is to be written.

    It holds what is ours and nothing else: what we applied before and is not in it is taken away. It names the uid
    and the resourceVersion that was read, so it neither makes an object nor a worker group again.
    """
    try:
        found: _Signalled = decode(body, _Signalled)
        elastic = elastic_of(found.spec, found.metadata, "spec")
    except UnreadableError:
        return None
    meta = found.metadata
    if elastic is None or meta.uid != ref.uid or meta.deletion_timestamp:
        return None
    signals = tuple(name for name in elastic.full if name in wanted)
    if signals == elastic.signalled:
        return None
    groups = [{"groupName": name, "scaleStrategy": {"scaleGate": [{"name": SIGNAL}]}} for name in signals]
    metadata = {
        "name": ref.name,
        "namespace": ref.namespace,
        "uid": ref.uid,
        "resourceVersion": meta.resource_version,
    }
    applied: Body = {"apiVersion": api.RAYCLUSTERS.api_version, "kind": "RayCluster", "metadata": metadata}
    return msgspec.json.encode(applied | ({"spec": {"workerGroupSpecs": groups}} if groups else {}))
