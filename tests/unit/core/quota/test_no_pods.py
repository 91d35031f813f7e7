"""An admitted job that gets no pod gives its quota back: a ResourceQuota, an unknown PriorityClass, or an admission
policy refuses the pods, or the operator is down.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from kit import facts
from kit.scenes import Scene
from muster.core.actuation.carrying import Reply, carry_out
from muster.core.actuation.intents import ActuatorState
from muster.core.actuation.orders import MAX_WORDS, Looking, read_refusal
from muster.core.objects.meta import parse_time
from muster.events.decisions import GangAdmitted, PodsAwaited, QuotaReleased, QuotaReserved, SuspensionOrdered
from muster.events.facts import PodObserved
from muster.model.keys import Intent
from muster.model.problem import FieldProblem, problem
from muster.model.workload import PodSet
from muster.told.views.story import Story
from muster.told.views.tellings import JobStory


def begun(**rules: str) -> Scene:
    """`one` is admitted and resumed, and has no pod; `two` waits for its quota."""
    scene = Scene()
    scene.tree_of(("video", 5), ("b", 3), **rules)
    scene.lines("synced", "job one cpu=5", "job two cpu=5", "resumed one")
    return scene


def ordered(scene: Scene) -> list[tuple[str, str]]:
    return [(event.ref.name, event.reason) for event in scene.bench.happened(SuspensionOrdered)]


@pytest.mark.parametrize(("rules", "limit_s"), [({}, 300), ({"start_timeout": "1m"}, 60)])
def test_the_quota_of_a_job_without_pods_goes_to_the_next(rules: dict[str, str], limit_s: int) -> None:
    scene = begun(**rules)
    scene.lines(f"time +{limit_s - 2}s")
    assert ordered(scene) == []
    scene.lines("time +4s")
    assert ordered(scene) == [("one", "no_pods")]
    scene.suspended("one")
    assert [event.ref.name for event in scene.bench.happened(QuotaReleased)] == ["one"]
    assert [event.ref.name for event in scene.bench.happened(GangAdmitted)] == ["one", "two"]
    # In its place, after the pause.
    scene.lines("resumed two", "cluster two", "runs two", "time +70s")
    assert [event.ref.name for event in scene.bench.happened(QuotaReserved)] == ["one", "two"]
    scene.lines("finishes two", "cluster-gone two")
    assert [event.ref.name for event in scene.bench.happened(QuotaReserved)] == ["one", "two", "one"]
    scene.bench.sound()


def test_one_with_a_pod_waits_for_the_pod() -> None:
    scene = begun()
    scene.lines("cluster one", "pod one 0", "time +900s")
    assert ordered(scene) == []


def test_one_that_has_lost_its_pods_and_gets_no_others_gives_its_quota_back() -> None:
    scene = begun()
    scene.lines("cluster one", "pod one 0", "runs one", "time +900s", "pod-gone one 0", "time +298s")
    assert ordered(scene) == []
    scene.lines("time +4s")
    [event] = scene.bench.happened(SuspensionOrdered)
    assert (event.ref.name, event.problem) == ("one", problem("", "no_pods", seconds=300))


def test_one_with_a_succeeded_pod_may_be_about_to_end() -> None:
    scene = begun()
    scene.lines("cluster one", "pod one 0", "runs one")
    over = facts.pod("one", 0).pod
    scene.do(PodObserved(pod=replace(over, rv=facts.next_rv(), over=True, succeeded=True)))
    scene.lines("time +900s")
    assert ordered(scene) == []


def test_without_a_limit_it_waits() -> None:
    scene = begun(start_timeout="0")
    scene.lines("time +900s")
    assert ordered(scene) == []


EARLY = "2026-01-01T00:00:00Z"


def refused_by(*events: Mapping[str, object], status: int = 200, since: str = EARLY) -> FieldProblem | None:
    return read_refusal(status, json.dumps({"items": events}).encode(), parse_time(since))


def test_the_newest_refusal_is_kept_as_a_text_of_others() -> None:
    """Events come in any order, of any reason, with any text."""
    older = {"reason": "FailedCreate", "message": "older", "lastTimestamp": "2026-01-01T00:00:01Z"}
    newer = {"reason": "FailedToCreateHeadPod", "message": "x\x1b[2J" * 900, "lastTimestamp": "2026-01-01T00:00:02Z"}
    other = {"reason": "FailedScheduling", "message": "no", "lastTimestamp": "2026-01-01T00:00:03Z"}
    late = {"reason": "FailedCreatePod", "message": "late", "eventTime": "2026-01-01T00:00:04.000001Z"}
    found = refused_by(newer, other, older)
    assert found is not None
    words = found.values["said"]
    assert isinstance(words, str) and words.startswith("x\ufffd[2J") and len(words) == MAX_WORDS
    assert refused_by(older, late, newer) == problem("", "pods_refused", said="late")
    assert refused_by(other, {"reason": "FailedCreate"}, {}) is None
    assert refused_by(older, status=403) is None
    assert refused_by({**older, "lastTimestamp": "yesterday"}) is None
    assert refused_by(older, newer, since="2026-01-01T00:10:00Z") is None, "of an earlier attempt"
    assert read_refusal(200, b"[]", 0) is None


def test_a_report_that_is_repeated_counts_while_nothing_new_is_written() -> None:
    """KubeRay 1.7, JobSet and LeaderWorkerSet write Events of `events.k8s.io`: repeats are in a series."""
    once = {"reason": "FailedToCreateWorkerPod", "message": "no", "eventTime": "2026-01-01T00:00:00.1Z"}
    series = {"count": 2, "lastObservedTime": "2026-01-01T00:00:02.000001Z"}
    assert refused_by(once | {"series": series}, since="2026-01-01T00:25:00Z") == problem("", "pods_refused", said="no")
    assert refused_by(once | {"series": series}, since="2026-01-01T00:31:00Z") is None, "the series is over"
    assert refused_by(once, since="2026-01-01T00:01:00Z") is None
    assert refused_by(once | {"series": {}}, since="2026-01-01T00:01:00Z") is not None
    assert refused_by({**once, "series": series, "eventTime": "?"} | {"series": {"lastObservedTime": "?"}}) is None


@pytest.mark.parametrize(
    ("reason", "message", "refused"),
    [
        ("JobCreationFailed", 'jobs.batch "a" is forbidden: exceeded quota: jobs, requested: count/jobs.batch=1', True),
        ("TrainJobResourcesCreationFailed", "could not create the JobSet", True),
        ("MPIJobFailed", 'worker pod created failed: pods "a-worker-0" is forbidden: exceeded quota: rq', True),
        ("SparkApplicationSubmissionFailed", 'pods "a-driver" is forbidden: no PriorityClass with name x', True),
        ("ReconcileError", 'admission webhook "validate.kyverno.svc" denied the request: label team is needed', True),
        ("MPIJobFailed", "MPIJob a has failed", False),
        ("FailedMount", "secret a is not there", False),
        ("BackoffLimitExceeded", "the pods failed", False),
    ],
)
def test_a_refusal_is_known_by_its_reason_or_by_the_words_of_the_server(
    reason: str, message: str, refused: bool
) -> None:
    event = {"reason": reason, "message": message, "lastTimestamp": EARLY}
    assert refused_by(event) == (problem("", "pods_refused", said=message) if refused else None)


def test_the_events_of_the_children_come_before_those_of_the_job() -> None:
    """The newest child first, the job last, and nothing after the first refusal; none of another job."""
    job = facts.job_ref("one")
    order = Looking(job, 1, Intent(1, 7, 0), since=1)
    children = {"uid-older": job.uid, "uid-child": job.uid, "uid-other": "other", "uid-below": "uid-child"}
    state = ActuatorState(children={**children, job.uid: "uid-below"})  # The owner references go round.
    event = {"reason": "FailedToCreateHeadPod", "message": "exceeded quota: rq", "lastTimestamp": EARLY}
    family = ["uid-below", "uid-child", "uid-older", job.uid]
    for tells in (*family, ""):
        steps, asked = carry_out(order, lambda: state), list[str]()
        request = next(steps)
        with pytest.raises(StopIteration) as ended:
            while True:
                uid = request.query["fieldSelector"].partition("=")[2].partition(",")[0]
                asked.append(uid)
                body = {"items": [event] if uid == tells else []}
                request = steps.send(Reply(200, json.dumps(body).encode()))
        assert asked == (family[: family.index(tells) + 1] if tells else family)
        expected = problem("", "pods_refused", said="exceeded quota: rq") if tells else None
        assert (ended.value.value.action, ended.value.value.problem) == ("read_refusal", expected)


WORDS = 'Error creating: pods "one-" is forbidden: exceeded quota: rq'


def story_of(scene: Scene, name: str = "video/one") -> JobStory:
    story = Story(name)
    for stored in scene.bench.log:
        story.feed(stored)
    return story.of(name)


ALL_PODS = ("pod one 0", "pod one 1", "pod one 2")


def looks(scene: Scene) -> int:
    return len(scene.bench.happened(PodsAwaited))


def test_what_refuses_the_pods_is_told_long_before_the_suspension() -> None:
    scene = begun()
    scene.lines("time +9s")
    assert looks(scene) == 0
    scene.lines("time +2s")
    assert looks(scene) == 1
    scene.read(WORDS)
    told = story_of(scene)
    assert "It is admitted, resumed and starting" in told.standing.text or "has made no" in told.standing.text
    assert WORDS in told.standing.text and any(WORDS in each.entry.text for each in told.happenings)
    scene.lines("time +10s", "cluster one", *ALL_PODS)
    assert WORDS not in story_of(scene).standing.text, "the pods were made"
    assert ordered(scene) == []


def test_looks_are_ever_rarer_and_end_with_the_pods() -> None:
    scene = begun(start_timeout="0")
    scene.lines("time +900s")
    assert looks(scene) == 0
    scene = begun(start_timeout="32m")
    scene.lines(*["time +30s"] * 62)
    assert (looks(scene), ordered(scene)) == (5, []), "after 1, 2, 4, 8 and 16 minutes"
    scene.lines("cluster one", *ALL_PODS, *["time +600s"] * 9)
    assert looks(scene) == 5


def test_what_refused_the_pods_is_told_with_the_suspension() -> None:
    scene = begun(start_timeout="1m")
    scene.lines("time +31s")
    scene.read(WORDS)
    scene.lines("time +31s")
    scene.suspended("one")
    told = story_of(scene)
    assert f"the cluster refuses its pods: {WORDS!r}" in told.standing.text
    assert told.standing.text.count(WORDS) == 1


def in_part(**rules: str) -> Scene:
    """`one` is to have three pods, and has two."""
    scene = Scene()
    scene.tree_of(("video", 5), ("b", 3), **rules)
    scene.jobs["one"] = facts.job("one", cpu=5, pod_sets=(PodSet("workers", 3),), created=scene.bench.now)
    scene.do(facts.seen(scene.jobs["one"]))
    scene.lines("synced", "job two cpu=5", "resumed one", "cluster one", "pod one 0", "pod one 1")
    return scene


def test_one_with_refused_pods_beside_those_that_run_gives_its_quota_back() -> None:
    scene = in_part(start_timeout="1m")
    scene.lines("runs one", "time +20s")
    scene.read(WORDS)
    assert WORDS in story_of(scene).standing.text
    scene.lines("time +42s")
    [event] = scene.bench.happened(SuspensionOrdered)
    assert (event.reason, event.problem) == ("no_pods", problem("", "rest_refused", pods=2, seconds=60))
    scene.lines("pod-gone one 0", "pod-gone one 1", "cluster-gone one")
    scene.suspended("one")
    assert [event.ref.name for event in scene.bench.happened(GangAdmitted)] == ["one", "two"]
    scene.bench.sound()


@pytest.mark.parametrize("more", ["refused no more", "made", "never refused", "succeeded"])
def test_one_whose_other_pods_are_not_refused_runs_on(more: str) -> None:
    """Its controller is slow, or has tried again with success, or is about to end the job."""
    scene = in_part(start_timeout="1m")
    scene.lines("runs one", "time +20s")
    if more != "never refused":
        scene.read(WORDS)
    scene.lines("time +12s")
    if more == "refused no more":
        scene.read()
        assert WORDS not in story_of(scene).standing.text
    elif more == "made":
        scene.lines("pod one 2")
    elif more == "succeeded":
        over = facts.pod("one", 0).pod
        scene.do(PodObserved(pod=replace(over, rv=facts.next_rv(), over=True, succeeded=True)))
    scene.lines("time +900s")
    assert ordered(scene) == []
    scene.bench.sound()


def test_one_whose_next_pods_are_refused_after_the_first_succeeded() -> None:
    """No pod runs, whose work a suspension would lose."""
    scene = begun()
    scene.lines("cluster one", "pod one 0", "runs one")
    over = facts.pod("one", 0).pod
    scene.do(PodObserved(pod=replace(over, rv=facts.next_rv(), over=True, succeeded=True)))
    scene.lines("time +200s")
    scene.read(WORDS)
    scene.lines("time +110s")
    assert ordered(scene) == [("one", "no_pods")]
