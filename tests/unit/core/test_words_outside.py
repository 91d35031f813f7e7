"""Texts for people are in `core/wording`: elsewhere in the core there are fewer and fewer of two words.

Not counted: docstrings, what an error or an assertion says to a programmer, and what a judge of invariants finds.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from muster.core import wording

CORE = Path(wording.__file__).parent.parent
JUDGES = ("audit",)
"""Rooms whose findings are faults of the program."""
ALLOWED: dict[str, int] = {
    "actuation/bind.py": 5,
    "actuation/budgets.py": 7,
    "actuation/carrying.py": 2,
    "actuation/gathering.py": 10,
    "actuation/gating.py": 7,
    "actuation/gpus.py": 12,
    "actuation/patch.py": 6,
    "actuation/provisioning.py": 2,
    "actuation/removing.py": 2,
    "cell/judge.py": 4,
    "docket.py": 14,
    "quota/claiming.py": 4,
    "rulesets.py": 3,
}
"""{module: texts}. A number only goes down; a module without one has none."""
_TWO_WORDS = re.compile(r"[A-Za-z]{2,}[,:;]? [A-Za-z]{2,}")


def texts(path: Path) -> list[str]:
    """Texts with two words in a row."""
    tree = ast.parse(path.read_text())
    quiet = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    for node in ast.walk(tree):
        judged = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Violation"
        if judged or isinstance(node, ast.Raise | ast.Assert):
            quiet |= {id(each) for each in ast.walk(node)}
    return [
        f"{path.relative_to(CORE)}:{each.lineno}: {each.value}"
        for each in ast.walk(tree)
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and id(each) not in quiet
        if _TWO_WORDS.search(each.value)
    ]


def test_texts_outside_the_wording_only_become_fewer() -> None:
    found = {
        str(path.relative_to(CORE)): texts(path)
        for path in sorted(CORE.rglob("*.py"))
        if path.relative_to(CORE).parts[0] not in ("wording", *JUDGES)
    }
    assert len(found) > 100, "the modules were not found"
    more = {name: here for name, here in found.items() if len(here) > ALLOWED.get(name, 0)}
    assert not more, "word them in core/wording, by a code (model/problemcodes.py)"
