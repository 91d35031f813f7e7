"""A log of commits that are there, as a follower sees it; and the gateway's questions asked of one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from kit.alone import reader_of
from muster.events.envelope import Commit, Stored
from muster.ports import LogIdentity
from muster.serving.access import Viewed
from muster.serving.answering import Questions
from muster.serving.live import Live
from muster.serving.moments import Moments
from muster.serving.scope import EVERYTHING, Scope

BATCH = 100


class RecordedLog:
    """See ports.Log; nothing is appended."""

    def __init__(self, commits: Sequence[Stored], log_id: str = "log") -> None:
        self.commits = list(commits)
        self.identity = LogIdentity(cell="main", log_id=log_id, generation=1)

    async def append(self, commit: Commit, *, expected: int, headers: Mapping[str, str] | None = None) -> int:
        raise AssertionError("a reader appends nothing")

    async def follow(self, after: int, last: bytes = b"") -> AsyncGenerator[list[Stored], None]:
        for at in range(after, len(self.commits), BATCH):
            yield self.commits[at : at + BATCH]
        yield []
        await asyncio.Event().wait()

    async def end(self) -> int:
        return len(self.commits)

    async def last(self, stage: str, shard: str) -> int:
        return 0

    async def time(self) -> int:
        return self.commits[-1].commit.at


class LogTime:
    """A clock that shows the time of the last commit."""

    def __init__(self, log: RecordedLog) -> None:
        self._log = log

    def now(self) -> int:
        return self._log.commits[-1].commit.at


def questions(commits: Sequence[Stored], folder: Path) -> Questions:
    """The gateway's questions, where all of the log has been folded."""
    log = RecordedLog(commits)
    clock = LogTime(log)
    reader = reader_of(log)
    with suppress(StopIteration):
        reader.begin().send(None)
        raise AssertionError("what is there tells its end at once")
    live = Live(log=reader, snapshots=None, clock=clock, moments=Moments(log, folder))
    live._fold(log.commits)
    live._fold([])
    return Questions(live, clock)


def tenant(*namespaces: str, nodes: bool = False) -> Viewed:
    return Viewed("tenant", Scope(frozenset(namespaces), cluster=nodes))


ADMIN = Viewed("admin", EVERYTHING)
