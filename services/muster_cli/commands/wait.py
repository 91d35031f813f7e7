"""``muster wait``."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Annotated, Literal

from cyclopts import Parameter
from msgspec import Struct

from muster.model.language import say
from muster.told.codes.values import Over
from muster.told.readmodel.readstate import ReadState
from muster.told.status.statuses import job_status
from muster.told.views.story import Story
from muster.told.wording import jobs
from muster_cli.console import Output
from muster_cli.exits import FAILED, OK, TIMED_OUT, USAGE, CliError
from muster_cli.following import Present
from muster_cli.named import named
from muster_cli.options import Bus
from muster_cli.positions import span_of
from muster_cli.reading import locate, opened, tell_which
from muster_cli.telling import chosen

Goal = Literal["started", "finished"]


class Ending(Struct, frozen=True):
    """The end of the wait for one job: the exit code, and a line about the end."""

    code: int
    text: str


async def wait(
    *jobs: Annotated[
        str, Parameter(help="NAMESPACE/NAME, or NAME where that is unique; KIND/ before it if need be. Several: all.")
    ],
    until: Annotated[Goal, Parameter(help="What to wait for: that it runs, or that it has ended.")] = "finished",
    timeout: Annotated[
        str, Parameter(show_default=False, help="How long at most: 90s, 30m, 2h, 1d. Without it: for ever.")
    ] = "",
    bus: Bus | None = None,
) -> int:
    """Wait until jobs run or have ended."""
    if not jobs:
        raise CliError(say("name the job to wait for; see `muster wait --help`"), USAGE)
    limit_s = span_of(timeout, "--timeout") / 1000 if timeout else None
    place, out = locate(bus), Output()
    tell_which(out, place)
    async with opened(place, patient=True) as reading:
        present = Present(reading)
        await present.read()
        await present.until(lambda state: all(_is_known(state, job) for job in jobs))
        uids = [uid_of(present.state, job) for job in jobs]
        waiting = AwaitedJobs(uids, until, out)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s), contextlib.aclosing(present.states()) as states:
                async for state in states:
                    if waiting.look(state):
                        return waiting.code
        late = [told(present.state, uid) for uid in uids if uid not in waiting.ended]
        raise CliError(
            say("not {until} after {timeout}: {late}", until=until, timeout=timeout, late=say("; ").join(late)),
            TIMED_OUT,
        )


class AwaitedJobs:
    """The jobs that have ended the wait; reports on stderr when a job has another status."""

    def __init__(self, uids: Sequence[str], goal: Goal, out: Output) -> None:
        self._uids = tuple(dict.fromkeys(uids))
        self._goal: Goal = goal
        self._out = out
        self._codes: dict[str, str] = {}
        self.ended: dict[str, Ending] = {}

    @property
    def code(self) -> int:
        return max((end.code for end in self.ended.values()), default=OK)

    def look(self, state: ReadState) -> bool:
        """Whether the wait is over for all of them."""
        for uid in self._uids:
            if uid in self.ended:
                continue
            end = ending(state, uid, self._goal)
            if end is not None:
                self.ended[uid] = end
                self._out.line(end.text)
                continue
            code = job_status(state, uid).code
            if self._codes.get(uid) != code:
                self._codes[uid] = code
                self._out.note(told(state, uid))
        return len(self.ended) == len(self._uids)


def ending(state: ReadState, uid: str, goal: Goal) -> Ending | None:
    """The end of the wait for a job; None while the wait goes on, also for an evicted job, which is queued again."""
    status, text = job_status(state, uid), told(state, uid)
    outcome = status.values.outcome if isinstance(status.values, Over) else state.records[uid].outcome
    if isinstance(status.values, Over) or status.code == "DeletedStillCharged":
        return Ending(OK if outcome == "succeeded" else FAILED, text)
    return Ending(OK, text) if goal == "started" and status.phase == "running" else None


def told(state: ReadState, uid: str) -> str:
    """A job and its status in one line."""
    return f"{state.records[uid].ref}: {jobs.text(job_status(state, uid), state.now)}"


def uid_of(state: ReadState, text: str) -> str:
    """The newest job of a name. Raises CliError where there is none, or it is not unique."""
    kind, wanted = named(text)
    key = chosen(Story(wanted, kind, state), wanted)
    return next(
        uid
        for uid, record in reversed(state.records.items())
        if record.ref.key == key and kind in ("", record.ref.kind)
    )


def _is_known(state: ReadState, text: str) -> bool:
    kind, wanted = named(text)
    return bool(Story(wanted, kind, state).matches().keys)
