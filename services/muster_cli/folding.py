"""From a log to what it comes to: the read model, from the newest snapshot and what came after it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from msgspec import Struct

from muster.bus.errors import BusError
from muster.bus.snapshots import JetStreamSnapshots
from muster.core.readmodel.model import ReadModel
from muster.core.readmodel.state import ReadState
from muster.core.stage import Folder
from muster.events.envelope import Stored
from muster.ports import Snapshot
from muster.runtime.snapshotting import decode_state, restore, state_schema
from muster_cli.console import Output
from muster_cli.positions import Mark, until
from muster_cli.reading import Reading, commits
from muster_cli.sources import Source, source_of


class Read(Struct, frozen=True):
    """The read model as of a position. ``present``: when it is now, 0 where only the log's time is known."""

    state: ReadState
    acting: bool
    present: int


async def read_model(source: Source | None, out: Output, end: Mark | None) -> Read:
    """The read model of the log a command means, as of a position or of now.

    Raises CliError, BusError, LogFileError, ArchiveError.
    """
    model = ReadModel()
    folder = Folder(model)
    async with source_of(source, out, based=True) as feed:
        state = _based(feed.base, model)
        stream: AsyncIterator[Stored] = feed.commits
        if feed.reading is not None:
            kept = await _restored(feed.reading, model)
            if kept.seq > state.seq and not (end is not None and end.passed(kept.seq, kept.now)):
                state, stream = kept, commits(feed.reading.log, kept.seq, whole=False)
        async for stored in until(stream, end):
            folder.fold(state, stored.seq, stored.commit)
        present = end.at if end is not None else await feed.time()
        return Read(state, feed.acting, present)


async def present_view(reading: Reading, view: ReadModel | None = None) -> ReadState:
    """The read model as of now. A ``view`` is given by who goes on folding."""
    view = view or ReadModel()
    folder = Folder(view)
    state = await _restored(reading, view)
    async for stored in commits(reading.log, state.seq):
        folder.fold(state, stored.seq, stored.commit)
    return state


def _based(base: Sequence[Snapshot], model: ReadModel) -> ReadState:
    """The state a log begins with, where its first generations are gone; else that before the first commit."""
    for each in base:
        if each.stage == model.name and each.schema == state_schema(ReadState):
            return decode_state(each.body, ReadState)
    return model.initial()


async def _restored(reading: Reading, view: ReadModel) -> ReadState:
    """The newest snapshot of the read model; its beginning when none can be used."""
    snapshots = JetStreamSnapshots(reading.js, reading.log.identity, warn=lambda _: None)
    try:
        state, _ = await restore(snapshots, reading.log.identity, view.name, "0", view.initial())
    except BusError:
        return view.initial()
    return state
