"""Days of jobs with one as wide as the cluster: what is idle for it, and how long it and the others wait."""

from __future__ import annotations

import random

import pytest

from kit.idled import Idled
from kit.traces import trace
from muster.model.quota import WIDTHS_TO_AGE
from muster.tracesim.runner import Options, simulate

HOUR_S = 3600
DAY_S = 24 * HOUR_S
CORES = 32

SHORT, LONG = (300, 1800, 20), (6 * HOUR_S, 20 * HOUR_S, 1)
"""How long jobs run, from and to (s), and how many of them do."""


def day_of(
    folder, queues: dict[str, int], spans: tuple[tuple[int, int, int], ...], load: float, seed: int
) -> tuple[dict[str, tuple[int, int]], Idled]:
    """A day of jobs of one core in b and c, and after an hour a job of all cores in a: job -> (when it came, when it
    started), in s; and what was idle for claims for age by the log.
    """
    rng, rows, now = random.Random(seed), list[tuple[float, str]](), 0.0
    mean = sum((low + high) / 2 * times for low, high, times in spans) / sum(times for *_, times in spans)
    while now < DAY_S:
        low, high, _ = rng.choices(spans, [times for *_, times in spans])[0]
        rows.append((now, f"j{len(rows):04},{rng.choice('bc')},1,{int(now)},{rng.randint(low, high)}"))
        now += rng.expovariate(CORES * load / mean)
    rows.append((HOUR_S, f"wide,a,{CORES},{HOUR_S},600"))
    limits = {name: {"min": least, "max": CORES} for name, least in queues.items()}
    cluster = {"nodes": [{"count": 4, "gpus": 8}], "queues": limits}
    made = trace(folder, cluster, "\n".join(row for _, row in sorted(rows)))
    judge = Idled({"root": CORES, **{f"root/{name}": CORES for name in queues}})
    found = simulate(made, "muster", Options(until=2 * DAY_S * 1000), hears=judge.hears)
    return {job.id: (job.submit // 1000, job.first_start // 1000) for job in found.history.jobs.values()}, judge


@pytest.mark.parametrize("others", [0, 8])
def test_a_day_with_a_job_as_wide_as_the_cluster(tmp_path, others):
    """It starts a drain after others have passed it where they are guaranteed nothing; it costs them nothing where they
    are.
    """
    queues = {"a": 16 if others else 0, "b": others, "c": others}
    jobs, judge = day_of(tmp_path, queues, (SHORT,), 0.7, 7)
    came, started = jobs.pop("wide")
    waits = [start - at for at, start in jobs.values()]
    assert min(start for _, start in jobs.values()) >= 0
    assert max(waits) <= HOUR_S
    assert judge.most() <= CORES * (started - came if started >= 0 else 2 * DAY_S) * 1000 // 10
    if others:
        assert started > DAY_S - 1800
        assert sum(waits) / len(waits) <= 60
    else:  # Later jobs pass it, and at most half an hour later all have ended that ran then.
        passed_s = WIDTHS_TO_AGE * sum(SHORT[:2]) / 2 / 0.7
        assert started - came <= 1.2 * passed_s + 1800


@pytest.mark.parametrize(("load", "seed"), [(0.6, 1), (0.9, 2)])
def test_long_jobs_do_not_make_a_wide_one_stop_the_cluster(tmp_path, load, seed):
    """A drain would take a day: nothing is idle for it within two."""
    jobs, judge = day_of(tmp_path, {"a": 0, "b": 0, "c": 0}, (SHORT, LONG), load, seed)
    assert judge.most() == 0
    waits = [start - at for name, (at, start) in jobs.items() if name != "wide" and start >= 0]
    assert sum(waits) / len(waits) <= 600
