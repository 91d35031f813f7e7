"""Types of GPUs as quota: the amounts by flavor, and the first alternative of a job that fits."""

from __future__ import annotations

import json

from kit import facts
from kit.advised import asked
from kit.flavored import KEY, Types, flavor, leaf, node
from muster.core.cell.seats import Seat
from muster.core.queueing import queuefolds
from muster.core.queueing.queues import Queues
from muster.core.quota.demand import Charge
from muster.core.quota.rayclaims import demand_of_growth, given_back, spare_of
from muster.core.quota.trees.treesource import read_tree
from muster.events.base import Cause
from muster.events.decisions import GangAdmitted, GangDeferred, PlacesFound, QuotaDenied, WorkloadQueued
from muster.events.elastic import GrowthOption, GrowthRequested
from muster.events.facts import NodeObserved
from muster.model.elastic import Elastic, ScaledGroup
from muster.model.keys import Position, Ref
from muster.model.places import Shortage
from muster.model.placing import GPU, NodeTerm, PodRules, Requirement
from muster.model.workload import NodeState
from muster.told.presentation.desired import settings_left_out
from muster.told.readmodel.model import ReadModel
from muster.told.status.statuses import job_status
from muster.told.wording import jobs

FOUR = {"h100": 4, "a100": 8}


def two(**rules: str) -> Types:
    """Four H100 and eight A100; a is guaranteed the H100, b the A100."""
    scene = Types()
    scene.flavors(FOUR, leaf("a", {"h100": 4}), leaf("b", {"a100": 8}), **rules)
    return scene


def test_a_job_is_charged_by_the_one_flavor_that_its_selector_allows() -> None:
    scene = two()
    scene.asks("a/one", 4, rules=PodRules(node_labels={KEY: "a100"}))
    assert (scene.on("a/one"), scene.charged("a/one")) == ("a100", {"gpu": 4, "a100": 4})
    term = NodeTerm((Requirement(KEY, "In", ("h100",)),))
    scene.asks("a/two", 4, rules=PodRules(nodes=(term,)))
    assert (scene.on("a/two"), scene.charged("a/two")) == ("h100", {"gpu": 4, "h100": 4})
    scene.asks("a/three", 1, rules=PodRules(nodes=(term,)))
    assert not scene.on("a/three"), "all four H100 are used, though the total has room"
    scene.bench.sound()


def test_the_first_flavor_that_fits_is_taken_and_the_next_where_it_is_full() -> None:
    scene = two()
    scene.asks("a/one", 3)
    scene.asks("a/two", 3)
    scene.asks("a/three", 3, order="h100,a100")
    assert [scene.on(f"a/{name}") for name in ("one", "two", "three")] == ["h100", "a100", "a100"]
    scene.asks("a/four", 4)
    assert not scene.on("a/four")
    scene.ends("a/one")
    assert scene.on("a/four") == "h100"
    scene.bench.sound()


def test_a_waiting_job_starts_where_any_alternative_frees() -> None:
    scene = two()
    for name, size in (("one", 4), ("two", 4), ("three", 4)):
        scene.asks(f"b/{name}", size)
    assert [scene.on(f"b/{name}") for name in ("one", "two", "three")] == ["h100", "a100", "a100"]
    scene.asks("b/four", 2, order="h100,a100")
    scene.ends("b/two")
    assert scene.on("b/four") == "a100"
    scene.bench.sound()


def test_several_jobs_of_a_shape_start_where_room_comes() -> None:
    scene = two()
    scene.asks("b/h", 4)
    scene.asks("b/big", 8)
    for index in range(6):
        scene.asks(f"b/x{index}", 2, order="h100,a100")
    scene.ends("b/big")
    assert [scene.on(f"b/x{index}") for index in range(6)] == ["a100"] * 4 + [""] * 2
    scene.ends("b/h")
    assert [scene.on(f"b/x{index}") for index in range(6)] == ["a100"] * 4 + ["h100"] * 2
    scene.bench.sound()


def test_each_pod_set_has_a_flavor_of_its_own() -> None:
    scene = two()
    scene.asks("a/one", ("head", 1, 0), ("big", 1, 3), ("small", 2, 2))
    assert scene.on("a/one") == "h100 a100"
    assert scene.charged("a/one") == {"gpu": 7, "h100": 3, "a100": 4}
    scene.bench.sound()


