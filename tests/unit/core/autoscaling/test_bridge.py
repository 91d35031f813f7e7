"""The bridge where scenarios do not reach: strays, requests that nobody needs by the time they are made, groups."""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import replace

from kit import facts, nodes
from kit.audits import audit
from kit.bench import Bench
from kit.podgangs import SIGS, Scene, member
from muster.core.actuation.provisioning import calls, pod_spec
from muster.events.base import Event
from muster.events.envelope import Stored
from muster.events.facts import NodePoolsGone, NodesRequestGone, NodesRequestObserved, PodGone, Synced
from muster.events.gangs import GangHeldBack, PodsPlaced
from muster.events.growing import NodesRequested, NodesRequestWithdrawn
from muster.model.keys import Ref
from muster.model.placing import (
    HOSTNAME,
    HostPort,
    NodeTerm,
    PodRules,
    PodTerm,
    Requirement,
    Spread,
    Toleration,
)
from muster.model.pools import PoolNodes
from muster.model.workload import PodSet
from muster.told.views.gangstory import gang_tale
from muster.told.views.narrator import Narrator

GROUPS = f"{SIGS}/groups"


def of(bench: Bench, *kinds: type[Event]) -> list[Any]:
    return bench.happened(*kinds)


def gang(scene: Scene, name: str, count: int, cpu: int = 2, **more: Any) -> None:
    for index in range(count):
        scene.put(member(f"{name}-{index}", name, count, cpu=cpu, **more))


def test_a_gang_of_pods_asks_once_for_what_is_missing() -> None:
    scene = Scene()
    scene.bench.facts(nodes.node("n", cpu=4), nodes.pools(nodes.pool("p", 2, cpu=4)))
    gang(scene, "a", 4)
    scene.settle()
    [asked] = of(scene.bench, NodesRequested)
    assert [(each.pool, each.nodes) for each in asked.pools] == [("p", 1)]
    assert sum(each.count for each in asked.pod_sets) == 2
    assert {ref.name for ref in asked.owners} == {f"a-{index}" for index in range(4)}
    scene.bench.facts(nodes.node("p-1", cpu=4, labels={"pool": "p"}, ready=False))
    scene.bench.pass_time(120_000)
    assert len(of(scene.bench, NodesRequested)) == 1, "a node that is not ready yet changes nothing"
    assert not of(scene.bench, NodesRequestWithdrawn)
    scene.bench.facts(nodes.node("p-1", cpu=4, labels={"pool": "p"}))
    scene.settle()
    [ended] = of(scene.bench, NodesRequestWithdrawn)
    assert (ended.name, ended.reason, ended.retry_at) == (asked.name, "met", 0)


def test_a_group_asks_once_for_all_of_it() -> None:
    scene = Scene()
    scene.bench.facts(nodes.pools(nodes.pool("p", 3, cpu=4)))
    marks = {GROUPS: '["video/a", "video/b"]'}
    gang(scene, "a", 2, marks=marks)
    gang(scene, "b", 3, marks=marks)
    scene.settle()
    [asked] = of(scene.bench, NodesRequested)
    assert asked.gangs == ("video/a", "video/b")
    assert sum(each.count for each in asked.pod_sets) == 5
    assert [(each.pool, each.nodes) for each in asked.pools] == [("p", 3)]


def test_pods_that_are_not_of_a_gang_are_left_to_the_autoscaler() -> None:
    scene = Scene()
    scene.bench.facts(nodes.pools(nodes.pool("p", 3, cpu=4)))
    scene.put(member("single", cpu=2))
    scene.settle()
    [told] = of(scene.bench, GangHeldBack)
    assert (told.reason, told.growth, told.refusals) == ("no_nodes", None, ())
    assert not of(scene.bench, NodesRequested)


def test_where_nobody_can_be_asked_pods_are_enough() -> None:
    scene = Scene()
    scene.bench.facts(nodes.pools(nodes.pool("p", 1, cpu=4)), Synced(kind="provisioningrequests", absent=True))
    gang(scene, "a", 2)
    gang(scene, "huge", 9)
    scene.settle()
    told = {each.gang: each for each in of(scene.bench, GangHeldBack)}
    assert told["video/a"].growth.provisioning == ""
    assert [each.why for each in told["video/huge"].refusals] == ["full"]
    assert not of(scene.bench, NodesRequested)


