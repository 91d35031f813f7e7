"""The narrator: tells a log commit by commit, for ``muster up``, ``muster story`` and the scenes of the tests.

Pure: it folds the read model, words what that notes of jobs, and tells the rest of a commit from its events alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from muster.core.readmodel.model import ReadModel
from muster.core.readmodel.state import ReadState
from muster.core.stage import Folder
from muster.core.status.happenings import Happening, Weight
from muster.core.wording import telling
from muster.core.wording.happenings import line
from muster.events import decisions as d
from muster.events import effects, facts, growing, system
from muster.events.base import Event
from muster.events.envelope import Stored
from muster.model.keys import Ref
from muster.model.text import counted


class Entry(Struct, frozen=True):
    """One thing that happened, in words. ``ref`` is the job it happened to, None when it concerns all."""

    at: int
    seq: int
    item: int
    ref: Ref | None
    word: str
    text: str
    weight: Weight
    what: str = ""
    """The type of the event, or the part of a fact that changed; what programs look at."""


def entry_of(ref: Ref | None, happening: Happening) -> Entry:
    """A happening in words."""
    word, text = line(happening)
    return Entry(happening.at, happening.seq, happening.item, ref, word, text, happening.weight, happening.what)


class Narrator:
    """Folds a log, and tells what each commit means."""

    def __init__(self) -> None:
        self._heard: list[tuple[Ref, Happening]] = []
        model = ReadModel(listener=lambda ref, happening: self._heard.append((ref, happening)))
        self._folder = Folder(model)
        self.state: ReadState = model.initial()
        self._trees = 0
        self._synced = False

    def feed(self, stored: Stored) -> list[Entry]:
        """Fold one commit and tell it."""
        self._heard.clear()
        self._folder.fold(self.state, stored.seq, stored.commit)
        of_item: dict[int, list[Entry]] = {}
        for ref, happening in self._heard:
            of_item.setdefault(happening.item, []).append(entry_of(ref, happening))
        self._heard.clear()
        entries: list[Entry] = []
        for item, event in enumerate(stored.commit.events):
            found = of_item.get(item)
            if found is None and not isinstance(event, _TOLD_OF_JOBS):
                word, text, weight = self._of_all(event)
                found = [Entry(self.state.now, stored.seq, item, None, word, text, weight)]
            entries += found or ()
        if self.state.synced and not self._synced:
            jobs = counted(len(self.state.workloads), "job")
            known = f"the cluster is fully known ({jobs}): jobs are admitted from here on"
            last = len(stored.commit.events) - 1
            entries.append(Entry(self.state.now, stored.seq, last, None, "ready", known, "step"))
        self._synced = self.state.synced
        return entries

    def _of_all(self, event: Event) -> tuple[str, str, Weight]:
        """What concerns no job alone."""
        if isinstance(event, d.QuotaTreeAccepted):
            self._trees += 1
        say = _OF_ALL.get(type(event))
        if say is not None:
            return say(self, event)
        told = telling.tell(event)
        weight: Weight = "detail"
        if isinstance(event, effects.EffectFailed) and event.action in ("request_nodes", "withdraw_nodes", "free_gpu"):
            weight = "turn"
        elif isinstance(event, growing.NodesRequested | growing.NodesRequestWithdrawn):
            weight = "step"
        return told.word, f"{told.subject}: {told.text}" if told.subject else told.text, weight

    def _tree(self, event: d.QuotaTreeAccepted) -> tuple[str, str, Weight]:
        again = "a new tree is in force" if self._trees > 1 else "in force"
        return "quota tree", f"{event.tree.ref.name} {again}: {telling.tree_summary(event)}", "turn"

    def _tree_refused(self, event: d.QuotaTreeRejected) -> tuple[str, str, Weight]:
        return "quota tree", f"{event.ref.name} is {telling.broken_rules(event)}", "turn"

    def _tree_removed(self, event: d.QuotaTreeRemoved) -> tuple[str, str, Weight]:
        return "quota tree", f"{event.ref.name} was deleted: nothing is admitted until another is applied", "turn"

    def _unreadable(self, event: facts.ObjectUnreadable) -> tuple[str, str, Weight]:
        return "unreadable", f"{event.ref}: {event.reason}", "turn"

    def _placement(self, event: system.PlacementChosen) -> tuple[str, str, Weight]:
        return "placement", telling.placement(event), "step"

    def _genesis(self, event: system.Genesis) -> tuple[str, str, Weight]:
        text = f"log {event.log_id} begins, generation {event.generation}{telling.before(event)}"
        return "log", text, "step"

    def _nearly_full(self, event: system.LogNearlyFull) -> tuple[str, str, Weight]:
        return "log", f"it is {event.percent} % full: nothing is queued or admitted from here on", "turn"


_TOLD_OF_JOBS = (
    facts.WorkloadObserved,
    facts.WorkloadGone,
    facts.ChildObserved,
    facts.ChildGone,
    facts.PodObserved,
    facts.PodGone,
)
"""Facts that are told of the job they change something for, or not at all."""

_OF_ALL: Mapping[type[Event], Callable[[Narrator, Any], tuple[str, str, Weight]]] = {
    system.Genesis: Narrator._genesis,
    system.LogNearlyFull: Narrator._nearly_full,
    system.PlacementChosen: Narrator._placement,
    facts.ObjectUnreadable: Narrator._unreadable,
    d.QuotaTreeAccepted: Narrator._tree,
    d.QuotaTreeRejected: Narrator._tree_refused,
    d.QuotaTreeRemoved: Narrator._tree_removed,
}
