"""The status of Muster's Queues, of the quota tree and of KAI queues.

The status of a KAI queue has the queues below, the usage and the requests, and whether the queue counts.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct, to_builtins

from muster.core.objects.kaiqueue import KaiStatus, shown_status
from muster.core.objects.meta import ExplainedCondition, digest
from muster.core.quota.demand import chain_of, counted
from muster.core.reading.kubequeue import (
    CREATED_BY,
    DEFAULT_POLICY,
    MADE,
    MAX_ITEMS,
    PARENT_FULLNAME,
    QUEUE_NAMESPACE,
    QUOTA_FULLNAME,
    QueueItem,
    QueueItems,
    QueueStatus,
    queue_name,
    queue_name_prefix,
)
from muster.model import api
from muster.model.kaiqueue import KaiQueue
from muster.model.keys import Ref, parent_path
from muster.model.quota import COUNTED, KAI_ROOT, ROOT, QuotaNode
from muster.model.resources import EVERYTHING, Vector, add_into, texts
from muster.told.presentation.desired import Body, DesiredObject, ObjectVersion, trouble_reason, unit_name
from muster.told.readmodel.readstate import ReadState
from muster.told.wording import problems, queuewords

# --- Queues and the quota tree ----------------------------------------------------------------------------------------


def queue_object(state: ReadState, path: str) -> DesiredObject | None:
    """The Queue of a quota path. None when the path does not exist or when the Queue is up to date."""
    node, tree = state.queues.ledger.nodes.get(path), state.queues.ledger.tree_of(path)
    if node is None or tree is None or tree.root == KAI_ROOT:  # KAI queues are objects of their own
        return None
    existing = next((queue for queue in state.queue_objects.values() if queue.path == path), None)
    status = queue_status(state, path)
    shown = digest(status)
    if existing is not None and existing.shown == shown:
        return None
    parent = parent_path(path)
    annotations = {QUOTA_FULLNAME: path, PARENT_FULLNAME: parent.rpartition("/")[2] if parent else ""}
    return DesiredObject(
        key=f"queue/{path}",
        resource=api.QUEUES,
        namespace=QUEUE_NAMESPACE,
        name=existing.ref.name if existing is not None else queue_name(path),
        seen=ObjectVersion(existing.ref.uid, existing.rv) if existing is not None else None,
        shown=shown,
        metadata={
            "generateName": queue_name_prefix(path),
            "annotations": annotations if existing is not None else {**annotations, MADE: "true"},
            "labels": {CREATED_BY: "true"},
        },
        spec={} if existing is not None else {"queuePolicy": DEFAULT_POLICY},
        status=to_builtins(status),
    )


def queue_status(state: ReadState, path: str) -> QueueStatus:
    """Waiting jobs of a queue: the first hundred, with the jobs to be evaluated next apart from the others; and the
    total.
    """
    active: list[QueueItem] = []
    backoff: list[QueueItem] = []
    for position, (place, key) in enumerate(state.queues.book.in_order(path), start=1):
        if position > MAX_ITEMS:
            break
        job = state.queues.jobs[place.uid]
        workload = state.queues.workloads.get(place.uid)
        name = unit_name(workload) if workload is not None else job.ref.name
        item = QueueItem(name, job.ref.namespace, position, job.priority)
        (active if state.queues.book.shapes[key].denial is None else backoff).append(item)
    return QueueStatus(QueueItems(tuple(active), tuple(backoff)), state.queues.book.length(path))


def surplus_queues(state: ReadState) -> list[Ref]:
    """Muster's Queue objects whose path is not in the tree in force, and second Queue objects of one path."""
    if not state.queues.ledger.trees or not state.synced:
        return []
    kept: set[str] = set()
    surplus = []
    for shown in state.queue_objects.values():
        if shown.path in state.queues.ledger.nodes and shown.path not in kept:
            kept.add(shown.path)
        else:
            surplus.append(shown.ref)
    return surplus


def tree_status(state: ReadState) -> Body | None:
    """The status of the tree in force: the tree, with used and request of every node, and whether the tree counts."""
    tree = state.queues.ledger.trees.get(ROOT)
    if tree is None:
        return None
    wanted: dict[str, Vector] = {path: dict(vector) for path, vector in state.queues.ledger.used.items()}
    for shape in state.queues.book.shapes.values():
        for path in chain_of(shape.queue):
            add_into(wanted.setdefault(path, {}), counted(shape.demand), len(shape.waiting) + shape.open)
    return {"root": _node_status(state, tree.nodes[0], wanted), "conditions": tree_conditions(state, tree.ref.uid)}


