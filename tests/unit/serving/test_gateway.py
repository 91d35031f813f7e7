"""The gateway: questions, moments, streams, who may ask; on a log that is there."""

from __future__ import annotations

import asyncio
import json
import socket
import zlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import psutil
import pytest

from kit.chaos import Chaos
from kit.compose import REPOSITORY
from kit.recorded import ADMIN, LogTime, RecordedLog, questions, tenant
from kit.waiting import until
from muster.core.promising.projection import Projected
from muster.core.queueing.queues import Queues
from muster.ports import ApiResponse, ApiUnreachableError
from muster.serving import ahead, http, shapes, supposed, views
from muster.serving.access import Reviewed, Unrestricted, Viewed
from muster.serving.answering import ROUTES, BadRequestError, Questions
from muster.serving.foresight import Foresight
from muster.serving.forking import projected
from muster.serving.http import GatewayServer
from muster.serving.limits import TooManyError, UnderWay
from muster.serving.streaming import AT_ONCE, Turns, messages, resumed
from muster.told.readmodel.readstate import ReadState
from muster.told.status.statuses import promises_of
from muster_cli import samples
from muster_tools import openapi

TRAINING = {**samples.manifest(samples.TRAINING), "metadata": {"name": "new", "namespace": "video"}}


def test_the_contract_is_what_the_code_says() -> None:
    assert (REPOSITORY / openapi.FILE).read_text() == openapi.text(), "run `make schemas`"


async def test_every_question_is_answered_in_its_shape(chaos: Chaos, tmp_path: Path) -> None:
    asked = questions(chaos.bench.log, tmp_path)
    record = next(iter(asked.live.state.records.values()))
    path = {"namespace": record.ref.namespace, "name": record.ref.name, "sequence": "20", "index": "0"}
    for route in ROUTES:
        if "gangs/" in route.path:
            continue  # Chaos has no gangs of pods; test_gateway_props asks of them.
        query = {"queue": "root"} if "queue" in route.query and route.path != "/api/v1/jobs" else {}
        change = supposed.Change(queue="root", field="max", resource="cpu", value="99")
        bodies = {supposed.Changes: supposed.Changes([change]), supposed.Submission: supposed.Submission(TRAINING)}
        body = msgspec.json.encode(bodies[route.body]) if route.body is not None else b""
        answer = await asked.answer(route, ADMIN, path, query, body)
        assert msgspec.json.decode(msgspec.json.encode(answer), type=route.shape) == answer


