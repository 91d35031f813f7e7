"""The one quota model both tree dialects become: nodes with a guarantee, a limit and the namespaces they serve."""

from __future__ import annotations

from msgspec import Struct, field

from muster.model.keys import Ref
from muster.model.resources import Vector


class QuotaNode(Struct, frozen=True, omit_defaults=True):
    """One node of an accepted tree.

    ``guaranteed``: amounts this subtree can always claim back; absent means zero.
    ``limit``: amounts it may never exceed; absent means unlimited for that resource.
    """

    path: str
    guaranteed: Vector = field(default_factory=dict)
    limit: Vector = field(default_factory=dict)
    namespaces: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    """Full paths of the children, in the order the tree lists them."""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class QuotaTree(Struct, frozen=True, omit_defaults=True):
    """A validated tree: every node once, parents before children, in the order of the object."""

    ref: Ref
    nodes: tuple[QuotaNode, ...]
    profile: str = "ack"
    """Which need of a workload is charged: ``ack`` (head + replicas x worker) or ``full`` (every container)."""


class Violation(Struct, frozen=True):
    """One broken rule: where, which rule, and the values that break it, as one sentence."""

    path: str
    rule: str
    detail: str

    def __str__(self) -> str:
        return f"{self.path}: {self.detail}"
