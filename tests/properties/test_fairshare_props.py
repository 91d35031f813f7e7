"""Fair shares of KAI queues: vectors of its own functions, and what must hold of any."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.quota.division.dividing import (
    UNLIMITED,
    Law,
    Sharer,
    allocatable,
    asked_above,
    divide_tree,
    fair_shares,
)
from muster.model.quota import KAI_ROOT as ROOT
from muster.model.quota import QuotaNode

GPU = 1000
LAW = Law(unit=GPU)


def sharer(  # in GPUs, as the vectors are written
    name: str, quota: str = "0", request: str = "100000", weight: str = "1", priority: int = 100, limit: str = "-1",
    usage: str = "0",
) -> Sharer:  # fmt: skip
    def amount(text: str) -> int:
        return UNLIMITED if text == "-1" else int(Fraction(text) * GPU)

    return Sharer(
        name=name,
        quota=amount(quota),
        request=amount(request),
        limit=amount(limit),
        weight=int(Fraction(weight) * 1000),
        priority=priority,
        usage=int(Fraction(usage) * 1_000_000),
    )


VECTORS = {
    "by weight above the quotas": ("100", [sharer("a", "10", "100", "3"), sharer("b", "10", "100")], "70 30"),
    "priority first": (
        "10",
        [sharer("a", "2", weight="2", priority=2), sharer("b", "2", priority=2), sharer("c", "3", priority=1)],
        "4 3 3",
    ),
    "a remainder goes to the first": ("7", [sharer("a"), sharer("b")], "4 3"),
    "what one does not need": ("8", [sharer("a", request="1"), sharer("b"), sharer("c")], "1 4 3"),
    "a limit": ("8", [sharer("a", limit="3"), sharer("b")], "3 5"),
    "quotas are never scaled down": ("8", [sharer("a", "6", "8"), sharer("b", "6", "8")], "6 6"),
    "unlimited quotas": ("8", [sharer("a", "-1", "8"), sharer("b", "-1", "8")], "8 8"),
    "weight zero": ("8", [sharer("a", "2", "8", "0"), sharer("b", "2", "8")], "2 6"),
    "one unit for two": ("1", [sharer("a", request="1"), sharer("b", request="1")], "1 0"),
    "parts of a unit": ("1", [sharer("a", request="0.5"), sharer("b", request="0.5")], "0.5 0.5"),
    "usage": ("16", [sharer("a", usage="0.5"), sharer("b")], "5 11"),
    "priority beats weight": (
        "10",
        [sharer("a", request="6", priority=2), sharer("b", request="100", weight="100", priority=1)],
        "6 4",
    ),
    "a left-over unit is handed out past a limit": (
        "1",
        [sharer(name, request="8", limit="0.5") for name in "abc"],
        "1 0 0",
    ),
    "usage zeroes every weight": ("8", [sharer("a", usage="2"), sharer("b", usage="2")], "0 0"),
    "a limit of nothing": ("8", [sharer("a", "4", limit="0"), sharer("b")], "0 8"),
    "a quota that is not needed": ("8", [sharer("a", "6", "2"), sharer("b", "0", "8")], "2 6"),
    # each of these turns with one line of the rule that no other vector turns with
    "what is wanted is what the quota has left open": ("10", [sharer("a", "2", "4"), sharer("b")], "4 6"),
    "the larger remainder, not the larger part": ("7", [sharer("x", weight="3"), sharer("y", weight="2")], "4 3"),
    "who gets exactly its part leaves nothing to divide again": (
        "10",
        [sharer("a", weight="0.5"), sharer("b", weight="8.5"), sharer("c", request="1")],
        "1 8 1",
    ),
    "equal remainders of different rounds": (
        "8",
        [sharer("a", weight="3"), sharer("b"), sharer("c", request="1", weight="20")],
        "6 1 1",
    ),
    "what rounding leaves of a high priority goes to a lower one first": (
        "7",
        [sharer("a", priority=2), sharer("b", priority=2), sharer("c", request="5", priority=1)],
        "3 3 1",
    ),
    "and back to the high one where the lower cannot use it": (
        "7",
        [sharer("a", priority=2), sharer("b", priority=2), sharer("c", request="5", weight="0", priority=1)],
        "4 3 0",
    ),
    # with floats in the order of a hash map this one had two answers; the slice of q2 is exactly what it asks for
    "the input that had two answers": (
        "33",
        [
            sharer("q0", "0.1", "50", "0.7", 2, "-1", "0.1"),
            sharer("q1", "0.1", "0.5", "0", 1, "-1", "0.1"),
            sharer("q2", "0", "50", "2", 1, "0.5"),
            sharer("q3", "5", "50", "1", 2),
            sharer("q4", "5", "0.3", "0", 1),
        ],
        "10.1 0.1 0.5 22 0.3",
    ),
}


@pytest.mark.parametrize("case", VECTORS)
def test_the_vectors(case: str) -> None:
    total, sharers, expected = VECTORS[case]
    found = fair_shares(int(Fraction(total) * GPU), sharers, LAW)
    assert [Fraction(found[each.name].amount, GPU) for each in sharers] == [Fraction(each) for each in expected.split()]


def test_ties_go_by_age_then_by_uid_then_by_name() -> None:
    old = Sharer(name="z", request=9, created=1)
    young = [Sharer(name=name, request=9, created=2, uid=uid) for name, uid in (("c", "u1"), ("b", "u1"), ("a", "u2"))]
    found = fair_shares(6, [*young, old])
    assert [found[name].amount for name in ("z", "b", "c", "a")] == [2, 2, 1, 1]


def test_what_a_queue_says_nothing_of() -> None:
    """No quota, no limit, weight 1, priority 100, no past; and k is 1."""
    assert fair_shares(4, [Sharer(name="a", request=4), Sharer(name="b", request=4, weight=3)])["b"].amount == 3
    plain = Sharer(name="a", request=5)
    assert (plain.quota, plain.limit, plain.weight, plain.priority, plain.usage) == (0, UNLIMITED, 1, 100, 0)
    assert (Law().unit, Law().k, Law().usage_whole) == (1, (1, 1), 1_000_000)


def test_what_is_told_of_a_share_is_what_it_saw_first() -> None:
    """Of the surplus and of its weight, in the first round it took part in."""
    found = fair_shares(12, [sharer("a", weight="2"), sharer("b", request="0.001"), sharer("c", "0.002")], Law())
    assert [(each.surplus_seen, each.weight_of[0] * 4 // each.weight_of[1]) for each in found.values()] == [
        *((10, 2), (10, 1), (10, 1))
    ]
    assert [each.rounds for each in found.values()] == [2, 1, 2], (
        "b is satisfied in the first round, so there is another"
    )
    nothing = fair_shares(5, [sharer("z", weight="0"), sharer("a")], Law())["z"]
    assert (nothing.surplus_seen, nothing.weight_of, nothing.rounds, nothing.amount) == (0, (0, 0), 0, 0)


@pytest.mark.parametrize(
    ("quota", "limit", "share", "expected"),
    [(UNLIMITED, UNLIMITED, 5, UNLIMITED), (UNLIMITED, 7, 5, 7), (4, UNLIMITED, 5, 5), (6, 8, 5, 6), (9, 8, 5, 8)],
)
def test_what_is_allocatable(quota: int, limit: int, share: int, expected: int) -> None:
    assert allocatable(Sharer(name="a", request=9, quota=quota, limit=limit), share) == expected


SHARERS = st.lists(
    st.builds(
        Sharer,
        name=st.text("abcdefgh", min_size=1, max_size=3),
        request=st.integers(0, 40),
        quota=st.integers(-1, 12),
        limit=st.integers(-1, 30),
        weight=st.integers(0, 5),
        priority=st.integers(1, 3),
        usage=st.sampled_from([0, 0, 100_000, 500_000, 1_500_000]),
        created=st.integers(0, 2),
        uid=st.sampled_from(["", "u1", "u2"]),
    ),
    max_size=8,
    unique_by=lambda each: each.name,
)
UNITS = st.sampled_from([1, 3, 10])


@given(st.integers(0, 120), SHARERS, UNITS, st.tuples(st.integers(0, 3), st.integers(1, 2)), st.integers(0, 99))
def test_what_holds_of_any(total: int, sharers: list[Sharer], unit: int, k: tuple[int, int], seed: int) -> None:
    law = Law(unit=unit, k=k)
    found = fair_shares(total, sharers, law)
    shuffled = sharers[:]
    Random(seed).shuffle(shuffled)
    assert fair_shares(total, shuffled, law) == found, "the order of the input changes nothing"

    of_quota = sum(each.quota for each in found.values())
    whole = sum(each.amount for each in found.values())
    assert whole <= max(total, of_quota), "what is handed out is there, unless the quotas alone are more"
    for each in sharers:
        share, least = found[each.name], total if each.quota == UNLIMITED else each.quota
        assert share.quota == min(least, each.requestable), "the guarantee comes first, whatever the others have"
        assert share.amount < each.requestable + unit, "past the request only by a left-over unit"
        assert each.weight or share.amount == share.quota, "weight 0 gets no surplus"
    if whole < total and not any(each.usage for each in sharers):
        hungry = [each.name for each in sharers if each.weight and found[each.name].amount < each.requestable]
        assert not hungry, "nothing stays while somebody with a weight wants it"
    tiers = {each.priority for each in sharers}
    for high in tiers:
        short = any(
            found[each.name].amount + unit <= each.requestable and each.weight and not each.usage
            for each in sharers
            if each.priority == high
        )
        lower = [found[each.name].surplus for each in sharers if each.priority < high]
        assert not short or sum(lower) < unit * len(sharers), "a lower priority gets no more than what rounding left"


@given(st.integers(0, 60), st.lists(st.tuples(st.integers(0, 6), st.integers(0, 20), st.integers(0, 3)), max_size=7))
def test_children_divide_the_share_of_their_parent(total: int, rows: list[tuple[int, int, int]]) -> None:
    """A queue hangs under any that came before it, or at the top."""
    paths = [ROOT]
    for above, _, _ in rows:
        paths.append(f"{paths[above % len(paths)]}/q{len(paths)}")
    asked = {path: {"cpu": rows[index][1]} for index, path in enumerate(paths[1:])}
    nodes = [
        QuotaNode(
            path,
            weight={"cpu": 1 if path == ROOT else rows[index - 1][2]},
            children=tuple(each for each in paths if each.rpartition("/")[0] == path),
        )
        for index, path in enumerate(paths)
    ]
    leaves = {node.path: asked[node.path] for node in nodes if not node.children and node.path in asked}
    requests = asked_above(nodes, leaves)
    assert requests[ROOT].get("cpu", 0) == sum(each["cpu"] for each in leaves.values())
    found = divide_tree(nodes, {"cpu": total}, requests)
    for node in nodes:
        have = total if node.path == ROOT else found[node.path]["cpu"].share.amount
        below = [found[child]["cpu"] for child in node.children]
        assert all(each.parent == have for each in below)
        assert sum(each.share.amount for each in below) <= have
