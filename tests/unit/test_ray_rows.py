"""Every row of the conformance table of Ray clusters is shown where it has to be, and the page says by which test."""

import os
from collections.abc import Callable

import pytest

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
    text = PAGE.read_text()
    before, _, rest = text.partition(f"<!-- {mark} -->\n")
    _, _, after = rest.partition(f"<!-- end of {mark} -->")
    written = f"{before}<!-- {mark} -->\n{made()}<!-- end of {mark} -->{after}"
    if os.environ.get("MUSTER_TEST_REWRITE"):
        PAGE.write_text(written)
    assert text == written, "MUSTER_TEST_REWRITE=1 writes it"
