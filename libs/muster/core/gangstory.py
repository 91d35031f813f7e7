"""The story of a gang of pods: where it stands, and what was decided of it.

Pure. Feed it a log beside the narrator that folds it; it is asked for by the name of a gang, or of a pod of one.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from muster.core import explain_nodes, telling, telling_nodes
from muster.core.narrator import Entry, Weight
from muster.core.presentation.gangview import GangShown
from muster.core.presentation.view import ViewState
from muster.events import effects, facts, gangs, growing
from muster.events.base import Event
from muster.events.envelope import Stored
from muster.model.keys import Ref
from muster.model.text import counted

MAX_ENTRIES = 1000
"""Of one gang; the oldest go first."""


class GangTale(Struct, frozen=True):
    """A gang's story. ``name``: namespace/name of the gang, or of the pod where it is of none."""

    name: str
    code: str
    text: str
    pods: dict[str, str]
    """name -> where it is: its node, or what it has come to"""
    entries: list[Entry]
    seq: int
    now: int


class GangStory:
    """Listens for gangs and pods of one name: ``namespace/name``, or a bare name in any namespace."""

    def __init__(self, wanted: str) -> None:
        self._wanted = wanted
        self._names: dict[str, str] = {}
        """key of a gang -> what it is called"""
        self._pods: dict[str, str] = {}
        """uid of a pod of those -> its gang"""
        self._entries: dict[str, list[Entry]] = {}

    def feed(self, stored: Stored, state: ViewState) -> None:
        """Hear one commit, which ``state`` has folded already."""
        for item, event in enumerate(stored.commit.events):
            if isinstance(event, facts.PodObserved):
                self._meet(state, event.pod.ref)
            elif isinstance(event, facts.PodGroupObserved) and self._is_wanted(event.pod_group.ref.key):
                self._names.setdefault(event.pod_group.ref.key, event.pod_group.ref.key)
            for key in dict.fromkeys(self._concerned(event)):
                told = telling.tell(event)
                entry = Entry(state.now, stored.seq, item, None, told.word, told.text, _weight(event))
                entries = self._entries.setdefault(key, [])
                entries.append(entry)
                del entries[:-MAX_ENTRIES]

    def _is_wanted(self, key: str) -> bool:
        return self._wanted in (key, key.rpartition("/")[2])

    def _meet(self, state: ViewState, ref: Ref) -> None:
        key = state.gangs.gang_of.get(ref.uid, "")
        if key and (key in self._names or self._is_wanted(key) or self._is_wanted(ref.key)):
            self._names.setdefault(key, key if "/" in key else ref.key)
            self._pods[ref.uid] = key

    def _concerned(self, event: Event) -> Iterator[str]:
        """Which of the wanted gangs an event is told of."""
        match event:
            case gangs.GangHeldBack() | gangs.NodesClaimed() | gangs.NodesClaimEnded():
                if event.gang in self._names and (isinstance(event, gangs.GangHeldBack) or event.ref is None):
                    yield event.gang
                elif isinstance(event, gangs.GangHeldBack):
                    yield from self._of(*event.pods)
            case gangs.PodsPlaced() | gangs.PodsReleased():
                yield from self._of(*(pod.ref for pod in event.pods))
            case effects.EffectApplied(action="bind") | effects.EffectFailed(action="bind"):
                yield from self._of(event.ref)
            case growing.NodesRequested() | growing.NodesRequestWithdrawn():
                yield from (gang for gang in event.gangs if gang in self._names)
            case facts.PodGroupObserved():
                if event.pod_group.ref.key in self._names:
                    yield event.pod_group.ref.key
            case _:
                return

    def _of(self, *refs: Ref) -> Iterator[str]:
        for ref in refs:
            if ref.uid in self._pods:
                yield self._pods[ref.uid]

    def keys(self) -> list[str]:
        """Names of the gangs that were met: a pod's own where it is of none."""
        return sorted(set(self._names.values()))

    def of(self, name: str, state: ViewState) -> GangTale:
        """The story of one of ``keys``; of several pods that had the name the newest."""
        key = next(each for each, called in reversed(self._names.items()) if called == name)
        gang = state.gangs.gangs.get(key)
        code, text = stand(gang)
        return GangTale(
            name=name,
            code=code,
            text=text,
            pods=_pods(gang) if gang is not None else {},
            entries=self._entries.get(key, []),
            seq=state.seq,
            now=state.now,
        )


def _weight(event: Event) -> Weight:
    return "detail" if isinstance(event, effects.EffectApplied | facts.PodGroupObserved) else "turn"


def _pods(gang: GangShown) -> dict[str, str]:
    found = {}
    for pod in sorted(gang.pods.values(), key=lambda each: each.ref.key):
        if pod.over:
            word = "succeeded" if pod.succeeded else "failed"
        elif pod.node:
            word = f"{'runs' if pod.running else 'bound'} on {pod.node}"
        else:
            word = "waits"
        found[pod.ref.name] = word
    return found


def stand(gang: GangShown | None) -> tuple[str, str]:
    """Where a gang stands: (code, sentence)."""
    if gang is None or not gang.pods:
        return "Gone", "none of its pods exists any more"
    found = gang.counted()
    sizes = f"{counted(found.pods, 'pod')}, {found.bound} with a node, {found.running} running"
    if gang.held is not None:
        event = gang.held.event
        round_ = f" in round {event.cycle}" if event.cycle else ""
        return explain_nodes.held_back_code(event), f"It waits{round_}: {telling_nodes.held_back(event)} ({sizes})"
    if not gang.ours:
        return "OtherScheduler", f"none of its pods names our scheduler: spec.schedulerName places them ({sizes})"
    if gang.ended == "Finished":
        return gang.ended, f"it is over: {found.succeeded} of its pods have succeeded, and it took {gang.minimum}"
    if gang.ended:
        return gang.ended, f"it is over: {counted(found.failed, 'pod')} of it failed ({sizes})"
    if found.pods and found.bound == found.pods:
        if found.running:
            return "Running", f"all of its pods have a node, and {found.running} of them run ({sizes})"
        return "Bound", f"all of its pods have a node, and none runs yet ({sizes})"
    if found.bound:
        return "Starting", f"its pods are being bound ({sizes})"
    return "Waiting", f"it has been seen, and nothing has been decided of it yet ({sizes}, it takes {gang.minimum})"
