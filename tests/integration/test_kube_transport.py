"""KubeTransport over real sockets, against a server that misbehaves in every way seen in the wild."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest
import pytest_asyncio

from kit.fakeapi import Answer, Close, FakeApi, Fault, Hang, Stream, event, refusal, status
from muster.kube.config import connect
from muster.kube.sources import Explicit
from muster.kube.transport import ERROR_LIMIT_BYTES, KubeTransport
from muster.model.api import MERGE_PATCH
from muster.ports import ApiStatusError, ApiUnreachableError

PODS = "/api/v1/pods"
NOW, LATER = "Wed, 21 Oct 2015 07:28:00 GMT", "Wed, 21 Oct 2015 07:28:42 GMT"
POD = {"kind": "Pod", "metadata": {"name": "a", "uid": "u1", "resourceVersion": "7"}}


@pytest_asyncio.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi(PODS) as server:
        yield server


@pytest_asyncio.fixture
async def transport(api: FakeApi) -> AsyncIterator[KubeTransport]:
    made = await connect(Explicit(api.url), environ={})
    yield made
    await made.close()


async def read(transport: KubeTransport, *, idle_limit_s: float = 10.0) -> list[bytes]:
    async with aclosing(transport.watch(PODS, query={}, idle_limit_s=idle_limit_s)) as lines:
        return [line async for line in lines]


async def read_until_error(
    transport: KubeTransport, kind: type[Exception], *, idle_limit_s: float = 10.0
) -> tuple[list[bytes], Exception]:
    """What a watch yielded before it failed, and the failure."""
    lines: list[bytes] = []
    with pytest.raises(kind) as caught:
        async with aclosing(transport.watch(PODS, query={}, idle_limit_s=idle_limit_s)) as stream:
            async for line in stream:
                lines.append(line)  # noqa: PERF401 - what came before the failure counts
    return lines, caught.value


# ---- requests


async def test_list_pages_with_odd_tokens_come_back_whole(api: FakeApi, transport: KubeTransport) -> None:
    for number in range(5):
        await api.put(f"p{number}")
    names: list[str] = []
    query = {"limit": "2", "labelSelector": "ray.io/is-ray-node=yes,x in (a, b)"}
    while True:
        page = json.loads((await transport.request("GET", PODS, query=query)).body)
        names += [item["metadata"]["name"] for item in page["items"]]
        if "continue" not in page["metadata"]:
            break
        query["continue"] = page["metadata"]["continue"]
    assert names == ["p0", "p1", "p2", "p3", "p4"]
    assert api.seen[-1].query == query


async def test_body_and_content_type_arrive_as_given(api: FakeApi, transport: KubeTransport) -> None:
    path = "/apis/ray.io/v1/namespaces/default/rayjobs/train"
    api.canned["PATCH", path] = Answer(200, b"{}")
    answer = await transport.request("PATCH", path, body=b'{"a": [1, null]}', content_type=MERGE_PATCH)
    assert answer.ok
    assert (api.seen[-1].body, api.seen[-1].headers["Content-Type"]) == (b'{"a": [1, null]}', MERGE_PATCH)


async def test_request_without_body_names_no_content_type(api: FakeApi, transport: KubeTransport) -> None:
    await transport.request("GET", PODS)
    assert "Content-Type" not in api.seen[-1].headers
    assert api.seen[-1].headers["User-Agent"].startswith("muster/")


@pytest.mark.parametrize("code", [302, 404, 409, 422, 500])
async def test_any_status_is_an_answer(api: FakeApi, transport: KubeTransport, code: int) -> None:
    api.canned["GET", "/x"] = Answer(code, b"why", {"Location": "/version"})
    answer = await transport.request("GET", "/x")
    assert (answer.status, answer.body, len(api.seen)) == (code, b"why", 1)


async def test_error_body_is_cut(api: FakeApi, transport: KubeTransport) -> None:
    api.canned["GET", "/x"] = Answer(500, b"x" * 1_000_000)
    assert len((await transport.request("GET", "/x")).body) == ERROR_LIMIT_BYTES
    assert (await transport.request("GET", PODS)).ok


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Answer(429, b"", {"Retry-After": "7"}), 7.0),
        (refusal(429, "slow down", retry_after_s=3), 3.0),
        (refusal(429, "slow down", {"Retry-After": "2"}, retry_after_s=3), 2.0),
        (Answer(503, b"", {"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}), 0.0),
        (Answer(503, b"", {"Retry-After": LATER, "Date": NOW}), 42.0),
        (Answer(503, b"", {"Retry-After": "soon"}), None),
        (Answer(503), None),
    ],
)
async def test_retry_after_is_read(
    api: FakeApi, transport: KubeTransport, answer: Answer, expected: float | None
) -> None:
    api.canned["GET", "/x"] = answer
    assert (await transport.request("GET", "/x")).retry_after_s == expected


@pytest.mark.parametrize(
    "fault", [Close(), Hang(), Stream([b'{"items"'], "drop"), Stream([b'{"items"'], "hang")], ids=str
)
async def test_no_complete_answer_is_unreachable(api: FakeApi, transport: KubeTransport, fault: Fault) -> None:
    api.faults["list"].extend([fault] * 2)  # aiohttp itself tries an idle connection's GET once more
    with pytest.raises(ApiUnreachableError, match=f"the API server {api.url} .* does not answer GET {PODS}"):
        await transport.request("GET", PODS, timeout_s=0.3)


async def test_refused_connection_is_unreachable() -> None:
    async with FakeApi() as gone:
        url = gone.url
    transport = await connect(Explicit(url), environ={})
    with pytest.raises(ApiUnreachableError):
        await transport.request("GET", PODS)
    await transport.close()


async def test_unknown_host_is_unreachable() -> None:
    transport = await connect(Explicit("https://api.invalid:6443"), environ={})
    with pytest.raises(ApiUnreachableError):
        await transport.request("GET", PODS, timeout_s=5.0)
    with pytest.raises(ApiUnreachableError):
        await read(transport)
    await transport.close()


async def test_closed_transport_is_unreachable(api: FakeApi, transport: KubeTransport) -> None:
    await transport.close()
    with pytest.raises(ApiUnreachableError, match="closed"):
        await transport.request("GET", PODS)


async def test_close_ends_a_watch_that_is_being_read(api: FakeApi, transport: KubeTransport) -> None:
    lines = transport.watch(PODS, query={"resourceVersion": api.rv}, idle_limit_s=60)
    reading = asyncio.ensure_future(anext(lines))
    await api.put("a")
    assert b'"ADDED"' in await reading
    reading = asyncio.ensure_future(anext(lines))
    await asyncio.sleep(0)
    await transport.close()
    with pytest.raises((ApiUnreachableError, StopAsyncIteration)):
        await reading


async def test_requests_are_reported(api: FakeApi) -> None:
    calls: list[tuple[str, str, int]] = []
    transport = await connect(
        Explicit(api.url), on_request=lambda verb, what, code, _s: calls.append((verb, what, code)), environ={}
    )
    await transport.request("GET", PODS)
    await transport.request("DELETE", "/apis/ray.io/v1/namespaces/n/rayjobs/x")
    api.faults["list"].extend([Close()] * 2)
    with pytest.raises(ApiUnreachableError):
        await transport.request("GET", PODS)
    api.faults["watch"].append(refusal(410, "too old"))
    with pytest.raises(ApiStatusError):
        await read(transport)
    await transport.close()
    assert calls == [
        ("list", "pods", 200),
        ("delete", "rayjobs.ray.io", 404),
        ("list", "pods", 0),
        ("watch", "pods", 410),
    ]


async def test_netrc_has_no_say(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    netrc = tmp_path_factory.mktemp("home") / "netrc"
    netrc.write_text("default login eve password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    transport = await connect(Explicit(api.url, token="mine"), environ={})
    await transport.request("GET", PODS)
    await transport.close()
    assert api.seen[-1].headers["Authorization"] == "Bearer mine"


# ---- watches: the table of faults


async def test_watch_yields_lines_as_they_come(api: FakeApi, transport: KubeTransport) -> None:
    lines = transport.watch(PODS, query={"resourceVersion": api.rv}, idle_limit_s=10)
    for name in ("a", "b"):
        made = await api.put(name)
        assert json.loads(await anext(lines)) == {"type": "ADDED", "object": made}
    await lines.aclose()


async def test_close_at_once_is_unreachable(api: FakeApi, transport: KubeTransport) -> None:
    api.faults["watch"].extend([Close()] * 2)
    assert (await read_until_error(transport, ApiUnreachableError))[0] == []


async def test_stream_ended_at_once_yields_nothing(api: FakeApi, transport: KubeTransport) -> None:
    api.faults["watch"].append(Stream([]))
    assert await read(transport) == []


@pytest.mark.parametrize(
    ("answer", "code", "message", "after"),
    [
        (Answer(500), 500, "", None),
        (Answer(502, b"<html>" + b"x" * 900, {"Content-Type": "text/html"}), 502, "<html>" + "x" * 194, None),
        (refusal(429, "too many requests", {"Retry-After": "3"}), 429, "too many requests", 3.0),
        (refusal(410, "too old resource version"), 410, "too old resource version", None),
        (refusal(403, "pods is forbidden", reason="Forbidden"), 403, "pods is forbidden", None),
        (
            refusal(504, "Timeout: Too large resource version: 9, current: 7", retry_after_s=1),
            504,
            "Timeout: Too large",
            1.0,
        ),
        (Answer(404, b"404 page not found\n"), 404, "404 page not found", None),
        (Answer(301, b"moved", {"Location": "/elsewhere"}), 301, "moved", None),
    ],
)
async def test_answer_that_is_no_stream_is_a_status_error(
    api: FakeApi, transport: KubeTransport, answer: Answer, code: int, message: str, after: float | None
) -> None:
    api.faults["watch"].append(answer)
    lines, err = await read_until_error(transport, ApiStatusError)
    assert isinstance(err, ApiStatusError)
    assert (lines, err.status, err.retry_after_s) == ([], code, after)
    assert err.message.startswith(message)
    assert len(err.message) <= 200


async def test_line_cut_off_by_the_end_is_dropped(api: FakeApi, transport: KubeTransport) -> None:
    line = event("ADDED", POD)
    api.faults["watch"].append(Stream([line, line[:-1]]))
    assert await read(transport) == [line[:-1]]


async def test_dropped_connection_is_unreachable_after_what_came(api: FakeApi, transport: KubeTransport) -> None:
    line = event("ADDED", POD)
    api.faults["watch"].append(Stream([line, line[:20]], "drop"))
    lines, _ = await read_until_error(transport, ApiUnreachableError)
    assert lines in ([], [line[:-1]])  # a reset may overtake bytes that have arrived


async def test_error_event_is_a_line_like_any_other(api: FakeApi, transport: KubeTransport) -> None:
    line = event("ERROR", status(410, "too old resource version", reason="Expired"))
    api.faults["watch"].append(Stream([line]))
    assert await read(transport) == [line[:-1]]


async def test_silence_is_unreachable_after_the_idle_limit(api: FakeApi, transport: KubeTransport) -> None:
    line = event("ADDED", POD)
    api.faults["watch"].append(Stream([line], "hang"))
    lines, _ = await read_until_error(transport, ApiUnreachableError, idle_limit_s=2.0)
    assert lines == [line[:-1]]


async def test_watch_never_answered_is_unreachable(api: FakeApi, transport: KubeTransport) -> None:
    api.faults["watch"].append(Hang())
    assert (await read_until_error(transport, ApiUnreachableError, idle_limit_s=0.2))[0] == []


async def test_watch_never_answered_is_given_up_before_the_idle_limit(
    api: FakeApi, transport: KubeTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("muster.kube.transport.WATCH_OPEN_TIMEOUT_S", 0.2)
    api.faults["watch"].append(Hang())
    assert (await read_until_error(transport, ApiUnreachableError, idle_limit_s=500.0))[0] == []


async def test_line_in_many_small_chunks_comes_whole(api: FakeApi, transport: KubeTransport) -> None:
    line = event("ADDED", POD)
    data = line * 2
    api.faults["watch"].append(Stream([data[at : at + 1] for at in range(len(data))]))
    assert await read(transport, idle_limit_s=60.0) == [line[:-1]] * 2


async def test_line_of_almost_16_mb_comes_whole(api: FakeApi, transport: KubeTransport) -> None:
    big = b'{"type":"ADDED","object":{"x":"' + b"y" * (16 * 1024 * 1024 - 100) + b'"}}'
    api.faults["watch"].append(Stream([big + b"\n", event("ADDED", POD)]))
    first, second = await read(transport)
    assert first == big
    assert json.loads(second)["object"] == POD


async def test_longer_line_is_unreachable(api: FakeApi, transport: KubeTransport) -> None:
    api.faults["watch"].append(Stream([b"y" * (17 * 1024 * 1024), b"\n"], "hang"))
    _, err = await read_until_error(transport, ApiUnreachableError)
    assert "more than 16777216 bytes" in str(err)


async def test_leaving_a_watch_closes_its_connection(api: FakeApi, transport: KubeTransport) -> None:
    await api.put("a")
    for _ in range(120):  # more than the pool holds
        lines = transport.watch(PODS, query={"resourceVersion": "100"}, idle_limit_s=10)
        assert b'"ADDED"' in await anext(lines)
        await lines.aclose()


async def test_cancelling_a_watch_ends_it_at_once(api: FakeApi, transport: KubeTransport) -> None:
    async def first() -> bytes:
        async with aclosing(transport.watch(PODS, query={"resourceVersion": api.rv}, idle_limit_s=60)) as lines:
            await api.put("a")
            await anext(lines)
            reading.set()
            return await anext(lines)

    reading = asyncio.Event()
    task = asyncio.ensure_future(first())
    await reading.wait()
    task.cancel()
    async with asyncio.timeout(30):
        with pytest.raises(asyncio.CancelledError):
            await task
