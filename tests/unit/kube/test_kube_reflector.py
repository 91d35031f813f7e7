"""What a Reflector reports, and how long it waits, in virtual time."""

import asyncio
import itertools
import json
from contextlib import aclosing
from random import Random
from typing import Any

import pytest

from kit.scripted import ScriptedTransport, Step, bookmark, error, line, obj, page
from muster.kube.deltas import HEAD_BYTES, Absent, Delete, Delta, Synced, Unreadable, Upsert
from muster.kube.objects import ObjectMeta
from muster.kube.reflector import MIN_GAP_S, STRIKES, Reflector
from muster.model.api import PODS, RAYJOBS
from muster.ports import ApiResponse, ApiStatusError, ApiUnreachableError

pytestmark = pytest.mark.looptime

SELECTOR = {"labelSelector": "ray.io/is-ray-node=yes"}


class Recorder:
    """Hooks that remember."""

    def __init__(self) -> None:
        self.causes: list[str] = []
        self.readiness: list[tuple[bool, str]] = []
        self.size = 0
        self.heard_s: list[float] = []

    def restarted(self, resource: str, cause: str, detail: str) -> None:
        self.causes.append(cause)

    def heard(self, resource: str, at_s: float) -> None:
        self.heard_s.append(at_s)

    def sized(self, resource: str, objects: int) -> None:
        self.size = objects

    def ready(self, resource: str, ready: bool, why: str) -> None:
        self.readiness.append((ready, why))


def make(api: ScriptedTransport, **settings: Any) -> tuple[Reflector, Recorder]:
    hooks = Recorder()
    return Reflector(api, PODS, hooks=hooks, rng=Random(1), **settings), hooks


async def run(reflector: Reflector, for_s: float) -> list[Delta]:
    """Everything reported in so many seconds."""
    found: list[Delta] = []

    async def collect() -> None:
        async with aclosing(reflector.deltas()) as deltas:
            async for delta in deltas:
                found.append(delta)  # noqa: PERF401 - what came before the time is up counts

    try:
        async with asyncio.timeout(for_s):
            await collect()
    except TimeoutError:
        pass
    return found


def words(deltas: list[Delta]) -> list[str]:
    """Deltas as short text: `+a@3`, `-a@3`, `?a`, `synced 2`, `resynced 2`, `absent`."""
    result = []
    for delta in deltas:
        match delta:
            case Upsert(meta, _):
                result.append(f"+{meta.name}@{meta.resource_version}")
            case Delete(meta, raw):
                result.append(f"-{meta.name}@{meta.resource_version}{'' if raw else ' concluded'}")
            case Unreadable(meta, _, _):
                result.append(f"?{meta.name if meta else ''}")
            case Synced(count, relist):
                result.append(f"{'re' if relist else ''}synced {count}")
            case Absent():
                result.append("absent")
    return result


# ---- lists


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


# ---- events


async def test_events_become_deltas_and_repetitions_do_not() -> None:
    api = ScriptedTransport()
    api.lists.append(page(7, obj("a", 1), obj("b", 2)))
    changed, gone, new = line("MODIFIED", obj("a", 8)), line("DELETED", obj("b", 9)), line("ADDED", obj("c", 10))
    api.watches.append(
        [line("ADDED", obj("a", 1)), changed, changed, gone, gone, new, line("SURPRISE", obj("d", 11)), 1.0]
    )
    reflector, hooks = make(api)
    assert words(await run(reflector, 5))[3:] == ["+a@8", "-b@9", "+c@10"]
    assert hooks.size == 2


async def test_late_repetitions_of_older_events_are_dropped() -> None:
    api = ScriptedTransport()
    api.lists.append(page(7))
    added, changed, gone = line("ADDED", obj("a", 8)), line("MODIFIED", obj("a", 9)), line("DELETED", obj("a", 10))
    api.watches.append([added, changed, added, changed, gone, added, changed, gone, 1.0])
    assert words(await run(make(api)[0], 5)) == ["synced 0", "+a@8", "+a@9", "-a@10"]


async def test_event_from_before_a_list_counts_again_after_it() -> None:
    """A store restored from a backup hands out versions a second time."""
    api = ScriptedTransport()
    api.lists.extend([page(7), page(5, obj("a", 5))])
    api.watches.extend([[line("ADDED", obj("a", 8)), error(410)], [line("MODIFIED", obj("a", 8)), 1.0]])
    assert words(await run(make(api)[0], 10)) == ["synced 0", "+a@8", "+a@5", "resynced 1", "+a@8"]


