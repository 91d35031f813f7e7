"""What the rules decide on two weeks of Philly, beside other policies; MUSTER_TEST_TRACES names the traces' folder.

Run: python tests/perf/bench_quality.py
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

from figures import Progress, Table
from msgspec.structs import replace

from kit.traces import philly
from muster.events.envelope import Stored
from muster.simulation import transforms
from muster.simulation.covering import Coverage
from muster.simulation.jobsfile import read_trace
from muster.simulation.model import Trace
from muster.simulation.runner import MUSTER, Options, simulate
from muster.simulation.stops import COSTLY, Stops

TITLE = "Deciding on two weeks of the Philly trace"
REFERENCES = ("fifo", "best-effort-fifo", "static-quota", "kueue-like", "kai-like", "volcano-like", "sjf", "srtf")
RECLAIMING = ("kueue-like", "kai-like")
LEARNED = {"order": "learned"}
WEEK_MS = 7 * 24 * 3_600_000
GRACES = ("60s", "5m", "15m", "1h")
LENDING = LEARNED | {"borrow-freely": "4h"}
HALF = Stops(checkpoint=1_800_000, checkpointing=500, restart=60_000)
"""Half of the jobs save their work every half hour, and take a minute to work again."""


def measure(traces: Path, say: Progress) -> Table:
    """One round: it is exact, equal inputs give equal figures."""
    with tempfile.TemporaryDirectory() as name:
        trace = read_trace(*philly(traces, Path(name)))
    plain = transforms.without_guarantees(trace)
    found: dict[str, float] = {}
    for policy in REFERENCES:
        _run(found, say, policy, trace, policy, {})
    _run(found, say, "muster, default order", trace, MUSTER, {})
    coverage = Coverage()
    _run(found, say, "muster, learned order", trace, MUSTER, LEARNED, hears=coverage.fold)
    for week, named in enumerate(("first", "second")):
        kept = coverage.percent(week * WEEK_MS, (week + 1) * WEEK_MS)
        assert kept is not None, named
        found[f"muster, learned order: promised starts kept in the {named} week, %"] = kept
    for grace in GRACES:
        for policy in (MUSTER, *RECLAIMING):
            rules = {"reclaim-grace": grace} | (LEARNED if policy == MUSTER else {})
            named = f"{policy}, learned order" if policy == MUSTER else policy
            _run(found, say, f"{named}, grace {grace}", trace, policy, rules)
        rules = LENDING | {"reclaim-grace": grace}
        _run(found, say, f"muster, learned order, lends, grace {grace}", trace, MUSTER, rules)
    _run(found, say, "muster, learned order, no guarantees", plain, MUSTER, LEARNED)
    for named, other in (
        ("arrivals x 1.3", transforms.closer(trace, Fraction(13, 10))),
        ("sizes x 2", transforms.larger(trace, Fraction(2))),
        ("one queue", transforms.merged(trace)),
    ):
        _run(found, say, f"muster, default order, {named}", other, MUSTER, {})
        _run(found, say, f"muster, learned order, {named}", other, MUSTER, LEARNED)
        _run(found, say, f"muster, learned order, lends, {named}", other, MUSTER, LENDING)
    for policy in RECLAIMING:
        _run(found, say, f"{policy}, half save", trace, policy, {}, HALF)
    _run(found, say, "muster, learned order, half save", trace, MUSTER, LEARNED, HALF)
    served = LEARNED | {"least-attained": "4h,32h"}
    _run(found, say, "muster, learned order, half save, least attained", trace, MUSTER, served, HALF)
    about = (
        "26,936 jobs on 448 GPUs, eleven queues with guarantees that add up to all of it. Stopped jobs begin again "
        "from nothing, and stop at once; `half save`: half of the jobs note a checkpoint every 1,800 s, and all take "
        "60 s to work again. `grace`: how long who is owed waits before others are evicted. Mean completion time, "
        "GPU-hours of work thrown away, and the most evictions of one job. No run of Muster exceeds a quota. "
        "`least attained`: `muster.dev/least-attained: 4h,32h`. `lends`: `muster.dev/borrow-freely: 4h`. "
        "Promised starts: of the jobs that waited a minute or longer, how many started within "
        "the bound that was promised to 90 of 100."
    )
    return Table(TITLE, about, [found])


def _run(
    found: dict[str, float],
    say: Progress,
    name: str,
    trace: Trace,
    policy: str,
    rules: dict[str, str],
    stops: Stops = COSTLY,
    hears: Callable[[Stored], None] | None = None,
) -> None:
    say(f"quality: {name}")
    ruled = Trace(replace(trace.cluster, rules={**trace.cluster.rules, **rules}), trace.jobs)
    metrics = simulate(ruled, policy, Options(stops=stops), alone={}, hears=hears).metrics
    assert metrics.jct_mean_s is not None, name
    assert metrics.quota_violation_gpu_s == 0 or policy in ("fifo", "best-effort-fifo", "sjf", "srtf"), name
    found[f"{name}: mean completion, s"] = metrics.jct_mean_s
    found[f"{name}: GPU-hours lost"] = metrics.wasted_gpu_s / 3600
    found[f"{name}: most evictions of one job"] = metrics.max_evictions_per_job


def main() -> None:
    from bench_placement import traces

    folder = traces()
    if folder is None:
        sys.exit("MUSTER_TEST_TRACES names no folder of public traces")
    table = measure(folder, Progress())
    print(table.title, table.about, *table.lines(), sep="\n")


if __name__ == "__main__":
    main()
