"""Any moment of a log: the state that folding gives, found from rungs whose number and bytes have a bound."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from random import Random

import pytest

from kit.chaos import Chaos
from kit.recorded import BATCH, RecordedLog
from muster.core.stage import Folder
from muster.events.envelope import Commit, Stored
from muster.runtime.logkeeping.snapshotting import encode_state
from muster.serving import moments as ladder
from muster.serving.moments import LogMark, Moments, OutsideError
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState


@pytest.mark.parametrize("near", [3, 1000])
async def test_a_moment_is_the_state_that_folding_up_to_it_gives(
    chaos: Chaos, tmp_path: Path, near: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ladder, "NEAR", near)
    monkeypatch.setattr(ladder, "FAR", 4 * near)
    log = RecordedLog(chaos.bench.log)
    found = Moments(log, tmp_path)
    folder, state = Folder(ReadModel()), ReadState()
    for stored in log.commits:
        folder.fold(state, stored)
        assert encode_state(await found.at(LogMark(seq=stored.seq))) == encode_state(state)
        if found.is_due(stored.seq):
            found.keep(state)
    assert len(found.rungs) <= ladder.NEAR_RUNGS + len(log.commits) // near
    assert {each.path for each in found.rungs} == kept(tmp_path)
    with pytest.raises(OutsideError, match="after the end of the log"):
        await found.at(LogMark(seq=len(log.commits) + 1))
    with pytest.raises(OutsideError, match="begins after"):
        await found.at(LogMark(at=1))


@pytest.mark.parametrize("length", [3, 30])
async def test_however_long_the_log_a_moment_is_as_many_commits_as_lie_between_two_rungs(
    tmp_path: Path, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What bounds the time of any moment of a month; ``tests/perf/bench_moments.py`` has the seconds."""
    monkeypatch.setattr(ladder, "NEAR", 20)
    monkeypatch.setattr(ladder, "FAR", 160)
    commits = [
        Stored(seq, Commit(commit_id=f"c{seq}", stage="watcher", shard="pods", kind="input", at=seq))
        for seq in range(1, 160 * length)
    ]
    log = CountedLog(commits)
    found, state, folder = Moments(log, tmp_path), ReadState(), Folder(ReadModel())
    for stored in commits:
        folder.fold(state, stored)
        if found.is_due(stored.seq):
            found.keep(state)
    assert len(found.rungs) <= ladder.NEAR_RUNGS + 2 * length
    chance, most = Random(length), 0
    for _ in range(20):
        log.read = 0
        seq = chance.randrange(1, len(commits) + 1)
        assert (await found.at(LogMark(seq=seq))).seq == seq
        most = max(most, log.read)
    assert 0 < most <= ladder.FAR + BATCH


async def test_past_moments_have_a_bound_in_bytes(
    chaos: Chaos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ladder, "NEAR", 3)
    monkeypatch.setattr(ladder, "FAR", 3)
    log = RecordedLog(chaos.bench.log)
    found, folder, state, most = Moments(log, tmp_path), Folder(ReadModel()), ReadState(), 0
    for stored in log.commits:
        folder.fold(state, stored)
        found.keep(state)
        most = max(most, found.rungs[-1].size)
    size = len(encode_state(state))
    monkeypatch.setattr(ladder, "FILE_BYTES", 16 * most)
    monkeypatch.setattr(ladder, "KEPT_BYTES", 3 * size)
    for stored in reversed(log.commits):
        past = await found.at(LogMark(seq=stored.seq))
        assert past.seq == stored.seq
        found.keep(past)
    assert bytes_in(tmp_path) == sum(rung.size for rung in found.rungs) <= 16 * most + ladder.NEAR_RUNGS * most
    assert len(found._states) > 1
    assert sum(bytes_ for _, bytes_ in found._states.values()) <= 3 * size


def kept(folder: Path) -> set[Path]:
    return {*folder.iterdir()}


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


class CountedLog(RecordedLog):
    """Counts the commits that are read."""

    read = 0

    async def follow(self, after: int) -> AsyncGenerator[list[Stored], None]:
        async with aclosing(super().follow(after)) as stream:
            async for batch in stream:
                self.read += len(batch)
                yield batch


async def test_a_time_is_the_last_commit_at_it(chaos: Chaos, tmp_path: Path) -> None:
    log = RecordedLog(chaos.bench.log)
    found, now = Moments(log, tmp_path), 0
    for stored in log.commits[::9]:
        now = max(now, stored.commit.at)
        state = await found.at(LogMark(at=now))
        assert state.now <= now
        following = log.commits[state.seq].commit.at if state.seq < len(log.commits) else now + 1
        assert max(state.now, following) > now