def test_the_list_of_a_job_and_of_its_queue_is_the_order() -> None:
    scene = Types()
    scene.flavors(FOUR, leaf("a", {}, order="a100,h100"), leaf("b", {}, order="a100"))
    scene.asks("a/one", 1)
    scene.asks("a/two", 1, order="h100")
    scene.asks("b/three", 1, order="h100, nothing")
    assert [scene.on(name) for name in ("a/one", "a/two", "b/three")] == ["a100", "h100", "a100"]


def test_pods_that_only_a_type_outside_the_lists_suits_are_charged_with_that_type() -> None:
    on_a100 = PodRules(node_labels={KEY: "a100"})
    scene = Types()
    scene.flavors(FOUR, leaf("a", {"h100": 2}, order="h100"), leaf("b", {}, {"a100": 2}))
    scene.asks("a/past", 2, rules=on_a100)
    assert not scene.on("a/past"), "the list of the queue has no A100"
    assert "Exceeds quota(nvidia.com/gpu@a100) in quota root/a: request 2, max 0." in told(scene, "a/past")
    scene.asks("a/workers", ("head", 1, 1), 2, rules=on_a100)
    scene.asks("b/past", 4, rules=on_a100, order="h100")
    assert not scene.on("a/workers") and not scene.on("b/past"), "the list of a job lifts no max"
    scene.asks("b/within", 2, rules=on_a100, order="h100")
    assert (scene.on("b/within"), scene.charged("b/within")) == ("a100", {"gpu": 2, "a100": 2})
    scene.asks("a/none", 2, rules=PodRules(node_labels={KEY: "l40"}))
    assert scene.charged("a/none") == {"gpu": 2}, "nodes of no type"
    scene.bench.sound()


def test_a_list_leaves_the_other_groups_of_resources_as_they_are() -> None:
    scene = Types()
    kinds = [flavor("h100"), flavor("a100"), *(flavor(name, resources=["cpu"]) for name in ("x86", "arm"))]
    whole = {"h100": 4, "a100": 4, "cpu@x86": 8, "cpu@arm": 8}
    scene.flavors(whole, leaf("a", {}, order="a100"), leaf("b", {}, order="a100,arm"), of=kinds)
    scene.asks("a/one", {"gpu": 1, "cpu": 1})
    scene.asks("b/one", {"gpu": 1, "cpu": 1}, order="a100")
    assert scene.on_each("a", "one") + scene.on_each("b", "one") == ["a100+x86", "a100+arm"]
    scene.bench.sound()


def test_a_total_below_its_amounts_by_flavor_overbooks_no_parent() -> None:
    flavors = json.dumps([flavor("h100"), flavor("a100")])
    a, b, c = leaf("a", {"gpu": 2, "h100": 4}), leaf("b", {"a100": 8}), leaf("c", {"gpu": 2})
    root = node("root", FOUR, FOUR, children=(a, b, c))
    _, broken = read_tree(facts.tree(root, rules={"flavors": flavors}))
    assert [(one.code, one.values["total"]) for one in broken] == [("children_over_parent", 14_000)], "4, 8 and 2 of 12"
    tree, broken = read_tree(facts.tree(node("root", FOUR, FOUR, children=(a, b)), rules={"flavors": flavors}))
    assert not broken and tree.nodes[1].guaranteed["nvidia.com/gpu"] == 4_000


def test_what_is_guaranteed_of_a_flavor_is_taken_back_in_that_flavor() -> None:
    scene = two()
    scene.asks("b/a", 8, rules=PodRules(node_labels={KEY: "a100"}))
    scene.asks("b/h", 4, rules=PodRules(node_labels={KEY: "h100"}))
    scene.runs("b/a")
    scene.runs("b/h")
    scene.asks("a/owed", 4)
    assert scene.victims() == ["b/h"]
    scene.suspended("b/h")
    assert scene.on("a/owed") == "h100"
    scene.bench.sound()


