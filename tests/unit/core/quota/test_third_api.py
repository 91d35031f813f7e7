"""A third quota API is one more source of the quota model: nothing behind the trees knows where they came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import pytest
from msgspec import field

from kit import nodes
from kit.bench import Bench
from kit.facts import next_rv, seen, tree
from kit.kai import queue, work
from kit.proof import proven
from muster.core.quota.accountant import QuotaAccountant
from muster.core.quota.accountantstate import AccountantState
from muster.core.quota.trees import forest
from muster.core.quota.trees.kaisource import KaiSource
from muster.events.base import Cause, Event
from muster.events.decisions import EvictionOrdered, QuotaReserved, QuotaTreeAccepted, QuotaTreeRemoved
from muster.events.facts import ObjectGone, PriorityClassGone, PriorityClassObserved
from muster.model.keys import Ref
from muster.model.quota import QuotaNode, QuotaTree, Rules
from muster.model.resources import Vector

GPU = "nvidia.com/gpu"


class Pools(KaiSource):
    """Objects of a third API (PriorityClasses stand for them): each is a queue for the namespace of its name, with so
    many GPUs to start with; they share by the rules of fair shares what the nodes have.
    """

    OBSERVED: ClassVar[type[Event]] = PriorityClassObserved
    GONE: ClassVar[type[ObjectGone]] = PriorityClassGone
    SHARDS: ClassVar[tuple[str, ...]] = ("priorityclasses", "nodes")

    pools: dict[str, PriorityClassObserved] = field(default_factory=dict)

    @staticmethod
    def version(event: PriorityClassObserved) -> tuple[Ref, int]:
        return event.ref, event.rv

    def observed(self, event: PriorityClassObserved, cause: Cause) -> None:
        self.pools[event.ref.uid], self.cause, self.count = event, cause, self.count + 1

    def gone(self, uid: str, cause: Cause) -> None:
        self.pools.pop(uid, None)
        self.cause, self.count = cause, self.count + 1

    def nodes_give(self, total: Vector, ready: Vector, device: int, cause: Cause) -> None:
        self.total, self.cause, self.count = dict(total), cause, self.count + 1

    def decisions_due(
        self, trees: Mapping[str, QuotaTree], judged: Mapping[str, int]
    ) -> Iterator[QuotaTreeAccepted | QuotaTreeRemoved]:
        ref = Ref("Pool", "", "pools", "pools")
        names = {each.ref.name: each.value for each in self.pools.values()}
        if not names and "pools" in trees:
            yield QuotaTreeRemoved(cause=self.cause, ref=ref)
        if not names or judged.get("pools") == self.count:
            return
        below = tuple(f"pools/{name}" for name in names)
        root = QuotaNode("pools", limit={GPU: self.total.get(GPU, 0)}, children=below)
        leaves = [
            QuotaNode(f"pools/{name}", {GPU: value * 1000}, namespaces=(name,), weight={GPU: 1000})
            for name, value in names.items()
        ]
        found = QuotaTree(ref, (root, *leaves), "full", Rules(reclaim="enabled"), rule_profile="kai")
        yield QuotaTreeAccepted(cause=self.cause, tree=found, rv=self.count)


class Three(forest.Forest):
    pools: Pools = field(default_factory=Pools)


def pool(name: str, gpus: int) -> PriorityClassObserved:
    return PriorityClassObserved(ref=Ref("PriorityClass", "", name, f"pool-{name}"), rv=next_rv(), value=gpus)


def test_it_stands_beside_the_others_and_nothing_else_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forest, "SOURCES", {**forest.SOURCES, "pools": Pools})
    monkeypatch.setattr(QuotaAccountant, "initial", lambda _self: AccountantState(forest=Three()))
    bench = Bench()
    bench.facts(
        nodes.node("n1", cpu=640, memory=2560, gpu=6),
        *(tree(), queue("team-a", gpu=(0, -1, 1)), pool("lab", 2), pool("field", 2)),
    )
    bench.synced()
    bench.settle()
    ledger = bench.states["quota_accountant"].ledger
    assert [*ledger.trees] == ["root", "kai", "pools"]
    bench.facts(seen(work("e", namespace="video")), seen(work("k", "team-a", gpu=1)))
    for name in ("one", "two", "three", "four"):
        bench.facts(seen(work(name, namespace="lab", gpu=1)))
        bench.settle()
        bench.facts(seen(work(name, namespace="lab", gpu=1, suspended=False, phase="running", settled=False)))
        bench.settle()
    assert sorted({each.queue for each in bench.happened(QuotaReserved)}) == [
        "kai/team-a",
        "pools/lab",
        "root/algorithm/video",
    ]
    bench.facts(seen(work("more", namespace="lab", gpu=2)))
    bench.settle()
    bench.facts(seen(work("owed", namespace="field", gpu=3)))
    bench.settle()
    [ordered] = bench.happened(EvictionOrdered)
    assert (ordered.queue, {each.queue for each in ordered.victims}) == ("pools/field", {"pools/lab"})
    assert ledger.used["kai"][GPU] == 1000, "nobody of another tree gives way for it"
    for name in ("lab", "field"):
        bench.facts(PriorityClassGone(ref=pool(name, 0).ref, rv=next_rv()))
    bench.settle()
    assert [*ledger.trees] == ["root", "kai"]
    bench.check()
    proven(bench.log)
