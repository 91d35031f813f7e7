"""The lines of `muster up`: follows the log like any reader, prints what happens, and counts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct

from muster.bus.cell import open_log
from muster.bus.errors import BusError
from muster.bus.jetstream import JetStream
from muster.model.language import say
from muster.model.text import lower
from muster.ports import LogGoneError, LogSealedError
from muster.told.status.statuses import job_status
from muster.told.views.narrator import Narrator
from muster.told.views.tellings import NarratedEvent
from muster.told.wording import explain, jobs

AGAIN_S = 0.5


class EventCounts(Struct):
    """What has happened since the start."""

    queued: int = 0
    admitted: int = 0
    finished: int = 0
    commits: int = 0
    first_admission_ms: int = -1
    """After the start, by the log's time; -1 while there was none."""


class Teller:
    """``print_entry`` is called for every entry after the position the log had when this began."""

    def __init__(self, js: JetStream, cell: str, began: int, print_entry: Callable[[NarratedEvent], None]) -> None:
        self.counts = EventCounts()
        self.ready = asyncio.Event()
        """A quota tree is in force and the cluster is fully known: what is submitted now is decided at once."""
        self._narrator: Narrator | None = None
        self._told = 0
        self._queued: set[str] = set()
        """uids of the counted jobs: a job that is queued again counts once"""
        self._js = js
        self._cell = cell
        self._began = began
        self._print = print_entry

    async def run(self, after: int) -> None:
        """Tell until cancelled; what lies up to ``after`` is heard and not told."""
        while True:
            try:
                await self._follow(after)
            except LogSealedError:
                # The services go on in the next generation, and so do we: it is one log.
                after = max(after, self._told)
                await asyncio.sleep(AGAIN_S)
            except (LogGoneError, BusError):
                # The log was lost: the services found a new generation, which is printed from its beginning.
                after = 0
                await asyncio.sleep(AGAIN_S)

    async def _follow(self, after: int) -> None:
        log = await open_log(self._js, self._cell, create=False)
        narrator = self._narrator = Narrator()
        async for batch in log.follow(0):
            for stored in batch:
                self._told = stored.seq
                entries = narrator.feed(stored)
                if stored.seq > after:
                    self.counts.commits += 1
                    for entry in entries:
                        self._count(entry)
                        self._print(entry)
            if narrator.state.synced and narrator.state.queues.ledger.tree is not None:
                self.ready.set()

    def why_not(self) -> str:
        """Why nothing is admitted, in one sentence."""
        if self._narrator is None:
            return say("the log could not be read")
        state = self._narrator.state
        if not state.synced:
            return lower(explain.waiting_for_sync(sorted(state.unsynced)).text)
        if state.closing:
            return say("the log is nearly full")
        if state.queues.ledger.tree is None:
            return say("no quota tree is in force")
        waiting = next((job for job in state.queues.jobs.values() if job.status == "waiting"), None)
        if waiting is None:
            return say("no job waits")
        return f"{waiting.ref.key}: {jobs.reason(job_status(state, waiting.ref.uid)).text}"

    def _count(self, entry: NarratedEvent) -> None:
        counts, uid = self.counts, entry.ref.uid if entry.ref is not None else ""
        match entry.what:
            case "workload_queued" if uid not in self._queued:
                self._queued.add(uid)
                counts.queued += 1
            case "gang_admitted":
                counts.admitted += 1
                if counts.first_admission_ms < 0:
                    counts.first_admission_ms = max(0, entry.at - self._began)
            case "workload_finished":
                counts.finished += 1
