"""Runtime quota in force: what holds of the shares of any tree, and the deciders' histories in a tree that has them."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kit import facts
from kit.chaos import Chaos
from kit.depth import examples
from kit.histories import kinds_of, worth
from kit.words import in_words
from muster.core.quota.ledger.quotaledger import Ledger
from muster.core.quota.ledger.shares import Shares
from muster.core.quota.trees.treesource import read_tree
from muster.events.decisions import QuotaDenied
from muster.events.facts import TreeNodeSpec
from muster.model.quota import QuotaNode
from muster.runtime.replaying.replay import replay

SETTINGS = settings(max_examples=examples(80), suppress_health_check=[HealthCheck.too_slow])
GPU = "nvidia.com/gpu"


def random_tree(rng: Random, path: str, least: int, depth: int) -> list[QuotaNode]:
    """A node and its subtree: the children's mins within ``least``, maxes and weights as they come."""
    count = rng.randint(2, 4) if depth and rng.random() < 0.8 else 0
    children, found, left = [], [], least
    for index in range(count):
        own = rng.randint(0, left)
        left -= own
        children.append(f"{path}/{index}")
        found += random_tree(rng, children[-1], own, depth - 1)
    limit = {} if rng.random() < 0.2 else {"cpu": least + rng.randint(0, 40), GPU: 8000}
    weight = {"cpu": rng.randint(0, 9)} if rng.random() < 0.7 else {}
    kept = {"cpu": rng.randint(0, least)} if least and rng.random() < 0.3 else {}
    return [QuotaNode(path, {"cpu": least}, limit, (), tuple(children), kept, weight), *found]


def a_tree(rng: Random) -> dict[str, QuotaNode]:
    total = rng.randint(0, 100)
    root, *others = random_tree(rng, "root", total, 3)
    whole = QuotaNode("root", root.guaranteed, {"cpu": total, GPU: 16000}, (), root.children)
    return {node.path: node for node in (whole, *others)}


@SETTINGS
@given(st.integers(0, 2**32))
def test_what_holds_of_any_tree(seed: int) -> None:
    rng = Random(seed)
    nodes = a_tree(rng)
    shares = Shares()
    shares.install(nodes, weighted=True)
    leaves = [path for path, node in nodes.items() if not node.children]
    asks = [(rng.choice(leaves), {"cpu": rng.randint(1, 30), GPU: 1000 * rng.randint(0, 4)}) for _ in range(20)]
    asks = [(leaf, {name: amount for name, amount in request.items() if amount}) for leaf, request in asks]
    told = [(ask, 1) for ask in asks] + [(ask, -1) for ask in asks[:8]]
    for (leaf, request), times in told:
        before = {path: dict(vector) for path, vector in shares.runtime.items()}
        shares.ask(nodes, leaf, request, times)
        changed = {path for path in nodes if before.get(path) != shares.runtime.get(path)}
        assert changed <= set(shares.settle()), "who may use more or less is told"
        assert shares.runtime == shares.as_asked(nodes), "step by step it comes to the same as in one step"
    rng.shuffle(asks)
    for path, node in nodes.items():
        for name in ("cpu", GPU):
            mine = shares.runtime[path][name]
            assert mine <= node.limit.get(name, mine), "never above the max"
            assert sum(shares.runtime[child][name] for child in node.children) <= mine, "no more than there is"
            request = shares.request.get(path, {}).get(name, 0)
            assert mine >= min(request, node.guaranteed.get(name, 0)), "never below what is asked of the min"
            assert name == "cpu" or mine % 1000 == 0, "nobody gets a part of a device"


@SETTINGS
@given(st.integers(0, 2**32))
def test_the_order_of_what_is_asked_makes_no_difference(seed: int) -> None:
    rng = Random(seed)
    nodes = a_tree(rng)
    leaves = [path for path, node in nodes.items() if not node.children]
    asks = [(rng.choice(leaves), {"cpu": rng.randint(1, 30)}) for _ in range(12)]
    found = []
    for _ in range(2):
        shares = Shares()
        shares.install(nodes, weighted=True)
        for leaf, request in asks:
            shares.ask(nodes, leaf, request, 1)
        found.append(shares.runtime)
        rng.shuffle(asks)
    assert found[0] == found[1]


# --- in force ---------------------------------------------------------------------------------------------------


def teams(**weights: str) -> TreeNodeSpec:
    """Three teams of one parent, 30 cpu in all; video and text of min 5, devops of none."""
    least = {"video": 5, "text": 5, "devops": 0}
    leaves = tuple(
        facts.node(name, {"cpu": mine}, {"cpu": 30}, (name,), weight=weights.get(name, "1"))
        for name, mine in least.items()
    )
    return facts.node("root", {"cpu": 30}, {"cpu": 30}, children=leaves)


def history(seed: int) -> Chaos:
    chaos = Chaos(Random(seed), 24, teams(video="3"), runtime="weight")
    chaos.run()
    return chaos


@SETTINGS
@given(st.integers(0, 2**32))
def test_any_history_comes_to_rest_and_replays_and_nobody_waits_who_would_fit(seed: int) -> None:
    chaos = history(seed)
    chaos.audit()
    sorter = chaos.bench.states["queue_sorter"]
    ledger: Ledger = chaos.bench.states["quota_accountant"].ledger
    assert ledger.shares.names == ("cpu",)
    assert sorter.queues.ledger.shares.runtime == ledger.shares.runtime, "the copy foresees what the authority answers"
    for job in sorter.queues.jobs.values():
        if job.status == "waiting":
            assert ledger.shortfall(job.queue, job.demand) is not None, f"{job.ref} waits and would fit"
    report = replay(chaos.bench.log, silences=False)
    assert report.decisions > 0
    assert not report.divergences, report.divergences[0]
    assert not report.violations


def test_the_histories_are_worth_something() -> None:
    """Jobs are denied by runtime and reserved in them."""

    def happened(seed: int) -> Iterator[str]:
        bench = history(seed).bench
        yield from kinds_of(bench.log)
        yield from ("denied" for event in bench.happened(QuotaDenied) if event.short and event.short.of_runtime)

    worth(map(happened, range(12)), QuotaReserved=1, denied=1)


# --- the tree as written ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [("3", {"cpu": 3000}), ('{"cpu": "2", "memory": "4Gi"}', {"cpu": 2000, "memory": 4 << 30}), ("", {})],
)
def test_weights_are_read_where_a_tree_divides(text: str, expected: dict[str, int]) -> None:
    tree, broken = read_tree(facts.tree(teams(video=text), rules={"runtime": "weight"}))
    assert not broken
    assert tree.nodes[1].weight == expected
    without, broken = read_tree(facts.tree(teams(video="nonsense")))
    assert not broken
    assert not without.nodes[1].weight, "where it does not, they mean nothing"


def test_a_weight_that_cannot_be_read_refuses_the_tree() -> None:
    _, broken = read_tree(facts.tree(teams(video="heavy"), rules={"runtime": "weight"}))
    assert list(map(in_words, broken)) == [
        "root/video: muster.dev/weight cpu: 'heavy' is not a quantity such as 500m, 4 or 14Gi"
    ]
    _, broken = read_tree(facts.tree(teams(), rules={"runtime": "fair"}))
    assert list(map(in_words, broken)) == ["root: annotation muster.dev/runtime: 'fair' is neither weight nor max"]
