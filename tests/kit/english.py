"""The word list of `make lint`: turns of phrase that keep newcomers out, in docs, help, messages and docstrings.

``english.toml`` has the rules and, for each area of the repository that is not clean yet, how many findings it may
still have. An area may only get better: ``python -m kit.english --shrink`` lowers the numbers to what is there.
"""

from __future__ import annotations

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


class Finding(NamedTuple):
    """One turn of phrase. ``path``: from the root of the repository."""

    path: str
    line: int
    words: str
    better: str


def area(path: str) -> str:
    """The area of a path: ``libs/muster/core/quota``, ``libs/muster/kube``, ``docs/howto``, ``README.md``."""
    parts = path.split("/")
    depth = {"libs": 4 if parts[:3] == ["libs", "muster", "core"] else 3, "services": 2, "docs": 2}
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


def files() -> Iterator[Path]:
    """Everything that is read, generated pages left out: they are made of what is read."""
    for place in PLACES:
        path = ROOT / place
        for found in [path] if path.is_file() else sorted(path.rglob("*")):
            if found.suffix in KINDS and not (found.suffix == ".md" and found.read_text()[:100].startswith("<!-- ")):
                yield found


def look(patterns: list[tuple[re.Pattern[str], str]]) -> list[Finding]:
    """Every finding of the repository, in order."""
    return [
        each
        for path in files()
        for each in sorted(found_in(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"), patterns))
    ]


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


def shrunk(text: str, counts: Mapping[str, int]) -> str:
    """The list with lower numbers where fewer are left, and without areas that are clean."""

    def lower(match: re.Match[str]) -> str:
        left = min(int(match[2]), counts.get(match[1], 0))
        return f'"{match[1]}" = {left}\n' if left else ""

    head, title, tail = text.partition("[allowed]\n")
    return head + title + re.sub(r'^"([^"]+)" = (\d+)\n', lower, tail, flags=re.MULTILINE)


def main(arguments: list[str]) -> int:
    """Check, or with ``--shrink`` lower the numbers."""
    text = LIST.read_text()
    table = tomllib.loads(text)
    found = look(rules(table))
    if "--shrink" in arguments:
        LIST.write_text(shrunk(text, Counter(area(each.path) for each in found)))
        return 0
    wrong = judged(found, table["allowed"])
    sys.stdout.writelines(f"{line}\n" for line in wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
