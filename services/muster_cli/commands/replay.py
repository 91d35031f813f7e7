"""``muster replay``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from muster.core.deciders import DECIDERS
from muster.runtime.replay import replay as run_replay
from muster_cli.console import Output
from muster_cli.exits import OK, USAGE, VIOLATED, CliError
from muster_cli.logfiles import complete, existing, progress
from muster_cli.render.verdicts import replay_lines


def replay(
    *,
    log: Annotated[Path, Parameter(help="Exported log, plain or .gz.")],
    verify: Annotated[
        bool,
        Parameter(negative="", help="Decide at quiet positions too: a decision nobody made would be found."),
    ] = False,
    stage: Annotated[
        str, Parameter(show_default=False, help=f"Only this stage: {', '.join(DECIDERS)}. Without it: all.")
    ] = "",
) -> int:
    """Decide a recorded log again."""
    if stage and stage not in DECIDERS:
        raise CliError(f"there is no deciding stage {stage}; there are {', '.join(DECIDERS)}", USAGE)
    with progress(existing(log), "Replaying") as commits:
        report = run_replay(complete(log, commits), silences=verify, stages=(stage,) if stage else ())
    Output().lines(replay_lines(report))
    return VIOLATED if report.divergences or report.violations else OK
