"""What public events say of a job beyond their own event: queue, request, priority, waits and reasons."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest

from kit import facts
from kit.chaos import Chaos
from kit.claimscenes import claim_ended
from kit.overuse import overuse
from kit.rayscenes import alarm
from kit.scenes import Scene, claimed, stale_gang, timed_out
from muster.core.objects.meta import QUOTA_NAME
from muster.core.stage import Folder
from muster.events.base import Cause
from muster.events.decisions import SuspensionOrdered
from muster.events.effects import EffectApplied
from muster.events.envelope import Stored
from muster.events.facts import WorkloadFinished, WorkloadStarted
from muster.events.public import PublicEvent, PublicWorkloadEvicted
from muster.events.registry import encode
from muster.model.workload import Origin
from muster.runtime.logkeeping.snapshotting import decode_state, encode_state
from muster.telemetry.counting import begin
from muster.telemetry.metrics import Metrics
from muster.told.readmodel.model import ReadModel
from muster.told.readmodel.readstate import ReadState
from muster.told.views.publication import facets_in, public_event


def published(log: list[Stored], state: ReadState | None = None) -> list[PublicEvent]:
    """The public events of commits, one after another. ``state``: the read model as of the one before."""
    folder, state, found = Folder(ReadModel()), state or ReadState(), []
    for stored in log:
        known = facets_in(state, stored)
        folder.fold(state, stored)
        each = (
            public_event("main", 1, stored.seq, index, state.now, event, known)
            for index, event in enumerate(stored.commit.events)
        )
        found += [event for event in each if event is not None]
    return found


def bodies(log: list[Stored], kind: str) -> list[dict[str, Any]]:
    return [body for each in published(log) if (body := msgspec.json.decode(encode(each)))["type"] == kind]


def test_an_admission_says_what_was_asked_for_and_how_long_it_waited() -> None:
    scene = Scene()
    scene.lines("tree", "synced", "job two", "job one prio=7", "resumed two", "cluster two", "runs two")
    scene.do(WorkloadStarted(ref=scene.jobs["two"].ref))
    scene.line("time +30s")
    scene.do(WorkloadFinished(ref=scene.jobs["two"].ref, outcome="succeeded", detail="Complete"))
    scene.lines("finishes two", "cluster-gone two", "resumed one", "time +5s", "runs one")
    scene.do(WorkloadStarted(ref=scene.jobs["one"].ref))
    log = scene.bench.log
    first, second = bodies(log, "workload_admitted")
    assert (first["workload"]["name"], first["waited_ms"]) == ("two", 59_001), "created a minute before it was seen"
    assert second["workload"]["name"] == "one"
    assert second["queue"] == "root/algorithm/video"
    assert second["request"] == {"cpu": "12", "memory": "12G"}
    assert second["priority"] == 7
    assert second["waited_ms"] == 89_001
    (denied,) = bodies(log, "workload_denied")
    assert (denied["request"], denied["priority"]) == ({"cpu": "12", "memory": "12G"}, 7)
    (finished,) = bodies(log, "workload_finished")
    assert (finished["queue"], finished["ran_ms"], finished["priority"]) == ("root/algorithm/video", 30_000, 0)
    assert finished["reason"] == "Complete"
    started = bodies(log, "workload_started")[-1]
    assert (started["started_ms"], started["request"]) == (5_000, {"cpu": "12", "memory": "12G"})


def test_an_eviction_says_for_which_job() -> None:
    scene = claimed()
    scene.do(WorkloadStarted(ref=scene.jobs["b/greedy"].ref))
    scene.line("time +9s")
    scene.suspended("b/greedy")
    (order,) = bodies(scene.bench.log, "workload_reclaimed")
    assert (order["reason"], order["workload"]["name"], order["victims"][0]["name"]) == ("guarantee", "owed", "greedy")
    (evicted,) = bodies(scene.bench.log, "workload_evicted")
    assert (evicted["reason"], evicted["claimant"], evicted["queue"]) == ("reclaimed", "a/owed", "root/b")
    assert evicted["ran_ms"] == 9_000


def test_whose_a_job_is_and_what_queueing_knows_of_its_labels() -> None:
    scene = Scene()
    scene.lines("tree", "synced")
    labels = {QUOTA_NAME: "video"}
    scene.do(facts.seen(facts.job("hers", origin=Origin("alice"), labels=labels)))
    for kind in ("workload_queued", "workload_admitted"):
        (told,) = bodies(scene.bench.log, kind)
        assert (told["owner"], told["labels"]) == ("alice", labels)


def test_an_admission_says_what_of_it_is_borrowed() -> None:
    scene = Scene()
    scene.tree_of(("a", 2), ("b", 4))
    scene.lines("synced", "job a/one cpu=1", "job a/two cpu=3")
    one, two = bodies(scene.bench.log, "workload_admitted")
    assert "borrowed" not in one
    assert two["borrowed"] == {"cpu": "2"}


def test_a_claim_is_opened_and_ended() -> None:
    scene = Scene()
    scene.tree_of(("a", 8))
    scene.lines("synced", "job a/x cpu=4 run=1h", "job a/y cpu=4 run=1h")
    for name in ("a/x", "a/y"):
        scene.runs(name)
    scene.lines("job a/gang cpu=8")
    scene.waits()
    scene.passed(8, "a/y", 4, "1h")
    (opened,) = bodies(scene.bench.log, "workload_claim_opened")
    assert (opened["workload"]["name"], opened["quota"], opened["request"]["cpu"]) == ("gang", "root", "8")
    assert opened["promised_by"].startswith("1970-01-01T06:0")
    (ended,) = bodies(claim_ended("gone")[0].bench.log, "workload_claim_ended")
    assert (ended["workload"]["name"], ended["reason"]) == ("owed", "gone")


def test_an_alarm_of_a_ray_cluster_says_what_to_do_and_when_it_is_over() -> None:
    scene, _ = alarm("no_head")
    (raised,) = bodies(scene.bench.log, "workload_alarm_raised")
    assert (raised["reason"], raised["cluster"]) == ("no_head", "one")
    assert "head" in raised["message"]


def test_a_start_names_the_nodes_of_its_pods() -> None:
    scene = Scene()
    scene.lines("tree", "synced", "job one", "resumed one", "cluster one")
    for number, node in enumerate(("node-b", "node-a", "node-b")):
        scene.do(facts.pod("one", number, node=node))
    scene.do(WorkloadStarted(ref=scene.jobs["one"].ref))
    (started,) = bodies(scene.bench.log, "workload_started")
    assert started["nodes"] == ["node-a", "node-b"]


@pytest.mark.parametrize("seed", range(40))
def test_who_goes_on_from_the_read_model_publishes_the_same(seed: int) -> None:
    rng = Random(seed)
    chaos = Chaos(rng)
    chaos.run(steps=150)
    log = chaos.bench.log
    whole = published(log)
    cut = rng.randrange(1, len(log))
    folder, state = Folder(ReadModel()), ReadModel().initial()
    for stored in log[:cut]:
        folder.fold(state, stored)
    state = decode_state(encode_state(state), ReadState)
    assert [encode(each) for each in published(log[cut:], state)] == [
        encode(each) for each in whole if each.position.sequence > cut
    ]


@pytest.mark.parametrize(
    ("scene", "reason"), [(overuse, "overuse"), (stale_gang, "stale_gang"), (timed_out, "running_timeout")]
)
def test_the_counter_of_an_eviction_begins_at_0(scene: Callable[[], Any], reason: str) -> None:
    """Prometheus sees no growth of a series that begins at 1."""
    made = scene()
    bench = (made[0] if isinstance(made, tuple) else made).bench
    seq, order = next(
        (stored.seq, event)
        for stored in bench.log
        for event in stored.commit.events
        if isinstance(event, SuspensionOrdered)
    )
    effect = EffectApplied(cause=Cause(seq, 0), ref=order.ref, attempt=order.attempt, rv=9_999_999, action="suspend")
    bench.append("actuator", "input", [effect])
    (event,) = [event for event in published(bench.log) if isinstance(event, PublicWorkloadEvicted)]
    metrics = Metrics()
    begin(metrics, "q")
    assert event.reason == reason
    assert f'reason="{reason}"}} 0.0' in metrics.render().decode()
