"""A recorded past run again with something changed: what differs is told, and what does not is not."""

import json

import pytest

from kit.traces import trace
from muster.runtime.logfile import read_log
from muster.simulation.contrast import contrast
from muster.simulation.model import TraceError
from muster.simulation.past import past_of, prioritised
from muster.simulation.runner import Options, simulate
from muster_cli.main import run

CLUSTER = {"nodes": [{"count": 2, "gpus": 4}], "queues": {"a": {"min": 4, "max": 4}, "b": {"min": 4, "max": 8}}}
JOBS = "a1,a,4,0,100\na2,a,4,10,50\na3,a,4,20,50\nb1,b,4,0,40"

TREE = """
apiVersion: scheduling.sigs.k8s.io/v1beta1
kind: ElasticQuotaTree
metadata: {name: simulation, namespace: kube-system}
spec:
  root:
    name: root
    min: {nvidia.com/gpu: 8}
    max: {nvidia.com/gpu: 8}
    children:
    - {name: a, namespaces: [a], min: {nvidia.com/gpu: 4}, max: {nvidia.com/gpu: 8}}
    - {name: b, namespaces: [b], min: {nvidia.com/gpu: 4}, max: {nvidia.com/gpu: %s}}
"""


@pytest.fixture
def log(tmp_path):
    simulate(trace(tmp_path, CLUSTER, JOBS), "muster", Options(), log=tmp_path / "log.jsonl")
    return tmp_path / "log.jsonl"


def test_the_past_of_a_log_is_the_trace_it_was_made_of(tmp_path, log):
    made, past = trace(tmp_path, CLUSTER, JOBS), past_of(read_log(log))
    assert past.trace.jobs == made.jobs
    assert past.trace.cluster.capacity == made.cluster.capacity
    assert [(q.path, q.min, q.max) for q in past.trace.cluster.leaves.values()] == [
        (q.path, q.min, q.max) for q in made.cluster.leaves.values()
    ]
    assert past.keys == {"a1": "a/a1", "a2": "a/a2", "a3": "a/a3", "b1": "b/b1"}


def test_run_again_without_a_change_it_goes_as_it_went(log):
    past = past_of(read_log(log))
    once = simulate(past.trace, "muster", Options())
    assert {job.id: job.first_start for job in once.history.jobs.values()} == {
        "a1": 0, "a2": 100_000, "a3": 150_000, "b1": 0
    }  # fmt: skip
    found = contrast(once, simulate(past.trace, "muster", Options()), past.keys)
    assert not found.different
    assert found.same == 4


def test_a_job_that_had_not_ended_runs_on(tmp_path):
    simulate(trace(tmp_path, CLUSTER, JOBS), "muster", Options(until=60_000), log=tmp_path / "log.jsonl")
    past = past_of(read_log(tmp_path / "log.jsonl"))
    assert {job.id: job.duration for job in past.trace.jobs} == {"a1": None, "a2": None, "a3": None, "b1": 40_000}


def test_another_priority_lets_one_past_another(log):
    past = past_of(read_log(log))
    before = simulate(past.trace, "muster", Options())
    after = simulate(prioritised(past, {"a/a3": 5}).trace, "muster", Options())
    found = contrast(before, after, past.keys)
    assert [(each.job, each.before, each.after) for each in found.earlier] == [("a/a3", 150_000, 100_000)]
    assert [(each.job, each.before, each.after) for each in found.later] == [("a/a2", 100_000, 150_000)]
    with pytest.raises(TraceError, match="there is no job a/none in this log"):
        prioritised(past, {"a/none": 5})


def test_a_larger_max_lets_jobs_start_earlier(tmp_path, log, capsys):
    (tmp_path / "tree.yaml").write_text(TREE % 8)
    assert run(["whatif", "--log", str(log), "--tree", str(tmp_path / "tree.yaml"), "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    # b1 ends at 40: a2 may borrow what it leaves, and a3 follows when a2 is done.
    assert [(each["job"], each["after"]) for each in told["earlier"]] == [("a/a2", 40_000), ("a/a3", 90_000)]
    assert (told["later"], told["lost"], told["same"]) == ([], [], 2)
    waits = {row["queue"]: (row["wait_before_s"], row["wait_after_s"]) for row in told["queues"]}
    assert waits["root/b"] == (0, 0)
    assert waits["root/a"] == (pytest.approx((90 + 130) / 3), pytest.approx((30 + 70) / 3))


def test_a_tree_in_which_a_job_never_fits_is_told(tmp_path, log, capsys):
    (tmp_path / "tree.yaml").write_text(
        (TREE % 8)
        .replace("max: {nvidia.com/gpu: 8}}\n    - {name: b", "max: {nvidia.com/gpu: 4}}\n    - {name: b")
        .replace(
            "[b], min: {nvidia.com/gpu: 4}, max: {nvidia.com/gpu: 8}",
            "[b], min: {nvidia.com/gpu: 2}, max: {nvidia.com/gpu: 3}",
        )
    )
    assert run(["whatif", "--log", str(log), "--tree", str(tmp_path / "tree.yaml")]) == 0
    told = capsys.readouterr().out
    assert "0 earlier, 0 later, 0 only with the change, 1 no longer at all, 3 as before" in told
    assert "No longer at all:\n  b/b1" in told


@pytest.mark.parametrize(
    ("more", "code", "told"),
    [
        ([], 2, "nothing is changed: give --tree or --priority"),
        (["--priority", "a1"], 2, "write NAMESPACE/NAME=N"),
        (["--priority", "x/y=3"], 1, "there is no job x/y in this log"),
        (["--tree", "none.yaml"], 3, "cannot read none.yaml"),
    ],
)
def test_what_cannot_be_tried_is_refused(log, capsys, more, code, told):
    assert run(["whatif", "--log", str(log), *more]) == code
    assert told in capsys.readouterr().err


def test_a_tree_that_breaks_rules_is_refused(tmp_path, log, capsys):
    (tmp_path / "tree.yaml").write_text(TREE % 2)
    assert run(["whatif", "--log", str(log), "--tree", str(tmp_path / "tree.yaml")]) == 2
    assert "min nvidia.com/gpu 4 is over max 2" in capsys.readouterr().err
