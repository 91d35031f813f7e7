"""``muster wait`` and ``muster ls --watch``: what ends a wait, and which jobs are printed again."""

from io import StringIO

import pytest

from kit import facts
from kit.scenario import Play
from muster.core.stage import Folder
from muster.events.facts import WorkloadFinished
from muster.model.workload import Origin
from muster.serving.joblist import job_rows
from muster.serving.jobrows import JobFilter
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState
from muster.told.readmodel.touched import Touched
from muster_cli.commands.wait import AwaitedJobs, ending, uid_of
from muster_cli.console import Output
from muster_cli.exits import FAILED, NOT_FOUND, OK, CliError
from muster_cli.jobwatch import ChangedJobs
from muster_cli.main import run

ONE, TWO = "uid-video-one", "uid-video-two"
UP = ("tree", "synced", "job one", "job two")
RUNS = ("resumed one", "cluster one", "pod one 0", "runs one")


class Followed:
    """A log that grows, and the read model that follows it."""

    def __init__(self, *lines: str) -> None:
        self.play, self.touched = Play(), Touched()
        self.folder, self.state = Folder(ReadModel(self.touched)), ReadState()
        self.go(*lines)

    def go(self, *lines: str) -> ReadState:
        for line in lines:
            self.play.line(line)
            self.play.settle()
        for stored in self.play.bench.log[self.state.seq :]:
            self.folder.fold(self.state, stored)
        return self.state


def test_a_job_that_runs_has_started_and_one_that_succeeded_has_finished() -> None:
    log = Followed(*UP)
    assert ending(log.state, ONE, "started") is None
    log.go(*RUNS)
    found = ending(log.state, ONE, "started")
    assert found is not None
    assert (found.code, found.text.split(":")[0]) == (OK, "RayJob video/one")
    assert ending(log.state, ONE, "finished") is None
    log.go("finishes one")
    for goal in ("started", "finished"):
        found = ending(log.state, ONE, goal)
        assert found is not None
        assert found.code == OK
    log.play.bench.facts(WorkloadFinished(ref=facts.job_ref("one"), outcome="succeeded"))
    log.go("pod-gone one 0", "cluster-gone one", "gone one")
    found = ending(log.state, ONE, "finished")
    assert found is not None
    assert found.code == OK
    assert "finished and was deleted" in found.text


def test_a_job_that_failed_or_was_deleted_ends_the_wait_with_a_failure() -> None:
    log = Followed(*UP, *RUNS, "finishes one failed")
    for goal in ("started", "finished"):
        found = ending(log.state, ONE, goal)
        assert found is not None
        assert found.code == FAILED
        assert "failed" in found.text
    log.go("gone two")
    found = ending(log.state, TWO, "started")
    assert found is not None
    assert found.code == FAILED
    assert "deleted" in found.text


def test_an_evicted_job_is_waited_for() -> None:
    log = Followed(*UP, *RUNS, "suspends one", "settles one")
    assert ending(log.state, ONE, "finished") is None
    assert ending(log.state, ONE, "started") is None


def test_all_are_waited_for_and_each_status_is_said_once() -> None:
    log, out, err = Followed(*UP), StringIO(), StringIO()
    waiting = AwaitedJobs([ONE, TWO, ONE], "finished", Output(out, err))
    assert not waiting.look(log.state)
    assert not waiting.look(log.state)
    assert err.getvalue().count("\n") == 2
    assert not waiting.look(log.go(*RUNS, "finishes one"))
    assert out.getvalue().startswith("RayJob video/one: ")
    assert "succeeded" in out.getvalue()
    assert waiting.look(log.go("gone two"))
    assert waiting.code == FAILED


def test_a_name_means_the_newest_job_of_that_name() -> None:
    state = Followed(*UP).state
    assert uid_of(state, "video/one") == uid_of(state, "rayjob/one") == uid_of(state, "one") == ONE
    with pytest.raises(CliError, match="no job on was ever seen") as missing:
        uid_of(state, "on")
    assert missing.value.code == NOT_FOUND


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (["wait"], "name the job to wait for"),
        (["wait", "a", "--timeout", "soon"], "--timeout soon is no span of time: write 90s, 30m, 1h or 7d"),
        (["wait", "a", "--until", "admitted"], "--until"),
        (["ls", "--mine", "--owner", "a"], "--mine and --owner both say whose jobs"),
        (["ls", "--watch", "--log", "x"], "--watch follows a running log"),
    ],
)
def test_a_wrong_command_line_is_said(tokens: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tokens) == 2
    assert words in capsys.readouterr().err


# --- ls --watch, ls --owner ---------------------------------------------------------------------------------------


def test_a_job_is_printed_again_when_its_state_or_status_changes() -> None:
    log = Followed(*UP)
    news = ChangedJobs(JobFilter(namespace="video"))
    assert [row.name for row in news.first(log.state)] == ["one", "two"]

    def told(*lines: str) -> list[tuple[str, str]]:
        log.touched.jobs.clear()
        log.go(*lines)
        return [(row.name, row.code) for row in news.changed(log.state, [*log.touched.jobs])]

    assert told("time +5s") == []
    assert told(*RUNS) == [("one", "Running")]
    assert told("job text/other") == []
    assert ("one", "FinishedStillCharged") in told("finishes one")
    assert told("pod-gone one 0", "cluster-gone one") == [("one", "Finished"), ("two", "Admitted")]


def test_jobs_are_listed_by_owner_also_when_they_are_gone() -> None:
    log = Followed("tree", "synced")
    for name, owner in (("hers", "alice"), ("his", "bob"), ("nobodys", "")):
        log.play.bench.facts(facts.seen(facts.job(name, origin=Origin(owner))))
        log.play.settle()
    log.play.bench.facts(facts.gone("hers"))
    state = log.go()

    def names(asked: JobFilter) -> list[str]:
        return [row.name for row in job_rows(state, state.now) if asked.takes(row)]

    assert names(JobFilter(owners=("alice",))) == ["hers"]
    assert names(JobFilter(owners=("alice", "bob"))) == ["his", "hers"]
    assert len(names(JobFilter())) == 3
