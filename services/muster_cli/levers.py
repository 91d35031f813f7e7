"""An operator's levers on one job: found in the log, annotated on the API server, and watched in the log."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from difflib import get_close_matches

from msgspec import Struct

from muster.core.objects.meta import CHANGE_REASON, CHANGED_BY
from muster.core.workloads.registry import is_job, resource_of
from muster.model.language import listed, marked, say
from muster.model.workload import Workload
from muster.told.readmodel.readstate import ReadState
from muster.told.status.statuses import job_status
from muster.told.wording import jobs
from muster_cli.api import Api, api_of, check_pair
from muster_cli.console import Output
from muster_cli.exits import FAILED, NOT_FOUND, OK, USAGE, CliError
from muster_cli.following import LIMIT_S, Present
from muster_cli.marking import annotate, annotations_of, author, short
from muster_cli.named import named
from muster_cli.options import Bus, ClusterOption
from muster_cli.reading import locate, opened, tell_which

NO_CLUSTER = marked("no cluster to act on: start one with `muster up`, or name yours with --context")
UNCONFIRMED = marked(
    "The object is changed, but the log does not show it after {seconds} s; `muster doctor` says whether a watcher runs"
)
UNSETTLED = marked(
    "The log shows the change, but no decision of the queue sorter on it after {seconds} s; `muster doctor` says "
    "whether every stage has a leader"
)
HIGHEST = 2**31 - 1


class Lever(Struct, frozen=True):
    """An open log and an open connection, and the job that is meant."""

    api: Api
    present: Present
    workload: Workload
    by: str

    @property
    def state(self) -> ReadState:
        return self.present.state

    @property
    def uid(self) -> str:
        return self.workload.ref.uid

    async def pull(self, out: Output, wanted: dict[str, str | None], reason: str, did: str) -> int:
        """Write the annotations with author and reason; returns the exit code: FAILED when the log does not show it.

        Raises CliError for a job that has finished.
        """
        ref, resource = self.workload.ref, resource_of(self.workload.ref.kind, self.workload.switch)
        if self.workload.phase == "finished":
            raise CliError(say("nothing is changed: {kind} {key} has finished", kind=ref.kind, key=ref.key))
        meta = await annotations_of(self.api.transport, resource, ref)
        recorded = {**wanted, CHANGED_BY: self.by, CHANGE_REASON: short(reason) or None}
        rv = await annotate(self.api.transport, resource, ref, meta, recorded)
        out.line(
            say(
                "{kind} {key} {did}, by {by}{reason}",
                kind=ref.kind,
                key=ref.key,
                did=did,
                by=self.by,
                reason=f": {short(reason)}" if reason else "",
            )
        )
        uid = self.uid
        if not await self.present.until(lambda state: _heard(state, uid, rv)):
            out.note(say(UNCONFIRMED, seconds=f"{LIMIT_S:g}"))
            return FAILED
        settled = await self.present.until(lambda state: is_settled(state, uid))
        out.line(standing_line(self.state, uid))
        if not settled:
            out.note(say(UNSETTLED, seconds=f"{LIMIT_S:g}"))
        return OK if settled else FAILED


@contextlib.asynccontextmanager
async def lever(job: str, out: Output, bus: Bus | None, cluster: ClusterOption | None) -> AsyncIterator[Lever]:
    """The parts of an action on a job. Raises CliError without the job, a log or a cluster."""
    place = locate(bus)
    tell_which(out, place)
    async with opened(place) as reading, api_of(cluster, place) as api:
        if api is None:
            raise CliError(say(NO_CLUSTER), NOT_FOUND)
        await check_pair(reading, api)
        present = Present(reading)
        workload = job_named(await present.read(), job)
        yield Lever(api, present, workload, await author(api, cluster))


def job_named(state: ReadState, text: str) -> Workload:
    """The one present job that a name means. Raises CliError for no job, or for several."""
    kind, wanted = named(text)
    jobs = [job for job in state.queues.workloads.values() if is_job(job.ref.kind) and kind in ("", job.ref.kind)]
    matching = [job for job in jobs if wanted in (job.ref.key, job.ref.name)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        names = listed(sorted(f"{job.ref.kind.lower()}/{job.ref.key}" for job in matching)[:10])
        raise CliError(say("{words} is not unique: there are {names}; say which", words=text, names=names), USAGE)
    close = get_close_matches(wanted, sorted({job.ref.key for job in jobs}), n=3, cutoff=0.5)
    hint = say("; did you mean {close}?", close=listed(close)) if close else ""
    raise CliError(
        say("there is no job {wanted} now (as of sequence {seq}){hint}", wanted=wanted, seq=state.seq, hint=hint),
        NOT_FOUND,
    )


def above_all(state: ReadState, uid: str) -> int | None:
    """The priority that puts a waiting job first in the queue; None when the job is first already.

    Raises CliError for a job in no queue, or when no higher priority exists.
    """
    job = state.queues.jobs.get(uid)
    if job is None or uid in state.queues.ledger.charges:
        raise CliError(say("it cannot jump its queue, because it is in none: {state}", state=standing_line(state, uid)))
    others = [other for other in state.queues.jobs.values() if other.queue == job.queue and other.ref.uid != uid]
    waiting = [other for other in others if other.ref.uid not in state.queues.ledger.charges]
    if all(job.place < other.place for other in waiting):
        return None
    top = max(other.priority for other in waiting)
    if top >= HIGHEST:
        raise CliError(
            say(
                "a job in queue {queue} has the highest priority there is, {highest}; lower that one first",
                queue=job.queue,
                highest=HIGHEST,
            )
        )
    return top + 1


def _heard(state: ReadState, uid: str, rv: int) -> bool:
    workload = state.queues.workloads.get(uid)
    return workload is None or workload.rv >= rv


def is_settled(state: ReadState, uid: str) -> bool:
    """Whether the sorter has decided on the newest facts of a job."""
    workload, job = state.queues.workloads.get(uid), state.queues.jobs.get(uid)
    if workload is None or uid in state.queues.ledger.charges or not workload.suspended:
        return True
    if workload.wishes.hold:
        return job is None and uid in state.queues.refusals
    if job is None:
        return uid in state.queues.refusals and state.queues.refusals[uid].reason != "held"
    return job.priority == state.queues.priority_of(workload) and job.status == "waiting"


def standing_line(state: ReadState, uid: str) -> str:
    """The status of a job, in one line."""
    return jobs.line(job_status(state, uid))
