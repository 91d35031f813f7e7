"""The ``muster`` command: finds the subcommand, runs the subcommand, and turns an error into one line and an exit
code.

Subcommands are imported for a run. Pages that only list commands need no parser: ``muster --help`` answers at once.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from muster.model.language import say
from muster_cli import exits
from muster_cli.exits import CliError
from muster_cli.helping import PlainHelp, names, overview
from muster_cli.page import Page
from muster_cli.registry import COMMANDS, GROUPS

if TYPE_CHECKING:
    import inspect

    from cyclopts import App

HELP = ("--help", "-h")


def main() -> None:
    """Entry point of ``muster``, and of ``kubectl muster``."""
    from muster.languages import catalogue, of_terminal
    from muster.model.language import speak

    speak(catalogue(of_terminal(os.environ)))
    gc.disable()  # Importing leaves nothing to be collected, and looking for it takes a fifth of that time.
    sys.exit(run(sys.argv[1:]))


def run(tokens: Sequence[str]) -> int:
    """Run one command line; returns its exit code."""
    tokens = list(tokens)
    if tokens[:1] == ["help"]:
        tokens = [*tokens[1:], "--help"]
    if tokens == ["--version"]:
        tokens = ["version"]
    try:
        page = _overview(tokens)
        if page is not None:
            print(page)
            return exits.OK
        return _run(tokens)
    except BrokenPipeError:
        # The reader of our output has enough (`muster tail | head`).
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.OK
    except KeyboardInterrupt:
        return exits.INTERRUPTED


def make_app(width: int = 0, *, only: str = "") -> App:
    """The command line as cyclopts sees it. Imports no command.

    ``width`` of help pages; 0: the terminal's. ``only``: the single command to register; to register all takes longer
    than to parse one.
    """
    from cyclopts import App, Group
    from rich.console import Console

    app = App(
        name="muster",
        help_format="plaintext",
        help_formatter=PlainHelp(width),
        help_on_error=False,
        group_arguments=Group("Arguments", sort_key=1),
        group_parameters=Group("Options", sort_key=2),
        version_flags=(),
        result_action="return_value",
        print_error=False,
        exit_on_error=False,
        # Lines of examples stay whole; paragraphs are wrapped by the formatter.
        console=Console(width=200, highlight=False),
    )
    pages = [page for page in COMMANDS if only in ("", page.name)]
    wanted = {page.name.rpartition(" ")[0] for page in pages}
    groups = {name: App(name=name, version_flags=()) for name in GROUPS if name in wanted}
    for group in groups.values():
        app.command(group)
    for page in pages:
        group_name, _, name = page.name.rpartition(" ")
        _register(groups[group_name] if group_name else app, name, page)
    return app


def _register(parent: App, name: str, page: Page) -> None:
    path = f"muster_cli.commands.{page.module}:{page.function}"
    parent.command(path, name=name, help=page.help, help_epilogue=page.epilogue)


def _overview(tokens: list[str]) -> str | None:
    """The page that lists commands, if the user asks for the page."""
    asked = [token for token in tokens if token not in HELP]
    if not asked:
        return overview()
    if asked[0] in GROUPS and len(asked) == 1:
        return overview(asked[0])
    return None


def _run(tokens: list[str]) -> int:
    name, known = name_of(tokens)
    if not known:
        return _unknown(name)
    from cyclopts import CycloptsError

    try:
        command, bound, _ = make_app(only=name).parse_args(tokens)
    except CycloptsError as err:
        from muster_cli.mistakes import mistake

        _complain(f"muster {name}", say("{error}; see `muster {name} --help`", error=mistake(err), name=name))
        return exits.USAGE
    gc.freeze()  # What was imported lives as long as the command.
    gc.enable()
    return _call(f"muster {name}", command, bound)


def name_of(tokens: Sequence[str]) -> tuple[str, bool]:
    """The command in a line, such as ``queue tree``, and whether the command exists."""
    words = [token for token in tokens[:2] if not token.startswith("-")]
    if words and words[0] in GROUPS:
        words = words[:2]
    name = " ".join(words if words and words[0] in GROUPS else words[:1])
    return name, any(page.name == name for page in COMMANDS)


def _unknown(name: str) -> int:
    from difflib import get_close_matches

    if name in GROUPS:  # An option is before its command.
        parts = [f"`muster {command}`" for command in names() if command.startswith(f"{name} ")]
        _complain("muster", say("give a command of `muster {name}`: {parts}", name=name, parts=say(" or ").join(parts)))
        return exits.USAGE
    close = get_close_matches(name, names(), n=3, cutoff=0.5)
    hint = (
        say("did you mean {close}?", close=say(" or ").join(f"`muster {command}`" for command in close))
        if close
        else say("see `muster --help`")
    )
    _complain(
        "muster",
        say("there is no command {name!r}; {hint}", name=name, hint=hint)
        if name
        else say("options come after a command; see `muster --help`"),
    )
    return exits.USAGE


def _call(name: str, command: Callable[..., Any], bound: inspect.BoundArguments) -> int:
    """Call the command, and report an error in one line."""
    import asyncio
    from inspect import iscoroutine

    try:
        result = command(*bound.args, **bound.kwargs)
        if iscoroutine(result):
            result = asyncio.run(result)
        sys.stdout.flush()
    except CliError as err:
        _complain(name, str(err))
        return err.code
    except BrokenPipeError:
        raise
    except Exception as err:
        code = _code_of(err)
        if code is None:
            raise
        _complain(name, str(err))
        return code
    return result if isinstance(result, int) else exits.OK


def _code_of(err: Exception) -> int | None:
    """The exit code of an expected error; None for a bug."""
    from muster.bus.errors import BusError, ForbiddenError, UnansweredError
    from muster.events.envelope import UnknownEventError, UnreadableCommitError
    from muster.kube.errors import KubeConfigError
    from muster.ports import ApiStatusError, ApiUnreachableError, LogGapError, LogGoneError, RollError
    from muster.runtime.config import ConfigError
    from muster.runtime.logkeeping.archive import ArchiveError
    from muster.runtime.logkeeping.logfile import LogFileError
    from muster.runtime.logkeeping.pruning import PruneError
    from muster.tracesim.model import TraceError

    match err:
        case ConfigError():
            return exits.USAGE
        case ForbiddenError():
            return exits.FORBIDDEN
        case ApiStatusError():
            return {401: exits.FORBIDDEN, 403: exits.FORBIDDEN, 404: exits.NOT_FOUND}.get(err.status, exits.FAILED)
        case LogGoneError() | FileNotFoundError():
            return exits.NOT_FOUND
        case LogGapError():
            return exits.VIOLATED
        case (
            BusError()
            | UnansweredError()
            | KubeConfigError()
            | ApiUnreachableError()
            | LogFileError()
            | RollError()
            | PruneError()
            | ArchiveError()
            | TraceError()
            | UnknownEventError()
            | UnreadableCommitError()
            | OSError()
        ):
            return exits.FAILED
    return None


def _complain(name: str, message: str) -> None:
    from muster_cli.console import BAD, Output, styled

    lowered = message[:1].lower() + message[1:] if message[1:2].islower() else message
    Output().note(styled((f"{name}: ", BAD), lowered))
