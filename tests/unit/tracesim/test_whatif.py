"""A recorded past run again with something changed: what differs is told, and what does not is not."""

import json

import pytest
from msgspec.structs import replace

from kit.scenario import Play
from kit.traces import trace
from muster.core.cell.deciders import DECIDERS
from muster.events.system import RulesetActivated
from muster.runtime.logkeeping.logfile import read_log
from muster.tracesim.changes import decided_by, prioritised
from muster.tracesim.contrast import contrast
from muster.tracesim.facts import EPOCH_MS
from muster.tracesim.model import Trace, TraceError
from muster.tracesim.past import PastReader, past_of
from muster.tracesim.runner import Options, simulate
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
    assert not (found.earlier or found.later or found.gained or found.lost or found.evicted)
    assert found.same == 4


def test_a_job_that_had_not_ended_runs_on(tmp_path):
    simulate(trace(tmp_path, CLUSTER, JOBS), "muster", Options(until=60_000), log=tmp_path / "log.jsonl")
    past = past_of(read_log(tmp_path / "log.jsonl"))
    assert {job.id: job.duration for job in past.trace.jobs} == {"a1": None, "a2": None, "a3": None, "b1": 40_000}


def test_a_job_that_was_done_before_anybody_saw_it_run_does_not_run_for_ever(tmp_path, log, capsys):
    lines = log.read_text().splitlines()
    whole = {job.id: job.duration for job in past_of(read_log(log)).trace.jobs}
    kept = []
    for line in lines:
        found = json.loads(line)
        events = found["commit"].get("events", [])
        found["commit"]["events"] = [
            e for e in events if not (e["type"] == "workload_started" and e["ref"]["name"] == "a2")
        ]
        kept.append(json.dumps(found))
    log.write_text("\n".join(kept) + "\n")
    past = past_of(read_log(log))
    assert {job.id: job.duration for job in past.trace.jobs} == whole, "nothing lies between admission and start here"
    assert run(["whatif", "--log", str(log), "--priority", "a/a3=5"]) == 0
    assert "had not ended" not in capsys.readouterr().out


def test_jobs_without_an_end_are_told(tmp_path, capsys):
    simulate(trace(tmp_path, CLUSTER, JOBS), "muster", Options(until=60_000), log=tmp_path / "log.jsonl")
    assert run(["whatif", "--log", str(tmp_path / "log.jsonl"), "--priority", "a/a3=5"]) == 0
    assert "3 jobs had not ended where the log ends" in capsys.readouterr().out


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
        ([], 2, "nothing is changed: give one of --tree, --rule, "),
        (["--rule", "reclaim"], 2, "write it like reclaim=disabled"),
        (["--rule", "nothing=1"], 1, "there is no rule nothing; there are age-limit, "),
        (["--rule", "reclaim=perhaps"], 1, "'perhaps' is neither enabled nor disabled"),
        (["--policy", "root/a=Random"], 1, "there is no policy Random"),
        (["--policy", "root=Block"], 1, "there is no queue root where jobs wait; there are root/a, root/b"),
        (["--add-nodes", "8"], 2, "write COUNTxRESOURCE=AMOUNT"),
        (["--add-nodes", "2xcpu=lots"], 2, "write COUNTxRESOURCE=AMOUNT"),
        (["--ruleset", "99"], 1, "this build decides by rule sets 1 to "),
        (["--drop-node", "moon"], 1, "there is no node moon in this log; there are node-0000, node-0001"),
        (["--rule", "reclaim=disabled", "--from", "90000"], 1, "the log ends before the window begins"),
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


