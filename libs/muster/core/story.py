"""The story of a job: where it stands, and everything that happened to it, from its first fact on, gone or not.

Pure. Feed it a log from its beginning; ask :meth:`Story.of` for whom it was made for.
"""

from __future__ import annotations

from difflib import get_close_matches

from msgspec import Struct, field

from muster.core.explain import waiting_for_quota
from muster.core.narrator import Entry, Narrator
from muster.core.presentation.desired import pauses_over
from muster.core.queueing.book import Denial
from muster.core.quota.ledger import leaf_of
from muster.core.standing import Standing, stand
from muster.core.workloads.registry import KINDS
from muster.events import facts
from muster.events.envelope import Stored
from muster.model.keys import Ref

SIMILAR_SHOWN = 5


class Happening(Struct, frozen=True):
    """One entry of a story; ``times`` over 1 when the same was said that often in a row, last at ``last_at``."""

    entry: Entry
    times: int = 1
    last_at: int = 0


class JobStory(Struct, frozen=True):
    """A job's story. ``log_id``, ``generation`` and ``seq`` say how far of which log it was told."""

    ref: Ref
    standing: Standing
    happenings: list[Happening]
    log_id: str
    generation: int
    seq: int
    now: int
    earlier: int = 0
    """How many jobs of the same name there were before this one."""
    pauses: list[str] = field(default_factory=list)
    """What is paused where it belongs."""


class Matches(Struct, frozen=True):
    """Whom a name may mean: the jobs themselves, or, when there are none, names like it."""

    keys: list[str] = field(default_factory=list)
    similar: list[str] = field(default_factory=list)


class Story:
    """Listens to a log for jobs of one name: ``namespace/name``, or a bare name in any namespace."""

    def __init__(self, wanted: str, kind: str = "") -> None:
        """``kind``: of which kind, where jobs of several kinds have one name."""
        self._kind = kind
        self.told = Narrator()
        self._wanted = wanted
        self._entries: dict[str, list[Entry]] = {}
        """uid -> what was said of it"""
        self._refs: dict[str, dict[str, Ref]] = {}
        """namespace/name -> uid -> the job, the newest last; of every job in the log"""
        self._parked: dict[str, Denial | None] = {}
        """uid -> the refusal of its kind that was told last"""

    def feed(self, stored: Stored) -> None:
        """Hear one commit; they must come from the first on, in order."""
        for event in stored.commit.events:
            if isinstance(event, facts.WorkloadObserved):
                self._meet(event.workload.ref)
            elif isinstance(event, facts.ObjectUnreadable) and event.ref.kind in KINDS:
                self._meet(event.ref)
        for entry in self.told.feed(stored):
            if entry.ref is not None and entry.ref.uid in self._entries:
                self._entries[entry.ref.uid].append(entry)
        for uid, entries in self._entries.items():
            self._note_parked(uid, entries, stored.seq)

    def _meet(self, ref: Ref) -> None:
        if self._kind not in ("", ref.kind):
            return
        self._refs.setdefault(ref.key, {})[ref.uid] = ref
        if self._is_wanted(ref):
            self._entries.setdefault(ref.uid, [])

    def _is_wanted(self, ref: Ref) -> bool:
        return self._wanted in (ref.key, ref.name)

    def _note_parked(self, uid: str, entries: list[Entry], seq: int) -> None:
        """Tell a job that it waits because one of its size was refused in its stead."""
        state = self.told.state
        job = state.jobs.get(uid)
        shape = state.book.shapes.get(job.shape) if job is not None and job.status == "waiting" else None
        denial = shape.denial if shape is not None else None
        before = self._parked.get(uid)
        self._parked[uid] = denial
        if job is None or denial is None or (before is not None and before.cause == denial.cause):
            return
        if entries and entries[-1].word == "waits" and entries[-1].seq == seq:
            return  # It was tried itself, and the entry says so.
        text = f"nobody of its size fits: {waiting_for_quota(denial).text}; {self.told.place(job)}"
        entries.append(Entry(state.now, seq, denial.cause.item, job.ref, "waits", text, "turn"))

    def matches(self) -> Matches:
        """Whom the name means."""
        keys = [key for key in self._refs if self._wanted in (key, key.rpartition("/")[2])]
        if keys:
            return Matches(sorted(keys))
        names = {key: key for key in self._refs} | {key.rpartition("/")[2]: key for key in self._refs}
        close = get_close_matches(self._wanted, list(names), n=SIMILAR_SHOWN, cutoff=0.5)
        close += [name for name in names if self._wanted in name]
        return Matches(similar=list(dict.fromkeys(names[name] for name in close))[:SIMILAR_SHOWN])

    def of(self, key: str, *, acting: bool = True, present: int = 0) -> JobStory:
        """The story of the newest job with that ``namespace/name``, which must be one of ``matches().keys``.

        ``present``: when it is now, if that is known: an idle log stands still.
        """
        refs = list(self._refs[key].values())
        ref, state = refs[-1], self.told.state
        entries = self._entries[ref.uid]
        self.told.present = max(state.now, present)
        return JobStory(
            ref=ref,
            standing=stand(self.told, ref, entries, acting=acting),
            happenings=_joined(entries),
            log_id=state.log_id,
            generation=state.generation,
            seq=state.seq,
            now=self.told.present,
            earlier=len(refs) - 1,
            pauses=pauses_over(state, self._queue(ref.uid)),
        )

    def _queue(self, uid: str) -> str:
        """The queue a job belongs to; empty when it belongs to none."""
        state = self.told.state
        if uid in state.ledger.charges:
            return state.ledger.charges[uid].queue
        workload = state.workloads.get(uid)
        return (leaf_of(state.ledger, workload) if workload is not None else None) or ""


def _joined(entries: list[Entry]) -> list[Happening]:
    """The entries, repetitions of the same in a row as one."""
    joined: list[Happening] = []
    for entry in entries:
        last = joined[-1] if joined else None
        if last is not None and (last.entry.word, last.entry.text) == (entry.word, entry.text):
            joined[-1] = Happening(last.entry, last.times + 1, entry.at)
        else:
            joined.append(Happening(entry, last_at=entry.at))
    return joined
