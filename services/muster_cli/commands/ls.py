"""``muster ls``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, get_args

from cyclopts import Parameter
from msgspec.structs import replace

from muster.model.language import listed, say
from muster.model.text import counted
from muster.serving.jobrows import JobFilter, ListedJobs, record_of_row
from muster.told.codes.values import Phase
from muster_cli.console import Output
from muster_cli.exits import USAGE, CliError
from muster_cli.joblines import ListForm, known_kind, known_queue, print_jobs
from muster_cli.meant import answered, through_gateway
from muster_cli.options import At, GatewayOption, Source
from muster_cli.positions import span_of

if TYPE_CHECKING:
    from muster_cli.gateway import Gateway

STATES: tuple[str, ...] = get_args(Phase)


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
    if watch:
        if at or recorded or through_gateway(through, source):
            raise CliError(say("--watch follows a running log; leave out --at, --log, --data and --gateway"), USAGE)
        from muster_cli.jobwatch import watch_jobs

        owned = replace(asked, owners=await _names(source or Source())) if mine else asked
        await watch_jobs(source, out, owned, ago, output)
        return
    starts = output in ("wide", "json", "yaml")

    async def ask(gateway: Gateway) -> tuple[JobFilter, ListedJobs]:
        owned = replace(asked, owners=await _names_there(gateway)) if mine else asked
        return owned, await _through(gateway, owned, ago, starts=starts)

    async def read() -> tuple[JobFilter, ListedJobs]:
        owned = replace(asked, owners=await _names(None if recorded else source or Source())) if mine else asked
        return owned, await _read(source, out, at, owned, ago, starts=starts)

    # A gateway beside the log knows no user.
    asked, listed = await answered(through, source, at, ask, read, beside=not mine)
    if output in ("json", "yaml"):
        out.data([record_of_row(row) for row in listed.rows], "json" if output == "json" else "yaml")
        return
    print_jobs(out, listed.rows, listed.now, output)
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


async def _names(source: Source | None) -> tuple[str, ...]:
    """The user's names: in the cluster of the log; on this machine where there is no source."""
    from muster_cli.myself import my_names  # Asks a cluster: the web client is slow to import.
    from muster_cli.reading import locate

    return await my_names(None if source is None else locate(source.bus))


async def _names_there(gateway: Gateway) -> tuple[str, ...]:
    """The user's names as the gateway knows the user."""
    from muster_cli.myself import names_of

    return names_of((await gateway.viewer()).name)


async def _read(source: Source | None, out: Output, at: str, asked: JobFilter, ago: int, *, starts: bool) -> ListedJobs:
    from muster.serving.joblist import job_rows, kinds_of
    from muster_cli.folding import read_at

    read = await read_at(source, out, at, promising=starts)
    now = max(read.state.now, read.present)
    known_queue(read.state.queues.ledger.nodes, asked.queue)
    wanted = replace(known_kind(asked, kinds_of(read.state)), ended_after=now - ago)
    rows = [row for row in job_rows(read.state, now, starts=starts) if wanted.takes(row)]
    return ListedJobs(rows, now, read.state.seq, len(read.state.records))


async def _through(gateway: Gateway, asked: JobFilter, ago: int, *, starts: bool) -> ListedJobs:
    from muster_cli.gatewayquestions import board_of, jobs_of

    if asked.queue:
        known_queue([node.path for node in (await board_of(gateway)).nodes], asked.queue)
    # The kinds of its log are known to the gateway alone.
    return await jobs_of(gateway, known_kind(asked, (asked.kind,)), ago, starts=starts)


def _states(given: list[str]) -> tuple[str, ...]:
    """Raises CliError for a word that is none."""
    words = tuple(dict.fromkeys(word for text in given for word in text.split(",") if word))
    for word in words:
        if word not in STATES:
            raise CliError(
                say("--state {word} is no state; there are {states}", word=word, states=listed(STATES)), USAGE
            )
    return words
