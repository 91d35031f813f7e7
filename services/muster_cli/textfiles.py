"""Text that a command is given: of a file, or of standard input."""

from __future__ import annotations

import sys
from pathlib import Path

from muster.model.language import say
from muster_cli.exits import NOT_FOUND, CliError


def text_of(name: str) -> str:
    """The text of a file; ``-``: of standard input. Raises CliError."""
    return sys.stdin.read() if name == "-" else file_text(name)


def file_text(path: Path | str) -> str:
    """The text of a file in UTF-8. Raises CliError."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CliError(say("cannot read {path}: there is no such file", path=path), NOT_FOUND) from None
    except (OSError, UnicodeDecodeError) as err:
        raise CliError(say("cannot read {path}: {err}", path=path, err=err)) from err
