"""A child counts under its parent only if the parent's controller made it and accounts for it; anybody may say so."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kit import facts, jobs
from kit.bench import Bench
from muster.core.reading.cluster import read_pod
from muster.core.reading.watcher import Watcher
from muster.core.workloads.registry import KINDS
from muster.events.base import Event
from muster.events.decisions import QuotaReleased, WorkloadAdopted
from muster.events.facts import ChildGone, ChildObserved, ObjectGone, WorkloadGone, WorkloadObserved
from muster.model.keys import Position, Ref
from muster.model.workload import Workload

PARENT = facts.job_ref("tiny")
Obj = dict[str, Any]


def controlled(obj: Obj, kind: str, version: str, name: str, uid: str) -> Obj:
    reference = {"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True}
    more = {
        "uid": f"uid-{obj['metadata']['name']}",
        "resourceVersion": str(facts.next_rv()),
        "generation": 1,
        "creationTimestamp": "2025-01-10T01:36:24Z",
        "ownerReferences": [reference],
    }
    return {**obj, "metadata": {**obj["metadata"], **more}}


class Shard:
    """One watcher shard by itself: it folds what it reports, and what it is told of the parents."""

    def __init__(self, plural: str) -> None:
        self.stage = Watcher(plural)
        self.state = self.stage.initial()
        self.arms = self.stage.arms()
        self.seq = 0

    def fold(self, *events: Event) -> None:
        for event in events:
            self.seq += 1
            arm = self.arms.get(type(event))
            if arm is not None:
                arm(self.state, Position(self.seq, 0, 0), event)

    def parent(self, **changes: Any) -> None:
        self.fold(facts.seen(facts.job("tiny", **changes)))

    def sees(self, obj: Obj) -> list[Event]:
        meta = obj["metadata"]
        ref = Ref(obj["kind"], meta["namespace"], meta["name"], meta["uid"])
        told = self.stage.observe(self.state, ref, int(meta["resourceVersion"]), json.dumps(obj).encode())
        self.fold(*told)
        return told

    def doubts(self, obj: Obj) -> bool:
        meta = obj["metadata"]
        ref = Ref(obj["kind"], meta["namespace"], meta["name"], meta["uid"])
        return self.stage.doubtful(self.state, ref, json.dumps(obj).encode())


def cluster(name: str, uid: str = PARENT.uid, *, workers: int = 5_000) -> Obj:
    made = jobs.raycluster(name, replicas=workers, suspend=False)
    made["spec"]["workerGroupSpecs"][0] |= {"minReplicas": workers, "maxReplicas": workers}
    return controlled(made, "RayJob", "ray.io/v1", "tiny", uid)


def kinds(told: list[Event]) -> list[type[Event]]:
    return [type(event) for event in told]


def running(name: str) -> dict[str, Any]:
    return {"suspended": False, "phase": "running", "child": name, "settled": False}


def test_the_cluster_that_the_status_names_is_a_child() -> None:
    shard = Shard("rayclusters")
    shard.parent(**running("mine"))
    assert kinds(shard.sees(cluster("mine"))) == [ChildObserved]


@pytest.mark.parametrize("changes", [running("mine"), {"suspended": True, "phase": "waiting"}])
def test_a_cluster_that_the_parent_does_not_name_is_a_workload_by_itself(changes: dict[str, Any]) -> None:
    shard = Shard("rayclusters")
    shard.parent(**changes)
    [fact] = shard.sees(cluster("forged"))
    assert isinstance(fact, WorkloadObserved)
    assert sum(each.count for each in fact.workload.pod_sets) == 5_001


def test_a_new_cluster_is_doubted_until_the_news_of_its_parent_has_come() -> None:
    """Two resources have two watches: a RayCluster may be seen before the RayJob that has just been resumed."""
    shard = Shard("rayclusters")
    shard.parent(suspended=True, phase="waiting")
    assert shard.doubts(cluster("mine"))
    shard.parent(**running("mine"))
    assert not shard.doubts(cluster("mine"))
    assert shard.doubts(cluster("next")), "a retry makes another one"
    shard.sees(cluster("mine"))
    shard.parent(suspended=True, phase="waiting")
    assert not shard.doubts(cluster("mine")), "what was reported stays what it is until it is observed again"


def test_before_the_parent_has_named_anything_it_is_believed_and_looked_at_again() -> None:
    shard = Shard("rayclusters")
    assert kinds(shard.sees(cluster("forged"))) == [ChildObserved]
    shard.parent(suspended=False, phase="starting")
    assert kinds(shard.sees(cluster("forged", workers=4_999))) == [ChildObserved]
    shard.parent(**running("mine"))
    again = shard.sees(cluster("forged"))
    assert kinds(again) == [WorkloadObserved, ChildGone]
    assert kinds(shard.sees(cluster("forged", workers=4_998))) == [WorkloadObserved]
    ref = Ref("RayCluster", "video", "forged", "uid-forged")
    assert kinds(shard.stage.vanished(shard.state, ref)) == [WorkloadGone]


def test_a_parent_whose_news_came_late_gets_its_child_back() -> None:
    shard = Shard("rayclusters")
    shard.parent(suspended=True, phase="waiting")
    shard.sees(cluster("late"))
    shard.parent(**running("late"))
    assert kinds(shard.sees(cluster("late"))) == [ChildObserved, WorkloadGone]
    ref = Ref("RayCluster", "video", "late", "uid-late")
    told = shard.stage.vanished(shard.state, ref)
    assert kinds(told) == [ChildGone]
    shard.fold(*told)
    assert "uid-late" not in shard.state.objects


def test_a_cluster_that_was_named_once_stays_a_child_while_a_retry_has_another() -> None:
    shard = Shard("rayclusters")
    shard.parent(**running("first"))
    shard.parent(**running("second"))
    shard.parent(suspended=True, phase="waiting")
    assert kinds(shard.sees(cluster("first"))) == kinds(shard.sees(cluster("second"))) == [ChildObserved]


def test_a_kind_of_the_same_name_of_another_group_is_no_parent() -> None:
    shard = Shard("rayclusters")
    shard.parent(**running("mine"))
    forged = cluster("mine")
    forged["metadata"]["ownerReferences"][0]["apiVersion"] = "example.com/v1"
    assert kinds(shard.sees(forged)) == [WorkloadObserved]


@pytest.mark.parametrize(
    ("name", "parallelism", "owner"),
    [
        ("mine", 1, ("RayJob", "ray.io/v1", "tiny")),
        ("tiny", 500, ("RayJob", "ray.io/v1", "tiny")),
        ("tiny", 1, ("RayJob", "example.com/v1", "tiny")),
        ("tiny", 1, ("ConfigMap", "v1", "tiny")),
        ("any", 1, ("RayCluster", "ray.io/v1", "c")),
        ("tiny-launcher", 500, ("MPIJob", "kubeflow.org/v2beta1", "tiny")),
        ("launcher", 1, ("MPIJob", "kubeflow.org/v2beta1", "tiny")),
    ],
)
def test_a_job_that_no_controller_of_ours_makes_like_that_is_a_workload(
    name: str, parallelism: int, owner: tuple[str, str, str]
) -> None:
    found = KINDS["Job"].read(json.dumps(controlled(jobs.job(name, parallelism=parallelism), *owner, "u")).encode())
    assert isinstance(found, Workload)


def pod(owner: tuple[str, str, str], **labels: str) -> Obj:
    made: Obj = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "video", "labels": labels},
        "spec": {"nodeName": "n", "containers": []},
    }
    return controlled(made, owner[0], owner[1], owner[2], "uid-owner")


@pytest.mark.parametrize(
    ("owner", "labels", "counts"),
    [
        (("RayCluster", "ray.io/v1", "c"), {"ray.io/cluster": "c"}, True),
        (("RayCluster", "ray.io/v1", "c"), {"ray.io/cluster": "other"}, True),
        (("Job", "batch/v1", "j"), {"mine": "yes"}, True),
        (("TFJob", "kubeflow.org/v1", "t"), {}, True),
        (("SparkApplication", "sparkoperator.k8s.io/v1beta2", "s"), {}, True),
        (("Pod", "v1", "s-driver"), {"spark-role": "executor"}, True),
        (("Pod", "v1", "s-driver"), {}, False),
    ],
)
def test_a_pod_is_charged_with_what_controls_it_whatever_its_labels_say(
    owner: tuple[str, str, str], labels: dict[str, str], counts: bool
) -> None:
    fact = read_pod(json.dumps(pod(owner, **labels)).encode())
    assert fact is not None
    assert (fact.pod.owner_uid == "uid-owner") is counts


def test_a_forged_cluster_is_charged_by_itself_and_frees_the_parent() -> None:
    bench, shard = Bench(), Shard("rayclusters")
    bench.facts(facts.tree())
    bench.synced()
    parent = facts.seen(facts.job("tiny", **running("")))
    bench.facts(parent)
    bench.settle()
    forged = shard.sees(cluster("forged", workers=2))
    bench.facts(*forged, facts.pod("x", owner_uid="uid-forged"))
    assert not any(isinstance(event, WorkloadAdopted) for event in bench.settle())
    shard.parent(**running("mine"))
    told = shard.sees(cluster("forged", workers=3))
    assert any(isinstance(event, ObjectGone) for event in told)
    bench.facts(*told)
    [charge] = [event for event in bench.settle() if isinstance(event, WorkloadAdopted)]
    assert (charge.ref.name, charge.pods) == ("forged", 4)
    bench.facts(facts.gone("tiny"))
    assert [event.ref.name for event in bench.settle() if isinstance(event, QuotaReleased)] == ["tiny"]


@pytest.mark.parametrize(("namespace", "keeps"), [("muster-gpu-reservations", "g"), ("video", "")])
def test_a_pod_keeps_a_gpu_where_muster_makes_such_pods_and_nowhere_else(namespace: str, keeps: str) -> None:
    """Its GPU is not counted on its node: anybody may write a label."""
    made = pod(("Job", "batch/v1", "j"), **{"muster.dev/keeps-gpu": "g"})
    made["metadata"]["namespace"] = namespace
    fact = read_pod(json.dumps(made).encode())
    assert fact is not None
    assert fact.pod.keeps == keeps
