"""``muster ls``."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from cyclopts import Parameter
from msgspec.structs import replace

from muster.core.workloads.registry import KINDS
from muster.model.language import listed, say
from muster.model.text import counted
from muster.serving.joblist import JobFilter, JobRow, job_rows, record_of_row, row_of
from muster.told.codes.values import Phase, Promise
from muster.told.readmodel.readstate import ReadState
from muster.told.readmodel.touched import Touched
from muster_cli.console import Output
from muster_cli.exits import NOT_FOUND, USAGE, CliError
from muster_cli.folding import read_at
from muster_cli.following import Present
from muster_cli.meant import gateway_of
from muster_cli.options import At, GatewayOption
from muster_cli.positions import span_of
from muster_cli.reading import locate, opened, tell_which
from muster_cli.render.jobs import ListedJobs, cells_of, coloured_lines, plain_lines
from muster_cli.sources import Source

if TYPE_CHECKING:
    from muster_cli.gateway import Gateway

STATES: tuple[str, ...] = get_args(Phase)
COLOURED = 1_000
"""More lines are printed without colour, which is faster."""
ListForm = Literal["table", "wide", "json", "yaml", "name"]


async def ls(
    *,
    state: Annotated[
        list[str] | None,
        Parameter(negative="", show_default=False, help=f"Only these: {', '.join(STATES)}. Several, or with commas."),
    ] = None,
    queue: Annotated[
        str, Parameter(show_default=False, help="Only of this queue and those below: a path, or the end of one.")
    ] = "",
    namespace: Annotated[str, Parameter(name=["--namespace", "-n"], show_default=False, help="Only of this one.")] = "",
    kind: Annotated[str, Parameter(show_default=False, help="Only of this kind: RayJob, TFJob, Job ...")] = "",
    mine: Annotated[
        bool, Parameter(negative="", help="Only yours: those whose owner is your name in the cluster, or before its @.")
    ] = False,
    owner: Annotated[
        str, Parameter(show_default=False, help="Only of this owner: label or annotation muster.dev/owner of a job.")
    ] = "",
    since: Annotated[
        str, Parameter(allow_leading_hyphen=True, help="How long ago a job may have ended: 90s, 30m, 1h, 7d.")
    ] = "1h",
    at: At = "",
    watch: Annotated[
        bool,
        Parameter(name=["--watch", "-w"], negative="", help="Then print each job that changes again."),
    ] = False,
    output: Annotated[
        ListForm, Parameter(name=["--output", "-o"], help="How to print it: a table, a wide one, or for programs.")
    ] = "table",
    source: Source | None = None,
    through: GatewayOption | None = None,
) -> None:
    """List the jobs."""
    out, ago, recorded = Output(), span_of(since), source is not None and (source.log or source.data)
    if mine and owner:
        raise CliError(say("--mine and --owner both say whose jobs; give one of them"), USAGE)
    asked = JobFilter(_states(state or []), queue.strip("/"), namespace, kind, owners=(owner,) if owner else ())
    async with gateway_of(through, source, at) as gateway:
        if mine:
            asked = replace(asked, owners=await _mine(gateway, source, recorded=bool(recorded)))
        if watch:
            if at or recorded or gateway is not None:
                raise CliError(say("--watch follows a running log; leave out --at, --log, --data and --gateway"), USAGE)
            await _watch(source, out, asked, ago, output)
            return
        if gateway is not None:
            listed = await _through(gateway, asked, ago)
        else:
            listed = await _read(source, out, at, asked, ago, starts=output in ("wide", "json", "yaml"))
    if output in ("json", "yaml"):
        out.data([record_of_row(row) for row in listed.rows], "json" if output == "json" else "yaml")
        return
    _print(out, listed.rows, listed.now, output)
    if not listed.rows and output != "name":
        whose = say(" of {owners}", owners=say(" or ").join(asked.owners)) if asked.owners else ""
        every = asked == JobFilter(owners=asked.owners)
        out.line(
            say(
                "No job{whose} as of sequence {seq}; {known} known in all."
                if every
                else "No job{whose} matches as of sequence {seq}; {known} known in all.",
                whose=whose,
                seq=listed.seq,
                known=counted(listed.known, "job"),
            )
        )


async def _mine(gateway: Gateway | None, source: Source | None, *, recorded: bool) -> tuple[str, ...]:
    from muster_cli.myself import my_names, names_of  # Asks a cluster: the web client is slow to import.

    if gateway is not None:
        return names_of((await gateway.viewer()).name)
    return await my_names(None if recorded else locate(source.bus if source is not None else None))


async def _read(source: Source | None, out: Output, at: str, asked: JobFilter, ago: int, *, starts: bool) -> ListedJobs:
    read = await read_at(source, out, at, promising=starts)
    now = max(read.state.now, read.present)
    _known(read.state.queues.ledger.nodes, asked.queue)
    wanted = replace(_kind(asked, _kinds(read.state)), ended_after=now - ago)
    rows = [row for row in job_rows(read.state, now, starts=starts) if wanted.takes(row)]
    return ListedJobs(rows, now, read.state.seq, len(read.state.records))


def _kinds(state: ReadState) -> set[str]:
    return {record.ref.kind for record in state.records.values()}


async def _through(gateway: Gateway, asked: JobFilter, ago: int) -> ListedJobs:
    from muster_cli.gatewayquestions import board_of, jobs_of

    if asked.queue:
        _known([node.path for node in (await board_of(gateway)).nodes], asked.queue)
    return await jobs_of(gateway, asked, ago)


def _print(out: Output, rows: Sequence[JobRow], now: int, output: ListForm, *, head: bool = True) -> None:
    """Lines for people, or names."""
    if output == "name":
        out.lines([f"{row.kind.lower()}/{row.key}" for row in rows])
        return
    wide = output == "wide"
    table = cells_of(rows, now, wide=wide, width=out.width)
    first = 0 if head else 1
    if out.is_terminal and len(rows) <= COLOURED:
        out.lines(coloured_lines(rows, table, wide=wide)[first:])
    else:
        out.plain(plain_lines(table)[first:])


async def _watch(source: Source | None, out: Output, asked: JobFilter, ago: int, output: ListForm) -> None:
    """The list, and each listed job again after a change of state, status or cause; one JSON object a line."""
    if output == "yaml":
        raise CliError(say("--watch prints lines: take -o json instead of yaml"), USAGE)
    gc.enable()
    place, touched = locate(source.bus if source is not None else None), Touched()
    tell_which(out, place)
    async with opened(place, patient=True) as reading:
        present = Present(reading, touched)
        now = max((await present.read()).now, await reading.log.time())
        _known(present.state.queues.ledger.nodes, asked.queue)
        news = ChangedJobs(replace(_kind(asked, _kinds(present.state)), ended_after=now - ago))
        first = news.first(present.state)
        if output == "json":
            for row in first:
                out.record(record_of_row(row))
        else:
            _print(out, first, now, output)
        touched.jobs.clear()
        async with contextlib.aclosing(present.states()) as states:
            async for state in states:
                changed = news.changed(state, [*touched.jobs])
                touched.jobs.clear()
                if output == "json":
                    for row in changed:
                        out.record(record_of_row(row))
                else:
                    _print(out, changed, state.now, output, head=False)


class ChangedJobs:
    """The jobs that look different from their last output."""

    def __init__(self, asked: JobFilter) -> None:
        self._asked = asked
        self._shown: dict[str, tuple[str, ...]] = {}

    def first(self, state: ReadState) -> list[JobRow]:
        """Every job that is asked for."""
        return self._new([row for row in job_rows(state, state.now, starts=False) if self._asked.takes(row)])

    def changed(self, state: ReadState, uids: Sequence[str]) -> list[JobRow]:
        """Of ``uids`` the jobs that match or matched, and have another state, status or cause now."""
        rows = [row_of(state, uid, state.now, Promise(why="not_waiting")) for uid in uids if uid in state.records]
        return self._new([row for row in rows if row.uid in self._shown or self._asked.takes(row)])

    def _new(self, rows: Sequence[JobRow]) -> list[JobRow]:
        listed = []
        for row in rows:
            now = (row.phase, row.code, row.outcome, row.cause)
            if self._shown.get(row.uid) != now:
                self._shown[row.uid] = now
                listed.append(row)
        return listed


def _states(given: list[str]) -> tuple[str, ...]:
    """Raises CliError for a word that is none."""
    words = tuple(dict.fromkeys(word for text in given for word in text.split(",") if word))
    for word in words:
        if word not in STATES:
            raise CliError(
                say("--state {word} is no state; there are {states}", word=word, states=listed(STATES)), USAGE
            )
    return words


def _kind(asked: JobFilter, more: Iterable[str] = ()) -> JobFilter:
    """A kind, also written as for kubectl: ``rayjobs``. ``more``: the kinds of the log. Raises CliError."""
    word, kinds = asked.kind.lower(), sorted({*KINDS, *more})
    if not word:
        return asked
    for kind in kinds:
        if word in (kind.lower(), f"{kind.lower()}s"):
            return replace(asked, kind=kind)
    raise CliError(
        say("--kind {word} is no kind of job; there are {kinds}", word=asked.kind, kinds=listed(kinds)), USAGE
    )


def _known(paths: Iterable[str], queue: str) -> None:
    """Raises CliError for a queue that no tree in force has."""
    paths = [*paths]
    if queue and not any(path == queue or path.endswith(f"/{queue}") for path in paths):
        from muster_cli.filtering import similar  # Not for lists.

        raise CliError(
            say(
                "there is no queue {queue}; `muster queue tree` shows those there are{hint}",
                queue=queue,
                hint=similar(queue, {*paths}),
            ),
            NOT_FOUND,
        )
