"""Tables of consolidation: what runs is moved together when everything that moves has a place of its own."""

from __future__ import annotations

import pytest

from kit.deciding import AB, ask, evicted, job, node, nodes_of, ran, waiting
from muster.tracesim.decide.answer import Answer


def moved(answer: Answer) -> list[tuple[str, str, list[str], list[str]]]:
    return sorted((each.job, each.claimant, each.before, each.after) for each in answer.moved)


def two(*jobs: dict[str, object], gpus: int = 4, **more: object) -> Answer:
    return ask(nodes=[node("n1", gpus), node("n2", gpus)], queues=AB, jobs=list(jobs), **more)


def test_what_runs_is_moved_together_so_that_a_big_job_fits() -> None:
    answer = two(
        ran("x", 2, "n1", queue="a"), ran("y", 2, "n2", queue="b", created_s=1), job("big", 4, queue="a", created_s=9)
    )
    [(name, claimant, before, after)] = moved(answer)
    assert claimant == "big"
    assert (before, after) in ((["n1"], ["n2"]), (["n2"], ["n1"]))
    assert nodes_of(answer) == {"big": before, name: after}
    assert not evicted(answer) and not waiting(answer)


def test_moving_comes_before_evicting() -> None:
    """The job has the higher priority in its queue, and nobody needs to wait for it."""
    answer = two(ran("x", 2, "n1", queue="a"), ran("y", 2, "n2", queue="a"), job("big", 4, queue="a", priority=75))
    assert len(moved(answer)) == 1
    assert not evicted(answer) and not waiting(answer)


def test_nobody_is_moved_where_one_of_them_has_no_place() -> None:
    answer = two(ran("x", 3, "n1", queue="a"), ran("y", 2, "n2", queue="b"), job("big", 4, queue="a", created_s=9))
    assert not moved(answer) and not evicted(answer)
    assert [*waiting(answer)] == ["big"]


def test_what_is_not_preemptible_is_not_moved() -> None:
    answer = two(
        ran("x", 2, "n1", queue="a", priority="build"),
        ran("y", 2, "n2", queue="b", priority="build"),
        job("big", 4, queue="a", created_s=9),
    )
    assert not moved(answer)
    assert [*waiting(answer)] == ["big"]


def test_the_one_that_may_move_moves() -> None:
    answer = two(ran("x", 2, "n1", queue="a", priority="build"), ran("y", 2, "n2", queue="b"), job("big", 4, queue="a"))
    assert moved(answer) == [("y", "big", ["n2"], ["n1"])]


def test_a_gang_moves_with_all_of_its_pods() -> None:
    gang = {
        "name": "gang",
        "queue": "b",
        "pods": [{"gpus": 1, "phase": "Running", "node": "n1"}, {"gpus": 1, "phase": "Running", "node": "n2"}],
    }
    nodes = [node("n1", 4), node("n2", 2), node("n3", 2)]
    held = ran("x", 1, "n2", queue="a", priority="build")
    answer = ask(nodes=nodes, queues=AB, jobs=[gang, held, job("big", 4, queue="a", created_s=9)])
    [(name, _, before, after)] = moved(answer)
    assert (name, before) == ("gang", ["n1", "n2"])
    assert set(after) <= {"n2", "n3"}
    assert nodes_of(answer)["big"] == ["n1"]
    assert not evicted(answer) and not waiting(answer)


def test_a_gang_that_lacks_room_has_several_moved() -> None:
    nodes = [node(f"n{index}", 4) for index in range(4)]
    small = [ran(f"s{index}", 2, f"n{index}", queue="a", created_s=index) for index in range(4)]
    answer = ask(nodes=nodes, queues=AB, jobs=[*small, job("big", 4, 4, queue="b", created_s=9)])
    assert len(moved(answer)) == 2
    assert sorted(nodes_of(answer)["big"]) == sorted(each[2][0] for each in moved(answer))
    assert not evicted(answer) and not waiting(answer)


def test_shares_of_gpus_are_moved_together_so_that_a_whole_one_is_free() -> None:
    half = {"gpu_fraction": 0.5, "phase": "Running"}
    shares = [
        {"name": "p", "queue": "a", "pods": [half | {"node": "n1", "devices": [0]}]},
        {"name": "q", "queue": "a", "pods": [half | {"node": "n2", "devices": [0]}]},
    ]
    answer = two(*shares, job("big", 1, queue="b", created_s=9), gpus=1)
    assert len(moved(answer)) == 1
    assert not evicted(answer) and not waiting(answer)


@pytest.mark.parametrize("count", [16, 17])
def test_no_more_than_sixteen_move_at_once(count: int) -> None:
    nodes = [node("big-node", count), *(node(f"n{index}", 1) for index in range(count))]
    small = [ran(f"s{index}", 1, "big-node", queue="a", created_s=index) for index in range(count)]
    answer = ask(nodes=nodes, queues=AB, jobs=[*small, job("big", count, queue="b", created_s=99)])
    assert len(moved(answer)) == (16 if count == 16 else 0)
    assert not evicted(answer) or count == 17
