"""The house rules a linter does not know: sizes, words for every reason, nothing of one machine in a tracked file."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from muster.told.wording.reasons import TABLES

ROOT = Path(__file__).parents[2]
LARGEST = 600
"""Lines of a module; most stay under 400. Tests may have 500."""
_MACHINE = re.compile(r"(?<![A-Za-z0-9_.-])/(?:work|farm|root)/")
_SLEEPS = re.compile(r"time\.sleep\(")


def tracked(*patterns: str) -> list[Path]:
    """Files under version control; all of the folder where there is none, as in a source archive."""
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode == 0:
        return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]
    return [path for pattern in patterns for path in ROOT.rglob(pattern) if ".venv" not in path.parts]


def test_no_module_is_too_long() -> None:
    sizes = {path.relative_to(ROOT): len(path.read_text().splitlines()) for path in tracked("*.py")}
    assert len(sizes) > 100, "the files were not found"
    limits = {path: 500 if path.startswith("tests/") else LARGEST for path in map(str, sizes)}
    long = {
        str(path): size for path, size in sizes.items() if size > limits[str(path)] and "unit/kube" not in str(path)
    }
    assert not long, f"over {LARGEST} lines (tests: 500), split these along a seam: {long}"


def test_nothing_speaks_of_one_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in tracked("*.py", "*.md", "*.yaml", "*.yml", "*.toml", "Makefile", "*.conf", "*.txt")
        if path != Path(__file__) and (match := _MACHINE.search(path.read_text(errors="replace")))
    ]
    assert not found


def test_no_two_classes_have_one_name() -> None:
    """A name that is read in one place means the same in every other."""
    homes: dict[str, list[str]] = {}
    for path in tracked("libs/*.py", "services/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert len(homes) > 400, "the classes were not found"
    assert not {name: found for name, found in homes.items() if len(found) > 1}


def test_no_two_test_files_have_one_name() -> None:
    """Otherwise `pytest` finds its tests in each folder, and not in all of them at once."""
    names = Counter(path.name for path in tracked("tests/*.py") if path.name.startswith("test_"))
    assert len(names) > 100, "the files were not found"
    assert not [name for name, number in names.items() if number > 1]


def test_no_test_sleeps() -> None:
    found = [str(path.relative_to(ROOT)) for path in tracked("tests/*.py") if _SLEEPS.search(path.read_text())]
    assert [path for path in found if not path.endswith("test_tidy.py")] == []


@pytest.mark.parametrize("name", TABLES)
def test_no_two_reasons_of_one_set_have_the_same_words(name: str) -> None:
    words = [*TABLES[name][1].values()]
    assert len({*words}) == len(words)
