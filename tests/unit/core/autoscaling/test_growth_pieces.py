"""What a Ray cluster with several worker groups asks for, and is granted: each piece by itself, in Ray's order."""

from __future__ import annotations

from typing import Any

from kit.facts import node, tree
from kit.rayscenes import RayScene, with_groups
from muster.core.autoscaling.packing import Packing
from muster.events.base import Event
from muster.events.elastic import GateSet, GrowthDenied, GrowthGranted, GrowthRequested
from muster.model.elastic import ScaledGroup
from muster.model.raydemand import RAY_UNIT, RayConstraint, RayDemand, RayPlacementGroup, RayRoom, RayShape


def asks(found: RayScene, **demand: Any) -> list[Event]:
    return found.demands(RayDemand(version="v2", **demand))


def cpus(count: float, times: int = 1, **more: Any) -> RayShape:
    return RayShape({"CPU": round(count * RAY_UNIT)}, times, **more)


def added(decided: list[Event]) -> dict[str, int]:
    total: dict[str, int] = {}
    for event in decided:
        if isinstance(event, GrowthGranted):
            for name, count in event.added.items():
                total[name] = total.get(name, 0) + count
    return total


def test_a_placement_group_that_never_fits_stops_nothing_else() -> None:
    found = with_groups(("small", 1, {}), cores=3)
    never = RayPlacementGroup("pg", "STRICT_SPREAD", (cpus(1, 9),))
    decided = asks(found, pending=(cpus(1, 2),), placement_groups=(never,))
    assert added(decided) == {"small": 2}


def test_a_device_without_quota_stops_nothing_else() -> None:
    found = with_groups(("gpus", 1, {"devices": {"nvidia.com/gpu": "1"}}), ("small", 1, {}), cores=3)
    limits = {"cpu": 4, "nvidia.com/gpu": 0}
    leaf = node("a", limits, limits, ("a",))
    found.bench.facts(tree(node("root", limits, limits, children=(leaf,))))
    decided = asks(found, pending=(cpus(1), RayShape({"CPU": RAY_UNIT, "GPU": RAY_UNIT})))
    assert added(decided) == {"small": 1}
    [gate] = [event for event in decided if isinstance(event, GateSet)]
    before = len(found.bench.log)
    found.gated(gate)
    later = [event for stored in found.bench.log[before:] for event in stored.commit.events]
    [denied] = [event for event in later if isinstance(event, GrowthDenied)]
    assert (denied.groups, denied.short.resource) == ({"gpus": 1}, "nvidia.com/gpu")


def test_nothing_counts_on_the_workers_of_a_placement_group_that_is_refused() -> None:
    """Ray would put the actor beside a bundle; while these have no quota it gets a worker of its own."""
    found = with_groups(("four", 4, {}), ("small", 1, {}), cores=5)
    group = RayPlacementGroup("pg", "STRICT_SPREAD", (cpus(3, 2),))
    decided = asks(found, pending=(cpus(1),), placement_groups=(group,))
    assert added(decided) == {"small": 1}


def test_the_next_group_is_taken_where_the_first_has_no_quota() -> None:
    found = with_groups(("big", 4, {}), ("small", 1, {}), cores=2)
    decided = asks(found, pending=(cpus(1, 4),))
    [asked] = [event for event in decided if isinstance(event, GrowthRequested)][:1]
    assert asked.units[0].groups == {"big": 1}, "what Ray takes first"
    assert added(decided) == {"small": 2}, "as far as there is quota"
    [gate] = [event for event in decided if isinstance(event, GateSet)][-1:]
    assert gate.most == {"big": 0, "small": 2}


def test_a_grant_that_ray_uses_otherwise_is_not_asked_for_again() -> None:
    found = with_groups(("big", 4, {}), ("small", 1, {}), cores=2)
    asks(found, pending=(cpus(1, 2),))
    wish = found.bench.states["autoscaler_bridge"].clusters["one-uid"].wish
    assert wish.wanted == {"big": 0, "small": 2}
    assert wish.units == ()


def test_a_part_of_a_placement_group_may_go_to_another_group() -> None:
    found = with_groups(("big", 4, {}), ("small", 1, {}), cores=6)
    group = RayPlacementGroup("pg", "STRICT_SPREAD", (cpus(1, 3),))
    decided = asks(found, placement_groups=(group,))
    assert added(decided) == {"small": 3}
    found = with_groups(("big", 4, {"priority": 5}), ("small", 1, {"maxReplicas": 2}), cores=6)
    assert added(asks(found, placement_groups=(group,))) == {"big": 1, "small": 2}


