"""The files of the recorded histories: logs as ``muster export`` writes them, and a line about each in digests.txt."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from muster.events.envelope import Stored
from muster.events.registry import encode
from muster.runtime.logkeeping.logfile import LogWriter, read_log

FOLDER = Path(__file__).parents[2] / "histories"
DIGESTS = "digests.txt"
ENDING = ".jsonl.gz"
HEAD = """\
# What the recorded histories decide: the digest is over every decision, in order.
# A line changes only in a commit that says which decision changed and why; `make histories ARGS=NAME` writes it.
"""


class Line(Struct, frozen=True):
    """What is said of one history. ``manner``: see Recipe."""

    name: str
    manner: str
    commits: int
    decisions: int
    digest: str

    def __str__(self) -> str:
        return f"{self.name:<56} {self.manner:<8} {self.commits:>6} {self.decisions:>6} {self.digest}"


def line_of(name: str, manner: str, log: Iterable[Stored]) -> Line:
    """The line of a history whose log is this."""
    commits = decisions = 0
    digest = hashlib.sha256()
    for stored in log:
        commits += 1
        if stored.commit.kind == "decision":
            decisions += 1
            digest.update(f"{stored.commit.stage} {stored.commit.in_seq} ".encode() + encode(stored.commit.events))
    return Line(name, manner, commits, decisions, digest.hexdigest()[:16])


def path_of(name: str, folder: Path = FOLDER) -> Path:
    return folder / f"{name}{ENDING}"


def names_in(folder: Path = FOLDER) -> list[str]:
    """The histories that have a file."""
    return sorted(path.name.removesuffix(ENDING) for path in folder.glob(f"*{ENDING}"))


def read(name: str, folder: Path = FOLDER) -> list[Stored]:
    return list(read_log(path_of(name, folder)))


def write(log: Iterable[Stored], path: Path) -> None:
    """Write a log: equal logs are equal bytes."""
    with path.open("wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
        writer = LogWriter(packed)
        for stored in log:
            writer.write(stored)


def read_lines(folder: Path = FOLDER) -> dict[str, Line]:
    """{name: line} of digests.txt."""
    path, found = folder / DIGESTS, {}
    for text in path.read_text().splitlines() if path.exists() else ():
        if text and not text.startswith("#"):
            name, manner, commits, decisions, digest = text.split()
            found[name] = Line(name, manner, int(commits), int(decisions), digest)
    return found


def write_lines(lines: dict[str, Line], folder: Path = FOLDER) -> None:
    body = "".join(f"{lines[name]}\n" for name in sorted(lines))
    (folder / DIGESTS).write_text(HEAD + body)
