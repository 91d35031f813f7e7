"""Reclaim between KAI queues, rule by rule, on several resources: each case turns with its rule and no other."""

from __future__ import annotations

from kit.kai import queue
from muster.core.quota import evictionrules
from muster.core.quota.candidates import Run, Search, basis, search
from muster.core.quota.demand import Charge, Demand, QueuedRequest
from muster.core.quota.evictionrules import Between
from muster.core.quota.ledger.quotaledger import Ledger
from muster.core.quota.trees.capacity import SeenNode
from muster.core.quota.trees.forest import Forest
from muster.core.victimsearch.search import lower
from muster.events.base import Cause
from muster.events.facts import KaiQueueObserved
from muster.model.keys import Ref
from muster.model.placing import GPU
from muster.model.resources import Vector

EQUAL = (0, -1, 1)
"""No quota, no limit, an equal part of what is left over."""


def ledger(*queues: KaiQueueObserved, gpus: int = 8, cpus: int = 10) -> Ledger:
    forest, node = Forest(), Ref("Node", "", "n", "n")
    has = {"cpu": cpus * 1000, "memory": 10**12, GPU: gpus * 1000}
    forest.node(node.uid, SeenNode("n", has), Cause(1, 0))
    for each in queues:
        forest.kai.observed(each, Cause(1, 0))
    assert forest.kai.tree is not None
    found = Ledger()
    found.install(forest.kai.tree)
    return found


def amounts(cpu: int, gpu: int) -> Vector:
    return {name: each * 1000 for name, each in (("cpu", cpu), (GPU, gpu)) if each}


def uses(found: Ledger, name: str, *, cpu: int = 0, gpu: int = 0, preemptible: bool = True) -> str:
    """Something that runs in a queue; returns its uid."""
    uid = f"{name}-{len(found.charges)}"
    found.charge(uid, Charge("ns", found.queues[name], amounts(cpu, gpu), 1, preemptible, f"kai:{name}"))
    return uid


def asks(found: Ledger, name: str, *, cpu: int = 0, gpu: int = 0, preemptible: bool = True) -> Between:
    """Something that waits in a queue, as a claimant."""
    demand = Demand(amounts(cpu, gpu), 1, preemptible)
    found.queued(f"{name}-asks", QueuedRequest(1, found.queues[name], demand.request))
    return evictionrules.between(basis(found), found.queues[name], demand)


def begun(rules: Between, *gone: str) -> Search:
    """A search with these chosen."""
    found = search(rules.given, rules.queue, rules.demand)
    for uid in gone:
        found.take(uid)
    return found


# --- who may claim ----------------------------------------------------------------------------------------------------


def test_a_claimant_stays_within_its_share_of_everything() -> None:
    """Of what it does not ask for too: CanReclaimResources compares all three."""
    for cpu, may in ((5, True), (6, False)):
        found = ledger(queue("a", gpu=EQUAL, cpu=EQUAL), queue("b", gpu=EQUAL, cpu=EQUAL))
        uses(found, "a", cpu=cpu)
        uses(found, "b", cpu=10 - cpu, gpu=8)
        asks(found, "b", cpu=9)
        assert asks(found, "a", gpu=1).may_claim() is may, f"{cpu} of 10 cores, of which 5 are its share"


def test_what_is_not_preemptible_stays_within_the_quota_of_what_it_asks_for() -> None:
    """At every level, and only of that: a quota of cores that was lowered below what runs is another matter."""
    for least, may in ((1, True), (0, False)):
        top, low = queue("top", gpu=(least, -1, 1)), (2, -1, 1)
        found = ledger(top, queue("a", "top", gpu=low, cpu=(0, -1, 1)), queue("b", gpu=EQUAL))
        uses(found, "a", cpu=2, preemptible=False)
        uses(found, "b", gpu=8)
        assert asks(found, "a", gpu=1, preemptible=False).may_claim() is may, f"{least} at the top"


# --- who comes into question ------------------------------------------------------------------------------------------


def test_within_quota_nothing_comes_from_who_is_below_its_own_in_what_is_asked() -> None:
    """Above its quota of cores only: they do not help who asks for GPUs."""
    for uses_gpus, may in ((3, False), (4, True), (5, True)):
        found = ledger(queue("a", gpu=(4, -1, 1)), queue("b", gpu=(4, -1, 1), cpu=(1000, -1, 1)))
        uses(found, "b", cpu=6, gpu=uses_gpus)
        rules = asks(found, "a", gpu=2)
        assert rules.asks(found.queues["b"]) is may, f"{uses_gpus} of a quota of 4"


def test_beyond_quota_only_who_is_above_its_share_comes_into_question() -> None:
    for uses_gpus, may in ((4, False), (5, True)):
        found = ledger(queue("a", gpu=EQUAL), queue("b", gpu=EQUAL))
        uses(found, "b", gpu=uses_gpus)
        asks(found, "b", gpu=8)
        rules = asks(found, "a", gpu=4)
        assert rules.asks(found.queues["b"]) is may, f"{uses_gpus} of a share of 4"


# --- who gives --------------------------------------------------------------------------------------------------------


def test_within_quota_who_is_above_its_own_quota_of_anything_gives() -> None:
    """And not to a claimant that is above its quota itself, of anything."""
    for cores, may in ((0, True), (1, False)):
        found = ledger(queue("a", gpu=(4, -1, 1), cpu=EQUAL), queue("b", gpu=(1, -1, 1), cpu=(1000, -1, 1)))
        uid = uses(found, "b", cpu=4, gpu=1)
        rules = asks(found, "a", cpu=cores, gpu=2)
        assert rules.gives(begun(rules).giver(uid), uid, begun(rules)) is may, (
            f"a claimant of {cores} cores without a quota"
        )


