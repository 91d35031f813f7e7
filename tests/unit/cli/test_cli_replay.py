"""`muster replay` and `muster debug` on a recorded log: positions, states, one stage, what differs."""

import json
from pathlib import Path

import pytest

from kit.scenario import Play
from muster.events.envelope import encode_commit
from muster.runtime.logkeeping.archive import ArchiveWriter
from muster.runtime.logkeeping.logfile import write_log
from muster_cli.main import run


@pytest.fixture
def log(tmp_path: Path) -> Path:
    scene = Play()
    for line in ("tree", "synced", "job two", "time +60s", "job one", "resumed two", "runs two", "time +60s"):
        scene.line(line)
        scene.settle()
    write_log(tmp_path / "log.jsonl", scene.bench.log)
    with ArchiveWriter(tmp_path / "archive", "main", "bench", 1, commits=5) as writer:
        for stored in scene.bench.log:
            writer.write(stored.seq, encode_commit(stored.commit))
    return tmp_path / "log.jsonl"


def told(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert run(list(words)) == code
    return capsys.readouterr().out


def test_an_archive_reads_like_a_file(log, capsys):
    for command in (("replay",), ("why", "video/one"), ("check",), ("debug", "queue_sorter", "--at", "9")):
        one = told(capsys, *command, "--log", str(log))
        assert told(capsys, *command, "--log", str(log.with_name("archive"))) == one


def test_the_state_at_a_sequence_and_at_a_time_for_people(log, capsys):
    lines = log.read_bytes().splitlines()
    upto = next(i for i, line in enumerate(lines, 1) if b"gang_admitted" in line)
    shown = told(capsys, "replay", "--log", str(log), "--until", str(upto))
    assert "max-jobs" not in shown, "what only the books count"
    assert f"at sequence {upto}, 1970-01-01 00:16:40.000 UTC; fully known" in shown
    assert "holds cpu 12, memory 12G at root/algorithm/video: video/two (waiting)" in shown
    assert shown.endswith(f"{upto} commits, 0 divergent\n")
    assert "video/one" not in shown
    assert told(capsys, "replay", "--log", str(log), "--until", "1970-01-01T00:16:40Z") == shown
    assert "waits 1 in root/algorithm/video: video/one" in told(
        capsys, "replay", "--log", str(log), "--until", "1970-01-01 00:17:40"
    )


def test_the_state_of_one_stage_for_people_and_programs(log, capsys):
    options = ("replay", "--log", str(log), "--until", "12", "--stage", "quota_accountant")
    assert told(capsys, *options).splitlines()[0].startswith("quota_accountant  at sequence 12, ")
    found = json.loads(told(capsys, *options, "-o", "json"))
    assert list(found["states"]) == ["quota_accountant"]
    assert (found["states"]["quota_accountant"]["seq"], found["commits"], found["divergent"]) == (12, 12, 0)


def test_judging_begins_where_it_is_told_to(log, capsys):
    every = json.loads(told(capsys, "replay", "--log", str(log), "-o", "json"))
    late = json.loads(told(capsys, "replay", "--log", str(log), "--from", "1970-01-01T00:17:40Z", "-o", "json"))
    assert 0 < late["decisions"] < every["decisions"]
    assert late["commits"] == every["commits"]


def test_a_decision_that_differs_is_told_with_the_state_and_can_be_stepped(log, capsys):
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    reserved = next(line for line in lines if line["commit"]["events"][0]["type"] == "quota_reserved")
    reserved["commit"]["events"][0]["pods"] = 9
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    shown = told(capsys, "replay", "--log", str(log), code=5)
    assert f"First divergence: stage quota_accountant, commit {reserved['seq']}" in shown
    assert "the state after both differs in:" in shown
    assert f"step into it: muster debug quota_accountant --at {reserved['seq']}" in shown
    stepped = told(capsys, "debug", "quota_accountant", "--at", str(reserved["seq"]), "--log", str(log), code=5)
    assert "Different in event 1: pods" in stepped


def test_a_step_shows_what_it_decided_on(log, capsys):
    at = next(i for i, line in enumerate(log.read_bytes().splitlines(), 1) if b'"quota_denied"' in line)
    shown = told(capsys, "debug", "quota_accountant", "--log", str(log), "--at", str(at))
    assert shown.startswith(f"Sequence {at} is a decision of quota_accountant")
    assert "candidates_proposed" not in shown, "events are told in words"
    assert "proposed     video/one" in shown
    assert "uid-video-one" in shown
    assert "the same, byte for byte" in shown
    found = json.loads(told(capsys, "debug", "quota_accountant", "--log", str(log), "--at", str(at), "-o", "json"))
    assert found["same"]
    assert found["recorded"] == found["decided"]
    assert found["state"]["seq"] == found["in_seq"]
    quiet = told(capsys, "debug", "quota_accountant", "--log", str(log), "--at", str(at - 1))
    assert f"Sequence {at - 1} is no decision of quota_accountant" in quiet


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        (("replay", "--until", "yesterday"), 2, "--until yesterday is neither a sequence nor a time"),
        (("replay", "--from", "0"), 2, "--from 0 is neither a sequence nor a time"),
        (("replay", "--from", "900"), 3, "--from sequence 900 lies after the end of this log: sequence "),
        (("replay", "--until", "900"), 3, "--until sequence 900 lies after the end of this log: sequence "),
        (("replay", "--from", "9", "--until", "5"), 2, "--from 9 lies after --until 5"),
        (("why", "video/one", "--at", "900"), 3, "--at sequence 900 lies after the end of this log: sequence "),
        (("story", "video", "--from", "2030-01-01"), 3, "lies after the end of this log: sequence "),
        (("story", "video", "--from", "9", "--until", "5"), 2, "--from 9 lies after --until 5"),
        (("replay", "--stage", "watcher"), 2, "there is no deciding stage watcher"),
        (("debug", "quota_accountant", "--at", "900"), 3, "there is no sequence 900 in this log: it ends at "),
        (("debug", "nobody", "--at", "9"), 2, "there is no deciding stage nobody"),
        (("replay", "--data", "demo"), 2, "--log and --data both say where the log is"),
    ],
)
def test_what_cannot_be_done_is_said(log, capsys, words, code, what):
    assert run([*words, "--log", str(log)]) == code
    assert what in capsys.readouterr().err


