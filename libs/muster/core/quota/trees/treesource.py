"""ElasticQuotaTrees as a source of the quota model: one object is one tree, and one of them is in force.

A tree that breaks a rule is refused as a whole, and the version before it stays in force: half of a tree that one
person wrote is not what that person meant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from msgspec import Struct, field

from muster.core.quota.trees.tree import ROOT, read_tree
from muster.events.base import Cause, Event
from muster.events.decisions import QuotaTreeAccepted, QuotaTreeRejected, QuotaTreeRemoved
from muster.events.facts import ObjectGone, QuotaTreeGone, QuotaTreeObserved
from muster.model.problem import problem
from muster.model.quota import QuotaTree
from muster.model.resources import Vector


class TreeSource(Struct):
    """The ElasticQuotaTrees that count."""

    OBSERVED: ClassVar[type[Event]] = QuotaTreeObserved
    GONE: ClassVar[type[ObjectGone]] = QuotaTreeGone
    SHARDS: ClassVar[tuple[str, ...]] = ("elasticquotatrees",)

    trees: dict[str, QuotaTreeObserved] = field(default_factory=dict)
    """uid -> newest state"""
    causes: dict[str, Cause] = field(default_factory=dict)
    """uid -> what said so, while it exists or is in force"""
    deleted: Cause = Cause(0, 0)
    """What said last that a tree is gone."""

    def observed(self, event: QuotaTreeObserved, cause: Cause) -> None:
        """A tree exists and says this."""
        self.trees[event.ref.uid], self.causes[event.ref.uid] = event, cause

    def gone(self, uid: str, cause: Cause) -> None:
        self.trees.pop(uid, None)
        self.causes[uid] = self.deleted = cause

    def nodes_give(self, total: Vector, cause: Cause) -> None:
        """Nothing to do: the root of such a tree says itself what there is."""

    def removed(self, uid: str) -> None:
        self.causes.pop(uid, None)

    def decisions_due(
        self, trees: Mapping[str, QuotaTree], judged: Mapping[str, int]
    ) -> Iterator[QuotaTreeAccepted | QuotaTreeRejected | QuotaTreeRemoved]:
        """The oldest that keeps every rule is in force; a second one is refused while it is."""
        force = trees.get(ROOT)
        if force is not None and force.ref.uid not in self.trees:
            yield QuotaTreeRemoved(cause=self.causes.get(force.ref.uid, self.deleted), ref=force.ref)
            return
        owner = force.ref.uid if force is not None else None
        for observed in sorted(self.trees.values(), key=lambda tree: (tree.created, tree.ref.name, tree.ref.uid)):
            uid, cause = observed.ref.uid, self.causes[observed.ref.uid]
            if judged.get(uid) == observed.rv:
                continue
            if owner is not None and owner != uid:
                other = self.trees[owner].ref
                rule = problem(ROOT, "one_tree", tree=other.key)
                yield QuotaTreeRejected(cause=cause, ref=observed.ref, rv=observed.rv, violations=(rule,))
                continue
            tree, broken = read_tree(observed)
            if broken:
                yield QuotaTreeRejected(cause=cause, ref=observed.ref, rv=observed.rv, violations=tuple(broken[:100]))
            else:
                owner = uid
                yield QuotaTreeAccepted(cause=cause, tree=tree, rv=observed.rv)
