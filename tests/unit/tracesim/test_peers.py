"""The rules of Kueue and of KAI, case by case, in the policies that stand for them: with a pool, and on nodes.

Both agree with re-implementations by other hands on random days; what follows are the cases by which they differ from
each other and from best effort.
"""

from typing import Any

import pytest

from kit.traces import ends, run, starts, trace
from muster.tracesim.faults import Fault, FaultSchedule
from muster.tracesim.kaishares import bars, fair_shares
from muster.tracesim.model import TraceQueue
from muster.tracesim.runner import Result

EIGHT = {"nodes": [{"count": 1, "gpus": 8}], "queues": {"a": {"min": 4}, "b": {"min": 4}}}
HEADER = "job_id,queue,gpus,submit_s,duration_s,priority,preemptible"


def queues(nodes: int, gpus: int, placement: str = "off", **mins: int) -> dict[str, Any]:
    return {
        "nodes": [{"count": nodes, "gpus": gpus}],
        "placement": placement,
        "queues": {name: {"min": least} for name, least in mins.items()},
    }


def evicted(result: Result) -> dict[str, int]:
    return {job.id: job.evictions for job in result.history.jobs.values() if job.evictions}


# --- Kueue ----------------------------------------------------------------------------------------------------------


def test_a_head_that_borrows_goes_before_the_owed_job_behind_it(tmp_path):
    """Kueue takes the first job of a queue, whatever it asks for."""
    made = trace(tmp_path, EIGHT, "x,b,4,0,50\nwide,a,4,1,100\nnext,a,2,1,100\nlate,b,4,60,10")
    found = run(made, "kueue-like")
    assert starts(found.history) == {"x": 0, "wide": 1, "next": 50, "late": 60}
    assert evicted(found) == {"next": 1}


def test_heads_that_stay_within_their_min_go_before_heads_that_borrow(tmp_path):
    made = trace(tmp_path, EIGHT, "x,b,8,0,50\na1,a,4,20,100\na2,a,4,21,100\nb1,b,4,22,100")
    found = run(made, "kueue-like").history
    assert (starts(found)["a1"], starts(found)["b1"]) == (20, 22)
    made = trace(tmp_path, EIGHT, "x,b,4,0,50\ny,a,4,0,200\na1,a,4,1,100\nb1,b,4,2,100")
    assert starts(run(made, "kueue-like").history) == {"x": 0, "y": 0, "b1": 50, "a1": 150}


def test_the_last_chosen_is_spared_first(tmp_path):
    """1, 2 and 4 GPUs are chosen, the youngest first; there is room without the 2, and where b asks less, the 1."""
    cluster = queues(1, 8, a=0, b=5)
    made = trace(tmp_path, cluster, "four,a,4,0,900\ntwo,a,2,1,900\none,a,1,2,900\nx,a,1,3,4\nb1,b,5,10,20")
    assert evicted(run(made, "kueue-like")) == {"four": 1}
    made = trace(tmp_path, queues(1, 8, a=0, b=6), "four,a,4,0,900\ntwo,a,2,1,900\none,a,1,2,900\nb1,b,6,10,20")
    assert evicted(run(made, "kueue-like")) == {"four": 1, "one": 1}


def test_who_straddles_its_min_is_taken_back(tmp_path):
    """The lender falls below its min: record 8 would keep the job."""
    made = trace(tmp_path, queues(1, 16, a=8, b=8), "wide,a,12,0,36000\nowed,b,8,10,100")
    for policy in ("kueue-like", "kai-like"):
        found = run(made, policy)
        assert (starts(found.history)["owed"], evicted(found)) == (10, {"wide": 1}), policy


def test_no_job_gives_way_in_its_own_queue(tmp_path):
    made = trace(tmp_path, EIGHT, "low,a,8,0,100,0,yes\nhigh,a,4,10,50,9,yes", header=HEADER)
    assert starts(run(made, "kueue-like").history) == {"low": 0, "high": 100}


