"""The gateway of a ``muster up`` answers commands about its log; where it does not, the log does."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kit.compose import REPOSITORY
from kit.recorded import questions
from muster.bus.server import free_port
from muster.runtime.logkeeping.logfile import read_log
from muster.serving import shapes
from muster.serving.access import Unrestricted
from muster.serving.answering import Questions
from muster.serving.http import GatewayServer
from muster.serving.jobrows import JobFilter
from muster_cli.commands.ask import ask_
from muster_cli.commands.ls import ls
from muster_cli.commands.nodes import nodes
from muster_cli.commands.position import position
from muster_cli.commands.queue_tree import queue_tree
from muster_cli.commands.story import story
from muster_cli.commands.why import why
from muster_cli.gateway import Gateway
from muster_cli.instances import Instance, Registration
from muster_cli.meant import answered
from muster_cli.options import Source

LOG = REPOSITORY / "tests/histories/demo-teams.jsonl.gz"
JOB = REPOSITORY / "services/muster_cli/samples/rayjob.yaml"
NATS = "nats://127.0.0.1:1"
"""Nothing is there: a command that asks the log fails."""


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No other instance, no setting, no kubeconfig."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    for name in ("MUSTER_GATEWAY_URL", "MUSTER_NATS_URL", "MUSTER_CELL", "MUSTER_CONFIG"):
        monkeypatch.delenv(name, raising=False)


@contextmanager
def running(gateway: str, *, url: str = NATS) -> Iterator[None]:
    """A ``muster up`` with this gateway, by its run file."""
    mine = Registration()
    mine.publish(
        Instance(
            pid=1, started=1, url=url, cell="main", home="", temporary=False, acting=True, simulated=True,
            gateway=gateway,
        )
    )  # fmt: skip
    try:
        yield
    finally:
        mine.close()


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[tuple[str, Questions]]:
    asked = questions([*read_log(LOG)], folder)
    server = GatewayServer(asked, Unrestricted(), asked._clock, folder, "127.0.0.1", 0)
    await server.start()
    try:
        yield f"http://127.0.0.1:{server.port}/", asked
    finally:
        await server.stop()


async def who(source: Source | None = None, at: str = "") -> str:
    """Who answers."""

    async def ask(gateway: Gateway) -> str:
        await gateway.get("/api/v1/queues", shapes.QueuesView)
        return "gateway"

    async def read() -> str:
        return "log"

    return await answered(None, source, at, ask, read)


async def test_what_the_gateway_of_muster_up_answers_is_what_the_log_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with served(tmp_path) as (url, asked):
        state = asked.live.state
        waiting = [job.ref.key for job in state.queues.jobs.values() if job.status == "waiting"][:3]
        ended = [record.ref.key for record in state.records.values() if record.phase == "finished"][:2]

        async def same(command: Callable[..., Awaitable[Any]], *args: object, **more: object) -> None:
            await command(*args, source=Source(log=LOG), **more)
            read = capsys.readouterr().out
            with running(url):
                await command(*args, source=Source(url=NATS), **more)  # Nobody else could answer.
            assert capsys.readouterr().out == read, (command.__name__, args, more)

        for output in ("table", "wide", "json", "name"):
            await same(ls, output=output)
            await same(nodes, output=output)
            await same(queue_tree, output=output)
        await same(ls, since="10m", output="name")
        await same(ls, state=["finished"], since="30d")
        for key in (*waiting, *ended):
            for output in ("text", "json"):
                await same(why, key, output=output)
                await same(position, key, output=output)
        await same(story, "research")
        await same(story, "research", output="json")
        await same(ask_, str(JOB))


async def test_who_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await who() == "log"
    async with served(tmp_path) as (url, asked):
        with running(url):
            assert await who() == "gateway"
            assert await who(Source(url=NATS, cell="main")) == "gateway"
            assert await who(Source(url="nats://127.0.0.1:2")) == "log"
            assert await who(Source(cell="other")) == "log"
            assert await who(Source(log=LOG)) == "log"
            assert await who(at="12") == "log"
            monkeypatch.setenv("MUSTER_CELL", "other")
            assert await who() == "log"
            monkeypatch.setenv("MUSTER_CELL", "main")
            assert await who() == "gateway"
            asked.live.caught_up = False  # It began a moment ago.
            assert await who() == "log"
    with running(f"http://127.0.0.1:{free_port()}/"):
        assert await who() == "log"
    with running(""):  # an older build
        assert await who() == "log"


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\n{}", b"no HTTP at all", b"\xff" * 64]
)
async def test_an_answer_that_is_cut_or_none_leaves_the_question_to_the_log(answer: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    async with server:
        with running(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"):
            assert await who() == "log"


async def test_a_list_without_starts_and_of_those_that_ended_lately_plays_no_queue_forward(tmp_path: Path) -> None:
    async with served(tmp_path) as (url, asked):
        from muster_cli.gatewayquestions import jobs_of
        from muster_cli.loopback import Loopback

        gateway = Gateway(Loopback(url, "en"), "")
        lately = await jobs_of(gateway, JobFilter(), 60_000, starts=False)
        assert not asked.live.foresight._foreseen[0]
        every = await jobs_of(gateway, JobFilter(), 30 * 86_400_000, starts=True)
        assert asked.live.foresight._foreseen[0]
        assert 0 < len(lately.rows) < len(every.rows)
        assert lately.known == every.known == len(asked.live.state.records)


@pytest.mark.parametrize(
    ("words", "most"),
    [
        (("ls",), 356),
        (("why", "{job}"), 368),
        (("position", "{job}"), 373),
        (("story", "research"), 350),
        (("nodes",), 340),
        (("queue", "tree"), 340),
        (("ask", str(JOB)), 357),
    ],
    ids=lambda value: str(value[0]) if isinstance(value, tuple) else "",
)
async def test_a_command_that_a_gateway_answers_imports_neither_bus_nor_read_model(
    words: tuple[str, ...], most: int, tmp_path: Path
) -> None:
    async with served(tmp_path) as (url, asked):
        job = next(job.ref.key for job in asked.live.state.queues.jobs.values() if job.status == "waiting")
        line = [word.format(job=job) for word in (*words, "--url", NATS)]
        code = f"import sys; from muster_cli.main import run; code = run({line!r}); print(code, *sys.modules)"
        with running(url):
            environ = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_TEST_")}
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, cwd=tmp_path, env=environ
            )
            out, _ = await process.communicate()
    code, *loaded = out.decode().splitlines()[-1].split()
    slow = ("nats", "aiohttp", "muster.bus", "muster.core.stage", "muster.events.envelope", "muster.told.readmodel")
    assert code == "0"
    assert [name for name in loaded if name.startswith(slow)] == []
    assert len(loaded) <= most
