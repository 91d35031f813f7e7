"""``muster ls``: every job, also those in no queue, by the status that everything else says."""

import pytest
from msgspec.structs import replace

from kit import facts
from kit.scenario import Play
from muster.core.stage import Folder
from muster.events.base import Event
from muster.events.envelope import Commit, Stored
from muster.events.facts import PodGone, WorkloadFinished, WorkloadGone
from muster.runtime.logkeeping.snapshotting import encode_state
from muster.serving.joblist import job_rows
from muster.serving.jobrows import JobFilter, JobRow, record_of_row
from muster.serving.promises import promise_record
from muster.told.codes.values import Promise
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import GONE_KEPT, GONE_KEPT_MS, ReadState
from muster.told.views.story import Story
from muster_cli.exits import CliError
from muster_cli.folding import NEVER
from muster_cli.positions import span_of
from muster_cli.render.jobs import cells_of, coloured_lines, plain_lines


def read(*lines: str, promising: bool = True) -> ReadState:
    scene = Play()
    for line in lines:
        scene.line(line)
        scene.settle()
    folder, state = Folder(ReadModel()), ReadState()
    if not promising:
        state.promises.next_at = NEVER
    for stored in scene.bench.log:
        folder.fold(state, stored)
    return state


@pytest.fixture(scope="module")
def busy() -> ReadState:
    """One runs, two wait, one is refused, one is nobody's, one has finished and is gone."""
    gone = ("job old", "resumed old", "cluster old", "runs old", "finishes old", "cluster-gone old", "gone old")
    more = ("job one", "resumed one", "cluster one", "pod one 0", "runs one", "job two", "job three prio=7")
    return read(
        "tree",
        "synced",
        *gone,
        *more,
        "job stranger/odd",
        "starts stranger/odd",
        "job text/bad refusal=spec.x_cannot_be",
    )


def test_the_table_is_the_same_without_promises() -> None:
    """They are most of the work of a fold."""
    waiting = ("tree", "synced", *(f"job j{number}" for number in range(12)))
    promising, plain = read(*waiting), read(*waiting, promising=False)
    assert promising.promises.next_at != plain.promises.next_at
    tables = [
        cells_of(job_rows(one, one.now, starts=False), one.now, wide=False, width=120) for one in (promising, plain)
    ]
    assert tables[0] == tables[1]


def test_every_job_has_a_row_in_the_order_of_what_it_holds(busy: ReadState) -> None:
    rows = job_rows(busy, busy.now)
    assert [(row.key, row.phase, row.code, row.position) for row in rows] == [
        ("video/one", "running", "Running", 0),
        ("video/three", "waiting", "InsufficientQuota", 1),
        ("video/two", "waiting", "InsufficientQuota", 2),
        ("text/bad", "refused", "CannotSuspend", 0),
        ("stranger/odd", "outside", "Unmanaged", 0),
        ("video/old", "gone", "Gone", 0),
    ]


def names(state: ReadState, asked: JobFilter) -> list[str]:
    return [row.name for row in job_rows(state, state.now) if asked.takes(row)]


def test_rows_are_filtered(busy: ReadState) -> None:
    assert names(busy, JobFilter(("waiting",))) == ["three", "two"]
    assert names(busy, JobFilter(queue="video", states=("running", "waiting"))) == ["one", "three", "two"]
    assert names(busy, JobFilter(queue="root/algorithm", states=("running",))) == ["one"]
    assert names(busy, JobFilter(namespace="stranger")) == ["odd"]
    assert names(busy, JobFilter(kind="tfjob")) == []
    assert "old" not in names(busy, JobFilter(ended_after=busy.now + 1))


def test_a_row_for_programs_has_one_format_for_quantities_and_times(busy: ReadState) -> None:
    row = next(row for row in job_rows(busy, busy.now) if row.name == "two")
    found = record_of_row(row)
    assert found["request"] == {"cpu": "12", "memory": "12G"}
    assert found["since"].endswith("Z")
    assert (found["state"], found["status"], found["position"], found["length"]) == (
        "waiting",
        "InsufficientQuota",
        2,
        2,
    )
    promise = Promise(start=busy.now, latest=busy.now + 60_000, settled=10, kept=9)
    assert found["promise"] is None, "of such jobs too little is known"
    assert record_of_row(replace(row, promise=promise))["promise"] == promise_record(promise)
    assert found["message"].startswith("Insufficient quota(cpu) in quota root/algorithm/video: request 12, max 14")