def totals() -> Types:
    """c is guaranteed six GPUs of any type, a two H100."""
    scene = Types()
    scene.flavors({"h100": 4, "a100": 4}, leaf("a", {"h100": 2}), leaf("b", {}), leaf("c", {"gpu": 6}))
    return scene


def test_a_guarantee_by_total_takes_any_flavor_from_those_beyond_their_guarantees() -> None:
    scene = totals()
    for name, count, on in (("b/h", 2, "h100"), ("b/a", 4, "a100"), ("a/h", 2, "h100")):
        scene.asks(name, count, order=on)
        scene.runs(name)
    scene.asks("c/owed", 2, order="h100")
    assert scene.victims() == ["b/h"], "a is within its two H100"
    scene.suspended("b/h")
    scene.asks("c/rest", 4)
    assert scene.victims() == ["b/a"], "no H100 is lent"
    scene.suspended("b/a")
    assert scene.on_each("c", "owed", "rest") == ["h100", "a100"]
    scene.bench.sound()


def test_a_guarantee_by_flavor_comes_before_a_guarantee_by_total() -> None:
    scene = totals()
    for name, on in (("c/h", "h100,a100"), ("c/i", "h100"), ("c/a", "a100")):
        scene.asks(name, 2, order=on)
        scene.runs(name)
    scene.asks("b/fill", 2, order="a100")
    scene.runs("b/fill")
    scene.asks("a/named", 2, order="h100")
    assert scene.victims() == ["c/h"]
    scene.suspended("c/h")
    assert scene.on("a/named") == "h100"
    assert scene.victims() == ["b/fill"], "c is owed six, of any type"
    scene.suspended("b/fill")
    assert scene.on("c/h") == "a100"
    scene.bench.sound()


def test_an_amount_by_flavor_is_no_right_to_another_flavor() -> None:
    scene = two()
    scene.asks("b/a", 8, order="a100")
    scene.runs("b/a")
    before = len(scene.bench.log)
    scene.asks("a/other", 4, order="a100")
    scene.bench.pass_time(60_000)
    assert not scene.on("a/other") and len(scene.bench.log) < before + 20
    scene.bench.sound()


def test_a_max_of_a_flavor_of_a_parent_or_of_the_total_holds() -> None:
    scene = Types()
    scene.flavors({"gpu": 6} | FOUR, leaf("a", {}, {"h100": 2}), leaf("b", {}, {"gpu": 3}))
    scene.asks("a/one", 2)
    scene.asks("a/two", 1)
    assert [scene.on("a/one"), scene.on("a/two")] == ["h100", "a100"]
    scene.asks("b/three", 2)
    scene.asks("b/four", 1, order="a100")
    scene.asks("b/five", 1)
    assert [scene.on("b/three"), scene.on("b/four"), scene.on("b/five")] == ["h100", "a100", ""]
    scene.bench.sound()


def test_a_refusal_lists_every_alternative_with_its_number() -> None:
    scene = Types()
    scene.flavors(
        {"h100": 8, "a100": 8, "l40": 8},
        leaf("a", {"h100": 8}),
        leaf("b", {"a100": 8}),
        of=[
            flavor("h100", nodeLabels={KEY: "h100", "big": "yes"}),
            flavor("a100", nodeLabels={KEY: "a100", "big": "yes"}),
            flavor("l40"),
        ],
    )
    scene.asks("a/one", 6)
    scene.asks("b/two", 7, order="a100")
    scene.asks("a/three", 4, rules=PodRules(node_labels={"big": "yes"}))
    assert told(scene, "a/three").endswith(
        "On a100, 1 of 8 nvidia.com/gpu@a100 of quota root is free, and it needs 4; on l40, its pods select nodes with "
        "label big=yes"
    )
    assert "nvidia.com/gpu@h100 4, and quota root has 2 free of 8 (6 in use)" in told(scene, "a/three")


def told(scene: Types, name: str) -> str:
    """What ``muster why`` says of a job now."""
    seat = Seat(ReadModel())
    for stored in scene.bench.log:
        seat.fold(stored)
    return jobs.text(job_status(seat.state, scene.jobs[name].ref.uid), scene.bench.now)


def typed_nodes(scene: Types, **gpus: int) -> None:
    """A node of each type, with so many GPUs; placement is on."""
    scene.lines("placement pack")
    for name, count in gpus.items():
        scene.do(typed_node(name, count))


