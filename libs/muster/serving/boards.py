"""The quota tree as values: nodes with their usage, and the tree for programs. Pure."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct, field

from muster.model.resources import format_quantity, texts
from muster.model.text import instant


class Amount(Struct, frozen=True):
    """One resource of one node, in base units; ``limit`` None: no max."""

    resource: str
    used: int
    guaranteed: int
    limit: int | None

    @property
    def over(self) -> bool:
        return self.limit is not None and self.used > self.limit

    @property
    def borrowed(self) -> int:
        """How much is used beyond the guarantee."""
        return max(0, self.used - self.guaranteed)


class QueueHead(Struct, frozen=True):
    """The first job of a queue, and why it waits."""

    job: str
    code: str
    text: str


class RayWorkers(Struct, frozen=True):
    """Worker replicas of the Ray clusters in a subtree that scale themselves."""

    granted: int
    asked: int
    """Replicas asked for beyond the granted ones."""
    going: int
    """Granted replicas that are being taken back."""


class BoardNode(Struct, frozen=True):
    """One node of the tree. The counts of an inner node include all nodes below."""

    path: str
    depth: int
    leaf: bool
    last: bool
    """The last node among the siblings."""
    namespaces: list[str]
    amounts: list[Amount]
    policy: str
    waiting: int = 0
    admitted: int = 0
    """Charged, running or not."""
    running: int = 0
    priority: int = 0
    head: QueueHead | None = None
    paused: tuple[str, ...] = ()
    """The paused actions at this node: ``admissions``, ``evictions``."""
    beyond: dict[str, int] = field(default_factory=dict)
    """The part of ``used`` beyond the grants, by resource in base units."""

    workers: RayWorkers | None = None
    """Of the Ray clusters in the node that scale themselves; None without such clusters."""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class Board(Struct, frozen=True):
    """The whole board, as of a position of the log."""

    seq: int
    generation: int
    now: int
    tree: str = ""
    """``namespace/name`` of the tree in force; empty when there is none."""
    profile: str = ""
    nodes: list[BoardNode] = field(default_factory=list)
    unsynced: list[str] = field(default_factory=list)
    """Resources that are not listed yet: nothing is admitted meanwhile."""
    pauses: list[str] = field(default_factory=list)
    """The pauses in force, one sentence for each."""
    reclaim: list[str] = field(default_factory=list)
    """The trees with reclaim off, and how to enable reclaim, one sentence for each."""


def record(board: Board, nodes: list[BoardNode]) -> dict[str, Any]:
    """The board for programs, quantities as Kubernetes writes them."""
    return {
        "generation": board.generation,
        "sequence": board.seq,
        "at": instant(board.now),
        "tree": board.tree,
        "profile": board.profile,
        "unsynced": board.unsynced,
        "pauses": board.pauses,
        "reclaim_off": board.reclaim,
        "queues": [_record(node) for node in nodes],
    }


def _record(node: BoardNode) -> dict[str, Any]:
    head = node.head
    return {
        "path": node.path,
        "leaf": node.leaf,
        "namespaces": node.namespaces,
        "policy": node.policy,
        "priority": node.priority,
        "min": texts({amount.resource: amount.guaranteed for amount in node.amounts}),
        "max": texts({amount.resource: amount.limit for amount in node.amounts if amount.limit is not None}),
        "used": texts({amount.resource: amount.used for amount in node.amounts}),
        "borrowed": {amount.resource: format_quantity(amount.borrowed, amount.resource) for amount in node.amounts},
        "waiting": node.waiting,
        "admitted": node.admitted,
        "running": node.running,
        "paused": list(node.paused),
        "beyond_grant": texts(node.beyond),
        "ray_workers": None if node.workers is None else msgspec.to_builtins(node.workers),
        "head": None if head is None else {"job": head.job, "reason": head.code, "message": head.text},
    }
