"""The commands of a tenant over a gateway: what they print is what they print of the log itself."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from kit.compose import REPOSITORY
from kit.depth import examples
from kit.recorded import questions
from muster.runtime.logkeeping.logfile import read_log
from muster.serving.access import Unrestricted
from muster.serving.answering import Questions
from muster.serving.http import GatewayServer
from muster_cli.commands.ask import ask_
from muster_cli.commands.ls import ls
from muster_cli.commands.position import position
from muster_cli.commands.queue_ls import queue_ls
from muster_cli.commands.queue_tree import queue_tree
from muster_cli.commands.story import story
from muster_cli.commands.why import why
from muster_cli.exits import FAILED, FORBIDDEN, NOT_FOUND, USAGE, CliError
from muster_cli.options import GatewayOption, Source

HISTORIES = REPOSITORY / "tests/histories"
LOGS = (
    "demo-teams", "demo-kai", "ray-grows", "native-gangs", "scene-running-held-up", "scene-gang-waits-no-quota",
    "scene-beyond", "scene-running-beyond-its-grant", "scene-paused", "scene-finished-its-pod-failed",
)  # fmt: skip
JOB = REPOSITORY / "services/muster_cli/samples/rayjob.yaml"
MOST_JOBS = examples(12, least=3)


@asynccontextmanager
async def gateway(log: Path, folder: Path) -> AsyncIterator[tuple[str, Questions]]:
    asked = questions([*read_log(log)], folder)
    server = GatewayServer(asked, Unrestricted(), asked._clock, folder, "127.0.0.1", 0)
    await server.start()
    try:
        yield f"http://127.0.0.1:{server.port}", asked
    finally:
        await server.stop()


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No kubeconfig, and no setting."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("MUSTER_GATEWAY_URL", raising=False)


Ask = Callable[..., Awaitable[Any]]


@pytest.mark.parametrize("name", [name for name in LOGS if (HISTORIES / f"{name}.jsonl.gz").exists()])
async def test_through_a_gateway_a_command_prints_what_it_prints_of_the_log(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = HISTORIES / f"{name}.jsonl.gz"
    folder = tmp_path / "moments"
    folder.mkdir()
    async with gateway(log, folder) as (url, asked):
        state = asked.live.state
        keys = list(dict.fromkeys(record.ref.key for record in state.records.values()))[-MOST_JOBS:]
        gangs = [record.name for record in state.gang_records.values()][:3]
        pods = [pod.ref.key for pod in state.nodes.pods.values() if pod.owner in state.records][:3]
        middle = str(state.seq // 2 + 1)

        async def same(command: Ask, *args: object, **more: object) -> None:
            await command(*args, source=Source(log=log), **more)
            read = capsys.readouterr().out
            await command(*args, through=GatewayOption(gateway=url), **more)
            assert capsys.readouterr().out == read, (command.__name__, args, more)

        for output in ("wide", "json", "name"):
            await same(ls, since="30d", output=output)
        await same(ls, state=["waiting"], since="30d")
        for output in ("wide", "json"):
            await same(queue_tree, output=output)
            await same(queue_ls, output=output)
        await same(queue_tree, at=middle)
        await same(ls, at=middle, output="json")
        for key in keys:
            for output in ("text", "json"):
                await same(why, key, output=output)
                await same(position, key, output=output)
            await same(why, key, every=True)
        for key in [*gangs, *pods]:
            await same(why, key)
        for node in state.queues.ledger.nodes:
            for output in ("text", "json"):
                await same(story, node, output=output)
        await same(ask_, str(JOB))


async def refused(url: str, code: int, *words: str, command: Ask = queue_tree, **more: Any) -> None:
    with pytest.raises(CliError) as found:
        await command(through=GatewayOption(gateway=url), **more)
    assert (found.value.code, [word for word in words if word not in str(found.value)]) == (code, []), found.value


@asynccontextmanager
async def serving(answer: Callable[[web.Request], web.Response]) -> AsyncIterator[str]:
    async def handle(request: web.Request) -> web.Response:
        return answer(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    async with TestServer(app) as server:
        yield f"http://127.0.0.1:{server.port}"


async def test_what_is_no_gateway_of_this_version_is_named() -> None:
    def older(request: web.Request) -> web.Response:
        if request.path == "/api/v1/viewer":
            return web.json_response({"version": "0.0.1"})
        return web.json_response({"tree": "a/b"})

    def lacking(request: web.Request) -> web.Response:
        if request.path == "/api/v1/viewer":
            return web.json_response({"version": "0.0.1"})
        return web.json_response({"error": "there is no such page here"}, status=404)

    def proxy(request: web.Request) -> web.Response:
        return web.Response(text="<html>sign in</html>", content_type="text/html", status=302)

    async with serving(older) as url:
        await refused(url, FAILED, "its answer cannot be read", "it is version 0.0.1", url)
    async with serving(lacking) as url:
        await refused(url, FAILED, "does not know this question", "it is version 0.0.1")
    async with serving(proxy) as url:
        await refused(url, FAILED, "HTTP 302", "is that a gateway of Muster")
    await refused(url, FAILED, "cannot reach the gateway", url, "port-forward")


async def test_a_gateway_is_named_by_an_option_or_a_setting_and_never_gets_a_token_in_the_clear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await refused("http://gateway.example.com", USAGE, "in the clear", "https://")
    await refused("ftp://x", USAGE, "is no address")
    await refused("http://127.0.0.1:1", USAGE, "--gateway and --log", source=Source(log=tmp_path))
    for setting in [name for name in os.environ if name.startswith("MUSTER_")]:
        monkeypatch.delenv(setting)  # settings of the shell that runs the tests
    with pytest.raises(CliError, match="name it with --gateway"):
        await queue_tree(through=GatewayOption(context="prod"))
    async with gateway(HISTORIES / "demo-teams.jsonl.gz", tmp_path) as (url, _):
        monkeypatch.setenv("MUSTER_GATEWAY_URL", url)
        await queue_tree()
        assert "interns" in capsys.readouterr().out
        with pytest.raises(CliError) as found:
            await story("root/research/vision", from_="1")
        assert found.value.code == USAGE
        with pytest.raises(CliError, match="interns/none-such") as found:
            await why("interns/none-such")
        assert found.value.code == NOT_FOUND
        with pytest.raises(CliError, match="leave out"):
            await ls(watch=True)
        # A command line that names a log means the log.
        with pytest.raises(CliError, match="no such file"):
            await queue_tree(source=Source(log=tmp_path / "none.gz"))


async def test_a_gateway_that_asks_for_a_token_says_how_to_come_by_one() -> None:
    async with serving(lambda _: web.json_response({"error": "sign in"}, status=401)) as url:
        await refused(url, FORBIDDEN, "asks for a token", "no kubeconfig has none", "kubectl create token")
