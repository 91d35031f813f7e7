"""What commands print, as pure functions: lines for people, records for programs."""

from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

from kit.scenario import scene_of
from muster.audit.auditor import Auditor
from muster.core.stage import Violation
from muster.events.envelope import Stored, genesis_commit
from muster.events.facts import SyncStarted
from muster.events.system import Genesis
from muster.model.keys import Ref
from muster.runtime.replaying.replay import Divergence, ReplayReport, replay
from muster.serving import board, boards
from muster.told.views.narrator import Narrator
from muster.told.views.tellings import NarratedEvent
from muster_cli import expectation, findings, invariants
from muster_cli.console import Output, cleaned, columns, styled
from muster_cli.filtering import EventFilter
from muster_cli.findings import Finding
from muster_cli.helping import overview
from muster_cli.integrity import Integrity
from muster_cli.ourselves import own_command
from muster_cli.registry import GROUPS
from muster_cli.render import banner, cell, events, live, queues, verdicts, why
from muster_cli.render.findings import findings_lines, verdict


def narrated(log: list[Stored]) -> tuple[Narrator, list[NarratedEvent]]:
    narrator = Narrator()
    return narrator, [entry for stored in log for entry in narrator.feed(stored)]


def plain(lines: list[Text]) -> list[str]:
    return [line.plain for line in lines]


BUSY = scene_of("tree", "synced", "job two", "job one", "job text/deep cpu=4 memory=1G")


@pytest.fixture
def busy() -> board.Board:
    return board.board_of(narrated(BUSY.bench.log)[0].state)


# --- queues -------------------------------------------------------------------------------------------------------


def test_the_board_counts_and_finds_the_head(busy: board.Board) -> None:
    nodes = {node.path: node for node in busy.nodes}
    assert (nodes["root/algorithm/video"].waiting, nodes["root/algorithm/video"].admitted) == (1, 1)
    assert (nodes["root"].waiting, nodes["root"].admitted) == (1, 2)
    head = nodes["root/algorithm/video"].head
    assert head is not None
    assert (head.job, head.code) == ("video/one", "InsufficientQuota")
    assert nodes["root/algorithm"].head is None
    record = boards.record(busy, [nodes["root/algorithm/text"]])
    assert record["queues"][0]["used"] == {"cpu": "4", "memory": "1G", "nvidia.com/gpu": "0"}
    assert record["queues"][0]["min"]["cpu"] == "8"


def test_the_tree_is_drawn_with_its_branches(busy: board.Board) -> None:
    drawn = plain(queues.tree_lines(busy, busy.nodes))
    names = [line[:18].rstrip() for line in drawn[2:] if line[:18].strip("│ ")]
    assert names == [
        "root", "├─ algorithm", "│  ├─ video", "│  ├─ text", "│  ├─ intern-text", "│  └─ intern-video", "├─ devops",
        "└─ infrastructure", "   └─ devops",
    ]  # fmt: skip
    assert len({line.index("cpu") for line in drawn if " cpu " in line}) == 1


def test_tables_are_readable_at_sixty_columns(busy: board.Board) -> None:
    for lines in (
        plain(queues.tree_lines(busy, busy.nodes, width=60)),
        plain(queues.list_lines(busy, busy.nodes, width=60)),
    ):
        assert max(len(line) for line in lines) <= 60, "\n".join(lines)
        assert any("1 waiting" in line for line in lines)
    listed = plain(queues.list_lines(busy, busy.nodes, width=60))
    assert "root/algorithm/video" in listed
    assert "  video/one" in listed


@pytest.mark.parametrize("name", ["", *GROUPS])
def test_overview_pages_are_readable_at_sixty_columns(name: str) -> None:
    page = overview(name, 60)
    examples = page.partition("Start here:")[0].partition("Examples:")[0]
    assert max(len(line) for line in examples.splitlines()) <= 60


