"""Shell completion: the scripts name every command, bash takes its script, and kubectl gets its answers."""

import subprocess
from pathlib import Path

import pytest

from muster_cli.completing import FILES, NO_FILES, TABLE, proposed, table
from muster_cli.main import run
from muster_cli.registry import COMMANDS, GROUPS


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_names_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in {word for page in COMMANDS for word in page.name.split()} | set(GROUPS):
        assert word in script


def test_bash_takes_the_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "bash"]) == 0
    script = tmp_path / "muster.bash"
    script.write_text(capsys.readouterr().out)

    def completed(*words: str) -> set[str]:
        line = " ".join(f"'{word}'" for word in words)
        ask = f"source {script}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _muster"
        ask += """; printf '%s\\n' "${COMPREPLY[@]}" """
        done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
        return {line.strip() for line in done.stdout.splitlines()}

    assert {"queue", "quota"} <= completed("muster", "qu")
    assert "tree" in completed("muster", "queue", "t")
    assert "--reason" in completed("muster", "hold", "--re")


def test_an_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", "tcsh"]) == 2
    assert "bash" in capsys.readouterr().err


def test_the_table_of_options_is_what_the_commands_take() -> None:
    assert TABLE.read_text() == table(), "run `make schemas`"


def test_kubectl_gets_commands_options_and_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines, directive = proposed(["qu"])
    assert [line.partition("\t")[0] for line in lines] == ["queue", "quota"]
    assert directive == NO_FILES
    assert "tree" in [line.partition("\t")[0] for line in proposed(["queue", ""])[0]]
    assert proposed(["hold", "video/x", "--re"]) == (["--reason"], NO_FILES)
    assert "admissions" in proposed(["pause", "adm"])[0]
    assert proposed(["queue", "ls", "-o", "j"]) == (["json"], NO_FILES)
    assert proposed(["quota", "lint", ""])[1] == FILES
    (tmp_path / "config").write_text("contexts: [{name: prod, context: {}}, {name: staging, context: {}}]\n")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    assert proposed(["doctor", "--context", "pr"]) == (["prod"], NO_FILES)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    assert proposed(["doctor", "--context", ""])[0] == []
    assert proposed(["nonsense", ""])[0] != [], "the first word is not known: the commands are"
