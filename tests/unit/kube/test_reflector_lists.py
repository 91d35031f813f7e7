"""How a Reflector lists: pages, tokens that expire, rights and resources that are not there. Virtual time."""

import itertools
import json
from typing import Any

import pytest

from kit.reflecting import SELECTOR, make, run, words
from kit.scripted import ScriptedTransport, bookmark, obj, page
from muster.kube.deltas import Absent, Upsert
from muster.kube.objects import ObjectMeta
from muster.kube.reflector import STRIKES, Reflector
from muster.model.api import RAYJOBS
from muster.ports import ApiResponse, ApiStatusError, ApiUnreachableError

pytestmark = pytest.mark.looptime


async def test_list_is_read_in_pages_at_the_newest_version() -> None:
    api = ScriptedTransport()
    api.lists.extend([page(7, obj("a", 1), obj("b", 2), token="t1"), page(7, obj("c", 3))])
    reflector, hooks = make(api, selectors=SELECTOR, page_size=2)
    found = await run(reflector, 1)
    assert words(found) == ["+a@1", "+b@2", "+c@3", "synced 3"]
    assert api.queries("list") == [{**SELECTOR, "limit": "2"}, {**SELECTOR, "limit": "2", "continue": "t1"}]
    assert (hooks.size, hooks.readiness, hooks.causes) == (3, [(True, "")], [])


async def test_upsert_carries_the_object_as_it_came() -> None:
    api = ScriptedTransport()
    pod = obj("a", 1, spec={"x": [1, 2.5, None, "é"]})
    api.lists.append(page(7, pod))
    found = await run(make(api)[0], 1)
    assert isinstance(found[0], Upsert)
    assert json.loads(found[0].raw) == pod


async def test_watch_follows_the_list_with_bookmarks_and_a_spread_end() -> None:
    api = ScriptedTransport()
    api.lists.append(page(7))
    api.watches.extend([[bookmark(8), 1.0], [bookmark(9), 1.0]])
    await run(make(api, selectors=SELECTOR)[0], 10)
    first, second, _third = api.queries("watch")
    assert {**first, "timeoutSeconds": ""} == {
        **SELECTOR,
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "7",
        "timeoutSeconds": "",
    }
    assert 300 <= int(first["timeoutSeconds"]) <= 600
    assert first["timeoutSeconds"] != second["timeoutSeconds"]


async def test_namespace_and_resource_choose_the_path() -> None:
    class Paths(ScriptedTransport):
        async def request(self, method: str, path: str, **rest: Any) -> ApiResponse:
            assert (method, path) == ("GET", "/apis/ray.io/v1/namespaces/team/rayjobs")
            return await super().request(method, path, **rest)

    api = Paths()
    api.lists.append(page(1))
    assert words(await run(Reflector(api, RAYJOBS, namespace="team"), 1)) == ["synced 0"]


async def test_known_objects_are_not_new_and_their_end_is_noticed() -> None:
    api = ScriptedTransport()
    api.lists.append(page(7, obj("same", 1), obj("changed", 5)))
    known = [
        ObjectMeta(f"uid-{name}", name, "default", rv) for name, rv in [("same", "1"), ("changed", "2"), ("gone", "3")]
    ]
    found = await run(make(api, known=known)[0], 1)
    assert words(found) == ["+changed@5", "-gone@3 concluded", "synced 2"]


async def test_refused_page_token_restarts_the_list() -> None:
    api = ScriptedTransport()
    api.lists.extend(
        [page(7, obj("a", 1), token="t1"), ApiResponse(400, b"invalid continue token"), page(7, obj("b", 2))]
    )
    assert words(await run(make(api)[0], 5)) == ["+a@1", "+b@2", "-a@1 concluded", "synced 1"]
    assert "continue" not in api.queries("list")[2]


async def test_expired_page_token_restarts_the_list() -> None:
    api = ScriptedTransport()
    api.lists.extend(
        [
            page(7, obj("a", 1), obj("gone", 2), token="t1"),
            ApiResponse(410, b""),
            page(9, obj("a", 1), obj("b", 8)),
        ]
    )
    reflector, hooks = make(api)
    assert words(await run(reflector, 5)) == ["+a@1", "+gone@2", "+b@8", "-gone@2 concluded", "synced 2"]
    assert hooks.causes == ["expired"]
    assert "continue" not in api.queries("list")[2]


