"""A worker group whose pods no node takes: the next group that would do is asked for, and this one again in time."""

from __future__ import annotations

from typing import Any

from kit.facts import job, node, seen, tree
from kit.rayscenes import RayScene
from muster.events.alarms import AlarmCleared, AlarmRaised
from muster.events.base import Event
from muster.events.decisions import QuotaReserved
from muster.events.elastic import GateSet, GrowthGranted, GrowthWithdrawn, WorkersChosen
from muster.events.facts import PodGone
from muster.model.keys import Ref
from muster.model.raydemand import RAY_UNIT, RayDemand, RayShape

HEAD = 1


def scene(*names: str, cores: int = 3) -> RayScene:
    """A cluster with groups of workers with one core, in the order in which Ray takes them."""
    sizes = {"cpu": "1", "memory": "1Gi"}
    template = {"spec": {"containers": [{"name": "ray", "resources": {"limits": sizes, "requests": sizes}}]}}
    counts = {"replicas": 0, "minReplicas": 0, "maxReplicas": 9}
    groups = [{"groupName": name, "priority": -at, **counts, "template": template} for at, name in enumerate(names)]
    return RayScene(cores=cores + HEAD, groups=groups)


def waits(count: int = 1) -> RayDemand:
    return RayDemand(version="v2", pending=(RayShape({"CPU": RAY_UNIT}, count),))


