"""The slow way through JSON agrees with the fast one."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.kube.nesting import NestingError, array_items, object_members

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), json_values), st.sampled_from([None, 2]), st.booleans())
def test_members_are_those_of_the_decoder(value: dict[str, Any], indent: int | None, ascii_only: bool) -> None:
    data = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode(errors="surrogatepass")
    assert {name: json.loads(raw) for name, raw in object_members(data).items()} == value


@given(st.lists(json_values), st.sampled_from([None, 2]))
def test_items_are_those_of_the_decoder(value: list[Any], indent: int | None) -> None:
    data = json.dumps(value, indent=indent).encode()
    assert [json.loads(raw) for raw in array_items(data)] == value


def test_null_is_an_empty_array() -> None:
    assert array_items(b" null ") == []


@pytest.mark.parametrize("data", [b"", b"[", b'{"a":[}', b'{"a"}', b"{1:2}", b'{"a":1}}', b"<html>", b'{"a', b"{,}"])
def test_broken_brackets_are_refused(data: bytes) -> None:
    with pytest.raises(NestingError):
        object_members(data)


def test_any_depth_is_taken() -> None:
    deep = b"[" * 100_000 + b"]" * 100_000
    assert object_members(b'{"a":' + deep + b',"b":1}') == {"a": deep, "b": b"1"}
