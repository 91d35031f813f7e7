"""The source of a command's log: a running log, the data directory of a demo, an exported file, or an archive."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

from muster.bus.log import JetStreamLog
from muster.core.stage import StageState
from muster.events.envelope import Stored
from muster.model.language import say
from muster.ports import Snapshot
from muster.runtime.logkeeping.logfile import read_base
from muster.runtime.logkeeping.snapshotting import decode_state, state_schema
from muster_cli.console import Output
from muster_cli.exits import USAGE, CliError
from muster_cli.logfiles import complete, existing, progress
from muster_cli.options import Source
from muster_cli.reading import LogPlace, LogReading, base_of, commits, judged, locate, opened, tell_which
from muster_cli.waitbar import counting


class Feed:
    """An open source. ``commits`` are the commits from the first to the present end, read once.

    ``base``: the states of the stages before the first commit, for a log without its first generations.
    """

    def __init__(
        self,
        stored: AsyncIterator[Stored],
        place: LogPlace | None = None,
        log: JetStreamLog | None = None,
        base: Sequence[Snapshot] = (),
        reading: LogReading | None = None,
        shown: Callable[[int], None] | None = None,
    ) -> None:
        """``shown``: is called with the sequence of each commit that is read."""
        self._shown = shown
        self.commits = stored
        self.reading = reading
        """Where the log runs, the open connection to it: commits may be read again from any position."""
        self.base = base
        self.place = place
        self.log = log

    @property
    def acting(self) -> bool:
        """False when no actuator is known to act there."""
        return self.place is None or self.place.acting

    def after(self, state: StageState) -> AsyncGenerator[Stored, None]:
        """The commits after the commits that a state has folded, of a running log."""
        assert self.reading is not None
        feed = commits(self.reading.log, state.seq, whole=False)
        return watched(judged(feed, state), self._shown)

    def raw(self, seq: int) -> AsyncGenerator[Stored, None]:
        """The commits after a sequence as stored, without a judgement by earlier commits."""
        assert self.reading is not None
        return commits(self.reading.log, seq, whole=False)

    async def time(self) -> int:
        """The present time at the log; 0 for a recorded log."""
        return 0 if self.log is None else await self.log.time()


@contextlib.asynccontextmanager
async def source_of(
    source: Source | None, out: Output, verb: str = "Reading", *, based: bool = False
) -> AsyncIterator[Feed]:
    """The log that a command means. ``based``: a log that begins with states of the stages is enough.

    Raises CliError, BusError, LogFileError, ArchiveError.
    """
    source = source or Source()
    named = [name for name, value in (("--log", source.log), ("--data", source.data), ("--url", source.url)) if value]
    if len(named) > 1:
        raise CliError(
            say("{named} both say where the log is; give one of them", named=say(" and ").join(named)), USAGE
        )
    if source.log is not None:
        path = existing(source.log)
        base = read_base(path) if based else []
        _check_states(base)
        with progress(path, verb) as bar:
            yield Feed(_whole(bar, path, base), base=base)
        return
    async with contextlib.AsyncExitStack() as stack:
        if source.data is None:
            place = locate(source.bus)
            tell_which(out, place)
        else:
            from muster_cli.datafolder import place_of  # It starts a server.

            place = await stack.enter_async_context(place_of(source.data, source.cell))
        reading = await stack.enter_async_context(opened(place))
        base = await base_of(reading) if based else []
        _check_states(base)
        stream = commits(reading.log, whole=not base)
        stack.push_async_callback(stream.aclose)
        shown = stack.enter_context(counting(verb, await reading.log.end(), "commits"))
        begun = decode_state(base[0].body, StageState) if base else StageState()
        yield Feed(watched(judged(stream, begun), shown), place, reading.log, base, reading, shown)


async def watched(stream: AsyncIterator[Stored], shown: Callable[[int], None] | None) -> AsyncGenerator[Stored, None]:
    """The commits, with a progress bar on a terminal."""
    async for stored in stream:
        if shown is not None:
            shown(stored.seq)
        yield stored


async def _whole(
    stored_commits: Iterator[Stored], path: Path, base: Sequence[Snapshot]
) -> AsyncGenerator[Stored, None]:
    """The commits of a recorded log, complete from the beginning, or from the log's states on."""
    for stored in complete(path, stored_commits, begin=base[0].seq + 1 if base else 1):
        yield stored


def _check_states(base: Sequence[Snapshot]) -> None:
    """Raises CliError for states that are none of this version's."""
    if not base:
        return
    from muster.core.cell.deciders import DECIDERS  # All stages: a command without stages starts sooner.

    shapes = {name: state_schema(type(make().initial())) for name, make in DECIDERS.items()}
    for state in base:
        if state.schema != shapes.get(state.stage, state.schema):
            raise CliError(
                say(
                    "this log begins at sequence {seq} with states of the stages, and that of {stage} is not "
                    "one of this version's: use the version that wrote it, or the archive of the whole log",
                    seq=state.seq + 1,
                    stage=state.stage,
                )
            )
