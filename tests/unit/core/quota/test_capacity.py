"""Quota that follows the nodes: the root has what exists, and claimants are owed what can serve."""

from __future__ import annotations

import json
from typing import Any

from kit import facts
from kit.flavored import KEY, Types, flavor, leaf, node
from muster.core.cell.seats import Seat
from muster.core.quota.ledger.quotaledger import Ledger
from muster.core.stage import REQUIRED_KINDS
from muster.events.decisions import EvictionOrdered, QuotaTreeAccepted
from muster.events.facts import NodeGone, NodeObserved, Synced, TreeNodeSpec
from muster.model.keys import Ref
from muster.model.placing import GPU
from muster.model.quota import MACHINES, QuotaTree
from muster.model.resources import Vector
from muster.model.workload import NodeState
from muster.told.presentation.desired import tree_event
from muster.told.readmodel.model import ReadModel
from muster.tracesim.facts import Facts
from muster.tracesim.model import NodeGroup, TraceCluster, TraceQueue


class Following(Types):
    """A tree whose root follows the nodes."""

    def follows(self, *children: TreeNodeSpec, of: tuple[str, ...] = (), root: dict[str, Any] | None = None) -> None:
        flavors = json.dumps([flavor(name) for name in of])
        rules = {"capacity": "nodes"} | ({"flavors": flavors} if of else {})
        self.do(facts.tree(node("root", root or {}, root or {}, children=children), rules=rules))

    def has(self, name: str, gpus: int, kind: str = "", *, ready: bool = True, schedulable: bool = True) -> None:
        """A node is there, in this state."""
        ref = Ref("Node", "", name, f"uid-{name}")
        amounts = {"cpu": 64000, GPU: gpus * 1000}
        labels = {KEY: kind} if kind else {}
        self.do(NodeObserved(node=NodeState(ref, facts.next_rv(), amounts, schedulable, ready, labels)))

    def loses(self, name: str) -> None:
        self.do(NodeGone(ref=Ref("Node", "", name, f"uid-{name}"), rv=facts.next_rv()))

    @property
    def tree(self) -> QuotaTree:
        ledger: Ledger = self.bench.states["quota_accountant"].ledger
        return ledger.trees["root"]