async def test_one_look_ahead_serves_all_readers(chaos: Chaos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where thousands wait it takes half a second: a ``why`` must not play all queues forward by itself."""
    asked, played = questions(chaos.bench.log, tmp_path), []

    def counted(state: ReadState, queues: Queues, now: int) -> Mapping[str, Projected]:
        played.append(queues is state.queues)
        return projected(state, queues, now)

    monkeypatch.setattr(ahead, "projected", counted)
    by_path = {route.path: route for route in ROUTES}
    for record in list(asked.live.state.records.values()):
        path = {"namespace": record.ref.namespace, "name": record.ref.name}
        told = await asked.answer(
            by_path["/api/v1/jobs/{namespace}/{name}"], ADMIN, path, {"kind": record.ref.kind}, b""
        )
        assert isinstance(told, shapes.WhyView)
        [alone] = promises_of(asked.live.state, (record.ref.uid,), asked.live.state.now).values()
        assert told.job.promise == views.start_shape(alone)
    await asked.answer(by_path["/api/v1/jobs"], ADMIN, {}, {"state": "waiting"}, b"")
    assert played == [True]


async def test_a_stream_goes_on_where_it_ended(chaos: Chaos, tmp_path: Path) -> None:
    """Whatever the position, what is told after it is what the whole stream tells after it."""
    asked = questions(chaos.bench.log, tmp_path)
    asked.live._ring.clear()
    asked.live.told_from = asked.live.state.seq  # As after a restart: all of it is told again from the log.
    whole = [(each.seq, each.item, each.text) async for each in asked.live.told(0)]
    for after in range(0, asked.live.state.seq, 13):
        told = [(each.seq, each.item, each.text) async for each in asked.live.told(after)]
        assert told == [each for each in whole if each[0] > after]
    asked = questions(chaos.bench.log, tmp_path)
    assert [(each.seq, each.item, each.text) async for each in asked.live.told(0)] == whole, "the ring says the same"


async def test_a_message_names_the_position_after_which_the_reader_goes_on(chaos: Chaos, tmp_path: Path) -> None:
    asked = questions(chaos.bench.log, tmp_path)

    async def again() -> Viewed:
        return tenant("video")

    stream = messages(Turns(asked, asked._clock), again, 0)
    first = (await anext(stream)).decode()
    await stream.aclose()  # type: ignore[attr-defined]
    name, kind, data = first.strip().split("\n")
    end = asked.live.state.seq
    assert (name, kind) == (f"id: {asked.live.state.generation}-{end}", "event: news")
    assert resumed(name.removeprefix("id: ").replace("0-", "1-", 1), asked) == end
    assert {event["subject"].partition("/")[0] for event in json.loads(data.removeprefix("data: "))["events"]} == {
        "video"
    }
    with pytest.raises(BadRequestError):
        resumed("yesterday", asked)


async def test_readers_of_equal_rights_share_a_message_and_questions_are_answered_between(
    chaos: Chaos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = questions(chaos.bench.log, tmp_path)
    made: list[str] = []
    shape = views.moment_of

    def counted(*args: Any, **more: Any) -> shapes.MomentView:
        made.append("message")
        return shape(*args, **more)

    monkeypatch.setattr(views, "moment_of", counted)
    turns, viewers = Turns(asked, asked._clock), (ADMIN, tenant("video"))
    readers = [messages(turns, partial(again_as, viewers[number % 2]), 0) for number in range(400)]
    first = [asyncio.ensure_future(anext(reader)) for reader in readers]
    most = before = 0
    while not all(task.done() for task in first):
        await asyncio.sleep(0)  # What a question needs to be answered: a turn of the loop.
        most, before = max(most, sum(task.done() for task in first) - before), sum(task.done() for task in first)
    assert len(made) == 2, "one for each of the two rights"
    assert most <= AT_ONCE
    assert len({task.result() for task in first}) == 2
    for reader in readers:
        await reader.aclose()  # type: ignore[attr-defined]
    assert not turns._waiting


async def again_as(viewed: Viewed) -> Viewed:
    return viewed


# --- who may ask ------------------------------------------------------------------------------------------------------


class Reviews:
    """An API server that knows one token, and what its user may list."""

    def __init__(self, *rights: tuple[str, str]) -> None:
        self.rights = set(rights)
        self.asked: list[str] = []
        self.gone = False

    async def request(self, method: str, path: str, *, body: bytes | None = None, **_: Any) -> ApiResponse:
        if self.gone:
            raise ApiUnreachableError("gone")
        spec = json.loads(body or b"")["spec"]
        self.asked.append(path.rpartition("/")[2])
        if path.endswith("tokenreviews"):
            good = spec["token"] == "good"
            status: dict[str, Any] = {
                "authenticated": good,
                "user": {"username": "ann" if good else "", "groups": ["g"]},
            }
        else:
            wanted = spec["resourceAttributes"]
            assert (spec["user"], spec["groups"], wanted["verb"]) == ("ann", ["g"], "list")
            status = {"allowed": (wanted["resource"], wanted["namespace"]) in self.rights}
        return ApiResponse(201, json.dumps({"kind": "Review", "status": status}).encode())


@pytest.fixture
async def served(chaos: Chaos, tmp_path: Path) -> Any:
    """Serves on any port of loopback; gives how to ask."""
    servers: list[GatewayServer] = []

    async def serve(access: Any, **more: Any) -> str:
        asked = questions(chaos.bench.log, tmp_path)
        pages = REPOSITORY / "services/muster_gateway/static"
        servers.append(GatewayServer(asked, access, asked._clock, pages, "127.0.0.1", 0, **more))
        await servers[-1].start()
        return f"http://127.0.0.1:{servers[-1].port}"

    yield serve
    for each in servers:
        await each.stop()


async def test_the_api_server_says_who_sees_what(chaos: Chaos, served: Any) -> None:
    reviews = Reviews(("pods", "video"), ("pods", "elsewhere"))
    url = await served(Reviewed(reviews, LogTime(RecordedLog(chaos.bench.log))))
    async with aiohttp.ClientSession() as session:
        for token in ("", "Bearer ", "Bearer bad", "Basic good"):
            async with session.get(f"{url}/api/v1/jobs", headers={"Authorization": token}) as answer:
                assert answer.status == 401
                assert "token" in (await answer.json())["error"]
        good = {"Authorization": "Bearer good"}
        async with session.get(f"{url}/api/v1/jobs", headers=good) as answer:
            found = await answer.json()
            assert {job["namespace"] for job in found["jobs"]} == {"video"}
            assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
            assert answer.headers["Cache-Control"] == "no-store"
        async with session.get(f"{url}/api/v1/viewer", headers=good) as answer:
            assert await answer.json() | {"version": ""} == {
                "name": "ann", "namespaces": ["video"], "nodes": False, "cell": "main", "version": "",
            }  # fmt: skip
        before = len(reviews.asked)
        async with session.get(f"{url}/api/v1/queues", headers=good) as answer:
            assert {each["name"] for each in (await answer.json())["queues"]} == {"root", "algorithm", "video"}
        assert len(reviews.asked) == before, "what the API server said is remembered for a while"
        reviews.gone = True
        async with session.get(f"{url}/api/v1/jobs", headers={"Authorization": "Bearer other"}) as answer:
            assert answer.status == 503


async def test_on_loopback_everybody_sees_everything_and_mistakes_are_named(served: Any) -> None:
    url = await served(Unrestricted())
    async with aiohttp.ClientSession() as session:
        expected = {
            "/api/v1/jobs?bad=1": (400, "there is no parameter 'bad' here"),
            "/api/v1/jobs?limit=x": (400, "limit is a number"),
            "/api/v1/jobs?at=yesterday": (400, "at is no moment"),
            "/api/v1/jobs?at=99999": (404, "lies after the end of the log"),
            "/api/v1/jobs/video/none": (404, "there is no job video/none"),
            "/api/v1/events/99999/0": (404, "there is no event 99999-0"),
            "/api/nothing": (404, "there is no such page"),
            "/../pyproject.toml": (404, "there is no such page"),
        }
        for path, (status, text) in expected.items():
            async with session.get(url + path) as answer:
                assert (answer.status, text in (await answer.json())["error"]) == (status, True), path
        async with session.get(f"{url}/job/video/x?at=5") as answer:
            assert (answer.status, answer.content_type) == (200, "text/html")
        async with session.get(f"{url}/api/v1/stream", headers={"Last-Event-ID": "1-3"}) as answer:
            assert answer.content_type == "text/event-stream"
            async with asyncio.timeout(5):
                assert (await answer.content.readuntil(b"\n\n")).startswith(b"id: ")
        async with session.get(f"{url}/api/v1/stream", headers={"Last-Event-ID": "x"}) as answer:
            assert answer.status == 400


async def test_a_hostile_question_gets_a_short_sentence_and_no_defect(served: Any) -> None:
    url, digits = f"{await served(Unrestricted())}/api/v1", "9" * 5_000
    ways = (f"at={digits}", f"at=1-{digits}", f"at=-{digits}m", f"limit={digits}", f"skip={digits}")
    asked = [f"jobs?{way}" for way in ways] + [f"events/{digits}/0", f"events/1/{digits}"]
    kinds = ["x" * 200_000, {}, [[[]]], digits]
    jobs = [{"manifest": {**TRAINING, "kind": kind}} for kind in kinds]
    changes = [
        {"changes": [{"queue": "root", "field": "max", "resource": "cpu", "value": value}]}
        for value in (digits, "1e999999999", "-5")
    ]
    async with aiohttp.ClientSession(max_line_size=20_000) as session:
        for path in asked:
            async with session.get(f"{url}/{path}") as answer:
                assert answer.status in (400, 404), path[:20]
                assert len((await answer.json())["error"]) < 300
        for path, bodies in (("ask", jobs), ("whatif", changes)):
            for body in bodies:
                async with session.post(f"{url}/{path}", json=body) as answer:
                    told = (await answer.json())["error"]
                    assert (answer.status, len(told) < 500, "{" in told) == (400, True, False), told[:500]


async def test_a_defect_is_a_sentence_too(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_args: object) -> None:
        raise ZeroDivisionError

    url = await served(Unrestricted())
    monkeypatch.setattr(Questions, "answer", broken)
    async with aiohttp.ClientSession() as session, session.get(f"{url}/api/v1/jobs") as answer:
        assert (answer.status, "could not answer" in (await answer.json())["error"]) == (500, True)


def test_questions_name_every_namespace_there_is_something_of(chaos: Chaos, tmp_path: Path) -> None:
    asked: Questions = questions(chaos.bench.log, tmp_path)
    assert {"video", "text", "intern-text", "devops"} <= asked.namespaces()


async def test_half_a_request_is_not_waited_for(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "HEAD_S", 0.2)
    monkeypatch.setattr(http, "BODY_S", 0.2)
    port = int((await served(Unrestricted())).rpartition(":")[2])
    for sent in (b"", b"GET /api/v1/jobs HTTP/1.1\r\nHost: local"):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        async with asyncio.timeout(20):
            assert await reader.read() == b""
        writer.close()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /api/v1/ask HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{")
    async with asyncio.timeout(20):
        assert b" 408 " in await reader.readline()
    writer.close()


async def test_a_viewer_has_so_many_streams_and_questions(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MOST_STREAMS", 2)
    url = await served(Unrestricted())
    async with aiohttp.ClientSession() as session:
        stream = f"{url}/api/v1/stream"
        async with session.get(stream) as first, session.get(stream) as second:
            assert (first.status, second.status) == (200, 200)
            async with session.get(stream) as third:
                assert (third.status, "2 streams under way" in (await third.json())["error"]) == (429, True)
    taken = UnderWay("questions", 1, 2)
    with taken.one("ann"), pytest.raises(TooManyError, match="you have 1 questions under way"), taken.one("ann"):
        pass
    with taken.one("ann"), taken.one("bob"), pytest.raises(TooManyError, match="2 questions are under way"):
        taken.one("cid").__enter__()
    with taken.one("ann"):
        pass


async def test_a_page_whose_name_was_led_to_loopback_is_answered_nothing(served: Any) -> None:
    url = await served(Unrestricted(), hosts=http.LOOPBACK)
    port = url.rpartition(":")[2]
    ours = (f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}", "LOCALHOST")
    foreign = (
        "evil.example",
        f"evil.example:{port}",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "0.0.0.0",
        "",
    )
    async with aiohttp.ClientSession() as session:
        for path in ("api/v1/jobs", "api/v1/stream", "api/v1/viewer", "", "job/video/x"):
            for name in foreign:
                async with session.get(f"{url}/{path}", headers={"Host": name}) as answer:
                    assert answer.status in (400, 421), (path, name, answer.status)
                    assert answer.status == 400 or "127.0.0.1" in (await answer.json())["error"]
        for name in ours:
            async with session.get(f"{url}/api/v1/jobs", headers={"Host": name}) as answer:
                assert answer.status == 200, name
        for path in ("ask", "whatif"):
            async with session.post(f"{url}/api/v1/{path}", data=b"{}", headers={"Host": "evil.example"}) as answer:
                assert answer.status == 421


@pytest.mark.parametrize("depth", [50, 900, 2_000, 40_000])
@pytest.mark.parametrize("where", ["manifest", "kind", "spec", "list", "changes"])
async def test_json_that_is_deep_is_refused_with_a_sentence(served: Any, where: str, depth: int) -> None:
    deep = "[" * depth + "]" * depth if where == "list" else '{"a":' * depth + "1" + "}" * depth
    body = {
        "changes": f'{{"changes": {deep}}}',
        "manifest": f'{{"manifest": {deep}}}',
        "list": f'{{"manifest": {deep}}}',
    }.get(where, f'{{"manifest": {{"apiVersion": "ray.io/v1", "{where}": {deep}}}}}')
    url = await served(Unrestricted())
    path = "whatif" if where == "changes" else "ask"
    async with aiohttp.ClientSession() as session, session.post(f"{url}/api/v1/{path}", data=body) as answer:
        told = (await answer.json())["error"]
        assert (answer.status, 10 < len(told) < 500) == (400, True), told[:500]


@pytest.mark.parametrize("at", ["", "?at=20"])
async def test_a_reader_that_hangs_up_ends_its_question(served: Any, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def spun(*_args: object, **_named: object) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    monkeypatch.setattr(Foresight, "looked", spun)
    url = await served(Unrestricted())
    body = json.dumps({"manifest": TRAINING}).encode()
    _reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(f"POST /api/v1/ask{at} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode())
    writer.write(body)
    async with asyncio.timeout(20):
        await begun.wait()
        assert not ended.is_set()
        writer.close()
        await ended.wait()


async def told(url: str, request: bytes, read_s: float = 20.0) -> bytes:
    """What one raw request is answered, until the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
    writer.write(request.replace(b"\n", b"\r\n"))
    async with asyncio.timeout(read_s):
        answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /api/v1/viewer HTTP/1.1\nHost: localhost:evil", 400),
        (b"GET /api/v1/viewer HTTP/1.1\nHost: [[]]:", 400),
        (b"GET /api/v1/viewer HTTP/1.1\nHost: localhost\nHost: evil.example", 400),
        (b"GET http://evil.example/api/v1/viewer HTTP/1.1\nHost: localhost", 421),
        (b"GET /api/v1/viewer HTTP/1.1\nHost: localhost@evil.example", 421),
        (b"GET /" + b"a" * 5_000 + b" HTTP/1.1\nHost: localhost", 200),
        (b"GET /" + b"a" * 5_000 + b".js HTTP/1.1\nHost: localhost", 404),
        (b"GET /api/v1/jobs HTTP/1.1\nHost: localhost" + b"".join(b"\nx-%d: 1" % each for each in range(1_000)), 400),
        (b"POST /api/v1/ask HTTP/1.1\nHost: localhost\nContent-Length: 5\nTransfer-Encoding: chunked\n\n0\n", 400),
        (b"POST /api/v1/ask HTTP/1.1\nHost: localhost\nContent-Length: " + b"9" * 30, 400),
    ],
    ids=range(10),
)  # fmt: skip
async def test_a_request_that_is_no_question_is_no_defect(served: Any, request_: bytes, status: int) -> None:
    url = await served(Unrestricted(), hosts=http.LOOPBACK)
    answer = await told(url, request_ + b"\nConnection: close\n\n")
    assert int(answer.split(b" ", 2)[1]) == status