def test_within_quota_who_is_within_its_own_keeps_what_it_has() -> None:
    found = ledger(queue("a", gpu=(8, -1, 1)), queue("b", gpu=(8, -1, 1)))
    uid = uses(found, "b", gpu=8)
    rules = asks(found, "a", gpu=2)
    assert not rules.gives(begun(rules).giver(uid), uid, begun(rules)), "quotas of 16 on 8: each may keep its own"


def test_a_victim_is_judged_before_it_is_subtracted() -> None:
    found = ledger(queue("a", gpu=EQUAL), queue("b", gpu=EQUAL))
    first, second = uses(found, "b", gpu=2), uses(found, "b", gpu=3)
    asks(found, "b", gpu=8)
    rules = asks(found, "a", gpu=4)
    assert rules.gives(begun(rules).giver(first), first, begun(rules)), "5 of a share of 4, and 3 are left"
    assert not rules.gives(begun(rules).giver(second), second, begun(rules, first)), "3 of a share of 4"


def test_what_runs_in_a_queue_that_got_queues_below_it_gives_to_those() -> None:
    """It has no share beside theirs; elsewhere it counts as what its queue uses."""
    found = ledger(queue("top", gpu=(4, -1, 1)), queue("a", "top", gpu=(4, -1, 1)), queue("b", gpu=(4, -1, 1)))
    uid = uses(found, "top", gpu=4)
    uses(found, "b", gpu=4)
    rules = asks(found, "a", gpu=2)
    assert rules.may_claim()
    assert rules.asks(found.queues["top"])
    assert not rules.asks(found.queues["b"])
    assert rules.gives(begun(rules).giver(uid), uid, begun(rules))
    assert rules.fair(begun(rules, uid))
    assert not asks(found, "b", gpu=2).asks(found.queues["top"]), "it uses what its queue is guaranteed"


def test_nobody_gives_within_its_own_queue() -> None:
    found = ledger(queue("a", gpu=EQUAL), queue("b", gpu=EQUAL))
    uid = uses(found, "a", gpu=8)
    asks(found, "b", gpu=8)
    rules = asks(found, "a", gpu=1)
    assert rules.shares[found.queues["a"]][GPU].share.amount == 4_000, "it is above its share itself"
    assert not rules.gives(begun(rules).giver(uid), uid, begun(rules)) and not rules.asks(found.queues["a"])


def test_departments_come_in_turn_before_the_teams_of_any() -> None:
    """Also the claimant's own: its team is further above what it keeps than any department, and gives last."""
    half = (4, -1, 1)
    teams = (queue(name, "d1", gpu=(2, -1, 1)) for name in "as")
    found = ledger(queue("d1", gpu=half), queue("d2", gpu=half), *teams, queue("b", "d2", gpu=half))
    uses(found, "s", gpu=3)
    uses(found, "b", gpu=5)
    rules = asks(found, "a", gpu=2)
    others, own = (rules.turn(found.queues[name], begun(rules)) for name in "bs")
    assert others < own
    assert [len(others), len(own)] == [2, 2], "no queue is cheaper than another for its depth below the claimant's"


# --- that nothing is taken back ---------------------------------------------------------------------------------------


def departments(*, second: tuple[int, int, int] = (4, -1, 1)) -> Ledger:
    """d1 with a and s, d2 with b: 4 GPUs and 5 cores each, unless the second says otherwise."""
    half = (4, -1, 1)
    return ledger(
        queue("d1", gpu=half, cpu=EQUAL),
        queue("d2", gpu=second, cpu=EQUAL),
        *(queue(name, "d1", gpu=half, cpu=EQUAL) for name in "as"),
        queue("b", "d2", gpu=second, cpu=EQUAL),
    )


def test_no_side_ends_as_far_above_its_share_as_one_that_gave() -> None:
    for left, may in ((6, True), (5, False), (4, False)):
        found = departments()
        uses(found, "s", gpu=3)
        gone = uses(found, "b", gpu=2)
        uses(found, "b", gpu=left)
        rules = asks(found, "a", gpu=2)
        assert rules.fair(begun(rules, gone)) is may, f"5 of a share of 4 here, {left} of 4 there"


def test_a_side_without_a_share_is_compared_with_nobody() -> None:
    found = departments(second=(0, -1, 0))
    uses(found, "s", gpu=7)
    gone = uses(found, "b", gpu=2)
    rules = asks(found, "a", gpu=2)
    assert rules._share(found.queues["b"].rpartition("/")[0], GPU) == 0
    assert rules.fair(begun(rules, gone))


def test_what_nobody_of_them_asks_for_is_not_compared() -> None:
    """d1 uses 9 of its 5 cores; the claimant and its victim have none."""
    for cores, may in ((0, True), (1, False)):
        found = departments()
        uses(found, "s", cpu=9)
        gone = uses(found, "b", gpu=8, cpu=cores)
        asks(found, "b", cpu=9)
        rules = asks(found, "a", gpu=2)
        assert rules.fair(begun(rules, gone)) is may, f"a victim of {cores} cores"


def test_only_strictly_lower_priority_is_named_in_a_queue() -> None:
    runs = [Run(priority, 0, 0, f"ns/{priority}", str(priority)) for priority in (10, 50, 50, 75)]
    assert [run.priority for run in lower(runs, 50)] == [10]
    assert lower(runs, 10) == []
    assert len(lower(runs, 76)) == 4
