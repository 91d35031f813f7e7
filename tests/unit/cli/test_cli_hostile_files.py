"""Files that are made to break who reads them: each is refused in one sentence, soon."""

import gzip
from pathlib import Path

import pytest

from kit.cli import Cli
from muster.model.text import clean

DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (("quota", "shares", "--queues"), DEEP),
        (("quota", "shares", "--queues"), "{a: " * 100_000 + "1" + "}" * 100_000),
        (("quota", "shares", "--queues"), "total: {gpu: 1e999999999}\nqueues: [{name: a, quota: 1}]\n"),
        (("quota", "lint"), DEEP),
        (("decide", "--state"), DEEP),
        (("check", "--log"), DEEP),
        (("check", "--log"), '{"seq":1,"commit":' + DEEP + "}\n"),
        (("replay", "--log"), '{"seq":1,"commit":' + DEEP + "}\n"),
    ],
)
async def test_it_is_refused_in_one_sentence(tmp_path: Path, command: tuple[str, ...], text: str) -> None:
    path = tmp_path / "hostile.yaml"
    path.write_text(text)
    done = await Cli(tmp_path).run(*command, str(path))
    assert done.code in (1, 2, 5), done.err[-300:]
    assert len(done.err.splitlines()) == 1, done.err[-300:]


async def test_what_unpacks_without_end_is_no_log(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(64):
            file.write(b"0" * (1 << 20))
    done = await Cli(tmp_path).run("check", "--log", str(path))
    assert done.code == 1
    assert "line 1 is not a commit of an exported log" in done.err


@pytest.mark.parametrize("unseen", ["\u200b", "\u200d", "\u2060", "\u3164", "\uffa0", "\U000e0041", "\u00ad", "\x1b"])
def test_what_is_there_and_not_seen_does_not_reach_the_terminal(unseen: str) -> None:
    assert clean(f"train{unseen}ing") == "train\ufffding"
