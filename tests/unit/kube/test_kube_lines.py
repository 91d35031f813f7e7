"""Lines come out whole, however the stream was cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.kube.lines import LineSplitter, LineTooLongError


@given(st.lists(st.binary(max_size=8).filter(lambda b: b"\n" not in b and b"\r" not in b)), st.data())
def test_any_chunking_gives_the_same_lines(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines) + b"rest"
    splitter = LineSplitter(100)
    found: list[bytes] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += splitter.feed(stream[:size])
        stream = stream[size:]
    assert found == [line for line in lines if line]


def test_line_over_the_limit_is_refused_before_it_ends() -> None:
    splitter = LineSplitter(10)
    assert splitter.feed(b"0123456789\n01234") == [b"0123456789"]
    with pytest.raises(LineTooLongError):
        splitter.feed(b"567890")


def test_blank_lines_are_left_out() -> None:
    assert LineSplitter(10).feed(b"\n\r\na\n\n") == [b"a"]
