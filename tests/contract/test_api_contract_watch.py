"""The contract of the API server, on the simulated one and on a real one: watches."""

import pytest

from kit.api import Api, Object, seen
from muster.model.api import CONFIG_MAPS, PODS, RAYJOBS
from muster.ports import ApiStatusError


def job(name: str, **labels: str) -> Object:
    return {"metadata": {"name": name, "labels": labels}, "spec": {"suspend": True}}


async def version(api: Api) -> str:
    """The present version of the RayJobs of this test."""
    found: str = (await api.select(RAYJOBS)).body["metadata"]["resourceVersion"]
    return found


async def some_history(api: Api) -> str:
    """Make a few changes; returns the version before them."""
    start = await version(api)
    await api.create(RAYJOBS, job("a", shown="yes"))
    await api.create(RAYJOBS, job("b"))
    await api.merge(RAYJOBS, "a", {"spec": {"suspend": False}})
    await api.merge(RAYJOBS, "a", {"metadata": {"labels": {"shown": "no"}}})
    await api.merge(RAYJOBS, "a", {"status": {"jobStatus": "RUNNING"}}, "status")
    await api.delete(RAYJOBS, "b")
    return start


HISTORY = [
    ("ADDED", "a"),
    ("ADDED", "b"),
    ("MODIFIED", "a"),
    ("MODIFIED", "a"),
    ("MODIFIED", "a"),
    ("DELETED", "b"),
]


async def test_changes_come_in_order_with_growing_versions(api: Api) -> None:
    start = await some_history(api)
    events = await api.watch(RAYJOBS, lambda events: len(events) == len(HISTORY), resourceVersion=start)
    assert seen(events) == HISTORY
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))
    assert versions[0] > int(start)
    assert events[-2]["object"]["status"]["jobStatus"] == "RUNNING"
    assert events[-1]["object"]["spec"]["suspend"] is True, "a deleted object is shown as it was last"


async def test_a_watch_resumes_where_another_one_ended(api: Api) -> None:
    start = await some_history(api)
    first = await api.watch(RAYJOBS, lambda events: len(events) == 2, resourceVersion=start)
    last = first[-1]["object"]["metadata"]["resourceVersion"]
    rest = await api.watch(RAYJOBS, lambda events: len(events) == 4, resourceVersion=last)
    assert seen(first) + seen(rest) == HISTORY


async def test_a_selection_is_entered_and_left(api: Api) -> None:
    start = await some_history(api)
    await api.merge(RAYJOBS, "a", {"metadata": {"labels": {"shown": "yes"}}})
    events = await api.watch(RAYJOBS, lambda events: len(events) == 4, resourceVersion=start, labelSelector="shown=yes")
    assert seen(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a"), ("ADDED", "a")]
    assert events[2]["object"]["metadata"]["labels"] == {"shown": "yes"}
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions)), "leaving has the version of the change that made it leave"
    named = await api.watch(
        RAYJOBS, lambda events: len(events) == 2, resourceVersion=start, fieldSelector="metadata.name=b"
    )
    assert seen(named) == [("ADDED", "b"), ("DELETED", "b")]


async def test_what_exists_comes_first_without_a_version(api: Api) -> None:
    await api.create(RAYJOBS, job("b"))
    await api.create(RAYJOBS, job("a"))
    await api.cached(RAYJOBS, "a", "b")
    for query in ({}, {"resourceVersion": "0"}):
        events = await api.watch(RAYJOBS, lambda events: len(events) == 2, **query)
        assert seen(events) == [("ADDED", "a"), ("ADDED", "b")]


async def test_a_bookmark_ends_the_initial_objects(api: Api) -> None:
    await api.create(RAYJOBS, job("a"))
    await api.cached(RAYJOBS, "a")
    streamed = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    for query in ({"resourceVersion": "0"}, streamed):
        events = await api.watch(RAYJOBS, lambda events: len(events) == 2, allowWatchBookmarks="true", **query)
        assert [event["type"] for event in events] == ["ADDED", "BOOKMARK"]
        mark = events[-1]["object"]
        assert mark["kind"] == "RayJob"
        assert mark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert int(mark["metadata"]["resourceVersion"]) >= int(events[0]["object"]["metadata"]["resourceVersion"])


