"""Two weeks of a public trace of 27,000 jobs, whole: needs MUSTER_TEST_TRACES. Samples of it run in tests/unit."""

import pytest

from kit.traces import full_traces, philly, run
from muster.tracesim.jobsfile import read_trace

PUBLISHED = {
    "fifo": 55_587,
    "best-effort-fifo": 24_464,
    "static-quota": 150_892,
    "sjf": 15_211,
    "srtf": 9_774,
}
"""Mean completion time in seconds by an independent simulator of the same trace."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("policy", PUBLISHED)
def test_policies_agree_with_an_independent_simulator(tmp_path, policy):
    found = run(read_trace(*philly(full_traces(), tmp_path)), policy)
    assert found.jobs.finished == 26_936
    assert found.metrics.jct_mean_s == pytest.approx(PUBLISHED[policy], abs=1)
    assert found.metrics.jct_lower_bound_s == pytest.approx(9_095, abs=1)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_real_stages_run_all_of_it_within_every_limit(tmp_path):
    found = run(read_trace(*philly(full_traces(), tmp_path)))
    assert found.jobs.finished == 26_936
    assert found.metrics.quota_violation_gpu_s == 0
    assert found.metrics.partial_hold_gpu_s == 0
    assert found.metrics.jct_mean_s < 30_000
