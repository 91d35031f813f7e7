"""The output: results to stdout, everything else to stderr; colour only on a terminal that wants colour.

Every printed text is cleaned here: names and messages come from users' objects.
"""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TextIO

import msgspec
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from muster.model.language import english
from muster.model.text import clean
from muster.told.codes.codetable import Tone

BAD = "red"
WARN = "yellow"
GOOD = "green"
DIM = "bright_black"
STRONG = "bold"
LINK = "cyan"

TONES: Mapping[Tone, str] = {"good": GOOD, "waits": WARN, "act": BAD, "plain": ""}
"""How a code of the status of a job or a gang looks -> its colour."""

WORDS: Mapping[str, str] = {
    "queued": WARN,
    "waits": WARN,
    "left": DIM,
    "admitted": GOOD,
    "would admit": GOOD,
    "resumed": GOOD,
    "running": GOOD,
    "finished": STRONG,
    "released": LINK,
    "refused": BAD,
    "not resumed": BAD,
    "not stopped": BAD,
    "not bound": BAD,
    "held back": WARN,
    "placed": GOOD,
    "unreadable": BAD,
    "suspended": BAD,
    "adopted": LINK,
    "quota tree": STRONG,
}
"""Word of an event -> its colour."""


class Output:
    """stdout and stderr of one run of the command."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self.stdout = out or sys.stdout
        self.stderr = err or sys.stderr
        self.is_terminal = self.stdout.isatty()
        self._out = _console(self.stdout)
        self._err = _console(self.stderr)

    @property
    def width(self) -> int:
        """Columns of the terminal; wide where there is none, so that nothing is cut in a pipe."""
        return self._out.width if self.is_terminal else 200

    @property
    def unicode(self) -> bool:
        """Whether stdout takes more than ASCII."""
        return (self.stdout.encoding or "ascii").lower().replace("-", "").startswith("utf")

    def line(self, text: Text | str = "") -> None:
        """One line of the result."""
        self._out.print(cleaned(text), soft_wrap=True, highlight=False, markup=False, emoji=False)

    def lines(self, texts: Sequence[Text | str]) -> None:
        for text in texts:
            self.line(text)

    def plain(self, texts: Sequence[str]) -> None:
        """Many lines of the result, without styles: ten thousand of them in a blink."""
        self.stdout.write("".join(f"{clean(text)}\n" for text in texts))
        self.stdout.flush()

    def note(self, text: Text | str) -> None:
        """One line beside the result, on stderr."""
        self._err.print(cleaned(text), soft_wrap=True, highlight=False, markup=False, emoji=False)

    def data(self, value: Any, form: Literal["json", "yaml"]) -> None:
        """A value for programs. Control characters stay inside it, escaped."""
        if form == "yaml":
            import yaml

            self.stdout.write(yaml.safe_dump(value, sort_keys=False, allow_unicode=self.unicode, width=1000))
        elif self.unicode:
            self.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")
        else:
            self.stdout.write(json.dumps(value, indent=2) + "\n")
        self.stdout.flush()

    def record(self, value: Any) -> None:
        """A value for programs as one line of JSON."""
        self.stdout.write(json.dumps(value, ensure_ascii=not self.unicode, separators=(",", ":")) + "\n")
        self.stdout.flush()


def cleaned(text: Text | str) -> Text:
    """The text without terminal control characters; the styles keep their places."""
    if isinstance(text, str):
        return Text(clean(text))
    text.plain = clean(text.plain)
    return text


def styled(*parts: str | tuple[str, str]) -> Text:
    """A text of plain parts and (part, style) pairs."""
    return Text.assemble(*parts)


def columns(rows: Sequence[Sequence[Text | str]], *, gap: int = 2, indent: int = 0) -> list[Text]:
    """Rows as lines with aligned columns; the last column is as long as it is."""
    texts = [[cell if isinstance(cell, Text) else Text(cell) for cell in row] for row in rows]
    widths = [max((row[i].cell_len for row in texts if i < len(row) - 1), default=0) for i in range(_most(texts))]
    lines = []
    for row in texts:
        line = Text(" " * indent)
        for index, cell in enumerate(row):
            line.append_text(cell)
            if index < len(row) - 1:
                line.append(" " * (widths[index] - cell.cell_len + gap))
        line.rstrip()
        lines.append(line)
    return lines


def padded(text: str, width: int) -> str:
    """A text that fills so many columns of a terminal: a Chinese letter takes two."""
    return text + " " * max(0, width - cell_len(text))


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most ``width`` columns. English is cut at blanks, Chinese between any two letters."""
    if text.isascii() or english():
        return textwrap.wrap(text, width)
    lines, line = [], ""
    for piece in _PIECES.findall(text):
        if line and cell_len(line) + cell_len(piece.rstrip()) > width and piece not in _CLOSING:
            lines.append(line.rstrip())
            line = ""
        line += piece
    return [*lines, line.rstrip()] if line.strip() else lines


_PIECES = re.compile(r"[!-~…—]+ ?|[“（]?.", re.DOTALL)
"""A word of Latin letters, or one other letter."""
_CLOSING = "，。；：、）”"
"""What begins no line."""


def _most(rows: Sequence[Sequence[Text]]) -> int:
    return max((len(row) for row in rows), default=0)


class _Pipe(Console):
    """rich ends the process when the pipe is closed; this command decides whether that is an error."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def _console(file: TextIO) -> Console:
    terminal = file.isatty()
    plain = not terminal or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return _Pipe(
        file=file,
        force_terminal=terminal and not plain,
        color_system="auto" if not plain else None,
        no_color=plain,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
