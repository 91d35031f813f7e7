"""Help pages as plain, aligned text: the same on a terminal, in a pipe and in the documentation."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from muster.model.language import english, listed, say, translated
from muster_cli.registry import COMMANDS, GROUPS, ROOT

if TYPE_CHECKING:
    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions

MAX_WIDTH = 100
LABEL_WIDTH = 26
"""A longer label has its explanation on the next line."""


def overview(group: str = "", width: int = 0) -> str:
    """The page of ``muster``, or of a group of commands. The table of commands is enough for the page.

    ``width``: columns; 0 for the columns of the terminal.
    """
    width = width or terminal_width()
    page = GROUPS[group] if group else ROOT
    prefix = f"{group} " if group else ""
    under = [
        command
        for command in COMMANDS
        if command.name.startswith(prefix) and " " not in command.name.removeprefix(prefix)
    ]
    if not group:
        under += GROUPS.values()
    rows = [
        (command.name.removeprefix(prefix), translated(command.summary))
        for command in sorted(under, key=lambda command: command.order)
    ]
    parts = [
        f"{say('Usage:')} {' '.join(word for word in ('muster', group, 'COMMAND') if word)}\n",
        _paragraphs(page.help, width) + "\n",
        say("Commands:"),
        *table(rows, width),
        "",
        page.epilogue,
    ]
    return "\n".join(parts)


def names() -> list[str]:
    """Every command as typed, groups included."""
    return [page.name for page in COMMANDS] + list(GROUPS)


class PlainHelp:
    """cyclopts' help formatter, for the pages of single commands. ``width`` 0: that of the terminal."""

    def __init__(self, width: int = 0) -> None:
        self._width = width

    def render_usage(self, console: Console, options: ConsoleOptions, usage: Any) -> None:
        """``Usage: muster why [OPTIONS] JOB``."""
        if usage:
            _print(console, f"{say('Usage:')} {str(usage).strip().removeprefix('Usage:').strip()}\n")

    def render_description(self, console: Console, options: ConsoleOptions, description: Any) -> None:
        """What the command does, as paragraphs."""
        text = _plain(description, console).strip()
        if text:
            _print(console, _paragraphs(text, self._width or terminal_width()))

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """One group of options."""
        if panel.entries:
            _print(console, "\n" + say("{title}:", title=translated(str(panel.title))))
            rows = [(", ".join(_labels(entry)), _explanation(entry, console)) for entry in panel.entries]
            _print(console, "\n".join(table(rows, self._width or terminal_width())))


def table(rows: Sequence[tuple[str, str]], width: int) -> list[str]:
    """Labels with their explanations beside them."""
    column = min(LABEL_WIDTH, max(len(label) for label, _ in rows)) + 4
    lines = []
    for label, text in rows:
        wrapped = _wrapped(text, max(width - column, 30)) or [""]
        if len(label) + 4 > column:
            lines.append(f"  {label}")
        else:
            lines.append((f"  {label}".ljust(column) + wrapped.pop(0)).rstrip())
        lines += [" " * column + line for line in wrapped]
    return lines


def terminal_width() -> int:
    """Columns to use: those of the terminal, within reason."""
    import shutil  # It loads every compression; a command that answers needs none.

    return min(shutil.get_terminal_size((MAX_WIDTH, 24)).columns, MAX_WIDTH)


def _paragraphs(text: str, width: int) -> str:
    parts = (" ".join(part.split()) for part in text.split("\n\n"))
    return "\n\n".join("\n".join(_wrapped(part, width)) for part in parts)


def _wrapped(text: str, width: int) -> list[str]:
    if english():
        return textwrap.wrap(text, width)
    from muster_cli.console import wrapped  # Takes as long to import as `muster --help` takes.

    return wrapped(text, width)


def _labels(entry: HelpEntry) -> Iterable[str]:
    labels = sorted(entry.positive_names + entry.positive_shorts, key=len)
    if not labels:
        return [entry.positional_label or ""]
    negative = [name for name in entry.negative_names if not name.startswith("--empty-")]
    metavar = f" {entry.metavar}" if entry.metavar and not entry.choices else ""
    return [*labels[:-1], f"{labels[-1]}{metavar}", *negative]


def _explanation(entry: HelpEntry, console: Console) -> str:
    parts = [translated(" ".join(_plain(entry.description, console).split()))]
    if entry.choices:
        parts.append(say("One of {choices}.", choices=listed(entry.choices)))
    if entry.default not in (None, "False"):
        yes = entry.default == "True"
        parts.append(say("Default: yes.") if yes else say("Default: {value}.", value=entry.default))
    return (" " if english() else "").join(part for part in parts if part)


def _plain(text: Any, console: Console) -> str:
    if text is None:
        return ""
    if hasattr(text, "plain"):
        return str(text.plain)
    with console.capture() as capture:
        console.print(text, end="", highlight=False, markup=False, soft_wrap=True)
    return capture.get()


def _print(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
