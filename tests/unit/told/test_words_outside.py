"""Texts for people are in `told/wording`: elsewhere in the core, and in `told`, none has two words.

Not counted, because none of them reaches an event: docstrings, texts that an answer is compared with, the texts of
errors and assertions, and of violations of an invariant.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from muster.told import wording

TOLD = Path(wording.__file__).parent.parent
MUSTER = TOLD.parent
_TWO_WORDS = re.compile(r"[A-Za-z]{2,}[,:;]? [A-Za-z]{2,}")


def texts(path: Path) -> list[str]:
    """Texts with two words in a row."""
    tree = ast.parse(path.read_text())
    quiet = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    for node in ast.walk(tree):
        if _makes_no_event(node):
            quiet |= {id(each) for each in ast.walk(node)}
    return [
        f"{path.relative_to(MUSTER)}:{each.lineno}: {each.value}"
        for each in ast.walk(tree)
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and id(each) not in quiet
        if _TWO_WORDS.search(each.value)
    ]


def _makes_no_event(node: ast.AST) -> bool:
    if isinstance(node, ast.ClassDef):
        return any(getattr(base, "id", "").endswith(("Error", "Exception")) for base in node.bases)
    violates = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Violation"
    return violates or isinstance(node, ast.Raise | ast.Assert | ast.Compare)


def test_texts_are_in_the_wording_only() -> None:
    modules = [path for house in ("core", "told") for path in sorted((MUSTER / house).rglob("*.py"))]
    modules = [path for path in modules if path.parent != TOLD / "wording"]
    assert len(modules) > 100, "the modules were not found"
    found = [text for path in modules for text in texts(path)]
    assert not found, "give it a code (model/problemcodes.py), and word that in told/wording/problems*.py"


def test_the_rule_finds_texts_where_there_are_some() -> None:
    assert len(texts(TOLD / "wording" / "explain.py")) > 50
