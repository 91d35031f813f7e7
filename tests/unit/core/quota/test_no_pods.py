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
from muster.core.actuation.orders import MAX_WORDS, Outstanding, read_refusal
from muster.core.objects.meta import parse_time
from muster.events.decisions import GangAdmitted, QuotaReleased, QuotaReserved, SuspensionOrdered
from muster.events.facts import PodObserved
from muster.model.keys import Intent
from muster.model.problem import FieldProblem, problem
from muster.told.views.story import Story


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


def test_the_order_to_suspend_asks_who_refused_the_pods() -> None:
    """Two requests at most: of the child made last, and of the job. Without words the job is suspended all the same."""
    job = facts.job_ref("one")
    order = Outstanding(job, 1, Intent(1, 7, 0), None, 0, 0, "suspend", podless_since=1)
    state = ActuatorState(children={"uid-older": job.uid, "uid-child": job.uid, "uid-other": "other"})
    event = {"reason": "FailedToCreateHeadPod", "message": "exceeded quota: rq", "lastTimestamp": EARLY}
    for children, expected in (([event], problem("", "pods_refused", said="exceeded quota: rq")), ([], None)):
        answers = {job.uid: [], "uid-child": children}
        steps, asked = carry_out(order, lambda: state), list[str]()
        request = next(steps)
        with pytest.raises(StopIteration) as ended:
            while True:
                selector = request.query.get("fieldSelector", "")
                uid = selector.partition("=")[2].partition(",")[0]
                asked += [uid] if uid else []
                body = {"items": answers[uid]} if uid else {"metadata": {"resourceVersion": "9"}}
                request = steps.send(Reply(200, json.dumps(body).encode()))
        assert asked == (["uid-child"] if children else ["uid-child", job.uid])
        assert (ended.value.value.action, ended.value.value.problem) == ("suspend", expected)


def test_what_refused_the_pods_is_told() -> None:
    scene = begun(start_timeout="1m")
    scene.lines("time +70s")
    words = 'Error creating: pods "one-" is forbidden: exceeded quota: rq'
    scene.suspended("one", problem("", "pods_refused", said=words))
    story = Story("video/one")
    for stored in scene.bench.log:
        story.feed(stored)
    told = story.of("video/one")
    assert f"the cluster refuses its pods: {words!r}" in told.standing.text
    assert any(words in each.entry.text for each in told.happenings)
