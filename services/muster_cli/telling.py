"""What the log tells about a name, for ``muster why``."""

from __future__ import annotations

from muster.model.language import listed, say
from muster.told.readmodel.readstate import ReadState
from muster.told.views.gangstory import PodNamed, gang_tale, gangs_named, pods_named
from muster.told.views.measures import queue_share, queues_named
from muster.told.views.story import Story
from muster.told.views.tellings import NamedTale
from muster_cli.console import Output
from muster_cli.exits import NOT_FOUND, CliError
from muster_cli.folding import read_at
from muster_cli.options import Source
from muster_cli.unique import one_of


async def told(source: Source | None, out: Output, at: str, kind: str, wanted: str) -> NamedTale:
    """A job, a gang, a pod or a queue by its name. Raises CliError."""
    reading = await read_at(source, out, at)
    state = reading.state
    story = Story(wanted, kind, state)
    names = [] if kind else gangs_named(state, wanted)
    if not story.matches().keys and names:
        return NamedTale(gang=gang_tale(state, one_of(names, wanted)))
    others = not kind and not story.matches().keys
    pod = pod_of(state, wanted, max(state.now, reading.present)) if others else None
    queues = queues_named(state, wanted) if others and pod is None else []
    if queues:
        return NamedTale(share=queue_share(state, one_of(queues, wanted)))
    if pod is not None:
        story = Story(pod.job.key, pod.job.kind, state)
    told = story.of(chosen(story, wanted), acting=reading.acting, present=reading.present)
    gang = next((gang_tale(state, name) for name in names if name == told.ref.key), None)
    return NamedTale(told, gang, None, *((pod.key, pod.text) if pod is not None else ("", "")))


def pod_of(state: ReadState, wanted: str, now: int) -> PodNamed | None:
    """The pod of a job that a name means. Raises CliError when there are more."""
    pods = pods_named(state, wanted, now)
    return pods[one_of([*pods], wanted)] if pods else None


def chosen(story: Story, wanted: str) -> str:
    """The one job that a name means. Raises CliError for no job, or for several."""
    matches = story.matches()
    if matches.keys:
        return one_of(matches.keys, wanted)
    hint = say("; did you mean {similar}?", similar=listed(matches.similar)) if matches.similar else ""
    raise CliError(
        say(
            "no job {wanted} was ever seen in this log (up to sequence {seq}){hint}",
            wanted=wanted,
            seq=story.state.seq,
            hint=hint,
        ),
        NOT_FOUND,
    )
