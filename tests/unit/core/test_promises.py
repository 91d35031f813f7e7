"""Promised starts: what is learned of runs and of waits, the queue played forward, and when nothing is promised."""

import json
from pathlib import Path
from random import Random
from typing import get_args

import pytest
from msgspec import structs

from kit.doubles.covering import Coverage
from kit.scenes import Scene
from kit.traces import SAMPLES
from muster.core import learned
from muster.core.learned import ENOUGH_RUNS, REMEMBERED, Durations, RunTimes, end_of, kinds_of, span_of
from muster.core.promising import promises
from muster.core.promising.projection import Projection
from muster.core.promising.promises import SIZES, Calibration, Class, Promises, score_of
from muster.core.stage import Folder
from muster.events.claims import ClaimOpened
from muster.events.facts import QueueObserved, WorkloadFinished, WorkloadStarted
from muster.model.keys import Ref
from muster.model.workload import Wishes
from muster.told.codes.values import NoPromise, Promise
from muster.told.readmodel.jobfolds import running
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState
from muster.told.status.statuses import promise_of
from muster.told.wording.queuewords import no_promise, promised_start
from muster.tracesim.jobsfile import read_trace
from muster.tracesim.runner import Options, simulate

MINUTE = 60_000


# --- runs ---------------------------------------------------------------------------------------------------------


def test_each_time_lies_in_one_span_and_spans_rise() -> None:
    before = 0
    for ms in [*range(1, 5_000), 10**6, 10**9, 10**12]:
        number = span_of(ms)
        assert number >= before
        assert end_of(number) >= ms
        assert span_of(end_of(number)) == number
        before = number


def test_what_is_left_is_asked_of_those_that_took_longer() -> None:
    spread = RunTimes()
    for _ in range(10):
        spread.add(MINUTE)
        spread.add(60 * MINUTE)
    assert spread.left(0) == (end_of(span_of(MINUTE)) + end_of(span_of(60 * MINUTE))) // 2
    assert spread.left(5 * MINUTE) == end_of(span_of(60 * MINUTE)) - 5 * MINUTE
    assert spread.left(2 * 60 * MINUTE) is None, "none took so long"


def test_the_finest_kind_of_which_enough_is_known_counts() -> None:
    known, other = Durations(), kinds_of("text", "eval-1", "root/b", {"cpu": 2})
    own, alike = kinds_of("video", "train-7", "root/a", {"cpu": 1}), kinds_of("audio", "train-1", "root/a", {"cpu": 1})
    assert known.left(own, 0) is None
    for _ in range(ENOUGH_RUNS):
        known.ended(other, 8 * MINUTE)
    assert known.left(own, 0) == end_of(span_of(8 * MINUTE)), "of all jobs"
    for _ in range(ENOUGH_RUNS):
        known.ended(alike, MINUTE)
    assert known.left(own, 0) == end_of(span_of(MINUTE)), "of the same queue, stem and request"
    assert known.left(other, 0) == end_of(span_of(8 * MINUTE))
    assert known.left(own, 99 * MINUTE) == 99 * MINUTE, "longer than anything: as long again"


def test_what_is_long_ago_is_forgotten_and_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    spread = RunTimes()
    for _ in range(REMEMBERED):
        spread.add(60 * MINUTE)
    for _ in range(REMEMBERED):
        spread.add(MINUTE)
    assert spread.left(0) < 17 * MINUTE, "the mean of all is half an hour"
    assert spread.kept < REMEMBERED
    assert (spread.count, spread.total) == (2 * REMEMBERED, REMEMBERED * 61 * MINUTE)
    monkeypatch.setattr(learned, "MAX_KINDS", 20)
    many = Durations()
    for number in range(100):
        many.ended(kinds_of("a", "job", f"root/{number}", {"cpu": 1}), MINUTE)
    assert len(many.kinds) == 20
    assert "root/99" in many.kinds
    assert many.known() == 100, "the kind of all is remembered, for it ends with each"


# --- waits --------------------------------------------------------------------------------------------------------


