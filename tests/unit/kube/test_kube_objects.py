"""Decoding of lists, events, identities and Statuses."""

import json
from typing import Any

import pytest

from muster.kube.objects import (
    Malformed,
    MalformedError,
    ObjectMeta,
    Status,
    decode_event,
    decode_meta,
    decode_page,
    decode_status,
    decode_version,
)


def test_page_keeps_its_items_raw() -> None:
    page = decode_page(b'{"kind":"PodList","metadata":{"resourceVersion":"7","continue":"t"},"items":[{"a": 1},[2]]}')
    assert (page.resource_version, page.token) == ("7", "t")
    assert [bytes(item) for item in page.items] == [b'{"a": 1}', b"[2]"]


def test_go_writes_an_empty_list_as_null() -> None:
    assert decode_page(b'{"metadata":{},"items":null}').items == []


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"items":[', b'{"items":{}}', b'{"items":[]}', b"\xff"])
def test_anything_else_is_no_list(body: bytes) -> None:
    with pytest.raises(MalformedError):
        decode_page(body)


@pytest.mark.parametrize("body", [b"", b"<html>\n", b"{}", b'{"type":"ADDED"}', b'{"type":1,"object":{}}', b"[" * 9999])
def test_anything_else_is_no_event(body: bytes) -> None:
    with pytest.raises(MalformedError):
        decode_event(body)


@pytest.mark.parametrize(
    ("found", "meta"),
    [
        ({"uid": 5}, None),
        ({}, None),
        ({"namespace": "n"}, None),
        ({"name": "a", "resourceVersion": 5}, ObjectMeta("", "a")),
        ({"name": "a", "namespace": "n", "uid": ["u"], "resourceVersion": "3"}, ObjectMeta("", "a", "n", "3")),
        ({"uid": "u", "generation": 1.5}, ObjectMeta("u")),
    ],
)
def test_of_a_malformed_object_what_can_be_read_is_kept(found: dict[str, Any], meta: ObjectMeta | None) -> None:
    malformed = decode_meta(json.dumps({"metadata": found}).encode())
    assert isinstance(malformed, Malformed)
    assert malformed.meta == meta
    assert malformed.reason


@pytest.mark.parametrize("raw", [b"null", b"[]", b"{}", b'{"metadata":null}', b'{"metadata":{"name":"\xff"}}'])
def test_malformed_object_never_raises(raw: bytes) -> None:
    assert isinstance(decode_meta(raw), Malformed)


def test_status_tells_code_reason_message_and_wait() -> None:
    body = b'{"kind":"Status","code":429,"reason":"R","message":"m","details":{"retryAfterSeconds":3}}'
    assert decode_status(body) == Status(429, "R", "m", 3.0)


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"kind":"Pod","message":"m"}', b'{"code":"x"}'])
def test_anything_else_is_an_empty_status(body: bytes) -> None:
    assert decode_status(body) == Status()


def test_bookmark_has_a_version_and_no_name() -> None:
    assert decode_version(b'{"metadata":{"resourceVersion":"8"}}') == "8"
    assert decode_version(b'{"metadata":{"resourceVersion":8}}') == ""
