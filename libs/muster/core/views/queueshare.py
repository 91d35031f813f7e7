"""Why a queue may use what it may, in numbers: of each resource its share, and how that was divided."""

from __future__ import annotations

from msgspec import Struct, field

from muster.core.quota.ledger.kaishares import kai_shares
from muster.core.quota.ledger.ledger import Ledger
from muster.core.readmodel.state import ReadState
from muster.core.wording.explain_shares import lately_of_all, tree_share, why_share
from muster.model.keys import path_chain
from muster.model.quota import COUNTED
from muster.model.resources import EVERYTHING, format_quantity


class ResourceShare(Struct, frozen=True):
    """One resource of a queue; amounts as text. ``keeps``: the amount that is not reclaimed."""

    resource: str
    share: str
    uses: str
    asks: str
    quota: str
    keeps: str
    parent: str
    """What the level above divides: the share of the parent, or all there is."""
    why: str


class QueueShare(Struct, frozen=True):
    """A queue and its shares at one moment."""

    queue: str
    seq: int
    now: int
    rows: list[ResourceShare] = field(default_factory=list)
    siblings: list[str] = field(default_factory=list)
    """``NAME SHARE of RESOURCE`` of each sibling that asks for a resource that it asks for too."""


def queues_named(state: ReadState, wanted: str) -> list[str]:
    """The queues that a full path, or the end of one, may mean; the shortest path first."""
    found = (path for path in state.queues.ledger.nodes if path == wanted or path.endswith(f"/{wanted}"))
    return sorted(found, key=lambda path: (len(path), path))


def queue_share(state: ReadState, queue: str) -> QueueShare:
    """The shares of a queue by the ledger."""
    ledger = state.queues.ledger
    if not ledger.by_shares(queue):
        return QueueShare(queue, state.seq, state.now, _of_tree(ledger, queue))
    divided, rows, siblings = kai_shares(ledger), [], []
    node, used = ledger.nodes[queue], ledger.used.get(queue, {})
    parent = path_chain(queue)[1] if "/" in queue else ""
    for name, found in divided.get(queue, {}).items():

        def show(amount: int, name: str = name) -> str:
            return "all" if amount < 0 or amount == EVERYTHING else format_quantity(amount, name)

        rows.append(
            ResourceShare(
                resource=name,
                share=show(found.share.amount),
                uses=show(used.get(name, 0)),
                asks=show(found.sharer.request),
                quota=show(node.guaranteed.get(name, 0)),
                keeps=show(found.allocatable),
                parent=show(found.parent),
                why=why_share(found, show, usage=lately_of_all(found.sharer.usage)),
            )
        )
        if found.sharer.request and parent:
            beside = [path for path in ledger.nodes[parent].children if path != queue]
            siblings += [
                f"{path.rpartition('/')[2]} {show(divided[path][name].share.amount)} of {name}"
                for path in beside
                if divided[path][name].sharer.request
            ]
    return QueueShare(queue, state.seq, state.now, rows, siblings)


def _of_tree(ledger: Ledger, queue: str) -> list[ResourceShare]:
    """Of a queue of an ElasticQuotaTree: its min and max, and what it may use now where the tree divides by weight."""
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
