"""A bench that is handed objects as the API server has them, and what it charges."""

from __future__ import annotations

import json
from typing import Any

from kit import facts, ray
from kit.bench import Bench
from kit.jobs import Obj
from muster.core.reading.watched import WATCHED
from muster.events.base import Cause
from muster.events.decisions import GangAdmitted
from muster.events.effects import EffectApplied
from muster.model.resources import Vector

CPU = 1000


class Cell:
    """A bench that is handed objects."""

    def __init__(self, profile: str = "ack") -> None:
        self.bench = Bench()
        ten = {"cpu": 100}
        leaf = facts.node("team", ten, ten, ("ns",))
        self.bench.facts(facts.tree(facts.node("root", ten, ten, children=(leaf,)), profile=profile))
        self.bench.synced()
        self.rv = 100

    def sees(self, shard: str, obj: Obj) -> Any:
        """The watcher sees an object; returns the fact."""
        self.rv += 1
        obj["metadata"]["resourceVersion"] = str(self.rv)
        fact = WATCHED[shard].read(json.dumps(obj).encode())
        assert fact is not None
        seq = self.bench.facts(fact)
        self.decided = self.bench.settle()
        for event in self.decided:
            if isinstance(event, GangAdmitted):
                effect = EffectApplied(cause=Cause(seq, 0), ref=event.ref, attempt=event.attempt, rv=self.rv)
                self.bench.append("actuator", "input", [effect])
        return fact

    def charged(self, uid: str = "job-uid") -> Vector:
        return self.bench.states["quota_accountant"].ledger.charges[uid].request

    def over(self, uid: str = "job-uid") -> Vector:
        return self.bench.states["quota_accountant"].ledger.charges[uid].over


def admitted_job(cell: Cell, **spec: Any) -> Obj:
    """A RayJob that was queued, admitted and resumed."""
    job = ray.rayjob("", suspend=True, **spec)
    cell.sees("rayjobs", job)
    job["spec"]["suspend"] = False
    job["status"] = {"jobDeploymentStatus": "Initializing", "rayClusterName": "j-raycluster-1"}
    cell.sees("rayjobs", job)
    return job


def cluster_of(**spec: Any) -> Obj:
    owner = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "j", "uid": "job-uid", "controller": True}
    return ray.raycluster(meta={"ownerReferences": [owner]}, **spec)


def pod(number: int, cpu: str = "1", **status: Any) -> Obj:
    owner = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "name": "j-raycluster-1",
        "uid": "cluster-uid",
        "controller": True,
    }
    container = {"name": "ray", "resources": {"requests": {"cpu": cpu}}}
    meta = {"name": f"p{number}", "namespace": "ns", "uid": f"pod-{number}", "ownerReferences": [owner]}
    meta["labels"] = {"ray.io/cluster": "j-raycluster-1"}
    return {"metadata": meta, "spec": {"containers": [container]}, "status": {"phase": "Running", **status}}


def plain_job(**spec: Any) -> Obj:
    meta = {"name": "j", "namespace": "ns", "uid": "job-uid", "generation": 1}
    spec = {"suspend": True, "template": ray.pod_template(), **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}


def job_pod(number: int, **status: Any) -> Obj:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job-uid", "controller": True}
    made = pod(number, **status)
    made["metadata"] |= {"ownerReferences": [owner], "labels": {"batch.kubernetes.io/job-name": "j"}}
    return made


def running_job(cell: Cell, pods: int, **spec: Any) -> Obj:
    """A Job that was queued, admitted and resumed, and runs with so many pods."""
    job = plain_job(**spec)
    cell.sees("jobs", job)
    job["spec"]["suspend"] = False
    cell.sees("jobs", job)
    for number in range(pods):
        cell.sees("pods", job_pod(number))
    job["status"] = {"active": pods, "ready": pods, "startTime": "2026-01-01T00:00:00Z"}
    cell.sees("jobs", job)
    return job


def gone(cell: Cell, *numbers: int) -> None:
    for number in numbers:
        cell.sees("pods", job_pod(number, phase="Succeeded"))
