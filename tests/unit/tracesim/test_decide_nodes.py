"""``muster decide`` where the quota has room and the nodes have not: who gives way, as tables of the field say."""

from __future__ import annotations

import pytest

from kit.deciding import ask, evicted, job, node, waiting
from kit.tables import Case

CASES = [
    # In a queue strictly lower priority gives way.
    Case("one of lower priority moves", "n1:2 n2:2", "a D4", "x a 1@n1\ny a 1@n2\nz a 2 p=build", "x n1; y n1; z n2"),
    Case("of equal priority one is moved", "n1:2 n2:2", "a D4", "x a 1@n1\ny a 1@n2\nz a 2", "x n1; y n1; z n2"),
    Case("and nobody gives way", "n1:2 n2:2", "a D4", "x a 1@n1\ny a 1@n2\nv a 1@n1\nz a 2", "x n1; y n2; v n1; z -"),
    Case(
        "nor firm work", "n1:2 n2:2", "a D4", "x a 1@n1 p=build\ny a 1@n2 p=build\nz a 2 p=inference", "x n1; y n2; z -"
    ),
    Case(
        "from the node where the least work is lost, and nobody who is not needed",
        "n1:4 n2:4",
        "a D8",
        "u a 2@n1 at=3\nv a 1@n2 at=1\nw a 1@n2 at=2\nz a 4 p=build",
        "u n2; v n2; w n2; z n1",
    ),
    Case(
        "a gang over two nodes gives way as one plan",
        "n1:2 n2:2",
        "a D4",
        "g a 1@n1 1@n2\nz a 2 p=build",
        "g n2 n2; z n1",
    ),
    Case(
        "a gang finds room on two nodes at once",
        "n1:2 n2:2 n3:2",
        "a D6",
        "x a 1@n1\ny a 1@n2\nz a 1@n3\ng a 2x2 p=build",
        "x n1; y n1; z -; g n2 n3",
    ),
    Case(
        "where all that may go would not do nobody goes",
        "n1:2 n2:2",
        "a D4",
        "x a 1@n1 p=build\ny a 1@n2 p=build\nv a 1@n1\nz a 2 p=inference",
        "x n1; y n2; v n1; z -",
    ),
    Case(
        "a device shared by two is emptied",
        "n1:1 n2:1",
        "a D2",
        "x a .5@n1\ny a .5@n2\nz a 1 p=build",
        "x n1; y n1; z n2",
    ),
    # Between queues what is above its share, or its quota, gives way.
    Case(
        "who is above the quota moves for one within it",
        "n1:2 n2:2",
        "a D1; b D2",
        "x a 1@n1\ny a 1@n2\nz b 2",
        "x n1; y n1; z n2",
    ),
    Case(
        "who is within its quota is moved",
        "n1:2 n2:2",
        "a D2; b D2",
        "x a 1@n1\ny a 1@n2\nz b 2",
        "x n1; y n1; z n2",
    ),
    Case(
        "and does not give way",
        "n1:2 n2:2",
        "a D2; b D2",
        "x a 1@n1\ny a 1@n2\nv b 1@n1 p=build\nz b 2",
        "x n1; y n2; v n1; z -",
    ),
    Case(
        "priority is nothing between queues",
        "n1:2 n2:2",
        "a D2; b D2",
        "x a 1@n1 p=10\ny a 1@n2 p=10\nv b 1@n1 p=build\nz b 2 p=90",
        "x n1; y n2; v n1; z -",
    ),
    Case(
        "nobody gives for what is beyond the share",
        "n1:2 n2:2",
        "a D2; b D0",
        "x a 1@n1\ny a 1@n2\nv b 1@n1\nz b 2",
        "x n1; y n2; v n1; z -",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[each.title for each in CASES])
def test_a_state_ends_as_the_table_says(case: Case) -> None:
    case.holds()


def test_nobody_leaves_for_a_side_that_would_be_further_above_its_share_than_who_gave() -> None:
    """Both departments share two of six: with its claimant ``d`` has three, and ``e`` gives one of its three for it.

    Where the one above its quota in ``d`` leaves as well, ``d`` has two with its claimant, and it is fair.
    """

    def runs(name: str, queue: str, at: str, *, firm: bool = False) -> dict[str, object]:
        pod = {"gpus": 1, "phase": "Running", "node": at, "node_selector": {"kubernetes.io/hostname": at}}
        return {"name": name, "queue": queue, "pods": [pod], "preemptible": not firm}

    queues = [
        {"name": "d", "quota": 2, "weight": 0},
        {"name": "e", "quota": 2, "weight": 0},
        {"name": "a", "parent": "d", "quota": 2},
        {"name": "above", "parent": "d"},
        {"name": "b", "parent": "e", "quota": 2},
    ]
    others = [runs("w", "above", "n1", firm=True), runs("x", "b", "n1"), runs("y", "b", "n2"), runs("z", "b", "n3")]
    there = [node(name, 2) for name in ("n1", "n2", "n3")]
    found = ask(nodes=there, queues=queues, jobs=[*others, job("big", 2, queue="a")])
    assert (evicted(found), waiting(found)) == ([], {"big": "GangUnschedulable"})
    fair = ask(nodes=there, queues=queues, jobs=[*others[1:], job("big", 2, queue="a")])
    assert evicted(fair) == [("z", "big", "reclaim")], "with nobody above its quota in d it is within its share"
    both = ask(nodes=there, queues=queues, jobs=[runs("w", "above", "n1"), *others[1:], job("big", 2, queue="a")])
    assert evicted(both) == [("w", "big", "reclaim"), ("z", "big", "reclaim")], "z as before, and w"
