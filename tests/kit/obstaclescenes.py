"""Scenes of pods that no node takes: each obstacle has one."""

from __future__ import annotations

from kit import facts, nodes
from kit.scenes import Scene, beginning
from muster.events.base import Event
from muster.events.facts import PodObserved
from muster.model.keys import Ref
from muster.model.placing import HostPort, NodeTerm, PodRules, PodTerm, Requirement, Spread, Taint
from muster.model.problem import problem
from muster.model.workload import PodSet, PodState

SELF = (Requirement("app", "In", ("me",)),)
SMALL = nodes.node("n", cpu=3)
OBSTACLES: dict[str, tuple[PodRules, tuple[Event, ...]]] = {
    "insufficient": (PodRules(), (SMALL,)),
    "too_small": (PodRules(), (SMALL,)),
    "unschedulable": (PodRules(), (nodes.node("n", schedulable=False),)),
    "taint": (PodRules(), (nodes.node("n", taints=(Taint("gpu", "yes"),)),)),
    "not_ready": (PodRules(), (nodes.node("n", ready=False),)),
    "node_affinity": (PodRules(node_labels={"disk": "ssd"}), (nodes.node("n"),)),
    "volume": (PodRules(volumes=((NodeTerm((Requirement("zone", "In", ("a",)),)),),)), (nodes.node("n"),)),
    "ports": (PodRules(ports=(HostPort(80),)), (nodes.node("n", cpu=8),)),
    "spread": (
        PodRules(labels={"app": "me"}, spread=(Spread("zone", 1, SELF),)),
        (nodes.node("n", cpu=8, labels={"zone": "a"}), nodes.node("m", cpu=1, labels={"zone": "b"})),
    ),
    "spread_label": (PodRules(labels={"app": "me"}, spread=(Spread("rack", 1, SELF),)), (nodes.node("n"),)),
    "affinity": (
        PodRules(together=(PodTerm("kubernetes.io/hostname", (Requirement("app", "In", ("them",)),)),)),
        (nodes.node("n"),),
    ),
    "anti_affinity": (
        PodRules(labels={"app": "me"}, apart=(PodTerm("kubernetes.io/hostname", SELF),)),
        (nodes.node("n", cpu=8),),
    ),
    "existing_anti_affinity": (PodRules(labels={"app": "me"}), (nodes.node("n", cpu=8),)),
    "unsupported": (PodRules(unsupported=problem("", "affinity_by_namespace_label", key="rack")), (SMALL,)),
}


def obstacle(code: str) -> tuple[Scene, str]:
    scene, (rules, there) = beginning("placement pack"), OBSTACLES[code]
    scene.do(*there)
    if code == "existing_anti_affinity":
        scene.do(
            PodObserved(
                pod=PodState(
                    ref=Ref("Pod", "video", "alone", "pod-alone"),
                    rv=facts.next_rv(),
                    node="n",
                    running=True,
                    request={"cpu": 1000},
                    rules=PodRules(apart=(PodTerm("kubernetes.io/hostname", SELF),)),
                )
            )
        )
    each = 4 if code == "too_small" else 2
    sets = (PodSet("worker", 2, facts.vector(cpu=each), rules=rules),)
    scene.do(facts.seen(facts.job("one", pod_sets=sets, cpu=4, created=scene.bench.now - 60_000)))
    return scene, "video/one"