def test_a_part_of_the_tree_begins_at_its_own_root(busy: board.Board) -> None:
    part = [node for node in busy.nodes if node.path.startswith("root/infrastructure")]
    drawn = plain(queues.tree_lines(busy, part, unicode=False))
    assert drawn[2].startswith("infrastructure ")
    assert drawn[4].startswith("`- devops ")
    assert all(line.isascii() for line in drawn)


def bar(used: int, guaranteed: int, limit: int | None) -> str:
    return queues.bar(board.Amount("cpu", used, guaranteed, limit), queues.Strokes(unicode=False)).plain


def test_bars() -> None:
    assert bar(0, 0, 10_000) == "." * 20
    assert bar(10_000, 0, 10_000) == "#" * 20
    assert bar(12_000, 0, 10_000) == "#" * 20
    assert bar(1, 0, 10_000) == "#" + "." * 19
    assert bar(9_999, 0, 10_000) == "#" * 19 + "."
    assert bar(2_000, 5_000, 10_000) == "####" + "......" + "|" + "." * 9
    assert bar(2_000, 10_000, 10_000) == "####" + "." * 16
    assert bar(5_000, 0, None).strip() == "no max"
    assert bar(0, 0, 0) == "." * 20


def test_the_list_of_queues(busy: board.Board) -> None:
    leaves = [node for node in busy.nodes if node.leaf]
    listed = plain(queues.list_lines(busy, leaves))
    assert listed[1].split()[:7] == ["root/algorithm/video", "Round", "0", "1", "1", "0", "video/one"]
    assert listed[2].split() == ["root/algorithm/text", "Round", "0", "0", "1", "0", "-"]


def test_without_a_tree_there_is_a_hint_and_without_a_list_a_warning() -> None:
    empty = board.board_of(narrated(scene_of("synced").bench.log)[0].state)
    assert "apply an ElasticQuotaTree" in queues.tree_lines(empty, [])[0].plain
    assert "apply an ElasticQuotaTree" in queues.list_lines(empty, [])[0].plain
    scene = scene_of("tree", "synced")
    scene.bench.facts(SyncStarted(kinds=("pods", "nodes")))
    again = board.board_of(narrated(scene.bench.log)[0].state)
    assert "Nothing is admitted until all nodes, pods are listed" in queues.list_lines(again, again.nodes)[-1].plain


# --- events -------------------------------------------------------------------------------------------------------


def test_events_have_their_position_time_and_day() -> None:
    lines = events.EventLines()
    first = plain(lines.lines(BUSY.bench.log[0], {0}))
    assert first == ["— 1970-01-01 (UTC) —", "1        00:16:40.000  log         log bench begins, generation 1"]
    queued = next(s for s in BUSY.bench.log if s.commit.stage == "queue_sorter" and s.commit.kind == "decision")
    shown = plain(lines.lines(queued, {0, 1}))
    assert shown[0].startswith(f"{queued.seq} ")
    assert shown[1].startswith(f"{queued.seq}.1 ")
    assert plain(lines.lines(queued, set())) == []
    record = events.record(queued, 0, "main", 3)
    assert (record["sequence"], record["generation"], record["event"]["type"]) == (queued.seq, 3, "workload_queued")


def chosen(**options: str) -> list[str]:
    found = EventFilter(**options)
    return [
        type(stored.commit.events[index]).__name__
        for stored in BUSY.bench.log
        for index in sorted(found.wanted(stored))
    ]


def test_filters() -> None:
    everything = sum(len(stored.commit.events) for stored in BUSY.bench.log)
    assert len(chosen()) == everything
    of_job = chosen(job="video/one")
    assert of_job[:2] == ["WorkloadObserved", "WorkloadQueued"]
    assert "QuotaDenied" in of_job
    assert "GangAdmitted" not in of_job
    assert chosen(job="one") == of_job
    of_queue = chosen(queue="root/algorithm/text")
    assert of_queue[0] == "QuotaTreeAccepted"
    assert "GangAdmitted" in of_queue
    assert len(chosen(queue="root/algorithm")) > len(of_queue)
    assert chosen(queue="root/algorithm/tex") == ["QuotaTreeAccepted"]
    assert chosen(job="video/one", queue="root/algorithm/text") == []


