"""The command line itself: help, usage errors, exit codes, and that help is quick."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from muster_cli import exits
from muster_cli.helping import overview
from muster_cli.main import make_app, name_of, run
from muster_cli.registry import COMMANDS, GROUPS
from muster_tools import pages

ROOT = Path(__file__).parents[3]


def test_every_command_has_a_page_with_examples_and_explains_its_options() -> None:
    for page in COMMANDS:
        shown = pages.help_of(page.name)
        assert shown.startswith(f"Usage: muster {page.name}"), page.name
        assert "Examples:" in shown
        assert f"muster {page.name}" in page.examples
        for line in page.examples.strip().splitlines():
            assert "muster " in line, line


def test_every_example_is_a_command_line_that_parses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    app = make_app()
    for page in COMMANDS:
        for line in page.examples.strip().splitlines():
            command = (
                line.partition("   ")[0].partition("| jq")[0].rpartition("| ")[2].rpartition("MUSTER_CELL=gpu ")[2]
            )
            tokens = shlex.split(command)
            assert tokens.pop(0) == "muster", line
            called, _, _ = app.parse_args(tokens)
            assert called.__name__ == page.function, line


def test_the_reference_pages_are_what_the_help_says() -> None:
    for name, text in pages.pages().items():
        path = ROOT / pages.FOLDER / name
        assert path.read_text(encoding="utf-8") == text, f"{name} is stale: run `python -m muster_tools.pages`"


def test_the_overview_lists_everything(capsys: pytest.CaptureFixture[str]) -> None:
    for tokens in ([], ["--help"], ["-h"], ["help"]):
        assert run(tokens) == 0
        assert capsys.readouterr().out == overview() + "\n"
    shown = overview()
    for page in COMMANDS:
        assert f"  {page.name.partition(' ')[0]} " in shown
    for code, meaning in exits.MEANINGS.items():
        assert f"{code}  {meaning}" in shown
    for group in GROUPS:
        assert run([group]) == 0
        assert capsys.readouterr().out == overview(group) + "\n"


def test_help_of_a_command_by_every_spelling(capsys: pytest.CaptureFixture[str]) -> None:
    shown = set()
    for tokens in (["queue", "tree", "--help"], ["queue", "tree", "-h"], ["help", "queue", "tree"]):
        assert run(tokens) == 0
        shown.add(capsys.readouterr().out)
    assert len(shown) == 1


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (["foo"], "there is no command 'foo'; see `muster --help`"),
        (["quue"], "did you mean `muster queue`"),
        (["queue", "tre"], "did you mean `muster queue tree`"),
        (["--verbose"], "options come after a command"),
        (["why"], "see `muster why --help`"),
        (["why", "a", "b"], "see `muster why --help`"),
        (["why", "a", "--nothing"], "--nothing"),
        (["queue", "ls", "-o", "xml"], "-o cannot be 'xml'; it is one of table, "),
        (["tail", "--since", "x"], "--since"),
        (["check"], "--log"),
        (["replay", "--log", "x", "--stage", "watcher"], "there is no deciding stage watcher"),
        (["submit", "x", "--times", "0"], "--times is 0"),
        (["export", "--out", "x", "--data", "d", "--url", "nats://x"], "give one of them"),
    ],
)
def test_a_wrong_command_line_is_said_in_one_line(
    tokens: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tokens) == exits.USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert words in said.err
    assert said.err.count("\n") == 1


def test_the_command_a_line_names() -> None:
    assert name_of(["queue", "tree", "-o", "json"]) == ("queue tree", True)
    assert name_of(["why", "queue"]) == ("why", True)
    assert name_of(["queue", "--help"]) == ("queue", False)
    assert name_of([]) == ("", False)


def test_a_kind_of_failure_has_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from muster.bus.errors import BusError, ForbiddenError
    from muster.ports import ApiStatusError, LogGapError, LogGoneError
    from muster_cli.commands import config_show

    for error, code in (
        (BusError("x"), 1),
        (ForbiddenError("x", "subject"), 4),
        (ApiStatusError(403, "x"), 4),
        (ApiStatusError(404, "x"), 3),
        (ApiStatusError(500, "x"), 1),
        (LogGoneError("x"), 3),
        (LogGapError("x"), 5),
        (PermissionError(13, "x"), 1),
        (exits.CliError("Some message", 3), 3),
        (KeyboardInterrupt(), 130),
    ):

        def fail(error: BaseException = error) -> None:
            raise error

        monkeypatch.setattr(config_show, "config_show", fail)
        assert run(["config", "show"]) == code, error
    assert "muster config show: some message" in capsys.readouterr().err

    def broken() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(config_show, "config_show", broken)
    with pytest.raises(ZeroDivisionError):
        run(["config", "show"])


def test_help_needs_nothing_slow() -> None:
    """Imports make a command line sluggish: the overview needs none of the slow ones, a command's page few."""
    forbidden = {"kubernetes_asyncio", "opentelemetry", "nats", "aiohttp", "structlog"}
    for tokens, more in ((["--help"], {"cyclopts", "rich", "msgspec"}), (["up", "--help"], set())):
        code = f"import sys; from muster_cli.main import run; run({tokens!r}); print(*sys.modules, file=sys.stderr)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        loaded = {name.partition(".")[0] for name in done.stderr.split()}
        assert not loaded & (forbidden | more), tokens


@pytest.mark.parametrize("command", ["why", "position", "ls", "story", "nodes", "queue_tree", "queue_ls", "ask"])
def test_a_question_imports_neither_log_nor_read_model_before_it_knows_who_answers(command: str) -> None:
    code = f"import sys, muster_cli.commands.{command}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    slow = ("nats", "aiohttp", "muster.bus", "muster.core.stage", "muster.events.envelope", "muster.told.readmodel")
    assert [name for name in done.stdout.split() if name.startswith(slow)] == []


@pytest.mark.parametrize("command", ["tail", "usage", "doctor"])
def test_a_reader_of_the_log_imports_no_web_client_and_no_stage_that_it_does_not_fold(command: str) -> None:
    code = f"import sys, muster_cli.commands.{command}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    slow = {"aiohttp", "kubernetes_asyncio", "muster.core.gang.admitter", "muster.core.autoscaling.bridge"}
    assert loaded & slow == set()
    assert "nats" in loaded


@pytest.mark.parametrize(
    ("entry", "words", "most"),
    [
        ("main:run", ["--help"], 100),
        ("completing:proposed", ["ls", "--st"], 110),
        ("main:run", ["ls", "--log", "none"], 484),
        ("main:run", ["why", "x", "--log", "none"], 505),
        ("main:run", ["queue", "tree", "--log", "none"], 495),
        ("main:run", ["doctor", "--url", "none"], 583),
    ],
    ids=lambda value: str(value),
)
def test_a_command_imports_little(entry: str, words: list[str], most: int) -> None:
    """Most of the time of a command is the import of modules."""
    module, _, name = entry.partition(":")
    code = f"import sys; from muster_cli.{module} import {name}; {name}({words!r}); print(len(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout.splitlines()[-1]) <= most