async def test_end_of_an_object_never_reported_is_no_delta() -> None:
    api = ScriptedTransport()
    api.lists.append(page(7))
    api.watches.append([line("DELETED", obj("a", 8)), 1.0])
    assert words(await run(make(api)[0], 5)) == ["synced 0"]
    assert api.queries("watch")[1]["resourceVersion"] == "8"


@pytest.mark.parametrize("by", ["list", "watch"])
async def test_successor_of_the_same_name_ends_its_predecessor_first(by: str) -> None:
    api = ScriptedTransport()
    api.lists.append(page(7, obj("a", 1, uid="old")))
    if by == "list":
        api.watches.append([ApiStatusError(410, "too old")])
        api.lists.append(page(9, obj("a", 8, uid="new")))
    else:
        api.watches.append([line("ADDED", obj("a", 8, uid="new")), line("DELETED", obj("a", 9, uid="old")), 1.0])
    found = await run(make(api)[0], 5)
    assert words(found)[2:4] == ["-a@1 concluded", "+a@8"]
    assert [delta.meta.uid for delta in found[2:4] if isinstance(delta, Delete | Upsert)] == ["old", "new"]
    assert "-a@9" not in words(found)


async def test_next_watch_goes_on_after_events_and_bookmarks() -> None:
    api = ScriptedTransport()
    api.lists.append(page(7))
    api.watches.extend(
        [[line("ADDED", obj("a", 8)), 1.0], [1.0], [bookmark(20), 1.0], [line("DELETED", obj("a", 21)), 1.0]]
    )
    await run(make(api)[0], 30)
    assert [query["resourceVersion"] for query in api.queries("watch")] == ["7", "8", "8", "20", "21"]


@pytest.mark.parametrize(
    "end",
    [
        ApiStatusError(410, "too old resource version"),
        error(410, "too old resource version", "Expired"),
        error(0, "the event is gone", "Gone"),
        ApiStatusError(400, "invalid resource version"),
    ],
    ids=str,
)
async def test_lost_position_leads_to_a_list_that_reports_the_difference(end: Exception | bytes) -> None:
    api = ScriptedTransport()
    api.lists.append(page(7, obj("same", 1), obj("changed", 2), obj("gone", 3)))
    api.watches.append([end])
    api.lists.append(page(20, obj("same", 1), obj("changed", 15), obj("new", 16)))
    found = await run(make(api)[0], 10)
    assert words(found)[4:] == ["+changed@15", "+new@16", "-gone@3 concluded", "resynced 3"]
    assert api.queries("watch")[1]["resourceVersion"] == "20"
    assert found[-1] == Synced(3, relist=True, resource_version="20")


async def test_server_that_lags_behind_is_asked_again_then_listed() -> None:
    api = ScriptedTransport()
    api.lists.extend([page(7), page(5)])
    api.watches.extend([[ApiStatusError(504, "Timeout: Too large resource version: 7, current: 5", 1.0)]] * STRIKES)
    reflector, hooks = make(api)
    assert words(await run(reflector, 30)) == ["synced 0", "resynced 0"]
    assert [query["resourceVersion"] for query in api.queries("watch")] == ["7"] * STRIKES + ["5"]
    assert hooks.causes == ["too_new"] * STRIKES


@pytest.mark.parametrize(
    "end", [b"<html>", error(500, "cannot decode"), b'{"type":"ADDED"}'], ids=["html", "error", "half"]
)
async def test_stream_that_keeps_failing_at_one_place_is_listed_anew(end: bytes) -> None:
    api = ScriptedTransport()
    api.lists.extend([page(7), page(8, obj("a", 8))])
    api.watches.extend([[end]] * STRIKES)
    assert words(await run(make(api)[0], 30)) == ["synced 0", "+a@8", "resynced 1"]
    assert [query["resourceVersion"] for query in api.queries("watch")] == ["7"] * STRIKES + ["8"]


async def test_failure_after_progress_is_no_strike() -> None:
    api = ScriptedTransport()
    api.lists.append(page(7))
    api.watches.extend([bookmark(rv), error(500, "hiccup")] for rv in range(8, 20))
    await run(make(api)[0], 60)
    assert len(api.times("list")) == 1


# ---- objects that cannot be read


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


# ---- waiting


async def test_immediate_ends_do_not_make_a_hot_loop() -> None:
    api = ScriptedTransport()
    api.lists.append(page(7))
    api.watches.extend([[]] * 1000)
    reflector, hooks = make(api)
    await run(reflector, 600)
    starts = api.times("watch")
    assert 30 <= len(starts) <= 70  # a mean of 15 s between them once the back-off is full
    assert max(b - a for a, b in itertools.pairwise(starts)) <= 30.0
    assert set(hooks.causes) == {"ended"}


