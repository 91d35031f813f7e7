"""A running job is charged by the flavors of the nodes that its pods run on, before that by its grant."""

from __future__ import annotations

import pytest

from kit import facts
from kit.flavored import KEY, Types, flavor, leaf, vector
from muster.events.facts import NodeObserved, PodObserved
from muster.model.keys import Ref
from muster.model.placing import PodRules
from muster.model.resources import Vector
from muster.model.workload import NodeState, PodState

TWO = {"h100": 8, "a100": 8}
ON_H100 = PodRules(node_labels={KEY: "h100"})


def typed(scene: Types, *names: str) -> None:
    """The tree tells these types apart; the namespaces a and b may use all."""
    scene.flavors({"gpu": 16} | dict.fromkeys(names, 8), leaf("a", {}), leaf("b", {}))


def node_is(scene: Types, name: str, kind: str) -> None:
    ref, gives = Ref("Node", "", name, f"uid-node-{name}"), {"cpu": 64000, **vector(8)}
    scene.do(NodeObserved(node=NodeState(ref=ref, rv=facts.next_rv(), allocatable=gives, labels={KEY: kind})))


def pod_on(scene: Types, name: str, node: str, gpus: int = 8, number: int = 0, **more: object) -> None:
    """A pod of a job runs on a node."""
    owner, (namespace, _, short) = scene.jobs[name].ref.uid if name in scene.jobs else "", name.partition("/")
    ref = Ref("Pod", namespace, f"{short}-{number}", f"uid-{name}-{number}")
    fields = {"owner_uid": owner, "node": node, "running": True, "request": vector(gpus)} | more
    scene.do(PodObserved(pod=PodState(ref=ref, rv=facts.next_rv(), **fields)))


def over(scene: Types, name: str) -> Vector:
    charge = scene.bench.states["quota_accountant"].ledger.charges[scene.jobs[name].ref.uid]
    return dict(charge.over)


def on_h100(*names: str) -> Types:
    """Eight H100 are busy with a job of the namespace a; the tree tells ``names`` apart."""
    scene = Types()
    typed(scene, *names)
    node_is(scene, "h", "h100")
    node_is(scene, "a", "a100")
    scene.asks("a/runs", ("main", 1, 8), rules=ON_H100, ref=Ref("Job", "a", "runs", "uid-runs"))
    scene.runs("a/runs")
    return scene


def is_charged_as(scene: Types, kind: str) -> None:
    assert (scene.charged("a/runs"), over(scene, "a/runs")) == ({"gpu": 8, kind: 8}, {})
    scene.asks("b/next", 8, rules=ON_H100)
    assert not scene.on("b/next"), "all eight are busy"
    scene.bench.sound()


@pytest.mark.parametrize("seen", [True, False])
def test_a_flavor_that_comes_back_is_a_part_of_the_grants_again(*, seen: bool) -> None:
    scene = on_h100(*TWO)
    if seen:
        pod_on(scene, "a/runs", "h")
    typed(scene, "a100")
    assert (scene.charged("a/runs"), over(scene, "a/runs")) == ({"gpu": 8}, {})
    typed(scene, *TWO)
    is_charged_as(scene, "h100")


def test_a_tree_that_loses_all_flavors_and_gets_them_back_charges_as_before() -> None:
    scene = on_h100(*TWO)
    typed(scene)
    assert (scene.charged("a/runs"), over(scene, "a/runs")) == ({"gpu": 8}, {})
    typed(scene, *TWO)
    is_charged_as(scene, "h100")


@pytest.mark.parametrize("seen", [True, False])
def test_a_flavor_with_another_name_and_the_same_nodes_is_the_same(*, seen: bool) -> None:
    scene = on_h100(*TWO)
    if seen:
        pod_on(scene, "a/runs", "h")
    kinds = [flavor("hopper", nodeLabels={KEY: "h100"}), flavor("a100")]
    scene.flavors({"hopper": 8, "a100": 8}, leaf("a", {}), leaf("b", {}), of=kinds)
    is_charged_as(scene, "hopper")


@pytest.mark.parametrize("selects", [True, False])
def test_flavors_of_a_live_cluster_are_charged_by_the_nodes_of_the_pods(*, selects: bool) -> None:
    scene = on_h100()
    if not selects:
        scene.change("a/runs", pod_sets=scene.job_of("a/any", ("main", 1, 8)).pod_sets)
        pod_on(scene, "a/runs", "h")
    typed(scene, "a100", "h100")
    is_charged_as(scene, "h100")


def test_what_runs_without_an_admission_is_charged_by_its_nodes() -> None:
    scene = Types()
    typed(scene, *TWO)
    node_is(scene, "a", "a100")
    scene.job_of("a/runs", ("main", 1, 8))
    pod_on(scene, "a/runs", "a")
    scene.do(facts.seen(scene.jobs["a/runs"], suspended=False, phase="running"))
    assert (scene.charged("a/runs"), over(scene, "a/runs")) == ({"gpu": 8, "a100": 8}, {})
    pod_on(scene, "b/alone", "h", scheduler="muster")
    node_is(scene, "h", "h100")
    used = scene.bench.states["quota_accountant"].ledger.used["root"]
    assert used["nvidia.com/gpu@h100"] == 8_000, "a pod of no job, before its node was seen"
    scene.bench.sound()


def test_the_charge_follows_the_pods_to_the_flavor_of_their_nodes() -> None:
    scene = Types()
    typed(scene, *TWO)
    node_is(scene, "h", "h100")
    node_is(scene, "a", "a100")
    scene.asks("a/runs", ("main", 2, 4))
    scene.runs("a/runs")
    assert scene.charged("a/runs") == {"gpu": 8, "h100": 8}
    pod_on(scene, "a/runs", "a", 4)
    assert scene.charged("a/runs") == {"gpu": 8, "h100": 4, "a100": 4}, "one pod is to come"
    pod_on(scene, "a/runs", "h", 4, 1)
    pod_on(scene, "a/runs", "h", 4, 2)
    assert (scene.charged("a/runs"), over(scene, "a/runs")) == (
        {"gpu": 12, "h100": 8, "a100": 4},
        {"nvidia.com/gpu": 4_000, "nvidia.com/gpu@h100": 4_000},
    )
    pod_on(scene, "a/runs", "h", 4, 2, over=True)
    node_is(scene, "h", "a100")
    assert (scene.charged("a/runs"), over(scene, "a/runs")) == ({"gpu": 8, "a100": 8}, {}), "the node has other labels"
    scene.bench.sound()
