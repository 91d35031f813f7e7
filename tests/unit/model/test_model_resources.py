"""Quantities: what Kubernetes accepts, exactly as much as it means, and nothing else."""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.model.resources import (
    MAX_AMOUNT,
    QuantityError,
    add_into,
    format_part,
    format_quantity,
    format_vector,
    highest,
    in_bytes,
    is_resource_name,
    parse_quantity,
    scaled,
    summed,
    texts,
)

RESOURCES = ["cpu", "memory", "nvidia.com/gpu", "hugepages-2Mi", "ephemeral-storage", "kube-queue/max-jobs"]
amounts = st.integers(1, MAX_AMOUNT)
vectors = st.dictionaries(st.sampled_from(RESOURCES), amounts, max_size=4)


@pytest.mark.parametrize(
    ("text", "resource", "amount"),
    [
        ("4", "cpu", 4000),
        ("500m", "cpu", 500),
        ("0.5", "cpu", 500),
        (".5", "cpu", 500),
        ("5.", "cpu", 5000),
        ("+4", "cpu", 4000),
        ("0.1", "cpu", 100),
        ("1u", "cpu", 1),
        ("1n", "cpu", 1),
        ("1001u", "cpu", 2),
        ("0.0000000001", "cpu", 1),
        ("2k", "cpu", 2_000_000),
        ("1Ki", "cpu", 1_024_000),
        ("2e3", "cpu", 2_000_000),
        ("2E3", "cpu", 2_000_000),
        ("2e-3", "cpu", 2),
        ("2e+0", "cpu", 2000),
        ("0", "cpu", 0),
        ("-0", "cpu", 0),
        ("0e999", "cpu", 0),
        ("0E", "cpu", 0),
        ("00012", "cpu", 12_000),
        ("1", "nvidia.com/gpu", 1000),
        ("0.25", "nvidia.com/gpu", 250),
        ("4G", "memory", 4_000_000_000),
        ("4Gi", "memory", 4_294_967_296),
        ("14Gi", "memory", 15_032_385_536),
        ("1.5Gi", "memory", 1_610_612_736),
        ("0.3Ki", "memory", 308),
        ("128974848", "memory", 128_974_848),
        ("129e6", "memory", 129_000_000),
        ("129M", "memory", 129_000_000),
        ("128974848000m", "memory", 128_974_848),
        ("1m", "memory", 1),
        ("1E", "memory", 10**18),
        ("1Ei", "memory", 2**60),
        ("1P", "memory", 10**15),
        ("1Ti", "memory", 2**40),
        ("7Ei", "memory", 7 * 2**60),
        ("9223372036854775807", "memory", MAX_AMOUNT),
        ("9223372036854775.807", "cpu", MAX_AMOUNT),
        ("2Mi", "hugepages-1Gi", 2**21),
        ("3", "requests.storage", 3),
        ("3", "kube-queue/max-jobs", 3000),
    ],
)
def test_a_quantity_is_exactly_that_much(text: str, resource: str, amount: int) -> None:
    assert parse_quantity(text, resource) == amount


NONE = [".", "+", "-", "m", "Gi", "e3", ".e3", "4cpu", "4GiB", "4gi", "4K", "0x10", "1_000", "1,5", "--4", "4-", "1e"]
NONE += ["1e+", "1.2.3", "NaN", "Infinity", "inf", "٤", "½", "1e99999", "1i"]


