"""``muster diff``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from muster.runtime.canonical import difference
from muster_cli.console import Output
from muster_cli.exits import OK, VIOLATED
from muster_cli.logfiles import complete, existing, progress
from muster_cli.render.verdicts import difference_lines


def diff(
    one: Annotated[Path, Parameter(help="Exported log, plain or .gz.")],
    other: Annotated[Path, Parameter(help="Another one.")],
    /,
) -> int:
    """Compare what two logs lead to."""
    with progress(existing(one), "Deciding") as left, progress(existing(other), "Deciding") as right:
        found, same = difference(complete(one, left), complete(other, right))
    Output().lines(difference_lines(found, same, (str(one), str(other))))
    return VIOLATED if found is not None else OK