def test_a_filter_knows_what_belongs_to_a_job() -> None:
    scene = scene_of(
        "tree", "synced", "job one", "resumed one", "cluster one", "pod one 0", "pod-gone one 0", "cluster-gone one"
    )
    found = EventFilter(job="video/one")
    kinds = [type(s.commit.events[i]).__name__ for s in scene.bench.log for i in sorted(found.wanted(s))]
    assert kinds[-4:] == ["ChildObserved", "PodObserved", "PodGone", "ChildGone"]


# --- live ---------------------------------------------------------------------------------------------------------


def test_live_lines_tell_turns_and_line_up() -> None:
    _, entries = narrated(BUSY.bench.log)
    lines = live.LiveLines(BUSY.bench.now)
    shown = [line for entry in entries for line in plain(lines.lines(entry))]
    assert [line.split()[1] for line in shown] == [
        "quota",
        "queued",
        "admitted",
        "queued",
        "waits",
        "queued",
        "admitted",
    ]
    assert shown[1].startswith("   0:00.0  queued      video/two ")


def test_observing_nobody_is_admitted() -> None:
    _, entries = narrated(BUSY.bench.log)
    lines = live.LiveLines(0, acting=False)
    shown = [line for entry in entries for line in plain(lines.lines(entry))]
    assert any("would admit video/" in line for line in shown), "the word does not run into the name"
    assert not any(" admitted " in line for line in shown)


def test_long_lines_are_wrapped_on_a_terminal_and_whole_elsewhere() -> None:
    entry = NarratedEvent(61_500, 1, 0, Ref("RayJob", "video", "one", "u"), "waits", "word " * 40, "turn")
    assert len(live.LiveLines(0).lines(entry)) == 1
    wrapped = plain(live.LiveLines(0, width=90).lines(entry))
    assert len(wrapped) > 3
    assert all(len(line) <= 90 for line in wrapped)
    assert wrapped[0].startswith("   1:01.5  waits ")


def test_elapsed() -> None:
    assert [live.elapsed(ms) for ms in (-5, 0, 3_141, 65_000, 3_725_900)] == [
        "0:00.0", "0:00.0", "0:03.1", "1:05.0", "1:02:05.9",
    ]  # fmt: skip


# --- why ----------------------------------------------------------------------------------------------------------


def test_a_story_begins_with_where_the_job_stands() -> None:
    from muster.told.views.story import Story

    story = Story("video/one")
    for stored in BUSY.bench.log:
        story.feed(stored)
    told = story.of("video/one")
    lines = plain(why.story_lines(told))
    assert lines[0] == "RayJob video/one  InsufficientQuota"
    assert any(line.strip().startswith("video/two  cpu 12  admitted") for line in lines)
    assert all(len(line) <= 100 for line in lines)
    assert lines[-1].endswith(f"up to {len(BUSY.bench.log)}")
    assert len(why.story_lines(told, every=True)) > 0
    record = why.record(told)
    assert record["standing"]["wanting"]["missing"] == "10"
    assert [each["what"] for each in record["events"]][:2] == ["seen", "queued"]


# --- verdicts -----------------------------------------------------------------------------------------------------


def test_a_replay_without_divergence() -> None:
    report = replay(BUSY.bench.log)
    assert plain(verdicts.replay_lines(report))[-1] == f"{len(BUSY.bench.log)} commits, 0 divergent"


