"""``muster decide`` with KAI queues: states as the tables of KAI Scheduler have them."""

from __future__ import annotations

import pytest

from kit.deciding import AB, ask, evicted, job, node, nodes_of, ran, waiting
from muster.tracesim.decide.answer import Answer


def running(name: str, queue: str, count: int = 1, gpus: int = 1, **more: object) -> list[dict[str, object]]:
    """Jobs of one pod that run on node n1, the older first."""
    return [ran(f"{name}{index}", gpus, "n1", queue=queue, **more) for index in range(count)]


def pending(name: str, queue: str, count: int, **more: object) -> list[dict[str, object]]:
    return [job(f"{name}{index}", 1, queue=queue, **more) for index in range(count)]


def counts(answer: Answer) -> dict[str, int]:
    """{queue: pods that run in the end}"""
    found: dict[str, int] = {}
    for each in (*answer.running, *answer.admitted):
        found[each.queue] = found.get(each.queue, 0) + len(each.pods)
    return found


def test_what_the_quotas_leave_is_divided_by_weight() -> None:
    queues = [{"name": "a", "quota": 2, "weight": 2}, {"name": "b", "quota": 2, "weight": 1}]
    jobs = [*pending("a", "a", 8), *pending("b", "b", 8)]
    assert counts(ask(nodes=[node("n1", 10)], queues=queues, jobs=jobs)) == {"a": 6, "b": 4}


def test_reclaim_restores_the_shares_by_weight() -> None:
    queues = [{"name": "a", "quota": 2, "weight": 2}, {"name": "b", "quota": 2, "weight": 1}]
    jobs = [*running("b", "b", 10), *pending("a", "a", 8)]
    assert counts(ask(nodes=[node("n1", 10)], queues=queues, jobs=jobs)) == {"a": 6, "b": 4}


def test_the_priority_of_a_queue_beats_its_weight() -> None:
    queues = [{"name": "a", "weight": 1, "priority": 200}, {"name": "b", "weight": 100}]
    jobs = [*pending("b", "b", 10), *pending("a", "a", 6)]
    assert counts(ask(nodes=[node("n1", 10)], queues=queues, jobs=jobs)) == {"a": 6, "b": 4}
    jobs = [*running("b", "b", 10), *pending("a", "a", 6)]
    assert counts(ask(nodes=[node("n1", 10)], queues=queues, jobs=jobs)) == {"a": 6, "b": 4}


def test_a_queue_without_weight_gets_nothing_of_what_is_left_by_reclaim() -> None:
    queues = [{"name": "a", "quota": 2, "weight": 0}, {"name": "b", "quota": 2}]
    jobs = [*running("b", "b", 8), *pending("a", "a", 8)]
    assert counts(ask(nodes=[node("n1", 8)], queues=queues, jobs=jobs)) == {"a": 2, "b": 6}


def test_departments_are_compared_before_their_teams() -> None:
    queues = [
        {"name": "d1", "quota": 4},
        {"name": "d2", "quota": 4},
        {"name": "t1", "parent": "d1", "quota": 2},
        {"name": "t2", "parent": "d1", "quota": 2},
        {"name": "u1", "parent": "d2", "quota": 4},
    ]
    # t1 is over its quota by 4, and d1 by 2: d2 takes back its own, and t2's quota stays
    jobs = [*running("t1-", "t1", 4), *running("t2-", "t2", 2), *running("u1-", "u1", 2), *pending("new", "u1", 3)]
    found = ask(nodes=[node("n1", 8)], queues=queues, jobs=jobs)
    assert counts(found) == {"d1/t1": 2, "d1/t2": 2, "d2/u1": 4}
    assert evicted(found) == [("t1-2", "new1", "reclaim"), ("t1-3", "new0", "reclaim")]


def test_a_team_over_its_quota_keeps_it_from_other_departments_while_its_own_is_within() -> None:
    queues = [
        {"name": "d1", "quota": 4},
        {"name": "d2", "quota": 4},
        {"name": "t1", "parent": "d1", "quota": 2},
        {"name": "t2", "parent": "d1", "quota": 2},
        {"name": "u1", "parent": "d2", "quota": 4},
    ]
    jobs = [*running("t1-", "t1", 4), *running("u1-", "u1", 4), *pending("new", "u1", 1)]
    assert not ask(nodes=[node("n1", 8)], queues=queues, jobs=jobs).evicted
    found = ask(nodes=[node("n1", 8)], queues=queues, jobs=[*jobs[:-1], *pending("mine", "t2", 2)])
    assert counts(found) == {"d1/t1": 2, "d1/t2": 2, "d2/u1": 4}


