"""The answer to a name: a job, a job of a pod, a gang of pods, or the share of a queue."""

from __future__ import annotations

from typing import Literal

import msgspec

from muster.told.views.tellings import NamedTale
from muster_cli.console import Output
from muster_cli.render.gang import tale_lines, tale_record
from muster_cli.render.why import record, story_lines

MAX_WIDTH = 120


def print_told(out: Output, told: NamedTale, *, every: bool, output: Literal["text", "json", "yaml"]) -> None:
    """``every``: every small step too."""
    width, story, gang, share = min(out.width, MAX_WIDTH), told.story, told.gang, told.share
    if output != "text":
        out.data(_record(told), output)
        return
    if share is not None:
        from muster_cli.render.queueshares import share_lines

        out.lines(share_lines(share))
    if story is not None:
        out.lines(story_lines(story, told.pod, every=every, width=width))
    if gang is not None:
        out.lines(tale_lines(gang, every=every, width=width))


def _record(told: NamedTale) -> dict[str, object]:
    if told.share is not None:
        shown: dict[str, object] = msgspec.to_builtins(told.share)
        return shown
    gang = tale_record(told.gang) if told.gang is not None else {}
    if told.story is None:
        return gang
    of_gang = {"gang": gang} if gang else {}
    of_pod = {"pod": {"name": told.named, "text": told.pod}} if told.pod else {}
    return {**record(told.story), **of_gang, **of_pod}
