"""From a log to what it comes to: the view of the present, from the newest snapshot if one can be used."""

from __future__ import annotations

from muster.bus.errors import BusError
from muster.bus.snapshots import JetStreamSnapshots
from muster.core.presentation.view import View, ViewState
from muster.core.stage import Folder
from muster.runtime.snapshotting import restore
from muster_cli.reading import Reading, commits


async def present_view(reading: Reading, view: View | None = None) -> ViewState:
    """What the presenter would know now. A ``view`` is given by who goes on folding."""
    view = view or View()
    folder = Folder(view)
    state = await _restored(reading, view)
    async for stored in commits(reading.log, state.seq):
        folder.fold(state, stored.seq, stored.commit)
    return state


async def _restored(reading: Reading, view: View) -> ViewState:
    """The newest snapshot of the view; its beginning when none can be used."""
    snapshots = JetStreamSnapshots(reading.js, reading.log.identity, warn=lambda _: None)
    try:
        state, _ = await restore(snapshots, reading.log.identity, view.name, "0", view.initial())
    except BusError:
        return view.initial()
    return state
