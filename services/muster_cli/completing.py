"""Proposals for the word at the cursor: for ``kubectl muster``, whose plugins answer one question at a time.

kubectl runs ``kubectl_complete-muster`` with the words so far, the last word unfinished. kubectl reads one proposal per
line, with an explanation after a tab; the last line is a number that tells the shell how to use the proposals.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from muster_cli.registry import COMMANDS, GROUPS

TABLE = Path(__file__).with_name("options.json")
"""Written by `make schemas`: a shell that asks for proposals does not wait for the import of a command."""
NO_FILES = ":4"
FILES = ":0"
"""Directives of kubectl's shell completion: no file names, or file names as well."""


def kubectl() -> None:
    """Entry point of ``kubectl_complete-muster``. An error means no proposals: a shell waits for the answer."""
    proposals, directive = proposed(sys.argv[1:])
    sys.stdout.writelines(f"{line}\n" for line in (*proposals, directive))


def proposed(words: Sequence[str]) -> tuple[list[str], str]:
    """The proposals for the last of the words, which may be empty, and the directive."""
    *before, last = words or [""]
    name, known = _command(before)
    if not known:
        return [line for line in _names(name) if line.startswith(last)], NO_FILES
    options: dict[str, list[str]] = json.loads(TABLE.read_text())[name]
    if before and before[-1] in options:
        values = _values(before[-1], options[before[-1]])
        return [value for value in values if value.startswith(last)], NO_FILES if values else FILES
    if last.startswith("-"):
        return [option for option in sorted(options) if option.startswith(last)], NO_FILES
    return [value for value in _values("", options.get("", ())) if value.startswith(last)], FILES


def _command(before: Sequence[str]) -> tuple[str, bool]:
    """The command in the words so far, and whether the command is complete."""
    words = [word for word in before[:2] if not word.startswith("-")]
    name = " ".join(words if words and words[0] in GROUPS else words[:1])
    return name, any(page.name == name for page in COMMANDS)


def _names(group: str) -> Iterator[str]:
    """The commands of a group, or all of the first level, with their purpose."""
    prefix = f"{group} " if group in GROUPS else ""
    for page in (*COMMANDS, *(() if prefix else GROUPS.values())):
        rest = page.name.removeprefix(prefix)
        if page.name.startswith(prefix) and " " not in rest:
            yield f"{rest}\t{page.summary}"


def table() -> str:
    """The text of TABLE: {command: {option: allowed values}}. The values of arguments are under an empty name."""
    return json.dumps({page.name: dict(_options(page.name)) for page in COMMANDS}, indent=1) + "\n"


def _options(name: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    from muster_cli.main import make_app

    app = make_app()
    for word in name.split():
        app = app[word]
    for argument in app.assemble_argument_collection():
        choices = tuple(argument.get_choices() or ())
        positional = argument.field_info.is_positional_only
        for option in ("",) if positional else argument.names:
            yield option, choices


def _values(option: str, choices: Sequence[str]) -> list[str]:
    if option == "--context":
        return _contexts()
    return list(choices)


def _contexts() -> list[str]:
    """The contexts of the kubeconfig of the shell; none where it cannot be read."""
    from muster.kube import kubeconfig
    from muster.kube.errors import KubeConfigError

    try:
        return sorted(kubeconfig.read(kubeconfig.locate("", os.environ)).contexts)
    except (KubeConfigError, OSError):
        return []
