"""Wrong questions to a log: the answer names the value and the way out, and is never an empty table."""

import re

import pytest

from kit.histories.files import path_of
from muster_cli import exits
from muster_cli.main import run
from muster_cli.render.nodes import _fitting

LOG = str(path_of("demo-teams"))


@pytest.mark.parametrize(
    ("tokens", "code", "words"),
    [
        (["ls", "--kind", "Foo"], exits.USAGE, "--kind Foo is no kind of job; there are AppWrapper, "),
        (["ls", "--at", "9000-01-01"], exits.NOT_FOUND, "lies after the end of this log: sequence "),
        (["ls", "--at", "2020-01-01"], exits.NOT_FOUND, "--at 2020-01-01 00:00:00.000 UTC lies before the beginning"),
        (["nodes", "--at", "2020-01-01"], exits.NOT_FOUND, "lies before the beginning"),
        (["ls", "--since", "-5m"], exits.USAGE, "--since -5m is no span of time: write 90s"),
        (["ls", "--queue", "root/researchh"], exits.NOT_FOUND, "did you mean root/research"),
        (["queue"], exits.USAGE, "give a command of `muster queue`: `muster queue tree` or `muster queue ls`"),
    ],
)
def test_it_is_told(tokens: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["queue", "--log", LOG] if tokens == ["queue"] else [*tokens, "--log", LOG]
    assert run(line) == code
    said = capsys.readouterr()
    assert not said.out and words in said.err


@pytest.mark.parametrize("option", ["--for", "--dat", "--to"])
def test_an_option_is_only_likened_to_what_is_alike(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["usage", option, "x"]) == exits.USAGE
    hint = re.search(r"did you mean (\S+?)\?", capsys.readouterr().err)
    assert (hint[1] if hint else "") == {"--dat": "--data"}.get(option, "")


def test_a_kind_may_be_written_as_for_kubectl(capsys: pytest.CaptureFixture[str]) -> None:
    lists = []
    for kind in ("RayJob", "rayjob", "rayjobs"):
        assert run(["ls", "--log", LOG, "--kind", kind, "-o", "name"]) == 0
        lists.append(capsys.readouterr().out)
    assert lists[0].startswith("rayjob/") and len({*lists}) == 1


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_jobs_of_a_node_are_whole_on_a_narrow_terminal(width: int) -> None:
    row = ["gpu-1", "ready", "1 of 8", "30 of 64", "440144Mi of 512Gi", "interns/sweep-1, search/notebook, 3 more"]
    lines = [str(line) for line in _fitting([["NODE", "STATE", "GPU", "CPU", "MEMORY", "JOBS"], row], width)]
    assert "interns/sweep-1, search/notebook, 3 more" in " ".join(" ".join(lines).split())
    assert all(len(line) <= width for line in lines)
