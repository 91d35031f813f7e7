"""Quota that follows the nodes, on random clusters: the judge knows the nodes and the tree as numbers, and tries every
division of what is left in whole devices.
"""

from __future__ import annotations

import json
from itertools import product
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kit import facts
from kit.depth import examples
from kit.flavored import KEY, Types, flavor, leaf, node
from muster.events.decisions import EvictionOrdered, QuotaReserved
from muster.events.facts import NodeGone, NodeObserved
from muster.model.keys import Ref
from muster.model.placing import GPU
from muster.model.quota import QuotaNode
from muster.model.workload import NodeState

SETTINGS = settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
TYPES = ("h100", "a100", "l40")
SHAPE = {"root": ("root/team", "root/c"), "root/team": ("root/team/a", "root/team/b")}
LEAVES = {"a": "root/team/a", "b": "root/team/b", "c": "root/c"}
Amounts = dict[str, int]


class Cluster:
    """The same tree, jobs and nodes; ``sick``: nodes also turn NotReady, or are cordoned."""

    def __init__(self, least: dict[str, Amounts], names: tuple[str, ...], *, sick: bool, **rules: str) -> None:
        self.least, self.names, self.sick, self.scene = least, names, sick, Types()
        self.nodes: dict[str, tuple[str, int, bool]] = {}
        """name -> (type, or empty; GPUs; whether it serves)"""
        leaves = {path: leaf(name, least[path]) for name, path in LEAVES.items()}
        team = node("team", least["root/team"], children=(leaves["root/team/a"], leaves["root/team/b"]))
        root = node("root", {}, children=(team, leaves["root/c"]))
        flavors = json.dumps([flavor(name) for name in names])
        self.scene.do(facts.tree(root, rules={"capacity": "nodes", "flavors": flavors} | rules))
        self.scene.bench.synced()
        self.scene.settle()

    def has(self, name: str, kind: str, gpus: int, *, ready: bool = True, schedulable: bool = True) -> None:
        self.nodes[name] = kind, gpus, ready and schedulable
        ref, labels = Ref("Node", "", name, f"uid-{name}"), {KEY: kind} if kind else {}
        state = NodeState(ref, facts.next_rv(), {"cpu": 64000, GPU: gpus * 1000}, schedulable, ready, labels)
        self.scene.do(NodeObserved(node=state))

    def loses(self, name: str) -> None:
        del self.nodes[name]
        self.scene.do(NodeGone(ref=Ref("Node", "", name, f"uid-{name}"), rv=facts.next_rv()))

    def sums(self, *, serving: bool) -> Amounts:
        total = dict.fromkeys(("gpu", *self.names), 0)
        for kind, gpus, serves in self.nodes.values():
            if serves or not serving:
                total["gpu"] += gpus
                if kind:
                    total[kind] += gpus
        return total

    @property
    def tree(self) -> dict[str, QuotaNode]:
        return {one.path: one for one in self.scene.bench.states["quota_accountant"].ledger.trees["root"].nodes}

    def admitted(self) -> list[tuple[str, int]]:
        return [(event.ref.key, event.attempt) for event in self.scene.bench.happened(QuotaReserved)]


