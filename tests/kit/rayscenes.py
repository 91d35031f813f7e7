"""Scenes of Ray clusters that scale themselves: plays that lead to one reason each."""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec
from msgspec import structs

from kit import ray
from kit.bench import Bench
from kit.facts import node, tree
from kit.jobs import Obj
from muster.core.autoscaling.bridgestate import heads, news
from muster.core.reading.watched import WATCHED
from muster.core.workloads import rayscaling
from muster.core.workloads.ray import RayClusterSpec
from muster.events.base import Cause, Event
from muster.events.decisions import EvictionOrdered, GangAdmitted
from muster.events.effects import EffectApplied, EffectFailed
from muster.events.elastic import GateSet
from muster.events.facts import PodObserved
from muster.model.elastic import Counts, counts_text
from muster.model.keys import Ref
from muster.model.podtrouble import PodTrouble
from muster.model.raydemand import RAY_UNIT, RayDemand, RayIdle, RayPlacementGroup, RayShape
from muster.model.victims import PartialVictim
from muster.model.workload import PodState


class RayScene:
    """One RayCluster that was let in, and has a core for each worker; its queue has four cores, or what is given."""

    def __init__(self, cores: int = 4, most: int = 10, groups: Sequence[Obj] = ()) -> None:
        """``groups``: worker groups to have instead of the one, with no workers."""
        self.bench = Bench()
        self.notes: dict[str, str] = {}
        """Annotations that the owner of the cluster wrote."""
        all_of_it = {"cpu": cores}
        leaf = node("a", all_of_it, all_of_it, ("a",))
        self.bench.facts(tree(node("root", all_of_it, all_of_it, children=(leaf,))))
        self.bench.synced()
        self.rv = 100
        meta: Obj = {"name": "one", "namespace": "a", "uid": "one-uid"}
        self.cluster = ray.raycluster(meta=meta, enableInTreeAutoscaling=True, suspend=True)
        self.group = self.cluster["spec"]["workerGroupSpecs"][0]
        self.group |= {"replicas": 1, "minReplicas": 0, "maxReplicas": most}
        if groups:
            self.cluster["spec"]["workerGroupSpecs"] = list(groups)
        self.most = {each["groupName"]: each["maxReplicas"] for each in self.cluster["spec"]["workerGroupSpecs"]}
        self.seen()
        self.cluster["spec"]["suspend"] = False
        self.cluster["status"] = {"state": "ready"}
        self.written(dict.fromkeys(self.most, 0 if groups else 1))

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

    def written(self, most: Counts) -> None:
        """``maxReplicas`` is what is granted."""
        for group in self.cluster["spec"]["workerGroupSpecs"]:
            group["maxReplicas"] = most[group["groupName"]]
        notes = {"muster.dev/granted": counts_text(most), "muster.dev/max-replicas": counts_text(self.most)}
        self.cluster["metadata"]["annotations"] = {**notes, **self.notes}
        self.seen()

    def pod(self, name: str, node_type: str = "worker", group: str = "small", *, stuck: bool = False) -> None:
        """A pod of the cluster runs, or no node takes it."""
        labels = {"ray.io/node-type": node_type, "ray.io/group": group, "ray.io/cluster": "one"}
        ref = Ref("Pod", "a", name, f"{name}-uid")
        self.rv += 1
        pod = PodState(ref, self.rv, owner_uid="one-uid", node="n", running=True, request={"cpu": 1000}, labels=labels)
        if stuck:
            pod = structs.replace(pod, node="", running=False, trouble=PodTrouble("Unschedulable"))
        self.bench.facts(PodObserved(pod=pod))
        self.settle()

    def gated(self, gate: GateSet) -> None:
        """``maxReplicas`` is written, and the cluster is seen with it."""
        stored = next(each for each in reversed(self.bench.log) if gate in each.commit.events)
        cause = Cause(stored.seq, stored.commit.events.index(gate))
        effect = EffectApplied(cause=cause, ref=gate.ref, attempt=1, rv=self.rv, action="gate")
        self.bench.append("actuator", "input", [effect])
        self.written(gate.most)

    def demands(self, demand: RayDemand) -> list[Event]:
        """The head says this."""
        state = self.bench.states["autoscaler_bridge"]
        [(ref, attempt)] = heads(state)
        fact = news(state, ref, attempt, demand, self.bench.now)
        assert fact is not None
        self.bench.append("autoscaler_bridge", "input", [fact])
        return self.settle()


def with_groups(*groups: tuple[str, int, Obj], cores: int) -> RayScene:
    """A cluster with such worker groups, by name and cores, whose queue has so many cores for workers and one for the
    head. ``devices``: what each worker of a group has besides.
    """
    made = []
    for name, cpu, more in groups:
        sizes = {"cpu": str(cpu), **more.get("devices", {})}
        template = {"spec": {"containers": [{"name": "ray", "resources": {"limits": sizes, "requests": sizes}}]}}
        rest = {key: each for key, each in more.items() if key != "devices"}
        counts = {"replicas": 0, "minReplicas": 0, "maxReplicas": 9}
        made.append({"groupName": name, **counts, "template": template, **rest})
    return RayScene(cores=cores + 1, groups=made)


