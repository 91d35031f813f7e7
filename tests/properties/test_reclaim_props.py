"""Reclaim on random trees and loads: legal, no larger than needed, found whenever there is any; and then over."""

from __future__ import annotations

from itertools import combinations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.core.preemption.reclaim import Run, objection, victims
from muster.core.quota.demand import Charge, Demand
from muster.core.quota.ledger import Ledger
from muster.model.keys import Ref
from muster.model.quota import QuotaNode, QuotaTree

SETTINGS = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
TREE = Ref("ElasticQuotaTree", "kube-system", "tree", "tree")
MOST_RUNNING = 9

Load = tuple[Ledger, dict[str, list[Run]]]


@st.composite
def loads(draw: st.DrawFn) -> Load:
    """A tree of two levels, full of small jobs, sometimes all of one size, that borrow what others are guaranteed."""
    largest = draw(st.sampled_from((1, 2, 4)))
    branches = draw(st.integers(1, 3))
    nodes: list[QuotaNode] = []
    total = 0
    leaves: list[str] = []
    for branch in range(branches):
        path = f"root/b{branch}"
        mins = draw(st.lists(st.integers(0, 6), min_size=1, max_size=3))
        own = sum(mins) + draw(st.integers(0, 3))
        total += own
        children = tuple(f"{path}/l{index}" for index in range(len(mins)))
        leaves += children
        nodes.append(QuotaNode(path, {"cpu": own}, {"cpu": own + 20}, (), children))
        nodes += [QuotaNode(each, {"cpu": least}, {"cpu": 30}, ()) for each, least in zip(children, mins, strict=True)]
    root = QuotaNode("root", {"cpu": total}, {"cpu": total}, (), tuple(f"root/b{each}" for each in range(branches)))
    ledger = Ledger()
    ledger.install(QuotaTree(TREE, (root, *nodes)))
    runs: dict[str, list[Run]] = {}
    for number in range(draw(st.integers(0, MOST_RUNNING))):
        leaf, size = draw(st.sampled_from(leaves)), draw(st.integers(1, largest))
        demand = Demand({"cpu": size})
        if ledger.shortfall(leaf, demand) is None:
            uid = f"job-{number}"
            ledger.charge(uid, Charge("any", leaf, demand.request))
            runs.setdefault(leaf, []).append((draw(st.integers(0, 2)), -number, uid, uid))
    for work in runs.values():
        work.sort()
    return ledger, runs


def claims(ledger: Ledger) -> list[tuple[str, Demand]]:
    """What every leaf could claim in one piece: all that is left of its guarantee."""
    found = []
    for path, node in ledger.nodes.items():
        left = node.guaranteed.get("cpu", 0) - ledger.used.get(path, {}).get("cpu", 0)
        if not node.children and left > 0:
            found.append((path, Demand({"cpu": left})))
    return [claim for claim in found if ledger.shortfall(*claim) is not None]


@SETTINGS
@given(loads())
def test_victims_are_legal_needed_and_found_whenever_there_are_any(load: Load) -> None:
    ledger, runs = load
    for queue, demand in claims(ledger):
        chosen = victims(ledger, queue, demand, runs, lambda _: True)
        if chosen:
            assert objection(ledger, queue, demand, chosen) == ""
            assert all(ledger.charges[uid].queue != queue for uid in chosen)
            continue
        equal = len({charge.request["cpu"] for charge in ledger.charges.values()}) == 1
        for size in range(1, 4 if equal else 2):
            for some in combinations(sorted(ledger.charges), size):
                assert objection(ledger, queue, demand, some), f"{queue} could have had {demand} from {some}"


@SETTINGS
@given(loads())
def test_taking_back_comes_to_an_end_and_is_never_undone(load: Load) -> None:
    """Everybody claims what is owed until nobody can: each job leaves at most once, and nobody takes it back."""
    ledger, runs = load
    took: set[tuple[str, str]] = set()
    left: set[str] = set()
    for step in range(100):
        for queue, demand in claims(ledger):
            chosen = victims(ledger, queue, demand, runs, lambda uid: uid in ledger.charges)
            if chosen:
                break
        else:
            return
        for uid in chosen:
            charge = ledger.release(uid)
            assert charge is not None
            assert uid not in left, f"{uid} leaves twice"
            left.add(uid)
            assert (charge.queue, queue) not in took, "who gave way takes it back"
            took.add((queue, charge.queue))
            runs[charge.queue] = [run for run in runs[charge.queue] if run[3] != uid]
            assert not ledger.owed(charge.queue, charge.demand), "who gave way could claim it back at once"
        claimant = f"claimant-{step}"
        ledger.charge(claimant, Charge("any", queue, demand.request))
        runs.setdefault(queue, []).append((1, -100 - step, claimant, claimant))
        runs[queue].sort()
    raise AssertionError("taking back does not come to an end")


@SETTINGS
@given(loads(), st.randoms(use_true_random=False))
def test_the_order_in_which_work_is_listed_changes_nothing(load: Load, rng: st.DataObject) -> None:
    ledger, runs = load
    shuffled = list(runs.items())
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    for queue, demand in claims(ledger):
        assert victims(ledger, queue, demand, runs, lambda _: True) == victims(
            ledger, queue, demand, dict(shuffled), lambda _: True
        )


def test_two_queues_without_a_min_give_in_turn() -> None:
    """The furthest above is asked for anew after each victim, also among those whose min is zero."""
    leaves = [QuotaNode(f"root/{name}", {"cpu": least}, {"cpu": 9}) for name, least in (("a", 2), ("x", 0), ("y", 0))]
    root = QuotaNode("root", {"cpu": 6}, {"cpu": 6}, (), tuple(leaf.path for leaf in leaves))
    ledger = Ledger()
    ledger.install(QuotaTree(TREE, (root, *leaves)))
    runs: dict[str, list[Run]] = {"root/x": [], "root/y": []}
    for number in range(6):
        leaf, uid = f"root/{'xy'[number % 2]}", f"job-{number}"
        ledger.charge(uid, Charge("any", leaf, {"cpu": 1}))
        runs[leaf].append((0, -number, uid, uid))
    for work in runs.values():
        work.sort()
    assert victims(ledger, "root/a", Demand({"cpu": 2}), runs, lambda _: True) == ["job-4", "job-5"]