def table(rows: list[JobRow], now: int, **options: bool | int) -> list[str]:
    return plain_lines(cells_of(rows, now, **{"wide": False, "width": 200, **options}))  # type: ignore[arg-type]


def test_the_table_fits_narrow_terminals_and_tells_more_when_wide(busy: ReadState) -> None:
    rows = job_rows(busy, busy.now)
    assert table(rows, busy.now)[0].split() == ["JOB", "STATE", "STATUS", "QUEUE", "PLACE", "FOR"]
    narrow = table(rows, busy.now, width=60)
    assert "QUEUE" not in narrow[0]
    assert all(len(line) <= 60 for line in narrow)
    wide = table(rows, busy.now, wide=True)
    assert "Unmanaged" in next(line for line in wide if "stranger/odd" in line)
    cells = cells_of(rows, busy.now, wide=True, width=200)
    assert [line.plain for line in coloured_lines(rows, cells, wide=True)] == wide
    assert table([], 0) == []


@pytest.mark.parametrize("text", ["", "h", "1", "1w", "-1h"])
def test_a_span_that_is_none_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(CliError, match="write 90s, 30m, 1h or 7d"):
        span_of(text)


def committed(state: ReadState, folder: Folder, at: int, *events: Event) -> None:
    """Fold one commit of the watcher."""
    seq = state.seq + 1
    commit = Commit(commit_id=f"c{seq}", stage="watcher", shard="rayjobs", kind="input", at=at, events=events)
    folder.fold(state, Stored(seq, commit))


def test_what_is_gone_is_forgotten_by_age_too() -> None:
    folder, state = Folder(ReadModel()), ReadState()
    for name, at in (("old", 1_000), ("newer", 2_000), ("newest", GONE_KEPT_MS + 1_500)):
        job, pod = facts.job(name, created=at), facts.pod(name, 0, scheduler="muster")
        committed(state, folder, at, facts.seen(job), pod)
        committed(state, folder, at, WorkloadGone(ref=job.ref, rv=facts.next_rv()))
        committed(state, folder, at, PodGone(ref=pod.pod.ref, rv=facts.next_rv()))
    assert [record.ref.name for record in state.records.values()] == ["newer", "newest"]
    assert len(state.gang_records) == len(state.gangs_gone) == 2


def test_of_jobs_that_are_over_and_still_exist_only_the_newest_keep_their_story() -> None:
    folder, state = Folder(ReadModel()), ReadState()
    for number in range(2 * GONE_KEPT):
        job = facts.job(f"j{number}", created=1_000)
        done = replace(job, phase="finished", suspended=False, outcome="succeeded", rv=facts.next_rv())
        committed(state, folder, 1_000 + number, facts.seen(job))
        committed(state, folder, 1_000 + number, facts.seen(done), WorkloadFinished(ref=job.ref, outcome="succeeded"))
    assert len(state.records) == 2 * GONE_KEPT
    told = [record.ref.name for record in state.records.values() if record.past.all()]
    assert told == [f"j{number}" for number in range(GONE_KEPT, 2 * GONE_KEPT)]
    rows = job_rows(state, state.now)
    assert {row.code for row in rows} == {"Finished"}, "where they stand is known of all"
    first = next(iter(state.records.values()))
    assert Story(first.ref.key, "", state).of(first.ref.key).standing.code == "Finished"
    committed(state, folder, 9_000, WorkloadGone(ref=first.ref, rv=facts.next_rv()))
    assert first.ref.uid in state.gone


def test_a_hundred_thousand_jobs_that_are_gone_leave_the_read_model_bounded() -> None:
    """Fewer come and go here, many times as many as are remembered; what is remembered is the newest of them."""
    folder, state, sizes = Folder(ReadModel()), ReadState(), []
    for number in range(5 * GONE_KEPT):
        job = facts.job(f"j{number}", created=1_000)
        events = (facts.seen(job), WorkloadGone(ref=job.ref, rv=facts.next_rv()))
        at = 1_000 + number * 1_000
        commit = Commit(commit_id=f"c{number}", stage="watcher", shard="rayjobs", kind="input", at=at, events=events)
        folder.fold(state, Stored(number + 1, commit))
        if number % GONE_KEPT == GONE_KEPT - 1:
            sizes.append(len(encode_state(state)))
    assert len(state.records) == len(state.gone) == GONE_KEPT
    assert state.queues.workloads == {}
    assert max(sizes[2:]) < 1.05 * min(sizes[2:]), sizes
    assert f"j{5 * GONE_KEPT - 1}" in [record.ref.name for record in state.records.values()]
