"""Files that are made to break who reads them: each is refused in one sentence, soon."""

import gzip
import json
import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from kit.cli import Cli
from kit.hostilefiles import CONTENTS, READERS
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


SAMPLE = ("deep JSON in a commit", "many digits", "gzip of empty lines", "nothing")
"""Of the contents; MUSTER_TEST_HOSTILE=all plays all of them."""


def test_every_command_that_reads_a_file_refuses_it_in_one_sentence(tmp_path: Path) -> None:
    contents = [*CONTENTS] if os.environ.get("MUSTER_TEST_HOSTILE") == "all" else [*SAMPLE]
    done = subprocess.run(
        [sys.executable, "-m", "kit.hostilefiles", str(tmp_path), *contents],
        env=Cli(tmp_path / "cli").environ(PYTHONPATH=str(Path(__file__).parents[2])),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0, done.stderr.splitlines()[-1]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(contents) * len(READERS)
    # What is wanted of the file lies before where it was cut off.
    wrong = [each for each in found if (each["content"], each["reader"]) != ("gzip cut off", "debug --log")]
    wrong = [each for each in wrong if each["code"] not in (1, 2, 3, 5) or len(each["said"].splitlines()) != 1]
    assert not wrong, wrong[:2]
    unseen = [each for each in found if {"Cc", "Cf"} & {unicodedata.category(sign) for sign in each["said"].strip()}]
    assert not unseen, unseen[:2]
