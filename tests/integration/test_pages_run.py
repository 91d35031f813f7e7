"""Every `sh` block of the pages is run as it stands, beside one `muster up --headless`, as a reader would.

`make` lines are checked by what they would do (`make -n`): their recipes are what the rest of the tests run.
"""

import asyncio
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kit.cli import Cli, Running
from kit.compose import REPOSITORY
from kit.pages import Block, blocks, given, lines, plain, shell
from muster.bus.connection import connect
from muster.bus.jetstream import JetStream
from muster.events.subjects import PUBLIC_STREAM

LIMIT_S = 60.0
ENDS_IT = "muster down"
BLOCKS = [block for block in shell("sh") if ENDS_IT not in block.text]


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Cli:
    return Cli(tmp_path_factory.mktemp("pages"))


@pytest.fixture(scope="module")
def reading_room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that looks like the repository and may be written to."""
    folder = tmp_path_factory.mktemp("repository")
    for path in REPOSITORY.iterdir():
        if path.name not in (".git", ".venv"):
            (folder / path.name).symlink_to(path)
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


async def run(block_text: str, cli: Cli, folder: Path) -> tuple[int, str]:
    text = re.sub(r"^make ", "make -n ", block_text, flags=re.MULTILINE)
    environ = cli.environ(PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    process = await asyncio.create_subprocess_exec(
        "bash", "-eu", "-c", text,
        cwd=folder, env=environ, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    async with asyncio.timeout(LIMIT_S):
        out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode()


@pytest.fixture
async def demo(cli: Cli) -> AsyncIterator[Running]:
    """The demo, where one has been reclaimed from and the claimant runs."""
    async with cli.start("up", "--headless", "--speed", "3", "--story", "teams") as up:
        await up.line(lambda line: " running " in line and "language/urgent-0" in line)
        yield up


@pytest.mark.timeout(400)
async def test_every_block_runs_and_what_it_shows_is_true(cli: Cli, demo: Running, reading_room: Path) -> None:
    for block in BLOCKS:
        for name, text in given(block.page).items():
            (reading_room / name).write_text(text)
        code, out = await run(block.text, cli, reading_room)
        assert code == 0, f"{block.name} ends with {code}:\n{block.text}\n{out}"
        assert "Traceback" not in out, f"{block.name}:\n{out}"
        if "--verify" in block.text:
            assert re.search(r"^\d+ commits, 0 divergent$", out, re.MULTILINE), out
    await subjects_are_heard(next(line for line in demo.lines if "nats-server " in line))
    code, out = await run(ENDS_IT, cli, reading_room)
    assert code == 0, out
    assert (await demo.wait()).code == 0
    told = plain("\n".join(demo.lines))
    for entry in transcript():
        # Who stands where at the very moment depends on the machine: up to there it is the same every time.
        said = re.split(r"[:;] ", plain(entry))[0]
        assert said in told, f"the README shows what the demo does not say: {entry}"


async def subjects_are_heard(bus: str) -> None:
    """The command of NATS is not ours to have here: what its lines listen to is asked of the stream."""
    url = re.search(r"nats://\S+", bus)
    assert url is not None
    connection = await connect(url[0], name="pages")
    js = JetStream(connection)
    listening = [shlex.split(line)[-1] for block in shell("sh nats") for line in lines(block) if "nats sub" in line]
    assert listening
    for subject in listening:
        assert await js.last(PUBLIC_STREAM, subject) is not None, f"nothing was published on {subject}"
    await connection.close()


def transcript() -> list[str]:
    """The entries of the README's transcript, each in one line without its time."""
    block: Block = next(each for each in blocks(REPOSITORY / "README.md") if each.info == "text")
    entries: list[str] = []
    for line in block.text.splitlines():
        found = re.match(r"\s*\d+:\d\d\.\d\s+(.*)", line)
        if found:
            entries.append(found[1])
        elif entries:
            entries[-1] += " " + line.strip()
    assert len(entries) >= 6
    return entries
