"""Ray clusters that scale themselves, as far as what is shown on them goes."""

from __future__ import annotations

from muster.core.readmodel.state import ReadState, Scaled
from muster.core.readmodel.touched import Marker
from muster.model.elastic import Elastic
from muster.model.keys import Ref


def cluster_seen(state: ReadState, mark: Marker, ref: Ref, owner: str, elastic: Elastic | None) -> None:
    """It was observed, newer than before; its owner is looked at where something else is on it now."""
    if elastic is None:
        state.scaled.pop(ref.uid, None)
        return
    found = Scaled(ref, owner, elastic.full, elastic.signalled)
    if state.scaled.get(ref.uid) != found:
        state.scaled[ref.uid] = found
        mark.jobs(owner)


def cluster_gone(state: ReadState, uid: str, owner: str) -> None:
    """It is this owner's no more: it is gone, or was observed in another role."""
    known = state.scaled.get(uid)
    if known is not None and known.owner == owner:
        del state.scaled[uid]
