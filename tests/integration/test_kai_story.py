"""The story about KAI queues, as a reader of its page runs it: two workers on one GPU, and kubectl prints the same."""

import asyncio
import re
import shlex
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from kit.cli import Cli, Running
from kit.compose import REPOSITORY
from kit.pages import blocks
from kit.waiting import until

PAGE = REPOSITORY / "docs/howto/kai.md"
SHOWN = next(block.text for block in blocks(PAGE) if block.info == "text kai").splitlines()


@pytest_asyncio.fixture
async def story(tmp_path: Path) -> AsyncIterator[Running]:
    """The demo, once it has printed the whole table."""
    cli = Cli(tmp_path)
    async with cli.start("up", "--story", "kai", "--headless", "--speed", "5") as up:
        await up.line(lambda line: line.startswith("$ kubectl"))
        seen: list[str] = []
        for _ in SHOWN[2:]:
            seen.append(await up.line(lambda line: line.startswith("raycluster-half-gpu-") and line not in seen))
        yield up
        await up.stop(signal.SIGINT)
    assert cli.left == []


def table(up: Running) -> list[str]:
    """The command and what it printed."""
    begin = next(at for at, line in enumerate(up.lines) if line.startswith("$ kubectl"))
    return [line.rstrip() for line in up.lines[begin : begin + len(SHOWN)]]


def masked(lines: list[str]) -> str:
    """What a table says, without the names and ids that are made up."""
    text = re.sub(r"-[a-z0-9]{5}(?= )", "-NAME", "\n".join(lines))
    return re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "GROUP", text)


async def kubectl(up: Running, *args: str) -> list[str]:
    config = next(line for line in up.lines if "--kubeconfig" in line).split()[3]
    process = await asyncio.create_subprocess_exec(
        "kubectl", *args, "--kubeconfig", config, "--cache-dir", f"{config}-cache", stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        out, _ = await process.communicate()
    return [line.rstrip() for line in out.decode().splitlines()]


async def test_the_page_shows_what_the_demo_prints(story: Running) -> None:
    shown = table(story)
    assert masked(shown) == masked(SHOWN)
    _, *workers = [line.split() for line in shown[2:]]
    assert len({(node, group) for _, node, _, group in workers}) == 1, "two workers, one node, one GPU"


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH: the page was tested without it")
async def test_kubectl_prints_the_same(story: Running) -> None:
    shown = table(story)
    assert await kubectl(story, *shlex.split(shown[0].removeprefix("$ kubectl "))) == shown[1:]

    async def queues() -> list[list[str]]:
        return [line.split() for line in await kubectl(story, "get", "queues.scheduling.run.ai")]

    async def as_the_page() -> bool:
        return await queues() == [
            ["NAME", "PRIORITY", "PARENT", "CHILDREN", "DISPLAYNAME"],
            ["department-1", '["team-a"]'],
            ["team-a", "department-1"],
        ]

    await until(as_the_page, 30.0, what="the status of the queues to be written")
