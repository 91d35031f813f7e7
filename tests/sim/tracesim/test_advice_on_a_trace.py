"""What `muster ask` promises of a start holds on a trace."""

from __future__ import annotations

from pathlib import Path

from kit.advised import Asking
from kit.traces import SAMPLES, muri
from muster.tracesim.jobsfile import read_trace
from muster.tracesim.runner import MUSTER, Options, simulate


def test_on_a_trace_nine_of_ten_start_by_what_was_promised(tmp_path: Path) -> None:
    """A sample; ``tests/perf/bench_advice.py`` has the whole traces."""
    asking = Asking(every=1)
    made = read_trace(*muri(SAMPLES / "testbed_64gpu.csv", tmp_path))
    simulate(made, MUSTER, Options(), alone={}, hears=asking.hear)
    at_once, said = asking.at_once
    assert at_once == said
    kept, known = asking.coverage
    assert 0 < 0.9 * known <= kept  # So few waits end per age and size that the bounds stay careful: 127 of 127.
