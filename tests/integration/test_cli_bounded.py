"""No command waits for ever: where NATS or the API server falls silent in the middle, it says so and exits with 1."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kit.cli import Cli, Result
from kit.nats import SMALL
from kit.proxy import Proxy
from kit.scenario import Play
from kit.seated import bodies
from muster.bus.cell import open_stores
from muster.bus.importing import import_log
from muster.bus.jetstream import JetStream
from muster.bus.server import EmbeddedServer

READING = (
    ("why", "video/one"),
    ("position", "video/one"),
    ("ls",),
    ("story", "video"),
    ("queue", "ls"),
    ("queue", "tree"),
    ("tail", "--no-follow"),
    ("debug", "queue_sorter", "--at", "5"),
    ("export", "--out", "log.jsonl"),
    ("whatif", "--rule", "reclaim=enabled"),
    ("log", "verify"),
)
"""Commands that follow the log."""
LEVERS = (
    ("hold", "video/one", "--reason", "x"),
    ("jump", "video/one", "--reason", "x"),
    ("pause", "admissions", "--reason", "x"),
    ("resume", "admissions"),
    ("resume", "evictions"),
)
FOLLOWING, OPENING = b"consumer_create_response", b"stream_info_response"


@pytest.fixture
async def logged(js: JetStream, cell: str) -> str:
    """A cell with a log in which video/one waits."""
    play = Play()
    for line in ("tree", "synced", "job two", "job one"):
        play.line(line)
        play.settle()
    await open_stores(js, cell, create=True, limits=SMALL)
    await import_log(js, cell, bodies(play.bench.log), limits=SMALL)
    return cell


async def silenced(cli: Cli, server: EmbeddedServer, after: bytes, *words: str, **environ: str) -> Result:
    """Run a command on a NATS that says nothing any more after an answer with these bytes."""
    async with Proxy(int(server.url.rpartition(":")[2])) as proxy:

        def answer(chunk: bytes) -> bytes:
            if after in chunk:
                proxy.blackhole = True
            return chunk

        proxy.answers = answer
        return await cli.run(*words, "--url", proxy.url, **environ)


async def test_a_command_ends_when_nats_falls_silent(tmp_path: Path, nats_server: EmbeddedServer, logged: str) -> None:
    cli = Cli(tmp_path)
    asked = [(FOLLOWING, *words) for words in READING] + [(OPENING, *words) for words in (*READING, ("log", "info"))]
    ended = await asyncio.gather(
        *(silenced(cli, nats_server, after, *words, "--cell", logged) for after, *words in asked)
    )
    for words, found in zip(asked, ended, strict=True):
        assert (found.code, "was lost" in found.err) == (1, True), (words, found)
        assert "check that NATS runs there" in found.err


async def test_a_lever_ends_when_nats_falls_silent(tmp_path: Path, nats_server: EmbeddedServer, logged: str) -> None:
    cli, kubeconfig = Cli(tmp_path), leading_to(tmp_path, 9)
    asked = [(*words, "--cell", logged) for words in LEVERS]
    ended = await asyncio.gather(
        *(silenced(cli, nats_server, OPENING, *words, KUBECONFIG=str(kubeconfig)) for words in asked)
    )
    for words, found in zip(asked, ended, strict=True):
        assert found.code == 1, (words, found)
        assert "was lost" in found.err


async def test_a_lever_ends_when_the_api_server_is_silent(
    tmp_path: Path, nats_server: EmbeddedServer, logged: str
) -> None:
    cli = Cli(tmp_path)
    silent = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    kubeconfig = leading_to(tmp_path, silent.sockets[0].getsockname()[1])
    where = ("--url", nats_server.url, "--cell", logged)
    ended = await asyncio.gather(*(cli.run(*words, *where, KUBECONFIG=str(kubeconfig)) for words in LEVERS))
    silent.close()
    for words, found in zip(LEVERS, ended, strict=True):
        assert found.code == 1, (words, found)
        assert "127.0.0.1" in found.err


def leading_to(folder: Path, port: int) -> Path:
    """One that leads to a port where nobody answers."""
    path = folder / "kubeconfig"
    path.write_text(
        f"""
apiVersion: v1
kind: Config
current-context: silent
contexts: [{{name: silent, context: {{cluster: silent, user: ann}}}}]
clusters: [{{name: silent, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: ann, user: {{}}}}]
"""
    )
    return path
