"""What the help of a command says."""

from __future__ import annotations

import re
from dataclasses import dataclass

from muster.model.language import say, translated


@dataclass(frozen=True)
class Page:
    """A command and its help. ``name``: as typed, e.g. ``queue tree``."""

    name: str
    summary: str
    details: str
    examples: str
    function: str = ""
    order: int = 0
    file: str = ""
    """The module, where the module has another name than the command."""

    @property
    def module(self) -> str:
        return self.file or self.name.replace(" ", "_")

    @property
    def help(self) -> str:
        """In the language of the reader, a paragraph at a time."""
        parts = (self.summary, *self.details.split("\n\n"))
        return "\n\n".join(translated(part) for part in parts if part)

    @property
    def epilogue(self) -> str:
        return f"{say('Examples:')}\n{indented(self.examples)}" if self.examples else ""


def indented(text: str) -> str:
    """A block of a help page: commands, each with a remark behind two blanks or none."""
    return "\n".join(f"  {_remarked(line)}" if line else "" for line in text.strip().splitlines())


def _remarked(line: str) -> str:
    command, gap, remark = _REMARK.fullmatch(line).groups()  # type: ignore[union-attr]
    return f"{command}{gap}{translated(remark)}" if remark else command


_REMARK = re.compile(r"(.*?)(?:(\s{2,})(\S.*))?")
