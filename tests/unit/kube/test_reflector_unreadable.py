"""Objects that a Reflector cannot read stop nothing else."""

import json

import pytest

from kit.reflecting import make, run, words
from kit.scripted import ScriptedTransport, line, obj, page
from muster.kube.deltas import HEAD_BYTES, Delete, Unreadable, Upsert
from muster.kube.objects import ObjectMeta
from muster.ports import ApiResponse, ApiStatusError

pytestmark = pytest.mark.looptime


async def test_malformed_object_stops_nothing() -> None:
    api = ScriptedTransport()
    odd = {"metadata": {"name": "odd", "namespace": "default", "uid": "u9", "resourceVersion": "3", "generation": "x"}}
    api.lists.append(page(7, obj("a", 1), odd, {"metadata": {"uid": 5}}, {}, obj("b", 2)))
    api.watches.append([line("MODIFIED", odd), line("ADDED", obj("c", 8)), 1.0])
    found = await run(make(api)[0], 5)
    assert words(found) == ["+a@1", "?odd", "?", "?", "+b@2", "synced 3", "+c@8"]
    assert isinstance(found[1], Unreadable)
    assert found[1].meta == ObjectMeta("u9", "odd", "default", "3")
    assert "generation" in found[1].reason


async def test_unreadable_object_is_reported_once_per_version_and_its_end() -> None:
    api = ScriptedTransport()
    odd = {"metadata": {"name": "odd", "uid": "u9", "resourceVersion": "3", "generation": "x"}}
    api.lists.extend([page(7, odd), page(8, odd), page(9)])
    api.watches.extend([[ApiStatusError(410, "")]] * 2)
    assert words(await run(make(api)[0], 10)) == ["?odd", "synced 1", "resynced 1", "-odd@3 concluded", "resynced 0"]


async def test_object_that_loses_its_uid_is_still_the_same() -> None:
    api = ScriptedTransport()
    api.lists.append(page(7, obj("a", 1)))
    bare = {"metadata": {"name": "a", "namespace": "default", "resourceVersion": "8"}}
    api.watches.append(
        [line("MODIFIED", bare), line("DELETED", {"metadata": {**bare["metadata"], "resourceVersion": "9"}}), 1.0]
    )
    found = await run(make(api)[0], 5)
    assert words(found)[2:] == ["+a@8", "-a@9"]
    assert [delta.meta.uid for delta in found[2:] if isinstance(delta, Upsert | Delete)] == ["uid-a"] * 2


async def test_object_nested_beyond_the_decoder_spares_its_neighbours() -> None:
    deep = b'{"spec":' + b"[" * 5000 + b"]" * 5000 + b',"metadata":{"name":"deep","uid":"u","resourceVersion":"2"}}'
    items = json.dumps(obj("a", 1)).encode(), deep, json.dumps(obj("b", 3)).encode()
    api = ScriptedTransport()
    api.lists.append(ApiResponse(200, b'{"metadata":{"resourceVersion":"7"},"items":[' + b",".join(items) + b"]}"))
    again = deep.replace(b'"2"', b'"8"')
    api.watches.append([b'{"type":"MODIFIED","object":' + again + b"}", line("ADDED", obj("c", 9)), 1.0])
    found = await run(make(api)[0], 5)
    assert words(found) == ["+a@1", "?deep", "+b@3", "synced 3", "?deep", "+c@9"]
    assert isinstance(found[1], Unreadable)
    assert (found[1].reason, found[1].head) == ("nested too deeply", deep[:HEAD_BYTES])
