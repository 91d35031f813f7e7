"""The rest of a guarantee, or of a share, that a queue may still be owed; and the queues with such a rest."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from muster.core.queueing.book import RefusalSlot
from muster.core.queueing.queues import Queues
from muster.core.quota.demand import chain_of
from muster.core.quota.ledger.quotaledger import UNBOUNDED, Ledger
from muster.model.keys import root_of
from muster.model.resources import summed, total_of

_NOTHING: Mapping[str, int] = {}


def settle(near: dict[str, None], queues: Queues, touched: Iterable[str]) -> None:
    """Keep the queues where a refused job may fit in the rest of the queue's own guarantee, or of its share."""
    for queue in touched:
        near.pop(queue, None)
        left = left_of(queues.ledger, queue, (queue,)) if queue in queues.book.lines else None
        if left is not None and any(slot.asks[queue][0][0] <= left(slot.resource) for slot in _refused(queues, queue)):
            near[queue] = None


def left_of(
    ledger: Ledger, queue: str, paths: Collection[str], *others: Mapping[str, Mapping[str, int]]
) -> Callable[[str], int] | None:
    """By resource, the most a job may ask for and be owed, at a glance; None where the queue is owed nothing.

    The amount is the rest of the largest guarantee among ``paths``, or of the share of the queue. ``others``: amounts
    that count beside the use, those of leaving jobs negative.
    """
    names = ledger.guaranteed.get(root_of(queue), _NOTHING)

    def taken(path: str) -> Mapping[str, int]:
        parts = [part[path] for part in others if path in part]
        used = ledger.used.get(path, _NOTHING)
        return summed((used, *parts)) if parts else used

    if ledger.by_shares(queue):
        mine, used = ledger.fair.shares.get(queue, {}), taken(queue)
        some = {name: divided.share.amount - used.get(name, 0) for name, divided in mine.items()}
        return (lambda name: some.get(name, UNBOUNDED)) if some and min(some.values()) >= 0 else None
    # At the root there is no outside to claim from.
    inner = [path for path in chain_of(queue) if path in paths and "/" in path and path in ledger.nodes]
    giving = [(ledger.nodes[path].owes, taken(path)) for path in inner]

    def guaranteed(name: str) -> int:
        if name not in names:
            return UNBOUNDED
        parts = (name, total_of(name)) if "@" in name else (name,)  # The rest of a total is for any flavor.
        rests = [least.get(one, 0) - used.get(one, 0) for least, used in giving for one in parts]
        return max(rests, default=-1)

    return guaranteed


def _refused(queues: Queues, queue: str) -> Iterator[RefusalSlot]:
    """The slots with parked requests of a queue that limits may admit some day."""
    parked = queues.book.parked
    slots = (slot for path in chain_of(queue) if path in parked for slot in parked[path].values())
    return (slot for slot in slots if not slot.of_min and queue in slot.asks)
