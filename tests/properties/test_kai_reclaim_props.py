"""Reclaim between KAI queues: who may take, who gives, no more than is needed, and never back again."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from kit import facts
from kit.kai import queue
from muster.core.quota import rayclaims
from muster.core.quota.candidates import Basis, Candidates, Run, basis, search
from muster.core.quota.demand import Charge, QueuedRequest
from muster.core.quota.evictionrules import giving_objection, rules
from muster.core.quota.ledger.quotaledger import Ledger, shares_with
from muster.core.quota.rayclaims import Spare
from muster.core.quota.trees.capacity import SeenNode
from muster.core.quota.trees.forest import Forest
from muster.core.quota.trees.kaisource import compile_queues
from muster.core.victimsearch.search import owed, workers
from muster.events.base import Cause
from muster.events.facts import KaiQueueObserved
from muster.model.demand import Demand
from muster.model.keys import Ref
from muster.model.quota import KAI_ROOT
from muster.model.victims import PartialVictim

GPU = "nvidia.com/gpu"


def ledger(total: int, *queues: KaiQueueObserved) -> Ledger:
    forest = Forest()
    forest.node("n", SeenNode("n", {"cpu": 10**9, "memory": 10**15, GPU: total * 1000}), Cause(1, 0))
    for each in queues:
        forest.kai.observed(each, Cause(1, 0))
    assert forest.kai.tree is not None
    found = Ledger()
    found.install(forest.kai.tree)
    return found


def path_of(found: Ledger, name: str) -> str:
    return found.queues[name]


def run(found: Ledger, uid: str, name: str, gpus: int, *, preemptible: bool = True) -> Run:
    found.charge(uid, Charge("ns", path_of(found, name), {GPU: gpus * 1000}, 1, preemptible, f"kai:{name}"))
    return Run(50, -len(found.charges), 0, f"ns/{uid}", uid)


def wait(found: Ledger, uid: str, name: str, gpus: int) -> Demand:
    demand = Demand({GPU: gpus * 1000}, 1)
    found.queued(uid, QueuedRequest(1, path_of(found, name), demand.request))
    return demand


def victims(given: Basis, path: str, demand: Demand, candidates: Candidates) -> list[str]:
    return owed(given, path, demand, candidates).uids


def objected(found: Ledger, path: str, demand: Demand, uids: list[str]) -> str:
    given = basis(found)
    return giving_objection(rules(given, path, demand), search(given, path, demand), uids)


def cleared(found: Ledger, uid: str, path: str, demand: Demand, uids: list[str]) -> str:
    """What is said where they leave for room on nodes."""
    given, shares = basis(found, uid), shares_with(found, uid, path, demand)
    begun = search(given, path, demand, places=True)
    said = giving_objection(rules(given, path, demand, shares=shares), begun, uids, places=True)
    return "" if said == "not_enough" else said


def taken(found: Ledger, name: str, demand: Demand, runs: dict[str, list[Run]]) -> list[str]:
    uids = victims(basis(found), path_of(found, name), demand, Candidates(runs))
    if uids:
        assert objected(found, path_of(found, name), demand, uids) == ""
    return uids


def test_a_queue_takes_back_what_it_is_guaranteed() -> None:
    found = ledger(4, queue("a", gpu=(2, -1, 1)), queue("b", gpu=(2, -1, 1)))
    runs = {path_of(found, "b"): [run(found, f"b{index}", "b", 1) for index in range(4)]}
    assert len(taken(found, "a", wait(found, "x", "a", 2), runs)) == 2
    assert taken(found, "a", wait(found, "y", "a", 3), runs) == [], "three are beyond its fair share"


def test_a_queue_takes_back_its_fair_share_of_what_nobody_is_guaranteed() -> None:
    found = ledger(4, queue("a", gpu=(0, -1, 1)), queue("b", gpu=(0, -1, 1)))
    runs = {path_of(found, "b"): [run(found, f"b{index}", "b", 1) for index in range(4)]}
    assert len(taken(found, "a", wait(found, "x", "a", 2), runs)) == 2


def test_nothing_is_taken_between_queues_that_are_guaranteed_everything() -> None:
    found = ledger(4, queue("a"), queue("b"))
    runs = {path_of(found, "b"): [run(found, f"b{index}", "b", 1) for index in range(4)]}
    assert taken(found, "a", wait(found, "x", "a", 1), runs) == []


def test_queues_are_compared_under_the_node_they_share() -> None:
    """The department of ``b`` is within its share, however far above its own ``b`` is."""
    found = ledger(
        8,
        queue("one", gpu=(4, -1, 1)),
        queue("two", gpu=(4, -1, 1)),
        queue("a", "one", gpu=(4, -1, 1)),
        queue("b", "two", gpu=(0, -1, 1)),
        queue("c", "two", gpu=(4, -1, 1)),
    )
    runs = {
        path_of(found, "b"): [run(found, f"b{index}", "b", 1) for index in range(4)],
        path_of(found, "a"): [run(found, f"a{index}", "a", 1) for index in range(4)],
    }
    assert taken(found, "a", wait(found, "x", "a", 1), runs) == [], "its side has its four"
    victims = taken(found, "c", wait(found, "y", "c", 2), runs)
    assert sorted(victims) == ["b0", "b1"] or all(uid.startswith("b") for uid in victims), victims
    assert len(victims) == 2


NAMES = ("q0", "q1", "q2", "q3")


Case = tuple[Ledger, dict[str, list[Run]], str, Demand]


def case(seed: int) -> Case:
    """A full cluster, most of it in the hands of one or two queues, and a claimant of another."""
    rng = Random(seed)
    total, levels = rng.randint(2, 10), rng.randint(1, 3)
    tops = [
        queue(
            name, name[:-1] if len(name) > 4 else "", gpu=(rng.randint(0, 5), -1, rng.randint(0, 3)), priority=priority
        )
        for name in (("top0", "top1"), ("top0", "top1", "top00", "top10"))[levels > 2]
        for priority in (rng.choice((100, 100, 200)),)
        if levels > 1
    ]
    queues = [
        queue(
            name,
            f"top{index % 2}{'0' if levels > 2 and index < 2 else ''}" if levels > 1 else "",
            gpu=(rng.randint(0, 4), -1, rng.randint(0, 3)),
            priority=rng.choice((100, 100, 200)),
        )
        for index, name in enumerate(NAMES)
    ]
    found = ledger(total, *tops, *queues)
    claimant = rng.choice(NAMES)
    busy = rng.sample([name for name in NAMES if name != claimant], rng.randint(1, 2))
    runs: dict[str, list[Run]] = {}
    left, index = total, 0
    while left:
        gpus = min(rng.randint(1, 3), left)
        left, index = left - gpus, index + 1
        name = rng.choice(busy) if rng.random() < 0.9 else rng.choice(NAMES)
        runs.setdefault(path_of(found, name), []).append(run(found, f"r{index}", name, gpus))
    for name in NAMES:
        if rng.random() < 0.3:
            wait(found, f"w-{name}", name, rng.randint(1, 4))
    demand = wait(found, "claimant", claimant, rng.randint(1, 4))
    return found, {leaf: sorted(work) for leaf, work in runs.items()}, claimant, demand


def enough_balanced(found: Ledger, path: str, demand: Demand, uids: list[str]) -> bool:
    """Whether enough of them would do alone by the ratio of their sides: where not, one more gives than is needed."""
    objections = (objected(found, path, demand, [e for e in uids if e != uid]) for uid in uids)
    return not any(each in ("unbalanced", "gives_too_much") for each in objections)


@settings(max_examples=200)
@given(st.integers(0, 2**32))
def test_what_is_taken_is_needed_legal_and_never_taken_back(seed: int) -> None:
    found, runs, claimant, demand = case(seed)
    uids = taken(found, claimant, demand, runs)
    if not uids:
        return
    path = path_of(found, claimant)
    charges = {uid: found.charges[uid] for uid in uids}
    assert all(charge.preemptible and charge.queue != path for charge in charges.values())
    for uid in uids:
        rest = [each for each in uids if each != uid]
        assert objected(found, path, demand, rest) != "", "nobody of them is too many"
    released = sum(charge.request[GPU] for charge in charges.values())
    smallest = min(charge.request[GPU] for charge in charges.values())
    assert released - demand.request[GPU] < smallest or not enough_balanced(found, path, demand, uids)
    for uid, charge in charges.items():
        found.release(uid)
        found.queued(uid, QueuedRequest(2, charge.queue, charge.request))
    assert found.shortfall(path, demand) is None, "the claimant fits"
    found.charge("claimant", Charge("ns", path, demand.request, 1, True, f"kai:{claimant}"))
    back = {path: [Run(50, 0, 0, "ns/claimant", "claimant")]}
    for uid, charge in charges.items():
        assert victims(basis(found), charge.queue, charge.demand, Candidates(back)) == [], uid


@settings(max_examples=200)
@given(st.integers(0, 2**32))
def test_what_leaves_for_room_on_nodes_takes_nothing_back(seed: int) -> None:
    """Whichever of those who may go the nodes need: if they are let go, the claimant never leaves for one of them."""
    found, runs, claimant, demand = case(seed)
    path = path_of(found, claimant)
    may = sorted(run.uid for work in runs.values() for run in work)
    chosen = Random(seed).sample(may, Random(seed).randint(0, len(may)))
    if not chosen or cleared(found, "claimant", path, demand, chosen):
        return
    charges = {uid: found.charges[uid] for uid in chosen}
    for uid, charge in charges.items():
        found.release(uid)
        found.queued(uid, QueuedRequest(2, charge.queue, charge.request))
    found.charge("claimant", Charge("ns", path, demand.request, 1, True, f"kai:{claimant}"))
    for uid, charge in charges.items():
        assert cleared(found, uid, charge.queue, charge.demand, ["claimant"]) != "", uid


def test_the_cases_are_worth_something() -> None:
    taking = sum(
        bool(taken(found, *rest)) for found, runs, *claim in map(case, range(300)) for rest in [(*claim, runs)]
    )
    assert taking >= 60, "in a fifth of them something is taken"


def test_the_compiler_does_not_care_for_the_order_of_the_queues() -> None:
    queues = [queue("a").queue, queue("b", "a").queue, queue("c", "nowhere").queue]
    assert compile_queues(queues) == compile_queues(reversed(queues))


TOO_FEW = ("not_enough", "unbalanced")


def giving(found: Ledger, runs: dict[str, list[Run]], rng: Random) -> dict[str, list[Spare]]:
    """Some of what runs are clusters with a minimum, and replicas of one GPU beyond that."""
    givers = {}
    for work in runs.values():
        for each in work:
            gpus = found.charges[each.uid].request[GPU] // 1000
            least = rng.randint(0, gpus)
            if gpus > least and rng.random() < 0.8:
                givers[each.uid] = [Spare("small", gpus, gpus - least, {GPU: 1000}, 1)]
    return givers


@settings(max_examples=200)
@given(st.integers(0, 2**32))
def test_workers_that_are_taken_are_needed_legal_and_never_taken_back(seed: int) -> None:
    found, runs, claimant, demand = case(seed)
    path, givers = path_of(found, claimant), giving(found, runs, Random(seed))
    counts = workers(basis(found), path, demand, Candidates(runs), givers, None)
    if not counts:
        return

    def parts(chosen: dict[str, int]) -> tuple[PartialVictim, ...]:
        refs = {uid: structs.replace(facts.job(uid), ref=Ref("RayCluster", "ns", uid, uid)) for uid in chosen}
        groups = {uid: {"small": count} for uid, count in chosen.items()}
        return rayclaims.as_victims(groups, refs, dict.fromkeys(chosen, 1), found.charges, givers, {})

    chosen = {uid: groups["small"] for uid, groups in counts.items()}
    assert rayclaims.workers_objection(basis(found), path, demand, parts(chosen), givers) == ""
    needed = demand.request[GPU] - (found.nodes[KAI_ROOT].limit[GPU] - found.used[KAI_ROOT][GPU])
    assert sum(chosen.values()) * 1000 == needed, "one replica is the smallest victim: nothing is released in vain"
    for uid in chosen:
        less = {other: count - (other == uid) for other, count in chosen.items() if count > (other == uid)}
        assert not less or rayclaims.workers_objection(basis(found), path, demand, parts(less), givers) in TOO_FEW
        assert chosen[uid] <= givers[uid][0].most, "its gang stays"
    gave = {uid: found.charges[uid].queue for uid in chosen}
    for uid, count in chosen.items():
        before = found.charges[uid]
        found.release(uid)
        if left := before.request[GPU] - count * 1000:
            found.charge(uid, structs.replace(before, request={GPU: left}))
        found.queued(f"more of {uid}", QueuedRequest(1, before.queue, {GPU: 1000}))
    assert found.shortfall(path, demand) is None, "the claimant fits"
    found.charge("claimant", Charge("ns", path, demand.request, 1, True, f"kai:{claimant}"))
    mine = {path: [Run(50, 0, 0, "ns/claimant", "claimant")]}
    its = {"claimant": [Spare("small", demand.request[GPU] // 1000, demand.request[GPU] // 1000, {GPU: 1000}, 1)]}
    for leaf in gave.values():
        more = Demand({GPU: 1000}, 1)
        assert victims(basis(found), leaf, more, Candidates(mine)) == [], "who gave takes nothing back"
        assert workers(basis(found), leaf, more, Candidates(mine), its, None) == {}, "nor a worker"


def test_the_cases_with_workers_are_worth_something() -> None:
    found = [(case(seed), Random(seed)) for seed in range(300)]
    taking = sum(
        bool(workers(basis(at), path_of(at, name), demand, Candidates(runs), giving(at, runs, rng), None))
        for (at, runs, name, demand), rng in found
    )
    assert taking >= 30, "in a tenth of them workers are enough"
