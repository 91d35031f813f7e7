"""``muster ls --watch``: the list, and each listed job again after a change."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Sequence

from msgspec.structs import replace

from muster.model.language import say
from muster.serving.joblist import job_rows, kinds_of, row_of
from muster.serving.jobrows import JobFilter, JobRow, record_of_row
from muster.told.codes.values import Promise
from muster.told.readmodel.readstate import ReadState
from muster.told.readmodel.touched import Touched
from muster_cli.console import Output
from muster_cli.exits import USAGE, CliError
from muster_cli.following import Present
from muster_cli.joblines import ListForm, known_kind, known_queue, print_jobs
from muster_cli.options import Source
from muster_cli.reading import locate, opened, tell_which


async def watch_jobs(source: Source | None, out: Output, asked: JobFilter, ago: int, output: ListForm) -> None:
    """The list, and each listed job again after a change of state, status or cause; one JSON object a line."""
    if output == "yaml":
        raise CliError(say("--watch prints lines: take -o json instead of yaml"), USAGE)
    gc.enable()
    place, touched = locate(source.bus if source is not None else None), Touched()
    tell_which(out, place)
    async with opened(place, patient=True) as reading:
        present = Present(reading, touched)
        now = max((await present.read()).now, await reading.log.time())
        known_queue(present.state.queues.ledger.nodes, asked.queue)
        news = ChangedJobs(replace(known_kind(asked, kinds_of(present.state)), ended_after=now - ago))
        first = news.first(present.state)
        if output == "json":
            for row in first:
                out.record(record_of_row(row))
        else:
            print_jobs(out, first, now, output)
        touched.jobs.clear()
        async with contextlib.aclosing(present.states()) as states:
            async for state in states:
                changed = news.changed(state, [*touched.jobs])
                touched.jobs.clear()
                if output == "json":
                    for row in changed:
                        out.record(record_of_row(row))
                else:
                    print_jobs(out, changed, state.now, output, head=False)


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