async def test_a_watch_ends_at_its_time_limit(api: Api) -> None:
    start = await version(api)
    await api.create(RAYJOBS, job("a"))
    events = await api.watch(RAYJOBS, lambda _: False, resourceVersion=start, timeoutSeconds="1")
    assert seen(events) == [("ADDED", "a")]


async def test_changes_come_while_the_watch_runs(api: Api) -> None:
    start = await version(api)
    await api.create(RAYJOBS, job("a"))
    lines = api.transport.watch(api.path(RAYJOBS), query={"resourceVersion": start}, idle_limit_s=10.0)
    assert b'"ADDED"' in await anext(lines)
    await api.merge(RAYJOBS, "a", {"spec": {"suspend": False}})
    assert b'"MODIFIED"' in await anext(lines)
    await api.delete(RAYJOBS, "a")
    assert b'"DELETED"' in await anext(lines)
    await lines.aclose()  # type: ignore[attr-defined]


async def test_a_version_from_before_the_history_is_expired(api: Api) -> None:
    await api.create(RAYJOBS, job("a"))
    events = await api.watch(RAYJOBS, lambda _: False, resourceVersion="1")
    assert [event["type"] for event in events] == ["ERROR"]
    status = events[0]["object"]
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
    assert status["message"].startswith("too old resource version: 1 (")


async def test_a_bad_watch_is_refused(api: Api) -> None:
    for resource_query, status in (({"labelSelector": "a=b=c"}, 400), ({"resourceVersion": "abc"}, 500)):
        with pytest.raises(ApiStatusError) as caught:
            await api.watch(RAYJOBS, lambda _: False, **resource_query)
        assert caught.value.status == status
    lines = api.transport.watch("/apis/ray.io/v1/nothing", query={}, idle_limit_s=10.0)
    with pytest.raises(ApiStatusError) as caught:
        await anext(lines)
    assert caught.value.status == 404


async def test_a_pod_is_seen_terminating_before_it_is_gone(api: Api) -> None:
    start = (await api.select(PODS)).body["metadata"]["resourceVersion"]
    spec = {"containers": [{"name": "c", "image": "i"}], "schedulerName": "none"}
    await api.create(PODS, {"metadata": {"name": "p"}, "spec": spec})
    await api.delete(PODS, "p")
    events = await api.watch(PODS, lambda events: len(events) == 3, resourceVersion=start)
    assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]
    assert "deletionTimestamp" in events[1]["object"]["metadata"]


async def test_a_compacted_history_is_gone_for_lists_too(simulated_api: Api) -> None:
    """On the simulated server only: a real one compacts by the clock."""
    api, server = simulated_api, simulated_api.server
    assert server is not None
    for name in "abc":
        await api.create(CONFIG_MAPS, {"metadata": {"name": name}})
    first = (await api.select(CONFIG_MAPS, limit="1")).body["metadata"]
    await api.create(CONFIG_MAPS, {"metadata": {"name": "d"}})
    server.compact()
    gone = await api.select(CONFIG_MAPS, **{"limit": "1", "continue": first["continue"]})
    assert gone.said == (410, "Expired")
    rest = await api.select(CONFIG_MAPS, **{"continue": gone.body["metadata"]["continue"]})
    assert [found["metadata"]["name"] for found in rest.body["items"]] == ["b", "c", "d"]
    old = {"resourceVersion": first["resourceVersion"], "resourceVersionMatch": "Exact"}
    assert (await api.select(CONFIG_MAPS, **old)).said == (410, "Expired")
    events = await api.watch(CONFIG_MAPS, lambda _: False, resourceVersion=first["resourceVersion"])
    assert [event["object"]["code"] for event in events] == [410]
