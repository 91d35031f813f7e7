"""Problems are codes in the log: each call gives what its template names; no stage that decides knows a sentence."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import string
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import muster.core
from kit.histories.judging import judge
from kit.words import in_words
from muster.model.problem import FieldProblem, problem
from muster.told import wording
from muster.told.wording import problems

CORE = Path(muster.core.__file__).parent
GIVING = {"problem", "unreadable", "_wrong"}
HISTORIES = (
    *("scenario-bad-tree", "scenario-refused", "scene-cannot-suspend", "scene-gang-refused-refused"),
    *("scene-gang-broken-broken", "scene-gang-waits-group-incomplete", "scene-bind-refused"),
    "scene-gang-not-placed-other-scheduler",
)
"""Small ones, with problems of every kind; all of them are replayed in tests/histories, where no sentence is read."""


def calls() -> Iterator[tuple[str, str, set[str], bool]]:
    """(where, code, values that are given, whether all of them are seen here) of each call that makes a problem."""
    for path in sorted(CORE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or getattr(node.func, "id", "") not in GIVING:
                continue
            code = node.args[0] if getattr(node.func, "id", "") == "_wrong" else node.args[1] if node.args[1:] else None
            found = [code.body, code.orelse] if isinstance(code, ast.IfExp) else [code]
            given = {each.arg for each in node.keywords if each.arg} | (
                {"value"} if getattr(node.func, "id", "") == "_wrong" else set()
            )
            whole = all(each.arg for each in node.keywords)
            if node.args[2:] and getattr(node.func, "id", "") != "_wrong":
                given.add("because")
            for each in found:
                if isinstance(each, ast.Constant):
                    yield f"{path.relative_to(CORE)}:{node.lineno}", str(each.value), given, whole


def named_in(template: str) -> set[str]:
    """The values that a template names."""
    return {name.partition("[")[0] for _, name, _, _ in string.Formatter().parse(template) if name}


def test_each_problem_gives_the_values_that_its_sentence_names() -> None:
    found = list(calls())
    assert len(found) > 90, "the calls were not found"
    lacking = [
        f"{where}: {code} lacks {', '.join(sorted(named_in(problems.TEMPLATES[code]) - given))}"
        for where, code, given, whole in found
        if whole and named_in(problems.TEMPLATES[code]) - given
    ]
    assert not lacking


def test_each_code_is_given_somewhere() -> None:
    """What a table of codes alone cannot see: one that nothing gives any more."""
    files = [path for house in ("core", "audit", "model", "told") for path in (CORE.parent / house).rglob("*.py")]
    source = "\n".join(path.read_text() for path in files if path.name not in ("problemcodes.py", "problems.py"))
    assert not [code for code in problems.TEMPLATES if f'"{code}"' not in source]


def test_a_sentence_has_amounts_names_counts_and_causes() -> None:
    over = problem("root/a", "min_over_max", resource="memory", least=20 << 30, most=14 << 30)
    assert in_words(over) == "root/a: min memory 20Gi is over max 14Gi; lower min or raise max"
    deep = problem("", "below_disabled", problem("spec.x", "said", said="no"), queue="top")
    assert in_words(deep) == "it is below top, which is disabled: spec.x: no"
    assert in_words(problem("", "pods_gated", count=1, gang="a")) == "1 pod of gang a"
    assert (deep.rule, hash(deep) == hash(problem("", "below_disabled", queue="x"))) == ("said", True)


def test_values_are_ordered_short_and_harmless() -> None:
    found = problem("a\x1b", "said", z="x" * 5_000, b=1 << 80, a=("\x07",))
    assert list(found.values) == ["a", "b", "z"], "as an encoding has them"
    assert found.path == "a\ufffd" and found.values["a"] == ("\ufffd",) and found.values["b"] == 2**63 - 1
    assert len(str(found.values["z"])) == 1_000
    assert FieldProblem("a", "said") != FieldProblem("a", "said", {"said": ""})


def test_no_stage_that_decides_knows_a_sentence() -> None:
    """It does not even import one: so no edit of a sentence changes a commit."""
    stages = "muster.core.cell.deciders, muster.core.reading.watcher, muster.core.actuation.carrying"
    code = f"import sys, {stages}; print([each for each in sys.modules if each.startswith('muster.told.wording')])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def rewritten(monkeypatch: pytest.MonkeyPatch) -> int:
    """Every text of the wording is nonsense; returns how many were."""
    count = 0
    for each in pkgutil.walk_packages(wording.__path__, f"{wording.__name__}."):
        module = importlib.import_module(each.name)
        for name, value in list(vars(module).items()):
            if isinstance(value, dict) and not name.startswith("__"):
                for key, text in list(value.items()):
                    if isinstance(text, str):
                        monkeypatch.setitem(value, key, f"nonsense {count}")
                        count += 1
            elif isinstance(value, str) and " " in value and not name.startswith("__"):
                monkeypatch.setattr(module, name, f"nonsense {count}")
                count += 1
    return count


def test_with_nonsense_for_every_sentence_histories_are_decided_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rewritten(monkeypatch) > 200
    assert in_words(problem("", "pods_gated", count=1, gang="a")).startswith("nonsense ")
    assert [wrong for name in HISTORIES if (wrong := judge(name))] == []
