"""Growth of Ray clusters within a guarantee takes back what is lent, as a new job does; in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from kit.contention import fixed_size
from kit.elastic import CORE, HEAD_CPU, ElasticPlay, in_queue, kai_queue, raycluster, rayjob, template
from kit.rayscaler import RayScaler
from muster.events.claims import ClaimEnded
from muster.events.decisions import EvictionOrdered, GangAdmitted, PreemptionProposed
from muster.events.elastic import GrowthGranted, GrowthOption
from muster.events.system import PlacementChosen
from muster.model import api
from muster.told.views.story import Story


def lent(make: Any = raycluster, *, each: int = 1, most: str = "100", **given: Any) -> tuple[ElasticPlay, RayScaler]:
    """Six cores: ``ns`` is guaranteed five and uses one and a half, ``other`` borrows four, ``each`` at a time."""
    play = ElasticPlay(("ns", "5", most), ("other", "0", "100"), total="6", **given)
    scaler = play.create(make(replicas=1, minReplicas=1))
    scaler.start("actor-0")
    play.tick(2)
    for number in range(4 // each):
        play.create(fixed_size(each, f"lent-{number}", "other"))
    play.tick(2)
    assert (len(play.pods()), len(play.pods("lent"))) == (1, 4)
    return play, scaler


def start(scaler: RayScaler, count: int, **given: Any) -> None:
    for number in range(count):
        scaler.start(f"more-{number}", **given)


@pytest.mark.parametrize("make", (raycluster, rayjob))
def test_what_is_lent_is_taken_back_for_growth_within_the_guarantee(make: Any) -> None:
    play, scaler = lent(make)
    start(scaler, 3)
    play.tick(8)
    assert (len(play.pods()), len(play.pods("lent"))) == (4, 1)
    [order] = play.told(EvictionOrdered)
    assert order.growth == GrowthOption({"small": 1}, 3) and len(order.victims) == 3
    assert play.cpu() == HEAD_CPU + 4 * CORE
    play.clean()


def test_no_more_than_the_guarantee_is_claimed() -> None:
    play, scaler = lent()
    start(scaler, 8)
    play.tick(10)
    assert (len(play.pods()), len(play.pods("lent"))) == (4, 1), "4.5 of the 5 cores; half a core is free"
    play.clean()


def test_a_job_that_is_larger_than_what_is_lacking_leaves_as_a_whole() -> None:
    play, scaler = lent(each=4)
    start(scaler, 3)
    play.tick(8)
    assert (len(play.pods()), len(play.pods("lent"))) == (4, 0)
    assert [len(order.victims) for order in play.told(EvictionOrdered)] == [1]
    play.clean()


def test_a_placement_group_claims_as_a_whole_or_not_at_all() -> None:
    play, scaler = lent()
    start(scaler, 3, gang="pg")
    play.tick(8)
    assert (len(play.pods()), len(play.pods("lent"))) == (4, 1)
    [order] = play.told(EvictionOrdered)
    assert order.growth == GrowthOption({"small": 3})
    assert [grant.added for grant in play.told(GrowthGranted)] == [{"small": 3}]
    play.clean()
    play, scaler = lent()
    start(scaler, 4, gang="pg")
    play.tick(8)
    assert (len(play.pods()), len(play.pods("lent"))) == (1, 4), "5.5 cores are beyond the guarantee"
    assert not play.told(PreemptionProposed)
    play.clean()


def test_a_cluster_that_borrows_gives_workers_and_goes_on() -> None:
    play = ElasticPlay(("ns", "5", "100"), ("other", "0", "100"), total="6")
    scaler = play.create(raycluster(replicas=1, minReplicas=1))
    scaler.start("actor-0")
    borrower = play.create(raycluster("lent", "other"))
    start(borrower, 4)
    play.tick(4)
    assert (len(play.pods()), len(play.pods("lent"))) == (1, 4)
    scaler.start("more")
    scaler.start("still more")
    play.tick(12)
    assert (len(play.pods()), len(play.pods("lent"))) == (3, 2)
    assert not [victim for order in play.told(EvictionOrdered) for victim in order.victims]
    play.clean()


def test_nobody_else_takes_what_becomes_free_for_it() -> None:
    play, scaler = lent(each=4)
    start(scaler, 3)
    for number in range(6):
        play.create_raw(fixed_size(1, f"small-{number}", "other"))
    play.tick(10)
    assert len(play.pods()) == 4
    assert len(play.told(EvictionOrdered)) == 1
    assert len(play.pods("small")) == 1, "one core of the four is left"
    play.clean()


def test_its_story_names_the_jobs_that_leave_for_it() -> None:
    play, scaler = lent()
    start(scaler, 3)
    play.read()
    assert "it asks for small 3 more" in told(play)
    assert ". Victims: other/lent-3 (cpu 1, memory 1Gi at root/other), " in told(play)
    play.tick(8)
    assert "Victims" not in told(play)
    play.clean()


def told(play: ElasticPlay) -> str:
    story = Story("ns/auto")
    for stored in play.cell.log:
        story.feed(stored)
    return story.of("ns/auto").standing.text


def test_a_claim_ends_with_its_demand() -> None:
    play, scaler = lent()
    start(scaler, 2)
    play.read()
    play.cell.advance(10)
    assert len(play.told(EvictionOrdered)) == 1
    for number in range(2):
        scaler.end(f"more-{number}")
    play.tick(8)
    assert [ended.outcome for ended in play.told(ClaimEnded)] == ["gone"]
    assert len(play.pods()) == 1
    assert len(play.pods("lent")) == 4, "they start again"
    play.clean()


def test_growth_of_higher_priority_outranks_work_of_its_own_queue() -> None:
    play = ElasticPlay(("ns", "4", "4"), total="4")
    tree = play.call("GET", api.QUOTA_TREES, "kube-system", "tree")
    tree["metadata"]["annotations"]["muster.dev/preempt-lower-priority"] = "true"
    play.call("PUT", api.QUOTA_TREES, "kube-system", "tree", tree)
    high = raycluster("auto", replicas=1, minReplicas=1)
    high["spec"]["headGroupSpec"]["template"]["spec"]["priority"] = 10
    scaler = play.create(high)
    scaler.start("actor-0")
    for number in range(2):
        play.create(fixed_size(1, f"low-{number}"))
    start(scaler, 2)
    play.tick(8)
    assert (len(play.pods()), len(play.pods("low"))) == (3, 0)
    assert {order.priority for order in play.told(EvictionOrdered)} == {10}
    play.clean()


def test_victims_leave_a_node_with_room_for_the_new_worker() -> None:
    """A worker takes a whole node: those go that are on one, and nobody takes it before the worker comes."""
    nodes = {name: {"cpu": "4", "memory": "64Gi"} for name in ("a", "b", "c")}
    play = ElasticPlay(
        ("ns", "5", "100"),
        ("other", "0", "100"),
        total="9",
        nodes=nodes,
        placement=PlacementChosen(mode="spread", hold_ms=60_000),
    )
    scaler = play.create(raycluster(template=template("4")))
    scaler.cpus = 4
    for number in range(4):
        play.create(fixed_size(2, f"lent-{number}", "other"))
    scaler.start("actor", cpu=4)
    play.tick(8)
    [worker], [plan], [granted] = play.pods(), play.told(PreemptionProposed), play.told(GrowthGranted)
    assert worker["spec"].get("nodeName") == plan.places[0].node
    assert granted.added == {"small": 1}
    assert any(admitted.attempt == 2 for admitted in play.told(GangAdmitted)), "what is left goes to one of them again"
    play.clean()


def test_between_kai_queues() -> None:
    queues = [kai_queue("top", 6), kai_queue("mine", 5, "top"), kai_queue("other", 0, "top")]
    play = ElasticPlay(queues=queues, nodes={"node-0": {"cpu": "6", "memory": "64Gi"}})
    scaler = play.create(in_queue(raycluster(), "mine"))
    play.create(in_queue(fixed_size(4, "lent"), "other"))
    play.tick(2)
    start(scaler, 3)
    play.tick(10)
    assert len(play.pods()) == 3
    play.clean()