def test_a_refused_head_lets_smaller_jobs_pass_until_a_job_ends(tmp_path):
    made = trace(tmp_path, EIGHT, "x,a,6,0,100\nbig,a,4,1,100\nsmall,a,2,2,50")
    assert starts(run(made, "kueue-like").history) == {"x": 0, "small": 2, "big": 100}


def test_a_guarantee_above_takes_back_from_cousins_only(tmp_path):
    cluster = {
        "nodes": [{"count": 1, "gpus": 8}],
        "queues": {
            "left": {"min": 4, "children": {"a": {"min": 0}, "b": {"min": 0}}},
            "right": {"min": 4, "children": {"c": {"min": 4}}},
        },
    }
    made = trace(tmp_path, cluster, "c1,c,4,0,900\nc2,c,4,1,900\na1,a,4,10,900\nb1,b,4,20,900")
    found = run(made, "kueue-like")
    assert evicted(found) == {"c2": 1}
    assert starts(found.history)["b1"] == 910


# --- KAI ------------------------------------------------------------------------------------------------------------


def test_reclaim_goes_up_to_the_fair_share(tmp_path):
    """No queue is guaranteed anything: Kueue takes nothing back, KAI half."""
    made = trace(tmp_path, queues(1, 8, a=0, b=0), "a1,a,4,0,100\na2,a,4,1,100\nb1,b,4,10,100")
    assert starts(run(made, "kueue-like").history)["b1"] == 100
    found = run(made, "kai-like")
    assert (starts(found.history)["b1"], evicted(found)) == (10, {"a2": 1})


def test_preempt_stops_lower_priorities_of_the_same_queue(tmp_path):
    made = trace(tmp_path, EIGHT, "low,a,8,0,100,0,yes\nhigh,a,4,10,50,9,yes", header=HEADER)
    found = run(made, "kai-like")
    assert (starts(found.history)["high"], evicted(found)) == (10, {"low": 1})


def test_the_newest_job_leaves_whenever_it_started(tmp_path):
    """``late`` was created last and has started first."""
    made = trace(tmp_path, queues(1, 8, a=0, b=4), "x,a,8,0,10\nold,a,5,1,900\nlate,a,3,2,900\nb1,b,3,20,900")
    assert evicted(run(made, "kai-like")) == {"late": 1}


def test_a_big_head_of_the_queue_makes_the_claim_behind_it_fail(tmp_path):
    """``head`` is first in the order of its queue and too large to reclaim: ``small`` alone could."""
    lines = "a1,a,4,0,900,0,yes\na2,a,4,0,900,0,yes\nhead,b,8,10,100,0,yes\nsmall,b,4,11,100,0,yes"
    found = run(trace(tmp_path, EIGHT, lines, header=HEADER), "kai-like")
    assert starts(found.history)["small"] == 11
    assert evicted(found) == {"a2": 1}


@pytest.mark.parametrize(("preemptible", "at"), [("yes", 10), ("no", 100)])
def test_what_may_not_be_evicted_stays_within_deserved_quota(tmp_path, preemptible, at):
    made = trace(tmp_path, EIGHT, f"x,a,4,0,100,0,no\nmore,a,4,10,50,0,{preemptible}", header=HEADER)
    assert starts(run(made, "kai-like").history) == {"x": 0, "more": at}


