"""The cluster of a cell, and the reason why the log is to end: recorded beside the log, and compared at each start.

A cluster is known by the uid of its namespace ``kube-system``, as usual elsewhere. The watcher records the uid once,
when it first reaches the cluster. From then on each process that talks to an API server compares the uid, for every
generation of the log, and only ``muster cell move`` changes the uid. The record is key ``cluster`` of the state bucket.

The record also has the reason why the log must have a successor that starts from the cluster: the API server was
restored to an earlier state, or the log is shorter than the record of the cell says (:mod:`muster.runtime.witness`).
The reason names its log, and does not apply to the next log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.bus.jetstream import JetStream
from muster.bus.kv import KvBucket
from muster.events import subjects
from muster.events.envelope import UNREADABLE
from muster.kube.errors import KubeConfigError
from muster.model.api import NAMESPACES
from muster.ports import ApiTransport, ApiUnreachableError, LogIdentity

KEY = "cluster"
KNOWN_BY = "kube-system"
PATIENCE_S = 5.0
AGAIN_S = 1.0
"""How often a cluster that does not answer, or is another one, is asked again."""
WRITTEN_S = 60.0
"""How often a wait at another cluster is written down."""


class ClusterIdentity(Struct, frozen=True):
    """A cluster as a cell remembers it. ``server``: the address as the watcher knew it; ``set_back``: why log
    ``log_id`` is
    to end; ``generation``, ``parent``: the newest known generation, and its log, if later than the log that ends.
    """

    uid: str
    server: str
    log_id: str
    set_back: str = ""
    generation: int = 0
    parent: str = ""


async def cluster_uid(transport: ApiTransport) -> str:
    """The uid that tells a cluster from every other; empty where the server does not say it to us."""
    answer = await transport.request("GET", NAMESPACES.path(name=KNOWN_BY))
    if not answer.ok:
        return ""
    return str(msgspec.json.decode(answer.body).get("metadata", {}).get("uid") or "")


def named(transport: ApiTransport) -> tuple[str, str]:
    """The address of an API server, and the kubeconfig or account it is known from; empty for a simulated one."""
    target = getattr(transport, "target", None)
    return (target.server, target.origin) if target is not None else ("", "")


async def belong(
    js: JetStream,
    identity: LogIdentity,
    transport: ApiTransport,
    *,
    founds: bool,
    tell: Callable[[str], object] | None = None,
    write: Callable[[str], Awaitable[None]] | None = None,
) -> bool:
    """Wait until a connection leads to the cluster of the cell; False where the server does not tell its cluster.

    ``founds``: record the cluster where no record exists, and always a simulated cluster; ``tell``: receives the reason
    of the wait at each change, and an empty one at the end. Without ``tell`` the function does not wait.
    ``write``: writes a wait at another cluster down beside the log, for `muster doctor`.

    Raises BusError, UnansweredError, KubeConfigError.
    """
    told, write_at = "", 0.0
    while True:
        try:
            uid = await cluster_uid(transport)
            server, _ = named(transport)
            if uid and founds:
                await record_cluster(js, identity, uid, server, again=not server)
            why = await another(js, identity, uid, transport)
            if not why:
                if tell is not None:
                    tell("")
                return bool(uid)
            now = asyncio.get_running_loop().time()
            if write is not None and tell is not None and now >= write_at:
                await write(why)
                write_at = now + WRITTEN_S
        except ApiUnreachableError as err:
            why = f"which cluster this is cannot be known: {err}"
        if tell is None:
            raise KubeConfigError(why)
        if why != told:
            tell(why)
            told = why
        await asyncio.sleep(AGAIN_S)


async def another(js: JetStream, identity: LogIdentity, uid: str, transport: ApiTransport) -> str:
    """How a connection leads to another cluster than the cell belongs to; empty when it does not, or none is known."""
    known = await recorded_cluster(js, identity)
    if known is None or not known.uid or not uid or known.uid == uid:
        return ""
    server, origin = named(transport)
    here = f"{server or 'the simulated cluster'}{f' ({origin})' if origin else ''}"
    return (
        f"cell {identity.cell} belongs to the cluster {known.server or 'simulated'}, uid {known.uid}, and {here} is "
        f"another one, uid {uid}: nothing is read or written there; name the right kubeconfig (MUSTER_KUBECONFIG, "
        f"MUSTER_KUBE_CONTEXT), or give the cell to this cluster with `muster cell move`"
    )


async def record_cluster(js: JetStream, identity: LogIdentity, uid: str, server: str, *, again: bool = False) -> None:
    """Record the cluster of a cell, where no record exists; ``again``: replace the record.

    Of several writers at once one succeeds. Raises BusError, UnansweredError.
    """
    known, revision = await _last(js, identity.cell)
    if known is None or not known.uid or again:
        updated = replace(known or ClusterIdentity("", "", identity.log_id), uid=uid, server=server)
        await _put(js, identity.cell, updated, revision)


async def record_set_back(
    js: JetStream, identity: LogIdentity, why: str, generation: int = 0, parent: str = ""
) -> None:
    """Write down why a log is to end; the other values as in ClusterIdentity. Raises BusError, UnansweredError."""
    known, revision = await _last(js, identity.cell)
    before = known or ClusterIdentity("", "", identity.log_id)
    updated = replace(before, log_id=identity.log_id, set_back=why, generation=generation, parent=parent)
    if updated != known:
        await _put(js, identity.cell, updated, revision)


async def record_move(
    js: JetStream, identity: LogIdentity, uid: str, server: str, why: str, generation: int = 0, parent: str = ""
) -> None:
    """Record that a cell belongs to another cluster from now on, and that the log is to end for this reason.

    Raises BusError, UnansweredError.
    """
    _, revision = await _last(js, identity.cell)
    updated = ClusterIdentity(uid, server, identity.log_id, why, generation, parent)
    await _put(js, identity.cell, updated, revision)


async def recorded_cluster(js: JetStream, identity: LogIdentity) -> ClusterIdentity | None:
    """The cluster a cell belongs to, and why this log of it is to end; None where nothing was recorded, or nothing that
    can be read. Raises BusError, UnansweredError.
    """
    other, _ = await _last(js, identity.cell)
    chain = {identity.log_id, *(generation.log_id for generation in identity.earlier)}
    if other is None or other.log_id in chain:
        return other
    return ClusterIdentity(other.uid, other.server, identity.log_id)


async def _last(js: JetStream, cell: str) -> tuple[ClusterIdentity | None, int]:
    """The record, None without a readable one, and the revision, 0 for none."""
    entry = await KvBucket(js, subjects.state_bucket(cell)).get(KEY, patience_s=PATIENCE_S)
    if entry is None:
        return None, 0
    try:
        return msgspec.json.decode(entry.value or b"", type=ClusterIdentity), entry.revision
    except UNREADABLE:
        return None, entry.revision


async def _put(js: JetStream, cell: str, cluster: ClusterIdentity, revision: int) -> None:
    bucket = KvBucket(js, subjects.state_bucket(cell))
    await bucket.set(KEY, msgspec.json.encode(cluster), revision=revision, patience_s=PATIENCE_S)
