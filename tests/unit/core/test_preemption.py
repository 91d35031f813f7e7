"""What must not lead reclaim astray: unreadable objects, late adoptions, edits, charges that come to nothing."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kit import facts
from kit.audits import audit
from kit.scenes import Scene
from kit.words import odd
from muster.events.claims import ClaimEnded, ClaimOpened
from muster.events.decisions import (
    EvictionOrdered,
    GangAdmitted,
    GangDeferred,
    PreemptionProposed,
    QuotaReserved,
    ReclaimDeferred,
    WorkloadAdopted,
)
from muster.events.facts import ObjectUnreadable
from muster.model.workload import Wishes
from muster.runtime.replaying.replay import replay


def borrowed(*leaves: tuple[str, int], jobs: int = 2, cpu: int = 4, **rules: str) -> Scene:
    """Eight cores, all of them borrowed by jobs of b that run."""
    scene = Scene()
    scene.tree_of(*(leaves or (("a", 4), ("b", 0))), **rules)
    scene.lines("synced")
    for index in range(jobs):
        scene.lines(f"job b/x{index} cpu={cpu}")
        scene.runs(f"b/x{index}")
    return scene


def unreadable(scene: Scene, name: str) -> None:
    job = scene.jobs[name]
    scene.do(ObjectUnreadable(ref=job.ref, rv=facts.next_rv(), problem=odd("spec.rayClusterSpec: expected object")))


def test_a_borrower_that_cannot_be_read_any_more_is_no_victim() -> None:
    scene = borrowed()
    unreadable(scene, "b/x0")
    scene.lines("job a/owed cpu=4")
    assert scene.victims() == ["b/x1"]
    assert not replay(scene.bench.log, silences=False).divergences


def test_with_nothing_but_unreadable_borrowers_it_is_said_and_waited_for() -> None:
    scene = borrowed(jobs=1, cpu=8)
    unreadable(scene, "b/x0")
    scene.lines("job a/owed cpu=4")
    assert [each.reason for each in scene.bench.happened(ReclaimDeferred)] == ["nothing_evictable"]
    job = scene.jobs["b/x0"]
    scene.change("b/x0", rv=facts.next_rv(), phase=job.phase)
    assert scene.victims() == ["b/x0"], "it can be read again"


def test_claimants_for_whom_nothing_can_be_taken_back_share_a_commit() -> None:
    scene = borrowed(("a", 4), ("c", 4), ("b", 0), jobs=1, cpu=8)
    unreadable(scene, "b/x0")
    scene.lines("job a/owed cpu=4", "job c/owed cpu=4")
    scene.tree_of(("a", 4), ("c", 4), ("b", 0), starvation_limit="9h")
    said = [[type(each) for each in stored.commit.events] for stored in scene.bench.log]
    assert [kinds for kinds in said if ReclaimDeferred in kinds] == [[ReclaimDeferred]] * 2 + [[ReclaimDeferred] * 2]


def test_many_that_began_at_one_moment_are_looked_at_once_each() -> None:
    """The budget of a search is for those that may be chosen: of equal ones the next in order is the best."""
    scene, cores = Scene(), {"cpu": 200}
    leaves = (facts.node("a", cores, cores, ("a",)), facts.node("b", {}, cores, ("b",)))
    scene.do(facts.tree(facts.node("root", cores, cores, children=leaves)))
    scene.lines("synced")
    for index in range(200):
        scene.lines(f"job b/x{index} cpu=1")
        scene.runs(f"b/x{index}")
    scene.lines("job a/owed cpu=190")
    assert len(scene.victims()) == 190


def test_what_starts_around_the_queue_later_does_not_turn_reclaim_off() -> None:
    scene = borrowed(jobs=1)
    scene.do(facts.seen(facts.job("around", "b", cpu=4, memory=0, suspended=False, phase="running")))
    assert [each.reason for each in scene.bench.happened(WorkloadAdopted)] == ["already_running"]
    scene.lines("job a/owed cpu=4")
    assert scene.victims(), "only what ran when the cluster was first seen makes reclaim wait for a word"


def test_a_tree_that_comes_later_adopts_what_ran_at_first_sight_and_reclaim_waits() -> None:
    scene = Scene()
    scene.lines("job b/before cpu=8", "starts b/before", "synced")
    scene.tree_of(("a", 4), ("b", 0))
    scene.lines("job a/owed cpu=4")
    withheld = [each.withheld for each in scene.bench.happened(PreemptionProposed)]
    assert withheld == ["reclaim_disabled"]
    assert not scene.bench.happened(EvictionOrdered)


def test_an_edit_opens_the_gate_that_the_request_before_it_met() -> None:
    """One of two borrowers cannot go: that is not enough for seven cores, and enough for four."""
    scene = borrowed(("a", 7), ("b", 1))
    unreadable(scene, "b/x0")
    scene.lines("job a/owed cpu=7")
    assert [each.reason for each in scene.bench.happened(ReclaimDeferred)] == ["nothing_evictable"]
    scene.lines("edit a/owed cpu=4")
    assert scene.victims() == ["b/x1"]


def test_a_charge_that_comes_to_nothing_opens_the_gate() -> None:
    """Two cores of b/x0 are not enough for four; with those of a charge that never came to run they are."""
    scene = borrowed(("a", 4), ("b", 0), jobs=1, cpu=2)
    scene.lines("job b/fails cpu=2", "job b/starts cpu=4", "job a/owed cpu=4")
    assert [each.reason for each in scene.bench.happened(ReclaimDeferred)] == ["nothing_evictable"]
    scene.fails("b/fails", "resume", "refused")
    assert scene.victims() == ["b/x0"]


def test_nobody_takes_in_the_same_commit_what_an_order_makes_room_for() -> None:
    """The order, and the answer to a proposal that was open beside it: two commits, and what is held stays so."""
    scene = borrowed(jobs=2, cpu=3)
    scene.line("job a/owed cpu=4")
    scene.take("queue_sorter", "quota_accountant", "queue_sorter", "preemptor")
    scene.line("job b/late cpu=2")
    scene.take("queue_sorter", "quota_accountant")
    scene.settle()
    orders = [
        [type(event) for event in stored.commit.events]
        for stored in scene.bench.log
        if any(isinstance(event, EvictionOrdered) for event in stored.commit.events)
    ]
    assert orders == [[EvictionOrdered]]
    reserved = [each.ref.name for each in scene.bench.happened(QuotaReserved)]
    assert "late" not in reserved, "one of the two free cores is held for a/owed"
    assert audit(scene.bench.log).broken == {}


@pytest.mark.parametrize("lends", [8, 3])
def test_what_fits_beside_a_claimant_does_not_wait_until_its_victims_have_left(lends: int) -> None:
    """Six of eight are used and leave for four: one is free now, and then; also where a limit of lending keeps one."""
    scene = borrowed(jobs=1, cpu=6)
    leaves = (facts.node("a", {"cpu": 4}, {"cpu": 8}, ("a",)), facts.node("b", {"cpu": 0}, {"cpu": 8}, ("b",)))
    limit = {**leaves[0].attributes, "alibabacloud.com/lendlimit": f'{{"cpu": {lends}}}'}
    root = facts.node("root", {"cpu": 8}, {"cpu": 8}, children=(replace(leaves[0], attributes=limit), leaves[1]))
    scene.do(facts.tree(root))
    scene.lines("job a/owed cpu=4", "job b/more cpu=4", "job b/late cpu=1")
    assert scene.victims() == ["b/x0"]
    reserved = [each.ref.name for each in scene.bench.happened(QuotaReserved)]
    assert reserved[-1] == "late", "it starts at once, and four would be too much"
    scene.suspended("b/x0")
    assert [each.ref.name for each in scene.bench.happened(QuotaReserved)][-1] == "owed"
    assert audit(scene.bench.log).broken == {}


# --- claims side by side, and when they are over ----------------------------------------------------------------


def orders(scene: Scene) -> list[tuple[str, list[str]]]:
    """(claimant, its victims) of every order."""
    found = scene.bench.happened(EvictionOrdered)
    return [(each.ref.name, [victim.ref.name for victim in each.victims]) for each in found]


def ended(scene: Scene) -> list[tuple[str, str]]:
    return [(each.ref.name, each.outcome) for each in scene.bench.happened(ClaimEnded)]


def reserved(scene: Scene) -> list[str]:
    return [each.ref.name for each in scene.bench.happened(QuotaReserved)]


def test_claims_of_two_queues_and_of_two_jobs_of_one_stand_side_by_side() -> None:
    scene = borrowed(("a", 4), ("c", 2), ("b", 0), jobs=4, cpu=2)
    scene.lines("job a/one cpu=2", "job c/two cpu=2", "job a/three cpu=2")
    assert [claimant for claimant, _ in orders(scene)] == ["one", "two", "three"]
    victims = [victim for _, each in orders(scene) for victim in each]
    assert len(set(victims)) == len(victims) == 3, "nobody leaves for two"
    for victim in victims:
        scene.suspended(f"b/{victim}")
    assert set(reserved(scene)) >= {"one", "two", "three"}
    scene.bench.sound()


def test_who_is_claimed_for_first_does_not_wait_for_the_victims_of_a_later_claim() -> None:
    """Four cores are free, three of them for a/one; what c/two holds beside that is still used by b/x1."""
    scene = borrowed(("a", 4), ("c", 2), ("b", 0), jobs=2, cpu=4)
    scene.lines("job a/one cpu=3", "job c/two cpu=2")
    assert orders(scene) == [("one", ["x0"]), ("two", ["x1"])]
    scene.suspended("b/x0")
    assert reserved(scene)[-1] == "one"
    scene.suspended("b/x1")
    assert "two" in reserved(scene)
    scene.bench.sound()


def test_a_claim_waits_for_victims_that_take_longer_to_stop_than_it_lasts() -> None:
    """Bound to ten minutes without progress, and the clock starts when the last victim has left."""
    scene = borrowed(claim="1m", age_limit="0")
    scene.lines("job a/owed cpu=4", "time +1800s")
    assert orders(scene) == [("owed", ["x0"])]
    assert ended(scene) == []
    scene.suspended("b/x0")
    assert reserved(scene)[-1] == "owed"
    scene.bench.sound()


def test_a_claim_that_comes_no_nearer_ends_that_long_after_its_last_victim_left() -> None:
    """What b/x0 gives back is taken by one that was started around the queue and cannot be suspended."""
    scene = borrowed(claim="1m", age_limit="0")
    scene.lines("job a/owed cpu=4", "time +600s")
    scene.change("b/x1", busy=True)
    around = facts.job("around", "b", cpu=4, memory=0, suspended=False, phase="running", busy=True)
    scene.do(facts.seen(around))
    scene.suspended("b/x0")
    scene.lines("time +50s")
    assert ended(scene) == []
    scene.lines("time +20s")
    assert ended(scene) == [("owed", "expired")]
    scene.bench.sound()


def test_more_is_taken_at_once_where_a_job_that_was_started_around_the_queue_uses_what_comes_free() -> None:
    scene = borrowed()
    scene.lines("job a/owed cpu=4")
    around = facts.job("around", "b", cpu=4, memory=0, suspended=False, phase="running", busy=True)
    scene.do(facts.seen(around))
    assert orders(scene) == [("owed", ["x0"]), ("owed", ["x1"])]
    scene.suspended("b/x0")
    assert "owed" not in reserved(scene)
    scene.suspended("b/x1")
    assert reserved(scene)[-1] == "owed"
    scene.bench.sound()


def test_who_cannot_be_suspended_is_replaced_and_what_the_others_gave_back_stays_held() -> None:
    scene = borrowed(("a", 6), ("b", 0), jobs=4, cpu=2)
    scene.lines("job a/owed cpu=4")
    assert orders(scene) == [("owed", ["x0", "x1"])]
    scene.suspended("b/x1")
    scene.fails("b/x0", "suspend", "refused")
    assert orders(scene)[1:] == [("owed", ["x2"])], "one more, and not the one that could not be suspended"
    scene.lines("job b/greedy cpu=2")
    assert "greedy" not in reserved(scene), "what b/x1 gave back is still held"
    scene.suspended("b/x2")
    assert reserved(scene)[-1] == "owed"
    scene.bench.sound()


def test_a_late_failure_of_an_older_order_does_not_touch_a_newer_claim() -> None:
    scene = borrowed(("a", 4), ("c", 2), ("b", 0), jobs=4, cpu=2)
    scene.lines("job a/first cpu=2", "job c/second cpu=2")
    assert orders(scene) == [("first", ["x0"]), ("second", ["x1"])]
    scene.lines("gone a/first")
    scene.fails("b/x0", "suspend", "refused")
    assert ended(scene) == [("first", "gone")]
    scene.suspended("b/x1")
    assert reserved(scene)[-1] == "second"
    scene.bench.sound()


def test_a_claimant_that_moves_claims_anew_where_it_belongs_now() -> None:
    """Its old claim must not keep it out, nor anybody else."""
    scene = borrowed(("a", 4), ("c", 4), ("b", 0), jobs=2, cpu=4)
    scene.lines("job a/owed cpu=4")
    scene.change("a/owed", labels={"quota.scheduling.alibabacloud.com/name": "c"})
    assert ended(scene) == [("owed", "moved")]
    scene.suspended("b/x0")
    assert reserved(scene)[-1] == "owed"
    assert scene.bench.happened(QuotaReserved)[-1].queue == "root/c"
    scene.bench.sound()


@pytest.mark.parametrize("outcome", ["held", "paused"])
def test_nothing_is_held_for_who_is_held_back_or_paused(outcome: str) -> None:
    scene = borrowed()
    scene.lines("job a/owed cpu=4")
    if outcome == "held":
        scene.change("a/owed", wishes=Wishes(hold=True, by="ann"))
    else:
        scene.tree_of(("a", 4), ("b", 0), paused="admissions")
    assert ended(scene) == [("owed", outcome)]
    scene.bench.sound()


# --- when a claimant for which nothing was found is looked at again ---------------------------------------------


def test_what_an_inner_node_is_guaranteed_beyond_its_children_can_be_claimed() -> None:
    """Of six cores of root/n its children have four between them; root/n/a claims the other four from outside, and
    root/n/c takes its own two back from root/n/a.
    """
    scene = Scene()
    inner = tuple(facts.node(name, {"cpu": 2}, {"cpu": 8}, (name,)) for name in ("a", "c"))
    leaves = (
        facts.node("n", {"cpu": 6}, {"cpu": 8}, children=inner),
        facts.node("b", {"cpu": 2}, {"cpu": 8}, ("b",)),
    )
    scene.do(facts.tree(facts.node("root", {"cpu": 8}, {"cpu": 8}, children=leaves)))
    scene.lines("synced", "job a/base cpu=2")
    scene.runs("a/base")
    for index in range(3):
        scene.lines(f"job b/x{index} cpu=2")
        scene.runs(f"b/x{index}")
    scene.lines("job a/more cpu=2")
    assert orders(scene) == [("more", ["x1"])]
    scene.suspended("b/x1")
    assert reserved(scene)[-1] == "more"
    scene.runs("a/more")
    scene.lines("job a/most cpu=2")
    assert orders(scene)[1:] == [("most", ["x2"])]
    scene.suspended("b/x2")
    scene.runs("a/most")
    scene.lines("job c/own cpu=2")
    assert orders(scene)[2:] == [("own", ["more"])], "root/b is within its guarantee by now"
    scene.bench.sound()


# --- who was passed by later work ---------------------------------------------------------------------------------


def test_what_is_held_for_age_lasts_until_it_is_served_however_long_others_run() -> None:
    """Hours go by between one end and the next, and no other job
    asks for what is idle meanwhile.
    """
    scene = borrowed(("a", 0), ("b", 0), jobs=4, cpu=2, claim="10m")
    scene.lines("job a/big cpu=8")
    scene.waits()
    scene.passed(8, "b/x3", 2)
    assert [each.ref.name for each in scene.bench.happened(ClaimOpened)] == ["big"]
    for index in range(4):
        scene.lines(f"time +{4 * 3600}s", f"finishes b/x{index}", f"gone b/x{index}")
    assert reserved(scene)[-1] == "big"
    assert ended(scene) == []
    scene.bench.sound()


def test_what_is_held_for_age_is_free_for_who_is_owed_it() -> None:
    scene = borrowed(("a", 0), ("c", 4), ("b", 0), jobs=4, cpu=2, reclaim="disabled")
    scene.lines("job a/big cpu=8")
    scene.waits()
    scene.passed(8, "b/x3", 2)
    scene.lines("finishes b/x0", "gone b/x0", "finishes b/x1", "gone b/x1")
    assert scene.bench.happened(ClaimOpened)
    scene.lines("job b/more cpu=2", "job c/owed cpu=4")
    assert "more" not in reserved(scene)
    assert reserved(scene)[-1] == "owed"
    scene.bench.sound()


def test_it_is_held_up_to_the_uppermost_node_that_refuses_it() -> None:
    scene = Scene()
    leaf = facts.node("a", {"cpu": 0}, {"cpu": 4}, ("a",))
    root = facts.node("root", {"cpu": 8}, {"cpu": 8}, children=(leaf, facts.node("b", {"cpu": 0}, {"cpu": 8}, ("b",))))
    scene.do(facts.tree(root))
    scene.lines("synced", "job a/x cpu=2")
    scene.runs("a/x")
    scene.lines("job b/y cpu=6")
    scene.runs("b/y")
    scene.lines("job a/big cpu=4")
    scene.waits()
    scene.passed(4, "b/y", 6)
    assert [each.top for each in scene.bench.happened(ClaimOpened)] == ["root"]
    scene.lines("finishes b/y", "gone b/y", "job b/wide cpu=6", "job b/small cpu=4")
    assert reserved(scene)[-1] == "small", "two of the six are held at the root as well: a/x leaves the others"
    scene.lines("finishes a/x", "gone a/x")
    assert reserved(scene)[-1] == "big"
    scene.bench.sound()


# --- on the nodes -----------------------------------------------------------------------------------------------


def placed(*nodes: int) -> Scene:
    """Eight cores on nodes of that size, all of them borrowed by jobs of b with a pod of four; a is owed them."""
    scene = Scene()
    scene.tree_of(("a", 8), ("b", 0), age_limit="0")
    given = [f"node n{index} cpu={cpu}" for index, cpu in enumerate(nodes)]
    scene.lines("placement pack hold=1000000", *given, "synced")
    for index in range(2):
        scene.lines(f"gang b/x{index} head=4 workers=0x0")
        scene.runs(f"b/x{index}")
    return scene


def test_nobody_leaves_for_a_gang_that_no_node_can_hold() -> None:
    scene = placed(4, 4)
    scene.lines("gang a/wide head=8 workers=0x0")
    assert orders(scene) == []
    assert [each.reason for each in scene.bench.happened(ReclaimDeferred)] == ["no_place"]
    scene.lines("time +86400s")
    assert len(scene.bench.happened(ReclaimDeferred)) == 1, "and it is not tried again while nothing changes"
    scene.lines("node large cpu=8")
    assert orders(scene) == [("wide", ["x0", "x1"])], "quota still refuses it, and now a node would do"
    scene.bench.sound()


def test_who_leaves_is_tried_on_the_nodes_first() -> None:
    scene = placed(8)
    scene.lines("gang a/wide head=8 workers=0x0")
    [proposed] = scene.bench.happened(PreemptionProposed)
    assert [place.node for place in proposed.places] == ["n0"]
    assert orders(scene) == [("wide", ["x0", "x1"])]
    scene.bench.sound()


def test_a_node_may_close_between_a_plan_and_its_order() -> None:
    """No fault of the plan: the job has its place once the node is back."""
    scene = placed(8)
    scene.line("gang a/wide head=8 workers=0x0")
    scene.take("queue_sorter", "quota_accountant", "preemptor")
    scene.line("node n0 cpu=8 cordoned")
    scene.settle()
    assert orders(scene) == [("wide", ["x0", "x1"])]
    for name in ("b/x0", "b/x1"):
        scene.suspended(name)
        scene.line(f"gone {name}")
    scene.settle()
    assert "wide" in [each.ref.name for each in scene.bench.happened(GangDeferred)]
    scene.bench.sound()
    scene.lines("node n0 cpu=8")
    assert [each.ref.name for each in scene.bench.happened(GangAdmitted)][-1] == "wide"
    scene.bench.sound()


def test_a_victim_that_has_left_does_not_count_as_leaving_when_it_runs_again() -> None:
    """It was counted as gone twice, and plans of others had places that were not there."""
    scene = placed(8)
    scene.lines("gang a/wide head=8 workers=0x0")
    scene.suspended("b/x0")
    [order] = scene.bench.states["gang_admitter"].orders.values()
    assert [*order.going] == [scene.jobs["b/x1"].ref.uid]
    scene.bench.sound()


@pytest.mark.parametrize("when", ["proposed", "before"])
def test_nobody_leaves_for_a_request_that_was_edited(when: str) -> None:
    """The edit is known to the accountant, and the sorter has not queued it anew yet."""
    scene = borrowed()
    scene.line("job a/owed cpu=4")
    scene.take("queue_sorter", "quota_accountant")
    if when == "proposed":
        scene.take("preemptor")
    scene.line("edit a/owed cpu=9")
    scene.take("preemptor", "quota_accountant")
    scene.settle()
    assert not scene.bench.happened(EvictionOrdered)
    scene.bench.sound()


def test_on_fragmented_nodes_nobody_leaves_in_vain_hour_after_hour() -> None:
    """a/wide needs a whole node; of the two that would leave each is on a node of its own, beside a pod that stays."""
    scene = Scene()
    scene.tree_of(("a", 8), ("b", 0), age_limit="0")
    scene.lines("placement spread hold=1000000", "node n0 cpu=8", "node n1 cpu=8", "synced")
    for index in range(2):
        scene.lines(f"gang b/x{index} head=4 workers=0x0", "time +1s")
        scene.runs(f"b/x{index}")
    placed_on = {place.node for each in scene.bench.happened(GangAdmitted) for place in each.placements}
    assert placed_on == {"n0", "n1"}
    scene.lines("foreign f0 node=n0 cpu=3", "foreign f1 node=n1 cpu=3", "gang a/wide head=8 workers=0x0")
    for _ in range(24):
        scene.lines("time +3600s")
    assert orders(scene) == []
    assert [each.reason for each in scene.bench.happened(ReclaimDeferred)] == ["no_place"]
    scene.bench.sound()


def test_who_was_edited_between_its_reservation_and_its_start_can_give_way() -> None:
    """It is charged under its first attempt, and in its queue under the second."""
    scene = Scene()
    scene.tree_of(("a", 4), ("b", 0))
    scene.lines("synced", "job b/x cpu=8")
    scene.change("b/x", generation=2, pod_sets=scene.jobs["b/x"].pod_sets[:1])
    scene.runs("b/x")
    scene.lines("job a/owed cpu=4")
    assert orders(scene) == [("owed", ["x"])]
    scene.suspended("b/x")
    assert reserved(scene)[-1] == "owed"
    scene.bench.sound()
