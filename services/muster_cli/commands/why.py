"""``muster why``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter

from muster.core.workloads.registry import KINDS
from muster.model.language import listed, say
from muster.told.readmodel.readstate import ReadState
from muster.told.views.gangstory import PodNamed, gang_tale, gangs_named, pods_named
from muster.told.views.measures import queue_share, queues_named
from muster.told.views.story import Story
from muster_cli.console import Output
from muster_cli.exits import NOT_FOUND, CliError
from muster_cli.folding import read_at
from muster_cli.meant import gateway_of
from muster_cli.options import At, Document, GatewayOption
from muster_cli.render.gang import tale_lines, tale_record
from muster_cli.render.queueshares import share_lines
from muster_cli.render.why import record, story_lines
from muster_cli.sources import Source
from muster_cli.unique import one_of

if TYPE_CHECKING:
    from muster_cli.gateway import Gateway

MAX_WIDTH = 120


async def why(
    job: Annotated[
        str,
        Parameter(help="NAMESPACE/NAME, or NAME where that is unique; KIND/ before it if need be; or a pod or queue."),
    ],
    /,
    *,
    every: Annotated[bool, Parameter(name="--all", negative="", help="Every small step too.")] = False,
    at: At = "",
    output: Document = "text",
    source: Source | None = None,
    through: GatewayOption | None = None,
) -> None:
    """Tell why a job waits, or what became of it; why a pod does not run; why the share of a queue is what it is."""
    out = Output()
    kind, wanted = named(job.rpartition(" ")[2])
    async with gateway_of(through, source, at) as gateway:
        if gateway is not None:
            await _asked(gateway, out, kind, wanted, every=every, output=output)
            return
    found_at = await read_at(source, out, at)
    state = found_at.state
    story = Story(wanted, kind, state)
    width, names = min(out.width, MAX_WIDTH), [] if kind else gangs_named(state, wanted)
    if not story.matches().keys and names:
        tale = gang_tale(state, one_of(names, wanted))
        if output == "text":
            out.lines(tale_lines(tale, every=every, width=width))
        else:
            out.data(tale_record(tale), output)
        return
    others = not kind and not story.matches().keys
    pod = pod_of(state, wanted, max(state.now, found_at.present)) if others else None
    queues = queues_named(state, wanted) if others and pod is None else []
    if queues:
        share = queue_share(state, one_of(queues, wanted))
        if output == "text":
            out.lines(share_lines(share))
        else:
            out.data(msgspec.to_builtins(share), output)
        return
    if pod is not None:
        story = Story(pod.job.key, pod.job.kind, state)
    told = story.of(chosen(story, wanted), acting=found_at.acting, present=found_at.present)
    tales = [gang_tale(state, name) for name in names if name == told.ref.key]
    if output == "text":
        out.lines(story_lines(told, pod.text if pod is not None else "", every=every, width=width))
        for tale in tales:
            out.lines(tale_lines(tale, every=every, width=width))
    else:
        gang = {"gang": tale_record(tales[0])} if tales else {}
        of_pod = {"pod": {"name": pod.key, "text": pod.text}} if pod is not None else {}
        out.data({**record(told), **gang, **of_pod}, output)


async def _asked(gateway: Gateway, out: Output, kind: str, wanted: str, *, every: bool, output: Document) -> None:
    """The same of a gateway, but for the shares of queues."""
    from muster_cli.gateway import MissingThereError
    from muster_cli.gatewayquestions import ToldJob, gang_of, job_of

    width = min(out.width, MAX_WIDTH)
    told: ToldJob | MissingThereError
    try:
        told = await job_of(gateway, kind, wanted, every=True)
    except MissingThereError as err:
        told = err
    others = not kind and (isinstance(told, MissingThereError) or told.pod)
    gang = await gang_of(gateway, wanted) if others else None
    if gang is not None:
        if output == "text":
            out.lines(tale_lines(gang, every=every, width=width))
        else:
            out.data(tale_record(gang), output)
        return
    if isinstance(told, MissingThereError):
        raise told
    if output == "text":
        out.lines(story_lines(told.story, told.pod, every=every, width=width))
        if told.gang is not None:
            out.lines(tale_lines(told.gang, every=every, width=width))
    else:
        gang_data = {"gang": tale_record(told.gang)} if told.gang is not None else {}
        of_pod = {"pod": {"name": wanted, "text": told.pod}} if told.pod else {}
        out.data({**record(told.story), **gang_data, **of_pod}, output)


def pod_of(state: ReadState, wanted: str, now: int) -> PodNamed | None:
    """The pod of a job that a name means. Raises CliError when there are more."""
    pods = pods_named(state, wanted, now)
    return pods[one_of([*pods], wanted)] if pods else None


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
