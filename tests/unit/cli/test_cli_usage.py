"""``muster usage``: the table, a month, and a part of a recorded log."""

import json

import pytest

from kit.histories.files import path_of
from muster_cli.commands import usage
from muster_cli.commands.usage import month_of
from muster_cli.exits import CliError
from muster_cli.folding import read_feed
from muster_cli.main import run
from muster_cli.positions import Bookmark
from muster_cli.sources import Feed

LOG = str(path_of("demo-teams"))


def said(capsys: pytest.CaptureFixture[str], *tokens: str) -> str:
    assert run(["usage", "--log", LOG, *tokens]) == 0
    return capsys.readouterr().out


def test_a_line_for_each_queue_and_one_for_all(capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(capsys).splitlines()
    assert lines[0].split() == ["QUEUE", "RESOURCE", "USED", "H", "LOST", "H", "LOST", "%", "WAITED", "H", "RUNS"]
    assert lines[1].split()[:2] == ["root/research/language", "nvidia.com/gpu"]
    of_all = json.loads(said(capsys, "-o", "json", "--resource", "nvidia.com/gpu"))["rows"]
    assert lines[-3].split()[:2] == ["all", "nvidia.com/gpu"]
    assert float(lines[-3].split()[2]) == pytest.approx(sum(row["used_hours"] for row in of_all), abs=0.06)
    assert lines[-1].startswith("From 2025-01-10 01:36:24.000 to 2025-01-10 01:4")
    assert said(capsys, "--by", "owner").splitlines()[1].split()[0] == "-"


def test_parts_of_a_log_add_up_to_all_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    whole = json.loads(said(capsys, "--resource", "cpu", "-o", "json"))
    cut = "2025-01-10T01:20:00Z"
    parts = [
        json.loads(said(capsys, "-o", "json", "--resource", "cpu", *each))
        for each in (["--until", cut], ["--from", cut])
    ]
    assert parts[0]["until"] <= parts[1]["from"]
    for name in ("used_hours", "waited_hours"):
        sums = [sum(row[name] for row in each["rows"]) for each in (whole, *parts)]
        assert sums[0] > 0
        assert abs(sums[0] - sums[1] - sums[2]) < 0.05, name


def test_a_month_that_the_read_model_keeps_no_more_is_added_up_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = said(capsys, "--month", "2025-01")
    monkeypatch.setattr(usage, "_kept", forgets)
    assert said(capsys, "--month", "2025-01").splitlines()[:-1] == kept.splitlines()[:-1]


async def forgets(feed: Feed, _begin: Bookmark) -> None:
    await read_feed(feed, None)


def test_a_month_ends_where_the_next_begins(capsys: pytest.CaptureFixture[str]) -> None:
    assert month_of("2025-12")[1].at + 1 == month_of("2026-01")[0].at
    assert "nothing was used" in said(capsys, "--month", "2024-12")
    assert "root/research" in said(capsys, "--month", "2025-01")
    for text in ("2025", "2025-13", "january"):
        with pytest.raises(CliError, match="is no month: write 2026-03"):
            month_of(text)
    assert run(["usage", "--month", "2025-01", "--from", "1"]) == 2
