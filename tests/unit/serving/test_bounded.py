"""What the gateway keeps does not grow with the log: no table of it is larger after twelve days than after six.

Every day brings other jobs, of other kinds, and ends with none. The limits are made small, so that a few hundred jobs
reach them; ``tests/perf/bench_month.py`` has the megabytes of a month with those that are in force.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kit.alone import reader_of
from kit.growing import tables
from kit.recorded import LogTime, RecordedLog
from kit.traces import trace
from muster.core import learned
from muster.core.actuation.intents import Actuator
from muster.core.cell.deciders import DECIDERS
from muster.core.promising import promises
from muster.core.reading.watcher import Watcher
from muster.core.stage import Folder, Stage
from muster.events.envelope import Stored
from muster.serving import live as following
from muster.serving import series
from muster.serving.live import Live
from muster.serving.moments import Moments
from muster.told.codes import happenings
from muster.told.readmodel import history, readstate
from muster.tracesim.runner import MUSTER, Options, simulate

DAYS, JOBS = 12, 40
DAY_S = 24 * 3_600
LIMITS = (
    (readstate, "GONE_KEPT", 20), (history, "GONE_KEPT", 20), (learned, "MAX_KINDS", 30), (learned, "KEPT", 8),
    (history, "RELEASES", 20), (history, "TAKERS", 20), (promises, "REMEMBERED", 40), (series, "MOST_POINTS", 40),
    (happenings, "MAX_PER_SUBJECT", 10), (following, "RING", 100),
)  # fmt: skip
CLUSTER = {"nodes": [{"count": 2, "gpus": 8}], "queues": {"a": {"min": 8, "max": 16}, "b": {"min": 8, "max": 16}}}


def arrivals() -> str:
    """Job, queue, GPUs, when it comes and how long it runs: more than there is room for at noon, none at night."""
    lines = []
    for day in range(DAYS):
        for number in range(JOBS):
            comes = day * DAY_S + number * 300
            runs = 300 + 600 * ((number * 7 + day) % 5)
            lines.append(
                f"{chr(97 + day)}x{chr(97 + number % 26)}-{number},{'ab'[number % 2]},{1 + number % 8},{comes},{runs}"
            )
    return "\n".join(lines)


def peak(sizes: list[Counter[str]]) -> Counter[str]:
    """The largest size of each table: a histogram has more classes on one day than on the next."""
    return Counter({name: max(day[name] for day in sizes) for name in sizes[-1]})


def grown_in(sizes: list[Counter[str]]) -> dict[str, tuple[int, int]]:
    """The tables that are larger in the second half."""
    half, end = peak(sizes[: DAYS // 2]), peak(sizes[DAYS // 2 :])
    return {name: (half[name], size) for name, size in end.items() if size > half[name] * 3 // 2 + 3}


def test_no_table_of_a_process_grows_with_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of the table in docs/reliability.md: what each stage and the gateway keep."""
    for module, name, most in LIMITS:
        monkeypatch.setattr(module, name, most)
    commits: list[Stored] = []
    simulate(trace(tmp_path, CLUSTER, arrivals()), MUSTER, Options(), alone={}, hears=commits.append)
    log = RecordedLog(commits)
    live = Live(log=reader_of(log), snapshots=None, clock=LogTime(log), moments=Moments(log, tmp_path))
    began, noted, sizes = commits[0].commit.at, 0, list[Counter[str]]()
    for stored in commits:
        if stored.commit.at - began >= (len(sizes) + 1) * DAY_S * 1_000:
            sizes.append(tables(live.state) + Counter({"ring": len(live._ring), "series": len(live.series._points)}))
        live._fold([stored])
        noted = live.series.note(live.state, noted)
    assert len(sizes) == DAYS - 1
    assert not live.state.queues.book.queues, "at night no job waits"
    assert grown_in(sizes) == {}
    half = peak(sizes[: DAYS // 2])
    reached = ("ring", "series", ".records", ".gone", ".releases", ".takers", ".promises.durations.kinds")
    assert [name for name in reached if half[name] < 20] == [], "the limits have been reached by then"
    for stage in (*DECIDERS.values(), Actuator, lambda: Watcher("rayjobs")):
        made = stage()
        assert grown_in(daily(made, commits)) == {}, made.name


def daily(stage: Stage[Any], commits: list[Stored]) -> list[Counter[str]]:
    """The tables of a stage's state at the end of each day but the last."""
    state, folder, sizes = stage.initial(), Folder(stage), list[Counter[str]]()
    for stored in commits:
        if stored.commit.at - commits[0].commit.at >= (len(sizes) + 1) * DAY_S * 1_000:
            sizes.append(tables(state))
        folder.fold(state, stored)
    return sizes
