"""A thousand jobs of a trace under each policy: equal inputs make equal logs, and the log has it all."""

import pytest

from kit.audits import audit
from kit.traces import SAMPLES, files
from muster.runtime.logkeeping.logfile import read_log
from muster.runtime.replaying.replay import replay
from muster.tracesim.history import history_of
from muster.tracesim.jobsfile import read_trace
from muster.tracesim.metrics import measure
from muster.tracesim.runner import ALL, Options, simulate

PHILLY = {
    "nodes": [{"count": 4, "gpus": 8}],
    "queues": {
        name: {"min": 3, "max": 32}
        for name in ("b436b2", "ed69ec", "11cb48", "e13805", "ee9e8c", "7f04ca", "2869ce", "103959", "6214e9", "6c71a0")
    },
}


def sample(tmp_path):
    files(tmp_path, PHILLY, "")
    return read_trace(tmp_path / "cluster.json", SAMPLES / "philly_sample.csv")


@pytest.mark.parametrize("policy", ALL)
def test_equal_inputs_make_equal_logs_and_the_log_alone_gives_the_figures(tmp_path, policy):
    made = sample(tmp_path)
    logs = [tmp_path / f"{number}.jsonl" for number in range(2)]
    found = [simulate(made, policy, Options(seed=3), log=log, alone={}) for log in logs]
    assert logs[0].read_bytes() == logs[1].read_bytes()
    again = measure(made, history_of(read_log(logs[0])), stops=found[0].stops, alone={})
    assert again == found[0].metrics == found[1].metrics
    assert found[0].jobs.submitted == 1000
    assert found[0].jobs.unfinished == 0 or policy == "static-quota"
    if policy == "muster":
        report = replay(read_log(logs[0]))
        assert (report.divergences, report.violations) == ([], [])
        assert report.decisions > 1000
        assert not any(audit(read_log(logs[0])).broken.values())