def test_a_divergence_is_shown_with_the_fields_that_differ() -> None:
    found = Divergence(
        "queue_sorter", 9, 7, ['{"type":"a","queue":"x","n":1}'], ['{"type":"a","queue":"y","n":1}', '{"type":"b"}']
    )
    report = ReplayReport(commits=12, divergences=[found], violations=[Violation("I5", "bad")])
    shown = plain(verdicts.replay_lines(report))
    assert "First divergence: stage queue_sorter, commit 9, decided after 7" in shown
    assert "  differs in  queue" in shown
    assert any("I5  bad" in line for line in shown)
    assert shown[-1] == "12 commits, 1 divergent"
    silent = verdicts.divergence_lines(Divergence("queue_sorter", 9, 9, [], ["{}"]))
    assert "this build makes one" in silent[1].plain
    lost = verdicts.divergence_lines(Divergence("queue_sorter", 9, 9, ["{}"], []))
    assert "this build makes none" in lost[1].plain


def test_an_audit_names_what_it_does_not_check() -> None:
    auditor = Auditor()
    for stored in BUSY.bench.log:
        auditor.feed(stored)
    violations = auditor.finish()
    shown = plain(verdicts.audit_lines(auditor, violations))
    assert shown[-1].endswith(", 0 broken")
    assert {f"I{number}" for number in range(1, 31)} == invariants.CHECKED.keys() | invariants.UNCHECKED.keys()
    assert set(invariants.CHECKED) == set(auditor.counts)
    assert not invariants.CHECKED.keys() & invariants.UNCHECKED.keys()
    record = verdicts.audit_record(auditor, [Violation("I2", "over")])
    assert record["violations"] == [{"invariant": "I2", "detail": "over"}]


def test_many_violations_are_counted() -> None:
    shown = plain(verdicts.violation_lines([Violation("I2", str(number)) for number in range(30)], "what"))
    assert shown[0] == "30 violations: what"
    assert shown[-1] == "  and 10 more"


# --- integrity ----------------------------------------------------------------------------------------------------


def integrity(log: list[Stored]) -> list[str]:
    found = Integrity()
    for stored in log:
        found.feed(stored)
    return found.problems


def test_a_whole_log_has_no_problems_and_a_broken_one_has() -> None:
    log = BUSY.bench.log
    assert integrity(log) == []
    assert integrity([*log[:5], *log[6:]])[0] == "commit 7 follows sequence 5: commits are missing"
    assert integrity(log[1:])[0] == "commit 2 follows sequence 0: commits are missing"
    import msgspec

    late = log[-1]
    foreign = Stored(late.seq, msgspec.structs.replace(late.commit, epoch=1))
    assert "under epoch 1" in integrity([*log[:-1], foreign])[0]
    hasty = Stored(late.seq, msgspec.structs.replace(late.commit, in_seq=late.seq))
    assert "which is not before it" in integrity([*log[:-1], hasty])[0]
    second = Stored(late.seq + 1, log[0].commit)
    assert integrity([*log, second]) == [
        f"commit {late.seq + 1} is a second genesis, and not of the generation after log bench"
    ]
    born = Genesis(log_id="next", generation=2, parent="bench", state="digest")
    assert integrity([*log, Stored(late.seq + 1, genesis_commit(born, late.commit.at))]) == [], "rolled over"


# --- the rest -----------------------------------------------------------------------------------------------------


def test_findings() -> None:
    found = [Finding("ok", "NATS", "fine"), Finding("bad", "log", "full", "make room"), Finding("note", "x")]
    assert plain(findings_lines(found)) == ["  ok   NATS: fine", "  fix  log: full", "       → make room", "  note x"]
    assert verdict(found).plain == "1 problem to fix"
    assert verdict(found[:1]).plain == "no problem found"
    assert findings.must_fix(found)
    assert findings.record(found)["healthy"] is False


