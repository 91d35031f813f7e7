"""The webhook sample and the client: what is posted of each event, and that it is posted until it is taken."""

import importlib.util
import json
from types import ModuleType
from typing import Any

import msgspec
import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from kit.compose import REPOSITORY
from muster.bus import subscribing
from muster.client import FollowedEvent, follow
from muster.events.public import PUBLIC_TYPES
from muster_tools.schemas import sample_of


def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("slack_example", REPOSITORY / "examples" / "webhook" / "slack.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def told(tag: str, **changes: Any) -> FollowedEvent:
    body = {**json.loads(sample_of(tag)), **changes}
    return FollowedEvent("main-1-57-0", tag, msgspec.convert(body, PUBLIC_TYPES[tag]))


def test_each_event_is_one_line_with_the_job_its_owner_and_the_reason() -> None:
    text_of = example().text_of
    job = "*video/rayjob-video-h4x2q* (alice)"
    assert text_of(told("workload_evicted")).endswith(
        f"{job} was evicted from root/algorithm/video for video/rayjob-video-h4x2q: reclaimed"
    )
    assert text_of(told("workload_finished", outcome="failed")) == f":x: {job} failed: OOMKilled"
    assert text_of(told("workload_finished")) == ""
    assert "ImagePull" in text_of(told("workload_held_up", message="ImagePullBackOff of x"))
    assert "no live head" in text_of(told("workload_alarm_raised"))
    assert {tag for tag in PUBLIC_TYPES if tag in example().TYPES} == example().TYPES


async def test_it_is_posted_until_the_webhook_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    module, heard, answers = example(), [], [503, 500, 200]

    async def hook(request: web.Request) -> web.Response:
        heard.append(await request.json())
        return web.Response(status=answers.pop(0))

    app = web.Application()
    app.router.add_post("/hook", hook)
    monkeypatch.setattr(module, "AGAIN_S", 0)
    async with TestServer(app, host="127.0.0.1") as server, ClientSession() as session:
        monkeypatch.setattr(module, "WEBHOOK_URL", str(server.make_url("/hook")))
        await module.post(session, "text")
    assert heard == [{"text": "text"}] * 3


class _Message:
    def __init__(self, data: bytes, **headers: str) -> None:
        self.data, self.headers = data, headers


def test_an_event_of_a_later_version_is_left_out_and_unknown_fields_are_skipped() -> None:
    body = json.loads(sample_of("workload_admitted"))
    known = subscribing._read(_Message(json.dumps({**body, "of_later": 1}).encode(), **{"ce-id": "main-1-2-3"}))  # type: ignore[arg-type]
    assert known is not None
    assert (known.id, known.type, known.event.cell) == ("main-1-2-3", "workload_admitted", "main")
    for data in (json.dumps({**body, "type": "workload_dreamed"}).encode(), b"no json", b"[]"):
        assert subscribing._read(_Message(data)) is None  # type: ignore[arg-type]


async def test_a_type_that_does_not_exist_is_said() -> None:
    with pytest.raises(ValueError, match="there is no public event 'workload_dreamed'; there are"):
        await anext(follow(types={"workload_dreamed"}))