def gpus(amounts: Vector) -> dict[str, int]:
    """{flavor, or gpu for the total: GPUs}"""
    return {name.partition("@")[2] or "gpu": amount // 1000 for name, amount in amounts.items() if GPU in name}


def synced(*children: TreeNodeSpec, of: tuple[str, ...] = (), **nodes: tuple[int, str]) -> Following:
    scene = Following()
    for name, (count, kind) in nodes.items():
        scene.has(name, count, kind)
    scene.follows(*children, of=of)
    scene.bench.synced()
    scene.settle()
    return scene


def test_the_root_has_the_sum_of_the_nodes_by_flavor() -> None:
    scene = synced(leaf("a", {"h100": 4}), leaf("b", {"a100": 8}), of=("h100", "a100"), n1=(4, "h100"), n2=(8, "a100"))
    root = scene.tree.nodes[0]
    assert gpus(root.limit) == gpus(root.guaranteed) == {"gpu": 12, "h100": 4, "a100": 8}
    assert "cpu" not in root.limit, "no node of the tree speaks of it"
    scene.has("n3", 2)
    assert gpus(scene.tree.nodes[0].limit) == {"gpu": 14, "h100": 4, "a100": 8}, "a node of no flavor counts in all"
    scene.has("n4", 2, "h100")
    scene.loses("n2")
    assert gpus(scene.tree.nodes[0].limit) == {"gpu": 8, "h100": 6, "a100": 0}
    scene.bench.sound()


def test_a_job_starts_when_its_node_comes() -> None:
    scene = synced(leaf("a", {}), of=("h100",), n1=(4, "h100"))
    scene.asks("a/big", 6)
    assert not scene.on("a/big")
    scene.has("n2", 4, "h100")
    assert scene.on("a/big") == "h100"
    scene.bench.sound()


def test_before_the_nodes_are_known_no_tree_is_in_force() -> None:
    scene = Following()
    scene.follows(leaf("a", {"gpu": 4}))
    scene.bench.facts(*(Synced(kind=kind) for kind in REQUIRED_KINDS if kind != "nodes"))
    scene.settle()
    assert not scene.bench.happened(QuotaTreeAccepted)
    scene.has("n1", 4)
    scene.do(Synced(kind="nodes"))
    assert gpus(scene.tree.nodes[0].limit) == {"gpu": 4}


def test_a_node_that_cannot_serve_lowers_what_claimants_are_owed_and_nothing_else() -> None:
    scene = synced(leaf("a", {"gpu": 8}), leaf("b", {"gpu": 8}), n1=(8, ""), n2=(8, ""))
    scene.asks("b/one", 6)
    scene.runs("b/one")
    scene.asks("b/two", 6)
    scene.runs("b/two")
    scene.has("n2", 8, ready=False)
    assert gpus(scene.tree.nodes[0].limit) == {"gpu": 16}, "no max moves"
    assert {one.name: gpus(one.owes)["gpu"] for one in scene.tree.nodes[1:]} == {"a": 4, "b": 4}
    assert not scene.bench.happened(EvictionOrdered), "and nothing is taken back"
    scene.asks("a/fits", 4)
    assert scene.charged("a/fits") == {"gpu": 4}, "nothing is refused: quota has room"
    scene.asks("a/within", 4)
    assert not scene.bench.happened(EvictionOrdered), "a is owed 4, and uses them"
    scene.has("n2", 8)
    assert scene.victims() == ["b/two"], "a is owed 8 again"
    scene.suspended("b/two")
    assert scene.charged("a/within") == {"gpu": 4}
    scene.bench.sound()


def test_what_runs_within_its_min_is_protected_whatever_serves() -> None:
    scene = synced(leaf("a", {"gpu": 8}), leaf("b", {"gpu": 8}), n1=(8, ""), n2=(8, ""))
    for name in ("one", "two"):
        scene.asks(f"b/{name}", 4)
        scene.runs(f"b/{name}")
    scene.has("n1", 8, schedulable=False)
    scene.asks("a/owed", 8)
    scene.asks("a/more", 2)
    assert not scene.bench.happened(EvictionOrdered)
    scene.bench.sound()


def test_mins_by_flavor_are_lowered_by_flavor() -> None:
    scene = synced(
        leaf("a", {"h100": 4, "gpu": 6}),
        leaf("b", {"h100": 2}),
        leaf("c", {"gpu": 4}),
        of=("h100", "a100"),
        n1=(4, "h100"),
        n2=(2, "h100"),
        n3=(6, "a100"),
    )
    scene.has("n1", 4, "h100", ready=False)
    owed = {one.name: gpus(one.owes) for one in scene.tree.nodes[1:]}
    assert owed == {"a": {"h100": 1, "gpu": 3}, "b": {"h100": 1, "gpu": 1}, "c": {"gpu": 4}}


def test_counted_amounts_and_lower_maxima_stay_as_written() -> None:
    scene = Following()
    scene.follows(leaf("a", {"gpu": 2}, {"gpu": 3}), root={MACHINES: 5, "gpu": 99})
    scene.has("n1", 8)
    scene.bench.synced()
    scene.settle()
    root = scene.tree.nodes[0]
    assert (gpus(root.limit), root.limit[MACHINES]) == ({"gpu": 8}, 5000), "the written 99 GPUs do not count"
    assert gpus(scene.tree.nodes[1].limit) == {"gpu": 3}


def test_one_event_tells_of_nodes_that_cannot_serve() -> None:
    scene = synced(leaf("a", {"gpu": 8}), leaf("b", {"gpu": 8}), n1=(8, ""), n2=(8, ""))
    assert noted(scene) is None
    scene.has("n2", 8, ready=False)
    told = noted(scene)
    assert told == (
        "8 of 16 nvidia.com/gpu: on nodes that are not ready or cordoned. Until these nodes serve again, jobs that "
        "wait are owed less: root/a 4 in place of 8 nvidia.com/gpu, root/b 4 in place of 8 nvidia.com/gpu. No max "
        "changes, and what runs within its min stays"
    )
    scene.has("n2", 8)
    assert noted(scene) is None
    scene = synced(leaf("a", {"gpu": 8}), n1=(8, ""), n2=(8, ""))
    scene.has("n2", 8, schedulable=False)
    assert (noted(scene) or "").endswith("All guarantees can still be given")


def noted(scene: Following) -> str | None:
    """The Event on the tree."""
    seat = Seat(ReadModel())
    for stored in scene.bench.log:
        seat.fold(stored)
    note = tree_event(seat.state)
    return note.message if note is not None else None


def test_simulated_nodes_are_the_root_of_the_tree() -> None:
    """`muster simulate --rule capacity=nodes`: a lost node lowers what is owed, and refuses no job."""
    group = NodeGroup(2, {GPU: 8000})
    queues = tuple(TraceQueue(name=name, path=f"root/{name}", min={GPU: 8000}) for name in ("a", "b"))
    root = TraceQueue(name="root", path="root", min={GPU: 1000}, max={GPU: 1000}, children=queues)
    world = Facts(TraceCluster((group,), root, rules={"capacity": "nodes"}))
    scene = Following()
    scene.do(*world.beginning())
    assert gpus(scene.tree.nodes[0].limit) == {"gpu": 16}
    scene.do(world.node(next(iter(world.nodes)), ready=False))
    assert [gpus(one.owes) for one in scene.tree.nodes[1:]] == [{"gpu": 4}, {"gpu": 4}]
