"""``muster simulate`` as typed: what it prints, what it writes, and what it says when something is wrong."""

import json

from kit.traces import files
from muster_cli.main import run

FOUR = {"nodes": [{"count": 1, "gpus": 4}], "queues": {"a": {"min": 2}, "b": {"min": 2}}}
JOBS = "x,a,4,0,100\ny,b,2,10,10\nz,b,1,20,30"


def simulate(tmp_path, *more: str, cluster=FOUR, jobs=JOBS) -> int:
    one, other = files(tmp_path, cluster, jobs)
    out = str(tmp_path / "out")
    return run(["simulate", "--cluster", str(one), "--jobs", str(other), "--out", out, *more])


def test_one_policy_leaves_its_files_and_tells_the_figures(tmp_path, capsys):
    assert simulate(tmp_path) == 0
    told = capsys.readouterr().out
    assert told.startswith("muster: 3 of 3 jobs finished\n")
    assert "nothing can beat" in told
    found = tmp_path / "out"
    assert {path.name for path in found.iterdir()} >= {"events.jsonl", "jobs.csv", "summary.json"}
    assert json.loads((found / "summary.json").read_text())["jobs"]["finished"] == 3
    assert len((found / "jobs.csv").read_text().splitlines()) == 4


def test_what_it_wrote_replays_and_is_in_order(tmp_path, capsys):
    assert simulate(tmp_path) == 0
    log = str(tmp_path / "out" / "events.jsonl")
    assert run(["replay", "--log", log, "--verify"]) == 0
    assert run(["check", "--log", log]) == 0
    assert " 0 divergent" in capsys.readouterr().out


def test_all_policies_make_one_table_against_one_baseline(tmp_path, capsys):
    assert simulate(tmp_path, "--policy", "all") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:-1]] == [
        "muster",
        "fifo",
        "best-effort-fifo",
        "static-quota",
        "kueue-like",
        "kai-like",
        "volcano-like",
        "sjf",
        "srtf",
    ]
    row = next(line.split() for line in lines if line.startswith("best-effort-fifo"))
    assert row[3] == "1.000"
    assert json.loads((tmp_path / "out" / "srtf" / "summary.json").read_text())["policy"] == "srtf"


def test_a_wrong_line_is_named_and_nothing_is_done(tmp_path, capsys):
    assert simulate(tmp_path, jobs="x,a,two,0,100") == 1
    assert f"muster simulate: {tmp_path / 'jobs.csv'} line 2, column 3 (gpus): 'two'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_unknown_policy_names_those_there_are(tmp_path, capsys):
    assert simulate(tmp_path, "--policy", "magic") == 2
    assert "there is no policy 'magic'; there are muster, fifo," in capsys.readouterr().err


def test_a_file_that_is_not_there(tmp_path, capsys):
    missing = str(tmp_path / "none.json")
    assert run(["simulate", "--cluster", missing, "--jobs", missing, "--out", str(tmp_path)]) == 3
    assert f"cannot read {missing}" in capsys.readouterr().err


def test_a_day_is_drawn_and_left_beside_the_results(tmp_path, capsys):
    out = tmp_path / "out"
    assert run(["simulate", "--day", "helios:7,jobs=30,lost=1,checkpoints=0.5", "--out", str(out)]) == 0
    found = json.loads((out / "summary.json").read_text())
    assert (found["jobs"]["finished"], found["checkpointing_share"], found["faults"]) == (30, 0.5, 1)
    files = ["--cluster", str(out / "cluster.json"), "--jobs", str(out / "arrivals.csv")]
    more = ["--faults", str(out / "faults.json"), "--checkpoint-s", "1800", "--checkpointing", "0.5"]
    assert run(["simulate", *files, *more, "--out", str(tmp_path / "again")]) == 0
    assert json.loads((tmp_path / "again" / "summary.json").read_text()) == found


def test_without_files_the_way_to_a_day_is_told(tmp_path, capsys):
    out = ["--out", str(tmp_path)]
    assert run(["simulate", "--cluster", str(tmp_path), *out]) == 3
    assert run(["simulate", *out]) == 2
    assert "there is no --cluster and --jobs: name your files, or draw a day, such as --day helios:7" in (
        capsys.readouterr().err
    )
    assert run(["simulate", "--day", "helos", *out]) == 2
    assert "--day helos: there is no family 'helos'; there are helios, seren," in capsys.readouterr().err
    one, other = files(tmp_path, FOUR, JOBS)
    assert run(["simulate", "--day", "helios", "--cluster", str(one), "--jobs", str(other), *out]) == 2
    assert "leave out --cluster and --jobs, or --day" in capsys.readouterr().err


def test_a_time_before_the_beginning_is_refused(tmp_path, capsys):
    assert simulate(tmp_path, "--until", "-5") == 2
    assert "--until must be seconds from 0 to" in capsys.readouterr().err


def test_faults_come_from_a_file(tmp_path):
    path = tmp_path / "faults.json"
    path.write_text('{"faults": [{"kind": "node_loss", "at_s": 50, "for_s": 10}]}')
    assert simulate(tmp_path, "--faults", str(path)) == 0
    found = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (found["faults"], found["interruptions"]) == (1, 1)