def typed_node(name: str, count: int) -> NodeObserved:
    ref, has = Ref("Node", "", f"node-{name}", f"uid-node-{name}"), {"cpu": 64000, "pods": 110000, GPU: count * 1000}
    return NodeObserved(node=NodeState(ref=ref, rv=facts.next_rv(), allocatable=has, labels={KEY: name}))


def test_gangs_are_placed_on_the_nodes_of_their_flavors() -> None:
    scene = two()
    typed_nodes(scene, h100=4, a100=8)
    scene.asks("a/one", ("main", 2, 2))
    scene.asks("b/two", ("main", 3, 2))
    placed = {event.ref.key: event for event in scene.bench.happened(GangAdmitted)}
    assert {place.node for place in placed["a/one"].placements} == {"node-h100"}
    assert {place.node for place in placed["b/two"].placements} == {"node-a100"}
    assert placed["b/two"].nodes["main"].labels == {KEY: "a100"}
    scene.bench.sound()


def test_a_flavor_with_quota_and_no_nodes_gives_way_to_the_next() -> None:
    scene = two()
    typed_nodes(scene, a100=8)
    scene.asks("a/one", ("main", 2, 2))
    assert placed(scene, "a/one") == {"node-a100"}, "the H100 have quota and no nodes"
    scene.asks("b/two", ("main", 2, 2))
    scene.asks("b/three", ("main", 2, 2))
    assert placed(scene, "b/two") == {"node-a100"}
    assert not placed(scene, "b/three"), "no nodes are left"
    typed_nodes(scene, h100=4)
    assert placed(scene, "b/three") == {"node-h100"}
    scene.bench.sound()


def test_a_job_that_waits_for_quota_of_one_flavor_starts_on_new_nodes_of_another() -> None:
    scene = two()
    typed_nodes(scene, a100=8)
    scene.asks("b/big", ("main", 1, 8), order="a100")
    scene.asks("b/waits", ("main", 1, 4), order="h100,a100")
    assert not placed(scene, "b/waits"), "quota of H100 without nodes, and no quota of A100"
    typed_nodes(scene, h100=4)
    assert placed(scene, "b/waits") == {"node-h100"}
    scene.bench.sound()


def test_a_job_without_nodes_on_any_flavor_starts_where_quota_and_nodes_come() -> None:
    scene = two()
    typed_nodes(scene, h100=2, a100=2)
    for name in ("one", "two"):
        scene.asks(f"b/{name}", ("main", 1, 2))
    scene.asks("b/three", ("main", 1, 2))
    assert [placed(scene, f"b/{name}") for name in ("one", "two", "three")] == [{"node-h100"}, {"node-a100"}, set()]
    before = len(scene.bench.log)
    scene.bench.pass_time(3_600_000)
    assert len(scene.bench.log) < before + 30, "and the wait costs next to nothing"
    scene.ends("b/two")
    assert placed(scene, "b/three") == {"node-a100"}
    scene.bench.sound()


def placed(scene: Types, name: str) -> set[str]:
    """The nodes of the newest admission of a job."""
    mine = [event for event in scene.bench.happened(GangAdmitted) if event.ref.key == name]
    return {place.node for place in mine[-1].placements} if mine else set()


def test_why_tells_of_each_flavor_whether_quota_or_nodes_lack() -> None:
    scene = two()
    typed_nodes(scene, h100=2, a100=8)
    scene.asks("b/big", ("main", 1, 8), order="a100")
    scene.asks("b/quota", ("main", 1, 4))
    assert "On h100, the nodes have no room for its pods" in told(scene, "b/quota"), told(scene, "b/quota")
    scene = two()
    typed_nodes(scene, h100=2, a100=2)
    scene.asks("b/nodes", ("main", 1, 2))
    scene.asks("b/more", ("main", 1, 2))
    scene.asks("b/none", ("main", 1, 2))
    assert "On h100, the nodes have no room for its pods" in told(scene, "b/none"), "b is owed the A100"


