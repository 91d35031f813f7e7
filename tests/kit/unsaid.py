"""English texts of the command line that no catalogue knows: literals that are not given to ``say`` or ``marked``.

An English text is a literal with one of the small words below. Docstrings, help of options and pages of commands are
left out: ``kit.messages`` takes these from the printed help.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kit.messages import ROOT, SPEAK

CLI = ROOT / "services" / "muster_cli"
SMALL = {
    *("a", "an", "and", "are", "at", "be", "by", "cannot", "for", "from", "has", "have", "if", "in", "is", "it", "its"),
    *(
        "may",
        "must",
        "no",
        "not",
        "of",
        "on",
        "or",
        "than",
        "that",
        "the",
        "there",
        "to",
        "was",
        "were",
        "which",
        "will",
    ),
    *("will", "with"),
}
DOCUMENTS = {"definedkinds.py", "guardcel.py", "kindlists.py"}
"""They write manifests and policies, whose comments and messages are English."""
TABLES = {"invariants.py", "exits.py", "registry.py", "readingpages.py", "logpages.py", "console.py"}
"""Tables of texts and words: ``kit.messages`` takes their texts from the printed pages."""
OF_THE_SERVER = {"cannot impersonate"}
"""Words in answers of an API server."""


def unsaid() -> Iterator[str]:
    """``file:line: text``"""
    for path in sorted(CLI.rglob("*.py")):
        if path.name not in DOCUMENTS | TABLES:
            for line, text in _texts(ast.parse(path.read_text())):
                yield f"{path.relative_to(ROOT)}:{line}: {text}"


def _texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    spoken: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            spoken.add(id(node.value))
        if isinstance(node, ast.Call):
            told = [keyword.value for keyword in node.keywords if keyword.arg == "help"]
            told += [*node.args] if _name(node) in (*SPEAK, "compile") else []
            spoken |= {id(part) for value in told for part in ast.walk(value)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in spoken:
            text = node.value
            if " " in text and text not in OF_THE_SERVER and SMALL & set(re.findall(r"[a-z]+", text)):
                yield node.lineno, text


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def english_in(text: str) -> set[str]:
    """Small English words of a text, without commands, quoted words and names in it."""
    plain = re.sub(r"`[^`]*`|\"[^\"]*\"|\{[^}]*\}|\([^)]*\)|[\w./=:-]*[./=:_-][\w./=:-]*", " ", text)
    return SMALL & set(re.findall(r"(?<![\w-])[a-z]+(?![\w-])", plain))
