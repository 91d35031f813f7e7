"""``muster decide``."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter
from msgspec import to_builtins

from muster.tracesim.decide.reading import read_state
from muster.tracesim.decide.run import decide as ask
from muster.tracesim.decide.situation import StateFileError
from muster_cli.console import Output
from muster_cli.exits import CliError
from muster_cli.render.deciding import answer_lines
from muster_cli.textfiles import text_of
from muster_cli.waitbar import counting


def decide(
    *,
    state: Annotated[
        str,
        Parameter(
            allow_leading_hyphen=True, help="YAML or JSON file of nodes, queues and jobs as they are now; - for stdin."
        ),
    ],
    output: Annotated[
        Literal["table", "json", "yaml"],
        Parameter(name=["--output", "-o"], help="How to print it: a table for people, the others for programs."),
    ] = "table",
) -> None:
    """Ask what would be decided about a state, without a cluster."""
    out = Output()
    try:
        situation = read_state(text_of(state), "stdin" if state == "-" else state)
    except StateFileError as err:
        raise CliError(str(err)) from err
    pods = sum(len(unit.pods) for job in situation.jobs for unit in job.units)
    with counting("Deciding", pods, "pods") as done:
        answer = ask(situation, done)
    if output == "table":
        out.lines(answer_lines(answer))
    else:
        out.data(to_builtins(answer), output)