async def test_a_body_is_not_decompressed(served: Any) -> None:
    """A body of 870 KB was 900 MB, and each reader waited seconds for it, also behind a refusal."""
    url, body = await served(Unrestricted()), zlib.compress(bytes(10_000_000))
    async with aiohttp.ClientSession() as session:
        sent = {"Content-Encoding": "deflate", "Content-Type": "application/json"}
        async with session.post(f"{url}/api/v1/ask", data=body, headers=sent) as answer:
            assert (answer.status, "malformed" in (await answer.json())["error"]) == (400, True)


async def test_an_answer_that_is_not_taken_is_given_up(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "HEAD_S", 0.3)
    url = await served(Unrestricted())
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
        client.setblocking(False)
        loop, port = asyncio.get_running_loop(), int(url.rpartition(":")[2])
        await loop.sock_connect(client, ("127.0.0.1", port))
        await loop.sock_sendall(client, b"GET /api/v1/jobs?limit=500 HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2_000)
        own = client.getsockname()[1]

        def held() -> bool:
            ends = psutil.Process().net_connections()
            return any(each.laddr.port == port and each.raddr and each.raddr.port == own for each in ends)

        await until(lambda: not held(), what="the gateway to close the connection")


async def test_a_reader_of_a_log_that_was_lost_reads_on(served: Any) -> None:
    """The page asks again with its last position for ever: an error would be its last news."""
    url = await served(Unrestricted())
    async with aiohttp.ClientSession() as session:
        last = {"Last-Event-ID": "7-99999"}
        async with session.get(f"{url}/api/v1/stream", headers=last) as answer:
            assert (answer.status, answer.content_type) == (200, "text/event-stream")
