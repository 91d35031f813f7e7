"""What is reported of pods and PodGroups: everybody who takes room, and of ours all that makes a gang."""

from __future__ import annotations

import json
from typing import Any

from kit.hostile import watching
from kit.podgangs import SIGS
from muster.core.reading.watched import POD_GROUPS
from muster.events.facts import PodGone, PodGroupGone, PodGroupObserved, PodObserved
from muster.model.workload import PodState

GATE = [{"name": "example.com/later"}]


def body(*, phase: str = "Pending", labels: dict[str, str] | None = None, owner: str = "", **spec: Any) -> bytes:
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "2"}}}
    metadata: dict[str, Any] = {
        "name": "one",
        "namespace": "video",
        "uid": "uid-one",
        "resourceVersion": "7",
        "creationTimestamp": "2025-01-10T01:36:24Z",
        "labels": labels or {},
        "annotations": {"gang.scheduling.koordinator.sh/mode": "Strict", f"{SIGS}/groups": '["video/a"]'},
    }
    if owner:
        metadata["ownerReferences"] = [{"kind": owner, "name": "o", "uid": "uid-owner", "controller": True}]
    found = {"metadata": metadata, "spec": {"containers": [container], **spec}, "status": {"phase": phase}}
    return json.dumps(found).encode()


def seen(raw: bytes) -> PodState | None:
    facts = watching("pods").see(raw)
    assert all(isinstance(fact, PodObserved) for fact in facts)
    return facts[0].pod if facts else None


def test_whoever_takes_room_on_a_node_is_reported_whoever_owns_it() -> None:
    for owner in ("DaemonSet", "ReplicaSet", "StatefulSet", "Node", ""):
        pod = seen(body(nodeName="n1", owner=owner))
        assert pod is not None, owner
        assert (pod.node, pod.request, pod.owner_uid, pod.scheduler) == ("n1", {"cpu": 2000}, "", "")
        assert seen(body(owner=owner)) is None
        assert seen(body(nodeName="n1", phase="Succeeded", owner=owner)) is None


def test_pods_that_name_us_are_reported_from_the_beginning_to_the_end() -> None:
    for scheduler in ("muster", "kai-scheduler"):
        pod = seen(body(schedulerName=scheduler, priority=5, schedulingGates=GATE, owner="ReplicaSet"))
        assert pod is not None
        assert (pod.scheduler, pod.ours, pod.priority, pod.gated, pod.node) == (scheduler, True, 5, True, "")
        assert pod.marks == {f"{SIGS}/groups": '["video/a"]'}
        assert pod.created
        over = seen(body(schedulerName=scheduler, phase="Succeeded", nodeName="n1"))
        assert over is not None
        assert (over.over, over.succeeded) == (True, True)


def test_pods_with_the_marks_of_a_gang_are_reported_with_their_scheduler() -> None:
    labels = {f"{SIGS}/name": "a", f"{SIGS}/min-available": "2"}
    for written, scheduler in ((None, "default-scheduler"), ("volcano", "volcano")):
        pod = seen(body(labels=labels, **({"schedulerName": written} if written else {})))
        assert pod is not None
        assert (pod.scheduler, pod.ours, pod.labels) == (scheduler, False, dict(sorted(labels.items())))


def test_pod_groups_of_three_api_groups_are_three_objects() -> None:
    found = []
    for shard in POD_GROUPS:
        metadata = {"name": "nginx", "namespace": "video", "uid": f"uid-{len(shard)}", "resourceVersion": "3"}
        raw = json.dumps({"metadata": metadata, "spec": {"minMember": 3, "scheduleTimeoutSeconds": 10}}).encode()
        watcher = watching(shard)
        facts = watcher.see(raw)
        assert [type(fact) for fact in facts] == [PodGroupObserved]
        found.append(facts[0].pod_group)
        for other in POD_GROUPS:
            observer = watching(other)
            observer.fold(facts)
            assert (facts[0].pod_group.ref.uid in observer.runner.state.objects) is (other == shard)
        watcher.fold(facts)
        assert [type(fact) for fact in watcher.lose(raw)] == [PodGroupGone]
    assert [each.ref.kind for each in found] == [
        "PodGroup.scheduling.k8s.io",
        "PodGroup.scheduling.sigs.k8s.io",
        "PodGroup.scheduling.x-k8s.io",
    ]
    assert [(each.minimum, each.timeout_s) for each in found] == [(0, 0), (3, 10), (3, 10)]


def test_a_foreign_pod_that_ends_is_gone() -> None:
    watcher = watching("pods")
    watcher.fold(watcher.see(body(nodeName="n1")))
    facts = watcher.see(body(nodeName="n1", phase="Failed").replace(b'"7"', b'"8"'))
    assert [type(fact) for fact in facts] == [PodGone]
