"""``muster simulate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from muster.simulation.faults import NO_FAULTS, read_faults
from muster.simulation.jobsfile import read_trace
from muster.simulation.machines import node_capacities
from muster.simulation.model import Trace
from muster.simulation.output import EVENTS, JOBS, REPORT, SUMMARY, write_jobs, write_summary
from muster.simulation.report import write_report
from muster.simulation.runner import ALL, MUSTER, Options, Result, delays_alone
from muster.simulation.runner import simulate as run_simulation
from muster_cli.console import Output
from muster_cli.exits import NOT_FOUND, USAGE, CliError
from muster_cli.render.simulations import comparison, figures
from muster_cli.waitbar import counting

EVERY = "all"


def simulate(
    *,
    cluster: Annotated[Path, Parameter(help="Nodes and queues: a JSON file, or a node list of the openb trace.")],
    jobs: Annotated[Path, Parameter(help="What arrives when: a CSV file, or a pod list of the openb trace.")],
    out: Annotated[Path, Parameter(help="Directory for the results; made when it is not there.")],
    policy: Annotated[str, Parameter(help=f"One of {', '.join(ALL)}; or all, for one table.")] = MUSTER,
    seed: Annotated[int, Parameter(help="Draws what is stopped when nodes are lost. Equal seeds, equal results.")] = 0,
    until: Annotated[
        float | None, Parameter(show_default=False, help="Stop after this many seconds of the trace.")
    ] = None,
    faults: Annotated[
        Path | None, Parameter(show_default=False, help="JSON file of nodes lost and outages of the API server.")
    ] = None,
    checkpoint_s: Annotated[
        float | None,
        Parameter(
            show_default=False,
            help="Seconds between two checkpoints of a running job; 0: it never loses work. Without it a job that is "
            "stopped starts again from nothing.",
        ),
    ] = None,
) -> None:
    """Run a job trace in virtual time."""
    if policy not in (*ALL, EVERY):
        raise CliError(f"there is no policy {policy!r}; there are {', '.join((*ALL, EVERY))}", USAGE)
    for option, value in (("--until", until), ("--checkpoint-s", checkpoint_s)):
        if value is not None and not 0 <= value < 10**10:
            raise CliError(f"{option} must be seconds from 0 on, and is {value:g}", USAGE)
    for path in (cluster, jobs, *([faults] if faults is not None else [])):
        if not path.is_file():
            raise CliError(f"cannot read {path}: there is no such file", NOT_FOUND)
    trace = read_trace(cluster, jobs)
    options = Options(
        seed=seed,
        until=None if until is None else round(until * 1000),
        checkpoint=None if checkpoint_s is None else round(checkpoint_s * 1000),
        faults=read_faults(faults, tuple(node_capacities(trace))) if faults is not None else NO_FAULTS,
    )
    out.mkdir(parents=True, exist_ok=True)
    shown = Output()
    if policy != EVERY:
        result = _run(trace, policy, options, out, None)
        shown.lines(figures(result))
        shown.note(f"wrote {EVENTS}, {JOBS}, {SUMMARY}, {REPORT} to {out}")
        return
    alone = delays_alone(trace)
    results = []
    for name in ALL:
        folder = out / name
        folder.mkdir(exist_ok=True)
        results.append(_run(trace, name, options, folder, alone))
    write_report(out / REPORT, results)
    shown.lines(comparison(results))
    shown.note(f"wrote {EVENTS}, {JOBS}, {SUMMARY}, {REPORT} of every policy to {out}, and {REPORT} of all")


def _run(trace: Trace, policy: str, options: Options, out: Path, alone: dict[str, float] | None) -> Result:
    with counting(f"Simulating {policy}", len(trace.jobs), "jobs") as progress:
        result = run_simulation(trace, policy, options, log=out / EVENTS, alone=alone, progress=progress)
    write_jobs(out / JOBS, result)
    write_report(out / REPORT, [result])
    write_summary(out / SUMMARY, result)
    return result
