"""A table over a closed set that lacks a row, or has one too many, is refused with the file to touch."""

from __future__ import annotations

from typing import Literal

import pytest

from muster.events.refusals import RefusalReason
from muster.model.closed import IncompleteTableError, total
from muster.told.codes.codetable import CODES, FILE, REFUSED, JobCode
from muster.told.wording.meanings import MEANINGS


def test_a_table_without_a_row_names_its_file() -> None:
    with pytest.raises(IncompleteTableError, match=r"codetable\.py \(CODES\) has no row for MadeUp: add one there"):
        total(CODES, Literal[JobCode, "MadeUp"], FILE)
    with pytest.raises(IncompleteTableError, match=r"has no row for made_up"):
        total(REFUSED, Literal[RefusalReason, "made_up"], FILE)
    with pytest.raises(IncompleteTableError, match=r"wording has no row for MadeUp"):
        total(MEANINGS, Literal[JobCode, "MadeUp"], "wording")


def test_a_row_for_nothing_is_refused_too() -> None:
    with pytest.raises(IncompleteTableError, match="has a row for Gone, which is no value of its set"):
        total({"Seen": 1, "Gone": 2}, Literal["Seen"], "a table")
