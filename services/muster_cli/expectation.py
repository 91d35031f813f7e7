"""What a waiting job may expect, by the log."""

from __future__ import annotations

from muster.serving.views import pace_of
from muster.told.readmodel.readstate import ReadState
from muster.told.status.statuses import promise_of
from muster.told.views.story import Story
from muster.told.views.tellings import JobStory
from muster_cli.console import Output
from muster_cli.folding import read_at
from muster_cli.options import Source
from muster_cli.render.queuestories import Expected, expecting
from muster_cli.telling import chosen


async def expectation(source: Source | None, out: Output, at: str, kind: str, wanted: str) -> Expected:
    """What a job may expect. Raises CliError."""
    reading = await read_at(source, out, at)
    story = Story(wanted, kind, reading.state)
    return expected(story.of(chosen(story, wanted), acting=reading.acting, present=reading.present), reading.state)


def expected(story: JobStory, state: ReadState) -> Expected:
    """The promise, and the estimate that fits the status of a job."""
    return expecting(story, promise_of(state, story.ref.uid, story.now), pace_of(story, state))