def test_fair_shares_are_whole_gpus_by_weight_and_by_the_largest_rest():
    def share(total: int, asked: dict[str, int], **children: TraceQueue) -> dict[str, int]:
        below = tuple(children.values())
        root = TraceQueue(name="root", path="root", children=below)
        found = fair_shares(bars(root), total * 1000, {path: gpus * 1000 for path, gpus in asked.items()})
        return {path: gpus // 1000 for path, gpus in found.items() if path != "root"}

    def queue(name: str, weight: int | None = None, low: int = 0, priority: int = 0) -> TraceQueue:
        least = {"nvidia.com/gpu": low * 1000}
        return TraceQueue(name=name, path=name, min=least, weight=weight, priority=priority)

    asks = {"a": 9, "b": 9, "c": 9}
    three = {"a": queue("a", 1), "b": queue("b", 2), "c": queue("c", 1)}
    assert share(10, asks, **three) == {"a": 3, "b": 5, "c": 2}  # 2.5, 5, 2.5: the rest goes to the first
    assert share(10, asks | {"b": 1}, **three) == {"a": 5, "b": 1, "c": 4}
    first = {"a": queue("a", 1, low=1), "b": queue("b", 1, priority=5)}
    assert share(10, asks, **first) == {"a": 1, "b": 9}


# --- on nodes -------------------------------------------------------------------------------------------------------

HOLES = "x,a,3,0,100\ny,a,3,0,50\nz,a,2,1,10\nw,a,1,2,10"


def test_with_kueue_the_pods_of_an_admitted_job_wait_for_nodes_and_its_quota_is_held(tmp_path):
    made = trace(tmp_path, queues(2, 4, "pack", a=8), HOLES)
    found = run(made, "kueue-like").history
    assert starts(found) == {"x": 0, "y": 0, "z": 50, "w": 50}
    assert found.jobs["z"].runs[0].admitted == 1000


@pytest.mark.parametrize("policy", ["best-effort-fifo", "volcano-like"])
def test_who_places_whole_gangs_admits_what_finds_nodes(tmp_path, policy):
    made = trace(tmp_path, queues(2, 4, "pack", a=8), HOLES)
    assert starts(run(made, policy).history) == {"x": 0, "y": 0, "z": 50, "w": 2}


def test_half_of_a_gang_holds_its_nodes(tmp_path):
    """With Kueue one pod of the gang keeps a node until the other has one; who places gangs lets ``late`` pass."""
    header = "job_id,queue,gpus,submit_s,duration_s,min_member"
    lines = "x,a,3,0,100,1\ny,a,2,0,50,1\ngang,a,6,1,10,2\nlate,a,4,2,10,1"
    made = trace(tmp_path, queues(3, 4, "pack", a=12), lines, header=header)
    assert starts(run(made, "kueue-like").history) == {"x": 0, "y": 0, "gang": 50, "late": 60}
    assert starts(run(made, "kai-like").history) == {"x": 0, "y": 0, "gang": 50, "late": 2}


@pytest.mark.parametrize(("placement", "at"), [("pack", 2), ("spread", 100)])
def test_pods_go_to_the_fullest_node_or_to_the_emptiest(tmp_path, placement, at):
    made = trace(tmp_path, queues(2, 4, placement, a=8), "x,a,1,0,100\ny,a,1,1,100\nwhole,a,4,2,10")
    for policy in ("kueue-like", "best-effort-fifo"):
        assert starts(run(made, policy).history)["whole"] == at, policy


def test_kai_moves_a_job_to_make_a_whole_node(tmp_path):
    """Two half full nodes: one job moves, starts again from nothing, and nobody waits."""
    lines = "x,a,2,0,200\ny,a,2,0,40\nz,a,2,0,200\nwhole,a,4,60,10"
    made = trace(tmp_path, queues(2, 4, "pack", a=8), lines)
    found = run(made, "kai-like")
    assert starts(found.history)["whole"] == 60
    assert evicted(found) == {"z": 1}
    assert ends(found.history)["z"] == 260
    assert starts(run(made, "kueue-like").history)["whole"] == 200


def test_a_job_on_a_lost_node_starts_elsewhere(tmp_path):
    made = trace(tmp_path, queues(3, 4, "pack", a=12), "x,a,4,0,100\ny,a,4,0,100")
    faults = FaultSchedule((Fault("node_loss", 10_000, 50_000, ("node-0001",)),))
    for policy in ("kueue-like", "kai-like"):
        assert ends(run(made, policy, faults=faults).history) == {"x": 100, "y": 110}, policy