def test_a_job_may_wait_for_its_best_flavor_before_it_takes_the_next() -> None:
    scene = two()
    scene.asks("a/fills", 4)
    scene.asks("a/waits", 4, order="h100,a100", flavor_wait="10m")
    scene.asks("a/other", 4, order="h100,a100")
    assert scene.on_each("a", "waits", "other") == ["", "a100"], "another job of the shape waits for nothing"
    assert "until 1970-01-01T00:26:40Z it waits for its first type alone" in told(scene, "a/waits")
    scene.bench.pass_time(599_000)
    assert not scene.on("a/waits")
    scene.bench.pass_time(2_000)
    assert scene.on("a/waits") == "a100"
    queued = [event for event in scene.bench.happened(WorkloadQueued) if event.ref.key == "a/waits"]
    assert [(event.flavor_until, event.flavor_waited) for event in queued] == [(1_600_000, 0), (0, 600_000)]
    scene.bench.sound()


def test_a_wait_for_the_best_flavor_ends_when_it_comes_and_where_it_never_could() -> None:
    scene = two()
    scene.asks("a/fills", 4)
    scene.asks("a/waits", 4, order="h100,a100", flavor_wait="10m")
    scene.asks("a/large", 6, order="h100,a100", flavor_wait="10m")
    assert scene.on("a/large") == "a100", "six H100 do not exist"
    scene.ends("a/fills")
    assert scene.on("a/waits") == "h100"
    before = len(scene.bench.log)
    scene.bench.pass_time(3_600_000)
    assert len(scene.bench.log) < before + 5
    scene.bench.sound()


def test_a_job_waits_for_nodes_of_its_best_flavor_too() -> None:
    scene = two()
    typed_nodes(scene, a100=8)
    scene.asks("b/waits", ("main", 1, 2), order="h100,a100", flavor_wait="10m")
    assert not placed(scene, "b/waits")
    scene.bench.pass_time(601_000)
    assert placed(scene, "b/waits") == {"node-a100"}
    scene.asks("b/more", ("main", 1, 2), order="h100,a100", flavor_wait="10m")
    typed_nodes(scene, h100=4)
    assert placed(scene, "b/more") == {"node-h100"}
    scene.bench.sound()


def test_workers_that_a_cluster_asks_for_or_gives_count_in_the_flavor_of_their_group() -> None:
    scene = two()
    tree = scene.bench.states["quota_accountant"].ledger.tree_of("root/a")
    group = ScaledGroup("gpu", replicas=3, least=1, request={"cpu": 1000, GPU: 2000})
    flavors = {"gpu": ("h100",), "head": ("a100",)}
    asked = GrowthRequested(
        cause=Cause(1, 0), ref=REF, attempt=1, cluster=REF, granted={"gpu": 3}, each={"gpu": group.cost}
    )
    charge = Charge("a", "root/a", {}, flavors=flavors)
    two_more = {"cpu": 2000, GPU: 4000, f"{GPU}@h100": 4000}
    assert demand_of_growth(asked, GrowthOption({"gpu": 2}), tree, charge).request == two_more
    spares = spare_of(Elastic((group,)), {"gpu": 3}, tree, flavors)
    assert given_back(spares, {"gpu": 2}) == (two_more, 2)


REF = Ref("RayCluster", "a", "one", "uid-one")


def test_names_of_no_flavor_in_the_list_of_a_job_are_told() -> None:
    scene = Types()
    scene.flavors(FOUR, leaf("a", {}, order="a100"))
    scene.asks("a/one", 1, order="h100, a100, h800")
    seat = Seat(ReadModel())
    for stored in scene.bench.log:
        seat.fold(stored)
    h100, h800 = settings_left_out(seat.state, scene.jobs["a/one"].ref.uid)
    assert "'h100' is no type of quota root/a, which has a100" in h100 and "'h800' is no type" in h800


def test_ask_tells_where_a_job_would_start_and_of_the_other_types() -> None:
    scene = two()
    scene.asks("a/fills", 4)
    seat = Seat(ReadModel())
    for stored in scene.bench.log:
        seat.fold(stored)
    new = scene.job_of("a/new", 4, order="h100,a100")
    answer = asked(seat.state, new, scene.bench.now)
    assert answer.starts_now and answer.request["nvidia.com/gpu@a100"] == "4"
    assert answer.summary.endswith("On h100 it would wait.")


