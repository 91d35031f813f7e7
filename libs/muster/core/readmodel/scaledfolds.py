"""Ray clusters that scale themselves, as far as what is shown on them and said of them goes."""

from __future__ import annotations

from msgspec import structs

from muster.core.readmodel.state import ReadState, Scaled
from muster.core.readmodel.touched import Marker
from muster.events.raydemand import RayDemandObserved
from muster.model.elastic import Elastic
from muster.model.keys import Position, Ref


def cluster_seen(state: ReadState, mark: Marker, ref: Ref, owner: str, elastic: Elastic | None) -> None:
    """It was observed, newer than before; its owner is looked at where something else is on it now."""
    if elastic is None:
        state.scaled.pop(ref.uid, None)
        return
    known = state.scaled.get(ref.uid)
    found = Scaled(ref, owner, elastic, known.heard if known is not None else None)
    if known is None or (known.owner, known.told) != (owner, found.told):
        mark.jobs(owner)
    state.scaled[ref.uid] = found


def cluster_gone(state: ReadState, uid: str, owner: str) -> None:
    """It is this owner's no more: it is gone, or was observed in another role."""
    known = state.scaled.get(uid)
    if known is not None and known.owner == owner:
        del state.scaled[uid]


def head_heard(state: ReadState, _at: Position, event: RayDemandObserved) -> None:
    """Its head says what waits there."""
    known = state.scaled.get(event.ref.uid)
    if known is not None and (known.heard is None or known.heard.read_at < event.read_at):
        state.scaled[event.ref.uid] = structs.replace(known, heard=event)
