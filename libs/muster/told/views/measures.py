"""The queues as numbers, and the reasons for the share of a queue."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct, field

from muster.core.quota.ledger.quotaledger import Ledger, kai_shares
from muster.model.keys import path_chain
from muster.model.quota import COUNTED, is_device
from muster.model.resources import EVERYTHING, Vector, add_into, format_quantity, in_bytes, summed
from muster.told.readmodel.readstate import ReadState
from muster.told.wording.queuewords import lately_of_all, tree_share, why_share

# --- measures ---------------------------------------------------------------------------------------------------------


Labels = tuple[tuple[str, str], ...]
Measure = tuple[str, Labels, float]
"""Name of a gauge, its labels, its value."""

NO_PODS = "NoPods"
"""Cause of an admitted job without a pod."""


def measures(state: ReadState, now: int) -> Iterator[Measure]:
    """Every gauge that the log answers. ``now``: ms since the epoch."""
    ledger = state.queues.ledger
    yield from _quota(ledger)
    yield from _unused(state)
    yield from _waiting(state, now)
    yield from _held_up(state, now)
    yield from _free(state)
    yield from share_measures(ledger)
    for path in ("", *ledger.nodes):
        paused = "admissions" in (state.queues.resting(path) if path else state.queues.paused.get("", ()))
        if paused:
            yield "muster_admissions_paused", _of(path), 1


def devices(state: ReadState) -> Iterator[tuple[str, str, float]]:
    """(queue, resource, how many are charged) of every leaf and device; and ("", resource, idle while jobs wait)."""
    for path, node in state.queues.ledger.nodes.items():
        if not node.children:
            for name, amount in state.queues.ledger.used.get(path, {}).items():
                if is_device(name):
                    yield path, name, _plain(amount, name)
    for name, amount in idle(state).items():
        if is_device(name):
            yield "", name, _plain(amount, name)


def idle(state: ReadState) -> Vector:
    """The amounts that are free on nodes and asked for by waiting jobs, by resource."""
    free, asked = free_on_nodes(state), summed(state.queues.ledger.waiting.values())
    return {name: min(amount, asked.get(name, 0)) for name, amount in free.items()}


def free_on_nodes(state: ReadState) -> Vector:
    """The free amounts of ready and schedulable nodes."""
    open_nodes = {node.ref.name: node for node in state.nodes.nodes.values() if node.ready and node.schedulable}
    free = summed(node.allocatable for node in open_nodes.values())
    for pod in state.nodes.pods.values():
        if pod.node in open_nodes:
            add_into(free, {name: amount for name, amount in pod.request.items() if name in free}, -1)
    return {name: max(0, amount) for name, amount in free.items()}


def share_measures(ledger: Ledger) -> Iterator[Measure]:
    """The fair shares of KAI queues; nothing without KAI queues.

    ``muster_queue_keeps`` is left out for a queue from which no amount is reclaimed.
    """
    for path, divided in kai_shares(ledger).items():
        for name, share in divided.items():
            key = _of(path, name)
            if ledger.rules_of(path).usage_window_ms:
                yield "muster_queue_used_lately", key, share.sharer.usage / 1_000_000
            yield "muster_queue_fair_share", key, _plain(share.share.amount, name)
            yield "muster_queue_asked", key, _plain(share.sharer.request, name)
            if share.allocatable >= 0:
                yield "muster_queue_keeps", key, _plain(share.allocatable, name)


def _quota(ledger: Ledger) -> Iterator[Measure]:
    for path, node in ledger.nodes.items():
        used, held = ledger.used.get(path, {}), ledger.claims.total.extra.get(path, {})
        asked = ledger.waiting.get(path, {})
        spoken = {*node.limit, *node.guaranteed, *used, *held, *asked} - COUNTED
        for name in sorted(spoken):
            key, mine = _of(path, name), used.get(name, 0)
            least, most = node.guaranteed.get(name, 0), node.limit.get(name)
            yield "muster_queue_used", key, _plain(mine, name)
            if not node.children:
                yield "muster_queue_pending", key, _plain(asked.get(name, 0), name)
            if name in node.guaranteed:
                yield "muster_queue_guarantee", key, _plain(least, name)
            if most is not None:
                yield "muster_queue_limit", key, _plain(most, name)
            for gauge, amount in (
                ("muster_queue_held", held.get(name, 0)),
                ("muster_queue_borrowed", mine - least),
                ("muster_queue_overuse", mine - most if most is not None else 0),
            ):
                if amount > 0:
                    yield gauge, key, _plain(amount, name)


def _unused(state: ReadState) -> Iterator[Measure]:
    """What is charged in each leaf and no pod asks for."""
    unused: dict[str, Vector] = {}
    for uid, charge in state.queues.ledger.charges.items():
        if uid not in state.lone:
            live = state.presence.asked_by_pods(uid)
            rest = {name: more for name, amount in charge.request.items() if (more := amount - live.get(name, 0)) > 0}
            add_into(unused.setdefault(charge.queue, {}), rest)
    for path, amounts in unused.items():
        for name, amount in sorted(amounts.items()):
            yield "muster_queue_unused", _of(path, name), _plain(amount, name)


def _waiting(state: ReadState, now: int) -> Iterator[Measure]:
    """Of each leaf how many jobs wait and run, and for how long the first has waited."""
    ledger = state.queues.ledger
    leaves = [path for path, node in ledger.nodes.items() if not node.children]
    counts = {(path, name): 0 for path in leaves for name in ("waiting", "admitted", "running")}
    oldest, unserved = dict.fromkeys(leaves, now), dict.fromkeys(leaves, now)
    for job in state.queues.jobs.values():
        if job.status == "charged" or job.queue not in oldest:
            continue
        counts[job.queue, "waiting"] += 1
        oldest[job.queue] = min(oldest[job.queue], job.queued_at)
        if job.queued_at < unserved[job.queue]:
            asked = [name for name, amount in job.demand.request.items() if amount]
            if not ledger.above_min(job.queue, job.demand, asked):
                unserved[job.queue] = job.queued_at
    for uid, charge in ledger.charges.items():
        workload = state.queues.workloads.get(uid)
        if charge.queue in oldest and workload is not None:
            counts[charge.queue, "running" if workload.phase == "running" else "admitted"] += 1
    for (path, name), number in counts.items():
        yield "muster_queue_jobs", (("queue", path), ("state", name)), number
    for path in leaves:
        yield "muster_queue_oldest_wait_seconds", _of(path), max(0, now - oldest[path]) / 1000
        yield "muster_queue_unserved_seconds", _of(path), max(0, now - unserved[path]) / 1000


def _held_up(state: ReadState, now: int) -> Iterator[Measure]:
    """Of each queue and cause how many admitted jobs do not run, and for how long."""
    tallies: dict[tuple[str, str], list[int]] = {}
    for uid, charge in state.queues.ledger.charges.items():
        record = state.records.get(uid)
        if record is None or record.phase not in ("admitted", "running"):
            continue
        held = state.pods.of(uid, state.presence)
        if held is not None:
            tallies.setdefault((charge.queue, held.code), []).append(held.first.since)
        elif record.phase == "admitted" and record.admitted_at and not state.presence.live_pods(uid):
            tallies.setdefault((charge.queue, NO_PODS), []).append(record.admitted_at)
    for (path, cause), since in tallies.items():
        key = (("queue", path), ("cause", cause))
        yield "muster_held_up_jobs", key, len(since)
        yield "muster_held_up_seconds", key, max(0, now - min(since)) / 1000


def _free(state: ReadState) -> Iterator[Measure]:
    spoken = {name for node in state.queues.ledger.nodes.values() for name in (*node.limit, *node.guaranteed)}
    unused = idle(state)
    for name, amount in free_on_nodes(state).items():
        if name in spoken or is_device(name):
            yield "muster_free", (("resource", name),), _plain(amount, name)
            yield "muster_idle", (("resource", name),), _plain(unused[name], name)


def _of(path: str, resource: str = "") -> Labels:
    return (("queue", path), ("resource", resource)) if resource else (("queue", path),)


def _plain(amount: int, resource: str) -> float:
    """Cores, bytes, devices."""
    return amount / (1 if in_bytes(resource) else 1000)


# --- why a queue may use its share ------------------------------------------------------------------------------------


class ResourceShare(Struct, frozen=True):
    """One resource of a queue; amounts as text. ``keeps``: the amount that is not reclaimed."""

    resource: str
    share: str
    uses: str
    asks: str
    quota: str
    keeps: str
    parent: str
    """The amount divided on the level above: the share of the parent, or the whole cluster."""
    why: str


class QueueShare(Struct, frozen=True):
    """A queue and its shares at one moment."""

    queue: str
    seq: int
    now: int
    rows: list[ResourceShare] = field(default_factory=list)
    siblings: list[str] = field(default_factory=list)
    """``NAME SHARE of RESOURCE`` of each sibling that asks for a resource that the queue asks for too."""


def queues_named(state: ReadState, wanted: str) -> list[str]:
    """The queues that a full path, or the end of a path, may mean; the shortest path first."""
    paths = (path for path in state.queues.ledger.nodes if path == wanted or path.endswith(f"/{wanted}"))
    return sorted(paths, key=lambda path: (len(path), path))


def queue_share(state: ReadState, queue: str) -> QueueShare:
    """The shares of a queue by the ledger."""
    ledger = state.queues.ledger
    if not ledger.by_shares(queue):
        return QueueShare(queue, state.seq, state.now, _of_tree(ledger, queue))
    divided, rows, siblings = kai_shares(ledger), [], []
    node, used = ledger.nodes[queue], ledger.used.get(queue, {})
    parent = path_chain(queue)[1] if "/" in queue else ""
    for name, share in divided.get(queue, {}).items():

        def show(amount: int, name: str = name) -> str:
            return "all" if amount < 0 or amount == EVERYTHING else format_quantity(amount, name)

        rows.append(
            ResourceShare(
                resource=name,
                share=show(share.share.amount),
                uses=show(used.get(name, 0)),
                asks=show(share.sharer.request),
                quota=show(node.guaranteed.get(name, 0)),
                keeps=show(share.allocatable),
                parent=show(share.parent),
                why=why_share(share, show, usage=lately_of_all(share.sharer.usage)),
            )
        )
        if share.sharer.request and parent:
            beside = [path for path in ledger.nodes[parent].children if path != queue]
            siblings += [
                f"{path.rpartition('/')[2]} {show(divided[path][name].share.amount)} of {name}"
                for path in beside
                if divided[path][name].sharer.request
            ]
    return QueueShare(queue, state.seq, state.now, rows, siblings)


def _of_tree(ledger: Ledger, queue: str) -> list[ResourceShare]:
    """For a queue of an ElasticQuotaTree: min and max, and the amount by weight where the tree divides by weight."""
    node, used, waiting = ledger.nodes[queue], ledger.used.get(queue, {}), ledger.waiting.get(queue, {})
    rows = []
    for name in sorted((node.limit.keys() | node.guaranteed.keys()) - COUNTED):
        limit, least = node.limit.get(name), node.guaranteed.get(name, 0)
        most = ledger.shares.runtime.get(queue, {}).get(name, limit) if ledger.shares.runtime else limit
        shown = "all" if most is None else format_quantity(most, name)
        rows.append(
            ResourceShare(
                resource=name,
                share=shown,
                uses=format_quantity(used.get(name, 0), name),
                asks=format_quantity(used.get(name, 0) + waiting.get(name, 0), name),
                quota=format_quantity(least, name),
                keeps=format_quantity(least, name),
                parent="",
                why=tree_share(name, least, limit, most),
            )
        )
    return rows