def denied(reason: str) -> tuple[RayScene, str]:
    """A cluster that wants more than there is now, or than there can ever be."""
    scene = RayScene()
    bundles = (RayShape({"CPU": RAY_UNIT}, 9 if reason == "exceeds_limit" else 4),)
    scene.demands(RayDemand(joined={"small": 1}, placement_groups=(RayPlacementGroup("pg", "STRICT_SPREAD", bundles),)))
    return scene, "a/one"


def alarm(reason: str) -> tuple[RayScene, str]:
    """A cluster with which something is wrong."""
    scene = RayScene()
    if reason != "no_head":
        scene.pod("one-head", "head")
    scene.pod("one-worker", stuck=reason == "no_nodes")
    if reason in ("unauthorized", "unreadable", "unreachable", "stalled"):
        scene.demands(RayDemand(joined={"small": 1}, trouble=reason))  # type: ignore[arg-type]
    if reason == "not_growing":
        decided = scene.demands(RayDemand(joined={"small": 1}, pending=(RayShape({"CPU": RAY_UNIT}),)))
        [gate] = [event for event in decided if isinstance(event, GateSet)]
        scene.gated(gate)
    if reason == "no_group":
        scene.demands(RayDemand(joined={"small": 1}, pending=(RayShape({"GPU": RAY_UNIT}, 3),)))
    if reason == "not_resizing":
        _open_to_grow(scene)
    if reason == "not_shrinking":
        scene.demands(RayDemand(joined={"small": 1}, idle=(RayIdle("one-worker", "small", scene.bench.now),)))
    if reason == "not_ready":
        scene.cluster["status"] = {}
        scene.seen()
        scene.demands(RayDemand(joined={"small": 1}))
    scene.bench.pass_time({"not_shrinking": 120_000, "not_ready": 600_000}.get(reason, 60_000))
    return scene, "a/one"


def _open_to_grow(scene: RayScene) -> None:
    """Its worker is granted to grow in place, which is written; nothing comes of it."""
    size = {"max-cpu": "2", "max-memory": "2Gi", "resize-timeout": 60}
    notes = {"ray.io/ippr": json.dumps({"groups": {"small": size}})}
    scene.notes = {**notes, **rayscaling.notes_of(_spec(scene), notes, ())}
    scene.written({"small": 1})
    idle = RayIdle("one-worker", "small", scene.bench.now)
    demand = RayDemand(joined={"small": 1}, idle=(idle,), pending=(RayShape({"CPU": 2 * RAY_UNIT}),))
    [gate] = [event for event in scene.demands(demand) if isinstance(event, GateSet)]
    scene.notes = rayscaling.notes_of(_spec(scene), scene.notes, gate.grow)
    scene.gated(gate)


def _spec(scene: RayScene) -> RayClusterSpec:
    return msgspec.convert(scene.cluster["spec"], RayClusterSpec)


def kept(reason: str) -> tuple[RayScene, str]:
    """A cluster that is to give back its worker, and does not."""
    if reason == "in_use":
        scene, _ = alarm("not_shrinking")
        scene.demands(RayDemand(joined={"small": 1}))
        scene.bench.pass_time(6_000)
        return scene, "a/one"
    scene = RayScene()
    [(_, attempt)] = heads(scene.bench.states["autoscaler_bridge"])
    ref = Ref("RayCluster", "a", "one", "one-uid")
    left = {"small": 1 if reason == "at_minimum" else 0}
    part = PartialVictim(ref, attempt, "root/a", {"cpu": 1000}, {"small": 1}, left, 1)
    owed = Ref("RayJob", "b", "owed", "owed-uid")
    order = EvictionOrdered(
        cause=Cause(1, 0), ref=owed, attempt=1, queue="root/b", request={}, path="root/b", partial=(part,)
    )
    scene.bench.append("quota_accountant", "decision", [order])
    if reason == "no_cluster":
        scene.cluster["spec"]["enableInTreeAutoscaling"] = False
        scene.seen()
    decided = scene.settle()
    while scene.bench.now < 1_200_000 and reason == "not_written":
        for event in decided:
            if isinstance(event, GateSet):
                stored = next(s for s in reversed(scene.bench.log) if event in s.commit.events)
                cause = Cause(stored.seq, stored.commit.events.index(event))
                effect = EffectFailed(cause=cause, ref=event.ref, attempt=1, reason="refused", action="gate")
                scene.bench.append("actuator", "input", [effect])
        decided = [*scene.settle(), *scene.bench.pass_time(5_000)]
    scene.bench.pass_time(130_000)
    return scene, "a/one"
