"""The nodes of a bucket, but for those that a decision has changed so far."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kit import nodes
from muster.core.placement.view import FEW, Ask, View


class _Names(list[str]):
    """None of which is looked at in turn."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("all names are looked at")


@pytest.mark.parametrize("count", [0, 1, 3, 4, 40, 64])
def test_names_of_a_bucket_are_those_that_are_left_in_order(count: int) -> None:
    view = View(nodes.ledger(*(nodes.node(f"n{index:02}", cpu=8, memory=8) for index in range(64))))
    taken = [f"n{index * 37 % 64:02}" for index in range(count)]
    ask, [(key, group)] = Ask("main", 1, {"cpu": 1000}), view.ledger.classes.items()
    [bucket] = group.buckets.values()
    if count * FEW <= 64:
        bucket.names = _Names(bucket.names)
    for name in taken:
        need = view.need(ask, name)
        assert need is not None
        view.take(ask, need, name, 1)
    left = sorted({f"n{index:02}" for index in range(64)} - {*taken})
    assert [names.copy() for each, names in view.buckets(key) if each is bucket] == ([left] if left else [])