def test_the_banner_says_what_is_real() -> None:
    common: dict[str, Any] = {"version": "1", "nats_version": "2", "url": "nats://127.0.0.1:4222", "home": "/h"}
    local = plain(banner.banner(banner.BannerFacts(**common, temporary=True, nodes=3, capacity={"cpu": 48_000})))
    assert "nothing here touches a Kubernetes cluster" in local[0]
    assert any("simulated: 3 nodes, cpu 48" in line for line in local)
    watched = banner.BannerFacts(
        **common, temporary=False, server="https://k:6443", origin="context prod of f", acting=False
    )
    shown = plain(banner.banner(watched))
    assert "only observes" in shown[0]
    assert any("https://k:6443 (context prod of f)" in line for line in shown)
    assert any("kept in /h" in line for line in shown)
    assert not any("submit" in line for line in plain(banner.tries(watched)))
    assert any("nats sub 'muster.pub.v1.>'" in line for line in plain(banner.tries(watched)))
    odd = banner.BannerFacts(**{**common, "url": "nats://127.0.0.1:5"}, temporary=True)
    assert any("nats sub -s nats://127.0.0.1:5" in line for line in plain(banner.tries(odd)))


def test_what_to_try_can_be_typed_as_it_stands() -> None:
    common: dict[str, Any] = {"version": "1", "nats_version": "2", "url": "nats://127.0.0.1:4222", "home": "/h"}
    shown = plain(
        banner.tries(banner.BannerFacts(**common, temporary=True, command=".venv/bin/muster", nats_command=False))
    )
    assert any(line.startswith("  .venv/bin/muster queue tree ") for line in shown)
    assert any("then: .venv/bin/muster replay" in line for line in shown)
    assert any("needs the command of NATS" in line for line in shown if "nats sub" in line)


def test_a_shell_finds_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "muster"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    assert own_command(str(program.with_name("python"))) == "muster"
    monkeypatch.setenv("PATH", "")
    monkeypatch.chdir(tmp_path)
    assert own_command(str(program.with_name("python"))) == "./bin/muster"
    monkeypatch.chdir(program.parent)
    assert own_command(str(program.with_name("python"))) == "./muster"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert own_command(str(program.with_name("python"))) == str(program)
    assert own_command(str(tmp_path / "python")) == f"{tmp_path / 'python'} -m muster_cli"


def test_sizes() -> None:
    assert [cell.size(n) for n in (5, 2048, 5 << 20, 3 << 30, 5 << 40, 5000 << 40)] == [
        "5 B", "2.0 KiB", "5.0 MiB", "3.0 GiB", "5.0 TiB", "5000.0 TiB",
    ]  # fmt: skip


def test_columns_line_up_and_end_without_blanks() -> None:
    shown = plain(columns([("a", "bb", "c"), ("aaa", "b", ""), (styled(("x", "red")), "y", "z")]))
    assert shown == ["a    bb  c", "aaa  b", "x    y   z"]


def test_what_users_wrote_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "job\x1b[2J\r\nforged line\u202e"
    assert cleaned(hostile).plain == "job\ufffd[2J\ufffd\ufffdforged line\ufffd"
    assert cleaned(styled((hostile, "red"))).spans
    out = Output()
    out.line(hostile)
    out.note(hostile)
    out.record({"name": hostile})
    out.data({"name": hostile}, "yaml")
    out.data([hostile], "json")
    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err
    assert said.out.count("\r") == 0
    assert len(said.err.splitlines()) == 1


def test_a_story_and_a_position_are_readable_at_sixty_columns() -> None:
    from muster.told.views.queuestory import QueueStory
    from muster.told.views.story import Story
    from muster_cli.render import queuestories

    told, story = QueueStory("video"), Story("video/one")
    for stored in BUSY.bench.log:
        told.feed(stored)
        story.feed(stored)
    tale = told.of("root/algorithm/video")
    narrow = plain(queuestories.tale_lines(tale, 60))
    assert all(len(line) <= 60 for line in narrow), narrow
    assert "muster.dev/machines" not in " ".join(narrow), "what no quota limits is not listed"
    assert "1 refusal" in " ".join(line.strip() for line in narrow)
    assert any("Insufficient quota(cpu)" in line for line in plain(queuestories.tale_lines(tale)))
    found = expectation.expected(story.of("video/one"), story.state)
    assert all(len(line) <= 60 for line in plain(queuestories.position_lines(found, 60)))
