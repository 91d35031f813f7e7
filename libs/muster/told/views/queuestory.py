"""The story of a queue: usage, waiting jobs, and the happenings between two moments.

Pure. Feed the story a log from the beginning, or from a state of the read model. Commits before the first moment are
folded, and not told. Or let the story recall the read model's histories, without a log.
"""

from __future__ import annotations

from muster.events import decisions as d
from muster.events.envelope import Stored
from muster.model.keys import path_chain
from muster.model.quota import COUNTED
from muster.model.resources import format_vector
from muster.told.codes.happenings import Happening, Said
from muster.told.presentation.desired import pauses_over
from muster.told.readmodel.history import usage
from muster.told.readmodel.readstate import ReadState
from muster.told.status.statuses import job_status
from muster.told.views.narrator import Narrator, entry_of
from muster.told.views.tellings import KEPT, NarratedEvent, QueueTale, Tally, Waiter
from muster.told.wording import events_jobs, jobs


class QueueStory:
    """Listens to a log for one queue and all queues below."""

    def __init__(self, wanted: str, state: ReadState | None = None) -> None:
        """``wanted``: a full path, or the end of a path; ``state``: a read model, where the story begins."""
        self.told = Narrator(state)
        self._wanted = wanted
        self._entries: list[NarratedEvent] = []
        self._turns: list[Said] = []
        """Recalled turns, older than the entries; only the newest get words."""
        self._left_out = 0
        self._tally = Tally()
        known = self.told.state
        self._queue_of = {uid: record.queue for uid, record in known.records.items() if record.queue}
        """uid -> last queue of the job"""
        self._paths: dict[str, None] = dict.fromkeys(known.queues.ledger.nodes)
        """Every queue since the story listens."""

    def feed(self, stored: Stored, *, shown: bool = True) -> None:
        """Hear one commit. ``shown``: false for a commit before the first moment of the story."""
        entries = self.told.feed(stored)
        for event in stored.commit.events:
            if isinstance(event, d.QuotaTreeAccepted):
                self._paths.update(dict.fromkeys(node.path for node in event.tree.nodes))
            ref = getattr(event, "ref", None)
            queue = getattr(event, "queue", "")
            if ref is not None and queue:
                self._queue_of[ref.uid] = queue
        if shown:
            for ref, happening in self.told.heard:
                if self._within(self._queue_of.get(ref.uid, "")):
                    self._recount(ref.key, happening)
            self._keep(entries)

    def recall(self) -> None:
        """Tell the read model's histories of the jobs that were last in the queue, instead of earlier commits."""
        for record in self.told.state.records.values():
            if not self._within(record.queue):
                continue
            kept = record.past.all()
            for happening in kept:
                self._recount(record.ref.key, happening)
            self._turns += [(record.ref, turn) for turn in kept if turn.weight == "turn" and turn.what != "parked"]
        self._turns.sort(key=lambda told: (told[1].seq, told[1].item))

    def _recount(self, job: str, happening: Happening) -> None:
        tally, times = self._tally, happening.times
        match happening.what:
            case "workload_queued":
                tally.queued += times
            case "gang_admitted":
                self._admitted(job, max(0, happening.span))
            case "quota_released":
                tally.released += times
            case "quota_denied":
                tally.denied += times
            case "workload_finished":
                tally.finished += times
            case "evicted":
                tally.evicted += times
            case _:
                pass

    def _admitted(self, job: str, wait: int) -> None:
        tally = self._tally
        tally.admitted += 1
        tally.waits += wait
        if wait >= tally.longest_wait:
            tally.longest_wait, tally.longest_waiter = wait, job

    def _keep(self, entries: list[NarratedEvent]) -> None:
        self._entries += [entry for entry in entries if entry.weight == "turn" and self._concerns(entry)]
        if len(self._entries) > 2 * KEPT:
            self._left_out += len(self._entries) - KEPT
            del self._entries[:-KEPT]

    def _concerns(self, entry: NarratedEvent) -> bool:
        if entry.ref is None:
            return not entry.gang
        return self._within(self._queue_of.get(entry.ref.uid, ""))

    def _within(self, queue: str) -> bool:
        return any(path == self._wanted or path.endswith(f"/{self._wanted}") for path in path_chain(queue))

    def matches(self) -> list[str]:
        """The queues that the name may mean: one queue when the name is unique."""
        if self._wanted in self._paths:
            return [self._wanted]
        return [path for path in self._paths if path.endswith(f"/{self._wanted}")]

    def of(self, queue: str, *, shown: int = 10, present: int = 0, most: int = KEPT) -> QueueTale:
        """The story of a queue, which must be the queue of ``matches()``; ``shown``: how many waiting jobs; ``most``:
        how many entries, the newest.
        """
        state = self.told.state
        now = max(state.now, present)
        node = state.queues.ledger.nodes.get(queue)
        limits = node.limit if node is not None else {}
        names = [name for name in state.queues.ledger.used.get(queue, {}) if name not in COUNTED or name in limits]
        names += [name for name in limits if name not in names]
        guaranteed = {name: amount for name, amount in (node.guaranteed if node is not None else {}).items() if amount}
        known: list[Said | NarratedEvent] = [*self._turns, *self._entries]
        newest = known[max(len(known) - most, 0) :]
        entries = [entry_of(*one) if isinstance(one, tuple) else one for one in newest]
        return QueueTale(
            queue=queue,
            usage=events_jobs.usage(usage(state, queue, names)),
            guaranteed=format_vector(guaranteed),
            tally=self._tally,
            waiting=self._waiters(queue, shown, now),
            length=state.queues.book.length(queue),
            entries=entries,
            left_out=self._left_out + len(known) - len(entries),
            log_id=state.log_id,
            generation=state.generation,
            seq=state.seq,
            now=now,
            next_start=state.pace.expect(queue, 1, now),
            pauses=pauses_over(state, queue),
        )

    def _waiters(self, queue: str, shown: int, now: int) -> list[Waiter]:
        state, waiters = self.told.state, []
        for position, (place, _) in enumerate(state.queues.book.in_order(queue), start=1):
            if position > shown:
                break
            reason = jobs.reason(job_status(state, place.uid)).text
            waiters.append(Waiter(place.key, position, place.priority, max(0, now - place.rank), reason))
        return waiters
