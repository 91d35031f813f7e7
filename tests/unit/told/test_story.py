"""Stories: every situation a job can be in reads differently, with numbers; what happened is told in order."""

import pytest

from kit import facts
from kit.scenario import Play, scene_of
from kit.scenes import Scene, claimed
from kit.words import odd
from muster.events.facts import ObjectUnreadable, WorkloadFinished, WorkloadStarted
from muster.model.keys import Ref
from muster.told.views.story import Story
from muster.told.views.tellings import JobStory

BASE = ("tree", "synced")
RUN = ("resumed one", "cluster one", "pod one 0", "pod one 1", "runs one")


def listen(scene: Play, wanted: str = "video/one") -> Story:
    story = Story(wanted)
    for stored in scene.bench.log:
        story.feed(stored)
    return story


def story_of(*lines: str, job: str = "video/one", acting: bool = True, present: int = 0) -> JobStory:
    return listen(scene_of(*lines), job).of(job, acting=acting, present=present)


def standing(*lines: str, **options: object) -> tuple[str, str]:
    found = story_of(*lines, **options).standing  # type: ignore[arg-type]
    return found.code, found.text


def words(story: JobStory) -> list[str]:
    return [each.entry.word for each in story.happenings if each.entry.weight != "detail"]


SITUATIONS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "waits for quota": (
        (*BASE, "job two", "job one"),
        "InsufficientQuota",
        "It asks for cpu 12, and quota root/algorithm/video has 2 free of 14 (12 in use): it is tried again once "
        "10 more are released there",
    ),
    "asks for more than there ever is": (
        (*BASE, "job one cpu=30 memory=4G"),
        "ExceedsMaxQuota",
        "request 30, max 14. It can never be admitted like this",
    ),
    "reserved and admitted": ((*BASE, "job one"), "Admitted", "It was admitted just now"),
    "resumed": (
        (*BASE, "job one", "resumed one", "cluster one", "pod one 0"),
        "Starting",
        "resumed and starting: 1 pod",
    ),
    "running": (
        (*BASE, "job one", *RUN),
        "Running",
        "It runs, charged with cpu 12, memory 12G at root/algorithm/video",
    ),
    "finished, and its pods are not gone": (
        (*BASE, "job one", *RUN, "finishes one", "cluster-gone one", "pod-gone one 0"),
        "FinishedStillCharged",
        "until 1 pod is gone",
    ),
    "finished": (
        (*BASE, "job one", *RUN, "finishes one failed", "cluster-gone one", "pod-gone one 0", "pod-gone one 1"),
        "Finished",
        "It failed. It holds no quota",
    ),
    "deleted while it runs": (
        (*BASE, "job one", *RUN, "gone one"),
        "DeletedStillCharged",
        "It was deleted, and is charged with cpu 12, memory 12G until its RayCluster and 2 pods are gone",
    ),
    "deleted while it waits": (
        (*BASE, "job two", "job one", "gone one"),
        "Gone",
        "It was deleted, and had never been admitted: it left queue root/algorithm/video",
    ),
    "deleted after it was over": (
        (*BASE, "job one", *RUN, "finishes one", "cluster-gone one", "pod-gone one 0", "pod-gone one 1", "gone one"),
        "Gone",
        "It was deleted, and released cpu 12, memory 12G: it finished and its pods are gone",
    ),
    "refused": ((*BASE, "job one refusal=spec.x_cannot_be"), "CannotSuspend", "It is not queued: spec.x: cannot be"),
    "deleted after it was refused": (
        (*BASE, "job one refusal=spec.x_cannot_be", "gone one"),
        "Gone",
        "it had never been queued, because it was refused",
    ),
    "no tree": (("synced", "job one"), "NoQuotaTree", "no valid ElasticQuotaTree is in force"),
    "suspended outside": (
        (*BASE, "job one", *RUN, "suspends one"),
        "SuspendedOutside",
        "Suspended by another client after its admission",
    ),
    "suspended by what applies its manifest": (
        (*BASE, "job one", *RUN, "suspends one by=argocd-controller"),
        "SuspendedOutside",
        "Where argocd-controller applies a manifest again: leave suspend out of the manifest",
    ),
    "resuming it failed": (
        (*BASE, "job one", "failed one refused a policy says no"),
        "ResumeFailed",
        "the API server refused to resume it: a policy says no. Tried again after 1970-01-01T00:16:45Z",
    ),
    "started by somebody else after its admission": (
        (*BASE, "job one", "job two", "starts two", "cluster two", "starts one", "cluster one"),
        "Starting",
        "It is admitted, resumed and starting",
    ),
    "the cluster is not known yet": (("tree", "job one"), "NotSynced", "still listing"),
    "the log is nearly full": (
        (*BASE, "job two", "job one", "log-nearly-full"),
        "LogNearlyFull",
        "The log is nearly full: nothing is admitted until its next generation is in force",
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_where_it_stands(name: str) -> None:
    lines, code, text = SITUATIONS[name]
    found = standing(*lines)
    assert found[0] == code
    assert text in found[1]


def test_every_situation_reads_differently() -> None:
    told = [standing(*lines)[1] for lines, _, _ in SITUATIONS.values()]
    assert len(set(told)) == len(told)


def test_adopted_because_it_ran_already_and_over_its_limit() -> None:
    story = story_of("job two", "starts two", "cluster two", "job one", "starts one", "cluster one", *BASE)
    assert story.standing.code == "Adopted"
    assert "it was not suspended when it was first seen" in story.standing.text
    adopted = next(each.entry for each in story.happenings if each.entry.word == "adopted")
    assert "root/algorithm/video is over its limit now (cpu 24 of 14" in adopted.text


def test_unmanaged_and_not_suspended() -> None:
    assert standing(*BASE, "job nowhere/one", "starts nowhere/one", job="nowhere/one")[0] == "Unmanaged"


def test_unreadable() -> None:
    scene = scene_of(*BASE)
    ref = Ref("RayJob", "video", "one", "uid-odd")
    scene.bench.facts(ObjectUnreadable(ref=ref, rv=9_999_999, problem=odd("spec.rayClusterSpec: missing")))
    story = listen(scene).of("video/one")
    assert story.standing.code == "Unreadable"
    assert "spec.rayClusterSpec: missing" in story.standing.text
    assert words(story) == ["unreadable"]


def test_observing_it_would_be_admitted() -> None:
    code, text = standing(*BASE, "job one", acting=False)
    assert code == "WouldBeAdmitted"
    assert "this Muster only observes" in text


def test_position_and_who_is_ahead() -> None:
    lines = (*BASE, "job two", "job a prio=3", "job b prio=2", "job c prio=2", "job d prio=1", "job one")
    found = story_of(*lines).standing
    assert (found.position, found.length) == (5, 5)
    assert "position 5 of 5, 4 ahead: video/a, video/b, video/c and 1 more" in found.text


def test_who_holds_what_it_waits_for() -> None:
    lines = (*BASE, "job x cpu=4 memory=1G", "job y cpu=6 memory=1G", "job one")
    wanting = story_of(*lines).standing.wanting
    assert wanting is not None
    assert [(holder.job, holder.amount) for holder in wanting.holders] == [("video/y", "6"), ("video/x", "4")]
    assert (wanting.free, wanting.missing, wanting.held_by) == ("4", "8", 2)


def test_a_job_on_a_node_that_is_gone_does_not_run() -> None:
    """Neither for whoever waits for it, nor for itself; and it does again when the node is back."""
    scene = scene_of(*BASE, "job x cpu=12", *(line.replace("one", "x") for line in RUN), "node n1 cpu=64", "job y")
    started = WorkloadStarted(ref=scene.jobs["x"].ref, detail="Running")
    scene.bench.facts(started, facts.pod("x", 0, node="n1"))
    for line, text in (
        ("node n1 cpu=64 not-ready", "its node n1 is not ready, and nothing ends its pods there"),
        ("node n1 cpu=64", "running for"),
    ):
        scene.line(line)
        scene.settle()
        waits, runs = (listen(scene, job).of(job).standing for job in ("video/y", "video/x"))
        assert waits.wanting is not None and waits.wanting.holders[0].text.startswith(text)
        assert ("is not ready" in runs.text) == ("is not ready" in text)


def test_numbers_are_those_of_now_not_of_the_refusal() -> None:
    before = (*BASE, "job x cpu=4 memory=1G", "job y cpu=6 memory=1G", "job one cpu=14 memory=1G")
    release = ("resumed x", "cluster x", "finishes x", "cluster-gone x")
    assert "4 free of 14 (10 in use)" in standing(*before)[1]
    assert "8 free of 14 (6 in use)" in standing(*before, *release)[1]


def test_it_is_told_in_order_from_the_first_fact_to_the_release() -> None:
    scene = scene_of(*BASE, "job two", "job one")
    started = WorkloadStarted(ref=scene.jobs["two"].ref)
    for line in ("resumed two", "cluster two", "pod two 0", "runs two"):
        scene.line(line)
    scene.bench.facts(started)
    scene.line("time +20s")
    scene.bench.facts(WorkloadFinished(ref=scene.jobs["two"].ref, outcome="succeeded", detail="Complete"))
    for line in ("finishes two", "time +10s", "cluster-gone two", "pod-gone two 0"):
        scene.line(line)
        scene.settle()
    two = listen(scene, "video/two").of("video/two")
    assert words(two) == [
        "seen", "queued", "reserved", "admitted", "resumed", "running", "finished", "observed", "released",
    ]  # fmt: skip
    texts = {each.entry.word: each.entry.text for each in two.happenings}
    assert texts["finished"].startswith("succeeded (Complete) after 20 s; its quota stays charged")
    assert texts["released"].endswith("root/algorithm/video now uses cpu 0 of 14, memory 0 of 14Gi")
    one = listen(scene).of("video/one")
    assert words(one) == ["seen", "queued", "waits", "tried", "reserved", "admitted"]
    tried = next(
        each.entry.text for each in one.happenings if each.entry.word == "tried" and each.entry.weight == "step"
    )
    assert tried == "it is evaluated now because video/two released cpu 12, memory 12G"


def test_one_whose_like_was_refused_is_told_so_although_it_was_never_tried() -> None:
    story = story_of(*BASE, "job zero", "job first", "job one")
    waits = [each.entry.text for each in story.happenings if each.entry.word == "waits"]
    assert len(waits) == 1
    assert waits[0].startswith("a job with the same request was refused: Insufficient quota(cpu)")
    assert "tried" not in words(story)


def test_a_line_of_the_past_has_the_numbers_of_its_moment_and_stays() -> None:
    """The refusal of another job, a minute ago, is no refusal of now; a place in the queue changes after the line."""
    scene = scene_of(*BASE, "job zero", "job first", "time +60s", "job small cpu=2 memory=1G", "job one")
    lines = [each.entry for each in listen(scene).of("video/one").happenings if each.entry.word == "waits"]
    assert [each.at for each in lines] == [scene.bench.log[-1].commit.at]
    assert "request 12, max 14, used 14" in lines[0].text, "two were taken since the first was refused"
    assert lines[0].text.endswith("position 2 of 2, 1 ahead: video/first")
    for line in ("gone first", "time +60s", "gone zero", "time +60s"):
        scene.line(line)
        scene.settle()
    later = listen(scene).of("video/one")
    assert lines[0] in [each.entry for each in later.happenings]


def test_a_changed_tree_is_a_reason_to_try_again() -> None:
    lines = (*BASE, "job one cpu=30 memory=1G", "tree small")
    story = story_of(*lines)
    assert "Exceeds quota" in standing(*lines)[1]
    assert story.standing.wanting is None


def test_an_edited_spec_is_told() -> None:
    story = story_of(*BASE, "job two", "job one", "edit one cpu=2 memory=1G")
    edited = next(each.entry.text for each in story.happenings if each.entry.word == "edited")
    assert edited.startswith("its spec was edited (generation 2): asks for cpu 2, memory 1G")
    assert edited.endswith("before cpu 12, memory 12G")
    assert "enters queue root/algorithm/video again (attempt 2)" in " ".join(
        each.entry.text for each in story.happenings
    )


def test_spans_go_on_while_the_log_stands_still() -> None:
    scene = scene_of(*BASE, "job one")
    story = listen(scene)
    at = scene.bench.now
    assert "admitted just now" in story.of("video/one").standing.text
    assert "admitted 1 min ago" in story.of("video/one", present=at + 60_000).standing.text


def test_names_that_are_meant_and_names_like_it() -> None:
    scene = scene_of(*BASE, "job train-a", "job text/train-a", "job train-b")
    assert listen(scene, "train-b").matches().keys == ["video/train-b"]
    assert listen(scene, "train-a").matches().keys == ["text/train-a", "video/train-a"]
    similar = listen(scene, "video/train").matches()
    assert similar.keys == []
    assert set(similar.similar) >= {"video/train-a", "video/train-b"}


def test_the_newest_of_a_name_is_meant() -> None:
    scene = scene_of(*BASE, "job one", "gone one")
    ref = Ref("RayJob", "video", "one", "uid-second")
    scene.bench.facts(ObjectUnreadable(ref=ref, rv=9_999_999, problem=odd("odd")))
    story = listen(scene).of("video/one")
    assert (story.ref.uid, story.earlier) == ("uid-second", 1)


def test_a_job_that_ran_waits_from_its_release_on() -> None:
    """It keeps its place from when it was queued first; the time in which it ran is no wait."""
    scene = claimed()
    scene.lines("time +600s")
    scene.suspended("b/greedy")
    again = listen(scene, "b/greedy").of("b/greedy", present=scene.bench.now + 7_000)
    assert "It has waited in queue root/b for 7 s" in again.standing.text
    assert "proposed" not in again.standing.text, "its claim is open, so that the proposal of it is over"


def test_a_refusal_of_its_like_is_told_after_its_own_queueing() -> None:
    """Its like was refused while it ran itself: since it is queued again, that refusal holds for it too."""
    scene = claimed()
    scene.lines("job b/alike cpu=5", "time +60s")
    scene.suspended("b/greedy")
    scene.lines("time +7s")
    story = listen(scene, "b/greedy").of("b/greedy")
    assert words(story)[-2:] == ["queued", "waits"]
    times = [each.entry.at for each in story.happenings]
    assert times == sorted(times)


def test_a_manifest_applied_again_leaves_no_line() -> None:
    scene = Scene()
    scene.lines(*BASE, "job two", "job one")
    before = words(listen(scene).of("video/one"))
    for generation in range(2, 7):
        scene.change("one", generation=generation)
    assert words(listen(scene).of("video/one")) == before


def test_a_charge_ends_with_named_pods_and_a_suspended_job_is_not_said_to_be_released() -> None:
    text = standing("tree", "synced", "job one", "resumed one", "time +1000s")[1]
    assert "Its quota is released" not in text
    scene = scene_of(*BASE, "job one", *RUN, "finishes one")
    assert "until its RayCluster and 2 pods are gone" in listen(scene).of("video/one").standing.text