@pytest.mark.parametrize(
    "failure", [ApiUnreachableError("reset"), ApiStatusError(500, ""), ApiStatusError(502, "<html>")], ids=str
)
async def test_failures_back_off_likewise(failure: Exception) -> None:
    api = ScriptedTransport()
    api.lists.append(page(7))
    api.watches.extend([[failure]] * 1000)
    await run(make(api)[0], 600)
    assert 30 <= len(api.times("watch")) <= 70
    assert len(api.times("list")) == 1


@pytest.mark.parametrize(
    "end", [[ApiStatusError(410, "")], [bookmark(8), error(410, "")]], ids=["without progress", "with progress"]
)
async def test_expired_at_once_does_not_make_a_hot_loop_of_lists(end: list[Step]) -> None:
    api = ScriptedTransport()
    api.lists.extend([page(7, token="t"), page(7)] * 500)
    api.watches.extend([end] * 500)
    await run(make(api)[0], 600)
    assert len(api.times("watch")) <= 70


async def test_stream_with_progress_is_resumed_at_once_but_for_a_gap() -> None:
    api = ScriptedTransport()
    api.lists.append(page(7))
    api.watches.extend([[]] * 12)
    api.watches.append([bookmark(8)])
    api.watches.extend([bookmark(rv)] for rv in range(9, 20))
    await run(make(api)[0], 600)
    gaps = [b - a for a, b in itertools.pairwise(api.times("watch")[12:24])]
    assert gaps == pytest.approx([MIN_GAP_S] * 11)


async def test_watch_that_lived_long_takes_the_back_off_back() -> None:
    api = ScriptedTransport()
    api.lists.append(page(7))
    api.watches.extend([[]] * 12)
    same = bookmark(7)
    api.watches.extend([[same, 120.0], [same, 120.0, ApiUnreachableError("idle")], [same, 119.0], [same, 119.0], []])
    await run(make(api)[0], 1000)
    starts = api.times("watch")
    gaps = [b - a for a, b in itertools.pairwise(starts)][12:]
    assert gaps[0] == 120.0
    assert 120.0 <= gaps[1] <= 120.8
    assert 119.0 <= gaps[2] <= 120.6
    assert 119.0 <= gaps[3] <= 122.2


async def test_watch_without_a_sign_of_life_is_not_trusted() -> None:
    """So does a real server behave whose store was set back behind the position we ask for."""
    api = ScriptedTransport()
    api.lists.extend([page(1000, obj("a", 900)), page(500)])
    api.watches.append([150.0, ApiUnreachableError("idle")])
    reflector, hooks = make(api)
    assert words(await run(reflector, 200)) == ["+a@900", "synced 1", "-a@900 concluded", "resynced 0"]
    assert api.queries("watch")[1]["resourceVersion"] == "500"
    assert hooks.causes == ["unreachable"]


async def test_watch_honours_retry_after() -> None:
    api = ScriptedTransport()
    api.lists.append(page(7))
    api.watches.extend(
        [[ApiStatusError(429, "", 17.0)], [ApiStatusError(503, "", 9.0)], [error(429, retryAfterSeconds=33)], []]
    )
    await run(make(api)[0], 300)
    gaps = [b - a for a, b in itertools.pairwise(api.times("watch"))]
    assert gaps[:3] == [17.0, 9.0, 33.0]


async def test_forbidden_watch_is_not_ready_until_it_delivers() -> None:
    api = ScriptedTransport()
    api.lists.append(page(7))
    api.watches.extend(
        [[ApiStatusError(403, "no watch for you")], [ApiStatusError(401, "who are you")], [3.0, bookmark(8), 9.0]]
    )
    reflector, hooks = make(api)
    await run(reflector, 60)
    assert hooks.readiness == [(True, ""), (False, "forbidden: no watch for you"), (True, "")]
    gaps = [b - a for a, b in itertools.pairwise(api.times("watch"))]
    assert 2.5 <= gaps[0] <= 5.0
    assert 5.0 <= gaps[1] <= 10.0
    assert len(api.times("list")) == 1


async def test_age_of_the_last_sign_of_life_is_told() -> None:
    api = ScriptedTransport()
    api.lists.append(page(7))
    api.watches.append([60.0, bookmark(8), 60.0, line("ADDED", obj("a", 9)), 60.0])
    reflector, hooks = make(api)
    await run(reflector, 150)
    assert hooks.heard_s == [0.0, 60.0, 120.0]


async def test_closing_the_deltas_closes_the_watch() -> None:
    api = ScriptedTransport()
    api.lists.append(page(7))
    api.watches.append([line("ADDED", obj("a", 8)), 600.0])
    async with aclosing(make(api)[0].deltas()) as stream:
        async for delta in stream:
            if isinstance(delta, Upsert):
                break
    assert api.closed == 1
