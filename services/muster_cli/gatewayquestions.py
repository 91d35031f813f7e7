"""The questions of commands to a gateway, by the names that people use: jobs, gangs, queues."""

from __future__ import annotations

from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from muster.core.learned import Estimate
from muster.model.language import listed, say
from muster.serving import shapes
from muster.serving.boards import Board
from muster.serving.jobrows import JobFilter, ListedJobs, place_of
from muster.told.codes.values import Promise
from muster.told.views.tellings import GangTale, JobStory, NamedTale, QueueTale
from muster_cli import gatewayviews
from muster_cli.exits import NOT_FOUND, CliError
from muster_cli.gateway import Gateway, MissingThereError
from muster_cli.unique import one_of, one_queue

PAGE = 500
"""Jobs of one answer, at most."""
SIMILAR = 3


class ToldJob(Struct, frozen=True):
    """A job in the gateway's answer. ``pod``: text about the pod that was named."""

    story: JobStory
    promise: Promise
    pace: Estimate | None
    pod: str
    gang: GangTale | None


async def board_of(gateway: Gateway) -> Board:
    """The quota tree. Raises CliError."""
    return gatewayviews.board(await gateway.get("/api/v1/queues", shapes.QueuesView))


async def tale_of(gateway: Gateway, queue: str, most: int) -> QueueTale:
    """A queue by its path, or by the end of the path; ``most``: entries, the newest. Raises CliError."""
    paths = [node.path for node in (await board_of(gateway)).nodes]
    matching = [path for path in paths if path == queue] or [path for path in paths if path.endswith(f"/{queue}")]
    if not matching:
        known = say("; there are {paths}", paths=listed(paths[:20])) if paths else ""
        raise CliError(
            say("there is no queue {queue}, or none that you may see{known}", queue=queue, known=known), NOT_FOUND
        )
    limit, path = str(most), one_queue(matching, queue)
    return gatewayviews.tale(await gateway.get("/api/v1/story", shapes.TaleView, queue=path, limit=limit))


async def jobs_of(gateway: Gateway, wanted: JobFilter, since: int, *, starts: bool) -> ListedJobs:
    """The jobs that a filter takes. ``since``: a job may have ended up to this long ago (ms). All pages are of one
    moment.

    Raises CliError.
    """
    given = {"namespace": wanted.namespace, "kind": wanted.kind, "state": ",".join(wanted.states), "limit": str(PAGE)}
    given |= {"ended": str(since // 1_000 + 1), "starts": "" if starts else "0"}
    page = await gateway.get("/api/v1/jobs", shapes.JobsView, **given)
    listed, at = [*page.jobs], _mark(page.moment)
    while len(listed) < page.total:
        more = await gateway.get("/api/v1/jobs", shapes.JobsView, at=at, skip=str(len(listed)), **given)
        listed += more.jobs
        if not more.jobs:
            break
    now = gatewayviews.ms(page.moment.at)
    takes = replace(wanted, ended_after=now - since).takes
    rows = sorted((row for row in map(gatewayviews.row, listed) if takes(row)), key=place_of)
    return ListedJobs(rows, now, page.moment.sequence, sum(page.states.values()))


async def nodes_of(gateway: Gateway) -> shapes.NodesView:
    """All nodes. All pages are of one moment. Raises CliError."""
    page = await gateway.get("/api/v1/nodes", shapes.NodesView, limit=str(PAGE))
    listed = [*page.nodes]
    while len(listed) < page.total:
        skip = {"at": _mark(page.moment), "skip": str(len(listed)), "limit": str(PAGE)}
        more = await gateway.get("/api/v1/nodes", shapes.NodesView, **skip)
        listed += more.nodes
        if not more.nodes:
            break
    return replace(page, nodes=listed)


def _mark(moment: shapes.MomentView) -> str:
    return f"{moment.generation}-{moment.sequence}"


async def job_of(gateway: Gateway, kind: str, wanted: str, *, every: bool = False, starts: bool = True) -> ToldJob:
    """A job by its own name or the name of a pod. Raises CliError, MissingThereError."""
    key = wanted if "/" in wanted else await _key(gateway, kind, wanted)
    if key.count("/") > 1:
        raise MissingThereError(
            say("there is no job {key}: a job is NAMESPACE/NAME; of queues `muster story` tells", key=key)
        )
    more = {"all": "1" if every else "", "starts": "" if starts else "0"}
    told = await gateway.get(f"/api/v1/jobs/{quote(key)}", shapes.WhyView, kind=kind, **more)
    story = gatewayviews.story(told)
    gang = await gang_of(gateway, story.ref.key)
    mine = gang if gang is not None and gang.name == story.ref.key else None
    return ToldJob(story, gatewayviews.promise(told.job), gatewayviews.pace(told.pace), told.pod, mine)


async def told_of(gateway: Gateway, kind: str, wanted: str) -> NamedTale:
    """What the gateway tells about a name; of the shares of queues it tells nothing. Raises CliError."""
    told: ToldJob | MissingThereError
    try:
        told = await job_of(gateway, kind, wanted, every=True, starts=False)
    except MissingThereError as err:
        told = err
    others = not kind and (isinstance(told, MissingThereError) or told.pod)
    gang = await gang_of(gateway, wanted) if others else None
    if gang is not None:
        return NamedTale(gang=gang)
    if isinstance(told, MissingThereError):
        raise told
    return NamedTale(told.story, told.gang, None, wanted, told.pod)


async def gang_of(gateway: Gateway, wanted: str) -> GangTale | None:
    """A gang of pods by its own name or the name of a pod; None without a match. Raises CliError."""
    key = wanted if "/" in wanted else f"{gateway.home}/{wanted}"
    if key.count("/") != 1:
        return None
    try:
        return gatewayviews.gang(await gateway.get(f"/api/v1/gangs/{quote(key)}", shapes.GangTold))
    except MissingThereError:
        return None


async def _key(gateway: Gateway, kind: str, name: str) -> str:
    """``namespace/name`` of the one job of a name; where there is none, the name in the namespace of the context."""
    page = await gateway.get("/api/v1/jobs", shapes.JobsView, name=name, kind=kind, limit=str(PAGE), starts="0")
    keys = list(dict.fromkeys(f"{job.namespace}/{job.name}" for job in page.jobs))
    exact = [key for key in keys if key.endswith(f"/{name}")]
    if not exact and not gateway.home:
        hint = say("; did you mean {keys}?", keys=listed(keys[:SIMILAR])) if keys else ""
        raise MissingThereError(say("there is no job {name}, or none that you may see{hint}", name=name, hint=hint))
    return one_of(exact, name) if exact else f"{gateway.home}/{name}"