def happened(events: list[Event], kind: type[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def sizes(found: RayScene, **replicas: int) -> None:
    for group in found.cluster["spec"]["workerGroupSpecs"]:
        group["replicas"] = replicas.get(group["groupName"], group["replicas"])


def stuck(*names: str, count: int = 1, **more: Any) -> tuple[RayScene, list[Event]]:
    """The first group is granted what waits, and no node takes its pods; what happens half a minute later."""
    found = scene(*names, **more)
    found.pod("head", "head")
    decided = found.demands(waits(count))
    sizes(found, **{names[0]: count})
    found.gated(happened(decided, GateSet)[0])
    for number in range(count):
        found.pod(f"{names[0]}-{number}", group=names[0], stuck=True)
    before = len(found.bench.log)
    found.bench.pass_time(29_000)
    assert not happened(since(found, before), AlarmRaised)
    found.bench.pass_time(2_000)
    return found, since(found, before)


def since(found: RayScene, place: int) -> list[Event]:
    return [event for stored in found.bench.log[place:] for event in stored.commit.events]


def gone(found: RayScene, gate: GateSet) -> list[Event]:
    """The write is done, and its pods are deleted; what comes of it."""
    before = len(found.bench.log)
    sizes(found, **gate.replicas)
    found.gated(gate)
    for pods in gate.workers.values():
        for pod in pods:
            found.rv += 1
            found.bench.facts(PodGone(ref=pod, rv=found.rv))
    found.settle()
    found.bench.pass_time(1_000)
    return since(found, before)


def test_the_next_group_is_granted_as_soon_as_pods_without_nodes_are_gone() -> None:
    found, events = stuck("spot", "ondemand")
    [raised] = happened(events, AlarmRaised)
    assert (raised.reason, raised.groups) == ("no_nodes", {"spot": 1})
    [chosen] = happened(events, WorkersChosen)
    assert [each.ref.name for each in chosen.workers] == ["spot-0"] and chosen.left == {"spot": 0}
    gate = happened(events, GateSet)[-1]
    events = gone(found, gate)
    assert happened(events, GrowthWithdrawn)[0].removed == {"spot": 1}
    assert happened(events, GrowthGranted)[0].added == {"ondemand": 1}
    assert happened(events, GateSet)[-1].most == {"spot": 0, "ondemand": 1}


def test_the_room_that_a_group_gives_back_goes_to_the_next_group_that_is_owed_it() -> None:
    """Seen with a real Ray: a borrower started there, and nobody could be evicted while it did."""
    found, events = stuck("spot", "ondemand")
    least, most = {"cpu": 3}, {"cpu": 3}
    leaves = (node("a", least, most, ("a",)), node("b", {}, most, ("b",)))
    found.bench.facts(tree(node("root", most, most, children=leaves)), seen(job("borrower", "b", cpu=2)))
    found.settle()
    events = gone(found, happened(events, GateSet)[-1])
    assert happened(events, GrowthGranted)[0].added == {"ondemand": 1}
    assert not happened(events, QuotaReserved)


def test_the_group_is_tried_again_after_a_pause_that_grows() -> None:
    found, events = stuck("spot", "ondemand")
    first = happened(events, AlarmRaised)[0]
    events = gone(found, happened(events, GateSet)[-1])
    sizes(found, ondemand=1)
    found.gated(happened(events, GateSet)[-1])
    found.pod("ondemand-0", group="ondemand")
    before = len(found.bench.log)
    found.bench.pass_time(first.until - found.bench.now)
    assert happened(since(found, before), AlarmCleared)
    found.bench.pass_time(1_000)
    decided = found.demands(RayDemand(version="v2", joined={"ondemand": 1}, pending=waits().pending))
    assert happened(decided, GrowthGranted)[0].added == {"spot": 1}, "it is the first again"
    sizes(found, spot=1)
    found.gated(happened(decided, GateSet)[-1])
    found.pod("spot-1", group="spot", stuck=True)
    before = len(found.bench.log)
    found.bench.pass_time(31_000)
    [second] = happened(since(found, before), AlarmRaised)
    at = next(stored.commit.at for stored in found.bench.log if second in stored.commit.events)
    assert (second.tries, second.until - at) == (2, 120_000)


def test_where_no_other_group_would_do_its_pods_wait_for_their_nodes() -> None:
    _, events = stuck("spot")
    assert [each.reason for each in happened(events, AlarmRaised)] == ["no_nodes"]
    assert not happened(events, WorkersChosen) and not happened(events, GateSet)


def test_only_pods_without_nodes_go() -> None:
    found, events = stuck("spot", "ondemand", count=2)
    gate = happened(events, GateSet)[-1]
    assert {each.name for each in gate.workers["spot"]} == {"spot-0", "spot-1"}
    found = scene("spot", "ondemand")
    found.pod("head", "head")
    decided = found.demands(waits(2))
    sizes(found, spot=2)
    found.gated(happened(decided, GateSet)[0])
    found.pod("spot-0", group="spot", stuck=True)
    found.pod("spot-1", group="spot", stuck=True)
    found.bench.pass_time(20_000)
    found.pod("spot-1", group="spot")
    before = len(found.bench.log)
    found.bench.pass_time(12_000)
    [gate] = happened(since(found, before), GateSet)
    assert {each.name for each in gate.workers["spot"]} == {"spot-0"}


def test_each_group_without_nodes_is_closed_when_its_time_comes() -> None:
    found, events = stuck("spot", "reserved", "ondemand")
    events = gone(found, happened(events, GateSet)[-1])
    sizes(found, reserved=1)
    found.gated(happened(events, GateSet)[-1])
    found.pod("reserved-0", group="reserved", stuck=True)
    before = len(found.bench.log)
    found.bench.pass_time(31_000)
    events = since(found, before)
    assert happened(events, AlarmRaised)[-1].groups == {"reserved": 1, "spot": 1}
    events = gone(found, happened(events, GateSet)[-1])
    assert happened(events, GrowthGranted)[-1].added == {"ondemand": 1}


def test_how_long_to_wait_for_a_node_is_a_setting_of_the_cluster() -> None:
    found = scene("spot", "ondemand")
    found.notes = {"muster.dev/node-wait": "5m"}
    found.pod("head", "head")
    decided = found.demands(waits())
    sizes(found, spot=1)
    found.gated(happened(decided, GateSet)[0])
    found.pod("spot-0", group="spot", stuck=True)
    found.bench.pass_time(299_000)
    assert not found.bench.happened(WorkersChosen)
    found.bench.pass_time(2_000)
    assert found.bench.happened(WorkersChosen)
    assert found.bench.happened(AlarmRaised)[0].cluster == Ref("RayCluster", "a", "one", "one-uid")
