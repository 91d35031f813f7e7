"""Workers of a Ray cluster that are to go: whether a pod still is the one that was chosen, and its deletion by uid.

A pod is read before anything is done about it. One of another uid, cluster or group is left alone, and so is a head.
"""

from __future__ import annotations

from msgspec import Struct

from muster.core.actuation.answers import Effect, RetryLater, applied, failed, message_of, not_done, refused, said_by
from muster.core.actuation.orders import Removing
from muster.core.objects.labels import RAY_CLUSTER, RAY_GROUP, RAY_NODE_TYPE, RAY_WORKER
from muster.core.objects.meta import Meta, UnreadableError, decode
from muster.model.keys import Ref
from muster.model.problem import problem


class _Worker(Struct, frozen=True):
    metadata: Meta


def is_worker(cluster: Ref, group: str, pod: Ref, status: int, body: bytes) -> bool | RetryLater:
    """Whether a pod that was just read is the worker that is to go: its uid, its cluster, its group.

    Its operator deletes whatever pod has a name that it is given, and asks nothing.
    """
    if status == 404:
        return False
    if not 200 <= status < 300:
        return RetryLater("unavailable", said_by(body))
    meta = _meta_of(body)
    ours = meta is not None and (meta.labels.get(RAY_CLUSTER), meta.labels.get(RAY_GROUP)) == (cluster.name, group)
    return meta is not None and meta.uid == pod.uid and ours


def before_deletion(order: Removing, status: int, body: bytes) -> Effect | RetryLater | None:
    """What a pod as it was just read says about its deletion; None: it is to be deleted."""
    found = is_worker(order.cluster, order.group, order.ref, status, body)
    if isinstance(found, RetryLater):
        return refused(order, status, body)
    meta = _meta_of(body) if found else None
    if meta is None or meta.labels.get(RAY_NODE_TYPE) != RAY_WORKER:
        return failed(order, "gone", problem("", "worker_gone"))
    return applied(order) if meta.deletion_timestamp else None


def read_deletion(order: Removing, status: int, body: bytes) -> Effect | RetryLater:
    """What the answer to the deletion means."""
    if 200 <= status < 300:
        return applied(order)
    if status == 409 and "recondition" in message_of(body):
        return failed(order, "gone", problem("", "name_taken"))
    return not_done(order, status, body)


def _meta_of(body: bytes) -> Meta | None:
    try:
        found: _Worker = decode(body, _Worker)
    except UnreadableError:
        return None
    return found.metadata
