"""From an event to the history of gangs of pods, and of pods that are in none: one function per type of event."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from msgspec import structs

from muster.core.codes.happenings import Happening, Weight
from muster.core.readmodel.history import NODES, happened, tag_of
from muster.core.readmodel.records import GONE_KEPT, GONE_KEPT_MS
from muster.core.readmodel.state import GangRecord, ReadState
from muster.events import effects, facts, gangs, growing
from muster.events.base import Event
from muster.model.keys import Position, Ref

GangSaid = tuple[str, Happening]


def meet_gang(state: ReadState, ref: Ref) -> None:
    """A pod of ours, or of a gang, exists: its gang has a record from here on. A pod in no gang is one of its own."""
    key = state.gangs.gang_of.get(ref.uid, "")
    if key and key not in state.gang_records:
        state.gang_records[key] = GangRecord(key if "/" in key else ref.key)
    state.gangs_gone.pop(key, None)


def forget_gang(state: ReadState, key: str) -> None:
    """The last pod of a gang is gone: it is remembered for a while, as long as few have gone since."""
    gang = state.gangs.gangs.get(key)
    if not key or (gang is not None and gang.pods):
        return
    state.gangs_gone.pop(key, None)
    state.gangs_gone[key] = state.now
    while state.gangs_gone:
        oldest = next(iter(state.gangs_gone))
        if len(state.gangs_gone) <= GONE_KEPT and state.now - state.gangs_gone[oldest] <= GONE_KEPT_MS:
            return
        del state.gangs_gone[oldest]
        state.gang_records.pop(oldest, None)


def _of(state: ReadState, refs: Iterable[Ref]) -> list[str]:
    """The gangs that pods are in, each once."""
    found = (state.gangs.gang_of.get(ref.uid, "") for ref in refs)
    return list(dict.fromkeys(key for key in found if key))


def _held_back(state: ReadState, at: Position, event: gangs.GangHeldBack) -> Iterator[GangSaid]:
    kept = structs.replace(event, pods=event.pods[:1])
    for key in [event.gang] if event.gang in state.gang_records else _of(state, event.pods):
        yield key, happened(at, "gang_held_back", "turn", event=kept)


def _claim(_state: ReadState, at: Position, event: gangs.NodesClaimed | gangs.NodesClaimEnded) -> Iterator[GangSaid]:
    if event.ref is None:
        yield event.gang, happened(at, tag_of(event), "turn", event=event)


def _placed(state: ReadState, at: Position, event: gangs.PodsPlaced) -> Iterator[GangSaid]:
    nodes: dict[str, int] = {}
    for pod in event.pods:
        nodes[pod.node] = nodes.get(pod.node, 0) + 1
    kept = structs.replace(event, pods=())
    around = {"number": len(event.pods), "more": max(0, len(nodes) - NODES)}
    for key in _of(state, (pod.ref for pod in event.pods)):
        yield key, happened(at, "pods_placed", "turn", event=kept, nodes=tuple(islice(nodes.items(), NODES)), **around)


def _released(state: ReadState, at: Position, event: gangs.PodsReleased) -> Iterator[GangSaid]:
    kept = structs.replace(event, pods=event.pods[:NODES])
    for key in _of(state, (pod.ref for pod in event.pods)):
        yield key, happened(at, "pods_released", "turn", event=kept, more=max(0, len(event.pods) - NODES))


def _bound(weight: Weight) -> Callable[[ReadState, Position, Any], Iterator[GangSaid]]:
    def history(
        state: ReadState, at: Position, event: effects.EffectApplied | effects.EffectFailed
    ) -> Iterator[GangSaid]:
        for key in _of(state, [event.ref]) if event.action == "bind" else ():
            yield key, happened(at, tag_of(event), weight, event=event)

    return history


def _request_noted(
    state: ReadState, at: Position, event: growing.NodesRequested | growing.NodesRequestWithdrawn
) -> Iterator[GangSaid]:
    for key in event.gangs:
        yield key, happened(at, tag_of(event), "turn", event=event)


def _pod_group(state: ReadState, at: Position, event: facts.PodGroupObserved) -> Iterator[GangSaid]:
    found = event.pod_group
    if found.verdict is None:
        yield found.ref.key, happened(at, "pod_group_observed", "detail", event=event)
    else:
        yield found.ref.key, happened(at, "pod_group_judged", "turn", event=event)


GANG_HISTORY: Mapping[type[Event], Callable[[ReadState, Position, Any], Iterable[GangSaid]]] = {
    gangs.GangHeldBack: _held_back,
    gangs.NodesClaimed: _claim,
    gangs.NodesClaimEnded: _claim,
    gangs.PodsPlaced: _placed,
    gangs.PodsReleased: _released,
    effects.EffectApplied: _bound("detail"),
    effects.EffectFailed: _bound("turn"),
    growing.NodesRequested: _request_noted,
    growing.NodesRequestWithdrawn: _request_noted,
    facts.PodGroupObserved: _pod_group,
}