@pytest.mark.parametrize("text", [*NONE, "", "4 ", " 4", "4\n", "1 Gi", "4" * 65, "\x00"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(QuantityError, match="not_a_quantity"):
        parse_quantity(text, "cpu")


@pytest.mark.parametrize("text", ["-1", "-0.001", "-1n", "-1e-9", "-4Gi"])
def test_less_than_nothing_is_refused(text: str) -> None:
    with pytest.raises(QuantityError, match="negative"):
        parse_quantity(text, "memory")


@pytest.mark.parametrize(
    ("text", "resource"),
    [
        ("9223372036854775808", "memory"),
        ("9223372036854775.808", "cpu"),
        ("8Ei", "memory"),
        ("10E", "cpu"),
        ("1e9999", "memory"),
        ("1e40", "cpu"),
    ],
)
def test_more_than_can_be_counted_is_refused(text: str, resource: str) -> None:
    with pytest.raises(QuantityError, match="uncountable"):
        parse_quantity(text, resource)


def test_a_refusal_shows_no_more_than_the_head_of_a_text() -> None:
    with pytest.raises(QuantityError) as found:
        parse_quantity("9" * 1_000_000, "cpu")
    assert len(str(found.value)) < 200


@given(
    st.integers(0, 10**18),
    st.integers(0, 12),
    st.sampled_from(["", "m", "u", "n", "k", "M", "G", "Ki", "Mi", "Gi", "e3", "E-2", "e0"]),
    st.sampled_from(["cpu", "memory"]),
)
def test_every_form_means_what_exact_decimals_say(digits: int, point: int, suffix: str, resource: str) -> None:
    """The oracle: decimals of any length, rounded up to the base unit once, at the end."""
    text = f"{digits:0{point + 1}d}"
    text = f"{text[: len(text) - point]}.{text[len(text) - point :]}" if point else text
    scale = {"m": -3, "u": -6, "n": -9, "": 0, "k": 3, "M": 6, "G": 9, "e3": 3, "E-2": -2, "e0": 0}
    with localcontext() as context:
        context.prec = 100
        factor = (
            Decimal(1024) ** (["Ki", "Mi", "Gi"].index(suffix) + 1)
            if suffix.endswith("i")
            else Decimal(10) ** scale[suffix]
        )
        exact = Decimal(text) * factor * (1 if resource == "memory" else 1000)
        wanted = int(exact.to_integral_value(rounding=ROUND_CEILING))
    if wanted > MAX_AMOUNT:
        with pytest.raises(QuantityError):
            parse_quantity(text + suffix, resource)
    else:
        assert parse_quantity(text + suffix, resource) == wanted


@given(st.text(alphabet="0123456789.eE+-KMGTPimnuk ", max_size=12), st.sampled_from(RESOURCES))
def test_whatever_is_read_lies_in_bounds(text: str, resource: str) -> None:
    try:
        amount = parse_quantity(text, resource)
    except QuantityError:
        return
    assert 0 <= amount <= MAX_AMOUNT
    assert parse_quantity(format_quantity(amount, resource), resource) == amount


@given(st.integers(0, MAX_AMOUNT), st.sampled_from(RESOURCES))
def test_what_is_written_is_read_again(amount: int, resource: str) -> None:
    assert parse_quantity(format_quantity(amount, resource), resource) == amount


@given(st.integers(0, 2**20), st.sampled_from([1, 10**3, 10**6, 10**9, 2**10, 2**20, 2**30]))
def test_no_other_text_of_bytes_is_shorter(count: int, unit: int) -> None:
    amount = count * unit
    written = format_quantity(amount, "memory")
    for suffix, size in {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}.items():
        if amount and amount % size == 0:
            assert len(written) <= len(f"{amount // size}{suffix}")


@pytest.mark.parametrize(
    ("amount", "resource", "text"),
    [
        (12_000, "cpu", "12"),
        (500, "cpu", "500m"),
        (12_500, "cpu", "12500m"),
        (0, "cpu", "0"),
        (0, "memory", "0"),
        (12_000_000_000, "memory", "12G"),
        (14 * 2**30, "memory", "14Gi"),
        (1023, "memory", "1023"),
        (250, "nvidia.com/gpu", "250m"),
        (-500, "cpu", "-500m"),
        (-(2**30), "memory", "-1Gi"),
    ],
)
def test_quantities_read_as_kubernetes_writes_them(amount: int, resource: str, text: str) -> None:
    assert format_quantity(amount, resource) == text


@pytest.mark.parametrize(
    ("resource", "bytes_"),
    [
        ("memory", True),
        ("storage", True),
        ("ephemeral-storage", True),
        ("hugepages-2Mi", True),
        ("requests.storage", True),
        ("example.com/gpu-memory", True),
        ("cpu", False),
        ("nvidia.com/gpu", False),
        ("pods", False),
        ("kube-queue/max-jobs", False),
    ],
)
def test_bytes_are_told_from_counts(resource: str, bytes_: bool) -> None:
    assert in_bytes(resource) is bytes_


@pytest.mark.parametrize("name", ["cpu", "nvidia.com/gpu", "hugepages-2Mi", "kube-queue/max-jobs", "a", "A_b.c-d"])
def test_names_of_resources(name: str) -> None:
    assert is_resource_name(name)


@pytest.mark.parametrize("name", ["", "cpu ", "-cpu", "cpu-", "a b", "\x1b[31m", "cpu\n", "r" * 318, "grün"])
def test_what_is_no_name_of_a_resource(name: str) -> None:
    assert not is_resource_name(name)


def test_a_vector_reads_in_order_of_its_names() -> None:
    assert format_vector({"memory": 12_000_000_000, "cpu": 12_000}) == "cpu 12, memory 12G"
    assert format_vector({}) == "nothing"
    assert list(texts({"memory": 1, "cpu": 500})) == ["cpu", "memory"]
    assert texts({"memory": 1, "cpu": 500}) == {"cpu": "500m", "memory": "1"}


def test_what_comes_to_zero_leaves_the_vector() -> None:
    total = {"cpu": 5, "memory": 7}
    add_into(total, {"cpu": 5, "pods": 2}, -1)
    assert total == {"memory": 7, "pods": -2}


@given(vectors, vectors, st.integers(1, 5))
def test_adding_and_taking_away_cancel(one: dict[str, int], other: dict[str, int], times: int) -> None:
    total = dict(one)
    add_into(total, other, times)
    assert total == summed([one, *[other] * times])
    add_into(total, other, -times)
    assert total == one


@given(vectors, vectors)
def test_the_highest_is_the_least_that_covers_both(one: dict[str, int], other: dict[str, int]) -> None:
    both = highest(one, other)
    assert both.keys() == one.keys() | other.keys()
    assert all(both[name] == max(one.get(name, 0), other.get(name, 0)) for name in both)


@given(vectors, st.integers(0, 5))
def test_scaling_is_adding_so_many_times(vector: dict[str, int], times: int) -> None:
    before = dict(vector)
    assert scaled(vector, times) == summed([vector] * times)
    assert vector == before


@pytest.mark.parametrize(
    ("amount", "whole", "resource", "text"),
    [
        (12_000, 14_000, "cpu", "12 of 14"),
        (500, 4_000, "nvidia.com/gpu", "0.5 of 4"),
        (30_500, 64_000, "cpu", "30.5 of 64"),
        (62_005, 64_000, "cpu", "62.005 of 64"),
        (1_500, 2_500, "cpu", "1500m of 2500m"),
        (12 * 10**9, 40 * 2**30, "memory", "11.2Gi of 40Gi"),
        (12 * 10**9, 40 * 10**9, "memory", "12G of 40G"),
        (2**30, 40 * 10**9, "memory", "1.1G of 40G"),
        (0, 40 * 2**30, "memory", "0 of 40Gi"),
        (5, 40 * 2**30, "memory", "5 of 40Gi"),
        (40 * 2**30 + 1, 40 * 2**30, "memory", "42949672961 of 40Gi"),
        (12 * 10**9, None, "memory", "12G"),
    ],
)
def test_a_part_is_said_in_the_unit_of_the_whole(amount: int, whole: int | None, resource: str, text: str) -> None:
    assert format_part(amount, whole, resource) == text
