"""The read model at any moment: states kept on a ladder that thins with age, and the commits between two rungs.

A rung is an encoded state in a file. Rungs are close near the end of the log. Further back, a fold from one rung to the
next takes about a second. A moment is the rung before and the following commits, folded in a thread. The last asked
moments are kept. All readers share a state, and no reader changes a state.
"""

from __future__ import annotations

import asyncio
import threading
import zlib
from bisect import bisect_right, insort
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

from msgspec import Struct

from muster.core.stage import Folder
from muster.events.envelope import Stored
from muster.ports import Log, Snapshot
from muster.runtime.logkeeping.snapshotting import decode_state, encode_state, state_schema
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState

NEAR = 2_000
"""Commits between two rungs near the end."""
FAR = 16_000
"""Commits between two rungs further back: less than two seconds of folding."""
NEAR_RUNGS = 8
FILE_BYTES = 512 << 20
"""Of all rungs; of more, every second one further back goes."""
KEPT_BYTES = 32 << 20
"""Of the moments that are kept decoded, as they are encoded. The newest moment is kept whatever its size."""
LEVEL = 1
"""Of compression."""


class LogMark(Struct, frozen=True):
    """A sequence, or a log time in ms since the epoch; the other is 0."""

    seq: int = 0
    at: int = 0

    def passed(self, seq: int, now: int) -> bool:
        """Whether a commit with this sequence and log time is after the mark."""
        return seq > self.seq if self.seq else now > self.at


class Rung(Struct, frozen=True, order=True):
    """A kept state."""

    seq: int
    now: int
    path: Path
    size: int = 0
    """Bytes of the file."""


class OutsideError(Exception):
    """The moment is before the begin of the log, or after the end."""


class Moments:
    """The ladder of one log. ``folder``: the place of the rungs; the caller removes the folder."""

    def __init__(self, log: Log, folder: Path, base: Sequence[Snapshot] = ()) -> None:
        """``base``: the initial states of a log whose first generations are gone."""
        self._log = log
        self._folder = folder
        self._rungs: list[Rung] = []
        self._states: OrderedDict[int, tuple[ReadState, int]] = OrderedDict()
        """sequence -> the state, and its bytes when it is encoded"""
        self._turn = asyncio.Lock()
        self._lock = threading.Lock()
        self._first = ReadState()
        for snapshot in base:
            if snapshot.stage == ReadModel.name and snapshot.schema == state_schema(ReadState):
                self._first = decode_state(snapshot.body, ReadState)

    @property
    def rungs(self) -> Sequence[Rung]:
        return tuple(self._rungs)

    def keep(self, state: ReadState) -> None:
        """Keep a state, as it is now, as a rung; rungs that have become too close to each other are removed."""
        path = self._folder / f"{state.seq}.state"
        body = zlib.compress(encode_state(state), LEVEL)
        with self._lock:
            if any(rung.seq == state.seq for rung in self._rungs):
                return
            path.write_bytes(body)
            insort(self._rungs, Rung(state.seq, state.now, path, len(body)))
            self._thin()

    def is_due(self, seq: int) -> bool:
        """Whether a state at a sequence is to be kept: the state is far enough behind the rung before."""
        with self._lock:
            number = bisect_right(self._rungs, seq, key=lambda rung: rung.seq)
            before = self._rungs[number - 1].seq if number else self._first.seq
            if number == len(self._rungs):
                return seq - before >= NEAR
            return seq - before >= FAR - NEAR and self._rungs[number].seq - seq >= NEAR

    def _thin(self) -> None:
        old = self._rungs[:-NEAR_RUNGS]
        kept: list[Rung] = []
        for number, rung in enumerate(old):
            following = old[number + 1].seq if number + 1 < len(old) else rung.seq + FAR
            if kept and following - kept[-1].seq <= FAR:
                rung.path.unlink(missing_ok=True)
            else:
                kept.append(rung)
        if sum(rung.size for rung in (*kept, *self._rungs[-NEAR_RUNGS:])) > FILE_BYTES:
            for rung in kept[1::2]:
                rung.path.unlink(missing_ok=True)
            kept = kept[::2]
        self._rungs[:-NEAR_RUNGS] = kept

    def beginning(self) -> ReadState:
        """A copy of the initial state of the log."""
        return decode_state(encode_state(self._first), ReadState)

    async def copy_at(self, seq: int) -> ReadState:
        """The read model as of a sequence, to go on folding with; 0: before the first commit."""
        if seq <= self._first.seq:
            return self.beginning()
        async with self._turn:
            return await self._folded(LogMark(seq=seq))

    async def at(self, mark: LogMark) -> ReadState:
        """The read model as of a moment. Raises OutsideError, and the errors of the log."""
        async with self._turn:  # Two moments at once would take both cores from the readers of the present.
            known = self._states.get(mark.seq)
            if known is not None:
                self._states.move_to_end(mark.seq)
                return known[0]
            state = await self._folded(mark)
            self._states[state.seq] = state, await asyncio.to_thread(_size, state)
            while len(self._states) > 1 and sum(size for _, size in self._states.values()) > KEPT_BYTES:
                self._states.popitem(last=False)
            return state

    async def _folded(self, mark: LogMark) -> ReadState:
        end = await self._log.end()
        if mark.seq > end:
            raise OutsideError(f"sequence {mark.seq} lies after the end of the log, which is at {end}")
        state = await asyncio.to_thread(self._begin, mark)
        folder = Folder(ReadModel())
        async with aclosing(self._log.follow(state.seq)) as stream:
            while state.seq < end:
                batch = await anext(stream)
                if not batch:
                    break
                if not await asyncio.to_thread(self._fold, folder, state, batch, mark):
                    break
        if not state.seq:
            raise OutsideError("the log begins after that moment")
        return state

    def _begin(self, mark: LogMark) -> ReadState:
        """The initial state of a fold: a copy of the newest rung that is not after the mark."""
        with self._lock:  # A rung that is being read does not go.
            fitting = [rung for rung in self._rungs if not mark.passed(rung.seq, rung.now)]
            body = fitting[-1].path.read_bytes() if fitting else b""
        if body:
            return decode_state(zlib.decompress(body), ReadState)
        if mark.passed(self._first.seq, self._first.now) and self._first.seq:
            raise OutsideError(f"the log begins at sequence {self._first.seq + 1}, after that moment")
        return self.beginning()

    def _fold(self, folder: Folder, state: ReadState, batch: Sequence[Stored], mark: LogMark) -> bool:
        """Fold the commits up to the mark; returns whether all commits were folded."""
        for stored in batch:
            if mark.passed(stored.seq, max(state.now, stored.commit.at)):
                return False
            folder.fold(state, stored)
            if self.is_due(stored.seq):
                self.keep(state)
        return True


def _size(state: ReadState) -> int:
    return len(encode_state(state))
