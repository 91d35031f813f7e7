"""Preemption inside a queue on random trees, loads and histories: legal, needed, found, strict, and then over."""

from __future__ import annotations

from itertools import combinations
from random import Random

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kit.chaos import Chaos
from kit.depth import examples
from kit.histories import worth
from muster.core.quota.candidates import Candidates, Run, basis, search
from muster.core.quota.demand import Charge
from muster.core.quota.evictionrules import giving_objection, rules
from muster.core.quota.ledger.quotaledger import Ledger
from muster.core.victimsearch.search import outranked
from muster.events.decisions import EvictionOrdered
from muster.model.demand import Demand
from muster.model.keys import Ref
from muster.model.quota import QuotaNode, QuotaTree
from muster.runtime.replaying.replay import replay

SETTINGS = settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
TREE = Ref("ElasticQuotaTree", "kube-system", "tree", "tree")
MOST_RUNNING = 10
LOWER_GIVES = {"preempt-lower-priority": "true"}


class Load:
    """Who runs where, with which priority."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.priorities: dict[str, int] = {}
        self.runs: dict[str, list[Run]] = {}

    def start(self, uid: str, leaf: str, size: int, priority: int, *, firm: bool = False) -> bool:
        demand = Demand({"cpu": size}, preemptible=not firm)
        if self.ledger.shortfall(leaf, demand) is not None:
            return False
        self.ledger.charge(uid, Charge("any", leaf, demand.request, preemptible=not firm))
        self.priorities[uid] = priority
        if not firm:
            self.runs.setdefault(leaf, []).append(Run(priority, -len(self.priorities), 0, uid, uid))
            self.runs[leaf].sort()
        return True

    def stop(self, uid: str) -> None:
        charge = self.ledger.release(uid)
        assert charge is not None
        self.runs[charge.queue] = [run for run in self.runs[charge.queue] if run.uid != uid]

    def victims(self, queue: str, demand: Demand, priority: int, *, reclaims: bool = True) -> list[str]:
        return outranked(basis(self.ledger), queue, demand, priority, Candidates(self.runs), reclaims=reclaims).uids

    def objection(self, queue: str, demand: Demand, priority: int, chosen: list[str]) -> str:
        own, given = [uid for uid in chosen if self.ledger.charges[uid].queue == queue], basis(self.ledger)
        judge = rules(given, queue, demand, inside=bool(own))
        if not judge.claims() and any(self.priorities[uid] >= priority for uid in own):
            return "not_lower"
        return giving_objection(judge, search(given, queue, demand), chosen)


@st.composite
def loads(draw: st.DrawFn) -> Load:
    """One or two branches of leaves, many of which let priority preempt, full of jobs; some are not preemptible."""
    nodes: list[QuotaNode] = []
    leaves: list[str] = []
    total = 0
    for branch in range(draw(st.integers(1, 2))):
        path = f"root/b{branch}"
        mins = draw(st.lists(st.sampled_from((0, 2, 4, 5)), min_size=1, max_size=2))
        own = sum(mins) + draw(st.sampled_from((0, 0, 2)))
        total += own
        children = tuple(f"{path}/l{index}" for index in range(len(mins)))
        leaves += children
        nodes.append(QuotaNode(path, {"cpu": own}, {"cpu": own + draw(st.integers(0, 8))}, (), children))
        for each, least in zip(children, mins, strict=True):
            most = least + draw(st.integers(0, 8))
            nodes.append(QuotaNode(each, {"cpu": least}, {"cpu": most}, preempts=draw(st.integers(0, 3)) > 0))
    tops = tuple(node.path for node in nodes if node.path.count("/") == 1)
    root = QuotaNode("root", {"cpu": total}, {"cpu": total}, (), tops)
    ledger = Ledger()
    ledger.install(QuotaTree(TREE, (root, *nodes)))
    load = Load(ledger)
    for number in range(draw(st.integers(2, MOST_RUNNING))):
        firm = draw(st.integers(0, 9)) == 0
        priority, size = draw(st.integers(0, 3)), draw(st.integers(1, 4))
        load.start(f"job-{number}", draw(st.sampled_from(leaves)), size, priority, firm=firm)
    return load


def claims(load: Load) -> list[tuple[str, Demand, int]]:
    """What the leaves could ask for and are refused, at every priority there is."""
    return [
        (path, demand, priority)
        for path, node in load.ledger.nodes.items()
        if not node.children
        for size in sorted({1, 3, 5, node.guaranteed["cpu"]} - {0})
        for priority in (0, 1, 3, 4)
        for firm in (False, True)
        if load.ledger.shortfall(path, demand := Demand({"cpu": size}, preemptible=not firm)) is not None
    ]


@SETTINGS
@given(loads(), st.booleans())
def test_victims_are_outranked_legal_and_no_fewer_would_do(load: Load, reclaims: bool) -> None:
    for queue, demand, priority in claims(load):
        chosen = load.victims(queue, demand, priority, reclaims=reclaims)
        own = [uid for uid in chosen if load.ledger.charges[uid].queue == queue]
        assert bool(own) == bool(chosen), "somebody of its own queue is among them"
        assert all(load.priorities[uid] < priority for uid in own)
        assert all(load.ledger.charges[uid].preemptible for uid in chosen)
        assert reclaims or own == chosen
        if not chosen:
            continue
        assert load.ledger.nodes[queue].preempts
        assert load.objection(queue, demand, priority, chosen) == ""
        for size in range(len(chosen)):
            for fewer in combinations(chosen, size):
                assert load.objection(queue, demand, priority, list(fewer)), f"{fewer} of {chosen} would do"


def test_others_give_the_rest_once_the_claimant_is_within_its_min_without_lower_priority() -> None:
    """a/low gives what takes its queue above the min, and of those who borrow the youngest gives the rest."""
    leaves = [
        QuotaNode(f"root/{name}", {"cpu": least}, {"cpu": 9}, preempts=True) for name, least in (("a", 5), ("b", 0))
    ]
    root = QuotaNode("root", {"cpu": 8}, {"cpu": 8}, (), tuple(leaf.path for leaf in leaves))
    ledger = Ledger()
    ledger.install(QuotaTree(TREE, (root, *leaves)))
    load = Load(ledger)
    for uid, leaf, size, priority in (("low", "a", 1, 0), ("x", "b", 3, 9), ("y", "b", 3, 9), ("same", "a", 1, 5)):
        assert load.start(uid, f"root/{leaf}", size, priority)
    claimant = Demand({"cpu": 4})
    assert load.victims("root/a", claimant, 5) == ["low", "y"]
    assert load.victims("root/a", claimant, 5, reclaims=False) == []
    assert load.objection("root/a", claimant, 5, ["low", "y"]) == ""
    assert load.objection("root/a", Demand({"cpu": 5}), 5, ["low", "y", "x"]) == "below_min"
    assert load.objection("root/a", claimant, 5, ["low", "y", "x"]) == "below_min", "x makes no room that is lacking"
    assert load.objection("root/a", claimant, 5, ["low", "same"]) == "not_lower"


@SETTINGS
@given(loads())
def test_whoever_can_be_helped_by_its_own_queue_is_and_the_lowest_go(load: Load) -> None:
    for queue, demand, priority in claims(load):
        chosen = load.victims(queue, demand, priority, reclaims=False)
        giving = [run.uid for run in load.runs.get(queue, ()) if run.priority < priority]
        lean = load.ledger.nodes[queue].preempts
        if not demand.preemptible:
            lean = lean and not any(load.ledger.beyond_mins(queue, demand))
        fits = lean and any(
            not load.objection(queue, demand, priority, list(some))
            for size in range(1, len(giving) + 1)
            for some in combinations(giving, size)
        )
        assert bool(chosen) == fits, f"{demand} of priority {priority} at {queue}: {giving}"
        spared = [uid for uid in giving if uid not in chosen]
        for uid in chosen:
            lower = [each for each in spared if load.priorities[each] < load.priorities[uid]]
            sizes = [load.ledger.charges[each].request["cpu"] for each in lower]
            mine = load.ledger.charges[uid].request["cpu"]
            swapped = [other for other, size in zip(lower, sizes, strict=True) if size >= mine]
            assert not swapped, f"{swapped[0]} is lower than {uid}, gives as much, and is spared"


@SETTINGS
@given(loads(), st.lists(st.tuples(st.integers(0, 5), st.integers(1, 6), st.integers(0, 4)), max_size=8))
def test_nobody_evicts_in_turn_and_it_comes_to_an_end(load: Load, coming: list[tuple[int, int, int]]) -> None:
    """Jobs come, take what is free or what lower priority has, and whoever gave way tries again: until nobody moves."""
    leaves = [path for path, node in load.ledger.nodes.items() if not node.children]
    waiting = [(f"new-{i}", leaves[leaf % len(leaves)], size, prio) for i, (leaf, size, prio) in enumerate(coming)]
    took: set[tuple[str, str]] = set()
    known = {uid: (charge.queue, charge.request["cpu"]) for uid, charge in load.ledger.charges.items()}
    for _ in range(400):
        waiting.sort(key=lambda each: (-each[3], each[0]))
        for each in waiting:
            uid, queue, size, priority = each
            demand = Demand({"cpu": size})
            chosen = [] if load.ledger.shortfall(queue, demand) is None else load.victims(queue, demand, priority)
            if not chosen and load.ledger.shortfall(queue, demand) is not None:
                continue
            for victim in chosen:
                same = load.ledger.charges[victim].queue == queue
                assert (victim, uid) not in took, f"{uid} takes back from {victim}"
                took.add((uid, victim))
                assert not same or load.priorities[victim] < priority
                load.stop(victim)
                waiting.append((victim, *known[victim], load.priorities[victim]))
            assert load.start(uid, queue, size, priority), "what was taken back is enough"
            known[uid] = (queue, size)
            waiting.remove(each)
            break
        else:
            return
    raise AssertionError("taking back does not come to an end")


@SETTINGS
@given(st.integers(0, 2**32))
@example(6806613)  # evicted, started around the queue, and evicted again under one attempt
def test_any_history_with_preemption_keeps_the_invariants_and_replays(seed: int) -> None:
    chaos = Chaos(Random(seed), **LOWER_GIVES)
    chaos.run()
    chaos.audit()
    report = replay(chaos.bench.log, silences=False)
    assert not report.divergences, report.divergences[0]


def test_histories_reach_preemption() -> None:
    def happened(seed: int) -> list[str]:
        chaos = Chaos(Random(seed), **LOWER_GIVES)
        chaos.run()
        orders = [each for each in chaos.bench.happened(EvictionOrdered) if each.priority is not None]
        return ["order"] * len(orders)

    worth(map(happened, range(60)), order=6)
