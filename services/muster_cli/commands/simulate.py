"""``muster simulate``."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from msgspec.structs import replace

from muster.core.quota.trees.rules import KNOWN
from muster.model.language import listed, say
from muster.tracesim import transforms
from muster.tracesim.days import CHECKPOINT_MS, FAMILIES, OPTIONS, Day, draw
from muster.tracesim.days import parse as parse_day
from muster.tracesim.days import write as write_day
from muster.tracesim.faults import NO_FAULTS, FaultSchedule, read_faults
from muster.tracesim.jobsfile import read_trace
from muster.tracesim.limits import too_large_text
from muster.tracesim.machines import node_capacities
from muster.tracesim.model import Trace, TraceError
from muster.tracesim.output import EVENTS, JOBS, REPORT, SUMMARY, write_jobs, write_summary
from muster.tracesim.report import write_report
from muster.tracesim.runner import ALL, MUSTER, Options, Result, delays_alone
from muster.tracesim.runner import simulate as run_simulation
from muster.tracesim.stops import ALL_OF_THEM, Stops
from muster_cli.console import Output
from muster_cli.exits import NOT_FOUND, USAGE, CliError
from muster_cli.render.simulations import comparison, curve, figures
from muster_cli.waitbar import counting

EVERY = "all"


def simulate(
    *,
    out: Annotated[Path, Parameter(help="Directory for the results; made when it is not there.")],
    cluster: Annotated[
        Path | None,
        Parameter(show_default=False, help="Nodes and queues: a JSON file, or a node list of the openb trace."),
    ] = None,
    jobs: Annotated[
        Path | None,
        Parameter(
            show_default=False,
            help="What arrives when: a CSV file, what `sacct -P` prints, SWF, or a pod list of the openb trace.",
        ),
    ] = None,
    day: Annotated[
        str | None,
        Parameter(
            show_default=False,
            help=f"Instead of --cluster and --jobs, a day drawn by chance: FAMILY[:SEED][,OPTION...], such as "
            f"helios:7,linked,placement=pack. Families: {', '.join(FAMILIES)}. Options: {', '.join(OPTIONS)}.",
        ),
    ] = None,
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
    checkpointing: Annotated[
        float, Parameter(help="Which part of the jobs makes checkpoints, from 0 to 1; drawn by their names.")
    ] = 1.0,
    stopping_s: Annotated[
        float, Parameter(help="Seconds an evicted job holds its resources until it has stopped.")
    ] = 30.0,
    restart_s: Annotated[
        float, Parameter(help="Seconds an evicted job takes to work again once it is admitted.")
    ] = 60.0,
    arrivals: Annotated[float, Parameter(help="How much denser jobs arrive: 1.3 for 30 % more at a time.")] = 1.0,
    sizes: Annotated[float, Parameter(help="How much more each job asks for, within what its queue may use.")] = 1.0,
    merge_queues: Annotated[
        bool, Parameter(negative=(), help="Put all jobs into one queue that may use it all.")
    ] = False,
    no_guarantees: Annotated[
        bool, Parameter(negative=(), help="Leave the queues as they are, and guarantee nothing to any.")
    ] = False,
    rule: Annotated[
        list[str] | None,
        Parameter(
            negative=(),
            show_default=False,
            help="An annotation muster.dev/RULE of the quota tree, as RULE=VALUE; with several values, RULE=V1,V2,..., "
            "muster is run with each and one table is printed. May be repeated.",
        ),
    ] = None,
) -> None:
    """Run a job trace in virtual time."""
    if policy not in (*ALL, EVERY):
        raise CliError(
            say("there is no policy {policy!r}; there are {policies}", policy=policy, policies=listed((*ALL, EVERY))),
            USAGE,
        )
    _within("seconds", 0, 10_000_000, until=until, checkpoint_s=checkpoint_s)
    _within("seconds", 0, 10_000_000, stopping_s=stopping_s, restart_s=restart_s)
    _within(say("a part"), 0, 1, checkpointing=checkpointing)
    _within(say("a factor"), 0.01, 100, arrivals=arrivals, sizes=sizes)
    for path in (cluster, jobs, faults):
        if path is not None and not path.is_file():
            raise CliError(say("cannot read {path}: there is no such file", path=path), NOT_FOUND)
    drawn = _drawn(day, cluster, jobs)
    trace = drawn.trace if drawn is not None else _read(cluster, jobs)
    if merge_queues:
        trace = transforms.merged(trace)
    if no_guarantees:
        trace = transforms.without_guarantees(trace)
    trace = transforms.closer(trace, Fraction(str(arrivals)))
    trace = transforms.larger(trace, Fraction(str(sizes)))
    trace, swept = _ruled(trace, rule or [])
    checkpoint, part = _saving(drawn, checkpoint_s, checkpointing)
    options = Options(
        seed=seed,
        until=None if until is None else round(until * 1000),
        stops=Stops(
            checkpoint=checkpoint,
            checkpointing=part,
            stopping=round(stopping_s * 1000),
            restart=round(restart_s * 1000),
        ),
        faults=_faults(drawn, faults, trace),
    )
    out.mkdir(parents=True, exist_ok=True)
    shown = Output()
    if drawn is not None:
        shown.note(
            say(
                "wrote the day to {out}: {files}; change it, and pass it to --cluster ...",
                out=out,
                files=listed(write_day(out, drawn)),
            )
        )
    never = too_large_text(trace)
    if never:
        shown.note(never)
    if swept:
        if policy != MUSTER:
            raise CliError(
                say(
                    "--rule with several values runs policy {muster} alone, and --policy says {policy}",
                    muster=MUSTER,
                    policy=policy,
                ),
                USAGE,
            )
        _sweep(trace, swept, options, out, shown)
        return
    if policy != EVERY:
        result = _run(trace, policy, options, out, None)
        shown.lines(figures(result))
        shown.note(
            say(
                "wrote {events}, {jobs}, {summary}, {report} to {out}",
                events=EVENTS,
                jobs=JOBS,
                summary=SUMMARY,
                report=REPORT,
                out=out,
            )
        )
        return
    alone = delays_alone(trace)
    results = []
    for name in ALL:
        folder = out / name
        folder.mkdir(exist_ok=True)
        results.append(_run(trace, name, options, folder, alone))
    write_report(out / REPORT, results)
    shown.lines(comparison(results))
    shown.note(
        say(
            "wrote {events}, {jobs}, {summary}, {report} of every policy to {out}, and {report} of all",
            events=EVENTS,
            jobs=JOBS,
            summary=SUMMARY,
            report=REPORT,
            out=out,
        )
    )


def _drawn(day: str | None, cluster: Path | None, jobs: Path | None) -> Day | None:
    """The day of ``--day``; None where files are named instead."""
    if day is None:
        return None
    if cluster is not None or jobs is not None:
        raise CliError(say("--day draws nodes, queues and jobs; leave out --cluster and --jobs, or --day"), USAGE)
    try:
        return draw(parse_day(day))
    except TraceError as err:
        raise CliError(say("--day {day}: {err}", day=day, err=err), USAGE) from err


def _read(cluster: Path | None, jobs: Path | None) -> Trace:
    if cluster is None or jobs is None:
        missing = say(" and ").join(name for name, path in (("--cluster", cluster), ("--jobs", jobs)) if path is None)
        told = say("there is no {missing}: name your files, or draw a day, such as --day helios:7", missing=missing)
        raise CliError(told, USAGE)
    return read_trace(cluster, jobs)


def _saving(drawn: Day | None, checkpoint_s: float | None, checkpointing: float) -> tuple[int | None, int]:
    """(ms between checkpoints, jobs of a thousand that make any) of the options, else of the day."""
    if checkpoint_s is None and drawn is not None and drawn.wish.checkpoints:
        return CHECKPOINT_MS, drawn.wish.checkpoints
    return None if checkpoint_s is None else round(checkpoint_s * 1000), round(checkpointing * ALL_OF_THEM)


def _faults(drawn: Day | None, path: Path | None, trace: Trace) -> FaultSchedule:
    """The faults of the file, else those of the day."""
    if path is not None:
        return read_faults(path, tuple(node_capacities(trace)))
    return drawn.faults if drawn is not None else NO_FAULTS


def _within(quantity: str, low: float, high: float, **options: float | None) -> None:
    """Refuse the first option that is not between two values."""
    for name, value in options.items():
        if value is not None and not low <= value <= high:
            told = f"--{name.replace('_', '-')}"
            raise CliError(
                say(
                    "{option} must be {quantity} from {low:g} to {high:g}, and is {given:g}",
                    option=told,
                    quantity=quantity,
                    low=low,
                    high=high,
                    given=value,
                ),
                USAGE,
            )


def _ruled(trace: Trace, given: list[str]) -> tuple[Trace, tuple[str, list[str]] | None]:
    """The trace under the rules with one value, and the rule with several values."""
    rules, swept = dict(trace.cluster.rules), None
    for text in given:
        name, _, values = text.partition("=")
        if name not in KNOWN or not values:
            known = listed(sorted(KNOWN))
            raise CliError(
                say("--rule {words!r} is not RULE=VALUE with one of the rules {known}", words=text, known=known), USAGE
            )
        several = values.split(",")
        if len(several) > 1 and swept is not None:
            raise CliError(
                say("--rule: both {swept} and {name} have several values; give them to one", swept=swept[0], name=name),
                USAGE,
            )
        if len(several) > 1:
            swept = name, several
        else:
            rules[name] = values
    return Trace(replace(trace.cluster, rules=rules), trace.jobs), swept


def _sweep(trace: Trace, swept: tuple[str, list[str]], options: Options, out: Path, shown: Output) -> None:
    """One run for each value of a rule, and the curve as a table."""
    name, values = swept
    results = []
    for index, value in enumerate(values):
        folder = out / f"{name}-{index}"
        folder.mkdir(exist_ok=True)
        cluster = replace(trace.cluster, rules={**trace.cluster.rules, name: value})
        results.append((f"{name}={value}", _run(Trace(cluster, trace.jobs), MUSTER, options, folder, {})))
    shown.lines(curve(results))
    shown.note(
        say(
            "wrote {events}, {jobs}, {summary}, {report} of every run to {out}",
            events=EVENTS,
            jobs=JOBS,
            summary=SUMMARY,
            report=REPORT,
            out=out,
        )
    )


def _run(trace: Trace, policy: str, options: Options, out: Path, alone: dict[str, float] | None) -> Result:
    with counting(f"Simulating {policy}", len(trace.jobs), "jobs") as progress:
        result = run_simulation(trace, policy, options, log=out / EVENTS, alone=alone, progress=progress)
    write_jobs(out / JOBS, result)
    write_report(out / REPORT, [result])
    write_summary(out / SUMMARY, result)
    return result