def test_labels_choose_the_group_and_fallbacks_come_in_their_order() -> None:
    spot, zone = RayConstraint("market", ("spot",)), RayConstraint("zone", ("b",), excluded=True)
    groups = (("ondemand", 1, {"labels": {"market": "ondemand"}}), ("spot", 1, {"labels": {"market": "spot"}}))
    assert added(asks(with_groups(*groups, cores=4), pending=(cpus(1, 2, selectors=((spot,),)),))) == {"spot": 2}
    nowhere = RayConstraint("market", ("reserved",))
    assert added(asks(with_groups(*groups, cores=4), pending=(cpus(1, selectors=((nowhere,),)),))) == {}
    fallback = cpus(1, selectors=((nowhere,), (spot, zone)))
    assert added(asks(with_groups(*groups, cores=4), pending=(fallback,))) == {"spot": 1}
    bundles = RayPlacementGroup("pg", "PACK", (cpus(1, selectors=((spot,),)), cpus(1)))
    assert added(asks(with_groups(*groups, cores=4), placement_groups=(bundles,))) == {"ondemand": 1, "spot": 1}


def test_an_actor_without_resources_chooses_by_labels_all_the_same() -> None:
    spot = RayConstraint("market", ("spot",))
    found = with_groups(("ondemand", 1, {}), ("spot", 1, {"labels": {"market": "spot"}}), cores=4)
    assert added(asks(found, pending=(RayShape({}, 3, ((spot,),)),))) == {"spot": 1}


def test_of_groups_that_would_do_as_well_the_one_with_the_higher_priority() -> None:
    found = with_groups(("first", 1, {}), ("second", 1, {"priority": 10}), cores=4)
    assert added(asks(found, pending=(cpus(1, 2),))) == {"second": 2}


def test_what_fits_on_a_worker_that_has_room_is_not_asked_for() -> None:
    found = with_groups(("small", 4, {}), cores=8)
    room = (RayRoom("small", {"CPU": RAY_UNIT}),)
    assert added(asks(found, pending=(cpus(1, 2),), joined={"small": 1}, room=room)) == {"small": 1}


def test_what_is_asked_for_explicitly_is_one_piece() -> None:
    """Ray makes nothing of it where not all of it fits, beside what the head offers; its first version does."""
    found = with_groups(("small", 1, {}), cores=2)
    assert added(asks(found, explicit=(cpus(1, 4),))) == {}
    found = with_groups(("small", 1, {}), cores=2)
    assert added(found.demands(RayDemand(version="v1", explicit=(cpus(1, 4),)))) == {"small": 2}


def test_room_that_comes_back_for_any_of_it_is_seen() -> None:
    """What is refused first waits for GPUs; what is refused second is granted when there are cores."""
    found = with_groups(("gpus", 1, {"devices": {"nvidia.com/gpu": "1"}}), ("small", 1, {}), cores=0)

    def limited(cpu: int) -> list[Event]:
        limits = {"cpu": cpu, "nvidia.com/gpu": 0}
        leaf = node("a", limits, limits, ("a",))
        before = len(found.bench.log)
        found.bench.facts(tree(node("root", limits, limits, children=(leaf,))))
        found.settle()
        return [event for stored in found.bench.log[before:] for event in stored.commit.events]

    limited(1)
    decided = asks(found, pending=(cpus(1), RayShape({"CPU": RAY_UNIT, "GPU": RAY_UNIT})))
    assert added(decided) == {}
    assert added(limited(3)) == {"small": 1}


def test_hosts_that_would_take_the_same_again_are_tried_once() -> None:
    """What one takes leaves enough for the others: the budget reaches far."""
    groups = tuple(
        ScaledGroup(f"g{index}", most=99, offers={"CPU": RAY_UNIT, f"kind-{index}": RAY_UNIT}) for index in range(20)
    )
    waits = tuple(RayShape({"CPU": RAY_UNIT - 5 * each, f"kind-{each % 20}": 1}, 7) for each in range(1_000))
    left, launches = Packing(groups).place([], {group.name: 999 for group in groups}, waits)
    assert sum(each.count for each in launches) >= 200
    assert sum(left) + sum(each.count for each in launches) == 7_000


def test_a_demand_of_any_size_is_placed_on_a_budget() -> None:
    """A thousand shapes and twenty groups: what the budget does not reach is asked for later."""
    groups = tuple(ScaledGroup(f"g{index}", most=99, offers={"CPU": (index + 1) * RAY_UNIT}) for index in range(20))
    waits = tuple(RayShape({"CPU": RAY_UNIT + index}, 20) for index in range(1_000))
    packing = Packing(groups)
    left, launches = packing.place([], {group.name: 99 for group in groups}, waits)
    assert launches and any(left)
    assert packing.place([], {group.name: 99 for group in groups}, waits)[1] == [], "nothing is left of it"