def test_nothing_is_reclaimed_beyond_the_fair_share_of_the_claimant() -> None:
    queues = [{"name": "a", "quota": 1}, {"name": "b", "quota": 1}]
    jobs = [*running("a", "a", 2), *running("b", "b", 2), *pending("more", "a", 1)]
    found = ask(nodes=[node("n1", 4)], queues=queues, jobs=jobs)
    assert (evicted(found), waiting(found)) == ([], {"more0": "InsufficientQuota"})


def test_a_gang_larger_than_the_fair_share_of_its_queue_reclaims_nothing() -> None:
    jobs = [*running("b", "b", 4), job("gang", 1, 1, 1, queue="a")]
    assert not ask(nodes=[node("n1", 4)], queues=AB, jobs=jobs).evicted


@pytest.mark.parametrize("gpus", [3, 4, 5, 7, 8])
def test_what_was_reclaimed_is_not_reclaimed_back(gpus: int) -> None:
    queues = [{"name": "a", "quota": 1, "weight": 2}, {"name": "b", "quota": 1}, {"name": "c"}]
    jobs = [*running("b", "b", gpus), *pending("a", "a", gpus), *pending("c", "c", gpus)]
    found = ask(nodes=[node("n1", gpus)], queues=queues, jobs=jobs)
    once = [each.job for each in found.evicted]
    assert len(once) == len(set(once))
    assert sum(counts(found).values()) == gpus
    started = {each.job for each in found.admitted}
    assert not started & set(once)


def test_only_what_is_preemptible_is_reclaimed() -> None:
    queues = [{"name": "a", "quota": 2}, {"name": "b", "quota": 2}]
    jobs = [
        *running("firm", "b", 2, priority="build"),
        *running("soft", "b", 2, priority="build-preemptible"),
        *pending("a", "a", 2),
    ]
    found = ask(nodes=[node("n1", 4)], queues=queues, jobs=jobs)
    assert [each.job for each in found.evicted] == ["soft1", "soft0"]
    assert counts(found) == {"a": 2, "b": 2}


def test_the_limit_of_a_department_holds_for_its_teams_together_and_reclaims_nothing_elsewhere() -> None:
    queues = [
        {"name": "d", "quota": 4, "limit": 4},
        {"name": "e", "quota": 4},
        {"name": "t1", "parent": "d", "quota": 2},
        {"name": "t2", "parent": "d", "quota": 2},
        {"name": "u", "parent": "e"},
    ]
    jobs = [*running("e", "u", 4), *pending("x", "t1", 3), *pending("y", "t2", 3)]
    found = ask(nodes=[node("n1", 8)], queues=queues, jobs=jobs)
    assert counts(found) == {"e/u": 4, "d/t1": 2, "d/t2": 2}
    assert not found.evicted


def test_a_gang_is_evicted_whole() -> None:
    gang = {"name": "gang", "queue": "b", "pods": [{"gpus": 1, "phase": "Running", "node": "n1"} for _ in range(4)]}
    found = ask(nodes=[node("n1", 4)], queues=AB, jobs=[gang, job("owed", 1, queue="a")])
    assert sorted(pod for each in found.evicted for pod in each.pods) == ["gang-0", "gang-1", "gang-2", "gang-3"]
    assert nodes_of(found) == {"owed": ["n1"]}


def test_priority_evicts_no_more_than_it_needs_the_lowest_first() -> None:
    jobs = [
        *running("train", "a", 2, priority="train"),
        *running("low", "a", 2, priority=10),
        ran("wide", 2, "n1", queue="a", priority=20),
        job("high", 1, 1, queue="a", priority=75),
    ]
    found = ask(nodes=[node("n1", 6)], queues=[{"name": "a", "quota": 6}], jobs=jobs)
    assert evicted(found) == [("low0", "high", "preempt"), ("low1", "high", "preempt")]


def test_priority_of_a_job_is_nothing_between_queues() -> None:
    jobs = [*running("b", "b", 2, priority=10), *running("a", "a", 2), job("high", 1, queue="a", priority=90)]
    found = ask(nodes=[node("n1", 4)], queues=AB, jobs=jobs)
    assert evicted(found) == [("a1", "high", "preempt")]


def test_unlimited_quotas_are_never_reclaimed() -> None:
    queues = [{"name": "a", "quota": -1}, {"name": "b", "quota": -1}]
    jobs = [*running("b", "b", 4), *pending("a", "a", 1)]
    assert not ask(nodes=[node("n1", 4)], queues=queues, jobs=jobs).evicted


