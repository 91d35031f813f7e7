"""The narrator: tells a log commit by commit, for ``muster up``, ``muster story`` and the scenes of the tests.

Pure. The narrator folds the read model and words the happenings of jobs. Other entries are made of events alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from muster.core.stage import Folder
from muster.events import decisions as d
from muster.events import effects, facts, gangs, growing, system
from muster.events.base import Event
from muster.events.envelope import Stored
from muster.model.keys import Ref
from muster.told.codes.happenings import Happening, Weight
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState
from muster.told.views.tellings import NarratedEvent
from muster.told.wording import events
from muster.told.wording.events import line


def entry_of(ref: Ref | None, happening: Happening) -> NarratedEvent:
    """A happening in words."""
    word, text = line(happening)
    return NarratedEvent(happening.at, happening.seq, happening.item, ref, word, text, happening.weight, happening.what)


_OTHER_WRITES = ("request_nodes", "withdraw_nodes", "free_gpu", "gate", "remove_worker")
"""Writes to other objects than jobs and pods: a failed write is a turn for every reader."""


class Narrator:
    """Folds a log, and tells each commit in words."""

    def __init__(self, state: ReadState | None = None) -> None:
        """``state``: a read model, where the narrator begins."""
        self.heard: list[tuple[Ref, Happening]] = []
        """The happenings of jobs in the newest commit."""
        model = ReadModel(listener=lambda ref, happening: self.heard.append((ref, happening)))
        self._folder = Folder(model)
        self.state: ReadState = model.initial() if state is None else state
        self._synced = self.state.synced and self.state.seq > 0
        self._phases: dict[str, str] = {}
        """Key of a gang of pods -> the gang's phase at the last look."""

    def feed(self, stored: Stored) -> list[NarratedEvent]:
        """Fold one commit, and return its entries."""
        self.heard.clear()
        stored = self._folder.fold(self.state, stored)
        of_item: dict[int, list[NarratedEvent]] = {}
        for ref, happening in self.heard:
            of_item.setdefault(happening.item, []).append(entry_of(ref, happening))
        entries: list[NarratedEvent] = []
        for item, event in enumerate(stored.commit.events):
            of_event = of_item.get(item)
            if of_event is None and not isinstance(event, _TOLD_OF_JOBS):
                word, text, weight, gang = self._of_all(event)
                of_event = [NarratedEvent(self.state.now, stored.seq, item, None, word, text, weight, gang=gang)]
            entries += of_event or ()
            if isinstance(event, facts.PodObserved | facts.PodGone):
                entries += self._of_gang(stored.seq, item, event)
        if self.state.synced and not self._synced:
            known = events.ready(len(self.state.queues.workloads))
            last = len(stored.commit.events) - 1
            entries.append(NarratedEvent(self.state.now, stored.seq, last, None, "ready", known, "step"))
        self._synced = self.state.synced
        return entries

    def _of_gang(self, seq: int, item: int, event: facts.PodObserved | facts.PodGone) -> Iterator[NarratedEvent]:
        """An entry when a gang of pods runs, finished or failed."""
        if isinstance(event, facts.PodGone):
            if len(self._phases) > 2 * len(self.state.gangs.gangs) + 100:
                self._phases = {key: phase for key, phase in self._phases.items() if key in self.state.gangs.gangs}
            return
        key = self.state.gangs.gang_of.get(event.pod.ref.uid, "")
        gang = self.state.gangs.gangs.get(key)
        if gang is None or "/" not in key or not gang.ours:
            return
        pods, minimum = gang.counted(), gang.minimum
        phase, before = pods.phase(minimum), self._phases.get(key, "")
        self._phases[key] = phase
        if phase != before and phase in ("Running", "Finished", "Failed"):
            word, text = events.gang_phase(phase, pods, minimum)
            yield NarratedEvent(self.state.now, seq, item, None, word, text, "turn", gang=key)

    def _of_all(self, event: Event) -> tuple[str, str, Weight, str]:
        """An event that concerns no job alone: word, sentence, weight, and the gang if the event is about a gang."""
        words, gang = events.tell(event), self._gang_of(event)
        if gang:
            return words.word, words.text, "turn", gang
        return words.word, f"{words.subject}: {words.text}" if words.subject else words.text, _weight(event), ""

    def _gang_of(self, event: Event) -> str:
        """The gang of pods, or the pod in no gang, of a decision or its outcome; empty for other events.

        Pods of jobs count as no gang: the events of the jobs tell of these pods.
        """
        match event:
            case gangs.GangHeldBack():
                return event.gang or next((ref.key for ref in event.pods[:1]), "")
            case gangs.PodsPlaced() | gangs.PodsReleased():
                return " ".join(event.gangs[:1]) or next((p.ref.key for p in event.pods[:1] if self._alone(p.ref)), "")
            case gangs.PodsProposed() | gangs.PodsReserved():
                pods = event.pods or (event.beside if isinstance(event, gangs.PodsProposed) else ())
                return event.gang or next((ref.key for ref in pods[:1]), "")
            case gangs.PodsDenied():
                return event.gang or event.pod.key
            case gangs.NodesClaimed() | gangs.NodesClaimEnded() if event.ref is None:
                return event.gang
            case growing.NodesRequested() | growing.NodesRequestWithdrawn() if event.ref is None and event.gangs:
                return event.gangs[0]
            case effects.EffectFailed(action="bind") if self._alone(event.ref):
                return self.state.gangs.gang_of.get(event.ref.uid, "") if self._in_gang(event.ref) else event.ref.key
            case _:
                return ""

    def _in_gang(self, ref: Ref) -> bool:
        return "/" in self.state.gangs.gang_of.get(ref.uid, "")

    def _alone(self, ref: Ref) -> bool:
        """Whether a pod belongs to no known job."""
        owner = self.state.presence.pod_owner.get(ref.uid, "")
        return self.state.presence.owner_of.get(owner, owner) not in self.state.queues.workloads


def _weight(event: Event) -> Weight:
    if isinstance(event, effects.EffectFailed) and event.action in _OTHER_WRITES:
        return "turn"
    return _OF_THE_CELL.get(type(event), "detail")


_OF_THE_CELL: Mapping[type[Event], Weight] = {
    d.QuotaTreeAccepted: "turn",
    d.QuotaTreeRejected: "turn",
    d.QuotaTreeRemoved: "turn",
    facts.ObjectUnreadable: "turn",
    system.LogNearlyFull: "turn",
    system.Genesis: "step",
    system.PlacementChosen: "step",
    growing.NodesRequested: "step",
    growing.NodesRequestWithdrawn: "step",
}
"""Events that concern no job or gang alone; all others are details."""


_TOLD_OF_JOBS = (
    facts.WorkloadObserved,
    facts.WorkloadGone,
    facts.ChildObserved,
    facts.ChildGone,
    facts.PodObserved,
    facts.PodGone,
)
"""Facts that are noted at the job whose state the fact changes, or not at all."""
