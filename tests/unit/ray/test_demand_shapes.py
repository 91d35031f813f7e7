"""Amounts and shapes: exact, sorted, added up, bounded."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.model.raydemand import RayShape
from muster.ray.errors import GarbledError
from muster.ray.shapes import bundle, group_of, is_held, shapes

ID = "1d6d16e8f36c9bad8dbc1756288a01000000"


def test_amounts_are_ten_thousandths() -> None:
    found = bundle({"memory": 2.0**30, "CPU": 0.1, "GPU": 1, "tpu-x": 0.0001, "none": 0})
    assert found == {"CPU": 1_000, "GPU": 10_000, "memory": 2**30 * 10_000, "tpu-x": 1}
    assert list(found) == sorted(found)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 1e300])
def test_what_is_no_amount_is_refused(value: float) -> None:
    with pytest.raises(GarbledError, match="CPU"):
        bundle({"CPU": value})


def test_a_shape_of_too_many_resources_is_refused() -> None:
    with pytest.raises(GarbledError, match="names 65 resources"):
        bundle({f"r{i}": 1.0 for i in range(65)})


@pytest.mark.parametrize(
    ("name", "group"),
    [("CPU", None), (f"CPU_group_{ID}", ID), (f"bundle_group_0_{ID}", ID), ("my_group_thing", None)],
)
def test_resources_of_placement_groups_are_known(name: str, group: str | None) -> None:
    assert group_of(name) == group
    assert is_held({name: 1.0, "GPU": 1.0}) is (group is not None)


def test_equal_shapes_are_one_and_requests_for_nothing_are_none() -> None:
    found, left_out = shapes(
        RayShape(each, count)
        for each, count in [({"CPU": 2}, 1), ({"CPU": 1}, 2), ({"CPU": 2}, 3), ({}, 9), ({"GPU": 1}, 0)]
    )
    assert found == (RayShape({"CPU": 1}, 2), RayShape({"CPU": 2}, 4))
    assert left_out == 0


def test_with_too_many_shapes_the_most_asked_for_are_kept() -> None:
    found, left_out = shapes((RayShape({"CPU": i}, i) for i in range(1, 6)), limit=3)
    assert [shape.count for shape in found] == [3, 4, 5]
    assert left_out == 1 + 2


@given(
    st.lists(st.tuples(st.dictionaries(st.sampled_from("abc"), st.integers(1, 3)), st.integers(-1, 5))), st.randoms()
)
def test_the_order_of_the_requests_does_not_show(requests: list[tuple[dict[str, int], int]], chance: object) -> None:
    ordered = [RayShape(dict(sorted(each.items())), count) for each, count in requests]
    other = list(ordered)
    chance.shuffle(other)  # type: ignore[attr-defined]
    assert shapes(ordered, limit=4) == shapes(other, limit=4)
    assert sum(shape.count for shape in shapes(ordered)[0]) == sum(max(0, n) for each, n in requests if each)