def told_of(capsys, log, *words) -> dict:
    assert run(["whatif", "--log", str(log), *words, "-o", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def shifts(found: dict, which: str) -> list[tuple[str, int, int]]:
    return [(each["job"], each["before"], each["after"]) for each in found[which]]


def test_a_window_begins_with_what_ran_and_what_waited(log):
    at = EPOCH_MS + 60_000
    reader = PastReader(lambda _seq, now: now >= at)
    for stored in read_log(log):
        reader.feed(stored)
    past = reader.past()
    # a1 has run up to its end at 100 s, which is the first thing that happens from 60 s on; b1 is over.
    assert [(job.id, job.submit, job.duration) for job in past.trace.jobs] == [
        ("a2", 1 + 0, 50_000), ("a3", 1 + 1, 50_000)
    ]  # fmt: skip
    assert (past.running, past.waiting) == (0, 2)


def test_what_ran_runs_on_and_what_waited_keeps_its_order(log, capsys):
    commits = list(read_log(log))
    at = next(each.seq for each in commits if each.commit.at >= EPOCH_MS + 40_000)
    found = told_of(capsys, log, "--from", str(at), "--priority", "a/a3=5")
    assert (found["jobs"], found["ran"], found["waited"]) == (3, 1, 2)
    assert shifts(found, "earlier") == [("a/a3", 110_000, 60_000)]
    assert shifts(found, "later") == [("a/a2", 60_000, 110_000)]


def test_a_snapshot_is_a_window_to_which_nobody_comes(log, capsys):
    first = next(each.seq for each in read_log(log) if each.commit.at >= EPOCH_MS + 10_000)
    found = told_of(capsys, log, "--from", str(first), "--until", str(first), "--priority", "a/a2=5")
    assert (found["jobs"], found["same"]) == (3, 3), "a3 had not come"


def test_fewer_nodes_and_more(log, capsys):
    fewer = told_of(capsys, log, "--drop-node", "node-0001")
    assert shifts(fewer, "later") == [("b/b1", 0, 100_000), ("a/a2", 100_000, 140_000), ("a/a3", 150_000, 190_000)]
    assert (fewer["earlier"], fewer["same"]) == ([], 1)
    back = told_of(capsys, log, "--drop-node", "node-0001", "--add-nodes", "1xnvidia.com/gpu=4")
    assert (back["same"], back["later"], back["earlier"]) == (4, [], [])


def test_a_policy_that_lets_nobody_overtake(tmp_path, capsys):
    cluster = {"nodes": [{"count": 2, "gpus": 4}], "queues": {"a": {"min": 8, "max": 8}}}
    jobs = "j1,a,4,0,100\nj2,a,8,10,50\nj3,a,4,20,50"
    simulate(trace(tmp_path, cluster, jobs), "muster", Options(), log=tmp_path / "log.jsonl")
    found = told_of(capsys, tmp_path / "log.jsonl", "--policy", "root/a=Block")
    assert shifts(found, "later") == [("a/j3", 20_000, 150_000)]
    assert found["same"] == 2


def test_a_rule_that_spares_whoever_borrows(tmp_path, capsys):
    cluster = {
        "nodes": [{"count": 2, "gpus": 4}],
        "queues": {"a": {"min": 4, "max": 8}, "b": {"min": 4, "max": 8}},
    }
    jobs = "b1,b,4,0,100\nb2,b,4,1,100\na1,a,4,10,20"
    simulate(trace(tmp_path, cluster, jobs), "muster", Options(), log=tmp_path / "log.jsonl")
    found = told_of(capsys, tmp_path / "log.jsonl", "--rule", "reclaim=disabled")
    assert shifts(found, "later") == [("a/a1", 10_000, 100_000)]
    assert [(each["job"], each["before"], each["after"]) for each in found["evicted"]] == [("b/b2", 1, 0)]
    assert run(["whatif", "--log", str(tmp_path / "log.jsonl"), "--rule", "reclaim=disabled"]) == 0
    assert "Evicted more or less often:\n  b/b2  0 times instead of 1" in capsys.readouterr().out


def test_urgent_jobs_that_take_the_place_of_others_of_their_queue(tmp_path, capsys):
    cluster = {"nodes": [{"count": 2, "gpus": 4}], "queues": {"a": {"min": 8, "max": 8}, "b": {"max": 8}}}
    jobs, header = "low,a,8,0,100,1\nurgent,a,4,10,20,5", "job_id,queue,gpus,submit_s,duration_s,priority"
    simulate(trace(tmp_path, cluster, jobs, header), "muster", Options(), log=tmp_path / "log.jsonl")
    found = told_of(capsys, tmp_path / "log.jsonl", "--rule", "preempt-lower-priority=true")
    assert [(each["job"], each["before"], each["after"]) for each in found["evicted"]] == [("a/low", 0, 1)]
    assert ("a/urgent", 100_000, 10_000) in shifts(found, "earlier")
    cluster["queues"]["a"]["preempt_lower_priority"] = True
    simulate(trace(tmp_path, cluster, jobs, header), "muster", Options(), log=tmp_path / "asked.jsonl")
    past = past_of(read_log(tmp_path / "asked.jsonl"))
    assert [queue.preempts for queue in past.trace.cluster.leaves.values()] == [True, None]
    again = simulate(past.trace, "muster", Options())
    assert {job.id: job.evictions for job in again.history.jobs.values()} == {"low": 1, "urgent": 0}


def test_one_deleted_while_it_waited_is_left_out(tmp_path):
    scene = Play()
    for line in ("tree", "synced", "job two", "job one", "job three", "gone one"):
        scene.line(line)
        scene.settle()
    past = past_of(scene.bench.log)
    assert sorted(past.keys[job.id] for job in past.trace.jobs) == ["video/three", "video/two"]
    assert past.left_out == 1


def test_gangs_that_must_find_single_nodes(tmp_path, capsys):
    """Two nodes of four: after two jobs of three, a job of two finds two free in all, and no node that has them."""
    cluster = {"nodes": [{"count": 2, "gpus": 4}], "queues": {"a": {"min": 8, "max": 8}}}
    jobs = "j1,a,3,0,100\nj2,a,3,1,50\nj3,a,2,10,20"
    made = trace(tmp_path, cluster, jobs)
    made = Trace(made.cluster, tuple(replace(job, members=1) for job in made.jobs))
    simulate(made, "muster", Options(), log=tmp_path / "log.jsonl")
    found = told_of(capsys, tmp_path / "log.jsonl", "--placement", "pack")
    (late,) = shifts(found, "later")
    assert late[:2] == ("a/j3", 10_000)
    assert late[2] >= 50_000, "not before one of the others has ended"
    assert found["same"] == 2
    assert told_of(capsys, tmp_path / "log.jsonl", "--placement", "off")["same"] == 3


def test_a_log_in_which_gangs_were_placed_is_run_again_so(tmp_path, capsys):
    cluster = {"nodes": [{"count": 2, "gpus": 4}], "queues": {"a": {"min": 8, "max": 8}}}
    made = trace(tmp_path, cluster, "j1,a,3,0,100\nj2,a,3,1,50\nj3,a,2,10,20")
    jobs = tuple(replace(job, members=1) for job in made.jobs)
    simulate(Trace(replace(made.cluster, placement="pack"), jobs), "muster", Options(), log=tmp_path / "log.jsonl")
    past = past_of(read_log(tmp_path / "log.jsonl"))
    assert past.trace.cluster.placement == "pack"
    assert past.trace.cluster.nodes == 2
    found = told_of(capsys, tmp_path / "log.jsonl", "--placement", "off")
    assert [job for job, _, _ in shifts(found, "earlier")] == ["a/j3"]
    more = told_of(capsys, tmp_path / "log.jsonl", "--add-nodes", "1xnvidia.com/gpu=2")
    assert [(job, after) for job, _, after in shifts(more, "earlier")] == [("a/j3", 10_000)]


def test_another_rule_set_is_put_in_force_before_anything_is_decided(log, monkeypatch, tmp_path):
    for make in DECIDERS.values():
        monkeypatch.setattr(make, "newest_ruleset", 2)
    monkeypatch.setattr("muster.tracesim.changes.NEWEST", 2)
    changed = decided_by(past_of(read_log(log)), 2)
    simulate(changed.trace, "muster", Options(), log=tmp_path / "two.jsonl")
    commits = list(read_log(tmp_path / "two.jsonl"))
    (at,) = [each.seq for each in commits if any(isinstance(event, RulesetActivated) for event in each.commit.events)]
    assert all(each.seq > at for each in commits if each.commit.kind == "decision")
    assert past_of(commits).trace.cluster.ruleset == 2


def test_what_was_adopted_runs_again_and_holds_its_quota(tmp_path, capsys):
    """A job that waits for adopted work waits in the base run too, and reclaim is off there as it was."""
    cluster = {"nodes": [{"count": 2, "gpus": 4}], "queues": {"a": {"min": 4, "max": 8}, "b": {"min": 4, "max": 8}}}
    made = trace(tmp_path, cluster, "a1,a,4,0,120\na2,a,4,0,120\nb1,b,4,10,50")
    jobs = tuple(replace(job, adopted=job.queue.endswith("/a")) for job in made.jobs)
    path = tmp_path / "log.jsonl"
    went = simulate(replace(made, jobs=jobs), "muster", Options(), log=path)
    assert went.history.jobs["b1"].first_start == 120_000
    past = past_of(read_log(path))
    assert [(job.id, job.adopted, job.duration) for job in past.trace.jobs] == [
        ("a1", True, 120_000),
        ("a2", True, 120_000),
        ("b1", False, 50_000),
    ]
    found = told_of(capsys, path, "--rule", "reclaim=enabled")
    assert shifts(found, "earlier") == [("b/b1", 120_000, 10_000)]
    assert len(found["evicted"]) == 1


def test_what_was_started_around_the_queue_ends_when_it_ended(tmp_path, log):
    """Its run is known from the adoption: it must not run for ever."""
    kept = []
    for line in log.read_text().splitlines():
        found = json.loads(line)
        for event in found["commit"].get("events", []):
            if event["type"] == "quota_reserved" and event["ref"]["name"] == "b1":
                event["type"] = "workload_adopted"
                event["reason"] = "bypassed"
        kept.append(json.dumps(found))
    (tmp_path / "bypassed.jsonl").write_text("\n".join(kept) + "\n")
    past = past_of(read_log(tmp_path / "bypassed.jsonl"))
    assert {job.id: job.duration for job in past.trace.jobs}["b1"] == 40_000
