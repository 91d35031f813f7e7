"""``muster diff``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from muster.model.language import listed, say
from muster.runtime.replaying.canonical import difference
from muster.tracesim.changes import changed_rules, known_ruleset, otherwise
from muster_cli.console import Output
from muster_cli.exits import OK, USAGE, VIOLATED, CliError
from muster_cli.logfiles import complete, existing, progress
from muster_cli.options import pair
from muster_cli.render.verdicts import difference_lines


def diff(
    one: Annotated[Path, Parameter(help="Exported log (a file, plain or .gz), or a folder of segments.")],
    other: Annotated[
        Path | None, Parameter(help="Another one. Without it, and with a change: the same, as it was and changed.")
    ] = None,
    /,
    *,
    rule: Annotated[
        tuple[str, ...],
        Parameter(
            show_default=False,
            help="NAME=VALUE: the second side has another rule of the tree, as its annotation muster.dev/NAME; an "
            "empty VALUE takes it away. Repeatable.",
        ),
    ] = (),
    ruleset: Annotated[
        int | None, Parameter(show_default=False, help="The second side is decided by this rule set.")
    ] = None,
) -> int:
    """Compare what two logs lead to."""
    if other is None and not rule and ruleset is None:
        raise CliError(say("give another log, or a change: --rule or --ruleset"), USAGE)
    rules = dict(pair("--rule", text, "reclaim=disabled") for text in rule)
    changed_rules({}, rules)
    number = known_ruleset(ruleset) if ruleset is not None else 0
    second = other or one
    changes = [
        *(f"{name}={value}" for name, value in rules.items()),
        *([say("rule set {number}", number=number)] if number else []),
    ]
    names = (str(one), say("{log} with {changes}", log=second, changes=listed(changes)) if changes else str(second))
    with progress(existing(one), "Deciding") as left, progress(existing(second), "", quiet=True) as right:
        changed = otherwise(complete(second, right), rules, number)
        # That a tree has other rules is the change itself.
        first, same = difference(complete(one, left), changed, but=("quota_tree_accepted",) if rules else ())
    Output().lines(difference_lines(first, same, names))
    return VIOLATED if first is not None else OK
