"""``muster why``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from muster.core.story import Story
from muster.core.workloads.registry import KINDS
from muster_cli.commands.tail import tell_which
from muster_cli.console import Output
from muster_cli.exits import NOT_FOUND, USAGE, CliError
from muster_cli.logfiles import existing, progress
from muster_cli.options import Bus, Document
from muster_cli.reading import commits, locate, opened
from muster_cli.render.why import record, story_lines

MAX_WIDTH = 120


async def why(
    job: Annotated[str, Parameter(help="NAMESPACE/NAME, or NAME where that is unique; KIND/ before it if need be.")],
    /,
    *,
    every: Annotated[bool, Parameter(name="--all", negative="", help="Every small step too.")] = False,
    log: Annotated[
        Path | None, Parameter(show_default=False, help="Read an exported log instead of a running one.")
    ] = None,
    output: Document = "text",
    bus: Bus | None = None,
) -> None:
    """Tell why a job waits, or what became of it."""
    out = Output()
    kind, wanted = named(job.rpartition(" ")[2])
    story, acting, present = Story(wanted, kind), True, 0
    if log is not None:
        with progress(existing(log), "Reading") as stored_commits:
            for stored in stored_commits:
                story.feed(stored)
    else:
        place = locate(bus)
        tell_which(out, place)
        acting = place.acting
        async with opened(place) as reading:
            async for stored in commits(reading.log):
                story.feed(stored)
            present = await reading.log.time()
    found = story.of(chosen(story, wanted), acting=acting, present=present)
    if output == "text":
        out.lines(story_lines(found, every=every, width=min(out.width, MAX_WIDTH)))
    else:
        out.data(record(found), output)


def named(text: str) -> tuple[str, str]:
    """Kind, or nothing, and name of a job: ``tfjob/video/train``, ``rayjob/train``, ``video/train`` or ``train``.

    ``job/train`` is a name in the namespace ``job``: Jobs are named with their namespace, ``job/video/train``.
    """
    first, _, rest = text.partition("/")
    kinds = {name: kind for kind, row in KINDS.items() for name in (kind.lower(), row.resource.plural)}
    kind = kinds.get(first.lower(), "")
    if kind and rest and ("/" in rest or kind != "Job"):
        return kind, rest
    return "", text


def chosen(story: Story, wanted: str) -> str:
    """The one job a name means. Raises CliError when there is none, or more than one."""
    matches = story.matches()
    if len(matches.keys) == 1:
        return matches.keys[0]
    if matches.keys:
        raise CliError(
            f"{wanted} is not unique: there are {', '.join(matches.keys[:10])}; say which as NAMESPACE/NAME", USAGE
        )
    hint = f"; did you mean {', '.join(matches.similar)}?" if matches.similar else ""
    raise CliError(
        f"no job {wanted} was ever seen in this log (up to sequence {story.told.state.seq}){hint}", NOT_FOUND
    )
