"""What a Reflector makes of events: news once, in order, and a list where the position is lost. Virtual time."""

import pytest

from kit.reflecting import make, run, words
from kit.scripted import ScriptedTransport, bookmark, error, line, obj, page
from muster.kube.deltas import Delete, ListSynced, Upsert
from muster.kube.reflector import STRIKES
from muster.ports import ApiStatusError

pytestmark = pytest.mark.looptime


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
    assert found[-1] == ListSynced(3, relist=True, resource_version="20")


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