def test_quotas_that_nothing_guarantees_are_a_warning() -> None:
    queues = [{"name": "d", "quota": 2}, *({**each, "parent": "d"} for each in AB)]
    found = ask(nodes=[node("n1", 4)], queues=queues, jobs=pending("x", "a", 1))
    assert nodes_of(found) == {"x0": ["n1"]}
    assert len(found.warnings) == 1
    assert "they cannot all be guaranteed" in found.warnings[0]


def test_a_queue_that_cannot_be_used_disables_itself_only_and_its_jobs_wait_with_the_reason() -> None:
    queues = [*AB, {"name": "orphan", "parent": "gone"}, {"name": "below", "parent": "orphan"}]
    jobs = [*pending("x", "a", 1), *pending("y", "below", 1)]
    found = ask(nodes=[node("n1", 4)], queues=queues, jobs=jobs)
    assert nodes_of(found) == {"x0": ["n1"]}
    assert [(each.job, each.code) for each in found.waiting] == [("y0", "QueueDoesNotExist")]
    assert "parentQueue 'gone' does not exist" in found.waiting[0].text
    assert [each.split(":")[0] for each in found.warnings] == ["queue below is disabled", "queue orphan is disabled"]


LOST = {"name": "lost", "gpus": 4, "ready": False}


def test_what_runs_on_a_node_that_is_not_ready_evicts_nobody_elsewhere_and_is_no_victim() -> None:
    """Two healthy nodes, one of them empty: the job starts there. A full one: the borrower on it leaves, not the one on
    the node that is not ready, though that has run for the shortest time.
    """
    queues = [{"name": "a", "quota": 0}, {"name": "b", "quota": 8}]
    jobs = [ran("stays", 4, "lost", queue="b", created_s=5), ran("healthy", 4, "n1", queue="a", created_s=10)]
    jobs.append(job("asks", 4, queue="b", created_s=60))
    answer = ask(nodes=[LOST, node("n1", 4), node("n2", 4)], queues=queues, jobs=jobs)
    assert (nodes_of(answer)["asks"], evicted(answer)) == (["n2"], [])
    jobs[0] = ran("young", 4, "lost", queue="a", created_s=50)
    answer = ask(nodes=[LOST, node("n1", 4)], queues=queues, jobs=jobs)
    assert [name for name, *_ in evicted(answer)] == ["healthy"]
    assert nodes_of(answer)["asks"] == ["n1"]


def test_who_is_preempted_after_a_long_run_has_not_waited() -> None:
    """``wide`` ran for a day and leaves for ``urgent``: no quota is held for it, and ``small`` starts beside."""
    jobs = [
        ran("wide", 3, "n1", queue="a", created_s=10),
        job("urgent", 2, queue="a", priority=75, created_s=99_990),
        job("small", 1, queue="a", created_s=99_991),
    ]
    found = ask(nodes=[node("n1", 3)], queues=[{"name": "a", "quota": 3, "limit": 3}], jobs=jobs, now_s=100_000)
    assert [name for name, *_ in evicted(found)] == ["wide"]
    assert sorted(nodes_of(found)) == ["small", "urgent"]


AT_ODDS = (("a", 1, 1), ("b", 3, 2), ("c", 1, 2))
"""Name, quota and weight."""


def test_what_waits_for_nodes_counts_for_the_shares_and_nobody_is_evicted_in_turn() -> None:
    """No node has room for ``wide``, which is within the share of a. Without ``wide`` the share of a is smaller and the
    shares of the others are larger: each would claim by a share that the next look at ``wide`` takes away.
    """
    queues = [{"name": name, "quota": quota, "weight": weight} for name, quota, weight in AT_ODDS]
    jobs = [
        {"name": "two", "queue": "c", "created_s": 100, "pods": [on("n1"), on("n0")]},
        {"name": "three", "queue": "c", "created_s": 99_901, "pods": [{"gpus": 1}] * 3},
        ran("early", 2, "n1", queue="c", created_s=102),
        {"name": "of-three", "queue": "a", "created_s": 99_903, "pods": [{"gpus": 1}] * 3},
        ran("late", 2, "n0", queue="c", created_s=104),
        job("wide", 4, queue="a", created_s=99_905),
        job("owed", 2, queue="b", created_s=99_906),
    ]
    found = ask(nodes=[node("n0", 4), node("n1", 4)], queues=queues, jobs=jobs, now_s=100_000)
    pairs = {(victim, claimant) for victim, claimant, *_ in evicted(found)}
    assert not [pair for pair in pairs if pair[::-1] in pairs]
    assert "owed" in nodes_of(found)


def on(name: str) -> dict[str, object]:
    return {"gpus": 1, "phase": "Running", "node": name, "started_s": 100}
