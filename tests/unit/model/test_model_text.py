"""Texts for people: harmless, short, and times as one reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.model.text import clean, counted, moment, shorten, span


@given(st.text())
def test_nothing_that_was_cleaned_steers_a_terminal(text: str) -> None:
    cleaned = clean(text)
    assert len(cleaned) == len(text)
    assert not any(char < " " or "\x7f" <= char <= "\x9f" for char in cleaned)
    assert "\u202e" not in cleaned
    assert clean(cleaned) == cleaned


def test_what_is_readable_stays() -> None:
    assert clean("训练 – grün ✓") == "训练 – grün ✓"
    assert clean("a\x1b[31mb\n\u2028\u202ec") == "a\ufffd[31mb\ufffd\ufffd\ufffdc"


@given(st.text(), st.integers(1, 20))
def test_a_text_is_at_most_as_long_as_it_may_be(text: str, limit: int) -> None:
    short = shorten(text, limit)
    assert len(short) <= limit
    assert short == text if len(text) <= limit else short.endswith("…")


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1000, "1 s"),
        (9800, "9.8 s"),
        (19_900, "19.9 s"),
        (20_500, "20 s"),
        (59_999, "59 s"),
        (60_000, "1 min"),
        (192_000, "3 min 12 s"),
        (3_600_000, "1 h"),
        (18_240_000, "5 h 4 min"),
        (183_600_000, "2 d 3 h"),
        (-1500, "-1.5 s"),
    ],
)
def test_spans_in_words(ms: int, text: str) -> None:
    assert span(ms) == text


def test_moments_and_numbers_in_words() -> None:
    assert moment(1_736_472_984_641) == "2025-01-10 01:36:24.641"
    assert [counted(1, "job"), counted(0, "job"), counted(2, "class", "classes")] == ["1 job", "0 jobs", "2 classes"]