def test_with_waits_as_projected_the_bound_is_the_projection() -> None:
    found = Calibration()
    for _ in range(100):
        found.waited(30 * MINUTE, 30 * MINUTE)
    scale = found.scale(())
    assert 30 * MINUTE <= scale.middle(30 * MINUTE) <= scale.bound(30 * MINUTE) <= 33 * MINUTE


@pytest.mark.parametrize("seed", range(3))
def test_of_waits_that_vary_two_more_promises_are_kept_than_nine_of_ten(seed: int) -> None:
    """Here each end is known at once. Where broken promises are known later, two of a hundred fewer are kept."""
    rng, made, known, hits = Random(seed), Promises(), Class(), []
    for _ in range(4_000):
        projected = rng.randrange(MINUTE, 600 * MINUTE)
        wait = projected * rng.randrange(20, 400) // 100
        if known.calibration.ready:
            hits.append(wait <= made.scale(known, 0).bound(projected))
            made.settled(known, kept=hits[-1])
        known.calibration.waited(projected, wait)
    assert 90 <= 100 * sum(hits) / len(hits) <= 94


def test_waits_that_are_not_over_count_as_long() -> None:
    """The short ones are over first: without the others a bound would be too low."""
    found = Calibration()
    for _ in range(50):
        found.waited(60 * MINUTE, 30 * MINUTE)
    assert found.scale(()).bound(60 * MINUTE) < 40 * MINUTE
    assert found.scale([(60 * MINUTE, 300 * MINUTE)] * 50).bound(60 * MINUTE) > 300 * MINUTE


def test_broken_promises_raise_the_corrections_of_their_age_and_their_size_within_limits() -> None:
    made, large, old = Promises(), Class(3), Class(2 * SIZES + 3)
    made.settled(large, kept=False)
    assert made.ages == {0: promises.CAREFUL + 88}
    assert made.sizes == {3: promises.CAREFUL + 88}
    for _ in range(11):
        made.settled(old, kept=True)
    assert made.ages == {0: promises.CAREFUL + 88, 2: promises.CAREFUL - 88}
    assert made.sizes == {3: promises.CAREFUL}, "one of twelve"
    for _ in range(1_000):
        made.settled(large, kept=False)
    assert made.ages[0] == made.sizes[3] == promises.MOST
    for _ in range(10_000):
        made.settled(large, kept=True)
    assert made.ages[0] == made.sizes[3] == promises.LEAST


def test_old_waits_count_less() -> None:
    found = Calibration()
    for _ in range(3 * promises.REMEMBERED):
        found.waited(MINUTE, 5 * MINUTE)
    assert found.total < promises.REMEMBERED
    assert max(found.scores) == score_of(MINUTE, 5 * MINUTE)


# --- the queue, played forward ------------------------------------------------------------------------------------


def read(scene: Scene) -> ReadState:
    folder, state = Folder(ReadModel()), ReadState()
    for stored in scene.bench.log:
        folder.fold(state, stored)
    return state


def runs(scene: Scene, name: str) -> None:
    scene.runs(name)
    scene.do(WorkloadStarted(ref=scene.jobs[name].ref))


def ends(scene: Scene, name: str) -> None:
    scene.do(WorkloadFinished(ref=scene.jobs[name].ref, outcome="succeeded"))
    scene.lines(f"finishes {name}", f"gone {name}")


def passes(scene: Scene, ms: int) -> None:
    scene.bench.pass_time(ms)
    scene.settle()


def pause(scene: Scene) -> None:
    ref = Ref("Queue", "kube-queue", "root-a", "q-a")
    scene.do(QueueObserved(ref=ref, rv=99, path="root/a", paused=("admissions",)))


def busy(*leaves: tuple[str, int], **rules: str) -> Scene:
    """Eight cores, all of them used by a/x, which began just now; five such jobs have run for ten minutes each."""
    scene = Scene()
    scene.tree_of(*(leaves or (("a", 8),)), **rules)
    scene.lines("synced")
    for number in range(ENOUGH_RUNS):
        scene.lines(f"job a/x{number} cpu=8")
        runs(scene, f"a/x{number}")
        passes(scene, 10 * MINUTE)
        ends(scene, f"a/x{number}")
    scene.lines("job a/x cpu=8")
    runs(scene, "a/x")
    return scene


