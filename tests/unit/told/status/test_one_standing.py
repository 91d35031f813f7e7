"""One standing, said once: QueueUnit, Event, `muster why` and the levers say the same of a job, and it is so."""

import pytest

from kit import facts
from kit.scenario import Play
from kit.scenes import Scene
from kit.words import odd
from muster.core.stage import Folder
from muster.events.facts import ObjectUnreadable
from muster.events.system import LogNearlyFull
from muster.runtime.logkeeping.snapshotting import encode_state
from muster.told.presentation import desired
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState
from muster.told.status.statuses import job_status
from muster.told.views.narrator import Narrator
from muster.told.views.story import Story
from muster.told.wording import jobs


def read(scene: Play) -> ReadState:
    model = ReadModel()
    folder, state = Folder(model), model.initial()
    for stored in scene.bench.log:
        folder.fold(state, stored)
    return state


def uid_of(state: ReadState, key: str) -> str:
    return next(workload.ref.uid for workload in state.queues.workloads.values() if workload.ref.key == key)


def why(scene: Play, job: str) -> tuple[str, str]:
    story = Story(job)
    for stored in scene.bench.log:
        story.feed(stored)
    found = story.of(job).standing
    return found.code, found.text


def test_a_nearly_full_log_is_what_the_queue_unit_waits_for_too() -> None:
    scene = Scene()
    scene.lines("tree", "synced", "job two", "job one")
    scene.bench.append("quota_accountant", "input", [LogNearlyFull(percent=95)])
    state = read(scene)
    unit = desired.unit_state(state, uid_of(state, "video/one"))
    assert unit is not None
    assert unit.reason.code == why(scene, "video/one")[0] == "LogNearlyFull"
    assert "Wait for running jobs" not in unit.reason.text


def refused_above() -> Scene:
    """What refused a/one first, its leaf, has room again; meanwhile the root was filled around the queue."""
    scene = Scene()
    leaves = (
        facts.node("a", {"cpu": 1}, {"cpu": 6}, ("a",)),
        facts.node("b", {"cpu": 1}, {"cpu": 10}, ("b",)),
    )
    scene.do(facts.tree(facts.node("root", {"cpu": 10}, {"cpu": 10}, children=leaves)))
    scene.lines("synced", "job a/x cpu=3", "job b/y cpu=5")
    scene.runs("a/x")
    scene.runs("b/y")
    scene.lines("job a/one cpu=4", "job b/out cpu=5")
    scene.line("finishes a/x")
    scene.take("quota_accountant")
    scene.lines("starts b/out")
    return scene


def test_an_ancestor_without_room_is_named_with_numbers_that_do_not_fit() -> None:
    scene = refused_above()
    state = read(scene)
    uid = uid_of(state, "a/one")
    status = job_status(state, uid)
    assert status.short is not None, status
    refusal = status.short.refusal
    assert refusal.path == "root"
    assert refusal.used + refusal.asked > refusal.limit
    unit, event = desired.unit_state(state, uid), desired.job_event(state, uid)
    assert unit is not None
    assert event is not None
    code, text = why(scene, "a/one")
    assert unit.reason.code == event.reason == code == "InsufficientQuota"
    assert "in quota root: request 4, max 10, used 10" in unit.reason.text
    assert unit.reason.text in event.message
    assert "root has 0 free of 10" in text
    assert "has room now" not in text


def test_a_job_is_shown_again_when_another_limit_refuses_it() -> None:
    scene, cleared = refused_above(), dict[str, None]()
    state = read(scene)
    uid = uid_of(state, "a/one")
    assert desired.refused_elsewhere(state, cleared) == [uid]
    assert desired.refused_elsewhere(state, cleared) == []


def test_a_job_whose_controller_makes_nothing_is_said_to_lack_its_operator() -> None:
    scene = Scene()
    scene.lines("tree", "synced", "job one", "resumed one")
    code, text = why(scene, "video/one")
    assert code == "Starting"
    assert "has made no RayCluster yet" in text
    assert "operator of RayJob" in text


def test_who_only_reads_keeps_no_marks_of_what_has_to_be_shown() -> None:
    narrator, model = Narrator(), ReadModel()
    scene = Scene()
    scene.lines("tree", "synced", "job one")
    before = set(vars(model)), set(vars(narrator))
    for stored in scene.bench.log:
        narrator.feed(stored)
    assert (set(vars(model)), set(vars(narrator))) == before
    assert [vars(folds._mark)["_touched"] for folds in model._folds] == [None, None]


@pytest.mark.parametrize("cut", [3, 7, 11])
def test_the_read_model_goes_on_from_a_snapshot(cut: int) -> None:
    from muster.runtime.logkeeping.snapshotting import decode_state

    scene = refused_above()
    folder, state = Folder(ReadModel()), ReadState()
    for stored in scene.bench.log[:cut]:
        folder.fold(state, stored)
    state = decode_state(encode_state(state), ReadState)
    for stored in scene.bench.log[cut:]:
        folder.fold(state, stored)
    assert encode_state(state) == encode_state(read(scene))


def test_what_ended_a_job_that_is_gone_is_told_without_reading_prose() -> None:
    scene = Scene()
    scene.lines("tree", "synced", "job two", "job one", "gone one")
    code, text = why(scene, "video/one")
    assert (code, text) == (
        "Gone",
        "It was deleted, and had never been admitted: it left queue root/algorithm/video",
    )
    state = read(scene)
    uid = next(iter(state.gone))
    assert jobs.reason(job_status(state, uid)).code == "Gone"


def test_after_a_refusal_an_event_says_that_it_is_admitted() -> None:
    scene = Scene()
    scene.lines("tree", "synced", "job two", "job one")
    scene.do(facts.seen(facts.job("quick", "text", cpu=1, created=scene.bench.now)))
    state = read(scene)
    assert job_status(state, uid_of(state, "text/quick")).code == "Admitted"
    assert desired.admitted_event(state, uid_of(state, "text/quick")) is None, "it was admitted at once"
    assert desired.admitted_event(state, uid_of(state, "video/one")) is None, "it waits"
    scene.lines("time +60s", "resumed two", "cluster two", "runs two", "finishes two", "cluster-gone two")
    state = read(scene)
    note = desired.admitted_event(state, uid_of(state, "video/one"))
    assert note is not None
    assert (note.type, note.reason) == ("Normal", "Admitted")
    assert note.message == (
        "Admitted from queue root/algorithm/video after 1 min 59 s: its quota (cpu 12, memory 12G) is reserved and it "
        "is being started"
    )
    again = desired.admitted_event(read(scene), uid_of(state, "video/one"))
    assert again is not None
    assert again.name == note.name, "written twice it is one Event"
    scene.lines("resumed one", "time +600s", "job text/later cpu=1")
    state = read(scene)
    assert desired.admitted_event(state, uid_of(state, "video/one")) is None, "it was long ago"


def test_a_finished_job_that_can_no_longer_be_read_is_no_illegal_step() -> None:
    scene = Scene()
    scene.lines("tree", "synced", "job one", "resumed one", "runs one", "finishes one")
    ref = scene.jobs["one"].ref
    scene.do(ObjectUnreadable(ref=ref, rv=9_999_999, problem=odd("spec.x: missing")))
    state = read(scene)
    assert job_status(state, ref.uid).code == "Unreadable"
    assert ReadModel().check(state) == []
