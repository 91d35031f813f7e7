"""The English of `make lint`: turns of phrase that keep newcomers out, names of variables that name nothing, and two
measures of pages and docstrings.

``english.toml`` has the turns of phrase with better words, the pronouns that are counted, and the goals. For each area
that misses a goal the file has a number, and the number only goes down: ``python -m kit.english --shrink``.
``--measure`` prints the measures of every area.

- *pronouns*: pronouns and relative words per thousand words, all prose of an area together, so that a sentence cut in
  two has the same share.
- *sentence*: mean words of a sentence, in tenths.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("english.toml")
PLACES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs", "examples", "services", "libs", "deploy")
KINDS = (".md", ".py", ".yaml", ".toml")


MEASURES = ("pronouns", "sentence")
MARKUP = re.compile(
    r"^```.*?^```|^~~~.*?^~~~|<!--.*?-->|``[^`]*``|`[^`]*`|\]\([^)\s]*\)|\b\w+://\S+|\b\w*_\w+\b",
    re.MULTILINE | re.DOTALL,
)
ENDS = re.compile(r"[.!?][)*_\"']*(?=\s|$)|:\n|\n\s*\n|\n\s*(?:[-*+#]|\d+\.)\s|\|")
WORD = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*")


class Measure(NamedTuple):
    """The prose of an area: counts of words, of pronouns among these words, and of sentences."""

    words: int = 0
    pronouns: int = 0
    sentences: int = 0

    def __add__(self, other: object) -> Measure:
        assert isinstance(other, Measure)
        return Measure(*(a + b for a, b in zip(self, other, strict=True)))

    def numbers(self) -> dict[str, int]:
        """{measure: pronouns per thousand words, tenths of words per sentence}, rounded up."""
        return {
            "pronouns": -(-1000 * self.pronouns // max(self.words, 1)),
            "sentence": -(-10 * self.words // max(self.sentences, 1)),
        }


class Finding(NamedTuple):
    """One turn of phrase. ``path``: from the root of the repository."""

    path: str
    line: int
    words: str
    better: str


def area(path: str) -> str:
    """The area of a path: ``libs/muster/core/quota``, ``libs/muster/kube``, ``docs/howto``, ``README.md``.

    A module outside of such a folder belongs to the folder above: ``libs/muster`` for ``libs/muster/ports.py``.
    """
    parts = re.sub(r"/[^/]+\.py$", "", path).split("/")
    depth = {
        "libs": 4 if parts[:2] == ["libs", "muster"] and parts[2:3] in (["core"], ["told"]) else 3,
        "services": 2,
        "docs": 2,
    }
    return "/".join(parts[: depth.get(parts[0], 1)])


def rules(table: Mapping[str, object]) -> list[tuple[re.Pattern[str], str]]:
    """The patterns with what to write instead; a blank in a pattern is any white space."""
    words = table["words"]
    assert isinstance(words, dict)
    return [(re.compile(pattern.replace(" ", r"\s+"), re.IGNORECASE), better) for pattern, better in words.items()]


def found_in(path: str, text: str, patterns: list[tuple[re.Pattern[str], str]]) -> Iterator[Finding]:
    """Every finding of a text."""
    for pattern, better in patterns:
        for match in pattern.finditer(text):
            yield Finding(path, text.count("\n", 0, match.start()) + 1, " ".join(match.group().split()), better)


def nameless(path: str, text: str, names: Mapping[str, str]) -> Iterator[Finding]:
    """Variables and parameters of a module with one of the names. Fields of a class, functions and keywords may have
    them.
    """
    tree = ast.parse(text)
    fields = {
        target
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for line in node.body
        if isinstance(line, ast.Assign | ast.AnnAssign)
        for target in (line.targets if isinstance(line, ast.Assign) else [line.target])
    }
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) if node not in fields:
                pass
            case ast.arg(arg=name) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                pass
            case _:
                continue
        if name in names:
            yield Finding(path, node.lineno, name, names[name])


def files() -> Iterator[Path]:
    """Everything that is read, generated pages left out: they are made of what is read."""
    for place in PLACES:
        path = ROOT / place
        for found in [path] if path.is_file() else sorted(path.rglob("*")):
            if found.suffix in KINDS and not (found.suffix == ".md" and found.read_text()[:100].startswith("<!-- ")):
                yield found


def look(patterns: list[tuple[re.Pattern[str], str]], names: Mapping[str, str]) -> list[Finding]:
    """Every finding of the repository, in order."""
    findings: list[Finding] = []
    for path in files():
        name, text = str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
        findings += sorted(found_in(name, text, patterns))
        if path.suffix == ".py" and name.startswith(("libs/", "services/")):
            findings += sorted(nameless(name, text, names))
    return findings


def prose(path: str, text: str) -> Iterator[str]:
    """The texts that are measured: a page, or each docstring of a module; other files have none."""
    if path.endswith(".md"):
        yield text
    elif path.endswith(".py"):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                yield ast.get_docstring(node) or ""


def measured(text: str, pronouns: re.Pattern[str]) -> Measure:
    """The measure of one text, without code, links and names."""
    plain = MARKUP.sub(" 0 ", text)
    sentences = sum(1 for part in ENDS.split(plain) if part and WORD.search(part))
    return Measure(len(WORD.findall(plain)), len(pronouns.findall(plain)), sentences)


def measure(pronouns: re.Pattern[str]) -> dict[str, Measure]:
    """{area: measure} of the repository, without areas that have no prose."""
    areas: dict[str, Measure] = {}
    for path in files():
        name = str(path.relative_to(ROOT))
        for text in prose(name, path.read_text(encoding="utf-8")):
            areas[area(name)] = areas.get(area(name), Measure()) + measured(text, pronouns)
    return {name: found for name, found in sorted(areas.items()) if found.words}


def above(areas: Mapping[str, Measure], table: Mapping[str, Mapping[str, int]]) -> list[str]:
    """The errors, a line each: areas above the goal and above their own number."""
    lines = []
    for name, found in areas.items():
        for key, number in found.numbers().items():
            allowed = table[key].get(name, table["goals"][key])
            if number > allowed:
                lines.append(f"{name}: {key} {number}, allowed are {allowed}: name the thing; subject, verb, number")
    return lines


def judged(found: list[Finding], allowed: Mapping[str, int]) -> list[str]:
    """The errors, a line each: the findings of every area that has more than it may have."""
    counts = Counter(area(each.path) for each in found)
    lines = []
    for name, count in sorted(counts.items()):
        if count > allowed.get(name, 0):
            lines += [f"{e.path}:{e.line}: {e.words!r}: {e.better}" for e in found if area(e.path) == name]
            lines.append(
                f"{name}: {count} turns of phrase of tests/kit/english.toml, allowed are {allowed.get(name, 0)}"
            )
    return lines


def shrunk(text: str, numbers: Mapping[str, Mapping[str, int]], goals: Mapping[str, int]) -> str:
    """The list with lower numbers where less is left, and without areas that reach the goal of their section."""
    section = ""
    lines = []
    for line in text.splitlines(keepends=True):
        if line.startswith("["):
            section = line.strip("[]\n")
        row = re.fullmatch(r'"([^"]+)" = (\d+)\n', line)
        if row is None or section not in numbers:
            lines.append(line)
        elif (left := min(int(row[2]), numbers[section].get(row[1], 0))) > goals.get(section, 0):
            lines.append(f'"{row[1]}" = {left}\n')
    return "".join(lines)


def main(arguments: list[str]) -> int:
    """Check; with ``--shrink`` lower the numbers, with ``--measure`` print the measures."""
    text = LIST.read_text()
    table = tomllib.loads(text)
    found = look(rules(table), table["names"])
    areas = measure(re.compile(table["counted"]["pronouns"], re.IGNORECASE | re.VERBOSE))
    if "--measure" in arguments:
        sys.stdout.writelines(f"{name}: {m.words} words, {m.numbers()}\n" for name, m in areas.items())
        return 0
    if "--shrink" in arguments:
        numbers: dict[str, Mapping[str, int]] = {"allowed": Counter(area(each.path) for each in found)}
        numbers |= {key: {name: m.numbers()[key] for name, m in areas.items()} for key in MEASURES}
        LIST.write_text(shrunk(text, numbers, table["goals"]))
        return 0
    wrong = judged(found, table["allowed"]) + above(areas, table)
    sys.stdout.writelines(f"{line}\n" for line in wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
