"""Recorded histories are decided as they were, each decision and deadline of them, and keep every invariant."""

from __future__ import annotations

import pytest

from kit.histories.files import FOLDER, names_in, read_lines
from kit.histories.judging import judge

NAMES = names_in()


@pytest.mark.parametrize("name", NAMES)
def test_it_is_decided_as_it_was(name: str) -> None:
    wrong = judge(name)
    assert not wrong, wrong


def test_each_has_its_line_and_all_are_small() -> None:
    assert sorted(read_lines()) == NAMES
    size = sum(path.stat().st_size for path in FOLDER.glob("*.gz"))
    assert len(NAMES) > 40
    assert size < 5_000_000
