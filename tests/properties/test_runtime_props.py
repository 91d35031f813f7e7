"""Runtime quota: the published vectors, and what must hold of any (row C28 of the conformance table)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.quota.division.dividing import Sibling, divide

A, B, C = (Sibling("a", 5, 10, 40), Sibling("b", 20, 15, 60), Sibling("c", 40, 20, 50))
VECTORS = {
    "by weight": (100, [A, B, C, Sibling("d", 70, 15, 80)], [5, 20, 35, 40]),
    "weight zero gets its min": (100, [A, B, C, Sibling("d", 70, 15, 0)], [5, 20, 40, 15]),
    "a guarantee above its min": (100, [A, B, C, Sibling("d", 70, 45, 0)], [5, 20, 30, 45]),
    "the remainder by name": (10, [Sibling(name, 100) for name in "abc"], [4, 3, 3]),
    "a donor and ten borrowers": (
        81,
        [Sibling("donor", 0, 3), *(Sibling(f"x{index}", 100, 8 if index < 8 else 7) for index in range(10))],
        [0, 9, 9, 9, 8, 8, 8, 8, 8, 7, 7],
    ),
    "what is not lent stays": (10, [Sibling("a", 0, 4, keeps=4), Sibling("b", 100, 2)], [4, 6]),
    "what is not lent of it stays": (10, [Sibling("a", 1, 4, keeps=3), Sibling("b", 100, 2)], [3, 7]),
    "mins beyond the total shrink": (9, [Sibling("a", 100, 12), Sibling("b", 100, 6)], [6, 3]),
}


@pytest.mark.parametrize("case", VECTORS)
def test_the_published_vectors(case: str) -> None:
    total, siblings, expected = VECTORS[case]
    assert list(divide(total, siblings).values()) == expected


SIBLINGS = st.lists(
    st.builds(
        Sibling,
        name=st.text("abcdefgh", min_size=1, max_size=3),
        request=st.integers(0, 60),
        least=st.integers(0, 20),
        weight=st.integers(0, 9),
        keeps=st.integers(0, 20),
    ),
    max_size=8,
    unique_by=lambda each: each.name,
)


@given(st.integers(0, 200), SIBLINGS, st.randoms(use_true_random=False))
def test_what_holds_of_any(total: int, siblings: list[Sibling], rng: st.DataObject) -> None:
    found = divide(total, siblings)
    assert sum(found.values()) <= total
    if sum(each.least for each in siblings) <= total:
        assert all(found[each.name] >= min(each.request, each.least) for each in siblings)
    assert all(found[each.name] <= max(each.request, each.least) for each in siblings)
    hungry = [each for each in siblings if each.weight and each.request > found[each.name]]
    assert not hungry or sum(found.values()) == total, "nothing is left over while somebody with weight needs it"
    rng.shuffle(siblings)  # type: ignore[attr-defined]
    assert divide(total, siblings) == found
