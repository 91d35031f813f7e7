"""Names on the bus: what users call their things never becomes part of a subject's structure."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.events import subjects

texts = st.text(st.characters(exclude_categories=["Cs"]))


def text_of(token: str) -> str:
    """The text of a token, as a subscriber reads it."""
    if token == "==":
        return ""
    raw = re.sub(rb"=([0-9A-F]{2})", lambda match: bytes([int(match[1], 16)]), token.encode())
    return raw.decode()


@given(texts)
def test_what_is_escaped_is_one_token_and_comes_back(text: str) -> None:
    token = subjects.escape_token(text)
    assert re.fullmatch(r"[A-Za-z0-9_=-]+", token)
    assert text_of(token) == text


@given(texts, texts)
def test_different_texts_are_different_tokens(one: str, other: str) -> None:
    assert (subjects.escape_token(one) == subjects.escape_token(other)) == (one == other)


@pytest.mark.parametrize(
    ("text", "token"),
    [
        ("video", "video"),
        ("a.b", "a=2Eb"),
        ("*", "=2A"),
        (">", "=3E"),
        ("a b", "a=20b"),
        ("", "=="),
        ("==", "=3D=3D"),
        ("=2E", "=3D2E"),
        ("ü", "=C3=BC"),
        ("\u0661", "=D9=A1"),
        ("\x00", "=00"),
    ],
)
def test_tokens_as_others_may_have_to_write_them(text: str, token: str) -> None:
    assert subjects.escape_token(text) == token


@given(texts, texts)
def test_a_public_subject_has_its_seven_tokens_whatever_the_names(namespace: str, name: str) -> None:
    tokens = subjects.public_subject("main", "workload_admitted", namespace, name).split(".")
    assert tokens[:5] == ["muster", "pub", "v1", "main", "workload_admitted"]
    assert [text_of(token) for token in tokens[5:]] == [namespace, name]


@pytest.mark.parametrize("cell", ["main", "a", "a1-b2", "0", "a" * 32])
def test_names_of_cells(cell: str) -> None:
    assert subjects.check_cell(cell) == cell


@pytest.mark.parametrize("cell", ["", "-a", "a-", "A", "a.b", "a b", "a" * 33, "a\n", "ü", "*", ">", "a_b"])
def test_what_is_no_name_of_a_cell(cell: str) -> None:
    with pytest.raises(ValueError, match="cell"):
        subjects.check_cell(cell)


@pytest.mark.parametrize("generation", [1, 2, 10, 999])
def test_a_stream_says_which_generation_it_is(generation: int) -> None:
    stream = subjects.log_stream("main", generation)
    assert subjects.log_generation("main", stream) == generation
    assert subjects.log_generation("mai", stream) is None


OTHER_STREAMS = ["", "MUSTER_PUB", *(f"MUSTER_LOG_main{end}" for end in ("", "_", "_0", "_01", "_1x", "_1_1", "_-1"))]


@pytest.mark.parametrize("stream", OTHER_STREAMS)
def test_other_streams_are_no_generation(stream: str) -> None:
    assert subjects.log_generation("main", stream) is None


def test_a_cell_whose_name_is_a_pattern_or_a_prefix_is_not_taken_for_another() -> None:
    assert subjects.log_generation("a", "MUSTER_LOG_a-b_1") is None
    assert subjects.log_generation("a-b", "MUSTER_LOG_a-b_1") == 1


def test_log_subjects_cover_what_is_appended_and_no_other_generation() -> None:
    subject = subjects.log_subject("main", 3, "watcher", "pods")
    assert subject == "muster.log.main.3.watcher.pods"
    assert subject.startswith(subjects.log_subjects("main", 3).removesuffix(">"))
    assert not subject.startswith(subjects.log_subjects("main", 30).removesuffix(">"))
    assert not subject.startswith(subjects.log_subjects("mai", 3).removesuffix(">"))
    assert subject.startswith(subjects.cell_log_subjects("main").removesuffix(">"))