async def test_tokens_that_keep_expiring_lead_to_a_list_without_pages() -> None:
    api = ScriptedTransport()
    for _ in range(STRIKES):
        api.lists.extend([page(7, obj("a", 1), token="t1"), ApiResponse(410, b"")])
    api.lists.append(page(7, obj("a", 1), obj("b", 2)))
    assert words(await run(make(api)[0], 60)) == ["+a@1", "+b@2", "synced 2"]
    assert ["limit" in query for query in api.queries("list")] == [True] * 6 + [False]


async def test_failed_page_is_asked_for_again_alone() -> None:
    api = ScriptedTransport()
    api.lists.extend(
        [
            page(7, obj("a", 1), token="t1"),
            ApiUnreachableError("reset"),
            ApiResponse(500, b""),
            ApiResponse(200, b"<html>login</html>"),
            page(7, obj("b", 2)),
        ]
    )
    reflector, hooks = make(api)
    assert words(await run(reflector, 30)) == ["+a@1", "+b@2", "synced 2"]
    assert [query.get("continue") for query in api.queries("list")] == [None] + ["t1"] * 4
    assert hooks.causes == ["unreachable", "unavailable", "garbled"]


async def test_list_honours_retry_after_of_header_and_status() -> None:
    api = ScriptedTransport()
    said = json.dumps({"kind": "Status", "details": {"retryAfterSeconds": 40}}).encode()
    api.lists.extend([ApiResponse(429, b"", 25.0), ApiResponse(503, said), page(7)])
    await run(make(api)[0], 100)
    first, second, third = api.times("list")
    assert (second - first, third - second) == (25.0, 40.0)


async def test_forbidden_list_is_not_ready_and_asked_for_ever_more_slowly() -> None:
    api = ScriptedTransport()
    api.lists.extend([page(7)])
    reflector, hooks = make(api)
    api.watches.append([5.0, bookmark(8), ApiStatusError(410, "gone")])
    api.lists.extend([ApiResponse(403, b"pods is forbidden")] * 20)
    await run(reflector, 400)
    gaps = [b - a for a, b in itertools.pairwise(api.times("list")[1:])]
    assert 2.5 <= gaps[0] <= 5.0
    assert all(30.0 <= gap <= 60.0 for gap in gaps[4:])
    assert hooks.readiness == [(True, ""), (False, "forbidden: HTTP 403")]
    assert hooks.causes[1:] == ["forbidden"] * (len(gaps) + 1)


async def test_wait_for_rights_starts_short_again_once_they_were_there() -> None:
    """An API server that starts forbids everything for some seconds."""
    api = ScriptedTransport()
    forbidden = ApiResponse(403, b"")
    api.lists.extend([*[forbidden] * 5, page(7, token="t"), forbidden, page(7)])
    await run(make(api)[0], 400)
    assert 2.5 <= api.times("list")[7] - api.times("list")[6] <= 5.0


async def test_unserved_resource_is_absent_until_it_appears() -> None:
    api = ScriptedTransport()
    api.lists.extend([ApiResponse(404, b"404 page not found")] * 3 + [page(7, obj("a", 1))])
    reflector, hooks = make(api)
    assert words(await run(reflector, 200)) == ["absent", "+a@1", "synced 1"]
    assert api.times("list") == [0.0, 60.0, 120.0, 180.0]
    assert hooks.readiness == [(True, "")]


async def test_resource_that_vanishes_is_absent_and_its_objects_are_decided_later() -> None:
    api = ScriptedTransport()
    api.lists.extend([page(7, obj("a", 1), obj("b", 2)), ApiResponse(404, b""), page(9, obj("b", 2))])
    api.watches.append([300.0, ApiStatusError(404, "")])
    reflector, hooks = make(api)
    found = await run(reflector, 500)
    assert words(found) == ["+a@1", "+b@2", "synced 2", "absent", "-a@1 concluded", "resynced 1"]
    assert [ready for ready, _ in hooks.readiness] == [True, False, True]
    assert found[3] == Absent(known=2)
