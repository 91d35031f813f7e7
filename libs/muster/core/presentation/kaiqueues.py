"""What the status of a KAI queue should say now: what is below it, what it uses and asks for, and whether it counts."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct, to_builtins

from muster.core.objects.conditions import ExplainedCondition
from muster.core.objects.kaiqueue import KaiStatus, shown_status
from muster.core.presentation.desired import Body
from muster.core.quota.demand import chain_of
from muster.core.readmodel.state import ReadState
from muster.core.wording import problems, queues
from muster.model.kaiqueue import KaiQueue
from muster.model.keys import Ref
from muster.model.quota import COUNTED, KAI_ROOT
from muster.model.resources import EVERYTHING, Vector, add_into, texts


class KaiQueueStatus(Struct, frozen=True):
    """The status a queue should have, and its digest."""

    ref: Ref
    body: Body
    shown: str


def kai_status(state: ReadState, queue: KaiQueue) -> KaiQueueStatus | None:
    """The status of a queue; None when it shows what it should."""
    ledger = state.queues.ledger
    path = ledger.queues.get(queue.name, "")
    used, firm = ledger.used.get(path, {}), ledger.firm.get(path, {})
    requested = dict(used)
    if path:
        add_into(requested, waiting_below(state, path))
    children = [each.rpartition("/")[2] for each in ledger.nodes[path].children] if path else []
    status = KaiStatus(
        child_queues=tuple(children),
        allocated=_shown(queue, used),
        allocated_non_preemptible=_shown(queue, firm),
        requested=_shown(queue, requested),
        conditions=tuple(_conditions(state, queue, path)),
    )
    shown = shown_status(status)
    # A queue with none below it has no list at all: the column of `kubectl get queues` stays empty.
    body = {**to_builtins(status), "childQueues": children or None}
    return None if shown == queue.shown else KaiQueueStatus(queue.ref, body, shown)


def waiting_below(state: ReadState, path: str) -> Vector:
    """What waits in a queue and below it, in all."""
    total: Vector = {}
    for shape in state.queues.book.shapes.values():
        if path in chain_of(shape.queue):
            add_into(total, shape.demand.request, len(shape.waiting) + shape.open)
    return total


def _shown(queue: KaiQueue, amounts: Vector) -> dict[str, str]:
    """What a queue speaks of, zeros too: a merge patch never takes a key away."""
    return texts({name: amounts.get(name, 0) for name in queue.quota})


def _asked(amounts: Vector) -> Vector:
    return {name: amount for name, amount in amounts.items() if name not in COUNTED}


def _conditions(state: ReadState, queue: KaiQueue, path: str) -> Iterator[ExplainedCondition]:
    tree = state.queues.ledger.trees.get(KAI_ROOT)
    why = tree.disabled.get(queue.name) if tree is not None else None
    if path:
        yield ExplainedCondition("Ready", "True", "Counts", "")
    else:
        yield ExplainedCondition(
            "Ready", "False", "Disabled", problems.line(why) if why is not None else queues.NOT_IN_FORCE
        )
    if path and (over := _over_quota(state, path)):
        yield ExplainedCondition("OverQuota", "True", "UsesSurplus", queues.over_quota(over))


def _over_quota(state: ReadState, path: str) -> str:
    node, used = state.queues.ledger.nodes[path], _asked(state.queues.ledger.used.get(path, {}))
    found = [name for name in sorted(used) if EVERYTHING != node.guaranteed.get(name, 0) < used[name]]
    return ", ".join(found)
