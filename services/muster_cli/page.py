"""What the help of a command says."""

from __future__ import annotations

from dataclasses import dataclass


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
        return f"{self.summary}\n\n{self.details}" if self.details else self.summary

    @property
    def epilogue(self) -> str:
        return f"Examples:\n{indented(self.examples)}" if self.examples else ""


def indented(text: str) -> str:
    """A block of a help page."""
    return "\n".join(f"  {line}" if line else "" for line in text.strip().splitlines())