def test_jobs_alike_with_other_lists_do_not_wait_for_each_other() -> None:
    scene = two()
    scene.asks("a/h", 4)
    scene.asks("b/a", 8, order="a100")
    scene.asks("a/first", 4, order="h100")
    scene.asks("a/second", 4, order="h100,a100")
    scene.ends("b/a")
    assert scene.on_each("a", "first", "second") == ["", "a100"]
    scene.bench.sound()


def test_an_answer_that_comes_after_the_release_notes_no_flavor() -> None:
    """The admitter, which decided without having seen the release, watches no nodes for the job."""
    queues, one = Queues(), facts.job("one")
    queues.workloads[one.ref.uid] = one
    short, without = Shortage("main", 0, 1, 2), ({"main": ("a100",)},)
    late = GangDeferred(cause=Cause(1, 0), ref=one.ref, attempt=1, queue="root/a", shortage=short, without=without)
    queuefolds.deferred(queues, Position(3, 0, 3), late)
    assert not queues.passed


def test_a_job_with_two_flavors_takes_the_room_of_one_in_a_round() -> None:
    """Nodes of both types come while a borrower has quota: two owed jobs are tried, each on one type."""
    scene = Types()
    scene.flavors({"h100": 6, "a100": 2}, leaf("a", {"h100": 2, "a100": 2}), leaf("b", {}))
    scene.lines("placement pack")
    scene.asks("a/either", ("main", 1, 2), order="h100,a100")
    scene.asks("a/later", ("main", 1, 2), order="a100")
    scene.bench.paused = frozenset({"gang_admitter"})
    scene.asks("b/borrows", ("main", 1, 2), order="h100")
    scene.bench.facts(*(typed_node(name, 2) for name in ("h100", "a100")))
    scene.settle()
    scene.take("gang_admitter")
    tried = [event.ref.key for event in scene.bench.happened(PlacesFound)]
    assert sorted(tried) == ["a/either", "a/later"]
    scene.bench.paused = frozenset()
    scene.settle()
    assert (placed(scene, "a/either"), placed(scene, "a/later")) == ({"node-h100"}, {"node-a100"})
    scene.bench.sound()


def test_a_job_that_is_queued_again_is_not_tried_on_its_other_flavor_meanwhile() -> None:
    """The nodes of the second type are there before the sorter has heard of the room on the first."""
    scene = Types()
    scene.flavors({"h100": 4, "a100": 2}, leaf("a", {"h100": 2, "a100": 2}), leaf("b", {}))
    scene.lines("placement pack")
    scene.asks("a/either", ("main", 1, 2), order="h100,a100")
    scene.asks("a/later", ("main", 1, 2), order="a100")
    scene.bench.paused = frozenset({"gang_admitter", "queue_sorter"})
    scene.bench.facts(typed_node("h100", 2))
    scene.settle()
    scene.take("gang_admitter")
    scene.bench.facts(typed_node("a100", 2))
    scene.settle()
    scene.take("gang_admitter")
    tried = [event.ref.key for event in scene.bench.happened(PlacesFound)]
    assert tried == ["a/either", "a/later"]
    scene.bench.paused = frozenset()
    scene.settle()
    assert (placed(scene, "a/either"), placed(scene, "a/later")) == ({"node-h100"}, {"node-a100"})
    scene.bench.sound()


def test_a_job_refused_by_its_type_and_by_the_total_waits_for_its_type() -> None:
    scene = Types()
    scene.flavors({"h100": 4, "a100": 4}, leaf("a", {}), leaf("b", {}), reclaim="disabled")
    scene.asks("a/h", 4, order="h100")
    scene.asks("a/a", 4, order="a100")
    scene.asks("b/waits", 4, order="h100")
    denied = scene.bench.happened(QuotaDenied)
    assert [(event.ref.key, event.short.resource) for event in denied] == [("b/waits", f"{GPU}@h100")]
    scene.ends("a/a")  # The total has room, the type has none: nothing is tried again.
    assert len(scene.bench.happened(QuotaDenied)) == 1 and not scene.on("b/waits")
    scene.ends("a/h")
    assert scene.on("b/waits") == "h100"
