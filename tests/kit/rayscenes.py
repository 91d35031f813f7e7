"""Scenes of Ray clusters that scale themselves: plays that lead to one reason each."""

from __future__ import annotations

import json

from kit import ray
from kit.bench import Bench
from kit.facts import node, tree
from kit.jobs import Obj
from muster.core.autoscaling.reading import heads, news
from muster.core.reading.registry import WATCHED
from muster.events.base import Cause, Event
from muster.events.decisions import EvictionOrdered, GangAdmitted, PartialVictim
from muster.events.effects import EffectApplied, EffectFailed
from muster.events.elastic import GateSet
from muster.model.keys import Ref
from muster.model.raydemand import RAY_UNIT, RayDemand, RayPlacementGroup, RayShape


class RayScene:
    """One RayCluster that was let in, and has a core for each worker; its queue has four cores."""

    def __init__(self) -> None:
        self.bench = Bench()
        four = {"cpu": 4}
        leaf = node("a", four, four, ("a",))
        self.bench.facts(tree(node("root", four, four, children=(leaf,))))
        self.bench.synced()
        self.rv = 100
        meta: Obj = {"name": "one", "namespace": "a", "uid": "one-uid"}
        self.cluster = ray.raycluster(meta=meta, enableInTreeAutoscaling=True, suspend=True)
        self.group = self.cluster["spec"]["workerGroupSpecs"][0]
        self.group |= {"replicas": 1, "minReplicas": 0, "maxReplicas": 10}
        self.seen()
        self.cluster["spec"]["suspend"] = False
        self.cluster["status"] = {"state": "ready"}
        self.written(1)

    def seen(self) -> None:
        """The watcher sees the cluster; its admission is carried out."""
        self.rv += 1
        self.cluster["metadata"]["resourceVersion"] = str(self.rv)

        fact = WATCHED["rayclusters"].read(json.dumps(self.cluster).encode())
        assert fact is not None
        self.bench.facts(fact)
        self.settle()

    def settle(self) -> list[Event]:
        decided = self.bench.settle()
        for event in decided:
            if isinstance(event, GangAdmitted):
                seq = next(s.seq for s in self.bench.log if event in s.commit.events)
                effect = EffectApplied(cause=Cause(seq, 0), ref=event.ref, attempt=event.attempt, rv=self.rv)
                self.bench.append("actuator", "input", [effect])
        return decided

    def written(self, most: int) -> None:
        """``maxReplicas`` is what is granted."""
        self.group["maxReplicas"] = most
        notes = {"muster.dev/granted": f"small={most}", "muster.dev/max-replicas": "small=10"}
        self.cluster["metadata"]["annotations"] = notes
        self.seen()

    def demands(self, demand: RayDemand) -> list[Event]:
        """The head says this."""
        state = self.bench.states["autoscaler_bridge"]
        [(ref, attempt)] = heads(state)
        fact = news(state, ref, attempt, demand, self.bench.now)
        assert fact is not None
        self.bench.append("autoscaler_bridge", "input", [fact])
        return self.settle()


def denied(reason: str) -> tuple[RayScene, str]:
    """A cluster that wants more than there is now, or than there can ever be."""
    scene = RayScene()
    bundles = (RayShape({"CPU": RAY_UNIT}, 9 if reason == "exceeds_limit" else 4),)
    scene.demands(RayDemand(joined={"small": 1}, placement_groups=(RayPlacementGroup("pg", "STRICT_SPREAD", bundles),)))
    return scene, "a/one"


def kept(reason: str) -> tuple[RayScene, str]:
    """A cluster that is to give back its worker, and does not."""
    scene = RayScene()
    [(_, attempt)] = heads(scene.bench.states["autoscaler_bridge"])
    ref = Ref("RayCluster", "a", "one", "one-uid")
    left = {"small": 1 if reason == "at_minimum" else 0}
    part = PartialVictim(ref, attempt, "root/a", {"cpu": 1000}, {"small": 1}, left, 1)
    owed = Ref("RayJob", "b", "owed", "owed-uid")
    order = EvictionOrdered(cause=Cause(1, 0), ref=owed, attempt=1, queue="root/b", request={}, partial=(part,))
    scene.bench.append("quota_accountant", "decision", [order])
    if reason == "no_cluster":
        scene.cluster["spec"]["enableInTreeAutoscaling"] = False
        scene.seen()
    decided = scene.settle()
    while scene.bench.now < 1_200_000 and reason == "not_written":
        for event in decided:
            if isinstance(event, GateSet):
                seq = next(s.seq for s in reversed(scene.bench.log) if event in s.commit.events)
                effect = EffectFailed(
                    cause=Cause(seq, 0), ref=event.ref, attempt=1, reason="refused", message="", action="gate"
                )
                scene.bench.append("actuator", "input", [effect])
        decided = [*scene.settle(), *scene.bench.pass_time(5_000)]
    scene.bench.pass_time(130_000)
    return scene, "a/one"
