"""Every row of the conformance table of Ray clusters is shown where it has to be, and the page says by which test."""

from collections.abc import Callable

import pytest

from kit.pages import has_part
from kit.rayrows import LATER, PAGE, ROWS, exists, later, shown, table


@pytest.mark.parametrize("row", ROWS)
def test_every_row_is_shown_where_it_has_to_be(row: int) -> None:
    found = shown()[row]
    assert set(ROWS[row][1]) <= found.keys(), f"row {row} ({ROWS[row][0]}) is shown in {sorted(found)} only"


def test_the_tables_are_whole() -> None:
    assert list(ROWS) == list(range(1, 25))
    assert list(LATER) == list(range(1, len(LATER) + 1)) and all(tests for _, tests in LATER.values())
    missing = [test for _, tests in LATER.values() for test in tests if not exists(test)]
    assert not missing


@pytest.mark.parametrize(("mark", "made"), [("rows", table), ("later", later)])
def test_the_page_has_the_tables(mark: str, made: Callable[[], str]) -> None:
    assert has_part(PAGE, mark, made()), "MUSTER_TEST_REWRITE=1 writes it"