def tree_conditions(state: ReadState, uid: str) -> list[Body]:
    """``status.conditions`` of a tree: whether the object as it is now is in force, and the reason if not."""
    trouble = state.troubles.get(uid)
    if trouble is None:
        return [to_builtins(ExplainedCondition("Ready", "True", "Counts", ""))]
    reason = trouble_reason(trouble)
    return [to_builtins(ExplainedCondition("Ready", "False", reason.code, reason.text))]


def _node_status(state: ReadState, node: QuotaNode, wanted: dict[str, Vector]) -> Body:
    body: Body = {
        "name": node.name,
        "min": texts(node.guaranteed),
        "max": texts(node.limit),
        "used": texts(shown_amounts(node, state.queues.ledger.used.get(node.path, {}))),
        "request": texts(shown_amounts(node, wanted.get(node.path, {}))),
    }
    if node.path in state.queues.ledger.shares.runtime:
        body["runtime"] = texts(state.queues.ledger.shares.runtime[node.path])
    if node.namespaces:
        body["namespaces"] = list(node.namespaces)
    if node.children:
        body["children"] = [_node_status(state, state.queues.ledger.nodes[path], wanted) for path in node.children]
    return body


def shown_amounts(node: QuotaNode, amounts: Vector) -> Vector:
    """The amounts, with a zero for every resource in the node's min or max. Jobs
    and machines are left out unless the min or max names the resource.
    """
    spoken = node.limit.keys() | node.guaranteed.keys()
    shown = {name: amount for name, amount in amounts.items() if name in spoken or name not in COUNTED}
    return {**dict.fromkeys(spoken, 0), **shown}


# --- KAI queues -------------------------------------------------------------------------------------------------------


class KaiQueueStatus(Struct, frozen=True):
    """The desired status of a queue, and the digest of the status."""

    ref: Ref
    body: Body
    shown: str


def kai_status(state: ReadState, queue: KaiQueue) -> KaiQueueStatus | None:
    """The status of a queue. None when the queue's status is up to date."""
    ledger = state.queues.ledger
    path = ledger.queues.get(queue.name, "")
    used, firm = ledger.used.get(path, {}), ledger.firm.get(path, {})
    requested = dict(used)
    if path:
        add_into(requested, waiting_below(state, path))
    children = [child.rpartition("/")[2] for child in ledger.nodes[path].children] if path else []
    status = KaiStatus(
        child_queues=tuple(children),
        allocated=_shown(queue, used),
        allocated_non_preemptible=_shown(queue, firm),
        requested=_shown(queue, requested),
        conditions=tuple(_conditions(state, queue, path)),
    )
    shown = shown_status(status)
    # A queue without child queues has no list: the column of `kubectl get queues` stays empty.
    body = {**to_builtins(status), "childQueues": children or None}
    return None if shown == queue.shown else KaiQueueStatus(queue.ref, body, shown)


def waiting_below(state: ReadState, path: str) -> Vector:
    """The requests of all jobs that wait in a queue and below."""
    total: Vector = {}
    for shape in state.queues.book.shapes.values():
        if path in chain_of(shape.queue):
            add_into(total, shape.demand.request, len(shape.waiting) + shape.open)
    return total


def _shown(queue: KaiQueue, amounts: Vector) -> dict[str, str]:
    """The amounts of every resource in a queue's quota, zeros too: a merge patch never takes a key away."""
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
            "Ready", "False", "Disabled", problems.line(why) if why is not None else queuewords.NOT_IN_FORCE
        )
    if path and (over := _over_quota(state, path)):
        yield ExplainedCondition("OverQuota", "True", "UsesSurplus", queuewords.over_quota(over))


def _over_quota(state: ReadState, path: str) -> str:
    node, used = state.queues.ledger.nodes[path], _asked(state.queues.ledger.used.get(path, {}))
    over = [name for name in sorted(used) if EVERYTHING != node.guaranteed.get(name, 0) < used[name]]
    return ", ".join(over)
