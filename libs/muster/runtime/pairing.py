"""Which cluster a log is about: recorded beside the log by whatever watches the cluster, checked before a write.
So is that the cluster was restored to an earlier state: the log goes on from the objects it has then.

A cluster is known by the uid of its namespace ``kube-system``, as usual elsewhere. The record is key ``cluster`` of
the cell's state bucket and names the log it was made for, so that a record of a lost log says nothing of the next.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from muster.bus.jetstream import JetStream
from muster.bus.kv import KvBucket
from muster.events import subjects
from muster.events.envelope import UNREADABLE
from muster.model.api import NAMESPACES
from muster.ports import ApiTransport, LogIdentity

KEY = "cluster"
KNOWN_BY = "kube-system"
PATIENCE_S = 5.0


class ClusterIdentity(Struct, frozen=True):
    """A cluster as a log remembers it. ``server``: its address as the watcher knew it; ``set_back``: how it is known
    to have been restored to an earlier state than the log is about.
    """

    uid: str
    server: str
    log_id: str
    set_back: str = ""


async def cluster_uid(transport: ApiTransport) -> str:
    """The uid that tells a cluster from every other; empty where the server does not say it to us."""
    answer = await transport.request("GET", NAMESPACES.path(name=KNOWN_BY))
    if not answer.ok:
        return ""
    return str(msgspec.json.decode(answer.body).get("metadata", {}).get("uid") or "")


async def record_cluster(js: JetStream, identity: LogIdentity, transport: ApiTransport, server: str) -> bool:
    """Write down which cluster a log is about; false where that cannot be known. Raises BusError, UnansweredError."""
    uid = await cluster_uid(transport)
    if not uid:
        return False
    await _record(js, identity.cell, ClusterIdentity(uid, server, identity.log_id))
    return True


async def record_set_back(js: JetStream, identity: LogIdentity, why: str) -> None:
    """Write down that the cluster was restored to an earlier state. Raises BusError, UnansweredError."""
    known = await recorded_cluster(js, identity)
    uid, server = (known.uid, known.server) if known is not None else ("", "")
    await _record(js, identity.cell, ClusterIdentity(uid, server, identity.log_id, why))


async def _record(js: JetStream, cell: str, cluster: ClusterIdentity) -> None:
    bucket = KvBucket(js, subjects.state_bucket(cell))
    body = msgspec.json.encode(cluster)
    entry = await bucket.get(KEY, patience_s=PATIENCE_S)
    if entry is None or entry.value != body:
        await bucket.set(KEY, body, revision=entry.revision if entry is not None else 0, patience_s=PATIENCE_S)


async def recorded_cluster(js: JetStream, identity: LogIdentity) -> ClusterIdentity | None:
    """The cluster a log is about; None where nothing was recorded for it, or nothing that can be read."""
    entry = await KvBucket(js, subjects.state_bucket(identity.cell)).get(KEY, patience_s=PATIENCE_S)
    if entry is None or entry.value is None:
        return None
    try:
        found = msgspec.json.decode(entry.value, type=ClusterIdentity)
    except UNREADABLE:
        return None
    chain = {identity.log_id, *(each.log_id for each in identity.earlier)}
    return found if found.log_id in chain else None