def spoken(amounts: dict[str, int]) -> Amounts:
    return {name.partition("@")[2] or "gpu": amount // 1000 for name, amount in amounts.items() if GPU in name}


def best(amount: int, leasts: list[int]) -> list[tuple[int, ...]]:
    """Every division of an amount in whole devices that is nearest to the proportion of the mins."""
    whole = sum(leasts)
    if whole <= amount:
        return [tuple(leasts)]
    ways = [way for way in product(*(range(least + 1) for least in leasts)) if sum(way) == amount]
    off = [sum((mine * whole - amount * least) ** 2 for mine, least in zip(way, leasts, strict=True)) for way in ways]
    return [way for way, far in zip(ways, off, strict=True) if far == min(off)]


def judged(cluster: Cluster) -> None:
    """The root has what exists; below each node its children are owed their mins, or what there is in proportion."""
    tree, serve = cluster.tree, cluster.sums(serving=True)
    assert spoken(tree["root"].limit) == spoken(tree["root"].guaranteed) == cluster.sums(serving=False)
    for path, below in SHAPE.items():
        given = serve if path == "root" else spoken(tree[path].owes)
        owed = [spoken(tree[child].owes) for child in below]
        least = [spoken(tree[child].guaranteed) for child in below]
        for name in cluster.names:
            mine = tuple(one.get(name, 0) for one in owed)
            assert mine in best(given.get(name, 0), [one.get(name, 0) for one in least]), f"{path} {name}"
        named = [sum(one.get(name, 0) for name in cluster.names) for one in owed]
        rests = [one.get("gpu", 0) - sum(one.get(name, 0) for name in cluster.names) for one in least]
        left = given.get("gpu", 0) - sum(named)
        mine = tuple(one.get("gpu", 0) - part for one, part in zip(owed, named, strict=True))
        assert mine in best(left, rests), f"{path} total: {mine} of {left} for {rests}"


def mins(rng: Random, names: tuple[str, ...]) -> dict[str, Amounts]:
    """Mins by type, and of any type; a parent has what its children have, and perhaps more."""

    def some(more: int = 4) -> tuple[Amounts, int]:
        return {name: rng.randint(0, more) if rng.random() < 0.6 else 0 for name in names}, rng.choice((0, 0, 1, 3))

    parts = {path: some() for path in LEAVES.values()}
    more, rest = some(2)
    a, b = parts["root/team/a"], parts["root/team/b"]
    parts["root/team"] = {name: a[0][name] + b[0][name] + more[name] for name in names}, a[1] + b[1] + rest
    return {path: named | {"gpu": sum(named.values()) + beside} for path, (named, beside) in parts.items()}


@SETTINGS
@given(st.randoms(use_true_random=False))
def test_nodes_that_cannot_serve_refuse_no_job_and_take_nothing_back(rng: Random) -> None:
    names = TYPES[: rng.randint(2, 3)]
    least = mins(rng, names)
    both = [Cluster(least, names, sick=sick, reclaim="disabled", **{"age-limit": "0"}) for sick in (True, False)]
    jobs: list[str] = []
    for index in range(rng.randint(6, 16)):
        what, nodes = rng.random(), [*both[0].nodes]
        if what < 0.35 or not nodes:
            kind, gpus = rng.choice((*names, "")), rng.randint(1, 5)
            for cluster in both:
                cluster.has(f"n{index}", kind, gpus)
        elif what < 0.4:
            for cluster in both:
                cluster.loses(nodes[0])
        elif what < 0.6:
            name, state = rng.choice(nodes), {rng.choice(("ready", "schedulable")): rng.random() < 0.4}
            kind, gpus, _ = both[0].nodes[name]
            both[0].has(name, kind, gpus, **state)
        elif what < 0.7 and jobs:
            name = jobs.pop(rng.randrange(len(jobs)))
            for cluster in both:
                cluster.scene.ends(name)
        else:
            name, gpus = f"{rng.choice('abc')}/j{index}", rng.randint(1, 3)
            jobs.append(name)
            order = ",".join(rng.sample(names, rng.randint(1, len(names))))
            for cluster in both:
                cluster.scene.asks(name, gpus, order=order)
        for cluster in both:
            judged(cluster)
        assert both[0].admitted() == both[1].admitted()
    for cluster in both:
        cluster.scene.bench.sound()


@SETTINGS
@given(st.randoms(use_true_random=False))
def test_what_runs_within_its_min_is_protected_and_no_order_follows_from_a_node(rng: Random) -> None:
    names = TYPES[: rng.randint(2, 3)]
    cluster = Cluster(mins(rng, names), names, sick=True)
    scene = cluster.scene
    for index, name in enumerate((*names, *names, "")):
        cluster.has(f"n{index}", name, rng.randint(2, 5))
    for index in range(rng.randint(5, 12)):
        if rng.random() < 0.4:
            before = len(scene.bench.happened(EvictionOrdered))
            name = rng.choice([*cluster.nodes])
            kind, gpus, serves = cluster.nodes[name]
            cluster.has(name, kind, gpus, ready=not serves)
            orders = scene.bench.happened(EvictionOrdered)[before:]
            assert not (serves and orders), "a node that stops serving takes nothing back"
        else:
            scene.asks(f"{rng.choice('abc')}/j{index}", rng.randint(1, 4))
        judged(cluster)
        for key in [name for name in scene.jobs if scene.on(name) and scene.jobs[name].suspended]:
            if scene.charged(key):
                scene.runs(key)
        for _ in range(20):
            entries = scene.bench.states["quota_accountant"].entries.values()
            leaving = [entry.ref.key for entry in entries if entry.leaving]
            for key in leaving:
                scene.suspended(key)
            if not leaving:
                break
        else:
            raise AssertionError("jobs take each other's room without an end")
    scene.bench.sound()
