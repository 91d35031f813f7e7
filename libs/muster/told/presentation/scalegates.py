"""Muster's entry in ``scaleStrategy.scaleGate`` of the worker groups that quota refuses more replicas.

The entry is only a signal. No decision depends on the entry, and ``maxReplicas`` keeps the limit with and without the
entry. The entry exists while the growth of a group is denied and the autoscaler has asked for every granted replica.
An autoscaler that obeys the entry still gets all granted replicas.
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
    """(cluster, worker groups that should have Muster's entry) of an owner, where the observed entries differ."""
    uids = dict.fromkeys((owner, *state.presence.children.get(owner, ())))
    known = [cluster for uid in uids if (cluster := state.scaled.get(uid)) is not None and cluster.owner == owner]
    pairs = [(cluster, _wanted(state, cluster)) for cluster in known]
    return [(cluster.ref, wanted) for cluster, wanted in pairs if wanted != cluster.elastic.signalled]


def _wanted(state: ReadState, cluster: Scaled) -> tuple[str, ...]:
    """The full groups for which replicas are asked, while the owner's growth is denied."""
    record = state.records.get(cluster.owner)
    if record is None or record.growth.denied is None or record.growth.denied.cluster.uid != cluster.ref.uid:
        return ()
    return tuple(name for name in cluster.elastic.full if record.growth.asked.get(name))


def patch(ref: Ref, wanted: Sequence[str], body: bytes) -> bytes | None:
    """The patch for the cluster as read just now. None when nothing is to be written.

    The patch holds only Muster's own fields: an entry of an earlier patch that is missing now is removed. The patch
    names
    the uid and the resourceVersion of the cluster, so the patch can create neither an object nor a worker group.
    """
    try:
        signalled: _Signalled = decode(body, _Signalled)
        elastic = elastic_of(signalled.spec, signalled.metadata, "spec")
    except UnreadableError:
        return None
    meta = signalled.metadata
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
