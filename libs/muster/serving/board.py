"""The quota tree and the queues as values to show: usage, waiting jobs and running jobs. Pure."""

from __future__ import annotations

from msgspec import Struct

from muster.core.reading.kubequeue import DEFAULT_POLICY
from muster.model.elastic import workers_in
from muster.model.language import say, upper
from muster.model.quota import QuotaNode
from muster.model.resources import summed
from muster.serving.boards import Amount, Board, BoardNode, QueueHead, RayWorkers
from muster.told.presentation.desired import pauses_over
from muster.told.presentation.queuestatus import shown_amounts
from muster.told.readmodel.readstate import ReadState
from muster.told.status.statuses import job_status
from muster.told.wording import jobs
from muster.told.wording.queuewords import reclaim_off


class ReclaimOff(Struct, frozen=True):
    """A tree in which no queue reclaims quota. ``declared``: by the tree itself; else jobs ran at first sight."""

    tree: str
    """namespace/name"""
    declared: bool

    @property
    def told(self) -> tuple[str, str]:
        """The sentence about the tree, and the command that enables reclaim."""
        return reclaim_off(self.tree, declared=self.declared)


def off_in(state: ReadState) -> list[ReclaimOff]:
    """The trees in which reclaim is off."""
    trees = state.queues.ledger.trees.values()
    return [
        ReclaimOff(tree.ref.key, tree.rules.reclaim == "disabled") for tree in trees if not state.sight.reclaims(tree)
    ]


def board_of(state: ReadState) -> Board:
    """The board for a view."""
    tree = state.queues.ledger.tree
    board = Board(state.seq, state.generation, state.now, unsynced=sorted(state.unsynced))
    if tree is None:
        return board
    counts = _counts(state)
    policies = {state.queues.queue_paths.get(uid, ""): shown.policy for uid, shown in state.queue_objects.items()}
    every = state.queues.ledger.nodes.values()
    last = {node.children[-1] for node in every if node.children}
    nodes = [_node(state, node, counts, policies.get(node.path, ""), last) for node in every]
    pauses = list(dict.fromkeys(text for node in every for text in pauses_over(state, node.path)))
    return Board(
        state.seq,
        state.generation,
        state.now,
        tree.ref.key,
        tree.profile,
        nodes,
        sorted(state.unsynced),
        pauses,
        [say("; ").join((upper(text), fix)) for text, fix in (off.told for off in off_in(state))],
    )


def _counts(state: ReadState) -> dict[str, list[int]]:
    """Per path [waiting, admitted, running], everything below included."""
    counts: dict[str, list[int]] = {}

    def add(path: str, column: int, number: int) -> None:
        while path:
            counts.setdefault(path, [0, 0, 0])[column] += number
            path = path.rpartition("/")[0]

    for queue in state.queues.book.queues:
        add(queue, 0, state.queues.book.length(queue))
    for uid, charge in state.queues.ledger.charges.items():
        add(charge.queue, 1, 1)
        workload = state.queues.workloads.get(uid)
        if workload is not None and workload.phase == "running":
            add(charge.queue, 2, 1)
    return counts


def _node(state: ReadState, node: QuotaNode, counts: dict[str, list[int]], policy: str, last: set[str]) -> BoardNode:
    used = shown_amounts(node, state.queues.ledger.used.get(node.path, {}))
    waiting, admitted, running = counts.get(node.path, [0, 0, 0])
    mine = [
        charge.over
        for charge in state.queues.ledger.charges.values()
        if charge.over and _within(charge.queue, node.path)
    ]
    beyond = dict(sorted(summed(mine).items()))
    names = sorted(node.limit.keys() | node.guaranteed.keys() | used.keys())
    return BoardNode(
        path=node.path,
        depth=node.path.count("/"),
        leaf=not node.children,
        last=node.path in last,
        namespaces=list(node.namespaces),
        amounts=[Amount(name, used.get(name, 0), node.guaranteed.get(name, 0), node.limit.get(name)) for name in names],
        waiting=waiting,
        admitted=admitted,
        running=running,
        policy=policy or DEFAULT_POLICY,
        priority=state.queues.queue_priorities.get(node.path, node.priority if node.uid else 0),
        head=_head(state, node.path),
        paused=tuple(sorted(set(state.queues.resting(node.path)))),
        beyond=beyond,
        workers=_workers(state, node.path),
    )


def _workers(state: ReadState, path: str) -> RayWorkers | None:
    queues = [
        (state.records[uid].growth, ledger.claims.going.get(uid))
        for ledger in [state.queues.ledger]
        for uid, charge in ledger.charges.items()
        if uid in state.records and state.records[uid].growth.granted and _within(charge.queue, path)
    ]
    if not queues:
        return None
    return RayWorkers(
        granted=sum(workers_in(growth.granted) for growth, _ in queues),
        asked=sum(workers_in(growth.asked) for growth, _ in queues),
        going=sum(
            max(growth.granted.get(name, 0) - left, 0)
            for growth, cut in queues
            for name, left in (cut.left.items() if cut is not None else ())
        ),
    )


def _within(queue: str, path: str) -> bool:
    return queue == path or queue.startswith(f"{path}/")


def _head(state: ReadState, path: str) -> QueueHead | None:
    first = next(state.queues.book.in_order(path), None)
    if first is None:
        return None
    job = state.queues.jobs[first[0].uid]
    reason = jobs.reason(job_status(state, job.ref.uid))
    return QueueHead(job.ref.key, reason.code, reason.text)
