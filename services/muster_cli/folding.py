"""From a log to the state of a stage: from the newest usable snapshot, and the commits after the snapshot."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

from msgspec import Struct

from muster.bus.errors import BusError
from muster.bus.snapshots import JetStreamSnapshots
from muster.core.stage import Folder, Stage, StageState
from muster.events.envelope import Stored
from muster.model.language import say
from muster.ports import Snapshot
from muster.runtime.clock import SystemClock
from muster.runtime.logkeeping.snapshotting import decode_state, state_schema, usable
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState
from muster_cli.console import Output
from muster_cli.exits import NOT_FOUND, CliError
from muster_cli.options import Source
from muster_cli.positions import Bookmark, mark, reached, until
from muster_cli.reading import LogReading, commits
from muster_cli.sources import Feed, source_of

S = TypeVar("S", bound=StageState)
NEVER = 1 << 62
"""A log time (ms)."""
Fits = Callable[[int, int], bool]
"""Whether a state of this sequence and log time (ms) may be begun with."""


class Read(Struct, frozen=True):
    """The read model as of a position. ``present``: when it is now, 0 where only the log's time is known."""

    state: ReadState
    acting: bool
    present: int


async def read_model(source: Source | None, out: Output, end: Bookmark | None, *, promising: bool = True) -> Read:
    """The read model of the log a command means, as of a position or of now. ``promising``: see :func:`begun`.

    Raises CliError, BusError, LogFileError, ArchiveError.
    """
    async with source_of(source, out, based=True) as feed:
        return await read_feed(feed, end, promising=promising)


async def read_at(source: Source | None, out: Output, at: str, *, promising: bool = True) -> Read:
    """The same, as of ``--at``. Raises CliError where that lies outside of the log."""
    async with source_of(source, out, based=True) as feed:
        return await read_feed_at(feed, at, promising=promising)


async def read_feed_at(feed: Feed, at: str, *, promising: bool = True) -> Read:
    """The same of an open source."""
    end = mark(at, "--at")
    reading = await read_feed(feed, end, promising=promising)
    state = reading.state
    if end is None:
        return reading
    if not state.seq or end.passed(state.seq, state.now):
        raise CliError(say("--at {wanted} lies before the beginning of this log", wanted=end), NOT_FOUND)
    # A quiet log counts up to the present, and no log knows the future.
    present = state.now if end.seq else max(state.now, await feed.time() or SystemClock().now())
    reached(end, "--at", state.seq, present)
    return reading


async def read_feed(feed: Feed, end: Bookmark | None, *, promising: bool = True) -> Read:
    """The read model of an open source, as of a position or of now."""
    folder = Folder(ReadModel())
    state, stream = await begun(feed, lambda seq, now: end is None or not end.passed(seq, now), promising=promising)
    async for stored in until(stream, end):
        folder.fold(state, stored)
    present = end.at if end is not None else await feed.time()
    return Read(state, feed.acting, present)


async def begun(feed: Feed, fits: Fits, *, promising: bool = True) -> tuple[ReadState, AsyncIterator[Stored]]:
    """The newest stored read model that fits, else the state before the first commit; and the later commits.

    ``promising``: false for a command that tells no promise. Promises are most of the work of a fold.
    """
    model = ReadModel()
    state, stream = _based(feed.base, model), feed.commits
    if feed.reading is not None:
        kept = await newest_kept(feed.reading, model, fits)
        if kept is not None and kept.seq > state.seq:
            state, stream = kept, feed.after(kept)
    if not promising:
        _promise_nothing(state)
    return state, stream


def _promise_nothing(state: ReadState) -> None:
    state.promises.next_at = NEVER


async def present_view(reading: LogReading, view: ReadModel | None = None, *, promising: bool = True) -> ReadState:
    """The read model as of now. A caller that goes on folding passes a ``view``. ``promising``: see :func:`begun`."""
    return await present_state(reading, view or ReadModel(), (lambda _: None) if promising else _promise_nothing)


async def present_state(reading: LogReading, stage: Stage[S], begin: Callable[[S], None] = lambda _: None) -> S:
    """The state of a stage as of now. ``begin``: is called with the state that the fold begins with.

    Raises BusError; CliError where needed commits were removed.
    """
    state = await newest_kept(reading, stage, lambda _seq, _now: True) or stage.initial()
    begin(state)
    folder = Folder(stage)
    async for stored in commits(reading.log, state.seq):
        folder.fold(state, stored)
    return state


def _based(base: Sequence[Snapshot], model: ReadModel) -> ReadState:
    """The initial state of a log without its first generations; else the state before the first commit."""
    for snapshot in base:
        if snapshot.stage == model.name and snapshot.schema == state_schema(ReadState):
            return decode_state(snapshot.body, ReadState)
    return model.initial()


async def newest_kept(reading: LogReading, stage: Stage[S], fits: Fits) -> S | None:
    """The newest snapshot of a stage that can be used and fits; None when none does. Raises nothing."""
    snapshots = JetStreamSnapshots(reading.js, reading.log.identity, warn=lambda _: None)
    with contextlib.suppress(BusError):
        async for state in usable(snapshots, reading.log.identity, stage.name, "0", stage.initial()):
            if fits(state.seq, state.now):
                gc.freeze()  # The state lives as long as the command.
                return state
    return None