def test_a_request_that_nobody_needs_by_the_time_it_is_stored_is_taken_back() -> None:
    scene = Scene()
    scene.bench.facts(nodes.pools(nodes.pool("p", 3, cpu=4)))
    gang(scene, "a", 2)
    bench = scene.bench
    bench.step("gang_admitter")
    due, at = bench.seats["autoscaler_bridge"].decisions(), len(bench.log)
    assert [type(each) for each in due] == [NodesRequested]
    for uid in list(scene.pods):
        scene.delete(uid)
    bench.append("autoscaler_bridge", "decision", due, in_seq=at)
    scene.settle()
    [ended] = of(bench, NodesRequestWithdrawn)
    assert ended.reason == "gone"
    [order] = scene.actuator.asking.values()
    assert order.action == "withdraw_nodes", "it is removed, whether it was made or not"


def test_what_nobody_asked_for_is_removed_once() -> None:
    bench = Bench()
    bench.synced()
    ref = Ref("ProvisioningRequest", "video", "of-another-log", "uid-stray")
    bench.facts(NodesRequestObserved(ref=ref, rv=facts.next_rv(), templates=("of-another-log-0",)))
    bench.settle()
    bench.facts(NodesRequestObserved(ref=ref, rv=facts.next_rv(), phase="accepted", templates=("of-another-log-0",)))
    bench.settle()
    [ended] = of(bench, NodesRequestWithdrawn)
    assert (ended.name, ended.reason, ended.templates) == ("of-another-log", "unknown", ("of-another-log-0",))
    bench.facts(NodesRequestGone(ref=ref, rv=facts.next_rv()))
    assert bench.states["autoscaler_bridge"].removed == {}


def test_a_request_that_somebody_deletes_is_made_again_after_a_pause() -> None:
    scene = Scene()
    scene.bench.facts(nodes.pools(nodes.pool("p", 3, cpu=4)))
    gang(scene, "a", 2)
    scene.settle()
    [asked] = of(scene.bench, NodesRequested)
    ref = Ref("ProvisioningRequest", asked.namespace, asked.name, "uid-r")
    scene.bench.facts(NodesRequestObserved(ref=ref, rv=facts.next_rv()), NodesRequestGone(ref=ref, rv=facts.next_rv()))
    scene.settle()
    [ended] = of(scene.bench, NodesRequestWithdrawn)
    assert (ended.reason, ended.problem) == ("deleted", None)
    scene.bench.pass_time(180_000)
    again = of(scene.bench, NodesRequested)
    assert [each.tries for each in again] == [1, 2]
    assert again[0].name != again[1].name


def test_a_placement_that_is_void_keeps_the_request() -> None:
    scene = Scene()
    scene.bench.facts(nodes.pools(nodes.pool("p", 3, cpu=4)))
    gang(scene, "a", 2)
    scene.put(member("a-2", "a", 2, cpu=2))
    scene.settle()
    bench = scene.bench
    bench.facts(nodes.node("p-1", cpu=4, labels={"pool": "p"}), nodes.node("p-2", cpu=4, labels={"pool": "p"}))
    due, at = bench.seats["gang_admitter"].decisions(), len(bench.log)
    placed = next(each for each in due if isinstance(each, PodsPlaced))
    bench.facts(PodGone(ref=placed.pods[0].ref, rv=facts.next_rv()))
    scene.pods.pop(placed.pods[0].ref.uid)
    bench.append("gang_admitter", "decision", due, in_seq=at)
    assert bench.step("autoscaler_bridge") == []
    scene.settle()
    assert [each.reason for each in of(bench, NodesRequestWithdrawn)] == ["met"]


