"""The ends of commands: the exit codes, and the only exception with a message for people and a code."""

from __future__ import annotations

from muster.model.language import translated

OK = 0
FAILED = 1
USAGE = 2
NOT_FOUND = 3
FORBIDDEN = 4
VIOLATED = 5
TIMED_OUT = 6
INTERRUPTED = 130

MEANINGS: dict[int, str] = {
    OK: "done, and nothing is wrong",
    FAILED: "it could not be done; the message says what was tried and what to do",
    USAGE: "the command line or a setting is wrong; nothing was done",
    NOT_FOUND: "what you named does not exist: a job, a queue, a file, a log, a running Muster",
    FORBIDDEN: "the server refuses your credentials, or they may not do this",
    VIOLATED: "a replay diverged, an invariant is broken, a log is damaged, or a quota tree breaks a rule",
    TIMED_OUT: "what was waited for did not happen within --timeout",
    INTERRUPTED: "ended by Ctrl-C before it was done (`muster up` ends with 0 then)",
}
"""Exit code -> meaning, in the words of the documentation."""


class CliError(Exception):
    """The command cannot go on. ``message``: the attempt, the object, and the way out; lower case, no full stop."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


def for_help() -> str:
    """The exit codes as a block of a help page."""
    return "\n".join(f"  {code:>3}  {translated(meaning)}" for code, meaning in MEANINGS.items())