def test_why_as_it_was(log, capsys):
    lines = log.read_bytes().splitlines()
    queued = next(i for i, line in enumerate(lines, 1) if b'"workload_queued"' in line and b'"name":"two"' in line)
    now = told(capsys, "why", "video/two", "--log", str(log))
    assert now.splitlines()[0] == "RayJob video/two  Running"
    then = told(capsys, "why", "video/two", "--log", str(log), "--at", str(queued))
    assert then.splitlines()[0] == "RayJob video/two  BeingTried"
    assert f"up to {queued}" in then
    at = told(capsys, "why", "video/two", "--log", str(log), "--at", "1970-01-01T00:17:00Z")
    assert "It was admitted 20 s ago" in at, "spans end at the time that was asked for"
    assert run(["why", "video/one", "--log", str(log), "--at", str(queued)]) == 3
    assert f"no job video/one was ever seen in this log (up to sequence {queued})" in capsys.readouterr().err


def test_the_position_of_a_job_with_and_without_an_estimate(log, capsys):
    shown = told(capsys, "position", "video/one", "--log", str(log))
    assert shown.startswith("RayJob video/one  position 1 of 1 in root/algorithm/video\n  No promise: ")
    assert "\n  No estimate: 0 admissions in a row " in shown
    found = json.loads(told(capsys, "position", "video/one", "--log", str(log), "-o", "json"))
    assert (found["position"], found["length"], found["estimate"]) == (1, 1, None)
    running = told(capsys, "position", "video/two", "--log", str(log))
    assert running.startswith("RayJob video/two  Running\n")


def test_the_story_of_a_queue(log, capsys):
    shown = told(capsys, "story", "video", "--log", str(log))
    assert shown.startswith("root/algorithm/video\n  uses cpu 12 of 14")
    assert "2 queued, 1 admitted" in shown
    assert "1 job waits" in shown
    late = json.loads(told(capsys, "story", "video", "--log", str(log), "--from", "1970-01-01T00:17:40Z", "-o", "json"))
    assert (late["tally"]["queued"], late["length"]) == (1, 1)
    assert {each["job"] for each in late["entries"]} == {"video/one"}
    assert run(["story", "devops", "--log", str(log)]) == 2
    assert "devops is not unique: there are root/devops, root/infrastructure/devops" in capsys.readouterr().err
    assert run(["story", "nobody", "--log", str(log)]) == 3


def test_one_log_under_another_rule(log, capsys):
    assert told(capsys, "diff", str(log), "--rule", "reclaim=disabled").endswith("no difference\n")
    shown = told(capsys, "diff", str(log), "--rule", "paused=admissions", code=5)
    assert "then they differ:" in shown
    assert f"{log} with paused=admissions" in shown
    for words, why in (
        ((), "give another log, or a change: --rule or --ruleset"),
        (("--rule", "nonsense"), "--rule nonsense: write it like reclaim=disabled"),
        (("--rule", "nonsense=1"), "there is no rule nonsense; there are "),
        (("--ruleset", "9"), "this build decides by rule sets 1 to 1, and not by 9"),
    ):
        assert run(["diff", str(log), *words]) in (1, 2)
        assert why in capsys.readouterr().err


def test_who_leads_is_told_by_its_stage(log, capsys):
    shown = told(capsys, "debug", "quota_accountant", "--at", "4", "--log", str(log))
    assert "leading      queue_sorter/0: process bench leads from here on" in shown
    assert "log          log bench begins, generation 1" in shown