def test_a_template_says_where_its_pods_may_run() -> None:
    selector = (Requirement("app", "In", ("a",)),)
    rules = PodRules(
        labels={"app": "a"},
        node_labels={"disk": "ssd"},
        tolerations=(Toleration("gpu", "Exists"),),
        nodes=(NodeTerm(labels=(Requirement("zone", "In", ("x", "y")),)),),
        together=(PodTerm("zone", selector),),
        apart=(PodTerm(HOSTNAME, selector, ("video",)),),
        spread=(Spread("zone", 1, selector),),
        ports=(HostPort(80),),
    )
    spec = pod_spec(PodSet("worker", 2, {"cpu": 1500, "nvidia.com/gpu": 2000}, rules))
    assert spec["containers"][0]["resources"] == {
        "requests": {"cpu": "1500m", "nvidia.com/gpu": "2"},
        "limits": {"nvidia.com/gpu": "2"},
    }
    assert spec["nodeSelector"] == {"disk": "ssd"}
    assert spec["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert set(spec["affinity"]) == {"nodeAffinity", "podAffinity", "podAntiAffinity"}
    assert spec["topologySpreadConstraints"][0]["topologyKey"] == "zone"


def test_the_templates_come_before_the_request() -> None:
    scene = Scene()
    scene.bench.facts(nodes.pools(nodes.pool("p", 3, cpu=4)))
    gang(scene, "a", 2)
    scene.settle()
    scene.orders()
    [order] = scene.actuator.asking.values()
    made = list(calls(order))
    assert [each.resource.kind for each in made] == ["PodTemplate", "ProvisioningRequest"]
    body = json.loads(made[1].body or b"")
    assert body["spec"]["podSets"] == [{"podTemplateRef": {"name": made[0].name}, "count": 2}]
    assert {each["name"] for each in body["metadata"]["ownerReferences"]} == {"a-0", "a-1"}


def test_the_audit_sees_a_second_request_and_one_for_too_many() -> None:
    scene = Scene()
    scene.bench.facts(nodes.pools(nodes.pool("p", 3, cpu=4)))
    gang(scene, "a", 2)
    scene.settle()
    assert not audit(scene.bench.log).violations
    [asked] = of(scene.bench, NodesRequested)
    log = scene.bench.log
    last = next(stored for stored in log if asked in stored.commit.events)
    more = replace(asked, name="other", pools=(PoolNodes("p", 9),))
    found = audit([*log, Stored(len(log) + 1, replace(last.commit, events=(more,)))]).violations
    assert [each.invariant for each in found] == ["I21", "I21"]
    assert "asked for beside video/" in found[0].detail
    assert "asks for 9 of pool p, at most 3" in found[1].detail


def test_a_declaration_that_is_made_anew_counts_though_the_end_of_the_old_one_is_told_later() -> None:
    scene = Scene()
    scene.bench.facts(nodes.pools(nodes.pool("p", 1, cpu=4)))
    anew = replace(nodes.pools(nodes.pool("p", 3, cpu=4)), ref=replace(nodes.POOLS, uid="uid-anew"))
    scene.bench.facts(anew, NodePoolsGone(ref=nodes.POOLS, rv=facts.next_rv()))
    gang(scene, "a", 6)
    scene.settle()
    [asked] = of(scene.bench, NodesRequested)
    assert [(each.pool, each.nodes) for each in asked.pools] == [("p", 3)]


def test_the_story_of_a_gang_tells_which_nodes_it_waits_for() -> None:
    scene = Scene()
    scene.bench.facts(nodes.pools(nodes.pool("p", 3, cpu=4)))
    gang(scene, "a", 2)
    scene.settle()
    narrator = Narrator()
    for stored in scene.bench.log:
        narrator.feed(stored)
    tale = gang_tale(narrator.state, "video/a")
    assert "asked for: 1 node of pool p" in tale.text
    [asked] = [each for each in tale.entries if each.word == "wants nodes"]
    assert asked.text.startswith("1 node of pool p for 2 pods without a place (ProvisioningRequest a-")


def test_pools_of_another_class_are_asked_when_the_first_did_not_give() -> None:
    scene = Scene()
    other = nodes.pool("q", 3, cpu=4, provisioning="check-capacity.autoscaling.x-k8s.io")
    scene.bench.facts(nodes.pools(nodes.pool("p", 3, cpu=4), other))
    gang(scene, "a", 2)
    scene.settle()
    [asked] = of(scene.bench, NodesRequested)
    ref = Ref("ProvisioningRequest", asked.namespace, asked.name, "uid-r")
    scene.bench.facts(NodesRequestObserved(ref=ref, rv=facts.next_rv(), phase="failed", message="no"))
    scene.settle()
    told = of(scene.bench, GangHeldBack)[-1]
    assert [(each.pool, each.nodes) for each in told.growth.pools] == [("q", 1)]
    scene.bench.pass_time(90_000)
    again = of(scene.bench, NodesRequested)[-1]
    assert (again.provisioning, again.tries) == ("check-capacity.autoscaling.x-k8s.io", 2)
