"""The one thing that a name means, or an error that lists all it may mean."""

from __future__ import annotations

from collections.abc import Sequence

from muster.model.language import listed, say
from muster_cli.exits import USAGE, CliError

SHOWN = 10


def one_of(keys: Sequence[str], wanted: str) -> str:
    """The only one of jobs, pods or gangs: NAMESPACE/NAME. Raises CliError where there are more."""
    if len(keys) > 1:
        text = say(
            "{wanted} is not unique: there are {keys}; say which as NAMESPACE/NAME",
            wanted=wanted,
            keys=listed(keys[:SHOWN]),
        )
        raise CliError(text, USAGE)
    return keys[0]


def one_queue(paths: Sequence[str], wanted: str) -> str:
    """The only one of queues, by its path. Raises CliError where there are more."""
    if len(paths) > 1:
        text = say(
            "{wanted} is not unique: there are {matches}; give more of its path",
            wanted=wanted,
            matches=listed(paths[:SHOWN]),
        )
        raise CliError(text, USAGE)
    return paths[0]