TEN = end_of(span_of(10 * MINUTE))


def projected(scene: Scene) -> dict[str, int]:
    """When each waiting job would start, in runs of ten minutes from now."""
    state = read(scene)
    projection = Projection(state.queues, running(state), state.promises.durations, state.now)
    projection.run()
    return {uid.rpartition("-")[2]: found.wait * 10 // TEN for uid, found in projection.found.items()}


def test_jobs_start_one_after_the_other_as_quota_is_given_back() -> None:
    scene = busy()
    scene.lines("job a/one cpu=8", "job a/two cpu=4", "job a/three cpu=4")
    assert projected(scene) == {"one": 10, "two": 20, "three": 20}
    scene.lines("job a/four cpu=4 prio=7")
    assert projected(scene) == {"four": 10, "one": 20, "two": 30, "three": 30}


def test_nobody_passes_a_job_that_has_waited_for_ten_minutes() -> None:
    scene = busy()
    scene.lines("job a/urgent cpu=4 prio=7", "job a/gang cpu=8", "job a/small cpu=4", "job a/tiny cpu=4")
    assert projected(scene) == {"urgent": 10, "gang": 20, "small": 30, "tiny": 30}


@pytest.mark.parametrize(("declares", "first"), [("5m", "small"), ("2h", "gang"), ("", "gang")])
def test_who_declares_to_end_before_a_promised_claim_does_not_wait_for_it(declares: str, first: str) -> None:
    """x and y run ten minutes, y from later on; gang waits for both, and what x leaves first is held for it."""
    scene = busy()
    ends(scene, "a/x")
    scene.lines("job a/early cpu=4", "job a/y cpu=4 run=1h")
    for name in ("a/early", "a/y"):
        scene.runs(name)
    scene.lines("job a/gang cpu=8")
    passes(scene, 60 * MINUTE)
    scene.lines("finishes a/early", "gone a/early", "job a/x1h cpu=4 run=1h")
    runs(scene, "a/x1h")
    passes(scene, 3 * MINUTE)
    scene.passed(8, "a/y", 4, "1h")
    passes(scene, 6 * MINUTE)
    scene.lines(f"job a/small cpu=4{f' run={declares}' if declares else ''}")
    assert [bool(each.promised) for each in scene.bench.happened(ClaimOpened)] == [True]
    found = projected(scene)
    assert min(found, key=found.__getitem__) == first
    ends(scene, "a/x1h")
    assert bool(read(scene).queues.ledger.charges.get(scene.jobs["a/small"].ref.uid)) == (first == "small")


def test_who_is_within_a_guarantee_does_not_wait_for_a_borrower() -> None:
    scene = busy(("a", 0), ("b", 4), reclaim_grace="60m")
    scene.lines("job a/more cpu=8", "job b/owed cpu=4")
    assert projected(scene)["owed"] == 0
    assert projected(scene)["more"] >= 10


def test_a_paused_queue_is_left_out_and_what_never_ends_gives_no_time() -> None:
    scene = busy()
    scene.lines("job a/one cpu=8")
    pause(scene)
    assert projected(scene) == {}


# --- promises -----------------------------------------------------------------------------------------------------


def opened(state: ReadState) -> list[str]:
    """The names of the jobs with open promises."""
    return [uid.rpartition("-")[2] for known in state.promises.classes.values() for uid in known.open]


def asked(scene: Scene, name: str, *, waits: int = learned.ENOUGH_WAITS) -> Promise:
    """What is promised where so many waits ended as they were projected."""
    state = read(scene)
    for _ in range(waits):
        for age in range(8):
            known = state.promises.classes.setdefault(age * SIZES, Class())
            known.calibration.waited(10 * MINUTE, 10 * MINUTE)
    job = scene.jobs[name]
    return promise_of(state, job.ref.uid, state.now)


def test_a_promise_names_both_times_and_how_many_were_kept() -> None:
    scene = busy()
    scene.lines("job a/one cpu=8")
    found, now = asked(scene, "a/one"), read(scene).now
    assert not found.why
    assert (
        9 * MINUTE <= found.start - now <= found.latest - now <= 24 * MINUTE
    )  # Nothing is settled yet: one and a half doublings of room.
    assert promised_start(found, now).startswith("Starts at about 1970-01-01T")
    assert promised_start(found, now).endswith("no promise after such a wait has been settled yet")
    assert "of 10 promises after such waits 9 were kept" in promised_start(
        structs.replace(found, settled=10, kept=9), now
    )


def test_no_promise_is_made_where_none_can_be_kept() -> None:
    scene = busy()
    scene.lines("job a/one cpu=8", "job a/huge cpu=9")
    assert asked(scene, "a/one", waits=3).why == "few_waits"
    assert asked(scene, "a/huge").why == "standing"
    assert asked(scene, "a/x").why == "not_waiting"
    scene.change("a/one", wishes=Wishes(hold=True))
    assert asked(scene, "a/one").why == "not_waiting"
    scene.change("a/one", wishes=Wishes())
    assert asked(scene, "a/one").why == ""
    pause(scene)
    assert asked(scene, "a/one").why == "standing"
    new = Scene()
    new.tree_of(("a", 8))
    new.lines("synced", "job a/x cpu=8")
    runs(new, "a/x")
    new.lines("job a/one cpu=8")
    assert asked(new, "a/one").why == "few_runs"
    reasons = get_args(NoPromise)
    assert len({no_promise(why, "Paused") for why in reasons}) == len(reasons)


def test_the_sentence_says_what_is_meant_and_what_was_kept() -> None:
    at = 1_800_000_000_000
    assert "in 9 of 10 cases: projected" in promised_start(Promise(at, at, 0, 0), at)
    assert "no promise after such a wait has been settled yet" in promised_start(Promise(at, at, 0, 0), at)
    assert promised_start(Promise(at, at, 50, 40), at).endswith("of 50 promises after such waits 40 were kept")
    assert promised_start(Promise(at, at, 1412, 1045), at).endswith(
        "of 1,412 promises after such waits 1,045 were kept (74 of 100)"
    )


def test_an_edited_job_gets_another_promise_and_its_old_one_teaches_nothing() -> None:
    scene = busy()
    scene.lines("job a/one cpu=8")
    passes(scene, 2 * MINUTE)
    scene.lines("job a/two cpu=8")
    state = read(scene)
    assert opened(state) == ["one"]
    scene.change("a/one", need={"ack": {"cpu": 4000}, "full": {"cpu": 4000}}, generation=2, basis="other")
    state = read(scene)
    assert not opened(state)
    assert "uid-a-one" in state.promises.waits
    ends(scene, "a/x")
    assert not any(known.calibration.total for known in read(scene).promises.classes.values())


def test_a_wait_that_ends_by_admission_is_learned_from() -> None:
    scene = busy()
    scene.lines("job a/one cpu=8")
    passes(scene, 2 * MINUTE)
    scene.lines("job a/two cpu=8")
    ends(scene, "a/x")
    state = read(scene)
    assert [known.calibration.total for known in state.promises.classes.values()] == [1]
    assert opened(state) != ["one"]


# --- how often they are kept --------------------------------------------------------------------------------------


def test_nine_promises_of_ten_are_kept_on_a_trace(tmp_path: Path) -> None:
    """400 jobs for 64 GPUs, waits of days: of the first promises at least nine of ten."""
    queues = {"default": {"min": 64, "max": 64}}
    (tmp_path / "cluster.json").write_text(json.dumps({"nodes": [{"count": 8, "gpus": 8}], "queues": queues}))
    coverage = Coverage()
    trace = read_trace(tmp_path / "cluster.json", SAMPLES / "testbed_64gpu.csv")
    simulate(trace, "muster", Options(), alone={}, hears=coverage.fold)
    assert len(coverage.promised()) > 100
    assert (coverage.percent() or 0) >= 85
